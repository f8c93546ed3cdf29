//! Damage to one field, beside which all that a file is can still be read: a repair keeps as much
//! of it as e2fsck does.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::asked::{OPTIONS, asked, edited, repaired};
use crate::common::wide::made4;
use crate::common::{Scratch, check_both, tool};
use check::Kind;
use format::BlockNo;
use format::bytes::{le16, set16};

use format::ext::Superblock;
use format::ext::extents::{Head, Mapped, set_head, set_mapped};
use std::path::Path;

const M: u64 = 1 << 20;

fn resized(img: &Path, image: &[u8], bytes: u64) -> Vec<u8> {
    std::fs::write(img, image).unwrap();
    std::fs::OpenOptions::new().write(true).open(img).unwrap().set_len(bytes).unwrap();
    let size = format!("{}K", bytes / 1024);
    let out = tool("resize2fs").arg("-f").arg(img).arg(size).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    std::fs::read(img).unwrap()
}

/// Copies of the superblock that a change of size has not reached do not take it back.
#[test]
fn old_copies_do_not_outvote_a_volume_that_was_resized() {
    let s = Scratch::new("resized");
    for sums in [&["-O", "^metadata_csum"][..], &[]] {
        let old = made4(&[&["-J", "size=1"], sums].concat(), 1024, 32 * M);
        let mut image = resized(&s.path("img"), &old, 64 * M);
        for block in [8193, 24_577] {
            let at = block * 1024;
            image[at..at + 1024].copy_from_slice(&old[at..at + 1024]);
        }
        let report = repaired(&s, &mut image, "resized");
        assert!(!report.counts.contains_key(&Kind::SuperDamaged), "{:#?}", report.findings);
        assert_eq!(Superblock::decode(&image[1024..2048]).unwrap().blocks(), 64 << 10);
    }
}

/// Attributes, and contents in the inode, stay where they are when the field that says where they
/// begin is wrong.
#[test]
fn a_wrong_length_of_the_extra_fields_costs_no_attributes() {
    let s = Scratch::new("extra");
    let image = made4(&["-J", "size=1", "-O", "inline_data"], 1024, 20 * M);
    let small = "/many/a-rather-long-name-to-fill-blocks-0002";
    let text = asked(&s, &image, &format!("cat {small}"));
    assert!(text.starts_with("\u{1}\u{1e}"), "{text:?}");
    for extra in [2, 200] {
        let requests =
            format!("sif /dir0/file1 extra_isize {extra}\nsif {small} extra_isize {extra}\n");
        let mut broken = edited(&s, &image, &requests);
        repaired(&s, &mut broken, &requests);
        let colour = asked(&s, &broken, "ea_get /dir0/file1 user.colour");
        assert!(colour.contains("blue"), "{colour}");
        assert_eq!(asked(&s, &broken, &format!("cat {small}")), text);
    }
}

/// A file in its inode that says that it is longer than any map is as long as what lies there.
#[test]
fn a_length_that_no_map_can_hold_costs_no_contents_in_the_inode() {
    let s = Scratch::new("inline-size");
    let image = made4(&["-J", "size=1", "-O", "inline_data"], 1024, 20 * M);
    let small = "/many/a-rather-long-name-to-fill-blocks-0002";
    let text = asked(&s, &image, &format!("cat {small}"));
    let mut broken = edited(&s, &image, &format!("sif {small} size 0x800000064\n"));
    let report = repaired(&s, &mut broken, "size");
    assert!(report.counts.contains_key(&Kind::Size), "{:#?}", report.findings);
    assert!(asked(&s, &broken, &format!("cat {small}")).starts_with(text.trim_end_matches('\0')));
}

/// One link says of a directory that they are not counted only where it has an index.
#[test]
fn a_directory_without_an_index_has_its_links_counted() {
    let s = Scratch::new("one-link");
    let image = made4(&["-J", "size=1"], 1024, 20 * M);
    let mut broken = edited(&s, &image, "sif /dir1/inner links_count 1\nsif /many links_count 1\n");
    let report = repaired(&s, &mut broken, "links");
    let low: Vec<_> = report.findings.iter().filter(|f| f.kind == Kind::LinksLow).collect();
    assert_eq!(low.len(), 1, "{:#?}", report.findings);
}

