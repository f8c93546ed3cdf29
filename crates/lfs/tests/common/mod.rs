//! A store in a virtual world, and the naive twin it is compared with: one number for each block.
//! It knows nothing of segments.

#![allow(dead_code, reason = "each test uses a part of it")]

use env::{Block, Disk, Durability, Env, Rng};
use lfs::{BLOCK_BYTES, FormatOptions, OpenOptions, Store};
use sim::{Image, World, block_on};
use std::rc::Rc;

pub(crate) const SEGMENT: u64 = 32 << 10;
pub(crate) const DISK: u64 = 96 * SEGMENT + (17 << 12);

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
    Flush,
    Checkpoint,
    Clean,
}

/// The contents: a number for each block, 0 for none.
pub(crate) type Twin = Vec<u64>;

pub(crate) fn apply(twin: &mut Twin, op: &Op) {
    let (v, n, tag) = match *op {
        Op::Write { v, n, tag, .. } => (v, n, tag),
        Op::Discard { v, n } => (v, n, 0),
        _ => return,
    };
    twin[v as usize..(v + n) as usize].fill(tag);
}

/// Does a caller who has the answer know that everything before it is durable?
pub(crate) fn is_promise(op: &Op) -> bool {
    matches!(op, Op::Flush | Op::Checkpoint | Op::Clean | Op::Write { fua: true, .. })
}

pub(crate) fn block(tag: u64) -> Block {
    let sector: Vec<u8> = tag.to_le_bytes().repeat(64);
    Block::copy_of(&sector.repeat(BLOCK_BYTES / 512))
}

/// The number in a block. Errors: more than one.
fn tag_of(block: &Block) -> Result<u64, String> {
    let words = || block.bytes().chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().unwrap()));
    let first = words().next().unwrap();
    if words().all(|w| w == first) { Ok(first) } else { Err("a block is a mixture".into()) }
}

pub(crate) async fn perform(store: &Store, op: Op) -> Result<(), String> {
    let text = |e: env::DiskError| e.to_string();
    let at = |v: u64| v * BLOCK_BYTES as u64;
    match op {
        Op::Write { v, n, tag, fua } => {
            let blocks = (0..n).map(|_| block(tag)).collect();
            let how = if fua { Durability::Fua } else { Durability::Cached };
            store.write(at(v), blocks, how).await.map_err(text)
        }
        Op::Discard { v, n } => store.discard(at(v), at(n)).await.map_err(text),
        Op::Flush => store.flush().await.map_err(text),
        Op::Checkpoint => store.checkpoint().await.map_err(text),
        Op::Clean => store.clean(4).await.map(|_| ()).map_err(text),
    }
}

pub(crate) async fn contents(store: &Store, blocks: u64) -> Result<Twin, String> {
    let memory = (0..blocks).map(|_| Block::zeroed(BLOCK_BYTES)).collect();
    let read = store.read(0, memory).await.map_err(|e| e.to_string())?;
    read.iter().map(tag_of).collect()
}

/// An empty store on a small disk, and its virtual blocks.
pub(crate) fn made() -> (Image, u64) {
    let mut world = World::new(Image::new(DISK));
    let options =
        FormatOptions { uuid: [7; 16], segment_bytes: Some(SEGMENT), virtual_bytes: None };
    let shape = block_on(&mut world, |_, disk| async move { lfs::format(&disk, &options).await });
    (world.disk, shape.unwrap().virtual_blocks)
}

pub(crate) async fn opened(
    env: Env,
    disk: Rc<dyn Disk>,
    plant: Option<&'static str>,
) -> Result<Store, String> {
    let policy = lfs::Policy::CostBenefit;
    // Small bounds, so that a short run meets them.
    let options = OpenOptions {
        plant,
        policy,
        table_pages: 4,
        mappings_max: 64,
        checkpoint_bytes: 1 << 20,
        ..OpenOptions::default()
    };
    Store::open(env, disk, options).await
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
        match rng.below(40) {
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
