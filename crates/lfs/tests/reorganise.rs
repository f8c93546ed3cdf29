//! What is read one behind the other is laid so in idle time: reading it again is quicker, nothing
//! else changes, also if the power fails meanwhile, and it ends where it does not pay.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{Op, Twin, contents, perform};
use env::{Block, Disk, Env, Nanos, Rng};
use lfs::{BLOCK_BYTES, Cleaning, FormatOptions, OpenOptions, Stats, Store};
use sim::timing::by_name;
use sim::{CrashImages, Image, Trace, World, block_on};
use std::rc::Rc;

const DISK: u64 = 48 << 20;
/// Blocks with contents, and those of them that are read in an order of their own.
const USED: u64 = 4000;
const READ: u64 = 48;

fn order() -> Vec<u64> {
    let mut rng = Rng::new(11);
    let mut all: Vec<u64> = (0..READ).map(|n| n * (USED / READ)).collect();
    (1..all.len()).rev().for_each(|i| all.swap(i, rng.below(i as u64 + 1) as usize));
    all
}

async fn opened(env: Env, disk: Rc<dyn Disk>, reorganise: bool) -> Store {
    let cleaning = Cleaning::Idle;
    let options = OpenOptions { cleaning, reorganise: Some(reorganise), ..OpenOptions::default() };
    Store::open(env, disk, options).await.unwrap()
}

/// A store, closed, and what it holds.
fn filled() -> (Image, Twin) {
    let mut world = World::new(Image::new(DISK));
    world.forget();
    let twin = block_on(&mut world, async |env, disk| {
        let segment_bytes = Some(128 << 10);
        let options = FormatOptions { uuid: [7; 16], segment_bytes, ..FormatOptions::default() };
        lfs::format(&disk, &options).await.unwrap();
        let store = opened(env, disk, false).await;
        for v in (0..USED).step_by(8) {
            perform(&store, Op::Write { v, n: 8, tag: 1 + v, fua: false }).await.unwrap();
        }
        store.close().await.unwrap();
        contents(&store, USED).await.unwrap()
    });
    (world.disk, twin)
}

/// Reads them in their order; how long that takes, in milliseconds.
async fn read(env: &Env, store: &Store) -> u64 {
    let begun = env.now();
    for v in order() {
        let memory = vec![Block::zeroed(BLOCK_BYTES)];
        store.read(v * BLOCK_BYTES as u64, memory).await.unwrap();
    }
    env.now().since(begun).0 / 1_000_000
}

/// Reads again and again, with pauses: how long it took each time, what was done, and the trace.
fn read_often(image: &Image, reorganise: bool) -> (Vec<u64>, Stats, Trace) {
    let mut world = World::new(image.clone());
    world.set_timings(vec![by_name("sata7200", DISK).unwrap()]);
    let (took, stats) = block_on(&mut world, async move |env, disk| {
        let store = opened(env.clone(), disk, reorganise).await;
        let mut took = Vec::new();
        for _ in 0..6 {
            took.push(read(&env, &store).await);
            env.sleep(Nanos::from_secs(30)).await;
        }
        assert_eq!(store.verify(true).await.unwrap().wrong, Vec::<String>::new());
        (took, store.stats())
    });
    (took, stats, world.trace)
}

#[test]
fn what_is_read_together_lies_together() {
    let (image, twin) = filled();
    let (took, did, trace) = read_often(&image, true);
    assert!(took[5] * 4 < took[0], "milliseconds, each time: {took:?}");
    assert!(did.reorganised == READ && did.reorganise_saved > 0, "it is moved once: {did:?}");
    let mut cuts = CrashImages::new(&trace, &image);
    let mut n = 0;
    while cuts.step().is_some() {
        n += 1;
        let twin = twin.clone();
        block_on(&mut World::new(cuts.image(n)), async move |env, disk| {
            let store = opened(env, disk, true).await;
            assert!(contents(&store, USED).await.unwrap() == twin, "cut at {n}");
            assert_eq!(store.verify(true).await.unwrap().wrong, Vec::<String>::new());
        });
    }
    assert!(n > 5, "{n} cuts");
}

#[test]
fn who_does_not_want_it_has_everything_where_it_was() {
    let (image, _) = filled();
    let (took, did, _) = read_often(&image, false);
    assert_eq!((did.reorganised, did.log_blocks), (0, 0));
    assert!(took[5] * 2 > took[0], "{took:?}");
}

/// Each order is read often enough to be laid, and then never again.
#[test]
fn it_ends_where_it_does_not_pay() {
    let (image, _) = filled();
    let mut world = World::new(image);
    world.set_timings(vec![by_name("sata7200", DISK).unwrap()]);
    world.forget();
    let (half, all) = block_on(&mut world, async move |env, disk| {
        let store = opened(env.clone(), disk, true).await;
        let mut half = Stats::default();
        for round in 0..80_u64 {
            for v in order()
                .iter()
                .flat_map(|v| std::iter::repeat_n(v, 1))
                .cycle()
                .take(3 * READ as usize)
            {
                let at = (v + round) % USED * BLOCK_BYTES as u64;
                store.read(at, vec![Block::zeroed(BLOCK_BYTES)]).await.unwrap();
            }
            env.sleep(Nanos::from_secs(20)).await;
            if round == 40 {
                half = store.stats();
            }
        }
        (half, store.stats())
    });
    assert!(half.reorganised > 0, "it is tried: {half:?}");
    assert_eq!(half.reorganised, all.reorganised, "and ended: {all:?}");
}
