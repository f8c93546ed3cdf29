//! New volumes over old ones: nothing of the old one is left that could be taken for a part of the
//! new one, and a sparse disk stays sparse.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use check::{ReadBlocks, locate};
use format::mkfs::{MkfsOptions, Profile};
use lab::SimDevice;
use sim::Image;

#[test]
fn no_copy_of_an_older_superblock_is_left() {
    const BYTES: u64 = 600 << 20;
    let options = |block_bytes: usize, uuid: &[u8; 16]| MkfsOptions {
        block_bytes,
        uuid: *uuid,
        journal_bytes: Some(4 << 20),
        ..MkfsOptions::plain(BYTES, Profile::Ext4 { checksums: true })
    };
    for (old, new) in [(1024, 4096), (4096, 1024), (2048, 4096), (4096, 4096)] {
        let mut disk = SimDevice(Image::new(BYTES));
        volume::make(&mut disk, &options(old, b"an old volume's!"), true).unwrap();
        let hole = (0..BYTES >> 20).rev().find(|n| disk.known_zero(n << 20, 1 << 20)).unwrap();
        volume::make(&mut disk, &options(new, b"a new volume's!!"), false).unwrap();
        assert!(disk.known_zero(hole << 20, 1 << 20), "{old}, {new}: it was written to");
        let found = locate(&disk).unwrap();
        assert_eq!(found.superblock.uuid(), *b"a new volume's!!");
        let mut block = [0; 1024];
        for at in (0..BYTES).step_by(1024).filter(|at| !disk.known_zero(*at, 1024)) {
            disk.read_at(at, &mut block).unwrap();
            let is_old =
                block[0x38..0x3a] == [0x53, 0xef] && &block[0x68..0x78] == b"an old volume's!";
            assert!(!is_old, "{old}, {new}: a copy of the old superblock is left at {at}");
        }
    }
}
