//! A log with a damaged superblock, from the command line: no command takes the volume for one with
//! an empty log; it is given up when that is asked for, and what is left is sound.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod served;

use nfs3_client::nfs3_types::nfs3::*;
use served::{ANY, Folder, Server, cairn, ok, s};
use std::path::{Path, PathBuf};

const FILES: usize = 30;

/// A volume with files whose entries are in its log, killed.
fn killed(folder: &Folder, mode: &str, log: &[&str]) -> PathBuf {
    let image = folder.volume("v.img", "16M");
    let server = Server::trusting(&[&image], ANY, &[&["--mode", mode][..], log].concat());
    let mut on = server.client("/v");
    let root = on.root.clone();
    for n in 0..FILES {
        let file = on.create_new(&root, &format!("f{n}")).unwrap();
        on.write(&file, 0, b"kept", stable_how::FILE_SYNC).unwrap();
    }
    server.kill();
    image
}

/// Where the log's two superblocks are in these bytes.
fn superblocks(bytes: &[u8]) -> Vec<usize> {
    let at = (0..bytes.len()).step_by(512);
    at.filter(|i| bytes[*i..].starts_with(b"CairnLog")).collect()
}

/// With a bit flipped in each of these bytes.
fn damaged(path: &Path, whole: &[u8], places: &[usize]) {
    let mut bytes = whole.to_vec();
    places.iter().for_each(|at| bytes[*at] ^= 4);
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_log_that_cannot_be_read_is_never_an_empty_one() {
    for (mode, outside) in [("unified", false), ("redo", true)] {
        let folder = Folder::new();
        let log = folder.0.join("log");
        let named = if outside { vec!["--log", s(&log)] } else { vec![] };
        let image = killed(&folder, mode, &named);
        let place = if outside { &log } else { &image };
        let (volume, whole) = (std::fs::read(&image).unwrap(), std::fs::read(place).unwrap());
        let found = superblocks(&whole);
        assert_eq!(found.len(), 2);
        let (first, second) = (found[0], found[1]);
        // In the epoch, in the clients; of one or of both.
        for at in [41, 150] {
            for places in [vec![first + at], vec![second + at], vec![first + at, second + at]] {
                std::fs::write(&image, &volume).unwrap();
                damaged(place, &whole, &places);
                let (code, out, err) = cairn(&[&["recover", s(&image)], &named[..]].concat());
                let what = format!("{mode}, {at}, {}: {code} {out}{err}", places.len());
                if code == 0 {
                    let list = ok(&["ls", s(&image), "/"]);
                    assert_eq!(list.lines().filter(|l| l.contains(" f")).count(), FILES, "{what}");
                    continue;
                }
                assert!(code == 1 && err.contains("--discard-log"), "{what}");
                let (code, ..) = cairn(&[&["ls", s(&image), "/"], &named[..]].concat());
                assert_eq!(code, 1, "{what}: who only reads");
            }
        }
        // The last one was refused.
        let (code, _, err) = cairn(&["fsck", s(&image), "--discard-log"]);
        assert!(code == 2 && err.contains("--repair"), "{code} {err}");
        let (code, out, err) = cairn(&["fsck", s(&image), "--repair", "--discard-log"]);
        assert!(code == 4 && out.contains("given up"), "{mode}: {code} {out}{err}");
        ok(&["fsck", s(&image)]);
        ok(&["mkdir", s(&image), "after"]);
        ok(&["fsck", s(&image)]);
    }
}
