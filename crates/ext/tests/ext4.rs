//! Volumes as `mke2fs -t ext4` makes them: whatever features they have, everything in them is found
//! and reads as it was put there, and what carries a checksum is compared with it.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::{ROOT, Scratch, Vol, World, pattern};
use cache::Cache;
use env::Rng;
use format::Ino;
use format::ext::{Geometry, GroupDesc};
use integrity::{Mechanism, Plant};
use mechanisms::{Mode, Recipe};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::{FileExt, symlink};
use std::rc::Rc;
use vfs::{FsError, Reply, Request, Shift, SpaceOp};

/// Makes a tree with files of many shapes; what each holds, by its path.
fn tree(folder: &Scratch) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut put = |path: String, contents: Vec<u8>| {
        std::fs::write(folder.path(&path), &contents).unwrap();
        all.insert(path, contents);
    };
    for (n, len) in [0, 30, 150, 1000, 5000, 70_000, 900_000].into_iter().enumerate() {
        put(format!("file-{n}"), pattern(n as u64, len));
    }
    std::fs::create_dir(folder.path("names")).unwrap();
    for n in 0..400 {
        put(format!("names/{}-{n}", "n".repeat(n % 50)), n.to_string().into_bytes());
    }
    // So many extents that the tree has three levels with 1 KiB blocks.
    let sparse = File::create(folder.path("sparse")).unwrap();
    let mut contents = vec![0; 699 * 8192 + 1024];
    for n in 0..700 {
        let part = pattern(n as u64, 1024);
        sparse.write_all_at(&part, n as u64 * 8192).unwrap();
        contents[n * 8192..n * 8192 + 1024].copy_from_slice(&part);
    }
    // (With inline_data, mke2fs would forget what is behind the last of them.)
    all.insert("sparse".into(), contents);
    for len in [5, 59, 60, 300] {
        symlink("y".repeat(len), folder.path(&format!("link-{len}"))).unwrap();
    }
    all
}

/// Loads the volume, to read only.
fn reader(w: &mut World) -> Vol {
    w.load(unprotected).unwrap()
}

fn unprotected(cache: &Rc<Cache>) -> Mechanism {
    let recipe = Recipe {
        cache: cache.clone(),
        plant: Plant::NONE,
        log: None,
        journal: None,
        groups: None,
        intents: None,
    };
    mechanisms::build(Mode::Async, &recipe).unwrap()
}

/// The byte of the volume where an inode's slot begins.
fn place_of(w: &World, ino: Ino) -> u64 {
    let geo = Geometry::of(&w.superblock());
    let desc = w.bytes(geo.desc_at(geo.group_of_ino(ino)), geo.desc_bytes);
    let (block, byte) = geo.ino_place(ino);
    let table = GroupDesc::decode(&desc).inode_table;
    (table + u64::from(block)) * geo.block_bytes as u64 + byte as u64
}

fn find(w: &mut World, v: &Vol, path: &str) -> Result<u32, FsError> {
    let mut ino = ROOT;
    for name in path.split('/') {
        let name = name.as_bytes().to_vec();
        ino = match w.call(v, Request::Lookup { dir: ino, name })? {
            Reply::Entry { attr, .. } => attr.ino,
            other => panic!("{other:?}"),
        };
    }
    Ok(ino)
}

fn contents(w: &mut World, v: &Vol, ino: u32) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(part) = Some(w.read(v, ino, all.len() as u64, 1 << 20).unwrap()) {
        if part.is_empty() {
            break;
        }
        all.extend(part);
    }
    all
}

