//! What changes inside the old volume when it grows: the table of descriptors, the last group's
//! bitmap, and inode 7, which leads to what is reserved for more descriptors. Its copies go where
//! the new geometry has them.

use super::To;
use super::groups::NewGroups;
use super::target::Target;
use crate::VolumeError;
use check::ReadBlocks;
use format::ext::features::compat::RESIZE_INODE;
use format::ext::geometry::BLOCK_UNINIT;
use format::ext::growth::{self, DOUBLE, RESIZE_INO};
use format::ext::superblock::SUPERBLOCK_BYTES;
use format::ext::{Geometry, GroupDesc, Superblock, bitmap};
use format::ufs::inode::{InodeMut, InodeRef};
use format::{BlockNo, GroupNo};
use std::collections::BTreeMap;

/// The changes, planned.
pub(super) struct Inside {
    old: Geometry,
    new: Geometry,
    /// All descriptors, as they will be.
    table: Vec<u8>,
    /// Which of the table's blocks differ from what is there.
    changed: Vec<bool>,
    /// Other blocks inside, as they will be.
    blocks: BTreeMap<BlockNo, Vec<u8>>,
    /// Free blocks of the volume, then.
    pub(super) free_blocks: u64,
}

impl Inside {
    /// Plans them. Errors: the device's.
    pub(super) fn of(
        t: &Target,
        new: &NewGroups,
        device: &dyn ReadBlocks,
    ) -> Result<Inside, VolumeError> {
        let bs = t.new.block_bytes;
        let mut all = Inside {
            old: t.old,
            new: t.new,
            table: vec![0; t.new.desc_blocks() as usize * bs],
            changed: Vec::new(),
            blocks: BTreeMap::new(),
            free_blocks: t.before.free_blocks(),
        };
        for n in 0..t.old.desc_blocks() {
            let place = n as usize * bs..(n as usize + 1) * bs;
            read(device, &t.old, t.old.desc_block(n), &mut all.table[place])?;
        }
        let was = all.table.clone();
        for (g, d) in new.iter() {
            new.encode(g, all.raw(g));
            all.free_blocks += u64::from(d.free_blocks);
        }
        all.extend_last(device)?;
        if t.before.has_compat(RESIZE_INODE) {
            all.lead_to_reserve(device, t.superblock.has_compat(RESIZE_INODE))?;
        }
        let there = t.old.desc_blocks() as usize;
        let blocks = all.table.chunks(bs).zip(was.chunks(bs)).enumerate();
        all.changed = blocks.map(|(n, (now, was))| n >= there || now != was).collect();
        let changed = all.changed[..there].iter().filter(|c| **c).count();
        assert!(changed <= 2, "Z3: {changed} blocks of descriptors change that were there");
        let (free, most) = (all.free_blocks, t.new.blocks);
        assert!(free < most, "Z3: {free} of {most} blocks become free");
        Ok(all)
    }

    /// A group's descriptor in the table.
    fn raw(&mut self, g: GroupNo) -> &mut [u8] {
        let at = g.0 as usize * self.new.desc_bytes;
        &mut self.table[at..at + self.new.desc_bytes]
    }

    /// Changes the bits of a group's block bitmap, if it has one, and how many are free.
    fn edit_map(
        &mut self,
        device: &dyn ReadBlocks,
        g: GroupNo,
        (more_free, bits): (u32, std::ops::Range<usize>),
    ) -> Result<(), VolumeError> {
        let (geo, sums) = (self.old, self.new.sums);
        let mut d = GroupDesc::decode(self.raw(g));
        d.free_blocks += more_free;
        self.free_blocks += u64::from(more_free);
        let (free, most) = (d.free_blocks, self.new.group_blocks(g));
        assert!(free <= most, "Z3: {free} of the {most} blocks of group {g} become free");
        d.encode(self.raw(g));
        if !(sums.lazy() && d.has(BLOCK_UNINIT)) {
            let at = BlockNo(d.block_bitmap);
            let mut map = self.take(device, at)?;
            let used = bits.clone().all(|b| bitmap::is_set(&map, b));
            assert!(used, "Z3: of the blocks {bits:?} of group {g} one is free already");
            bits.for_each(|b| bitmap::clear(&mut map, b));
            sums.seal_block_map(self.raw(g), &map[..geo.blocks_per_group as usize / 8]);
            self.blocks.insert(at, map);
        }
        sums.seal_desc(g, self.raw(g));
        Ok(())
    }

