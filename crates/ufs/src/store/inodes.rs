//! Inodes: their slots, which are in use, and which are to be looked after when a crash has come.

use super::{Transaction, Transactions};
use cache::Buf;
use format::Ino;
use format::ufs::inode::{InodeRef, SIZE_AT};
use integrity::Change;
use std::ops::Range;
use vfs::{FsError, Kind};

/// An inode's slot in memory: the raw bytes live in a buffer, which this keeps in memory. Cheap to
/// clone.
#[derive(Clone, Debug)]
pub struct InodeHandle {
    /// Its number.
    pub ino: Ino,
    /// The block of the inode table with its slot.
    pub buf: Buf,
    /// Where the slot begins in the block.
    pub offset: usize,
    /// The slot's length.
    pub len: usize,
}

impl InodeHandle {
    /// Looks at the raw inode.
    pub fn with<T>(&self, f: impl FnOnce(&[u8]) -> T) -> T {
        f(&self.buf.bytes()[self.offset..self.offset + self.len])
    }

    /// Changes the raw inode; only the words that differ are announced, as `change`.
    pub fn edit<T>(
        &self,
        txn: &mut impl Transaction,
        change: Change,
        f: impl FnOnce(&mut [u8]) -> T,
    ) -> T {
        txn.edit_words(&self.buf, self.offset..self.offset + self.len, change, f)
    }

    /// Changes these bytes of the slot with `f`. All of them are announced, as
    /// [`InodeHandle::edit`] does not: a word that stays the same may have been delayed until now.
    pub fn edit_all<T>(
        &self,
        txn: &mut impl Transaction,
        range: Range<usize>,
        change: Change,
        f: impl FnOnce(&mut [u8]) -> T,
    ) -> T {
        let range = self.offset + range.start..self.offset + range.end;
        txn.edit(&self.buf, range, change, f)
    }

    /// Sets a regular file's length; all of it is announced.
    pub(crate) fn edit_size(&self, txn: &mut impl Transaction, change: Change, size: u64) {
        for (at, half) in SIZE_AT.into_iter().zip([size as u32, (size >> 32) as u32]) {
            self.edit_all(txn, at..at + 4, change, |b| b.copy_from_slice(&half.to_le_bytes()));
        }
        let now = self.with(|raw| InodeRef(raw).size());
        assert_eq!(now, size, "the length of inode {}, which is no regular file", self.ino);
    }
}

/// Inodes.
#[expect(async_fn_in_trait, reason = "a volume is one thread's; its futures need not be Send")]
pub trait Inodes: Transactions {
    /// The inode's slot. `Stale` for a number out of range or a free inode (links 0, no mode).
    async fn inode(&self, ino: Ino) -> Result<InodeHandle, FsError>;
    /// The slot if it is in memory: for answers that must not wait.
    fn inode_cached(&self, ino: Ino) -> Option<InodeHandle>;
    /// Allocates an inode near `parent` (directories are spread over groups). Its slot is zeroed
    /// but for a new generation; the caller fills it with `Change::InitInode`.
    async fn alloc_inode(
        &self,
        txn: &mut Self::Txn,
        parent: &InodeHandle,
        kind: Kind,
    ) -> Result<InodeHandle, FsError>;
    /// Frees an inode whose blocks are gone ([`Contents::truncate`] to 0) and whose attribute block
    /// too: edits the slot (`Change::FreeInode`: deletion time, mode kept) and clears its bit.
    async fn free_inode(&self, txn: &mut Self::Txn, inode: &InodeHandle) -> Result<(), FsError>;
    /// In atomic modes: remembers, durably with `txn`, that the inode must be reclaimed (links 0)
    /// or truncated to its size after a crash. Elsewhere nothing.
    async fn orphan_add(&self, txn: &mut Self::Txn, inode: &InodeHandle) -> Result<(), FsError>;
    /// Takes that back.
    async fn orphan_remove(&self, txn: &mut Self::Txn, inode: &InodeHandle) -> Result<(), FsError>;
    /// The inodes that a crash has left so remembered; called once, before any operation.
    async fn orphans(&self) -> Result<Vec<InodeHandle>, FsError>;
}