const KINDS: &[&[&str]] = &[
    &["-b", "1024"],
    &["-b", "2048"],
    &["-b", "4096"],
    &["-O", "^metadata_csum,uninit_bg"],
    &["-O", "^metadata_csum"],
    &["-O", "metadata_csum_seed,orphan_file,large_dir,ea_inode"],
    &["-O", "^64bit,^flex_bg", "-I", "128"],
    &["-O", "meta_bg,^resize_inode", "-b", "1024"],
    &["-O", "sparse_super2,mmp,stable_inodes"],
    &["-O", "^has_journal"],
    &["-O", "bigalloc", "-C", "16384"],
    &["-O", "inline_data"],
    &["-O", "inline_data", "-I", "1024", "-b", "4096"],
    &["-O", "^extent,^64bit"],
    &["-O", "quota,project"],
];

#[test]
fn everything_of_every_kind_of_volume_is_read() {
    let folder = Scratch::new();
    let inside = folder.folder("tree");
    let made = tree(&inside);
    let source = inside.path("").display().to_string();
    for kind in KINDS {
        let args = [&["-t", "ext4", "-d", &source], *kind].concat();
        let mut w = World::mke2fs(64 << 20, &args);
        let v = reader(&mut w);
        for (path, want) in &made {
            let ino = find(&mut w, &v, path).unwrap_or_else(|e| panic!("{kind:?}: {path}: {e:?}"));
            assert!(contents(&mut w, &v, ino) == *want, "{kind:?}: {path}");
        }
        for len in [5, 59, 60, 300] {
            let ino = find(&mut w, &v, &format!("link-{len}")).unwrap();
            match w.call(&v, Request::ReadLink { ino }).unwrap() {
                Reply::Bytes(text) => assert_eq!(text, vec![b'y'; len], "{kind:?}"),
                other => panic!("{other:?}"),
            }
        }
        match w.call(&v, Request::StatFs).unwrap() {
            Reply::StatFs(st) => assert_eq!(st.free, w.superblock().free_blocks(), "{kind:?}"),
            other => panic!("{other:?}"),
        }
        assert!(!v.ext.is_damaged(), "{kind:?}");
    }
}

/// A changed byte in anything that a checksum covers is damage, and named with both values.
#[test]
fn a_wrong_checksum_is_damage() {
    let folder = Scratch::new();
    let inside = folder.folder("tree");
    tree(&inside);
    let source = inside.path("").display().to_string();
    let fresh = || World::mke2fs(64 << 20, &["-t", "ext4", "-b", "1024", "-d", &source]);
    let mut w = fresh();
    let v = reader(&mut w);
    let ino = find(&mut w, &v, "sparse").unwrap();
    let names = find(&mut w, &v, "names").unwrap();
    let dir = w.map(&v, names, 0, 1).unwrap().start.unwrap();
    let place = place_of(&w, Ino(ino));
    drop(v);
    // A directory's entry: an unused byte of its last entry's space.
    let flip = |w: &mut World, at: u64| {
        let mut byte = w.bytes(at, 1);
        byte[0] ^= 0x40;
        w.sim.disk.write(at, &byte);
    };
    flip(&mut w, dir.0 * 1024 + 1024 - 14);
    flip(&mut w, place + 0x10); // the time of the last change
    let v = reader(&mut w);
    assert_eq!(find(&mut w, &v, "names/-0"), Err(FsError::Corrupt));
    assert!(v.ext.is_damaged());
    drop(v);
    let v = reader(&mut w);
    assert_eq!(find(&mut w, &v, "sparse"), Err(FsError::Corrupt));
    drop(v);
    let mut w = fresh();
    flip(&mut w, 2048 + 0x0c); // the first group's count of free blocks
    let e = w.load(unprotected).err().unwrap().to_string();
    assert!(e.contains("checksum is 0x"), "{e}");
}

