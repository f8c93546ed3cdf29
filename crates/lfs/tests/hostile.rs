//! Images that a store never wrote, with right checksums all the same: whatever they say, opening,
//! reading, checking and writing end with an answer or an error, and never with a panic.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "a panic is what is looked for")]

use crate::common::{Op, contents, made, opened, perform, plugging, script};
use env::{Disk, Rng};
use lfs::BLOCK_BYTES;
use sim::{Image, World, block_on};

/// A store with checkpoints, a table, plugs, and a log behind the newest checkpoint.
fn image(seed: u64) -> (Image, u64) {
    let (base, blocks) = made();
    let ops = if seed.is_multiple_of(2) {
        script(seed, blocks, 300)
    } else {
        plugging(seed, blocks, 120)
    };
    let mut world = World::new(base);
    let plant = crate::common::PLUGGING.filter(|_| !seed.is_multiple_of(2));
    block_on(&mut world, async move |env, disk| {
        let store = opened(env, disk, plant).await.unwrap();
        for op in ops {
            perform(&store, op).await.unwrap();
        }
        store.flush().await.unwrap();
    });
    (world.disk, blocks)
}

fn at(bytes: &[u8], from: usize, n: usize) -> u64 {
    bytes[from..from + n].iter().rev().fold(0, |sum, b| sum << 8 | u64::from(*b))
}

/// What is kept in blocks of their own: where each begins, and how its sum is made.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Superblock,
    Slot,
    Body,
    Page,
    Summary,
}

struct Hostile {
    bytes: Vec<u8>,
    seed: u32,
}

impl Hostile {
    fn block(&mut self, n: u64) -> &mut [u8] {
        let from = n as usize * BLOCK_BYTES;
        &mut self.bytes[from..from + BLOCK_BYTES]
    }

    /// Blocks that look as if they were of this kind.
    fn all(&self, kind: Kind) -> Vec<u64> {
        let n = (self.bytes.len() / BLOCK_BYTES) as u64;
        let is = |b: &u64| {
            let raw = &self.bytes[*b as usize * BLOCK_BYTES..][..BLOCK_BYTES];
            match kind {
                Kind::Superblock => raw.starts_with(&lfs::MAGIC),
                Kind::Slot | Kind::Body => raw.starts_with(b"CLCP") || raw.starts_with(b"CLCS"),
                Kind::Summary => raw.starts_with(b"CLFS"),
                Kind::Page => {
                    let sum = crc32c::crc32c_append(self.seed, &raw[4..]);
                    at(raw, 0, 4) == u64::from(sum)
                }
            }
        };
        (0..n).filter(is).collect()
    }

    /// A few bytes of one become others, and its sum is right again.
    fn change(&mut self, kind: Kind, rng: &mut Rng) {
        let all = self.all(kind);
        if all.is_empty() {
            return;
        }
        let n = all[rng.below(all.len() as u64) as usize];
        let seed = self.seed;
        let (mut from, mut most) = (12, 70);
        let mut target = n;
        match kind {
            Kind::Superblock => (),
            Kind::Slot => (from, most) = (8, 60),
            Kind::Body => {
                target = at(self.block(n), 28, 8);
                (from, most) = (0, 1400);
            }
            Kind::Page => (from, most) = (4, 400),
            Kind::Summary => (from, most) = (8, 200),
        }
        if target >= (self.bytes.len() / BLOCK_BYTES) as u64 {
            return;
        }
        let raw = self.block(target);
        for _ in 0..rng.below(3) + 1 {
            let i = from + rng.below(most as u64) as usize;
            raw[i] = match rng.below(4) {
                0 => 0,
                1 => 0xff,
                2 => raw[i].wrapping_add(1),
                _ => rng.next_u64() as u8,
            };
        }
        let raw = raw.to_vec();
        let sum = match kind {
            Kind::Superblock => crc32c::crc32c(&raw[12..]),
            Kind::Slot => crc32c::crc32c_append(seed, &raw[8..]),
            Kind::Page => crc32c::crc32c_append(seed, &raw[4..]),
            Kind::Summary => {
                let payload = at(&raw, 44, 4) as usize * BLOCK_BYTES;
                let behind = (target as usize + 1) * BLOCK_BYTES;
                let payload = self.bytes.get(behind..behind + payload).unwrap_or(&[]);
                crc32c::crc32c_append(crc32c::crc32c_append(seed, &raw[8..]), payload)
            }
            Kind::Body => {
                let len = at(self.block(n), 16, 4) as usize;
                let body = target as usize * BLOCK_BYTES;
                let sum = crc32c::crc32c_append(seed, &self.bytes[body..body + len]);
                let slot = self.block(n);
                slot[20..24].copy_from_slice(&sum.to_le_bytes());
                crc32c::crc32c_append(seed, &slot[8..])
            }
        };
        let place = if matches!(kind, Kind::Superblock) { 8 } else { 4 };
        match kind {
            Kind::Page => self.block(target)[..4].copy_from_slice(&sum.to_le_bytes()),
            Kind::Body => self.block(n)[4..8].copy_from_slice(&sum.to_le_bytes()),
            _ => self.block(target)[place..place + 4].copy_from_slice(&sum.to_le_bytes()),
        }
    }
}

/// Opens it, and does all that can be done with it.
fn used(image: Image, blocks: u64, plugs: bool) {
    let plant = crate::common::PLUGGING.filter(|_| plugs);
    block_on(&mut World::new(image), async move |env, disk| {
        let Ok(store) = opened(env, disk, plant).await else { return };
        if store.geometry().virtual_blocks != blocks {
            return; // as large as it says: there is no twin of it
        }
        let _ = contents(&store, blocks).await;
        let _ = store.verify(true).await;
        for tag in 0..12 {
            let v = tag * 31 % (blocks - 8);
            let op = match tag % 4 {
                0 => Op::Discard { v, n: 5 },
                1 => Op::Clean,
                _ => Op::Write { v, n: 7, tag: 1 + tag, fua: true },
            };
            if perform(&store, op).await.is_err() {
                break;
            }
        }
        let _ = store.close().await;
    });
}

#[test]
fn no_image_makes_a_store_panic() {
    let rounds = std::env::var("CAIRN_HOSTILE").ok().and_then(|n| n.parse().ok()).unwrap_or(40);
    let kinds = [Kind::Superblock, Kind::Slot, Kind::Body, Kind::Page, Kind::Summary];
    let mut wrong = Vec::new();
    for seed in 0..4_u64 {
        let (image, blocks) = image(seed);
        for round in 0..rounds {
            for kind in kinds {
                let mut rng = Rng::new(seed << 32 | round);
                let mut h = Hostile { bytes: image.to_vec(), seed: crc32c::crc32c(&[7; 16]) };
                for _ in 0..rng.below(2) + 1 {
                    h.change(kind, &mut rng);
                }
                let mut hostile = Image::new(h.bytes.len() as u64);
                hostile.write(0, &h.bytes);
                let name = format!("{kind:?} {seed} {round}");
                let plugs = !seed.is_multiple_of(2);
                let done = std::thread::spawn(move || used(hostile, blocks, plugs)).join();
                if let Err(e) = done {
                    let text = e.downcast_ref::<String>().cloned().unwrap_or_default();
                    wrong.push(format!("{name}: {text}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of them: {:#?}", wrong.len(), &wrong[..wrong.len().min(40)]);
}
