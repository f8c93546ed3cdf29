//! The kernel's write-back cache, where it is asked for: that writes do not wait for the server,
//! and that times, sizes, appends, truncation, holes, fsync, close and a clean end are what they
//! are without; and that modes which promise something of returned writes refuse it. Needs FUSE;
//! without it, each test is skipped with a line.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod served;

use rustix::process::Signal;
use served::{Folder, MountPoint, Server, s};
use std::fs::{File, FileTimes, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, SystemTime};

/// Longer than a write takes that nobody waits for.
const A_WHILE: Duration = Duration::from_secs(2);

fn mounted(image: &Path, at: &MountPoint, mode: &str) -> Server {
    Server::mounted(image, at, &["--mode", mode, "--writeback-cache", "on"])
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

/// Does a write wait for a server that has been stopped?
fn writes_wait(server: &Server, path: &Path) -> bool {
    let file = open(path);
    file.write_all_at(&[1; 4096], 0).unwrap();
    file.sync_all().unwrap();
    server.halt();
    let (tell, told) = mpsc::channel();
    let writer = std::thread::spawn(move || {
        file.write_all_at(&[2; 4096], 0).unwrap();
        let _ = tell.send(());
    });
    let waits = told.recv_timeout(A_WHILE).is_err();
    server.signal(Signal::CONT);
    writer.join().unwrap();
    waits
}

#[test]
fn writes_wait_unless_the_cache_is_asked_for() {
    let folder = Folder::new();
    let Some(at) = MountPoint::new(&folder) else { return };
    let image = folder.plain_volume("v", "32M");
    for (more, waits) in [
        (&["--mode", "async", "--writeback-cache", "on"][..], false),
        (&["--mode", "sync", "--writeback-cache", "on"], false),
        // Not proven, not used.
        (&["--mode", "async"], true),
        (&["--mode", "ordered", "--writeback-cache", "auto"], true),
        (&["--mode", "unified"], true),
    ] {
        let server = Server::mounted(&image, &at, more);
        assert_eq!(writes_wait(&server, &at.file("f")), waits, "{more:?}");
        server.stop();
    }
}

#[test]
fn what_promises_the_order_of_writes_refuses_the_cache() {
    let folder = Folder::new();
    let Some(at) = MountPoint::new(&folder) else { return };
    let image = folder.volume("v", "32M");
    let cache = ["--writeback-cache", "on"];
    for mode in ["unified", "redo", "ordered", "writeback", "data", "wasteless", "selective"] {
        let args = [&["mount", s(&image), s(&at.0), "--mode", mode], &cache[..]].concat();
        let (code, out, err) = served::cairn(&args);
        assert_eq!((code, err.lines().count()), (2, 1), "{mode}: {out}{err}");
        assert!(err.contains("--writeback-cache") && err.contains(mode), "{err}");
    }
    let image = folder.plain_volume("p", "32M");
    let nfs = ["--mode", "sync", "--nfs", served::ANY, "--mount", s(&at.0)];
    let (code, _, err) = served::cairn(&[&["serve", s(&image)], &nfs[..], &cache].concat());
    assert_eq!(code, 2, "{err}");
}

#[test]
fn contents_times_and_sizes_are_those_of_the_calls() {
    let folder = Folder::new();
    let Some(at) = MountPoint::new(&folder) else { return };
    let image = folder.volume("v", "32M");
    let server = mounted(&image, &at, "async");
    let path = at.file("f");
    let file = open(&path);
    let before = SystemTime::now() - Duration::from_secs(1);
    file.write_all_at(&[b'a'; 10_000], 5_000).unwrap();
    let found = std::fs::metadata(&path).unwrap();
    assert_eq!(found.len(), 15_000);
    let modified = found.modified().unwrap();
    assert!(modified >= before && modified <= SystemTime::now());
    // Appends of two who do not know of each other.
    let append = || OpenOptions::new().append(true).open(&path).unwrap();
    let (mut one, mut other) = (append(), append());
    one.write_all(b"one").unwrap();
    other.write_all(b"other").unwrap();
    // Cut within what is held back, and let grow again: zeros, no old bytes.
    let cut = open(&at.file("cut"));
    cut.write_all_at(&[b'x'; 9_000], 0).unwrap();
    cut.set_len(4_500).unwrap();
    cut.set_len(8_000).unwrap();
    cut.write_all_at(b"y", 8_999).unwrap();
    let mut want_cut = vec![0; 9_000];
    want_cut[..4_500].fill(b'x');
    want_cut[8_999] = b'y';
    assert_eq!(std::fs::read(at.file("cut")).unwrap(), want_cut);
    // A time that was set stays, although contents from before are sent only later.
    let dated = open(&at.file("dated"));
    dated.write_all_at(b"from before", 0).unwrap();
    let then = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    dated.set_times(FileTimes::new().set_modified(then)).unwrap();
    // Who looks for data finds what is held back.
    let sparse = open(&at.file("sparse"));
    sparse.write_all_at(b"data", 1 << 20).unwrap();
    // SAFETY: numbers only.
    let data = unsafe { libc::lseek(sparse.as_raw_fd(), 1 << 20, libc::SEEK_DATA) };
    assert_eq!(data, 1 << 20);
    let times = |n: &str| {
        let m = std::fs::metadata(at.file(n)).unwrap();
        (m.len(), m.modified().unwrap(), m.ctime(), m.ctime_nsec())
    };
    let names = ["f", "cut", "dated", "sparse"];
    assert_eq!(times("dated").1, then);
    drop((file, one, other, cut, dated, sparse));
    let known: Vec<_> = names.iter().map(|n| times(n)).collect();
    server.stop();
    served::ok(&["fsck", s(&image)]);
    let server = Server::mounted(&image, &at, &["--mode", "async"]);
    assert_eq!(names.iter().map(|n| times(n)).collect::<Vec<_>>(), known);
    let mut want = vec![0; 5_000];
    want.extend([b'a'; 10_000]);
    want.extend(b"oneother");
    assert_eq!(std::fs::read(&path).unwrap(), want);
    assert_eq!(std::fs::read(at.file("cut")).unwrap(), want_cut);
    let sparse = std::fs::read(at.file("sparse")).unwrap();
    assert_eq!((sparse.len(), &sparse[1 << 20..]), ((1 << 20) + 4, &b"data"[..]));
    server.stop();
}

#[test]
fn fsync_keeps_what_was_held_back() {
    let folder = Folder::new();
    let Some(at) = MountPoint::new(&folder) else { return };
    for mode in ["sync", "async"] {
        let image = folder.volume_for(mode, mode, "32M");
        let server = mounted(&image, &at, mode);
        let file = open(&at.file("f"));
        for n in 0..50u64 {
            file.write_all_at(&[n as u8; 3_000], n * 3_000).unwrap();
        }
        file.sync_data().unwrap();
        server.kill();
        drop(file);
        at.free();
        let (code, out, err) = served::cairn(&["fsck", "--repair", s(&image)]);
        assert!(matches!(code, 0 | 4), "{mode}: {out}{err}");
        let server = mounted(&image, &at, mode);
        let found = std::fs::read(at.file("f")).unwrap();
        assert_eq!(found.len(), 150_000, "{mode}");
        assert!(found.chunks(3_000).enumerate().all(|(n, c)| c.iter().all(|b| *b == n as u8)));
        server.stop();
    }
}

#[test]
fn a_clean_end_keeps_what_was_held_back_whoever_has_it_open() {
    let folder = Folder::new();
    let Some(at) = MountPoint::new(&folder) else { return };
    let image = folder.volume("v", "32M");
    for name in ["closed", "open"] {
        let server = mounted(&image, &at, "async");
        let file = open(&at.file(name));
        file.write_all_at(&[7; 100_000], 0).unwrap();
        let kept = (name == "open").then_some(file);
        server.stop();
        drop(kept);
        at.free();
        let server = Server::mounted(&image, &at, &["--mode", "async"]);
        assert_eq!(std::fs::read(at.file(name)).unwrap(), [7; 100_000], "{name}");
        server.stop();
        served::ok(&["fsck", s(&image)]);
    }
}
