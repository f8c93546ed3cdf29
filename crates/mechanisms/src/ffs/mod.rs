//! Ordered synchronous writes, and the same without the order (FFS and FFS-async; seltzer-2000,
//! seltzer-1995).
//!
//! Rule        Never point at what is not initialised; never reuse what is still pointed at; never
//!             drop the last pointer to what lives before the new one is set. Here: each edit has a
//!             *phase*, and an edit reaches the disk only when all edits of its transaction in
//!             lower phases are durable.
//! Terms       *record*: an ordered edit that is not durable yet, with the bytes from before it.
//!             *ready*: its turn has come. *captured*: it is in an image on its way. *waiting*
//!             transaction: one whose return promises durability; the others are *delayed* and go
//!             with the write-back.
//! Invariants  I1 an image holds no unready record's bytes: they are rolled back, in the image
//!             alone (render.rs).
//!             I2 a record is durable only by a flush issued after its write completed
//!             (after_write, flushed).
//!             I3 `end` of a waiting transaction returns after the last phase that its caller waits
//!             for is durable: all, or those of the names, behind which a file is released.
//!             I4 what a transaction frees is not reused before all its records are durable
//!             (busy_extents.rs).
//!             I5 a block that is freed keeps no record of its own once the freeing is durable.
//!             I6 after a failed write or flush nothing begins.
//! On disk     nothing of its own.
//! States      record: pending -before_write-> captured -after_write-> written -flushed-> gone
//!             transaction: open -end-> phase 0 .. 5 -flushed-> durable
//! Recovery    none here: when an unclean volume is opened for writing, mode `sync` runs the own
//!             fsck's repair, and mode `async` only if nothing that has a name would be removed.
//! Cost        create 2 flushes, mkdir 3, unlink 1, rmdir 3, rename 3 (a directory up to 5), shared
//!             by all that wait at the same time; delayed data none. Async: none at all.
//!
//! Async is the same machine with one phase that is always ready and never waited for: what is left
//! is I4, without which a new file that is fsynced could share a block with the stale inode of its
//! last owner.

#[cfg(test)]
mod model;
mod phase;
mod records;
mod render;

use crate::Recipe;
use crate::busy_extents::BusyExtents;
use crate::record::is_left;
use crate::touched::{Known, Touched};
use cache::{Begun, Buf, Cache, FlushEpoch, Image, WriteGate};
use env::{DiskError, Local};
use format::{BlockNo, Extent, Ino};
use integrity::{
    Change, Credits, Edit, Ended, FileScope, Freed, Integrity, IntegrityError, Plant, Pressure,
    Scope, Txn, TxnId, invariant,
};
use phase::phase_of;
use records::Records;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::{Rc, Weak};

pub(crate) use phase::PLANTS;

/// Ordered or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Policy {
    /// Ordered synchronous writes.
    Sync,
    /// No order, nothing waited for.
    Async,
}

/// The mechanism.
pub(crate) struct Ffs {
    me: Weak<Ffs>,
    cache: Rc<Cache>,
    policy: Policy,
    plant: Plant,
    last_txn: Cell<TxnId>,
    records: RefCell<Records>,
    busy: RefCell<BusyExtents>,
    /// Blocks that delayed transactions touched, for `Scope::Txn`.
    touched: RefCell<Touched<Vec<Buf>>>,
    syncs: Cell<u64>,
    waits: Cell<u64>,
    releases: Cell<u64>,
    /// With so much held back, what was freed is made durable.
    release_at: Cell<usize>,
    /// Planted bug: blocks in which more than times has changed.
    essential: RefCell<BTreeSet<BlockNo>>,
}

/// What is freed is held until that is durable, and in mode async nobody waits for that: after so
/// many inodes and runs of blocks more, whoever frees the next does. Much more would fill whole
/// groups with what cannot be used, which each search then looks through; much less would make
/// flushes felt.
const HELD_MAX: usize = 1024;

/// Rounds of writing and flushing after which everything is written, not only what is asked for.
const ROUNDS_FEW: u32 = 8;
/// Rounds after which what is not durable is taken for a mistake.
const ROUNDS_MAX: u32 = 1000;

/// What the end of a transaction gives whose phases have all been run: the numbers begin at 1.
const DURABLE: Ended = Ended(0);

impl Ffs {
    /// The mechanism over this cache, whose gate it becomes.
    pub(crate) fn new(recipe: &Recipe, policy: Policy) -> Rc<Ffs> {
        let ffs = Rc::new_cyclic(|me| Ffs {
            me: me.clone(),
            cache: recipe.cache.clone(),
            policy,
            plant: recipe.plant,
            last_txn: Cell::default(),
            records: RefCell::new(Records::new()),
            busy: RefCell::default(),
            touched: RefCell::default(),
            syncs: Cell::new(0),
            waits: Cell::new(0),
            releases: Cell::new(0),
            release_at: Cell::new(HELD_MAX),
            essential: RefCell::default(),
        });
        recipe.cache.set_gate(ffs.clone());
        ffs
    }

