//! Contents that lie in the inode (format/src/ext/inline.rs says how). They are shown as a block
//! that lies nowhere; `ufs` changes them, and here they move out into a block.
//!
//! 1. Inode and block change in one transaction, the block's contents with it: where the mode does
//!    not order contents before what points at them, they are written and durable first. What was
//!    durable in the inode is so in the block.
//! 2. Who looks a name up has not locked the directory. While that moves he sees it as it will be:
//!    the inode has lost it already, and the block is not there yet.
//!
//! Invariants:
//! * N1. Contents are in one place: in the inode, or in blocks.
//! * N2. What comes back into an inode is what was taken out of it.
//! * N3. A directory moves once at a time, and is as long as its block afterwards.

use crate::Ext;
use crate::plants::INLINE_DROPPED;
use cache::Buf;
use env::Block;
use format::ext::inline;
use format::ext::inode::{InodeMut, InodeRef};
use format::{FileBlock, FormatError};
use integrity::{Change, Txn};
use ufs::InodeHandle;
use ufs::store::{Contents, Directories, Fill, StoreInfo};
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
        // Every look at a directory's block passes here: a block is made only for one that does.
        if let Some(image) = self.moving.borrow().get(&h.ino) {
            return Ok(Some(self.detached(image)));
        }
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

    fn put_back(&self, txn: &mut Txn, h: &InodeHandle, bytes: &[u8]) {
        let stored = h.edit(txn, Change::Grow(h.ino), |raw| inline::store(raw, bytes));
        assert!(stored, "N2: what was taken out of inode {} fits in again", h.ino);
        let back = h.with(inline::contents);
        assert_eq!(back.ok().flatten().as_deref(), Some(bytes), "N2: contents of inode {}", h.ino);
    }

    /// Contents go for good; true: there were any in the inode. The length is the caller's.
    pub(crate) fn drop_inline(&self, txn: &mut Txn, h: &InodeHandle, from: FileBlock) -> bool {
        let is_inline = self.is_inline(h);
        if is_inline && from.0 == 0 {
            self.take_out(txn, h);
        }
        is_inline
    }

    pub(crate) async fn move_inline_out(
        &self,
        txn: &mut Txn,
        h: &InodeHandle,
    ) -> Result<(), FsError> {
        let (is_dir, all) = (h.with(|raw| InodeRef(raw).is_dir()), self.inline_bytes(h)?);
        let Some(all) = all else { return Ok(()) };
        let moved = if is_dir {
            let image = self.dir_image(h, &all)?;
            let other = self.moving.borrow_mut().insert(h.ino, image.clone());
            assert!(other.is_none(), "N3: directory {} moves twice at a time", h.ino);
            self.take_out(txn, h);
            let grown = match self.between(txn).await {
                Ok(()) => self.dir_grow(txn, h, FileBlock(0), &image).await.map(drop),
                split => split,
            };
            self.moving.borrow_mut().remove(&h.ino);
            grown
        } else {
            let bytes = self.inline_file(h)?.unwrap_or_default();
            self.take_out(txn, h);
            self.between(txn).await?;
            self.put_contents(txn, h, &bytes).await
        };
        match moved {
            // Nothing leads to a block: what is in the inode still is all that there is.
            Err(why) if self.maps_nothing(h) => {
                self.put_back(txn, h, &all);
                Err(why)
            }
            Ok(()) if is_dir => {
                let size = self.block_bytes() as u64;
                h.edit(txn, Change::GrowDir(h.ino), |raw| InodeMut(raw).set_size(size));
                let end = self.find_cached(h, FileBlock(0), 2);
                let is_one = end.is_none_or(|run| run.start.is_some() && run.len == 1);
                assert!(is_one, "N3: directory {} has {end:?}, and is one block long", h.ino);
                Ok(())
            }
            moved => moved,
        }
    }

    /// A planted bug makes two transactions of what is one.
    async fn between(&self, txn: &mut Txn) -> Result<(), FsError> {
        if self.plant.is(INLINE_DROPPED) { self.in_two(txn).await } else { Ok(()) }
    }

    /// A file's first block, with what was in the inode.
    async fn put_contents(
        &self,
        txn: &mut Txn,
        h: &InodeHandle,
        bytes: &[u8],
    ) -> Result<(), FsError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let whole = (Fill::Whole, Fill::Whole);
        let bufs = self.write_blocks(txn, h, FileBlock(0), 1, whole).await?;
        bufs[0].modify(|b| b[..bytes.len()].copy_from_slice(bytes));
        txn.data(h.ino, &bufs[0], 0..bytes.len());
        if !self.mechanism.guarantees().contents_first {
            // 1: nothing durable leads to the block yet.
            let done = self.cache.write(bufs).await;
            done.map_err(|e| self.failed(&e.into()))?;
            let done = self.cache.flush_device().await;
            done.map_err(|e| self.failed(&e.into()))?;
        }
        Ok(())
    }
}
