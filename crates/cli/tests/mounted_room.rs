//! A sparse image on a file system of the host that is full: who waits for something to become
//! durable waits for room, and when there is some all goes on, without a restart and with nothing
//! lost. Needs FUSE and root; without, the test is skipped with a line.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod served;

use served::{CAIRN, Folder, MountPoint, Server, cairn, is_root, ok, s};
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// A small file system of the host, which goes with the test.
struct Small(PathBuf);

impl Small {
    fn new(folder: &Folder) -> Small {
        let at = folder.0.join("host");
        std::fs::create_dir(&at).unwrap();
        let how = ["-t", "tmpfs", "-o", "size=24m", "tmpfs"];
        assert!(Command::new("mount").args(how).arg(&at).status().unwrap().success());
        Small(at)
    }
}
impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_host_is_waited_for_and_nothing_is_lost() {
    let folder = Folder::new();
    let Some(at) = MountPoint::new(&folder).filter(|_| is_root()) else { return };
    let host = Small::new(&folder);
    for mode in ["unified", "ordered", "sync", "soft-updates", "lfs"] {
        let (image, ballast) = (host.0.join("v.img"), host.0.join("ballast"));
        let profile = if mode == "lfs" { "lfs" } else { "ext3" };
        ok(&["mkfs", s(&image), "--size", "64M", "--profile", profile]);
        let mut command = Command::new(CAIRN);
        command.arg("serve").arg(&image).args(["--no-nfs", "--mode", mode, "--mount"]).arg(&at.0);
        let server = Server::launch(command, &folder.0.join(mode));
        // Room for some 8 MiB, where 12 are written.
        let used = 24 * 1024 - 8 * 1024 - blocks_kib(&image);
        std::fs::write(&ballast, vec![1; used * 1024]).unwrap();
        let name = at.file("f");
        let writer = std::thread::spawn(move || {
            let mut file = File::create(name)?;
            (0..12).try_for_each(|n| file.write_all(&vec![n + 1; 1 << 20]))?;
            file.sync_all()
        });
        let begun = Instant::now();
        while !server.errors().contains("no space left on the medium") {
            let waits = !writer.is_finished() && begun.elapsed() < Duration::from_secs(30);
            assert!(waits, "{mode}: {}", server.errors());
            std::thread::sleep(Duration::from_millis(50));
        }
        std::thread::sleep(Duration::from_secs(1));
        assert!(!writer.is_finished(), "{mode}: {:?} {}", writer.join(), server.errors());
        std::fs::remove_file(&ballast).unwrap();
        let synced = writer.join().unwrap();
        assert!(synced.is_ok(), "{mode}: {synced:?} {}", server.errors());
        std::fs::write(at.file("after"), "it goes on").unwrap();
        server.kill(); // what was synced is safe
        at.free();
        ok(&["recover", s(&image)]);
        let bytes = ok(&["cat", s(&image), "/f"]).into_bytes();
        assert_eq!(bytes.len(), 12 << 20, "{mode}");
        assert!(bytes.iter().enumerate().all(|(i, b)| *b == (i >> 20) as u8 + 1), "{mode}");
        // What a killed server of mode soft-updates has leaked, its next one gives back.
        let (code, out, err) = cairn(&["fsck", "--repair", s(&image)]);
        let fine = code == 0 || code == 4 && mode == "soft-updates";
        assert!(fine || mode == "lfs" && code == 1, "{mode}: {code} {out}{err}");
        std::fs::remove_file(&image).unwrap();
    }
}

#[test]
fn a_thin_image_shrinks_when_files_are_removed_and_nothing_more_is_written() {
    let folder = Folder::new();
    let Some(at) = MountPoint::new(&folder).filter(|_| is_root()) else { return };
    let image = folder.0.join("thin.img");
    let sizes = ["--size", "4G", "--store-size", "128M"];
    ok(&[&["mkfs", s(&image), "--profile", "lfs"][..], &sizes].concat());
    let server = Server::mounted(&image, &at, &[]);
    let name = at.file("f");
    std::fs::write(&name, vec![7; 40 << 20]).unwrap();
    File::open(&name).unwrap().sync_all().unwrap();
    std::fs::write(at.file("kept"), vec![8; 1 << 20]).unwrap();
    File::open(at.file("kept")).unwrap().sync_all().unwrap();
    let full = blocks_kib(&image);
    assert!(full > 40 << 10, "{full} KiB");
    std::fs::remove_file(&name).unwrap();
    let mut left = full;
    for _ in 0..150 {
        left = blocks_kib(&image);
        if left < full - (38 << 10) {
            break;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(left < full - (38 << 10), "{full} KiB, and then {left}: {}", server.errors());
    // It comes to rest, and the volume is as it was.
    let begun = Instant::now();
    let rests = || {
        let written = || std::fs::metadata(&image).unwrap().modified().unwrap();
        let before = written();
        std::thread::sleep(Duration::from_secs(5));
        written() == before
    };
    while !rests() {
        assert!(begun.elapsed() < Duration::from_secs(60), "something is written for ever");
    }
    server.stop();
    ok(&["fsck", s(&image)]);
    assert_eq!(ok(&["cat", s(&image), "/kept"]).into_bytes(), vec![8; 1 << 20]);
}

fn blocks_kib(image: &std::path::Path) -> usize {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(image).unwrap().blocks() as usize / 2
}
