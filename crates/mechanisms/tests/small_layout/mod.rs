//! The made-up layout, its model, and a life of it through power cuts. It has no inodes and no
//! names: what a mechanism sees, and nothing more.

use crate::world::{Medium, World, pattern};
use cache::{Buf, BufKind, Cache, CacheOptions};
use env::{Block, Disk, DiskError, DiskId, Durability, Env, Local, Nanos, Rng};
use format::{BlockNo, Extent, Ino};
use integrity::{Change, Credits, Ended, FileScope, Freed, InitKind, Integrity, Plant, Scope, Txn};
use mechanisms::{Commit, LogRecipe, Mode, Recipe, build, recover};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use wal::{FormatOptions, Log, LogArea, LogExtent, OpenOptions};

const BS: usize = 1024;
/// Memory for what recovery writes back: for few blocks, so that it goes in passes.
const MEMORY: usize = 4000;
const TASKS: usize = 4;
/// Block 0: counter (8 bytes), then the bitmap (a byte a block). Blocks 1 to 4: tables of numbers.
const TABLES: u64 = 4;
const FIRST: u64 = 8;
const BLOCKS: u64 = 24;
const LOG_AT: u64 = 64 * BS as u64;
const LOG_BYTES: u64 = 8192 + 10 * 16384;
const BYTES: u64 = LOG_AT + LOG_BYTES;

#[derive(Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) unified_mode: bool,
    pub(crate) unified: u64,
    pub(crate) sync: bool,
    pub(crate) ordered: bool,
    /// The volume's blocks have numbers of more than 32 bits.
    pub(crate) far: bool,
    pub(crate) plant: Option<&'static str>,
}

/// The number of its first block then.
const FAR: u64 = 0xfff << 32 | 0xffff_fff0;

/// The disk, as a volume sees it that begins at block [`FAR`].
struct FarDisk(Rc<dyn Disk>);

impl Disk for FarDisk {
    fn size_bytes(&self) -> u64 {
        FAR * BS as u64 + self.0.size_bytes()
    }
    fn read(&self, at: u64, blocks: Vec<Block>) -> Local<'_, Result<Vec<Block>, DiskError>> {
        self.0.read(near(at), blocks)
    }
    fn write(
        &self,
        at: u64,
        blocks: Vec<Block>,
        how: Durability,
    ) -> Local<'_, Result<(), DiskError>> {
        self.0.write(near(at), blocks, how)
    }
    fn flush(&self) -> Local<'_, Result<(), DiskError>> {
        self.0.flush()
    }
    fn discard(&self, at: u64, len: u64) -> Local<'_, Result<(), DiskError>> {
        self.0.discard(near(at), len)
    }
}

fn near(at: u64) -> u64 {
    at.checked_sub(FAR * BS as u64).expect("nothing lies before the volume's first block")
}

fn disk_of(setup: Setup, env: &Env) -> Rc<dyn Disk> {
    let disk = env.port().disk(DiskId(0), BYTES);
    if setup.far { Rc::new(FarDisk(disk)) } else { disk }
}

/// What a block in use holds.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Held {
    Meta(Vec<u8>),
    /// Contents: the versions since it was allocated, each with how it was written.
    Data(Vec<Version>),
}
#[derive(Clone, PartialEq, Eq, Debug)]
struct Version {
    bytes: Vec<u8>,
    /// In the log with its operation?
    logged: bool,
    /// Made durable by a sync that returned.
    synced: bool,
}

/// The volume as the operations so far made it.
#[derive(Clone, Default)]
struct Image {
    counter: u64,
    numbers: BTreeMap<(u64, usize), u32>,
    blocks: BTreeMap<u64, Held>,
}

/// What an operation did, by meaning.
#[derive(Clone, Debug)]
enum Did {
    Count(u64),
    Number(u64, usize, u32),
    Meta(u64, Vec<u8>),
    Data(u64, Vec<u8>, bool),
    Free(u64),
}

/// The operations in the order they ended.
#[derive(Default)]
struct Model {
    start: Image,
    ops: Vec<Vec<Did>>,
    /// Contents that operations under way have put into blocks: task, block, bytes. Where contents
    /// are written back by themselves, these may.
    under_way: Vec<(usize, u64, Vec<u8>)>,
    /// So many of them are acknowledged.
    acked: usize,
    /// Contents that a sync covered: block and its bytes, by the number of operations then.
    synced: Vec<(usize, u64, Vec<u8>)>,
}
type Shared = Rc<RefCell<Model>>;

