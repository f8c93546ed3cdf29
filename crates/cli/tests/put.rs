//! `cairn put` in every mode: what is copied in is the same when it is copied out, also if the
//! volume takes less of a write than it was given.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test may")]

use std::path::Path;
use std::process::Command;

const CAIRN: &str = env!("CARGO_BIN_EXE_cairn");

fn cairn(args: &[&str]) -> String {
    let out = Command::new(CAIRN).args(args).output().unwrap();
    let text = |b: Vec<u8>| String::from_utf8_lossy(&b).into_owned();
    let (out, status) = (text(out.stdout) + &text(out.stderr), out.status);
    assert!(status.success(), "{args:?}: {out}");
    out
}

#[test]
fn a_file_larger_than_a_transaction_is_put_in_every_mode() {
    let folder = std::env::temp_dir().join(format!("cairn-put-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (file, back, image) = (path("file"), path("back"), path("v.img"));
    let bytes: Vec<u8> =
        (0..3_000_001u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(&file, &bytes).unwrap();
    let modes = cairn(&["crash", "--list-modes"]);
    assert!(modes.lines().count() > 5, "{modes}");
    for mode in modes.lines() {
        let _ = std::fs::remove_file(&image);
        if mode == "lfs" {
            cairn(&["mkfs", &image, "--size", "32M", "--profile", "lfs"]);
        } else {
            // Journals of 4 MiB.
            let profile = if ["sync", "soft-updates"].contains(&mode) { "ext3" } else { "ext4" };
            let of = ["--journal-size", "4M", "--profile", profile];
            cairn(&[&["mkfs", &image, "--size", "32M"], &of[..]].concat());
        }
        // `put` opens it in the mode last used.
        cairn(&["bench", "append", &image, "--mode", mode, "--count", "1"]);
        cairn(&["put", &image, &file, "/"]);
        cairn(&["get", &image, "/file", &back]);
        assert!(std::fs::read(Path::new(&back)).unwrap() == bytes, "{mode}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Access lists, attributes and times go in and come out again. A file that lost its access list
/// would have the list's mask as what its group may do.
#[test]
fn attributes_and_access_lists_are_carried_over() {
    use rustix::fs::{XattrFlags, getxattr, setxattr};
    let folder = std::env::temp_dir().join(format!("cairn-put-lists-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("from/in")).unwrap();
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (file, back, image) = (path("from/in/file"), path("back"), path("v.img"));
    std::fs::write(&file, b"secret").unwrap();
    // user::rw, user:9:rw, group::---, mask::rw, other::---
    let one = |(tag, perm, id): (u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let all = [(1, 6, u32::MAX), (2, 6, 9), (4, 0, u32::MAX), (16, 6, u32::MAX), (32, 0, u32::MAX)];
    let list: Vec<u8> =
        2u32.to_le_bytes().into_iter().chain(all.into_iter().flat_map(one)).collect();
    let attributes = [("system.posix_acl_access", &list[..]), ("user.colour", b"blue")];
    let (access, default) = (attributes[0].0, "system.posix_acl_default");
    for (name, value) in attributes {
        if setxattr(&file, name, value, XattrFlags::empty()).is_err() {
            eprintln!("SKIPPED: this file system keeps no {name}");
            return;
        }
    }
    setxattr(path("from/in"), default, &list, XattrFlags::empty()).unwrap();
    let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_007);
    std::fs::File::options().write(true).open(&file).unwrap().set_modified(at).unwrap();
    cairn(&["mkfs", &image, "--size", "32M"]);
    cairn(&["put", &image, &path("from"), "/"]);
    let listed = cairn(&["ls", &image, "/from/in"]);
    assert!(listed.contains("-rw-rw----"), "the mask, with the list: {listed}");
    cairn(&["get", &image, "/from/in/file", &back]);
    for (name, value) in attributes {
        let mut has = [0; 100];
        let len = getxattr(&back, name, &mut has[..]).unwrap();
        assert_eq!(&has[..len], value, "{name}");
    }
    let meta = std::fs::metadata(&back).unwrap();
    assert_eq!(meta.modified().unwrap(), at);
    // A file that is put beside it has a list only if it brings one.
    let other = path("from/in/other");
    std::fs::write(&other, b"plain").unwrap();
    let _ = rustix::fs::removexattr(&other, access);
    cairn(&["rm", &image, "-r", "/from"]);
    cairn(&["put", &image, &path("from"), "/"]);
    let new = path("new");
    cairn(&["get", &image, "/from/in/other", &new]);
    assert!(getxattr(&new, access, &mut [0; 100][..]).is_err(), "a list that it never had");
    std::fs::remove_dir_all(&folder).unwrap();
}
