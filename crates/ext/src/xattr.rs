//! Attribute blocks. Ours belong to one inode each; the kernel's may be shared, and then the count
//! of users goes down instead of the block.
//!
//! Invariants:
//! * X1. A block that we make has one user.
//! * X2. The inode points at the block it was given, or at none.
//! * X3. A block with other users is left as it is, but for their number.

use crate::Ext;
use crate::alloc::{Goal, Runs};
use cache::{Buf, BufKind, Role};
use format::bytes::le32;
use format::ufs::inode::{InodeMut, InodeRef};
use format::ufs::xattr;
use format::{BlockNo, FormatError};
use integrity::{Change, InitKind, Txn};
use ufs::InodeHandle;
use vfs::FsError;

impl Ext {
    pub(crate) async fn attributes(&self, h: &InodeHandle) -> Result<Option<Buf>, FsError> {
        let b = self.xattr_block_at(h);
        if b.0 == 0 {
            return Ok(None);
        }
        self.check_pointer(h.ino, b, "an attribute block")?;
        let read = self.cache.get(b, BufKind::Meta).await;
        let buf = read.map_err(|e| self.unreadable(&e))?;
        if le32(&buf.bytes(), 0) != xattr::MAGIC || xattr::refcount(&buf.bytes()) == 0 {
            let what = format!("block {b} is said to hold attributes, and does not");
            return Err(self.damage(&FormatError::corrupt(what, format!("inode {}", h.ino))));
        }
        self.mark(&buf, Role::Attributes);
        if !buf.is_checked(0) {
            let checked = self.geo.sums.check_xattr(b, &buf.bytes());
            checked.map_err(|e| self.damage(&e))?;
            buf.set_checked(0);
        }
        Ok(Some(buf))
    }

    /// Where the inode's attribute block lies; 0: it has none.
    fn xattr_block_at(&self, h: &InodeHandle) -> BlockNo {
        h.with(|raw| self.xattr_block_of(InodeRef(raw)))
    }

    /// See [`ufs::store::Attributes::set_xattr_block`].
    pub(crate) async fn set_attributes(
        &self,
        txn: &mut Txn,
        h: &InodeHandle,
        contents: Option<&[u8]>,
    ) -> Result<bool, FsError> {
        let users = contents.map_or(1, xattr::refcount);
        assert_eq!(users, 1, "X1: users of a block of attributes of inode {}", h.ino);
        let old = self.attributes(h).await?;
        let own = old.as_ref().filter(|b| xattr::refcount(&b.bytes()) == 1);
        // No order of writes can protect a block that is changed where it lies.
        if let (Some(own), Some(contents), true) = (own, contents, self.mechanism.atomic()) {
            let there = self.xattr_block_at(h);
            assert_eq!(own.block(), there, "X2: the block that changes is inode {}'s", h.ino);
            txn.edit_words(own, 0..self.block_bytes(), Change::Attr(h.ino), |b| {
                b.copy_from_slice(contents);
            });
            return Ok(true);
        }
        let old_block = old.as_ref().map_or(BlockNo(0), Buf::block);
        let mut new_block = BlockNo(0);
        if let Some(contents) = contents {
            let goal = Goal::In(self.geo.group_of_ino(h.ino));
            new_block = self.alloc_blocks(txn, goal, 1).await?.start;
            let buf = self.cache.get_new(new_block, BufKind::Meta, h.ino);
            self.mark(&buf, Role::Attributes);
            let init = Change::InitBlock { ino: h.ino, kind: InitKind::Xattr };
            txn.edit(&buf, 0..self.block_bytes(), init, |b| b.copy_from_slice(contents));
        }
        if old_block == new_block {
            return Ok(true);
        }
        self.point_at_attributes(txn, h, old_block, new_block);
        let Some(old) = old else { return Ok(true) };
        if self.share_down(txn, h, &old) {
            return Ok(false);
        }
        assert_ne!(self.xattr_block_at(h), old_block, "X2: inode {} keeps what is freed", h.ino);
        self.free_blocks(txn, Runs::one(old_block, 1)).await?;
        Ok(true)
    }

    /// See [`ufs::store::Attributes::leave_xattr_block`].
    pub(crate) async fn leave_attributes(
        &self,
        txn: &mut Txn,
        h: &InodeHandle,
    ) -> Result<bool, FsError> {
        let Some(old) = self.attributes(h).await? else { return Ok(false) };
        let is_shared = xattr::refcount(&old.bytes()) > 1;
        if is_shared {
            self.point_at_attributes(txn, h, old.block(), BlockNo(0));
            let left = self.share_down(txn, h, &old);
            assert!(left, "nobody else has left block {} in between", old.block());
        }
        Ok(is_shared)
    }

    fn point_at_attributes(&self, txn: &mut Txn, h: &InodeHandle, old: BlockNo, new: BlockNo) {
        let change = Change::XattrPointer { ino: h.ino, old, new };
        let wide = self.geo.wide;
        h.edit(txn, change, |raw| {
            let mut i = InodeMut(raw);
            if wide { i.set_xattr_block_wide(new) } else { i.set_xattr_block(new) }
        });
        assert_eq!(
            self.xattr_block_at(h),
            new,
            "X2: where the attributes of inode {} are said to be",
            h.ino
        );
        let delta = i64::from(new.0 != 0) - i64::from(old.0 != 0);
        if delta != 0 {
            self.count_sectors(txn, h, delta);
        }
    }

    /// One user of a block fewer; false: it has no others.
    fn share_down(&self, txn: &mut Txn, h: &InodeHandle, block: &Buf) -> bool {
        let users = xattr::refcount(&block.bytes());
        if users <= 1 {
            return false;
        }
        let still = self.xattr_block_at(h) == block.block();
        assert!(!still, "X3: inode {} has {block:?}, and is counted no more", h.ino);
        self.watch.tell(|c| c.attributes_dropped(h.ino, block.block()));
        txn.edit(block, 4..8, Change::ShareDown(h.ino), |b| {
            b.copy_from_slice(&(users - 1).to_le_bytes());
        });
        let left = xattr::refcount(&block.bytes());
        assert!(left > 0 && left + 1 == users, "X3: {left} users are left of {users}");
        true
    }
}
