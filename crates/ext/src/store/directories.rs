//! The blocks of directories, and of long symlinks, with their checksums on the way in. What the
//! entries say is not known here.

use crate::Ext;
use crate::alloc::{Goal, Runs};
use crate::map::Spot;
use cache::{Buf, BufKind, Role};
use format::ufs::inode::{FLAG_VALUE, InodeRef};
use format::{BlockNo, Extent, FileBlock, FormatError};
use integrity::{Change, InitKind, Txn};
use ufs::InodeHandle;
use ufs::store::{Contents, Directories};
use vfs::FsError;

impl Directories for Ext {
    async fn dir_block(&self, inode: &InodeHandle, at: FileBlock) -> Result<Buf, FsError> {
        match self.dir_block_judged(inode, at).await? {
            (buf, None) => Ok(buf),
            (_, Some(e)) => Err(self.damage(&e)),
        }
    }
    async fn dir_block_judged(
        &self,
        inode: &InodeHandle,
        at: FileBlock,
    ) -> Result<(Buf, Option<FormatError>), FsError> {
        if let Some(buf) = self.inline_dir(inode)? {
            return Ok((buf, None));
        }
        let run = self.map(inode, at, 1).await?;
        let Some(start) = run.start else {
            let what = format!("a directory has a hole at its block {at}");
            let place = format!("inode {}", inode.ino);
            return Err(self.damage(&FormatError::corrupt(what, place)));
        };
        let read = self.cache.get(start, BufKind::Meta).await;
        let buf = read.map_err(|e| self.unreadable(&e))?;
        buf.set_owner(inode.ino);
        self.mark(&buf, Role::Dir(self.generation(inode)));
        if !buf.is_checked(0)
            && let Some(seed) = self.seed_of(inode)
        {
            let checked = seed.check_dir(start, &buf.bytes());
            if let Err(e) = checked {
                return Ok((buf, Some(e)));
            }
        }
        buf.set_checked(0);
        Ok((buf, None))
    }
    fn dir_block_in_memory(&self, inode: &InodeHandle, place: BlockNo) -> Option<Buf> {
        let buf = self.cache.get_cached(place)?;
        // What was read again since, or taken for something else, has not been checked as its own.
        (buf.is_checked(0) && buf.owner() == inode.ino).then_some(buf)
    }
    async fn dir_grow(
        &self,
        txn: &mut Txn,
        inode: &InodeHandle,
        at: FileBlock,
        contents: &[u8],
    ) -> Result<Buf, FsError> {
        if self.has_extents(inode) {
            if matches!(self.spot(inode, at).await?, Spot::Mapped(_)) {
                return Err(self.beyond_end(inode, at));
            }
            let goal = self.goal_of_dir_block(inode, at);
            let buf = self.tree_dir_block(txn, inode, (at, goal), contents).await?;
            self.count_sectors(txn, inode, 1);
            return Ok(buf);
        }
        let (leaf, taken) = self.leaf_for_write(txn, inode, at).await?;
        if leaf.pointer(0) != BlockNo(0) {
            return Err(self.beyond_end(inode, at));
        }
        let block = match taken {
            Some(block) => block,
            None => self.block_for_dir(txn, inode, self.goal(inode, &leaf, at)).await?,
        };
        let buf = self.put_dir_block(txn, inode, block, contents);
        self.set_pointer(txn, inode, &leaf, 0, buf.block());
        self.count_sectors(txn, inode, 1);
        Ok(buf)
    }
    async fn dir_swap(
        &self,
        txn: &mut Txn,
        inode: &InodeHandle,
        at: FileBlock,
        contents: &[u8],
    ) -> Result<Buf, FsError> {
        if self.has_extents(inode) {
            let old = self.map(inode, at, 1).await?.start.ok_or(FsError::Corrupt)?;
            self.check_freeable(Extent { start: old, len: 1 }).await?;
            let goal = Goal::In(self.geo.group_of(old));
            let buf = self.tree_dir_block(txn, inode, (at, goal), contents).await?;
            self.free_blocks(txn, Runs::one(old, 1)).await?;
            return Ok(buf);
        }
        let (leaf, _) = self.leaf_for_write(txn, inode, at).await?;
        let old = leaf.pointer(0);
        self.check_pointer(inode.ino, old, "a block")?;
        // The directory has the one block or the other, with what the caller knows of it.
        self.check_freeable(Extent { start: old, len: 1 }).await?;
        let goal = Goal::In(self.geo.group_of(old));
        let buf = self.new_dir_block(txn, inode, goal, contents).await?;
        self.set_pointer(txn, inode, &leaf, 0, buf.block());
        self.free_blocks(txn, Runs::one(old, 1)).await?;
        Ok(buf)
    }
}

impl Ext {
    fn beyond_end(&self, inode: &InodeHandle, at: FileBlock) -> FsError {
        let what = format!("a directory has a block {at}, beyond its end");
        self.damage(&FormatError::corrupt(what, format!("inode {}", inode.ino)))
    }

    /// A new block of a directory with an extent tree, in the place of what is there.
    async fn tree_dir_block(
        &self,
        txn: &mut Txn,
        inode: &InodeHandle,
        (at, goal): (FileBlock, Goal),
        contents: &[u8],
    ) -> Result<Buf, FsError> {
        let buf = self.new_dir_block(txn, inode, goal, contents).await?;
        if let Err(e) = self.tree_put_one(txn, inode, at, buf.block()).await {
            self.free_blocks(txn, Runs::one(buf.block(), 1)).await?;
            return Err(e);
        }
        Ok(buf)
    }

    async fn new_dir_block(
        &self,
        txn: &mut Txn,
        inode: &InodeHandle,
        goal: Goal,
        contents: &[u8],
    ) -> Result<Buf, FsError> {
        let block = self.block_for_dir(txn, inode, goal).await?;
        Ok(self.put_dir_block(txn, inode, block, contents))
    }

    async fn block_for_dir(
        &self,
        txn: &mut Txn,
        inode: &InodeHandle,
        goal: Goal,
    ) -> Result<BlockNo, FsError> {
        let e = match self.has_extents(inode) {
            true => self.alloc_blocks(txn, goal, 1).await?,
            false => self.alloc_for_pointers(txn, goal, 1).await?,
        };
        Ok(e.start)
    }

    /// What a directory's new block, or a long symlink's, holds.
    pub(crate) fn put_dir_block(
        &self,
        txn: &mut Txn,
        inode: &InodeHandle,
        block: BlockNo,
        contents: &[u8],
    ) -> Buf {
        let buf = self.cache.get_new(block, BufKind::Meta, inode.ino);
        // A link's text, and an attribute's value, have no checksum in their blocks.
        let is_text =
            inode.with(|raw| InodeRef(raw).is_symlink() || InodeRef(raw).flags() & FLAG_VALUE != 0);
        if !is_text {
            self.mark(&buf, Role::Dir(self.generation(inode)));
        }
        let kind = if is_text { InitKind::Symlink } else { InitKind::Dir };
        let init = Change::InitBlock { ino: inode.ino, kind };
        txn.edit(&buf, 0..self.block_bytes(), init, |b| b.copy_from_slice(contents));
        buf
    }
}
