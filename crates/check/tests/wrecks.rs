//! Volumes damaged beyond what any crash does: superblocks overwritten, blocks of noise, images
//! that are no volume at all. The check must end, must not panic, and what it repairs e2fsck must
//! accept.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{Chance, Scratch, check_both, damage, e2fsck, made, metadata};
use check::{CheckError, Kind, Options};

const OPTIONS: Options = Options { now_secs: 1_900_000_000, verify: true, mark_clean: true };

#[test]
fn a_lost_primary_comes_back_from_a_copy() {
    let s = Scratch::new("primary");
    for (block, options, size) in [
        (1024, &["-t", "ext3"][..], 24 << 20),
        (1024, &["-t", "ext2", "-I", "128"][..], 12 << 20),
        (4096, &["-t", "ext2"][..], 200 << 20),
    ] {
        let image = made(options, block, size);
        let first = usize::from(block == 1024);
        for (from, to) in [(1024, 2048), (1024, (first + 2) * block), (1024, 1100)] {
            let mut broken = image.clone();
            broken[from..to].fill(0x5a);
            let report = check_both(&broken, &OPTIONS).unwrap();
            assert!(report.counts.contains_key(&Kind::SuperDamaged));
            report.plan.apply(&mut broken, &mut ()).unwrap();
            let (code, text) = e2fsck(&s, &broken);
            assert_eq!(code, 0, "{block}, {from}..{to}: {text}");
            assert!(report.left.is_empty(), "{:?}", report.left);
        }
    }
}

#[test]
fn a_damaged_superblock_is_mended_or_refused() {
    let s = Scratch::new("super");
    let image = made(&["-t", "ext3"], 1024, 24 << 20);
    let m = metadata(&image);
    let rounds = crate::common::rounds::number("MUTATIONS").unwrap_or(150);
    let mut c = Chance(0x5eed);
    for n in 0..rounds {
        let mut broken = image.clone();
        // Fields that mean something lie in the first 0x170 bytes.
        let what = damage(&mut broken, &[(1024, 0x170)], &m, &mut c);
        let report = match check_both(&broken, &OPTIONS) {
            Ok(r) => r,
            Err(
                CheckError::Format(_) | CheckError::NeedsRecovery | CheckError::CutShort { .. },
            ) => {
                continue;
            }
            Err(e) => panic!("{n}: {what}: {e}"),
        };
        let before = e2fsck(&s, &broken);
        report.plan.apply(&mut broken, &mut ()).unwrap();
        let (code, text) = e2fsck(&s, &broken);
        assert_eq!(code, 0, "{n}: {what}\n{:#?}\n{}\n{text}", report.findings, before.1);
    }
}

#[test]
fn a_wreck_is_repaired_all_the_same() {
    let s = Scratch::new("wreck");
    let image = made(&["-t", "ext2", "-I", "256"], 1024, 12 << 20);
    let m = metadata(&image);
    let rounds = crate::common::rounds::number("MUTATIONS").unwrap_or(25);
    for n in 0..rounds {
        let mut c = Chance(n * 7 + 1);
        let mut broken = image.clone();
        let all =
            [&m.bitmaps, &m.inodes, &m.dirs, &m.indirect, &m.xattrs, &m.descs].map(Clone::clone);
        for _ in 0..30 {
            let of = c.pick(&[0, 1, 1, 2, 2, 3, 4, 5]);
            damage(&mut broken, &all[of], &m, &mut c);
        }
        for _ in 0..3 {
            let of = c.pick(&[1, 2, 3]);
            let (at, len) = c.pick(&all[of]);
            (at..at + len).for_each(|i| broken[i] = c.next() as u8);
        }
        let report = check_both(&broken, &OPTIONS).unwrap();
        report.plan.apply(&mut broken, &mut ()).unwrap();
        let (code, text) = e2fsck(&s, &broken);
        assert!(report.left.is_empty(), "{n}: {:#?}", report.left);
        assert_eq!(code, 0, "{n}: {text}");
    }
}

#[test]
fn no_bytes_make_it_panic() {
    let image = made(&["-t", "ext2", "-I", "128"], 1024, 8 << 20);
    let m = metadata(&image);
    let mut c = Chance(99);
    for _ in 0..60 {
        let mut broken = image.clone();
        for _ in 0..200 {
            damage(&mut broken, &[(1024, 1024), (2048, 1024)], &m, &mut c);
            damage(&mut broken, &[(0, image.len())], &m, &mut c);
        }
        // The magic and the sizes stay, so that it does not end at once.
        broken[1024..1024 + 0x70].copy_from_slice(&image[1024..1024 + 0x70]);
        let _ = check_both(&broken, &OPTIONS);
    }
    for len in [0, 1, 1023, 1024, 2047, 2048, 100_000] {
        let noise: Vec<u8> = (0..len).map(|_| c.next() as u8).collect();
        assert!(check_both(&noise, &OPTIONS).is_err());
        let short = image[..len].to_vec();
        assert!(check_both(&short, &OPTIONS).is_err());
    }
}
