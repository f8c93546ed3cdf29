//! The journal as a ring of blocks: where the next transaction goes, from where on it is needed,
//! and the superblock that says so. It knows no contents of transactions.
//!
//! ```text
//! 0 superblock | first ... free ... | tail ... transactions that are needed ... | head ... free
//! ```

use super::policy::Policy;
use super::transaction::Tid;
use env::sync::Notify;
use env::{Block, Disk, DiskError, Durability, Env};
use format::jbd2::{JournalSuperblock, Shape, incompat, superblock};
use format::{Extent, FormatError};
use integrity::IntegrityError;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// So much of a long journal is used where only metadata are journaled.
const WINDOW_BYTES_MAX: u64 = 32 << 20;
/// Blocks in one transfer.
const RUN_MAX: usize = 256;

/// Where a journal lies: its blocks in order, as extents of a disk.
#[derive(Clone)]
pub struct JournalPlace {
    /// The disk; the volume's own for an internal journal.
    pub disk: Rc<dyn Disk>,
    /// Is it the volume's own disk? Then one flush covers both.
    pub internal: bool,
    /// The journal's blocks, in units of the volume's blocks.
    pub extents: Vec<Extent>,
    /// Which of them is its superblock's: the first, but on a device of its own.
    pub superblock_at: u32,
    /// That block, as it is on disk.
    pub superblock: Vec<u8>,
    /// Has the volume blocks whose numbers have more than 32 bits?
    pub wide: bool,
}

/// Of a long journal the end is enough for metadata, and it is nearest to the files, where a disk's
/// arm goes at each fsync: the block at which that part begins.
fn window(sb: &JournalSuperblock) -> u32 {
    let blocks = (WINDOW_BYTES_MAX / u64::from(sb.block_bytes)).min(u64::from(sb.blocks / 2));
    sb.first.max(sb.blocks - blocks as u32)
}

/// The number of the first transaction: its lower half is what is on disk, so that what is counted
/// here never wraps, whatever number a journal begins with.
pub(super) fn first_tid(sb: &JournalSuperblock) -> Tid {
    Tid::first(sb.sequence)
}

/// The journal.
pub(super) struct Log {
    env: Env,
    place: JournalPlace,
    /// The layout of its blocks.
    pub(super) shape: Shape,
    pub(super) uuid: [u8; 16],
    block_bytes: usize,
    first: u32,
    blocks: u32,
    superblock: RefCell<Vec<u8>>,
    /// Where it begins again after its end, if it is empty then.
    near: u32,
    /// Where the next transaction goes.
    head: Cell<u32>,
    used: Cell<u32>,
    /// Does the superblock on disk say that there is something?
    started: Cell<bool>,
    /// The first transaction that the superblock on disk names.
    tail_tid: Cell<Tid>,
    /// Where each transaction that is still needed begins.
    starts: RefCell<BTreeMap<Tid, u32>>,
    /// A write of the superblock is on its way.
    superblock_sent: Cell<bool>,
    /// Blocks written, for the metrics.
    pub(super) written: Cell<u64>,
}

impl Log {
    /// The journal at `place`, which is empty.
    pub(super) fn new(
        env: Env,
        place: JournalPlace,
        policy: Policy,
    ) -> Result<Log, IntegrityError> {
        let packed = policy.is_packed();
        let mut raw = place.superblock.clone();
        let mut sb = JournalSuperblock::decode(&raw)?;
        if sb.start != 0 {
            let what = "the journal holds something that was not replayed: cairn recover";
            return Err(FormatError::corrupt(what, "the journal's superblock").into());
        }
        let wide = if place.wide { incompat::WIDE } else { sb.incompat & incompat::WIDE };
        let bits = incompat::REVOKE | incompat::CSUM_V3 | wide;
        let bits = bits | if packed { incompat::PACKED } else { 0 };
        superblock::set_incompat(&mut raw, bits);
        sb.incompat = bits;
        let near = if policy.journals_data() { sb.first } else { window(&sb) };
        Ok(Log {
            env,
            shape: Shape::of(&sb)?,
            uuid: sb.uuid,
            block_bytes: sb.block_bytes as usize,
            first: sb.first,
            blocks: sb.blocks,
            superblock: RefCell::new(raw),
            near,
            head: Cell::new(near),
            used: Cell::new(0),
            started: Cell::new(false),
            tail_tid: Cell::new(first_tid(&sb)),
            starts: RefCell::default(),
            superblock_sent: Cell::new(false),
            written: Cell::new(0),
            place,
        })
    }