    fn phase(&self, change: &Change) -> Option<usize> {
        match self.policy {
            Policy::Sync => phase_of(change, self.plant),
            Policy::Async => phase::frees_pointer(change).then_some(0),
        }
    }

    /// Runs a waiting transaction's phases up to `until`: each is written and made durable before
    /// the next (I3). The last takes `others` along.
    async fn run_phases(
        &self,
        txn: TxnId,
        until: usize,
        others: &[Buf],
    ) -> Result<(), IntegrityError> {
        let last = self.records.borrow().last_phase(txn);
        if last.is_none_or(|last| last > until) {
            self.touched.borrow_mut().note(txn, others.to_vec());
        }
        for phase in 0..=until {
            let mut bufs = self.records.borrow().bufs_of(txn, phase);
            let is_last = last == Some(phase);
            if is_last {
                bufs.extend_from_slice(others);
            }
            if bufs.is_empty() {
                continue;
            }
            let first = self.records.borrow().first_phase(txn);
            let turn = first.is_none_or(|first| first >= phase);
            invariant!(self.plant, turn, "I3: phase {phase} of {txn} begins before {first:?}");
            self.cache.write(bufs).await?;
            if !self.plant.is("skip-flush") {
                self.cache.flush_device().await?;
            } else {
                self.records.borrow_mut().forget_order(txn, phase);
            }
            let mut rounds = 0;
            while !self.records.borrow().phase_done(txn, phase) {
                // An older delayed edit of the same bytes has to go first.
                self.write_everything().await?;
                rounds += 1;
                assert!(rounds < 32, "phase {phase} of transaction {txn} does not end");
            }
        }
        Ok(())
    }

    /// The end of a transaction whose caller waits for its phases up to `until`.
    async fn end_waiting(
        &self,
        txn: TxnId,
        until: usize,
        others: &[Buf],
    ) -> Result<Ended, IntegrityError> {
        self.waits.set(self.waits.get() + 1);
        let last = self.records.borrow().last_phase(txn);
        let begun = self.last_txn.get();
        if !self.plant.is("ack-before-durable") {
            self.run_phases(txn, until, others).await?;
            let left = self.records.borrow().first_phase(txn);
            assert!(left.is_none_or(|p| p > until), "I3: phase {left:?} of {txn} is not durable");
            self.records.borrow_mut().returned(txn);
        }
        if last.is_none_or(|last| last > until) {
            return Ok(txn.into());
        }
        // What a delayed edit takes back in these images, this one may have changed too.
        let waits = |b: &Buf| !self.records.borrow().held_back(b.block(), begun).is_empty();
        let left: Vec<Buf> = others.iter().filter(|b| waits(b)).cloned().collect();
        if !left.is_empty() {
            self.touched.borrow_mut().note(txn, left);
            return Ok(txn.into());
        }
        let left = self.records.borrow().first_phase(txn);
        invariant!(self.plant, left.is_none(), "I3: {txn} is durable, and its phase {left:?} not");
        Ok(DURABLE)
    }

    fn retire(&self) {
        // What is forgotten here may have been the last of another transaction.
        loop {
            let done = self.records.borrow_mut().take_durable_txns();
            if done.is_empty() {
                return;
            }
            for txn in done {
                let left = self.records.borrow().first_phase(txn);
                assert!(left.is_none(), "I4: {txn} is released, and phase {left:?} is not durable");
                let freed = self.busy.borrow_mut().release(txn);
                freed.into_iter().for_each(|e| self.release(e));
            }
        }
    }

    /// Blocks that a durable transaction has freed may be used again, unless they hold attributes
    /// to which the pointer of a user who left before may still be on the disk: then they are his.
    fn release(&self, e: Extent) {
        let user = self.records.borrow().last_counted_in(e);
        if let Some(user) = user {
            let waits = self.records.borrow().first_phase(user).is_some();
            assert!(waits, "I4: {user} is durable, and has a count at {} that is not", e.start);
            self.busy.borrow_mut().add_blocks(user, e);
            // Nobody writes the count any more.
            self.records.borrow_mut().cancel_own(e, user);
            return;
        }
        let forgotten = self.records.borrow().known_in(e);
        self.records.borrow_mut().cancel(e);
        let left = self.records.borrow().has_any_in(e);
        assert!(!left, "I5: freed blocks at {} have edits that wait", e.start);
        forgotten.into_iter().for_each(|b| self.cache.forget(b));
    }

