//! Files and directories that lie in their inodes (`inline_data`): written, outgrown, and judged by
//! e2fsck and debugfs.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::{ROOT, Scratch, Vol, World, pattern, tool};
use env::Rng;
use format::Ino;
use format::bytes::le32;
use format::ext::{Geometry, GroupDesc};
use format::ufs::inode::FLAG_INLINE;
use mechanisms::Mode;
use std::collections::BTreeMap;
use vfs::{FsError, MakeKind, RenameMode, Reply, Request, SeekKind, SpaceOp, XattrMode};

const KINDS: &[&[&str]] = &[
    &["-b", "1024", "-O", "inline_data"],
    &["-b", "4096", "-I", "1024", "-O", "inline_data"],
    &["-b", "1024", "-I", "1024", "-O", "inline_data,metadata_csum_seed"],
    &["-b", "2048", "-I", "512", "-O", "inline_data,^metadata_csum"],
    &["-b", "1024", "-O", "inline_data,^metadata_csum,uninit_bg,^dir_index"],
    &["-b", "1024", "-O", "inline_data,^extent,^64bit"],
];

fn raw(w: &World, ino: u32) -> Vec<u8> {
    let (geo, ino) = (Geometry::of(&w.superblock()), Ino(ino));
    let desc = w.bytes(geo.desc_at(geo.group_of_ino(ino)), geo.desc_bytes);
    let (block, byte) = geo.ino_place(ino);
    let table = GroupDesc::decode(&desc).inode_table + u64::from(block);
    w.bytes(table * geo.block_bytes as u64 + byte as u64, geo.inode_bytes)
}

fn is_inline(w: &World, ino: u32) -> bool {
    le32(&raw(w, ino), 32) & FLAG_INLINE != 0
}

fn set_attribute(w: &mut World, v: &Vol, ino: u32, name: &str, len: usize) -> Result<(), FsError> {
    let (name, value) = (name.as_bytes().to_vec(), pattern(len as u64, len));
    let mode = XattrMode::Either;
    w.call(v, Request::SetXattr { ino, name, value, mode, kill_sgid: false }).map(drop)
}

fn names(w: &mut World, v: &Vol, dir: u32) -> Vec<String> {
    let (max_bytes, entry_bytes) = (1 << 20, 24);
    let list = Request::ReadDir { dir, cookie: 0, max_bytes, entry_bytes, attrs: false };
    let Reply::Dir { entries, .. } = w.call(v, list).unwrap() else { panic!() };
    let text = entries.into_iter().map(|e| String::from_utf8(e.name).unwrap());
    let mut all: Vec<String> = text.filter(|n| n != "." && n != "..").collect();
    all.sort();
    all
}

#[test]
fn small_contents_lie_in_the_inode_and_move_out() {
    let mut w = World::mke2fs(32 << 20, &["-t", "ext4", "-b", "1024", "-O", "inline_data"]);
    let v = w.open(Mode::Async);
    // The root directory, which mke2fs has made so, is outgrown by now.
    let (f, g) = (w.file(&v, ROOT, "file"), w.file(&v, ROOT, "gap"));
    let free = w.free_blocks(&v);
    let dir = w.dir(&v, ROOT, "d");
    let text = pattern(1, 128);
    w.write(&v, f, 0, &text[..100]).unwrap();
    w.write(&v, f, 100, &text[100..]).unwrap();
    w.write(&v, g, 70, b"behind a gap").unwrap();
    let inside = w.file(&v, dir, "a");
    assert_eq!(w.free_blocks(&v), free, "nothing of it needs a block");
    // A file that has no blocks is taken for a hole by whoever copies it.
    let attr = w.attr(&v, f);
    assert_eq!(attr.blocks, attr.size.div_ceil(512));
    let seek = |kind, offset| Request::Seek { ino: f, kind, offset };
    let at = |r| if let Ok(Reply::Offset(n)) = r { Some(n) } else { None };
    assert_eq!(at(w.call(&v, seek(SeekKind::Data, 7))), Some(7));
    assert_eq!(at(w.call(&v, seek(SeekKind::Hole, 7))), Some(128));
    w.close_and_judge(v, "in inodes");
    assert!([f, g, dir].iter().all(|i| is_inline(&w, *i)) && !is_inline(&w, inside));
    let v = w.open(Mode::Async);
    w.write(&v, f, 128, b"!").unwrap(); // one byte too many
    w.resize(&v, g, 40).unwrap();
    w.resize(&v, g, 90).unwrap();
    for n in 0..20 {
        w.file(&v, dir, &format!("name-{n}"));
    }
    assert_eq!(w.read(&v, f, 0, 1000).unwrap(), [&text[..], b"!"].concat());
    assert_eq!(w.read(&v, g, 0, 1000).unwrap(), [0; 90]);
    assert_eq!(names(&mut w, &v, dir).len(), 21);
    w.close_and_judge(v, "moved out");
    assert!(is_inline(&w, g) && !is_inline(&w, f) && !is_inline(&w, dir));
    let v = w.open(Mode::Async);
    w.resize(&v, f, 0).unwrap();
    w.write(&v, f, 0, b"again").unwrap();
    let r = Request::Space { ino: g, op: SpaceOp::PunchHole, offset: 10, len: 5 };
    w.call(&v, r).unwrap();
    w.close_and_judge(v, "cut and punched");
    assert!(is_inline(&w, f) && !is_inline(&w, g));
}

