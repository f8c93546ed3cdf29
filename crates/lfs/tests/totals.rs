//! What a store says that was written is what the disk below was asked to write; checkpoints keep
//! it. And the state at either checkpoint can be read.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{Op, PLUGGING, contents, made, opened, perform, plugging, script};
use env::Disk;
use lfs::{At, OpenOptions, Store, Totals};
use sim::{Image, World, block_on};

/// Does it all; what the store then counts, the disk, and the blocks that it was asked to write.
fn run(ops: Vec<Op>, plant: Option<&'static str>) -> (Totals, Image, u64) {
    let mut world = World::new(made().0);
    let totals = block_on(&mut world, move |env, disk| async move {
        let store = opened(env, disk, plant).await.unwrap();
        for op in ops {
            perform(&store, op).await.unwrap();
        }
        store.checkpoint().await.unwrap();
        store.totals()
    });
    let bytes: usize = world.trace.writes.iter().map(|w| w.bytes.len()).sum();
    (totals, world.disk, bytes as u64 / 4096)
}

fn read_only(at: At) -> OpenOptions {
    OpenOptions { read_only: true, at, ..OpenOptions::default() }
}

#[test]
fn they_are_what_the_disk_was_asked_for() {
    let (_, blocks) = made();
    for (ops, plant) in [(script(5, blocks, 300), None), (plugging(3, blocks, 150), PLUGGING)] {
        let (totals, image, written) = run(ops, plant);
        assert_eq!(totals.written, written);
        assert!(totals.cleaner > 0 && totals.cleaner_reads > 0 && totals.cleaned > 0, "{totals:?}");
        assert!(totals.amplification().unwrap() > 1.0, "{totals:?}");
        let again = block_on(&mut World::new(image), |env, disk| async move {
            Store::open(env, disk, read_only(At::Log)).await.unwrap().totals()
        });
        assert_eq!(again, totals, "kept by the checkpoint");
    }
}

#[test]
fn what_the_log_shows_is_added() {
    let write = |tag| Op::Write { v: tag, n: 2, tag, fua: true };
    let (_, image, _) = run(vec![write(1)], None);
    let mut world = World::new(image);
    let (before, after) = block_on(&mut world, move |env, disk| async move {
        let store = opened(env, disk, None).await.unwrap();
        let before = store.totals();
        perform(&store, write(4)).await.unwrap();
        perform(&store, Op::Patch { v: 9, tag: 7 }).await.unwrap();
        store.flush().await.unwrap();
        (before, store.totals())
    });
    assert_eq!(after.user_bytes, before.user_bytes + 2 * 4096 + 40);
    assert_eq!((after.written, after.tables), (before.written + 4, before.tables + 2));
    let again = block_on(&mut World::new(world.disk), |env, disk| async move {
        Store::open(env, disk, read_only(At::Log)).await.unwrap().totals()
    });
    assert_eq!(again, after);
}

/// The tag of block 3 at a moment.
fn seen(image: &Image, at: At) -> Result<u64, String> {
    block_on(&mut World::new(image.clone()), move |env, disk| async move {
        let store = Store::open(env, disk, read_only(at)).await?;
        Ok(contents(&store, 4).await?[3].0)
    })
}

#[test]
fn either_checkpoint_can_be_read_and_the_log_behind_them() {
    let mut world = World::new(made().0);
    block_on(&mut world, |env, disk| async move {
        let store = opened(env, disk, None).await.unwrap();
        for tag in 1..4 {
            perform(&store, Op::Write { v: 3, n: 1, tag, fua: true }).await.unwrap();
            if tag < 3 {
                store.checkpoint().await.unwrap();
            }
        }
    });
    let image = world.disk;
    let at = |at| seen(&image, at);
    assert_eq!([at(At::Older), at(At::Newer), at(At::Log)], [Ok(1), Ok(2), Ok(3)]);
    // The first is made with the store, the second when it is opened.
    assert_eq!((at(At::Checkpoint(3)), at(At::Checkpoint(4))), (Ok(1), Ok(2)));
    let gone = at(At::Checkpoint(2)).unwrap_err();
    assert!(gone.contains("4 and 3"), "{gone}");
    let open = OpenOptions { at: At::Older, ..OpenOptions::default() };
    let refused = block_on(&mut World::new(image.clone()), |env, disk| async move {
        Store::open(env, disk, open).await.err()
    });
    assert!(refused.unwrap().contains("only be read"));
}
