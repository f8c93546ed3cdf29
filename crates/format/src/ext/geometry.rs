//! Where things lie: address arithmetic from the superblock and the group descriptors, and nothing
//! else.

use crate::bytes::{le16, le32, set16, set32};
use crate::ext::Superblock;
use crate::ext::csum::Sums;
use crate::ext::features::{compat, incompat, ro_compat};
use crate::{BlockNo, FormatError, GroupNo, Ino};
use std::ops::Range;

/// Bytes of a group descriptor where block numbers have 32 bits.
pub const GROUP_DESC_BYTES: usize = 32;
/// Bytes from which on a descriptor has high halves.
const WIDE_BYTES: usize = 64;

/// `bg_flags`: there is no inode bitmap yet, all inodes are free.
pub const INODE_UNINIT: u16 = 1;
/// `bg_flags`: there is no block bitmap yet, only the group's own blocks are in use.
pub const BLOCK_UNINIT: u16 = 2;
/// `bg_flags`: the inode table is zeroed.
pub const TABLE_ZEROED: u16 = 4;

/// One group's descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupDesc {
    /// Block of the block bitmap.
    pub block_bitmap: u64,
    /// Block of the inode bitmap.
    pub inode_bitmap: u64,
    /// First block of the inode table.
    pub inode_table: u64,
    /// A hint.
    pub free_blocks: u32,
    /// A hint.
    pub free_inodes: u32,
    /// A hint.
    pub used_dirs: u32,
    /// Inodes at the table's end that were never used; only where descriptors have checksums.
    pub unused_inodes: u32,
    /// [`INODE_UNINIT`] and its like; only where descriptors have checksums.
    pub flags: u16,
}

/// Where the descriptor's numbers have their low and their high halves.
const BLOCK_BITMAP: (usize, usize) = (0x00, 0x20);
const INODE_BITMAP: (usize, usize) = (0x04, 0x24);
const INODE_TABLE: (usize, usize) = (0x08, 0x28);
const FREE_BLOCKS: (usize, usize) = (0x0c, 0x2c);
const FREE_INODES: (usize, usize) = (0x0e, 0x2e);
const USED_DIRS: (usize, usize) = (0x10, 0x30);
const FLAGS: usize = 0x12;
const UNUSED_INODES: (usize, usize) = (0x1c, 0x32);

impl GroupDesc {
    /// From its bytes, of which a wide one has 64 and more.
    pub fn decode(b: &[u8]) -> GroupDesc {
        // A narrow one has zeros for its high halves; the places of all are known before it runs.
        let mut all = [0; WIDE_BYTES];
        let len = if b.len() >= WIDE_BYTES { WIDE_BYTES } else { GROUP_DESC_BYTES };
        all[..len].copy_from_slice(&b[..len]);
        let long = |(low, high): (usize, usize)| {
            u64::from(le32(&all, low)) | u64::from(le32(&all, high)) << 32
        };
        let short = |(low, high): (usize, usize)| {
            u32::from(le16(&all, low)) | u32::from(le16(&all, high)) << 16
        };
        GroupDesc {
            block_bitmap: long(BLOCK_BITMAP),
            inode_bitmap: long(INODE_BITMAP),
            inode_table: long(INODE_TABLE),
            free_blocks: short(FREE_BLOCKS),
            free_inodes: short(FREE_INODES),
            used_dirs: short(USED_DIRS),
            unused_inodes: short(UNUSED_INODES),
            flags: le16(&all, FLAGS),
        }
    }
    /// Into its bytes; those of other fields are left alone.
    pub fn encode(&self, b: &mut [u8]) {
        for (v, (low, high)) in [
            (self.block_bitmap, BLOCK_BITMAP),
            (self.inode_bitmap, INODE_BITMAP),
            (self.inode_table, INODE_TABLE),
        ] {
            set32(b, low, v as u32);
            if b.len() >= WIDE_BYTES {
                set32(b, high, (v >> 32) as u32);
            }
        }
        for (v, (low, high)) in [
            (self.free_blocks, FREE_BLOCKS),
            (self.free_inodes, FREE_INODES),
            (self.used_dirs, USED_DIRS),
            (self.unused_inodes, UNUSED_INODES),
        ] {
            set16(b, low, v as u16);
            if b.len() >= WIDE_BYTES {
                set16(b, high, (v >> 16) as u16);
            }
        }
        set16(b, FLAGS, self.flags);
    }
    /// Is there such a flag?
    pub fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
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
    /// Blocks of a cluster, which a bit of a block bitmap stands for: one but with bigalloc.
    pub cluster_blocks: u32,
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
    /// The only groups with copies, beside the first (sparse_super2).
    pub copies: Option<[u32; 2]>,
    /// Bytes of a group descriptor.
    pub desc_bytes: usize,
    /// The first block of descriptors that lies in the groups it describes; `u32::MAX`: none.
    pub first_meta_bg: u32,
    /// The block by which machines keep off one another (mmp).
    pub mmp: Option<BlockNo>,
    /// May bitmaps and inode tables lie in other groups?
    pub flexible: bool,
    /// Have block numbers more than 32 bits?
    pub wide: bool,
    /// Are files mapped by extents?
    pub extents: bool,
    /// May small files and directories lie in their inodes?
    pub inline_data: bool,
    /// Do inodes count their blocks with 48 bits?
    pub huge_files: bool,
    /// The checksums of its metadata.
    pub sums: Sums,
}

