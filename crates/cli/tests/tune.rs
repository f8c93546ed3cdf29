//! `cairn resize`, `cairn label` and `cairn uuid`, judged by e2fsck and by what `cairn info` says.
//! Cuts of the power are crates/volume/tests/resize.rs's business.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod served;

use served::{ANY, CAIRN, Folder, Server, cairn, ok, s};
use std::path::Path;
use std::process::Command;

fn fails(args: &[&str], want: i32, with: &str) {
    let (code, out, err) = cairn(args);
    assert!(code == want && err.contains(with), "{args:?}: {code} {out}{err}");
    assert!(err.starts_with("cairn: ") && err.lines().count() == 1, "{args:?}: {err}");
}

fn info(image: &Path) -> serde_json::Value {
    serde_json::from_str(&ok(&["info", "--json", s(image)])).unwrap()
}

fn e2fsck(image: &Path) {
    let out = Command::new("/usr/sbin/e2fsck").arg("-fn").arg(image).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
}

/// A volume of every profile, with a file.
fn volumes(folder: &Folder) -> Vec<std::path::PathBuf> {
    let text = folder.0.join("text");
    std::fs::write(&text, "kept").unwrap();
    let made = ["ext2", "ext3", "ext4"].map(|profile| {
        let image = folder.0.join(format!("{profile}.img"));
        ok(&["mkfs", s(&image), "--size", "24M", "--profile", profile, "--block-size", "1024"]);
        ok(&["put", s(&image), s(&text), "/"]);
        image
    });
    made.into()
}

#[test]
fn an_image_grows_with_its_volume() {
    let folder = Folder::new();
    for image in volumes(&folder) {
        let said = ok(&["resize", s(&image), "200M"]);
        assert!(said.contains("200.0 MiB now"), "{said}");
        assert_eq!(std::fs::metadata(&image).unwrap().len(), 200 << 20);
        e2fsck(&image);
        assert_eq!(ok(&["cat", s(&image), "/text"]), "kept");
        assert!(ok(&["resize", s(&image)]).contains("has that size already"));
        // As long as the file is, if nothing else is said.
        std::fs::File::options().write(true).open(&image).unwrap().set_len(250 << 20).unwrap();
        ok(&["resize", s(&image)]);
        e2fsck(&image);
        let big = folder.0.join("big");
        std::fs::write(&big, vec![7; 180 << 20]).unwrap();
        ok(&["put", s(&image), s(&big), "/"]);
        e2fsck(&image);
    }
}

#[test]
fn what_cannot_be_is_refused_and_nothing_changes() {
    let folder = Folder::new();
    for image in volumes(&folder) {
        let before = std::fs::read(&image).unwrap();
        fails(&["resize", s(&image), "10M"], 1, &format!("resize2fs {} 10240K", s(&image)));
        fails(&["resize", s(&image), "0"], 1, &format!("resize2fs -M {}", s(&image)));
        fails(&["resize", s(&image), "5000T"], 1, "");
        fails(&["label", s(&image), "a-name-that-is-too-long"], 2, "16 bytes");
        fails(&["uuid", s(&image), "no-uuid"], 2, "`random`");
        assert!(std::fs::read(&image).unwrap() == before, "{}: changed", image.display());
    }
    let store = folder.0.join("store.img");
    ok(&["mkfs", s(&store), "--size", "64M", "--profile", "lfs"]);
    fails(&["resize", s(&store), "128M"], 1, "store");
    assert_eq!(ok(&["label", s(&store)]), "\n");
    let image = folder.volume("used.img", "32M");
    let server = Server::trusting(&[&image], ANY, &["--mode", "ordered"]);
    fails(&["resize", s(&image), "64M"], 1, "in use");
    server.kill();
    fails(&["resize", s(&image), "64M"], 1, "cairn recover");
    fails(&["uuid", s(&image), "random"], 1, "cairn recover");
    assert_eq!(std::fs::metadata(&image).unwrap().len(), 32 << 20);
}

