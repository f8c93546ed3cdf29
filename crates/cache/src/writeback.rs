//! Write-back: dirty blocks go to their places on the disk here, and nowhere else. It takes them
//! in the order of their numbers, asks the gate for each, joins neighbours into one transfer, and
//! keeps several transfers in flight.

use crate::buf::{Buf, BufKind};
use crate::stats::CacheStats;
use crate::{Begun, Cache, FlushEpoch, Image};
use env::{Block, DiskError, Durability};
use format::{BlockNo, Ino};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Rounds in which everything that a gate holds back has passed, if nothing comes after it.
const ROUNDS_MAX: usize = 16;

/// A third of the interval of the write-back by time (by_time.rs), by its number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Tick(u64);

impl Tick {
    /// Is what became dirty after the tick `since` old at this one?
    pub(crate) fn is_late_for(self, since: Tick) -> bool {
        assert!(since <= self, "dirty since {since:?}, and it is {self:?}");
        self.0 > since.0 + 1
    }
}

/// The blocks that are dirty or on their way, by owner and by number. A block on its way counts, so
/// that who makes a file durable waits for it too.
#[derive(Default)]
pub(crate) struct DirtyList {
    /// How many ticks there have been.
    pub(crate) tick: Tick,
    /// The last operations that had begun at the last tick, and at the one before.
    begun: (Begun, Begun),
    by_block: BTreeMap<u64, Buf>,
    by_owner: BTreeMap<u32, BTreeMap<u64, Buf>>,
}

impl DirtyList {
    pub(crate) fn len(&self) -> usize {
        self.by_block.len()
    }
    /// There is a tick more; `begun`: the last operation that has begun by now.
    pub(crate) fn advance(&mut self, begun: Begun) {
        self.tick = Tick(self.tick.0 + 1);
        self.begun = (begun, self.begun.0);
    }
    /// The last operation that had begun at the tick before the last.
    pub(crate) fn begun_before(&self) -> Begun {
        self.begun.1
    }
    pub(crate) fn add(&mut self, b: &Buf) {
        assert!(b.0.dirty.get() || b.0.writing.get(), "C2: {b:?} is clean, and to be written");
        let old = self.by_block.insert(b.0.block.0, b.clone());
        assert!(old.is_none_or(|o| o.same(b)), "C3: {b:?} is in memory twice, and dirty");
        let owner = b.0.owner.get().0;
        if owner != 0 {
            let old = self.by_owner.entry(owner).or_default().insert(b.0.block.0, b.clone());
            assert!(old.is_none_or(|o| o.same(b)), "C3: inode {owner} has another {b:?} to write");
        }
    }
    /// Is this very block in the list, and under its owner?
    pub(crate) fn has(&self, b: &Buf) -> bool {
        let number = b.0.block.0;
        let owner = b.0.owner.get().0;
        let known = self.by_block.get(&number).is_some_and(|x| x.same(b));
        known && (owner == 0 || self.by_owner.get(&owner).is_some_and(|m| m.contains_key(&number)))
    }
    pub(crate) fn remove(&mut self, b: &Buf) {
        let old = self.by_block.remove(&b.0.block.0);
        assert!(old.is_some_and(|o| o.same(b)), "C2: {b:?} was dirty, and nobody knew");
        let owner = b.0.owner.get().0;
        let blocks = self.by_owner.get_mut(&owner);
        assert_eq!(blocks.is_some(), owner != 0, "C2: {b:?} was dirty, not so its owner {owner}");
        if let Some(blocks) = blocks {
            let old = blocks.remove(&b.0.block.0);
            assert!(old.is_some(), "C2: {b:?} was dirty, and its owner {owner} did not know");
            if blocks.is_empty() {
                self.by_owner.remove(&owner);
            }
        }
        let left = self.by_owner.is_empty() || !self.by_block.is_empty();
        assert!(left, "C2: no block is to be written, and inodes have some");
    }
}

/// A block on its way, with what is written of it.
struct Outgoing {
    buf: Buf,
    image: Image,
    bytes: Block,
    /// The block's version when the image was taken.
    version: u64,
}

/// Neighbours on their way in one transfer.
type Batch = Vec<Outgoing>;

impl Cache {
    /// All blocks that are dirty or on their way, in order.
    pub fn dirty_all(&self) -> Vec<Buf> {
        self.dirty.borrow().by_block.values().cloned().collect()
    }
    /// Those that belong to `owner`, in order.
    pub fn dirty_of(&self, owner: Ino) -> Vec<Buf> {
        let list = self.dirty.borrow();
        let all: Vec<Buf> = match list.by_owner.get(&owner.0) {
            Some(blocks) => blocks.values().cloned().collect(),
            None => Vec::new(),
        };
        let wrong = all.iter().find(|b| b.owner() != owner || !(b.is_dirty() || b.is_writing()));
        assert!(wrong.is_none(), "C2: {wrong:?} would be written for inode {owner}");
        all
    }

