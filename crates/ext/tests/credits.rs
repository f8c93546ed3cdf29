//! What an operation may change it has said before: no transaction edits more blocks of metadata
//! than it was begun for. A mechanism with a log or journal has kept room for so many, and stops
//! the volume where they are more. Here one that only counts looks on.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::strict::counted;
use crate::common::{ROOT, Scratch, Vol, World, pattern};
use vfs::{Request, Shift, SpaceOp};

/// Groups of 256 blocks: what is long lies in very many of them.
const SMALL_GROUPS: &[&str] = &["-t", "ext4", "-b", "1024", "-g", "256", "-N", "4096"];

fn space(w: &mut World, v: &Vol, ino: u32, op: SpaceOp, (offset, len): (u64, u64)) {
    w.call(v, Request::Space { ino, op, offset, len }).unwrap();
}

/// A file in which every other block is a hole.
fn in_pieces(w: &mut World, v: &Vol, name: &str, pieces: u64) -> u32 {
    let f = w.file(v, ROOT, name);
    for n in 0..pieces {
        w.write(v, f, n * 2048, &pattern(n, 1024)).unwrap();
    }
    f
}

#[test]
fn a_range_that_is_zeroed_with_its_holes_goes_in_steps() {
    let (mut w, v, over) = counted(96 << 20, SMALL_GROUPS);
    let f = w.file(&v, ROOT, "f");
    for n in 0..4 {
        w.write(&v, f, n * (8 << 20), &pattern(n, 3000)).unwrap();
    }
    space(&mut w, &v, f, SpaceOp::ZeroRange { keep_size: false }, (0, 32 << 20));
    assert_eq!(w.read(&v, f, 8 << 20, 3000).unwrap(), [0; 3000]);
    assert_eq!(over.get(), 0, "blocks more than a transaction was begun for");
    w.close_and_judge(v, "a range of zeros");
}

#[test]
fn holes_and_moved_ranges_of_a_file_in_pieces_go_in_steps() {
    let (mut w, v, over) = counted(96 << 20, SMALL_GROUPS);
    let f = in_pieces(&mut w, &v, "f", 6000);
    let shift = |way| Request::Shift { ino: f, way, offset: 100 << 10, len: 1 << 20 };
    w.call(&v, shift(Shift::Insert)).unwrap();
    assert_eq!(over.get(), 0, "a range is inserted");
    w.call(&v, shift(Shift::Collapse)).unwrap();
    assert_eq!(over.get(), 0, "a range is taken out");
    space(&mut w, &v, f, SpaceOp::PunchHole, (2048, 4 << 20));
    assert_eq!(over.get(), 0, "a hole is punched");
    w.resize(&v, f, 7 << 20).unwrap();
    assert_eq!(over.get(), 0, "it is cut");
    w.unlink(&v, ROOT, "f").unwrap();
    assert_eq!(over.get(), 0, "it is removed");
    w.close_and_judge(v, "a file in pieces");
}

/// An extent of another system's may go on through many groups.
#[test]
fn an_extent_through_many_groups_is_freed_in_steps() {
    let folder = Scratch::new();
    let inside = folder.folder("tree");
    std::fs::write(inside.path("f"), pattern(1, 40 << 20)).unwrap();
    std::fs::write(inside.path("g"), pattern(1, 20 << 20)).unwrap();
    let source = inside.path("").display().to_string();
    let args = ["-G", "4096", "-O", "sparse_super2,^resize_inode", "-d", &source];
    let (mut w, v, over) = counted(128 << 20, &[SMALL_GROUPS, &args].concat());
    let f = w.lookup(&v, ROOT, "f");
    let longest = (0..40).map(|n| w.map(&v, f, n << 10, 40 << 10).unwrap().len).max();
    assert!(longest > Some(10_000), "{longest:?} blocks side by side");
    w.resize(&v, f, 30 << 20).unwrap();
    assert_eq!(over.get(), 0, "it is cut");
    assert_eq!(w.read(&v, f, 20 << 20, 1024).unwrap(), pattern(1, 40 << 20)[20 << 20..][..1024]);
    space(&mut w, &v, f, SpaceOp::PunchHole, (1 << 20, 10 << 20));
    assert_eq!(over.get(), 0, "a hole is punched");
    w.unlink(&v, ROOT, "f").unwrap();
    w.unlink(&v, ROOT, "g").unwrap();
    assert_eq!(over.get(), 0, "they are removed");
    w.close_and_judge(v, "extents through many groups");
}

#[test]
fn names_values_and_files_of_pointers_keep_to_what_they_say() {
    for more in ["^has_journal", "^extent,^64bit", "inline_data,large_dir,ea_inode"] {
        let args = ["-O", more];
        let (mut w, v, over) = counted(96 << 20, &[SMALL_GROUPS, &args].concat());
        let dir = w.dir(&v, ROOT, "d");
        for n in 0..3000 {
            w.file(&v, dir, &format!("{}{n}", "x".repeat(200)));
            assert_eq!(over.get(), 0, "{more}: name {n}");
        }
        for n in 0..3000 {
            w.unlink(&v, dir, &format!("{}{n}", "x".repeat(200))).unwrap();
            assert_eq!(over.get(), 0, "{more}: name {n} goes");
        }
        in_pieces(&mut w, &v, "f", 3000);
        assert_eq!(over.get(), 0, "{more}: a file in pieces");
        w.unlink(&v, ROOT, "f").unwrap();
        assert_eq!(over.get(), 0, "{more}: it is removed");
        w.close_and_judge(v, more);
    }
}
