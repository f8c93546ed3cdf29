//! Values of attributes in inodes of their own (`ea_inode`): set, replaced, removed, freed with
//! their files, and judged by e2fsck and the own check.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::{ROOT, Vol, World, pattern};
use check::{IoError, ReadBlocks};
use env::{DiskId, Rng};
use format::Ino;
use mechanisms::Mode;
use sim::Fault;
use std::collections::BTreeMap;
use ufs::store::{Attributes, Inodes};
use vfs::{FsError, Reply, Request, SetAttr, XattrMode};

const KINDS: &[&[&str]] = &[
    &["-b", "1024", "-O", "ea_inode"],
    &["-b", "4096", "-O", "ea_inode"],
    &["-b", "1024", "-O", "ea_inode,inline_data,metadata_csum_seed"],
    &["-b", "2048", "-I", "512", "-O", "ea_inode,^metadata_csum"],
    &["-b", "1024", "-I", "128", "-O", "ea_inode,^metadata_csum,uninit_bg"],
    &["-b", "1024", "-O", "ea_inode,^extent,^64bit"],
];

struct Disk<'a>(&'a World);

impl ReadBlocks for Disk<'_> {
    fn size_bytes(&self) -> u64 {
        self.0.sim.disk.size()
    }
    fn read_at(&self, at: u64, into: &mut [u8]) -> Result<(), IoError> {
        self.0.sim.disk.read(at, into);
        Ok(())
    }
}

/// What the own check finds, and what it would write where.
fn checked(w: &World) -> (Vec<String>, Vec<(u64, Vec<u8>)>) {
    let options = check::Options { now_secs: 1_800_000_000, verify: true, mark_clean: true };
    let report = check::check(&Disk(w), &options, &mut ()).unwrap();
    assert!(report.left.is_empty(), "after the repair: {:?}", report.left);
    let plan = report.plan.stages().concat();
    let plan = plan.into_iter().map(|(at, bytes)| (at, bytes.to_vec()));
    (report.findings.iter().map(ToString::to_string).collect(), plan.collect())
}

fn judge(w: &mut World, v: Vol, what: &str) -> Vol {
    w.close_and_judge(v, what);
    assert_eq!(checked(w).0, [""; 0], "{what}");
    w.open(Mode::Async)
}

fn set(w: &mut World, v: &Vol, ino: u32, name: &str, value: &[u8]) -> Result<(), FsError> {
    let (name, value) = (name.as_bytes().to_vec(), value.to_vec());
    let mode = XattrMode::Either;
    w.call(v, Request::SetXattr { ino, name, value, mode, kill_sgid: false }).map(drop)
}

fn get(w: &mut World, v: &Vol, ino: u32, name: &str) -> Result<Vec<u8>, FsError> {
    match w.call(v, Request::GetXattr { ino, name: name.as_bytes().to_vec() })? {
        Reply::Bytes(value) => Ok(value),
        other => panic!("{other:?}"),
    }
}

fn free(w: &mut World, v: &Vol) -> (u64, u64) {
    match w.call(v, Request::StatFs).unwrap() {
        Reply::StatFs(s) => (s.free, s.inodes_free),
        other => panic!("{other:?}"),
    }
}

