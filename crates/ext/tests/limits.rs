//! What an ext4 volume promises of a file's length and its room, and that it is so. What a crash
//! leaves of it is the lab's.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::{ROOT, Scratch, Vol, World, pattern};
use mechanisms::Mode;
use vfs::{FsError, Reply, Request, SetAttr, SpaceOp};

fn allocate(w: &mut World, v: &Vol, ino: u32, range: (u64, u64), keep_size: bool) {
    let (offset, len) = range;
    let op = SpaceOp::Allocate { keep_size };
    w.call(v, Request::Space { ino, op, offset, len }).unwrap();
}

/// Fills the volume with a file of its own, block by block at last.
fn fill(w: &mut World, v: &Vol) -> u32 {
    let (all, mut at) = (w.file(v, ROOT, "all"), 0);
    for len in [1 << 20, 64 << 10, 1024] {
        let data = pattern(9, len);
        while let Ok(n) = w.write(v, all, at, &data) {
            at += u64::from(n);
        }
    }
    all
}

/// A file of pointers beside those with extents: one that is longer than they reach would be
/// damage when it is read again.
#[test]
fn a_file_of_pointers_ends_where_they_do() {
    let mut w = World::mke2fs(16 << 20, &["-t", "ext3", "-b", "1024"]);
    let v = w.open(Mode::Async);
    let old = w.file(&v, ROOT, "old");
    w.write(&v, old, 0, &pattern(1, 5000)).unwrap();
    w.close(v);
    w.debugfs(&["feature extent huge_file"]);
    let v = w.open(Mode::Async);
    let old = w.lookup(&v, ROOT, "old");
    let most = format::ufs::map::blocks_max(256) << 10;
    assert_eq!(w.resize(&v, old, 20 << 30), Err(FsError::FileTooBig));
    assert_eq!(w.resize(&v, old, most + 1), Err(FsError::FileTooBig));
    let op = SpaceOp::ZeroRange { keep_size: false };
    let zeros = Request::Space { ino: old, op, offset: 19 << 30, len: 4096 };
    assert_eq!(w.call(&v, zeros).map(drop), Err(FsError::FileTooBig));
    assert_eq!(w.write(&v, old, 17 << 30, b"x"), Err(FsError::FileTooBig));
    w.resize(&v, old, most).unwrap();
    let new = w.file(&v, ROOT, "new");
    w.resize(&v, new, 20 << 30).unwrap();
    w.close_and_judge(v, "files as long as may be");
    let v = w.open(Mode::Async);
    let old = w.lookup(&v, ROOT, "old");
    assert_eq!(w.attr(&v, old).size, most);
    assert_eq!(w.read(&v, old, 0, 5000).unwrap(), pattern(1, 5000));
    w.file(&v, ROOT, "writable");
}

/// Where 32 bits count a file's sectors, it may have no more of them.
#[test]
fn a_file_ends_where_its_blocks_cannot_be_counted() {
    let mut w = World::mke2fs(16 << 20, &["-t", "ext4", "-b", "1024", "-O", "^huge_file"]);
    let v = w.open(Mode::Async);
    let f = w.file(&v, ROOT, "f");
    let most = format::ufs::map::countable_bytes_max(1024);
    assert!(most < 2 << 40, "{most}");
    assert_eq!(w.resize(&v, f, most + 1), Err(FsError::FileTooBig));
    w.resize(&v, f, most).unwrap();
    w.close_and_judge(v, "a file as long as may be");
}

/// Room that was allocated ahead is written in pieces, each of which is an extent more.
#[test]
fn what_was_allocated_ahead_is_written_on_a_full_volume() {
    for (block, more) in [("1024", "0"), ("4096", "0"), ("1024", "5")] {
        let mut w = World::mke2fs(24 << 20, &["-t", "ext4", "-b", block, "-m", more]);
        let v = w.open(Mode::Async);
        let f = w.file(&v, ROOT, "f");
        let blocks = (4 << 20) / v.block_bytes() as u64;
        allocate(&mut w, &v, f, (0, 4 << 20), false);
        fill(&mut w, &v);
        assert!(w.dir_fails(&v), "{block}: it is full");
        let data = pattern(3, v.block_bytes());
        for n in (0..blocks).step_by(2) {
            let at = n * v.block_bytes() as u64;
            let wrote = w.write(&v, f, at, &data);
            assert_eq!(wrote, Ok(data.len() as u32), "{block}: block {n} of {blocks}");
        }
        w.close_and_judge(v, "written in pieces");
    }
}

