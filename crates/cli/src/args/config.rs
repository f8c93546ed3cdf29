//! The arguments of `cairn config`. What a configuration means is the module's business.

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Args)]
pub struct ConfigArgs {
    #[command(subcommand)]
    pub command: ConfigCommand,
}

#[derive(Subcommand)]
pub enum ConfigCommand {
    /// Is it right? What is wrong is told with line and column.
    Check {
        /// The file.
        #[arg(default_value = crate::config::DEFAULT_PATH)]
        file: PathBuf,
    },
    /// The volumes with the options that hold for each.
    Show {
        /// The file.
        #[arg(default_value = crate::config::DEFAULT_PATH)]
        file: PathBuf,
        /// For programs.
        #[arg(long)]
        json: bool,
    },
}
