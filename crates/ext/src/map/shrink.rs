//! Shrinking an extent tree: what is mapped no more is given up, from the end of a file or in its
//! middle. What a transaction may give up has a bound where transactions are atomic, and a large
//! cut goes in steps, each of which leaves a smaller tree that is whole.

use super::cut::RENEWED;
use super::extents::Spot;
use super::list::{blocks_in, blocks_of, replaced};
use super::tree::{MORE, Node};
use crate::Ext;
use crate::alloc::Runs;
use format::ext::extents::Mapped;
use format::{FileBlock, FormatError};
use integrity::Txn;
use std::ops::Range;
use ufs::InodeHandle;
use ufs::store::Transactions;
use vfs::FsError;

/// Runs, and blocks, that one transaction gives up, where transactions are bounded.
const RUNS: usize = 12;
const BLOCKS: u64 = 1 << 16;

impl Ext {
    /// Unmaps what one leaf has of `range`, into `freed`, and the leaf with it if that was all.
    async fn tree_take(
        &self,
        txn: &mut Txn,
        h: &InodeHandle,
        range: Range<u64>,
        freed: &mut Runs,
    ) -> Result<(), FsError> {
        let mut way = self.way_to(h, range.start).await?;
        let leaf = way.last().expect("the root is there");
        let max = leaf.max();
        let mut list = replaced(&leaf.list(), &range, None);
        if list.len() > max {
            // A hole in the middle of an extent: it becomes two.
            way = self.way_with_room(txn, h, range.start, MORE).await?;
            list = replaced(&way.last().expect("the root is there").list(), &range, None);
        }
        self.put_taken(txn, h, &mut way, (&range, &list), freed)
    }

    /// What the way's leaf has of the range goes into `freed`; `list` is what is left.
    fn put_taken(
        &self,
        txn: &mut Txn,
        h: &InodeHandle,
        way: &mut [Node],
        (range, list): (&Range<u64>, &[Mapped]),
        freed: &mut Runs,
    ) -> Result<(), FsError> {
        let had = way.last().expect("the root is there").list();
        let gone = blocks_in(&had, range);
        let (left, going) = (blocks_of(list), gone.iter().map(|e| e.len).sum::<u64>());
        assert_eq!(left + going, blocks_of(&had), "E5: what stays of a leaf of {} and goes", h.ino);
        if let Some(e) = gone.iter().find(|e| self.meets_system(e.start, e.len)) {
            let what = format!("a block is said to be block {}", e.start);
            return Err(self.damage(&FormatError::corrupt(what, format!("inode {}", h.ino))));
        }
        gone.iter().for_each(|e| (0..e.len).for_each(|i| freed.push(e.start.plus(i))));
        self.put_leaf(txn, h, way, list, freed);
        // Not in release, as where something is mapped.
        let found = || self.spot_cached(h, FileBlock(range.start));
        let is_gone = |s: &Spot| matches!(s, Spot::Hole(len) if *len >= range.end - range.start);
        debug_assert!(found().is_none_or(|s| is_gone(&s)), "E5: {range:?} is mapped still");
        Ok(())
    }

    /// Is this as much as one transaction gives up? Each run has bits in bitmaps of its own, and
    /// each group a descriptor.
    fn is_step(&self, freed: &Runs) -> bool {
        self.mechanism.atomic() && (freed.runs() >= RUNS || freed.blocks() >= BLOCKS)
    }

    /// Frees the file's blocks from `from` on, the last first; in steps where a transaction is
    /// bounded.
    pub(crate) async fn tree_cut(
        &self,
        txn: &mut Txn,
        h: &InodeHandle,
        from: FileBlock,
    ) -> Result<(), FsError> {
        loop {
            let mut freed = Runs::default();
            let cut = self.cut_some(txn, h, from, &mut freed).await;
            let goes_on = cut != Ok(false) || freed.blocks() > 0;
            assert!(goes_on, "A3: a step of a cut gives nothing up, and the next would not either");
            // Also where the next leaf cannot be read: these are mapped no more (E5).
            self.give_back(txn, h, freed).await?;
            if cut? {
                return Ok(());
            }
            self.renew(txn, RENEWED).await?;
        }
    }

    /// As much of that as one transaction does; true: it is all.
    async fn cut_some(
        &self,
        txn: &mut Txn,
        h: &InodeHandle,
        from: FileBlock,
        freed: &mut Runs,
    ) -> Result<bool, FsError> {
        while !self.is_step(freed) {
            let mut way = self.way_to(h, u64::MAX).await?;
            let mut list = way.last().expect("the root is there").list();
            let Some(m) = list.pop() else {
                if way.len() == 1 {
                    return Ok(true);
                }
                // One that somebody else has left empty; others come before it.
                self.put_leaf(txn, h, &mut way, &[], freed);
                continue;
            };
            if m.end() <= from.0 {
                return Ok(true);
            }
            let start = self.last_part(&m).max(from.0);
            let is_part = u64::from(m.first) <= start && start < m.end();
            assert!(is_part, "E5: {m:?} of inode {} is cut at {start}", h.ino);
            if start > u64::from(m.first) {
                list.push(Mapped { len: (start - u64::from(m.first)) as u32, ..m });
            }
            let is_last = start == from.0 || way.len() == 1 && list.is_empty();
            self.put_taken(txn, h, &mut way, (&(start..m.end()), &list), freed)?;
            if is_last {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The file block from which on an extent lies in one group, where a transaction is bounded:
    /// another system's may lie in more groups than that has room for the bitmaps of.
    fn last_part(&self, m: &Mapped) -> u64 {
        let first = u64::from(m.first);
        if !self.mechanism.atomic() || self.meets_system(m.start, u64::from(m.len)) {
            return first;
        }
        let last = m.start.plus(u64::from(m.len) - 1);
        let border = self.geo.group_start(self.geo.group_of(last));
        first + border.0.saturating_sub(m.start.0)
    }

    /// Frees what lies in `from..to`, one step (`Store::punch_steps`).
    pub(crate) async fn tree_punch(
        &self,
        txn: &mut Txn,
        h: &InodeHandle,
        from: FileBlock,
        to: FileBlock,
    ) -> Result<(), FsError> {
        let (mut at, mut freed) = (from.0, Runs::default());
        while at < to.0 {
            match self.spot(h, FileBlock(at)).await? {
                Spot::Hole(len) => at += len,
                Spot::Mapped(m) => {
                    let end = m.end().min(to.0);
                    if let Err(e) = self.tree_take(txn, h, at..end, &mut freed).await {
                        self.give_back(txn, h, freed).await?;
                        return Err(e);
                    }
                    at = end;
                }
            }
        }
        self.give_back(txn, h, freed).await
    }
}
