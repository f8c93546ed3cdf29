//! Where things lie: address arithmetic from the superblock and the group descriptors, and nothing
//! else.

use crate::bytes::{le16, le32, set16, set32};
use crate::ext::Superblock;
use crate::ext::features::{compat, ro_compat};
use crate::{BlockNo, FormatError, GroupNo, Ino};

/// Bytes of a group descriptor.
pub const GROUP_DESC_BYTES: usize = 32;

/// One group's descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupDesc {
    /// Block of the block bitmap.
    pub block_bitmap: u32,
    /// Block of the inode bitmap.
    pub inode_bitmap: u32,
    /// First block of the inode table.
    pub inode_table: u32,
    /// A hint.
    pub free_blocks: u16,
    /// A hint.
    pub free_inodes: u16,
    /// A hint.
    pub used_dirs: u16,
}

impl GroupDesc {
    /// From 32 bytes.
    pub fn decode(b: &[u8]) -> GroupDesc {
        GroupDesc {
            block_bitmap: le32(b, 0),
            inode_bitmap: le32(b, 4),
            inode_table: le32(b, 8),
            free_blocks: le16(b, 12),
            free_inodes: le16(b, 14),
            used_dirs: le16(b, 16),
        }
    }
    /// Into 32 bytes; the rest of them is left alone.
    pub fn encode(&self, b: &mut [u8]) {
        set32(b, 0, self.block_bitmap);
        set32(b, 4, self.inode_bitmap);
        set32(b, 8, self.inode_table);
        set16(b, 12, self.free_blocks);
        set16(b, 14, self.free_inodes);
        set16(b, 16, self.used_dirs);
    }
}

/// The numbers that addresses are computed from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Bytes in a block.
    pub block_bytes: usize,
    /// Bytes in an inode.
    pub inode_bytes: usize,
    /// Blocks of the volume.
    pub blocks: u64,
    /// Block groups.
    pub groups: u32,
    /// Blocks in every group but the last.
    pub blocks_per_group: u32,
    /// Inodes in every group.
    pub inodes_per_group: u32,
    /// The first block of group 0.
    pub first_data_block: u32,
    /// The first ordinary inode.
    pub first_ino: u32,
    /// Blocks after the descriptors kept for growth.
    pub reserved_gdt_blocks: u32,
    /// Superblock copies in few groups only?
    pub sparse: bool,
}

