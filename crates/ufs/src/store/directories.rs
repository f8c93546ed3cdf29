//! The blocks of directories, each changed as a whole or by its entries. Names are looked for by
//! the operations, never by the store.

use super::{InodeHandle, Transactions};
use cache::Buf;
use format::{BlockNo, FileBlock, FormatError};
use vfs::FsError;

/// Directory blocks. What is in them is the operations'.
#[expect(async_fn_in_trait, reason = "a volume is one thread's; its futures need not be Send")]
pub trait Directories: Transactions {
    /// A directory's block; a hole in a directory is `Corrupt`.
    async fn dir_block(&self, inode: &InodeHandle, at: FileBlock) -> Result<Buf, FsError>;
    /// The same for a block that the directory can do without, as a node of its index is: what is
    /// wrong with its checksum comes beside it, and stops nothing.
    async fn dir_block_judged(
        &self,
        inode: &InodeHandle,
        at: FileBlock,
    ) -> Result<(Buf, Option<FormatError>), FsError>;
    /// A directory's block that lies there, if it is in memory and was given out before by one of
    /// these two.
    fn dir_block_in_memory(&self, inode: &InodeHandle, place: BlockNo) -> Option<Buf>;
    /// A new block at the directory's end (`at` = size in blocks), with `contents`:
    /// `Change::InitBlock`, then the pointer. The size is the caller's (`Change::GrowDir`).
    async fn dir_grow(
        &self,
        txn: &mut Self::Txn,
        inode: &InodeHandle,
        at: FileBlock,
        contents: &[u8],
    ) -> Result<Buf, FsError>;
    /// Puts a new block with `contents` in the place of the directory's block `at`, whose old block
    /// is freed. `NoSpace` before anything has changed.
    async fn dir_swap(
        &self,
        txn: &mut Self::Txn,
        inode: &InodeHandle,
        at: FileBlock,
        contents: &[u8],
    ) -> Result<Buf, FsError>;
}
