//! Setting attributes: permissions, owner, times, length. A length is cut or grown here, with the
//! tail of the last block zeroed either way, so that old bytes never come back.

use super::{Ctx, Done};
use crate::Ufs;
use crate::attr::time_to_set;
use crate::inode::Inode;
use crate::store::{Fill, Store, Transaction};
use format::ufs::inode::{InodeMut, Which};
use format::{BlockNo, FileBlock};
use integrity::{Change, Credits};
use std::rc::Rc;
use vfs::access::{WRITE, owners};
use vfs::{Attr, FsError, Reply, SetAttr, SetTime};

impl<S: Store> Ufs<S> {
    pub(super) async fn setattr(&self, ctx: &mut Ctx, ino: u32, set: &SetAttr) -> Done {
        let inode = self.inode(ino).await?;
        let takes_away = set.size.is_some() || set.uid.is_some() || set.gid.is_some();
        if takes_away && self.may_have_capability(ctx, &inode) {
            let attr = self.attr(&inode.h);
            if set.guard.is_some_and(|g| g != attr.ctime) {
                return Err(FsError::NotSync);
            }
            self.permit_setattr(ctx, &inode, &attr, set).await?;
            self.store.writable()?;
            set.size.map_or(Ok(()), |size| self.check_size(&inode, size))?;
            self.drop_capability(ctx, &inode).await?;
        }
        let locks = self.lock(&[&inode]).await?;
        let before = self.pre(&inode);
        ctx.wcc[0] = self.wcc(ctx, Some(before), &inode);
        let attr = self.attr(&inode.h);
        if set.guard.is_some_and(|g| g != attr.ctime) {
            return Err(FsError::NotSync);
        }
        self.permit_setattr(ctx, &inode, &attr, set).await?;
        self.store.writable()?;
        let mut lengthens = false;
        if let Some(size) = set.size {
            self.check_size(&inode, size)?;
            self.store.allow_size(size).await?;
            lengthens = size > inode.size();
        }
        let mut need = Credits::to_free(48);
        if set.mode.is_some() {
            need = self.credits_to_relist(&inode.h, need).await?;
        }
        let mut txn = self.begin(ctx, need).await?;
        let done = self.apply(ctx, &mut txn, &inode, &attr, set).await;
        if let Err(e) = done {
            return self.abandon(txn, locks, e).await;
        }
        ctx.wcc[0] = self.wcc(ctx, Some(before), &inode);
        let reply = Reply::Attr(self.attr(&inode.h));
        self.finish(ctx, txn, locks).await?;
        self.end_lengthened(ctx, &inode, lengthens).await?;
        Ok(reply)
    }

    /// A file has been made longer, if it was, and what lay behind its end in that block is zeros
    /// now. They are contents: where the answer says that the length is durable, and contents are
    /// not before it, a crash would show again what was cut off.
    pub(super) async fn end_lengthened(
        &self,
        ctx: &Ctx,
        inode: &Inode,
        lengthens: bool,
    ) -> Result<(), FsError> {
        let g = self.store.guarantees();
        let is_told = ctx.durable || g.names_durable;
        if !lengthens || g.contents_first || !is_told {
            return Ok(());
        }
        self.store.sync_inodes(std::slice::from_ref(&inode.h), true).await
    }

    async fn permit_setattr(
        &self,
        ctx: &Ctx,
        inode: &Inode,
        attr: &Attr,
        set: &SetAttr,
    ) -> Result<(), FsError> {
        self.check_immutable(inode)?;
        let told = |time| matches!(time, Some(SetTime::To(_)));
        let owner = set.mode.is_some() || set.uid.is_some() || set.gid.is_some();
        // A kernel that holds back what is appended tells its times later, with that of the change,
        // which no user sets.
        let of_write = set.ctime.is_some() && set.atime.is_none();
        if set.size.is_some() || owner || told(set.atime) || told(set.mtime) && !of_write {
            self.check_free(inode)?;
        }
        if owners::may_set(attr, set, &ctx.cred)? {
            self.permit(ctx, inode, WRITE).await?;
        }
        Ok(())
    }

    pub(super) fn check_size(&self, inode: &Inode, size: u64) -> Result<(), FsError> {
        if inode.is_dir() {
            return Err(FsError::IsDir);
        }
        if !inode.with(|i| i.is_file()) {
            return Err(FsError::Invalid);
        }
        if size > self.store.bytes_max(&inode.h) {
            return Err(FsError::FileTooBig);
        }
        Ok(())
    }