impl Geometry {
    /// Of this volume.
    pub fn of(s: &Superblock) -> Geometry {
        Geometry {
            block_bytes: s.block_bytes(),
            inode_bytes: s.inode_bytes(),
            blocks: s.blocks(),
            groups: s.groups(),
            blocks_per_group: s.blocks_per_group(),
            cluster_blocks: s.cluster_blocks(),
            inodes_per_group: s.inodes_per_group(),
            first_data_block: s.first_data_block(),
            first_ino: s.first_ino(),
            // Without the feature the field means nothing.
            reserved_gdt_blocks: match s.has_compat(compat::RESIZE_INODE) {
                true => u32::from(s.reserved_gdt_blocks()),
                false => 0,
            },
            sparse: s.has_ro_compat(ro_compat::SPARSE_SUPER),
            copies: s.has_compat(compat::SPARSE_SUPER2).then(|| s.backup_groups()),
            desc_bytes: s.desc_bytes(),
            first_meta_bg: match s.has_incompat(incompat::META_BG) {
                true => s.first_meta_bg(),
                false => u32::MAX,
            },
            mmp: s.mmp_block(),
            flexible: s.has_incompat(incompat::FLEX_BG),
            wide: s.has_incompat(incompat::WIDE),
            extents: s.has_incompat(incompat::EXTENTS),
            inline_data: s.has_incompat(incompat::INLINE_DATA),
            huge_files: s.has_ro_compat(ro_compat::HUGE_FILE),
            sums: s.sums(),
        }
    }
    /// All inodes.
    pub fn inodes(&self) -> u32 {
        self.groups * self.inodes_per_group
    }
    /// The group a block lies in.
    pub fn group_of(&self, b: BlockNo) -> GroupNo {
        let first = u64::from(self.first_data_block);
        assert!(b.0 >= first, "F7: block {b} lies before the first group, which begins at {first}");
        GroupNo(((b.0 - first) / u64::from(self.blocks_per_group)) as u32)
    }
    /// A block's bit in its group's bitmap.
    pub fn bit_of(&self, b: BlockNo) -> usize {
        let first = u64::from(self.first_data_block);
        assert!(b.0 >= first, "F7: block {b}, before the first at {first}, has no bit");
        ((b.0 - first) % u64::from(self.blocks_per_group)) as usize
    }
    /// The first block of a group.
    pub fn group_start(&self, g: GroupNo) -> BlockNo {
        BlockNo(
            u64::from(self.first_data_block) + u64::from(g.0) * u64::from(self.blocks_per_group),
        )
    }
    /// How many blocks a group has; the last may have fewer.
    pub fn group_blocks(&self, g: GroupNo) -> u32 {
        assert!(g.0 < self.groups, "F7: how long is group {g}, of {}?", self.groups);
        let left = self.blocks - self.group_start(g).0;
        left.min(u64::from(self.blocks_per_group)) as u32
    }
    /// The group an inode lies in.
    pub fn group_of_ino(&self, ino: Ino) -> GroupNo {
        assert!(ino.0 > 0, "F7: inode 0 lies in no group");
        GroupNo((ino.0 - 1) / self.inodes_per_group)
    }
    /// An inode's bit in its group's bitmap.
    pub fn bit_of_ino(&self, ino: Ino) -> usize {
        assert!(ino.0 > 0, "F7: inode 0 has no bit");
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
        let (n, from) = ((at / self.block_bytes) as u32, at % self.block_bytes);
        let inside = from + self.inode_bytes <= self.block_bytes;
        assert!(inside, "F7: inode {ino} begins at byte {from} and ends in another block");
        (n, from)
    }
    /// Blocks of one group's inode table.
    pub fn inode_table_blocks(&self) -> u32 {
        (self.inodes_per_group as usize * self.inode_bytes).div_ceil(self.block_bytes) as u32
    }
    /// Blocks of the group descriptors.
    pub fn desc_blocks(&self) -> u32 {
        self.groups.div_ceil(self.descs_per_block())
    }
    /// Group descriptors in a block.
    pub fn descs_per_block(&self) -> u32 {
        (self.block_bytes / self.desc_bytes) as u32
    }
    /// Which of them has the group's.
    pub fn desc_block_of(&self, g: GroupNo) -> u32 {
        g.0 / self.descs_per_block()
    }
    /// So many groups, from the first on, have blocks only that a number of 32 bits names: what
    /// maps of pointers can have.
    pub fn groups_of_pointers(&self) -> u32 {
        let named = (1 << 32) - u64::from(self.first_data_block);
        match self.blocks <= 1 << 32 {
            true => self.groups,
            false => (named / u64::from(self.blocks_per_group)) as u32,
        }
    }
    /// Has the group a copy of the superblock and the descriptors?
    pub fn has_super(&self, g: GroupNo) -> bool {
        if let Some(copies) = self.copies {
            return g.0 == 0 || copies.contains(&g.0);
        }
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
        let copy = u32::from(self.has_super(g));
        let n = g.0 / self.descs_per_block();
        if n < self.first_meta_bg {
            let descs = self.desc_blocks().min(self.first_meta_bg);
            let boot = if g.0 == 0 { self.boot_blocks() } else { 0 };
            return boot + copy * (1 + descs + self.reserved_gdt_blocks);
        }
        // The first, the second and the last group of those that a block describes have it.
        let i = g.0 % self.descs_per_block();
        copy + u32::from(i < 2 || i + 1 == self.descs_per_block())
    }
    /// Blocks of the first group before the superblock's: one with blocks of 1 KiB and clusters,
    /// where the group begins with block 0 all the same.
    fn boot_blocks(&self) -> u32 {
        u32::from(self.block_bytes == 1024 && self.first_data_block == 0)
    }
    /// The block of the primary descriptors' `n`-th block.
    pub fn desc_block(&self, n: u32) -> BlockNo {
        assert!(n < self.desc_blocks(), "F7: block {n} of descriptors, of {}", self.desc_blocks());
        if n < self.first_meta_bg {
            let before = self.first_data_block + self.boot_blocks() + 1;
            return BlockNo(u64::from(before) + u64::from(n));
        }
        let g = GroupNo(n * self.descs_per_block());
        self.group_start(g).plus(u64::from(self.has_super(g)))
    }
    /// Where the copies of the descriptors' `n`-th block lie.
    pub fn desc_copies(&self, n: u32) -> Vec<BlockNo> {
        if n < self.first_meta_bg {
            let together = self.first_meta_bg.saturating_mul(self.descs_per_block());
            let groups = (1..self.groups.min(together)).map(GroupNo);
            let groups = groups.filter(|g| self.has_super(*g));
            let fits = groups.filter(|g| self.overhead(*g) <= self.group_blocks(*g));
            return fits.map(|g| self.group_start(g).plus(1 + u64::from(n))).collect();
        }
        let (first, all) = (n * self.descs_per_block(), self.descs_per_block());
        // Of those that the block describes: with one descriptor in a block there are no others.
        let (second, last) = (first + 1, first.saturating_add(all - 1));
        let there = (second..=last.min(self.groups - 1)).filter(|g| [second, last].contains(g));
        let places = there.map(GroupNo);
        let copies = places.map(|g| self.group_start(g).plus(u64::from(self.has_super(g))));
        let copies: Vec<BlockNo> = copies.filter(|b| b.0 < self.blocks).collect();
        let own = self.desc_block(n);
        assert!(!copies.contains(&own), "F7: block {n} of descriptors is a copy of itself");
        copies
    }
    /// Where a group's primary descriptor lies: the block, and the byte in it.
    pub fn desc_place(&self, g: GroupNo) -> (BlockNo, usize) {
        let per_block = self.descs_per_block();
        (self.desc_block(g.0 / per_block), (g.0 % per_block) as usize * self.desc_bytes)
    }
    /// The same as a byte of the volume.
    pub fn desc_at(&self, g: GroupNo) -> u64 {
        let (block, offset) = self.desc_place(g);
        block.0 * self.block_bytes as u64 + offset as u64
    }

