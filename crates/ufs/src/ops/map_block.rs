//! Where a file lies on the disk, for who asks for that block by block (FIBMAP: `filefrag`, boot
//! loaders, swapon). Which blocks those are, the store knows.

use super::Done;
use crate::Ufs;
use crate::store::Store;
use format::FileBlock;
use vfs::{FsError, Reply};

impl<S: Store> Ufs<S> {
    /// Whoever asks may read the disk there, or write it past us, as swapping does. Nothing may
    /// then be left in memory, or in a log alone, that would be written over it later. He begins
    /// with the first block; doing it for each would be a checkpoint each.
    pub(super) async fn map_block(&self, ino: u32, block: u64) -> Done {
        let inode = self.inode(ino).await?;
        if !inode.with(|i| i.is_file()) {
            return Err(FsError::Invalid);
        }
        if block == 0 {
            self.quiesce().await?;
        }
        let _shared = self.lock_shared(&inode).await?;
        let blocks = inode.size().div_ceil(self.store.limits().block_bytes as u64);
        if block >= blocks {
            return Ok(Reply::Offset(0));
        }
        let run = self.store.map(&inode.h, FileBlock(block), 1).await?;
        Ok(Reply::Offset(run.start.map_or(0, |b| b.0)))
    }
}
