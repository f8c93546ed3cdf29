//! Contents that lie in the inode (format/src/ufs/inline.rs says how). They are shown as a block
//! that lies nowhere; `ufs` changes them, and here they move out into a block.
//!
//! 1. Inode and block change in one transaction, the block's contents with it: where the mode does
//!    not order the block before what points at it, it is written and durable first. What was
//!    durable in the inode is so in the block, also where another file's fsync writes the inode.
//! 2. Who looks a name up has not locked the directory. So the block is made beside the inode, with
//!    all the waiting that it takes, and the inode led to it in one step. A full volume, or a disk
//!    that fails, leaves the contents where they are.
//!
//! Invariants:
//! * N1. Contents are in one place: in the inode, or in one block.
//! * N2. What moves is what is in the inode when it is led to the block.

use crate::Ext;
use crate::plants::{INLINE_DROPPED, INLINE_EARLY};
use cache::{Buf, BufKind};
use env::Block;
use format::ufs::inline;
use format::ufs::inode::{InodeMut, InodeRef};
use format::{BlockNo, FileBlock, FormatError};
use integrity::{Change, Txn};
use ufs::InodeHandle;
use ufs::store::StoreInfo;
use vfs::FsError;

impl Ext {
    /// Do the contents lie in the inode?
    pub(crate) fn is_inline(&self, h: &InodeHandle) -> bool {
        h.with(|raw| InodeRef(raw).is_inline())
    }

    /// The contents, if they lie in the inode: as many bytes as there are, with what is beyond the
    /// file's end.
    fn inline_bytes(&self, h: &InodeHandle) -> Result<Option<Vec<u8>>, FsError> {
        let bytes = h.with(inline::contents).and_then(|found| match found {
            Some(all) if all.len() > self.block_bytes() => {
                let what = format!("contents of {} bytes in the inode", all.len());
                Err(FormatError::corrupt(what, format!("inode {}", h.ino)))
            }
            found => Ok(found),
        });
        bytes.map_err(|e| self.damage(&e))
    }

    /// The same as far as the file reaches.
    fn inline_file(&self, h: &InodeHandle) -> Result<Option<Vec<u8>>, FsError> {
        let Some(mut bytes) = self.inline_bytes(h)? else { return Ok(None) };
        let size = h.with(|raw| InodeRef(raw).size());
        bytes.truncate(usize::try_from(size).unwrap_or(usize::MAX));
        Ok(Some(bytes))
    }

    /// The blocks of a file whose contents lie in the inode; None: they do not.
    pub(crate) fn inline_blocks(
        &self,
        h: &InodeHandle,
        at: FileBlock,
        count: u64,
    ) -> Result<Option<Vec<Option<Buf>>>, FsError> {
        let Some(bytes) = self.inline_file(h)? else { return Ok(None) };
        let buf = self.detached(&bytes);
        let first = |n: u64| (at.0 + n == 0).then(|| buf.clone());
        Ok(Some((0..count).map(first).collect()))
    }

    /// A block that lies nowhere, with these bytes first.
    fn detached(&self, bytes: &[u8]) -> Buf {
        let mut block = Block::zeroed(self.block_bytes());
        block.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        self.cache.get_detached(block)
    }

    /// A directory that lies in the inode, as a block of entries; None: it does not.
    pub(crate) fn inline_dir(&self, h: &InodeHandle) -> Result<Option<Buf>, FsError> {
        let Some(bytes) = self.inline_bytes(h)? else { return Ok(None) };
        Ok(Some(self.detached(&self.dir_image(h, &bytes)?)))
    }

    fn dir_image(&self, h: &InodeHandle, bytes: &[u8]) -> Result<Vec<u8>, FsError> {
        let limits = self.limits();
        inline::check_dir(bytes).map_err(|e| self.damage(&e))?;
        let mut block = vec![0; limits.block_bytes];
        inline::dir_image(bytes, h.ino, &mut block, limits.dir_tail, limits.entry_kinds);
        Ok(block)
    }

