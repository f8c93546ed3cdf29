//! Going on to the log's newest moment, for who has opened the store for reading only: what it has
//! read of the log before it keeps, and blocks in memory too, for a place never holds anything
//! else. A store that is shown stays as it is; the newer one is another. It never writes.

use crate::chain::{Chain, Trouble, list};
use crate::fence::was_deleted;
use crate::object::Serial;
use crate::state::State;
use crate::store::{Store, follow};
use std::collections::BTreeSet;

impl State {
    /// The log as far as it was followed.
    fn chain(&self, listed: BTreeSet<Serial>) -> Chain {
        let mut table = self.table.clone();
        // Nobody needs them, and nobody here deletes them.
        table.objects.retain(|_, info| info.live > 0);
        let writer = String::new();
        let (checkpoint, epoch, last, next) = (self.checkpoint, self.epoch, self.last, self.next);
        let notes = self.notes.clone();
        Chain {
            table,
            checkpoint,
            epoch,
            writer,
            last,
            next,
            rolled: 0,
            newer: Serial::NONE,
            listed,
            is_listed_whole: false,
            notes,
        }
    }
}

impl Store {
    /// The store at the newest moment of the log; None: it is this one's, and was when this was
    /// called. What was deleted meanwhile is no trouble: then the newest checkpoint is read.
    /// Errors: damage, or the bucket's.
    pub async fn newer(&self) -> Result<Option<Store>, String> {
        let inner = &self.inner;
        assert!(inner.options.read_only, "I5: who writes does not follow");
        let (bucket, shape, plant) = (&inner.bucket, &inner.shape, inner.plant);
        let (last, next) = {
            let s = inner.state.borrow();
            (s.last.0, s.next)
        };
        let mut behind = list(bucket, last.before()).await.map_err(|e| e.to_string())?;
        // It is there as long as nothing newer is (I7): else this is not the log that it was.
        let is_there = behind.remove(&last);
        if is_there && behind.is_empty() {
            return Ok(None);
        }
        let chain = if is_there && behind.contains(&next) {
            let mut chain = inner.state.borrow().chain(behind);
            let went = chain.go_on(bucket, shape, plant).await;
            // Where it ends, what came next may have been deleted, and not be missing yet; and a
            // fence there may lie in a name that had been deleted (I8).
            let is_fence = chain.table.fences.contains(&chain.last.0);
            let end = if is_fence { chain.last.0 } else { chain.next };
            match went {
                Ok(()) if !was_deleted(bucket, shape, end).await? => chain,
                // What does not go on from here may go on from the newest checkpoint.
                Ok(()) | Err(Trouble::Again | Trouble::Wrong(_)) => {
                    follow(bucket, shape, plant).await?
                }
                Err(Trouble::Unknown(why)) => return Err(why),
            }
        } else if !is_there || was_deleted(bucket, shape, next).await? {
            follow(bucket, shape, plant).await?
        } else {
            return Ok(None); // what is there is not acknowledged: something before it is not there
        };
        Ok(Some(self.at(chain)))
    }
}
