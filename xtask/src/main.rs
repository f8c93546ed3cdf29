//! House-keeping: `cargo xtask ci` runs every check, `cargo xtask tidy` the ones no compiler makes.
//! It knows the workspace as files and commands, never as code: it depends on no crate of ours.

mod ci;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask ci | tidy
  ci     rustfmt, clippy with warnings as errors, tidy, and all tests: what CI runs
  tidy   line and file sizes, headers, layering, paths named in the documents";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let root = workspace_root();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["ci"] => ci::run(&root),
        ["tidy"] => tidy::run(&root),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// The folder that holds the workspace: this crate sits directly below it.
fn workspace_root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().expect("xtask is a folder of the workspace").to_path_buf()
}
