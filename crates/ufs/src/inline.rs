//! Files and directories whose contents lie in the inode (the volume's `inline_data`). Their bytes
//! change as the inode's other fields do, so that such a write or name is atomic with its times and
//! needs no block. What no longer fits is moved out into a block.
//!
//! 1. Contents move out in one transaction: the inode loses them and gets the block together, or
//!    neither ([`crate::store::Contents::move_out`]). What made them move comes in the same
//!    transaction (files) or in the next (names).
//! 2. An entry keeps its place in the directory's image when the directory gets a block, so that
//!    cookies of listings stay right.
//!
//! A file begins here with its first write, if that fits; a directory when it is made. Whoever cuts
//! a file to nothing takes it out of here, and it may begin again.

use crate::Ufs;
use crate::inode::Inode;
use crate::ops::Ctx;
use crate::store::{InodeHandle, Store};
use env::Rope;
use format::ufs::inline;
use format::ufs::inode::{InodeMut, InodeRef};
use format::{FormatError, Ino};
use integrity::{Change, Credits};
use vfs::FsError;

/// Blocks that change when contents move out: bitmap, descriptor, superblock, inode, the block.
const OUT: Credits = Credits::blocks(12);

impl<S: Store> Ufs<S> {
    fn inline_bytes(&self, h: &InodeHandle) -> Result<Option<Vec<u8>>, FsError> {
        let found = h.with(inline::contents);
        found.map_err(|e| self.inline_damage(h.ino, &e))
    }

    fn inline_damage(&self, ino: Ino, e: &FormatError) -> FsError {
        let FormatError::Corrupt { what, at } = e else { return self.store.corrupt(e) };
        let at = format!("{at}, of inode {ino}");
        self.store.corrupt(&FormatError::corrupt(what.clone(), at))
    }

    fn put_inline(&self, txn: &mut S::Txn, h: &InodeHandle, change: Change, contents: &[u8]) {
        let stored = h.edit(txn, change, |raw| inline::store(raw, contents));
        assert!(stored, "U10: {} bytes in inode {}, with room for them", contents.len(), h.ino);
        let back = h.with(inline::contents).ok().flatten().unwrap_or_default();
        let same = back.get(..contents.len()) == Some(contents);
        assert!(same, "U10: contents of inode {} read back", h.ino);
    }

    /// A file's contents as far as they reach; None: they do not lie in the inode, nor can they
    /// begin to.
    fn inline_file(&self, h: &InodeHandle) -> Result<Option<Vec<u8>>, FsError> {
        let Some(mut bytes) = self.inline_bytes(h)? else {
            let begins = self.store.limits().inline_data && h.with(inline::may_begin);
            return Ok(begins.then(Vec::new));
        };
        // A kernel that makes the file longer leaves the rest to be zeros.
        let size = h.with(|raw| InodeRef(raw).size());
        bytes.truncate(usize::try_from(size).unwrap_or(usize::MAX));
        Ok(Some(bytes))
    }

    /// Writes into the inode, if there is room; false: the contents lie in blocks now, whether they
    /// did before or not.
    pub(crate) async fn write_inline(
        &self,
        txn: &mut S::Txn,
        h: &InodeHandle,
        offset: u64,
        data: &Rope,
    ) -> Result<bool, FsError> {
        let Some(mut bytes) = self.inline_file(h)? else { return Ok(false) };
        let end = offset.saturating_add(data.len() as u64);
        let size = end.max(h.with(|raw| InodeRef(raw).size()));
        if size > h.with(inline::room) as u64 {
            self.store.move_out(txn, h).await?;
            assert!(!h.with(|raw| InodeRef(raw).is_inline()), "U9: inode {} moved out", h.ino);
            return Ok(false);
        }
        bytes.resize(size as usize, 0);
        data.copy_range(0, &mut bytes[offset as usize..end as usize]);
        self.put_inline(txn, h, Change::Grow(h.ino), &bytes);
        h.edit_size(txn, Change::Shrink(h.ino), size);
        Ok(true)
    }

    /// Before a file becomes `size` bytes long: contents that lie in the inode, which will not have
    /// the room, move out.
    pub(crate) async fn outgrow_inline(
        &self,
        txn: &mut S::Txn,
        h: &InodeHandle,
        size: u64,
    ) -> Result<(), FsError> {
        let is_inline = h.with(|raw| InodeRef(raw).is_inline());
        match is_inline && size > h.with(inline::room) as u64 {
            true => self.store.move_out(txn, h).await,
            false => Ok(()),
        }
    }