    /// Writes those of `bufs` that are dirty and that the gate lets pass, and waits until they are
    /// visible (not durable). A block that is on its way already is waited for, then written if it
    /// is dirty again.
    pub async fn write(self: &Rc<Self>, bufs: Vec<Buf>) -> Result<(), DiskError> {
        let mut bufs = bufs;
        bufs.sort_by_key(Buf::block);
        bufs.dedup_by(|a, b| a.same(b));
        let twice = bufs.windows(2).find(|w| w[0].block() == w[1].block());
        assert!(twice.is_none(), "C3: {twice:?} are in memory, and both are to be written");
        let mut waits = Vec::new();
        let mut batch: Batch = Vec::new();
        for b in bufs {
            while b.0.writing.get() || b.0.loading.get() {
                // A read on its way must not bring the old block back into a cache below us.
                // Send what is collected first: it may be what the other writer waits for.
                self.send(&mut batch, &mut waits);
                b.0.changed.wait().await;
            }
            if let Some(e) = self.failure() {
                self.release(&batch);
                return Err(e);
            }
            let next = batch.last().map(|l| l.buf.block().plus(1));
            let full = batch.len() * self.block_bytes() >= self.options.transfer_bytes_max;
            if full || next.is_some_and(|n| n != b.block()) {
                self.send(&mut batch, &mut waits);
            }
            if b.is_dirty() {
                self.collect(b, &mut batch);
            }
        }
        self.send(&mut batch, &mut waits);
        let contents = waits.iter().filter(|b| b.kind() == BufKind::Data).count();
        for w in waits {
            while w.0.writing.get() {
                w.0.changed.wait().await;
            }
        }
        self.bound_contents(contents); // nobody holds them any more
        self.failure().map_or(Ok(()), Err)
    }

    /// Starts writing what a sequential writer has left behind; nobody waits for it here. The
    /// blocks are the first to leave memory afterwards. An error is sticky: who needs them hears.
    pub fn write_behind(self: &Rc<Self>, bufs: Vec<Buf>) {
        if !self.gate.borrow().allows_write_behind() {
            return;
        }
        self.pass(bufs.iter());
        let dirty: Vec<Buf> = bufs.into_iter().filter(Buf::is_dirty).collect();
        if !dirty.is_empty() {
            let cache = self.clone();
            self.env.spawn("write behind", async move {
                let _ = cache.write(dirty).await;
            });
        }
    }

    /// What memory holds of the block is kept elsewhere, where the disk finds it: it need not be
    /// written.
    pub fn is_kept_elsewhere(&self, b: &Buf) {
        if b.0.dirty.get() {
            b.mark_clean();
            // Not of one that was forgotten meanwhile: it may hold bytes that nobody keeps.
            b.0.settled.set(true);
        }
        self.progress.wake_all();
    }

    /// Asks the gate, and puts the block with its image in the batch.
    fn collect(&self, b: Buf, batch: &mut Batch) {
        let version = b.version();
        let image = self.gate.borrow().before_write(&b);
        let same = b.is_dirty() && b.version() == version;
        assert!(same, "C4: the gate has changed {b:?}, of which it was asked");
        assert!(!b.0.settled.get(), "C2: {b:?} is written, and is what the disk has");
        let bytes = match &image {
            Image::NotYet => return,
            Image::AsIs => b.image(),
            Image::Instead(other) => other.clone(),
        };
        let idle = !b.0.writing.replace(true) && !b.0.loading.get();
        assert!(idle, "C1: {b:?} is written while it is read or written");
        assert_eq!(bytes.len(), self.block_bytes(), "C4: the image of {b:?} is a block");
        assert!(self.dirty.borrow().has(&b), "C2: {b:?} is written and nobody knows");
        match image {
            Image::AsIs => b.mark_clean(),
            // What nothing held back is on its way; for the rest the gate is asked.
            _ => b.0.since.set(self.dirty.borrow().tick),
        }
        batch.push(Outgoing { buf: b, image, bytes, version });
    }

    fn release(&self, batch: &Batch) {
        for b in batch.iter().map(|out| &out.buf) {
            b.mark_dirty();
            b.end_write();
            b.0.changed.wake_all();
        }
    }

