//! Ranges taken out of a file, and put into it: what follows changes its place, in whole blocks,
//! and no contents are written. One transaction wherever it fits (`Contents::shift`).

use super::space::Hole;
use super::{Ctx, Done};
use crate::Ufs;
use crate::inode::Inode;
use crate::store::Store;
use format::FileBlock;
use integrity::{Change, Credits};
use std::rc::Rc;
use vfs::access::WRITE;
use vfs::{FsError, Shift};

/// What moving edits beside the blocks that are freed: leaves of a tree and what is above them, the
/// inode.
const BESIDE: Credits = Credits::to_free(40);

impl<S: Store> Ufs<S> {
    /// Takes `len` bytes at `offset` out of the file, or puts a hole of so many in there.
    pub(super) async fn shift(
        &self,
        ctx: &mut Ctx,
        ino: u32,
        way: Shift,
        (offset, len): (u64, u64),
    ) -> Done {
        let inode = self.inode(ino).await?;
        let blocks = self.check_range(&inode, offset, len)?;
        self.permit(ctx, &inode, WRITE).await?;
        let locks = self.lock(&[&inode]).await?;
        self.check_contents(&inode, offset)?;
        self.leave_inode(ctx, &inode).await?;
        let size = inode.size();
        // What reaches the end is a truncation, or appends.
        let needed = if way == Shift::Collapse { len } else { 0 };
        if offset + needed >= size {
            return Err(FsError::Invalid);
        }
        self.store.writable()?;
        let (start, end) = (blocks.start, blocks.end);
        let (moved, txn) = match way {
            Shift::Collapse => {
                self.store.check_shift(&inode.h, end, start).await?;
                let steps = self.store.punch_steps(&inode.h, blocks.clone(), BESIDE).await?;
                let mut txn = self.begin(ctx, steps[0].need).await?;
                let hole = Hole { edges: Vec::new(), blocks, steps, keeps_zeros: false };
                (self.collapse(&mut txn, &inode, hole, size - len).await, txn)
            }
            Shift::Insert => {
                let longer = size.checked_add(len).ok_or(FsError::FileTooBig)?;
                self.check_size(&inode, longer)?;
                self.store.allow_size(longer).await?;
                self.store.check_shift(&inode.h, start, end).await?;
                let mut txn = self.begin(ctx, Credits::blocks(64)).await?;
                // First the length: nothing that was written lies behind a file's end, ever.
                inode.h.edit_size(&mut txn, Change::Shrink(inode.ino()), longer);
                let moved = self.store.shift(&mut txn, &inode.h, start, end).await;
                // Nothing has moved, and what is tried again must find the file as it was.
                if matches!(moved, Err(FsError::NoSpace)) {
                    inode.h.edit_size(&mut txn, Change::Shrink(inode.ino()), size);
                }
                (moved, txn)
            }
        };
        self.end_written(ctx, &inode, txn, locks, moved).await
    }

    /// Frees the blocks, moves what follows, then makes the file shorter.
    async fn collapse(
        &self,
        txn: &mut S::Txn,
        inode: &Rc<Inode>,
        hole: Hole,
        shorter: u64,
    ) -> Result<(), FsError> {
        let (start, end) = (hole.blocks.start, hole.blocks.end);
        assert!(inode.lock.is_busy(), "U15: {} is moved within, not locked", inode.ino());
        assert!(
            shorter < inode.size(),
            "U15: {} is {shorter} long, after a part went",
            inode.ino()
        );
        let bs = self.store.limits().block_bytes as u64;
        let out = (inode.size() - shorter) / bs;
        let wanted = end.0 - start.0;
        assert_eq!(out, wanted, "U15: blocks that leave {}, by its length", inode.ino());
        self.punch(txn, inode, Some(hole)).await?;
        self.store.shift(txn, &inode.h, end, start).await?;
        inode.h.edit_size(txn, Change::Shrink(inode.ino()), shorter);
        Ok(())
    }

    /// The blocks of a range, if it is one of whole blocks of a file.
    fn check_range(
        &self,
        inode: &Inode,
        offset: u64,
        len: u64,
    ) -> Result<std::ops::Range<FileBlock>, FsError> {
        let bs = self.store.limits().block_bytes as u64;
        let end = offset.checked_add(len).ok_or(FsError::FileTooBig)?;
        self.check_size(inode, end)?;
        if len == 0 || !offset.is_multiple_of(bs) || !len.is_multiple_of(bs) {
            return Err(FsError::Invalid);
        }
        Ok(FileBlock(offset / bs)..FileBlock(end / bs))
    }
}
