//! A transaction in the making: the blocks that operations have changed since the last one was
//! closed, with what of each is to be in the journal. It knows no journal blocks and no write-back.

use cache::Buf;
use env::IdMap;
use format::{Extent, Ino};
use integrity::{Ended, TxnId};
use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes that each part costs beside its own: at least what its entry in a descriptor takes.
pub(super) const PIECE_BYTES: usize = 24;

/// What of a block is journaled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Extend {
    /// All of it.
    Whole,
    /// These ranges, sorted, apart. `fresh`: the block was allocated by this transaction, and what
    /// lies around them is zeros.
    Parts { ranges: Vec<Range<usize>>, fresh: bool },
}

impl Extend {
    /// Does nothing older of the block matter?
    pub(super) fn is_complete(&self) -> bool {
        matches!(self, Extend::Whole | Extend::Parts { fresh: true, .. })
    }

    fn add(&mut self, range: Range<usize>, block_bytes: usize) {
        let inside = range.start < range.end && range.end <= block_bytes;
        assert!(inside, "{range:?} of a block of {block_bytes} bytes is journaled");
        let Extend::Parts { ranges, fresh } = self else { return };
        let (mut start, mut end) = (range.start, range.end);
        ranges.retain(|r| {
            let touches = r.start <= end && start <= r.end;
            if touches {
                (start, end) = (start.min(r.start), end.max(r.end));
            }
            !touches
        });
        let at = ranges.partition_point(|r| r.start < start);
        ranges.insert(at, start..end);
        let around = &ranges[at.saturating_sub(1)..ranges.len().min(at + 2)];
        let apart = around.windows(2).all(|w| w[0].end < w[1].start);
        assert!(apart, "parts of a block are journaled that are not apart: {around:?}");
        // With what it takes to name them, the parts must never be more than the block: a
        // transaction counts it as one.
        let bytes: usize = ranges.iter().map(Range::len).sum();
        if !*fresh && bytes + ranges.len() * PIECE_BYTES >= block_bytes {
            *self = Extend::Whole;
        }
    }
}

/// How an inode takes part.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Part {
    /// Times and the like, which fdatasync leaves behind.
    Attributes,
    /// What fdatasync must not leave behind.
    Essential,
}

/// A transaction's number, which never comes again (J7). On disk are its lower 32 bits, which wrap.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(super) struct Tid(u64);

impl Tid {
    /// Before all transactions.
    pub(super) const NONE: Tid = Tid(0);
    /// The first of a journal whose superblock names this number.
    pub(super) fn first(on_disk: u32) -> Tid {
        Tid((1 << 32) + u64::from(on_disk))
    }
    /// As it stands on disk.
    pub(super) fn on_disk(self) -> u32 {
        self.0 as u32
    }
    pub(super) fn next(self) -> Tid {
        Tid(self.0 + 1)
    }
    pub(super) fn before(self) -> Tid {
        assert!(self > Tid::NONE, "J7: nothing lies before the first transaction");
        Tid(self.0 - 1)
    }
}

impl std::fmt::Display for Tid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.on_disk())
    }
}

/// An operation is durable with the transaction that it has joined.
impl From<Tid> for Ended {
    fn from(tid: Tid) -> Ended {
        Ended(tid.0)
    }
}

impl From<Ended> for Tid {
    fn from(ended: Ended) -> Tid {
        Tid(ended.0)
    }
}

/// The blocks of a transaction.
#[derive(Default)]
pub(super) struct Transaction {
    pub(super) tid: Tid,
    /// What is journaled, by block.
    pub(super) blocks: BTreeMap<u64, (Buf, Extend)>,
    /// Contents that are written back before the commit.
    pub(super) ordered: BTreeMap<u64, Buf>,
    pub(super) freed: Vec<Extent>,
    /// The inodes that have changed.
    inodes: IdMap<u32, Part>,
    /// Operations that have not ended: what they may still add.
    handles: IdMap<TxnId, Handle>,
    /// What they may add together, in blocks.
    reserved: u64,
    /// What all that have joined might add together.
    promised: u64,
}

/// An operation that has not ended.
#[derive(Clone, Copy, Default)]
pub(super) struct Handle {
    /// Blocks that it may still add.
    pub(super) blocks: u64,
}

impl Transaction {
    pub(super) fn new(tid: Tid) -> Transaction {
        Transaction { tid, ..Transaction::default() }
    }