    /// From which block to which a group's bitmaps and inode table may lie.
    pub fn places_of(&self, g: GroupNo) -> Range<u64> {
        if self.flexible {
            return u64::from(self.first_data_block) + 1..self.blocks;
        }
        let start = self.group_start(g).0;
        start + u64::from(self.overhead(g))..start + u64::from(self.group_blocks(g))
    }

    /// Checks that a group's bitmaps and inode table lie inside the group (or, where they may be
    /// anywhere, inside the volume), behind the superblock and the descriptors, and apart from one
    /// another.
    pub fn check_desc(&self, g: GroupNo, d: &GroupDesc) -> Result<(), FormatError> {
        let Range { start, end } = self.places_of(g);
        let inside = |b: u64, len: u32| b >= start && b < end && end - b >= u64::from(len);
        let (table, len) = (d.inode_table, self.inode_table_blocks());
        let in_table = |b: u64| b >= table && b - table < u64::from(len);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mkfs::{MkfsOptions, Plan, Profile};
    use std::collections::BTreeSet;

    /// Whatever a descriptor's length: no copy of a block of descriptors lies where another one, or
    /// a copy of it, does.
    #[test]
    fn blocks_of_descriptors_and_their_copies_lie_apart() {
        let plain = MkfsOptions::plain(200 << 20, Profile::Ext4 { checksums: false });
        let options = MkfsOptions { block_bytes: 1024, group_blocks: Some(2048), ..plain };
        let geo = *Plan::new(&options).unwrap().geometry();
        for (desc_bytes, first_meta_bg) in
            [64, 128, 256, 512, 1024].into_iter().flat_map(|d| [(d, u32::MAX), (d, 2), (d, 0)])
        {
            let geo = Geometry { desc_bytes, first_meta_bg, ..geo };
            let mut seen = BTreeSet::new();
            for n in 0..geo.desc_blocks() {
                for b in std::iter::once(geo.desc_block(n)).chain(geo.desc_copies(n)) {
                    assert!(b.0 < geo.blocks && seen.insert(b), "{desc_bytes}, {n}: block {b}");
                }
            }
        }
    }

    /// A last group of one block, which has a copy of the superblock, has none of descriptors.
    #[test]
    fn no_copy_of_descriptors_lies_behind_the_volumes_end() {
        let plain = MkfsOptions::plain(200 << 20, Profile::Ext4 { checksums: false });
        let options = MkfsOptions { block_bytes: 1024, group_blocks: Some(2048), ..plain };
        let geo = *Plan::new(&options).unwrap().geometry();
        let blocks = geo.group_start(GroupNo(49)).0 + 1;
        let geo = Geometry { blocks, groups: 50, first_meta_bg: 0, desc_bytes: 512, ..geo };
        assert!(geo.has_super(GroupNo(49)));
        assert_eq!(geo.desc_copies(24), []);
        let geo = Geometry { desc_bytes: 32, ..geo };
        assert_eq!(geo.desc_copies(1).len(), 1);
    }
}
