//! Extent trees that nobody makes but somebody who means harm, on volumes without checksums:
//! whatever is done with such a file ends, with an answer or an error, and nothing panics.
//! SEEDS: how many trees; FROM: the first of them.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::{ROOT, Vol, World, pattern};
use env::Rng;
use format::bytes::{le16, le32, set16, set32};
use format::ext::extents::{child, first_of, head, set_index};
use format::ext::superblock::SUPERBLOCK_AT;
use format::ext::{Geometry, GroupDesc};
use format::ufs::inode::BLOCK_AT;
use format::{BlockNo, Ino};
use mechanisms::Mode;
use sim::Image;
use vfs::{FsError, Request, SpaceOp};

const BLOCK: u64 = 1024;
/// Where an inode counts its links.
const LINKS_AT: u64 = 0x1a;
/// Every second block of the file is mapped, up to this one: more than a node below the root has
/// room for, so that there are two levels of them.
const BLOCKS: u64 = 1000;

/// A closed volume with such a file, and its number.
fn victim() -> (Image, u32) {
    let args = ["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^has_journal"];
    let mut w = World::mke2fs(16 << 20, &args);
    let v = w.open(Mode::Async);
    let f = w.file(&v, ROOT, "f");
    for n in (0..BLOCKS).step_by(2) {
        assert_eq!(w.write(&v, f, n * BLOCK, &pattern(n, 1024)), Ok(1024));
    }
    w.close_and_judge(v, "a sound tree");
    (w.sim.disk, f)
}

/// The places of the tree's nodes, the root's first.
struct Nodes(Vec<u64>);

impl Nodes {
    fn of(w: &World, ino: u32) -> Nodes {
        let geo = Geometry::of(&w.superblock());
        let desc = w.bytes(geo.desc_at(geo.group_of_ino(Ino(ino))), geo.desc_bytes);
        let (block, byte) = geo.ino_place(Ino(ino));
        let table = GroupDesc::decode(&desc).inode_table;
        let mut all = vec![(table + u64::from(block)) * BLOCK + (byte + BLOCK_AT) as u64];
        for n in 0.. {
            let Some(at) = all.get(n) else { break };
            let node = w.bytes(*at, if n == 0 { 60 } else { BLOCK as usize });
            let h = head(&node, None).unwrap();
            if h.depth > 0 {
                all.extend((0..h.entries).map(|i| child(&node, i).0 * BLOCK));
            }
        }
        Nodes(all)
    }
}

/// Changes a node's bytes.
fn edit(w: &mut World, at: u64, root: bool, f: impl FnOnce(&mut [u8])) {
    let mut node = w.bytes(at, if root { 60 } else { BLOCK as usize });
    f(&mut node);
    w.sim.disk.write(at, &node);
}

/// What somebody does with the file; any error is an answer.
fn act(w: &mut World, v: &Vol, ino: u32, rng: &mut Rng) -> Result<(), FsError> {
    let (at, len) = (rng.below(BLOCKS * BLOCK), 1 + rng.below(40 * BLOCK));
    match rng.below(6) {
        0 => w.resize(v, ino, at),
        1 => w.write(v, ino, at, &pattern(at, len as usize)).map(|_| ()),
        2 => w.read(v, ino, at, len as u32).map(|_| ()),
        3 => w.resize(v, ino, 0),
        n => {
            let op =
                if n == 4 { SpaceOp::PunchHole } else { SpaceOp::Allocate { keep_size: false } };
            w.call(v, Request::Space { ino, op, offset: at, len }).map(|_| ())
        }
    }
}

/// A leaf whose first extent begins before the index above says: a way from the root to that extent
/// leads to the leaf before.
#[test]
fn a_leaf_that_begins_too_early_is_damage() {
    let (disk, ino) = victim();
    for size in [0, 7 * BLOCK] {
        let mut w = World::with_disk(disk.clone());
        let nodes = Nodes::of(&w, ino).0;
        let last = *nodes.last().unwrap();
        edit(&mut w, last, false, |n| {
            let first = first_of(n, 0);
            set32(n, 12, first - 1);
        });
        let v = w.open(Mode::Async);
        assert_eq!(w.resize(&v, ino, size), Err(FsError::Corrupt));
    }
}

