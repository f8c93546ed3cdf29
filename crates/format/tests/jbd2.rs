//! A journal written with our blocks and replayed by the real e2fsck: what it has installed
//! afterwards shows that it reads them as we do.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use format::bytes::{le32, set32};
use format::ext::features::incompat::RECOVER;
use format::ext::superblock::Superblock;
use format::jbd2::{JournalSuperblock, Shape, Tag, escape, incompat, superblock};
use format::mkfs::{MkfsOptions, Plan, Profile};
use format::ufs::inode::InodeRef;
use format::{BlockNo, Ino};
use std::process::Command;

const BS: usize = 1024;

fn volume() -> Vec<u8> {
    let o = MkfsOptions {
        block_bytes: BS,
        inodes: Some(64),
        ..MkfsOptions::plain(8 << 20, Profile::Ext3)
    };
    let mut image = vec![0; 8 << 20];
    Plan::new(&o)
        .unwrap()
        .each_block(|b, bytes| {
            image[b.0 as usize * BS..][..bytes.len()].copy_from_slice(bytes);
            Ok::<(), ()>(())
        })
        .unwrap();
    image
}

/// The disk blocks of the journal's first 200 blocks.
fn journal_blocks(image: &[u8]) -> Vec<usize> {
    let sb = Superblock::decode(&image[1024..2048]).unwrap();
    let geo = format::ext::Geometry::of(&sb);
    let table = le32(image, 2 * BS + 8) as usize;
    let (n, at) = geo.ino_place(Ino(8));
    let at = (table + n as usize) * BS + at;
    let raw = &image[at..at + 256];
    let single = InodeRef(raw).pointer(12) as usize * BS;
    (0..200)
        .map(|n| match n {
            0..12 => InodeRef(raw).pointer(n) as usize,
            _ => le32(image, single + 4 * (n - 12)) as usize,
        })
        .collect()
}

fn replayed(image: &[u8], name: &str) -> Vec<u8> {
    let path = std::env::temp_dir().join(format!("cairn-jbd2-{name}-{}", std::process::id()));
    std::fs::write(&path, image).unwrap();
    let e2fsck = if std::path::Path::new("/usr/sbin/e2fsck").exists() {
        "/usr/sbin/e2fsck"
    } else {
        "e2fsck"
    };
    let out = Command::new(e2fsck).arg("-fy").arg(&path).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(matches!(out.status.code(), Some(0 | 1)), "{name}: {text}");
    let after = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    after
}

#[test]
fn e2fsck_replays_what_we_write() {
    for (name, bits) in [
        ("plain", incompat::REVOKE),
        ("wide", incompat::REVOKE | incompat::WIDE),
        ("v2", incompat::REVOKE | incompat::CSUM_V2),
        ("v3", incompat::REVOKE | incompat::CSUM_V3),
        ("v3wide", incompat::REVOKE | incompat::WIDE | incompat::CSUM_V3),
    ] {
        let mut image = volume();
        let journal = journal_blocks(&image);
        let first = journal[0] * BS;
        superblock::set_incompat(&mut image[first..first + BS], bits);
        superblock::set_tail(&mut image[first..first + BS], 1, u32::MAX);
        let sb = JournalSuperblock::decode(&image[first..first + BS]).unwrap();
        sb.check(1024, BS).unwrap();
        let shape = Shape::of(&sb).unwrap();
        // Blocks that no file owns; e2fsck lets their contents be.
        let places: Vec<u64> = (6000..6010).collect();
        let mut at = 1;
        let mut put = |bytes: &[u8], image: &mut Vec<u8>| {
            image[journal[at] * BS..][..BS].copy_from_slice(bytes);
            at += 1;
        };
        // The number of the second transaction has wrapped around.
        for (tid, fill) in [(u32::MAX, 0x11u8), (0, 0x22)] {
            if tid == 0 {
                put(&shape.revoke(tid, &[BlockNo(places[9])]), &mut image);
            }
            let count = if tid == 0 { 5 } else { 10 };
            let mut blocks: Vec<Vec<u8>> = vec![vec![fill; BS]; count];
            set32(&mut blocks[2], 0, u32::from_be(0xc03b_3998));
            let escaped: Vec<bool> = blocks.iter_mut().map(|b| escape(b)).collect();
            let tags: Vec<Tag> = (0..count)
                .map(|n| Tag {
                    block: BlockNo(places[n]),
                    escaped: escaped[n],
                    sum: shape.block_sum(tid, &blocks[n]),
                })
                .collect();
            put(&shape.descriptor(tid, &sb.uuid, &tags), &mut image);
            blocks.iter().for_each(|b| put(b, &mut image));
            put(&shape.commit(tid, 1_700_000_100, 5), &mut image);
        }
        let at = 1024 + 0x60;
        let bits = le32(&image, at) | RECOVER;
        set32(&mut image, at, bits);
        let after = replayed(&image, name);
        let byte = |n: usize| after[places[n] as usize * BS + 100];
        assert_eq!((byte(0), byte(4)), (0x22, 0x22), "{name}: the second transaction");
        assert_eq!((byte(5), byte(8)), (0x11, 0x11), "{name}: the first transaction");
        assert_eq!(byte(9), 0, "{name}: revoked");
        let head = &after[places[2] as usize * BS..][..4];
        assert_eq!(head, 0xc03b_3998u32.to_be_bytes(), "{name}: escaped");
        let sb = JournalSuperblock::decode(&after[first..first + BS]).unwrap();
        assert_eq!(sb.start, 0, "{name}");
    }
}