/// A superblock that says that checksums are of a kind that nobody knows is not believed, as
/// e2fsck and Linux do not, though its own is right; a copy stands in for it.
#[test]
fn checksums_of_an_unknown_kind_are_damage_to_the_superblock() {
    let s = Scratch::new("sum-kind");
    let mut image = made4(&["-J", "size=1"], 1024, 20 * M);
    let raw = &mut image[1024..2048];
    raw[0x175] = 2;
    let sum = format::ext::csum::crc(!0, &raw[..1020]);
    format::bytes::set32(raw, 1020, sum);
    assert!(Superblock::decode(raw).unwrap_err().to_string().contains("of kind 2"));
    let report = repaired(&s, &mut image, "kind");
    assert!(report.counts.contains_key(&Kind::SuperDamaged), "{:#?}", report.findings);
    assert_eq!(image[1024 + 0x175], 1);
}

/// A directory in its inode is one whatever its mode says.
#[test]
fn a_directory_in_its_inode_survives_a_wrong_mode() {
    let s = Scratch::new("inline-mode");
    let image = made4(&["-J", "size=1", "-O", "inline_data"], 1024, 20 * M);
    let dir = "/dir1/inner/deeper";
    let names = asked(&s, &image, &format!("ls -p {dir}"));
    assert!(names.contains("/leaf/"), "{names}");
    for mode in ["0050755", "0010755", "0000755"] {
        let mut broken = edited(&s, &image, &format!("sif {dir} mode {mode}\n"));
        let report = repaired(&s, &mut broken, mode);
        assert_eq!(asked(&s, &broken, &format!("ls -p {dir}")), names);
        assert!(report.findings.iter().all(|f| !f.loses_name), "{:#?}", report.findings);
    }
}

/// A node of an extent tree that says a wrong depth has what the node above says it has.
#[test]
fn a_wrong_depth_of_a_node_costs_no_blocks() {
    let s = Scratch::new("depth");
    for sums in ["^metadata_csum", "metadata_csum"] {
        let image = made4(&["-J", "size=1", "-O", sums], 1024, 20 * M);
        let tree = asked(&s, &image, "ex /pieces");
        // The lines of nodes: level, levels, "1/", entries, from, "-", to, where.
        let node = |level: &str| {
            let line = tree.lines().find(|l| l.trim_start().starts_with(level)).unwrap();
            line.split_whitespace().nth(7).unwrap().parse::<usize>().unwrap() * 1024
        };
        for (at, depths) in [(node("0/ 2"), [0, 3, 0x101]), (node("1/ 2"), [1, 0x20, 0x100])] {
            assert_eq!(le16(&image, at), 0xf30a, "{tree}");
            for depth in depths {
                let mut broken = image.clone();
                set16(&mut broken, at + 6, depth);
                repaired(&s, &mut broken, sums);
                let cat = |image: &[u8]| asked(&s, image, "cat /pieces");
                assert!(cat(&broken) == cat(&image), "{sums}, {depth}: the contents are others");
            }
        }
    }
}

/// A directory has no more blocks than the volume: what says so is not listed.
#[test]
fn a_directory_of_more_blocks_than_there_are_is_cut() {
    let s = Scratch::new("dir-size");
    let mut image = made4(&["-J", "size=1", "-O", "^metadata_csum"], 1024, 40 * M);
    let before = asked(&s, &image, "ls -p /dir0");
    let own: u32 = asked(&s, &image, "blocks /dir0").trim().parse().unwrap();
    let free = asked(&s, &image, "ffb 1 30000");
    let leaf: u32 = free.trim_end().rsplit(' ').next().unwrap().parse().unwrap();
    let all = |n: u32| match n {
        0 => Mapped { first: 0, len: 1, start: BlockNo(own.into()), unwritten: false },
        n => Mapped {
            first: 1 + 5000 * (n - 1),
            len: 5000,
            start: BlockNo(u64::from(leaf) + 1),
            unwritten: false,
        },
    };
    let node = &mut image[leaf as usize * 1024..][..1024];
    set_head(node, Head { entries: 80, max: 84, depth: 0 });
    (0..80).for_each(|n| set_mapped(node, n as usize, &all(n)));
    // The root's header, of depth 1, and its one entry.
    let root =
        format!("sif /dir0 block[1] 0x10004\nsif /dir0 block[4] {leaf}\nsif /dir0 block[5] 0\n");
    let mut broken = edited(&s, &image, &root);
    let report = check_both(&broken, &OPTIONS).unwrap();
    let listed = report.findings.iter().filter(|f| f.text.contains("too many")).count();
    assert_eq!(listed, 1, "{:#?}", report.findings);
    repaired(&s, &mut broken, "dir-size");
    // Behind the names come the blocks that it keeps.
    let after = asked(&s, &broken, "ls -p /dir0");
    assert!(after.starts_with(before.trim_end()), "{after}");
}

