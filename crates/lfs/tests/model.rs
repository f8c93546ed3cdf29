//! The store against its naive twin: the same calls, the same contents, whatever is moved, cleaned
//! and opened again meanwhile. Nothing is cut off here.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{Op, PLUGGING, Twin, apply, contents, made, opened, perform, plugging, script};
use env::{Block, Disk, Durability};
use lfs::{BLOCK_BYTES, OpenOptions, Store};
use sim::{World, block_on};

/// How many blocks were put into holes.
fn run(seed: u64, ops: &[Op], plant: Option<&'static str>) -> u64 {
    let (image, blocks) = made();
    let plugged = std::rc::Rc::new(std::cell::Cell::new(0));
    let len = ops.len();
    let mut twin: Twin = vec![(0, 0); blocks as usize];
    let mut image = image;
    for (part, ops) in ops.chunks(len / 3).enumerate() {
        let mut world = World::new(image);
        let ops: Vec<Op> = ops.to_vec();
        ops.iter().for_each(|op| apply(&mut twin, op));
        let (twin, plugged) = (twin.clone(), plugged.clone());
        block_on(&mut world, move |env, disk| async move {
            let store = opened(env, disk, plant).await.unwrap();
            for op in ops {
                perform(&store, op).await.unwrap();
            }
            assert_eq!(contents(&store, blocks).await.unwrap(), twin, "seed {seed}, part {part}");
            store.checkpoint().await.unwrap();
            let report = store.verify(true).await.unwrap();
            assert_eq!(report.wrong, Vec::<String>::new(), "seed {seed}, part {part}");
            let mut mapped = 0;
            store.mapped(|_, n| mapped += n).await.unwrap();
            plugged.set(plugged.get() + store.stats().plugged);
            assert_eq!(mapped, twin.iter().filter(|t| **t != (0, 0)).count() as u64);
        });
        image = world.disk;
    }
    plugged.get()
}

#[test]
fn the_same_as_its_naive_twin() {
    let (_, blocks) = made();
    for seed in 0..8 {
        run(seed, &script(seed, blocks, 600), None);
    }
}

#[test]
fn holes_are_plugged_and_nothing_else_changes() {
    let (_, blocks) = made();
    for seed in 0..8 {
        let plugged = run(seed, &plugging(seed, blocks, 600), PLUGGING);
        assert!(plugged > 30, "seed {seed}: {plugged} blocks were plugged");
    }
}

/// Every block is mapped, and random ones are written again for ten times the volume.
#[test]
fn a_full_store_goes_on() {
    let (image, blocks) = made();
    let mut world = World::new(image);
    world.forget();
    block_on(&mut world, move |env, disk| async move {
        let store = opened(env, disk, None).await.unwrap();
        let mut twin: Twin = vec![(0, 0); blocks as usize];
        let mut rng = env::Rng::new(5);
        for tag in 1..=blocks * 11 {
            let v = if tag <= blocks { tag - 1 } else { rng.below(blocks) };
            let op = Op::Write { v, n: 1, tag, fua: tag.is_multiple_of(16) };
            apply(&mut twin, &op);
            perform(&store, op).await.unwrap();
        }
        assert_eq!(contents(&store, blocks).await.unwrap(), twin);
        store.checkpoint().await.unwrap();
        assert_eq!(store.verify(true).await.unwrap().wrong, Vec::<String>::new());
        assert!(store.stats().cleaned > 0);
    });
}

/// A store that is opened for reading only shows the log's end too, and writes nothing.
#[test]
fn reading_only_changes_nothing() {
    let (image, blocks) = made();
    let mut world = World::new(image);
    block_on(&mut world, move |env, disk| async move {
        let store = opened(env, disk, None).await.unwrap();
        perform(&store, Op::Write { v: 3, n: 2, tag: 9, fua: true }).await.unwrap();
    });
    let before = world.disk.digest();
    let mut world = World::new(world.disk);
    block_on(&mut world, move |env, disk| async move {
        let options = OpenOptions { read_only: true, ..OpenOptions::default() };
        let store = Store::open(env, disk, options).await.unwrap();
        assert_eq!(store.opened().rolled, 1);
        assert_eq!(contents(&store, blocks).await.unwrap()[3..5], [(9, 9); 2]);
        let refused = store.write(0, vec![Block::zeroed(BLOCK_BYTES)], Durability::Cached).await;
        assert!(refused.is_err());
    });
    assert_eq!(world.disk.digest(), before);
}

/// Parts of blocks, across their borders.
#[test]
fn sectors_are_written_and_read() {
    let (image, _) = made();
    let mut world = World::new(image);
    block_on(&mut world, move |env, disk| async move {
        let store = opened(env, disk, None).await.unwrap();
        store.write(3584, vec![Block::copy_of(&[1; 1024])], Durability::Cached).await.unwrap();
        store.write(0, vec![Block::copy_of(&[2; 512])], Durability::Cached).await.unwrap();
        let read = store.read(0, vec![Block::zeroed(8192)]).await.unwrap();
        let bytes = read[0].bytes();
        assert!(bytes[..512].iter().all(|b| *b == 2) && bytes[512..3584].iter().all(|b| *b == 0));
        assert!(bytes[3584..4608].iter().all(|b| *b == 1) && bytes[4608] == 0);
    });
}

/// The copy of the superblock, and the older checkpoint, stand in for what is damaged.
#[test]
fn a_damaged_superblock_has_a_copy() {
    let (image, blocks) = made();
    let mut world = World::new(image);
    block_on(&mut world, move |env, disk| async move {
        let store = opened(env, disk, None).await.unwrap();
        perform(&store, Op::Write { v: 3, n: 2, tag: 9, fua: true }).await.unwrap();
    });
    world.disk.write(20, &[0xff; 8]);
    block_on(&mut World::new(world.disk), move |env, disk| async move {
        let store = opened(env, disk, None).await.unwrap();
        assert_eq!(contents(&store, blocks).await.unwrap()[3], (9, 9));
    });
}
