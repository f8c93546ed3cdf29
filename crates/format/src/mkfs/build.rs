//! The frame of a new volume: superblocks, descriptors, bitmaps, inode tables, and a simple
//! allocator for the few blocks that a new volume's files take.

use super::{MkfsError, MkfsOptions, Profile};
use crate::ext::csum::Sums;
use crate::ext::features::{compat, incompat, ro_compat};
use crate::ext::geometry::GROUP_DESC_BYTES;
use crate::ext::superblock::{CRC32C, FIRST_INO, MAGIC, STATE_VALID};
use crate::ext::{Geometry, GroupDesc, Superblock, bitmap};
use crate::ufs::inode;
use crate::{BlockNo, Extent, GroupNo, Ino};
use std::collections::BTreeMap;

/// Bytes of a group descriptor where block numbers are wide.
const WIDE_DESC_BYTES: usize = 64;
/// Groups whose metadata a kernel would put together, as a power of two; ours stay apart.
const GROUPS_PER_FLEX: u8 = 4;

type Write<'a, E> = dyn FnMut(BlockNo, &[u8]) -> Result<(), E> + 'a;

pub(super) struct Builder {
    pub(super) options: MkfsOptions,
    pub(super) geometry: Geometry,
    pub(super) sb: Superblock,
    /// Blocks taken by files, in order.
    used: Vec<Extent>,
    next: BlockNo,
    /// Contents of blocks beyond the frame.
    contents: BTreeMap<BlockNo, Vec<u8>>,
    /// Raw inodes.
    inodes: BTreeMap<u32, Vec<u8>>,
    dirs: u32,
}

impl Builder {
    pub(super) fn new(o: &MkfsOptions) -> Result<Builder, MkfsError> {
        let no = |why: String| Err(MkfsError(why));
        if !matches!(o.block_bytes, 1024 | 2048 | 4096) {
            return no(format!("a block size of {}: choose 1024, 2048 or 4096", o.block_bytes));
        }
        if !matches!(o.inode_bytes, 128 | 256) {
            return no(format!("an inode size of {}: choose 128 or 256", o.inode_bytes));
        }
        let blocks = o.size_bytes / o.block_bytes as u64;
        if blocks < 64 {
            return no(format!(
                "{} bytes are too few: a volume has at least 64 blocks, {} KiB",
                o.size_bytes,
                64 * o.block_bytes / 1024
            ));
        }
        if blocks >= 1 << 32 {
            return no(
                "a volume has fewer than 2^32 blocks; choose larger blocks or a smaller size, or \
                 make it with mke2fs -t ext4"
                    .into(),
            );
        }
        let mut geometry = frame(o, blocks);
        // A last group without room for its own metadata and some data is left out.
        let last = GroupNo(geometry.groups - 1);
        let need = geometry.overhead(last) + 2 + geometry.inode_table_blocks() + 16;
        if geometry.group_blocks(last) < need {
            if geometry.groups == 1 {
                return no(format!(
                    "{} bytes are too few for {} inodes",
                    o.size_bytes,
                    geometry.inodes()
                ));
            }
            geometry = frame(o, geometry.group_start(last).0);
        }
        // The first group has all that a group may have at its beginning.
        let first = GroupNo(0);
        let need = geometry.overhead(first) + 2 + geometry.inode_table_blocks() + 16;
        if geometry.group_blocks(first) < need {
            return no(format!(
                "the descriptors of {} groups of {} blocks have no room in one of them: choose \
                 larger blocks or a smaller size",
                geometry.groups, geometry.blocks_per_group
            ));
        }
        if let Some(asked) = o.inodes.filter(|n| *n > geometry.inodes()) {
            let most = u64::from(geometry.groups) * 8 * o.block_bytes as u64;
            return no(format!("{asked} inodes are more than the {most} that fit"));
        }
        let sb = superblock(o, &geometry);
        let next = BlockNo(u64::from(geometry.first_data_block));
        let mut b = Builder {
            options: o.clone(),
            geometry,
            sb,
            used: Vec::new(),
            next,
            contents: BTreeMap::new(),
            inodes: BTreeMap::new(),
            dirs: 0,
        };
        b.next = b.data_start(GroupNo(0));
        Ok(b)
    }

