//! Which hash an index's names have: of which version, and with bytes taken as signed or not where
//! the superblock says neither.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::asked::{OPTIONS, asked, edited, repaired};
use crate::common::{Scratch, check_both, indexed, made};
use check::Kind;
use format::ext::Superblock;
use format::ext::superblock::SUPERBLOCK_AT;

const BLOCK: usize = 1024;

/// With an indexed directory of names beyond ASCII; `sign`: the superblock's flag when it was made.
fn accents(s: &Scratch, sign: u32) -> Vec<u8> {
    let image = made(&["-t", "ext3", "-I", "256", "-J", "size=1"], BLOCK, 11 << 20);
    let mut requests = format!("ssv flags {sign}\nmkdir /accents\n");
    for n in 0..150 {
        requests += &format!("write /dev/null /accents/\u{e9}t\u{e9}-{n}-{}\n", "\u{fc}".repeat(9));
    }
    let image = indexed(s, &edited(s, &image, &requests));
    let flags = asked(s, &image, "stat /accents");
    assert!(flags.contains("Flags: 0x1000"), "{flags}");
    image
}

fn sign_of(image: &[u8]) -> u32 {
    Superblock::decode(&image[SUPERBLOCK_AT as usize..]).unwrap().flags() & 3
}

/// As Linux since its 6.2, and as who serves the volume, which says so in the superblock then.
#[test]
fn where_nothing_is_said_bytes_are_unsigned() {
    let s = Scratch::new("hash-sign");
    let mut image = edited(&s, &accents(&s, 1), "ssv flags 0\n");
    let report = repaired(&s, &mut image, "an index of signed hashes");
    assert!(report.findings.iter().any(|f| f.kind == Kind::Index), "{:#?}", report.findings);
    assert_eq!(sign_of(&image), 2, "a repair says it");
    let mut image = edited(&s, &accents(&s, 2), "ssv flags 0\n");
    let report = check_both(&image, &OPTIONS).unwrap();
    assert_eq!(report.findings, [], "an index of unsigned hashes");
    image = edited(&s, &image, "sif /accents links_count 9\n");
    repaired(&s, &mut image, "another fault");
    assert_eq!(sign_of(&image), 2);
}

/// Versions 3 to 5 are names for unsigned hashes in memory; no index has them.
#[test]
fn no_index_has_a_version_of_memory_alone() {
    let s = Scratch::new("hash-version");
    for sign in [1, 2] {
        let sound = accents(&s, sign);
        let root: usize = asked(&s, &sound, "bmap /accents 0").trim().parse().unwrap();
        for version in 3..=6 {
            let mut image = sound.clone();
            image[root * BLOCK + 28] = version;
            let report = repaired(&s, &mut image, "a version");
            assert!(report.findings.iter().any(|f| f.kind == Kind::Index), "{version}");
        }
    }
}
