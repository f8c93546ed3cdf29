//! Operations that have ended and are not in the store yet, in their order. Usually one goes
//! straight through; it waits while its bytes are mixed with those of an operation that has not
//! ended.

use super::GroupChange;
use crate::redo::open::{Open, Ranges, TxnIds, join_mixed, join_ranges};
use crate::redo::serials::Serial;
use cache::Buf;
use integrity::TxnId;
use std::collections::VecDeque;

/// One group to be: an operation, or several that can only be found together.
pub(super) struct Batch {
    /// The serials in it, first and last.
    pub(super) first: Serial,
    pub(super) serial: Serial,
    pub(super) changes: Vec<GroupChange>,
    /// The bytes it says.
    pub(super) ranges: Ranges,
    /// The operations that were open as it ended and had changed some of these bytes before.
    pub(super) mixed: TxnIds,
    /// Its room in the store.
    pub(super) kept: u64,
    /// The blocks it has changed, in memory; one that several operations changed is there as often.
    pub(super) bufs: Vec<Buf>,
    /// The transactions in it.
    pub(super) txns: Vec<TxnId>,
}

impl Batch {
    /// Has it bytes of an operation that has not ended (I2)? Of one that has changed the same bytes
    /// since, it has none.
    pub(super) fn is_mixed(&self, open: &Open<u64>) -> bool {
        self.mixed.iter().any(|txn| open.has(*txn))
    }

    /// Takes in what ended later: both are found together, or neither is.
    fn join(&mut self, later: Batch) {
        self.serial = later.serial;
        self.changes.extend(later.changes);
        join_ranges(&mut self.ranges, later.ranges);
        join_mixed(&mut self.mixed, later.mixed, &later.txns);
        self.kept += later.kept;
        self.bufs.extend(later.bufs);
        self.txns.extend(later.txns);
    }
}

#[derive(Default)]
pub(super) struct Queue(VecDeque<Batch>);

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Has the last batch bytes of an operation that has not ended? No other one has: whoever ended
    /// after such a one has joined it.
    pub(super) fn is_mixed(&self, open: &Open<u64>) -> bool {
        let mut before_last = self.0.iter().rev().skip(1);
        debug_assert!(
            !before_last.any(|b| b.is_mixed(open)),
            "I2: a group has bytes of an open operation, and others are behind it"
        );
        self.0.back().is_some_and(|last| last.is_mixed(open))
    }

    /// An operation has ended. `mixed`: the last batch was, with it or with another one. Then they
    /// share a group: one of them alone could be found with bytes of the other. True if so.
    pub(super) fn push(&mut self, batch: Batch, mixed: bool) -> bool {
        let follows = self.0.back().is_none_or(|last| last.serial.next() == batch.first);
        assert!(follows, "I1: operation {:?} ends out of order", batch.first);
        assert_eq!(batch.first, batch.serial, "I1: more than one operation ends at once");
        match self.0.back_mut().filter(|_| mixed) {
            Some(last) => {
                last.join(batch);
                true
            }
            None => {
                self.0.push_back(batch);
                false
            }
        }
    }

    /// The first serial in it.
    pub(super) fn first(&self) -> Option<Serial> {
        self.0.front().map(|b| b.first)
    }

    /// The blocks in it, as often as operations have changed them.
    pub(super) fn bufs(&self) -> impl Iterator<Item = &Buf> {
        self.0.iter().flat_map(|b| &b.bufs)
    }

    /// Does the first wait for an operation that is open?
    pub(super) fn waits(&self, open: &Open<u64>) -> bool {
        self.0.front().is_some_and(|b| b.is_mixed(open))
    }

    /// The first, if it can go.
    pub(super) fn pop(&mut self, open: &Open<u64>) -> Option<Batch> {
        if self.waits(open) {
            return None;
        }
        self.0.pop_front()
    }
}