    pub(super) fn desc(&self, g: GroupNo) -> GroupDesc {
        let at = self.geometry.group_start(g).0 + u64::from(self.geometry.overhead(g));
        let d = GroupDesc {
            block_bitmap: at,
            inode_bitmap: at + 1,
            inode_table: at + 2,
            ..GroupDesc::default()
        };
        let (blocks, inodes) = self.bitmaps(g);
        let in_group = self.geometry.group_blocks(g) as usize;
        let can_be = self.geometry.check_desc(g, &d);
        assert_eq!(can_be, Ok(()), "F6: a group's descriptor would be taken for damaged");
        GroupDesc {
            free_blocks: bitmap::count_zeros(&blocks, in_group) as u32,
            free_inodes: bitmap::count_zeros(&inodes, self.geometry.inodes_per_group as usize)
                as u32,
            used_dirs: if g.0 == 0 { self.dirs } else { 0 },
            ..d
        }
    }

    fn data_start(&self, g: GroupNo) -> BlockNo {
        let skip = self.geometry.overhead(g) + 2 + self.geometry.inode_table_blocks();
        self.geometry.group_start(g).plus(u64::from(skip))
    }

    fn bitmaps(&self, g: GroupNo) -> (Vec<u8>, Vec<u8>) {
        let geo = &self.geometry;
        let mut blocks = vec![0; geo.block_bytes];
        let start = geo.group_start(g);
        let end = u64::from(geo.group_blocks(g));
        let taken = self.data_start(g).0 - start.0;
        (0..taken.min(end)).for_each(|b| bitmap::set(&mut blocks, b as usize));
        for e in &self.used {
            let from = e.start.0.max(start.0);
            let to = (e.start.0 + e.len).min(start.0 + end);
            (from..to).for_each(|b| bitmap::set(&mut blocks, (b - start.0) as usize));
        }
        // What lies beyond the group's end is marked as taken.
        (end as usize..8 * geo.block_bytes).for_each(|b| bitmap::set(&mut blocks, b));
        let mut inodes = vec![0; geo.block_bytes];
        if g.0 == 0 {
            (0..FIRST_INO as usize - 1).for_each(|b| bitmap::set(&mut inodes, b));
            self.inodes.keys().for_each(|&i| bitmap::set(&mut inodes, i as usize - 1));
        }
        let ipg = geo.inodes_per_group as usize;
        (ipg..8 * geo.block_bytes).for_each(|b| bitmap::set(&mut inodes, b));
        (blocks, inodes)
    }

    /// The next free block.
    pub(super) fn alloc(&mut self) -> Result<BlockNo, MkfsError> {
        let geo = self.geometry;
        let mut g = geo.group_of(self.next);
        if self.next.0 >= geo.group_start(g).0 + u64::from(geo.group_blocks(g)) {
            g = GroupNo(g.0 + 1);
        }
        if g.0 >= geo.groups {
            let why = format!("{} bytes are too few for this volume", self.options.size_bytes);
            return Err(MkfsError(why));
        }
        let b = BlockNo(self.next.0.max(self.data_start(g).0));
        self.next = b.plus(1);
        let last = self.used.last().map_or(0, |e| e.start.0 + e.len);
        assert!(last <= b.0, "F6: block {b} is given out, and those up to {last} were");
        // At a group's end the next call looks at the group after it.
        match self.used.last_mut() {
            Some(e) if e.start.0 + e.len == b.0 => e.len += 1,
            _ => self.used.push(Extent { start: b, len: 1 }),
        }
        if self.next.0 >= geo.blocks {
            return Err(MkfsError("the volume is too small for its own files".into()));
        }
        Ok(b)
    }

    pub(super) fn put_block(&mut self, b: BlockNo, bytes: Vec<u8>) {
        let (len, whole) = (bytes.len(), self.geometry.block_bytes);
        assert_eq!(len, whole, "F6: block {b} has so many bytes");
        let before = self.contents.insert(b, bytes);
        assert!(before.is_none(), "F6: block {b} is filled twice");
    }

    pub(super) fn put_inode(&mut self, ino: Ino, mut raw: Vec<u8>) {
        let inside = self.geometry.group_of_ino(ino) == GroupNo(0);
        assert!(inside, "F6: inode {ino} lies in a table that is left to be zeros");
        self.geometry.sums.seal_inode(ino, &mut raw);
        if inode::InodeRef(&raw).is_dir() {
            self.dirs += 1;
        }
        let before = self.inodes.insert(ino.0, raw);
        assert!(before.is_none(), "F6: inode {ino} is made twice");
    }

