//! The store as its user sees it: opened, and then a disk of virtual blocks. How a request
//! becomes entries of the log is here; how the log goes to the disk is not.

use crate::clean;
use crate::clean::Thresholds;
use crate::geometry::{BLOCK, BLOCK_BYTES, Geometry, Place, SegNo, Virt};
use crate::idle::Cleaning;
use crate::measure::Speed;
use crate::pace::Purpose;
use crate::policy::Policy;
use crate::state::{State, Stats};
use crate::superblock::superblock;
use crate::table::damaged;
use crate::totals::Totals;
use crate::usage::{Filled, Use};
use env::sync::{Lock, Notify};
use env::{Block, Disk, DiskError, DiskErrorKind, Env};
use std::cell::RefCell;
use std::rc::Rc;

/// How to open one.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Write nothing at all.
    pub read_only: bool,
    /// Emptied segments are given back to the disk below.
    pub discard: bool,
    /// Pages of the table in memory.
    pub table_pages: usize,
    /// New mappings in memory before a checkpoint is written.
    pub mappings_max: usize,
    /// Bytes of log between checkpoints.
    pub checkpoint_bytes: u64,
    /// Which segments the cleaner takes.
    pub policy: Policy,
    /// When it does.
    pub cleaning: Cleaning,
    /// From when to when under pressure, and how much at a time.
    pub thresholds: Thresholds,
    /// What a request to the disk below takes, for policies that weigh one way against another;
    /// None: as it was measured when the store was made.
    pub disk: Option<Speed>,
    /// In idle time, blocks that are read one behind the other are laid so (reorganise.rs); None:
    /// where the disk takes long for an access.
    pub reorganise: Option<bool>,
    /// The moment that is seen.
    pub at: At,
    /// A planted bug, one of [`crate::PLANTS`].
    pub plant: Option<&'static str>,
}

/// A moment of the store that can be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum At {
    /// The newest: the newest checkpoint and the log behind it.
    #[default]
    Log,
    /// The newest checkpoint, without the log.
    Newer,
    /// The checkpoint before.
    Older,
    /// The checkpoint of this number.
    Checkpoint(u64),
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions {
            read_only: false,
            discard: false,
            table_pages: 4096,
            mappings_max: 1 << 16,
            checkpoint_bytes: 256 << 20,
            policy: Policy::default(),
            cleaning: Cleaning::Pressure,
            thresholds: Thresholds::default(),
            disk: None,
            reorganise: None,
            at: At::Log,
            plant: None,
        }
    }
}

/// What happened when a store was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Opened {
    /// The checkpoint it began with.
    pub generation: u64,
    /// Partial segments of log that were followed from there; 0 after a clean end.
    pub rolled: u64,
}

/// Contents that may wait in memory for the disk.
const PENDING_BLOCKS_MAX: usize = 4096;
/// Blocks with ranges that may wait to be written as a whole, by those from which on that begins.
const PATCHED_TIMES: u64 = 3;

pub(crate) struct Inner {
    pub(crate) env: Env,
    pub(crate) disk: Rc<dyn Disk>,
    pub(crate) geometry: Geometry,
    pub(crate) seed: u32,
    pub(crate) options: OpenOptions,
    pub(crate) plant: Option<&'static str>,
    pub(crate) state: RefCell<State>,
    /// Something has ended: a write, a checkpoint, a pass of the cleaner.
    pub(crate) changed: Notify,
    pub(crate) checkpointing: Lock,
    /// Held by a pass of the cleaner: one counts what is still to be moved.
    pub(crate) passing: Lock,
    /// Held by who changes a part of a block.
    pub(crate) parts: Lock,
    /// Held by whose turn it is to be given room (pace.rs).
    pub(crate) turns: Lock,
    /// Held by who makes or ends a snapshot.
    pub(crate) snapshotting: Lock,
}

/// An open store.
#[derive(Clone)]
pub struct Store {
    pub(crate) inner: Rc<Inner>,
    opened: Opened,
}

