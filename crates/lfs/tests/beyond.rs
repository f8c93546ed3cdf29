//! Damage in the middle of the log is no end of it: what was durable behind it is not given up in
//! silence. At its very end it cannot be told from a power cut.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{APART, block, contents, made_for, opened};
use env::{Disk, Durability};
use lfs::{BLOCK_BYTES, OpenOptions, Store};
use sim::{Image, World, block_on};

const BLOCK: u64 = BLOCK_BYTES as u64;
const WRITES: u64 = 60;

/// A store with blocks that were written one by one, each durable before the next.
fn written(plant: Option<&'static str>) -> Image {
    let mut world = World::new(made_for(plant).0);
    block_on(&mut world, async move |env, disk| {
        let store = opened(env, disk, plant).await.unwrap();
        for v in 0..WRITES {
            store.write(v * BLOCK, vec![block(v + 1)], Durability::Cached).await.unwrap();
            store.flush().await.unwrap();
        }
    });
    world.disk
}

/// The serials of the partials behind the newest checkpoint, and where each has its summary.
fn summaries(image: &Image) -> Vec<(u64, u64)> {
    let read = |b: u64| {
        let mut raw = vec![0; BLOCK_BYTES];
        image.read(b * BLOCK, &mut raw);
        raw
    };
    let mut all: Vec<(u64, u64)> = (16..image.size() / BLOCK)
        .map(|b| (read(b), b))
        .filter(|(raw, _)| raw.starts_with(b"CLFS"))
        .map(|(raw, b)| (u64::from_le_bytes(raw[8..16].try_into().unwrap()), b))
        .collect();
    all.sort_unstable();
    let last = all.split_off(all.len() - WRITES as usize);
    assert!(last.windows(2).all(|w| w[0].0 + 1 == w[1].0), "{last:?}");
    last
}

#[test]
fn damage_in_the_middle_of_the_log_is_not_its_end() {
    for plant in [None, APART] {
        let image = written(plant);
        for (n, (serial, place)) in summaries(&image).into_iter().enumerate() {
            for at in [place, place + 1] {
                let what = format!("{plant:?}: block {at} of partial {serial}, write {n}");
                let mut damaged = image.clone();
                damaged.write(at * BLOCK, &[0; BLOCK_BYTES]);
                reads_up_to(damaged, n as u64, &what);
            }
        }
    }
}

fn reads_up_to(image: Image, n: u64, what: &str) {
    let what = what.to_owned();
    let is_last = n == WRITES - 1;
    let mut world = World::new(image);
    block_on(&mut world, async move |env, disk| {
        let before = disk.read(0, vec![env::Block::zeroed(BLOCK_BYTES); 64]).await.unwrap();
        let options = OpenOptions { read_only: true, ..OpenOptions::default() };
        let store = Store::open(env.clone(), disk.clone(), options).await.unwrap();
        assert_eq!(store.damage().is_none(), is_last, "{what}");
        let wrong = store.verify(true).await.unwrap().wrong;
        assert_eq!(wrong.is_empty(), is_last, "{what}: {wrong:?}");
        let found = contents(&store, WRITES).await.unwrap();
        let there = found.iter().take_while(|b| **b != (0, 0)).count() as u64;
        assert_eq!(there, n, "{what}: what was there before can be read");
        let store = opened(env, disk.clone(), None).await;
        assert_eq!(store.is_ok(), is_last, "{what}");
        let Some(why) = store.err() else { return };
        for part in ["damaged", "read", "cairn lfs export"] {
            assert!(why.contains(part), "{what}: {why}");
        }
        let after = disk.read(0, vec![env::Block::zeroed(BLOCK_BYTES); 64]).await.unwrap();
        let same = before.iter().zip(&after).all(|(a, b)| a.bytes() == b.bytes());
        assert!(same, "{what}: nothing was written");
    });
}
