//! What is durable, and making it so. How that comes about is the mechanism's; a layout only says
//! which blocks an inode has.

use super::{InodeHandle, Transactions};
use format::Ino;
use vfs::FsError;

/// Syncs, and what the disk has not seen yet.
#[expect(async_fn_in_trait, reason = "a volume is one thread's; its futures need not be Send")]
pub trait Syncs: Transactions {
    /// Makes inodes durable: contents, sizes, maps, attributes. The first is the file, the others
    /// are the directories that make it reachable.
    async fn sync_inodes(&self, inodes: &[InodeHandle], data_only: bool) -> Result<(), FsError>;
    /// Makes everything durable.
    async fn sync_all(&self) -> Result<(), FsError>;
    /// After [`Syncs::sync_all`]: writes what is durable in a log or journal back, so that nothing
    /// is written later without a further change.
    async fn quiesce(&self) -> Result<(), FsError>;
    /// Is something free that may not be used again until more is durable?
    fn has_busy_extents(&self) -> bool;
    /// Has the disk not seen yet that this inode was made?
    fn is_unseen(&self, ino: Ino) -> bool;
}
