//! A block group in memory: its descriptor, and what has been learnt of its bitmaps. The bitmaps
//! themselves are blocks of the cache, checked when they come in. The counts are the descriptor's,
//! kept in step by edits of its block; since no order of writes can protect a count, a bitmap
//! overrules it.

use crate::Ext;
use crate::alloc::{Ask, Seen};
use cache::{Buf, BufKind, Role};
use format::ext::csum::Sums;
use format::ext::geometry::{BLOCK_UNINIT, INODE_UNINIT};
use format::ext::{GroupDesc, bitmap};
use format::intent::Intent;
use format::{BlockNo, FormatError, GroupNo, Ino};
use integrity::{Change, Txn};
use std::ops::Range;
use vfs::FsError;

pub(crate) struct Group {
    pub(crate) desc: GroupDesc,
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
    /// All free runs of at least so many blocks were discarded, and nothing was freed since.
    pub(crate) trimmed: Option<u64>,
    /// Was something freed since the volume was opened?
    pub(crate) freed: bool,
}

impl Group {
    pub(crate) fn new(desc: GroupDesc, blocks: u32) -> Group {
        Group {
            desc,
            blocks_seen: false,
            inodes_seen: false,
            first_free: 0,
            cursor: 0,
            longest: blocks as usize,
            taken: 0,
            first_free_ino: 0,
            cursor_ino: 0,
            taken_ino: 0,
            trimmed: None,
            freed: false,
        }
    }

    /// Remembers what a search has shown.
    pub(crate) fn learn(&mut self, ask: Ask, seen: Seen) {
        let (met, known) = (seen.longest, self.longest);
        assert!(met <= known, "{met} blocks in a row are free, and {known} were the most");
        if ask.from <= self.first_free {
            self.first_free = seen.first;
            if seen.complete {
                self.longest = seen.longest;
            }
        }
        if ask.from <= self.cursor.max(self.first_free) {
            self.cursor = self.cursor.max(seen.held_to);
        }
    }

    /// A run of free blocks is taken.
    pub(crate) fn takes(&mut self, bit: usize, len: usize) {
        let first = self.first_free;
        assert!(first <= bit, "block {bit} was free, and {first} the first that was");
        if first == bit {
            self.first_free = bit + len;
        }
    }

    /// Blocks from `bit` on are free again; what they make with their neighbours is not known: at
    /// most all of the group's `blocks` in a row.
    pub(crate) fn gets(&mut self, bit: usize, blocks: usize) {
        self.first_free = self.first_free.min(bit);
        self.longest = blocks;
        self.trimmed = None;
        self.freed = true;
    }
}

impl Ext {
    /// Is any of the `len` blocks from `first` on part of the volume's own structures, or beyond
    /// its ends?
    pub(crate) fn meets_system(&self, first: BlockNo, len: u64) -> bool {
        let Some(last) = first.0.checked_add(len - 1).map(BlockNo) else { return true };
        if !self.geo.has_block(first) || !self.geo.has_block(last) {
            return true;
        }
        let next = self.own.partition_point(|z| z.start.0 + z.len <= first.0);
        self.own.get(next).is_some_and(|z| z.start <= last)
    }