#[test]
fn labels_and_uuids_are_shown_and_changed() {
    let folder = Folder::new();
    let new = "0f9f6f5c-6b4e-4f57-9c38-7c2a8e9d1b11";
    for image in volumes(&folder) {
        ok(&["label", s(&image), "home"]);
        assert_eq!(ok(&["label", s(&image)]), "home\n");
        let first = ok(&["uuid", s(&image)]);
        assert_eq!(first.trim().replace('-', ""), info(&image)["uuid"].as_str().unwrap());
        e2fsck(&image);
        assert_eq!(ok(&["uuid", s(&image), new]).trim(), new);
        assert_eq!(ok(&["uuid", s(&image)]).trim(), new);
        e2fsck(&image);
        let once_more = ok(&["uuid", s(&image), "random"]);
        assert!(once_more.trim().len() == 36 && once_more != first);
        e2fsck(&image);
        assert_eq!(ok(&["cat", s(&image), "/text"]), "kept");
        assert_eq!(ok(&["fsck", s(&image)]).lines().count(), 1);
        ok(&["label", s(&image), ""]);
        assert_eq!(ok(&["label", s(&image)]), "\n");
        e2fsck(&image);
    }
}

/// A volume of mke2fs with these features, and a file with an attribute whose value is in an inode
/// of its own.
fn with_value(folder: &Folder, features: &str) -> std::path::PathBuf {
    let (image, value) = (folder.0.join(format!("{features}.img")), folder.0.join("value"));
    let kind = ["-q", "-F", "-t", "ext4", "-b", "1024", "-O", features];
    let made = Command::new("/usr/sbin/mke2fs").args(kind).args([s(&image), "24M"]).output();
    assert!(made.unwrap().status.success(), "{features}");
    std::fs::write(&value, "v".repeat(1000)).unwrap();
    std::fs::write(folder.0.join("text"), "kept").unwrap();
    ok(&["put", s(&image), s(&folder.0.join("text")), "/"]);
    let request = format!("ea_set -f {} /text user.long", s(&value));
    let mut debugfs = Command::new("/usr/sbin/debugfs");
    assert!(debugfs.args(["-w", "-R", &request, s(&image)]).output().unwrap().status.success());
    // It does not count the value's blocks.
    let mut fix = Command::new("/usr/sbin/e2fsck");
    assert!(fix.arg("-fy").arg(&image).output().unwrap().status.code() <= Some(1));
    e2fsck(&image);
    image
}

/// The value that debugfs reads.
fn value_of(image: &Path) -> String {
    let mut debugfs = Command::new("/usr/sbin/debugfs");
    let out = debugfs.args(["-R", "ea_get -V /text user.long", s(image)]).output().unwrap();
    String::from_utf8_lossy(&out.stdout).into_owned()
}

#[test]
fn another_uuid_leaves_the_sums_of_metadata_and_of_values_right() {
    let folder = Folder::new();
    for features in ["ea_inode,metadata_csum", "ea_inode,metadata_csum,metadata_csum_seed"] {
        let image = with_value(&folder, features);
        let new = "0f9f6f5c-6b4e-4f57-9c38-7c2a8e9d1b11";
        assert_eq!(ok(&["uuid", s(&image), new]).trim(), new);
        e2fsck(&image);
        assert!(value_of(&image).contains(&"v".repeat(1000)), "{features}");
        assert_eq!(ok(&["fsck", s(&image)]).lines().count(), 1);
    }
    // Its values' hashes begin with the UUID, and nothing says with which.
    let image = with_value(&folder, "ea_inode,^metadata_csum,^uninit_bg");
    let before = std::fs::read(&image).unwrap();
    fails(&["uuid", s(&image), "random"], 1, "ea_inode");
    assert!(std::fs::read(&image).unwrap() == before, "it was refused, and changed");
}

#[test]
fn who_has_no_space_for_a_larger_image_lets_go_of_the_volume() {
    let folder = Folder::new();
    let image = folder.0.join("mmp.img");
    let kind = ["-q", "-F", "-t", "ext3", "-O", "mmp", "-E", "mmp_update_interval=1"];
    let made = Command::new("/usr/sbin/mke2fs").args(kind).args([s(&image), "24M"]).output();
    assert!(made.unwrap().status.success());
    // A file may have 64 MiB, and who writes more is told so.
    let limited = "trap '' XFSZ; ulimit -f 65536; exec \"$0\" resize \"$1\" 200M";
    let sh = Command::new("bash").args(["-c", limited, CAIRN, s(&image)]).output().unwrap();
    let err = String::from_utf8_lossy(&sh.stderr).into_owned();
    assert!(sh.status.code() == Some(1) && err.contains("File too large"), "{err}");
    // Nobody is told that it is in use.
    ok(&["label", s(&image), "free"]);
    assert_eq!(std::fs::metadata(&image).unwrap().len(), 24 << 20);
}
