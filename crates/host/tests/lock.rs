//! The lock on an image: who has it keeps it whatever else is opened and closed of the same file,
//! and everybody else is told who that is. Another process is one that only opens files.

#![allow(clippy::unwrap_used, reason = "a test may")]

use host::HostFile;
use std::fs::File;
use std::path::{Path, PathBuf};

fn image(name: &str) -> PathBuf {
    let at = std::env::temp_dir().join(format!("cairn-lock-{}-{name}", std::process::id()));
    let _ = std::fs::remove_file(&at);
    HostFile::create(&at, 1 << 20).unwrap();
    at
}

/// What a process that opens the image for writing is told.
fn told(path: &Path) -> String {
    HostFile::open(path, false).err().unwrap_or_default()
}

#[test]
fn a_second_opener_is_told_who_has_it() {
    let path = image("second");
    let first = HostFile::open(&path, false).unwrap();
    // This process is both.
    let me = "named twice";
    assert!(told(&path).contains(me), "{}", told(&path));
    // As a look at the file through another descriptor leaves it.
    drop(File::open(&path).unwrap());
    assert!(told(&path).contains(me), "{}", told(&path));
    assert!(HostFile::open(&path, true).is_err());
    drop(first);
    assert_eq!(told(&path), "");
    std::fs::remove_file(path).unwrap();
}

#[test]
fn readers_share_it() {
    let path = image("readers");
    let all = [HostFile::open(&path, true).unwrap(), HostFile::open(&path, true).unwrap()];
    assert!(told(&path).contains("named twice"));
    drop(all);
    assert_eq!(told(&path), "");
    std::fs::remove_file(path).unwrap();
}

/// As /proc/locks has it, for other processes: the probe for writes past the page cache opens the
/// image once more, and may close it again. (errors.sh has two servers and such a device.)
#[test]
fn the_lock_outlives_other_descriptors() {
    let path = image("probe");
    let first = HostFile::open(&path, false).unwrap();
    first.write_past_cache();
    drop(std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap());
    let locks = std::fs::read_to_string("/proc/locks").unwrap();
    use std::os::unix::fs::MetadataExt;
    let ino = format!(":{} ", std::fs::metadata(&path).unwrap().ino());
    assert!(locks.lines().any(|l| l.contains("OFDLCK") && l.contains(&ino)), "{locks}");
    drop(first);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_log_behind_anothers_link_is_not_opened() {
    use std::os::unix::fs::{lchown, symlink};
    let folder = std::env::temp_dir().join(format!("cairn-links-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = |name: &str| folder.join(name);
    std::fs::write(path("log"), [1; 4096]).unwrap();
    symlink("log", path("mine")).unwrap();
    symlink(path("mine"), path("mine-too")).unwrap();
    symlink("loop", path("loop")).unwrap();
    for name in ["log", "mine", "mine-too"] {
        HostFile::open_log(&path(name), false).unwrap();
    }
    assert!(HostFile::open_log(&path("loop"), false).is_err());
    if lchown(path("mine"), Some(1234), None).is_err() {
        println!("skipped: only root makes other users' links");
    } else {
        for name in ["mine", "mine-too"] {
            let why = HostFile::open_log(&path(name), false).unwrap_err();
            assert!(why.contains("symbolic link of another user"), "{why}");
        }
        HostFile::open_log(&path("log"), false).unwrap();
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
