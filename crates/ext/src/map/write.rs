//! Growing a file's map: new blocks in runs, new indirect blocks on the way. A new indirect block
//! is announced with its contents before the pointer to it (`InitBlock`, then `MapPointer`).
//!
//! Invariants:
//! * M1. A pointer changes from what whoever changes it says that it was.
//! * M2. Pointers lie side by side in one array, and lead to none of the volume's own blocks.
//! * M3. A writer gets a block at least, and no more than he asks for; and no more than can be had
//!   by changing as many blocks as his transaction has said.
//! * M4. The way to a file block ends in an array whose pointers lead to contents.
//! * M5. Behind a cut nothing is mapped.
//! * M6. A run is a block long at least, no longer than was asked for, and lies in one group.

use crate::Ext;
use crate::alloc::{Goal, Runs};
use crate::map::Leaf;
use crate::map::indirect::Walk;
use cache::{Buf, BufKind};
use format::ufs::inode::{FLAG_HUGE, InodeMut, InodeRef, SECTORS_MAX};
use format::ufs::map;
use format::{BlockNo, Extent, FileBlock, FormatError};
use integrity::{Change, InitKind, LeadsTo, Txn};
use std::collections::VecDeque;
use ufs::InodeHandle;
use ufs::store::Fill;
use vfs::FsError;

impl Ext {
    /// Sets pointer `i` after the leaf's own, or clears it (`to` 0).
    pub(crate) fn set_pointer(
        &self,
        txn: &mut Txn,
        h: &InodeHandle,
        leaf: &Leaf,
        i: usize,
        to: BlockNo,
    ) {
        let old = leaf.pointer(i);
        if to.0 == 0 {
            return self.clear_run(txn, h, leaf, i, Extent { start: old, len: 1 });
        }
        self.set_run(txn, h, leaf, (i, old), Extent { start: to, len: 1 });
    }

    /// Sets as many pointers as `to` has blocks, from the `i`-th after the leaf's own on. What they
    /// were before is `old` and the blocks after it, or 0: holes.
    pub(crate) fn set_run(
        &self,
        txn: &mut Txn,
        h: &InodeHandle,
        leaf: &Leaf,
        (i, old): (usize, BlockNo),
        to: Extent,
    ) {
        let was = |n: u64| if old.0 == 0 { old } else { old.plus(n) };
        let as_said = (0..to.len).all(|n| leaf.pointer(i + n as usize) == was(n));
        assert!(as_said, "M1: pointers of inode {} to {old} are set, and are others", h.ino);
        let own = self.meets_system(to.start, to.len);
        assert!(!own, "M2: inode {} would point at the volume's own blocks: {to:?}", h.ino);
        assert!(i as u64 + to.len <= leaf.len as u64, "M2: {to:?} beyond the array's end");
        let (at, leads_to) = (leaf.place(i), leaf.leads_to);
        let change = Change::MapPointer { ino: h.ino, at, leads_to, old, new: to };
        txn.edit(&leaf.buf, leaf.bytes(i, to.len), change, |b| {
            (0..to.len).for_each(|n| map::set_pointer(b, n as usize, to.start.plus(n)));
        });
        let last = leaf.pointer(i + to.len as usize - 1);
        assert_eq!(last, to.start.plus(to.len - 1), "M1: the last pointer that was set");
    }

    /// Clears pointers from the `i`-th after the leaf's own on, which point at `old`.
    pub(crate) fn clear_run(
        &self,
        txn: &mut Txn,
        h: &InodeHandle,
        leaf: &Leaf,
        i: usize,
        old: Extent,
    ) {
        let as_said = (0..old.len).all(|n| leaf.pointer(i + n as usize) == old.start.plus(n));
        assert!(as_said, "M1: pointers of inode {} to {old:?} are cleared, and are others", h.ino);
        assert!(i as u64 + old.len <= leaf.len as u64, "M2: {old:?} beyond the array's end");
        let (at, leads_to) = (leaf.place(i), leaf.leads_to);
        let change = Change::Unmap { ino: h.ino, at, leads_to, old };
        txn.edit(&leaf.buf, leaf.bytes(i, old.len), change, |b| b.fill(0));
    }

