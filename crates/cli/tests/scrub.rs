//! The checker beside service: what was leaked by hand is given back while the volume is used, and
//! what would have to be added is damage. Needs debugfs and e2fsck, like the other tests here.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod served;

use nfs3_client::nfs3_types::nfs3::stable_how;
use serde_json::Value;
use served::{ANY, Folder, Server, cairn, ok, s};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

fn debugfs(image: &Path, command: &str) {
    let done = Command::new("debugfs").args(["-w", "-R", command, s(image)]).output().unwrap();
    assert!(done.status.success(), "{command}: {}", String::from_utf8_lossy(&done.stderr));
}

/// What e2fsck says of it, and whether it finds nothing.
fn e2fsck(image: &Path) -> (bool, String) {
    let done = Command::new("e2fsck").args(["-fn", s(image)]).output().unwrap();
    (done.status.code() == Some(0), String::from_utf8_lossy(&done.stdout).into_owned())
}

/// Where the superblock says who has written to the volume: times, and a count of mounts.
const WRITERS: std::ops::Range<u64> = 1024 + 0x2c..1024 + 0x36;

/// Blocks that nobody owns and an inode without a name; a file's count of links is too high. As a
/// crash of our own leaves it, and not as debugfs does, which has written to the volume.
fn leak(image: &Path, file: &str) {
    let disk = std::fs::File::options().read(true).write(true).open(image).unwrap();
    let mut writers = [0; (WRITERS.end - WRITERS.start) as usize];
    disk.read_exact_at(&mut writers, WRITERS.start).unwrap();
    debugfs(image, "setb 5000 70");
    debugfs(image, "seti <90>");
    debugfs(image, &format!("sif {file} links_count 4"));
    disk.write_all_at(&writers, WRITERS.start).unwrap();
    assert!(!e2fsck(image).0, "what was leaked can be seen");
}

fn counters(image: &Path) -> Value {
    let (code, out, err) = cairn(&["stats", s(image), "--json"]);
    assert_eq!(code, 0, "{err}");
    let all: Value = serde_json::from_str(&out).unwrap();
    all[0]["volumes"][0]["counters"].clone()
}

/// A volume has its file's name, whatever that is.
#[test]
fn a_volume_of_any_name_is_checked_beside_service() {
    let folder = Folder::new();
    let image = folder.plain_volume("my 100% größe?#", "16M");
    let server = Server::trusting(&[&image], ANY, &["--mode", "soft-updates"]);
    let (code, out, err) = cairn(&["fsck", "--background", s(&image)]);
    assert!(code == 0 && out.contains("checked once"), "{code} {out}{err}");
    server.stop();
}

#[test]
fn what_a_crash_has_leaked_comes_back_while_the_volume_is_used() {
    let folder = Folder::new();
    let image = folder.plain_volume("soft", "64M");
    let more = ["--mode", "soft-updates"];
    let server = Server::trusting(&[&image], ANY, &more);
    let mut client = server.client("/soft");
    let root = client.root.clone();
    client.mkdir(&root, "kept").unwrap();
    client.create_new(&root, "file").unwrap();
    server.kill();
    leak(&image, "file");
    let server = Server::trusting(&[&image], ANY, &more);
    let mut client = server.client("/soft");
    let root = client.root.clone();
    let begun = Instant::now();
    let mut made = 0;
    loop {
        client.mkdir(&root, &format!("beside{made}")).unwrap();
        made += 1;
        let now = counters(&image);
        if now["cairn_scrub_passes_total"] == 1 && now["cairn_scrub_running"] == 0 {
            assert!(now["cairn_scrub_blocks_freed_total"].as_u64().unwrap() >= 70, "{now}");
            assert!(now["cairn_scrub_inodes_freed_total"].as_u64().unwrap() >= 1, "{now}");
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "no end: {now}");
    }
    let told = ok(&["info", s(&image)]);
    assert!(told.contains("checked once while in use"), "{told}");
    server.stop();
    let (sound, text) = e2fsck(&image);
    assert!(sound, "{text}");
}

