//! What opening a volume for writing does before anything else, decided before any of it is done: a
//! value that can be printed (`cairn info`), and what came of it. What it means on the disk the
//! layout knows.

use crate::VolumeError;
use check::Progress;
use std::fmt;
use std::sync::Arc;

/// What will be done, and what is lost by it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Decision {
    /// What will be done, in order, a line each; nothing: the volume was closed cleanly.
    pub steps: Vec<String>,
    /// What will be gone afterwards though it has a name.
    pub lost: Option<String>,
    /// Why nothing of it is done, and what to do instead.
    pub refused: Option<String>,
}

impl Decision {
    /// One step, by which nothing is lost that was promised.
    pub(crate) fn step(what: impl Into<String>) -> Decision {
        Decision { steps: vec![what.into()], ..Decision::default() }
    }
    /// Nothing can be done, and why.
    pub(crate) fn refused(why: impl Into<String>) -> Decision {
        Decision { refused: Some(why.into()), ..Decision::default() }
    }
    /// Is there nothing to do?
    pub fn is_nothing(&self) -> bool {
        self.steps.is_empty() && self.refused.is_none()
    }
    /// May it be done? Errors: why not.
    pub(crate) fn allowed(&self) -> Result<(), VolumeError> {
        let lost = self.lost.as_deref().filter(|_| self.steps.is_empty());
        assert!(lost.is_none(), "V1: {lost:?} is lost, and nothing is done");
        self.refused.clone().map_or(Ok(()), |why| Err(VolumeError(why)))
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(why) = &self.refused {
            return write!(f, "not opened for writing: {why}");
        }
        if self.steps.is_empty() {
            return f.write_str("nothing: it was closed cleanly");
        }
        let lost = self.lost.as_deref().unwrap_or("nothing that was promised");
        write!(f, "{}; lost by it: {lost}", self.steps.join("; then "))
    }
}

/// What recovery did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Recovered {
    /// The mode that was finished, by its name; None: the volume was clean.
    pub mode: Option<String>,
    /// Findings that were repaired.
    pub repaired: u64,
    /// Blocks written.
    pub blocks_written: u64,
    /// Transactions, or entries of a log, that were replayed.
    pub transactions: u64,
    /// Blocks of the journal that were read for that.
    pub blocks_scanned: u64,
    /// It was a log of ours that was replayed.
    pub log: bool,
    /// Removed files that were still in use were freed.
    pub freed: bool,
}

/// Who looks on while a volume is recovered.
pub trait Watch: Send + Sync + fmt::Debug {
    /// `done` of `total` units of the phase named are through.
    fn step(&self, phase: &'static str, done: u64, total: u64);
    /// This was done; only called where something had to be.
    fn done(&self, did: &Recovered);
}

/// Tells the watch, if there is one.
pub(crate) struct Tell(pub(crate) Option<Arc<dyn Watch>>);

impl Progress for Tell {
    fn step(&mut self, phase: &'static str, done: u64, total: u64) {
        self.0.iter().for_each(|w| w.step(phase, done, total));
    }
}