    pub(super) fn zeros(&self) -> Vec<Extent> {
        let len = u64::from(self.geometry.inode_table_blocks());
        let tables = (0..self.geometry.groups).map(|g| {
            let d = self
                .geometry
                .group_start(GroupNo(g))
                .plus(u64::from(self.geometry.overhead(GroupNo(g)) + 2));
            Extent { start: d, len }
        });
        tables.chain(self.used.iter().copied()).collect()
    }

    pub(super) fn each_block<E>(&self, write: &mut Write<'_, E>) -> Result<(), E> {
        let geo = &self.geometry;
        let descs: Vec<GroupDesc> = (0..geo.groups).map(|g| self.desc(GroupNo(g))).collect();
        let mut sb = self.sb.clone();
        sb.set_free_blocks(descs.iter().map(|d| u64::from(d.free_blocks)).sum());
        sb.set_free_inodes(descs.iter().map(|d| d.free_inodes).sum());
        let taken: u64 = self.used.iter().map(|e| e.len).sum();
        let own: u64 = (0..geo.groups).map(|g| self.data_start(GroupNo(g)).0).sum::<u64>()
            - (0..geo.groups).map(|g| geo.group_start(GroupNo(g)).0).sum::<u64>();
        let free = geo.blocks - u64::from(geo.first_data_block) - own - taken;
        assert_eq!(sb.free_blocks(), free, "F6: {taken} blocks are files', and {own} the groups'");
        let mut table = vec![0; geo.desc_blocks() as usize * geo.block_bytes];
        let slots = descs.iter().zip(table.chunks_mut(geo.desc_bytes));
        for (g, (d, out)) in (0..).map(GroupNo).zip(slots) {
            let (blocks, inodes) = self.bitmaps(g);
            d.encode(out);
            geo.sums.seal_block_map(out, &blocks[..geo.blocks_per_group as usize / 8]);
            geo.sums.seal_inode_map(out, &inodes[..geo.inodes_per_group as usize / 8]);
            geo.sums.seal_desc(g, out);
            write(BlockNo(d.block_bitmap), &blocks)?;
            write(BlockNo(d.inode_bitmap), &inodes)?;
        }
        self.each_inode_block(write)?;
        for (b, bytes) in &self.contents {
            write(*b, bytes)?;
        }
        for g in (0..geo.groups).rev().map(GroupNo).filter(|g| geo.has_super(*g)) {
            let start = geo.group_start(g);
            for (i, block) in table.chunks(geo.block_bytes).enumerate() {
                write(start.plus(1 + i as u64), block)?;
            }
            sb.set_group_number(g.0 as u16);
            let mut block = vec![0; geo.block_bytes];
            // In group 0 with blocks over 1 KiB the boot area comes first.
            let at = if g.0 == 0 && geo.first_data_block == 0 { 1024 } else { 0 };
            block[at..at + 1024].copy_from_slice(&sb.bytes()[..]);
            write(start, &block)?;
        }
        Ok(())
    }

    fn each_inode_block<E>(&self, write: &mut Write<'_, E>) -> Result<(), E> {
        let geo = &self.geometry;
        let mut blocks: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
        for (&ino, raw) in &self.inodes {
            let (n, at) = geo.ino_place(Ino(ino));
            let block = blocks.entry(n).or_insert_with(|| vec![0; geo.block_bytes]);
            block[at..at + raw.len()].copy_from_slice(raw);
        }
        let table =
            self.geometry.group_start(GroupNo(0)).0 + u64::from(geo.overhead(GroupNo(0)) + 2);
        for (n, block) in blocks {
            write(BlockNo(table + u64::from(n)), &block)?;
        }
        Ok(())
    }
}

