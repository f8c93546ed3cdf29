//! A store in a virtual world, and the naive twin it is compared with: one number for each block.
//! It knows nothing of segments.

#![allow(dead_code, reason = "each test uses a part of it")]

use env::{Block, Disk, DiskError, DiskErrorKind, Durability, Env, Local, Nanos, Rng};
use lfs::{BLOCK_BYTES, Change, FormatOptions, Group, OpenOptions, Store, Virt};
use sim::{Image, World, block_on};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

pub(crate) const SEGMENT: u64 = 32 << 10;
pub(crate) const DISK: u64 = 96 * SEGMENT + (17 << 12);

/// In the place of a planted bug: there is none, but what the cleaner moves is in memory above it.
pub(crate) const REMEMBERING: Option<&str> = Some("memory");

thread_local! {
    /// What is in memory above the store of this thread: blocks as they were put last. None: there
    /// is no such memory.
    static ABOVE: RefCell<Option<BTreeMap<u64, Block>>> = const { RefCell::new(None) };
}

/// The memory as the store knows it.
struct Above;

impl lfs::Memory for Above {
    fn contents(&self, v: Virt) -> Option<Block> {
        ABOVE.with_borrow(|all| all.as_ref()?.get(&v.0).cloned())
    }
}

fn is_remembering() -> bool {
    ABOVE.with_borrow(Option::is_some)
}

/// Changes are on their way: what they change is in memory only when they are put.
fn note_change(c: &Change, is_put: bool) {
    ABOVE.with_borrow_mut(|all| {
        let Some(all) = all else { return };
        match c {
            Change::Whole(v, block) if is_put => {
                all.insert(v.0, block.clone());
            }
            Change::Bytes { v, ranges, .. } if is_put => {
                if let Some(block) = all.get_mut(&v.0) {
                    for (at, bytes) in ranges {
                        block.bytes_mut()[*at..at + bytes.len()].copy_from_slice(bytes);
                    }
                }
            }
            Change::Whole(v, _) => drop(all.remove(&v.0)),
            Change::Free(v, n) => (v.0..v.0 + n).for_each(|v| drop(all.remove(&v))),
            Change::Bytes { .. } | Change::Note(_) => (),
        }
    });
}

/// What one caller does, one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    /// Write so many blocks from this one on, with this number in them.
    Write {
        v: u64,
        n: u64,
        tag: u64,
        fua: bool,
    },
    /// They hold nothing any more.
    Discard {
        v: u64,
        n: u64,
    },
    /// One group: so many blocks from this one on, a range of the block behind them, and the one
    /// behind that holds nothing any more. With `known`, the range's block is given as a whole too.
    Group {
        v: u64,
        n: u64,
        tag: u64,
        known: bool,
        durable: bool,
    },
    /// A group of one range.
    Patch {
        v: u64,
        tag: u64,
    },
    Flush,
    Checkpoint,
    Clean,
}

/// The contents: for each block a number, 0 for none, and the one in the bytes that ranges change.
pub(crate) type Twin = Vec<(u64, u64)>;

/// The bytes of a block that ranges change.
const PATCHED: std::ops::Range<usize> = 800..840;

pub(crate) fn apply(twin: &mut Twin, op: &Op) {
    let (v, n, tag) = match *op {
        Op::Write { v, n, tag, .. } | Op::Group { v, n, tag, .. } => (v, n, tag),
        Op::Discard { v, n } => (v, n, 0),
        Op::Patch { v, tag } => {
            twin[v as usize].1 = tag;
            return;
        }
        _ => return,
    };
    twin[v as usize..(v + n) as usize].fill((tag, tag));
    if let Op::Group { .. } = op {
        twin[(v + n) as usize].1 = tag;
        twin[(v + n + 1) as usize] = (0, 0);
    }
}

/// Does a caller who has the answer know that everything before it is durable?
pub(crate) fn is_promise(op: &Op) -> bool {
    let durable = matches!(op, Op::Write { fua: true, .. } | Op::Group { durable: true, .. });
    durable || matches!(op, Op::Flush | Op::Checkpoint | Op::Clean)
}

pub(crate) fn block(tag: u64) -> Block {
    let sector: Vec<u8> = tag.to_le_bytes().repeat(64);
    Block::copy_of(&sector.repeat(BLOCK_BYTES / 512))
}

/// The numbers in a block. Errors: more than there can be.
pub(crate) fn tags_of(block: &[u8]) -> Result<(u64, u64), String> {
    let one = |bytes: &[u8]| {
        let mut words = bytes.chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().unwrap()));
        let first = words.next().unwrap();
        words.all(|w| w == first).then_some(first)
    };
    let patched = one(&block[PATCHED]);
    let around = [&block[..PATCHED.start], &block[PATCHED.end..]].concat();
    one(&around).zip(patched).ok_or_else(|| "a block is a mixture".into())
}

