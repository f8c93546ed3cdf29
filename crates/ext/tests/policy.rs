//! FFS's policies, seen from outside: where directories, files and blocks come to lie.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::{ROOT, Vol, World, nobody, options, pattern};
use env::Rope;
use format::mkfs::{MkfsOptions, Profile};
use mechanisms::Mode;
use std::collections::BTreeSet;
use vfs::{FsError, Request, Stability};

/// Many small groups: 1 KiB blocks, 8 MiB a group.
fn groups() -> MkfsOptions {
    options(160 << 20, 1024, 256, Profile::Ext2)
}

/// The share of a file's blocks that follow their predecessor.
fn score(blocks: &[u64]) -> f64 {
    let next = blocks.windows(2).filter(|w| w[1] == w[0] + 1).count();
    next as f64 / (blocks.len() - 1) as f64
}

#[test]
fn directories_of_the_root_are_spread_and_files_follow_them() {
    let mut w = World::mkfs(&groups());
    let v = w.open(Mode::Async);
    let mut seen = BTreeSet::new();
    for i in 0..20 {
        let d = w.dir(&v, ROOT, &format!("d{i}"));
        seen.insert(v.group_of(d));
        let below = w.dir(&v, d, "below");
        assert_eq!(v.group_of(below), v.group_of(d), "a deeper directory stays near");
        for n in 0..3 {
            let f = w.file(&v, d, &format!("f{n}"));
            assert_eq!(v.group_of(f), v.group_of(d), "a file lies in its directory's group");
            w.write(&v, f, 0, &pattern(n, 3000)).unwrap();
            let b = w.blocks(&v, f, 3);
            assert_eq!(v.group_of_block(b[0]), v.group_of(f), "its blocks lie near its inode");
        }
    }
    // As many directories as groups; those that have less room than the average get none.
    assert!(seen.len() >= 18, "{seen:?}");
    w.close_and_judge(v, "spreading directories");
}

#[test]
fn a_file_written_in_pieces_is_contiguous_even_beside_others() {
    let mut w = World::small();
    let v = w.open(Mode::Async);
    let f = w.file(&v, ROOT, "alone");
    for i in 0..64 {
        w.write(&v, f, i * 65_536, &pattern(i, 65_536)).unwrap();
    }
    // The one indirect block lies between the direct blocks and the rest.
    let all = w.blocks(&v, f, 1024);
    assert!(score(&all) >= 1022.0 / 1023.0, "{}", score(&all));
    let (a, b) = (w.file(&v, ROOT, "a"), w.file(&v, ROOT, "b"));
    for i in 0..8 {
        w.write(&v, a, i << 20, &pattern(i, 1 << 20)).unwrap();
        w.write(&v, b, i << 20, &pattern(i, 1 << 20)).unwrap();
    }
    for f in [a, b] {
        let all = w.blocks(&v, f, 2048);
        assert!(score(&all) > 0.99, "{}", score(&all));
    }
    w.close_and_judge(v, "sequential writes");
}

#[test]
fn one_write_takes_one_run() {
    let mut w = World::small();
    let v = w.open(Mode::Async);
    let f = w.file(&v, ROOT, "f");
    w.write(&v, f, 0, &pattern(1, 1 << 20)).unwrap();
    let ends = v.ext.cache().stats().writes.get();
    w.sync(&v).unwrap();
    let transfers = v.ext.cache().stats().writes.get() - ends;
    assert!(transfers <= 12, "{transfers} transfers for one file");
    w.close_and_judge(v, "one large write");
}

#[test]
fn a_large_file_moves_on_after_a_share_of_a_group() {
    let mut w = World::mkfs(&groups());
    let v = w.open(Mode::Async);
    let f = w.file(&v, ROOT, "large");
    for i in 0..24 {
        w.write(&v, f, i << 20, &pattern(i, 1 << 20)).unwrap();
    }
    let all = w.blocks(&v, f, 24 << 10);
    let used: BTreeSet<u32> = all.iter().map(|b| v.group_of_block(*b)).collect();
    // 8192 blocks a group, 2048 a share: twelve shares.
    assert!(used.len() >= 11, "{used:?}");
    assert!(score(&all) > 0.99, "{}", score(&all));
    // There is room left in every group.
    for g in used {
        let n = all.iter().filter(|b| v.group_of_block(**b) == g).count();
        assert!(n <= 4096, "{n} blocks in group {g}");
    }
    w.close_and_judge(v, "a large file");
}

#[test]
fn holes_left_by_small_files_are_not_where_large_ones_go() {
    let mut w = World::small();
    let v = w.open(Mode::Sync);
    let d = w.dir(&v, ROOT, "d");
    for i in 0..400 {
        let f = w.file(&v, d, &format!("f{i}"));
        w.write(&v, f, 0, &pattern(i, 4096)).unwrap();
    }
    for i in (0..400).step_by(2) {
        w.unlink(&v, d, &format!("f{i}")).unwrap();
    }
    w.sync(&v).unwrap();
    let f = w.file(&v, d, "large");
    w.write(&v, f, 0, &pattern(1, 1 << 20)).unwrap();
    let all = w.blocks(&v, f, 256);
    assert!(score(&all) > 0.98, "{}", score(&all));
    // A small file takes one of the holes.
    let low = *all.iter().min().unwrap();
    let f = w.file(&v, d, "small");
    w.write(&v, f, 0, b"small").unwrap();
    assert!(w.blocks(&v, f, 1)[0] < low);
    w.close_and_judge(v, "files among holes");
}

