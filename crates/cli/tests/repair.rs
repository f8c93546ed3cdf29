//! `cairn fsck --repair` of volumes that were in use when their server was killed, and have a field
//! changed besides: the journal or log is replayed, the rest is repaired, and when the command says
//! that all is well (exit 0 or 4), e2fsck says so too. MUTATIONS: how many of each kind.
#![allow(clippy::unwrap_used, reason = "a test may")]

#[path = "../../check/tests/common/mod.rs"]
mod common;
mod served;

use common::fields::{ALL, Fields};
use common::{Chance, Scratch, e2fsck};
use nfs3_client::nfs3_types::nfs3::*;
use served::{ANY, Folder, Server, cairn, ok, s};

/// A volume that was served in this mode when its server was killed, with names and contents whose
/// way to its place was not over.
fn killed(folder: &Folder, mode: &str) -> Vec<u8> {
    let image = folder.0.join(mode);
    ok(&["mkfs", s(&image), "--size", "12M", "--block-size", "1024", "--profile", "ext3"]);
    let server = Server::trusting(&[&image], ANY, &["--mode", mode]);
    let mut on = server.client("/");
    let root = on.root.clone();
    for n in 0..10 {
        let file = on.create_new(&root, &format!("f{n}")).unwrap();
        on.write(&file, 0, &[n; 3000], stable_how::FILE_SYNC).unwrap();
    }
    server.kill();
    std::fs::read(&image).unwrap()
}

/// `info` tells what the next opening does first, in the mode that it will have: soft updates leave
/// nothing to be done before service, ordered writes a repair, and a journal its replay.
#[test]
fn info_tells_what_opening_does_in_the_mode_of_the_volume() {
    let folder = Folder::new();
    for (mode, told) in
        [("soft-updates", None), ("sync", Some("repair")), ("ordered", Some("journal"))]
    {
        let image = folder.0.join(mode);
        std::fs::write(&image, killed(&folder, mode)).unwrap();
        let (code, out, err) = cairn(&["info", "--json", s(&image)]);
        assert_eq!(code, 0, "{mode}: {err}");
        let info: serde_json::Value = serde_json::from_str(&out).unwrap();
        match told {
            None => assert!(info["recovery"].is_null(), "{mode}: {}", info["recovery"]),
            Some(word) => {
                let all = info["recovery"].as_str().unwrap_or_default();
                assert!(all.contains(word), "{mode}: {}", info["recovery"]);
            }
        }
    }
}

#[test]
fn what_is_called_repaired_e2fsck_accepts() {
    let (folder, scratch) = (Folder::new(), Scratch::new("repair"));
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    let (rounds, only) = (number("MUTATIONS").unwrap_or(2), number("SEED"));
    let (mut bad, mut repaired) = (Vec::new(), 0);
    for (m, mode) in ["sync", "ordered", "unified"].into_iter().enumerate() {
        let image = killed(&folder, mode);
        let fields = Fields::of(&image);
        let path = folder.0.join("broken");
        for (k, of) in ALL.into_iter().enumerate() {
            for round in 0..rounds {
                let seed = (m as u64) << 32 | (k as u64) << 24 | (round + 1);
                if only.is_some_and(|o| o != seed) {
                    continue;
                }
                let mut c = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                c.next();
                let mut broken = image.clone();
                let what = fields.mutate(&mut broken, of, &mut c);
                std::fs::write(&path, &broken).unwrap();
                let (code, out, err) = cairn(&["fsck", "--repair", s(&path)]);
                let place = format!("{mode}, {of:?}, SEED={seed}: {what}\n{out}{err}");
                match code {
                    0 | 4 => {
                        repaired += 1;
                        let (verdict, text) = e2fsck(&scratch, &std::fs::read(&path).unwrap());
                        if verdict != 0 {
                            bad.push(format!("{place}\n  e2fsck {text}"));
                        }
                    }
                    1 => assert!(err.contains("cairn: "), "{place}"),
                    _ => bad.push(format!("{place}\n  exit {code}")),
                }
            }
        }
    }
    assert!(only.is_some() || repaired > rounds * 12, "only {repaired} were repaired");
    assert!(bad.is_empty(), "{} of {repaired}\n{}", bad.len(), bad[..bad.len().min(20)].join("\n"));
}

/// Volumes that mke2fs has made, whose groups say of most inodes that they were never used, in the
/// mode that orders nothing: what was made durable there is found again by the next opening.
#[test]
fn what_was_durable_in_async_is_there_after_a_crash() {
    let (folder, scratch) = (Folder::new(), Scratch::new("async"));
    for features in ["metadata_csum", "uninit_bg,^metadata_csum"] {
        let image = folder.0.join("image");
        let made = std::process::Command::new("mke2fs")
            .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
            .args(["-q", "-F", "-t", "ext4", "-O", features, s(&image), "32M"])
            .status();
        assert!(made.unwrap().success());
        let server = Server::trusting(&[&image], ANY, &["--mode", "async", "--unsafe-async"]);
        let mut on = server.client("/");
        let root = on.root.clone();
        let file = on.create_new(&root, "f").unwrap();
        on.write(&file, 0, &[7; 3000], stable_how::FILE_SYNC).unwrap();
        server.kill();
        let (code, out, err) = cairn(&["recover", s(&image)]);
        assert_eq!(code, 0, "{features}: {out}{err}");
        let (code, out, err) = cairn(&["cat", s(&image), "f"]);
        assert_eq!((code, out.len()), (0, 3000), "{features}: {err}");
        let (verdict, text) = e2fsck(&scratch, &std::fs::read(&image).unwrap());
        assert_eq!(verdict, 0, "{features}: {text}");
    }
}
