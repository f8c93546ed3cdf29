//! Waves are shared. Whoever makes something durable tells what he waits for, and one of all who do
//! leads the next wave for all of them. Each alone would write the blocks that they share, inodes
//! and bitmaps and directories, once for each, with what the others wait for taken back.
//!
//! ```text
//!   asked in wave n's time ─► served by wave n + 1, with all others that asked then
//! ```

use super::graph::NodeId;
use cache::Buf;
use env::sync::Notify;
use integrity::Plant;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// Numbers the waves.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
struct Wave(u64);

impl Wave {
    fn next(self) -> Wave {
        Wave(self.0 + 1)
    }
    fn before(self) -> Wave {
        Wave(self.0 - 1)
    }
}

/// Those who wait, and the waves that were led for them.
#[derive(Default)]
pub(super) struct Waiting {
    last: Cell<u64>,
    wanted: RefCell<BTreeMap<u64, Vec<NodeId>>>,
    /// Blocks to be written in the next wave even if no node in them becomes durable by that.
    plain: RefCell<Vec<Buf>>,
    begun: Cell<Wave>,
    ended: Cell<Wave>,
    changed: Notify,
}

/// One who waits, until this is dropped.
pub(super) struct Asked<'a> {
    waiting: &'a Waiting,
    number: u64,
    /// The first wave that writes what he asked for.
    wave: Wave,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.waiting.wanted.borrow_mut().remove(&self.number);
    }
}

impl Waiting {
    /// Somebody waits for these nodes, and for the `plain` blocks to be written once.
    pub(super) fn ask(&self, wanted: Vec<NodeId>, plain: Vec<Buf>) -> Asked<'_> {
        let number = self.last.get() + 1;
        self.last.set(number);
        self.wanted.borrow_mut().insert(number, wanted);
        self.plain.borrow_mut().extend(plain);
        Asked { waiting: self, number, wave: self.begun.get().next() }
    }

    /// Has a wave ended that wrote what he asked for?
    pub(super) fn is_served(&self, asked: &Asked<'_>) -> bool {
        self.ended.get() >= asked.wave
    }

    /// Begins a wave for all who wait: the nodes and the plain blocks. None: another leads one.
    pub(super) fn begin(&self) -> Option<(Vec<NodeId>, Vec<Buf>)> {
        if self.begun.get() > self.ended.get() {
            return None;
        }
        self.begun.set(self.begun.get().next());
        let all = self.wanted.borrow().values().flatten().copied().collect();
        Some((all, self.plain.take()))
    }

    /// The wave failed and serves nobody: the next to lead one has its blocks, and its own error.
    pub(super) fn give_up(&self, plain: Vec<Buf>, plant: Plant) {
        self.begun.set(self.begun.get().before());
        assert_eq!(self.ended.get(), self.begun.get(), "a wave fails that nobody leads");
        self.plain.borrow_mut().extend(plain);
        if !plant.is("failed-wave-wakes-nobody") {
            self.changed.wake_all();
        }
    }

    /// The wave has ended.
    pub(super) fn end(&self) {
        self.ended.set(self.ended.get().next());
        assert_eq!(self.ended.get(), self.begun.get(), "a wave ends that nobody leads");
        self.changed.wake_all();
    }

    /// Returns when a wave has ended.
    pub(super) async fn wait(&self) {
        self.changed.wait().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(ids: &[u64]) -> Vec<NodeId> {
        ids.iter().copied().map(NodeId).collect()
    }

    #[test]
    fn who_asks_while_a_wave_is_led_is_served_by_the_next() {
        let waiting = Waiting::default();
        let first = waiting.ask(nodes(&[1, 2]), Vec::new());
        assert_eq!(waiting.begin().map(|w| w.0), Some(nodes(&[1, 2])));
        let (second, third) =
            (waiting.ask(nodes(&[3]), Vec::new()), waiting.ask(nodes(&[4]), Vec::new()));
        assert!(waiting.begin().is_none(), "one is under way");
        waiting.end();
        assert!(waiting.is_served(&first) && !waiting.is_served(&second));
        drop(first);
        assert!(waiting.begin().is_some());
        waiting.give_up(Vec::new(), Plant::NONE);
        assert!(!waiting.is_served(&second), "a wave that failed serves nobody");
        assert_eq!(waiting.begin().map(|w| w.0), Some(nodes(&[3, 4])), "and all of them by one");
        waiting.end();
        assert!(waiting.is_served(&second) && waiting.is_served(&third));
    }
}