impl Image {
    fn apply(&mut self, op: &[Did]) {
        for d in op {
            match d {
                Did::Count(n) => self.counter += n,
                Did::Number(b, i, v) => drop(self.numbers.insert((*b, *i), *v)),
                Did::Meta(b, v) => drop(self.blocks.insert(*b, Held::Meta(v.clone()))),
                Did::Free(b) => drop(self.blocks.remove(b)),
                Did::Data(b, bytes, logged) => {
                    let v = Version { bytes: bytes.clone(), logged: *logged, synced: false };
                    match self.blocks.get_mut(b) {
                        Some(Held::Data(list)) => list.push(v),
                        _ => drop(self.blocks.insert(*b, Held::Data(vec![v]))),
                    }
                }
            }
        }
    }
}

/// One session's things, in the volume.
#[derive(Clone)]
struct Vol {
    env: Env,
    cache: Rc<Cache>,
    m: Rc<dyn Integrity>,
    model: Shared,
    setup: Setup,
}

fn area(env: &Env) -> LogArea {
    LogArea::new(env.port().disk(DiskId(0), BYTES), vec![LogExtent { at: LOG_AT, len: LOG_BYTES }])
}

impl Vol {
    fn no(&self, b: u64) -> BlockNo {
        BlockNo(if self.setup.far { FAR + b } else { b })
    }

    async fn table(&self, b: u64) -> Buf {
        self.cache.get(self.no(b), BufKind::Meta).await.unwrap()
    }

    fn edit(&self, t: &mut Txn, buf: &Buf, at: usize, bytes: &[u8], c: Change) {
        t.edit(buf, at..at + bytes.len(), c, |b| b.copy_from_slice(bytes));
    }

    async fn count(&self, t: &mut Txn, did: &mut Vec<Did>, n: u64) {
        let buf = self.table(0).await;
        let now = u64::from_le_bytes(buf.bytes()[..8].try_into().unwrap());
        self.edit(t, &buf, 0, &(now + n).to_le_bytes(), Change::Counts);
        did.push(Did::Count(n));
    }

    /// A free block, marked as taken.
    async fn take(&self, t: &mut Txn, rng: &mut Rng) -> Option<u64> {
        let buf = self.table(0).await;
        let from = rng.below(BLOCKS);
        let free = (0..BLOCKS).map(|i| FIRST + (from + i) % BLOCKS).find(|b| {
            let e = Extent { start: self.no(*b), len: 1 };
            buf.bytes()[8 + *b as usize] == 0 && self.m.may_reuse(Freed::Blocks(e))
        })?;
        let e = Extent { start: self.no(free), len: 1 };
        self.edit(t, &buf, 8 + free as usize, &[1], Change::AllocBlocks(e));
        Some(free)
    }

    async fn set_numbers(&self, i: usize, rng: &mut Rng, t: &mut Txn, did: &mut Vec<Did>) {
        for _ in 0..1 + rng.below(3) {
            let b = 1 + rng.below(TABLES);
            let slot = i * 40 + rng.below(40) as usize;
            let v = rng.next_u64() as u32;
            let buf = self.table(b).await;
            self.edit(t, &buf, slot * 4, &v.to_le_bytes(), Change::Attr(Ino(1)));
            did.push(Did::Number(b, slot, v));
            if rng.one_in(4) {
                self.env.sleep(Nanos(1)).await; // as if it had to read something
            }
        }
    }

    /// Contents of a block of ours, whole or in part.
    fn put(&self, (i, b): (usize, u64), rng: &mut Rng, t: &mut Txn, did: &mut Vec<Did>, new: bool) {
        let kind = BufKind::Data;
        let block = self.no(b);
        let buf = if new {
            self.cache.get_new(block, kind, Ino(10 + i as u32))
        } else {
            self.cache.get_cached(block).expect("it was read before")
        };
        buf.set_owner(Ino(10 + i as u32));
        let (at, len) = match rng.below(3) {
            0 => (0, BS),
            _ => (rng.below(500) as usize, 1 + rng.below(290) as usize),
        };
        let bytes = pattern(rng, len);
        buf.modify(|m| m[at..at + len].copy_from_slice(&bytes));
        t.data(Ino(10 + i as u32), &buf, at..at + len);
        let logged = self.setup.unified_mode && len as u64 <= self.setup.unified;
        let all = buf.bytes().to_vec();
        if !logged {
            self.model.borrow_mut().under_way.push((i, b, all.clone()));
        }
        did.push(Did::Data(b, all, logged));
    }

