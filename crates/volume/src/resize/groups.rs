//! The new groups: where the bitmaps and inode tables of each lie, and what they hold, which is
//! nothing. With flex_bg those of neighbours lie together at the beginning of the first of them,
//! where they have room there; else each group has its own at its beginning. So what is in use of a
//! new group is always its first blocks.

use super::To;
use super::target::Target;
use crate::VolumeError;
use check::{Progress, ReadBlocks};
use format::ext::geometry::{BLOCK_UNINIT, INODE_UNINIT, TABLE_ZEROED};
use format::ext::{Geometry, GroupDesc, bitmap};
use format::{BlockNo, GroupNo};

/// Zeros written at once.
const CHUNK: u64 = 1 << 20;

/// The new groups of a volume that grows.
pub(super) struct NewGroups {
    geo: Geometry,
    first: u32,
    /// How many neighbours may have their metadata together.
    flex: u32,
    /// The descriptors, from that of the first on.
    descs: Vec<GroupDesc>,
    /// Which inode tables have to be written, to be zeros.
    unclean: Vec<bool>,
}

/// Neighbours whose metadata lie in the first of them.
struct Neighbours {
    first: GroupNo,
    count: u32,
}

impl NewGroups {
    pub(super) fn of(t: &Target, device: &dyn ReadBlocks) -> NewGroups {
        let log = u32::from(t.superblock.groups_per_flex_log());
        let flex = if t.new.flexible && log < 31 { 1 << log } else { 1 };
        let (first, geo) = (t.old.groups, t.new);
        let mut all = NewGroups { geo, first, flex, descs: Vec::new(), unclean: Vec::new() };
        for g in (first..geo.groups).map(GroupNo) {
            let (desc, unclean) = all.desc(g, device);
            all.descs.push(desc);
            all.unclean.push(unclean);
        }
        all
    }

    /// A new group's descriptor.
    pub(super) fn get(&self, g: GroupNo) -> &GroupDesc {
        &self.descs[(g.0 - self.first) as usize]
    }
    /// All of them, with their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (GroupNo, &GroupDesc)> {
        (self.first..).map(GroupNo).zip(&self.descs)
    }

    fn neighbours(&self, g: GroupNo) -> Neighbours {
        let from = (g.0 - g.0 % self.flex).max(self.first);
        let to = (g.0 - g.0 % self.flex).saturating_add(self.flex).min(self.geo.groups);
        let (first, count) = (GroupNo(from), to - from);
        let need = u64::from(self.geo.overhead(first)) + u64::from(count) * self.own_blocks();
        match need <= u64::from(self.geo.group_blocks(first)) {
            true => Neighbours { first, count },
            false => Neighbours { first: g, count: 1 },
        }
    }

    /// Blocks of a group's bitmaps and inode table.
    fn own_blocks(&self) -> u64 {
        2 + u64::from(self.geo.inode_table_blocks())
    }

    /// How many blocks of a group are in use, from its first on.
    fn taken(&self, g: GroupNo) -> u32 {
        let n = self.neighbours(g);
        let own = if n.first == g { u64::from(n.count) * self.own_blocks() } else { 0 };
        self.geo.overhead(g) + own as u32
    }

    /// A new group's descriptor, and whether its inode table has to be written.
    fn desc(&self, g: GroupNo, device: &dyn ReadBlocks) -> (GroupDesc, bool) {
        let (geo, n) = (&self.geo, self.neighbours(g));
        let base = geo.group_start(n.first).0 + u64::from(geo.overhead(n.first));
        let (i, count) = (u64::from(g.0 - n.first.0), u64::from(n.count));
        let (len, bs) = (u64::from(geo.inode_table_blocks()), geo.block_bytes as u64);
        let table = base + 2 * count + i * len;
        let end = geo.group_start(n.first).0 + u64::from(geo.group_blocks(n.first));
        assert!(table + len <= end, "Z2: group {g}'s table ends behind its neighbours' first");
        assert!(n.first.0 >= self.first && i < count, "Z2: group {g} is none of its neighbours");
        let (taken, all) = (self.taken(g), geo.group_blocks(g));
        assert!(taken <= all, "Z2: {taken} of the {all} blocks of group {g} are in use");
        let is_zero = device.known_zero(table * bs, len * bs);
        let mut d = GroupDesc {
            block_bitmap: base + i,
            inode_bitmap: base + count + i,
            inode_table: table,
            free_blocks: all - taken,
            free_inodes: geo.inodes_per_group,
            ..GroupDesc::default()
        };
        if !geo.sums.lazy() {
            return (d, !is_zero);
        }
        d.unused_inodes = geo.inodes_per_group;
        d.flags = INODE_UNINIT | if is_zero { TABLE_ZEROED } else { 0 };
        if n.first != g && g.0 + 1 < geo.groups {
            d.flags |= BLOCK_UNINIT;
        }
        (d, false)
    }

    /// A new group's descriptor in its bytes, with the sums of its bitmaps and its own.
    pub(super) fn encode(&self, g: GroupNo, out: &mut [u8]) {
        let (geo, d) = (&self.geo, self.get(g));
        out.fill(0);
        d.encode(out);
        if !d.has(BLOCK_UNINIT) {
            let map = self.block_map(g);
            geo.sums.seal_block_map(out, &map[..geo.blocks_per_group as usize / 8]);
        }
        if !d.has(INODE_UNINIT) {
            let map = self.inode_map();
            geo.sums.seal_inode_map(out, &map[..geo.inodes_per_group as usize / 8]);
        }
        geo.sums.seal_desc(g, out);
    }

    fn block_map(&self, g: GroupNo) -> Vec<u8> {
        let mut map = vec![0; self.geo.block_bytes];
        (0..self.taken(g) as usize).for_each(|b| bitmap::set(&mut map, b));
        let end = self.geo.group_blocks(g) as usize;
        (end..8 * map.len()).for_each(|b| bitmap::set(&mut map, b));
        map
    }

    fn inode_map(&self) -> Vec<u8> {
        let mut map = vec![0; self.geo.block_bytes];
        let end = self.geo.inodes_per_group as usize;
        (end..8 * map.len()).for_each(|b| bitmap::set(&mut map, b));
        map
    }

    /// Writes the bitmaps and inode tables.
    pub(super) fn write(
        &self,
        to: &mut To<'_>,
        progress: &mut dyn Progress,
    ) -> Result<(), VolumeError> {
        let total = self.descs.len() as u64;
        for (n, (g, d)) in (0..).zip(self.iter()) {
            progress.step("new groups", n, total);
            if !d.has(BLOCK_UNINIT) {
                to.put(BlockNo(d.block_bitmap), &self.block_map(g))?;
            }
            if !d.has(INODE_UNINIT) {
                to.put(BlockNo(d.inode_bitmap), &self.inode_map())?;
            }
            if self.unclean[n as usize] {
                self.zero(to, d.inode_table)?;
            }
        }
        progress.step("new groups", total, total);
        Ok(())
    }

    fn zero(&self, to: &mut To<'_>, table: u64) -> Result<(), VolumeError> {
        let at_once = CHUNK / self.geo.block_bytes as u64;
        let zeros = vec![0; CHUNK as usize];
        let (mut at, end) = (table, table + u64::from(self.geo.inode_table_blocks()));
        while at < end {
            let n = (end - at).min(at_once);
            to.put(BlockNo(at), &zeros[..n as usize * self.geo.block_bytes])?;
            at += n;
        }
        Ok(())
    }
}