#[test]
fn what_is_freed_is_not_reused_before_that_is_durable() {
    for mode in [Mode::Async, Mode::Sync] {
        let mut w = World::small();
        let v = w.open(mode);
        let f = w.file(&v, ROOT, "old");
        w.write(&v, f, 0, &pattern(1, 40 * 4096)).unwrap();
        w.sync(&v).unwrap();
        let old: BTreeSet<u64> = w.blocks(&v, f, 40).into_iter().collect();
        w.unlink(&v, ROOT, "old").unwrap();
        if mode == Mode::Sync {
            w.sync(&v).unwrap(); // the name was durable when that returned; its release is behind
        }
        let g = w.file(&v, ROOT, "new");
        w.write(&v, g, 0, &pattern(2, 40 * 4096)).unwrap();
        let new = w.blocks(&v, g, 40);
        let reused = new.iter().filter(|b| old.contains(b)).count();
        match mode {
            // The unlink has not been written.
            Mode::Async => assert_eq!((reused, g != f), (0, true)),
            // It is durable.
            _ => assert_eq!((reused, g), (40, f)),
        }
        w.close_and_judge(v, "reuse");
    }
}

#[test]
fn a_full_volume_says_so_and_what_is_freed_can_be_used_at_once() {
    for mode in [Mode::Async, Mode::Sync] {
        let mut w = World::mkfs(&options(8 << 20, 1024, 128, Profile::Ext2));
        let v = w.open(mode);
        let (mut names, mut full) = (Vec::new(), None);
        for i in 0..200 {
            let name = format!("f{i}");
            let f = w.file(&v, ROOT, &name);
            names.push(name);
            let wrote = w.write(&v, f, 0, &pattern(i, 100_000));
            if wrote != Ok(100_000) {
                full = Some((f, wrote));
                break;
            }
        }
        let (f, wrote) = full.expect("8 MiB do not hold 20");
        assert!(wrote == Err(FsError::NoSpace) || wrote.is_ok_and(|n| n < 100_000), "{wrote:?}");
        assert_eq!(w.write(&v, f, 1 << 20, b"more"), Err(FsError::NoSpace));
        assert_eq!(w.statfs(&v).free, 0);
        assert!(w.dir_fails(&v), "a directory needs a block");
        for name in &names {
            w.unlink(&v, ROOT, name).unwrap();
        }
        // Nothing was flushed since, so most of it is held; it is forced out.
        let f = w.file(&v, ROOT, "again");
        for i in 0..50 {
            assert_eq!(w.write(&v, f, i * 100_000, &pattern(i, 100_000)), Ok(100_000), "{mode}");
        }
        w.close_and_judge(v, "a full volume");
    }
}

#[test]
fn no_inode_is_left() {
    let o = MkfsOptions { inodes: Some(64), ..options(8 << 20, 1024, 128, Profile::Ext2) };
    let mut w = World::mkfs(&o);
    let v = w.open(Mode::Async);
    let d = w.dir(&v, ROOT, "d");
    let free = w.statfs(&v).inodes_free;
    for i in 0..free {
        w.file(&v, d, &format!("f{i}"));
    }
    let file = vfs::MakeKind::File { exclusive: None };
    assert_eq!(w.make(&v, d, "more", file.clone()), Err(FsError::NoSpace));
    assert_eq!(w.make(&v, d, "dir", vfs::MakeKind::Dir), Err(FsError::NoSpace));
    w.unlink(&v, d, "f3").unwrap();
    w.make(&v, d, "more", file).unwrap();
    w.close_and_judge(v, "no inodes");
}

fn write_as(w: &mut World, v: &Vol, cred: vfs::Cred, ino: u32, at: u64) -> Result<u32, FsError> {
    let data = Rope::cut(&pattern(at, 50_000), (at % 1024) as usize, 1024);
    let stability = Stability::Unstable;
    let r = Request::write(ino, at, data, stability);
    match w.call_as(v, cred, r)? {
        vfs::Reply::Written { len, .. } => Ok(len),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_last_blocks_are_roots() {
    let mut w = World::mke2fs(8 << 20, &["-t", "ext2", "-b", "1024", "-m", "10", "-I", "128"]);
    let v = w.open(Mode::Async);
    let kept = w.superblock().reserved_blocks();
    assert!(kept > 500, "{kept}");
    let f = w.file(&v, ROOT, "f");
    let mut at = 0;
    let end = loop {
        match write_as(&mut w, &v, nobody(), f, at) {
            Ok(n) => at += u64::from(n),
            Err(e) => break e,
        }
    };
    assert_eq!(end, FsError::NoSpace);
    assert_eq!(w.statfs(&v).free, kept);
    assert_eq!(w.statfs(&v).available, 0);
    let more = write_as(&mut w, &v, vfs::Cred::root(), f, at).unwrap();
    assert_eq!(more, 50_000);
    // Cutting needs no space.
    w.resize(&v, f, 1000).unwrap();
    w.close_and_judge(v, "the blocks kept for root");
}