/// Random changes to files, checked against a model, on volumes of every kind that is written.
fn churn(w: &mut World, v: &Vol, rng: &mut Rng, files: &mut BTreeMap<String, Vec<u8>>, dir: u32) {
    const SIZE_MAX: usize = 3 << 20;
    for n in 0..150u64 {
        let names: Vec<String> = files.keys().cloned().collect();
        let some =
            (!names.is_empty()).then(|| names[rng.below(names.len() as u64) as usize].clone());
        match (rng.below(10), some) {
            (0 | 1, _) | (_, None) => {
                let name =
                    format!("{}-{n}-{}", "n".repeat(rng.below(60) as usize), rng.below(1 << 30));
                w.file(v, dir, &name);
                files.insert(name, Vec::new());
            }
            (2, Some(name)) => {
                w.unlink(v, dir, &name).unwrap();
                files.remove(&name);
            }
            (3, Some(name)) => {
                let ino = child(w, v, dir, &name);
                let size = rng.below(SIZE_MAX as u64);
                w.resize(v, ino, size).unwrap();
                files.get_mut(&name).unwrap().resize(size as usize, 0);
            }
            (4, Some(name)) => {
                let ino = child(w, v, dir, &name);
                let all = files.get_mut(&name).unwrap();
                let from = rng.below(SIZE_MAX as u64) as usize;
                let len = 1 + rng.below(500_000) as usize;
                let op = match rng.below(2) {
                    0 => SpaceOp::PunchHole,
                    _ => SpaceOp::ZeroRange { keep_size: true },
                };
                let r = Request::Space { ino, op, offset: from as u64, len: len as u64 };
                w.call(v, r).unwrap();
                let end = all.len();
                all[from.min(end)..(from + len).min(end)].fill(0);
            }
            (5, Some(name)) => {
                let ino = child(w, v, dir, &name);
                let all = files.get_mut(&name).unwrap();
                let from = rng.below(SIZE_MAX as u64) as usize;
                let len = 1 + rng.below(500_000) as usize;
                let keep_size = rng.below(2) == 0;
                let op = SpaceOp::Allocate { keep_size };
                let r = Request::Space { ino, op, offset: from as u64, len: len as u64 };
                // Without extents nothing is allocated beyond the end.
                let done = w.call(v, r).is_ok();
                assert!(done || !v.ext.geometry().extents);
                if done && !keep_size && from + len > all.len() {
                    all.resize(from + len, 0);
                }
            }
            (n @ (6 | 7), Some(name)) => {
                let ino = child(w, v, dir, &name);
                shift(w, v, ino, (n == 6, rng), files.get_mut(&name).unwrap());
            }
            (_, Some(name)) => {
                let ino = child(w, v, dir, &name);
                let all = files.get_mut(&name).unwrap();
                let from = rng.below(SIZE_MAX as u64) as usize;
                let data = pattern(rng.next_u64(), 1 + rng.below(60_000) as usize);
                assert_eq!(w.write(v, ino, from as u64, &data), Ok(data.len() as u32));
                all.resize(all.len().max(from + data.len()), 0);
                all[from..from + data.len()].copy_from_slice(&data);
            }
        }
    }
}

/// Takes blocks out of a file, or puts some in.
fn shift(w: &mut World, v: &Vol, ino: u32, (out, rng): (bool, &mut Rng), all: &mut Vec<u8>) {
    let bs = v.block_bytes();
    let from = bs * rng.below((all.len() / bs) as u64 + 2) as usize;
    let len = bs * (1 + rng.below(40) as usize);
    let way = if out { Shift::Collapse } else { Shift::Insert };
    let fits = if out { from + len < all.len() } else { from < all.len() };
    let r = Request::Shift { ino, way, offset: from as u64, len: len as u64 };
    match w.call(v, r) {
        Ok(_) if out => drop(all.drain(from..from + len)),
        Ok(_) => drop(all.splice(from..from, vec![0; len])),
        Err(e) => {
            let right = if fits { FsError::NotSupported } else { FsError::Invalid };
            assert!(e == right && (!fits || !v.ext.geometry().extents), "{e:?} for {from}, {len}");
            return;
        }
    }
    assert!(fits, "{from}, {len} of {}", all.len());
}

fn child(w: &mut World, v: &Vol, dir: u32, name: &str) -> u32 {
    match w.call(v, Request::Lookup { dir, name: name.as_bytes().to_vec() }).unwrap() {
        Reply::Entry { attr, .. } => attr.ino,
        other => panic!("{other:?}"),
    }
}

