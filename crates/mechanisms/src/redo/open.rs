//! The edits of operations that have not ended, by block: which bytes must not be written back, and
//! which ended operation's bytes are mixed with theirs. It knows no log.

use crate::audit::Audit;
use crate::record::{ByteRanges, merge};
use env::IdMap;
use format::{BlockNo, Ino};
use integrity::{Edit, Plant, Txn, TxnId, invariant};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Range;
use wal::Reservation;

/// An operation's newest edit of a block is looked for among so many.
const NEAR: usize = 16;

/// Some of the open operations.
pub(crate) type TxnIds = SmallVec<[TxnId; 4]>;

/// Byte ranges by block.
pub(crate) type Ranges = BTreeMap<BlockNo, ByteRanges>;

/// What two operations say together, which are found in one piece or not at all.
pub(crate) fn join_ranges(all: &mut Ranges, later: Ranges) {
    for (block, ranges) in later {
        let said = all.entry(block).or_default();
        said.extend(ranges);
        merge(said); // counts and times change with every operation
    }
}

/// Whose bytes they are mixed with; the `ended` ones are the later one's own.
pub(crate) fn join_mixed(all: &mut TxnIds, later: TxnIds, ended: &[TxnId]) {
    all.retain(|txn| !ended.contains(txn));
    for txn in later {
        if !all.contains(&txn) {
            all.push(txn);
        }
    }
}

/// An operation that has not ended; `R` is the room it has in whatever log there is.
pub(crate) struct OpenTxn<R = Reservation> {
    /// Its space in the log.
    pub(crate) reservation: Option<R>,
    /// Are the contents it writes few enough for the log?
    pub(crate) small: bool,
    /// Bytes of contents it has written so far.
    pub(crate) data_bytes: u64,
    /// The files whose contents it writes.
    pub(crate) files: Vec<Ino>,
    /// The blocks it has changed.
    blocks: SmallVec<[u64; 12]>,
}

/// The operations that have not ended, and their edits.
pub(crate) struct Open<R = Reservation> {
    txns: BTreeMap<TxnId, OpenTxn<R>>,
    edits: IdMap<u64, Edits>,
    /// Lists that are empty, to be used again.
    spare: Vec<Edits>,
    audit: Audit,
}

/// The edits of one block: by which transaction, which bytes.
type Edits = Vec<(TxnId, Range<usize>)>;
/// So many empty lists are kept.
const SPARE_MAX: usize = 64;

impl<R> Default for Open<R> {
    fn default() -> Open<R> {
        let (txns, edits, spare) = (BTreeMap::new(), IdMap::default(), Vec::new());
        Open { txns, edits, spare, audit: Audit::default() }
    }
}

impl<R> Open<R> {
    pub(crate) fn begin(&mut self, id: TxnId, reservation: R, small: bool) {
        let (files, blocks) = (Vec::new(), SmallVec::new());
        let txn = OpenTxn { reservation: Some(reservation), small, data_bytes: 0, files, blocks };
        let newest = self.txns.last_key_value().map(|(id, _)| *id);
        assert!(newest < Some(id), "operation {id} begins behind {newest:?}, or twice");
        self.txns.insert(id, txn);
    }

    /// Has nobody begun who has not ended?
    pub(crate) fn is_empty(&self) -> bool {
        self.txns.is_empty()
    }

    /// Has one begun whose contents are too many for the log?
    pub(crate) fn has_large(&self) -> bool {
        self.txns.values().any(|t| !t.small)
    }

    /// Has the open operation changed the block, as far as is known here?
    pub(crate) fn is_changed_by(&self, id: TxnId, block: BlockNo) -> bool {
        self.edits.get(&block.0).is_some_and(|list| list.iter().any(|e| e.0 == id))
    }

    /// Has it begun, and not ended?
    pub(crate) fn has(&self, id: TxnId) -> bool {
        self.txns.contains_key(&id)
    }

