//! The arguments of the commands that measure: `cairn bench` and `cairn lab`. Which workloads and
//! experiments there are the commands know.

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Args)]
pub struct BenchArgs {
    /// smallfiles, append, fsync, read, write, operations, or soak.
    pub workload: String,
    /// A directory, nfs://HOST:PORT/EXPORT, or an image, which is opened here.
    pub target: String,
    /// The mode, for an image [default: as last used].
    #[arg(long)]
    pub mode: Option<String>,
    /// So many at the same time.
    #[arg(long, default_value = "1")]
    pub threads: usize,
    /// Operations of each thread.
    #[arg(long, default_value = "1000")]
    pub count: u64,
    /// For programs.
    #[arg(long)]
    pub json: bool,
    /// How long a soak goes on.
    #[arg(long, default_value = "60")]
    pub seconds: u64,
    /// The log of `cairn serve -v`: a soak takes the disk's time from what it has measured.
    #[arg(long, value_name = "FILE")]
    pub server_log: Option<PathBuf>,
}

#[derive(Args)]
pub struct LabArgs {
    #[command(subcommand)]
    pub command: LabCommand,
}

#[derive(Subcommand)]
pub enum LabCommand {
    /// Names of the experiments, and what each shows.
    List,
    /// Run experiments, and write what they found as a page [default: all]; exit codes as `run`.
    Report {
        /// As `lab list` has them.
        names: Vec<String>,
        /// Smaller than the paper's: seconds instead of minutes.
        #[arg(long)]
        small: bool,
        /// The page.
        #[arg(long, value_name = "FILE", default_value = "report.html")]
        out: PathBuf,
    },
    /// Run experiments [default: all]; exit 1 if a verdict is worse than docs/lab.md states.
    Run {
        /// As `lab list` has them.
        names: Vec<String>,
        /// Smaller than the paper's: seconds instead of minutes.
        #[arg(long)]
        small: bool,
        /// Tables in Markdown.
        #[arg(long)]
        markdown: bool,
        /// For programs.
        #[arg(long)]
        json: bool,
    },
}
