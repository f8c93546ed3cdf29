//! Snapshots of volumes in a bucket, from the command line: of a volume that nobody uses, of one
//! that is mounted, taken over, followed and cleaned meanwhile. What needs FUSE is skipped without,
//! with a line.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod served;

use served::{Folder, MountPoint, Server, cairn, ok, s};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

fn volume(folder: &Folder) -> String {
    let url = format!("file://{}/bucket", folder.0.display());
    ok(&["mkfs", &url, "--size", "256M"]);
    url
}

fn names(url: &str) -> Vec<String> {
    let all: serde_json::Value =
        serde_json::from_str(&ok(&["snapshot", "list", url, "--json"])).unwrap();
    let all = all.as_array().unwrap().iter();
    all.map(|one| one["name"].as_str().unwrap().to_owned()).collect()
}

fn refused(args: &[&str], words: &str) {
    let (code, out, err) = cairn(args);
    assert!(code != 0 && err.contains(words), "{args:?}: {out}{err}");
}

fn stat(url: &str) -> serde_json::Value {
    serde_json::from_str(&ok(&["lfs", "stat", url, "--json"])).unwrap()
}

#[test]
fn of_a_volume_that_nobody_uses() {
    let folder = Folder::new();
    let url = volume(&folder);
    let v = url.as_str();
    let local = folder.0.join("data");
    let put = |round: u8| {
        std::fs::write(&local, vec![round; 3_000_000]).unwrap();
        let _ = cairn(&["rm", v, "/data"]);
        ok(&["put", v, s(&local), "/"]);
    };
    put(1);
    let (a, b) = (format!("{v}@a"), format!("{v}@b"));
    assert_eq!(ok(&["snapshot", "create", &a]).trim(), a);
    refused(&["snapshot", "create", &a], "already");
    put(2);
    ok(&["mkdir", v, "/later"]);
    ok(&["snapshot", "create", &b]);
    for round in 3..9 {
        put(round);
    }
    ok(&["lfs", "clean", v]);
    assert_eq!(names(v), ["a", "b"]);
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
    refused(&["ls", &format!("{v}@c"), "/"], "there is no snapshot c; there are: a, b");
    refused(&["mkfs", &a, "--size", "256M"], "snapshot's name");
    ok(&["snapshot", "delete", &a]);
    refused(&["snapshot", "delete", &a], "no snapshot");
    assert_eq!(names(v), ["b"]);
    ok(&["get", &b, "/data", s(&folder.0.join("again"))]);
    let before = stat(v)["blocks"].as_u64().unwrap();
    ok(&["snapshot", "delete", &b]);
    let stat = stat(v);
    assert_eq!(stat["snapshot_blocks"], 0, "{stat}");
    assert!(stat["blocks"].as_u64().unwrap() < before, "its objects are deleted: {stat}");
    assert_eq!(stat["wrong"].as_array().unwrap().len(), 0, "{stat}");
}

fn launch(args: &[&str], at: &Path, log: &str, folder: &Folder) -> Server {
    let mut command = Command::new(served::CAIRN);
    command.args(args).arg(at);
    Server::launch(command, &folder.0.join(log))
}

fn mount_point(folder: &Folder, name: &str) -> MountPoint {
    let at = folder.0.join(name);
    std::fs::create_dir(&at).unwrap();
    MountPoint(at)
}

