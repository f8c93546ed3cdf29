//! The arguments of `cairn fsck`, at rest and while the volume is served. What they mean together
//! is the command's business.

use clap::Args;
use std::path::PathBuf;

#[derive(Args)]
pub struct FsckArgs {
    pub image: PathBuf,
    /// Repair what is found.
    #[arg(long)]
    pub repair: bool,
    /// Give up what the journal or the log holds, where it cannot be read: all that was done and
    /// is not in place yet is lost.
    #[arg(long, requires = "repair")]
    pub discard_log: bool,
    /// Do not look at a volume that was closed cleanly.
    #[arg(long)]
    pub unless_clean: bool,
    /// Check it while it is served; IMAGE may be where it is mounted. What nothing points at is
    /// given back, and damage turns it read-only.
    #[arg(long, conflicts_with_all = ["repair", "discard_log", "unless_clean"])]
    pub background: bool,
    #[arg(long)]
    pub json: bool,
}
