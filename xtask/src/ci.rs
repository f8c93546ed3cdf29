//! What has to hold before a change is taken: each step is a command that anybody can run alone.
//! All steps run even after one has failed, so that one round shows everything; tests come last.

use std::path::Path;
use std::process::{Command, ExitCode};

/// A test program that takes longer than this hangs: it is ended, and the log says which test was
/// running. Without it one that hangs would take all others' time, and nobody would learn of it.
const PROGRAM_SECONDS_MAX: u32 = 1500;

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
    let mut command = Command::new(&cargo);
    command.args(step.args).current_dir(root);
    if let Some(runner) = runner_variable() {
        command.env(runner, format!("timeout --kill-after=10 {PROGRAM_SECONDS_MAX}"));
    }
    match command.status() {
        Ok(status) if status.success() => Outcome::Passed,
        Ok(_) => Outcome::Failed,
        Err(e) => {
            eprintln!("cannot start cargo: {e}");
            Outcome::Failed
        }
    }
}

/// The variable by which cargo learns what starts test programs; the machine is in its name.
fn runner_variable() -> Option<String> {
    let said = Command::new("rustc").arg("-vV").output().ok()?;
    let said = String::from_utf8(said.stdout).ok()?;
    let host = said.lines().find_map(|l| l.strip_prefix("host: "))?;
    Some(format!("CARGO_TARGET_{}_RUNNER", host.to_uppercase().replace('-', "_")))
}
