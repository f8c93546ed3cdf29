//! How well files lie on the disk: the layout score of the FFS papers, the share of a file's blocks
//! that follow right behind the block before them; in how many pieces files lie, and free space.
//! Reads inodes, extents, of old maps direct pointers and the first indirect block, and bitmaps.

use crate::{VolumeError, probe};
use check::ReadBlocks;
use format::ext::bitmap;
use format::ext::extents::{self, BLOCKS_MAX};
use format::ext::geometry::BLOCK_UNINIT;
use format::ext::{Geometry, GroupDesc};
use format::ufs::inode::InodeRef;
use format::ufs::map;
use format::{BlockNo, GroupNo, Ino};
use std::ops::Range;

/// How files, and what is free, lie on a volume.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Layout {
    /// The layout score, from 0 to 1; None: there is no file of two blocks and more.
    pub score: Option<f64>,
    /// How many runs of blocks such a file has, on the average.
    pub extents_a_file: Option<f64>,
    /// In how many runs free space lies, about.
    pub free_fragments: u64,
    /// How long they are, on the average.
    pub free_fragment_bytes: u64,
}

/// How the volume's blocks lie, as up to `files` files of up to 64 groups show it.
pub fn layout(device: &dyn ReadBlocks, files: usize) -> Result<Layout, VolumeError> {
    let geo = Geometry::of(&probe(device)?.superblock);
    let bs = geo.block_bytes as u64;
    let mut total = Tally::default();
    let stride = (geo.groups / 64).max(1);
    let files_in_group = files / geo.groups.div_ceil(stride) as usize;
    for g in (0..geo.groups).step_by(stride as usize).map(GroupNo) {
        let mut raw = vec![0; geo.desc_bytes];
        device.read_at(geo.desc_at(g), &mut raw)?;
        let desc = GroupDesc::decode(&raw);
        if geo.check_desc(g, &desc).is_err() {
            continue;
        }
        total.add_free(device, &geo, (g, &desc))?;
        let used = used_slots(device, &geo, &desc)?;
        let bytes = (used * geo.inode_bytes).next_multiple_of(geo.block_bytes);
        let mut table = vec![0; bytes];
        device.read_at(desc.inode_table * bs, &mut table)?;
        let mut seen = 0;
        for slot in table.chunks_exact(geo.inode_bytes) {
            let i = InodeRef(slot);
            if seen < files_in_group && may_be_in_pieces(i, bs) {
                seen += 1;
                total.add_file(device, &geo, i)?;
            }
        }
    }
    Ok(total.layout(&geo, stride))
}

/// How the blocks of these files lie, by their inodes' numbers; of free space it says nothing.
pub fn layout_of(device: &dyn ReadBlocks, files: &[u32]) -> Result<Layout, VolumeError> {
    let geo = Geometry::of(&probe(device)?.superblock);
    let mut total = Tally::default();
    for ino in files.iter().map(|i| Ino(*i)).filter(|i| geo.has_ino(*i)) {
        let mut raw = vec![0; geo.desc_bytes];
        let g = geo.group_of_ino(ino);
        device.read_at(geo.desc_at(g), &mut raw)?;
        let desc = GroupDesc::decode(&raw);
        geo.check_desc(g, &desc).map_err(|e| VolumeError(e.to_string()))?;
        let table = desc.inode_table * geo.block_bytes as u64;
        let mut slot = vec![0; geo.inode_bytes];
        let at = table + (geo.bit_of_ino(ino) * geo.inode_bytes) as u64;
        device.read_at(at, &mut slot)?;
        let i = InodeRef(&slot);
        if may_be_in_pieces(i, geo.block_bytes as u64) {
            total.add_file(device, &geo, i)?;
        }
    }
    Ok(total.layout(&geo, 1))
}

/// Is it a file of more than one block?
fn may_be_in_pieces(i: InodeRef<'_>, block_bytes: u64) -> bool {
    i.is_file() && !i.is_inline() && i.links() > 0 && i.size() > block_bytes
}

/// How many slots of a group's inode table there are up to the last that is in use: in a group that
/// files have gone from, many more than are in use.
fn used_slots(
    device: &dyn ReadBlocks,
    geo: &Geometry,
    desc: &GroupDesc,
) -> Result<usize, VolumeError> {
    let mut bitmap = vec![0; geo.block_bytes];
    device.read_at(desc.inode_bitmap * geo.block_bytes as u64, &mut bitmap)?;
    let in_use = |slot: &usize| bitmap.get(slot / 8).is_some_and(|b| b & 1 << (slot % 8) != 0);
    Ok((0..geo.inodes_per_group as usize).rev().find(in_use).map_or(0, |last| last + 1))
}