impl Store {
    /// Opens a store: the newest checkpoint, and the log from there to its last whole group. Unless
    /// it is opened for reading only, a checkpoint with a new epoch is durable when this returns.
    pub async fn open(env: Env, disk: Rc<dyn Disk>, options: OpenOptions) -> Result<Store, String> {
        let text = |e: DiskError| e.to_string();
        if options.at != At::Log && !options.read_only {
            return Err("an earlier moment of a store can only be read".into());
        }
        if !options.read_only {
            // What a killed process wrote may be in the device's cache only.
            disk.flush().await.map_err(text)?;
        }
        let superblock = superblock(&disk).await?;
        let (geometry, seed) = (superblock.geometry, superblock.seed());
        // The disk below a thin volume is shared, or is to be small.
        let discard = options.discard || geometry.is_thin();
        let disk_is = options.disk.or(superblock.speed);
        let options = OpenOptions { discard, disk: disk_is, ..options };
        let state = RefCell::new(State::new(geometry, seed, &options));
        let plant = options.plant;
        let inner = Rc::new(Inner {
            env,
            disk,
            geometry,
            seed,
            options,
            plant,
            state,
            changed: Notify::new(),
            checkpointing: Lock::new(),
            passing: Lock::new(),
            parts: Lock::new(),
            turns: Lock::new(),
            snapshotting: Lock::new(),
        });
        let loaded = inner.load().await?;
        let mut opened = Opened { generation: loaded.generation, rolled: 0 };
        if inner.options.at == At::Log {
            opened.rolled = inner.roll_forward().await.map_err(text)?;
            inner.check_reached(&loaded)?;
            let broken = inner.state.borrow().broken.filter(|_| !inner.options.read_only);
            broken.map_or(Ok(()), |b| Err(b.to_string()))?;
        }
        if inner.plant == Some("serial-reset") {
            let s = &mut *inner.state.borrow_mut();
            (s.serial, s.completed, s.durable) = Default::default();
        }
        if !inner.options.read_only && inner.plant != Some("stale-tail-joined") {
            {
                let s = &mut *inner.state.borrow_mut();
                s.epoch = loaded.next_epoch(s.epoch);
            }
            inner.checkpoint().await.map_err(text)?;
            inner.check_rewritten(&loaded).await?;
            inner.start_reclaiming();
            inner.watch_what_is_empty();
        }
        Ok(Store { inner, opened })
    }

    /// What opening found.
    pub fn opened(&self) -> Opened {
        self.opened
    }
    /// What is wrong with the log that was followed when it was opened for reading, a sentence:
    /// what lies behind that place is not seen, though it was durable.
    pub fn damage(&self) -> Option<String> {
        self.inner.state.borrow().broken.map(|b| b.to_string())
    }
    /// The store's shape.
    pub fn geometry(&self) -> Geometry {
        self.inner.geometry
    }
    /// Blocks that may hold something beside those that do, where the volume has more; None: all of
    /// the volume's may.
    pub fn room(&self) -> Option<u64> {
        self.inner.state.borrow().room()
    }
    /// What was done since.
    pub fn stats(&self) -> Stats {
        self.inner.state.borrow().stats
    }
    /// What was done since the store was made.
    pub fn totals(&self) -> Totals {
        self.inner.state.borrow().totals()
    }
    /// How its segments are filled, as the usage table has it.
    pub fn filled(&self) -> Filled {
        self.inner.state.borrow().usage.filled(self.inner.geometry.segment_blocks)
    }
    /// Which segments its cleaner takes.
    pub fn policy(&self) -> Policy {
        self.inner.options.policy
    }
    /// What the disk below takes, as policies have it.
    pub fn speed(&self) -> Option<Speed> {
        self.inner.options.disk
    }
    /// Is what is read together laid together in idle time?
    pub fn reorganises(&self) -> bool {
        self.inner.state.borrow().graph.is_some()
    }
    /// When it does.
    pub fn cleaning(&self) -> Cleaning {
        self.inner.options.cleaning
    }
    /// Blocks of which ranges are pending.
    pub fn patched(&self) -> usize {
        self.inner.state.borrow().patches.len()
    }
    /// Bytes of memory that the table takes: new mappings, pages and indices of runs, and blocks of
    /// which ranges are pending.
    pub fn table_memory_bytes(&self) -> usize {
        let s = self.inner.state.borrow();
        let new = s.table.active.len() + s.table.frozen.as_ref().map_or(0, |f| f.len());
        let patches = s.patches.memory_bytes();
        let index: usize = s.table.runs.iter().map(|r| r.pages.len()).sum();
        let known = s.residents.bytes() + s.graph.as_ref().map_or(0, |g| g.bytes());
        new * 40 + s.table.pages.len() * 8192 + index * 16 + patches + known
    }
    /// Writes a checkpoint, so that the next opening follows no log.
    pub async fn checkpoint(&self) -> Result<(), DiskError> {
        self.inner.checkpoint().await
    }
}