    async fn act(&self, i: usize, rng: &mut Rng, mine: &mut Mine) -> Option<(Ended, usize)> {
        let mut did = Vec::new();
        let choice = rng.below(8);
        let data_bytes = if choice == 5 || choice == 6 { u64::MAX } else { 0 };
        let mut sized = rng.clone();
        let data_bytes = match data_bytes {
            0 => 0,
            // As `put` will choose.
            _ => probe_len(&mut sized, choice, mine),
        };
        if choice == 6 && !mine.data.is_empty() {
            // Read before the operation begins, as a layout would keep it.
            let all: Vec<u64> = mine.data.iter().copied().collect();
            for b in all {
                self.cache.get(self.no(b), BufKind::Data).await.ok()?;
            }
        }
        let stable = waits(i);
        let need = Credits { frees: 1, runs: 1, data_bytes, stable, ..Credits::blocks(6) };
        let mut t = self.m.begin(need).await.ok()?;
        match choice {
            0..=2 => self.set_numbers(i, rng, &mut t, &mut did).await,
            3 => {
                if let Some(b) = self.take(&mut t, rng).await {
                    let buf = self.cache.get_new(self.no(b), BufKind::Meta, Ino(0));
                    let bytes = pattern(rng, BS);
                    let init = Change::InitBlock { ino: Ino(1), kind: InitKind::Dir };
                    self.edit(&mut t, &buf, 0, &bytes, init);
                    did.push(Did::Meta(b, bytes));
                    mine.meta.insert(b);
                }
            }
            4 => self.free_one(rng, mine, &mut t, &mut did).await,
            5 => {
                let fork = rng.clone();
                let mut probe = fork;
                if let Some(b) = self.take(&mut t, &mut probe).await {
                    *rng = probe;
                    self.put((i, b), rng, &mut t, &mut did, true);
                    mine.data.insert(b);
                }
            }
            6 => {
                if let Some(b) = mine.data.first().copied() {
                    self.put((i, b), rng, &mut t, &mut did, false);
                }
            }
            _ => {
                self.set_numbers(i, rng, &mut t, &mut did).await;
                if let Some(b) = mine.meta.first().copied() {
                    let buf = self.cache.get(self.no(b), BufKind::Meta).await.ok()?;
                    self.edit(&mut t, &buf, 100, &[rng.next_u64() as u8; 9], Change::Attr(Ino(1)));
                    let all = buf.bytes().to_vec();
                    did.push(Did::Meta(b, all));
                }
            }
        }
        if !did.is_empty() {
            self.count(&mut t, &mut did, 1 + rng.below(5)).await;
            if rng.one_in(5) {
                self.env.sleep(Nanos(1)).await;
            }
        }
        // The order in which operations end is the order in which they count.
        let ended = self.m.end(t).await.ok()?;
        if did.is_empty() {
            return None;
        }
        let mut m = self.model.borrow_mut();
        m.under_way.retain(|u| u.0 != i);
        m.ops.push(did);
        Some((ended, m.ops.len()))
    }

    async fn free_one(&self, rng: &mut Rng, mine: &mut Mine, t: &mut Txn, did: &mut Vec<Did>) {
        let set = if rng.one_in(2) { &mut mine.meta } else { &mut mine.data };
        let Some(b) = set.pop_first() else { return };
        let buf = self.table(0).await;
        let e = Extent { start: self.no(b), len: 1 };
        self.edit(t, &buf, 8 + b as usize, &[0], Change::FreeBlocks(e));
        self.cache.forget(self.no(b));
        did.push(Did::Free(b));
    }

