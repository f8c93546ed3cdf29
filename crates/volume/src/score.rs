//! How well files lie on the disk: the layout score of the FFS papers, the share of a file's blocks
//! that follow right behind the block before them. Reads inodes and their direct pointers and first
//! indirect block.

use crate::{VolumeError, probe};
use check::ReadBlocks;
use format::bytes::le32;
use format::ext::extents;
use format::ext::inode::InodeRef;
use format::ext::{Geometry, GroupDesc};
use format::{BlockNo, GroupNo};

/// The score over up to `files` files of two blocks and more, from 0 to 1; None if there is none.
pub fn layout_score(device: &dyn ReadBlocks, files: usize) -> Result<Option<f64>, VolumeError> {
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
        let used = used_slots(device, &geo, &desc)?;
        let bytes = (used * geo.inode_bytes).next_multiple_of(geo.block_bytes);
        let mut table = vec![0; bytes];
        device.read_at(desc.inode_table * bs, &mut table)?;
        let mut seen = 0;
        for slot in table.chunks_exact(geo.inode_bytes) {
            let i = InodeRef(slot);
            if seen < files_in_group
                && i.is_file()
                && !i.is_inline()
                && i.links() > 0
                && i.size() > bs
            {
                seen += 1;
                total.add_file(device, &geo, i)?;
            }
        }
    }
    Ok((total.pairs > 0).then(|| total.next as f64 / total.pairs as f64))
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
}

impl Tally {
    fn add_file(
        &mut self,
        device: &dyn ReadBlocks,
        geo: &Geometry,
        i: InodeRef<'_>,
    ) -> Result<(), VolumeError> {
        self.last = 0;
        if i.has_extents() {
            return self.add_extents(device, geo, &i.map_bytes(), None);
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
            (0..geo.block_bytes / 4).for_each(|n| self.add(u64::from(le32(&block, 4 * n))));
        }
        Ok(())
    }

    /// The leaves of an extent tree, as far as it is sound. The first leaf that is a block is
    /// enough.
    fn add_extents(
        &mut self,
        device: &dyn ReadBlocks,
        geo: &Geometry,
        node: &[u8],
        depth: Option<u16>,
    ) -> Result<(), VolumeError> {
        let Ok(h) = extents::head(node, depth) else { return Ok(()) };
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
        let child = extents::child(node, 0);
        if !geo.has_block(child) {
            return Ok(());
        }
        let mut block = vec![0; geo.block_bytes];
        device.read_at(child.0 * geo.block_bytes as u64, &mut block)?;
        self.add_extents(device, geo, &block, Some(h.depth - 1))
    }

    fn add(&mut self, b: u64) {
        if b != 0 && self.last != 0 {
            self.pairs += 1;
            self.next += u64::from(b == self.last + 1);
        }
        self.last = b;
    }
}
