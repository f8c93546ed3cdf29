//! Shrinking a file's map: pointers are cleared where they survive, and what they pointed at is freed. An
//! indirect block that goes as a whole is freed as it is; nothing in it is edited.

use crate::Ext;
use crate::map::{Leaf, Walk};
use format::bytes::le32;
use format::ext::map::{POINTERS, first_of};
use format::{BlockNo, FileBlock};
use integrity::{Credits, Txn};
use std::future::Future;
use std::pin::Pin;
use ufs::InodeHandle;
use vfs::FsError;

/// File blocks that one transaction gives up, where a transaction is bounded.
const STEP: u64 = 4096;

impl Ext {
    pub(crate) async fn cut(
        &self,
        txn: &mut Txn,
        h: &InodeHandle,
        from: FileBlock,
    ) -> Result<(), FsError> {
        let mut end = self.mapped_end(h);
        while self.mechanism.atomic() && end.0 > from.0 + STEP {
            // Whole leaves go first, so that the map is never much larger than what is left of the file.
            end = FileBlock(((end.0 - 1) / STEP * STEP).max(from.0));
            let before = h.with(|raw| format::ext::inode::InodeRef(raw).sectors());
            self.cut_once(txn, h, end).await?;
            let after = h.with(|raw| format::ext::inode::InodeRef(raw).sectors());
            if before != after {
                self.restart(txn).await?;
            } else {
                end = end.min(self.mapped_end(h));
            }
        }
        self.cut_once(txn, h, from).await
    }

    /// Ends the transaction and begins another in its place. In this order: a mechanism may let nobody begin
    /// until all that are open have ended.
    async fn restart(&self, txn: &mut Txn) -> Result<(), FsError> {
        let old = std::mem::replace(txn, Txn::new(self.mechanism.clone(), 0, 0));
        self.mechanism.end(old).await.map_err(|e| self.failed(&e))?;
        *txn = self.mechanism.begin(Credits::blocks(64)).await.map_err(|e| self.failed(&e))?;
        Ok(())
    }

    async fn cut_once(
        &self,
        txn: &mut Txn,
        h: &InodeHandle,
        from: FileBlock,
    ) -> Result<(), FsError> {
        let mut freed = Vec::new();
        for i in (0..POINTERS).rev() {
            let leaf = self.inode_leaf(h, i);
            let b = leaf.pointer(0);
            if b.0 == 0 {
                continue;
            }
            let first = first_of(i, self.per_block());
            let level = i.saturating_sub(11);
            if self.cut_tree(txn, h, b, level, first, from, &mut freed).await? {
                self.set_pointer(txn, h, &leaf, 0, BlockNo(0));
            }
        }
        self.give_back(txn, h, freed).await
    }

    async fn give_back(
        &self,
        txn: &mut Txn,
        h: &InodeHandle,
        freed: Vec<BlockNo>,
    ) -> Result<(), FsError> {
        if freed.is_empty() {
            return Ok(());
        }
        let count = freed.len() as i64;
        self.free_blocks(txn, freed).await?;
        self.count_sectors(txn, h, -count);
        Ok(())
    }

    /// Cuts the tree under block `b`, which maps file blocks from `first` on through `level` levels of
    /// indirect blocks. True if all of it goes, `b` included.
    #[expect(clippy::too_many_arguments, reason = "the state of one recursive walk")]
    fn cut_tree<'a>(
        &'a self,
        txn: &'a mut Txn,
        h: &'a InodeHandle,
        b: BlockNo,
        level: usize,
        first: FileBlock,
        from: FileBlock,
        freed: &'a mut Vec<BlockNo>,
    ) -> Pin<Box<dyn Future<Output = Result<bool, FsError>> + 'a>> {
        Box::pin(async move {
            let p = self.per_block();
            let span = p.pow(level as u32);
            if first.0 + span <= from.0 {
                return Ok(false);
            }
            if level == 0 {
                self.check_pointer(h.ino, b, "a block")?;
                freed.push(b);
                return Ok(true);
            }
            let whole = first.0 >= from.0;
            let buf = self.indirect(h.ino, b).await?;
            let child_span = p.pow(level as u32 - 1);
            for i in 0..p {
                let child = BlockNo(u64::from(le32(&buf.bytes(), 4 * i as usize)));
                if child.0 == 0 {
                    continue;
                }
                let at = first.plus(i * child_span);
                let gone = self.cut_tree(txn, h, child, level - 1, at, from, freed).await?;
                if gone && !whole {
                    let leaf = self.block_leaf(buf.clone(), i as usize);
                    self.set_pointer(txn, h, &leaf, 0, BlockNo(0));
                }
            }
            if whole {
                freed.push(b);
            }
            Ok(whole)
        })
    }

    /// Frees `from..to`; indirect blocks stay.
    pub(crate) async fn punch_blocks(
        &self,
        txn: &mut Txn,
        h: &InodeHandle,
        from: FileBlock,
        to: FileBlock,
    ) -> Result<(), FsError> {
        let mut at = from;
        let mut since_restart = 0;
        while at < to {
            let walk = self.walk(h, at).await?;
            let run = self.run_of(h.ino, &walk, to.0 - at.0)?;
            if let (Some(start), Walk::Leaf(leaf)) = (run.start, &walk) {
                self.unmap_run(txn, h, leaf, run.len);
                let blocks = (0..run.len).map(|i| start.plus(i)).collect();
                self.give_back(txn, h, blocks).await?;
                since_restart += run.len;
            }
            at = at.plus(run.len);
            if self.mechanism.atomic() && since_restart >= STEP {
                since_restart = 0;
                self.restart(txn).await?;
            }
        }
        Ok(())
    }

    fn unmap_run(&self, txn: &mut Txn, h: &InodeHandle, leaf: &Leaf, len: u64) {
        for i in 0..len {
            self.set_pointer(txn, h, leaf, i as usize, BlockNo(0));
        }
    }
}