#[derive(Default)]
struct Tally {
    pairs: u64,
    next: u64,
    last: u64,
    files: u64,
    pieces: u64,
    free: u64,
    free_runs: u64,
}

impl Tally {
    /// What it comes to; one group of `stride` was looked at.
    fn layout(&self, geo: &Geometry, stride: u32) -> Layout {
        let ratio = |a: u64, b: u64| (b > 0).then(|| a as f64 / b as f64);
        Layout {
            score: ratio(self.next, self.pairs),
            extents_a_file: ratio(self.pieces, self.files),
            free_fragments: self.free_runs * u64::from(stride),
            free_fragment_bytes: self.free * geo.block_bytes as u64 / self.free_runs.max(1),
        }
    }

    fn add_file(
        &mut self,
        device: &dyn ReadBlocks,
        geo: &Geometry,
        i: InodeRef<'_>,
    ) -> Result<(), VolumeError> {
        let before = self.pieces;
        self.add_map(device, geo, i)?;
        self.files += u64::from(self.pieces > before);
        Ok(())
    }

    fn add_map(
        &mut self,
        device: &dyn ReadBlocks,
        geo: &Geometry,
        i: InodeRef<'_>,
    ) -> Result<(), VolumeError> {
        self.last = 0;
        if i.has_extents() {
            return self.add_extents(device, geo, &i.map_bytes(), (None, 0..BLOCKS_MAX));
        }
        (0..12).for_each(|n| self.add(u64::from(i.pointer(n))));
        let indirect = u64::from(i.pointer(12));
        if indirect != 0 && geo.has_block(BlockNo(indirect)) {
            let mut block = vec![0; geo.block_bytes];
            device.read_at(indirect * geo.block_bytes as u64, &mut block)?;
            // The indirect block itself lies between, where FFS puts it: that is no gap.
            if self.last != 0 && indirect == self.last + 1 {
                self.last = indirect;
            }
            map::pointers(&block).for_each(|b| self.add(b.0));
        }
        Ok(())
    }

    /// The leaves of an extent tree, as far as it is sound.
    fn add_extents(
        &mut self,
        device: &dyn ReadBlocks,
        geo: &Geometry,
        node: &[u8],
        (depth, range): (Option<u16>, Range<u64>),
    ) -> Result<(), VolumeError> {
        let Ok(h) = extents::head(node, depth) else { return Ok(()) };
        let apart = depth.is_none() || extents::check_range(node, h, &range).is_ok();
        if !apart || extents::check_entries(node, h).is_err() {
            return Ok(());
        }
        if h.depth == 0 {
            for m in (0..h.entries).map(|i| extents::mapped(node, i)).filter(|m| m.len > 0) {
                let rest = u64::from(m.len) - 1;
                self.add(m.start.0);
                self.pairs += rest;
                self.next += rest;
                self.last = m.start.0.saturating_add(rest);
            }
            return Ok(());
        }
        let mut block = vec![0; geo.block_bytes];
        for i in 0..h.entries {
            let child = extents::child(node, i);
            let first = |i| u64::from(extents::first_of(node, i));
            let end = if i + 1 < h.entries { first(i + 1) } else { range.end };
            if geo.has_block(child) {
                device.read_at(child.0 * geo.block_bytes as u64, &mut block)?;
                self.add_extents(device, geo, &block, (Some(h.depth - 1), first(i)..end))?;
            }
        }
        Ok(())
    }

    /// What is free in a group.
    fn add_free(
        &mut self,
        device: &dyn ReadBlocks,
        geo: &Geometry,
        (g, desc): (GroupNo, &GroupDesc),
    ) -> Result<(), VolumeError> {
        let cluster = u64::from(geo.cluster_blocks);
        if geo.sums.lazy() && desc.has(BLOCK_UNINIT) {
            // Its bitmap was never written.
            self.free += u64::from(desc.free_blocks) * cluster;
            self.free_runs += u64::from(desc.free_blocks > 0);
            return Ok(());
        }
        let mut map = vec![0; geo.block_bytes];
        device.read_at(desc.block_bitmap * geo.block_bytes as u64, &mut map)?;
        let (mut at, end) = (0, geo.group_blocks(g).div_ceil(geo.cluster_blocks) as usize);
        while let Some(from) = bitmap::next_zero(&map, at, end) {
            at = bitmap::next_one(&map, from, end).unwrap_or(end);
            self.free += (at - from) as u64 * cluster;
            self.free_runs += 1;
        }
        Ok(())
    }

    fn add(&mut self, b: u64) {
        if b != 0 && self.last != 0 {
            self.pairs += 1;
            self.next += u64::from(b == self.last + 1);
        }
        self.pieces += u64::from(b != 0 && (self.last == 0 || b != self.last + 1));
        self.last = b;
    }
}