/// Nodes that say that they have hardly any room.
#[test]
fn a_node_without_room_is_damage() {
    let (disk, ino) = victim();
    let mut w = World::with_disk(disk);
    let nodes = Nodes::of(&w, ino).0;
    for leaf in &nodes[1..] {
        edit(&mut w, *leaf, false, |n| {
            set16(n, 2, 1);
            set16(n, 4, 1);
        });
    }
    let v = w.open(Mode::Async);
    assert_eq!(w.write(&v, ino, BLOCK, b"x"), Err(FsError::Corrupt));
}

/// An orphan is looked at by nobody but who frees it: its root is checked there. One entry has no
/// blocks, or two have the same ones.
#[test]
fn an_orphan_with_a_bad_root_is_damage() {
    let args = ["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^has_journal"];
    for (first, len) in [(0, 0), (0, 3)] {
        let mut w = World::mke2fs(16 << 20, &args);
        let v = w.open(Mode::Async);
        let ino = w.file(&v, ROOT, "f");
        for n in [0, 2] {
            assert_eq!(w.write(&v, ino, n * BLOCK, &pattern(n, 1024)), Ok(1024));
        }
        w.close_and_judge(v, "two extents");
        let root = Nodes::of(&w, ino).0[0];
        edit(&mut w, root, true, |n| {
            set32(n, 12, first);
            set16(n, 16, len);
        });
        w.sim.disk.write(root - BLOCK_AT as u64 + LINKS_AT, &[0; 2]);
        let mut sb = w.superblock();
        sb.set_last_orphan(ino);
        w.sim.disk.write(SUPERBLOCK_AT, sb.bytes());
        let v = w.open(Mode::Async);
        let ufs = v.ufs.clone();
        let freed = w.run(|_| async move { ufs.reclaim_orphans().await });
        assert_eq!(freed, Err(FsError::Corrupt));
    }
}

/// One word of the tree, or several.
fn damage(w: &mut World, nodes: &[u64], rng: &mut Rng) {
    for _ in 0..1 + rng.below(3) {
        let n = rng.below(nodes.len() as u64) as usize;
        let other = BlockNo(nodes[1 + rng.below(nodes.len() as u64 - 1) as usize] / BLOCK);
        edit(w, nodes[n], n == 0, |node| {
            let entries = u64::from(le16(node, 2)).clamp(1, node.len() as u64 / 12 - 1);
            let i = rng.below(entries) as usize;
            let at = 12 + 12 * i;
            let near =
                |old: u32, rng: &mut Rng| old.wrapping_add(rng.below(9) as u32).wrapping_sub(4);
            match rng.below(8) {
                0 => set16(node, 2 * rng.below(4) as usize, rng.below(8) as u16),
                1 => set16(node, 2 + 2 * rng.below(2) as usize, rng.below(100) as u16),
                2 | 3 => set32(node, at, near(le32(node, at), rng)),
                4 => set16(node, at + 4, [0, 1, 3, 0x7fff, 0x8000, 0x8001, 0xffff][i % 7]),
                5 => set32(node, at + 8, near(le32(node, at + 8), rng)),
                6 => set_index(node, i, first_of(node, i), other),
                _ => set32(node, at, rng.next_u64() as u32),
            }
        });
    }
}

#[test]
fn whatever_is_done_with_a_hostile_tree_ends() {
    let number = |name| std::env::var(name).ok().and_then(|v| v.parse().ok());
    let (from, count) = (number("FROM").unwrap_or(0), number("SEEDS").unwrap_or(400));
    let (disk, ino) = victim();
    for seed in from..from + count {
        let mut rng = Rng::new(seed);
        let mut w = World::with_disk(disk.clone());
        let nodes = Nodes::of(&w, ino).0;
        damage(&mut w, &nodes, &mut rng);
        if count == 1 {
            w.save(std::path::Path::new("/dev/shm/hostile.img"));
        }
        let Ok(v) = w.try_open(Mode::Async) else { continue };
        for _ in 0..6 {
            let _ = act(&mut w, &v, ino, &mut rng);
        }
        let _ = w.unlink(&v, ROOT, "f");
        // What is in memory goes out, if it may.
        let _ = w.sync(&v);
    }
}