    /// Adds `blocks` (of any sign) to the inode's count.
    pub(crate) fn count_sectors(&self, txn: &mut Txn, h: &InodeHandle, blocks: i64) {
        let delta = blocks * i64::from(self.sectors_per_block());
        let (bs, huge) = (self.block_bytes(), self.geo.huge_files);
        h.edit(txn, Change::Held(h.ino), |raw| {
            let i = InodeRef(raw);
            if !huge {
                let sum = (i64::from(i.sectors()) + delta).clamp(0, i64::from(u32::MAX));
                return InodeMut(raw).set_sectors(sum as u32);
            }
            let in_blocks = i.flags() & FLAG_HUGE != 0;
            let unit = if in_blocks { bs as u64 / 512 } else { 1 };
            let sum = i.sectors_wide(bs).saturating_add_signed(delta) / unit;
            // A damaged count may be as large as can be: as above, it stays at that.
            InodeMut(raw).set_sectors_wide(sum.min(SECTORS_MAX));
        });
    }

    /// The array with the pointer of `at`, making the indirect blocks on the way. If there were any
    /// to make, the block that the pointer is for is taken with them, and is returned too: a full
    /// volume refuses all of them before the map has grown, because one that leads nowhere would
    /// lie beyond the file's end.
    pub(crate) async fn leaf_for_write(
        &self,
        txn: &mut Txn,
        h: &InodeHandle,
        at: FileBlock,
    ) -> Result<(Leaf, Option<BlockNo>), FsError> {
        let path = self.path(at)?;
        let mut leaf = self.inode_leaf(h, usize::from(path.indexes[0]));
        let mut taken: VecDeque<BlockNo> = VecDeque::new();
        for level in 1..path.depth {
            let next = leaf.pointer(0);
            let buf = if next.0 == 0 {
                if taken.is_empty() {
                    let goal = self.goal_of_indirect(h, &leaf, at);
                    taken = self.take_all(txn, goal, path.depth - level + 1).await?;
                }
                let block = taken.pop_front().expect("one is taken for each level, and one more");
                self.new_indirect(txn, h, &leaf, block)
            } else {
                self.indirect(h.ino, next).await?
            };
            let index = usize::from(path.indexes[level]);
            leaf = self.block_leaf(buf, index, path.depth - 1 - level);
        }
        assert!(taken.len() <= 1, "M3: blocks for more levels than the map has were taken");
        let is_last = leaf.leads_to == LeadsTo::Contents;
        assert!(is_last, "M4: the way to {at} of inode {} ends too early", h.ino);
        Ok((leaf, taken.pop_front()))
    }

    /// So many blocks, for pointers of a map, or none.
    async fn take_all(
        &self,
        txn: &mut Txn,
        mut goal: Goal,
        want: usize,
    ) -> Result<VecDeque<BlockNo>, FsError> {
        let (mut all, mut back) = (VecDeque::new(), Runs::default());
        while all.len() < want {
            match self.alloc_for_pointers(txn, goal, (want - all.len()) as u64).await {
                Ok(e) => {
                    let blocks = (0..e.len).map(|i| e.start.plus(i));
                    blocks.clone().for_each(|b| back.push(b));
                    all.extend(blocks);
                    goal = Goal::At(e.start.plus(e.len - 1));
                }
                Err(why) => {
                    self.free_blocks(txn, back).await?;
                    return Err(why);
                }
            }
        }
        assert_eq!(all.len(), want, "M3: blocks for the levels of a map");
        Ok(all)
    }

    /// Makes `block` an indirect block without pointers, to which `parent`'s pointer leads.
    fn new_indirect(&self, txn: &mut Txn, h: &InodeHandle, parent: &Leaf, block: BlockNo) -> Buf {
        let buf = self.cache.get_new(block, BufKind::Meta, h.ino);
        let init = Change::InitBlock { ino: h.ino, kind: InitKind::Indirect };
        txn.edit(&buf, 0..self.block_bytes(), init, |b| b.fill(0));
        self.set_pointer(txn, h, parent, 0, block);
        self.count_sectors(txn, h, 1);
        buf
    }

