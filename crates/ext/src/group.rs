//! A block group in memory: its descriptor, and what has been learnt of its bitmaps. The bitmaps
//! themselves are blocks of the cache, checked when they come in. The counts are the descriptor's,
//! kept in step by edits of its block; since no order of writes can protect a count, a bitmap
//! overrules it.

use crate::Ext;
use cache::{Buf, BufKind};
use format::ext::geometry::GROUP_DESC_BYTES;
use format::ext::{GroupDesc, bitmap};
use format::{BlockNo, FormatError, GroupNo};
use integrity::{Change, Txn};
use vfs::FsError;

pub(crate) struct Group {
    pub(crate) desc: GroupDesc,
    /// Blocks at its start that belong to the volume.
    pub(crate) overhead: u32,
    /// Was its block bitmap seen, and its count corrected?
    blocks_seen: bool,
    inodes_seen: bool,
    /// No free block lies before this bit.
    pub(crate) first_free: usize,
    /// Where a search without a place in mind begins, if that is later: what lies before is held.
    pub(crate) cursor: usize,
    /// No free run is longer.
    pub(crate) longest: usize,
    /// Runs taken since the volume was opened.
    pub(crate) taken: u32,
    /// No free inode lies before this bit.
    pub(crate) first_free_ino: usize,
    /// As `cursor`, for inodes.
    pub(crate) cursor_ino: usize,
    /// Inodes taken since the volume was opened.
    pub(crate) taken_ino: u32,
}

impl Group {
    pub(crate) fn new(desc: GroupDesc, overhead: u32, blocks: u32) -> Group {
        Group {
            desc,
            overhead,
            blocks_seen: false,
            inodes_seen: false,
            first_free: 0,
            cursor: 0,
            longest: blocks as usize,
            taken: 0,
            first_free_ino: 0,
            cursor_ino: 0,
            taken_ino: 0,
        }
    }
}

impl Ext {
    /// Is any of the `len` blocks from `first` on part of the volume's own structures, or beyond
    /// its ends? They lie in one group.
    pub(crate) fn meets_system(&self, first: BlockNo, len: u64) -> bool {
        let last = first.plus(len - 1);
        if !self.geo.has_block(first) || !self.geo.has_block(last) {
            return true;
        }
        let g = self.geo.group_of(first);
        let start = self.geo.group_start(g).0;
        let group = &self.groups.borrow()[g.0 as usize];
        let d = &group.desc;
        let meets = |at: u64, n: u64| first.0 < at + n && at <= last.0;
        meets(start, u64::from(group.overhead))
            || meets(u64::from(d.block_bitmap), 1)
            || meets(u64::from(d.inode_bitmap), 1)
            || meets(u64::from(d.inode_table), u64::from(self.geo.inode_table_blocks()))
    }

    /// The group's block bitmap; checked when it is read.
    pub(crate) async fn block_map(&self, g: GroupNo) -> Result<Buf, FsError> {
        let (seen, at) = {
            let group = &self.groups.borrow()[g.0 as usize];
            (group.blocks_seen, BlockNo(u64::from(group.desc.block_bitmap)))
        };
        if let Some(b) = self.cache.get_cached(at).filter(|_| seen) {
            return Ok(b);
        }
        let read = self.cache.get(at, BufKind::Meta).await;
        let buf = read.map_err(|e| self.unreadable(&e))?;
        self.check_block_map(g, &buf)?;
        let group = &mut self.groups.borrow_mut()[g.0 as usize];
        if !std::mem::replace(&mut group.blocks_seen, true) {
            let free = bitmap::count_zeros(&buf.bytes(), self.geo.group_blocks(g) as usize);
            let wrong = free as i64 - i64::from(group.desc.free_blocks);
            if wrong != 0 {
                tracing::warn!("group {g} has {free} free blocks, {wrong} more than it counted");
                group.desc.free_blocks = free as u16;
                self.free_blocks.set(self.free_blocks.get().saturating_add_signed(wrong));
            }
        }
        Ok(buf)
    }

