//! Numbers that lead to a block of somebody else's: of mmp's block, of the orphan file's, and of
//! blocks of pointers, which lead to one another any number of times.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::asked::{OPTIONS, asked, edited, repaired};
use crate::common::wide::made4;
use crate::common::{Chance, Scratch, check_both, made, metadata};
use check::Kind;
use format::bytes::set32;
use format::ext::extents::{self, Head, Mapped};
use format::ext::{Geometry, GroupDesc, Superblock};
use format::ufs::inode::{BLOCK_AT, InodeRef};
use format::{BlockNo, Ino};

const M: u64 = 1 << 20;

fn blocks(s: &Scratch, image: &[u8], path: &str) -> Vec<u64> {
    let text = asked(s, image, &format!("blocks {path}"));
    text.split_whitespace().map(|n| n.parse().unwrap()).collect()
}

/// The superblock's number of mmp's block leads into a file: that keeps its block, and mmp gets
/// another one.
#[test]
fn a_wrong_number_of_mmps_block_costs_no_file_its_block() {
    let s = Scratch::new("mmp-file");
    for (sums, path) in [("^metadata_csum", "/dir0/file5"), ("metadata_csum", "/many")] {
        let image = made4(&["-J", "size=1", "-O", &format!("mmp,{sums}")], 1024, 20 * M);
        let query = if path == "/many" { "ls -p /many" } else { "cat /dir0/file5" };
        let text = asked(&s, &image, query);
        let block = *blocks(&s, &image, path).last().unwrap();
        let request = format!("set_super_value mmp_block {block}\n");
        let mut broken = edited(&s, &image, &request);
        let report = repaired(&s, &mut broken, &request);
        let found = &report.findings;
        assert!(report.counts.contains_key(&Kind::Mmp), "{sums} {path}: {found:#?}");
        assert!(asked(&s, &broken, query) == text, "{sums} {path} {block}: {found:#?}");
        assert!(check_both(&broken, &OPTIONS).unwrap().is_sound());
    }
}

/// Inodes of the volume's own say that they are values of attributes: nobody frees them as such.
#[test]
fn what_is_the_volumes_own_is_no_value_of_an_attribute() {
    let s = Scratch::new("own-values");
    for features in ["^metadata_csum", "ea_inode,^metadata_csum"] {
        let image = made4(&["-J", "size=1", "-O", features], 1024, 20 * M);
        let file = blocks(&s, &image, "/many")[0];
        for (ino, flags) in [(1, 0x20_0000), (8, 0x28_0000)] {
            let map = if ino == 1 {
                format!("set_inode_field <1> block[0] {file}\n")
            } else {
                String::new()
            };
            let request = format!("set_inode_field <{ino}> flags {flags:#x}\n{map}");
            let mut broken = edited(&s, &image, &request);
            repaired(&s, &mut broken, &request);
            assert!(check_both(&broken, &OPTIONS).unwrap().is_sound(), "{features}, inode {ino}");
        }
    }
}

/// The map of the orphan file leads to a block of a file: that is not emptied.
#[test]
fn a_wrong_block_of_the_orphan_file_costs_no_file_its_contents() {
    let s = Scratch::new("orphan-file");
    let image = made4(&["-J", "size=4", "-O", "orphan_file,^metadata_csum"], 4096, 40 * M);
    let sb = Superblock::decode(&image[1024..2048]).unwrap();
    let geo = Geometry::of(&sb);
    let ino = Ino(sb.orphan_file());
    let (n, at) = geo.ino_place(ino);
    let desc = geo.desc_at(geo.group_of_ino(ino)) as usize;
    let table = GroupDesc::decode(&image[desc..]).inode_table + u64::from(n);
    let map = table as usize * 4096 + at + BLOCK_AT;
    let m = extents::mapped(&image[map..map + 60], 0);
    assert!(m.len > 1, "{m:?}");
    for path in ["/dir0/file5", "/many"] {
        let query = if path == "/many" { "ls -p /many" } else { "cat /dir0/file5" };
        let text = asked(&s, &image, query);
        let foreign = BlockNo(blocks(&s, &image, path)[0]);
        let mut broken = image.clone();
        let root = &mut broken[map..map + 60];
        extents::set_head(root, Head { entries: 2, max: 4, depth: 0 });
        extents::set_mapped(root, 0, &Mapped { len: m.len - 1, ..m });
        let last = Mapped { first: m.len - 1, len: 1, start: foreign, unwritten: false };
        extents::set_mapped(root, 1, &last);
        let report = repaired(&s, &mut broken, path);
        assert!(asked(&s, &broken, query) == text, "{path}: {:#?}", report.findings);
    }
}

/// Blocks of pointers that lead to one another, to directories and to their own holders: whatever
/// they claim, each block has one owner in the end.
#[test]
fn blocks_of_pointers_that_lead_to_one_another_are_parted() {
    let image = made(&["-t", "ext2", "-I", "128"], 1024, 12 * M);
    let m = metadata(&image);
    let rounds = crate::common::rounds::number("MUTATIONS").unwrap_or(40);
    let from = crate::common::rounds::number("FROM").unwrap_or(0);
    let maps: Vec<usize> = m
        .inodes
        .iter()
        .map(|i| i.0)
        .filter(|at| {
            let i = InodeRef(&image[*at..*at + 128]);
            (i.is_file() || i.is_dir()) && i.size() > 0
        })
        .collect();
    for n in from..from + rounds {
        let mut c = Chance(n * 11 + 5);
        c.next();
        let mut broken = image.clone();
        let pointed: Vec<usize> = m.indirect.iter().chain(&m.dirs).map(|r| r.0 / 1024).collect();
        for _ in 0..c.below(30) + 2 {
            let to = c.pick(&pointed) as u32;
            let word = match c.below(3) {
                0 => c.pick(&maps) + BLOCK_AT + 4 * c.pick(&[0, 1, 11, 12, 12, 13, 13, 14, 14]),
                _ => c.pick(&m.indirect).0 + 4 * c.pick(&[0, 1, 2, 3, 100, 255]),
            };
            set32(&mut broken, word, to);
        }
        let report = check_both(&broken, &OPTIONS).unwrap();
        assert!(report.left.is_empty(), "{n}: {:#?}", report.left);
        report.plan.apply(&mut broken, &mut ()).unwrap();
        let again = check_both(&broken, &OPTIONS).unwrap();
        assert!(again.is_sound(), "{n}: {:#?}", again.findings);
    }
}
