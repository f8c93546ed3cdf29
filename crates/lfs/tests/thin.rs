//! A volume that is larger than its disk: who would have more than there is room for is refused,
//! what is there can still be changed and freed, and then everything works again (I15). What is
//! empty is given back to the disk below.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{DISK, SEGMENT, block, contents, tags_of};
use env::{Block, Disk, DiskError, DiskErrorKind, Env, Nanos, Rng};
use lfs::{
    At, BLOCK_BYTES, Change, Cleaning, FormatOptions, Geometry, Group, OpenOptions, Stats, Store,
    Virt,
};
use sim::{CrashImages, Image, Trace, World, block_on};
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
        disk: None,
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
    let n = given_back(&world.trace).len();
    assert!(n > 96, "{n} segments were given back to the disk below");
}

/// Where segments were given back to the disk below.
fn given_back(trace: &Trace) -> Vec<u64> {
    // What a discard leaves is the same byte everywhere.
    let discarded = |w: &&sim::Write| {
        w.bytes.len() as u64 == SEGMENT && w.bytes.iter().all(|b| *b == w.bytes[0])
    };
    trace.writes.iter().filter(discarded).map(|w| w.at).collect()
}

#[test]
fn a_bound_that_is_forgotten_is_found() {
    let found = std::panic::catch_unwind(|| full_and_again(Some("thin-without-bound")).is_err());
    assert!(found.unwrap_or(true));
}

/// Blocks that are written and then freed.
const USED: u64 = 200;

/// Written and freed by `free`, and then left alone; at last what `look` tells.
fn left_alone<T: 'static>(
    cleaning: Cleaning,
    plant: Option<&'static str>,
    look: impl AsyncFnOnce(Env, Store) -> T + 'static,
) -> (World, T) {
    let (mut world, _) = made();
    let found = block_on(&mut world, move |env, disk| async move {
        let options = OpenOptions { cleaning, plant, ..OpenOptions::default() };
        let store = Store::open(env.clone(), disk, options).await.unwrap();
        for v in 0..USED {
            put(&store, Change::Whole(Virt(v), block(v + 1)), false).await.unwrap();
        }
        store.flush().await.unwrap();
        env.sleep(Nanos::from_secs(10)).await;
        put(&store, Change::Free(Virt(0), USED), true).await.unwrap();
        store.flush().await.unwrap();
        look(env, store).await
    });
    (world, found)
}

fn checkpoints_of(s: &Stats) -> (u64, u64) {
    (s.checkpoints, s.log_blocks + s.table_blocks)
}

#[test]
fn what_is_freed_is_given_back_when_nothing_more_is_written() {
    let (world, [before, then, last]) =
        left_alone(Cleaning::Idle, None, async |env: Env, store: Store| {
            let before = store.stats();
            env.sleep(Nanos::from_secs(10)).await;
            let then = store.stats();
            env.sleep(Nanos::from_secs(3600)).await;
            [before, then, store.stats()]
        });
    let all = USED * BLOCK_BYTES as u64 / SEGMENT;
    let n = given_back(&world.trace).len() as u64;
    assert!(n >= all, "{n} of {all} segments were given back");
    assert_eq!(then.checkpoints - before.checkpoints, 2, "no more than they wait for");
    assert_eq!(checkpoints_of(&then), checkpoints_of(&last), "an hour with nothing to give back");
}

#[test]
fn who_closes_the_store_gives_back_what_is_free() {
    let (world, ()) = left_alone(Cleaning::Pressure, None, async |env: Env, store: Store| {
        env.sleep(Nanos::from_secs(60)).await;
        let before = store.stats();
        env.sleep(Nanos::from_secs(60)).await;
        assert_eq!(store.stats(), before, "idle time is not used");
        store.close().await.unwrap();
    });
    let n = given_back(&world.trace).len() as u64;
    assert!(n >= USED * BLOCK_BYTES as u64 / SEGMENT, "{n} segments were given back");
}

#[test]
fn what_a_crash_has_left_is_given_back_after_it() {
    let (world, ()) = left_alone(Cleaning::Pressure, None, async |_, _| ());
    let mut cuts = CrashImages::new(&world.trace, &made().0.disk);
    while cuts.step().is_some() {}
    let mut world = World::new(cuts.image(2));
    block_on(&mut world, |env, disk| async move {
        let options = OpenOptions { cleaning: Cleaning::Idle, ..OpenOptions::default() };
        let _store = Store::open(env.clone(), disk, options).await.unwrap();
        env.sleep(Nanos::from_secs(10)).await;
    });
    let n = given_back(&world.trace).len() as u64;
    assert!(n >= USED * BLOCK_BYTES as u64 / SEGMENT, "{n} segments were given back");
}

/// Looks at both checkpoints after every event of idle time: each is what it was when it was made.
fn each_checkpoint_is_whole(plant: Option<&'static str>) -> Result<u64, String> {
    let (world, ()) = left_alone(Cleaning::Idle, plant, async |env: Env, _store| {
        env.sleep(Nanos::from_secs(10)).await;
    });
    let mut cuts = CrashImages::new(&world.trace, &made().0.disk);
    let (mut cut, mut looked_at) = (0, 0);
    while cuts.step().is_some() {
        cut += 1;
        for at in [At::Older, At::Newer] {
            let found = block_on(&mut World::new(cuts.image(2)), move |env, disk| async move {
                let options = OpenOptions { read_only: true, at, ..OpenOptions::default() };
                let Ok(store) = Store::open(env, disk, options).await else { return Ok(None) };
                let found = contents(&store, USED).await?;
                let report = store.verify(true).await.map_err(|e| e.to_string())?;
                report.wrong.into_iter().next().map_or(Ok(Some(found)), Err)
            });
            let found = found.map_err(|why| format!("{at:?} after event {cut}: {why}"))?;
            // Blocks hold their number, or are not there: before they were written, and freed.
            let right = |(v, tags): (usize, &(u64, u64))| {
                let tag = v as u64 + 1;
                *tags == (tag, tag) || *tags == (0, 0)
            };
            if !found.iter().flatten().enumerate().all(right) {
                return Err(format!("{at:?} after event {cut}: other contents"));
            }
            looked_at += u64::from(found.is_some());
        }
    }
    Ok(looked_at)
}

#[test]
fn nothing_is_given_back_that_a_checkpoint_needs() {
    let n = each_checkpoint_is_whole(None).unwrap();
    assert!(n > 100, "{n} checkpoints were looked at");
    assert!(each_checkpoint_is_whole(Some("thin-given-back-early")).is_err());
}
