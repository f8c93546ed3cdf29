//! The mechanism of volumes in a log-structured store: what an operation changed is one atomic
//! group of the store's log, and nothing is ever written in place.
//!
//! Rule        An operation's changes reach the store together, when it has ended, in the order in
//!             which operations end; the store's log is the volume.
//! Terms       *group*: what one operation changed, or several that can only be found together.
//!             *serial*: the place of an operation among those that have ended. *put*: given to the
//!             store, where reading finds it; *durable* comes later.
//! Invariants  I1 groups are put in the order in which operations ended (queue.rs).
//!             I2 a group holds no byte of an operation that is not in it or before it: what is
//!             mixed with an open operation's bytes waits for it and shares its group (queue.rs).
//!             I3 the cache writes no block back that an open operation has changed, or one whose
//!             group is not put; once it is put, the block needs no writing (gate.rs).
//!             I4 what an operation frees is not used again before its group is put.
//!             I5 `durable` (with `--commit sync`) and `sync` return when the store has made the
//!             operation's group durable, and with it all before (commit.rs).
//!             I6 all the room that a group may take is kept before its operation changes anything.
//! On disk     the store's partial segments (docs/lfs.md): ranges of metadata lie in summaries,
//!             blocks of contents and new blocks behind them.
//! States      operation: open -end, capture.rs-> queued -Lfs::put_ready-> put -> durable
//! Recovery    none of its own: the store follows its log to the last whole group.
//! Cost        for an operation that waits, a share of one partial segment and one flush; contents
//!             are written once.

mod capture;
mod commit;
mod gate;
mod queue;

use crate::audit::Audit;
use crate::busy_extents::BusyExtents;
use crate::redo::open::Open;
use crate::redo::serials::Serial;
use crate::{Commit, GroupRecipe, Recipe};
use cache::{Buf, Cache};
use env::sync::Notify;
use env::{Block, DiskError, IdMap, Local, Nanos};
use format::{BlockNo, Extent, Ino};
use integrity::{
    Change, Credits, Edit, Ended, Freed, Integrity, IntegrityError, Plant, Pressure, Scope, Txn,
    TxnId,
};
use queue::Queue;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::rc::{Rc, Weak};

/// Bugs that can be planted in this mode.
pub(crate) const PLANTS: &[&str] = &["ack-before-flush", "open-bytes-put", "group-in-halves"];

/// A change of a group, in the volume's own blocks.
#[derive(Clone, Debug)]
pub enum GroupChange {
    /// The block's contents.
    Whole(BlockNo, Block),
    /// Bytes of it, each with their offset, and the block with them if all of it may be known.
    Bytes(BlockNo, Vec<(usize, Vec<u8>)>, Option<Block>),
    /// These hold nothing any more.
    Free(Extent),
    /// A store that keeps notes keeps this one.
    Note(u128),
}