    async fn sync_mine(&self, i: usize, mine: &Mine) -> Option<()> {
        let (n, held) = {
            let m = self.model.borrow();
            let mut image = m.start.clone();
            m.ops.iter().for_each(|o| image.apply(o));
            let of = |b: &u64| match image.blocks.get(b) {
                Some(Held::Data(v)) => v.last().map(|v| (*b, v.bytes.clone())),
                _ => None,
            };
            // Only what concerns the file is promised, and what ended before that.
            let file = |d: &Did| matches!(d, Did::Data(b, ..) if mine.data.contains(b));
            let last = m.ops.iter().rposition(|o| o.iter().any(file));
            (last.map_or(0, |i| i + 1), mine.data.iter().filter_map(of).collect::<Vec<_>>())
        };
        let files = vec![FileScope { ino: Ino(10 + i as u32), inode_block: self.no(1) }];
        self.m.sync(Scope::Files { files, data_only: false }).await.ok()?;
        let mut m = self.model.borrow_mut();
        m.acked = m.acked.max(n);
        m.synced.extend(held.into_iter().map(|(b, bytes)| (n, b, bytes)));
        Some(())
    }

    async fn live(self, i: usize, mut rng: Rng, mut mine: Mine, steps: u32) {
        for _ in 0..steps {
            if self.cache.failure().is_some() {
                return;
            }
            if let Some((ended, n)) = self.act(i, &mut rng, &mut mine).await
                && self.setup.sync
            {
                let (m, model) = (self.m.clone(), self.model.clone());
                let wait = async move {
                    if m.durable(ended).await.is_ok() {
                        let mut model = model.borrow_mut();
                        model.acked = model.acked.max(n);
                    }
                };
                if rng.one_in(2) {
                    wait.await
                } else {
                    self.env.spawn("waiter", wait)
                }
                if waits(i) {
                    self.sync_mine(i, &mine).await;
                }
            }
            match rng.below(12) {
                0 => drop(self.sync_mine(i, &mine).await),
                1 => {
                    let cache = self.cache.clone();
                    self.env.spawn("write-back", async move {
                        let all = cache.dirty_all();
                        let _ = cache.write(all).await;
                        let _ = cache.flush_device().await;
                    });
                }
                _ => self.env.yield_now().await,
            }
        }
    }
}

/// Does the task wait for the contents it writes, each time?
fn waits(task: usize) -> bool {
    task.is_multiple_of(2)
}

/// The bytes that `put` will write, from a copy of its generator.
fn probe_len(rng: &mut Rng, choice: u64, mine: &Mine) -> u64 {
    if choice == 5 {
        rng.below(BLOCKS); // `take`
    } else if mine.data.is_empty() {
        return 0;
    }
    match rng.below(3) {
        0 => BS as u64,
        _ => {
            rng.below(500);
            1 + rng.below(290)
        }
    }
}

/// Blocks that a task owns.
#[derive(Clone, Default)]
struct Mine {
    meta: BTreeSet<u64>,
    data: BTreeSet<u64>,
}

fn read(medium: &Medium, at: u64, len: usize) -> Vec<u8> {
    medium.bytes(at, len)
}

/// Is the medium what the first `k` operations made?
fn compare(medium: &Medium, k: usize, m: &Model, setup: Setup) -> Result<(), String> {
    let mut image = m.start.clone();
    m.ops[..k].iter().for_each(|o| image.apply(o));
    let zero = read(medium, 0, BS);
    if u64::from_le_bytes(zero[..8].try_into().unwrap()) != image.counter {
        let is = u64::from_le_bytes(zero[..8].try_into().unwrap());
        return Err(format!("the counter is {is}, not {}", image.counter));
    }
    for b in FIRST..FIRST + BLOCKS {
        if (zero[8 + b as usize] == 1) != image.blocks.contains_key(&b) {
            return Err(format!("bitmap of block {b}"));
        }
    }
    for t in 1..=TABLES {
        let table = read(medium, t * BS as u64, BS);
        for i in 0..TASKS * 40 {
            let is = u32::from_le_bytes(table[i * 4..i * 4 + 4].try_into().unwrap());
            if is != image.numbers.get(&(t, i)).copied().unwrap_or(0) {
                return Err(format!("number {i} of table {t}"));
            }
        }
    }
    for (b, held) in &image.blocks {
        let is = read(medium, b * BS as u64, BS);
        match held {
            Held::Meta(bytes) if *bytes != is => return Err(format!("metadata block {b}")),
            Held::Meta(_) => (),
            Held::Data(v) => contents(*b, &is, v, m, k, setup)?,
        }
    }
    Ok(())
}

