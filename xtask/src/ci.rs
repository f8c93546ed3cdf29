//! What has to hold before a change is taken: each step is a command that anybody can run alone.
//! All steps run even after one has failed, so that one round shows everything; tests come last.

use std::path::Path;
use std::process::{Command, ExitCode};

struct Step {
    name: &'static str,
    /// A step whose tool the machine lacks is reported as skipped: a failure where CI is set.
    probe: Option<&'static str>,
    args: &'static [&'static str],
}

const STEPS: &[Step] = &[
    Step { name: "fmt", probe: Some("fmt"), args: &["fmt", "--all", "--check"] },
    Step {
        name: "clippy",
        probe: Some("clippy"),
        args: &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"],
    },
    Step { name: "tidy", probe: None, args: &["xtask", "tidy"] },
    Step {
        name: "test",
        probe: None,
        args: &["test", "--workspace", "--locked", "--no-fail-fast"],
    },
];

enum Outcome {
    Passed,
    Failed,
    Missing,
}

pub(crate) fn run(root: &Path) -> ExitCode {
    let in_ci = std::env::var_os("CI").is_some_and(|v| v == "true");
    let mut bad = 0;
    let mut summary = Vec::new();
    for step in STEPS {
        println!("== {}: cargo {}", step.name, step.args.join(" "));
        let word = match run_step(root, step) {
            Outcome::Passed => "passed",
            Outcome::Failed => {
                bad += 1;
                "FAILED"
            }
            Outcome::Missing if in_ci => {
                bad += 1;
                "FAILED (the tool is missing)"
            }
            Outcome::Missing => "skipped (the tool is missing)",
        };
        summary.push(format!("{}: {word}", step.name));
    }
    println!("== {}", summary.join(", "));
    if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run_step(root: &Path, step: &Step) -> Outcome {
    // Cargo names itself to its children, so that the same toolchain serves every step.
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    if let Some(tool) = step.probe {
        let probe = Command::new(&cargo).args([tool, "--version"]).current_dir(root).output();
        if !probe.is_ok_and(|o| o.status.success()) {
            return Outcome::Missing;
        }
    }
    match Command::new(&cargo).args(step.args).current_dir(root).status() {
        Ok(status) if status.success() => Outcome::Passed,
        Ok(_) => Outcome::Failed,
        Err(e) => {
            eprintln!("cannot start cargo: {e}");
            Outcome::Failed
        }
    }
}