/// A snapshot is made by the server that has the volume, and mounted while that one goes on; it is
/// killed, another takes over, overwrites everything and cleans; a follower shows the volume as it
/// is, and the snapshot stays as it was.
#[test]
fn of_a_volume_in_use_and_taken_over() {
    let folder = Folder::new();
    let Some(mnt) = MountPoint::new(&folder) else { return };
    let url = volume(&folder);
    let v = url.as_str();
    let serve = ["serve", "--standby", v, "--no-nfs", "--takeover-after", "1", "--mount"];
    let server = launch(&serve, &mnt.0, "first", &folder);
    for n in 0..40 {
        std::fs::write(mnt.file(&format!("f{n}")), vec![n; 20_000]).unwrap();
    }
    let a = format!("{v}@a");
    ok(&["snapshot", "create", &a]);
    refused(&["snapshot", "create", &a], "already");
    let shown = mount_point(&folder, "shown");
    let snapshot = launch(&["snapshot", "mount", &a], &shown.0, "snapshot", &folder);
    let as_it_was = |when: &str| {
        for n in 0..40 {
            let file = std::fs::read(shown.file(&format!("f{n}")));
            assert!(file.is_ok_and(|f| f == vec![n; 20_000]), "{when}: f{n}");
        }
    };
    as_it_was("at once");
    let followed = mount_point(&folder, "followed");
    let follow = ["mount", v, "--read-only", "--follow", "--follow-within", "2"];
    let follower = launch(&follow, &followed.0, "follower", &folder);
    let overwrite = |at: &MountPoint, round: u8| {
        for n in 0..40 {
            std::fs::write(at.file(&format!("f{n}")), vec![100 + round; 30_000]).unwrap();
        }
    };
    overwrite(&mnt, 0);
    assert_eq!(names(v), ["a"]);
    as_it_was("while it is written");
    drop(server); // killed
    mnt.free();
    let other = mount_point(&folder, "other");
    let server = launch(&serve, &other.0, "second", &folder);
    for round in 1..5 {
        overwrite(&other, round);
        ok(&["snapshot", "create", &format!("{v}@b{round}")]);
    }
    ok(&["snapshot", "delete", &format!("{v}@b2")]);
    server.stop();
    ok(&["lfs", "clean", v]);
    as_it_was("when its objects were cleaned");
    assert_eq!(names(v), ["a", "b1", "b3", "b4"]);
    // It follows within two seconds, on a quiet machine.
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let last = std::fs::read(followed.file("f7"));
        if last.as_ref().is_ok_and(|f| *f == vec![104; 30_000]) {
            break;
        }
        let got = last.map(|f| (f.len(), f.first().copied()));
        assert!(Instant::now() < end, "{got:?} {}", follower.errors());
        std::thread::sleep(Duration::from_millis(100));
    }
    snapshot.stop();
    follower.stop();
    for name in ["a", "b1", "b3", "b4"] {
        ok(&["fsck", &format!("{v}@{name}")]);
        ok(&["snapshot", "delete", &format!("{v}@{name}")]);
    }
    assert_eq!(stat(v)["snapshot_blocks"], 0);
    ok(&["fsck", v]);
}

/// Another machine, which cannot see the server: it has no socket there.
fn from_elsewhere(args: &[&str]) -> Option<(bool, String)> {
    let hide = "mount -t tmpfs none /run && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", hide, "sh", served::CAIRN]).args(args);
    let out = command.output().ok()?;
    let told = [out.stdout, out.stderr].concat();
    Some((out.status.success(), String::from_utf8_lossy(&told).into_owned()))
}

#[test]
fn made_and_deleted_from_another_machine() {
    if !served::is_root() {
        return;
    }
    let folder = Folder::new();
    let url = volume(&folder);
    let v = url.as_str();
    let mut command = Command::new(served::CAIRN);
    command.args(["-v", "serve", v, "--nfs", served::ANY]);
    let server = Server::launch(command, &folder.0.join("server"));
    let a = format!("{v}@a");
    let Some((done, told)) = from_elsewhere(&["snapshot", "create", &a]) else {
        println!("skipped: no unshare");
        return;
    };
    assert!(done && told.trim() == a, "{told}: {}", server.errors());
    assert!(server.errors().contains("asked by another machine"), "{}", server.errors());
    let (done, told) = from_elsewhere(&["snapshot", "create", &a]).unwrap();
    assert!(!done && told.contains("already"), "{told}");
    assert_eq!(names(v), ["a"]);
    let (done, told) = from_elsewhere(&["snapshot", "delete", &a]).unwrap();
    assert!(done, "{told}");
    assert!(names(v).is_empty());
    server.stop();
    // Nobody writes it: it is done at once, here.
    let (done, told) = from_elsewhere(&["snapshot", "create", &a]).unwrap();
    assert!(done, "{told}");
    assert_eq!(names(v), ["a"]);
}
