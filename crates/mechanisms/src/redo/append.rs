//! An operation ends: its edits become one entry, with the bytes as they are now, which goes into
//! the queue, and from its front into the log. It waits for nothing; commit.rs does.

use super::entry::EntryBuf;
use super::open::Ranges;
use super::queue::{Batch, Ordered};
use super::serials::Serial;
use super::{Redo, State, add, entry};
use crate::record::{ByteRanges, Touched, contains, extents, files_of, is_left, merge};
use cache::{Buf, BufKind};
use format::{Extent, Ino};
use integrity::{Change, Freed, IntegrityError, Plant, Txn, invariant};
use std::collections::BTreeSet;

/// This many inodes are remembered before those whose operations are durable are forgotten.
const FILES_MAX: usize = 4096;

/// Remembers which files the operation has changed, for who makes one of them durable.
fn note_files(s: &mut State, (txn, plant): (&Txn, Plant), written: &[Ino], serial: Serial) {
    let told = txn.edits.iter().filter(|e| !is_left(plant, &e.change));
    let changed = told.flat_map(|e| files_of(&e.change)).flatten();
    let mut last = None;
    for ino in changed.chain(written.iter().copied()) {
        if last.replace(ino) != Some(ino) {
            let before = s.files.insert(u64::from(ino.0), serial);
            let rises = before.is_none_or(|b| b <= serial);
            assert!(rises, "I7: {serial:?} is the newest of inode {ino}, and {before:?} was");
        }
    }
    if s.files.len() > FILES_MAX.max(2 * s.files_kept) {
        let durable = s.serials.durable();
        s.files.retain(|_, newest| *newest > durable);
        s.files_kept = s.files.len();
    }
}

impl Redo {
    /// Turns the operation into an entry and puts it in the queue. Returns its serial; if it
    /// changed nothing, the newest that was given: a long operation's earlier parts are among
    /// those. Errors: see [`Redo::fit`].
    pub(super) fn build_record(&self, txn: Txn) -> Result<Serial, IntegrityError> {
        let mut state = self.state.borrow_mut();
        let s = &mut *state;
        let joins = s.queue.is_mixed(&s.open); // before it is no longer among the open ones
        s.open.check_edits(self.plant, &txn);
        let Some(mut opened) = s.open.end(txn.id) else { return Ok(Serial::NONE) };
        if txn.edits.is_empty() && txn.data.is_empty() {
            return Ok(s.serials.given());
        }
        let mut reservation =
            opened.reservation.take().expect("an open operation has room until it ends");
        let freed = extents(&txn, |c| match c {
            Change::FreeBlocks(e) => Some(*e),
            _ => None,
        });
        let new = extents(&txn, |c| match c {
            Change::AllocBlocks(e) => Some(*e),
            _ => None,
        });
        let twice = |all: &[Extent]| all.windows(2).any(|w| w[0].start.plus(w[0].len) > w[1].start);
        invariant!(self.plant, !twice(&freed), "I6: an operation frees a block twice: {freed:?}");
        invariant!(self.plant, !twice(&new), "I6: an operation takes a block twice: {new:?}");
        let mut touched = Touched::new();
        for e in &txn.edits {
            if !contains(&freed, e.buf.block()) {
                let t = touched
                    .entry(e.buf.block())
                    .or_insert_with(|| (e.buf.clone(), ByteRanges::new()));
                t.1.push(e.range.clone());
            }
        }
        let mut ordered: Vec<Buf> = Vec::new();
        for (_, buf, range) in &txn.data {
            match touched.get_mut(&buf.block()) {
                Some(t) => t.1.push(range.clone()), // some of it is in the log, so all is
                None if contains(&freed, buf.block()) => (),
                None if ordered.last().is_some_and(|l| l.same(buf)) => (),
                None => {
                    let logged = s.data.is_logged(buf.block());
                    invariant!(self.plant, !logged, "I9: the log has contents of {buf:?}");
                    ordered.push(buf.clone());
                }
            }
        }
        let (entry, ranges) = self.encode(s, &mut touched, &new, &freed);
        self.check_dirty(s, &touched);
        self.fit(&mut reservation, entry.len() as u64)?;
        let serial = s.serials.give();
        note_files(s, (&txn, self.plant), &opened.files, serial);
        freed.iter().for_each(|e| s.data.revoked(e.start, e.len));
        let logged = ranges.keys().filter(|b| s.queue.is_ordered(**b));
        let mut gone: BTreeSet<u64> = logged.map(|b| b.0).collect();
        let dropped = s.queue.ordered_in(&freed);
        if self.plant.is("freed-contents-forgotten") {
            s.queue.forget_ordered_alone(&dropped);
        } else {
            gone.extend(dropped);
        }
        let ordered = ordered.into_iter().map(|buf| Ordered { serial, buf }).collect();
        let (first, mixed, txns) = (serial, s.open.overlapping(&ranges), vec![txn.id]);
        let batch =
            Batch { first, serial, entry, ranges, reservation, mixed, ordered, freed, txns };
        let joined = s.queue.push(batch, joins);
        s.queue.take_ordered_over(&gone); // it is the last of the queue, alone or joined
        for (block, (buf, _)) in &touched {
            s.dirty_pages.ended(buf, serial, s.open.touches(*block));
        }
        add(&self.counters.operations, 1);
        add(&self.counters.joined, u64::from(joined));
        Ok(serial)
    }

