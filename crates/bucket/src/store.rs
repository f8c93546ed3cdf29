//! The store as its user sees it: opened, then a disk of virtual blocks and a taker of groups,
//! closed. How the log is followed, written and taken over is elsewhere.

use crate::at_rest::{AtRest, Key};
use crate::block_cache::BlockCache;
use crate::chain::{Chain, Trouble, list};
use crate::clone;
use crate::fence::{self, TakeOver, Taken};
use crate::near::{Near, NearOptions};
use crate::object::{Epoch, Serial};
use crate::prices::Prices;
use crate::snapshot_disk::SnapshotDisk;
use crate::state::{State, Stats};
use crate::steady::Steady;
use crate::stream::{Fetching, Streams};
use crate::volume::{self, Shape};
use crate::waits::Waits;
use env::sync::{Lock, Notify};
use env::{Bucket, BucketError, DiskError, Env, Nanos};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// How often a store is tidied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// Objects of the log from which on a checkpoint is due.
    pub checkpoint_objects: u64,
    /// Blocks without life that may lie in the bucket beside as many as live.
    pub slack_blocks: u64,
    /// What a checkpoint makes dead is kept for so long while the store is open: who follows the
    /// log may need it still.
    pub keep: Nanos,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { checkpoint_objects: 256, slack_blocks: 4096, keep: Nanos::from_secs(5) }
    }
}

/// How to open one.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Write nothing at all, and show the log as far as it goes now.
    pub read_only: bool,
    /// What to do where somebody else writes.
    pub take_over: TakeOver,
    /// A writer that was not heard of for so long is silent.
    pub after: Nanos,
    /// Who opens it, for a person.
    pub writer: String,
    /// Blocks kept in memory of what was read and written.
    pub cache_blocks: usize,
    /// How often it is tidied.
    pub pace: Pace,
    /// What requests cost, which cleaning has to be worth.
    pub prices: Prices,
    /// The volume's key, if it is encrypted.
    pub key: Option<Key>,
    /// Is there a cache below that may answer [`ObjectOp::GetKept`] after a restart?
    pub kept: bool,
    /// What is told to be durable before the bucket has it is there.
    pub near: Option<NearOptions>,
    /// A planted bug, one of [`crate::PLANTS`].
    pub plant: Option<&'static str>,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions {
            read_only: false,
            take_over: TakeOver::Refuse,
            after: Nanos::from_secs(5),
            writer: String::new(),
            cache_blocks: 16 << 10,
            pace: Pace::default(),
            prices: Prices::default(),
            key: None,
            kept: false,
            near: None,
            plant: None,
        }
    }
}

/// What happened when a store was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Opened {
    /// The checkpoint it began with; 0: none.
    pub checkpoint: Serial,
    /// Objects that were followed behind it.
    pub rolled: u64,
    /// The epoch.
    pub epoch: Epoch,
}

pub(crate) struct Inner {
    pub(crate) env: Env,
    pub(crate) bucket: Rc<dyn Bucket>,
    pub(crate) steady: Rc<Steady>,
    pub(crate) shape: Shape,
    pub(crate) options: OpenOptions,
    pub(crate) plant: Option<&'static str>,
    pub(crate) state: RefCell<State>,
    /// Something has ended, or failed.
    pub(crate) changed: Notify,
    /// A heartbeat, or the look for a fence behind it, is on its way.
    pub(crate) beating: Cell<bool>,
    /// When the last request began that has shown that this is still the writer.
    pub(crate) confirmed: Cell<Nanos>,
    /// Somebody else is the writer.
    pub(crate) lost: Cell<bool>,
    /// Somebody looks whether this is still the writer; what came of it is there.
    pub(crate) looking: Cell<bool>,
    pub(crate) sure: Notify,
    /// Who waits for groups to be durable.
    pub(crate) waits: Waits,
    /// What was being read is there, or is not.
    pub(crate) fetched: Notify,
    pub(crate) checkpointing: Lock,
    /// Held by who puts a group: one at a time.
    pub(crate) order: Lock,
    /// What tells the objects of an epoch from those of any other, by its fence (kept.rs).
    pub(crate) epochs: RefCell<BTreeMap<Serial, [u8; 16]>>,
    pub(crate) near: Option<Near>,
    /// Objects that are to be deleted, and when.
    pub(crate) overdue: RefCell<VecDeque<(Nanos, Vec<Serial>)>>,
    /// Numbers of what others have asked for and was done, each with the answer once there is one.
    pub(crate) asked: RefCell<VecDeque<(String, Option<String>)>>,
    /// Of a clone: the snapshot that it began as.
    pub(crate) origin: Option<SnapshotDisk>,
}