    /// A block, as it will be so far.
    fn take(&self, device: &dyn ReadBlocks, at: BlockNo) -> Result<Vec<u8>, VolumeError> {
        if let Some(planned) = self.blocks.get(&at) {
            return Ok(planned.clone());
        }
        let mut bytes = vec![0; self.old.block_bytes];
        read(device, &self.old, at, &mut bytes)?;
        Ok(bytes)
    }

    /// The last group of before gets what belongs to it of the new blocks.
    fn extend_last(&mut self, device: &dyn ReadBlocks) -> Result<(), VolumeError> {
        let last = GroupNo(self.old.groups - 1);
        let (from, to) = (self.old.group_blocks(last), self.new.group_blocks(last));
        if from == to {
            return Ok(());
        }
        self.edit_map(device, last, (to - from, from as usize..to as usize))
    }

    /// Inode 7 leads to what is still reserved, with the copies in new groups; or, where nothing
    /// can be any more, it is given up with its block.
    fn lead_to_reserve(
        &mut self,
        device: &dyn ReadBlocks,
        goes_on: bool,
    ) -> Result<(), VolumeError> {
        let geo = self.new;
        let (n, at) = geo.ino_place(RESIZE_INO);
        let table = GroupDesc::decode(self.raw(GroupNo(0))).inode_table;
        let block = BlockNo(table + u64::from(n));
        let mut bytes = self.take(device, block)?;
        let raw = &mut bytes[at..at + geo.inode_bytes];
        let top = BlockNo(u64::from(InodeRef(raw).pointer(DOUBLE)));
        if goes_on {
            InodeMut(raw).set_sectors(growth::sectors(&geo) as u32);
            geo.sums.seal_inode(RESIZE_INO, raw);
            self.blocks.insert(top, growth::top(&geo));
            self.blocks.extend(growth::reserved(&geo));
        } else {
            raw.fill(0);
            let bit = geo.bit_of(top);
            self.edit_map(device, geo.group_of(top), (1, bit..bit + 1))?;
        }
        self.blocks.insert(block, bytes);
        Ok(())
    }

    /// Does a block lie inside the old volume?
    fn is_inside(&self, b: BlockNo) -> bool {
        b.0 < self.old.blocks
    }

    fn table_block(&self, n: usize) -> &[u8] {
        &self.table[n * self.new.block_bytes..][..self.new.block_bytes]
    }

    /// Writes what is inside and no copy.
    pub(super) fn write(&self, to: &mut To<'_>) -> Result<(), VolumeError> {
        for (b, bytes) in &self.blocks {
            to.put(*b, bytes)?;
        }
        self.write_primaries(to, true)
    }

    /// Writes the blocks of descriptors that differ, inside the old volume or beyond it.
    fn write_primaries(&self, to: &mut To<'_>, inside: bool) -> Result<(), VolumeError> {
        for n in 0..self.new.desc_blocks() {
            let b = self.new.desc_block(n);
            if self.changed[n as usize] && self.is_inside(b) == inside {
                to.put(b, self.table_block(n as usize))?;
            }
        }
        Ok(())
    }

    /// Writes the copies of superblock and descriptors inside the old volume, or beyond its end
    /// what there is of them and of the descriptors themselves.
    pub(super) fn write_copies(
        &self,
        to: &mut To<'_>,
        sb: &Superblock,
        outside: bool,
    ) -> Result<(), VolumeError> {
        let geo = &self.new;
        let there = |b: BlockNo| self.is_inside(b) != outside;
        if outside {
            self.write_primaries(to, false)?;
        }
        for n in 0..geo.desc_blocks() {
            for b in geo.desc_copies(n).into_iter().filter(|b| there(*b)) {
                if outside || self.changed[n as usize] {
                    to.put(b, self.table_block(n as usize))?;
                }
            }
        }
        for g in (1..geo.groups).map(GroupNo).filter(|g| geo.has_super(*g)) {
            let start = geo.group_start(g);
            if there(start) {
                let mut copy = sb.clone();
                copy.set_group_number(g.0 as u16);
                let mut block = vec![0; geo.block_bytes];
                block[..SUPERBLOCK_BYTES].copy_from_slice(&copy.bytes()[..]);
                to.put(start, &block)?;
            }
        }
        Ok(())
    }
}

fn read(
    device: &dyn ReadBlocks,
    geo: &Geometry,
    b: BlockNo,
    into: &mut [u8],
) -> Result<(), VolumeError> {
    Ok(device.read_at(b.0 * geo.block_bytes as u64, into)?)
}
