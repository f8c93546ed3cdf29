//! A volume in a bucket, mounted for reading by one process while others write it: what is written
//! is seen within the bound, each call sees one moment, what was removed while it was open shows
//! nobody else's bytes, and a follower that stood still tells nothing old. It goes on when the
//! writer is killed and another takes over. Needs FUSE; without, the tests are skipped with a line.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod served;

use rustix::process::Signal;
use served::{Folder, MountPoint, Server, cairn, ok, s};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// As the option says, and what a machine that has much to do may need beside it.
const WITHIN: Duration = Duration::from_secs(2);
const SLACK: Duration = Duration::from_secs(20);

/// A folder to mount on beside the first.
fn mount_point(folder: &Folder, name: &str) -> MountPoint {
    let at = folder.0.join(name);
    std::fs::create_dir(&at).unwrap();
    MountPoint(at)
}

fn url_in(folder: &Folder) -> String {
    let url = format!("file://{}/bucket", folder.0.display());
    ok(&["mkfs", &url, "--size", "256M"]);
    url
}

/// Follows the volume, mounted here.
fn follower(url: &str, at: &MountPoint, log: PathBuf) -> Server {
    let mut command = Command::new(served::CAIRN);
    command.args(["mount", url]).arg(&at.0);
    command.args(["--read-only", "--follow", "--follow-within", "2"]);
    Server::launch(command, &log)
}

/// Writes the volume, mounted here, when nobody else does.
fn writer(url: &str, at: &Path, log: PathBuf) -> Server {
    let mut command = Command::new(served::CAIRN);
    command.args(["serve", "--standby", url, "--no-nfs", "--takeover-after", "1", "--mount"]);
    command.arg(at);
    Server::launch(command, &log)
}

/// Asks until it is so.
fn until(follower: &Server, what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < WITHIN + SLACK, "{what}: {}", follower.errors());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn what_others_write_is_seen_in_time() {
    let folder = Folder::new();
    let Some(at) = MountPoint::new(&folder) else { return };
    let url = url_in(&folder);
    let put = |name: &str, value: u8| {
        let local = folder.0.join(name);
        std::fs::write(&local, [value; 10_000]).unwrap();
        ok(&["put", &url, s(&local), "/"]);
    };
    put("one", 1);
    assert_ne!(cairn(&["mount", &url, s(&at.0), "--follow"]).0, 0, "not without --read-only");
    let server = follower(&url, &at, folder.0.join("log"));
    assert_eq!(std::fs::read(at.file("one")).unwrap(), [1; 10_000]);
    assert!(std::fs::write(at.file("mine"), b"no").is_err());
    let open = File::open(at.file("one")).unwrap();
    ok(&["rm", &url, "/one"]);
    put("two", 2);
    until(&server, "two", || std::fs::read(at.file("two")).is_ok_and(|two| two == [2; 10_000]));
    assert!(!at.file("one").exists());
    let mut into = [0; 100];
    assert!(open.read_at(&mut into, 0).is_err(), "it was removed, and another may be in its place");
    // A follower that stands still for longer than the bound tells nothing old when it goes on.
    server.halt();
    put("three", 3);
    std::thread::sleep(WITHIN + Duration::from_secs(1));
    server.signal(Signal::CONT);
    until(&server, "three", || match std::fs::read(at.file("three")) {
        Ok(three) => three == [3; 10_000],
        Err(e) => {
            assert_ne!(e.kind(), ErrorKind::NotFound, "what is old is not told");
            false
        }
    });
    drop(open);
    server.stop();
}

