//! What a snapshot has not, while others are freed and checkpoints are written: a hole of one is
//! what an older one sees there. The moments are chosen by a disk that holds up a read.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{Op, Valve, block, perform, tags_of};
use env::{Block, Disk, Env, Nanos};
use lfs::{BLOCK_BYTES, Change, FormatOptions, Group, OpenOptions, Store, Virt};
use sim::{Image, World, block_on};

/// A block that was written after both snapshots were made.
const LATER: u64 = 41;

/// Pages of the table are read each time.
fn options() -> OpenOptions {
    OpenOptions { table_pages: 0, ..OpenOptions::default() }
}

async fn write(store: &Store, v: u64, tag: u64) {
    perform(store, Op::Write { v, n: 1, tag, fua: true }).await.unwrap();
}

/// Blocks that lie apart, so that the table has some pages.
async fn apart(store: &Store) {
    for first in (0..700).step_by(50) {
        let change = |v: u64| Change::Whole(Virt(2 * v), block(1));
        let changes = (first..first + 50).map(change).collect();
        let kept = store.reserve(50).await.unwrap();
        store.put(&Group { changes }, kept).await.unwrap();
    }
}

async fn until(env: &Env, is_so: impl Fn() -> bool) {
    for _ in 0..1000 {
        if is_so() {
            return;
        }
        env.sleep(Nanos::from_millis(1)).await;
    }
    panic!("it never came");
}

/// What a snapshot has of a block.
async fn tag_in(store: &Store, name: &str, v: u64) -> (u64, u64) {
    let memory = vec![Block::zeroed(BLOCK_BYTES)];
    let read = store.snapshot_disk(name).unwrap().read(v * BLOCK_BYTES as u64, memory).await;
    tags_of(read.unwrap()[0].bytes()).unwrap()
}

/// A snapshot is gone in memory while a checkpoint is written that knows it: its holes are still
/// what an older one sees there, for the records that hand them over may be lost (S6).
#[test]
fn a_checkpoint_has_the_holes_of_the_snapshots_that_it_has() {
    let mut world = World::new(Image::new(24 << 20));
    block_on(&mut world, |env, disk| async move {
        let segment_bytes = Some(32 << 10);
        let shape = FormatOptions { segment_bytes, ..FormatOptions::default() };
        lfs::format(&disk, &shape).await.unwrap();
        let disk = Valve::of(&env, disk);
        let store = Store::open(env.clone(), disk.clone(), options()).await.unwrap();
        apart(&store).await;
        store.snapshot("older", 1).await.unwrap();
        store.snapshot("newer", 2).await.unwrap();
        store.checkpoint().await.unwrap();
        // So much is new that the run is merged with all that there is.
        apart(&store).await;
        write(&store, LATER, 2).await;
        disk.hold_behind.set(Some(0));
        let writer = store.clone();
        env.spawn("checkpoint", async move { writer.checkpoint().await.unwrap() });
        until(&env, || disk.held.get()).await;
        store.delete_snapshot("newer").await.unwrap();
        store.reclaimed().await;
        let before = store.stats().checkpoints;
        disk.held.set(false);
        until(&env, || store.stats().checkpoints > before).await;
        assert_eq!(tag_in(&store, "older", LATER).await, (0, 0));
    });
    // What had been put last was not on its way yet.
    block_on(&mut World::new(world.disk), |env, disk| async move {
        let store = Store::open(env, disk, options()).await.unwrap();
        assert_eq!(tag_in(&store, "older", LATER).await, (0, 0), "S6: it was a hole");
        store.reclaimed().await;
        assert_eq!(tag_in(&store, "older", LATER).await, (0, 0));
        assert_eq!(store.verify(true).await.unwrap().wrong, Vec::<String>::new());
    });
}
