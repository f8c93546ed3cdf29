//! Snapshots from the command line: of a volume that nobody uses and of one that is mounted; read,
//! exported, checked, mounted and deleted. What needs FUSE is skipped without, with a line.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod served;

use served::{Folder, MountPoint, Server, cairn, ok, s};
use std::path::{Path, PathBuf};
use std::process::Command;

fn volume(folder: &Folder) -> PathBuf {
    let image = folder.0.join("v.img");
    ok(&["mkfs", s(&image), "--size", "64M", "--profile", "lfs"]);
    image
}

fn at(image: &Path, name: &str) -> String {
    format!("{}@{name}", image.display())
}

fn names(image: &Path) -> Vec<String> {
    let all: serde_json::Value =
        serde_json::from_str(&ok(&["snapshot", "list", s(image), "--json"])).unwrap();
    let all = all.as_array().unwrap().iter();
    all.map(|one| one["name"].as_str().unwrap().to_owned()).collect()
}

fn refused(args: &[&str], words: &str) {
    let (code, out, err) = cairn(args);
    assert!(code != 0 && err.contains(words), "{args:?}: {out}{err}");
}

#[test]
fn of_a_volume_that_nobody_uses() {
    let folder = Folder::new();
    let image = volume(&folder);
    let v = s(&image);
    let local = folder.0.join("data");
    let put = |round: u8| {
        std::fs::write(&local, vec![round; 3_000_000]).unwrap();
        let _ = cairn(&["rm", v, "/data"]);
        ok(&["put", v, s(&local), "/"]);
    };
    put(1);
    let (a, b) = (at(&image, "a"), at(&image, "b"));
    assert_eq!(ok(&["snapshot", "create", &a]).trim(), a);
    refused(&["snapshot", "create", &a], "already");
    refused(&["snapshot", "create", &at(&image, "p1")], "p1");
    put(2);
    ok(&["mkdir", v, "/later"]);
    ok(&["snapshot", "create", &b]);
    for round in 3..9 {
        put(round);
    }
    ok(&["lfs", "clean", v]);
    assert_eq!(names(&image), ["a", "b"]);
    let back = folder.0.join("back");
    for (from, round) in [(a.as_str(), 1), (b.as_str(), 2), (v, 8)] {
        ok(&["get", from, "/data", s(&back)]);
        assert_eq!(std::fs::read(&back).unwrap(), vec![round; 3_000_000], "{from}");
        std::fs::remove_file(&back).unwrap();
        assert_eq!(ok(&["ls", from, "/"]).contains("later"), round > 1, "{from}");
        ok(&["fsck", from]);
        ok(&["info", from]);
    }
    assert!(ok(&["info", v]).contains("a b"));
    assert!(ok(&["lfs", "stat", v]).contains("snapshots    a, b"));
    let plain = folder.0.join("plain.img");
    ok(&["lfs", "export", &a, s(&plain)]);
    ok(&["get", s(&plain), "/data", s(&back)]);
    assert_eq!(std::fs::read(&back).unwrap(), vec![1; 3_000_000]);
    match Command::new("e2fsck").args(["-fn", s(&plain)]).output() {
        Ok(e) => assert!(e.status.success(), "{}", String::from_utf8_lossy(&e.stdout)),
        Err(_) => println!("skipped: no e2fsck"),
    }
    refused(&["mkdir", &a, "/new"], "can only be read");
    refused(&["ls", &at(&image, "c"), "/"], "there is no snapshot c; there are: a, b");
    ok(&["snapshot", "delete", &a]);
    refused(&["snapshot", "delete", &a], "no snapshot");
    assert_eq!(names(&image), ["b"]);
    ok(&["get", &b, "/data", s(&folder.0.join("again"))]);
    ok(&["snapshot", "delete", &b]);
    let stat: serde_json::Value = serde_json::from_str(&ok(&["lfs", "stat", v, "--json"])).unwrap();
    assert_eq!(stat["snapshot_blocks"], 0, "{stat}");
    assert_eq!(stat["wrong"].as_array().unwrap().len(), 0, "{stat}");
}

