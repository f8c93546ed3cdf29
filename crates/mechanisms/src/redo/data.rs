//! File contents: which go into the log with their operation, which are written back before it, and
//! which nobody orders. It decides; what is logged is then an edit like any other.

use super::{Redo, add};
use cache::{Buf, BufKind, FlushEpoch};
use env::IdMap;
use format::{BlockNo, Ino};
use integrity::{Change, Credits, Edit, Txn, invariant};
use std::collections::BTreeMap;
use std::ops::Range;
use wal::Lsn;

/// What becomes of file contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DataPolicy {
    /// What is not logged is durable in place before the entry is in the log; without this it is
    /// written some time, and fsync writes it.
    pub(crate) ordered: bool,
    /// An operation's contents of up to so many bytes are in its entry; 0: none are.
    pub(crate) log_up_to: u64,
    /// The same for operations whose caller waits for the contents: the entry that he waits for
    /// anyway takes the place of a write-back and a flush.
    pub(crate) log_stable_up_to: u64,
}

impl DataPolicy {
    /// Contents that go into the log have at most so many bytes.
    fn most(self, stable: bool) -> u64 {
        if stable { self.log_up_to.max(self.log_stable_up_to) } else { self.log_up_to }
    }

    /// Do the contents of such an operation go into the log?
    pub(super) fn is_small(self, need: &Credits) -> bool {
        let most = self.most(need.stable);
        most > 0 && need.data_bytes <= most
    }

    /// May any contents be in the log?
    pub(super) fn logs_any(self) -> bool {
        self.most(true) > 0
    }
}

#[derive(Default)]
pub(super) struct DataState {
    /// Inodes with contents that were written back and not flushed, with the epoch of the last
    /// write.
    unflushed: BTreeMap<Ino, FlushEpoch>,
    /// Blocks for which the log may hold something, with the LSN of the last.
    logged: IdMap<u64, Lsn>,
    /// Blocks with contents in memory that neither the log nor, as far as is known, the disk has:
    /// these are not logged before they have been written back.
    unlogged: IdMap<u64, ()>,
    /// Are the logged blocks of interest?
    tracks: bool,
    /// The log began here when it was last asked.
    head: Lsn,
}

impl DataState {
    /// From now on logged blocks are remembered.
    pub(super) fn track_logged(&mut self) {
        self.tracks = true;
    }

    /// A block's contents are in an entry that is not in the log yet.
    fn logged(&mut self, block: BlockNo) {
        if self.tracks {
            self.logged.insert(block.0, Lsn(u64::MAX));
        }
    }

    /// A block that an entry at this LSN says something of: if that are contents, they are there.
    pub(super) fn in_log(&mut self, block: BlockNo, lsn: Lsn) {
        if let Some(newest) = self.logged.get_mut(&block.0) {
            *newest = lsn;
        }
    }

    /// Of how many blocks the log may hold contents.
    pub(super) fn logged_blocks(&self) -> usize {
        self.logged.len()
    }

    /// Everything in the log for these blocks is revoked, durably before they are used again.
    pub(super) fn revoked(&mut self, start: BlockNo, len: u64) {
        if self.logged.len() as u64 > len {
            for b in start.0..start.0 + len {
                self.logged.remove(&b);
            }
        } else {
            self.logged.retain(|b, _| !(start.0..start.0 + len).contains(b));
        }
        if self.unlogged.len() as u64 > len {
            for b in start.0..start.0 + len {
                self.unlogged.remove(&b);
            }
        } else {
            self.unlogged.retain(|b, ()| !(start.0..start.0 + len).contains(b));
        }
    }

    /// The log begins here now.
    pub(super) fn forget_below(&mut self, head: Lsn) {
        if self.head < head {
            self.head = head;
            self.logged.retain(|_, lsn| *lsn >= head);
        }
    }

    /// May the log hold something for this block?
    pub(super) fn is_logged(&self, block: BlockNo) -> bool {
        self.logged.contains_key(&block.0)
    }

    pub(super) fn after_write(&mut self, buf: &Buf, epoch: FlushEpoch) {
        if buf.kind() == BufKind::Data {
            self.unflushed.insert(buf.owner(), epoch);
            if !buf.is_dirty() {
                self.unlogged.remove(&buf.block().0);
            }
        }
    }

    pub(super) fn flushed(&mut self, epoch: FlushEpoch) {
        self.unflushed.retain(|_, e| *e >= epoch);
    }

    /// Are there writes of contents that are not durable?
    pub(super) fn has_unflushed(&self) -> bool {
        !self.unflushed.is_empty()
    }

    /// Are all writes of the inode's contents durable?
    pub(super) fn is_flushed(&self, ino: Ino) -> bool {
        !self.unflushed.contains_key(&ino)
    }
}

impl Redo {
    /// File contents have been put into a block.
    pub(super) fn note_data(&self, txn: &mut Txn, ino: Ino, buf: &Buf, range: Range<usize>) {
        let len = range.len() as u64;
        let mut state = self.state.borrow_mut();
        let s = &mut *state;
        let Some(t) = s.open.get(txn.id) else { return };
        if t.files.last() != Some(&ino) {
            t.files.push(ino);
        }
        if !self.data.ordered && !self.data.logs_any() {
            return;
        }
        t.data_bytes += len;
        // An operation that announced none may still clear the rest of a block or two.
        let most = self.data.most(true).max(2 * self.cache.block_bytes() as u64);
        let small = t.small && t.data_bytes <= most;
        let block = buf.block();
        let must = s.data.is_logged(block) && !self.plant.is("direct-over-logged"); // I9
        let both = must && s.data.unlogged.contains_key(&block.0);
        invariant!(self.plant, !both, "I9: contents of {buf:?} are in the log, and are not");
        if !must && (!small || s.data.unlogged.contains_key(&block.0)) {
            add(&self.counters.ordered_data, len);
            if self.data.ordered {
                txn.data.push((ino, buf.clone(), range));
            } else {
                s.data.unlogged.insert(block.0, ());
            }
            return;
        }
        add(&self.counters.logged_data, len);
        s.open.edit(txn.id, buf.block(), range.clone());
        s.data.logged(buf.block());
        let change = Change::Attr(ino);
        txn.edits.push(Edit { buf: buf.clone(), range, before: None, change });
    }
}
