//! `fstrim`: who may ask, and for which of the volume's blocks. What of them is free, and when it
//! may be told to the disk, the store knows.

use super::{Ctx, Done};
use crate::Ufs;
use crate::store::Store;
use vfs::{FsError, Reply};

impl<S: Store> Ufs<S> {
    /// Bytes as Linux's FITRIM has them: whole blocks between them, and `min_bytes` rounded up.
    pub(super) async fn trim(&self, ctx: &Ctx, (from, bytes): (u64, u64), min_bytes: u64) -> Done {
        if ctx.cred.uid != 0 {
            return Err(FsError::Perm);
        }
        self.store.writable()?;
        let block = self.store.limits().block_bytes as u64;
        let blocks = from.div_ceil(block)..from.saturating_add(bytes) / block;
        let least = min_bytes.div_ceil(block).max(1);
        // A large volume takes its time; who closes it does not wait for all of that.
        let trimmed = self.store.trim(blocks, least, &|| self.closed.get()).await?;
        Ok(Reply::Trimmed(trimmed * block))
    }
}