/// A journal whose length is no number of blocks is restored by the superblock's copy of its inode.
#[test]
fn a_journal_of_a_broken_length_is_restored() {
    let s = Scratch::new("journal-size");
    let image = made4(&["-J", "size=1"], 1024, 20 * M);
    let mut broken = edited(&s, &image, "sif <8> size 1048831\n");
    let report = repaired(&s, &mut broken, "size");
    assert!(report.counts.contains_key(&Kind::Journal), "{:#?}", report.findings);
    assert!(asked(&s, &broken, "stat <8>").contains("Size: 1048576"));
}

/// What a repair writes first goes where nothing on the device leads, so that it may be cut off
/// behind it: not over the nodes of the tree that it makes anew.
#[test]
fn a_tree_made_anew_is_not_written_over_the_old_one() {
    let s = Scratch::new("anew");
    let image = made4(&["-J", "size=1", "-O", "^metadata_csum"], 1024, 20 * M);
    let tree = asked(&s, &image, "ex /pieces");
    let nodes = tree.lines().filter(|l| ["0/ 2", "1/ 2"].iter().any(|n| l.contains(n)));
    let nodes: Vec<u64> =
        nodes.map(|l| l.split_whitespace().nth(7).unwrap().parse().unwrap()).collect();
    assert!(nodes.len() > 4, "{tree}");
    let mut broken = image.clone();
    set16(&mut broken, nodes[2] as usize * 1024, 0); // no node's magic number
    let report = check_both(&broken, &OPTIONS).unwrap();
    let stages = report.plan.stages();
    // Behind the superblock's mark.
    let first: Vec<u64> = stages[1].iter().map(|(at, _)| at / 1024).collect();
    assert!(first.len() > 2 && first.iter().all(|b| !nodes.contains(b)), "{first:?} {nodes:?}");
    repaired(&s, &mut broken, "anew");
}

/// The root of an extent tree, in the inode, is what it leads to, whatever its header says.
#[test]
fn a_wrong_header_of_a_root_costs_no_blocks() {
    let s = Scratch::new("root");
    for sums in ["^metadata_csum", "metadata_csum"] {
        let image = made4(&["-J", "size=1", "-O", sums], 1024, 20 * M);
        // The words of the header: magic and entries, most entries and depth.
        for file in ["/pieces", "/double", "/many"] {
            let deep = asked(&s, &image, &format!("ex {file}")).contains("1/ 1");
            let cat = |image: &[u8]| match file {
                "/many" => asked(&s, image, "ls -p /many"),
                _ => asked(&s, image, &format!("cat {file}")),
            };
            let depth = if file == "/pieces" { 2u32 } else { u32::from(deep) };
            let depths = [0u32, 1, 2, 3, 6, 0x101].into_iter().filter(|d| *d != depth);
            let words = depths.map(|d| (1, 4 | d << 16));
            let words = words.chain([5, 0, 340].map(|most| (1, most | depth << 16)));
            let whole = cat(&image);
            for (n, word) in words {
                let request = format!("sif {file} block[{n}] {word:#x}\n");
                let mut broken = edited(&s, &image, &request);
                assert!(broken != image, "{request}");
                let report = repaired(&s, &mut broken, &request);
                assert!(cat(&broken) == whole, "{sums}, {request}{:#?}", report.findings);
            }
        }
    }
}

/// A root without entries is that of an empty file, whatever depth it says.
#[test]
fn a_wrong_depth_of_an_empty_root_costs_no_name() {
    let s = Scratch::new("empty-root");
    let image = made4(&["-J", "size=1"], 1024, 20 * M);
    let file = "/many/a-rather-long-name-to-fill-blocks-0072";
    for word in [0x2_0004, 0x700_0004u32] {
        let mut broken = edited(&s, &image, &format!("sif {file} block[1] {word:#x}\n"));
        let report = repaired(&s, &mut broken, file);
        assert!(report.findings.iter().all(|f| !f.loses_name), "{:#?}", report.findings);
    }
}