/// As on Linux: what was allocated beyond the end goes with a truncation to the present size.
#[test]
fn a_truncation_to_the_present_size_frees_what_lies_beyond() {
    let mut w = World::mke2fs(16 << 20, &["-t", "ext4", "-b", "1024"]);
    let v = w.open(Mode::Async);
    let f = w.file(&v, ROOT, "f");
    w.write(&v, f, 0, &pattern(1, 5000)).unwrap();
    let free = w.free_blocks(&v);
    allocate(&mut w, &v, f, (0, 2 << 20), true);
    assert!(w.free_blocks(&v) + 1000 < free);
    w.resize(&v, f, 5000).unwrap();
    assert_eq!(w.free_blocks(&v), free);
    assert_eq!(w.read(&v, f, 0, 9000).unwrap(), pattern(1, 5000));
    w.close_and_judge(v, "a truncation to the present size");
}

/// A file with attributes as another system packs them: `user.bb` has no room in the inode, and is
/// the first to have it as we lay them out, which leaves too little in the block.
fn packed() -> (World, [(&'static str, usize); 5]) {
    let mut w = World::mke2fs(16 << 20, &["-t", "ext4", "-b", "4096", "-O", "ea_inode"]);
    let v = w.open(Mode::Async);
    w.file(&v, ROOT, "f");
    w.close(v);
    let folder = Scratch::new();
    let lens = [("aaaa", 60), ("bb", 8), ("c", 3900), ("big", 4000), ("d", 64)];
    let commands = lens.map(|(name, len)| {
        let value = folder.path(name);
        std::fs::write(&value, vec![b'v'; len]).unwrap();
        format!("ea_set -f {} /f user.{name}", value.display())
    });
    w.debugfs(&commands.each_ref().map(String::as_str));
    w.debugfs(&["sif /f blocks 16"]); // which it has left to others
    w.judge("what debugfs has packed");
    (w, lens)
}

fn values(w: &mut World, v: &Vol, f: u32, lens: &[(&str, usize)]) {
    for (name, len) in lens {
        let got = w.call(v, Request::GetXattr { ino: f, name: format!("user.{name}").into() });
        assert!(matches!(got, Ok(Reply::Bytes(b)) if b == vec![b'v'; *len]), "{name}");
    }
}

#[test]
fn a_file_goes_whose_attributes_were_packed_by_another() {
    let (mut w, lens) = packed();
    let v = w.open(Mode::Async);
    let f = w.lookup(&v, ROOT, "f");
    values(&mut w, &v, f, &lens);
    w.unlink(&v, ROOT, "f").unwrap();
    w.close_and_judge(v, "a file with attributes is removed");
}

/// An attribute goes: what is left has room, as it had.
#[test]
fn attributes_that_were_packed_by_another_are_removed() {
    for gone in 0..5 {
        let (mut w, lens) = packed();
        let v = w.open(Mode::Async);
        let f = w.lookup(&v, ROOT, "f");
        let (mut left, mut order) = (lens.to_vec(), vec![gone]);
        order.extend((0..5).filter(|n| *n != gone));
        for n in order {
            let name = lens[n].0;
            w.call(&v, Request::RemoveXattr { ino: f, name: format!("user.{name}").into() })
                .unwrap();
            left.retain(|a| a.0 != name);
            values(&mut w, &v, f, &left);
        }
        w.close_and_judge(v, "all attributes are removed");
    }
}

/// A length for which there is no room leaves the mode alone that was to be set with it.
#[test]
fn attributes_are_set_together_or_not_at_all() {
    let mut w = World::mke2fs(8 << 20, &["-t", "ext4", "-b", "1024", "-O", "inline_data"]);
    let v = w.open(Mode::Async);
    let f = w.file(&v, ROOT, "f");
    w.write(&v, f, 0, &pattern(1, 50)).unwrap();
    let all = fill(&mut w, &v);
    let before = w.attr(&v, f);
    let set = SetAttr { mode: Some(0o600), size: Some(5000), ..SetAttr::default() };
    let done = w.call(&v, Request::SetAttr { ino: f, set });
    assert_eq!(done.map(drop), Err(FsError::NoSpace));
    assert_eq!(w.attr(&v, f), before);
    w.resize(&v, all, 0).unwrap();
    w.call(&v, Request::SetAttr { ino: f, set }).unwrap();
    let after = w.attr(&v, f);
    assert_eq!((after.mode & 0o7777, after.size), (0o600, 5000));
    let text = w.read(&v, f, 0, 5000).unwrap();
    assert_eq!(text, [pattern(1, 50), vec![0; 4950]].concat());
    w.close_and_judge(v, "attributes on a full volume");
}

fn zero(w: &mut World, v: &Vol, ino: u32, offset: u64, len: u64) {
    let op = SpaceOp::ZeroRange { keep_size: true };
    w.call(v, Request::Space { ino, op, offset, len }).unwrap();
}

/// Its first bytes, of which a call reads a MiB at most.
fn beginning(w: &mut World, v: &Vol, ino: u32, len: u64) -> Vec<u8> {
    let part = |at| w.read(v, ino, at, 1 << 20).unwrap();
    (0..len).step_by(1 << 20).flat_map(part).collect()
}

/// Who zeroes a range keeps its room: it is filled again on a volume where nothing else is free.
#[test]
fn what_was_zeroed_is_written_on_a_full_volume() {
    for mode in [Mode::Async, Mode::Sync] {
        let mut w = World::mke2fs(
            24 << 20,
            &["-t", "ext4", "-b", "1024", "-m", "0", "-O", "^metadata_csum"],
        );
        let v = w.open(mode);
        let f = w.file(&v, ROOT, "f");
        let (old, new) = (pattern(1, 1 << 20), pattern(2, 1 << 20));
        w.write(&v, f, 0, &old).unwrap();
        w.resize(&v, f, 2 << 20).unwrap();
        let free = w.free_blocks(&v);
        let (from, to) = (3000, 3000 + (1 << 20));
        zero(&mut w, &v, f, from as u64, to as u64 - from as u64);
        w.sync(&v).unwrap();
        // What was a hole has blocks now, and what was written has as many as before.
        let more = free - w.free_blocks(&v);
        assert!((3..8).contains(&more), "{more} blocks more for a hole of three");
        let mut want = old.clone();
        want.resize(2 << 20, 0);
        want[from..to].fill(0);
        assert!(beginning(&mut w, &v, f, 2 << 20) == want, "{mode:?}: zeros where asked");
        fill(&mut w, &v);
        for at in (3072..1 << 20).step_by(1024) {
            let wrote = w.write(&v, f, at, &new[at as usize..][..1024]);
            assert_eq!(wrote, Ok(1024), "{mode:?}: at {at}");
        }
        w.close_and_judge(v, "zeroed and written");
    }
}

/// On a full volume there are no other blocks for what is zeroed: it keeps its own.
#[test]
fn ranges_of_a_full_volume_are_zeroed() {
    for mode in [Mode::Async, Mode::Sync] {
        let mut w = World::mke2fs(
            24 << 20,
            &["-t", "ext4", "-b", "1024", "-m", "0", "-O", "^metadata_csum"],
        );
        let v = w.open(mode);
        let all = fill(&mut w, &v);
        let free = w.free_blocks(&v);
        zero(&mut w, &v, all, 5000, 2 << 20);
        assert!(w.free_blocks(&v).abs_diff(free) < 4, "it gives none back");
        let got = beginning(&mut w, &v, all, 3 << 20);
        assert!(got[5000..5000 + (2 << 20)].iter().all(|&b| b == 0), "{mode:?}: zeros where asked");
        let old = pattern(9, 1 << 20);
        let behind = 5000 + (2 << 20);
        assert!(got[..5000] == old[..5000], "{mode:?}: and before them what was");
        assert!(got[behind..] == old[5000..], "{mode:?}: and behind them");
        w.close_and_judge(v, "zeroed when full");
    }
}

/// A volume without room for the holes of a range refuses to zero it, and nothing has changed.
#[test]
fn a_range_that_finds_no_room_is_not_zeroed() {
    for mode in [Mode::Async, Mode::Sync] {
        let kind = ["-t", "ext4", "-b", "1024", "-m", "0", "-O", "^metadata_csum"];
        let mut w = World::mke2fs(24 << 20, &kind);
        let v = w.open(mode);
        let f = w.file(&v, ROOT, "f");
        let data = pattern(4, 100_000);
        w.write(&v, f, 500_000, &data).unwrap();
        w.resize(&v, f, 1 << 20).unwrap();
        fill(&mut w, &v);
        let op = SpaceOp::ZeroRange { keep_size: true };
        let done = w.call(&v, Request::Space { ino: f, op, offset: 0, len: 1 << 20 });
        assert_eq!(done.err(), Some(FsError::NoSpace), "{mode:?}");
        assert!(w.read(&v, f, 500_000, 100_000).unwrap() == data, "{mode:?}: as it was");
        w.close_and_judge(v, "no room for zeros");
    }
}
