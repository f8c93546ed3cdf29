//! Soft updates: nobody waits; instead it is known of each change what must be durable before it,
//! and what is not due yet is left out of what is written (mckusick-1999 and seltzer-2000; with the
//! rendering and the flush waves of this project).
//!
//! Rule        Never point at what is not initialised; never reuse what is still pointed at; never
//!             drop the last pointer to what lives before the new one is set. Data before metadata.
//! Terms       *node*: what one operation does to one block in one *step* (order.rs); the unit that
//!             waits, stands in an image or is taken back. *due*: all that it waits for is durable.
//!             *under*: whose bytes it has written over. *wave*: all that is due is written, then
//!             one flush for all of it. Contents are no nodes, as nothing of them is ever taken
//!             back: they are counted with their operation, and durable as nodes are.
//! Invariants  I1 an image holds a node's bytes only if it is due and all nodes under it stand too;
//!             the others are taken back in the image alone (graph.rs, render.rs).
//!             I2 a node is durable only by a flush issued after its write completed.
//!             I3 a node waits only for nodes that were there before it, or for lower steps of its
//!             own operation: there is no circle, and each wave makes progress.
//!             I4 what an operation frees is not reused before nothing durable points at it, of
//!             those too that shared it until now (attribute blocks).
//!             I5 a name goes only after another name of the same file, if it has one, is durable
//!             and reached by durable names (names.rs).
//!             I6 what waits in a freed block is forgotten when I4 allows its reuse, not earlier.
//!             I7 a block with a node that has yet to be written is dirty.
//!             I8 after a failed write or flush, of the log of intents too, nothing begins, and
//!             nothing is told durable.
//!             I9 a name comes again only beside its going in one sector, or after it.
//!             I10 a file made and removed unseen is forgotten with all its operations (cancel.rs).
//!             I11 what is done to an inode stands in an image only on the inode's making.
//!             I12 names and blocks of a directory come after its index has gone, by whomever that
//!             was given up (latest.rs).
//!             I13 an inode is free only when nothing is left to take back in its slot.
//!             I14 a directory's block gives way to a copy after all that waits in it, and what is
//!             changed in the copy later comes after that.
//! On disk     nothing of its own.
//! States      node: pending -before_write-> captured -after_write-> written -flushed-> gone
//!             operation: open -end-> ended; released when only bits are left to clear -> durable
//! Recovery    none is needed: bits that are set for nothing, counts that are too high and inodes
//!             without names cost space, which the checker gives back while the volume is in use.
//! Cost        a create, an unlink and all others of the same moment: three waves together; fsync
//!             of a new file three flushes, of one that has its blocks one. What is taken back is
//!             written once more.
//!
//! ```text
//!   contents, bits, counts up ─► inodes, lengths ─► pointers in maps ─► names ─► old names go
//!                                                                                      │
//!   bits cleared ◄─ counts down, inodes and lengths cleared ◄─ pointers in maps cleared ◄┘
//! ```

mod cancel;
mod graph;
mod intents;
mod latest;
mod lying;
mod names;
mod order;
mod quiet;
mod render;
mod shared;
mod waves;

use crate::Recipe;
use crate::busy_extents::BusyExtents;
use crate::record::files_of;
use crate::touched::Touched;
use cache::{Begun, Buf, Cache, FlushEpoch, Image, WriteGate};
use cancel::{About, Lives};
use env::sync::{Lock, Notify};
use env::{DiskError, Few, Local};
use format::intent::Intent;
use format::{BlockNo, Ino};
use graph::Graph;
use integrity::{
    Change, Credits, Edit, Ended, Freed, InitKind, Integrity, IntegrityError, LeadsTo, Plant,
    PointerAt, Pressure, Scope, Txn, TxnId,
};
use intents::Intents;
use latest::Latest;
use names::{Directories, Names};
use order::{HINTS, Place, step_of};
use render::Backward;
use shared::Waiting;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::{Rc, Weak};

