//! Changing a directory: adding, removing and redirecting names. The caller holds the directory's
//! lock and an open transaction. Steps that can fail for want of space come before anything that
//! would have to be undone.

use super::Found;
use crate::Ufs;
use crate::inode::Inode;
use crate::store::Store;
use format::ext::dirent::{self, LINE, line_of};
use format::ext::inode::{FLAG_INDEX, InodeMut};
use format::{FileBlock, Ino};
use integrity::{Change, Txn};
use vfs::FsError;

impl<S: Store> Ufs<S> {
    /// Before a directory's first change: a kernel's hash index is given up, since it would no
    /// longer match.
    fn drop_hash_index(&self, txn: &mut Txn, dir: &Inode) {
        let flags = dir.with(|i| i.flags());
        if flags & FLAG_INDEX != 0 {
            dir.h.edit(txn, Change::DropIndex(dir.ino()), |raw| {
                InodeMut(raw).set_flags(flags & !FLAG_INDEX);
            });
        }
    }

    /// Makes sure that a name of `name_len` bytes fits, growing the directory if need be.
    pub(crate) async fn make_room(
        &self,
        txn: &mut Txn,
        dir: &Inode,
        name_len: usize,
    ) -> Result<(), FsError> {
        self.index(dir).await?;
        self.drop_hash_index(txn, dir);
        let with_index = |f: &mut dyn FnMut(&mut super::DirIndex) -> bool| {
            dir.dir.borrow_mut().as_mut().map(f).ok_or(FsError::Stale)
        };
        if with_index(&mut |x| x.find_room(name_len).is_some())? {
            return Ok(());
        }
        let mut empty = vec![0; self.store.limits().block_bytes];
        dirent::init_empty(&mut empty);
        self.grow(txn, dir, &empty).await
    }

    /// Appends a block with these contents.
    async fn grow(&self, txn: &mut Txn, dir: &Inode, contents: &[u8]) -> Result<(), FsError> {
        let bs = contents.len();
        let size = dir.size() + bs as u64;
        if size >= 1 << 31 {
            return Err(FsError::NoSpace);
        }
        let n = size / bs as u64 - 1;
        self.store.dir_grow(txn, &dir.h, FileBlock(n), contents).await?;
        dir.h.edit(txn, Change::GrowDir(dir.ino()), |raw| InodeMut(raw).set_size(size));
        if let Some(index) = dir.dir.borrow_mut().as_mut() {
            index.add_block(n, contents).expect("a block of our own making is well formed");
        }
        Ok(())
    }

    /// Adds a name; `make_room` was called in this transaction.
    pub(crate) async fn add_name(
        &self,
        txn: &mut Txn,
        dir: &Inode,
        name: &[u8],
        ino: Ino,
        mode: u16,
    ) -> Result<(), FsError> {
        let room = dir.dir.borrow_mut().as_mut().and_then(|x| x.find_room(name.len()));
        let (block, line) = room.expect("make_room has made it");
        let buf = self.store.dir_block(&dir.h, FileBlock(block)).await?;
        let found = dirent::find_room_in(&buf.bytes(), line * LINE, name.len());
        let at = found.map_err(|e| self.dir_damage(dir, &e))?;
        let at = at.filter(|a| a / LINE == line).expect("the index knows each line's room");
        let kind = if self.store.limits().entry_kinds { dirent::kind_byte(mode) } else { 0 };
        let change = Change::AddEntry { dir: dir.ino(), ino };
        let entry = txn.edit(&buf, line_of(at), change, |b| {
            line * LINE + dirent::insert(b, at % LINE, ino, kind, name)
        });
        let bs = self.store.limits().block_bytes as u64;
        if let Some(index) = dir.dir.borrow_mut().as_mut() {
            index.add(name, block * bs + entry as u64);
            let refreshed = index.refresh_line(block, line, &buf.bytes());
            refreshed.map_err(|e| self.dir_damage(dir, &e))?;
        }
        Ok(())
    }

    /// Removes a name.
    pub(crate) async fn remove_name(
        &self,
        txn: &mut Txn,
        dir: &Inode,
        name: &[u8],
        ino: Ino,
    ) -> Result<(), FsError> {
        let (found, buf, offset) = self.entry_for_change(txn, dir, name, ino).await?;
        let change = Change::RemoveEntry { dir: dir.ino(), ino };
        txn.edit(&buf, line_of(offset), change, |b| dirent::remove(b, offset % LINE));
        let bs = self.store.limits().block_bytes as u64;
        if let Some(index) = dir.dir.borrow_mut().as_mut() {
            index.remove(name, found.at);
            let refreshed = index.refresh_line(found.at / bs, offset / LINE, &buf.bytes());
            refreshed.map_err(|e| self.dir_damage(dir, &e))?;
        }
        Ok(())
    }