#[test]
fn values_of_any_length_are_set_replaced_removed_and_freed() {
    for (seed, kind) in (1..).zip(KINDS) {
        let args = [&["-t", "ext4"], *kind].concat();
        let (mut w, mut rng) = (World::mke2fs(32 << 20, &args), Rng::new(seed));
        let mut v = w.open(Mode::Async);
        let mut model: BTreeMap<(u64, u64), Vec<u8>> = BTreeMap::new();
        let files: Vec<u32> = (0..4).map(|n| w.file(&v, ROOT, &format!("f{n}"))).collect();
        let (blocks, inodes) = free(&mut w, &v);
        for n in 0..120 {
            let (f, name) = (rng.below(4), rng.below(6));
            let (ino, full) = (files[f as usize], format!("user.name{name}"));
            if rng.one_in(4) {
                let removed = w.call(&v, Request::RemoveXattr { ino, name: full.into() });
                let known = model.remove(&(f, name)).ok_or(FsError::NoData);
                assert_eq!(removed.map(drop), known.map(drop), "{kind:?}");
            } else {
                let most = [40, 300, 1200, 5000, 65_536][rng.below(5) as usize];
                let value = pattern(n, 1 + rng.below(most) as usize);
                set(&mut w, &v, ino, &full, &value).unwrap();
                model.insert((f, name), value);
            }
            if n % 12 == 11 {
                v = judge(&mut w, v, &format!("{kind:?}, act {n}"));
                for ((f, name), value) in &model {
                    let ino = w.lookup(&v, ROOT, &format!("f{f}"));
                    let got = get(&mut w, &v, ino, &format!("user.name{name}"));
                    assert!(got.as_ref() == Ok(value), "{kind:?}: name{name} of f{f}");
                }
            }
        }
        (0..4).for_each(|n| w.unlink(&v, ROOT, &format!("f{n}")).unwrap());
        let v = judge(&mut w, v, &format!("{kind:?}: all removed"));
        assert_eq!(free(&mut w, &v), (blocks, inodes + 4), "{kind:?}");
    }
}

/// Nobody reaches a value by its number.
#[test]
fn a_values_inode_is_no_file() {
    let mut w = World::mke2fs(32 << 20, &["-t", "ext4", "-b", "1024", "-O", "ea_inode"]);
    let v = w.open(Mode::Async);
    let f = w.file(&v, ROOT, "f");
    set(&mut w, &v, f, "user.long", &pattern(1, 9000)).unwrap();
    let at = w.call(&v, Request::GetAttr { ino: f + 1 });
    assert_eq!(at.unwrap_err(), FsError::Stale);
}

/// On a full volume a value is refused, and nothing of it is left; what is there can be removed.
#[test]
fn there_is_no_room_for_a_value() {
    let mut w = World::mke2fs(4 << 20, &["-t", "ext4", "-b", "1024", "-O", "ea_inode"]);
    let v = w.open(Mode::Async);
    let (f, full) = (w.file(&v, ROOT, "f"), w.file(&v, ROOT, "full"));
    set(&mut w, &v, f, "user.old", &pattern(2, 20_000)).unwrap();
    let mut at = 0;
    while w.write(&v, full, at, &pattern(at, 1024)).is_ok() {
        at += 1024;
    }
    w.resize(&v, full, at - 8 * 1024).unwrap();
    let before = free(&mut w, &v);
    let refused = set(&mut w, &v, f, "user.new", &pattern(3, 30_000));
    assert_eq!(refused.unwrap_err(), FsError::NoSpace);
    assert_eq!(free(&mut w, &v), before);
    let v = judge(&mut w, v, "refused");
    let f = w.lookup(&v, ROOT, "f");
    assert!(get(&mut w, &v, f, "user.old") == Ok(pattern(2, 20_000)));
    w.unlink(&v, ROOT, "f").unwrap();
    judge(&mut w, v, "removed from a full volume");
}

