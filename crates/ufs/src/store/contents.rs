//! The blocks of files: where they lie, reading and writing them, and giving them back.

use super::{InodeHandle, Transactions};
use cache::Buf;
use format::ufs::inode::InodeRef;
use format::{BlockNo, FileBlock};
use integrity::Credits;
use std::ops::Range;
use vfs::FsError;

/// What a file block maps to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// The first disk block; None: a hole.
    pub start: Option<BlockNo>,
    /// How many file blocks from the asked one on are contiguous on disk, or a hole; at least 1.
    pub len: u64,
}

/// What a block for writing must hold already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fill {
    /// Its present contents (zeros for a hole): a part of it is overwritten.
    Keep,
    /// Whatever: all of it is overwritten.
    Whole,
}

/// A part of a hole that one transaction punches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PunchStep {
    /// Where it ends.
    pub to: FileBlock,
    /// What the transaction may need.
    pub need: Credits,
}

/// The map from file blocks to disk blocks, and what lies in those.
#[expect(async_fn_in_trait, reason = "a volume is one thread's; its futures need not be Send")]
pub trait Contents: Transactions {
    /// Where the file's block `at` lies, and how far that goes on, at most `max` blocks.
    async fn map(&self, inode: &InodeHandle, at: FileBlock, max: u64) -> Result<Run, FsError>;
    /// The blocks of a file from `at` on, read if need be; None is a hole. Contents (`Data`) of
    /// files, text of slow symlinks; for directories use [`Directories::dir_block`].
    async fn read_blocks(
        &self,
        inode: &InodeHandle,
        at: FileBlock,
        count: u64,
    ) -> Result<Vec<Option<Buf>>, FsError>;
    /// As `read_blocks` if nothing has to be waited for.
    fn read_blocks_cached(
        &self,
        inode: &InodeHandle,
        at: FileBlock,
        count: u64,
    ) -> Option<Vec<Option<Buf>>>;
    /// Reads blocks in the background.
    async fn read_ahead(&self, inode: &InodeHandle, at: FileBlock, count: u64);
    /// A sequential reader or writer has passed these blocks: they are the first to leave memory.
    fn pass(&self, bufs: &[Option<Buf>]);
    /// A sequential writer has left these blocks behind: they are written back by and by, as far as
    /// the mechanism lets them.
    fn write_behind(&self, inode: &InodeHandle, at: FileBlock, count: u64);
    /// Blocks for writing contents, allocated where there is a hole; `fill` says what the first and
    /// the last must hold (those between are overwritten whole). May return fewer than `count`, at
    /// least one, if the transaction or the free space allows no more; `NoSpace` if none. Freshly
    /// allocated ones are zeroed.
    /// The caller changes the bytes (`Buf::replace`, `Buf::modify`) and announces them with
    /// [`Transaction::data`].
    async fn write_blocks(
        &self,
        txn: &mut Self::Txn,
        inode: &InodeHandle,
        at: FileBlock,
        count: u64,
        fill: (Fill, Fill),
    ) -> Result<Vec<Buf>, FsError>;
    /// The longest that the file may become, in bytes: one that is mapped by pointers ends sooner
    /// than one with extents beside it.
    fn bytes_max(&self, inode: &InodeHandle) -> u64 {
        let _ = inode;
        self.limits().file_bytes_max
    }
    /// Can the file have blocks that are allocated and read as zeros although they were never
    /// written?
    fn has_unwritten(&self, inode: &InodeHandle) -> bool;
    /// Allocates such blocks where there is a hole at `at`, at most `count`; returns how many
    /// blocks from there on are allocated then, at least one. Size and times are the caller's.
    async fn preallocate(
        &self,
        txn: &mut Self::Txn,
        inode: &InodeHandle,
        at: FileBlock,
        count: u64,
    ) -> Result<u64, FsError>;
    /// Before an operation begins that may make a file `size` bytes long: a layout that must say
    /// that it holds so large a file says so now, durably.
    async fn allow_size(&self, size: u64) -> Result<(), FsError>;
    /// Frees all blocks from file block `from` on. It may end `txn` and begin another in its place
    /// when there is more to free than one transaction holds (in atomic modes the caller has called
    /// `orphan_add`).
    /// Size and times are the caller's.
    async fn truncate(
        &self,
        txn: &mut Self::Txn,
        inode: &InodeHandle,
        from: FileBlock,
    ) -> Result<(), FsError>;
    /// Into which steps the freeing of the blocks `from..to` falls, one after the other, and what a
    /// transaction needs for each, beside `beside`: as few as fit, so that it is one wherever it
    /// can be. The caller has the inode's lock, and has not begun.
    async fn punch_steps(
        &self,
        inode: &InodeHandle,
        range: Range<FileBlock>,
        beside: Credits,
    ) -> Result<Vec<PunchStep>, FsError>;
    /// Frees the blocks `from..to`, a step; they become holes. Times are the caller's.
    async fn punch(
        &self,
        txn: &mut Self::Txn,
        inode: &InodeHandle,
        from: FileBlock,
        to: FileBlock,
    ) -> Result<(), FsError>;
    /// Before an operation that moves what the file has from block `from` on, to `to` and on: can
    /// it be? All that it will read is read, nothing is changed. Errors: `NotSupported`, if such a
    /// map cannot; `FileTooBig`, if what was allocated ahead would lie too far behind.
    async fn check_shift(
        &self,
        inode: &InodeHandle,
        from: FileBlock,
        to: FileBlock,
    ) -> Result<(), FsError> {
        let _ = (inode, from, to);
        Err(FsError::NotSupported)
    }
    /// Moves it: what lies at `from` lies at `to` then. Towards the beginning there is a hole
    /// between the two; towards the end there will be. Where so many pieces are moved that a
    /// transaction does not hold them, `txn` is ended and another begun in its place, as often as
    /// need be. Size and times are the caller's, who has asked `check_shift`.
    async fn shift(
        &self,
        txn: &mut Self::Txn,
        inode: &InodeHandle,
        from: FileBlock,
        to: FileBlock,
    ) -> Result<(), FsError> {
        let _ = (txn, inode, from, to);
        Err(FsError::NotSupported)
    }
    /// Moves contents that lie in the inode into a block, as one change with what comes after it in
    /// the transaction; `NoSpace` before anything has changed. Nothing where they lie elsewhere.
    async fn move_out(&self, txn: &mut Self::Txn, inode: &InodeHandle) -> Result<(), FsError> {
        assert!(!inode.with(|raw| InodeRef(raw).is_inline()), "a layout without such contents");
        let _ = txn;
        Ok(())
    }
}
