//! Checkpoints: what holds the oldest transactions is written back and is made durable, and the
//! tail moves on (J4). By pressure, before a transaction that would not fit, and at the end.

use super::{Jbd2, add};
use integrity::{IntegrityError, invariant};

impl Jbd2 {
    /// Makes room before anybody waits for it.
    pub(super) fn checkpoint_in_background(&self) {
        if self.checkpointing.is_busy() || self.stopping.get() {
            return;
        }
        let jbd2 = self.me.upgrade().expect("a mechanism outlives its tasks");
        self.cache.env().spawn("checkpoint", async move {
            if let Err(e) = jbd2.checkpoint().await {
                // Of the journal's superblock the cache knows nothing: nobody else says it (J9).
                tracing::debug!("checkpoint: {e}");
                jbd2.fail(&e);
                assert!(jbd2.check().is_err(), "J9: a checkpoint failed, and all goes on");
            }
        });
    }

    /// Makes room for a transaction of `count` blocks.
    pub(super) async fn make_room(&self, count: u32) -> Result<(), IntegrityError> {
        if self.log.is_at_turn(count) {
            self.checkpoint().await?;
            self.log.turn();
        }
        while self.log.free() < count {
            let before = self.log.free();
            self.checkpoint().await?;
            if self.log.free() == before {
                let (needed, available) = (u64::from(count), u64::from(before));
                return Err(IntegrityError::LogTooSmall { needed, available });
            }
        }
        Ok(())
    }

    /// Writes back what all committed transactions hold, and trims.
    async fn checkpoint(&self) -> Result<(), IntegrityError> {
        let _turn = self.checkpointing.lock().await;
        if self.stopping.get() {
            return Ok(()); // the journal is an empty one, or about to be
        }
        add(&self.counters.checkpoints, 1);
        let upto = self.committed.get();
        for _ in 0..4 {
            let bufs = self.state.borrow().heads.needing_up_to(upto);
            let waits = self.state.borrow().heads.oldest().is_some_and(|s| s <= upto);
            if bufs.is_empty() && !waits {
                break;
            }
            if !self.plant.is("trim-before-home") {
                self.cache.write(bufs).await?;
            }
            if !self.plant.is("trim-before-flush") {
                self.cache.flush_device().await?;
            }
        }
        self.trim().await
    }

    async fn trim(&self) -> Result<(), IntegrityError> {
        let next = self.committed.get().next();
        let oldest = {
            let s = self.state.borrow();
            let oldest = s.heads.oldest().filter(|_| !self.plant.is("trim-before-home"));
            oldest.unwrap_or(next).min(next)
        };
        self.log.trim(oldest, next).await?;
        let tail = self.log.tail_tid();
        let needed = self.state.borrow().heads.oldest();
        let there = needed.is_none_or(|n| tail <= n);
        invariant!(self.plant, there, "J4: the journal begins at {tail}, {needed:?} is needed");
        self.state.borrow_mut().logged.retain(|_, tid| *tid >= tail);
        Ok(())
    }

    /// Everything is in place: nothing may be left of any transaction.
    fn check_quiet(&self) {
        let s = self.state.borrow();
        assert!(s.heads.is_empty(), "J4: a closed volume needs no journal");
        let tid = s.running.tid;
        invariant!(self.plant, s.running.is_quiet(), "J3: {tid} has handles in a closed volume");
        invariant!(self.plant, s.running.is_empty(), "J8: {tid} of a closed volume is not durable");
        invariant!(self.plant, s.committing.is_none(), "J8: a closed volume is committing");
        invariant!(self.plant, s.busy.is_empty(), "J5: a closed volume keeps what was freed");
    }

    /// Everything written back and the journal empty.
    pub(super) async fn shut(&self) -> Result<(), IntegrityError> {
        for _ in 0..8 {
            let tid = self.state.borrow().running.tid;
            self.wait_for(tid).await?;
            self.cache.write_all().await?;
            let s = self.state.borrow();
            if s.heads.is_empty() && s.running.is_empty() {
                break;
            }
        }
        // Two writes of the superblock must never be on their way together: a checkpoint of the
        // background ends first, and no other begins.
        let _turn = self.checkpointing.lock().await;
        self.check_quiet();
        self.stopping.set(true);
        self.kick.wake_all();
        let next = self.state.borrow().running.tid;
        Ok(self.log.finish(next).await?)
    }
}
