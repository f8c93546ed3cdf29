//! A volume that stands still, for as long as a copy of it needs: no operation is under way, all is
//! durable and in its place, and what wants to change waits. Reads go on. Whoever asked for it may
//! vanish: the volume goes on by itself when the time is over.

use crate::opened::Opened;
use env::{Nanos, unless};
use ufs::store::StoreInfo;
use vfs::{Call, FsError, Reply, Request, Volume};

/// How often everything is written back until nothing is left: what is written may make more
/// writable (soft updates).
const ROUNDS: usize = 16;
/// Blocks of a store of segments that are free when it is told what the volume's counts are: a disk
/// that is full is one that fails, to the cache.
const ROOM_FOR_COUNTS: u64 = 64;

impl Opened {
    /// See [`Request::Freeze`].
    pub(crate) async fn freeze(&self, most: Nanos) -> Result<Reply, FsError> {
        if self.read_only {
            return Ok(Reply::Done); // it always stands still
        }
        // What there is to write is written before anybody has to wait.
        self.write_all().await?;
        self.ext.writable()?;
        let (env, still) = (StoreInfo::env(&*self.ext).clone(), self.ext.standstill().clone());
        let hold = still.hold().ok_or(FsError::Busy)?;
        let until = env.now().plus(most);
        let (later, held) = (env.clone(), still.clone());
        env.spawn("thaw", async move {
            later.sleep_until(until).await;
            if held.release(hold) {
                tracing::warn!("changes were held back for a copy that did not end in time");
            }
        });
        let empty = unless(still.empty(), env.sleep_until(until)).await;
        let rested = if empty.is_some() { self.rest().await } else { Err(FsError::Busy) };
        if rested.is_err() || !still.is_still(hold) {
            still.release(hold);
            return Err(rested.err().unwrap_or(FsError::Busy));
        }
        let dirty = self.ext.cache().counts().1;
        assert_eq!(dirty, 0, "V7: {dirty} blocks are to be written of a volume that stands still");
        self.frozen.set(Some(hold));
        Ok(Reply::Done)
    }

    /// See [`Request::Thaw`].
    pub(crate) fn thaw(&self) -> Result<Reply, FsError> {
        if self.read_only {
            return Ok(Reply::Done);
        }
        let hold = self.frozen.take().ok_or(FsError::Stale)?;
        if self.ext.standstill().release(hold) { Ok(Reply::Done) } else { Err(FsError::Stale) }
    }

    /// Writes back until nothing is left to be written.
    async fn rest(&self) -> Result<(), FsError> {
        for _ in 0..ROUNDS {
            self.write_all().await?;
            if self.ext.cache().counts().1 == 0 {
                // A copy, and a snapshot, is opened without them too, where there is hardly room.
                let has_room = self.groups.as_ref().is_none_or(|g| g.has_room_now(ROOM_FOR_COUNTS));
                let told = match self.counts_lag && has_room {
                    true => self.ext.store_counts().await,
                    false => Ok(()),
                };
                return told.map_err(|e| {
                    tracing::error!("writing the superblock: {e}");
                    FsError::Io
                });
            }
        }
        Err(FsError::Busy)
    }

    async fn write_all(&self) -> Result<(), FsError> {
        let quiesce = Call::local(Request::Quiesce);
        self.ufs.clone().call(quiesce).await.result.map(drop)
    }
}
