//! The arguments of `cairn crash`: modes, volumes and scenarios of the crash explorer. What they
//! mean together is the command's business.

use super::Commit;
use crate::size;
use clap::{Args, ValueEnum};

/// The volumes of the crash explorer.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub enum CrashProfile {
    /// Of ext2, or of ext3 where the mode has a journal or log.
    Ext3,
    /// As `mkfs --profile ext4` makes them.
    Ext4,
    /// The same without checksums.
    Ext4Plain,
}

#[derive(Args)]
pub struct CrashArgs {
    /// Print the modes of this version, a name a line.
    #[arg(long)]
    pub list_modes: bool,
    /// The mode [default: all].
    #[arg(long)]
    pub mode: Option<String>,
    /// One scenario [default: all].
    #[arg(long)]
    pub scenario: Option<String>,
    /// Another one explores other runs.
    #[arg(long, default_value = "0")]
    pub seed: u64,
    /// At least so many distinct crash images for the mode.
    #[arg(long, default_value = "5000")]
    pub states: u64,
    /// Run with a known bug; `list` names those of the mode. It is looked for in the scenario in
    /// which it shows soonest, where nobody says another.
    #[arg(long, value_name = "MUTATION")]
    pub plant: Option<String>,
    /// One state again, as a violation names it.
    #[arg(long, value_name = "ID")]
    pub replay: Option<String>,
    /// List the scenarios.
    #[arg(long)]
    pub list: bool,
    /// Where the log is: internal, or another disk, whatever the path (modes with a log).
    #[arg(long)]
    pub log: Option<String>,
    /// When a returned operation is durable (modes with a log).
    #[arg(long)]
    pub commit: Option<Commit>,
    /// Writes up to this size are logged (modes with a data log).
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    pub threshold: Option<u64>,
    /// Write data before the metadata that points at them (mode redo).
    #[arg(long)]
    pub ordered_data: bool,
    /// Write down what operations may leave half done (mode soft-updates) [default: not, and for a
    /// fourth of the states more].
    #[arg(long)]
    pub journal_intents: bool,
    /// Volumes that share a log (modes with a log).
    #[arg(long)]
    pub volumes: Option<u64>,
    /// Volumes in a bucket, each written by several machines that are cut (mode lfs).
    #[arg(long)]
    pub in_bucket: bool,
    /// The kind of volume [default: ext3, and for a fourth of the states more ext4].
    #[arg(long)]
    pub profile: Option<CrashProfile>,
    /// Bytes of a block: 1K, 2K or 4K [default: 1K, and for an eighth of the states more the
    /// others].
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    pub block_size: Option<u64>,
    /// A feature that the volumes have besides (`mmp`, `inline_data`); again for another.
    #[arg(long, value_name = "FEATURE")]
    pub with: Vec<String>,
    /// For programs.
    #[arg(long)]
    pub json: bool,
}