/// The own check finds what is wrong with values, and its repair satisfies e2fsck.
#[test]
fn the_check_knows_values() {
    let args = ["-t", "ext4", "-b", "1024", "-O", "ea_inode,^metadata_csum"];
    let spoil: [(&str, &str); 4] = [
        ("sif <13> version 7", "counts 7"),
        ("clri <12>", "is nowhere"),           // nobody names the value
        ("sif <13> atime @4660", "damaged"),   // another hash
        ("sif <13> flags 0x80000", "damaged"), // no value at all
    ];
    for (command, finding) in spoil {
        let mut w = World::mke2fs(32 << 20, &args);
        let v = w.open(Mode::Async);
        let f = w.file(&v, ROOT, "f");
        // Two in the block, one of them elsewhere.
        set(&mut w, &v, f, "user.short", &pattern(1, 500)).unwrap();
        set(&mut w, &v, f, "user.long", &pattern(1, 9000)).unwrap();
        let v = judge(&mut w, v, "sound");
        w.close(v);
        w.debugfs(&[command]);
        let (found, plan) = checked(&w);
        assert!(found.iter().any(|f| f.contains(finding)), "{command}: {found:?}");
        let (code, text) = w.e2fsck(&["-fn"]);
        assert_ne!(code, 0, "{command}: {text}");
        plan.iter().for_each(|(at, bytes)| w.sim.disk.write(*at, bytes));
        w.judge(command);
    }
}

/// Of two values that go elsewhere at once there may be room for the first alone: nothing is left.
#[test]
fn a_full_volume_in_the_middle() {
    let args = ["-t", "ext4", "-b", "1024", "-I", "128", "-O", "ea_inode,^metadata_csum"];
    let mut w = World::mke2fs(4 << 20, &args);
    let mut v = w.open(Mode::Async);
    let (f, full) = (w.file(&v, ROOT, "f"), w.file(&v, ROOT, "full"));
    set(&mut w, &v, f, "user.old", &pattern(2, 950)).unwrap();
    let mut at = 0;
    while w.write(&v, full, at, &pattern(at, 1024)).is_ok() {
        at += 1024;
    }
    let mut refused = 0;
    loop {
        let before = free(&mut w, &v);
        match set(&mut w, &v, f, "user.new", &pattern(3, 3000)) {
            Ok(()) => break,
            Err(e) => assert_eq!(e, FsError::NoSpace),
        }
        assert_eq!(free(&mut w, &v), before, "with {} free blocks", before.0);
        v = judge(&mut w, v, &format!("refused with {} free blocks", before.0));
        assert!(get(&mut w, &v, f, "user.old") == Ok(pattern(2, 950)));
        at -= 1024;
        w.resize(&v, full, at).unwrap();
        refused += 1;
    }
    assert!(refused > 4, "it was refused in the middle: {refused}");
    assert!(get(&mut w, &v, f, "user.new") == Ok(pattern(3, 3000)));
    judge(&mut w, v, "with room");
}

/// Where the entry of this attribute, whose value is an inode's contents, names that.
fn entry_of(w: &World, name: &[u8], ino: u32) -> u64 {
    let start = w.bytes(0, 4 << 20);
    let mut all = (16..start.len() - 4).step_by(4);
    let is_it =
        |at: &usize| &start[*at..*at + 4] == name && start[*at - 12..*at - 8] == ino.to_le_bytes();
    all.find(is_it).unwrap() as u64 - 12
}

/// What no program writes is an error to who asks for it, and repaired as e2fsck would have it.
#[test]
fn values_that_are_none() {
    let args = ["-t", "ext4", "-b", "1024", "-O", "ea_inode,^metadata_csum"];
    let commands = [
        "sif <13> mode 040600",
        "sif <13> mode 0120777",
        "sif <13> version 0",
        "sif <13> links_count 0",
        "sif <13> atime @4660",
        "sif <13> flags 0x80000",
        "sif <13> flags 0x200000",
        "sif <13> size 70000",
        "sif <13> size 8999",
        "clri <13>",
        "own", // the inode itself
        "to 2",
        "to 8",
        "to 11",
        "to 12",
        "to 14",
        "to 4294967295",
    ];
    for (command, removes) in commands.into_iter().flat_map(|c| [(c, false), (c, true)]) {
        let mut w = World::mke2fs(32 << 20, &args);
        let (f, name) = spoilt(&mut w, command);
        let v = w.open(Mode::Async);
        let asked = match removes {
            true => w.call(&v, Request::RemoveXattr { ino: f, name: name.into() }).map(drop),
            false => get(&mut w, &v, f, name).map(drop),
        };
        match asked {
            Err(e) => assert_eq!(e, FsError::Corrupt, "{command}"),
            // Nobody reads the count, and nobody the contents of what goes.
            Ok(()) => assert!(removes || command.ends_with("version 0"), "{command}"),
        }
        // What was removed is still in memory.
        let (found, plan) = checked(&w);
        assert!(!found.is_empty(), "{command}");
        plan.iter().for_each(|(at, bytes)| w.sim.disk.write(*at, bytes));
        w.judge(command);
    }
}