    /// Is it on the volume's own disk?
    pub(super) fn is_internal(&self) -> bool {
        self.place.internal
    }
    /// How many blocks transactions can have at most.
    pub(super) fn capacity(&self) -> u32 {
        self.blocks - self.first
    }
    pub(super) fn free(&self) -> u32 {
        self.capacity() - self.used.get()
    }
    /// Would a crash now replay this transaction, if it were committed?
    pub(super) fn covers(&self, tid: Tid) -> bool {
        self.started.get() && self.tail_tid.get() <= tid
    }
    /// The first transaction that a crash now would replay from.
    pub(super) fn tail_tid(&self) -> Tid {
        self.tail_tid.get()
    }
    pub(super) fn used_bytes(&self) -> u64 {
        u64::from(self.used.get()) * self.block_bytes as u64
    }
    pub(super) fn is_half_full(&self) -> bool {
        self.used.get() > self.capacity() / 2
    }

    fn wrap(&self, at: u32) -> u32 {
        if at >= self.blocks { at - self.blocks + self.first } else { at }
    }

    /// Takes `count` blocks for a transaction, or the rest of one; returns the first.
    pub(super) fn take(&self, tid: Tid, count: u32) -> u32 {
        assert!(count <= self.free(), "J4: {count} blocks are taken of {}", self.free());
        let newest = self.starts.borrow().last_key_value().map_or(Tid::NONE, |(s, _)| *s);
        assert!(newest <= tid, "J7: transaction {tid} is written after {newest}");
        let at = self.head.get();
        if count > 0 {
            // One that has nothing but its commit begins with that.
            self.starts.borrow_mut().entry(tid).or_insert(at);
        }
        self.head.set(self.wrap(at + count));
        self.used.set(self.used.get() + count);
        assert!(self.used.get() <= self.capacity(), "J4: more is used than there is");
        assert!((self.first..self.blocks).contains(&at), "J4: {at} lies outside the journal");
        self.check();
        at
    }

    /// What is used is what lies between the oldest transaction and the head.
    fn check(&self) {
        let begin = self.starts.borrow().first_key_value().map(|(_, at)| *at);
        let between = begin.map_or(0, |at| self.distance(at, self.head.get()));
        let used = self.used.get();
        assert_eq!(used, between, "J4: {used} blocks count as used, {between} are");
    }

    /// Writes blocks from journal block `at` on; they may go around the end.
    pub(super) async fn write(
        self: &Rc<Self>,
        at: u32,
        blocks: Vec<Block>,
        how: Durability,
    ) -> Result<(), DiskError> {
        self.written.set(self.written.get() + blocks.len() as u64);
        let inside =
            (self.first..self.blocks).contains(&at) && blocks.len() <= self.capacity() as usize;
        assert!(inside, "J4: {} blocks are written at {at} of {}", blocks.len(), self.blocks);
        let begin = self.starts.borrow().first_key_value().map_or(at, |(_, begin)| *begin);
        let behind = if begin == at { 0 } else { self.distance(begin, at) };
        let (end, used) = (u64::from(behind) + blocks.len() as u64, u64::from(self.used.get()));
        assert!(end <= used, "J4: {} blocks at {at} are written that nobody took", blocks.len());
        let mut pieces: Vec<(u64, Vec<Block>)> = Vec::new();
        let mut place = at;
        for b in blocks {
            let at = self.byte_of(place);
            place = self.wrap(place + 1);
            match pieces.last_mut() {
                Some((start, run))
                    if *start + (run.len() * self.block_bytes) as u64 == at
                        && run.len() < RUN_MAX =>
                {
                    run.push(b);
                }
                _ => pieces.push((at, vec![b])),
            }
        }
        if pieces.len() == 1 {
            let (at, run) = pieces.pop().expect("one piece");
            return self.place.disk.write(at, run, how).await;
        }
        self.write_together(pieces, how).await
    }

    async fn write_together(
        self: &Rc<Self>,
        pieces: Vec<(u64, Vec<Block>)>,
        how: Durability,
    ) -> Result<(), DiskError> {
        let left = Rc::new((Cell::new(pieces.len()), RefCell::new(Ok(())), Notify::new()));
        for (at, run) in pieces {
            let (log, left) = (self.clone(), left.clone());
            self.env.spawn("journal write", async move {
                let result = log.place.disk.write(at, run, how).await;
                if result.is_err() {
                    *left.1.borrow_mut() = result;
                }
                left.0.set(left.0.get() - 1);
                left.2.wake_all();
            });
        }
        while left.0.get() > 0 {
            left.2.wait().await;
        }
        left.1.borrow().clone()
    }

    /// Makes completed writes of the journal's disk durable.
    pub(super) async fn flush(&self) -> Result<(), DiskError> {
        self.place.disk.flush().await
    }

    fn byte_of(&self, at: u32) -> u64 {
        let mut left = u64::from(at);
        for e in &self.place.extents {
            if left < e.len {
                return (e.start.0 + left) * self.block_bytes as u64;
            }
            left -= e.len;
        }
        unreachable!("journal block {at} of {}: its extents were checked at opening", self.blocks)
    }

