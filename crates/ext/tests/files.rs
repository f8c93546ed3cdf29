//! Files of every shape on every kind of volume: what is written is read back, also after the
//! volume was closed and opened, and e2fsck finds nothing to say.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::{ROOT, World, options, pattern};
use env::Rope;
use format::mkfs::Profile;
use mechanisms::Mode;
use vfs::{
    Cred, FsError, Kind, MakeKind, Reply, Request, SetAttr, SetTime, SpaceOp, Stability, Time,
    WriteUpTo,
};

const MODES: [Mode; 2] = [Mode::Sync, Mode::Async];

#[test]
fn every_block_and_inode_size() {
    for mode in MODES {
        for (block, inode) in [(1024, 128), (1024, 256), (2048, 256), (4096, 128), (4096, 256)] {
            let mut w = World::mkfs(&options(40 << 20, block, inode, Profile::Ext3));
            let v = w.open(mode);
            let d = w.dir(&v, ROOT, "d");
            let f = w.file(&v, d, "f");
            // Through the direct, the indirect and the double indirect blocks.
            let data = pattern(1, (12 + block / 4 + 300) * block + 77);
            for (i, part) in data.chunks(100_000).enumerate() {
                assert_eq!(w.write(&v, f, i as u64 * 100_000, part), Ok(part.len() as u32));
            }
            w.make(&v, d, "fifo", MakeKind::Special(Kind::Fifo, (0, 0))).unwrap();
            w.make(&v, d, "tty", MakeKind::Special(Kind::Char, (4, 70_000))).unwrap();
            w.make(&v, d, "slow", MakeKind::Symlink(vec![b'x'; 200])).unwrap();
            w.make(&v, d, "fast", MakeKind::Symlink(b"target".to_vec())).unwrap();
            let what = format!("{mode} with {block}-byte blocks, {inode}-byte inodes");
            w.close_and_judge(v, &what);
            let v = w.open(mode);
            let mut back = Vec::new();
            while back.len() < data.len() {
                back.extend(w.read(&v, f, back.len() as u64, 1 << 20).unwrap());
            }
            assert!(back == data, "{what}");
            w.unlink(&v, d, "f").unwrap();
            w.close_and_judge(v, &what);
        }
    }
}

#[test]
fn the_borders_of_the_map() {
    for block in [1024, 4096] {
        let mut w = World::mkfs(&options(32 << 20, block, 256, Profile::Ext2));
        let v = w.open(Mode::Sync);
        let p = block as u64 / 4;
        let borders = [11, 12, 12 + p - 1, 12 + p, 12 + p + p * p - 1, 12 + p + p * p];
        let f = w.file(&v, ROOT, "f");
        for (i, b) in borders.iter().enumerate() {
            let at = b * block as u64;
            assert_eq!(w.write(&v, f, at, &pattern(i as u64, block)), Ok(block as u32));
        }
        let last = v.ext.geometry();
        assert!(last.blocks > 0);
        for (i, b) in borders.iter().enumerate() {
            let got = w.read(&v, f, b * block as u64, block as u32).unwrap();
            assert!(got == pattern(i as u64, block), "block {b}");
        }
        // What lies between is one hole, told as such.
        let hole = w.map(&v, f, 13, p - 3).unwrap();
        assert_eq!((hole.start, hole.len), (None, p - 3));
        let free = w.free_blocks(&v);
        w.close_and_judge(v, "writes at the map's borders");
        let v = w.open(Mode::Sync);
        assert_eq!(w.free_blocks(&v), free);
        // Cut back border by border.
        for b in borders.iter().rev() {
            w.resize(&v, f, b * block as u64).unwrap();
            assert_eq!(w.map(&v, f, *b, 1).unwrap().start, None);
        }
        assert_eq!(w.attr(&v, f).blocks, 0, "nothing below block 11 was written");
        w.close_and_judge(v, "cutting at the map's borders");
    }
}