const WRITTEN: &[&[&str]] = &[
    &["-b", "1024"],
    &["-b", "2048", "-I", "512"],
    &["-b", "4096"],
    &["-b", "1024", "-O", "^metadata_csum,uninit_bg"],
    &["-b", "1024", "-O", "^metadata_csum"],
    &["-O", "metadata_csum_seed,stable_inodes"],
    &["-O", "^64bit,^flex_bg", "-I", "128"],
    &["-O", "meta_bg,^resize_inode", "-b", "1024"],
    &["-O", "sparse_super2"],
];

#[test]
fn what_is_written_on_every_kind_of_volume_e2fsck_accepts() {
    for (k, kind) in (0..).zip(WRITTEN) {
        let mut w = World::mke2fs(96 << 20, &[&["-t", "ext4"], *kind].concat());
        let mut rng = Rng::new(k);
        let mut files = BTreeMap::new();
        let v = w.open(Mode::Async);
        let dir = w.dir(&v, ROOT, "files");
        w.close_and_judge(v, &format!("{kind:?}: a directory"));
        for round in 0..2 {
            let v = w.open(Mode::Async);
            churn(&mut w, &v, &mut rng, &mut files, dir);
            assert!(!v.ext.is_damaged(), "{kind:?}");
            w.close_and_judge(v, &format!("{kind:?}, round {round}"));
            let v = reader(&mut w);
            for (name, want) in &files {
                let ino = child(&mut w, &v, dir, name);
                assert!(contents(&mut w, &v, ino) == *want, "{kind:?}, round {round}: {name}");
            }
        }
        let v = w.open(Mode::Async);
        for name in files.keys() {
            w.unlink(&v, dir, name).unwrap();
        }
        w.close_and_judge(v, &format!("{kind:?}: all removed"));
    }
}

/// So many extents that the tree has three levels, made, punched, filled again, and cut.
#[test]
fn trees_grow_and_shrink() {
    let mut w = World::mke2fs(64 << 20, &["-t", "ext4", "-b", "1024"]);
    let v = w.open(Mode::Async);
    let f = w.file(&v, ROOT, "f");
    for n in (0..3000u64).rev().step_by(2).chain((0..3000).step_by(5)) {
        let at = n * 1024;
        assert_eq!(w.write(&v, f, at, &pattern(n, 1024)), Ok(1024));
    }
    w.close_and_judge(v, "every other block");
    let v = w.open(Mode::Async);
    for n in (0..3000u64).filter(|n| n % 2 == 1 || n % 5 == 0) {
        assert!(w.read(&v, f, n * 1024, 1024).unwrap() == pattern(n, 1024), "block {n}");
    }
    for n in (1..3000u64).step_by(4) {
        let r = Request::Space { ino: f, op: SpaceOp::PunchHole, offset: n * 1024, len: 1024 };
        w.call(&v, r).unwrap();
    }
    w.close_and_judge(v, "holes");
    let v = w.open(Mode::Async);
    w.resize(&v, f, 1_500_000).unwrap();
    w.close_and_judge(v, "cut in the middle");
    let v = w.open(Mode::Async);
    w.resize(&v, f, 0).unwrap();
    w.close_and_judge(v, "cut to nothing");
    let free = w.superblock().free_blocks();
    let v = w.open(Mode::Async);
    assert_eq!(w.free_blocks(&v), free);
}

