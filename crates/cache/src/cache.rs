//! The cache: finding blocks and reading them. When there is no room for another, the clock lets
//! one go.

use crate::buf::{Inner, NOWHERE};
use crate::clock::Clock;
use crate::flusher::Flusher;
use crate::stats::CacheStats;
use crate::writeback::DirtyList;
use crate::{Buf, BufKind, FlushEpoch, OpenGate, Role, Watch, WriteGate};
use env::sync::{Notify, Semaphore};
use env::{Block, Disk, DiskError, Env, IdMap, Nanos};
use format::{BlockNo, Ino};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// How a cache is made.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// Bytes in a block.
    pub block_bytes: usize,
    /// Bytes of memory for blocks.
    pub cache_bytes: usize,
    /// How much of it clean contents may have.
    pub contents_bytes: usize,
    /// Dirty blocks are written back at least this often; None: only when there are many.
    pub interval: Option<Nanos>,
    /// The largest transfer, in bytes.
    pub transfer_bytes_max: usize,
}

/// The blocks of one disk.
pub struct Cache {
    pub(crate) env: Env,
    pub(crate) disk: Rc<dyn Disk>,
    pub(crate) options: CacheOptions,
    pub(crate) gate: RefCell<Rc<dyn WriteGate>>,
    watch: RefCell<Option<Rc<dyn Watch>>>,
    pub(crate) dirty: Rc<RefCell<DirtyList>>,
    pub(crate) flusher: Flusher,
    pub(crate) failed: RefCell<Option<DiskError>>,
    pub(crate) kick: Notify,
    pub(crate) progress: Notify,
    /// Wakes the write-back by time.
    pub(crate) ticked: Notify,
    /// The epoch in which the last write has ended.
    pub(crate) written_in: Cell<Option<FlushEpoch>>,
    pub(crate) in_flight: Semaphore,
    pub(crate) stopping: Cell<bool>,
    pub(crate) stats: CacheStats,
    /// A block of zeros, shared by all that are new; the first change makes a block its own.
    zero: Block,
    map: RefCell<IdMap<u64, Buf>>,
    clock: RefCell<Clock>,
}

/// What a stream leaves in memory behind it, where contents have a bound.
const STREAM_BYTES: usize = 16 << 20;
/// Write requests in flight at once.
const WRITES_IN_FLIGHT: usize = 16;

impl Cache {
    /// A cache of `disk`. Nothing is written before [`Cache::set_gate`], nor by itself before
    /// [`Cache::start`].
    pub fn new(env: Env, disk: Rc<dyn Disk>, options: CacheOptions) -> Rc<Cache> {
        assert!(options.block_bytes.is_power_of_two() && options.block_bytes >= 512);
        assert!(options.transfer_bytes_max >= options.block_bytes, "a transfer takes a block");
        Rc::new(Cache {
            env,
            flusher: Flusher::new(disk.clone()),
            disk,
            zero: Block::zeroed(options.block_bytes),
            options,
            gate: RefCell::new(Rc::new(OpenGate)),
            watch: RefCell::default(),
            dirty: Rc::default(),
            failed: RefCell::default(),
            kick: Notify::new(),
            progress: Notify::new(),
            ticked: Notify::new(),
            written_in: Cell::default(),
            in_flight: Semaphore::new(WRITES_IN_FLIGHT),
            stopping: Cell::new(false),
            stats: CacheStats::default(),
            map: RefCell::default(),
            clock: RefCell::default(),
        })
    }

