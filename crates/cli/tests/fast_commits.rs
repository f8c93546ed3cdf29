//! A volume whose journal holds fast commits: every command says so, and what to do, and changes
//! nothing. One that Linux has closed, or e2fsck has replayed, is read as before.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod served;

use served::{ANY, Folder, cairn, ok, s};
use std::path::Path;
use std::process::Command;

/// Bits of the journal's superblock, of the volume's, and where they are in these.
const FAST_COMMITS: u8 = 0x20;
const NEEDS_RECOVERY: u8 = 4;
const JOURNAL_SEQUENCE: usize = 0x18;
const JOURNAL_START: usize = 0x1c;
const JOURNAL_INCOMPAT: usize = 0x28;
const VOLUME_INCOMPAT: usize = 1024 + 0x60;

/// One as Linux leaves it that was cut off: in its journal lies what no full commit has. None:
/// there is no mke2fs.
fn left(image: &Path) -> Option<Vec<u8>> {
    let kind = ["-q", "-F", "-t", "ext4", "-b", "1024", "-O", "fast_commit,^metadata_csum"];
    let made = Command::new("mke2fs").args(kind).arg(image).arg("16M").status();
    if !made.is_ok_and(|m| m.success()) {
        println!("skipped: no mke2fs");
        return None;
    }
    let clean = std::fs::read(image).unwrap();
    let mut raw = clean.clone();
    let is_journal = |b: &&[u8]| b[..8] == [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 4];
    let journal = raw.chunks(1024).position(|b| is_journal(&b)).unwrap() * 1024;
    raw[journal + JOURNAL_SEQUENCE + 3] = 2;
    raw[journal + JOURNAL_START + 3] = 1;
    raw[journal + JOURNAL_INCOMPAT + 3] |= FAST_COMMITS;
    raw[VOLUME_INCOMPAT] |= NEEDS_RECOVERY;
    std::fs::write(image, &raw).unwrap();
    Some(clean)
}

#[test]
fn what_to_do_is_said_by_all_commands() {
    let folder = Folder::new();
    let image = folder.0.join("v.img");
    let Some(clean) = left(&image) else { return };
    let before = std::fs::read(&image).unwrap();
    let v = s(&image);
    let told = |said: &str| {
        let all = ["fast commits", "mount it once with Linux", "e2fsck", "tune2fs -O ^fast_commit"];
        all.iter().all(|w| said.contains(w)) && !said.contains("nothing that was promised")
    };
    let said = ok(&["info", v]);
    assert!(told(&said), "{said}");
    for args in [
        &["recover", v][..],
        &["ls", v, "/"],
        &["put", v, file!(), "/"],
        &["serve", v, "--nfs", ANY],
        &["serve", v, "--nfs", ANY, "--read-only"],
        &["fsck", v],
        &["fsck", "--repair", v],
    ] {
        let (code, out, err) = cairn(args);
        assert!(code == 1 && told(&err) && !err.contains("damaged"), "{args:?}: {out}{err}");
        assert_eq!(err.matches("fast commits").count(), 1, "{args:?}: {err}");
    }
    assert!(std::fs::read(&image).unwrap() == before, "it was refused, and something was written");
    std::fs::write(&image, &clean).unwrap();
    let (code, out, err) = cairn(&["ls", v, "/"]);
    assert!(code == 0 && out.contains("lost+found"), "{out}{err}");
    assert!(err.contains("does not write fast_commit") && !err.contains("fast commits"), "{err}");
}
