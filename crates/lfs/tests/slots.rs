//! Checkpoint slots that cannot be read: what either checkpoint covers is reached from the other by
//! the log (I2), so one is enough; where that is not so, opening ends with an error.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::script;
use crate::common::{
    APART, Op, Twin, Valve, apply, block, contents, made, made_for, opened, perform,
};
use env::{Block, Disk, Durability};
use lfs::{At, BLOCK_BYTES, Change, Group, OpenOptions, Store, Virt};
use sim::{Image, World, block_on};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// A store with a log behind its newest checkpoint, and what it holds.
fn with_a_log(seed: u64) -> (Image, Twin) {
    let (image, blocks) = made();
    let mut twin = vec![(0, 0); blocks as usize];
    let ops = script(seed, blocks, 200);
    ops.iter().for_each(|op| apply(&mut twin, op));
    let mut world = World::new(image);
    block_on(&mut world, async move |env, disk| {
        let store = opened(env, disk, None).await.unwrap();
        for op in ops {
            perform(&store, op).await.unwrap();
        }
        store.flush().await.unwrap();
    });
    (world.disk, twin)
}

/// What is wrong with a slot.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Wrong {
    Torn,
    Unreadable,
    /// Until it is written again.
    Once,
}

#[test]
fn one_slot_is_enough() {
    for seed in 0..4 {
        let (image, twin) = with_a_log(seed);
        for slot in [2, 3] {
            for wrong in [Wrong::Torn, Wrong::Unreadable, Wrong::Once] {
                for read_only in [true, false] {
                    let what = format!("seed {seed}, slot {slot}, {wrong:?}, {read_only}");
                    opens(image.clone(), &twin, (slot, wrong), read_only, &what);
                }
            }
        }
    }
}

fn opens(mut image: Image, twin: &Twin, (slot, wrong): (u64, Wrong), read_only: bool, what: &str) {
    if wrong == Wrong::Torn {
        image.write(slot * BLOCK + 512, &[0x55; 512]);
    }
    let (twin, what) = (twin.clone(), what.to_owned());
    let mut world = World::new(image);
    block_on(&mut world, async move |env, disk| {
        let disk = Valve::of(&env, disk);
        if wrong != Wrong::Torn {
            disk.unreadable.set((slot * BLOCK, (slot + 1) * BLOCK));
            disk.heals.set(wrong == Wrong::Once);
        }
        let options = OpenOptions { read_only, ..OpenOptions::default() };
        let store = Store::open(env, disk, options).await;
        if wrong == Wrong::Unreadable && !read_only {
            // The next checkpoint but one would be written over the only one there is.
            let why = store.err().unwrap();
            assert!(why.contains(&format!("byte {}", slot * BLOCK)), "{what}: {why}");
            assert!(why.contains("for reading only"), "{what}: {why}");
            return;
        }
        let store = store.unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(contents(&store, twin.len() as u64).await.unwrap(), twin, "{what}");
        assert_eq!(store.verify(true).await.unwrap().wrong, Vec::<String>::new(), "{what}");
    });
}

#[test]
fn without_any_slot_it_is_said_where_they_are() {
    let (image, _) = with_a_log(1);
    block_on(&mut World::new(image), async move |env, disk| {
        let disk = Valve::of(&env, disk);
        disk.unreadable.set((2 * BLOCK, 4 * BLOCK));
        let why = Store::open(env, disk, OpenOptions::default()).await.err().unwrap();
        assert!(why.contains("neither checkpoint"), "{why}");
        assert!(why.contains("byte 8192") && why.contains("byte 12288"), "{why}");
    });
}

/// Which is the newer one is not known where only one can be read.
#[test]
fn the_newer_one_is_not_guessed() {
    let (image, _) = with_a_log(1);
    block_on(&mut World::new(image), async move |env, disk| {
        let disk = Valve::of(&env, disk);
        disk.unreadable.set((2 * BLOCK, 3 * BLOCK));
        let options = OpenOptions { read_only: true, at: At::Newer, ..OpenOptions::default() };
        let why = Store::open(env, disk, options).await.err().unwrap();
        assert!(why.contains("byte 8192"), "{why}");
    });
}

