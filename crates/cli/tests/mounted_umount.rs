//! Unmounting: who has unmounted with our command finds the volume closed, and nobody gets at an
//! image by another way while it is served. Needs FUSE and root; without, the tests are skipped
//! with a line.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod served;

use served::{Folder, MountPoint, Server, cairn, is_root, ok, s};
use std::process::Command;

#[test]
fn a_volume_that_is_unmounted_by_us_is_closed() {
    let folder = Folder::new();
    let Some(at) = MountPoint::new(&folder) else { return };
    for mode in ["ordered", "data", "unified", "async"] {
        let image = folder.volume_for(mode, &format!("{mode}.img"), "128M");
        let server = Server::mounted(&image, &at, &["--mode", mode]);
        for n in 0..1500 {
            std::fs::write(at.file(&format!("f{n}")), vec![n as u8; 3000]).unwrap();
        }
        let busy = std::fs::File::open(at.file("f1")).unwrap();
        let (code, _, why) = cairn(&["umount", s(&at.0)]);
        assert!(code == 1 && why.contains("somebody uses it"), "{mode}: {code} {why}");
        drop(busy);
        ok(&["umount", s(&at.0)]);
        // Nobody who opens it now finds a log to replay or a server that writes.
        let judged = Command::new("/usr/sbin/e2fsck").arg("-fn").arg(&image).output().unwrap();
        let told = String::from_utf8_lossy(&judged.stdout).into_owned();
        assert!(judged.status.success() && !told.contains("recovering"), "{mode}: {told}");
        assert!(ok(&["ls", s(&image)]).contains("f1499"));
        server.stop();
    }
    let (code, _, why) = cairn(&["umount", s(&at.0)]);
    assert!(code == 1 && why.contains("no volume is mounted there"), "{code} {why}");
}

/// A loop device over the image, as somebody sets it up who wants to look at it.
#[test]
fn an_image_that_is_served_is_not_opened_by_its_loop_device() {
    let folder = Folder::new();
    let Some(at) = MountPoint::new(&folder).filter(|_| is_root()) else { return };
    let image = folder.volume("v.img", "64M");
    let server = Server::mounted(&image, &at, &[]);
    let made = Command::new("/usr/sbin/losetup").args(["-f", "--show"]).arg(&image).output();
    let Some(made) = made.ok().filter(|m| m.status.success()) else {
        println!("skipped: there are no loop devices");
        return server.stop();
    };
    let device = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    let (code, _, why) = cairn(&["mkdir", &device, "/other"]);
    let gone = Command::new("/usr/sbin/losetup").args(["-d", &device]).status().unwrap();
    assert!(gone.success());
    assert!(code == 1 && why.contains("loop device of an image that is in use"), "{code} {why}");
    std::fs::write(at.file("f"), "it goes on").unwrap();
    server.stop();
    ok(&["fsck", s(&image)]);
}