    /// Writes blocks and flushes, until no edit of a delayed transaction in them waits that has
    /// begun by now: held back until a block of a map or of attributes was durable, or written by
    /// somebody else, and not flushed since.
    async fn make_durable(&self, bufs: Vec<Buf>) -> Result<(), IntegrityError> {
        let (last, mut all) = (self.last_txn.get(), bufs.clone());
        for round in 0.. {
            assert!(round < ROUNDS_MAX, "what is held back in {bufs:?} never becomes durable");
            self.keep_pending(&all);
            self.cache.write(all).await?;
            if round == 0 {
                let dropped = self.busy.borrow().take_back_dropped(&bufs);
                self.cache.write(dropped).await?;
            }
            self.cache.flush_device().await?;
            if round >= ROUNDS_FEW {
                self.write_everything().await?;
            }
            let records = self.records.borrow();
            let held = bufs.iter().flat_map(|b| records.held_back(b.block(), last));
            let held: BTreeMap<BlockNo, Buf> = held.map(|b| (b.block(), b)).collect();
            if held.is_empty() {
                break;
            }
            all = bufs.iter().cloned().chain(held.into_values()).collect();
        }
        Ok(())
    }

    /// A block that an operation in flight has freed is clean, and others wait for what it held.
    fn keep_pending(&self, bufs: &[Buf]) {
        let waits = |b: &&Buf| !b.is_dirty() && self.records.borrow().is_pending(b.block());
        bufs.iter().filter(waits).for_each(Buf::mark_dirty);
    }

    /// Writes all that is dirty, and all that waits.
    async fn write_everything(&self) -> Result<(), IntegrityError> {
        self.keep_pending(&self.records.borrow().bufs());
        Ok(self.cache.write_all().await?)
    }

    async fn sync_files(&self, files: &[FileScope]) -> Result<(), IntegrityError> {
        let mut bufs: Vec<Buf> = files.iter().flat_map(|f| self.cache.dirty_of(f.ino)).collect();
        let leaves = self.plant.is("times-left-behind");
        let mut inodes: Vec<BlockNo> = files.iter().map(|f| f.inode_block).collect();
        inodes.retain(|b| !leaves || self.essential.borrow().contains(b));
        bufs.extend(inodes.into_iter().filter_map(|b| self.cache.get_cached(b)));
        self.make_durable(bufs).await
    }

    async fn sync_txn(&self, ended: Ended) -> Result<(), IntegrityError> {
        if ended == DURABLE {
            return Ok(());
        }
        let known = self.touched.borrow_mut().take(ended.into());
        match known {
            Known::All(bufs) => self.make_durable(bufs).await?,
            Known::Nothing => self.write_everything().await?,
            Known::Clean => (),
        }
        Ok(())
    }

    /// Bounds what is held back: writes what clears pointers to it, and no more, and flushes. While
    /// one operation does, others go on, until there is as much again.
    async fn limit_held(&self) {
        let held = self.busy.borrow().len();
        if held < self.release_at.get() {
            return;
        }
        self.release_at.set(held + HELD_MAX);
        let bufs = self.records.borrow().bufs();
        // A failure is sticky: the next to begin is told (I6).
        if self.cache.write(bufs).await.is_ok() && self.cache.flush_device().await.is_ok() {
            self.releases.set(self.releases.get() + 1);
        }
        self.release_at.set(self.busy.borrow().len() + HELD_MAX);
    }
}

/// The blocks of the edits that carry attributes, each once.
fn attribute_bufs(edits: &[Edit]) -> Vec<Buf> {
    let mut bufs: Vec<Buf> = Vec::new();
    for e in edits {
        if !phase::is_hint(&e.change) && !bufs.iter().any(|b| b.same(&e.buf)) {
            bufs.push(e.buf.clone());
        }
    }
    bufs
}

impl WriteGate for Ffs {
    fn last_begun(&self) -> Begun {
        self.last_txn.get().into()
    }
    fn behind(&self, buf: &Buf, last: Begun) -> usize {
        self.records.borrow().behind(buf.block(), last.into())
    }
    fn before_write(&self, buf: &Buf) -> Image {
        if self.plant.is("no-rollback") {
            self.records.borrow_mut().make_ready(buf.block());
        }
        let image = self.records.borrow_mut().capture(buf);
        let left_out =
            self.records.borrow().has_captured(buf.block(), matches!(image, Image::AsIs));
        assert!(left_out, "I1: {buf:?} goes as it is, and an edit of it has not been captured");
        image
    }
    fn after_write(&self, buf: &Buf, _: &Image, result: Result<(), &DiskError>, epoch: FlushEpoch) {
        self.records.borrow_mut().written(buf.block(), result.is_ok(), epoch);
    }
    fn flushed(&self, epoch: FlushEpoch) {
        self.records.borrow_mut().flushed(epoch);
        self.retire();
    }
}

