//! The arguments of `cairn check`. What is looked at is the command's business.

use clap::Args;
use std::path::PathBuf;

/// Whole lines, below its help.
pub(super) const CHECK_EXAMPLES: &str = "Examples:
  cairn check disk.img
      metadata alone, as `cairn fsck` without --repair
  cairn check --read disk.img
      the contents of all files too
  cairn check --read /srv/home
      of a volume in use, through its mount

Exit: 0 all is sound and can be read, 3 it is not, 1 it could not be looked at.";

#[derive(Args)]
pub struct CheckArgs {
    /// A closed volume; with --read also where one is mounted.
    pub image: PathBuf,
    /// Read everything that files hold, and name those with something that cannot be read.
    #[arg(long)]
    pub read: bool,
    /// For programs.
    #[arg(long)]
    pub json: bool,
}