impl Inner {
    /// Blocks of the disk below, in one piece.
    pub(crate) async fn read_blocks(&self, place: Place, n: u64) -> Result<Block, DiskError> {
        let memory = vec![Block::zeroed(n as usize * BLOCK_BYTES)];
        let read = self.disk.read(place.byte(), memory).await?;
        let raw = read.into_iter().next().expect("one was asked for");
        let (len, asked) = (raw.len(), n as usize * BLOCK_BYTES);
        assert_eq!(len, asked, "the disk fills the memory that it was given");
        Ok(raw)
    }

    pub(crate) fn check_range(
        &self,
        during: &'static str,
        at: u64,
        len: u64,
    ) -> Result<(), DiskError> {
        let size = self.geometry.virtual_blocks * BLOCK;
        if at.checked_add(len).is_some_and(|end| end <= size) {
            return Ok(());
        }
        let detail = format!("{len} bytes on a store of {size}");
        Err(DiskError { kind: DiskErrorKind::OutOfRange, during, at, detail })
    }

    /// Reads `n` whole virtual blocks.
    pub(crate) async fn read_virtual(&self, v: Virt, n: u64) -> Result<Vec<Block>, DiskError> {
        let mut out = Vec::with_capacity(n as usize);
        while (out.len() as u64) < n {
            let at = Virt(v.0 + out.len() as u64);
            let base = self.base(at, v.0 + n - at.0).await?;
            // What lies over the blocks belongs to where they lie now, not when they are read.
            let (e, over) = {
                let s = &mut *self.state.borrow_mut();
                if !s.table.is_current(&base) {
                    continue;
                }
                let e = s.table.extent(at, v.0 + n, &base);
                let over = s.patches.within(at, u64::from(e.n));
                let over: Vec<_> = over.map(|(v, p)| (v.0 - at.0, p.clone())).collect();
                s.note_read(e, over.iter().map(|o| o.0), self.env.now());
                (e, over)
            };
            let first = out.len();
            match e.place {
                Some(place) => out.extend(self.read_places(place, u64::from(e.n)).await?),
                None => out.extend((0..e.n).map(|_| Block::zeroed(BLOCK_BYTES))),
            }
            let read = out.len() - first;
            assert_eq!(read, e.n as usize, "I11: ranges go over other blocks than {e:?}");
            over.iter().for_each(|(i, p)| p.over(&mut out[first + *i as usize]));
        }
        Ok(out)
    }

    /// Reads blocks that lie one behind the other, from memory where the disk does not have them
    /// yet. They may cross segments.
    pub(crate) async fn read_places(&self, place: Place, n: u64) -> Result<Vec<Block>, DiskError> {
        let (found, segments) = {
            let mut s = self.state.borrow_mut();
            let found: Vec<Option<Block>> =
                (0..n).map(|i| s.pending.get(&place.plus(i).0).cloned()).collect();
            let segments: Vec<SegNo> =
                (0..n).filter_map(|i| self.geometry.segment_of(place.plus(i))).collect();
            // A damaged table may lead to what anybody may take.
            let holds = |seg: &SegNo| matches!(s.usage.get(*seg).used, Use::Open | Use::Closed);
            if !segments.iter().all(holds) {
                return Err(damaged(place, "what the table says of a block that would lie here"));
            }
            segments.iter().for_each(|seg| s.usage.reading(*seg, true));
            (found, segments)
        };
        let mut result = Ok(found);
        if let Ok(found) = &mut result
            && found.iter().any(Option::is_none)
        {
            let memory = (0..n).map(|_| Block::zeroed(BLOCK_BYTES)).collect();
            match self.disk.read(place.byte(), memory).await {
                Ok(read) => {
                    let len = read.len() as u64;
                    assert_eq!(len, n, "the disk fills the blocks that it was given");
                    for (f, r) in found.iter_mut().zip(read) {
                        f.get_or_insert(r);
                    }
                }
                Err(e) => result = Err(e),
            }
        }
        let mut s = self.state.borrow_mut();
        segments.iter().for_each(|seg| s.usage.reading(*seg, false));
        drop(s);
        result.map(|all| all.into_iter().map(|b| b.expect("it was read")).collect())
    }

