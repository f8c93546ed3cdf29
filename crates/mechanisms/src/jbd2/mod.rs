//! The journals of the jbd2 family (hatzieleftheriou-2013): modes `ordered`, `writeback`, `data`,
//! `wasteless` and `selective`.
//!
//! Rule        What operations change goes into one running transaction. When it is closed, its
//!             blocks, as they are at that moment, are written to the journal; when its commit is
//!             durable, and not before, they may be written back.
//! Terms       *running*, *committing*: the transaction that operations join, and the one on its
//!             way to the journal. *handle*: an operation that has not ended. *frozen*: a block as
//!             a closed transaction left it. *ordered data*: those that are written back before the
//!             commit. *needed from*: the first transaction whose journal copy a block still needs.
//!             *tail*: the first transaction that recovery would replay. *revoke*: nothing older of
//!             this block is to be replayed.
//! Invariants  J1 an image that is written back holds only bytes of transactions whose commit is
//!             durable (journal_heads.rs).
//!             J2 a commit is written when all blocks of its transaction, and all ordered data,
//!             are durable (commit.rs); in the packed format it is written with them, and recovery
//!             checks the sum of each.
//!             J3 a transaction is closed when it has no handle, and every change of a handle is in
//!             one transaction.
//!             J4 the tail passes a transaction when each of its blocks is durable in place, or in
//!             a newer transaction as a whole, or durably freed; the superblock says so durably
//!             before the room is used again (log.rs).
//!             J5 what a transaction frees is not used again before its commit is durable
//!             (busy_extents.rs).
//!             J6 a block freed or written as ordered data that the journal holds a copy of is
//!             revoked by the same transaction, or not written as ordered data at all (policy.rs).
//!             J7 numbers of transactions never come again, whatever ends in between.
//!             J8 `sync` returns after the commit of all it concerns.
//!             J9 after a failed write or flush nothing begins and nothing is committed.
//! On disk     jbd2's format (crates/format/src/jbd2), readable by Linux and e2fsck, in the modes
//!             `ordered`, `writeback` and `data`; packed.rs of the same folder in the others.
//! States      transaction: running -close-> committing -commit durable-> committed
//!             -all in place-> gone; block: journal_heads.rs
//! Recovery    recover.rs: scan, revoke, replay.
//! Cost        a commit: one sequential write, one flush and one write of a block (packed: one
//!             write, one flush), shared by all that wait at the same time.

mod checkpoint;
mod commit;
mod encode;
mod journal_heads;
mod log;
#[cfg(test)]
mod model;
mod policy;
pub(crate) mod recover;
#[cfg(test)]
mod ring;
mod sync;
mod transaction;

use crate::Recipe;
use crate::busy_extents::BusyExtents;
use cache::{Buf, Cache, FlushEpoch, Image, WriteGate};
use env::sync::{Lock, Notify};
use env::{DiskError, Local, Nanos};
use format::Ino;
use format::jbd2::JournalSuperblock;
use integrity::{
    Credits, Edit, Ended, Freed, Integrity, IntegrityError, Plant, Pressure, Scope, Txn, TxnId,
};
use journal_heads::JournalHeads;
use log::Log;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::{Rc, Weak};
use transaction::{Handle, Tid, Transaction};

pub use log::JournalPlace;
pub(crate) use policy::Policy;

/// Bugs that can be planted in `writeback`; the other modes have more.
pub(crate) const PLANTS: &[&str] = &[
    "failed-blocks-committed",
    "commit-before-blocks",
    "no-commit-flush",
    "ack-before-commit",
    "home-before-commit",
    "close-early",
    "forget-revoke",
    "reuse-before-commit",
    "trim-before-home",
    "trim-before-flush",
    "start-not-recorded",
];

/// Bugs for `ordered`.
pub(crate) const ORDERED_PLANTS: &[&str] = &[
    "failed-blocks-committed",
    "fdatasync-overtakes-commit",
    "commit-before-contents",
    "commit-before-blocks",
    "no-commit-flush",
    "ack-before-commit",
    "home-before-commit",
    "close-early",
    "forget-revoke",
    "reuse-before-commit",
    "trim-before-home",
    "trim-before-flush",
    "start-not-recorded",
];

