//! Volumes of ext4 with a field that means something else, with its checksum right or wrong: what
//! e2fsck finds the check finds, and what it says it can repair e2fsck accepts afterwards.
//! MUTATIONS: how many of each image and kind; FROM: the first of them; SEED: one of them alone.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::asked::{edited, repaired};
use crate::common::rounds::Rounds;
use crate::common::wide::{ALL, Layout, Of, made4};
use crate::common::{Counted, Scratch, Two, check_both, e2fsck};
use check::{CheckError, Kind, Options, check, check_together};
use format::bytes::set32;
use format::ext::{Geometry, GroupDesc, Superblock, extents};
use format::ufs::inode::InodeRef;
use format::{GroupNo, Ino};
use std::sync::atomic::AtomicUsize;

const OPTIONS: Options = Options { now_secs: 1_900_000_000, verify: true, mark_clean: true };
const M: u64 = 1 << 20;

fn images() -> Vec<(&'static str, Vec<u8>)> {
    let old_sums = "^metadata_csum,uninit_bg";
    vec![
        ("ext4", made4(&["-J", "size=1"], 1024, 20 * M)),
        ("sums of descriptors", made4(&["-J", "size=1", "-O", old_sums], 1024, 20 * M)),
        ("no sums", made4(&["-J", "size=4", "-O", "^metadata_csum"], 4096, 40 * M)),
        ("meta_bg", made4(&["-J", "size=1", "-O", "meta_bg,^resize_inode"], 1024, 34 * M)),
        ("inline", made4(&["-J", "size=1", "-O", "inline_data"], 1024, 20 * M)),
        ("orphan file", made4(&["-J", "size=4", "-O", "orphan_file"], 4096, 40 * M)),
        (
            "narrow",
            made4(
                &["-J", "size=2", "-I", "128", "-O", "^64bit,^flex_bg,sparse_super2"],
                2048,
                40 * M,
            ),
        ),
    ]
}

#[test]
fn sound_volumes_are_sound() {
    let s = Scratch::new("sound4");
    for (name, image) in images() {
        assert_eq!(e2fsck(&s, &image).0, 0, "{name}");
        let report = check_both(&image, &OPTIONS).unwrap();
        assert!(report.is_sound(), "{name}: {:#?}", report.findings);
        assert!(report.plan.is_empty(), "{name}: the plan is not empty");
    }
}

/// What several hands learn of a sound volume is taken over: nothing is looked at once more.
#[test]
fn several_hands_look_at_a_sound_volume_once() {
    for (name, image) in images() {
        let [alone, together] = [(), ()].map(|()| Counted(&image, AtomicUsize::new(0)));
        let first = check(&alone, &OPTIONS, &mut ()).unwrap();
        let second = check_together(&together, &OPTIONS, &mut (), &Two).unwrap();
        assert_eq!(first, second, "{name}");
        assert_eq!(alone.1.into_inner(), together.1.into_inner(), "{name}");
    }
}

#[test]
fn what_e2fsck_finds_is_found_and_what_is_repaired_it_accepts() {
    let s = Scratch::new("mutated4");
    let rounds = Rounds::asked(4);
    let (mut bad, mut judged) = (Vec::new(), 0u64);
    for (n, (name, image)) in images().into_iter().enumerate() {
        let layout = Layout::of(&image);
        for (k, of) in ALL.into_iter().enumerate() {
            for (seed, mut c) in rounds.seeds(n, k) {
                let mut broken = image.clone();
                let mut what = layout.mutate(&mut broken, of, c.below(3) > 0, &mut c);
                if c.below(4) == 0 {
                    let other = c.pick(&ALL);
                    what += &format!("; {}", layout.mutate(&mut broken, other, true, &mut c));
                }
                let place = format!("{name}, {of:?}, SEED={seed}: {what}");
                judged += 1;
                if let Some(why) = judge(&s, &broken, of) {
                    bad.push(format!("{place}\n  {why}"));
                    if rounds.only.is_some() {
                        std::fs::write("/dev/shm/broken4.img", &broken).unwrap();
                    }
                }
            }
        }
    }
    assert!(rounds.only.is_some() || judged == rounds.count * 70, "only {judged} were judged");
    assert!(bad.is_empty(), "{} of {judged}\n{}", bad.len(), bad[..bad.len().min(40)].join("\n"));
}

/// What is wrong with our verdict on a damaged image.
fn judge(s: &Scratch, broken: &Vec<u8>, of: Of) -> Option<String> {
    let report = match check_both(broken, &OPTIONS) {
        Ok(r) => r,
        // Refused, or to be replayed first: nothing is called repaired.
        Err(CheckError::Format(_) | CheckError::NeedsRecovery | CheckError::CutShort { .. }) => {
            return None;
        }
        Err(e) => return Some(e.to_string()),
    };
    let before = e2fsck(s, broken);
    if report.is_sound() {
        return (before.0 != 0).then(|| format!("nothing is found; e2fsck: {}", before.1));
    }
    // What is left is said: e2fsck's business. That is seldom.
    let found: Vec<String> = report.findings.iter().take(8).map(ToString::to_string).collect();
    if let Some(left) = report.left.first() {
        let place_taken = of == Of::Desc && left.to_string().contains("e2fsck may move it");
        return (!place_taken).then(|| format!("found {found:#?}\n  left {left}\n  {}", before.1));
    }
    let mut after = broken.clone();
    report.plan.apply(&mut after, &mut ()).unwrap();
    let (code, text) = e2fsck(s, &after);
    (code != 0).then(|| format!("found {found:#?}\n  e2fsck {text}\n  before: {}", before.1))
}

