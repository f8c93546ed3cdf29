//! File contents: which go into the log with their operation, which are written back before it, and
//! which nobody orders. It decides; what is logged is then an edit like any other.

use super::entry::{EntryBuf, ITEM_HEADER};
use super::open::Ranges;
use super::queue::Batch;
use super::serials::Serial;
use super::ways::{Wait, Way};
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
    /// What is longer and waited for goes into the log too where that is quicker (ways.rs).
    pub(crate) adaptive: bool,
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

/// Of contents that are in an entry which is not in the log yet: behind everything that is.
const NOT_YET: Lsn = Lsn(u64::MAX);

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
        let both = self.unlogged.contains_key(&block.0);
        assert!(!both, "I9: contents of {block} go into the log, and others of it are not there");
        if self.tracks {
            self.logged.insert(block.0, NOT_YET);
        }
    }

    /// A block that an entry at this LSN says something of: if that are contents, they are there.
    pub(super) fn in_log(&mut self, block: BlockNo, lsn: Lsn) {
        if let Some(newest) = self.logged.get_mut(&block.0) {
            let follows = *newest == NOT_YET || *newest <= lsn;
            assert!(
                follows,
                "I9: contents of {block} are in the log at {newest} and then at {lsn}"
            );
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
            let both = self.unlogged.keys().find(|b| self.logged.contains_key(*b));
            debug_assert!(both.is_none(), "I9: contents of {both:?} are in the log, and are not");
        }
    }

    /// May the log hold something for this block?
    pub(super) fn is_logged(&self, block: BlockNo) -> bool {
        self.logged.contains_key(&block.0)
    }

    pub(super) fn after_write(&mut self, buf: &Buf, epoch: FlushEpoch) {
        if buf.kind() == BufKind::Data {
            let before = self.unflushed.insert(buf.owner(), epoch);
            let rises = before.is_none_or(|b| b <= epoch);
            assert!(rises, "I9: {buf:?} was written in {epoch:?}, and others in {before:?}");
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
        let open = s.open.has(txn.id);
        invariant!(self.plant, open, "I3: contents of operation {}, which is not open", txn.id);
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

    /// A caller begins to wait for this operation: for how long, if it has ordered data.
    pub(super) fn begin_wait(&self, serial: Serial) -> Option<Wait> {
        let s = &mut *self.state.borrow_mut();
        let blocks = s.queue.ordered_blocks_of(serial);
        let bytes = blocks * self.cache.block_bytes() as u64;
        (self.data.adaptive && bytes > 0).then(|| s.ways.began(bytes, self.cache.env().now()))
    }

    /// Puts what the entries in the queue wait for into the log with them, if a caller is served
    /// sooner that way (ways.rs): whole blocks, as an operation of its own that takes them over
    /// (I10). False: they go in place. That holds too while the log is half full, since then it is
    /// short of room and everything in it is about to be written a second time.
    pub(super) fn log_ordered(&self) -> bool {
        if !self.data.adaptive || self.log.log().is_half_full() {
            return false;
        }
        let mut state = self.state.borrow_mut();
        let s = &mut *state;
        // An operation that is open and writes much would find in the log what it has no room to
        // put there (I9, I11).
        if s.open.has_large() {
            return false;
        }
        let given = s.serials.given();
        let (bufs, upto) = s.queue.ordered_up_to(given, (&s.open, &s.busy));
        let bufs: BTreeMap<BlockNo, Buf> = bufs.into_iter().map(|b| (b.block(), b)).collect();
        let block_bytes = self.cache.block_bytes();
        let bytes = (bufs.len() * block_bytes) as u64;
        // One that is being written back is clean already, and would never be written for its
        // entry.
        let whole = upto == given && bufs.values().all(Buf::is_dirty);
        let each = bytes / s.queue.ordered_batches().max(1);
        if !whole || bufs.is_empty() || s.ways.of(each) == Way::InPlace {
            return false;
        }
        let most = EntryBuf::new(self.wide).len() + bufs.len() * (block_bytes + 2 * ITEM_HEADER);
        let queued = s.queue.entry_bytes() + most as u64;
        if queued > self.log.log().entry_bytes_max() / 4 {
            return false;
        }
        let Ok(mut reservation) = self.log.try_reserve(most as u64) else { return false };
        let joins = s.queue.is_mixed(&s.open);
        let (mut entry, mut ranges) = (EntryBuf::new(self.wide), Ranges::new());
        for (block, buf) in &bufs {
            entry.write(*block, 0, &buf.bytes());
            ranges.insert(*block, std::iter::once(0..block_bytes).collect());
        }
        let (len, kept) = (entry.len() as u64, reservation.len_bytes());
        assert!(len <= kept, "I11: an entry of {len} bytes where {kept} are kept");
        reservation.shrink(len);
        let serial = s.serials.give();
        let (ordered, freed, txns) = Default::default();
        let (first, mixed) = (serial, s.open.overlapping(&ranges));
        assert!(mixed.is_empty(), "I1: {mixed:?} have changed contents that were free to go");
        let batch =
            Batch { first, serial, entry, ranges, reservation, mixed, ordered, freed, txns };
        s.queue.push(batch, joins);
        s.queue.take_ordered_over(&bufs.keys().map(|b| b.0).collect());
        let left = s.queue.ordered_blocks();
        assert_eq!(left, 0, "I10: an entry has all contents, and {left} blocks are waited for");
        for (block, buf) in &bufs {
            s.data.logged(*block);
            s.dirty_pages.ended(buf, serial, false);
        }
        add(&self.counters.diverted_data, bytes);
        true
    }
}