pub use intents::{INTENT_PLANTS, IntentRecipe};
pub(crate) use order::PLANTS;

/// With more nodes than this in memory, whoever begins an operation first writes a wave: with the
/// least memory for blocks, and with much.
const NODES_MAX: [usize; 2] = [64 << 10, 256 << 10];
/// So much of that memory allows one node: a quarter of it, as a node takes up to 500 bytes.
const BYTES_OF_NODE: usize = 2048;
/// With more bytes to take back than this for each node, the same.
const UNDO_OF_NODE: usize = 512;
/// With more than this waited for one by one for each node, the same.
const EDGES_OF_NODE: usize = 16;
/// Waves in a row that change nothing before that is taken for a mistake.
const IDLE_WAVES_MAX: u32 = 64;

/// The mechanism.
pub(crate) struct SoftUpdates {
    me: Weak<SoftUpdates>,
    cache: Rc<Cache>,
    plant: Plant,
    last_txn: Cell<TxnId>,
    graph: RefCell<Graph>,
    busy: RefCell<BusyExtents>,
    directories: RefCell<Directories>,
    /// Few at a time, so that each is found by going through them.
    open: RefCell<Vec<(TxnId, Open)>>,
    latest: RefCell<Latest>,
    lives: RefCell<Lives>,
    /// For `Scope::Txn`.
    touched: RefCell<Touched<Trace>>,
    /// Blocks that are to be written even if no node in them becomes durable by that.
    forced: RefCell<BTreeMap<BlockNo, u32>>,
    /// Where it is written down what operations may leave half done.
    intents: Option<Intents>,
    /// Those who make something durable (shared.rs).
    waiting: Waiting,
    /// An operation has ended, or a wave has changed something.
    ended: Notify,
    /// How many operations have ended.
    ends: Cell<u64>,
    /// Held by whoever makes room for all who find none.
    room_turn: Lock,
    /// How many operations have been released.
    retired: Cell<u64>,
    syncs: Cell<u64>,
    waves: Cell<u64>,
    helped: Cell<u64>,
    cancelled: Cell<u64>,
}

/// An operation that has not ended.
#[derive(Default)]
struct Open {
    /// Blocks it has made.
    new_blocks: Few<BlockNo>,
    names: Names,
    /// Directories that have got a pointer in a block of their map.
    maps_of: Few<Ino>,
    /// Are contents to be durable before its lengths and pointers?
    orders_contents: bool,
    /// Does it free blocks or inodes?
    frees: bool,
    about: About,
    /// Inodes of which it changes something, for its intents.
    inodes: BTreeSet<Ino>,
}

/// What an operation that has ended touched.
#[derive(Default)]
struct Trace {
    /// Blocks with attributes; not held: a thousand operations are remembered, and few asked for.
    blocks: Few<BlockNo>,
    /// Inodes whose attributes these are.
    inodes: Few<Ino>,
    /// Directories in which it has made names.
    dirs: Few<Ino>,
}

impl SoftUpdates {
    /// The mechanism over this cache, whose gate it becomes.
    pub(crate) fn new(recipe: &Recipe) -> Rc<SoftUpdates> {
        let plant = recipe.plant;
        let graph = Graph::new(plant);
        let made = Rc::new_cyclic(|me| SoftUpdates {
            me: me.clone(),
            cache: recipe.cache.clone(),
            plant,
            last_txn: Cell::default(),
            graph: RefCell::new(graph),
            busy: RefCell::default(),
            directories: RefCell::default(),
            open: RefCell::default(),
            latest: RefCell::default(),
            lives: RefCell::default(),
            touched: RefCell::default(),
            forced: RefCell::default(),
            intents: recipe.intents.as_ref().map(|r| Intents::new(r, plant)),
            waiting: Waiting::default(),
            ended: Notify::default(),
            ends: Cell::new(0),
            room_turn: Lock::default(),
            retired: Cell::new(0),
            syncs: Cell::new(0),
            waves: Cell::new(0),
            helped: Cell::new(0),
            cancelled: Cell::new(0),
        });
        recipe.cache.set_gate(made.clone());
        made
    }