    /// Those of the volume's own blocks that lie in the group, as bits of its bitmap.
    fn own_bits(&self, g: GroupNo) -> impl Iterator<Item = Range<usize>> + '_ {
        let start = self.geo.group_start(g).0;
        let end = start + u64::from(self.geo.group_blocks(g));
        let first = self.own.partition_point(|z| z.start.0 + z.len <= start);
        let here = self.own[first..].iter().take_while(move |z| z.start.0 < end);
        here.map(move |z| {
            let (from, to) = (z.start.0.max(start), (z.start.0 + z.len).min(end));
            (from - start) as usize..(to - start) as usize
        })
    }

    /// The group's block bitmap; checked when it is read.
    pub(crate) async fn block_map(&self, g: GroupNo) -> Result<Buf, FsError> {
        let (seen, at, missing) = {
            let group = &self.groups.borrow()[g.0 as usize];
            let missing = self.geo.sums.lazy() && group.desc.has(BLOCK_UNINIT);
            (group.blocks_seen, BlockNo(group.desc.block_bitmap), missing)
        };
        if let Some(b) = self.cache.get_cached(at).filter(|_| seen) {
            return Ok(b);
        }
        let buf = if missing {
            let buf = self.cache.get_new(at, BufKind::Meta, Ino(0));
            let bits = self.geo.group_blocks(g) as usize;
            buf.derive(|map| self.fill_map(map, self.own_bits(g), bits));
            buf
        } else {
            let read = self.cache.get(at, BufKind::Meta).await;
            let buf = read.map_err(|e| self.unreadable(&e))?;
            self.check_map_sum(g, &buf, self.geo.blocks_per_group, Sums::check_block_map)?;
            buf
        };
        self.mark(&buf, Role::BlockMap(g.0));
        self.check_block_map(g, &buf)?;
        let group = &mut self.groups.borrow_mut()[g.0 as usize];
        if !std::mem::replace(&mut group.blocks_seen, true) {
            let free = bitmap::count_zeros(&buf.bytes(), self.geo.group_blocks(g) as usize);
            let wrong = free as i64 - i64::from(group.desc.free_blocks);
            if wrong != 0 {
                tracing::warn!("group {g} has {free} free blocks, {wrong} more than it counted");
                group.desc.free_blocks = free as u32;
                self.free_blocks.set(self.free_blocks.get().saturating_add_signed(wrong));
            }
        }
        Ok(buf)
    }

    fn check_block_map(&self, g: GroupNo, buf: &Buf) -> Result<(), FsError> {
        let map = buf.bytes();
        let free = |r: Range<usize>| bitmap::next_zero(&map, r.start, r.end).is_some();
        if !self.own_bits(g).any(free) {
            return Ok(());
        }
        drop(map);
        let what = format!("group {g}'s block bitmap calls the volume's own blocks free");
        Err(self.damage(&FormatError::corrupt(what, format!("block {}", buf.block()))))
    }

    /// The group's inode bitmap; checked when it is read.
    pub(crate) async fn inode_map(&self, g: GroupNo) -> Result<Buf, FsError> {
        let (seen, at, missing) = {
            let group = &self.groups.borrow()[g.0 as usize];
            let missing = self.geo.sums.lazy() && group.desc.has(INODE_UNINIT);
            (group.inodes_seen, BlockNo(group.desc.inode_bitmap), missing)
        };
        if let Some(b) = self.cache.get_cached(at).filter(|_| seen) {
            return Ok(b);
        }
        let buf = if missing {
            let buf = self.cache.get_new(at, BufKind::Meta, Ino(0));
            let bits = self.geo.inodes_per_group as usize;
            buf.derive(|map| self.fill_map(map, std::iter::empty(), bits));
            buf
        } else {
            let read = self.cache.get(at, BufKind::Meta).await;
            let buf = read.map_err(|e| self.unreadable(&e))?;
            self.check_map_sum(g, &buf, self.geo.inodes_per_group, Sums::check_inode_map)?;
            buf
        };
        self.mark(&buf, Role::InodeMap(g.0));
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
                group.desc.free_inodes = free as u32;
                self.free_inodes.set(self.free_inodes.get().saturating_add_signed(wrong));
            }
        }
        Ok(buf)
    }

    /// Compares a bitmap with the sum in its group's descriptor, once after it was read.
    fn check_map_sum(
        &self,
        g: GroupNo,
        buf: &Buf,
        bits: u32,
        check: impl Fn(Sums, (GroupNo, &[u8]), &[u8]) -> Result<(), FormatError>,
    ) -> Result<(), FsError> {
        if buf.is_checked(0) {
            return Ok(());
        }
        let (desc, at) = self.desc_of(g);
        let checked = {
            let (desc, map) = (desc.bytes(), buf.bytes());
            let desc = &desc[at..at + self.geo.desc_bytes];
            check(self.geo.sums, (g, desc), &map[..bits as usize / 8])
        };
        checked.map_err(|e| self.damage(&e))?;
        buf.set_checked(0);
        Ok(())
    }

    /// Before the first bit of a bitmap that is not on disk yet is set: all of it is written with
    /// that. A group with inodes in use has its block bitmap, too (Linux sees to that).
    pub(crate) fn make_map(&self, txn: &mut Txn, map: &Buf, g: GroupNo, flag: u16) {
        let missing = {
            let group = &mut self.groups.borrow_mut()[g.0 as usize];
            let missing = self.geo.sums.lazy() && group.desc.has(flag);
            group.desc.flags &= !flag;
            missing
        };
        if missing {
            txn.edit(map, 0..self.block_bytes(), Change::Counts, |_| ());
            self.count(txn, g, 0, 0, 0);
        }
    }

    /// Changes a group's counts, in memory and in the descriptor's block.
    pub(crate) fn count(&self, txn: &mut Txn, g: GroupNo, blocks: i64, inodes: i64, dirs: i64) {
        let count = |v: u32, d: i64| (i64::from(v) + d).clamp(0, i64::from(u32::MAX)) as u32;
        let add = |v: u64, d: i64| v.saturating_add_signed(d);
        let desc = {
            let d = &mut self.groups.borrow_mut()[g.0 as usize].desc;
            d.free_blocks = count(d.free_blocks, blocks);
            d.free_inodes = count(d.free_inodes, inodes);
            d.used_dirs = count(d.used_dirs, dirs);
            *d
        };
        self.free_blocks.set(add(self.free_blocks.get(), blocks));
        self.free_inodes.set(add(self.free_inodes.get(), inodes));
        txn.intend(|| Intent::Group { group: g.0, dirs: dirs != 0 });
        let (buf, at) = self.desc_of(g);
        txn.edit_words(&buf, at..at + self.geo.desc_bytes, Change::Counts, |b| desc.encode(b));
    }

    /// The block with a group's descriptor, and where that begins in it.
    pub(crate) fn desc_of(&self, g: GroupNo) -> (Buf, usize) {
        let (n, at) = (g.0 / self.geo.descs_per_block(), self.geo.desc_place(g).1);
        (self.desc_bufs[n as usize].clone(), at)
    }
}
