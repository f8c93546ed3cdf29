//! The command line. It starts nothing; run.rs does.

use clap::Parser;
use lab::Setting;
use std::path::PathBuf;
use volume::{Commit, Mode};

/// Cuts the power of the real program and judges what is left.
///
/// Exit status: 0 nothing broken, 1 a promise was broken, 2 wrong use, 3 a run was not possible.
#[derive(Parser, Debug)]
pub(crate) struct Options {
    /// The program
    #[arg(long, value_name = "PATH", default_value = "target/release/cairn")]
    pub(crate) cairn: PathBuf,
    /// An empty folder for the two mounts
    #[arg(long, value_name = "DIR")]
    pub(crate) work: PathBuf,
    /// Only this mode; may be given several times
    #[arg(long = "mode", value_name = "MODE")]
    modes: Vec<String>,
    /// Only this scenario of the crash explorer
    #[arg(long, value_name = "NAME")]
    pub(crate) scenario: Option<String>,
    /// How long each mode may take, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 6)]
    pub(crate) seconds: u64,
    /// Serve with --commit async and judge as if every returned call were durable: what a blind
    /// judge would not find
    #[arg(long)]
    pub(crate) overclaim: bool,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
}

impl Options {
    /// The modes with their options. A mode with a log comes twice: every returned call durable,
    /// and only what was fsynced. Errors: there is no such mode.
    pub(crate) fn settings(&self) -> Result<Vec<Setting>, String> {
        let named = |n: &String| Mode::by_name(n).ok_or_else(|| format!("there is no mode {n}"));
        let modes: Vec<Mode> = if self.modes.is_empty() {
            Mode::proven().map(|m| m.mode).collect()
        } else {
            self.modes.iter().map(named).collect::<Result<_, _>>()?
        };
        Ok(modes.into_iter().flat_map(of_mode).collect())
    }
}

fn of_mode(mode: Mode) -> Vec<Setting> {
    let plain = Setting::plain(mode);
    let mut all = vec![plain];
    if mode.is_logging() {
        all.push(Setting { commit: Commit::Async, ..plain });
    }
    all
}
