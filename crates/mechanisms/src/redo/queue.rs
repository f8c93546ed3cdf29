//! Operations that have ended and are not in the log yet, in their order. Usually one goes straight
//! through; it waits while its bytes are mixed with those of an operation that has not ended, or
//! while contents that must be durable first are not.

use super::entry::EntryBuf;
use super::open::{Open, Ranges, TxnIds, join_mixed, join_ranges};
use super::serials::Serial;
use crate::audit::Audit;
use crate::busy_extents::BusyExtents;
use cache::Buf;
use env::IdMap;
use format::{BlockNo, Extent};
use integrity::TxnId;
use std::collections::{BTreeSet, VecDeque};
use wal::Reservation;

/// The operations that have not ended, and what is held for those that have freed it.
pub(super) type Beside<'a> = (&'a Open, &'a BusyExtents);

/// A block of ordered data, and the operation that has put them there.
pub(super) struct Ordered {
    pub(super) serial: Serial,
    pub(super) buf: Buf,
}

impl Ordered {
    fn block(&self) -> BlockNo {
        self.buf.block()
    }

    /// Has an operation that has not ended changed the block? Then the gate keeps it back (I1). Or
    /// freed it? Then the cache has forgotten it, and to write it would write nothing. What the
    /// contents are afterwards, that operation decides as it ends (I10).
    fn is_refused(&self, (open, busy): Beside<'_>) -> bool {
        let block = self.block();
        open.touches(block) || busy.is_held_for(block, |txn| open.has(txn))
    }
}

/// One entry to be: an operation, or several that can only be durable together.
pub(super) struct Batch {
    /// The serials in it, first and last.
    pub(super) first: Serial,
    pub(super) serial: Serial,
    pub(super) entry: EntryBuf,
    /// The bytes it says.
    pub(super) ranges: Ranges,
    pub(super) reservation: Reservation,
    /// The operations that were open as it ended and had changed some of these bytes before.
    pub(super) mixed: TxnIds,
    /// Contents that must be durable in place before the entry is, in the order of their serials.
    pub(super) ordered: Vec<Ordered>,
    pub(super) freed: Vec<Extent>,
    /// The transactions in it.
    pub(super) txns: Vec<TxnId>,
}

impl Batch {
    /// Has it bytes of an operation that has not ended (I3)? Of one that has changed the same bytes
    /// since, it has none.
    pub(super) fn is_mixed(&self, open: &Open) -> bool {
        self.mixed.iter().any(|txn| open.has(*txn))
    }

    fn is_refused(&self, beside: Beside<'_>) -> bool {
        self.ordered.iter().any(|d| d.is_refused(beside))
    }

    /// Takes in what ended later: both become durable together.
    pub(super) fn join(&mut self, later: Batch) {
        assert_eq!(later.first, self.serial.next(), "I2: serials are joined in order");
        assert!(later.first <= later.serial, "I2: an entry of no operation is joined");
        self.serial = later.serial;
        self.entry.join(&later.entry);
        join_ranges(&mut self.ranges, later.ranges);
        self.reservation.join(later.reservation);
        let (len, kept) = (self.entry.len() as u64, self.reservation.len_bytes());
        assert!(len <= kept, "I11: entries are joined to {len} bytes, for which {kept} are kept");
        join_mixed(&mut self.mixed, later.mixed, &later.txns);
        // Entries that wait for a slow disk have many.
        let twice = later.txns.iter().find(|t| self.txns.contains(t));
        debug_assert!(twice.is_none(), "I2: operation {twice:?} is in two entries");
        self.ordered.extend(later.ordered);
        self.freed.extend(later.freed);
        self.txns.extend(later.txns);
    }
}

/// What is in the log, until it is durable.
pub(super) struct Sent {
    pub(super) serial: Serial,
    pub(super) freed: Vec<Extent>,
    pub(super) txns: Vec<TxnId>,
}

/// Why the first in the queue waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Waits {
    /// For nothing: there is none, or it can go.
    No,
    /// For operations that have changed the same bytes and have not ended.
    ForOpen,
    /// For contents to be durable.
    ForData,
}

#[derive(Default)]
pub(super) struct Queue {
    batches: VecDeque<Batch>,
    /// Blocks of contents that are waited for, and by how many batches.
    ordered: IdMap<u64, u32>,
    sent: VecDeque<Sent>,
    audit: Audit,
}

impl Queue {
    /// Has the last batch bytes of an operation that has not ended? No other one has: whoever ended
    /// after such a one has joined it.
    pub(super) fn is_mixed(&self, open: &Open) -> bool {
        let mut before_last = self.batches.iter().rev().skip(1);
        debug_assert!(
            !before_last.any(|b| b.is_mixed(open)),
            "I3: an entry has bytes of an open operation, and others are behind it"
        );
        self.batches.back().is_some_and(|last| last.is_mixed(open))
    }

