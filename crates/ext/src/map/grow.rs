//! Blocks for a file's contents where the map is an extent tree: runs behind what comes before them
//! in the file. What was allocated ahead and never written becomes written in the transaction that
//! writes it, so that a crash shows either zeros or what was written.

use super::extents::Spot;
use crate::Ext;
use crate::alloc::{Goal, Runs};
use crate::plants::MARKED_EARLY;
use cache::{Buf, BufKind};
use format::ext::extents::{LEN_MAX, Mapped, UNWRITTEN_MAX};
use format::ufs::inode::InodeRef;
use format::{BlockNo, Extent, FileBlock};
use integrity::{Change, Txn};
use ufs::InodeHandle;
use ufs::store::Fill;
use vfs::FsError;

impl Ext {
    /// The inode's generation, which the sums of its blocks begin with.
    pub(crate) fn generation(&self, h: &InodeHandle) -> u32 {
        h.with(|raw| InodeRef(raw).generation())
    }
    pub(crate) fn goal_near(&self, h: &InodeHandle) -> Goal {
        Goal::In(self.geo.group_of_ino(h.ino))
    }

    /// Where file block `at` would be best: behind the block before it.
    fn goal_in_tree(&self, h: &InodeHandle, at: FileBlock) -> Goal {
        let before = at.0.checked_sub(1).and_then(|b| self.spot_cached(h, FileBlock(b)));
        match before {
            Some(Spot::Mapped(m)) => self.goal_after(m.start, at),
            _ => self.goal_near(h),
        }
    }

    /// Allocates for a hole of up to `len` blocks at `at`, and maps it.
    async fn map_hole(
        &self,
        txn: &mut Txn,
        h: &InodeHandle,
        at: FileBlock,
        (len, unwritten): (u64, bool),
    ) -> Result<Extent, FsError> {
        let most = u64::from(if unwritten { UNWRITTEN_MAX } else { LEN_MAX });
        let want = self.want_here(at, len).min(most);
        let e = self.alloc_blocks(txn, self.goal_in_tree(h, at), want).await?;
        assert!(e.len <= most, "E4: {e:?} are more than one extent of inode {}", h.ino);
        let m = Mapped { first: at.0 as u32, len: e.len as u32, start: e.start, unwritten };
        if let Err(why) = self.tree_put(txn, h, m).await {
            self.free_blocks(txn, Runs::one(e.start, e.len)).await?;
            return Err(why);
        }
        self.count_sectors(txn, h, e.len as i64);
        Ok(e)
    }

    /// Blocks for contents, from `at` on; see `Store::write_blocks`.
    pub(crate) async fn tree_blocks(
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
            let part = (at.plus(done), count - done, done == 0);
            match self.take_spot(txn, h, part, fill, &mut bufs).await {
                Ok(true) => (),
                Ok(false) => break,
                // What was taken is overwritten by the caller, and so must not be dropped.
                Err(_) if !bufs.is_empty() => break,
                Err(e) => return Err(e),
            }
        }
        Ok(bufs)
    }

    /// Takes what lies at `at`; `left`: blocks still wanted, `head`: this is the first of them.
    /// False: the transaction may change no more, and nothing was taken.
    async fn take_spot(
        &self,
        txn: &mut Txn,
        h: &InodeHandle,
        (at, left, head): (FileBlock, u64, bool),
        fill: (Fill, Fill),
        bufs: &mut Vec<Buf>,
    ) -> Result<bool, FsError> {
        let fresh = match self.spot(h, at).await? {
            Spot::Mapped(m) if !m.unwritten => {
                let len = u64::from(m.len).min(left);
                let tail = len == left;
                let keep = (head && fill.0 == Fill::Keep, tail && fill.1 == Fill::Keep);
                self.take_mapped(h, m.start, len, keep, bufs).await?;
                return Ok(true);
            }
            _ if !head && !self.goes_on(txn, self.most_changed_at(h, at).await?) => {
                return Ok(false);
            }
            Spot::Mapped(m) => {
                let len = m.len.min(u32::try_from(left).unwrap_or(u32::MAX));
                self.tree_put(txn, h, Mapped { len, unwritten: false, ..m }).await?;
                if self.plant.is(MARKED_EARLY) {
                    self.in_two(txn).await?;
                }
                let e = Extent { start: m.start, len: u64::from(len) };
                // As new as if they were allocated here: nothing of what is on disk counts.
                txn.edit(&h.buf, h.offset..h.offset, Change::AllocBlocks(e), |_| ());
                e
            }
            Spot::Hole(len) => self.map_hole(txn, h, at, (len.min(left), false)).await?,
        };
        assert!((1..=left).contains(&fresh.len), "M3: {fresh:?} for {left} of inode {}", h.ino);
        let new = |i| self.cache.get_new(fresh.start.plus(i), BufKind::Data, h.ino);
        bufs.extend((0..fresh.len).map(new));
        Ok(true)
    }

    /// Allocates what is a hole in the `count` blocks from `at` on, unwritten; how many blocks were
    /// looked at, at least one.
    pub(crate) async fn tree_preallocate(
        &self,
        txn: &mut Txn,
        h: &InodeHandle,
        at: FileBlock,
        count: u64,
    ) -> Result<u64, FsError> {
        match self.spot(h, at).await? {
            Spot::Mapped(m) => Ok(u64::from(m.len).min(count)),
            Spot::Hole(len) => {
                let e = self.map_hole(txn, h, at, (len.min(count), true)).await?;
                assert!((1..=count).contains(&e.len), "M3: {e:?} ahead for {count} blocks");
                Ok(e.len)
            }
        }
    }

    /// Maps one block of a directory, in the place of what was there.
    pub(crate) async fn tree_put_one(
        &self,
        txn: &mut Txn,
        h: &InodeHandle,
        at: FileBlock,
        to: BlockNo,
    ) -> Result<(), FsError> {
        let m = Mapped { first: at.0 as u32, len: 1, start: to, unwritten: false };
        self.tree_put(txn, h, m).await
    }
    /// Where a directory's new block would be best.
    pub(crate) fn goal_of_dir_block(&self, h: &InodeHandle, at: FileBlock) -> Goal {
        self.goal_in_tree(h, at)
    }
}
