//! An operation ends: its edits become a group, with the bytes as they are now, which goes into the
//! queue, and from its front into the store. Metadata goes as ranges of bytes, contents and new
//! blocks as a whole.

use super::queue::Batch;
use super::{GroupChange, GroupId, Lfs, State};
use crate::record::{ByteRanges, Touched, contains, extents, files_of, is_left, merge};
use crate::redo::open::Ranges;
use crate::redo::serials::Serial;
use cache::Buf;
use format::{Extent, Ino};
use integrity::{Change, Freed, IntegrityError, Plant, Txn, invariant};
use std::collections::BTreeSet;

/// So many inodes are remembered before those whose operations are durable are forgotten.
const FILES_MAX: usize = 4096;

/// Remembers which files the operation has changed, for who makes one of them durable.
fn note_files(s: &mut State, (txn, plant): (&Txn, Plant), written: &[Ino], serial: Serial) {
    let told = txn.edits.iter().filter(|e| !is_left(plant, &e.change));
    let changed = told.flat_map(|e| files_of(&e.change)).flatten();
    for ino in changed.chain(written.iter().copied()) {
        let before = s.files.insert(u64::from(ino.0), serial);
        let rises = before.is_none_or(|b| b <= serial);
        assert!(rises, "I5: {serial:?} is the newest of inode {ino}, and {before:?} was");
    }
    if s.files.len() > FILES_MAX.max(2 * s.files_kept) {
        let durable = s.durable;
        s.files.retain(|_, newest| *newest > durable);
        s.files_kept = s.files.len();
    }
}

impl Lfs {
    /// Turns the operation into a group and puts it in the queue. Returns its serial; if it changed
    /// nothing, the newest that was given: a long operation's earlier parts are among those.
    pub(super) fn capture(&self, txn: &Txn) -> Serial {
        let mut state = self.state.borrow_mut();
        let s = &mut *state;
        let joins = s.queue.is_mixed(&s.open); // before it is no longer among the open ones
        s.open.check_edits(self.plant, txn);
        let Some(mut opened) = s.open.end(txn.id) else { return s.given };
        let kept = opened.reservation.take().expect("an open operation has room until it ends");
        if txn.edits.is_empty() && txn.data.is_empty() {
            self.store.release(kept);
            return s.given;
        }
        let freed = extents(txn, |c| match c {
            Change::FreeBlocks(e) => Some(*e),
            _ => None,
        });
        let new = extents(txn, |c| match c {
            Change::AllocBlocks(e) => Some(*e),
            _ => None,
        });
        let twice = |all: &[Extent]| all.windows(2).any(|w| w[0].start.plus(w[0].len) > w[1].start);
        invariant!(self.plant, !twice(&freed), "I4: an operation frees a block twice: {freed:?}");
        invariant!(self.plant, !twice(&new), "I4: an operation takes a block twice: {new:?}");
        let (touched, written) = touched(txn, &freed);
        let mut changes: Vec<GroupChange> = freed.iter().map(|e| GroupChange::Free(*e)).collect();
        changes.extend(txn.note.map(GroupChange::Note));
        let (mut ranges, mut bufs) = (Ranges::new(), Vec::new());
        for (block, (buf, mut edits)) in touched {
            merge(&mut edits);
            let end = edits.last().map_or(0, |r| r.end);
            assert!(end <= self.cache.block_bytes(), "I2: a change up to byte {end} of {buf:?}");
            // On a damaged volume another operation may have freed what this one has changed.
            let kept = buf.is_dirty() || !s.busy.may_reuse(Freed::Blocks(one_block(&buf)));
            invariant!(self.plant, kept, "I3: {buf:?} has changed and counts as clean");
            let whole = written.contains(&block.0) || contains(&new, block);
            if whole {
                edits = std::iter::once(0..self.cache.block_bytes()).collect();
                changes.push(GroupChange::Whole(block, buf.image()));
            } else {
                let bytes = buf.bytes();
                let parts = edits.iter().map(|r| (r.start, bytes[r.clone()].to_vec())).collect();
                let image = (!s.open.touches(block)).then(|| buf.image());
                changes.push(GroupChange::Bytes(block, parts, image));
            }
            ranges.insert(block, edits);
            *s.waiting.entry(block.0).or_default() += 1;
            bufs.push(buf);
        }
        s.given = s.given.next();
        let serial = s.given;
        note_files(s, (txn, self.plant), &opened.files, serial);
        let (first, mixed, txns) = (serial, s.open.overlapping(&ranges), vec![txn.id]);
        let batch = Batch { first, serial, changes, ranges, mixed, kept, bufs, txns };
        let joined = s.queue.push(batch, joins);
        let quiet = !self.putting.get() && self.cache.failure().is_none();
        if quiet && s.audit.is_due(s.waiting.len()) {
            s.check();
        }
        self.operations.set(self.operations.get() + 1);
        self.joined.set(self.joined.get() + u64::from(joined));
        serial
    }

