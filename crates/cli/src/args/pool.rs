//! The arguments of `cairn pool`. What a pool is they do not know.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Below the help.
pub(super) const POOL_EXAMPLES: &str = "Examples:
  cairn mkfs s3://bucket/homes/ada --size 100G
  cairn serve s3://bucket/homes/ --nfs 0.0.0.0:2049 --export '=10.0.0.0/8'
      the same on each machine: they divide the volumes below homes/ among them
  cairn pool status s3://bucket/homes/
  cairn pool autofs s3://bucket/homes/ > /etc/auto.homes";

#[derive(Args)]
pub struct PoolArgs {
    #[command(subcommand)]
    pub command: PoolCommand,
}

#[derive(Subcommand)]
pub enum PoolCommand {
    /// Which server has which volume, and which servers there are.
    Status {
        /// s3://BUCKET/PREFIX/ or file:///DIR/
        url: PathBuf,
        /// For programs.
        #[arg(long)]
        json: bool,
    },
    /// A map for autofs: where each volume is mounted from now.
    Autofs {
        /// s3://BUCKET/PREFIX/ or file:///DIR/
        url: PathBuf,
        /// Only this volume's entry, as an executable map gives it.
        volume: Option<String>,
    },
}