/// A group that was put, by the store's number; later ones have higher ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct GroupId(pub u64);

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A store that keeps groups: what this mechanism needs of one. Blocks are the volume's.
pub trait GroupStore {
    /// Blocks that a group has at most.
    fn blocks_max(&self) -> u64;
    /// Waits for room for so many blocks, and keeps it; returns what was kept. `frees`: no more
    /// blocks hold something afterwards, so that there is room in a full store too. Errors: there
    /// is none until something is freed, or the store has failed.
    fn reserve(&self, blocks: u64, frees: bool) -> Local<'_, Result<u64, DiskError>>;
    /// Blocks for which there is room, where the volume has more; None: for all of them.
    fn space_left(&self) -> Option<u64> {
        None
    }
    /// Would [`GroupStore::reserve`] return at once, for a group that adds nothing?
    fn has_room_now(&self, blocks: u64) -> bool;
    /// Gives back what was kept.
    fn release(&self, kept: u64);
    /// Puts a group behind all others, in the room that was kept for it. Reading finds
    /// it from then on. One at a time.
    fn put(&self, group: Vec<GroupChange>, kept: u64) -> Local<'_, Result<GroupId, DiskError>>;
    /// Makes this group durable, and all before it.
    fn flush(&self, group: GroupId) -> Local<'_, Result<(), DiskError>>;
    /// Counters for metrics, by Prometheus name.
    fn counters(&self) -> Vec<(&'static str, u64)>;
}

#[derive(Default)]
struct State {
    last_txn: TxnId,
    open: Open<u64>,
    queue: Queue,
    busy: BusyExtents,
    /// The last operation that has ended, and the last that was put.
    given: Serial,
    put: Serial,
    /// The groups that were put and are not known to be durable, by the last serial in them.
    groups: VecDeque<(Serial, GroupId)>,
    durable: Serial,
    /// Of each block with changes that are not put, how many batches have some.
    waiting: IdMap<u64, u32>,
    /// The newest operation of each inode that is not known to be durable.
    files: IdMap<u64, Serial>,
    files_kept: usize,
    audit: Audit,
}

impl State {
    /// Where no group is on its way to the store: what was given is put or queued, and each block
    /// waits for as many groups as the queue has of it.
    fn check(&self) {
        let (put, given, durable) = (self.put, self.given, self.durable);
        assert!(durable <= put && put <= given, "I5: {durable:?} durable, {put:?} put, {given:?}");
        let mut waits: IdMap<u64, u32> = IdMap::default();
        self.queue.bufs().for_each(|b| *waits.entry(b.block().0).or_default() += 1);
        assert!(waits == self.waiting, "I3: blocks wait for groups that the queue does not have");
        let next = self.queue.first().unwrap_or(given.next());
        assert_eq!(put.next(), next, "I1: {put:?} is put, and {next:?} is the next");
        let rise = |(a, b): (&(Serial, GroupId), &(Serial, GroupId))| a.0 < b.0 && a.1 < b.1;
        let rises = self.groups.iter().zip(self.groups.iter().skip(1)).all(rise);
        assert!(rises, "I5: groups become durable in no order: {:?}", self.groups);
    }
}

/// The mechanism.
pub(crate) struct Lfs {
    me: Weak<Lfs>,
    cache: Rc<Cache>,
    store: Rc<dyn GroupStore>,
    commit: Commit,
    plant: Plant,
    state: RefCell<State>,
    /// An operation has ended, a group was put, or everything has failed.
    changed: Notify,
    /// Operations may begin again, or everything has failed.
    unbarred: Notify,
    /// How many wait until no operation is open.
    barrier: Cell<u32>,
    putting: Cell<bool>,
    sending: Cell<bool>,
    send_after: Nanos,
    stopping: Cell<bool>,
    operations: Cell<u64>,
    joined: Cell<u64>,
}

impl Lfs {
    /// The mechanism over this cache, whose gate it becomes.
    pub(crate) fn new(recipe: &Recipe, of: &GroupRecipe) -> Rc<Lfs> {
        let lfs = Rc::new_cyclic(|me| Lfs {
            me: me.clone(),
            cache: recipe.cache.clone(),
            store: of.store.clone(),
            commit: of.commit,
            plant: recipe.plant,
            state: RefCell::default(),
            changed: Notify::new(),
            unbarred: Notify::new(),
            barrier: Cell::new(0),
            putting: Cell::new(false),
            sending: Cell::new(false),
            send_after: commit::SEND_AFTER.min(Nanos(of.commit_interval.0 / 2)),
            stopping: Cell::new(false),
            operations: Cell::new(0),
            joined: Cell::new(0),
        });
        recipe.cache.set_gate(lfs.clone());
        lfs.start_clock(of.commit_interval);
        lfs
    }

    fn strong(&self) -> Rc<Lfs> {
        self.me.upgrade().expect("a mechanism outlives its transactions")
    }

    /// A store that fails stops the volume, unless it is only full.
    fn failed(&self, e: DiskError) -> IntegrityError {
        if e.kind != env::DiskErrorKind::NoSpace {
            self.cache.fail(&e);
        }
        e.into()
    }

    fn check(&self) -> Result<(), IntegrityError> {
        self.cache.failure().map_or(Ok(()), |e| Err(e.into()))
    }

    /// Blocks that a group of such an operation may have.
    fn blocks_of(need: &Credits, block_bytes: usize) -> u64 {
        let contents = need.data_bytes.div_ceil(block_bytes as u64) + 2;
        need.blocks + contents + need.runs / 64 + 1
    }

    fn is_barred(&self) -> bool {
        self.barrier.get() > 0 && !self.state.borrow().open.is_empty()
    }
}

impl Integrity for Lfs {
    fn atomic(&self) -> bool {
        true
    }
    fn names_durable(&self) -> bool {
        self.commit == Commit::Sync
    }
    fn wants_before(&self, _: &Change) -> bool {
        false
    }
    fn zeros_are_cheap(&self) -> bool {
        false // they would be written
    }
    fn contents_first(&self) -> bool {
        true // one atomic group
    }
    fn places_are_fixed(&self) -> bool {
        false
    }