    /// Makes a name that names `old` name `new`.
    pub(crate) async fn redirect_name(
        &self,
        txn: &mut Txn,
        dir: &Inode,
        name: &[u8],
        (old, new): (Ino, Ino),
        mode: u16,
    ) -> Result<(), FsError> {
        let (_, buf, offset) = self.entry_for_change(txn, dir, name, old).await?;
        let kind = if self.store.limits().entry_kinds { dirent::kind_byte(mode) } else { 0 };
        let change = Change::ChangeEntry { dir: dir.ino(), old, new };
        txn.edit(&buf, offset..offset + dirent::HEAD, change, |b| {
            dirent::set_ino(b, 0, new, kind);
        });
        Ok(())
    }

    /// Makes ".." of `dir` name `parent`.
    pub(crate) async fn redirect_parent(
        &self,
        txn: &mut Txn,
        dir: &Inode,
        parent: Ino,
    ) -> Result<(), FsError> {
        self.index(dir).await?;
        self.drop_hash_index(txn, dir);
        self.confine(txn, dir, 0).await?;
        let dots = self.parent_of(dir).await?;
        let (buf, offset) = self.dir_at(dir, dots.at).await?;
        let kind = buf.bytes()[offset + 7];
        let change = Change::DotDot { dir: dir.ino(), parent };
        txn.edit(&buf, offset..offset + dirent::HEAD, change, |b| {
            dirent::set_ino(b, 0, parent, kind);
        });
        Ok(())
    }

    /// The entry of a name, in a block that may be changed.
    async fn entry_for_change(
        &self,
        txn: &mut Txn,
        dir: &Inode,
        name: &[u8],
        ino: Ino,
    ) -> Result<(Found, cache::Buf, usize), FsError> {
        let bs = self.store.limits().block_bytes as u64;
        let mut found = self.find(dir, name).await?.ok_or(FsError::NotFound)?;
        self.drop_hash_index(txn, dir);
        if self.confine(txn, dir, found.at / bs).await? {
            found = self.find(dir, name).await?.ok_or(FsError::NotFound)?;
        }
        if found.ino != ino {
            return Err(FsError::Stale);
        }
        let (buf, offset) = self.dir_at(dir, found.at).await?;
        Ok((found, buf, offset))
    }

    /// Swaps a block whose entries cross lines for one whose entries do not; what does not fit any
    /// more goes to other blocks. True if the block was swapped.
    async fn confine(&self, txn: &mut Txn, dir: &Inode, n: u64) -> Result<bool, FsError> {
        let crossing = dir.dir.borrow().as_ref().is_some_and(|x| x.is_crossing(n));
        if !crossing {
            return Ok(false);
        }
        let old = self.store.dir_block(&dir.h, FileBlock(n)).await?;
        let old_bytes = old.bytes().to_vec();
        drop(old);
        let confined = dirent::confine(&old_bytes);
        let (new, left) = confined.map_err(|e| self.dir_damage(dir, &e))?;
        // What does not fit appears in a new block before it vanishes here: at no moment is a name
        // missing.
        if !left.is_empty() {
            let mut more = vec![0; old_bytes.len()];
            dirent::init_empty(&mut more);
            for (ino, kind, name) in &left {
                let room = dirent::find_room(&more, name.len()).ok().flatten();
                let room = room.expect("a part of one block fits in another");
                dirent::insert(&mut more, room, *ino, *kind, name);
            }
            // Out of the index first: for a moment the names are in two blocks.
            if let Some(index) = dir.dir.borrow_mut().as_mut() {
                let dropped = index.drop_block(n, &old_bytes);
                dropped.map_err(|e| self.dir_damage(dir, &e))?;
            }
            self.grow(txn, dir, &more).await?;
        } else if let Some(index) = dir.dir.borrow_mut().as_mut() {
            let dropped = index.drop_block(n, &old_bytes);
            dropped.map_err(|e| self.dir_damage(dir, &e))?;
        }
        self.store.dir_swap(txn, &dir.h, FileBlock(n), &new).await?;
        if let Some(index) = dir.dir.borrow_mut().as_mut() {
            let redone = index.add_block(n, &new);
            redone.map_err(|e| self.dir_damage(dir, &e))?;
        }
        Ok(true)
    }
}
