//! Extent trees that another system, or chance, has left as nobody should: what is wrong is told
//! before anything is lost by it.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::strict::open_counted;
use crate::common::{ROOT, Vol, World, pattern};
use format::bytes::le16;
use format::ext::extents;
use format::ext::{Geometry, GroupDesc};
use format::ufs::inode::BLOCK_AT;
use format::{BlockNo, Ino};
use mechanisms::Mode;
use vfs::{FsError, MakeKind, Request, Shift};

/// Without checksums, which would tell of each change.
const PLAIN: &[&str] = &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^dir_index"];

/// The root of an inode's tree.
fn root_of(w: &World, ino: u32) -> Vec<u8> {
    let (geo, ino) = (Geometry::of(&w.superblock()), Ino(ino));
    let desc = w.bytes(geo.desc_at(geo.group_of_ino(ino)), geo.desc_bytes);
    let (block, byte) = geo.ino_place(ino);
    let table = GroupDesc::decode(&desc).inode_table + u64::from(block);
    w.bytes(table * geo.block_bytes as u64 + (byte + BLOCK_AT) as u64, 60)
}

/// A file of two leaves, and where they lie.
fn two_leaves() -> (World, u32, [BlockNo; 2]) {
    let mut w = World::mke2fs(32 << 20, PLAIN);
    let v = w.open(Mode::Async);
    let f = w.file(&v, ROOT, "f");
    for n in 0..120 {
        w.write(&v, f, n * 2048, &pattern(n, 1024)).unwrap();
    }
    w.close(v);
    let root = root_of(&w, f);
    let head = extents::head(&root, Some(1)).unwrap();
    assert_eq!(head.entries, 2);
    let leaves = [0, 1].map(|i| extents::child(&root, i));
    (w, f, leaves)
}

fn insert(w: &mut World, v: &Vol, ino: u32) -> Result<(), FsError> {
    let (offset, len) = (10 << 10, 4096);
    w.call(v, Request::Shift { ino, way: Shift::Insert, offset, len }).map(drop)
}

/// The last leaf has no extents: what comes before it is cut, and does not stay behind by itself.
#[test]
fn what_comes_before_an_empty_leaf_is_cut_and_moved_with_it_or_not_at_all() {
    let (mut w, f, [_, last]) = two_leaves();
    w.sim.disk.write(last.0 * 1024 + 2, &[0, 0]);
    let v = w.open(Mode::Async);
    let free = w.free_blocks(&v);
    w.resize(&v, f, 1024).unwrap();
    assert!(w.free_blocks(&v) > free + 80, "a leaf of 84 blocks, or nearly");
    w.resize(&v, f, 200 << 10).unwrap();
    assert_eq!(w.blocks(&v, f, 200)[1..], [0; 199], "old contents come back");
    assert_eq!(w.read(&v, f, 0, 1024).unwrap(), pattern(0, 1024));
    w.unlink(&v, ROOT, "f").unwrap();
    assert!(!v.ext.is_damaged());
    let (mut w, f, [_, last]) = two_leaves();
    w.sim.disk.write(last.0 * 1024 + 2, &[0, 0]);
    let v = w.open(Mode::Async);
    assert_eq!(insert(&mut w, &v, f), Err(FsError::Corrupt));
}

/// E5: what was cut before a leaf that cannot be read is given back.
#[test]
fn what_is_cut_before_an_unreadable_leaf_is_free() {
    let (mut w, f, [first, last]) = two_leaves();
    let held = u64::from(le16(&w.bytes(last.0 * 1024, 4), 2));
    w.sim.disk.write(first.0 * 1024, &[0, 0]);
    let v = w.open(Mode::Async);
    let free = w.free_blocks(&v);
    assert_eq!(w.resize(&v, f, 0), Err(FsError::Corrupt));
    assert_eq!(w.free_blocks(&v), free + held + 1, "the last leaf, with all that it maps");
}

/// A directory's block beyond its end is damage; another one in its place would leave it without
/// an owner.
#[test]
fn a_directory_does_not_grow_over_a_block_that_it_has() {
    let mut w = World::mke2fs(32 << 20, PLAIN);
    let v = w.open(Mode::Async);
    let dir = w.dir(&v, ROOT, "d");
    for n in 0..30 {
        w.file(&v, dir, &format!("{n}{}", "x".repeat(60)));
    }
    assert!(w.attr(&v, dir).size > 1024);
    w.close(v);
    w.debugfs(&["set_inode_field /d size 1024"]);
    let (v, _) = open_counted(&mut w);
    let file = MakeKind::File { exclusive: None };
    let made = (0..30).map(|n| w.make(&v, dir, &format!("{n}{}", "y".repeat(60)), file.clone()));
    assert_eq!(made.filter_map(Result::err).next(), Some(FsError::Corrupt));
}
