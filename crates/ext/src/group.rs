//! A block group in memory: its descriptor's numbers, and its bitmaps once they are read. The counts are the
//! descriptor's, kept in step by edits of the descriptor's block.

use crate::Ext;
use cache::{Buf, BufKind};
use format::ext::geometry::GROUP_DESC_BYTES;
use format::ext::{GroupDesc, bitmap};
use format::{BlockNo, FormatError, GroupNo};
use integrity::{Change, Txn};
use vfs::FsError;

pub(crate) struct Group {
    pub(crate) desc: GroupDesc,
    pub(crate) block_map: Option<Buf>,
    pub(crate) inode_map: Option<Buf>,
    /// No free block lies before this bit.
    pub(crate) first_free: usize,
    /// No free inode lies before this bit.
    pub(crate) first_free_ino: usize,
}

impl Ext {
    /// Is the block part of the volume's own structures?
    pub(crate) fn is_system_block(&self, b: BlockNo) -> bool {
        if !self.geo.has_block(b) {
            return true;
        }
        let g = self.geo.group_of(b);
        let at = (b.0 - self.geo.group_start(g).0) as u32;
        if at < self.geo.overhead(g) {
            return true;
        }
        let d = self.groups.borrow()[g.0 as usize].desc;
        let b = b.0 as u32;
        let table = d.inode_table..d.inode_table + self.geo.inode_table_blocks();
        b == d.block_bitmap || b == d.inode_bitmap || table.contains(&b)
    }

    /// The group's block bitmap, read and checked at its first use.
    pub(crate) async fn block_map(&self, g: GroupNo) -> Result<Buf, FsError> {
        let (known, at) = {
            let groups = self.groups.borrow();
            let group = &groups[g.0 as usize];
            (group.block_map.clone(), group.desc.block_bitmap)
        };
        if let Some(b) = known {
            return Ok(b);
        }
        let read = self.cache.get(BlockNo(u64::from(at)), BufKind::Meta).await;
        let buf = read.map_err(|e| self.unreadable(&e))?;
        self.check_block_map(g, &buf)?;
        self.groups.borrow_mut()[g.0 as usize].block_map = Some(buf.clone());
        Ok(buf)
    }

    fn check_block_map(&self, g: GroupNo, buf: &Buf) -> Result<(), FsError> {
        let d = self.groups.borrow()[g.0 as usize].desc;
        let start = self.geo.group_start(g).0;
        let end = start + u64::from(self.geo.group_blocks(g));
        let map = buf.bytes();
        let marked = |b: u64| {
            // With a layout of the maker's choice a group's structures may lie in another group.
            b < start || b >= end || bitmap::is_set(&map, (b - start) as usize)
        };
        let table = u64::from(d.inode_table);
        let all = (0..u64::from(self.geo.overhead(g))).all(|i| marked(start + i))
            && marked(u64::from(d.block_bitmap))
            && marked(u64::from(d.inode_bitmap))
            && (0..u64::from(self.geo.inode_table_blocks())).all(|i| marked(table + i));
        drop(map);
        if all {
            return Ok(());
        }
        let what = format!("group {g}'s block bitmap calls the volume's own blocks free");
        Err(self.damage(&FormatError::corrupt(what, format!("block {}", buf.block()))))
    }

    /// The group's inode bitmap.
    pub(crate) async fn inode_map(&self, g: GroupNo) -> Result<Buf, FsError> {
        let (known, at) = {
            let groups = self.groups.borrow();
            let group = &groups[g.0 as usize];
            (group.inode_map.clone(), group.desc.inode_bitmap)
        };
        if let Some(b) = known {
            return Ok(b);
        }
        let read = self.cache.get(BlockNo(u64::from(at)), BufKind::Meta).await;
        let buf = read.map_err(|e| self.unreadable(&e))?;
        let reserved = self.geo.first_ino as usize - 1;
        let bad = g.0 == 0 && bitmap::next_zero(&buf.bytes(), 0, reserved).is_some();
        if bad {
            let what = "the inode bitmap calls reserved inodes free";
            return Err(self.damage(&FormatError::corrupt(what, format!("block {}", buf.block()))));
        }
        self.groups.borrow_mut()[g.0 as usize].inode_map = Some(buf.clone());
        Ok(buf)
    }

    /// Changes a group's counts, in memory and in the descriptor's block.
    pub(crate) fn count(&self, txn: &mut Txn, g: GroupNo, blocks: i64, inodes: i64, dirs: i64) {
        let add16 = |v: u16, d: i64| (i64::from(v) + d).clamp(0, i64::from(u16::MAX)) as u16;
        let add = |v: u64, d: i64| v.saturating_add_signed(d);
        let desc = {
            let mut groups = self.groups.borrow_mut();
            let d = &mut groups[g.0 as usize].desc;
            d.free_blocks = add16(d.free_blocks, blocks);
            d.free_inodes = add16(d.free_inodes, inodes);
            d.used_dirs = add16(d.used_dirs, dirs);
            *d
        };
        self.free_blocks.set(add(self.free_blocks.get(), blocks));
        self.free_inodes.set(add(self.free_inodes.get(), inodes));
        self.dirs.set(add(self.dirs.get(), dirs));
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