/// A volume without copies of its descriptors: a bitmap that is nowhere gets a new place, and the
/// inode table is found by the root directory.
#[test]
fn a_bad_place_in_the_only_descriptor_costs_nothing() {
    let s = Scratch::new("places");
    for sums in ["^metadata_csum,^uninit_bg", "metadata_csum", "^metadata_csum,^flex_bg"] {
        let image = made4(&["-J", "size=1", "-O", sums], 1024, 7 * M);
        let cat = |image: &[u8]| {
            ["cat /double", "cat /pieces", "ls -l /many"].map(|q| asked(&s, image, q))
        };
        let (whole, taken) = (cat(&image), asked(&s, &image, "blocks /double"));
        let taken = taken.split_whitespace().next().unwrap().to_owned();
        for seal in ["", "set_bg 0 checksum calc\n"] {
            for part in ["block_bitmap", "inode_bitmap", "inode_table"] {
                for to in ["0", "1", "20", "100000", "150", "58", "59", "74", &taken] {
                    if part == "inode_table" && !seal.is_empty() && to == taken {
                        continue; // a table of noise, which is right by all that can be told
                    }
                    let request = format!("set_bg 0 {part} {to}\n{seal}");
                    let mut broken = edited(&s, &image, &request);
                    if broken == image {
                        continue;
                    }
                    repaired(&s, &mut broken, &format!("{sums}: {request}"));
                    assert!(cat(&broken) == whole, "{sums}, {request}: other contents");
                }
            }
        }
    }
}

/// A directory of one block that says it has an index, and whose entries do not hang together: what
/// is mended of them stays, whatever the block was taken for before.
#[test]
fn names_of_a_broken_list_stay_where_it_is_said_to_be_an_index() {
    let s = Scratch::new("said-index");
    let made = made4(&["-J", "size=1", "-O", "metadata_csum,dir_index"], 1024, 20 * M);
    let mut script = "mkdir dd\ncd dd\n".to_owned();
    (0..8).for_each(|n| script += &format!("mkdir sub{n}\nmknod pipe{n} p\n"));
    let image = edited(&s, &made, &(script + "sif /dd flags 0x81000\n"));
    let names = |image: &[u8]| {
        let list = asked(&s, image, "ls -p /dd");
        list.lines().filter_map(|l| l.split('/').nth(5).map(str::to_owned)).collect::<Vec<_>>()
    };
    let before = names(&image);
    assert_eq!(before.len(), 18, "{before:?}");
    let block: usize = asked(&s, &image, "blocks /dd").trim().parse().unwrap();
    // Of the third entry, behind the dots.
    let mut broken = image.clone();
    set16(&mut broken, block * 1024 + 24 + 4, 3);
    let report = repaired(&s, &mut broken, "said-index");
    assert!(report.counts.contains_key(&Kind::DirTorn), "{:#?}", report.findings);
    assert_eq!(names(&broken), before, "{:#?}", report.findings);
}

/// An extent that lies where it cannot be, and is longer than the volume, does not claim all that
/// is free: the blocks of others in it would find no room to be copied to.
#[test]
fn an_extent_of_a_wrong_place_and_length_leaves_room_for_a_repair() {
    let s = Scratch::new("long-extent");
    let image = made4(&["-J", "size=1", "-O", "^metadata_csum"], 1024, 20 * M);
    let tree = asked(&s, &image, "ex /pieces");
    let leaf = tree.lines().find(|l| l.trim_start().starts_with("1/ 2")).unwrap();
    let leaf = leaf.split_whitespace().nth(7).unwrap().parse::<usize>().unwrap() * 1024;
    // The upper half of the third entry's first block, and its length.
    let mut broken = image.clone();
    broken[leaf + 38..leaf + 42].fill(0xff);
    let report = repaired(&s, &mut broken, "long-extent");
    assert!(!report.counts.contains_key(&Kind::NoRoom), "{:#?}", report.findings);
    for file in ["cat /double", "ls -p /many"] {
        assert!(asked(&s, &broken, file) == asked(&s, &image, file), "{file}");
    }
}

/// The same of one whose length alone is wrong: what goes beyond the file's end is no part of it.
#[test]
fn an_extent_of_a_wrong_length_ends_with_its_file() {
    let s = Scratch::new("long-last");
    let image = made4(&["-J", "size=1", "-O", "^metadata_csum"], 1024, 20 * M);
    let tree = asked(&s, &image, "ex /double");
    assert_eq!(tree.lines().filter(|l| l.contains("0/ 0")).count(), 1, "{tree}");
    let mut broken = edited(&s, &image, "sif /double block[4] 0x7fff\n");
    let report = repaired(&s, &mut broken, "long-last");
    assert!(!report.counts.contains_key(&Kind::NoRoom), "{:#?}", report.findings);
    for file in ["cat /double", "ls -p /many", "cat /pieces"] {
        assert!(asked(&s, &broken, file) == asked(&s, &image, file), "{file}");
    }
}
