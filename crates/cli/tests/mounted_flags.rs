//! The flags of `chattr` and `lsattr`, through a mount: what is immutable, or only grows, is left
//! alone. Needs FUSE and root; without, the test is skipped with a line.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod served;

use served::{Folder, MountPoint, Server, is_root, ok, s};
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::Command;

fn chattr(flag: &str, path: &Path) {
    let out = Command::new("chattr").arg(flag).arg(path).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

fn lsattr(path: &Path) -> String {
    let out = Command::new("lsattr").arg("-d").arg(path).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let line = String::from_utf8(out.stdout).unwrap();
    line.split_whitespace().next().unwrap().to_owned()
}

fn is_refused<T>(done: std::io::Result<T>) {
    let e = done.err().expect("it is refused");
    assert_eq!(e.kind(), ErrorKind::PermissionDenied, "{e}");
}

/// `lsattr -v` names the generation that the volume has for the file.
fn is_numbered(file: &Path, image: &Path, server: Server) {
    let out = Command::new("lsattr").arg("-v").arg(file).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let line = String::from_utf8(out.stdout).unwrap();
    let number = line.split_whitespace().next().unwrap();
    server.stop();
    let inode = Command::new("debugfs").args(["-R", "stat f"]).arg(image).output().unwrap();
    let inode = String::from_utf8(inode.stdout).unwrap();
    let stated = inode.split_once("Generation: ").unwrap().1.split_whitespace().next();
    assert_eq!(stated, Some(number), "{inode}");
}

#[test]
fn what_is_immutable_or_only_grows_is_left_alone() {
    let folder = Folder::new();
    let Some(at) = MountPoint::new(&folder).filter(|_| is_root()) else { return };
    let image = folder.volume("v", "32M");
    let server = Server::mounted(&image, &at, &[]);
    let (file, other) = (at.file("f"), at.file("g"));
    std::fs::write(&file, b"old").unwrap();

    chattr("+i", &file);
    assert!(lsattr(&file).contains('i'), "{}", lsattr(&file));
    let mut open = OpenOptions::new().append(true).open(&file).unwrap();
    is_refused(open.write_all(b"more"));
    is_refused(std::fs::remove_file(&file));
    is_refused(std::fs::rename(&file, &other));
    is_refused(std::fs::hard_link(&file, &other));
    is_refused(OpenOptions::new().write(true).open(&file).unwrap().set_len(0));
    chattr("-i", &file);

    chattr("+ad", &file);
    open.write_all(b" and more").unwrap();
    is_refused(OpenOptions::new().write(true).open(&file).unwrap().set_len(0));
    is_refused(OpenOptions::new().write(true).open(&file).unwrap().write_all(b"new"));
    is_refused(std::fs::remove_file(&file));
    is_refused(open.set_modified(std::time::UNIX_EPOCH)); // a time that is told, and not now
    let touched = Command::new("touch").arg(&file).status().unwrap();
    assert!(touched.success(), "the present time is nobody's lie");
    assert_eq!(std::fs::read(&file).unwrap(), b"old and more");
    chattr("-a", &file);

    let dir = at.file("d");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("in"), b"x").unwrap();
    chattr("+i", &dir);
    is_refused(std::fs::write(dir.join("new"), b"x"));
    is_refused(std::fs::remove_file(dir.join("in")));
    chattr("-i", &dir);
    std::fs::remove_dir_all(&dir).unwrap();
    is_numbered(&file, &image, server);
}

/// A kernel that holds back what is appended sends whole pages, and the times after them.
#[test]
fn what_only_grows_is_appended_to_through_the_kernels_cache() {
    let folder = Folder::new();
    let Some(at) = MountPoint::new(&folder).filter(|_| is_root()) else { return };
    let image = folder.plain_volume("v", "32M");
    let server = Server::mounted(&image, &at, &["--mode", "async", "--writeback-cache", "on"]);
    let file = at.file("log");
    std::fs::write(&file, b"").unwrap();
    chattr("+a", &file);
    for _ in 0..3 {
        let mut open = OpenOptions::new().append(true).open(&file).unwrap();
        open.write_all(b"a line\n").unwrap();
        open.sync_all().unwrap();
    }
    let mut open = OpenOptions::new().write(true).open(&file).unwrap();
    open.write_all(b"another").unwrap();
    is_refused(open.sync_all());
    drop(open);
    chattr("-a", &file);
    server.stop();
    assert_eq!(ok(&["cat", s(&image), "/log"]), "a line\n".repeat(3));
}
