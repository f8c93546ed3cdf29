//! `cairn check`, with and without --read: its exit codes, and that it changes nothing.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod served;

use served::{ANY, CAIRN, Folder, Server, cairn, is_root, ok, s};
use std::os::unix::process::CommandExt;
use std::process::Command;

#[test]
fn what_is_sound_is_read_and_not_changed() {
    let folder = Folder::new();
    let text = folder.0.join("text");
    std::fs::write(&text, vec![b'a'; 300_000]).unwrap();
    // A store's volume has no mark that it was closed.
    let profiles = [
        ("ext2", ": sound, closed cleanly"),
        ("ext4", ": sound, closed cleanly"),
        ("lfs", ": sound;"),
    ];
    for (profile, sound) in profiles {
        let image = folder.0.join(profile);
        ok(&["mkfs", s(&image), "--size", "64M", "--profile", profile]);
        ok(&["put", s(&image), s(&text), "/"]);
        let before = std::fs::read(&image).unwrap();
        let said = ok(&["check", s(&image)]);
        assert!(said.contains(sound), "{said}");
        let said = ok(&["check", "--read", s(&image)]);
        assert!(said.contains("files read, 0 unreadable"), "{said}");
        let said = ok(&["check", "--read", "--json", s(&image)]);
        let all: serde_json::Value = serde_json::from_str(&said).unwrap();
        assert!(all["sound"] == true && all["bytes"].as_u64().unwrap() >= 300_000, "{all}");
        assert!(std::fs::read(&image).unwrap() == before, "{profile}: changed");
    }
    // Through a mount, or any directory.
    let said = ok(&["check", "--read", s(&folder.0)]);
    assert!(said.contains("of 4 files read, 0 unreadable"), "{said}");
}

#[test]
fn damage_is_exit_3_and_a_volume_in_use_is_refused() {
    let folder = Folder::new();
    let image = folder.volume("broken.img", "32M");
    let mut bytes = std::fs::read(&image).unwrap();
    bytes[4096 + 12] ^= 1; // the count of free blocks of the first group
    std::fs::write(&image, &bytes).unwrap();
    for args in [&["check", s(&image)][..], &["check", "--read", s(&image)]] {
        let (code, out, err) = cairn(args);
        assert!(code == 3 && out.contains("not sound"), "{args:?}: {code} {out}{err}");
    }
    assert!(std::fs::read(&image).unwrap() == bytes);
    let image = folder.volume("used.img", "32M");
    let server = Server::trusting(&[&image], ANY, &[]);
    let (code, _, err) = cairn(&["check", "--read", s(&image)]);
    assert!(code == 1 && (err.contains("served") || err.contains("in use")), "{code} {err}");
    server.kill();
    let (code, _, err) = cairn(&["check", "--read", s(&folder.0.join("nothing"))]);
    assert!(code == 1 && err.starts_with("cairn: ") && err.lines().count() == 1, "{code} {err}");
}

/// Several groups are looked at by as many threads as there are to be had.
#[test]
fn without_further_threads_one_looks_at_everything() {
    if !is_root() {
        return;
    }
    let folder = Folder::new();
    let image = folder.volume("groups", "1G");
    let mut alone = Command::new("prlimit");
    alone.args(["--nproc=1", CAIRN, "check"]).arg(&image).uid(65_534).gid(65_534);
    let Ok(out) = alone.output() else { return println!("skipped: no prlimit") };
    let (told, why) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    if why.contains("failed to execute") || why.contains("may not read") {
        return println!("skipped: others may not come here");
    }
    assert!(out.status.success() && told.contains(": sound"), "{told}{why}");
}