/// Contents and other attributes share the inode's room; what does not fit goes to a block.
#[test]
fn attributes_and_contents_share_the_room() {
    let mut w = World::mke2fs(32 << 20, &["-t", "ext4", "-b", "1024", "-O", "inline_data"]);
    let v = w.open(Mode::Async);
    let (f, dir) = (w.file(&v, ROOT, "f"), w.dir(&v, ROOT, "d"));
    let text = pattern(1, 110);
    w.write(&v, f, 0, &text).unwrap();
    set_attribute(&mut w, &v, f, "user.one", 30).unwrap();
    set_attribute(&mut w, &v, dir, "user.two", 50).unwrap();
    for n in 0..3 {
        w.file(&v, dir, &format!("a-name-{n}"));
    }
    w.close_and_judge(v, "with attributes");
    assert!(is_inline(&w, f) && is_inline(&w, dir));
    let v = w.open(Mode::Async);
    assert_eq!(w.read(&v, f, 0, 1000).unwrap(), text);
    assert_eq!(names(&mut w, &v, dir).len(), 3);
    w.write(&v, f, 110, &text).unwrap();
    w.file(&v, dir, "one more, of a length for which no inode of that size has any room left");
    assert_eq!(w.read(&v, f, 0, 1000).unwrap(), [&text[..], &text].concat());
    w.close_and_judge(v, "moved out");
    assert!(!is_inline(&w, f) && !is_inline(&w, dir));
    let v = w.open(Mode::Async);
    for (ino, name, len) in [(f, "user.one", 30), (dir, "user.two", 50)] {
        let got = w.call(&v, Request::GetXattr { ino, name: name.as_bytes().to_vec() }).unwrap();
        assert!(matches!(got, Reply::Bytes(b) if b == pattern(len, len as usize)), "{name}");
        let list = w.call(&v, Request::ListXattr { ino }).unwrap();
        assert!(matches!(list, Reply::Bytes(b) if b == [name.as_bytes(), b"\0"].concat()));
    }
}

/// No room for the block: the contents stay where they are, and can be read.
#[test]
fn without_room_nothing_moves() {
    let mut w =
        World::mke2fs(4 << 20, &["-t", "ext4", "-b", "1024", "-O", "inline_data,^has_journal"]);
    let v = w.open(Mode::Async);
    let (f, dir, big) = (w.file(&v, ROOT, "f"), w.dir(&v, ROOT, "d"), w.file(&v, ROOT, "big"));
    let text = pattern(1, 120);
    w.write(&v, f, 0, &text).unwrap();
    w.file(&v, dir, "in");
    let mut at = 0;
    while let Ok(n) = w.write(&v, big, at, &vec![7; 1024]) {
        at += u64::from(n);
    }
    assert_eq!(w.write(&v, f, 120, &text), Err(FsError::NoSpace));
    let long = "n".repeat(200);
    let kind = || MakeKind::File { exclusive: None };
    assert_eq!(w.make(&v, dir, &long, kind()), Err(FsError::NoSpace));
    assert_eq!(w.read(&v, f, 0, 1000).unwrap(), text);
    assert_eq!(names(&mut w, &v, dir), ["in"]);
    w.close_and_judge(v, "full");
    assert!(is_inline(&w, f) && is_inline(&w, dir));
}