    /// Starts one transfer as a task of its own, so that it ends even if its waiter is dropped.
    fn send(self: &Rc<Self>, batch: &mut Batch, waits: &mut Vec<Buf>) {
        let batch = std::mem::take(batch);
        let Some(first) = batch.first().map(|out| out.buf.block()) else { return };
        let at = first.0 * self.block_bytes() as u64;
        for (i, b) in batch.iter().map(|out| &out.buf).enumerate() {
            assert_eq!(b.block(), first.plus(i as u64), "a transfer of blocks that are apart");
            assert!(b.is_writing(), "C1: {b:?} is sent, and another may send it too");
        }
        let (len, most) = (batch.len() * self.block_bytes(), self.options.transfer_bytes_max);
        assert!(len <= most, "a transfer of {len} bytes where {most} are the most");
        waits.extend(batch.iter().map(|out| out.buf.clone()));
        let cache = self.clone();
        self.env.spawn("write-back", async move {
            let _permit = cache.in_flight.acquire().await;
            let bytes = batch.iter().map(|out| out.bytes.clone()).collect();
            let result = match cache.failure() {
                Some(e) => Err(e),
                None => cache.disk.write(at, bytes, Durability::Cached).await,
            };
            cache.sent(batch, result);
        });
    }

    fn sent(&self, batch: Batch, result: Result<(), DiskError>) {
        CacheStats::add(&self.stats.writes, 1);
        CacheStats::add(&self.stats.blocks_written, batch.len() as u64);
        if let Err(e) = &result {
            self.fail(e);
        }
        let epoch = self.flusher.epoch();
        let before = self.written_in.replace(Some(epoch));
        assert!(before <= Some(epoch), "C5: a write ends in {epoch:?}, and one did in {before:?}");
        let gate = self.gate.borrow().clone();
        for Outgoing { buf: b, image, bytes, version } in batch {
            let changed = matches!(image, Image::AsIs) && !bytes.is_same(&b.0.data.borrow());
            assert!(
                !changed || b.version() != version,
                "C4: {b:?} was changed while it was written, and is taken for clean"
            );
            let since = b.version() >= version;
            assert!(since, "C4: {b:?} is older than what was written of it");
            let in_part = matches!(image, Image::Instead(_)) && !b.is_dirty();
            assert!(
                !in_part || b.version() != version,
                "C4: {b:?} was written in part, and is taken for clean"
            );
            drop(bytes); // so that the next edit need not copy
            if result.is_err() {
                b.mark_dirty();
            }
            let listed = self.dirty.borrow().has(&b);
            assert!(listed, "C2: {b:?} left the list while it was written");
            b.end_write();
            gate.after_write(&b, &image, result.as_ref().copied(), epoch);
            b.0.changed.wake_all();
        }
        assert_eq!(epoch, self.flusher.epoch(), "C5: a flush began while writes were noted");
        self.progress.wake_all();
    }

    /// Makes all completed writes durable; concurrent callers share flushes.
    pub async fn flush_device(&self) -> Result<(), DiskError> {
        if let Some(e) = self.failure() {
            return Err(e);
        }
        let gate = self.gate.borrow().clone();
        let flushed = |epoch: FlushEpoch| gate.flushed(epoch);
        match self.flusher.flush(flushed).await {
            Ok(issued) => {
                CacheStats::add(&self.stats.flushes, u64::from(issued));
                Ok(())
            }
            Err(e) => {
                self.fail(&e);
                Err(e)
            }
        }
    }

    /// Writes everything that is dirty and makes it durable. Several rounds, because a gate that
    /// holds something back lets it pass once what it waits for is durable.
    pub async fn write_all(self: &Rc<Self>) -> Result<(), DiskError> {
        for _ in 0..ROUNDS_MAX {
            self.prepare().await;
            let dirty = self.dirty_all();
            let any = !dirty.is_empty();
            self.write(dirty).await?;
            self.flush_device().await?;
            if !any || self.dirty.borrow().len() == 0 {
                break;
            }
        }
        Ok(())
    }

    pub(crate) async fn prepare(&self) {
        let gate = self.gate.borrow().clone();
        gate.prepare().await;
    }

    /// Starts the tasks that write back by themselves: every interval, and whenever much is dirty.
    pub fn start(self: &Rc<Self>) {
        let cache = self.clone();
        self.env.spawn("write-back by pressure", async move {
            while !cache.stopping.get() {
                cache.kick.wait().await;
                cache.relieve().await;
            }
        });
        if let Some(interval) = self.options.interval {
            self.start_by_time(interval);
        }
    }

    /// Ends the tasks of [`Cache::start`] at their next step.
    pub fn stop(&self) {
        self.stopping.set(true);
        self.kick.wake_all();
        self.ticked.wake_all();
    }

    /// Is the block in memory? For tests: to ask is to use it.
    pub fn is_cached(&self, b: BlockNo) -> bool {
        self.get_cached(b).is_some()
    }
}