/// The numbers of a volume of `blocks`, with as many inodes as asked for.
fn frame(o: &MkfsOptions, blocks: u64) -> Geometry {
    let ext4 = o.profile.is_ext4();
    let first = u32::from(o.block_bytes == 1024);
    let blocks_per_group = o.group_blocks.unwrap_or(8 * o.block_bytes as u32);
    let groups = (blocks - u64::from(first)).div_ceil(u64::from(blocks_per_group)) as u32;
    let ratio = if o.size_bytes < 512 << 20 { 8192 } else { 16_384 };
    let want = o.inodes.map_or(o.size_bytes / ratio, u64::from).max(u64::from(FIRST_INO) + 5);
    let per_block = (o.block_bytes / o.inode_bytes) as u64;
    // The inodes of a new volume are put into group 0's table: it has all of them, however few are
    // asked for.
    let least = want.div_ceil(u64::from(groups)).max(u64::from(FIRST_INO));
    let per_group = least.next_multiple_of(per_block.max(8));
    Geometry {
        block_bytes: o.block_bytes,
        inode_bytes: o.inode_bytes,
        blocks,
        groups,
        blocks_per_group,
        cluster_blocks: 1,
        inodes_per_group: per_group.min(8 * o.block_bytes as u64) as u32,
        first_data_block: first,
        first_ino: FIRST_INO,
        reserved_gdt_blocks: 0,
        sparse: true,
        copies: None,
        desc_bytes: if ext4 { WIDE_DESC_BYTES } else { GROUP_DESC_BYTES },
        first_meta_bg: u32::MAX,
        mmp: None,
        flexible: ext4,
        wide: ext4,
        extents: ext4,
        inline_data: o.incompat & incompat::INLINE_DATA != 0,
        huge_files: ext4,
        sums: match o.profile {
            Profile::Ext4 { checksums: true } => Sums::All(Sums::seed_of(&o.uuid)),
            _ => Sums::None,
        },
    }
}

fn superblock(o: &MkfsOptions, g: &Geometry) -> Superblock {
    let mut s = Superblock::blank();
    s.set_inodes(g.inodes());
    s.set_blocks(g.blocks);
    s.set_reserved_blocks(g.blocks / 20);
    s.set_first_data_block(g.first_data_block);
    let log = (g.block_bytes / 1024).trailing_zeros();
    s.set_log_block_size(log);
    s.set_log_frag_size(log);
    s.set_blocks_per_group(g.blocks_per_group);
    s.set_frags_per_group(g.blocks_per_group);
    s.set_inodes_per_group(g.inodes_per_group);
    s.set_wtime(o.now_secs);
    s.set_max_mount_count(0xffff);
    s.set_magic(MAGIC);
    s.set_state(STATE_VALID);
    s.set_errors(1);
    s.set_last_check(o.now_secs);
    s.set_mkfs_time(o.now_secs);
    s.set_revision(1);
    s.set_first_ino(FIRST_INO);
    s.set_inode_size(g.inode_bytes as u16);
    let journal = if o.profile.has_journal() { compat::HAS_JOURNAL } else { 0 };
    s.set_compat(compat::EXT_ATTR | journal);
    s.set_incompat(incompat::FILETYPE);
    // Not EXTRA_ISIZE, though inodes may have room for more: as ext2 or ext3 Linux then mounts the
    // volume for reading only, and nobody needs to be told.
    s.set_ro_compat(ro_compat::SPARSE_SUPER | ro_compat::LARGE_FILE);
    if let Profile::Ext4 { checksums } = o.profile {
        s.set_compat(s.compat() | compat::DIR_INDEX);
        s.set_incompat(s.incompat() | incompat::EXTENTS | incompat::WIDE | incompat::FLEX_BG);
        let isize = if g.inode_bytes > 128 { ro_compat::EXTRA_ISIZE } else { 0 };
        let more = ro_compat::HUGE_FILE | ro_compat::DIR_NLINK | isize;
        s.set_ro_compat(s.ro_compat() | more);
        s.set_desc_size(g.desc_bytes as u16);
        s.set_groups_per_flex_log(GROUPS_PER_FLEX);
        s.set_uuid(o.uuid); // which the checksums begin with
        if checksums {
            s.set_checksum_kind(CRC32C);
            s.set_ro_compat(s.ro_compat() | ro_compat::METADATA_CSUM);
        }
    }
    if g.inode_bytes > 128 {
        s.set_min_extra_isize(inode::EXTRA_ISIZE);
        s.set_want_extra_isize(inode::EXTRA_ISIZE);
    }
    s.set_uuid(o.uuid);
    s.set_label(&o.label);
    s.set_hash(o.hash_seed, 1);
    s.set_default_mount_options(0x0c); // user_xattr, acl
    s.set_flags(1); // signed directory hash
    s
}