struct Tree {
    /// Files by path: a directory's place in `dirs`, and a name.
    files: BTreeMap<(usize, String), Vec<u8>>,
    /// Inode, and the directory above.
    dirs: Vec<(u32, usize, String)>,
}

fn churn(w: &mut World, v: &Vol, rng: &mut Rng, t: &mut Tree, round: u64) {
    for n in 0..300u64 {
        let some = t.files.keys().nth(rng.below(t.files.len().max(1) as u64) as usize).cloned();
        let dir = rng.below(t.dirs.len() as u64) as usize;
        let name = format!("{round}-{n}-{}", "n".repeat(rng.below(40) as usize));
        match (rng.below(9), some) {
            (0 | 1, _) | (_, None) => {
                w.file(v, t.dirs[dir].0, &name);
                t.files.insert((dir, name), Vec::new());
            }
            (2, _) => {
                let ino = w.dir(v, t.dirs[dir].0, &name);
                t.dirs.push((ino, dir, name));
            }
            (3, Some(at)) => {
                w.unlink(v, t.dirs[at.0].0, &at.1).unwrap();
                t.files.remove(&at);
            }
            (4, Some(at)) => {
                let (old_dir, to_dir) = (t.dirs[at.0].0, t.dirs[dir].0);
                let (old, new) = (at.1.clone().into_bytes(), name.clone().into_bytes());
                let mode = RenameMode::Replace;
                let r = Request::Rename { dir: old_dir, name: old, to_dir, to_name: new, mode };
                w.call(v, r).unwrap();
                let all = t.files.remove(&at).unwrap();
                t.files.insert((dir, name), all);
            }
            (5, Some(at)) => {
                let ino = w.lookup(v, t.dirs[at.0].0, &at.1);
                let size = rng.below(300) as usize;
                w.resize(v, ino, size as u64).unwrap();
                t.files.get_mut(&at).unwrap().resize(size, 0);
            }
            (6, Some(at)) => {
                let ino = w.lookup(v, t.dirs[at.0].0, &at.1);
                let len = 1 + rng.below(60) as usize;
                let done = set_attribute(w, v, ino, &format!("user.{}", rng.below(3)), len);
                assert!(matches!(done, Ok(()) | Err(FsError::NoSpace)));
            }
            (_, Some(at)) => {
                let ino = w.lookup(v, t.dirs[at.0].0, &at.1);
                let long = if rng.one_in(6) { 5000 } else { 70 };
                let (from, len) = (rng.below(100) as usize, 1 + rng.below(long) as usize);
                let data = pattern(rng.next_u64(), len);
                assert_eq!(w.write(v, ino, from as u64, &data), Ok(len as u32));
                let all = t.files.get_mut(&at).unwrap();
                all.resize(all.len().max(from + len), 0);
                all[from..from + len].copy_from_slice(&data);
            }
        }
    }
}

fn compare(w: &mut World, v: &Vol, t: &Tree, what: &str) {
    for ((dir, name), want) in &t.files {
        let ino = w.lookup(v, t.dirs[*dir].0, name);
        assert!(w.read(v, ino, 0, 1 << 20).unwrap() == *want, "{what}: {name}");
    }
    for (n, (ino, ..)) in t.dirs.iter().enumerate().skip(1) {
        let files = t.files.keys().filter(|f| f.0 == n).map(|f| f.1.clone());
        let below = t.dirs.iter().skip(1).filter(|d| d.1 == n).map(|d| d.2.clone());
        let mut want: Vec<String> = files.chain(below).collect();
        want.sort();
        assert_eq!(names(w, v, *ino), want, "{what}");
    }
}