#[test]
fn sparse_beyond_a_tebibyte_and_large_beyond_four_gibibytes() {
    let mut w = World::mkfs(&options(8 << 30, 4096, 256, Profile::Ext2));
    let v = w.open(Mode::Async);
    let f = w.file(&v, ROOT, "sparse");
    let far = (1 << 40) + 5 * 4096;
    w.write(&v, f, far, b"far").unwrap();
    assert_eq!(w.read(&v, f, far - 1, 4).unwrap(), b"\0far");
    let g = w.file(&v, ROOT, "large");
    let data = pattern(3, 1 << 20);
    for i in 0..40 {
        let at = (5 << 30) + i * (1 << 20);
        assert_eq!(w.write(&v, g, at, &data), Ok(1 << 20));
    }
    let n = w.call(
        &v,
        Request::Space { ino: g, op: SpaceOp::PunchHole, offset: (5 << 30) + 4096, len: 30 << 20 },
    );
    n.unwrap();
    assert!(w.read(&v, g, (5 << 30) + 4096, 1 << 20).unwrap().iter().all(|&b| b == 0));
    w.close_and_judge(v, "large and sparse files");
    let v = w.open(Mode::Sync);
    assert_eq!(w.read(&v, f, far, 3).unwrap(), b"far");
    w.resize(&v, f, 4096).unwrap();
    assert_eq!(w.attr(&v, f).blocks, 0);
    w.unlink(&v, ROOT, "large").unwrap();
    w.close_and_judge(v, "cutting large and sparse files");
}

/// Room for some of the blocks that a map has to grow by, and not for all: none stays taken.
#[test]
fn a_map_grows_by_all_its_blocks_or_by_none() {
    let bs = 1024;
    let mut w = World::mkfs(&options(8 << 20, bs, 256, Profile::Ext2));
    let v = w.open(Mode::Sync);
    let p = bs as u64 / 4;
    let f = w.file(&v, ROOT, "f");
    let rest = w.file(&v, ROOT, "rest");
    let mut at = 0;
    while w.free_blocks(&v) > 40 {
        at += u64::from(w.write(&v, rest, at, &vec![7; bs]).unwrap());
    }
    // A place whose block needs so many more blocks to be found.
    for (place, needs) in [(12, 2), (12 + p, 3), (12 + p + p * p, 4)] {
        for left in (1..needs).rev() {
            while w.free_blocks(&v) > left {
                at += u64::from(w.write(&v, rest, at, &vec![7; bs]).unwrap());
            }
            let before = w.attr(&v, f).blocks;
            let done = w.write(&v, f, place * bs as u64, &pattern(1, bs));
            assert_eq!(done, Err(FsError::NoSpace), "{left} of {needs} blocks");
            assert_eq!((w.free_blocks(&v), w.attr(&v, f).blocks), (left, before));
        }
        w.resize(&v, rest, at - 20 * bs as u64).unwrap();
        at -= 20 * bs as u64;
        assert_eq!(w.write(&v, f, place * bs as u64, &pattern(1, bs)), Ok(bs as u32));
    }
    w.close_and_judge(v, "maps that could not grow");
}

/// Pointers that several operations have set reach the disk in any order, and a crash may leave the
/// last of them, behind a hole, beyond the end.
#[test]
fn a_directory_grows_over_what_a_crash_has_left_behind_a_hole() {
    for mode in [Mode::Sync, Mode::SoftUpdates, Mode::Async] {
        let mut w = World::mke2fs(8 << 20, &["-t", "ext2", "-b", "1024"]);
        let v = w.open(mode);
        w.dir(&v, ROOT, "d");
        let f = w.file(&v, ROOT, "f");
        w.write(&v, f, 0, &[7; 1024]).unwrap();
        let left = w.blocks(&v, f, 1)[0];
        w.close(v);
        w.debugfs(&[&format!("sif /d block[3] {left}"), "sif /d blocks 4"]);
        w.debugfs(&["sif /f block[0] 0", "sif /f blocks 0", "sif /f size 0"]);
        let v = w.open(mode);
        let d = w.lookup(&v, ROOT, "d");
        for n in 0..300 {
            let made = w.make(&v, d, &format!("a-name-of-some-length-{n:04}"), MakeKind::Dir);
            assert!(made.is_ok(), "mode {mode}, name {n}: {made:?}");
        }
        w.close_and_judge(v, &format!("mode {mode}: a directory has grown"));
    }
}