    /// Blocks for contents, from `at` on; see `Store::write_blocks`.
    pub(crate) async fn blocks_for_write(
        &self,
        txn: &mut Txn,
        h: &InodeHandle,
        at: FileBlock,
        count: u64,
        fill: (Fill, Fill),
    ) -> Result<Vec<Buf>, FsError> {
        let mut bufs: Vec<Buf> = Vec::with_capacity(count as usize);
        while (bufs.len() as u64) < count {
            let done = bufs.len() as u64;
            let here = at.plus(done);
            let walk = self.walk(h, here).await?;
            let run = self.run_of(h.ino, &walk, count - done)?;
            let result = match run.start {
                Some(start) => {
                    let ends = (done == 0, done + run.len == count);
                    let keep = (ends.0 && fill.0 == Fill::Keep, ends.1 && fill.1 == Fill::Keep);
                    self.take_mapped(h, start, run.len, keep, &mut bufs).await
                }
                None if done > 0 && !self.goes_on(txn, most_changed(&walk)) => break,
                None => self.fill_hole(txn, h, here, run.len, &mut bufs).await,
            };
            match result {
                Ok(()) => (),
                // What was taken is overwritten by the caller, and so must not be dropped.
                Err(_) if !bufs.is_empty() => break,
                Err(e) => return Err(e),
            }
        }
        Ok(bufs)
    }

    /// May a write change another `more` blocks? Otherwise it is cut short: on a volume in whose
    /// groups hardly anything is free, each of its runs is in another one.
    pub(super) fn goes_on(&self, txn: &mut Txn, more: u64) -> bool {
        txn.spent = self.mechanism.atomic() && !txn.may_change(more);
        !txn.spent
    }

    pub(super) async fn take_mapped(
        &self,
        h: &InodeHandle,
        start: BlockNo,
        len: u64,
        keep: (bool, bool),
        bufs: &mut Vec<Buf>,
    ) -> Result<(), FsError> {
        for i in 0..len {
            let b = start.plus(i);
            let must_read = (i == 0 && keep.0) || (i + 1 == len && keep.1);
            let buf = if must_read {
                let read = self.cache.get(b, BufKind::Data).await;
                read.map_err(|e| data_error(&e))?
            } else {
                self.cache.get_for_overwrite(b, BufKind::Data)
            };
            buf.set_owner(h.ino);
            buf.set_unchecked();
            bufs.push(buf);
        }
        Ok(())
    }

    async fn fill_hole(
        &self,
        txn: &mut Txn,
        h: &InodeHandle,
        at: FileBlock,
        len: u64,
        bufs: &mut Vec<Buf>,
    ) -> Result<(), FsError> {
        let (leaf, taken) = self.leaf_for_write(txn, h, at).await?;
        let most = self.want_here(at, len).min(leaf.len as u64) as usize;
        let holes = (0..most).take_while(|&i| leaf.pointer(i).0 == 0).count();
        if holes == 0 {
            return Err(self.changed_meanwhile(h, at));
        }
        let e = match taken {
            Some(start) => Extent { start, len: 1 },
            None => {
                let goal = self.goal(h, &leaf, at);
                self.alloc_for_pointers(txn, goal, holes as u64).await?
            }
        };
        if (0..e.len as usize).any(|i| leaf.pointer(i).0 != 0) {
            self.free_blocks(txn, Runs::one(e.start, e.len)).await?;
            return Err(self.changed_meanwhile(h, at));
        }
        bufs.extend((0..e.len).map(|i| self.cache.get_new(e.start.plus(i), BufKind::Data, h.ino)));
        assert!(e.len <= most as u64, "M3: {e:?} for {most} pointers of inode {}", h.ino);
        self.set_run(txn, h, &leaf, (0, BlockNo(0)), e);
        self.count_sectors(txn, h, e.len as i64);
        Ok(())
    }
}

impl Ext {
    /// Its owner has the inode locked: only another file, whose map has the same block, can have
    /// filled a hole of this one.
    pub(super) fn changed_meanwhile(&self, h: &InodeHandle, at: FileBlock) -> FsError {
        let what = format!("its map, which another one's shares, has changed at block {at}");
        self.damage(&FormatError::corrupt(what, format!("inode {}", h.ino)))
    }
}

/// The most blocks that one more run changes: a bitmap, its descriptor and the array of pointers;
/// the same for each indirect block that there is none of yet.
fn most_changed(walk: &Walk) -> u64 {
    match walk {
        Walk::Leaf(_) => 3,
        Walk::Hole(_) => 12,
    }
}

/// A failed read of contents is that call's business alone.
pub(crate) fn data_error(e: &env::DiskError) -> FsError {
    tracing::warn!("a file's contents cannot be read: {e}");
    FsError::Io
}