    /// An operation has ended. `mixed`: the last batch was, with it or with another one. Then they
    /// share an entry: one of them alone could become durable with bytes of the other. True if so.
    pub(super) fn push(&mut self, batch: Batch, mixed: bool) -> bool {
        let last = self.batches.back();
        let follows = last.is_none_or(|l| l.serial.next() == batch.first);
        assert!(follows, "I2: operation {:?} ends out of order", batch.first);
        assert_eq!(batch.first, batch.serial, "I2: more than one operation ends at once");
        let mut waited_for = batch.ordered.iter().map(Ordered::block);
        let both = waited_for.find(|b| batch.ranges.contains_key(b));
        assert!(both.is_none(), "I9: {both:?} is logged, and to be written before its entry");
        let (len, kept) = (batch.entry.len() as u64, batch.reservation.len_bytes());
        assert!(len <= kept, "I11: an entry of {len} bytes ends with room for {kept}");
        for b in &batch.ordered {
            *self.ordered.entry(b.block().0).or_default() += 1;
        }
        match self.batches.back_mut() {
            Some(last) if mixed => {
                last.join(batch);
                true
            }
            _ => {
                self.batches.push_back(batch);
                false
            }
        }
    }

    /// Contents of `blocks` that were to be written back directly need not any more, because of the
    /// operation that ends now and is the last: it has them in its entry, or it frees the blocks.
    /// Without it the entries that waited for them would be wrong, so those from the first of them
    /// on become one with it (I10).
    pub(super) fn take_ordered_over(&mut self, blocks: &BTreeSet<u64>) {
        let is_one = |d: &Ordered| blocks.contains(&d.block().0);
        let waits = |b: &Batch| b.ordered.iter().any(is_one);
        if blocks.is_empty() {
            return;
        }
        let Some(first) = self.batches.iter().position(waits) else { return };
        for later in self.batches.split_off(first + 1) {
            self.batches[first].join(later);
        }
        self.batches[first].ordered.retain(|d| !is_one(d));
        self.drop_ordered(blocks);
        assert_eq!(
            self.batches.len(),
            first + 1,
            "I10: what waited for them is one entry, the last"
        );
        assert!(!self.batches.iter().any(waits), "I10: an entry waits for contents it is without");
        if self.audit.is_due(self.batches.len() + self.ordered.len()) {
            self.check();
        }
    }

    /// Serials follow one another from what was sent to the last, and what is waited for is counted
    /// as often as entries wait for it.
    pub(super) fn check(&self) {
        let mut next = None;
        for b in &self.batches {
            let (first, last) = (b.first, b.serial);
            assert!(first <= last, "I2: an entry from {first:?} to {last:?}");
            assert!(next.is_none_or(|n| n == first), "I2: {first:?} comes where {next:?} should");
            next = Some(last.next());
            let (len, kept) = (b.entry.len() as u64, b.reservation.len_bytes());
            assert!(len <= kept, "I11: an entry of {len} bytes waits with room for {kept}");
            let rises = b.ordered.is_sorted_by_key(|d| d.serial);
            let inside = b.ordered.iter().all(|d| first <= d.serial && d.serial <= last);
            assert!(rises && inside, "I9: contents of other operations than {first:?} to {last:?}");
        }
        let (sent, first) = (self.sent.back().map(|s| s.serial), self.batches.front());
        let before = first.is_none_or(|b| sent < Some(b.first));
        assert!(before, "I2: {sent:?} was sent, and what was before it waits");
        let mut left: IdMap<u64, u32> = IdMap::default();
        let waits = self.batches.iter().flat_map(|b| &b.ordered);
        waits.for_each(|d| *left.entry(d.block().0).or_default() += 1);
        assert!(left == self.ordered, "I9: contents are waited for more often than is counted");
    }

    /// Nobody waits for the contents of these blocks.
    fn drop_ordered(&mut self, blocks: &BTreeSet<u64>) {
        self.ordered.retain(|b, _| !blocks.contains(b));
    }

    /// Planted bug: of freed blocks the contents are forgotten, and no more.
    pub(super) fn forget_ordered_alone(&mut self, blocks: &BTreeSet<u64>) {
        for b in &mut self.batches {
            b.ordered.retain(|d| !blocks.contains(&d.block().0));
        }
        self.drop_ordered(blocks);
    }

    /// The blocks of these extents whose contents are waited for.
    pub(super) fn ordered_in(&self, extents: &[Extent]) -> BTreeSet<u64> {
        let range = |e: &Extent| e.start.0..e.start.0 + e.len;
        let blocks: u64 = extents.iter().map(|e| e.len).sum();
        if blocks < self.ordered.len() as u64 {
            let waited_for = |b: &u64| self.ordered.contains_key(b);
            return extents.iter().flat_map(range).filter(waited_for).collect();
        }
        let inside = |b: &u64| extents.iter().any(|e| range(e).contains(b));
        self.ordered.keys().copied().filter(inside).collect()
    }

    pub(super) fn waits(&self, beside: Beside<'_>) -> Waits {
        match self.batches.front() {
            None => Waits::No,
            Some(b) if b.is_mixed(beside.0) || b.is_refused(beside) => Waits::ForOpen,
            Some(b) if !b.ordered.is_empty() => Waits::ForData,
            Some(_) => Waits::No,
        }
    }

