//! Access lists and modes, which say the same twice; and what a cut of a file leaves of it.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::{ROOT, Vol, World, pattern};
use mechanisms::Mode;
use vfs::{FsError, Kind, MakeKind, Request, SetAttr, XattrMode};

/// Owner rw, user 1000 rw, group r, mask rw, others nothing, as programs hand it over.
fn list() -> Vec<u8> {
    let none = u32::MAX;
    let entries = [(1, 6, none), (2, 6, 1000), (4, 4, none), (16, 6, none), (32, 0, none)];
    let one = |(tag, perm, id): (u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    2u32.to_le_bytes().into_iter().chain(entries.into_iter().flat_map(one)).collect()
}

fn chmod(w: &mut World, v: &Vol, ino: u32, mode: u32) -> Result<(), FsError> {
    let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
    w.call(v, Request::SetAttr { ino, set }).map(drop)
}

#[test]
fn a_mode_for_whose_list_there_is_no_room_stays() {
    for mode in [Mode::Sync, Mode::SoftUpdates] {
        let mut w = World::mke2fs(8 << 20, &["-t", "ext2", "-I", "128", "-m", "0"]);
        let v = w.open(mode);
        let f = w.file(&v, ROOT, "f");
        chmod(&mut w, &v, f, 0o640).unwrap();
        let (name, either) = (b"system.posix_acl_access".to_vec(), XattrMode::Either);
        let set = Request::SetXattr { ino: f, name, value: list(), mode: either, kill_sgid: false };
        w.call(&v, set).unwrap();
        assert_eq!(w.attr(&v, f).mode & 0o777, 0o660, "the group's bits are the mask");
        let rest = w.file(&v, ROOT, "rest");
        let chunk = pattern(3, 64 << 10);
        let mut at = 0;
        while let Ok(n) = w.write(&v, rest, at, &chunk) {
            at += u64::from(n);
        }
        w.sync(&v).unwrap();
        while let Ok(n) = w.write(&v, rest, at, &chunk[..1024]) {
            at += u64::from(n);
        }
        assert_eq!(w.free_blocks(&v), 0);
        assert_eq!(chmod(&mut w, &v, f, 0o600), Err(FsError::NoSpace), "mode {mode}");
        assert_eq!(w.attr(&v, f).mode & 0o777, 0o660, "mode {mode}: the list says so still");
        w.unlink(&v, ROOT, "rest").unwrap();
        w.sync(&v).unwrap();
        chmod(&mut w, &v, f, 0o600).unwrap();
        assert_eq!(w.attr(&v, f).mode & 0o777, 0o600);
        w.close_and_judge(v, &format!("mode {mode}, a list that follows"));
    }
}

/// A device's number lies where a file's map begins. One that could not be made after all gives
/// back no block of that number.
#[test]
fn a_device_that_gets_no_list_frees_no_block() {
    for mode in [Mode::Sync, Mode::SoftUpdates] {
        let args = ["-t", "ext2", "-b", "1024", "-I", "128", "-m", "0"];
        let mut w = World::mke2fs(8 << 20, &args);
        let v = w.open(mode);
        let d = w.dir(&v, ROOT, "d");
        let (name, either) = (b"system.posix_acl_default".to_vec(), XattrMode::Either);
        let value = list();
        let set = Request::SetXattr { ino: d, name, value, mode: either, kill_sgid: false };
        w.call(&v, set).unwrap();
        let rest = w.file(&v, ROOT, "rest");
        let chunk = pattern(3, 64 << 10);
        let mut at = 0;
        for len in [chunk.len(), 1024] {
            while let Ok(n) = w.write(&v, rest, at, &chunk[..len]) {
                at += u64::from(n);
            }
            w.sync(&v).unwrap();
        }
        assert_eq!(w.free_blocks(&v), 0);
        let (kind, attr) = (MakeKind::Special(Kind::Block, (8, 0)), SetAttr::default());
        let (dir, name) = (d, b"sda".to_vec());
        let make = Request::Make { dir, name, kind, attr, fail_if_exists: true, umask: 0 };
        assert_eq!(w.call(&v, make).map(drop), Err(FsError::NoSpace), "mode {mode}");
        assert_eq!(w.free_blocks(&v), 0, "mode {mode}: block 0x800 is the file's");
        w.close_and_judge(v, &format!("mode {mode}, a device that was not made"));
    }
}

/// What a returned cut has taken away does not come back, whatever the file's length is set to.
#[test]
fn the_rest_of_the_last_block_is_zero_on_the_disk_when_a_cut_returns() {
    let mut w = World::mke2fs(8 << 20, &["-t", "ext2", "-b", "4096"]);
    let v = w.open(Mode::Sync);
    let f = w.file(&v, ROOT, "f");
    w.write(&v, f, 0, &[0xaa; 4096]).unwrap();
    w.sync(&v).unwrap();
    let at = w.blocks(&v, f, 1)[0] * 4096;
    assert_eq!(w.bytes(at, 4096), [0xaa; 4096]);
    w.resize(&v, f, 100).unwrap();
    assert_eq!(w.bytes(at, 100), [0xaa; 100]);
    assert!(w.bytes(at + 100, 3996).iter().all(|b| *b == 0), "the zeros are in memory alone");
    w.write(&v, f, 50, &[0xbb; 200]).unwrap();
    w.resize(&v, f, 60).unwrap();
    w.resize(&v, f, 4096).unwrap();
    assert!(w.bytes(at + 60, 4036).iter().all(|b| *b == 0), "zeros over what was delayed");
    w.close_and_judge(v, "a file cut and lengthened");
}