/// A file of so many pieces that its tree has three levels: blocks taken out at its beginning, put
/// in within a piece and at the end of a leaf; and what was allocated behind its end comes along.
#[test]
fn ranges_are_taken_out_and_put_in() {
    const K: u64 = 1024;
    let mut w = World::mke2fs(64 << 20, &["-t", "ext4", "-b", "1024"]);
    let v = w.open(Mode::Async);
    let f = w.file(&v, ROOT, "f");
    let mut all = vec![0; 3000 * K as usize];
    for n in (0..3000u64).rev().step_by(2).chain((0..3000).step_by(5)) {
        let (at, data) = (n * K, pattern(n, K as usize));
        assert_eq!(w.write(&v, f, at, &data), Ok(K as u32));
        all[at as usize..][..K as usize].copy_from_slice(&data);
    }
    let op = SpaceOp::Allocate { keep_size: true };
    w.call(&v, Request::Space { ino: f, op, offset: 3010 * K, len: 20 * K }).unwrap();
    let shift_of = |way, offset, len| Request::Shift { ino: f, way, offset, len };
    for (out, at, blocks) in [
        (true, 0, 1),
        (false, 100, 3),
        (true, 84, 900),
        (false, 0, 700),
        (true, 2000, 1),
        (false, 2790, 1),
    ] {
        let way = if out { Shift::Collapse } else { Shift::Insert };
        w.call(&v, shift_of(way, at * K, blocks * K)).unwrap();
        let (from, len) = ((at * K) as usize, (blocks * K) as usize);
        if out {
            all.drain(from..from + len);
        } else {
            all.splice(from..from, vec![0; len]);
        }
        assert!(contents(&mut w, &v, f) == all, "{out} at {at}");
        w.sync(&v).unwrap();
        w.judge(&format!("{way:?} at {at}"));
    }
    let last = all.len() as u64 / K - 1;
    for (way, at, len, why) in [
        (Shift::Collapse, last * K, K, FsError::Invalid),
        (Shift::Collapse, 100, K, FsError::Invalid),
        (Shift::Insert, K, 100, FsError::Invalid),
        (Shift::Insert, (last + 1) * K, K, FsError::Invalid),
        (Shift::Insert, 0, (1 << 42) - K, FsError::FileTooBig),
        (Shift::Insert, 0, 1 << 63, FsError::FileTooBig),
    ] {
        assert_eq!(w.call(&v, shift_of(way, at, len)).err(), Some(why), "{way:?} at {at}, {len}");
    }
    w.close_and_judge(v, "refusals");
}

fn attribute(w: &mut World, v: &Vol, ino: u32, name: &[u8]) -> Result<Vec<u8>, FsError> {
    match w.call(v, Request::GetXattr { ino, name: name.to_vec() })? {
        Reply::Bytes(value) => Ok(value),
        other => panic!("{other:?}"),
    }
}

/// A value that is another inode's contents, as debugfs makes it where a value is long.
#[test]
fn values_in_other_inodes_are_read() {
    let (folder, value) = (Scratch::new(), pattern(7, 1000));
    let file = folder.path("value").display().to_string();
    std::fs::write(&file, &value).unwrap();
    for kind in ["ea_inode", "ea_inode,^metadata_csum", "ea_inode,metadata_csum_seed"] {
        let mut w = World::mke2fs(32 << 20, &["-t", "ext4", "-b", "1024", "-O", kind]);
        let set = format!("ea_set -f {file} f user.long");
        w.debugfs(&[&format!("write {file} f"), &set, "ea_set f user.short here"]);
        let v = reader(&mut w);
        let ino = find(&mut w, &v, "f").unwrap();
        assert_eq!(attribute(&mut w, &v, ino, b"user.short"), Ok(b"here".to_vec()), "{kind}");
        assert_eq!(attribute(&mut w, &v, ino, b"user.long"), Ok(value.clone()), "{kind}");
        // The value's inode is the newest; with another byte in it its hash is wrong.
        let place = place_of(&w, Ino(ino + 1));
        let start = format::bytes::le32(&w.bytes(place + 0x28 + 20, 4), 0);
        let at = u64::from(start) * 1024 + 500;
        let byte = w.bytes(at, 1)[0] ^ 1;
        w.sim.disk.write(at, &[byte]);
        let v = reader(&mut w);
        let got = attribute(&mut w, &v, ino, b"user.long");
        assert_eq!(got.unwrap_err(), FsError::Corrupt, "{kind}");
    }
}
