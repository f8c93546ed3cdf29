//! Holes: pointers of a range are cleared and what they pointed at is freed. Indirect blocks stay,
//! so that the map's shape is the same afterwards.

use super::indirect::Walk;
use crate::Ext;
use crate::alloc::Runs;
use crate::map::cut::{RENEWED, STEP};
use format::{Extent, FileBlock};
use integrity::Txn;
use ufs::{InodeHandle, Store};
use vfs::FsError;

/// Runs that one transaction gives up: each may edit an indirect block of its own, and bitmaps and
/// descriptors of two groups, so that many are still within [`RENEWED`].
const RUNS: u64 = 12;

impl Ext {
    /// Frees `from..to`.
    pub(crate) async fn punch_blocks(
        &self,
        txn: &mut Txn,
        h: &InodeHandle,
        from: FileBlock,
        to: FileBlock,
    ) -> Result<(), FsError> {
        let mut at = from;
        let (mut since_restart, mut runs) = (0, 0);
        while at < to {
            let walk = self.walk(h, at).await?;
            let run = self.run_of(h.ino, &walk, to.0 - at.0)?;
            if let (Some(start), Walk::Leaf(leaf)) = (run.start, &walk) {
                self.clear_run(txn, h, leaf, 0, Extent { start, len: run.len });
                self.give_back(txn, h, Runs::one(start, run.len)).await?;
                since_restart += run.len;
                runs += 1;
            }
            at = at.plus(run.len);
            if self.mechanism.atomic() && (since_restart >= STEP || runs >= RUNS) {
                (since_restart, runs) = (0, 0);
                self.renew(txn, RENEWED).await?;
            }
        }
        Ok(())
    }
}