/// A bucket that cannot be looked at: errors come instead of old answers, and end with it.
#[test]
fn who_cannot_look_gives_errors() {
    let folder = Folder::new();
    let Some(at) = MountPoint::new(&folder) else { return };
    let url = url_in(&folder);
    let local = folder.0.join("one");
    std::fs::write(&local, [1; 10_000]).unwrap();
    ok(&["put", &url, s(&local), "/"]);
    let server = follower(&url, &at, folder.0.join("log"));
    assert_eq!(std::fs::read(at.file("one")).unwrap(), [1; 10_000]);
    let (log, away) = (folder.0.join("bucket/log"), folder.0.join("away"));
    std::fs::rename(&log, &away).unwrap();
    std::fs::write(&log, b"no folder").unwrap();
    std::thread::sleep(WITHIN + Duration::from_secs(1));
    let told = std::fs::read(at.file("one")).map(|one| one.len());
    assert!(told.is_err(), "{told:?} is older than the bound: {}", server.errors());
    std::fs::remove_file(&log).unwrap();
    std::fs::rename(&away, &log).unwrap();
    // It has paused before it asks again, the longer the more often it has failed.
    let begun = Instant::now();
    while !std::fs::read(at.file("one")).is_ok_and(|one| one == [1; 10_000]) {
        assert!(begun.elapsed() < Duration::from_secs(30), "{}", server.errors());
        std::thread::sleep(Duration::from_millis(50));
    }
    server.stop();
}

/// Blocks of the file that is written again and again, each with the round's number all over.
const BYTES: usize = 64 << 10;

fn round_of(block: &[u8]) -> u64 {
    let word = |w: &[u8]| u64::from_le_bytes(w.try_into().unwrap());
    let first = word(&block[..8]);
    let mixed = block.chunks_exact(8).position(|w| word(w) != first);
    assert_eq!(mixed, None, "round {first} and another in one answer");
    first
}

/// Writes rounds for a while, and holds the follower to its bound all the time. Returns the last.
fn rounds(to: &Path, from: &Path, first: u64, last: u64, follower: &Server) {
    let file = File::options().write(true).create(true).truncate(false).open(to).unwrap();
    let mut acknowledged: Vec<(Instant, u64)> = Vec::new();
    let mut seen = first.saturating_sub(1);
    for n in first..=last {
        file.write_all_at(&n.to_le_bytes().repeat(BYTES / 8), 0).unwrap();
        file.sync_all().unwrap();
        acknowledged.push((Instant::now(), n));
        std::thread::sleep(Duration::from_millis(15));
        let asked = Instant::now();
        let mut into = vec![0; BYTES];
        let Ok(read) = File::open(from).and_then(|f| f.read_at(&mut into, 0)) else { continue };
        if read < BYTES {
            assert_eq!((read, seen), (0, 0), "a part of a round");
            continue;
        }
        let now = round_of(&into);
        assert!(now >= seen, "round {now} after {seen}: back in time");
        let due = acknowledged.iter().rev().find(|(at, _)| asked.duration_since(*at) > WITHIN);
        assert!(due.is_none_or(|(_, n)| now >= *n), "round {now} is too old: {due:?}");
        seen = now;
    }
    until(follower, "the last round", || {
        let mut into = vec![0; BYTES];
        let read = File::open(from).and_then(|f| f.read_at(&mut into, 0));
        read.is_ok_and(|n| n == BYTES) && round_of(&into) == last
    });
}

/// The writer is killed, another takes over, and the follower follows that one.
#[test]
fn it_goes_on_with_the_next_writer() {
    let folder = Folder::new();
    let Some(at) = MountPoint::new(&folder) else { return };
    let url = url_in(&folder);
    let (one, two) = (mount_point(&folder, "one"), mount_point(&folder, "two"));
    let first = writer(&url, &one.0, folder.0.join("log-1"));
    let reader = follower(&url, &at, folder.0.join("log-f"));
    rounds(&one.file("f"), &at.file("f"), 1, 120, &reader);
    first.signal(Signal::KILL);
    let second = writer(&url, &two.0, folder.0.join("log-2"));
    let mut kept = vec![0; BYTES];
    File::open(two.file("f")).unwrap().read_exact_at(&mut kept, 0).unwrap();
    assert_eq!(round_of(&kept), 120, "what was acknowledged is there");
    rounds(&two.file("f"), &at.file("f"), 121, 240, &reader);
    drop(first);
    one.free();
    second.stop();
    reader.stop();
}