/// The block of mmp, which no file has, is in use; damaged it is made anew, and e2fsck is content.
#[test]
fn a_damaged_block_of_mmp_is_made_anew() {
    let s = Scratch::new("mmp4");
    let image = made4(&["-J", "size=1", "-O", "mmp"], 1024, 20 * M);
    let sb = Superblock::decode(&image[1024..2048]).unwrap();
    let at = sb.mmp_block().unwrap().0 as usize * 1024;
    let report = check_both(&image, &OPTIONS).unwrap();
    assert!(report.is_sound(), "{:#?}", report.findings);
    // The magic number, the number of who uses it, a byte under the checksum.
    for byte in [at, at + 7, at + 600] {
        let mut broken = image.clone();
        broken[byte] ^= 0x10;
        let report = check_both(&broken, &OPTIONS).unwrap();
        let kinds: Vec<_> = report.findings.iter().map(|f| f.kind.name()).collect();
        assert_eq!((kinds, report.left.len()), (vec!["mmp"], 0), "byte {byte}");
        report.plan.apply(&mut broken, &mut ()).unwrap();
        assert!(check_both(&broken, &OPTIONS).unwrap().is_sound());
        assert_eq!(e2fsck(&s, &broken).0, 0, "byte {byte}");
    }
}

/// A block of mmp that is said to be in an inode table, or a bitmap, is not made there.
#[test]
fn a_block_of_mmp_does_not_go_over_the_volumes_own() {
    let image = made4(&["-J", "size=1", "-O", "mmp,^metadata_csum"], 1024, 20 * M);
    let geo = Geometry::of(&Superblock::decode(&image[1024..2048]).unwrap());
    let d = GroupDesc::decode(&image[geo.desc_at(GroupNo(0)) as usize..]);
    let s = Scratch::new("mmp4");
    for block in [d.inode_table, d.inode_bitmap, 0, 1 << 30] {
        let mut broken = image.clone();
        broken[1024 + 0x168..1024 + 0x16c].copy_from_slice(&(block as u32).to_le_bytes());
        // As e2fsck does not; it opens no such volume.
        let report = repaired(&s, &mut broken, "mmp's block is somewhere else");
        assert!(report.counts.contains_key(&Kind::Mmp), "{block}: {:#?}", report.findings);
        let at = block as usize * 1024;
        let same = block >= geo.blocks || broken[at..at + 1024] == image[at..at + 1024];
        assert!(same || block == 0, "block {block} is another");
    }
    // A bit of the features that came from nowhere.
    let none = made4(&["-J", "size=1", "-O", "^metadata_csum"], 1024, 20 * M);
    let mut broken = edited(&s, &none, "feature mmp\n");
    repaired(&s, &mut broken, "mmp");
}

/// The superblock calls a file of somebody's the orphan file: that keeps its contents and its name.
#[test]
fn a_file_that_is_called_the_orphan_file_is_kept() {
    let s = Scratch::new("called4");
    let image = made4(&["-J", "size=4", "-O", "orphan_file,^metadata_csum"], 4096, 40 * M);
    let sb = Superblock::decode(&image[1024..2048]).unwrap();
    let geo = Geometry::of(&sb);
    let slot = |image: &[u8], ino: Ino| {
        let (group, (n, at)) = (geo.group_of_ino(ino), geo.ino_place(ino));
        let table = GroupDesc::decode(&image[geo.desc_at(group) as usize..]).inode_table;
        let from = (table + u64::from(n)) as usize * geo.block_bytes + at;
        image[from..from + geo.inode_bytes].to_vec()
    };
    let is_kept = |ino: &Ino| {
        let raw = slot(&image, *ino);
        let i = InodeRef(&raw);
        let whole = i.size() > 0 && i.size() % 4096 == 0;
        let usable = i.is_file() && i.links() > 0 && i.has_extents() && whole;
        usable && ino.0 != sb.orphan_file() && !i.is_inline()
    };
    let files: Vec<Ino> = (geo.first_ino..=geo.inodes()).map(Ino).filter(is_kept).collect();
    assert!(files.len() > 3, "{files:?}");
    for ino in files.into_iter().take(4).chain([Ino(2)]) {
        let mut broken = image.clone();
        set32(&mut broken, 1024 + 0x280, ino.0);
        let report = check_both(&broken, &OPTIONS).unwrap();
        assert!(report.left.is_empty(), "{:#?}", report.left);
        report.plan.apply(&mut broken, &mut ()).unwrap();
        assert_eq!(slot(&broken, ino), slot(&image, ino), "inode {ino}\n{:#?}", report.findings);
        let map = InodeRef(&slot(&image, ino)).map_bytes();
        if extents::head(&map, None).is_ok_and(|h| h.depth == 0) {
            let first = extents::mapped(&map, 0).start.0 as usize * 4096;
            assert_eq!(broken[first..first + 4096], image[first..first + 4096], "inode {ino}");
        }
        let (code, text) = e2fsck(&s, &broken);
        assert_eq!(code, 0, "inode {ino}: {text}");
    }
}
