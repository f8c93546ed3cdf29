//! A volume that is larger than its disk: who would have more than there is room for is refused,
//! what is there can still be changed and freed, and then everything works again. What is empty is
//! given back to the disk below.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{DISK, SEGMENT, block, tags_of};
use env::{Block, Disk, DiskError, DiskErrorKind, Nanos, Rng};
use lfs::{BLOCK_BYTES, Change, FormatOptions, Geometry, Group, OpenOptions, Store, Virt};
use sim::{Image, World, block_on};
use std::collections::BTreeMap;

/// So many times what there is room for.
const TIMES: u64 = 8;

/// An empty one.
fn made() -> (World, Geometry) {
    let mut world = World::new(Image::new(DISK));
    let options = |virtual_bytes| FormatOptions {
        uuid: [7; 16],
        segment_bytes: Some(SEGMENT),
        virtual_bytes,
        heads: None,
    };
    let whole = lfs::shape(DISK, &options(None)).unwrap();
    assert!(!whole.is_thin() && whole.virtual_blocks == whole.capacity());
    let options = options(Some(TIMES * whole.virtual_blocks * BLOCK_BYTES as u64));
    let shape = block_on(&mut world, |_, disk| async move { lfs::format(&disk, &options).await });
    let shape = shape.unwrap();
    assert!(shape.is_thin() && shape.capacity() == whole.capacity());
    (World::new(world.disk), shape)
}

/// What each block holds.
type Contents = BTreeMap<u64, u64>;

/// Puts one change; `frees`: it is a change of what is there.
async fn put(store: &Store, change: Change, frees: bool) -> Result<(), DiskError> {
    let kept = match frees {
        true => store.reserve_to_free(1).await?,
        false => store.reserve(1).await?,
    };
    store.put(&Group { changes: vec![change] }, kept).await.map(|_| ())
}

/// Writes blocks that lie apart until there is no room; how many.
async fn fill(store: &Store, g: &Geometry, all: &mut Contents, tag: u64) -> Result<u64, String> {
    let mut rng = Rng::new(tag);
    let before = all.len();
    loop {
        let v = rng.below(g.virtual_blocks);
        match put(store, Change::Whole(Virt(v), block(tag)), false).await {
            Ok(()) => all.insert(v, tag),
            Err(e) if e.kind == DiskErrorKind::NoSpace => {
                return Ok((all.len() - before) as u64);
            }
            Err(e) => return Err(e.to_string()),
        };
    }
}

async fn compare(store: &Store, all: &Contents) -> Result<(), String> {
    for (v, tag) in all {
        let at = v * BLOCK_BYTES as u64;
        let read = store.read(at, vec![Block::zeroed(BLOCK_BYTES)]).await;
        let found = tags_of(read.map_err(|e| e.to_string())?[0].bytes())?;
        if found != (*tag, *tag) {
            return Err(format!("block {v} is {found:?} and not {tag}"));
        }
    }
    let report = store.verify(true).await.map_err(|e| e.to_string())?;
    let mapped = report.mapped == all.len() as u64;
    let wrong = report.wrong.into_iter().next();
    wrong.or((!mapped).then(|| format!("{} are mapped", report.mapped))).map_or(Ok(()), Err)
}

/// Full; changed; freed in part; full again, three times. Errors: what is wrong.
fn full_and_again(plant: Option<&'static str>) -> Result<World, String> {
    let (mut world, g) = made();
    let result = block_on(&mut world, move |env, disk| async move {
        let options = OpenOptions { plant, ..OpenOptions::default() };
        let store = Store::open(env.clone(), disk.clone(), options).await?;
        let (mut all, mut rng) = (Contents::new(), Rng::new(2));
        let text = |e: DiskError| format!("refused on a full volume: {e}");
        for tag in 1..4 {
            let more = fill(&store, &g, &mut all, tag).await?;
            if more < g.capacity() / 8 || all.len() as u64 > g.capacity() {
                return Err(format!("{more} more, {} of {}", all.len(), g.capacity()));
            }
            // What is there changes, more often than there are segments that are free.
            let there: Vec<u64> = all.keys().copied().collect();
            for _ in 0..g.capacity() {
                let v = there[rng.below(there.len() as u64) as usize];
                put(&store, Change::Whole(Virt(v), block(tag)), true).await.map_err(text)?;
                all.insert(v, tag);
            }
            compare(&store, &all).await?;
            for v in there.iter().filter(|_| !rng.one_in(3)) {
                put(&store, Change::Free(Virt(*v), 1), true).await.map_err(text)?;
                all.remove(v);
            }
            compare(&store, &all).await?;
        }
        let bound = g.capacity() - all.len() as u64;
        if store.room() != Some(bound) {
            return Err(format!("room for {:?}, and not {bound}", store.room()));
        }
        store.flush().await.map_err(text)?;
        env.sleep(Nanos::from_secs(30)).await; // the cleaner comes to rest
        drop(store);
        let store = Store::open(env, disk, OpenOptions::default()).await?;
        compare(&store, &all).await
    });
    result.map(|()| world)
}

#[test]
fn a_full_thin_volume_refuses_more_and_takes_what_frees() {
    let world = full_and_again(None).unwrap();
    // What a discard leaves is the same byte everywhere.
    let discarded = |w: &&sim::Write| {
        w.bytes.len() as u64 == SEGMENT && w.bytes.iter().all(|b| *b == w.bytes[0])
    };
    let n = world.trace.writes.iter().filter(discarded).count();
    assert!(n > 96, "{n} segments were given back to the disk below");
}

#[test]
fn a_bound_that_is_forgotten_is_found() {
    let found = std::panic::catch_unwind(|| full_and_again(Some("thin-without-bound")).is_err());
    assert!(found.unwrap_or(true));
}
