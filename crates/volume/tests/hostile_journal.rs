//! A journal whose map was made by somebody who means harm: who looks at the volume has an answer.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use format::ext::extents::{Head, max_entries, set_head, set_index};
use format::ext::inode::BLOCK_AT;
use format::ext::{Geometry, GroupDesc, Superblock};
use format::{BlockNo, GroupNo, JOURNAL_INO};
use std::process::Command;

const BLOCK: usize = 1024;
const BYTES: usize = 20 << 20;

fn made() -> Vec<u8> {
    let path = std::env::temp_dir().join(format!("cairn-hostile-{}", std::process::id()));
    std::fs::File::create(&path).unwrap().set_len(BYTES as u64).unwrap();
    let args = ["-q", "-F", "-t", "ext4", "-b", "1024", "-O", "^metadata_csum", "-J", "size=1"];
    let mke2fs = Command::new("/usr/sbin/mke2fs").args(args).arg(&path).status().unwrap();
    let image = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(mke2fs.success());
    image
}

/// A node whose entries all lead to one block.
fn fill(node: &mut [u8], depth: u16, below: u64) {
    let max = max_entries(node.len());
    let entries = if depth == 0 { 0 } else { max };
    set_head(node, Head { entries, max, depth });
    (0..entries).for_each(|i| set_index(node, i, i as u32, BlockNo(below)));
}

/// All ways from the root, some 200 million of them, lead to one leaf, which maps nothing.
#[test]
fn a_journal_of_nodes_without_extents_is_damage() {
    let mut image = made();
    let geo = Geometry::of(&Superblock::decode(&image[1024..2048]).unwrap());
    let desc = GroupDesc::decode(&image[geo.desc_at(GroupNo(0)) as usize..][..geo.desc_bytes]);
    let (block, byte) = geo.ino_place(JOURNAL_INO);
    let root = (desc.inode_table as usize + block as usize) * BLOCK + byte + BLOCK_AT;
    let leaf = (BYTES / BLOCK - 1) as u64; // where nothing is
    fill(&mut image[root..root + 60], 5, leaf - 4);
    for depth in 0..5u64 {
        let at = (leaf - depth) as usize * BLOCK;
        fill(&mut image[at..at + BLOCK], depth as u16, leaf + 1 - depth);
    }
    let fault = volume::probe(&image).unwrap().journal_fault.unwrap();
    assert!(fault.contains("a node of extents"), "{fault}");
}
