//! Blocks that a device cannot read any more: each is named by the file that lost it, and the rest
//! is read all the same.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::asked::edited;
use crate::common::wide::made4;
use crate::common::{Scratch, made, tool};
use check::{Contents, IoError, ReadBlocks, read_contents};
use std::collections::BTreeSet;

const M: u64 = 1 << 20;

/// An image of which some blocks cannot be read.
struct Worn {
    image: Vec<u8>,
    block: u64,
    lost: BTreeSet<u64>,
}

impl ReadBlocks for Worn {
    fn size_bytes(&self) -> u64 {
        self.image.len() as u64
    }
    fn read_at(&self, at: u64, into: &mut [u8]) -> Result<(), IoError> {
        let last = (at + into.len() as u64 - 1) / self.block;
        match self.lost.range(at / self.block..=last).next() {
            Some(b) => Err(IoError { what: "worn out".into(), at: b * self.block }),
            None => self.image.read_at(at, into),
        }
    }
}

/// The blocks of a file, as debugfs lists them.
fn blocks(s: &Scratch, image: &[u8], path: &str) -> Vec<u64> {
    let file = s.path("asked.img");
    std::fs::write(&file, image).unwrap();
    let out = tool("debugfs").args(["-R", &format!("blocks {path}")]).arg(&file).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let all: Vec<u64> = text.split_whitespace().map(|n| n.parse().unwrap()).collect();
    assert!(!all.is_empty(), "{path} has blocks");
    all
}

fn read(image: &[u8], block: u64, lost: &[u64]) -> Contents {
    let lost = lost.iter().copied().collect();
    read_contents(&Worn { image: image.to_vec(), block, lost }, &mut ()).unwrap()
}

#[test]
fn what_cannot_be_read_is_named_by_its_files() {
    let s = Scratch::new("contents");
    let volumes = [
        (1024, made(&["-t", "ext2", "-I", "256"], 1024, 9 * M)),
        (1024, made4(&["-J", "size=1"], 1024, 20 * M)),
        (4096, made4(&["-J", "size=4", "-O", "^metadata_csum"], 4096, 40 * M)),
    ];
    for (block, image) in volumes {
        let all = read(&image, block, &[]);
        assert!(all.unreadable.is_empty() && all.files > 20, "{all:?}");
        let of = |path: &str| blocks(&s, &image, path);
        let (single, hard, dir, large) =
            (of("/dir0/file5"), of("/dir2/file1"), of("/many"), of("/double"));
        let lost = [single[0], hard[0], dir[dir.len() - 1], large[20], large[30]];
        let worn = read(&image, block, &lost);
        let mut named: Vec<(Vec<String>, u64)> = worn
            .unreadable
            .iter()
            .map(|u| {
                let mut names = u.names.clone();
                names.sort();
                (names, u.blocks)
            })
            .collect();
        named.sort();
        let name = |all: &[&str]| all.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        let want = vec![
            (name(&["/dir0/file5"]), 1),
            (name(&["/dir2/file1", "/dir2/inner/hard"]), 1),
            (name(&["/double"]), 2),
            (name(&["/many"]), 1),
        ];
        assert_eq!(named, want, "of blocks of {block}");
        assert_eq!(worn.files, all.files, "the others are read");
        assert!(worn.unreadable.iter().all(|u| lost.contains(&(u.at / block))));
    }
}

#[test]
fn a_lost_journal_and_a_lost_map_are_told() {
    let s = Scratch::new("contents-map");
    let image = made(&["-t", "ext3", "-J", "size=1"], 1024, 12 * M);
    let journal = blocks(&s, &image, "<8>");
    let worn = read(&image, 1024, &[journal[100]]);
    assert_eq!(worn.unreadable[0].names, ["the journal"]);
    // The block after the twelfth is the indirect one.
    let map = blocks(&s, &image, "/double")[12];
    let worn = read(&image, 1024, &[map]);
    assert_eq!(worn.unreadable[0].names, ["/double"]);
}

/// A block of pointers to itself is read once.
#[test]
fn an_indirect_block_that_leads_to_itself_is_no_end_of_contents() {
    let s = Scratch::new("contents-loop");
    let image = made(&["-t", "ext2", "-I", "128"], 1024, 9 * M);
    let loops = blocks(&s, &image, "/double")[0];
    let mut broken = edited(&s, &image, &format!("sif /sparse block[TIND] {loops}\n"));
    let at = loops as usize * 1024;
    broken[at..at + 1024].copy_from_slice(&(loops as u32).to_le_bytes().repeat(256));
    let (before, after) = (read(&image, 1024, &[]), read(&broken, 1024, &[]));
    assert!(after.bytes < before.bytes + (1 << 20), "{} bytes", after.bytes);
}
