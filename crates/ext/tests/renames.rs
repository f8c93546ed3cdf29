//! Many names that change within one directory, in soft updates: each old name waits for its new
//! one, and new names that took the places of old ones would wait with them, all in one chain.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::{ROOT, Vol, World, pattern};
use mechanisms::Mode;
use ufs::store::Space;
use vfs::{RenameMode, Request};

const NAMES: usize = 600;

fn rename(w: &mut World, v: &Vol, dir: u32, (old, new): (&str, &str)) {
    let (name, to_name) = (old.as_bytes().to_vec(), new.as_bytes().to_vec());
    let mode = RenameMode::Replace;
    w.call(v, Request::Rename { dir, name, to_dir: dir, to_name, mode }).unwrap();
}

fn waves(v: &Vol) -> u64 {
    let all = v.ext.counters();
    all.into_iter().find(|c| c.0 == "cairn_soft_waves_total").unwrap().1
}

/// A directory with as many names as there are, all durable.
fn full_directory(w: &mut World, v: &Vol) -> u32 {
    let dir = w.dir(v, ROOT, "d");
    for n in 0..NAMES {
        w.file(v, dir, &format!("name-{n:05}"));
    }
    w.sync(v).unwrap();
    dir
}

#[test]
fn names_that_all_change_are_durable_in_a_few_waves() {
    for links in [false, true] {
        let mut w = World::mke2fs(32 << 20, &["-t", "ext2", "-b", "1024"]);
        let v = w.open(Mode::SoftUpdates);
        let dir = full_directory(&mut w, &v);
        let (before, bytes) = (waves(&v), w.attr(&v, dir).size);
        for n in 0..NAMES {
            let (old, new) = (format!("name-{n:05}"), format!("newn-{n:05}"));
            if links {
                let ino = w.lookup(&v, dir, &old);
                w.call(&v, Request::Link { ino, dir, name: new.into_bytes() }).unwrap();
                w.unlink(&v, dir, &old).unwrap();
            } else {
                rename(&mut w, &v, dir, (&old, &new));
            }
        }
        w.sync(&v).unwrap();
        let took = waves(&v) - before;
        assert!(took <= 60, "links {links}: {took} waves");
        let longer = w.attr(&v, dir).size;
        assert!(longer <= 2 * bytes + 2048, "links {links}: {bytes} bytes are {longer}");
        // What was left is taken again: a block has fifty names of this length.
        for n in 0..(longer - bytes) / 1024 * 45 {
            w.file(&v, dir, &format!("more-{n:05}"));
        }
        assert!(w.attr(&v, dir).size <= longer, "links {links}: it grows beside its free places");
        w.close_and_judge(v, "names that have all changed");
    }
}

/// Where a directory cannot grow, names take the places of old ones after all.
#[test]
fn names_change_on_a_full_volume() {
    let mut w = World::mke2fs(8 << 20, &["-t", "ext2", "-b", "1024", "-m", "0"]);
    let v = w.open(Mode::SoftUpdates);
    let dir = full_directory(&mut w, &v);
    let rest = w.file(&v, ROOT, "rest");
    let (mut at, data) = (0, pattern(3, 64 << 10));
    for len in [64 << 10, 1024] {
        while let Ok(n) = w.write(&v, rest, at, &data[..len]) {
            at += u64::from(n);
        }
        w.sync(&v).unwrap();
    }
    assert_eq!(w.free_blocks(&v), 0);
    for round in 0..3 {
        for n in 0..NAMES {
            let (old, new) = (format!("{round:04}-{n:05}"), format!("{:04}-{n:05}", round + 1));
            let old = if round == 0 { format!("name-{n:05}") } else { old };
            rename(&mut w, &v, dir, (&old, &new));
        }
    }
    w.close_and_judge(v, "names that changed on a full volume");
}
