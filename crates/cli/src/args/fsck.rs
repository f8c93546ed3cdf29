//! The arguments of `cairn fsck`, at rest and while the volume is served. What they mean together
//! is the command's business.

use clap::Args;
use std::path::PathBuf;

/// Whom its exit codes are for.
const FSCK_CODES: &str = "Exit codes:
  cairn fsck  0 sound, 1 it could not be looked at, 2 a wrong call, 3 damage left in place,
              4 repaired
  fsck.cairn  for fsck(8), which has its own: 0 sound, 1 repaired, 4 damage left in place,
              8 it could not be looked at, 16 a wrong call";

#[derive(Args)]
#[command(after_help = FSCK_CODES)]
pub struct FsckArgs {
    /// The volume: an image, a device, IMAGE@pN, or a bucket's URL.
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
    /// For programs.
    #[arg(long)]
    pub json: bool,
}
