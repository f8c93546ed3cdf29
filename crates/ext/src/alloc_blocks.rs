//! Allocating blocks, by FFS's policy: right after the file's last block, else the first run near it, else in
//! another group; as long a run as is wanted. What was freed and may not be reused yet is passed over.

use crate::Ext;
use format::ext::bitmap;
use format::{BlockNo, Extent, FormatError, GroupNo};
use integrity::{Change, Freed, Pressure, Txn};
use vfs::FsError;

/// A run shorter than this is passed over while the group may have a longer one.
const SHORT: usize = 16;

impl Ext {
    /// Allocates up to `want` contiguous blocks, near `goal`.
    pub(crate) async fn alloc_blocks(
        &self,
        txn: &mut Txn,
        goal: BlockNo,
        want: u64,
    ) -> Result<Extent, FsError> {
        if let Some(e) = self.try_alloc(txn, goal, want).await? {
            return Ok(e);
        }
        // What is free may be held back until the operation that freed it is durable.
        if self.free_blocks.get() > 0 {
            let pressed = self.mechanism.press(Pressure::NoSpace).await;
            pressed.map_err(|e| self.failed(&e))?;
            if let Some(e) = self.try_alloc(txn, goal, want).await? {
                return Ok(e);
            }
        }
        Err(FsError::NoSpace)
    }

    async fn try_alloc(
        &self,
        txn: &mut Txn,
        goal: BlockNo,
        want: u64,
    ) -> Result<Option<Extent>, FsError> {
        let goal = if self.geo.has_block(goal) { goal } else { self.geo.group_start(GroupNo(0)) };
        let first = self.geo.group_of(goal);
        for i in 0..=self.geo.groups {
            // The goal's group comes again at the end, for what lies before the goal.
            let g = GroupNo((first.0 + i) % self.geo.groups);
            let from = if i == 0 { self.geo.bit_of(goal) } else { 0 };
            if self.groups.borrow()[g.0 as usize].desc.free_blocks == 0 {
                continue;
            }
            let map = self.block_map(g).await?;
            let found = self.find_in_group(g, &map.bytes(), from, want as usize);
            if let Some((bit, len)) = found {
                self.take(txn, g, bit, len);
                let start = self.geo.group_start(g).plus(bit as u64);
                return Ok(Some(Extent { start, len: len as u64 }));
            }
        }
        Ok(None)
    }

    /// A run in the group: at `from` if that is free, else the first of good length after it.
    fn find_in_group(
        &self,
        g: GroupNo,
        map: &[u8],
        from: usize,
        want: usize,
    ) -> Option<(usize, usize)> {
        let end = self.geo.group_blocks(g) as usize;
        let mut at = from.max(self.groups.borrow()[g.0 as usize].first_free);
        while at < end {
            let good = if at == from { 1 } else { want.min(SHORT) };
            let start = bitmap::next_zero(map, at, end)?;
            let (bit, len) = if start == from || good == 1 {
                let limit = (start + want).min(end);
                (start, bitmap::next_one(map, start, limit).unwrap_or(limit) - start)
            } else {
                bitmap::zero_run(map, start, end, want)?
            };
            let (bit, len) = self.reusable(g, bit, len);
            if len > 0 {
                return Some((bit, len));
            }
            at = bit + 1;
        }
        None
    }

    /// The first part of a run that may be reused; length 0 if none, and then `bit` is the run's last.
    fn reusable(&self, g: GroupNo, bit: usize, len: usize) -> (usize, usize) {
        let start = self.geo.group_start(g).plus(bit as u64);
        let ok = |i: usize, n: usize| {
            let e = Extent { start: start.plus(i as u64), len: n as u64 };
            self.mechanism.may_reuse(Freed::Blocks(e))
        };
        if ok(0, len) {
            return (bit, len);
        }
        let Some(first) = (0..len).find(|&i| ok(i, 1)) else { return (bit + len - 1, 0) };
        let n = (first..len).take_while(|&i| ok(i, 1)).count();
        (bit + first, n)
    }

    fn take(&self, txn: &mut Txn, g: GroupNo, bit: usize, len: usize) {
        let map = self.groups.borrow()[g.0 as usize].block_map.clone();
        let map = map.expect("the run was found in it");
        let extent = Extent { start: self.geo.group_start(g).plus(bit as u64), len: len as u64 };
        let bytes = bit / 8..(bit + len).div_ceil(8);
        let base = bytes.start * 8;
        txn.edit(&map, bytes, Change::AllocBlocks(extent), |m| {
            for b in bit - base..bit - base + len {
                assert!(!bitmap::is_set(m, b), "a block is allocated twice");
                bitmap::set(m, b);
            }
        });
        let mut groups = self.groups.borrow_mut();
        let hint = &mut groups[g.0 as usize].first_free;
        if *hint == bit {
            *hint = bit + len;
        }
        drop(groups);
        self.count(txn, g, -(len as i64), 0, 0);
    }

    /// Frees blocks, whose pointers the caller has cleared in the same transaction.
    pub(crate) async fn free_blocks(
        &self,
        txn: &mut Txn,
        mut blocks: Vec<BlockNo>,
    ) -> Result<(), FsError> {
        blocks.sort_unstable();
        let mut i = 0;
        while i < blocks.len() {
            let start = blocks[i];
            let g = self.geo.group_of(start);
            let mut n = 1;
            while i + n < blocks.len()
                && blocks[i + n].0 == start.0 + n as u64
                && self.geo.group_of(blocks[i + n]) == g
            {
                n += 1;
            }
            self.free_run(txn, g, Extent { start, len: n as u64 }).await?;
            i += n;
        }
        Ok(())
    }

    async fn free_run(&self, txn: &mut Txn, g: GroupNo, e: Extent) -> Result<(), FsError> {
        let map = self.block_map(g).await?;
        let bit = self.geo.bit_of(e.start);
        let len = e.len as usize;
        if bitmap::next_zero(&map.bytes(), bit, bit + len).is_some() {
            let what = format!("blocks {} to {} are freed twice", e.start, e.start.0 + e.len - 1);
            let at = format!("group {g}'s block bitmap");
            return Err(self.damage(&FormatError::corrupt(what, at)));
        }
        let bytes = bit / 8..(bit + len).div_ceil(8);
        let base = bytes.start * 8;
        txn.edit(&map, bytes, Change::FreeBlocks(e), |m| {
            (bit - base..bit - base + len).for_each(|b| bitmap::clear(m, b));
        });
        for i in 0..e.len {
            self.cache.forget(e.start.plus(i));
        }
        let mut groups = self.groups.borrow_mut();
        let hint = &mut groups[g.0 as usize].first_free;
        *hint = (*hint).min(bit);
        drop(groups);
        self.count(txn, g, e.len as i64, 0, 0);
        Ok(())
    }
}
