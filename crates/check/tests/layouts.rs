//! One bit or number of the superblock that says how all the rest is laid out is wrong: the rest is
//! not taken apart for it. Every file is there afterwards as it was.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::asked::{edited, files, repaired};
use crate::common::wide::made4;
use crate::common::{Scratch, made};

const M: u64 = 1 << 20;

/// After each of these requests to debugfs a repair leaves all files as they were.
fn all_stays(name: &str, image: &[u8], requests: &[&str]) {
    let s = Scratch::new(name);
    let sound = files(&s, image, "sound");
    assert!(sound.len() > 200, "{name}: {} files", sound.len());
    for request in requests {
        let mut broken = edited(&s, image, &format!("{request}\n"));
        let what = format!("{name}, {request}");
        let report = repaired(&s, &mut broken, &what);
        assert!(!report.is_sound(), "{what}: nothing is found");
        assert!(files(&s, &broken, "ours") == sound, "{what}: {:#?}", report.findings);
    }
}

#[test]
fn where_groups_have_their_parts() {
    let many = ["-t", "ext2", "-I", "128", "-g", "1024", "-N", "1600"];
    all_stays("many", &made(&many, 1024, 16 * M), &["feature ^sparse_super"]);
    // With room for growth, which is 63 blocks.
    let two = made(&["-t", "ext2", "-I", "128", "-N", "1600"], 1024, 16 * M);
    let requests = [100, 127, 250, 256].map(|n| format!("ssv reserved_gdt_blocks {n}"));
    all_stays("two", &two, &requests.each_ref().map(String::as_str));
    // In one group no copy says what is right.
    let one = made(&["-t", "ext2", "-I", "128", "-g", "8192", "-N", "600"], 1024, 8 * M - 1024);
    all_stays("one", &one, &["ssv reserved_gdt_blocks 100", "ssv reserved_gdt_blocks 250"]);
    let sums = ["-J", "size=1", "-g", "1024", "-N", "1600", "-O", "^resize_inode"];
    let requests = ["feature ^flex_bg", "feature ^64bit", "feature ^sparse_super"];
    all_stays("sums", &made4(&sums, 1024, 20 * M), &requests);
    let none = ["-J", "size=1", "-O", "^metadata_csum"];
    let requests = [
        "feature ^flex_bg",
        "feature ^64bit",
        "feature ^sparse_super",
        "ssv reserved_gdt_blocks 256",
    ];
    all_stays("none", &made4(&none, 1024, 20 * M), &requests);
}

#[test]
fn what_maps_are() {
    for features in ["metadata_csum", "^metadata_csum", "^metadata_csum,^64bit,^flex_bg"] {
        let args = ["-J", "size=1", "-O", features];
        all_stays("extents", &made4(&args, 1024, 20 * M), &["feature ^extent"]);
    }
    for features in ["inline_data", "inline_data,^metadata_csum"] {
        let args = ["-J", "size=1", "-O", features];
        let requests = ["feature ^inline_data", "feature ^inline_data ^extent"];
        all_stays("inline", &made4(&args, 1024, 20 * M), &requests);
    }
}

/// Numbers of files that the volume has no use for.
#[test]
fn what_is_named_and_not_used() {
    let args = ["-J", "size=1", "-O", "orphan_file"];
    let orphans = made4(&args, 1024, 20 * M);
    let requests = ["feature ^orphan_file", "feature ^has_journal", "feature ^metadata_csum"];
    all_stays("orphans", &orphans, &requests);
    let plain = made4(&["-J", "size=1"], 1024, 20 * M);
    let requests = [
        "ssv orphan_file_inum 12",
        "ssv orphan_file_inum 30",
        "ssv usr_quota_inum 2",
        "ssv grp_quota_inum 30",
        "ssv prj_quota_inum 100000",
        "ssv log_groups_per_flex 32",
        "ssv log_groups_per_flex 215",
    ];
    all_stays("plain", &plain, &requests);
}
