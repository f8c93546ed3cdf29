//! Looking a directory up: building its index from its blocks, and finding a name by it.

use super::tree::Lost;
use super::{DirIndex, Found};
use crate::Ufs;
use crate::inode::Inode;
use crate::store::Store;
use cache::Buf;
use env::IdMap;
use format::ext::csum::entries_part;
use format::ufs::dirent::{self, entry_at};
use format::{FileBlock, FormatError, Ino};
use vfs::FsError;

impl<S: Store> Ufs<S> {
    pub(crate) fn dir_damage(&self, dir: &Inode, e: &FormatError) -> FsError {
        let FormatError::Corrupt { what, at } = e else { return self.store.corrupt(e) };
        let at = format!("{at}, in directory inode {}", dir.ino());
        self.store.corrupt(&FormatError::corrupt(what.clone(), at))
    }

    /// Builds the directory's index if it is not there.
    pub(crate) async fn index(&self, dir: &Inode) -> Result<(), FsError> {
        if dir.dir.borrow().is_some() {
            return Ok(());
        }
        if !dir.is_dir() {
            return Err(FsError::NotDir);
        }
        let _one = dir.index_lock.lock().await;
        if dir.dir.borrow().is_some() {
            return Ok(());
        }
        // A directory that changes meanwhile is read again: its changes are in memory at once.
        loop {
            let before = dir.h.buf.version();
            let index = self.read_index(dir).await?;
            if dir.h.buf.version() == before || !dir.lock.is_busy() {
                *dir.dir.borrow_mut() = Some(Box::new(index));
                self.table.bound_names(dir);
                return Ok(());
            }
        }
    }

    pub(super) async fn read_index(&self, dir: &Inode) -> Result<DirIndex, FsError> {
        let tail = self.store.limits().dir_tail;
        let bs = self.store.limits().block_bytes as u64;
        let blocks = dir.dir_end(bs) / bs;
        let mut index = DirIndex::new(bs as usize, self.name_hasher);
        let mut places = IdMap::default();
        let mut empty = vec![0; bs as usize];
        dirent::init_empty_before(&mut empty, tail);
        for n in 0..blocks {
            if n.is_multiple_of(64) && blocks > 1 {
                self.store.read_ahead(&dir.h, FileBlock(n), 64.min(blocks - n)).await;
            }
            let buf = self.list_block(dir, n).await?;
            let added = match self.listed(dir, &buf.bytes(), n) {
                // Nobody adds a name to a node: before one comes the index is given up.
                [] => index.add_block(entries_part(&empty, tail)),
                part => index.add_block(part),
            };
            added.map_err(|e| self.dir_damage(dir, &e))?;
            // A change of a block that is there twice would be a change in two places.
            if let Some(m) = places.insert(buf.block().0, n) {
                let at = format!("blocks {m} and {n}");
                let what = format!("block {} is there twice", buf.block());
                return Err(self.dir_damage(dir, &FormatError::corrupt(what, at)));
            }
        }
        assert_eq!(index.blocks(), blocks, "U4: blocks of directory {} in its index", dir.ino());
        Ok(index)
    }

    /// A block of a directory whose names change or are looked at.
    pub(super) async fn entries_block(&self, dir: &Inode, n: u64) -> Result<Buf, FsError> {
        match u32::try_from(n) {
            Ok(n) if self.is_indexed(dir) => {
                self.tree_block(dir, n).await.map_err(|e| self.lost(dir, e))
            }
            _ => self.store.dir_block(&dir.h, FileBlock(n)).await,
        }
    }

    /// The block with the byte `at` of the directory, and the byte in it.
    pub(crate) async fn dir_at(&self, dir: &Inode, at: u64) -> Result<(Buf, usize), FsError> {
        let bs = self.store.limits().block_bytes as u64;
        let buf = self.entries_block(dir, at / bs).await?;
        Ok((buf, (at % bs) as usize))
    }

    /// Finds a name. The answer holds until the next await; who relies on it longer holds the lock.
    pub(crate) async fn find(&self, dir: &Inode, name: &[u8]) -> Result<Option<Found>, FsError> {
        loop {
            let shape = dir.shape.get();
            let found = if self.is_indexed(dir) {
                self.find_by_hash(dir, name).await
            } else {
                self.find_in_list(dir, name).await.map_err(Lost::Fs)
            };
            match found {
                _ if dir.shape.get() != shape => (),
                Err(Lost::Damage(e)) => self.break_index(dir, &e),
                found => return found.map_err(|e| self.lost(dir, e)),
            }
        }
    }

    async fn find_in_list(&self, dir: &Inode, name: &[u8]) -> Result<Option<Found>, FsError> {
        self.index(dir).await?;
        let candidates = match dir.dir.borrow().as_ref() {
            Some(index) => index.candidates(name),
            None => return Err(FsError::Stale),
        };
        for at in candidates {
            let bs = self.store.limits().block_bytes as u64;
            let (buf, offset) = (self.list_block(dir, at / bs).await?, (at % bs) as usize);
            let bytes = buf.bytes();
            let Ok(e) = entry_at(&bytes, offset) else { continue }; // changed since
            if e.ino != Ino(0) && e.name == name {
                return Ok(Some(Found { at, ino: e.ino }));
            }
        }
        Ok(None)
    }

    /// Has the directory no names?
    pub(crate) async fn is_empty(&self, dir: &Inode) -> Result<bool, FsError> {
        if !self.is_indexed(dir) {
            self.index(dir).await?;
            return Ok(dir.dir.borrow().as_ref().is_some_and(|x| x.len() == 0));
        }
        let limits = self.store.limits();
        for n in 0..dir.size() / limits.block_bytes as u64 {
            let buf = self.list_block(dir, n).await?;
            let bytes = buf.bytes();
            for e in dirent::entries(self.listed(dir, &bytes, n)) {
                let e = e.map_err(|e| self.dir_damage(dir, &e))?;
                if e.ino != Ino(0) && e.name != b"." && e.name != b".." {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// The parent that ".." names.
    pub(crate) async fn parent_of(&self, dir: &Inode) -> Result<Found, FsError> {
        if !dir.is_dir() {
            return Err(FsError::NotDir);
        }
        let buf = self.list_block(dir, 0).await?;
        let bytes = buf.bytes();
        let mut all = dirent::entries(&bytes);
        let second = all.nth(1).and_then(Result::ok).filter(|e| e.name == b"..");
        match second {
            Some(e) => Ok(Found { at: e.at as u64, ino: e.ino }),
            None => {
                let e = FormatError::corrupt("the second entry is not \"..\"", "block 0");
                Err(self.dir_damage(dir, &e))
            }
        }
    }
}
