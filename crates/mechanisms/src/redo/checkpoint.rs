//! Giving log space back: the blocks that hold the oldest entries are written back, the device is
//! flushed, and the log is trimmed. By pressure, when the log is half full, and at the end.

use super::{Redo, add};
use cache::Buf;
use env::Nanos;
use integrity::{IntegrityError, invariant};
use std::rc::Rc;

impl Redo {
    /// Starts the task that makes room when somebody waits for it.
    pub(super) fn start_daemon(self: &Rc<Self>) {
        let redo = Rc::downgrade(self);
        let log = self.log.log().clone();
        self.cache.env().spawn("log checkpoint", async move {
            loop {
                log.pressed().await;
                let Some(redo) = redo.upgrade() else { return };
                if redo.stopping.get() || redo.check().is_err() {
                    return;
                }
                let before = log.head();
                // A failure is sticky and known to the cache; who waits for room learns of it.
                let _ = redo.checkpoint().await;
                if log.head() == before {
                    // Another volume's entries are in the way, or operations that have not ended.
                    redo.cache.env().sleep(Nanos::from_millis(10)).await;
                }
            }
        });
    }

    /// Makes room before anybody waits for it.
    pub(super) fn checkpoint_in_background(&self) {
        if self.checkpointing.is_busy() || self.stopping.get() {
            return;
        }
        let redo = self.strong();
        self.cache.env().spawn("log checkpoint", async move {
            let _ = redo.checkpoint().await;
        });
    }

    /// Writes back what holds the log, makes that durable, and trims.
    pub(super) async fn checkpoint(&self) -> Result<(), IntegrityError> {
        let turn = self.checkpointing.try_lock();
        let Some(_turn) = turn else {
            drop(self.checkpointing.lock().await); // somebody else's will do
            return Ok(());
        };
        if self.stopping.get() {
            return Ok(());
        }
        add(&self.counters.checkpoints, 1);
        let given = self.state.borrow().serials.given();
        let end = self.log.end();
        for round in 0..4 {
            let bufs: Vec<Buf> = {
                let s = self.state.borrow();
                let blocks = s.dirty_pages.needing_below(end);
                blocks.into_iter().filter_map(|b| self.cache.get_cached(b)).collect()
            };
            if bufs.is_empty() && round > 0 {
                break;
            }
            // The gate takes images of blocks that change all the time; the log then catches up
            // with them.
            for b in &bufs {
                let open = self.state.borrow().open.touches(b.block());
                self.state.borrow_mut().dirty_pages.want(b, open);
            }
            self.wait(given).await?;
            self.cache.write(bufs).await?;
            self.cache.flush_device().await?;
        }
        self.trim();
        self.check_positions();
        let below = self.log.needs().unwrap_or_else(|| self.log.end());
        self.log.log().persist().await.map_err(|e| self.log_error(e))?;
        self.state.borrow_mut().data.forget_below(below); // whoever else needs the log
        Ok(())
    }

    /// Planted bug: the trim becomes durable while the write-back may still be lost.
    pub(super) fn trim_at_once(&self) {
        self.trim();
        let log = self.log.log().clone();
        self.cache.env().spawn("log trim", async move {
            let _ = log.persist().await;
        });
    }

    /// Trims the log below what is needed (I5).
    pub(super) fn trim(&self) {
        let below = {
            let mut state = self.state.borrow_mut();
            let s = &mut *state;
            let oldest = s.dirty_pages.oldest_rec_lsn();
            let planted = self.plant.is("trim-at-append");
            let below = oldest.filter(|_| !planted).unwrap_or_else(|| self.log.end());
            s.serials.forget_below(below);
            below
        };
        let oldest = self.state.borrow().dirty_pages.oldest_rec_lsn();
        let needed = oldest.is_none_or(|o| below <= o);
        invariant!(self.plant, needed, "I5: the log is cut at {below}, {oldest:?} is needed");
        let end = self.log.end();
        assert!(below <= end, "I5: the log is cut at {below}, behind its end at {end}");
        self.log.trim(below);
        let head = self.log.log().head();
        let there = oldest.is_none_or(|o| head <= o);
        invariant!(self.plant, there, "I5: the log begins at {head}, {oldest:?} is needed");
        self.state.borrow_mut().data.forget_below(head);
    }

    /// The positions of the log in their order, as they are drawn in the header.
    pub(super) fn check_positions(&self) {
        let s = self.state.borrow();
        let (durable, given) = (s.serials.durable(), s.serials.given());
        let appended = s.serials.newest_appended();
        let ordered = durable <= appended && appended <= given;
        assert!(ordered, "I2: {durable:?} is durable, {appended:?} appended, {given:?} given");
        let (head, needs) = (self.log.log().head(), self.log.needs());
        let (end, oldest) = (self.log.end(), s.dirty_pages.oldest_rec_lsn());
        let kept = oldest.is_none_or(|o| needs.is_some_and(|n| head <= n && n <= o));
        invariant!(self.plant, kept, "I5: {oldest:?} is needed, the log is kept from {needs:?}");
        let inside = oldest.is_none_or(|o| o < end);
        assert!(inside, "I5: {oldest:?} is needed of a log that ends at {end}");
    }

    /// Everything is in place: nothing may be left of any operation.
    fn check_quiet(&self) {
        let s = self.state.borrow();
        let (given, durable) = (s.serials.given(), s.serials.durable());
        invariant!(self.plant, given == durable, "I7: {durable:?} of {given:?} are durable");
        let queued = s.queue.entry_bytes();
        invariant!(self.plant, queued == 0, "I2: a closed volume has {queued} bytes to append");
        let waits = s.queue.ordered_blocks();
        invariant!(self.plant, waits == 0, "I9: a closed volume waits for {waits} blocks");
        let busy = s.busy.is_empty();
        invariant!(self.plant, busy, "I6: a closed volume keeps what was freed");
    }

    /// Everything written back and the log empty.
    pub(super) async fn shut(&self) -> Result<(), IntegrityError> {
        assert!(
            !self.state.borrow().open.has_edits(),
            "operations end before the volume is closed"
        );
        // Nobody writes the log's superblock after this: its place is about to be somebody else's.
        let _turn = self.checkpointing.lock().await;
        self.stopping.set(true);
        for _ in 0..8 {
            let given = self.state.borrow().serials.given();
            self.wait(given).await?;
            self.cache.write_all().await?;
            self.cache.flush_device().await?;
            if self.state.borrow().dirty_pages.is_empty() {
                break;
            }
        }
        assert!(
            self.state.borrow().dirty_pages.is_empty(),
            "a closed volume needs nothing of its log"
        );
        self.check_quiet();
        self.trim();
        let needs = self.log.needs();
        invariant!(self.plant, needs.is_none(), "I5: a closed volume needs the log from {needs:?}");
        let persisted = self.log.log().persist_last().await;
        self.log.log().nudge();
        persisted.map_err(|e| self.log_error(e))
    }
}