    fn take_out(&self, txn: &mut Txn, h: &InodeHandle) {
        let tree = self.geo.extents && h.with(|raw| !InodeRef(raw).is_symlink());
        h.edit(txn, Change::Grow(h.ino), |raw| inline::clear(raw, tree));
        assert!(!self.is_inline(h), "N1: contents of inode {} are in one place", h.ino);
        assert!(self.maps_nothing(h), "N1: inode {} has blocks, and had contents in it", h.ino);
    }

    /// Contents go for good; true: there were any in the inode. The length is the caller's.
    pub(crate) fn drop_inline(&self, txn: &mut Txn, h: &InodeHandle, from: FileBlock) -> bool {
        let is_inline = self.is_inline(h);
        if is_inline && from.0 == 0 {
            self.take_out(txn, h);
        }
        is_inline
    }

    /// See [`ufs::store::Contents::move_out`].
    pub(crate) async fn move_inline_out(
        &self,
        txn: &mut Txn,
        h: &InodeHandle,
    ) -> Result<(), FsError> {
        let Some(all) = self.inline_bytes(h)? else { return Ok(()) };
        let is_dir = h.with(|raw| InodeRef(raw).is_dir());
        let bytes = match is_dir {
            true => self.dir_image(h, &all)?,
            false => self.inline_file(h)?.unwrap_or_default(),
        };
        if bytes.is_empty() {
            self.take_out(txn, h);
            return Ok(());
        }
        let buf = self.block_beside(txn, h, &bytes, is_dir).await?;
        let moves = self.inline_bytes(h)?;
        assert_eq!(moves.as_ref(), Some(&all), "N2: contents of inode {} in between", h.ino);
        // 2: nobody waits from here on until the inode leads to the block.
        self.take_out(txn, h);
        if self.plant.is(INLINE_DROPPED) {
            self.in_two(txn).await?;
        }
        self.lead_to(txn, h, buf.block()).await?;
        self.count_sectors(txn, h, 1);
        let there = self.find_cached(h, FileBlock(0), 2);
        let is_one = there.is_none_or(|run| run.start == Some(buf.block()) && run.len == 1);
        assert!(is_one, "N1: inode {} has {there:?}, and is one block long", h.ino);
        if is_dir {
            let size = self.block_bytes() as u64;
            h.edit(txn, Change::GrowDir(h.ino), |raw| InodeMut(raw).set_size(size));
        }
        Ok(())
    }

    /// A new block with what is in the inode, to which nothing leads yet.
    async fn block_beside(
        &self,
        txn: &mut Txn,
        h: &InodeHandle,
        bytes: &[u8],
        is_dir: bool,
    ) -> Result<Buf, FsError> {
        let goal = self.goal_near(h);
        let run = match self.geo.extents {
            true => self.alloc_blocks(txn, goal, 1).await?,
            false => self.alloc_for_pointers(txn, goal, 1).await?,
        };
        let guarantees = self.mechanism.guarantees();
        let (buf, is_first) = if is_dir {
            let is_first = guarantees.new_blocks_first || self.plant.is(INLINE_EARLY);
            (self.put_dir_block(txn, h, run.start, bytes), is_first)
        } else {
            let buf = self.cache.get_new(run.start, BufKind::Data, h.ino);
            buf.modify(|b| b[..bytes.len()].copy_from_slice(bytes));
            txn.data(h.ino, &buf, 0..bytes.len());
            (buf, guarantees.contents_first)
        };
        if !is_first {
            self.make_durable(&buf).await?;
        }
        Ok(buf)
    }

    /// The first block of a map that is empty.
    async fn lead_to(&self, txn: &mut Txn, h: &InodeHandle, to: BlockNo) -> Result<(), FsError> {
        if self.has_extents(h) {
            return self.tree_put_one(txn, h, FileBlock(0), to).await;
        }
        self.set_pointer(txn, h, &self.inode_leaf(h, 0), 0, to);
        Ok(())
    }

    /// 1: the mechanism does not see to it that a block is durable before what leads to it is.
    pub(crate) async fn make_durable(&self, buf: &Buf) -> Result<(), FsError> {
        let done = self.cache.write(vec![buf.clone()]).await;
        done.map_err(|e| self.failed(&e.into()))?;
        let done = self.cache.flush_device().await;
        done.map_err(|e| self.failed(&e.into()))
    }
}