#[test]
fn what_is_written_e2fsck_and_debugfs_accept() {
    for (k, kind) in (0..).zip(KINDS) {
        let mut w = World::mke2fs(48 << 20, &[&["-t", "ext4", "-N", "4096"], *kind].concat());
        let mut rng = Rng::new(k);
        let mut t = Tree { files: BTreeMap::new(), dirs: vec![(ROOT, 0, String::new())] };
        for round in 0..3 {
            let v = w.open(Mode::Async);
            churn(&mut w, &v, &mut rng, &mut t, round);
            let what = format!("{kind:?}, round {round}");
            assert!(!v.ext.is_damaged(), "{what}");
            compare(&mut w, &v, &t, &what);
            w.close_and_judge(v, &what);
            let v = w.open(Mode::Async);
            compare(&mut w, &v, &t, &what);
            w.close(v);
        }
        let inline = t.dirs.iter().filter(|d| is_inline(&w, d.0)).count();
        assert!(inline > 0, "{kind:?}: some directories lie in their inodes");
        let (image, out) = (Scratch::new(), Scratch::new());
        w.save(&image.path("i"));
        let dump = format!("rdump / {}", out.path("").display());
        let ran = tool("debugfs").arg("-R").arg(&dump).arg(image.path("i")).output().unwrap();
        assert!(ran.status.success(), "{kind:?}");
        for ((dir, name), want) in &t.files {
            let (mut path, mut at) = (name.clone(), *dir);
            while at != 0 {
                path = format!("{}/{path}", t.dirs[at].2);
                at = t.dirs[at].1;
            }
            // debugfs shows all that there is room for where the map would be.
            let got = std::fs::read(out.path(&path)).unwrap();
            let (got, rest) = got.split_at(want.len().min(got.len()));
            let same = got == want && rest.len() <= 60 && rest.iter().all(|b| *b == 0);
            assert!(same, "{kind:?}: debugfs: {path}");
        }
        let v = w.open(Mode::Async);
        for (dir, name) in t.files.keys() {
            w.unlink(&v, t.dirs[*dir].0, name).unwrap();
        }
        for (_, above, name) in t.dirs.iter().skip(1).rev() {
            let dir = t.dirs[*above].0;
            w.call(&v, Request::Rmdir { dir, name: name.as_bytes().to_vec() }).unwrap();
        }
        w.close_and_judge(v, &format!("{kind:?}: all gone"));
    }
}

/// What has no room in its inode any more, and can have no block because no bitmap can be believed,
/// stays where it is.
#[test]
fn contents_stay_in_their_inode_where_bitmaps_are_damaged() {
    let mut w = World::mke2fs(32 << 20, &["-t", "ext4", "-b", "1024", "-O", "inline_data"]);
    let v = w.open(Mode::Async);
    let (dir, f) = (w.dir(&v, ROOT, "d"), w.file(&v, ROOT, "f"));
    w.file(&v, dir, "first");
    w.write(&v, f, 0, &pattern(1, 100)).unwrap();
    w.close(v);
    let geo = Geometry::of(&w.superblock());
    for g in (0..geo.groups).map(format::GroupNo) {
        let desc = GroupDesc::decode(&w.bytes(geo.desc_at(g), geo.desc_bytes));
        w.sim.disk.write(desc.block_bitmap * 1024, &[0; 1024]);
    }
    let v = w.open(Mode::Async);
    assert_eq!(w.write(&v, f, 100, &pattern(2, 500)), Err(FsError::Corrupt));
    assert_eq!(w.read(&v, f, 0, 1000).unwrap(), pattern(1, 100));
    drop(v);
    let v = w.open(Mode::Async);
    let name = |n: u32| format!("{n}{}", "x".repeat(40)).into_bytes();
    let linked = (0..9).map(|n| w.call(&v, Request::Link { ino: f, dir, name: name(n) }));
    assert_eq!(linked.filter_map(Result::err).next(), Some(FsError::Corrupt));
    assert!(names(&mut w, &v, dir).contains(&"first".to_owned()));
}
