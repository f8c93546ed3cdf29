//! The arguments of `cairn snapshot`. Where a snapshot lies is the command's business.

use super::MountArgs;
use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Args)]
pub struct SnapshotArgs {
    #[command(subcommand)]
    pub command: SnapshotCommand,
}

#[derive(Subcommand)]
pub enum SnapshotCommand {
    /// Make a snapshot, at once, also while the volume is served or mounted; prints its name.
    Create {
        /// IMAGE@NAME, or IMAGE: then its name is the time. A bucket's URL is an image too.
        image: PathBuf,
    },
    /// Which there are, with the times at which they were made.
    List {
        /// An image, or a bucket's URL.
        image: PathBuf,
        /// For programs.
        #[arg(long)]
        json: bool,
    },
    /// Delete the snapshot IMAGE@NAME.
    Delete {
        /// IMAGE@NAME
        image: PathBuf,
    },
    /// Make a volume in a bucket that begins as the snapshot URL@NAME of another one, and shares
    /// with that what neither writes anew.
    Clone {
        /// URL@NAME
        snapshot: PathBuf,
        /// Where the new volume lies: in the same bucket.
        clone: PathBuf,
    },
    /// Mount the snapshot IMAGE@NAME, for reading, as `cairn mount` does.
    Mount(Box<MountArgs>),
}
