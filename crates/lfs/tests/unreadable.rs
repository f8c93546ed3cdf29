//! A disk that cannot read a block any more: who asks for that block hears of it. What moves blocks
//! by itself leaves its segment alone, and everything else goes on. And one on which a write fails.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{Op, block, perform, tags_of};
use env::{Block, Disk, Nanos, Rng};
use lfs::{BLOCK_BYTES, Cleaning, FormatOptions, OpenOptions, Policy, Stats, Store};
use sim::timing::by_name;
use sim::{Fault, Image, World, block_on};

const DISK: u64 = 24 << 20;
/// A block that is written once, and its number.
const LOST: u64 = 77;
const TAG: u64 = 0x1057;

/// A closed store, half of whose blocks are dead, in all segments; and the blocks in use.
fn half_dead() -> (Image, u64) {
    let mut world = World::new(Image::new(DISK));
    world.forget();
    let used = block_on(&mut world, async |env, disk| {
        let segment_bytes = Some(128 << 10);
        let options = FormatOptions { uuid: [7; 16], segment_bytes, ..FormatOptions::default() };
        let used = lfs::format(&disk, &options).await.unwrap().virtual_blocks * 8 / 10;
        let store = Store::open(env, disk, OpenOptions::default()).await.unwrap();
        let mut rng = Rng::new(5);
        for n in 0..2 * used {
            let v = if n < used { n } else { rng.below(used) };
            let tag = if v == LOST { TAG } else { 1 + n };
            if n < used || v != LOST {
                perform(&store, Op::Write { v, n: 1, tag, fua: false }).await.unwrap();
            }
        }
        store.close().await.unwrap();
        used
    });
    (world.disk, used)
}

/// Where the block lies on the disk.
fn place_of(image: &Image) -> u64 {
    let (lost, mut found) = (block(TAG), Block::zeroed(BLOCK_BYTES));
    let mut all = (0..DISK).step_by(BLOCK_BYTES);
    let is_there = |at: &u64| {
        image.read(*at, found.bytes_mut());
        found.bytes() == lost.bytes()
    };
    all.find(is_there).unwrap()
}

/// Written at random as often as it has blocks, with pauses, on a disk that cannot read that block.
fn written_on(cleaning: Cleaning, policy: Policy) -> Stats {
    let (image, used) = half_dead();
    let at = place_of(&image);
    let mut world = World::new(image);
    world.set_timings(vec![by_name("nvme", DISK).unwrap()]);
    world.set_fault(Fault::Read(at));
    world.forget();
    block_on(&mut world, async move |env, disk| {
        let options = OpenOptions { cleaning, policy, ..OpenOptions::default() };
        let store = Store::open(env.clone(), disk, options).await.unwrap();
        let mut rng = Rng::new(6);
        for tag in 0..used {
            let v = rng.below(used);
            if v == LOST {
                continue;
            }
            if tag.is_multiple_of(used / 4) {
                env.sleep(Nanos::from_secs(60)).await;
            }
            let fua = tag.is_multiple_of(64);
            perform(&store, Op::Write { v, n: 1, tag, fua }).await.unwrap();
        }
        let read = async |v| {
            let memory = vec![Block::zeroed(BLOCK_BYTES)];
            store.read(v * BLOCK_BYTES as u64, memory).await
        };
        assert!(read(LOST).await.is_err(), "nobody can read it");
        for v in (0..used).filter(|v| *v != LOST) {
            tags_of(read(v).await.unwrap()[0].bytes()).unwrap();
        }
        // What is written anew can be read again.
        perform(&store, Op::Write { v: LOST, n: 1, tag: 9, fua: true }).await.unwrap();
        assert_eq!(tags_of(read(LOST).await.unwrap()[0].bytes()), Ok((9, 9)));
        store.close().await.unwrap();
        store.stats()
    })
}

#[test]
fn the_cleaner_leaves_alone_what_cannot_be_read() {
    for policy in [Policy::Balanced, Policy::Greedy, Policy::Plug] {
        for cleaning in [Cleaning::Idle, Cleaning::Pressure] {
            let did = written_on(cleaning, policy);
            assert!(did.cleaned > 20, "{policy:?}, {cleaning:?}: {did:?}");
        }
    }
}

/// One write or flush fails, and the disk takes all that follow: nothing is acknowledged any more
/// all the same (I9), for what was lost may be what a later one stands on.
#[test]
fn after_a_failed_write_or_flush_nothing_is_acknowledged() {
    let (image, used) = half_dead();
    for n in 2..7 {
        for fault in [Fault::Write(n), Fault::Flush(n)] {
            let mut world = World::new(image.clone());
            world.forget();
            world.set_fault(fault);
            block_on(&mut world, async move |env, disk| {
                let store = Store::open(env, disk, OpenOptions::default()).await.unwrap();
                let write = async |tag| {
                    perform(&store, Op::Write { v: tag % used, n: 1, tag, fua: true }).await
                };
                let mut failed = None;
                for tag in 1..100 {
                    let done = write(tag).await;
                    assert!(done.is_err() || failed.is_none(), "{fault:?}: {tag}, {failed:?}");
                    failed = failed.or(done.is_err().then_some(tag));
                }
                assert!(failed.is_some(), "{fault:?} has done nothing");
            });
        }
    }
}