impl Geometry {
    /// Of this volume.
    pub fn of(s: &Superblock) -> Geometry {
        Geometry {
            block_bytes: s.block_bytes(),
            inode_bytes: s.inode_bytes(),
            blocks: u64::from(s.blocks()),
            groups: s.groups(),
            blocks_per_group: s.blocks_per_group(),
            inodes_per_group: s.inodes_per_group(),
            first_data_block: s.first_data_block(),
            first_ino: s.first_ino(),
            // Without the feature the field means nothing.
            reserved_gdt_blocks: match s.has_compat(compat::RESIZE_INODE) {
                true => u32::from(s.reserved_gdt_blocks()),
                false => 0,
            },
            sparse: s.has_ro_compat(ro_compat::SPARSE_SUPER),
        }
    }
    /// All inodes.
    pub fn inodes(&self) -> u32 {
        self.groups * self.inodes_per_group
    }
    /// The group a block lies in.
    pub fn group_of(&self, b: BlockNo) -> GroupNo {
        GroupNo(
            ((b.0 - u64::from(self.first_data_block)) / u64::from(self.blocks_per_group)) as u32,
        )
    }
    /// A block's bit in its group's bitmap.
    pub fn bit_of(&self, b: BlockNo) -> usize {
        ((b.0 - u64::from(self.first_data_block)) % u64::from(self.blocks_per_group)) as usize
    }
    /// The first block of a group.
    pub fn group_start(&self, g: GroupNo) -> BlockNo {
        BlockNo(
            u64::from(self.first_data_block) + u64::from(g.0) * u64::from(self.blocks_per_group),
        )
    }
    /// How many blocks a group has; the last may have fewer.
    pub fn group_blocks(&self, g: GroupNo) -> u32 {
        let left = self.blocks - self.group_start(g).0;
        left.min(u64::from(self.blocks_per_group)) as u32
    }
    /// The group an inode lies in.
    pub fn group_of_ino(&self, ino: Ino) -> GroupNo {
        GroupNo((ino.0 - 1) / self.inodes_per_group)
    }
    /// An inode's bit in its group's bitmap.
    pub fn bit_of_ino(&self, ino: Ino) -> usize {
        ((ino.0 - 1) % self.inodes_per_group) as usize
    }
    /// Is it an inode of this volume?
    pub fn has_ino(&self, ino: Ino) -> bool {
        ino.0 >= 1 && ino.0 <= self.inodes()
    }
    /// May a file's block be there, as far as the volume's ends say?
    pub fn has_block(&self, b: BlockNo) -> bool {
        b.0 > u64::from(self.first_data_block) && b.0 < self.blocks
    }
    /// The block of the inode table that holds an inode, counted from the table's start, and the
    /// byte in it.
    pub fn ino_place(&self, ino: Ino) -> (u32, usize) {
        let at = self.bit_of_ino(ino) * self.inode_bytes;
        ((at / self.block_bytes) as u32, at % self.block_bytes)
    }
    /// Blocks of one group's inode table.
    pub fn inode_table_blocks(&self) -> u32 {
        (self.inodes_per_group as usize * self.inode_bytes).div_ceil(self.block_bytes) as u32
    }
    /// Blocks of the group descriptors.
    pub fn desc_blocks(&self) -> u32 {
        (self.groups as usize * GROUP_DESC_BYTES).div_ceil(self.block_bytes) as u32
    }
    /// Has the group a copy of the superblock and the descriptors?
    pub fn has_super(&self, g: GroupNo) -> bool {
        if !self.sparse || g.0 <= 1 {
            return true;
        }
        [3u32, 5, 7].iter().any(|&base| {
            let mut p = base;
            while p < g.0 {
                p = p.saturating_mul(base);
            }
            p == g.0
        })
    }
    /// Blocks at a group's start taken by superblock, descriptors and their growth.
    pub fn overhead(&self, g: GroupNo) -> u32 {
        if self.has_super(g) { 1 + self.desc_blocks() + self.reserved_gdt_blocks } else { 0 }
    }
    /// The block of the primary descriptors' `n`-th block.
    pub fn desc_block(&self, n: u32) -> BlockNo {
        BlockNo(u64::from(self.first_data_block) + 1 + u64::from(n))
    }

    /// Checks that a group's bitmaps and inode table lie inside the group, behind the superblock
    /// and the descriptors, and apart from one another.
    pub fn check_desc(&self, g: GroupNo, d: &GroupDesc) -> Result<(), FormatError> {
        let start = self.group_start(g).0 + u64::from(self.overhead(g));
        let end = self.group_start(g).0 + u64::from(self.group_blocks(g));
        let inside =
            |b: u32, len: u32| u64::from(b) >= start && u64::from(b) + u64::from(len) <= end;
        let (table, len) = (d.inode_table, self.inode_table_blocks());
        let in_table = |b: u32| b >= table && b - table < len;
        let what = if !inside(d.block_bitmap, 1) {
            format!("group {g}'s block bitmap is said to be block {}", d.block_bitmap)
        } else if !inside(d.inode_bitmap, 1) {
            format!("group {g}'s inode bitmap is said to be block {}", d.inode_bitmap)
        } else if !inside(table, len) {
            format!("group {g}'s inode table is said to begin at block {table}")
        } else if d.block_bitmap == d.inode_bitmap {
            format!("group {g}'s two bitmaps are said to be one block")
        } else if in_table(d.block_bitmap) || in_table(d.inode_bitmap) {
            format!("group {g}'s bitmaps are said to be inside its inode table")
        } else {
            return Ok(());
        };
        Err(FormatError::corrupt(what, format!("group descriptor {g}")))
    }
}