    pub(crate) fn get(&mut self, id: TxnId) -> Option<&mut OpenTxn<R>> {
        self.txns.get_mut(&id)
    }

    pub(crate) fn edit(&mut self, id: TxnId, block: BlockNo, range: Range<usize>) {
        let t = self.txns.get_mut(&id).expect("an edit belongs to a transaction that has begun");
        let empty = || self.spare.pop().unwrap_or_default();
        let list = self.edits.entry(block.0).or_insert_with(empty);
        if let Some(mine) = list.iter_mut().rev().take(NEAR).find(|e| e.0 == id) {
            if mine.1 == range {
                return; // counts change again and again
            }
            if mine.1.end == range.start {
                mine.1.end = range.end; // pointers are set one after the other
                return;
            }
        }
        if t.blocks.last() != Some(&block.0) {
            t.blocks.push(block.0);
        }
        list.push((id, range));
    }

    /// The operation has ended; its edits are nobody's concern any more.
    pub(crate) fn end(&mut self, id: TxnId) -> Option<OpenTxn<R>> {
        let t = self.txns.remove(&id)?;
        for b in &t.blocks {
            if let Some(list) = self.edits.get_mut(b) {
                assert!(!list.is_empty(), "I3: block {b} is somebody's, and nobody has changed it");
                list.retain(|e| e.0 != id);
                if list.is_empty() {
                    let empty = self.edits.remove(b);
                    if self.spare.len() < SPARE_MAX {
                        self.spare.extend(empty);
                    }
                }
            }
        }
        let none = self.txns.is_empty() && !self.edits.is_empty();
        assert!(!none, "I3: bytes of an open operation, and none is open");
        if self.audit.is_due(self.edits.len()) {
            self.check();
        }
        Some(t)
    }

    /// Each edit is of an operation that is open and knows the block.
    fn check(&self) {
        for (block, list) in &self.edits {
            assert!(!list.is_empty(), "I3: block {block} counts as changed, and by nobody");
            for (id, range) in list {
                let knows = self.txns.get(id).is_some_and(|t| t.blocks.contains(block));
                assert!(knows, "I3: {range:?} of block {block} are of operation {id} for ever");
            }
        }
    }

    /// What an operation that ends has changed was kept back until now: every edit is known here.
    pub(crate) fn check_edits(&self, plant: Plant, txn: &Txn) {
        if cfg!(debug_assertions) {
            let known = |e: &Edit| self.is_changed_by(txn.id, e.buf.block());
            let lost = txn.edits.iter().find(|e| !known(e)).map(|e| &e.buf);
            invariant!(plant, lost.is_none(), "I1: {lost:?} could have gone with open bytes");
        }
    }

    /// Are there edits of operations that have not ended?
    pub(crate) fn has_edits(&self) -> bool {
        !self.edits.is_empty()
    }

    /// Has an open operation changed this block?
    pub(crate) fn touches(&self, block: BlockNo) -> bool {
        self.edits.contains_key(&block.0)
    }

    /// The open operations that have changed any of these bytes. Few blocks are looked for among
    /// many: entries that wait become long.
    pub(crate) fn overlapping(&self, ranges: &Ranges) -> TxnIds {
        let mut ids = TxnIds::new();
        let mut note = |mine: &[Range<usize>], theirs: &[(TxnId, Range<usize>)]| {
            for (id, t) in theirs {
                let meets = |m: &Range<usize>| m.start < t.end && t.start < m.end;
                if !ids.contains(id) && mine.iter().any(meets) {
                    ids.push(*id);
                }
            }
        };
        if self.edits.len() < ranges.len() {
            for (b, theirs) in &self.edits {
                let mine = ranges.get(&BlockNo(*b)).map(ByteRanges::as_slice).unwrap_or_default();
                note(mine, theirs);
            }
        } else {
            for (b, mine) in ranges {
                note(mine, self.edits.get(&b.0).map(Vec::as_slice).unwrap_or_default());
            }
        }
        ids
    }
}
