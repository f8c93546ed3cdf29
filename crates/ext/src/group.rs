//! A block group in memory: its counts, and what has been learnt of its bitmaps. The bitmaps
//! themselves are blocks of the cache, as the descriptors are (descs.rs), checked when they come
//! in. The counts are the descriptors', kept in step by edits of their blocks; since no order of
//! writes can protect a count, a bitmap overrules it.
//!
//! Invariants:
//! * G1. What has been learnt of a group bounds what is free in it: nothing before the first free
//!   bit, no run longer than the longest.
//! * G2. From when a group's bitmap was first seen it counts as many blocks and inodes free as that
//!   shows, and never more than it has.
//! * G3. What is free in the volume is what is free in its groups.

use crate::Ext;
use crate::alloc::{Ask, Seen};
use crate::descs::Desc;
use cache::{Buf, BufKind, Role};
use env::IdMap;
use format::ext::csum::Sums;
use format::ext::geometry::{BLOCK_UNINIT, INODE_UNINIT};
use format::ext::{GroupDesc, bitmap};
use format::intent::Intent;
use format::{BlockNo, Extent, FormatError, GroupNo, Ino, JOURNAL_INO};
use integrity::{Change, Txn};
use std::ops::{Deref, Range};
use vfs::FsError;

/// What has been learnt is kept of so many groups at least.
const KNOWN_MAX: usize = 1 << 16;
/// Of so many groups the counts are summed up to be compared.
const SUMMED_MAX: u32 = 64;

/// What is free in a group, and how many directories it has: all that is in memory of a group that
/// nobody has used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counts {
    pub(crate) free_blocks: u32,
    pub(crate) free_inodes: u32,
    pub(crate) used_dirs: u32,
}

impl Counts {
    pub(crate) fn of(d: &GroupDesc) -> Counts {
        let GroupDesc { free_blocks, free_inodes, used_dirs, .. } = *d;
        Counts { free_blocks, free_inodes, used_dirs }
    }
}

/// The groups.
#[derive(Default)]
pub(crate) struct Groups {
    /// Of each.
    pub(crate) counts: Vec<Counts>,
    known: IdMap<u32, Group>,
    /// Of so many something was kept when they were last looked through.
    kept: usize,
}

impl Groups {
    pub(crate) fn new(counts: Vec<Counts>) -> Groups {
        Groups { counts, ..Groups::default() }
    }
    /// So many, in which nothing is free.
    pub(crate) fn none_free(groups: u32) -> Groups {
        let none = Counts { free_blocks: 0, free_inodes: 0, used_dirs: 0 };
        Groups::new(vec![none; groups as usize])
    }
    /// Free blocks (or clusters) and free inodes of all.
    pub(crate) fn sums(&self) -> (u64, u64) {
        let sum = |f: fn(&Counts) -> u32| self.counts.iter().map(|c| u64::from(f(c))).sum();
        (sum(|c| c.free_blocks), sum(|c| c.free_inodes))
    }
    pub(crate) fn of(&self, g: GroupNo) -> Counts {
        self.counts[g.0 as usize]
    }
    /// What has been learnt of a group, if something has.
    pub(crate) fn known(&self, g: GroupNo) -> Option<&Group> {
        self.known.get(&g.0)
    }
    /// The same, to be added to. What was learnt of others may be forgotten for it, but for what
    /// was freed in them.
    pub(crate) fn learn(&mut self, g: GroupNo, blocks: u32) -> &mut Group {
        if self.known.len() >= KNOWN_MAX.max(2 * self.kept) && !self.known.contains_key(&g.0) {
            self.known.retain(|_, group| group.freed);
            self.kept = self.known.len();
        }
        self.known.entry(g.0).or_insert_with(|| Group::new(blocks))
    }
    /// Searches begin at the first of what is free again.
    pub(crate) fn rewind(&mut self) {
        for group in self.known.values_mut() {
            (group.cursor, group.cursor_ino) = (0, 0);
        }
    }
}