/// Are a block's contents what they may be? In sectors, because what is not in the log may be torn.
fn contents(
    b: u64,
    is: &[u8],
    versions: &[Version],
    m: &Model,
    k: usize,
    setup: Setup,
) -> Result<(), String> {
    let last = versions.last().unwrap();
    let mut allowed: Vec<&[u8]> = vec![&last.bytes];
    let mut later_ordered = false;
    // What was written later, until the block was freed: it is not used again before that is
    // durable, which it is not.
    for d in m.ops[k..].iter().flatten() {
        match d {
            Did::Free(x) if *x == b => break,
            Did::Data(x, bytes, logged) if *x == b => {
                later_ordered |= !logged || !setup.unified_mode;
                if later_ordered {
                    allowed.push(bytes);
                }
            }
            _ => (),
        }
    }
    if setup.unified_mode || setup.ordered {
        // Ordered: everything up to the prefix is there.
    } else {
        // Unordered: only what was synced is sure, and what came after it may be there.
        let synced = m.synced.iter().rev().find(|s| s.1 == b && s.0 <= k);
        let Some(s) = synced else { return Ok(()) };
        let Some(from) = versions.iter().position(|v| v.bytes == s.2) else { return Ok(()) };
        allowed.extend(versions[from..].iter().map(|v| v.bytes.as_slice()));
    }
    let mine = m.under_way.iter().filter(|u| u.1 == b);
    allowed.extend(mine.clone().map(|u| u.2.as_slice()));
    later_ordered |= mine.count() > 0;
    for (i, sector) in is.chunks(512).enumerate() {
        if !allowed.iter().any(|a| &a[i * 512..(i + 1) * 512] == sector) {
            return Err(format!("contents of block {b}, sector {i}"));
        }
    }
    if setup.unified_mode && !later_ordered && is != last.bytes {
        return Err(format!("contents of block {b} are torn"));
    }
    Ok(())
}

/// After recovery: which prefix is it? The model starts anew from there.
fn collapse(medium: &Medium, model: &Shared, setup: Setup) -> Result<(), String> {
    let mut m = model.borrow_mut();
    let mut why = String::new();
    for k in (m.acked..=m.ops.len()).rev() {
        match compare(medium, k, &m, setup) {
            Ok(()) => {
                let ops: Vec<Vec<Did>> = m.ops.drain(..).take(k).collect();
                ops.iter().for_each(|o| m.start.apply(o));
                // From here on what the disk holds is what is there.
                let blocks: Vec<u64> = m.start.blocks.keys().copied().collect();
                for b in blocks {
                    let is = read(medium, b * BS as u64, BS);
                    if let Some(Held::Data(v)) = m.start.blocks.get_mut(&b) {
                        *v = vec![Version { bytes: is, logged: false, synced: true }];
                    }
                }
                (m.acked, m.synced) = (0, Vec::new());
                m.under_way.clear();
                let of = |(b, h): (&u64, &Held)| match h {
                    Held::Data(v) => Some((0, *b, v[0].bytes.clone())),
                    Held::Meta(_) => None,
                };
                m.synced = m.start.blocks.iter().filter_map(of).collect();
                return Ok(());
            }
            Err(e) => why = format!("{k}: {e}; {why}"),
        }
    }
    Err(format!("no prefix of {} operations ({} acknowledged) fits: {why}", m.ops.len(), m.acked))
}

fn formatted() -> Medium {
    let mut w = World::new(1, BYTES, Medium::default());
    assert!(w.run(u64::MAX, |env| {
        let area = area(env);
        env.spawn("format", async move {
            let o = FormatOptions { uuid: [7; 16], segment_bytes: Some(16384), unit: None };
            Log::format(&area, &o).await.unwrap();
        });
    }));
    w.medium
}

fn log_options(setup: Setup, rng: &mut Rng) -> OpenOptions {
    OpenOptions { window: Some(1 + rng.below(4) as usize), plant: setup.plant, alone: false }
}