    fn check_block_map(&self, g: GroupNo, buf: &Buf) -> Result<(), FsError> {
        let start = self.geo.group_start(g).0;
        let map = buf.bytes();
        let all_set = |at: u64, n: u64| {
            let bit = (at - start) as usize;
            bitmap::next_zero(&map, bit, bit + n as usize).is_none()
        };
        let marked = {
            // The descriptor was checked: all of this lies in the group.
            let group = &self.groups.borrow()[g.0 as usize];
            let d = &group.desc;
            all_set(start, u64::from(group.overhead))
                && all_set(u64::from(d.block_bitmap), 1)
                && all_set(u64::from(d.inode_bitmap), 1)
                && all_set(u64::from(d.inode_table), u64::from(self.geo.inode_table_blocks()))
        };
        drop(map);
        if marked {
            return Ok(());
        }
        let what = format!("group {g}'s block bitmap calls the volume's own blocks free");
        Err(self.damage(&FormatError::corrupt(what, format!("block {}", buf.block()))))
    }

    /// The group's inode bitmap; checked when it is read.
    pub(crate) async fn inode_map(&self, g: GroupNo) -> Result<Buf, FsError> {
        let (seen, at) = {
            let group = &self.groups.borrow()[g.0 as usize];
            (group.inodes_seen, BlockNo(u64::from(group.desc.inode_bitmap)))
        };
        if let Some(b) = self.cache.get_cached(at).filter(|_| seen) {
            return Ok(b);
        }
        let read = self.cache.get(at, BufKind::Meta).await;
        let buf = read.map_err(|e| self.unreadable(&e))?;
        let reserved = self.geo.first_ino as usize - 1;
        let bad = g.0 == 0 && bitmap::next_zero(&buf.bytes(), 0, reserved).is_some();
        if bad {
            let what = "the inode bitmap calls reserved inodes free";
            return Err(self.damage(&FormatError::corrupt(what, format!("block {}", buf.block()))));
        }
        let group = &mut self.groups.borrow_mut()[g.0 as usize];
        if !std::mem::replace(&mut group.inodes_seen, true) {
            let free = bitmap::count_zeros(&buf.bytes(), self.geo.inodes_per_group as usize);
            let wrong = free as i64 - i64::from(group.desc.free_inodes);
            if wrong != 0 {
                tracing::warn!("group {g} has {free} free inodes, {wrong} more than it counted");
                group.desc.free_inodes = free as u16;
                self.free_inodes.set(self.free_inodes.get().saturating_add_signed(wrong));
            }
        }
        Ok(buf)
    }

    /// Changes a group's counts, in memory and in the descriptor's block.
    pub(crate) fn count(&self, txn: &mut Txn, g: GroupNo, blocks: i64, inodes: i64, dirs: i64) {
        let add16 = |v: u16, d: i64| (i64::from(v) + d).clamp(0, i64::from(u16::MAX)) as u16;
        let add = |v: u64, d: i64| v.saturating_add_signed(d);
        let desc = {
            let d = &mut self.groups.borrow_mut()[g.0 as usize].desc;
            d.free_blocks = add16(d.free_blocks, blocks);
            d.free_inodes = add16(d.free_inodes, inodes);
            d.used_dirs = add16(d.used_dirs, dirs);
            *d
        };
        self.free_blocks.set(add(self.free_blocks.get(), blocks));
        self.free_inodes.set(add(self.free_inodes.get(), inodes));
        let at = g.0 as usize * GROUP_DESC_BYTES;
        let buf = &self.desc_bufs[at / self.block_bytes()];
        let at = at % self.block_bytes();
        txn.edit(buf, at + 12..at + 18, Change::Counts, |b| {
            b[0..2].copy_from_slice(&desc.free_blocks.to_le_bytes());
            b[2..4].copy_from_slice(&desc.free_inodes.to_le_bytes());
            b[4..6].copy_from_slice(&desc.used_dirs.to_le_bytes());
        });
    }
}