impl Integrity for Ffs {
    fn atomic(&self) -> bool {
        false
    }
    fn names_durable(&self) -> bool {
        self.policy == Policy::Sync
    }
    fn new_blocks_first(&self) -> bool {
        self.policy == Policy::Sync
    }
    fn wants_before(&self, change: &Change) -> bool {
        self.policy == Policy::Sync && self.phase(change).is_some()
    }
    fn begin(&self, need: Credits) -> Local<'_, Result<Txn, IntegrityError>> {
        Box::pin(async move {
            if let Some(e) = self.cache.failure() {
                return Err(e.into()); // I6
            }
            let id = self.last_txn.get().next();
            self.last_txn.set(id);
            let me = self.me.upgrade().expect("a mechanism outlives its transactions");
            Ok(Txn::new(me, id, need.blocks))
        })
    }
    fn change(&self, txn: &mut Txn, edit: Edit) {
        let free = self.busy.borrow().allows(&edit.change);
        assert!(free, "I4: {:?} before its freeing is durable", edit.change);
        if let Change::FreeBlocks(extent) = edit.change {
            self.busy.borrow_mut().add_blocks(txn.id, extent);
        }
        if let Change::FreeInodeBit(ino) = edit.change {
            self.busy.borrow_mut().add_inode(txn.id, ino);
        }
        if self.plant.is_any() && !is_left(self.plant, &edit.change) {
            self.essential.borrow_mut().insert(edit.buf.block());
        }
        let phase = self.phase(&edit.change);
        if self.policy == Policy::Sync {
            let told = phase.is_some() || !phase::is_promised(&edit.change);
            invariant!(self.plant, told, "I3: {:?} is promised, and has no phase", edit.change);
        }
        if let Some(phase) = phase {
            self.records.borrow_mut().add(txn.id, phase, &edit);
        }
        if !phase::is_hint(&edit.change) {
            txn.edits.push(Edit { before: None, ..edit });
        }
    }
    fn data(&self, txn: &mut Txn, ino: Ino, buf: &Buf, range: Range<usize>) {
        let is_last = txn.data.last().is_some_and(|(_, last, _)| last.same(buf));
        if self.policy == Policy::Sync && !is_last {
            txn.data.push((ino, buf.clone(), range));
        }
    }

    fn end(&self, txn: Txn) -> Local<'_, Result<Ended, IntegrityError>> {
        Box::pin(async move {
            let waits = self.policy == Policy::Sync
                && txn.edits.iter().any(|e| phase::is_promised(&e.change));
            let until = phase::last_waited(txn.edits.iter().map(|e| &e.change));
            let mut others = attribute_bufs(&txn.edits);
            if waits {
                // The rest of a block that a returned cut has zeroed.
                others.extend(txn.data.iter().map(|(_, buf, _)| buf.clone()));
            }
            for e in self.busy.borrow().blocks_of(txn.id) {
                self.records.borrow_mut().cancel_own(e, txn.id);
            }
            self.records.borrow_mut().end(txn.id, waits);
            self.retire();
            let ended = match until.filter(|_| waits) {
                Some(until) => self.end_waiting(txn.id, until, &others).await?,
                None => {
                    if waits {
                        self.records.borrow_mut().returned(txn.id); // nothing to wait for
                    }
                    if !others.is_empty() {
                        self.touched.borrow_mut().note(txn.id, others);
                    }
                    txn.id.into()
                }
            };
            if ended != DURABLE {
                self.limit_held().await;
            }
            Ok(ended)
        })
    }
    fn durable(&self, _: Ended) -> Local<'_, Result<(), IntegrityError>> {
        Box::pin(async { Ok(()) })
    }
    fn sync(&self, scope: Scope) -> Local<'_, Result<(), IntegrityError>> {
        Box::pin(async move {
            self.syncs.set(self.syncs.get() + 1);
            match scope {
                Scope::All => self.write_everything().await,
                Scope::Files { files, .. } => self.sync_files(&files).await,
                Scope::Txn(ended) => self.sync_txn(ended).await,
            }
        })
    }
    fn may_reuse(&self, what: Freed) -> bool {
        self.busy.borrow().may_reuse(what)
    }
    fn has_busy_extents(&self) -> bool {
        !self.busy.borrow().is_empty()
    }
    fn press(&self, _: Pressure) -> Local<'_, Result<(), IntegrityError>> {
        Box::pin(self.write_everything())
    }
    fn close(&self) -> Local<'_, Result<(), IntegrityError>> {
        Box::pin(async move {
            self.cache.write_all().await?;
            if !self.plant.is_any() {
                self.records.borrow().check_empty();
            }
            invariant!(self.plant, self.busy.borrow().is_empty(), "I4: what was freed is kept");
            Ok(())
        })
    }
    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("cairn_ordered_operations_total", self.waits.get()),
            ("cairn_syncs_total", self.syncs.get()),
            ("cairn_releases_total", self.releases.get()),
        ]
    }
}