/// An open store.
#[derive(Clone)]
pub struct Store {
    pub(crate) inner: Rc<Inner>,
    opened: Opened,
}

/// A log that moves on is looked at so often before it is given up.
const LOOKS: usize = 100;

impl Store {
    /// Opens a store: the newest checkpoint, and the log from there. Unless it is opened for
    /// reading only, the log belongs to this writer when this returns (I5). Errors: there is no
    /// volume; somebody else writes it; or the bucket's.
    pub async fn open(
        env: Env,
        bucket: Rc<dyn Bucket>,
        options: OpenOptions,
    ) -> Result<Store, String> {
        let steady = Steady::new(env.clone(), bucket.clone());
        let (raw, below): (_, Rc<dyn Bucket>) = (bucket, steady.clone());
        let shape = Shape::of(&below).await?;
        let how = shape.at_rest(options.key.as_ref())?;
        let bucket = volume::opened(below, &how);
        let origin = match shape.clone {
            true => Some(clone::origin_of(&env, (raw, &bucket), &shape, &options).await?),
            false => None,
        };
        let near = match options.near.as_ref().filter(|_| !options.read_only) {
            Some(near) => Some(Near::open((&env, &shape), &how, near, options.plant).await?),
            None => None,
        };
        let cache = BlockCache::new(options.cache_blocks);
        let (chain, taken) = if options.read_only {
            (follow(&bucket, &shape, options.plant).await?, Taken::default())
        } else {
            fence::take(&env, &bucket, &shape, (&options, near.as_ref(), &cache)).await?
        };
        let opened =
            Opened { checkpoint: chain.checkpoint, rolled: chain.rolled, epoch: chain.epoch };
        let there = chain.is_listed_whole.then(|| chain.listed.clone());
        let again = near.as_ref().zip(taken.standing).map(|(near, s)| near.begin(s));
        let ways = (steady, bucket, origin);
        let store = Store::with(env, ways, (shape, options), (chain, cache, near));
        let store = Store { opened, ..store };
        if !store.inner.options.read_only {
            store.inner.start_beating(Nanos((store.inner.options.after.0 / 5).max(1)));
            store.put_near_again(again.unwrap_or_default()).await?;
            store.inner.start_uploading();
            store.inner.start_collecting(there);
        }
        Ok(store)
    }

    /// The store of a volume that is being made: nobody else knows of it, and there is no fence.
    pub(crate) fn make(env: Env, bucket: Rc<dyn Bucket>, (shape, how): (Shape, &AtRest)) -> Store {
        let steady = Steady::new(env.clone(), bucket);
        let bucket = volume::opened(steady.clone(), how);
        let chain = Chain::empty(&shape, None);
        let options = OpenOptions::default();
        let cache = BlockCache::new(options.cache_blocks);
        Store::with(env, (steady, bucket, None), (shape, options), (chain, cache, None))
    }

    /// The same store at another moment of its log.
    pub(crate) fn at(&self, chain: Chain) -> Store {
        let inner = &self.inner;
        let cache = inner.state.borrow().cache.clone();
        let of = (inner.shape, inner.options.clone());
        let opened = Opened { checkpoint: chain.checkpoint, rolled: 0, epoch: chain.epoch };
        let ways = (inner.steady.clone(), inner.bucket.clone(), inner.origin.clone());
        let store = Store::with(inner.env.clone(), ways, of, (chain, cache, None));
        Store { opened, ..store }
    }