    /// Takes notice of an edit's meaning for the operation as a whole.
    fn note(&self, open: &mut Open, txn: &mut Txn, edit: &Edit) {
        open.about.note(&edit.change, self.plant);
        match edit.change {
            Change::InitBlock { ino, kind } => {
                open.new_blocks.add(edit.buf.block());
                if kind == InitKind::Dir {
                    open.names.dirs.push(ino);
                }
            }
            Change::MapPointer { ino, at, leads_to, new, .. } => {
                if matches!(at, PointerAt::Block(_)) {
                    open.maps_of.push(ino);
                }
                if leads_to == LeadsTo::Contents {
                    open.orders_contents = true;
                    let blocks = (0..new.len).map(|i| new.start.plus(i));
                    let made = blocks.filter(|b| !open.new_blocks.contains(b));
                    let bufs = made.filter_map(|b| self.cache.get_cached(b));
                    txn.data.extend(bufs.map(|b| (ino, b, 0..0)));
                }
            }
            Change::Grow(_) | Change::Shrink(_) => open.orders_contents = true,
            Change::AddEntry { dir, ino, .. } => open.names.made.push((dir, ino)),
            Change::ChangeEntry { dir, old, new, .. } => {
                open.names.made.push((dir, new));
                open.names.gone.push((dir, old, true));
            }
            Change::RemoveEntry { dir, ino, .. } => open.names.gone.push((dir, ino, false)),
            Change::FreeInode(ino) => open.names.freed.push(ino),
            Change::FreeBlocks(extent) => {
                open.frees = true;
                self.busy.borrow_mut().add_blocks(txn.id, extent);
            }
            Change::FreeInodeBit(ino) => {
                open.frees = true;
                self.busy.borrow_mut().add_inode(txn.id, ino);
            }
            _ => (),
        }
    }

    fn place_of(open: &Open, edit: &Edit) -> Place {
        match edit.change {
            Change::MapPointer { .. } if open.new_blocks.contains(&edit.buf.block()) => {
                Place::NewBlock
            }
            Change::GrowDir(dir) if open.maps_of.contains(&dir) => Place::BehindMap,
            _ => Place::Any,
        }
    }

    /// The step of a change. Where the checker is to look at nothing else than what the intents
    /// name, counts, too, must be as durable operations have left them.
    fn step(&self, change: &Change, place: Place) -> Option<usize> {
        let hint = matches!(change, Change::Counts | Change::Held(_));
        if hint && self.keeps_intents() { Some(HINTS) } else { step_of(change, place, self.plant) }
    }

    fn keeps_intents(&self) -> bool {
        self.intents.as_ref().is_some_and(Intents::is_on)
    }

    /// What the change itself tells of its intents.
    fn intend(txn: &mut Txn, open: &mut Open, edit: &Edit) {
        open.inodes.extend(files_of(&edit.change).into_iter().flatten());
        match edit.change {
            Change::AllocBlocks(e) | Change::FreeBlocks(e) => txn.intents.push(Intent::Blocks(e)),
            Change::AllocInode(ino) => txn.intents.push(Intent::Taken(ino)),
            Change::XattrPointer { ino, old, .. } if old.0 != 0 => {
                txn.intents.push(Intent::Left { ino, block: old });
            }
            Change::ShareDown(_) => {
                let before = edit.before.as_ref().and_then(|b| b.first_chunk());
                if let Some(users) = before.map(|b| u32::from_le_bytes(*b)) {
                    txn.intents.push(Intent::Shared { block: edit.buf.block(), users });
                }
            }
            _ => (),
        }
    }