    /// Gives the store what can go there, in order (I1). Who comes while another is at it leaves
    /// his to him.
    pub(super) async fn put_ready(&self) -> Result<(), IntegrityError> {
        if self.putting.replace(true) {
            return Ok(());
        }
        // Who waits is woken for each group that is put, and not for none: two who wait would wake
        // one another for ever.
        let result = self.put_all().await;
        assert!(self.putting.replace(false), "I1: two tasks put groups, and either may be first");
        result
    }

    async fn put_all(&self) -> Result<(), IntegrityError> {
        loop {
            self.check()?;
            let batch = {
                let s = &mut *self.state.borrow_mut();
                s.queue.pop(&s.open)
            };
            let Some(b) = batch else { return Ok(()) };
            self.check_ready(&b);
            let (changes, kept) = (b.changes, b.kept);
            let put = if self.plant.is("group-in-halves") && changes.len() > 1 {
                self.put_halves(changes, kept).await
            } else {
                self.store.put(changes, kept).await
            };
            let group = put.map_err(|e| {
                self.cache.fail(&e);
                IntegrityError::from(e)
            })?;
            let s = &mut *self.state.borrow_mut();
            assert_eq!(s.put.next(), b.first, "I1: groups are put as their operations ended");
            let newest = s.groups.back().map(|(_, g)| *g);
            assert!(newest < Some(group), "I5: the group {group} is put after {newest:?}");
            s.put = b.serial;
            s.groups.push_back((b.serial, group));
            b.txns.iter().for_each(|txn| drop(s.busy.release(*txn))); // I4
            for buf in &b.bufs {
                self.is_put(s, buf);
            }
            if s.audit.is_due(s.waiting.len()) {
                s.check();
            }
            self.changed.wake_all();
        }
    }

    /// A group leaves the queue for the store, where reading finds it.
    fn check_ready(&self, b: &Batch) {
        let s = self.state.borrow();
        assert!(b.first <= b.serial, "I1: a group from {:?} to {:?}", b.first, b.serial);
        assert!(b.serial <= s.given, "I1: a group of operations that have not ended is put");
        assert!(!b.is_mixed(&s.open), "I2: a group has bytes of an open operation");
        let open = || b.txns.iter().any(|t| s.open.has(*t));
        assert!(!open(), "I2: a group of operations that are open: {:?}", b.txns);
        let mut freed = b.txns.iter().flat_map(|t| s.busy.blocks_of(*t));
        let free = freed.find(|e| s.busy.may_reuse(Freed::Blocks(*e)));
        assert!(free.is_none(), "I4: {free:?} may be used again before its group is put");
        let waits = |buf: &Buf| s.waiting.contains_key(&buf.block().0);
        assert!(b.bufs.iter().all(waits), "I3: a block is put that could be written back");
    }

    /// A block's group is in the store: if nothing newer is in memory, it need not be written (I3).
    fn is_put(&self, s: &mut State, buf: &Buf) {
        let block = buf.block();
        let left = s.waiting.get_mut(&block.0).map(|n| {
            assert!(*n > 0, "I3: {buf:?} is put more often than it waits");
            *n -= 1;
            *n
        });
        invariant!(self.plant, left.is_some(), "I3: {buf:?} is put and nobody waited for it");
        if left == Some(0) {
            s.waiting.remove(&block.0);
            if !s.open.touches(block) {
                self.cache.is_kept_elsewhere(buf);
            }
        }
    }

    /// Planted bug: one operation is two groups.
    async fn put_halves(
        &self,
        mut changes: Vec<GroupChange>,
        kept: u64,
    ) -> Result<GroupId, env::DiskError> {
        let rest = changes.split_off(changes.len() / 2);
        let first = self.store.put(changes, kept / 2).await?;
        self.store.flush(first).await?;
        self.store.put(rest, kept - kept / 2).await
    }
}

fn one_block(buf: &Buf) -> Extent {
    Extent { start: buf.block(), len: 1 }
}

/// The blocks an operation has changed and not freed, and those of them that hold its contents.
fn touched(txn: &Txn, freed: &[Extent]) -> (Touched, BTreeSet<u64>) {
    let (mut touched, mut written) = (Touched::new(), BTreeSet::new());
    for e in &txn.edits {
        if !contains(freed, e.buf.block()) {
            let t =
                touched.entry(e.buf.block()).or_insert_with(|| (e.buf.clone(), ByteRanges::new()));
            t.1.push(e.range.clone());
        }
    }
    for (_, buf, range) in &txn.data {
        if !contains(freed, buf.block()) {
            let t = touched.entry(buf.block()).or_insert_with(|| (buf.clone(), ByteRanges::new()));
            t.1.push(range.clone());
            written.insert(buf.block().0);
        }
    }
    (touched, written)
}