    fn with(
        env: Env,
        (steady, bucket, origin): (Rc<Steady>, Rc<dyn Bucket>, Option<SnapshotDisk>),
        (shape, options): (Shape, OpenOptions),
        (chain, cache, near): (Chain, BlockCache, Option<Near>),
    ) -> Store {
        let Chain { last, next, epoch, checkpoint, table, .. } = &chain;
        let (end, last) = (table.last_serial(), last.0);
        assert!(end <= last && last < *next, "I4: behind {last} comes {next}, and there is {end}");
        let behind = epoch.0 <= last && *checkpoint <= last;
        assert!(
            behind,
            "I5: epoch {epoch} and checkpoint {checkpoint}, and the log ends at {last}"
        );
        // Groups keep the numbers that they have in a near log.
        let put = near.as_ref().map_or(0, |n| n.first_number() - 1);
        let state = State {
            table: chain.table,
            epoch: chain.epoch,
            next: chain.next,
            last: chain.last,
            checkpoint: chain.checkpoint,
            open: BTreeMap::new(),
            notes: chain.notes,
            put,
            sealed_put: put,
            wanted_put: put,
            durable_put: put,
            flights: BTreeMap::new(),
            ready: VecDeque::new(),
            acknowledged: chain.next.before(),
            under_way: 0,
            sealing: false,
            put_nanos: 0,
            since: (chain.rolled, 0),
            checkpoint_wanted: false,
            cleaning: false,
            closing: false,
            closed: false,
            cache,
            streams: Streams::default(),
            fetching: Fetching::default(),
            failed: None,
            stats: Stats::default(),
        };
        let inner = Rc::new(Inner {
            env,
            bucket,
            steady,
            shape,
            plant: options.plant,
            options,
            state: RefCell::new(state),
            changed: Notify::new(),
            beating: Cell::new(false),
            confirmed: Cell::default(),
            lost: Cell::default(),
            looking: Cell::default(),
            sure: Notify::new(),
            waits: Waits::default(),
            fetched: Notify::new(),
            checkpointing: Lock::new(),
            order: Lock::new(),
            epochs: RefCell::default(),
            near,
            overdue: RefCell::default(),
            asked: RefCell::default(),
            origin,
        });
        Store { inner, opened: Opened::default() }
    }

    /// What opening found.
    pub fn opened(&self) -> Opened {
        self.opened
    }
    /// The notes of the groups that were put lately, as far as the store was followed when it was
    /// opened; the oldest first.
    pub fn notes(&self) -> Vec<u128> {
        self.inner.state.borrow().notes.lately()
    }
    /// The store's shape.
    pub fn shape(&self) -> Shape {
        self.inner.shape
    }
    /// What was done since.
    pub fn stats(&self) -> Stats {
        let steady = &self.inner.steady;
        let (mut requests, mut bytes) = (steady.requests.get(), steady.bytes.get());
        if let Some((more_requests, more_bytes)) = self.inner.origin.as_ref().map(|o| o.asked()) {
            requests.iter_mut().zip(more_requests).for_each(|(n, more)| *n += more);
            bytes.iter_mut().zip(more_bytes).for_each(|(n, more)| *n += more);
        }
        let kept = self.inner.steady.kept.get();
        let near_groups = self.inner.near.as_ref().map_or(0, |n| n.waiting() as u64);
        let s = self.inner.state.borrow();
        let put_micros = s.put_nanos / 1000;
        Stats { requests, bytes, kept, near_groups, put_micros, ..s.stats }
    }
    /// Has it failed, or was it taken over? Then nothing is written any more.
    pub fn has_stopped(&self) -> bool {
        self.inner.state.borrow().failed.is_some()
    }
    /// Bytes of memory that the table takes, about.
    pub fn table_memory_bytes(&self) -> usize {
        let s = self.inner.state.borrow();
        (s.table.extents.len() + s.table.objects.len()) * 40
    }