    /// Has nothing been changed?
    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.ordered.is_empty() && self.freed.is_empty()
    }
    /// Has every operation ended?
    pub(super) fn is_quiet(&self) -> bool {
        self.handles.is_empty()
    }
    /// How many blocks it may come to have.
    pub(super) fn size_max(&self) -> u64 {
        self.blocks.len() as u64 + self.reserved
    }

    pub(super) fn begin(&mut self, id: TxnId, handle: Handle) {
        self.reserved += handle.blocks;
        self.promised += handle.blocks;
        let old = self.handles.insert(id, handle);
        assert!(old.is_none(), "J3: handle {id} joins twice");
        // For each operation, of all that are open.
        let sum: u64 = self.handles.values().map(|h| h.blocks).sum();
        debug_assert_eq!(self.reserved, sum, "J3: what is promised to all handles of {}", self.tid);
    }
    pub(super) fn end(&mut self, id: TxnId) {
        let h = self.handles.remove(&id);
        let h = h.expect("J3: a handle ends in the transaction that it has joined");
        assert!(self.reserved >= h.blocks, "J3: handle {id} gives back more than was promised");
        self.reserved -= h.blocks;
        let quiet = !self.handles.is_empty() || self.reserved == 0;
        assert!(quiet, "J3: {} blocks are promised to no handle", self.reserved);
    }

    /// Has it no more blocks than its operations said they would change? Room in the journal was
    /// found for so many.
    pub(super) fn keeps_promise(&self) -> bool {
        self.blocks.len() as u64 <= self.promised
    }

    /// Has the operation joined, and not ended?
    pub(super) fn has_handle(&self, id: TxnId) -> bool {
        self.handles.contains_key(&id)
    }

    /// Planted bug: operations go on in the next transaction.
    pub(super) fn adopt_handles(&mut self, before: &mut Transaction) {
        self.handles = std::mem::take(&mut before.handles);
        self.reserved = std::mem::take(&mut before.reserved);
    }

    pub(super) fn note_inode(&mut self, ino: Ino, part: Part) {
        let p = self.inodes.entry(ino.0).or_insert(part);
        *p = (*p).max(part);
    }
    /// Does it hold changes of the inode (beyond its attributes, if `essential`)?
    pub(super) fn concerns(&self, ino: Ino, essential: bool) -> bool {
        let least = if essential { Part::Essential } else { Part::Attributes };
        self.inodes.get(&ino.0).is_some_and(|p| *p >= least)
    }

    /// All of the block is journaled. True: it is new in this transaction.
    pub(super) fn add_whole(&mut self, buf: &Buf) -> bool {
        let before = self.blocks.insert(buf.block().0, (buf.clone(), Extend::Whole));
        before.is_none()
    }
    /// A part of the block is journaled. True: it is new in this transaction.
    pub(super) fn add_part(&mut self, buf: &Buf, range: Range<usize>, fresh: bool) -> bool {
        let mut is_new = false;
        let apart = !self.ordered.contains_key(&buf.block().0);
        assert!(apart, "J6: {range:?} of {buf:?} is journaled, more was to be written in place");
        let (_, extend) = self.blocks.entry(buf.block().0).or_insert_with(|| {
            is_new = true;
            (buf.clone(), Extend::Parts { ranges: Vec::new(), fresh })
        });
        extend.add(range, buf.bytes().len());
        is_new
    }

    /// The blocks are freed by this transaction: what it did to them matters no more.
    pub(super) fn free(&mut self, e: Extent) {
        self.freed.push(e);
        let range = e.start.0..e.start.0 + e.len;
        let mine: Vec<u64> = self.blocks.range(range.clone()).map(|(b, _)| *b).collect();
        let data: Vec<u64> = self.ordered.range(range).map(|(b, _)| *b).collect();
        for b in data {
            self.ordered.remove(&b);
        }
        for b in &mine {
            self.blocks.remove(b);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_joined() {
        let mut e = Extend::Parts { ranges: Vec::new(), fresh: false };
        for r in [10..20, 30..40, 19..25, 50..60] {
            e.add(r, 1000);
        }
        assert_eq!(e, Extend::Parts { ranges: vec![10..25, 30..40, 50..60], fresh: false });
        e.add(25..30, 1000);
        assert_eq!(e, Extend::Parts { ranges: vec![10..40, 50..60], fresh: false });
        e.add(0..1000, 1000);
        assert_eq!(e, Extend::Whole);
        e.add(5..6, 1000);
        assert_eq!(e, Extend::Whole);
    }
}