/// Makes a volume with a file that has a long value, and spoils that.
fn spoilt(w: &mut World, command: &str) -> (u32, &'static str) {
    let v = w.open(Mode::Async);
    let (f, name) = (w.file(&v, ROOT, "f"), "user.long");
    set(w, &v, f, "user.short", &pattern(1, 500)).unwrap();
    set(w, &v, f, name, &pattern(1, 9000)).unwrap();
    w.close(v);
    let to = if command == "own" { Some(f) } else { None };
    match to.or(command.strip_prefix("to ").map(|n| n.parse().unwrap())) {
        None => w.debugfs(&[command]),
        Some(ino) => {
            let at = entry_of(w, b"long", f + 1);
            w.sim.disk.write(at, &u32::to_le_bytes(ino));
        }
    }
    (f, name)
}

/// X3: who leaves a block of attributes that others have, as Linux makes them, takes himself away
/// and nothing else.
#[test]
fn a_shared_block_of_attributes_has_a_user_fewer() {
    let mut w = World::mke2fs(16 << 20, &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"]);
    let v = w.open(Mode::Async);
    let (f, g) = (w.file(&v, ROOT, "f"), w.file(&v, ROOT, "g"));
    let set = |w: &mut World, v: &Vol, ino: u32, len: usize| {
        let (name, mode) = (b"user.long".to_vec(), XattrMode::Either);
        let value = pattern(9, len);
        w.call(v, Request::SetXattr { ino, name, value, mode, kill_sgid: false }).unwrap();
    };
    let get = |w: &mut World, v: &Vol, ino: u32| {
        let name = b"user.long".to_vec();
        let Reply::Bytes(b) = w.call(v, Request::GetXattr { ino, name }).unwrap() else { panic!() };
        b
    };
    set(&mut w, &v, f, 600);
    let handle = {
        let ext = v.ext.clone();
        w.run(|_| async move { ext.inode(Ino(f)).await }).unwrap()
    };
    let block = v.ext.xattr_pointer(&handle);
    drop(handle);
    w.close(v);
    w.debugfs(&[&format!("set_inode_field /g file_acl {block}"), "set_inode_field /g blocks 2"]);
    w.sim.disk.write(block.0 * 1024 + 4, &2u32.to_le_bytes());
    w.judge("two share a block");
    let v = w.open(Mode::Async);
    assert_eq!(get(&mut w, &v, g), pattern(9, 600));
    set(&mut w, &v, g, 500);
    assert_eq!((get(&mut w, &v, f), get(&mut w, &v, g)), (pattern(9, 600), pattern(9, 500)));
    w.unlink(&v, ROOT, "f").unwrap();
    w.close_and_judge(v, "each has its own, and one has gone");
}

/// A short symlink with a long attribute: e2fsck goes by the blocks that the inode counts.
#[test]
fn the_text_of_a_symlink_is_not_taken_for_blocks() {
    for kind in KINDS {
        let mut w = World::mke2fs(32 << 20, &[&["-t", "ext4"], *kind].concat());
        let mut v = w.open(Mode::Async);
        for (n, len) in (0..).zip([1, 4, 5, 30, 59]) {
            let text = vec![b'a'; len];
            let s = w.make(&v, ROOT, &format!("s{n}"), vfs::MakeKind::Symlink(text)).unwrap();
            set(&mut w, &v, s, "security.short", &pattern(1, 20)).unwrap();
            set(&mut w, &v, s, "security.long", &pattern(1, 5000)).unwrap();
            v = judge(&mut w, v, &format!("{kind:?}: a link of {len} bytes"));
            assert_eq!(get(&mut w, &v, s, "security.short").unwrap(), pattern(1, 20));
            assert_eq!(get(&mut w, &v, s, "security.long").unwrap(), pattern(1, 5000));
        }
    }
}

/// An access or default list for so many users.
fn list_for(users: u32) -> Vec<u8> {
    let entry = |tag: u16, id: u32| {
        [&tag.to_le_bytes()[..], &7u16.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let mut all = 2u32.to_le_bytes().to_vec();
    all.extend(entry(1, u32::MAX));
    (0..users).for_each(|n| all.extend(entry(2, 1000 + n)));
    [4, 16, 32].iter().for_each(|tag| all.extend(entry(*tag, u32::MAX)));
    all
}

/// Lists that no block has room for are given to what is made in a directory, and follow its mode.
#[test]
fn long_lists_are_inherited_and_follow_the_mode() {
    for kind in KINDS {
        let mut w = World::mke2fs(32 << 20, &[&["-t", "ext4"], *kind].concat());
        let v = w.open(Mode::Async);
        let (d, users) = (w.dir(&v, ROOT, "d"), 700);
        set(&mut w, &v, d, "system.posix_acl_default", &list_for(users)).unwrap();
        let v = judge(&mut w, v, "a directory with a long list");
        let made = [w.dir(&v, d, "sub"), w.file(&v, d, "file")];
        for ino in made {
            let list = get(&mut w, &v, ino, "system.posix_acl_access").unwrap();
            assert_eq!(list.len(), list_for(users).len());
            let set = SetAttr { mode: Some(0o750), ..SetAttr::default() };
            w.call(&v, Request::SetAttr { ino, set }).unwrap();
            assert_eq!(w.attr(&v, ino).mode & 0o777, 0o750);
            let list = get(&mut w, &v, ino, "system.posix_acl_access").unwrap();
            assert_eq!(list[list.len() - 14], 5, "its mask");
        }
        let v = judge(&mut w, v, "its files");
        let before = free(&mut w, &v);
        let name = b"sub".to_vec();
        w.call(&v, Request::Rmdir { dir: d, name }).unwrap();
        w.unlink(&v, d, "file").unwrap();
        assert!(free(&mut w, &v).1 >= before.1 + 5, "three values and two files");
        judge(&mut w, v, "they are gone");
    }
}

/// What a directory gets from the one above it goes into values; there is room for the first alone,
/// and the disk fails while that goes again.
#[test]
fn a_disk_that_fails_while_a_value_is_taken_back_is_an_error() {
    let args = ["-t", "ext4", "-b", "1024", "-m", "0", "-O", "ea_inode,^metadata_csum"];
    let mut failed = 0;
    for (free, after) in (3..9).flat_map(|free| (0..8).map(move |after| (free, after))) {
        let mut w = World::mke2fs(4 << 20, &args);
        let v = w.open(Mode::Sync);
        let d = w.dir(&v, ROOT, "d");
        set(&mut w, &v, d, "system.posix_acl_default", &list_for(240)).unwrap();
        let rest = w.file(&v, ROOT, "rest");
        let mut at = 0;
        while let Ok(n) = w.write(&v, rest, at, &pattern(3, 1024)) {
            at += u64::from(n);
        }
        w.resize(&v, rest, at - 1024 * free).unwrap();
        w.sync(&v).unwrap();
        let counts = w.sim.counts;
        w.sim.set_fault(Fault::Gone(DiskId(0), counts[1] + counts[2] + after));
        if w.make(&v, d, "sub", vfs::MakeKind::Dir).is_err() {
            failed += usize::from(w.sim.has_failed());
        }
    }
    assert!(failed > 10, "{failed} of them failed on the disk");
}
