//! The arguments of `cairn log`, the stand-alone log. What entries mean is their writer's business.

use crate::size;
use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Args)]
pub struct LogArgs {
    #[command(subcommand)]
    pub command: LogCommand,
}

/// Which of a log's clients is meant.
#[derive(Args)]
pub struct LogClient {
    /// The log: a file, a partition or a disk.
    pub logfile: PathBuf,
    /// The client's name, up to 16 bytes; each has its own entries and its own trim.
    #[arg(long, default_value = "cairn-log")]
    pub client: String,
}

#[derive(Subcommand)]
pub enum LogCommand {
    /// Make an empty log in a file, a partition or a disk.
    Format {
        /// The log: a file, a partition or a disk.
        logfile: PathBuf,
        /// Size of the file if it is made.
        #[arg(long, default_value = "16M", value_parser = size::parse)]
        size: u64,
        /// Even if there is a log already.
        #[arg(long)]
        force: bool,
    },
    /// Append entries and print their LSNs when they are durable; without TEXT: one, from standard
    /// input.
    Append {
        #[command(flatten)]
        of: LogClient,
        /// An entry each.
        text: Vec<String>,
    },
    /// Write the entry at an LSN to standard output.
    Read {
        /// The log: a file, a partition or a disk.
        logfile: PathBuf,
        /// The entry's position, as `append` and `scan` print it.
        lsn: u64,
    },
    /// List entries: LSN, client, bytes.
    Scan {
        /// The log: a file, a partition or a disk.
        logfile: PathBuf,
        /// Begin here.
        #[arg(long, value_name = "LSN", default_value = "0")]
        from: u64,
        /// For programs.
        #[arg(long)]
        json: bool,
    },
    /// Give up this client's entries below an LSN.
    Trim {
        #[command(flatten)]
        of: LogClient,
        /// What lies before this position is given up.
        lsn: u64,
    },
    /// What the log is, and who uses it.
    Info {
        /// The log: a file, a partition or a disk.
        logfile: PathBuf,
        /// For programs.
        #[arg(long)]
        json: bool,
    },
}
