//! `cairn generate`: what a package holds that follows from the command line: man pages and the
//! shells' completions. It knows the arguments as clap does, and no command.

use crate::args::{Cli, GenerateArgs, Generated};
use crate::{Failure, Outcome};
use clap::CommandFactory;
use clap_complete::Shell;
use std::path::Path;

/// The command.
pub fn run(a: &GenerateArgs) -> Result<Outcome, Failure> {
    let failed = |e: std::io::Error| Failure::Failed(format!("{}: {e}", a.dir.display()));
    std::fs::create_dir_all(&a.dir).map_err(failed)?;
    match a.what {
        Generated::Man => man_pages(&a.dir),
        Generated::Completions => completions(&a.dir),
    }
    .map_err(failed)?;
    Ok(Outcome::Done)
}

/// cairn.1, cairn-serve.1, …, and the helpers' pages.
fn man_pages(dir: &Path) -> std::io::Result<()> {
    clap_mangen::generate_to(Cli::command().disable_help_subcommand(true), dir)?;
    for (name, page) in HELPERS {
        std::fs::write(dir.join(name), page)?;
    }
    Ok(())
}

fn completions(dir: &Path) -> std::io::Result<()> {
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut Cli::command(), "cairn", dir)?;
    }
    Ok(())
}

/// The pages of what clap does not know: the helpers of mount(8), fsck(8) and mkfs(8).
const HELPERS: [(&str, &str); 3] = [
    ("mount.cairn.8", include_str!("../../man/mount.cairn.8")),
    ("fsck.cairn.8", include_str!("../../man/fsck.cairn.8")),
    ("mkfs.cairn.8", include_str!("../../man/mkfs.cairn.8")),
];