    /// The contents that the operation's lengths and pointers wait for.
    fn order_contents(&self, txn: &Txn) {
        if self.plant.is("pointer-before-contents") {
            return;
        }
        let mut bufs: Vec<&Buf> = txn.data.iter().map(|(_, buf, _)| buf).collect();
        bufs.sort_by_key(|b| b.block());
        bufs.dedup_by_key(|b| b.block());
        bufs.iter().filter(|b| !b.is_dirty()).for_each(|b| b.mark_dirty()); // I7
        if !bufs.is_empty() {
            self.graph.borrow_mut().add_contents(txn.id, &bufs);
        }
    }

    /// What has been released may be reused.
    fn retire(&self) {
        loop {
            let released = self.graph.borrow_mut().take_released();
            if released.is_empty() {
                return;
            }
            self.retired.set(self.retired.get() + released.len() as u64);
            for txn in released {
                self.check_release(txn);
                let freed = self.busy.borrow_mut().release(txn);
                for e in freed {
                    let left = self.graph.borrow_mut().cancel(e); // I6
                    left.iter().for_each(|b| self.cache.forget(b.block()));
                }
            }
        }
    }

    /// Blocks that were freed are clean, but what waits in them is still waited for (I7).
    fn keep_freed(&self, txn: TxnId) {
        for e in self.busy.borrow().blocks_of(txn) {
            self.graph.borrow().pending_in(e).iter().for_each(Buf::mark_dirty);
        }
    }

    /// The same of all operations, those too that are open.
    fn keep_all_freed(&self) {
        let holders: Vec<TxnId> = self.busy.borrow().holders().collect();
        holders.into_iter().for_each(|txn| self.keep_freed(txn));
    }

    fn is_full(&self) -> bool {
        let graph = self.graph.borrow();
        let crowded = self.intents.as_ref().is_some_and(Intents::is_crowded);
        let memory = self.cache.capacity() * self.cache.block_bytes();
        let most = (memory / BYTES_OF_NODE).clamp(NODES_MAX[0], NODES_MAX[1]);
        let edges = graph.counts.edges > most * EDGES_OF_NODE;
        crowded || edges || graph.len() > most || graph.counts.bytes > most * UNDO_OF_NODE
    }
}

impl WriteGate for SoftUpdates {
    fn prepare(&self) -> Local<'_, ()> {
        Box::pin(async move {
            self.cancel_gone();
            // A failure is sticky, and known to whoever waits for something.
            let _ = self.write_intents().await;
        })
    }
    fn is_whole(&self, buf: &Buf) -> bool {
        self.graph.borrow().is_whole(buf.block())
    }
    fn last_begun(&self) -> Begun {
        self.last_txn.get().into()
    }
    fn behind(&self, buf: &Buf, last: Begun) -> usize {
        self.graph.borrow().waiting_for(buf.block(), last.into())
    }
    fn force(&self, bufs: &[Buf], on: bool) {
        let mut all = self.forced.borrow_mut();
        for b in bufs {
            let n = all.entry(b.block()).or_default();
            assert!(on || *n > 0, "{b:?} is forced no longer, and was not");
            *n = if on { *n + 1 } else { *n - 1 };
            if *n == 0 {
                all.remove(&b.block());
            }
        }
    }
    fn before_write(&self, buf: &Buf) -> Image {
        let force = self.forced.borrow().contains_key(&buf.block());
        let image = self.graph.borrow_mut().capture(buf, force);
        let whole = || !matches!(image, Image::AsIs) || self.graph.borrow().is_whole(buf.block());
        debug_assert!(whole(), "I1: {buf:?} goes as it is, and something in it is not due");
        image
    }
    fn after_write(&self, buf: &Buf, _: &Image, result: Result<(), &DiskError>, epoch: FlushEpoch) {
        self.graph.borrow_mut().written(buf.block(), result.is_ok(), epoch);
        if self.plant.is("completion-is-durable") {
            self.graph.borrow_mut().flushed(FlushEpoch(u64::MAX));
            self.retire();
        }
    }
    fn flushed(&self, epoch: FlushEpoch) {
        self.graph.borrow_mut().flushed(epoch);
        self.retire();
        self.sweep();
    }
}