    /// The first, if it can go. This is asked as every operation ends: what one look tells is asked
    /// first, because an entry that waits for a slow disk may have become long.
    pub(super) fn pop(&mut self, beside: Beside<'_>) -> Option<Batch> {
        let first = self.batches.front()?;
        if !first.ordered.is_empty() || self.waits(beside) != Waits::No {
            return None;
        }
        let first = self.batches.pop_front();
        let left = !self.batches.is_empty() || self.ordered.is_empty();
        assert!(left, "I9: contents are waited for, and no entry waits for them");
        first
    }

    pub(super) fn sent(&mut self, serial: Serial, freed: Vec<Extent>, txns: Vec<TxnId>) {
        let rises = self.sent.back().is_none_or(|s| s.serial < serial);
        assert!(rises, "I2: entry {serial:?} is sent after a newer one");
        let first = self.batches.front().map(|b| b.first);
        let before = first.is_none_or(|f| serial.next() == f);
        assert!(before, "I2: entry {serial:?} is sent, and {first:?} is the next");
        self.sent.push_back(Sent { serial, freed, txns });
        if self.audit.is_due(self.batches.len() + self.ordered.len()) {
            self.check();
        }
    }

    /// What was sent with this serial, now that it is durable.
    pub(super) fn take_sent(&mut self, serial: Serial) -> Option<Sent> {
        let next = self.sent.front().map(|s| s.serial);
        let passed = next.is_some_and(|next| next < serial);
        assert!(!passed, "I2: {serial:?} is durable, and {next:?} before it has not been taken");
        let first = next == Some(serial);
        if first { self.sent.pop_front() } else { None }
    }

    /// The contents that operations up to `serial` wait for, up to the first that cannot be written
    /// back now; and the serial up to which that is.
    pub(super) fn ordered_up_to(&self, serial: Serial, beside: Beside<'_>) -> (Vec<Buf>, Serial) {
        let (mut bufs, mut upto) = (Vec::new(), serial);
        let all = self.batches.iter().flat_map(|b| &b.ordered);
        for d in all.take_while(|d| d.serial <= serial) {
            if d.is_refused(beside) {
                upto = d.serial.before();
                break;
            }
            bufs.push((d.serial, d.buf.clone()));
        }
        assert!(upto <= serial, "I9: contents up to {upto:?} where {serial:?} was asked for");
        // None of an operation that must leave some behind.
        (bufs.into_iter().take_while(|d| d.0 <= upto).map(|d| d.1).collect(), upto)
    }

    /// These contents are durable; no operation up to `serial` waits for them any more. An entry
    /// may have taken in newer ones meanwhile: it waits for theirs, and what it has waited for once
    /// is not written again.
    pub(super) fn data_durable(&mut self, serial: Serial) {
        for b in self.batches.iter_mut().take_while(|b| b.first <= serial) {
            let n = b.ordered.partition_point(|d| d.serial <= serial);
            for d in b.ordered.drain(..n) {
                let block = d.block().0;
                let n = self.ordered.get(&block).copied().unwrap_or(0);
                assert!(n > 0, "I9: block {block} is durable for an entry that was not counted");
                match n {
                    1 => self.ordered.remove(&block),
                    _ => self.ordered.insert(block, n - 1),
                };
            }
        }
        let waits = self.batches.iter().any(|b| !b.ordered.is_empty());
        assert_eq!(waits, !self.ordered.is_empty(), "I9: contents wait, and no entry for them");
    }

    /// The first operation in it.
    pub(super) fn first(&self) -> Option<Serial> {
        self.batches.front().map(|b| b.first)
    }

    /// Does an entry in the queue say something of the block?
    pub(super) fn says(&self, block: BlockNo) -> bool {
        self.batches.iter().any(|b| b.ranges.contains_key(&block))
    }

    /// Do a block's contents wait to be durable in place?
    pub(super) fn is_ordered(&self, block: BlockNo) -> bool {
        self.ordered.contains_key(&block.0)
    }

    /// For how many blocks of contents the operation's entry waits, or would alone if it shares
    /// one.
    pub(super) fn ordered_blocks_of(&self, serial: Serial) -> u64 {
        let at = self.batches.partition_point(|b| b.serial < serial);
        self.batches.get(at).filter(|b| b.first <= serial).map_or(0, |b| {
            let operations = b.serial.0 - b.first.0 + 1;
            (b.ordered.len() as u64).div_ceil(operations)
        })
    }

    /// How many operations there are whose entries wait for contents.
    pub(super) fn ordered_batches(&self) -> u64 {
        let waits = self.batches.iter().filter(|b| !b.ordered.is_empty());
        waits.map(|b| b.serial.0 - b.first.0 + 1).sum()
    }

    /// How long the entries in it are.
    pub(super) fn entry_bytes(&self) -> u64 {
        self.batches.iter().map(|b| b.entry.len() as u64).sum()
    }

    /// How many blocks of contents are waited for.
    pub(super) fn ordered_blocks(&self) -> usize {
        self.ordered.len()
    }
}