pub(crate) async fn perform(store: &Store, op: Op) -> Result<(), String> {
    let text = |e: DiskError| e.to_string();
    let at = |v: u64| v * BLOCK_BYTES as u64;
    match op {
        Op::Write { v, n, tag, fua } if is_remembering() => {
            let changes = (v..v + n).map(|v| Change::Whole(Virt(v), block(tag))).collect();
            let number = group(store, changes).await.map_err(text)?;
            if fua { store.flush_to(number).await.map_err(text) } else { Ok(()) }
        }
        Op::Write { v, n, tag, fua } => {
            let blocks = (0..n).map(|_| block(tag)).collect();
            let how = if fua { Durability::Fua } else { Durability::Cached };
            store.write(at(v), blocks, how).await.map_err(text)
        }
        Op::Discard { v, n } => store.discard(at(v), at(n)).await.map_err(text),
        Op::Patch { v, tag } => {
            let changes = vec![patch(v, tag, None)];
            group(store, changes).await.map(|_| ()).map_err(text)
        }
        Op::Group { v, n, tag, known, durable } => {
            let mut image = None;
            if known {
                let read = store.read(at(v + n), vec![Block::zeroed(BLOCK_BYTES)]).await;
                image = read.map_err(text)?.pop();
            }
            let mut changes: Vec<Change> =
                (v..v + n).map(|v| Change::Whole(Virt(v), block(tag))).collect();
            changes.push(patch(v + n, tag, image));
            changes.push(Change::Free(Virt(v + n + 1), 1));
            let number = group(store, changes).await.map_err(text)?;
            if durable { store.flush_to(number).await.map_err(text) } else { Ok(()) }
        }
        Op::Flush => store.flush().await.map_err(text),
        Op::Checkpoint => store.checkpoint().await.map_err(text),
        Op::Clean => store.clean(4).await.map(|_| ()).map_err(text),
    }
}

/// A change of a block's range; `before`: what the block is, if that is told to the store.
fn patch(v: u64, tag: u64, before: Option<Block>) -> Change {
    let bytes = tag.to_le_bytes().repeat(PATCHED.len() / 8);
    let image = before.map(|mut b| {
        b.bytes_mut()[PATCHED].copy_from_slice(&bytes);
        b
    });
    Change::Bytes { v: Virt(v), ranges: vec![(PATCHED.start, bytes)], image }
}

async fn group(store: &Store, changes: Vec<Change>) -> Result<u64, DiskError> {
    let kept = store.reserve(changes.len() as u64).await?;
    changes.iter().for_each(|c| note_change(c, false));
    let group = Group { changes };
    let number = store.put(&group, kept).await?;
    group.changes.iter().for_each(|c| note_change(c, true));
    Ok(number)
}

pub(crate) async fn contents(store: &Store, blocks: u64) -> Result<Twin, String> {
    let memory = (0..blocks).map(|_| Block::zeroed(BLOCK_BYTES)).collect();
    let read = store.read(0, memory).await.map_err(|e| e.to_string())?;
    read.iter().map(|b| tags_of(b.bytes())).collect()
}

/// An empty store on a small disk, and its virtual blocks.
pub(crate) fn made() -> (Image, u64) {
    made_for(None)
}

/// In the place of a planted bug: there is none, but blocks are kept apart.
pub(crate) const APART: Option<&str> = Some("no-bug-of-heads");

/// Bugs of several heads are looked for where there are some.
fn is_apart(plant: Option<&str>) -> bool {
    plant.is_some_and(|p| p.contains("head"))
}

/// The same for this planted bug.
pub(crate) fn made_for(plant: Option<&str>) -> (Image, u64) {
    made_on(DISK, is_apart(plant).then_some(6))
}

/// An empty store on a disk of so many bytes, and its virtual blocks.
pub(crate) fn made_on(disk_bytes: u64, heads: Option<u8>) -> (Image, u64) {
    let mut world = World::new(Image::new(disk_bytes));
    let options = FormatOptions {
        uuid: [7; 16],
        segment_bytes: Some(SEGMENT),
        virtual_bytes: None,
        heads,
        disk: None,
    };
    let shape = block_on(&mut world, |_, disk| async move { lfs::format(&disk, &options).await });
    (world.disk, shape.unwrap().virtual_blocks)
}

/// In the place of a planted bug: there is none, but the cleaner plugs.
pub(crate) const PLUGGING: Option<&str> = Some("plugs");

/// A full store, blocks of which are written again and holes of which are plugged.
pub(crate) fn plugging(seed: u64, blocks: u64, len: usize) -> Vec<Op> {
    let mut rng = Rng::new(seed);
    let mut tag = 0;
    let full = blocks * 9 / 10;
    let fill = (0..full / 7).map(|n| Op::Write { v: 7 * n, n: 7, tag: 1 + n, fua: false });
    let fill: Vec<Op> = fill.collect();
    let mut one = || {
        tag += 1;
        let (tag, v) = (1000 + tag, rng.below(full - 4));
        match rng.below(24) {
            0..=2 => Op::Clean,
            3..=4 => Op::Checkpoint,
            5..=6 => Op::Flush,
            7 => Op::Discard { v, n: 2 },
            8..=9 => Op::Patch { v, tag },
            10 => Op::Group { v, n: 1, tag, known: false, durable: true },
            11 => Op::Write { v, n: 3, tag, fua: true },
            _ => Op::Write { v, n: 1, tag, fua: false },
        }
    };
    let after: Vec<Op> = (0..len).map(|_| one()).collect();
    [fill, after].concat()
}

