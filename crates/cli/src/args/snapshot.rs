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
        image: PathBuf,
        #[arg(long)]
        json: bool,
    },
    /// Delete the snapshot IMAGE@NAME.
    Delete { image: PathBuf },
    /// Mount the snapshot IMAGE@NAME, for reading, as `cairn mount` does.
    Mount(MountArgs),
}
