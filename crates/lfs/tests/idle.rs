//! Cleaning in idle time: it makes free segments while nothing is asked, ends when something is,
//! costs nothing where nothing is to be gained, and changes no contents.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{Op, contents, perform};
use env::{Disk, Env, Nanos, Rng};
use lfs::{Cleaning, FormatOptions, OpenOptions, Stats, Store};
use sim::timing::by_name;
use sim::{Image, World, block_on};
use std::rc::Rc;

const DISK: u64 = 24 << 20;

/// A store on the modelled SATA disk, most of whose blocks were written twice.
async fn half_dead(env: Env, disk: Rc<dyn Disk>, cleaning: Cleaning) -> Store {
    let uuid = [7; 16];
    let options = FormatOptions {
        uuid,
        segment_bytes: Some(128 << 10),
        virtual_bytes: None,
        heads: None,
        disk: None,
    };
    let blocks = lfs::format(&disk, &options).await.unwrap().virtual_blocks;
    let options = OpenOptions { cleaning, ..OpenOptions::default() };
    let store = Store::open(env, disk, options).await.unwrap();
    let mut rng = Rng::new(5);
    let used = blocks * 8 / 10;
    for v in 0..used / 5 {
        perform(&store, Op::Write { v: 5 * v, n: 5, tag: 1 + v, fua: false }).await.unwrap();
    }
    for tag in 0..used {
        let v = rng.below(used / 5 * 5);
        perform(&store, Op::Write { v, n: 1, tag: 9000 + tag, fua: false }).await.unwrap();
    }
    store.flush().await.unwrap();
    store
}

fn in_a_world<T: 'static>(test: impl AsyncFnOnce(Env, Rc<dyn Disk>) -> T + 'static) -> T {
    let mut world = World::new(Image::new(DISK));
    world.set_timings(vec![by_name("sata7200", DISK).unwrap()]);
    world.forget();
    block_on(&mut world, move |env, disk| async move { test(env, disk).await })
}

/// Blocks that were written or read for the store itself.
fn own(s: &Stats) -> [u64; 3] {
    [s.log_blocks, s.table_blocks, s.read_to_clean]
}

/// Free segments and what was done: at first, after a minute, and after an hour.
fn rested(cleaning: Cleaning) -> [(u32, Stats); 3] {
    in_a_world(async move |env, disk| {
        let store = half_dead(env.clone(), disk, cleaning).await;
        let used = store.geometry().virtual_blocks;
        let before = contents(&store, used).await.unwrap();
        let now = || (store.filled().segments[0], store.stats());
        let first = now();
        env.sleep(Nanos::from_secs(60)).await;
        let then = now();
        env.sleep(Nanos::from_secs(3600)).await;
        let last = now();
        assert_eq!(contents(&store, used).await.unwrap(), before);
        assert_eq!(store.verify(true).await.unwrap().wrong, Vec::<String>::new());
        [first, then, last]
    })
}

#[test]
fn idle_time_makes_free_segments_and_then_costs_nothing() {
    let [(before, _), (after, did), (_, last)] = rested(Cleaning::Idle);
    assert!(after > before + 10, "{before} free segments, then {after}");
    assert!(did.cleaned_idle > 10 && did.cleaned >= did.cleaned_idle, "{did:?}");
    assert_eq!(own(&did), own(&last), "an hour in which nothing is to be gained");
}

#[test]
fn without_it_nothing_is_done() {
    let [(before, first), (after, did), (..)] = rested(Cleaning::Pressure);
    assert_eq!((before, own(&first)), (after, own(&did)));
}

#[test]
fn it_ends_when_something_is_asked() {
    let (longest, did, later) = in_a_world(async |env, disk| {
        let store = half_dead(env.clone(), disk, Cleaning::Idle).await;
        let before = store.stats();
        env.sleep(Nanos::from_millis(2200)).await;
        let (mut longest, mut rng) = (0, Rng::new(6));
        let begun = store.stats();
        assert!(begun.read_to_clean > before.read_to_clean, "it has begun: {begun:?}");
        for tag in 0..40 {
            let from = env.now();
            perform(&store, Op::Write { v: rng.below(500), n: 1, tag, fua: true }).await.unwrap();
            longest = longest.max(env.now().since(from).0);
            env.sleep(Nanos::from_millis(500)).await;
        }
        (longest, begun, store.stats())
    });
    // What it was about to move when the first came may be all that it had read.
    assert!(later.cleaned_idle <= did.cleaned_idle + 8, "while something is asked: {later:?}");
    assert!(longest < 200_000_000, "a write took {longest} ns");
}

#[test]
fn a_closed_store_is_left_alone() {
    in_a_world(async |env, disk| {
        let store = half_dead(env.clone(), disk, Cleaning::Idle).await;
        env.sleep(Nanos::from_millis(2200)).await;
        store.close().await.unwrap();
        let closed = store.stats();
        env.sleep(Nanos::from_secs(60)).await;
        assert_eq!(store.stats(), closed);
    });
}
