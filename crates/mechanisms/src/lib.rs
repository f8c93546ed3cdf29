//! How changes are made safe: every mechanism, a folder each, behind the one table of modes. It
//! knows blocks and transactions; what an inode means, and any name, it does not.

mod audit;
mod busy_extents;
mod ffs;
mod jbd2;
mod lfs;
mod modes;
mod record;
mod redo;
mod soft_updates;
#[cfg(test)]
mod testing;
mod touched;
mod unflushed;

use cache::Cache;
use integrity::{IntegrityError, Mechanism, Plant};
use std::rc::Rc;

pub use jbd2::recover::{Reader as JournalReader, Replay as JournalReplay};
pub use jbd2::{JournalPlace, JournalRecipe};
pub use lfs::{GroupChange, GroupId, GroupStore};
pub use modes::{
    AfterCrash, Contents, IN_SEGMENTS, Keeps, MODES, Mode, ModeInfo, ModeOption, Terms,
};
pub use redo::{Replay as RedoReplay, Replayed, recover};
pub use soft_updates::{INTENT_PLANTS, IntentRecipe};

/// What a mechanism is made of.
#[derive(Clone)]
pub struct Recipe {
    /// The volume's blocks.
    pub cache: Rc<Cache>,
    /// A planted bug, for the crash explorer.
    pub plant: Plant,
    /// The log, for the modes that have one of ours.
    pub log: Option<LogRecipe>,
    /// The journal, for the modes of the jbd2 family.
    pub journal: Option<JournalRecipe>,
    /// The store of groups, for the mode of volumes in segments.
    pub groups: Option<GroupRecipe>,
    /// Where intents are written, for soft updates that keep some.
    pub intents: Option<IntentRecipe>,
}

/// A store of groups, and how it is used.
#[derive(Clone)]
pub struct GroupRecipe {
    /// The store.
    pub store: Rc<dyn GroupStore>,
    /// When does a returned call count as done?
    pub commit: Commit,
    /// Everything is durable so long after it has returned, at the latest.
    pub commit_interval: env::Nanos,
}

/// The log of a mechanism, and how it is used.
#[derive(Clone)]
pub struct LogRecipe {
    /// The volume's place in the log.
    pub client: wal::Client,
    /// When does a returned call count as done?
    pub commit: Commit,
    /// Are contents durable before what points at them (mode `redo`)?
    pub ordered_data: bool,
    /// Contents of up to so many bytes are in the log: all in mode `unified`, those that somebody
    /// waits for in mode `redo`.
    pub threshold: u64,
    /// Everything is durable so long after it has returned, at the latest.
    pub commit_interval: env::Nanos,
    /// A checkpoint begins when the volume needs more of the log than this.
    pub live_bytes_max: u64,
}

/// Bytes of a log or a journal that are taken to be replayed in a second: an assumption on the low
/// side, for small entries on a slow disk, where each costs a read and a write-back.
pub const REPLAY_BYTES_PER_SEC: u64 = 8 << 20;

/// So much of a log may be needed if a replay is to take no longer than `within`.
pub fn live_bytes_max(within: env::Nanos) -> u64 {
    const LEAST: u64 = 1 << 20;
    let bytes = u128::from(within.0) * u128::from(REPLAY_BYTES_PER_SEC) / 1_000_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX).max(LEAST)
}

/// When does a returned call count as done?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Commit {
    /// When it is durable.
    Sync,
    /// At once; it is durable within the commit interval.
    Async,
}

/// The mechanism of `mode` over the recipe's cache, whose gate it becomes. A mode with a log or a
/// journal needs that in the recipe. Errors: a journal that cannot be written, a log too
/// short for what it is to hold.
pub fn build(mode: Mode, recipe: &Recipe) -> Result<Mechanism, IntegrityError> {
    let info = mode.info();
    let made = (info.build)(recipe)?;
    info.check(&*made);
    Ok(made)
}