/// Recovers until it comes to its end, cut `cuts` times on the way.
fn recovered(setup: Setup, mut medium: Medium, rng: &mut Rng, cuts: u32) -> Result<Medium, String> {
    for i in 0..=cuts {
        let cut = if i == cuts { u64::MAX } else { rng.below(14) };
        let mut w = World::new(rng.next_u64(), BYTES, medium);
        let ended = Rc::new(RefCell::new(None));
        let out = ended.clone();
        let options = log_options(setup, rng);
        w.run(cut, |env| {
            let env2 = env.clone();
            env.spawn("recover", async move {
                let result = async {
                    let log = Log::open(&env2, area(&env2), options).await;
                    let log = log.map_err(|e| e.to_string())?;
                    let client = log.client([5; 16], "vol").map_err(|e| e.to_string())?;
                    let disk = disk_of(setup, &env2);
                    let plant = Plant(setup.plant);
                    let done = recover(&disk, &client, (BS, MEMORY), plant, &mut |_, _| ()).await;
                    done.map_err(|e| e.to_string())
                };
                *out.borrow_mut() = Some(result.await);
            });
        });
        let result = ended.borrow_mut().take();
        match result {
            Some(Err(e)) => return Err(format!("recovery: {e}")),
            _ if i == cuts => return Ok(w.medium),
            _ => medium = w.cut(),
        }
    }
    unreachable!("the last round returns")
}

/// A session: some operations, until the cut.
fn session(
    setup: Setup,
    medium: Medium,
    model: &Shared,
    rng: &mut Rng,
    cut: u64,
) -> (Medium, bool) {
    let mut w = World::new(rng.next_u64(), BYTES, medium);
    let closed = Rc::new(Cell::new(false));
    let (model, mut rng2, flag) = (model.clone(), rng.split(), closed.clone());
    let perturb = rng.split();
    w.engine.executor().perturb(perturb);
    w.run(cut, |env| {
        let env = env.clone();
        env.clone().spawn("session", async move {
            let disk = disk_of(setup, &env);
            let o = CacheOptions {
                block_bytes: BS,
                cache_bytes: 1 << 20,
                contents_bytes: usize::MAX,
                interval: None,
                transfer_bytes_max: 8192,
            };
            let cache = Cache::new(env.clone(), disk, o);
            let log = Log::open(&env, area(&env), log_options(setup, &mut rng2)).await.unwrap();
            let log = LogRecipe {
                client: log.client([5; 16], "vol").unwrap(),
                commit: if setup.sync { Commit::Sync } else { Commit::Async },
                ordered_data: setup.ordered,
                threshold: setup.unified,
                commit_interval: Nanos::from_secs(5),
                live_bytes_max: u64::MAX,
            };
            let plant = Plant(setup.plant);
            let recipe = Recipe {
                cache: cache.clone(),
                plant,
                log: Some(log),
                journal: None,
                groups: None,
                intents: None,
            };
            let mode = if setup.unified_mode { Mode::Unified } else { Mode::Redo };
            let m = build(mode, &recipe).unwrap();
            let v = Vol { env: env.clone(), cache, m, model, setup };
            let left = Rc::new(Cell::new(TASKS));
            for i in 0..TASKS {
                let mut mine = Mine::default();
                for (b, h) in &v.model.borrow().start.blocks {
                    if *b as usize % TASKS == i {
                        let set = if matches!(h, Held::Meta(_)) {
                            &mut mine.meta
                        } else {
                            &mut mine.data
                        };
                        set.insert(*b);
                    }
                }
                let (v2, rng, left, flag) = (v.clone(), rng2.split(), left.clone(), flag.clone());
                env.spawn("worker", async move {
                    let v3 = v2.clone();
                    v2.live(i, rng, mine, 25).await;
                    left.set(left.get() - 1);
                    if left.get() == 0 && v3.m.close().await.is_ok() {
                        flag.set(true);
                    }
                });
            }
        });
    });
    if closed.get() { (w.medium.all_durable(), true) } else { (w.cut(), false) }
}

/// Lives through `rounds` power cuts, the first after `first_cut` requests.
pub(crate) fn history(setup: Setup, seed: u64, first_cut: u64, rounds: u32) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    let mut medium = formatted();
    let model: Shared = Rc::default();
    for round in 0..rounds {
        let cut = if round == 0 { first_cut } else { rng.below(350) };
        let (after, _) = session(setup, medium, &model, &mut rng, cut);
        let cuts = rng.below(3) as u32;
        let name = |e| format!("seed {seed}, first cut {first_cut}, round {round}: {e}");
        medium = recovered(setup, after, &mut rng, cuts).map_err(name)?;
        collapse(&medium, &model, setup).map_err(name)?;
    }
    Ok(())
}
