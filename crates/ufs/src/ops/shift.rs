//! Ranges taken out of a file, and put into it: what follows changes its place, in whole blocks,
//! and no contents are written. One transaction wherever it fits (`Contents::shift`).

use super::{Ctx, Done};
use crate::Ufs;
use crate::inode::Inode;
use crate::store::Store;
use format::FileBlock;
use format::ext::inode::InodeMut;
use integrity::{Change, Credits};
use std::rc::Rc;
use vfs::access::{WRITE, owners};
use vfs::{FsError, Reply};

/// What moving edits beside the blocks that are freed: leaves of a tree and what is above them, the
/// inode.
const BESIDE: Credits = Credits::to_free(40);

impl<S: Store> Ufs<S> {
    /// Takes `len` bytes at `offset` out of the file.
    pub(super) async fn collapse_range(
        &self,
        ctx: &mut Ctx,
        ino: u32,
        offset: u64,
        len: u64,
    ) -> Done {
        let inode = self.inode(ino).await?;
        let blocks = self.check_range(&inode, offset, len)?;
        self.permit(ctx, &inode, WRITE).await?;
        let locks = self.lock(&[&inode]).await?;
        self.check_contents(&inode, offset)?;
        self.leave_inode(ctx, &inode).await?;
        let size = inode.size();
        // What reaches the end is a truncation.
        if offset + len >= size {
            return Err(FsError::Invalid);
        }
        self.store.writable()?;
        let (start, end) = (blocks.start, blocks.end);
        self.store.check_shift(&inode.h, end, start).await?;
        let steps = self.store.punch_steps(&inode.h, blocks, BESIDE).await?;
        let mut txn = self.begin(ctx, steps[0].need).await?;
        let mut at = start;
        let done = async {
            for (i, step) in steps.iter().enumerate() {
                if i > 0 {
                    self.store.renew(&mut txn, step.need).await?;
                }
                self.store.punch(&mut txn, &inode.h, at, step.to).await?;
                at = step.to;
            }
            self.store.shift(&mut txn, &inode.h, end, start).await
        };
        if let Err(e) = done.await {
            return self.abandon(txn, locks, e).await;
        }
        inode.h.edit_size(&mut txn, Change::Shrink(inode.ino()), size - len);
        self.note_shift(ctx, &mut txn, &inode);
        let reply = Reply::Attr(self.attr(&inode.h));
        self.finish(ctx, txn, locks).await?;
        Ok(reply)
    }

    /// Puts a hole of `len` bytes before what lies at `offset`.
    pub(super) async fn insert_range(
        &self,
        ctx: &mut Ctx,
        ino: u32,
        offset: u64,
        len: u64,
    ) -> Done {
        let inode = self.inode(ino).await?;
        let blocks = self.check_range(&inode, offset, len)?;
        self.permit(ctx, &inode, WRITE).await?;
        let locks = self.lock(&[&inode]).await?;
        self.check_contents(&inode, offset)?;
        self.leave_inode(ctx, &inode).await?;
        let size = inode.size();
        if offset >= size {
            return Err(FsError::Invalid);
        }
        let longer = size.checked_add(len).ok_or(FsError::FileTooBig)?;
        self.check_size(&inode, longer)?;
        self.store.writable()?;
        self.store.allow_size(longer).await?;
        self.store.check_shift(&inode.h, blocks.start, blocks.end).await?;
        let mut txn = self.begin(ctx, Credits::blocks(64)).await?;
        // First the length: nothing that was written lies behind a file's end, at any moment.
        inode.h.edit_size(&mut txn, Change::Shrink(inode.ino()), longer);
        if let Err(e) = self.store.shift(&mut txn, &inode.h, blocks.start, blocks.end).await {
            return self.abandon(txn, locks, e).await;
        }
        self.note_shift(ctx, &mut txn, &inode);
        let reply = Reply::Attr(self.attr(&inode.h));
        self.finish(ctx, txn, locks).await?;
        Ok(reply)
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

    /// Times and mode, as after a write.
    fn note_shift(&self, ctx: &Ctx, txn: &mut S::Txn, inode: &Rc<Inode>) {
        self.touch_changed(txn, &inode.h);
        let kill = ctx.cred.uid != 0;
        let mode = owners::mode_after_write(&self.attr(&inode.h), &ctx.cred, kill);
        inode.h.edit(txn, Change::Attr(inode.ino()), |raw| InodeMut(raw).set_mode(mode as u16));
    }
}