impl Integrity for SoftUpdates {
    fn atomic(&self) -> bool {
        false
    }
    fn releases_behind(&self) -> bool {
        true
    }
    fn wants_before(&self, change: &Change) -> bool {
        let is_early = !order::is_rolled_back(change) && !order::is_bits(change);
        let keeps = self.keeps_intents();
        if order::is_bits(change) {
            return keeps && !self.plant.is("intent-after-bits");
        }
        !is_early && self.step(change, Place::Any).is_some()
    }
    fn joins_words(&self, change: &Change) -> bool {
        matches!(change, Change::InitInode(_))
    }
    fn wants_intents(&self) -> bool {
        self.keeps_intents()
    }
    fn looked_at(&self, whole: bool) -> Local<'_, Result<(), IntegrityError>> {
        Box::pin(async move {
            let Some(intents) = &self.intents else { return Ok(()) };
            intents.looked_at(whole).await.inspect_err(|e| self.stop(e))?;
            if !intents.is_on() {
                self.graph.borrow_mut().log_all();
            }
            Ok(())
        })
    }
    fn begins_at_once(&self, _: &Credits) -> bool {
        !self.is_full()
    }
    fn begin(&self, need: Credits) -> Local<'_, Result<Txn, IntegrityError>> {
        Box::pin(async move {
            if self.is_full() {
                self.helped.set(self.helped.get() + 1);
                self.wave(self.cache.dirty_all(), &[]).await?;
            }
            if let Some(e) = self.cache.failure() {
                return Err(e.into()); // I8
            }
            let id = self.last_txn.get().next();
            self.last_txn.set(id);
            let me = self.me.upgrade().expect("a mechanism outlives its transactions");
            self.open.borrow_mut().push((id, Open::default()));
            Ok(Txn::new(me, id, need.blocks))
        })
    }
    fn change(&self, txn: &mut Txn, edit: Edit) {
        let mut all = self.open.borrow_mut();
        let open = all.iter_mut().rev().find(|(id, _)| *id == txn.id);
        let (_, open) = open.expect("it has begun");
        self.check_free(&edit.change);
        self.note(open, txn, &edit);
        if self.keeps_intents() {
            Self::intend(txn, open, &edit);
        }
        if let Some(step) = self.step(&edit.change, Self::place_of(open, &edit)) {
            let backward = Backward::of(&edit, self.plant);
            let nothing = backward.is_empty() && order::is_rolled_back(&edit.change);
            if !nothing {
                let concerns = order::concerns(&edit.change);
                let at = (txn.id, step);
                let id = self.graph.borrow_mut().add(at, &edit.buf, backward, concerns);
                self.stand_on_older(txn.id, (id, step), &edit);
                if let Change::GrowDir(dir) = edit.change {
                    open.names.grown.push((dir, id));
                }
            }
        } else if matches!(edit.change, Change::Attr(_) | Change::Owner(_) | Change::Held(_)) {
            txn.edits.push(Edit { before: None, ..edit });
        }
    }
    fn data(&self, txn: &mut Txn, ino: Ino, buf: &Buf, range: Range<usize>) {
        let open = self.open.borrow().iter().any(|(id, _)| *id == txn.id);
        assert!(open, "I3: contents of operation {}, which is not open", txn.id);
        if !txn.data.last().is_some_and(|d| d.1.same(buf)) {
            txn.data.push((ino, buf.clone(), range));
        }
    }

    fn end(&self, txn: Txn) -> Local<'_, Result<Ended, IntegrityError>> {
        Box::pin(async move {
            let open = {
                let mut all = self.open.borrow_mut();
                let at = all.iter().rposition(|(id, _)| *id == txn.id);
                all.swap_remove(at.expect("an operation that ends has begun, and ends once")).1
            };
            let logs =
                self.intents.as_ref().is_some_and(|i| i.note(txn.id, &open.inodes, &txn.intents));
            if open.orders_contents {
                self.order_contents(&txn);
            }
            {
                let mut graph = self.graph.borrow_mut();
                let mut directories = self.directories.borrow_mut();
                directories.end(&mut graph, txn.id, &open.names, self.plant);
                open.names.freed.iter().for_each(|i| graph.forget_own(txn.id, *i));
                graph.end(txn.id, open.frees, logs && !self.plant.is("intent-late"));
            }
            if self.graph.borrow().operation(txn.id).is_some() {
                self.lives.borrow_mut().note(txn.id, open.about);
            }
            self.cancel(&open.names.freed);
            if open.frees {
                self.keep_freed(txn.id);
            }
            if open.frees && self.plant.is("reuse-before-release") {
                self.busy.borrow_mut().release(txn.id);
            }
            self.retire();
            self.ends.set(self.ends.get() + 1);
            self.ended.wake_all();
            let mut trace = Trace::default();
            for e in &txn.edits {
                trace.blocks.add(e.buf.block());
                files_of(&e.change).into_iter().flatten().for_each(|i| trace.inodes.add(i));
            }
            trace.dirs.extend(open.names.made.iter().map(|(dir, _)| *dir));
            self.touched.borrow_mut().note(txn.id, trace);
            Ok(txn.id.into())
        })
    }
    fn durable(&self, _: Ended) -> Local<'_, Result<(), IntegrityError>> {
        Box::pin(async { Ok(()) })
    }
    fn sync(&self, scope: Scope) -> Local<'_, Result<(), IntegrityError>> {
        Box::pin(async move {
            self.syncs.set(self.syncs.get() + 1);
            match scope {
                Scope::All => self.all_durable(true).await,
                Scope::Files { files, data_only } => self.sync_files(&files, data_only).await,
                Scope::Txn(ended) => self.sync_txn(ended).await,
            }
        })
    }
    fn may_reuse(&self, what: Freed) -> bool {
        self.busy.borrow().may_reuse(what)
    }
    fn is_unseen(&self, ino: Ino) -> bool {
        self.latest.borrow().is_being_made(ino)
    }
    fn keeps_old_name(&self, by: TxnId) -> bool {
        self.graph.borrow().keeps_old_name(by)
    }
    fn has_busy_extents(&self) -> bool {
        !self.busy.borrow().is_empty()
    }
    fn press(&self, _: Pressure) -> Local<'_, Result<(), IntegrityError>> {
        Box::pin(self.make_room())
    }
    fn close(&self) -> Local<'_, Result<(), IntegrityError>> {
        Box::pin(async move {
            self.all_durable(true).await?;
            assert!(self.graph.borrow().is_empty(), "a closed volume waits for nothing");
            if !self.plant.is_any() {
                self.check_quiet();
            }
            match &self.intents {
                Some(intents) => intents.close().await,
                None => Ok(()),
            }
        })
    }
    fn counters(&self) -> Vec<(&'static str, u64)> {
        let graph = self.graph.borrow();
        let mut all = vec![
            ("cairn_syncs_total", self.syncs.get()),
            ("cairn_soft_waves_total", self.waves.get()),
            ("cairn_soft_helped_total", self.helped.get()),
            ("cairn_soft_cancelled_total", self.cancelled.get()),
            ("cairn_soft_rollbacks_total", graph.counts.rollbacks),
            ("cairn_soft_extra_writes_total", graph.counts.extra_writes),
            ("cairn_soft_dependencies_total", graph.counts.nodes),
            ("cairn_soft_dependencies", graph.len() as u64),
            ("cairn_soft_undo_bytes", graph.counts.bytes as u64),
        ];
        all.extend(self.intents.iter().flat_map(Intents::counters));
        all
    }
}
