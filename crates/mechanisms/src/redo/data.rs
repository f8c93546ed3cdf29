//! File contents: which go into the log with their operation, which go home before it, and which
//! nobody orders. It decides; what is logged is then an edit like any other.

use super::{Redo, add};
use cache::{Buf, BufKind, FlushEpoch};
use env::IdMap;
use format::{BlockNo, Ino};
use integrity::{Change, Edit, Txn};
use std::collections::BTreeMap;
use std::ops::Range;

/// What becomes of file contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DataPolicy {
    /// They are written some time; fsync writes them.
    Unordered,
    /// An operation's contents of up to so many bytes are in its entry (0: none are); more are
    /// durable at home before the entry is in the log.
    Ordered {
        /// The most bytes.
        log_up_to: u64,
    },
}

impl DataPolicy {
    /// Do so many bytes go into the log?
    pub(super) fn is_small(self, bytes: u64) -> bool {
        matches!(self, DataPolicy::Ordered { log_up_to } if log_up_to > 0 && bytes <= log_up_to)
    }
}

#[derive(Default)]
pub(super) struct DataState {
    /// Inodes with contents that were written home and not flushed, with the epoch of the last
    /// write.
    unflushed: BTreeMap<Ino, FlushEpoch>,
    /// Blocks for which the log may hold something, with the LSN of the last.
    logged: IdMap<u64, u64>,
    /// Are the logged blocks of interest?
    tracks: bool,
    /// The log began here when it was last asked.
    head: u64,
}

impl DataState {
    /// From now on logged blocks are remembered.
    pub(super) fn track_logged(&mut self) {
        self.tracks = true;
    }

    /// A block's contents are in an entry that is not in the log yet, or is at this LSN.
    pub(super) fn logged(&mut self, block: BlockNo, lsn: u64) {
        if self.tracks {
            self.logged.insert(block.0, lsn);
        }
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
    }

    /// The log begins here now.
    pub(super) fn forget_below(&mut self, head: u64) {
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
        }
    }

    pub(super) fn flushed(&mut self, epoch: FlushEpoch) {
        self.unflushed.retain(|_, e| *e >= epoch);
    }

    /// Are all writes of the inode's contents durable?
    pub(super) fn is_flushed(&self, ino: Ino) -> bool {
        !self.unflushed.contains_key(&ino)
    }
}

impl Redo {
    /// File contents have been put into a block.
    pub(super) fn note_data(&self, txn: &mut Txn, ino: Ino, buf: &Buf, range: Range<usize>) {
        let DataPolicy::Ordered { log_up_to } = self.data else { return };
        let len = range.len() as u64;
        let mut state = self.state.borrow_mut();
        let s = &mut *state;
        let Some(t) = s.open.get(txn.id) else { return };
        t.data_bytes += len;
        // An operation that announced none may still clear the rest of a block or two.
        let most = log_up_to.max(2 * self.cache.block_bytes() as u64);
        let small = t.small && t.data_bytes <= most;
        let must = s.data.is_logged(buf.block()) && !self.plant.is("direct-over-logged"); // I9
        if !small && !must {
            add(&self.counters.direct_data, len);
            txn.data.push((ino, buf.clone(), range));
            return;
        }
        add(&self.counters.logged_data, len);
        s.open.edit(txn.id, buf.block(), range.clone());
        s.data.logged(buf.block(), u64::MAX);
        let change = Change::Attr(ino);
        txn.edits.push(Edit { buf: buf.clone(), range, before: None, change });
    }
}
