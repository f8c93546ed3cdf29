//! A disk that cannot be read for a while: what works by itself waits, whoever asks hears of it,
//! and all goes on when the disk works again. One read that fails is the least of it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{DISK, Op, Valve, made, perform};
use env::{Disk, Env, Nanos, Rng};
use lfs::{Cleaning, OpenOptions, Store};
use sim::{World, block_on};
use std::rc::Rc;

/// So much of the table stays in memory, and nothing is cleaned in idle time.
fn options(table_pages: usize) -> OpenOptions {
    let cleaning = Cleaning::Pressure;
    OpenOptions { table_pages, cleaning, ..OpenOptions::default() }
}

async fn write(store: &Store, v: u64, tag: u64) -> Result<(), String> {
    perform(store, Op::Write { v, n: 1, tag, fua: false }).await
}

/// A store on such a disk, whose blocks were all written; and how many there are.
async fn full(env: &Env, valve: &Rc<Valve>, blocks: u64, pages: usize) -> Store {
    let store = Store::open(env.clone(), valve.clone(), options(pages)).await.unwrap();
    for v in 0..blocks {
        write(&store, v, 1).await.unwrap();
    }
    store.flush().await.unwrap();
    store
}

#[test]
fn what_a_deleted_snapshot_had_is_freed_when_the_disk_can_be_read_again() {
    let (image, blocks) = made();
    block_on(&mut World::new(image), async move |env, disk| {
        let valve = Valve::of(&env, disk);
        let store = full(&env, &valve, blocks / 2, 0).await;
        store.snapshot("old", 1).await.unwrap();
        for v in (0..blocks / 2).step_by(2) {
            write(&store, v, 2).await.unwrap();
        }
        store.checkpoint().await.unwrap();
        valve.unreadable.set((0, DISK));
        store.delete_snapshot("old").await.unwrap();
        store.reclaimed().await;
        assert_eq!(store.stats().reclaimed, 0, "it could not be read");
        valve.unreadable.set((0, 0));
        env.sleep(Nanos::from_secs(120)).await;
        store.reclaimed().await;
        assert_eq!(
            store.stats().reclaimed,
            (blocks / 2).div_ceil(2),
            "it is freed without being opened again"
        );
        assert_eq!(store.verify(true).await.unwrap().wrong, Vec::<String>::new());
    });
}

/// While segments cannot be read, somebody waits for room that only the cleaner can make.
#[test]
fn writing_goes_on_when_the_disk_can_be_read_again() {
    let (image, blocks) = made();
    block_on(&mut World::new(image), async move |env, disk| {
        let valve = Valve::of(&env, disk);
        let store = full(&env, &valve, blocks, 1000).await;
        let (mut rng, mut refused) = (Rng::new(4), 0);
        for n in 0..8 * blocks {
            if n == blocks {
                valve.unreadable.set((16 << 12, DISK));
            }
            match write(&store, rng.below(blocks), 2 + n).await {
                Ok(()) => (),
                Err(e) => {
                    assert!(refused < 3, "the disk works again: {e}");
                    refused += 1;
                    if refused == 3 {
                        valve.unreadable.set((0, 0));
                        env.sleep(Nanos::from_secs(120)).await;
                    }
                }
            }
        }
        assert_eq!(refused, 3, "the disk could not be read, and nobody heard of it");
        assert_eq!(store.verify(true).await.unwrap().wrong, Vec::<String>::new());
    });
}

/// One read fails while the cleaner works, whichever: the store goes on.
#[test]
fn a_read_that_fails_once_stops_no_store() {
    let (image, blocks) = made();
    let mut world = World::new(image);
    block_on(&mut world, async move |env, disk| {
        let valve = Valve::of(&env, disk);
        full(&env, &valve, blocks, 0).await.close().await.unwrap();
    });
    for n in (0..120).step_by(2) {
        block_on(&mut World::new(world.disk.clone()), async move |env, disk| {
            let valve = Valve::of(&env, disk);
            let store = Store::open(env.clone(), valve.clone(), options(0)).await.unwrap();
            let mut rng = Rng::new(4);
            let mut some = async |first| {
                let mut failed = None;
                for tag in first..first + 60 {
                    let done = write(&store, rng.below(blocks), tag).await;
                    failed = failed.or(done.err());
                }
                failed
            };
            some(1000).await;
            valve.fail_behind.set(Some(n));
            some(2000).await;
            valve.fail_behind.set(None);
            env.sleep(Nanos::from_secs(60)).await;
            assert_eq!(some(3000).await, None, "read {n} failed");
        });
    }
}
