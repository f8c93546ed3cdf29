//! Room that is kept for operations, and what does not wait for it: discards of what holds nothing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{Op, block, made, opened, perform};
use env::{Disk, Durability, Nanos, unless};
use lfs::{BLOCK_BYTES, Change, FormatOptions, Group, OpenOptions, Store, Virt};
use sim::timing::Constant;
use sim::{Image, World, block_on};

/// An operation that has its room may wait for a discard to end, of blocks that nobody has: if the
/// discard waited for room too, both would wait for ever.
#[test]
fn a_discard_of_what_holds_nothing_waits_for_no_room() {
    let (image, blocks) = made();
    block_on(&mut World::new(image), move |env, disk| async move {
        let store = opened(env.clone(), disk, None).await.unwrap();
        for v in 0..blocks / 2 {
            perform(&store, Op::Write { v, n: 1, tag: 1, fua: false }).await.unwrap();
        }
        let mut kept = Vec::new();
        for n in [store.group_blocks_max(), 32, 16, 8, 4, 2, 1, 0] {
            // All the room there is: the next would wait.
            let soon = || env.sleep(Nanos::from_secs(5));
            while let Some(one) = unless(store.reserve(n), soon()).await {
                kept.push(one.unwrap());
            }
        }
        // As if the table had grown meanwhile: more is needed than there was when it was kept.
        let range = |v| Change::Bytes { v: Virt(v), ranges: vec![(9, vec![7])], image: None };
        store.put(&Group { changes: (0..4).map(range).collect() }, 0).await.unwrap();
        let bytes = BLOCK_BYTES as u64;
        let discard = store.discard(blocks / 2 * bytes, blocks / 4 * bytes);
        let ended = unless(discard, env.sleep(Nanos::from_secs(60))).await;
        assert_eq!(ended, Some(Ok(())), "with {} blocks kept", kept.iter().sum::<u64>());
        kept.into_iter().for_each(|n| store.release(n));
        perform(&store, Op::Discard { v: 0, n: blocks }).await.unwrap();
        assert_eq!(store.verify(true).await.unwrap().wrong, Vec::<String>::new());
    });
}

/// Ranges that come quicker than the disk can say what lies under them wait for it: memory holds a
/// bounded number of blocks.
#[test]
fn ranges_wait_while_blocks_are_written_as_a_whole() {
    let mut world = World::new(Image::new(64 << 20));
    let (slow, quick) = (Nanos::from_millis(5), Nanos::from_micros(20));
    world.set_timings(vec![Box::new(Constant::of(slow, quick, quick, 400_000_000))]);
    world.forget();
    block_on(&mut world, async move |env, disk| {
        lfs::format(&disk, &FormatOptions::default()).await.unwrap();
        let store = Store::open(env, disk, OpenOptions::default()).await.unwrap();
        for v in 0..3000 {
            perform(&store, Op::Write { v, n: 1, tag: 1, fua: false }).await.unwrap();
        }
        let mut most = 0;
        for v in 0..3000 {
            perform(&store, Op::Patch { v, tag: 2 }).await.unwrap();
            most = most.max(store.patched());
        }
        assert!(most < 1200, "{most} blocks with ranges in memory");
    });
}

/// Where snapshots hold all the room there is, who adds something is refused before who does not:
/// files can be removed, and what is written at opening and closing has room.
#[test]
fn snapshots_leave_room_for_what_adds_nothing() {
    let (image, blocks) = made();
    let mut world = World::new(image);
    block_on(&mut world, move |env, disk| async move {
        let store = opened(env, disk, None).await.unwrap();
        let used = blocks * 3 / 4;
        for v in 0..used {
            perform(&store, Op::Write { v, n: 1, tag: 1, fua: false }).await.unwrap();
        }
        store.snapshot("a", 1).await.unwrap();
        let mut puts = 0;
        let refused = loop {
            match store.reserve(8).await {
                Ok(kept) => {
                    let changes = vec![Change::Whole(Virt(puts % used), block(2))];
                    store.put(&Group { changes }, kept).await.unwrap();
                }
                Err(e) => break e.to_string(),
            }
            puts += 1;
            assert!(puts < 4 * blocks, "the snapshot holds too little");
        };
        assert!(refused.contains("cairn snapshot delete"), "{refused}");
        removes(&store, 0..8).await;
        store.close().await.unwrap();
    });
    let mut world = World::new(world.disk);
    block_on(&mut world, move |env, disk| async move {
        let store = opened(env.clone(), disk, None).await.unwrap();
        removes(&store, 8..16).await;
        store.write(0, vec![block(3)], Durability::Fua).await.unwrap();
        store.delete_snapshot("a").await.unwrap();
        env.sleep(Nanos::from_secs(60)).await;
        let kept = store.reserve(8).await.unwrap();
        store.release(kept);
        assert_eq!(store.verify(true).await.unwrap().wrong, Vec::<String>::new());
    });
}

async fn removes(store: &Store, blocks: std::ops::Range<u64>) {
    for v in blocks {
        let kept = store.reserve_to_free(store.group_blocks_max()).await.unwrap();
        let changes = vec![Change::Free(Virt(v), 1)];
        store.put(&Group { changes }, kept).await.unwrap();
    }
    store.flush().await.unwrap();
}