/// Bugs for `data`. A forgotten revocation is none: here every reuse of a block is journaled
/// itself, after what it would have revoked.
pub(crate) const DATA_PLANTS: &[&str] = &[
    "failed-blocks-committed",
    "no-escape",
    "commit-before-blocks",
    "no-commit-flush",
    "ack-before-commit",
    "home-before-commit",
    "close-early",
    "reuse-before-commit",
    "trim-before-home",
    "trim-before-flush",
    "start-not-recorded",
];

/// Bugs for `wasteless`; revocations as in `data`.
pub(crate) const WASTELESS_PLANTS: &[&str] = &[
    "new-block-not-cleared",
    "no-commit-flush",
    "ack-before-commit",
    "home-before-commit",
    "close-early",
    "reuse-before-commit",
    "trim-before-home",
    "trim-before-flush",
    "start-not-recorded",
    "no-escape",
];

/// Bugs for `selective`.
pub(crate) const SELECTIVE_PLANTS: &[&str] = &[
    "direct-over-logged",
    "commit-before-contents",
    "new-block-not-cleared",
    "no-commit-flush",
    "ack-before-commit",
    "home-before-commit",
    "close-early",
    "forget-revoke",
    "reuse-before-commit",
    "trim-before-home",
    "trim-before-flush",
    "start-not-recorded",
    "no-escape",
    "holes-in-steps",
];

/// What a journal is used with.
#[derive(Clone)]
pub struct JournalRecipe {
    /// Where it lies.
    pub place: JournalPlace,
    /// A transaction is committed at least this often.
    pub commit_interval: Nanos,
    /// A checkpoint begins when more of the journal than this is needed.
    pub live_bytes_max: u64,
    /// Mode `selective`: of a write the pieces, one a block, of up to so many bytes are journaled.
    pub threshold: u64,
}

struct State {
    running: Transaction,
    /// The one on its way to the journal, with the inodes that it concerns and what it frees.
    committing: Option<Transaction>,
    heads: JournalHeads,
    busy: BusyExtents<Tid>,
    /// Blocks that the journal holds copies of, with the newest transaction that does.
    logged: BTreeMap<u64, Tid>,
    last_handle: TxnId,
}

/// The mechanism.
pub(crate) struct Jbd2 {
    me: Weak<Jbd2>,
    cache: Rc<Cache>,
    log: Rc<Log>,
    policy: Policy,
    plant: Plant,
    interval: Nanos,
    live_bytes_max: u64,
    state: RefCell<State>,
    /// The newest transaction whose commit is durable.
    committed: Cell<Tid>,
    /// The newest transaction that somebody wants committed.
    wanted: Cell<Tid>,
    /// The running transaction is being closed: nobody begins.
    closing: Cell<bool>,
    stopping: Cell<bool>,
    /// There is something to commit.
    kick: Notify,
    /// A handle has ended that was waited for, a transaction was closed or committed, or everything
    /// has failed.
    changed: Notify,
    /// The same for who waits to join: a handle has ended, a transaction was closed, or everything
    /// has failed.
    space: Notify,
    checkpointing: Lock,
    /// The time of the last commit; the next is never earlier.
    last_time: Cell<Nanos>,
    counters: Counters,
}

#[derive(Default)]
struct Counters {
    commits: Cell<u64>,
    handles: Cell<u64>,
    checkpoints: Cell<u64>,
    revokes: Cell<u64>,
}

fn add(counter: &Cell<u64>, n: u64) {
    counter.set(counter.get() + n);
}

impl Jbd2 {
    /// The mechanism over this cache, whose gate it becomes. The journal is empty. Errors: a
    /// journal with features that nobody here knows.
    pub(crate) fn new(
        recipe: &Recipe,
        journal: &JournalRecipe,
        policy: Policy,
    ) -> Result<Rc<Jbd2>, IntegrityError> {
        let env = recipe.cache.env().clone();
        let log = Log::new(env, journal.place.clone(), policy)?;
        let first = log::first_tid(&JournalSuperblock::decode(&journal.place.superblock)?);
        let state = State {
            running: Transaction::new(first),
            committing: None,
            heads: JournalHeads::default(),
            busy: BusyExtents::default(),
            logged: BTreeMap::new(),
            last_handle: TxnId::NONE,
        };
        let jbd2 = Rc::new_cyclic(|me| Jbd2 {
            me: me.clone(),
            cache: recipe.cache.clone(),
            log: Rc::new(log),
            policy,
            plant: recipe.plant,
            interval: journal.commit_interval,
            live_bytes_max: journal.live_bytes_max,
            state: RefCell::new(state),
            committed: Cell::new(first.before()),
            wanted: Cell::new(Tid::NONE),
            closing: Cell::new(false),
            stopping: Cell::new(false),
            kick: Notify::new(),
            changed: Notify::new(),
            space: Notify::new(),
            checkpointing: Lock::new(),
            last_time: Cell::new(Nanos(0)),
            counters: Counters::default(),
        });
        recipe.cache.set_gate(jbd2.clone());
        jbd2.start_tasks();
        Ok(jbd2)
    }