/// What has been learnt of a group.
pub(crate) struct Group {
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
    pub(crate) fn new(blocks: u32) -> Group {
        Group {
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
        assert!(met <= known, "G1: {met} blocks in a row are free, and {known} were the most");
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
        assert!(first <= bit, "G1: block {bit} was free, and {first} the first that was");
        let longest = self.longest;
        assert!(len <= longest, "G1: {len} blocks in a row were free, and {longest} the most");
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

/// A group's bitmap, and its descriptor, which whoever changes the bitmap changes, too.
pub(crate) struct Map {
    buf: Buf,
    pub(crate) desc: Desc,
}

impl Deref for Map {
    type Target = Buf;
    fn deref(&self) -> &Buf {
        &self.buf
    }
}

impl Ext {
    /// What is known of a group, to be added to.
    pub(crate) fn learn<T>(&self, g: GroupNo, f: impl FnOnce(&mut Group) -> T) -> T {
        f(self.groups.borrow_mut().learn(g, self.geo.group_blocks(g)))
    }

    /// Is any of the `len` blocks from `first` on part of the volume's own structures, its journal
    /// among them, or beyond its ends?
    pub(crate) fn meets_system(&self, first: BlockNo, len: u64) -> bool {
        self.may_not_have(None, first, len)
    }

    /// The same for this inode's map: the journal's own is the one that has the journal's blocks.
    pub(crate) fn may_not_have(
        &self,
        ino: impl Into<Option<Ino>>,
        first: BlockNo,
        len: u64,
    ) -> bool {
        let last = len.checked_sub(1).and_then(|more| first.0.checked_add(more)).map(BlockNo);
        let Some(last) = last else { return true };
        if !self.geo.has_block(first) || !self.geo.has_block(last) {
            return true;
        }
        let meets = |runs: &[Extent]| {
            let next = runs.partition_point(|z| z.start.0 + z.len <= first.0);
            runs.get(next).is_some_and(|z| z.start <= last)
        };
        meets(self.survey.own()) || ino.into() != Some(JOURNAL_INO) && meets(&self.journal)
    }

    /// Those of the volume's own blocks, its journal's among them, that lie in the group, as bits
    /// of its bitmap.
    fn own_bits(&self, g: GroupNo) -> impl Iterator<Item = Range<usize>> + '_ {
        let start = self.geo.group_start(g).0;
        let end = start + u64::from(self.geo.group_blocks(g));
        [self.survey.own(), &self.journal[..]].into_iter().flat_map(move |runs| {
            let first = runs.partition_point(|z| z.start.0 + z.len <= start);
            let here = runs[first..].iter().take_while(move |z| z.start.0 < end);
            here.map(move |z| {
                let (from, to) = (z.start.0.max(start), (z.start.0 + z.len).min(end));
                (from - start) as usize..(to - start) as usize
            })
        })
    }

    /// The group's block bitmap; checked when it is read.
    pub(crate) async fn block_map(&self, g: GroupNo) -> Result<Map, FsError> {
        assert!(self.survey.has_ended(), "S1: group {g}'s blocks are looked at before the survey");
        let desc = self.desc(g).await?;
        let d = desc.get();
        let (at, missing) = (BlockNo(d.block_bitmap), self.geo.sums.lazy() && d.has(BLOCK_UNINIT));
        let seen = self.groups.borrow().known(g).is_some_and(|k| k.blocks_seen);
        if let Some(buf) = self.cache.get_cached(at).filter(|_| seen) {
            return Ok(Map { buf, desc });
        }
        let buf = if missing {
            let buf = self.cache.get_new(at, BufKind::Meta, Ino(0));
            let bits = self.geo.group_blocks(g) as usize;
            buf.derive(|map| self.fill_map(map, self.own_bits(g), bits));
            buf
        } else {
            let read = self.cache.get(at, BufKind::Meta).await;
            let buf = read.map_err(|e| self.unreadable(&e))?;
            let (bits, check) = (self.geo.blocks_per_group, Sums::check_block_map);
            self.check_map_sum((g, &desc), &buf, bits, check)?;
            buf
        };
        self.mark(&buf, Role::BlockMap(g.0));
        self.check_block_map(g, &buf)?;
        let was_seen = self.learn(g, |k| std::mem::replace(&mut k.blocks_seen, true));
        let free = bitmap::count_zeros(&buf.bytes(), self.geo.group_blocks(g) as usize);
        let counted = self.groups.borrow().of(g).free_blocks;
        if let Some(wrong) = self.wrong_count((g, "blocks"), &buf, (free, counted), was_seen)? {
            self.groups.borrow_mut().counts[g.0 as usize].free_blocks = free as u32;
            self.free_blocks.set(self.free_blocks.get().saturating_add_signed(wrong));
        }
        Ok(Map { buf, desc })
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
    pub(crate) async fn inode_map(&self, g: GroupNo) -> Result<Map, FsError> {
        assert!(self.survey.has_ended(), "S1: group {g}'s inodes are looked at before the survey");
        let desc = self.desc(g).await?;
        let d = desc.get();
        let (at, missing) = (BlockNo(d.inode_bitmap), self.geo.sums.lazy() && d.has(INODE_UNINIT));
        let seen = self.groups.borrow().known(g).is_some_and(|k| k.inodes_seen);
        if let Some(buf) = self.cache.get_cached(at).filter(|_| seen) {
            return Ok(Map { buf, desc });
        }
        let buf = if missing {
            let buf = self.cache.get_new(at, BufKind::Meta, Ino(0));
            let bits = self.geo.inodes_per_group as usize;
            buf.derive(|map| self.fill_map(map, std::iter::empty(), bits));
            buf
        } else {
            let read = self.cache.get(at, BufKind::Meta).await;
            let buf = read.map_err(|e| self.unreadable(&e))?;
            let (bits, check) = (self.geo.inodes_per_group, Sums::check_inode_map);
            self.check_map_sum((g, &desc), &buf, bits, check)?;
            buf
        };
        self.mark(&buf, Role::InodeMap(g.0));
        let reserved = self.geo.first_ino as usize - 1;
        let bad = g.0 == 0 && bitmap::next_zero(&buf.bytes(), 0, reserved).is_some();
        if bad {
            let what = "the inode bitmap calls reserved inodes free";
            return Err(self.damage(&FormatError::corrupt(what, format!("block {}", buf.block()))));
        }
        let was_seen = self.learn(g, |k| std::mem::replace(&mut k.inodes_seen, true));
        let free = bitmap::count_zeros(&buf.bytes(), self.geo.inodes_per_group as usize);
        let counted = self.groups.borrow().of(g).free_inodes;
        if let Some(wrong) = self.wrong_count((g, "inodes"), &buf, (free, counted), was_seen)? {
            self.groups.borrow_mut().counts[g.0 as usize].free_inodes = free as u32;
            self.free_inodes.set(self.free_inodes.get().saturating_add_signed(wrong));
        }
        Ok(Map { buf, desc })
    }

    /// So many more are free by a bitmap that was read than its group counts. One that was seen
    /// before has gone from memory, and come back with bits that nobody here has changed.
    fn wrong_count(
        &self,
        (g, what): (GroupNo, &str),
        buf: &Buf,
        (free, counted): (usize, u32),
        was_seen: bool,
    ) -> Result<Option<i64>, FsError> {
        let wrong = free as i64 - i64::from(counted);
        if wrong == 0 {
            return Ok(None);
        }
        if was_seen {
            let what = format!("group {g}'s bitmap of {what} has changed by itself");
            return Err(self.damage(&FormatError::corrupt(what, format!("block {}", buf.block()))));
        }
        tracing::warn!("group {g} has {free} free {what}, {wrong} more than it counted");
        Ok(Some(wrong))
    }

    /// Compares a bitmap with the sum in its group's descriptor, once after it was read.
    fn check_map_sum(
        &self,
        (g, desc): (GroupNo, &Desc),
        buf: &Buf,
        bits: u32,
        check: impl Fn(Sums, (GroupNo, &[u8]), &[u8]) -> Result<(), FormatError>,
    ) -> Result<(), FsError> {
        if buf.is_checked(0) {
            return Ok(());
        }
        let checked = {
            let (block, map) = (desc.buf.bytes(), buf.bytes());
            check(self.geo.sums, (g, &block[desc.range()]), &map[..bits as usize / 8])
        };
        checked.map_err(|e| self.damage(&e))?;
        buf.set_checked(0);
        Ok(())
    }

    /// Before the first bit of a bitmap that is not on disk yet is set: all of it is written with
    /// that. A group with inodes in use has its block bitmap, too (Linux sees to that).
    pub(crate) fn make_map(&self, txn: &mut Txn, map: &Map, flag: u16) {
        let mut desc = map.desc.get();
        if self.geo.sums.lazy() && desc.has(flag) {
            txn.edit(map, 0..self.block_bytes(), Change::Counts, |_| ());
            desc.flags &= !flag;
            map.desc.put(txn, &desc);
        }
    }

    /// Not in release: it looks at all groups. Nor of very many.
    fn check_sums(&self) {
        if !cfg!(debug_assertions) || self.geo.groups > SUMMED_MAX {
            return;
        }
        let (blocks, inodes) = self.groups.borrow().sums();
        let (free, of_all) = (self.free_blocks.get(), blocks * u64::from(self.geo.cluster_blocks));
        assert_eq!(free, of_all, "G3: free blocks of the volume, and of its groups");
        assert_eq!(self.free_inodes.get(), inodes, "G3: free inodes, and those of the groups");
    }

    /// Changes a group's counts, in memory and in the descriptor's block.
    pub(crate) fn count(
        &self,
        txn: &mut Txn,
        (g, desc): (GroupNo, &Desc),
        blocks: i64,
        inodes: i64,
        dirs: i64,
    ) {
        assert!(self.survey.has_ended(), "S1: group {g} is counted before the survey");
        let has = (self.geo.group_blocks(g), self.geo.inodes_per_group);
        let count = |what: &str, v: u32, d: i64, most: u32| {
            let sum = i64::from(v) + d;
            let can_be = (0..=i64::from(most)).contains(&sum);
            assert!(can_be, "G2: group {g} has {v} {what}, of {most}, and now {d} more");
            sum as u32
        };
        let counts = {
            let c = &mut self.groups.borrow_mut().counts[g.0 as usize];
            c.free_blocks = count("free blocks", c.free_blocks, blocks, has.0);
            c.free_inodes = count("free inodes", c.free_inodes, inodes, has.1);
            // No bitmap shows how many these are: a crash may have left another number.
            c.used_dirs = c.used_dirs.saturating_add_signed(dirs as i32);
            *c
        };
        let add = |v: u64, d: i64| v.checked_add_signed(d).expect("G3: fewer are free than none");
        self.free_blocks.set(add(self.free_blocks.get(), blocks));
        self.free_inodes.set(add(self.free_inodes.get(), inodes));
        self.check_sums();
        txn.intend(|| Intent::Group { group: g.0, dirs: dirs != 0 });
        let Counts { free_blocks, free_inodes, used_dirs } = counts;
        desc.put(txn, &GroupDesc { free_blocks, free_inodes, used_dirs, ..desc.get() });
    }
}
