//! Inode 7 of volumes that can grow (`resize_inode`): its map leads to the blocks kept behind the
//! descriptors, in the primary and in every copy. What it holds follows from the geometry alone.

use crate::bytes::set32;
use crate::ext::Geometry;
use crate::{BlockNo, GroupNo, Ino};

/// The inode itself.
pub const RESIZE_INO: Ino = Ino(7);
/// Its one pointer: the double indirect one.
pub const DOUBLE: usize = 13;

/// The groups with copies, but for the first.
fn copies(geo: &Geometry) -> Vec<GroupNo> {
    (1..geo.groups).map(GroupNo).filter(|g| geo.has_super(*g)).collect()
}

/// The reserved blocks of the primary with what they hold: where their copies lie.
pub fn reserved(geo: &Geometry) -> Vec<(BlockNo, Vec<u8>)> {
    let copies = copies(geo);
    let block = |i: u32| {
        let offset = u64::from(1 + geo.desc_blocks() + i);
        let mut bytes = vec![0; geo.block_bytes];
        for (n, g) in copies.iter().enumerate().take(geo.block_bytes / 4) {
            set32(&mut bytes, 4 * n, geo.group_start(*g).plus(offset).0 as u32);
        }
        (geo.group_start(GroupNo(0)).plus(offset), bytes)
    };
    (0..geo.reserved_gdt_blocks).map(block).collect()
}

/// The double indirect block, which names the reserved blocks of the primary.
pub fn top(geo: &Geometry) -> Vec<u8> {
    let mut bytes = vec![0; geo.block_bytes];
    for i in 0..geo.reserved_gdt_blocks {
        let n = geo.desc_blocks() + i;
        let at = n as usize % (geo.block_bytes / 4);
        let block = geo.group_start(GroupNo(0)).plus(u64::from(1 + n));
        set32(&mut bytes, 4 * at, block.0 as u32);
    }
    bytes
}

/// How many blocks are the inode's, in units of 512 bytes.
pub fn sectors(geo: &Geometry) -> u64 {
    let blocks = 1 + u64::from(geo.reserved_gdt_blocks) * (1 + copies(geo).len() as u64);
    blocks * (geo.block_bytes / 512) as u64
}