    fn check_dirty(&self, s: &State, touched: &Touched) {
        for (buf, _) in touched.values() {
            // On a damaged volume another operation may have freed what this one has changed.
            let kept = buf.is_dirty() || !s.busy.may_reuse(Freed::block(buf.block()));
            invariant!(self.plant, kept, "I4: {buf:?} has changed and counts as clean");
        }
    }

    /// Puts into the log what can go there (I2, I3).
    pub(super) fn append(&self) -> Result<(), IntegrityError> {
        loop {
            self.check()?; // after a failure the queue stays as it is
            let batch = {
                let mut state = self.state.borrow_mut();
                let s = &mut *state;
                s.queue.pop((&s.open, &s.busy))
            };
            let Some(b) = batch else { return Ok(()) };
            self.check_ready(&b);
            let mut bytes = b.entry.finish();
            let reserved = b.reservation.len_bytes();
            let len = bytes.len() as u64;
            assert!(len <= reserved, "I11: an entry of {len} bytes in space for {reserved}");
            if self.plant.is("entry-not-atomic") {
                bytes = self.tear(&bytes)?;
            }
            let sent = self.log.append_reserved(b.reservation, &bytes);
            let lsn = sent.map_err(|e| self.log_error(e))?;
            let end = self.log.end();
            assert!(lsn < end, "I5: an entry lies at {lsn} of a log that ends at {end}");
            let needed = self.log.needs().is_some_and(|from| from <= lsn);
            invariant!(self.plant, needed, "I5: the log does not know that {lsn} is needed");
            let mut state = self.state.borrow_mut();
            let s = &mut *state;
            Serial::all(b.first, b.serial).for_each(|n| s.serials.appended(n, lsn));
            for block in b.ranges.keys() {
                let known = s.dirty_pages.is_changed(*block);
                invariant!(self.plant, known, "I4: the log has block {block}, which is clean");
                s.dirty_pages.appended(*block, lsn);
                // Not if a newer entry, in the queue or still open, has contents of the block. The
                // queue is not looked through: a copied tree has hundreds of entries in it.
                let queued = s.dirty_pages.is_changed_after(*block, b.serial);
                debug_assert_eq!(queued, s.queue.says(*block), "I4: what waits for {block}");
                if s.data.is_logged(*block) && !queued && !s.open.touches(*block) {
                    s.data.in_log(*block, lsn);
                }
            }
            s.queue.sent(b.serial, b.freed, b.txns);
        }
    }

    /// An entry leaves the queue for the log: from here on a crash may find it there.
    fn check_ready(&self, b: &Batch) {
        let s = self.state.borrow();
        let next = s.serials.newest_appended().next();
        assert_eq!(b.first, next, "I2: entries go into the log as their operations ended");
        assert!(b.serial <= s.serials.given(), "I2: an entry of operations that have not ended");
        invariant!(self.plant, !b.is_mixed(&s.open), "I3: an entry has bytes of an open operation");
        assert!(b.ordered.is_empty(), "I9: {} blocks of ordered data are due", b.ordered.len());
        let held = |e: &Extent| !s.busy.may_reuse(Freed::Blocks(*e));
        invariant!(self.plant, b.freed.iter().all(held), "I6: {:?} may be used again", b.freed);
    }

    /// Planted bug: half of an entry follows with the next one.
    fn tear(&self, bytes: &[u8]) -> Result<Vec<u8>, IntegrityError> {
        let (now, later) = entry::halves(bytes, self.cache.block_bytes());
        let before = self.state.borrow_mut().torn.replace(later);
        if let Some(b) = before {
            self.log.append(&b).map_err(|e| self.log_error(e))?;
        }
        Ok(now)
    }

    /// The entry, and the ranges of bytes it says, which are taken out of `touched`.
    fn encode(
        &self,
        s: &State,
        touched: &mut Touched,
        new: &[Extent],
        freed: &[Extent],
    ) -> (EntryBuf, Ranges) {
        let block_bytes = self.cache.block_bytes();
        let mut entry = EntryBuf::new(self.wide);
        let mut ranges = Ranges::new();
        for (block, (buf, edits)) in touched {
            merge(edits);
            let data = buf.kind() == BufKind::Data;
            if data && s.queue.is_ordered(*block) {
                // What was to be written back before an older entry is in this one now, all of it.
                *edits = std::iter::once(0..block_bytes).collect();
            }
            let bytes = buf.bytes();
            let end = edits.last().map_or(0, |r| r.end);
            assert!(end <= block_bytes, "an item would reach to byte {end} of block {block}");
            let whole = edits[0] == (0..block_bytes);
            let mut all = None;
            if data && !whole && contains(new, *block) && !self.plant.is("new-block-not-cleared") {
                // What the disk holds there is somebody else's; memory has zeros around the
                // contents.
                entry.zero(*block, 0, block_bytes);
                all = Some(0..block_bytes);
            }
            for r in &*edits {
                entry.write(*block, r.start, &bytes[r.clone()]);
            }
            let said =
                all.map_or_else(|| std::mem::take(edits), |all| std::iter::once(all).collect());
            ranges.insert(*block, said);
        }
        if !self.plant.is("no-revoke") {
            freed.iter().for_each(|e| entry.revoke(*e)); // I6
        }
        (entry, ranges)
    }
}