pub(crate) async fn opened(
    env: Env,
    disk: Rc<dyn Disk>,
    plant: Option<&'static str>,
) -> Result<Store, String> {
    // Bugs of plugging are looked for where the cleaner plugs.
    let plugs = plant.is_some_and(|p| p.starts_with("plug"));
    let kept = if is_apart(plant) { lfs::Policy::SepBit } else { lfs::Policy::CostBenefit };
    let policy = if plugs { lfs::Policy::Plug } else { kept };
    // Small bounds, so that a short run meets them.
    let options = OpenOptions {
        plant,
        policy,
        table_pages: 4,
        mappings_max: 64,
        checkpoint_bytes: 1 << 20,
        ..OpenOptions::default()
    };
    let store = Store::open(env, disk, options).await?;
    // Bugs of what is in memory are looked for where there is some.
    let remembers = plant.is_some_and(|p| p.starts_with("memory"));
    ABOVE.set(remembers.then(BTreeMap::new));
    if remembers {
        store.set_memory(Rc::new(Above));
        (0..store.geometry().virtual_blocks).for_each(|v| store.came(Virt(v)));
    }
    Ok(store)
}

/// A caller's day: writes of all lengths, some places more than others, and all the rest.
pub(crate) fn script(seed: u64, blocks: u64, len: usize) -> Vec<Op> {
    let mut rng = Rng::new(seed);
    let mut tag = 0;
    let mut one = || {
        tag += 1;
        let span = if rng.one_in(3) { blocks } else { blocks / 8 };
        let n = match rng.below(8) {
            0 => rng.below(8) + 1,
            1 => rng.below(3) + 1,
            _ => 1,
        }
        .min(span);
        let v = rng.below(span - n + 1);
        let (known, durable) = (rng.one_in(2), rng.one_in(4));
        match rng.below(60) {
            40..=49 => Op::Group { v: v.min(blocks - n - 2), n, tag, known, durable },
            50..=59 => Op::Patch { v, tag },
            0..=2 => Op::Discard { v, n },
            3..=5 => Op::Flush,
            6..=7 => Op::Write { v, n, tag, fua: true },
            8 => Op::Checkpoint,
            9 => Op::Clean,
            _ => Op::Write { v, n, tag, fua: false },
        }
    };
    (0..len).map(|_| one()).collect()
}

/// A disk that holds up a read, or fails for a while, when it is told to.
pub(crate) struct Valve {
    below: Rc<dyn Disk>,
    env: Env,
    /// The next read waits, once so many have gone by; one waits.
    pub(crate) hold_behind: Cell<Option<u32>>,
    pub(crate) held: Cell<bool>,
    /// Reads fail that begin between these bytes.
    pub(crate) unreadable: Cell<(u64, u64)>,
    /// One read fails, once so many have gone by.
    pub(crate) fail_behind: Cell<Option<u32>>,
    /// Until the first of them is written again.
    pub(crate) heals: Cell<bool>,
}

impl Valve {
    pub(crate) fn of(env: &Env, below: Rc<dyn Disk>) -> Rc<Valve> {
        let (hold_behind, held, unreadable, fail_behind, heals) = Default::default();
        let env = env.clone();
        Rc::new(Valve { below, env, hold_behind, held, unreadable, fail_behind, heals })
    }
    async fn wait_if_held(&self) {
        let Some(n) = self.hold_behind.get() else { return };
        self.hold_behind.set(n.checked_sub(1));
        self.held.set(n == 0);
        while n == 0 && self.held.get() {
            self.env.sleep(Nanos::from_millis(1)).await;
        }
    }
}

impl Disk for Valve {
    fn size_bytes(&self) -> u64 {
        self.below.size_bytes()
    }
    fn read(&self, at: u64, blocks: Vec<Block>) -> Local<'_, Result<Vec<Block>, DiskError>> {
        Box::pin(async move {
            self.wait_if_held().await;
            let (from, to) = self.unreadable.get();
            let n = self.fail_behind.get();
            self.fail_behind.set(n.and_then(|n| n.checked_sub(1)));
            if (from..to).contains(&at) || n == Some(0) {
                let (kind, detail) = (DiskErrorKind::Io, "by the valve".into());
                return Err(DiskError { kind, during: "read", at, detail });
            }
            self.below.read(at, blocks).await
        })
    }
    fn write(
        &self,
        at: u64,
        blocks: Vec<Block>,
        how: Durability,
    ) -> Local<'_, Result<(), DiskError>> {
        if self.heals.get() && at == self.unreadable.get().0 {
            self.unreadable.set((0, 0));
        }
        self.below.write(at, blocks, how)
    }
    fn flush(&self) -> Local<'_, Result<(), DiskError>> {
        self.below.flush()
    }
    fn discard(&self, at: u64, len: u64) -> Local<'_, Result<(), DiskError>> {
        self.below.discard(at, len)
    }
}