    /// From now on `gate` decides what may be written.
    pub fn set_gate(&self, gate: Rc<dyn WriteGate>) {
        *self.gate.borrow_mut() = gate;
    }
    /// From now on `watch` is told which blocks are in memory; there are none yet.
    pub fn set_watch(&self, watch: Rc<dyn Watch>) {
        assert!(self.map.borrow().is_empty(), "a watch that has not seen all that came");
        self.clock.borrow_mut().set_watch(&watch);
        *self.watch.borrow_mut() = Some(watch);
    }
    /// The block's bytes, if memory holds what the disk would give: then nobody need read it. It
    /// does not count as used.
    pub fn settled(&self, block: BlockNo) -> Option<Block> {
        let map = self.map.borrow();
        let b = map.get(&block.0).filter(|b| b.0.settled.get() && !b.0.writing.get())?;
        assert!(b.0.valid.get() && !b.0.dirty.get(), "C2: {b:?} is dirty, and as the disk has it");
        Some(b.image())
    }
    /// The world's handle.
    pub fn env(&self) -> &Env {
        &self.env
    }
    /// The disk under it.
    pub fn disk(&self) -> &Rc<dyn Disk> {
        &self.disk
    }
    /// Bytes in a block.
    pub fn block_bytes(&self) -> usize {
        self.options.block_bytes
    }
    /// May a block's number have more than 32 bits?
    pub fn has_wide_numbers(&self) -> bool {
        self.disk.size_bytes() / self.block_bytes() as u64 > 1 << 32
    }
    /// What it has counted.
    pub fn stats(&self) -> &CacheStats {
        &self.stats
    }
    /// The first write or flush that failed, if one has; from then on nothing is written.
    pub fn failure(&self) -> Option<DiskError> {
        self.failed.borrow().clone()
    }
    /// Remembers a failed write or flush made elsewhere (a log's); the first one counts.
    pub fn fail(&self, e: &DiskError) {
        let mut failed = self.failed.borrow_mut();
        let first = failed.is_none();
        if first {
            tracing::error!("the volume turns read-only: {e}");
            *failed = Some(e.clone());
        }
        drop(failed);
        self.progress.wake_all();
        if first {
            let gate = self.gate.borrow().clone();
            gate.failed(e);
        }
    }
    /// How many blocks are in memory, and how many of them are dirty.
    pub fn counts(&self) -> (usize, usize) {
        (self.map.borrow().len(), self.dirty.borrow().len())
    }
    /// The number of the last flush that was issued.
    pub fn epoch(&self) -> FlushEpoch {
        self.flusher.epoch()
    }

    /// The block, if it is in memory and valid.
    pub fn get_cached(&self, block: BlockNo) -> Option<Buf> {
        let map = self.map.borrow();
        let buf = map.get(&block.0).filter(|b| b.0.valid.get())?;
        buf.0.touched.set(true);
        CacheStats::add(&self.stats.hits, 1);
        Some(buf.clone())
    }

    /// The block, read if need be.
    pub async fn get(&self, block: BlockNo, kind: BufKind) -> Result<Buf, DiskError> {
        if let Some(b) = self.get_cached(block) {
            return Ok(b);
        }
        let mut run = self.get_run(block, 1, kind).await?;
        Ok(run.pop().expect("a run of one block"))
    }

    /// `len` blocks from `first` on; those not in memory are read with as few requests as possible.
    pub async fn get_run(
        &self,
        first: BlockNo,
        len: u64,
        kind: BufKind,
    ) -> Result<Vec<Buf>, DiskError> {
        let bufs: Vec<Buf> = (0..len).map(|i| self.slot(first.plus(i), kind)).collect();
        let mut i = 0;
        while i < bufs.len() {
            let b = &bufs[i];
            if b.0.valid.get() {
                CacheStats::add(&self.stats.hits, 1);
                i += 1;
            } else if b.0.loading.get() {
                b.0.changed.wait().await; // a reader before us; look again
            } else {
                let missing = bufs[i..].iter().take(self.transfer_blocks());
                let n = missing.take_while(|b| !b.0.valid.get() && !b.0.loading.get()).count();
                self.load(&bufs[i..i + n]).await?;
            }
        }
        Ok(bufs)
    }