/// A kernel that holds back what is appended sends the page in which it lies from its beginning,
/// and the times after it.
#[test]
fn what_only_grows_is_appended_to_by_pages() {
    const ONLY_GROWS: u32 = 0x20;
    let mut w = World::mke2fs(8 << 20, &["-t", "ext2", "-b", "1024"]);
    let v = w.open(Mode::Async);
    let f = w.file(&v, ROOT, "f");
    let mut text = pattern(1, 1500);
    w.write(&v, f, 0, &text).unwrap();
    w.call(&v, Request::SetFlags { ino: f, flags: ONLY_GROWS }).unwrap();
    let no_copies = Request::SetFlags { ino: f, flags: ONLY_GROWS | 0x80_0000 };
    assert_eq!(w.call(&v, no_copies).err(), Some(FsError::NotSupported), "what nobody keeps");
    let send = |w: &mut World, bytes: &[u8], upto| {
        let (ino, offset, data) = (f, 0, Rope::cut(bytes, 0, 1024));
        let (stability, append, kill_suid) = (Stability::DataSync, false, false);
        let r = Request::Write { ino, offset, data, stability, append, kill_suid, upto };
        w.call(&v, r).map(|r| if let Reply::Written { len, .. } = r { len } else { 0 })
    };
    text.extend(pattern(2, 1000));
    assert_eq!(send(&mut w, &text, WriteUpTo::Space), Err(FsError::Perm));
    assert_eq!(send(&mut w, &text, WriteUpTo::All), Ok(2500));
    assert_eq!(send(&mut w, &text[..1024], WriteUpTo::All), Ok(1024));
    assert_eq!(send(&mut w, &pattern(3, 3000), WriteUpTo::All), Err(FsError::Perm));
    assert_eq!(w.read(&v, f, 0, 4096).unwrap(), text);
    let to = Some(SetTime::To(Time { sec: 7, nsec: 0 }));
    let by_user = SetAttr { mtime: to, ..SetAttr::default() };
    for (ctime, done) in [(to, Ok(())), (None, Err(FsError::Perm))] {
        let set = SetAttr { ctime, ..by_user };
        assert_eq!(w.call(&v, Request::SetAttr { ino: f, set }).map(drop), done);
    }
    w.close_and_judge(v, "what was appended");
}

/// Contents may be on the disk before the mode that goes with them: a program that runs as its
/// owner is none any more before a stranger's bytes can be in it.
#[test]
fn a_program_that_a_stranger_writes_runs_as_nobody_durably() {
    for mode in MODES {
        let mut w = World::mkfs(&options(8 << 20, 1024, 256, Profile::Ext3));
        let v = w.open(mode);
        let f = w.file(&v, ROOT, "f");
        w.write(&v, f, 0, &pattern(1, 1000)).unwrap();
        let set = SetAttr { mode: Some(0o6777), ..SetAttr::default() };
        w.call(&v, Request::SetAttr { ino: f, set }).unwrap();
        w.sync(&v).unwrap();
        assert_eq!(w.mode_on_disk("f"), 0o6777);
        let stranger = Cred { uid: 7, gid: 7, groups: [].into(), check: true };
        let (offset, data, stability) =
            (0, Rope::cut(&pattern(2, 500), 0, 1024), Stability::Unstable);
        let (append, kill_suid, upto) = (false, true, WriteUpTo::Space);
        let r = Request::Write { ino: f, offset, data, stability, append, kill_suid, upto };
        w.call_as(&v, stranger, r).unwrap();
        assert_eq!(w.mode_on_disk("f"), 0o777, "mode {mode}");
        w.close_and_judge(v, "a stranger's write");
    }
}

/// As in Linux: what is made in a directory has the flags from it that concern its kind.
#[test]
fn what_is_made_in_a_directory_has_flags_from_it() {
    const ALL: u32 = 0x8 | 0x40 | 0x80 | 0x1_0000; // synchronous, not dumped, no atime, dirsync
    for args in [&["-t", "ext2", "-b", "1024"], &["-t", "ext4", "-b", "4096"]] {
        let mut w = World::mke2fs(16 << 20, args);
        let v = w.open(Mode::Async);
        let d = w.dir(&v, ROOT, "d");
        let flags = |w: &mut World, ino| match w.call(&v, Request::GetFlags { ino }).unwrap() {
            Reply::Flags(f) => f & ALL,
            other => panic!("{other:?}"),
        };
        let own = match w.call(&v, Request::GetFlags { ino: d }).unwrap() {
            Reply::Flags(f) => f,
            other => panic!("{other:?}"),
        };
        w.call(&v, Request::SetFlags { ino: d, flags: own | ALL }).unwrap();
        let below = w.dir(&v, d, "below");
        let file = w.file(&v, below, "file");
        let link = w.make(&v, below, "link", MakeKind::Symlink(b"file".to_vec())).unwrap();
        assert_eq!(flags(&mut w, below), ALL);
        assert_eq!(flags(&mut w, file), ALL & !0x1_0000);
        assert_eq!(flags(&mut w, link), 0x40 | 0x80);
        let plain = w.file(&v, ROOT, "plain");
        assert_eq!(flags(&mut w, plain), 0);
        w.close_and_judge(v, "flags from the directory");
    }
}