    /// Cuts or grows contents that lie in the inode; the caller sets the length. False: they lie in
    /// blocks.
    pub(crate) async fn resize_inline(
        &self,
        txn: &mut S::Txn,
        h: &InodeHandle,
        size: u64,
    ) -> Result<bool, FsError> {
        self.outgrow_inline(txn, h, size).await?;
        if size == 0 || !h.with(|raw| InodeRef(raw).is_inline()) {
            return Ok(false); // who cuts to nothing takes them out
        }
        let Some(mut bytes) = self.inline_file(h)? else { return Ok(false) };
        bytes.resize(size as usize, 0);
        self.put_inline(txn, h, Change::Grow(h.ino), &bytes);
        Ok(true)
    }

    /// Before an operation that only blocks can serve: moves the contents of a file out, in a
    /// transaction of their own. Its lock is held.
    pub(crate) async fn leave_inode(&self, ctx: &Ctx, inode: &Inode) -> Result<(), FsError> {
        if !inode.with(|i| i.is_inline()) {
            return Ok(());
        }
        assert!(inode.lock.is_busy(), "U1: contents of {} move, not locked", inode.ino());
        let need = Credits { data_bytes: self.store.limits().block_bytes as u64, ..OUT };
        let mut txn = self.begin(ctx, need).await?;
        let moved = self.store.move_out(&mut txn, &inode.h).await;
        self.store.end(txn).await?;
        moved
    }

    /// Makes the directory just allocated one that lies in its inode; false: there is no room.
    pub(crate) fn make_inline_dir(&self, txn: &mut S::Txn, h: &InodeHandle, parent: Ino) -> bool {
        let contents = inline::empty_dir(parent);
        let fits = h.with(inline::room) >= contents.len();
        if !self.store.limits().inline_data || !fits {
            return false;
        }
        self.put_inline(txn, h, Change::InitInode(h.ino), &contents);
        h.edit(txn, Change::InitInode(h.ino), |raw| InodeMut(raw).set_size(contents.len() as u64));
        true
    }

    /// Before the transaction that adds a name to a directory that lies in its inode: makes room
    /// there, or moves it out.
    pub(crate) async fn prepare_inline(
        &self,
        ctx: &Ctx,
        dir: &Inode,
        name_len: usize,
    ) -> Result<(), FsError> {
        let Some(bytes) = self.inline_bytes(&dir.h)? else { return Ok(()) };
        let damage = |e| self.inline_damage(dir.ino(), &e);
        if inline::has_slack(&bytes, name_len).map_err(damage)? {
            return Ok(());
        }
        self.store.writable()?;
        let room = dir.h.with(inline::room);
        let Some(longer) = inline::with_slack(&bytes, name_len, room) else {
            *dir.dir.borrow_mut() = None; // the room behind its entries
            return self.leave_inode(ctx, dir).await;
        };
        let mut txn = self.begin(ctx, Credits::blocks(4)).await?;
        self.put_inline(&mut txn, &dir.h, Change::GrowDir(dir.ino()), &longer);
        dir.h.edit(&mut txn, Change::GrowDir(dir.ino()), |raw| {
            InodeMut(raw).set_size(longer.len() as u64);
        });
        let fits = inline::has_slack(&longer, name_len).is_ok_and(|fits| fits);
        assert!(fits, "U4: directory {} has no room for a name", dir.ino());
        *dir.dir.borrow_mut() = None;
        self.store.end(txn).await.map(drop)
    }

    /// Changes the entries of a directory that lies in its inode; false: it does not.
    pub(crate) fn edit_inline_dir(
        &self,
        txn: &mut S::Txn,
        dir: &Inode,
        change: Change,
        f: impl FnOnce(&mut [u8]) -> Result<(), FormatError>,
    ) -> Result<bool, FsError> {
        let Some(mut bytes) = self.inline_bytes(&dir.h)? else { return Ok(false) };
        f(&mut bytes).map_err(|e| self.inline_damage(dir.ino(), &e))?;
        let whole = inline::check_dir(&bytes).is_ok();
        assert!(whole, "U4: a change of directory {} leaves its chains whole", dir.ino());
        self.put_inline(txn, &dir.h, change, &bytes);
        *dir.dir.borrow_mut() = None; // an index in memory is made anew, of few names
        Ok(true)
    }
}