fn word(image: &Image, at: u64) -> u64 {
    let mut raw = [0; 8];
    image.read(at, &mut raw);
    u64::from_le_bytes(raw)
}

/// Generations of both slots.
fn generations(image: &Image) -> [u64; 2] {
    [2, 3].map(|slot| word(image, slot * BLOCK + 8))
}

/// The newer checkpoint's body is damaged, and so is the log that it covers: what was acknowledged
/// between the two is not to be had, and nobody is told that the store is whole.
#[test]
fn a_log_that_ends_before_the_damaged_checkpoint_is_refused() {
    let (image, _) = made();
    let mut world = World::new(image);
    block_on(&mut world, async move |env, disk| {
        let store = opened(env, disk, None).await.unwrap();
        perform(&store, Op::Checkpoint).await.unwrap();
        perform(&store, Op::Write { v: 5, n: 1, tag: 77, fua: true }).await.unwrap();
        perform(&store, Op::Checkpoint).await.unwrap();
    });
    let mut image = world.disk;
    let [even, odd] = generations(&image);
    let newer = if even > odd { 2 } else { 3 };
    let body = word(&image, newer * BLOCK + 28);
    image.write(body * BLOCK, &[0x55; 512]);
    let whole = image.clone();
    let lost = block(77);
    let mut found = Block::zeroed(BLOCK_BYTES);
    let size = crate::common::DISK;
    let at = (0..size).step_by(BLOCK_BYTES).find(|at| {
        image.read(*at, found.bytes_mut());
        found.bytes() == lost.bytes()
    });
    image.write(at.unwrap(), &[0x55; 512]);
    for (image, is_whole) in [(whole, true), (image, false)] {
        block_on(&mut World::new(image), async move |env, disk| {
            match opened(env, disk, None).await {
                Ok(store) => {
                    let all = contents(&store, 8).await.unwrap();
                    assert_eq!((all[5], is_whole), ((77, 77), true), "it is lost silently");
                }
                Err(why) => assert!(!is_whole && why.contains("--checkpoint"), "{why}"),
            }
        });
    }
}

/// After a fall back, what an opening has left behind that nobody knows of is not taken for what
/// comes after it (I6): of a group that was never whole, a partial lies where the next may begin.
#[test]
fn what_a_lost_opening_left_behind_joins_nothing() {
    let (image, _) = made_for(APART);
    let mut world = World::new(image);
    let young = |tag| Op::Write { v: 0, n: 20, tag, fua: true };
    block_on(&mut world, async move |env, disk| {
        let store = opened(env, disk, APART).await.unwrap();
        for tag in 1..4 {
            perform(&store, young(tag)).await.unwrap();
        }
        store.close().await.unwrap();
    });
    let mut world = World::new(world.disk);
    block_on(&mut world, async move |env, disk| {
        let store = opened(env, disk, APART).await.unwrap();
        let changes = (0..10).map(|v| Change::Whole(Virt(v), block(9))).collect();
        let kept = store.reserve(10).await.unwrap();
        store.put(&Group { changes }, kept).await.unwrap();
    });
    let mut image = world.disk;
    let [even, odd] = generations(&image);
    image.write((if even > odd { 2 } else { 3 }) * BLOCK, &[0; 4096]);
    let mut world = World::new(image);
    block_on(&mut world, async move |env, disk| {
        let store = opened(env, disk, APART).await.unwrap();
        let memory = vec![block(5)];
        store.write(200 * BLOCK, memory, Durability::Fua).await.unwrap();
    });
    block_on(&mut World::new(world.disk), async move |env, disk| {
        let store = opened(env, disk, APART).await.unwrap();
        let all = contents(&store, 201).await.unwrap();
        assert_eq!((all[0], all[200]), ((3, 3), (5, 5)), "it was acknowledged");
    });
}
