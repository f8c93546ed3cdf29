//! Volumes of very many groups: the descriptors come when they are wanted and go again, little is
//! in memory, and blocks have numbers of more than 32 bits, where what points at them has room for
//! that.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::{ROOT, Vol, World, pattern, recipe};
use mechanisms::Mode;
use std::collections::BTreeSet;
use vfs::{FsError, MakeKind, Reply, Request, XattrMode};

/// Blocks of 4 KiB: 2^32 of them are 16 TiB.
const BYTES: u64 = 17 << 40;
const DIRS: u64 = 150;
/// Two kinds of places for descriptors: in the groups that they describe, and together.
const KINDS: [&str; 2] =
    ["64bit,meta_bg,^resize_inode,^has_journal", "64bit,sparse_super2,^resize_inode,^has_journal"];

fn huge(kind: &str) -> World {
    let mut w = World::mke2fs(BYTES, &["-t", "ext4", "-b", "4096", "-O", kind]);
    w.cache_bytes = 1 << 20;
    w
}

fn attribute(w: &mut World, v: &Vol, ino: u32) -> Result<(), FsError> {
    let (name, value) = (b"user.long".to_vec(), pattern(u64::from(ino), 2000));
    let mode = XattrMode::Either;
    w.call(v, Request::SetXattr { ino, name, value, mode, kill_sgid: false }).map(drop)
}

/// Directories in as many groups as chance gives, each with a file, a symbolic link and attributes.
fn fill(w: &mut World, v: &Vol) -> BTreeSet<u32> {
    let mut groups = BTreeSet::new();
    for n in 0..DIRS {
        let d = w.dir(v, ROOT, &format!("d{n}"));
        groups.insert(v.group_of(d));
        let f = w.file(v, d, "file");
        w.write(v, f, 0, &pattern(n, 30_000)).unwrap();
        attribute(w, v, f).unwrap();
        let link = w.make(v, d, "link", MakeKind::Symlink(vec![b'x'; 100])).unwrap();
        let at = w.blocks(v, link, 1)[0];
        assert!(at < 1 << 32, "a link's map is of 32 bits, and leads to block {at}");
    }
    groups
}

#[test]
fn blocks_beyond_2_to_the_32_are_written_read_and_freed() {
    for kind in KINDS {
        let mut w = huge(kind);
        let v = w.open(Mode::Async);
        let free = w.free_blocks(&v);
        let groups = fill(&mut w, &v);
        assert!(groups.len() > 100, "{kind}: only {} groups are used", groups.len());
        let (mut beyond, mut files) = (0, Vec::new());
        for n in 0..DIRS {
            let d = w.lookup(&v, ROOT, &format!("d{n}"));
            let f = w.lookup(&v, d, "file");
            let all = w.blocks(&v, f, 8);
            assert!(all.iter().all(|b| v.group_of_block(*b) == v.group_of(d)), "{kind}: {all:?}");
            beyond += u64::from(all[0] >> 32 != 0);
            files.push((n, d, f));
        }
        assert!(beyond > 2, "{kind}: {beyond} files lie beyond block 2^32");
        let (in_memory, _) = v.ext.cache().counts();
        assert!(in_memory < 1000, "{kind}: {in_memory} blocks in memory, of 2176 of descriptors");
        w.close(v);

        let v = w.open(Mode::Async);
        for (n, d, f) in files {
            assert_eq!(w.read(&v, f, 0, 40_000).unwrap(), pattern(n, 30_000), "{kind}");
            let name = b"user.long".to_vec();
            let got = w.call(&v, Request::GetXattr { ino: f, name }).unwrap();
            assert!(matches!(got, Reply::Bytes(b) if b == pattern(u64::from(f), 2000)), "{kind}");
            w.unlink(&v, d, "file").unwrap();
            w.unlink(&v, d, "link").unwrap();
            let name = format!("d{n}").into_bytes();
            w.call(&v, Request::Rmdir { dir: ROOT, name }).unwrap();
        }
        w.sync(&v).unwrap();
        assert!(w.free_blocks(&v).abs_diff(free) < 8, "{kind}: all but the root's are free again");
        w.close_and_judge(v, kind);
    }
}

/// What memory has learnt of a group and forgotten it learns again: the counts stay right.
#[test]
fn descriptors_that_have_left_memory_come_back_as_they_were() {
    let mut w = huge(KINDS[0]);
    w.cache_bytes = 64 * 4096;
    let v = w.open(Mode::Sync);
    let mut rng = env::Rng::new(5);
    let dirs: Vec<u32> = (0..60).map(|n| w.dir(&v, ROOT, &format!("d{n}"))).collect();
    for n in 0..600u64 {
        let d = dirs[rng.below(60) as usize];
        let name = format!("f{}", rng.below(4));
        let made = w.make(&v, d, &name, MakeKind::File { exclusive: None });
        match made {
            Ok(f) => drop(w.write(&v, f, 0, &pattern(n, 9000)).unwrap()),
            Err(_) => w.unlink(&v, d, &name).unwrap(),
        }
        if n % 50 == 49 {
            w.sync(&v).unwrap();
        }
        let (in_memory, dirty) = v.ext.cache().counts();
        // What unlinks release behind their answers is in memory for a while, too: over 3,000
        // rounds it levels off at some 130.
        assert!(in_memory < 150 + dirty, "{in_memory} blocks in memory, {dirty} of them dirty");
    }
    w.close_and_judge(v, "descriptors that come and go");
}

/// Where descriptors lie in 2,176 places opening does not wait for them: who reads is answered
/// meanwhile, who changes something is when all are known.
#[test]
fn reads_go_on_beside_the_survey_and_changes_wait_for_it() {
    let mut w = huge(KINDS[0]);
    let v = w.load(|cache| mechanisms::build(Mode::Async, &recipe(cache)).unwrap()).unwrap();
    assert!(!v.ext.is_surveyed(), "opening has waited for the survey");
    assert_eq!(w.attr(&v, ROOT).nlink, 3);
    assert!(!v.ext.is_surveyed(), "a read has waited for the survey");
    let d = w.dir(&v, ROOT, "d");
    let f = w.file(&v, d, "file");
    w.write(&v, f, 0, &pattern(1, 30_000)).unwrap();
    assert!(v.ext.is_surveyed(), "a change has not waited for the survey");
    let free = w.free_blocks(&v);
    assert!(free > 4 << 30, "only {free} blocks are free when a change is made");
    w.close_and_judge(v, "a change beside the survey");

    // Who closes it at once has its counts right, too.
    let v = w.open(Mode::Async);
    w.close_and_judge(v, "closing beside the survey");
}

/// Damage that the survey finds behind the opening turns the volume read-only.
#[test]
fn damage_in_a_late_descriptor_keeps_changes_away() {
    let mut w = huge(KINDS[0]);
    let sb = w.superblock();
    let geo = format::ext::Geometry::of(&sb);
    let last = geo.desc_place(format::GroupNo(geo.groups - 1));
    // The place of its block bitmap, and with that its sum.
    w.sim.disk.write(last.0.0 * 4096 + last.1 as u64, &[0xff; 4]);
    let v = w.open(Mode::Async);
    assert_eq!(w.attr(&v, ROOT).nlink, 3, "what can be read is read");
    let made = w.make(&v, ROOT, "d", MakeKind::Dir);
    assert_eq!(made, Err(FsError::ReadOnly), "nothing is changed on a damaged volume");
    assert!(v.ext.is_damaged());
    assert_eq!(w.attr(&v, ROOT).nlink, 3);
}