    /// Puts whole blocks, as one group.
    pub(crate) async fn write_virtual(
        self: &Rc<Self>,
        v: Virt,
        blocks: Vec<Block>,
    ) -> Result<(), DiskError> {
        // Whoever writes so cannot be refused for good: he waits, where there is room at all.
        let kept = self.admit(blocks.len() as u64, Purpose::NoMore).await?;
        let result = self.put_virtual(v, blocks).await;
        self.release(kept);
        self.issue(false);
        self.ask_for_room(0);
        result
    }

    async fn put_virtual(&self, v: Virt, blocks: Vec<Block>) -> Result<(), DiskError> {
        loop {
            let base = self.base_to_change(v, blocks.len() as u64).await?;
            let s = &mut *self.state.borrow_mut();
            if !s.table.is_current(&base) {
                continue;
            }
            let (end, all) = (v.0 + blocks.len() as u64, self.geometry.virtual_blocks);
            assert!(end <= all, "I8: blocks up to {end} of {all} are written by who asks");
            s.begin_group();
            for (v, block) in (v.0..).map(Virt).zip(blocks) {
                s.residents.written_outside(v);
                s.write_block(v, block, &base);
                s.stats.user_bytes += BLOCK;
            }
            s.end_group();
            return Ok(());
        }
    }

    /// Is there room for `n` blocks now? Errors: there will be none.
    pub(crate) fn may_put(&self, n: u64, purpose: Purpose) -> Result<bool, DiskError> {
        self.check_failed()?;
        // Groups to come have their room, and so has each block that is to be written as a whole.
        let segments = self.segments_needed(n);
        let s = self.state.borrow();
        let free = s.spare();
        // What the cleaner is about to write beyond its own is not there for users (I10).
        let counts = s.to_move > 0 && self.plant != Some("moves-not-counted");
        let moving = if counts { self.geometry.segments_to_move(s.to_move) } else { 0 };
        let moving = moving.saturating_sub(self.geometry.cleaner_reserve());
        let has_room = free >= s.reserve() + s.last_reserve(purpose) + moving + segments
            || (self.plant == Some("budget-without-metadata") && free > segments);
        let stuck = s.is_stuck(self.env.now()).filter(|_| !s.cleaning);
        if let Some(why) = stuck.filter(|_| !has_room && s.reserved == 0) {
            return Err(why.clone());
        }
        // Who has ranges to come waits until blocks that have some are written as a whole.
        let folding =
            s.folding && s.patches.len() as u64 > PATCHED_TIMES * self.geometry.patched_max();
        let bounded = s.pending.len() < PENDING_BLOCKS_MAX.max(n as usize)
            && s.table.active.len() < 2 * self.options.mappings_max
            && !folding;
        Ok(has_room && bounded)
    }

    /// Starts the cleaner or a checkpoint where they are needed. Somebody waits for this many free
    /// segments beyond the reserve.
    pub(crate) fn ask_for_room(self: &Rc<Self>, segments: u32) {
        let (checkpoint, cleaning) = {
            let mut s = self.state.borrow_mut();
            if s.idle.closing && segments == 0 {
                return; // nobody waits, and the last checkpoint is about to be written
            }
            let every = self.options.checkpoint_bytes / BLOCK;
            let tenth =
                u64::from(self.geometry.segments) * u64::from(self.geometry.segment_blocks) / 8;
            let due = s.since_checkpoint > every.min(tenth)
                || s.table.active.len() > self.options.mappings_max;
            let checkpoint = due && !s.checkpoint_wanted;
            s.checkpoint_wanted |= due;
            s.segments_wanted = s.segments_wanted.max(segments);
            let free = s.spare();
            let low = clean::low(&s).max(s.reserve() + segments);
            // Where nothing was gained, something has to change before it is tried again.
            let (changes, waits) = (s.changes(), segments > 0);
            let stuck = || s.is_stuck(self.env.now()).is_some();
            let vain = if waits { stuck() } else { changes < s.clean_from };
            let cleaning = free < low && !s.cleaning && s.failed.is_none() && !vain;
            s.cleaning |= cleaning;
            (checkpoint, cleaning)
        };
        if checkpoint {
            let store = self.clone();
            self.env.spawn("checkpoint", async move {
                let _ = store.checkpoint().await;
            });
        }
        self.watch_for_idle_time();
        if cleaning {
            let store = self.clone();
            self.env.spawn("cleaner", async move { store.clean().await });
        }
    }
}