#[test]
fn a_volume_of_any_mode_is_checked_on_demand_while_it_is_served() {
    let folder = Folder::new();
    let image = folder.plain_volume("asked", "64M");
    let (code, _, err) = cairn(&["fsck", "--background", s(&image)]);
    assert!(code == 1 && err.contains("no server"), "{err}");
    let server = Server::trusting(&[&image], ANY, &["--mode", "unified"]);
    let mut client = server.client("/asked");
    let root = client.root.clone();
    client.create_new(&root, "file").unwrap();
    server.stop();
    leak(&image, "file");
    let server = Server::trusting(&[&image], ANY, &["--mode", "unified", "--scrub", "1"]);
    let (code, out, err) = cairn(&["fsck", "--background", s(&image)]);
    assert!(code == 4 && out.contains("70 blocks and 1 inode given back"), "{code} {out} {err}");
    let (code, out, err) = cairn(&["fsck", "--background", "--json", s(&image)]);
    assert!(code == 0 && out.contains("\"blocks_freed\":0"), "{code} {out} {err}");
    server.stop();
    let (sound, text) = e2fsck(&image);
    assert!(sound, "{text}");
}

/// The orphan file is an ordinary inode without a name.
#[test]
fn the_orphan_file_is_nobodys_to_free() {
    let folder = Folder::new();
    for (kind, mode) in [("ext4", "unified"), ("ext3", "soft-updates")] {
        let image = folder.0.join(kind);
        std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
        let features = ["-q", "-F", "-t", kind, "-O", "orphan_file"];
        let made = Command::new("mke2fs").args(features).arg(&image).status().unwrap();
        assert!(made.success());
        let server = Server::trusting(&[&image], ANY, &["--mode", mode]);
        let root = server.client(&format!("/{kind}")).root.clone();
        server.client(&format!("/{kind}")).create_new(&root, "file").unwrap();
        let (code, out, err) = cairn(&["fsck", "--background", s(&image)]);
        assert!(code == 0, "{kind}: {code} {out} {err}");
        server.kill();
        let server = Server::trusting(&[&image], ANY, &["--mode", mode]);
        let (code, out, err) = cairn(&["fsck", "--background", s(&image)]);
        assert!(code == 0, "{kind}, after a crash: {code} {out} {err}");
        server.stop();
        let (sound, text) = e2fsck(&image);
        assert!(sound, "{kind}: {text}");
    }
}

#[test]
fn what_would_have_to_be_added_turns_the_volume_read_only() {
    let folder = Folder::new();
    let image = folder.plain_volume("bad", "64M");
    let server = Server::trusting(&[&image], ANY, &["--mode", "soft-updates"]);
    let mut client = server.client("/bad");
    let root = client.root.clone();
    let file = client.create_new(&root, "file").unwrap();
    client.write(&file, 0, &[7; 9000], stable_how::FILE_SYNC).unwrap();
    server.stop();
    // The file's first block is called free.
    let asked = ["-R", "bmap file 0", s(&image)];
    let found = Command::new("debugfs").args(asked).output().unwrap();
    let block = String::from_utf8_lossy(&found.stdout).trim().to_owned();
    debugfs(&image, &format!("freeb {block}"));
    let server = Server::trusting(&[&image], ANY, &["--mode", "soft-updates"]);
    let (code, out, err) = cairn(&["fsck", "--background", s(&image)]);
    assert!(code == 3 && err.contains("read-only"), "{code} {out} {err}");
    let mut client = server.client("/bad");
    assert!(client.mkdir(&root, "after").is_err(), "nothing is changed any more");
    assert!(client.lookup(&root, "file").is_ok(), "and all can be read");
    assert!(server.errors().contains("the bitmap calls it free"), "{}", server.errors());
    server.kill();
}