    /// Reads `len` blocks from `first` on in the background; errors are left for who needs the
    /// block.
    pub fn prefetch(self: &Rc<Self>, first: BlockNo, len: u64, kind: BufKind) {
        let cache = self.clone();
        self.env.spawn("read-ahead", async move {
            match cache.get_run(first, len, kind).await {
                // They have yet to be used, so they do not go before what has been.
                Ok(bufs) => bufs.iter().for_each(|b| b.0.touched.set(true)),
                Err(e) => tracing::debug!("read-ahead: {e}"),
            }
        });
    }

    /// The block with its contents of no interest: zeroed, valid, not dirty yet. For blocks just
    /// allocated.
    pub fn get_new(&self, block: BlockNo, kind: BufKind, owner: Ino) -> Buf {
        let buf = self.slot(block, kind);
        buf.0.kind.set(kind);
        buf.set_owner(owner);
        buf.set_role(Role::Plain);
        *buf.0.data.borrow_mut() = self.zero.clone();
        buf.0.version.set(buf.0.version.get() + 1);
        buf.0.valid.set(true);
        buf.0.settled.set(false);
        buf.0.checked.set(u64::MAX);
        buf
    }

    /// A block that lies nowhere: it can be read, and never reaches the disk.
    pub fn get_detached(&self, bytes: Block) -> Buf {
        assert_eq!(bytes.len(), self.block_bytes());
        let buf = self.new_buf(NOWHERE, BufKind::Data);
        *buf.0.data.borrow_mut() = bytes;
        buf.0.valid.set(true);
        buf.0.checked.set(u64::MAX);
        buf
    }

    /// The block, whose contents the caller replaces as a whole at once; nothing is read or
    /// cleared.
    pub fn get_for_overwrite(&self, block: BlockNo, kind: BufKind) -> Buf {
        let buf = self.slot(block, kind);
        buf.0.kind.set(kind);
        buf.0.settled.set(false);
        if !buf.0.valid.replace(true) {
            *buf.0.data.borrow_mut() = self.zero.clone();
        }
        buf
    }

    /// The block is free: what memory holds of it need not be written. A write in flight ends by
    /// itself, and a later write of the block waits for it.
    pub fn forget(&self, block: BlockNo) {
        let buf = self.map.borrow().get(&block.0).cloned();
        if let Some(b) = buf {
            b.mark_clean();
            b.0.settled.set(false);
            b.set_owner(Ino(0));
            b.set_role(Role::Plain);
            b.0.version.set(b.0.version.get() + 1);
            b.0.touched.set(false);
            let listed = self.dirty.borrow().has(&b);
            assert_eq!(listed, b.0.writing.get(), "C2: {b:?} is free, and would be written");
        }
    }

    /// Waits until none of these blocks is on its way from the disk or to it.
    pub async fn await_idle(&self, blocks: impl Iterator<Item = BlockNo>) {
        for block in blocks {
            let Some(b) = self.map.borrow().get(&block.0).cloned() else { continue };
            while b.0.writing.get() || b.0.loading.get() {
                b.0.changed.wait().await;
            }
        }
    }

    pub(crate) fn transfer_blocks(&self) -> usize {
        (self.options.transfer_bytes_max / self.options.block_bytes).max(1)
    }