    fn check(&self) -> Result<(), IntegrityError> {
        self.cache.failure().map_or(Ok(()), |e| Err(e.into())) // J9
    }

    /// An image leaves for its place: what is in it must be in the journal for good.
    fn check_image(&self, s: &State, buf: &Buf, image: &Image) {
        let b = buf.block();
        let upto = self.committed.get();
        let captured = s.heads.captured(b);
        let kept = captured.is_none_or(|t| t <= upto);
        assert!(kept, "J1: {b} goes with transaction {captured:?}, {upto} is committed");
        let changed = s.running.blocks.contains_key(&b.0);
        let apart = !matches!(image, Image::AsIs) || !changed;
        assert!(apart, "J1: {b} goes with bytes of the running transaction");
        let kept_back = matches!(image, Image::NotYet) && captured.is_some();
        assert!(!kept_back, "J1: {captured:?} of {b} is not written, and counts as on its way");
    }

    /// The most blocks that a transaction has before it is closed.
    fn transaction_blocks_max(&self) -> u64 {
        u64::from(self.log.capacity()) / 4
    }

    /// How many journal blocks an operation may need.
    fn blocks_of(&self, need: Credits) -> u64 {
        let bytes = self.cache.block_bytes() as u64;
        let logs = self.policy.journals_data();
        let data = if logs { need.data_bytes.div_ceil(bytes) + 1 } else { 0 };
        // A revocation of 8 bytes for each block that the journal may have a copy of.
        let revokes = if logs { (8 * need.frees).div_ceil(bytes / 2) } else { 0 };
        need.blocks + data + revokes
    }

    /// The most blocks that an operation may need.
    fn available(&self) -> u64 {
        u64::from(self.log.capacity()) * 3 / 4
    }

    /// Can the operation join the running transaction now?
    fn may_join(&self, blocks: u64) -> bool {
        let s = self.state.borrow();
        let empty = s.running.is_empty() && s.running.is_quiet();
        let fits = empty || s.running.size_max() + blocks <= self.transaction_blocks_max();
        fits && !self.closing.get()
    }

    /// Waits until the operation can join the running transaction.
    async fn join(&self, blocks: u64) -> Result<(), IntegrityError> {
        let available = self.available();
        if blocks > available {
            return Err(IntegrityError::LogTooSmall { needed: blocks, available });
        }
        loop {
            self.check()?;
            if self.may_join(blocks) {
                return Ok(());
            }
            if !self.closing.get() {
                let tid = self.state.borrow().running.tid;
                self.want(tid);
            }
            self.space.wait().await;
        }
    }
}

impl WriteGate for Jbd2 {
    fn allows_write_behind(&self) -> bool {
        !self.policy.journals_data()
    }

    fn before_write(&self, buf: &Buf) -> Image {
        let (image, running) = {
            let mut s = self.state.borrow_mut();
            let image = s.heads.before_write(buf);
            self.check_image(&s, buf, &image);
            (image, s.running.tid)
        };
        if self.plant.is("home-before-commit") {
            return Image::AsIs;
        }
        if matches!(image, Image::NotYet) {
            self.want(running); // so that it can go soon
        }
        image
    }

    fn after_write(&self, buf: &Buf, _: &Image, result: Result<(), &DiskError>, epoch: FlushEpoch) {
        let mut s = self.state.borrow_mut();
        s.heads.after_write(buf.block(), result.is_ok(), epoch);
        if self.plant.is("trim-before-flush") {
            s.heads.flushed(epoch.next());
        }
    }

    fn flushed(&self, epoch: FlushEpoch) {
        let freed = self.state.borrow_mut().heads.flushed(epoch);
        freed.into_iter().for_each(|b| self.cache.forget(b));
    }

    fn failed(&self, _: &DiskError) {
        self.changed.wake_all();
        self.space.wake_all();
        self.kick.wake_all();
    }
}