#[test]
fn a_plain_volume_has_none() {
    let folder = Folder::new();
    let image = folder.volume("plain.img", "16M");
    refused(&["snapshot", "create", &at(&image, "a")], "--profile lfs");
    refused(&["ls", &at(&image, "a"), "/"], "has no snapshots");
    // What is not there is not called sound.
    refused(&["fsck", &at(&image, "a")], "has no snapshots");
    refused(&["fsck", "--unless-clean", &at(&image, "a")], "has no snapshots");
    refused(&["check", &at(&image, "a")], "has no snapshots");
    refused(&["check", "--read", &at(&image, "a")], "has no snapshots");
}

/// What a mounted volume held when the snapshot was made is what the snapshot shows, in a mode that
/// writes groups and in one that knows nothing of the store.
#[test]
fn of_a_volume_in_use() {
    for mode in ["lfs", "sync"] {
        let folder = Folder::new();
        let Some(mnt) = MountPoint::new(&folder) else { return };
        let image = volume(&folder);
        let server = Server::mounted(&image, &mnt, &["--mode", mode]);
        for n in 0..40 {
            std::fs::write(mnt.file(&format!("f{n}")), vec![n; 20_000]).unwrap();
        }
        let (a, b) = (at(&image, "a"), at(&image, "b"));
        ok(&["snapshot", "create", &a]);
        refused(&["snapshot", "create", &a], "already");
        for n in 0..40 {
            let file = mnt.file(&format!("f{n}"));
            match n % 3 {
                0 => std::fs::remove_file(file).unwrap(),
                1 => std::fs::write(file, vec![100 + n; 30_000]).unwrap(),
                _ => (),
            }
        }
        ok(&["snapshot", "create", &b]);
        assert_eq!(names(&image), ["a", "b"]);
        ok(&["snapshot", "delete", &b]);
        refused(&["snapshot", "delete", &b], "no snapshot");
        assert_eq!(names(&image), ["a"]);
        server.stop();
        let mut command = Command::new(served::CAIRN);
        command.args(["snapshot", "mount", &a]).arg(&mnt.0);
        let server = Server::launch(command, &folder.0.join("log"));
        for n in 0..40 {
            let file = std::fs::read(mnt.file(&format!("f{n}"))).unwrap();
            assert!(file == vec![n; 20_000], "{mode}: f{n} is as it was");
        }
        assert!(std::fs::write(mnt.file("new"), b"no").is_err());
        server.stop();
        ok(&["fsck", &a]);
        ok(&["fsck", s(&image)]);
    }
}

#[test]
fn who_names_a_snapshot_gets_it_and_nothing_else() {
    let folder = Folder::new();
    let image = volume(&folder);
    let (v, local, plain) = (s(&image), folder.0.join("data"), folder.volume("p.img", "16M"));
    std::fs::write(&local, vec![1; 100_000]).unwrap();
    ok(&["put", v, s(&local), "/"]);
    let a = at(&image, "a");
    ok(&["snapshot", "create", &a]);
    ok(&["rm", v, "/data"]);
    let read = |of: &str| -> serde_json::Value {
        serde_json::from_str(&ok(&["check", "--read", "--json", of])).unwrap()
    };
    assert!(read(&a)["bytes"].as_u64() >= read(v)["bytes"].as_u64().map(|n| n + 100_000));
    // A copy would be one of the store, with the volume as it is now.
    let copy = folder.0.join("copy.img");
    refused(&["copy", &a, s(&copy)], "cairn lfs export");
    assert!(!copy.exists());
    // Nor is a file made that has the snapshot's name, and hides it.
    for args in [
        &["copy", s(&plain), &a][..],
        &["copy", s(&plain), &a, "--force"],
        &["mkfs", &a, "--size", "16M"],
        &["mkfs", &a, "--size", "16M", "--force"],
        &["lfs", "export", v, &a],
    ] {
        refused(args, "can only be read");
        assert!(!Path::new(&a).exists(), "{args:?}");
    }
    assert_eq!(ok(&["cat", &a, "/data"]).len(), 100_000);
}