    async fn load(&self, bufs: &[Buf]) -> Result<(), DiskError> {
        struct Loading<'a>(&'a [Buf]);
        impl Drop for Loading<'_> {
            fn drop(&mut self) {
                for b in self.0 {
                    b.0.loading.set(false);
                    b.0.changed.wake_all();
                }
            }
        }
        let first = bufs[0].block();
        for (i, b) in bufs.iter().enumerate() {
            let idle = !b.0.loading.replace(true) && !b.0.writing.get();
            assert!(idle, "C1: {b:?} is read while it is read or written");
            assert_eq!(b.block(), first.plus(i as u64), "a read of blocks that are apart");
            assert!(!b.0.dirty.get(), "C2: {b:?} is dirty before it has been read");
        }
        let _loading = Loading(bufs);
        CacheStats::add(&self.stats.misses, bufs.len() as u64);
        CacheStats::add(&self.stats.reads, 1);
        let at = first.0 * self.options.block_bytes as u64;
        let room = bufs.iter().map(|_| Block::zeroed(self.options.block_bytes)).collect();
        let filled = self.disk.read(at, room).await?;
        assert_eq!(filled.len(), bufs.len(), "the disk fills the blocks that it was given");
        for (b, bytes) in bufs.iter().zip(filled) {
            assert_eq!(bytes.len(), self.block_bytes(), "{b:?} was read in part");
            if !b.0.valid.get() {
                assert!(b.0.loading.get(), "C1: {b:?} is filled by a read that it knows not of");
                assert!(!b.0.dirty.get(), "C2: {b:?} became dirty before it was read");
                *b.0.data.borrow_mut() = bytes;
                b.0.valid.set(true);
                b.0.settled.set(true);
                b.0.checked.set(0);
            }
        }
        Ok(())
    }

    /// The block's place in memory, made if it is not there.
    fn slot(&self, block: BlockNo, kind: BufKind) -> Buf {
        if let Some(b) = self.map.borrow().get(&block.0) {
            b.0.touched.set(true);
            return b.clone();
        }
        if kind == BufKind::Data {
            self.bound_contents(1);
        }
        self.make_room();
        self.clock.borrow_mut().add(block.0, kind);
        let buf = self.new_buf(block, kind);
        let old = self.map.borrow_mut().insert(block.0, buf.clone());
        assert!(old.is_none(), "C3: block {block} is in memory twice");
        let (all, dirty) = self.counts();
        assert!(dirty <= all, "C3: {dirty} blocks are dirty, and {all} are in memory");
        if let Some(watch) = &*self.watch.borrow() {
            watch.came(block);
        }
        buf
    }

    fn new_buf(&self, block: BlockNo, kind: BufKind) -> Buf {
        Buf(Rc::new(Inner {
            block,
            role: Cell::default(),
            kind: Cell::new(kind),
            owner: Cell::new(Ino(0)),
            data: RefCell::new(Block::empty()),
            valid: Cell::new(false),
            loading: Cell::new(false),
            dirty: Cell::new(false),
            since: Cell::default(),
            writing: Cell::new(false),
            settled: Cell::new(false),
            version: Cell::new(0),
            checked: Cell::new(0),
            touched: Cell::new(false),
            changed: Notify::new(),
            dirty_list: self.dirty.clone(),
        }))
    }

    /// How many blocks may be in memory.
    pub fn capacity(&self) -> usize {
        (self.options.cache_bytes / self.options.block_bytes).max(64)
    }

    fn make_room(&self) {
        let mut map = self.map.borrow_mut();
        if !self.clock.borrow_mut().make_room(&mut map, self.capacity()) {
            self.kick.wake_all();
        }
    }

    /// `n` more blocks of contents are clean, or about to be in memory: others go if there are too
    /// many. What is dirty must stay and does not count; that some of it is metadata does no
    /// harm.
    pub(crate) fn bound_contents(&self, n: usize) {
        let clean = (self.options.contents_bytes / self.options.block_bytes).max(64);
        let bound = clean.saturating_add(self.dirty.borrow().len());
        let mut map = self.map.borrow_mut();
        let mut clock = self.clock.borrow_mut();
        clock.bound_contents(&mut map, bound, n);
    }

    /// A sequential reader or writer has passed these blocks: they are the first to go, and where
    /// contents have a bound of their own, soon.
    pub fn pass<'a>(&self, bufs: impl Iterator<Item = &'a Buf>) {
        let bounded = self.options.contents_bytes < self.options.cache_bytes;
        let mut map = self.map.borrow_mut();
        let mut clock = self.clock.borrow_mut();
        for b in bufs {
            b.0.touched.set(false);
            // New zeros have no memory of their own, and will be written over soon.
            if bounded && !b.image().is_same(&self.zero) {
                clock.pass(&mut map, b.block().0, STREAM_BYTES / self.options.block_bytes);
            }
        }
    }
}