impl Integrity for Jbd2 {
    fn atomic(&self) -> bool {
        true
    }
    fn wants_before(&self, _: &integrity::Change) -> bool {
        false
    }
    fn zeros_are_cheap(&self) -> bool {
        self.policy.is_packed()
    }
    fn contents_first(&self) -> bool {
        self.policy != Policy::Writeback
    }

    fn write_bytes_max(&self) -> u64 {
        let blocks =
            if self.policy.journals_data() { self.transaction_blocks_max() / 2 } else { 0 };
        if blocks > 0 { blocks * self.cache.block_bytes() as u64 } else { u64::MAX }
    }

    fn fits(&self, need: &Credits) -> bool {
        let planted = self.plant.is("holes-in-steps") && need.runs > 12;
        !planted && self.blocks_of(*need) <= self.available()
    }

    fn begins_at_once(&self, need: &Credits) -> bool {
        self.may_join(self.blocks_of(*need))
    }

    fn begin(&self, need: Credits) -> Local<'_, Result<Txn, IntegrityError>> {
        Box::pin(async move {
            let blocks = self.blocks_of(need);
            self.join(blocks).await?;
            add(&self.counters.handles, 1);
            let mut s = self.state.borrow_mut();
            let id = s.last_handle.next();
            s.last_handle = id;
            s.running.begin(id, Handle { blocks });
            let (size, most) = (s.running.size_max(), self.transaction_blocks_max().max(blocks));
            assert!(size <= most, "J4: a transaction may come to have {size} blocks of {most}");
            assert!(self.cache.failure().is_none(), "J9: handle {id} begins after a failure");
            let open = !self.closing.get() && s.running.tid > self.committed.get();
            assert!(open, "J3: handle {id} joins transaction {}, which is closed", s.running.tid);
            let me = self.me.upgrade().expect("a mechanism outlives its transactions");
            Ok(Txn::new(me, id, need.blocks))
        })
    }

    fn change(&self, txn: &mut Txn, edit: Edit) {
        self.note_edit(txn, &edit);
        // The allocations are needed again when the operation's contents come.
        if let integrity::Change::AllocBlocks(_) = edit.change {
            txn.edits.push(edit);
        }
    }

    fn data(&self, txn: &mut Txn, ino: Ino, buf: &Buf, range: Range<usize>) {
        self.note_data(txn, ino, buf, range);
    }

    fn end(&self, txn: Txn) -> Local<'_, Result<Ended, IntegrityError>> {
        Box::pin(async move {
            let tid = {
                let mut s = self.state.borrow_mut();
                s.running.end(txn.id);
                let tid = s.running.tid;
                assert!(tid > self.committed.get(), "J8: {tid} is durable with an open handle");
                s.running.tid
            };
            if self.closing.get() {
                self.changed.wake_all();
            }
            self.space.wake_all();
            if self.is_wanted() {
                self.kick.wake_all(); // it was asked for when there was nothing to commit yet
            }
            Ok(tid.into())
        })
    }

    fn durable(&self, _: Ended) -> Local<'_, Result<(), IntegrityError>> {
        Box::pin(async { Ok(()) }) // within the commit interval
    }

    fn sync(&self, scope: Scope) -> Local<'_, Result<(), IntegrityError>> {
        Box::pin(async move { self.sync_scope(scope).await })
    }

    fn may_reuse(&self, what: Freed) -> bool {
        self.state.borrow().busy.may_reuse(what)
    }

    fn has_busy_extents(&self) -> bool {
        !self.state.borrow().busy.is_empty()
    }

    fn press(&self, why: Pressure) -> Local<'_, Result<(), IntegrityError>> {
        Box::pin(async move { self.relieve(why).await })
    }

    fn close(&self) -> Local<'_, Result<(), IntegrityError>> {
        Box::pin(async move { self.shut().await })
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let bytes = self.cache.block_bytes() as u64;
        vec![
            ("cairn_operations_total", self.counters.handles.get()),
            ("cairn_commits_total", self.counters.commits.get()),
            ("cairn_checkpoints_total", self.counters.checkpoints.get()),
            ("cairn_revokes_total", self.counters.revokes.get()),
            ("cairn_log_bytes_total", self.log.written.get() * bytes),
            ("cairn_log_used_bytes", self.log.used_bytes()),
            ("cairn_log_capacity_bytes", u64::from(self.log.capacity()) * bytes),
        ]
    }
}
