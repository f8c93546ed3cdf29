//! `cairn put` in every mode: what is copied in is the same when it is copied out, also if the
//! volume takes less of a write than it was given.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test may")]

use std::path::Path;
use std::process::Command;

const CAIRN: &str = env!("CARGO_BIN_EXE_cairn");

fn cairn(args: &[&str]) -> String {
    let out = Command::new(CAIRN).args(args).output().unwrap();
    let text = |b: Vec<u8>| String::from_utf8_lossy(&b).into_owned();
    let (out, status) = (text(out.stdout) + &text(out.stderr), out.status);
    assert!(status.success(), "{args:?}: {out}");
    out
}

#[test]
fn a_file_larger_than_a_transaction_is_put_in_every_mode() {
    let folder = std::env::temp_dir().join(format!("cairn-put-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (file, back, image) = (path("file"), path("back"), path("v.img"));
    let bytes: Vec<u8> =
        (0..3_000_001u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(&file, &bytes).unwrap();
    let modes = cairn(&["crash", "--list-modes"]);
    assert!(modes.lines().count() > 5, "{modes}");
    for mode in modes.lines() {
        let _ = std::fs::remove_file(&image);
        if mode == "lfs" {
            cairn(&["mkfs", &image, "--size", "32M", "--profile", "lfs"]);
        } else {
            // Journals of 4 MiB.
            let profile = if ["sync", "soft-updates"].contains(&mode) { "ext3" } else { "ext4" };
            let of = ["--journal-size", "4M", "--profile", profile];
            cairn(&[&["mkfs", &image, "--size", "32M"], &of[..]].concat());
        }
        // `put` opens it in the mode last used.
        cairn(&["bench", "append", &image, "--mode", mode, "--count", "1"]);
        cairn(&["put", &image, &file, "/"]);
        cairn(&["get", &image, "/file", &back]);
        assert!(std::fs::read(Path::new(&back)).unwrap() == bytes, "{mode}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
