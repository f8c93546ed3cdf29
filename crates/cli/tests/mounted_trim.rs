//! `fstrim` and `--discard` through a mount: the host gets back what files held that are gone, and
//! nothing else. Needs FUSE and root; without, the test is skipped with a line.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod served;

use served::{Folder, MountPoint, Server, is_root};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

fn held(image: &Path) -> u64 {
    std::fs::metadata(image).unwrap().blocks() * 512
}

/// Trims all of it; what `fstrim` says.
fn trimmed(at: &MountPoint) -> String {
    let out = Command::new("fstrim").arg("-v").arg(at.file("")).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{said}{}", String::from_utf8_lossy(&out.stderr));
    said
}

/// Tries until it goes well, for half a minute.
fn until(what: &str, mut tried: impl FnMut() -> Result<(), String>) {
    let end = Instant::now() + Duration::from_secs(30);
    while let Err(why) = tried() {
        assert!(Instant::now() < end, "{what}: {why}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn sync(at: &Path) {
    assert!(Command::new("sync").arg("-f").arg(at).status().unwrap().success());
}

/// A volume with 24 MiB that stay and 24 MiB that go.
fn filled(at: &MountPoint) -> Vec<u8> {
    let bytes: Vec<u8> = (0..24 * MIB).map(|n| (n % 251) as u8).collect();
    std::fs::write(at.file("stays"), &bytes).unwrap();
    std::fs::write(at.file("goes"), &bytes).unwrap();
    std::fs::File::open(at.file("goes")).unwrap().sync_all().unwrap();
    sync(&at.file(""));
    bytes
}

#[test]
fn the_host_gets_back_what_is_free() {
    for mode in ["unified", "ordered", "sync", "soft-updates"] {
        let folder = Folder::new();
        let Some(at) = MountPoint::new(&folder).filter(|_| is_root()) else { return };
        let image = folder.volume_for(mode, "v", "128M");
        let server = Server::mounted(&image, &at, &["--mode", mode]);
        let bytes = filled(&at);
        std::fs::remove_file(at.file("goes")).unwrap();
        let before = held(&image);
        // The kernel tells of closed files a while later, and some modes free behind the call.
        until(mode, || {
            let said = trimmed(&at);
            let now = held(&image);
            (now + 20 * MIB < before).then_some(()).ok_or(format!("{before}, then {now}: {said}"))
        });
        assert_eq!(std::fs::read(at.file("stays")).unwrap(), bytes, "{mode}");
        // What was trimmed is not trimmed again.
        until(mode, || {
            let said = trimmed(&at);
            said.contains("(0 bytes)").then_some(()).ok_or(said)
        });
        server.stop();
        let fsck = Command::new("e2fsck").arg("-fn").arg(&image).output().unwrap();
        assert!(fsck.status.success(), "{mode}: {}", String::from_utf8_lossy(&fsck.stdout));
    }
}

#[test]
fn what_is_freed_is_discarded_a_while_later() {
    let folder = Folder::new();
    let Some(at) = MountPoint::new(&folder).filter(|_| is_root()) else { return };
    let image = folder.volume("v", "128M");
    let server = Server::mounted(&image, &at, &["--discard"]);
    let bytes = filled(&at);
    let before = held(&image);
    std::fs::remove_file(at.file("goes")).unwrap();
    let end = Instant::now() + Duration::from_secs(90);
    while held(&image) + 20 * MIB > before {
        assert!(Instant::now() < end, "{before}, and still {}", held(&image));
        std::thread::sleep(Duration::from_millis(300));
    }
    assert_eq!(std::fs::read(at.file("stays")).unwrap(), bytes);
    server.stop();
}
