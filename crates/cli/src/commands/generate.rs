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

/// The pages of what clap does not know: the helpers of mount(8), umount(8), fsck(8) and mkfs(8).
const HELPERS: [(&str, &str); 4] = [
    ("mount.cairn.8", include_str!("../../man/mount.cairn.8")),
    ("umount.fuse.cairn.8", include_str!("../../man/umount.fuse.cairn.8")),
    ("fsck.cairn.8", include_str!("../../man/fsck.cairn.8")),
    ("mkfs.cairn.8", include_str!("../../man/mkfs.cairn.8")),
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use clap::Command;
    use std::collections::BTreeSet;

    /// Options of other programs that the documents name.
    const OTHERS: [&str; 9] =
        ["example", "format", "help", "now", "path", "release", "sparse", "tool", "version"];

    /// The long options of a command and of those below it.
    fn longs(command: &Command) -> BTreeSet<String> {
        let own = command.get_arguments().filter_map(|a| a.get_long()).map(str::to_owned);
        own.chain(command.get_subcommands().flat_map(longs)).collect()
    }

    #[test]
    fn documents_name_only_options_that_there_are() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let folder = |name: &str| std::fs::read_dir(root.join(name)).unwrap();
        let pages = folder("docs").chain(folder("crates/cli/man")).map(|f| f.unwrap().path());
        let pages = pages.filter(|p| p.is_file());
        let heads = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|f| root.join(f));
        let known = longs(&Cli::command());
        let is_name = |c: char| c.is_ascii_lowercase() || c == '-';
        for page in pages.chain(heads) {
            let text = std::fs::read_to_string(&page).unwrap();
            for (at, _) in text.match_indices("--") {
                let before = text[..at].chars().next_back().unwrap_or(' ');
                let rest = &text[at + 2..];
                let name = &rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())];
                let is_option = name.starts_with(|c: char| c.is_ascii_lowercase());
                if is_option && !before.is_alphanumeric() && before != '-' {
                    let there = known.contains(name) || OTHERS.contains(&name);
                    assert!(there, "{}: there is no option --{name}", page.display());
                }
            }
        }
    }
}