    fn write_bytes_max(&self) -> u64 {
        // Beside the contents, their map and the metadata.
        let blocks = self.store.blocks_max();
        (blocks - blocks / 4) * self.cache.block_bytes() as u64
    }
    fn fits(&self, need: &Credits) -> bool {
        Lfs::blocks_of(need, self.cache.block_bytes()) <= self.store.blocks_max()
    }

    /// Who ends an operation puts what others have queued, too.
    fn begins_at_once(&self, need: &Credits) -> bool {
        let blocks = Lfs::blocks_of(need, self.cache.block_bytes());
        let waits = self.is_barred() || !self.state.borrow().queue.is_empty();
        !waits && self.store.has_room_now(blocks)
    }

    fn begin(&self, need: Credits) -> Local<'_, Result<Txn, IntegrityError>> {
        Box::pin(async move {
            let blocks = Lfs::blocks_of(&need, self.cache.block_bytes());
            let kept = loop {
                self.check()?;
                while self.is_barred() {
                    self.unbarred.wait().await;
                    self.check()?;
                }
                let kept = self
                    .store
                    .reserve(blocks, need.makes_room)
                    .await
                    .map_err(|e| self.failed(e))?;
                assert!(kept >= blocks, "I6: {blocks} blocks may be needed, {kept} are kept");
                if let Err(e) = self.check() {
                    self.store.release(kept); // it has failed while this waited
                    return Err(e);
                }
                if !self.is_barred() {
                    break kept;
                }
                self.store.release(kept);
            };
            let mut s = self.state.borrow_mut();
            let id = s.last_txn.next();
            s.last_txn = id;
            s.open.begin(id, kept, false);
            Ok(Txn::new(self.strong(), id, need.blocks))
        })
    }

    fn change(&self, txn: &mut Txn, edit: Edit) {
        let mut state = self.state.borrow_mut();
        let s = &mut *state;
        let free = s.busy.allows(&edit.change);
        assert!(free, "I4: {:?} before its freeing is put", edit.change);
        match edit.change {
            Change::FreeBlocks(extent) => s.busy.add_blocks(txn.id, extent),
            Change::FreeInodeBit(ino) => s.busy.add_inode(txn.id, ino),
            _ => (),
        }
        if !self.plant.is("open-bytes-put") {
            s.open.edit(txn.id, edit.buf.block(), edit.range.clone());
        }
        txn.edits.push(edit);
    }

    fn data(&self, txn: &mut Txn, ino: Ino, buf: &Buf, range: Range<usize>) {
        let mut state = self.state.borrow_mut();
        let s = &mut *state;
        // All of the block goes into the group, whatever part of it was written.
        s.open.edit(txn.id, buf.block(), 0..self.cache.block_bytes());
        let t = s.open.get(txn.id).expect("contents belong to a transaction that has begun");
        if t.files.last() != Some(&ino) {
            t.files.push(ino);
        }
        txn.data.push((ino, buf.clone(), range));
    }

    fn end(&self, txn: Txn) -> Local<'_, Result<Ended, IntegrityError>> {
        Box::pin(async move {
            let ended = self.capture(&txn);
            let (id, open) = (txn.id, self.state.borrow().open.has(txn.id));
            assert!(!open, "I2: operation {id} has ended, and is open");
            drop(txn);
            self.changed.wake_all();
            self.unbarred.wake_all();
            self.put_ready().await?;
            if self.commit == Commit::Async {
                self.send_soon();
            }
            Ok(ended.into())
        })
    }

    fn durable(&self, ended: Ended) -> Local<'_, Result<(), IntegrityError>> {
        Box::pin(async move {
            match self.commit {
                Commit::Async => Ok(()),
                Commit::Sync if self.plant.is("ack-before-flush") => Ok(()),
                Commit::Sync => self.wait(ended.into()).await,
            }
        })
    }

    fn sync(&self, scope: Scope) -> Local<'_, Result<(), IntegrityError>> {
        Box::pin(async move { self.sync_scope(scope).await })
    }

    fn space_left(&self) -> Option<u64> {
        self.store.space_left()
    }

    fn may_reuse(&self, what: Freed) -> bool {
        self.state.borrow().busy.may_reuse(what)
    }

    fn has_busy_extents(&self) -> bool {
        !self.state.borrow().busy.is_empty()
    }

    fn press(&self, _: Pressure) -> Local<'_, Result<(), IntegrityError>> {
        Box::pin(async move { self.put_ready().await })
    }

    fn close(&self) -> Local<'_, Result<(), IntegrityError>> {
        Box::pin(async move { self.shut().await })
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut all = self.store.counters();
        all.push(("cairn_operations_total", self.operations.get()));
        all.push(("cairn_operations_joined_total", self.joined.get()));
        all
    }
}
