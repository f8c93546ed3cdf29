//! Volumes as `mke2fs -t ext4` makes them: whatever features they have, everything in them is found
//! and reads as it was put there, and what carries a checksum is compared with it.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use cache::Cache;
use common::{ROOT, Scratch, Vol, World, pattern};
use format::Ino;
use format::ext::{Geometry, GroupDesc};
use integrity::{Mechanism, Plant};
use mechanisms::{Mode, Recipe};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::{FileExt, symlink};
use std::rc::Rc;
use vfs::{FsError, Reply, Request};

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
    let recipe = Recipe { cache: cache.clone(), plant: Plant::NONE, log: None, journal: None };
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