    async fn write_superblock(&self) -> Result<(), DiskError> {
        let bytes = Block::copy_of(&self.superblock.borrow());
        let at = self.byte_of(self.place.superblock_at);
        let read = JournalSuperblock::decode(&self.superblock.borrow());
        assert!(read.is_ok(), "J4: a superblock is written that no recovery could read: {read:?}");
        let alone = !self.superblock_sent.replace(true);
        assert!(alone, "J4: two superblocks are on their way, and either may be the last");
        let result = self.place.disk.write(at, vec![bytes], Durability::Fua).await;
        self.superblock_sent.set(false);
        result
    }

    /// Would the next transaction go on at the far beginning? Then the journal is better emptied
    /// and begun at [`Log::turn`]'s place.
    pub(super) fn is_at_turn(&self, count: u32) -> bool {
        self.near > self.first && self.head.get() + count > self.blocks
    }

    /// Goes on where it is near, if the journal is empty; [`Log::start`] says so before anything is
    /// written there.
    pub(super) fn turn(&self) {
        if self.used.get() == 0 {
            let needed = self.starts.borrow().len();
            assert_eq!(needed, 0, "J4: an empty journal with {needed} transactions");
            self.head.set(self.near);
            self.started.set(false);
        }
    }

    /// Before the first transaction of a while: the superblock says where it begins, durably.
    pub(super) async fn start(&self, tid: Tid) -> Result<(), DiskError> {
        if self.started.get() {
            return Ok(());
        }
        let used = self.used.get();
        assert_eq!(used, 0, "J4: the superblock is to say that the journal begins at its head");
        let tail = self.tail_tid.get();
        assert!(tail <= tid, "J7: the journal is to begin with {tid}, and was at {tail}");
        superblock::set_tail(&mut self.superblock.borrow_mut(), self.head.get(), tid.on_disk());
        self.write_superblock().await?;
        assert!(!self.started.replace(true), "J4: the journal has begun twice with {tid}");
        self.tail_tid.set(tid);
        Ok(())
    }

    /// Nothing before `tid` is needed any more, because it is durable in place. The superblock
    /// says so durably before the room is used again. `next` is the tid of the next transaction.
    pub(super) async fn trim(&self, tid: Tid, next: Tid) -> Result<(), DiskError> {
        if tid <= self.tail_tid.get() || !self.started.get() {
            return Ok(());
        }
        let (start, from) = match self.starts.borrow().range(tid..).next() {
            Some((s, at)) => (*at, *s),
            None => (self.head.get(), next),
        };
        let tail = self.tail_tid.get();
        assert!(
            tail < from && from <= next,
            "J4: the tail goes from {tail} to {from}, {next} runs"
        );
        superblock::set_tail(&mut self.superblock.borrow_mut(), start, from.on_disk());
        self.write_superblock().await?;
        let before = self.tail_tid.replace(from);
        assert_eq!(before, tail, "J4: the tail moved while the superblock was told of {from}");
        let mut starts = self.starts.borrow_mut();
        *starts = starts.split_off(&from);
        let begin = starts.first_key_value().map_or(self.head.get(), |(_, at)| *at);
        let used = if starts.is_empty() { 0 } else { self.distance(begin, self.head.get()) };
        assert!(used <= self.used.get(), "J4: a trim takes {used} of {}", self.used.get());
        self.used.set(used);
        drop(starts);
        self.check();
        Ok(())
    }

    fn distance(&self, from: u32, to: u32) -> u32 {
        let ring = self.first..self.blocks;
        let inside = ring.contains(&from) && ring.contains(&to);
        assert!(inside, "J4: from {from} to {to} in a journal from {} on", self.first);
        if to > from { to - from } else { to + self.capacity() - from }
    }

    /// Everything is durable in place: the journal is an empty one as anybody's, durably. `next` is
    /// the number that the next transaction will have.
    pub(super) async fn finish(&self, next: Tid) -> Result<(), DiskError> {
        let newest = self.starts.borrow().last_key_value().map(|(tid, _)| *tid);
        let follows = newest.is_none_or(|n| n < next) && self.tail_tid.get() <= next;
        assert!(follows, "J7: {next} comes next, and {newest:?} is in the journal");
        {
            let mut raw = self.superblock.borrow_mut();
            superblock::set_tail(&mut raw, 0, next.on_disk());
            let bits = incompat::REVOKE | (u32::from(self.shape.wide) * incompat::WIDE);
            superblock::set_incompat(&mut raw, bits);
        }
        self.started.set(false); // nobody trims any more
        self.write_superblock().await?;
        self.starts.borrow_mut().clear();
        self.used.set(0);
        Ok(())
    }
}
