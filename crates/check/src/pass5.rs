//! Pass 5: bitmaps and counts against what the passes before have found in use. A group's
//! differences are one finding: after a crash there may be thousands of bits.

use crate::CheckError;
use crate::finding::{Kind, Place};
use crate::pass1::what_of;
use crate::run::Check;
use format::ext::bitmap;
use format::ext::geometry::{BLOCK_UNINIT, INODE_UNINIT};
use format::ext::{Geometry, GroupDesc};
use format::{BlockNo, GroupNo};

/// Bits that differ between what is on disk and what should be.
#[derive(Default)]
struct Difference {
    /// In use, marked as free.
    missing: u32,
    /// Free, marked as in use.
    extra: u32,
    /// Behind the end, not set.
    padding: bool,
}

impl Check<'_> {
    /// Compares every group's bitmaps and counts, then the volume's totals.
    pub(crate) fn check_bitmaps(&mut self) -> Result<(), CheckError> {
        let geo = self.geo();
        let dirs = self.dirs_by_group(&geo);
        self.find_hosts();
        let (mut free_blocks, mut free_inodes) = (0u64, 0u64);
        for g in (0..geo.groups).map(GroupNo) {
            self.progress.step("bitmaps", u64::from(g.0), u64::from(geo.groups));
            let d = self.frame.descs[g.0 as usize];
            let blocks = self.blocks_in_use(g);
            let inodes = self.inodes_in_use(g);
            let want = GroupDesc {
                flags: d.flags & !self.now_written(g, &blocks, &inodes),
                unused_inodes: self.unused_inodes(g),
                free_blocks: bitmap::count_zeros(&blocks, geo.group_blocks(g) as usize) as u32,
                free_inodes: bitmap::count_zeros(&inodes, geo.inodes_per_group as usize) as u32,
                used_dirs: dirs[g.0 as usize],
                ..d
            };
            let (dirs, ipg) = (want.used_dirs, geo.inodes_per_group);
            let fits = dirs <= ipg - want.free_inodes;
            assert!(fits, "K10: {dirs} inodes of group {g} are directories, and fewer in use");
            let own: usize = self.frame.own_bits(g).map(|r| r.len()).sum();
            let room = geo.group_blocks(g) as usize - own;
            let free = want.free_blocks as usize;
            assert!(free <= room, "K10: {free} blocks of group {g} are free, of {room}");
            free_blocks += u64::from(want.free_blocks);
            free_inodes += u64::from(want.free_inodes);
            if want != d {
                self.found(
                    Kind::Counts,
                    Place::Group(g),
                    "counts of free blocks, inodes or of directories are wrong; set",
                );
                self.put_desc(g, &want)?;
            }
            let lazy = geo.sums.lazy();
            if !(lazy && want.has(BLOCK_UNINIT)) {
                self.compare(g, d.block_bitmap, &blocks, geo.group_blocks(g))?;
                self.check_map_sum(g, &blocks, true)?;
            }
            if !(lazy && want.has(INODE_UNINIT)) {
                self.compare(g, d.inode_bitmap, &inodes, geo.inodes_per_group)?;
                self.check_map_sum(g, &inodes, false)?;
            }
        }
        self.progress.step("bitmaps", u64::from(geo.groups), u64::from(geo.groups));
        self.report.blocks_used = geo.blocks - u64::from(geo.first_data_block) - free_blocks;
        self.report.inodes_used = u64::from(geo.inodes()) - free_inodes;
        let says = (self.sb.free_blocks(), u64::from(self.sb.free_inodes()));
        if says != (free_blocks, free_inodes) {
            let text = format!(
                "{} free blocks and {} free inodes, should be {free_blocks} and {free_inodes}; set",
                says.0, says.1
            );
            self.found(Kind::Counts, Place::Volume, text);
            self.sb.set_free_blocks(free_blocks);
            self.sb.set_free_inodes(free_inodes as u32);
        }
        Ok(())
    }

    /// Flags of a group that it can have no longer: a bitmap that is not there would not say what
    /// is in use.
    fn now_written(&self, g: GroupNo, blocks: &[u8], inodes: &[u8]) -> u16 {
        let geo = self.geo();
        let bits = |map: &[u8], n: u32| n as usize - bitmap::count_zeros(map, n as usize);
        let mut gone = 0;
        if bits(inodes, geo.inodes_per_group) > 0 {
            gone |= INODE_UNINIT;
        }
        // What is implied is the group's own superblock and descriptors, and what lies in it of
        // groups that have no bitmap either.
        let mut implied = 0;
        for own in self.frame.own_bits(g) {
            implied += own.len();
        }
        let foreign = self.written_groups_in(g);
        if bits(blocks, geo.group_blocks(g)) != implied || foreign {
            gone |= BLOCK_UNINIT;
        }
        gone
    }

    /// Lie bitmaps or an inode table in the group of another one, which has a block bitmap?
    fn written_groups_in(&self, g: GroupNo) -> bool {
        let geo = self.geo();
        geo.flexible && self.hosts.get(g.0 as usize).is_some_and(|hosts| *hosts)
    }

    /// Which groups hold bitmaps or inode tables of others that have a block bitmap.
    fn find_hosts(&mut self) {
        let geo = self.geo();
        let mut hosts = vec![false; geo.groups as usize];
        for (g, d) in (0..).map(GroupNo).zip(self.frame.descs.iter()) {
            if d.has(BLOCK_UNINIT) {
                continue;
            }
            let end = d.inode_table + u64::from(geo.inode_table_blocks()) - 1;
            for b in [d.block_bitmap, d.inode_bitmap, d.inode_table, end] {
                let host = geo.group_of(BlockNo(b));
                hosts[host.0 as usize] |= host != g;
            }
        }
        self.hosts = hosts;
    }

    /// Inodes at the table's end that were never used, with those that the repair has taken.
    fn unused_inodes(&self, g: GroupNo) -> u32 {
        let d = &self.frame.descs[g.0 as usize];
        let infos = self.infos.group(g).unwrap_or(&[]);
        let used = infos.iter().rposition(|i| i.kind != 0).map_or(0, |n| n as u32 + 1);
        let says = d.unused_inodes.min(self.geo().inodes_per_group);
        says.min(self.geo().inodes_per_group - used)
    }

    /// A bitmap's checksum, which is in the group's descriptor.
    fn check_map_sum(&mut self, g: GroupNo, map: &[u8], of_blocks: bool) -> Result<(), CheckError> {
        let geo = self.geo();
        let bits = if of_blocks { geo.blocks_per_group } else { geo.inodes_per_group };
        let map = &map[..bits as usize / 8];
        let (block, at) = geo.desc_place(g);
        let raw = self.view.read(block)?[at..at + geo.desc_bytes].to_vec();
        let checked = match of_blocks {
            true => geo.sums.check_block_map((g, &raw), map),
            false => geo.sums.check_inode_map((g, &raw), map),
        };
        let Err(e) = checked else { return Ok(()) };
        if !self.map_changed {
            self.found(Kind::Checksum, Place::Group(g), format!("{}; set", what_of(&e)));
        }
        self.edit_desc(g, |raw| match of_blocks {
            true => geo.sums.seal_block_map(raw, map),
            false => geo.sums.seal_inode_map(raw, map),
        })
    }

    fn dirs_by_group(&self, geo: &Geometry) -> Vec<u32> {
        let mut dirs = vec![0u32; geo.groups as usize];
        for d in &self.dirs.list {
            let n = &mut dirs[geo.group_of_ino(format::Ino(d.ino)).0 as usize];
            *n += 1;
        }
        dirs
    }

    /// The block bitmap as it should be.
    fn blocks_in_use(&self, g: GroupNo) -> Vec<u8> {
        let geo = self.geo();
        let mut map = vec![0; geo.block_bytes];
        if let Some(claimed) = self.claims.group(g) {
            map[..claimed.len()].copy_from_slice(claimed);
        }
        let own = || self.frame.own_bits(g).flatten();
        let claimed = own().find(|b| bitmap::is_set(&map, *b));
        assert!(
            claimed.is_none(),
            "K3: bit {claimed:?} of group {g} is a file's, and the volume's"
        );
        own().for_each(|b| bitmap::set(&mut map, b));
        pad(&mut map, geo.group_blocks(g) as usize);
        map
    }

    /// The inode bitmap as it should be.
    fn inodes_in_use(&self, g: GroupNo) -> Vec<u8> {
        let geo = self.geo();
        let mut map = vec![0; geo.block_bytes];
        for (n, _) in
            self.infos.group(g).unwrap_or(&[]).iter().enumerate().filter(|(_, i)| i.kind != 0)
        {
            bitmap::set(&mut map, n);
        }
        let first = g.0 * geo.inodes_per_group + 1;
        (first..geo.first_ino.max(first)).take(geo.inodes_per_group as usize).for_each(|ino| {
            bitmap::set(&mut map, (ino - first) as usize);
        });
        pad(&mut map, geo.inodes_per_group as usize);
        map
    }

    fn compare(&mut self, g: GroupNo, at: u64, want: &[u8], bits: u32) -> Result<(), CheckError> {
        let block = BlockNo(at);
        let has = self.view.read(block)?;
        self.map_changed = has != want;
        if has == want {
            return Ok(());
        }
        let is_blocks = self.frame.descs[g.0 as usize].block_bitmap == at;
        let (kind, what) =
            if is_blocks { (Kind::BlockBitmap, "blocks") } else { (Kind::InodeBitmap, "inodes") };
        let d = difference(&has, want, bits as usize);
        self.report.unmarked += u64::from(d.missing);
        if d.missing + d.extra > 0 {
            let text = format!(
                "{} {what} in use are marked as free, {} free ones as in use; set",
                d.missing, d.extra
            );
            self.found(kind, Place::Group(g), text);
        }
        if d.padding {
            let text = format!("the end of the bitmap of {what} is not filled; set");
            self.found(Kind::BitmapPadding, Place::Group(g), text);
        }
        self.view.put(block, want.to_vec());
        Ok(())
    }
}

/// Sets the bits from `from` to the end.
fn pad(map: &mut [u8], from: usize) {
    let whole = from.next_multiple_of(8);
    (from..whole.min(8 * map.len())).for_each(|b| bitmap::set(map, b));
    map[whole / 8..].fill(0xff);
}

fn difference(has: &[u8], want: &[u8], bits: usize) -> Difference {
    let mut d = Difference::default();
    for (n, (h, w)) in has.iter().zip(want).enumerate().filter(|(_, (h, w))| h != w) {
        for bit in (0..8).filter(|b| (h ^ w) >> b & 1 == 1) {
            if 8 * n + bit >= bits {
                d.padding = true;
            } else if w >> bit & 1 == 1 {
                d.missing += 1;
            } else {
                d.extra += 1;
            }
        }
    }
    d
}