    /// Writes a checkpoint, and deletes what it makes dead: the next opening follows no log.
    pub async fn checkpoint(&self) -> Result<(), DiskError> {
        self.inner.checkpoint().await
    }

    /// Everything durable, a checkpoint if anything was written, and the word that this writer has
    /// ended. Errors: the bucket's, or that the volume was taken over.
    pub async fn close(&self) -> Result<(), DiskError> {
        let inner = &self.inner;
        if inner.options.read_only {
            return Ok(());
        }
        inner.state.borrow_mut().closing = true;
        let changed = {
            let s = inner.state.borrow();
            !s.open.is_empty() || !s.flights.is_empty() || s.since.0 > 0
        };
        inner.check_failed()?;
        if changed {
            inner.checkpoint().await?;
        }
        inner.delete_overdue(true).await;
        if inner.state.borrow().epoch > Epoch::FIRST {
            inner.beat_last().await;
        }
        // Not before: who finds neither its mark nor that it has ended would miss something.
        inner.end_near().await?;
        Ok(())
    }

    /// It is not used any more, and was not closed. Who comes next is told that this writer has
    /// ended, and need not wait until it is silent, unless its near log has what the bucket has
    /// not.
    pub async fn give_up(&self) {
        let inner = &self.inner;
        let writes = {
            let mut s = inner.state.borrow_mut();
            s.closing = true;
            s.epoch > Epoch::FIRST && !inner.options.read_only && s.failed.is_none()
        };
        if writes && inner.near.as_ref().is_none_or(|n| n.waiting() == 0) {
            inner.beat_last().await;
        }
    }

    /// The ranges of virtual blocks that have contents: first, and how many.
    pub fn mapped(&self) -> Vec<(u64, u64)> {
        let s = self.inner.state.borrow();
        let mapped = s.table.extents.range(0, self.inner.shape.blocks);
        mapped.filter(|e| e.place.is_some()).map(|e| (e.v.0, u64::from(e.n))).collect()
    }

    /// Objects of the log, blocks in them, and those that live.
    pub fn filled(&self) -> (u64, u64, u64) {
        let s = self.inner.state.borrow();
        let (mut blocks, mut live) = (0, 0);
        for info in s.table.objects.values() {
            (blocks, live) = (blocks + u64::from(info.blocks), live + u64::from(info.live));
        }
        (s.table.objects.len() as u64, blocks, live)
    }

    /// What is wrong: the table against the objects that are there. Reads no contents. Errors: the
    /// bucket's.
    pub async fn verify(&self) -> Result<Vec<String>, BucketError> {
        let there = list(&self.inner.bucket, Serial::NONE).await?;
        let s = self.inner.state.borrow();
        let mut wrong = Vec::new();
        for (serial, info) in &s.table.objects {
            if info.live > 0 && !there.contains(serial) && !s.flights.contains_key(serial) {
                let name = crate::object::name(*serial);
                wrong.push(format!("{name} is missing, with {} live blocks", info.live));
            }
        }
        for e in s.table.extents.iter().filter(|e| e.place.is_some()) {
            if !s.table.is_owned(&e) {
                wrong.push(format!("block {} is nobody's", e.end() - 1));
            }
        }
        Ok(wrong)
    }
}

/// The log as far as it goes, for who only reads.
pub(crate) async fn follow(
    bucket: &Rc<dyn Bucket>,
    shape: &Shape,
    plant: Option<&'static str>,
) -> Result<Chain, String> {
    for _ in 0..LOOKS {
        match Chain::load(bucket, shape, plant).await {
            Ok(chain) => return Ok(chain),
            Err(Trouble::Again) => (),
            Err(Trouble::Wrong(why) | Trouble::Unknown(why)) => return Err(why),
        }
    }
    Err("the log moves on faster than it can be followed".into())
}
