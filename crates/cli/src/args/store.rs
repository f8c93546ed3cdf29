//! The arguments of `cairn lfs`, and the names of policies and checkpoints in them. What they mean
//! together is the command's business.

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Args)]
pub struct LfsArgs {
    #[command(subcommand)]
    pub command: LfsCommand,
}

#[derive(Subcommand)]
pub enum LfsCommand {
    /// How its segments are filled; recomputes everything and exits with 3 if something differs.
    Stat {
        /// An image with a store, or a bucket's URL.
        image: PathBuf,
        /// For programs.
        #[arg(long)]
        json: bool,
    },
    /// Empty segments, so that writing finds them.
    Clean {
        /// An image with a store, or a bucket's URL.
        image: PathBuf,
        /// At most so many.
        #[arg(long, default_value = "1048576")]
        segments: u32,
        /// Which first: greedy (the emptiest), cost-benefit (old ones before young ones), balanced
        /// (the same, the age counting less), sepbit; or into holes: plug, paper, adaptive.
        #[arg(long, default_value = "balanced", value_parser = cleaner_policy)]
        policy: lfs::Policy,
    },
    /// Write the newest state as a plain image, which any Linux reads.
    Export {
        /// An image with a store, or a bucket's URL.
        image: PathBuf,
        /// The plain image, a new file.
        out: PathBuf,
        /// The state at a checkpoint instead: newer, older, or its number (not of a bucket).
        #[arg(long, value_name = "older|newer|N", value_parser = checkpoint)]
        checkpoint: Option<lfs::At>,
    },
}

/// A policy that the cleaner of a store can follow.
pub(super) fn cleaner_policy(name: &str) -> Result<lfs::Policy, String> {
    let all = lfs::Policy::ALL.map(|p| p.0).join(", ");
    lfs::Policy::named(name).ok_or_else(|| format!("not one of {all}"))
}

/// From when to when a store is cleaned under pressure, and how much at a time.
pub(super) fn thresholds(text: &str) -> Result<lfs::Thresholds, String> {
    let number = |n: &str| n.trim().parse::<u32>().map_err(|_| format!("{n}: not a number"));
    let parts = text.split(',').map(number).collect::<Result<Vec<u32>, String>>()?;
    let (begin, stop, victims) = match parts[..] {
        [begin, stop] => (begin, stop, lfs::Thresholds::default().victims),
        [begin, stop, victims] => (begin, stop, victims),
        _ => return Err("two or three numbers: when to begin, when to stop, how many".into()),
    };
    lfs::Thresholds { begin, stop, victims }.checked()
}

/// Whether something is done.
pub(super) fn on_or_off(name: &str) -> Result<bool, String> {
    match name {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("on or off".into()),
    }
}

/// When a store is cleaned.
pub(super) fn cleaning(name: &str) -> Result<lfs::Cleaning, String> {
    let all = lfs::Cleaning::ALL.map(|c| c.0).join(", ");
    lfs::Cleaning::named(name).ok_or_else(|| format!("not one of {all}"))
}

/// A checkpoint of a store.
fn checkpoint(name: &str) -> Result<lfs::At, String> {
    match name {
        "newer" => Ok(lfs::At::Newer),
        "older" => Ok(lfs::At::Older),
        n => n.parse().map(lfs::At::Checkpoint).map_err(|_| "older, newer or a number".into()),
    }
}