    async fn apply(
        &self,
        ctx: &Ctx,
        txn: &mut S::Txn,
        inode: &Rc<Inode>,
        attr: &Attr,
        set: &SetAttr,
    ) -> Result<(), FsError> {
        assert!(inode.lock.is_busy(), "U15: {} is changed, and is not locked", inode.ino());
        let mode = owners::mode_after(attr, set, &ctx.cred);
        let mut pointer = (BlockNo(0), BlockNo(0));
        // What may find no room comes first: this is not seen, the next either changes all or
        // nothing, and what comes then needs none.
        if let Some(size) = set.size {
            self.outgrow_inline(txn, &inode.h, size).await?;
        }
        if set.mode.is_some() {
            pointer = self.set_mode_and_list(txn, inode, mode).await?;
        }
        if let Some(size) = set.size {
            self.resize(txn, inode, size).await?;
        }
        let now = self.now();
        let time = |t: SetTime| time_to_set(t, now);
        let sets =
            mode != attr.mode || set.mode.is_some() || set.uid.is_some() || set.gid.is_some();
        let moved = pointer.0 != pointer.1;
        if sets && (moved || !Self::has_owner(&inode.h, mode as u16, (set.uid, set.gid))) {
            Self::put_owner(txn, &inode.h, (mode as u16, set.uid, set.gid), pointer);
        }
        inode.h.edit(txn, Change::Attr(inode.ino()), |raw| {
            let mut i = InodeMut(raw);
            if set.size.is_some() {
                i.set_time(Which::Modify, now);
            }
            if let Some(t) = set.atime {
                i.set_time(Which::Access, time(t));
            }
            if let Some(t) = set.mtime {
                i.set_time(Which::Modify, time(t));
            }
            i.set_time(Which::Change, set.ctime.map_or(now, time));
        });
        Ok(())
    }

    /// Cuts or grows the file to `size`; the caller sets times.
    pub(super) async fn resize(
        &self,
        txn: &mut S::Txn,
        inode: &Rc<Inode>,
        size: u64,
    ) -> Result<(), FsError> {
        assert!(inode.lock.is_busy(), "U15: {} is cut, and is not locked", inode.ino());
        let old = inode.size();
        let bs = self.store.limits().block_bytes as u64;
        let (ino, h) = (inode.ino(), &inode.h);
        if self.resize_inline(txn, h, size).await? {
            h.edit_size(txn, Change::Shrink(ino), size);
        } else if size < old {
            self.zero_tail(txn, inode, size).await?;
            self.store.orphan_add(txn, h).await?;
            h.edit_size(txn, Change::Shrink(ino), size);
            self.store.truncate(txn, h, FileBlock(size.div_ceil(bs))).await?;
            if inode.links() > 0 {
                // One without names is on the list for that, and stays there.
                self.store.orphan_remove(txn, h).await?;
            }
        } else {
            if size > old {
                self.zero_tail(txn, inode, old).await?;
            } else if self.store.has_unwritten(h) {
                // What was allocated ahead beyond its end goes, as on Linux.
                self.store.truncate(txn, h, FileBlock(size.div_ceil(bs))).await?;
            }
            // Not `Grow`, which is delayed with the data it belongs to: a returned truncate
            // survives, and one to the present length too, which a write may have delayed.
            h.edit_size(txn, Change::Shrink(ino), size);
        }
        Ok(())
    }

    /// Zeros the rest of the block in which the file ends at `end`, if that block is there.
    pub(super) async fn zero_tail(
        &self,
        txn: &mut S::Txn,
        inode: &Rc<Inode>,
        end: u64,
    ) -> Result<(), FsError> {
        let bs = self.store.limits().block_bytes as u64;
        let from = (end % bs) as usize;
        if from == 0 {
            return Ok(());
        }
        self.zero_in_block(txn, inode, FileBlock(end / bs), from..bs as usize).await
    }

    /// Zeros bytes of one block, unless it is a hole or they are zero already.
    pub(super) async fn zero_in_block(
        &self,
        txn: &mut S::Txn,
        inode: &Rc<Inode>,
        at: FileBlock,
        range: std::ops::Range<usize>,
    ) -> Result<(), FsError> {
        if self.store.map(&inode.h, at, 1).await?.start.is_none() {
            return Ok(());
        }
        let keep = (Fill::Keep, Fill::Keep);
        let bufs = self.store.write_blocks(txn, &inode.h, at, 1, keep).await?;
        let buf = &bufs[0];
        assert_eq!(bufs.len(), 1, "U9: blocks of inode {} for one", inode.ino());
        let zero = buf.bytes()[range.clone()].iter().all(|&b| b == 0);
        // Zeros that only memory has, or that are on their way, are put there once more: whoever
        // cuts waits for his own.
        if !zero || buf.is_dirty() || buf.is_writing() {
            buf.modify(|b| b[range.clone()].fill(0));
            txn.data(inode.ino(), buf, range);
        }
        Ok(())
    }
}
