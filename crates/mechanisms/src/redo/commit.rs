//! Waiting for durability: of an operation's entry, of contents that are written back first, of a
//! file's contents. Whoever waits shares log writes and flushes with all who wait at the same time.

use super::barrier::Barrier;
use super::queue::Waits;
use super::serials::Serial;
use super::{Redo, add};
use cache::{Buf, BufKind};
use env::Nanos;
use format::{BlockNo, Ino};
use integrity::{FileScope, IntegrityError, Pressure, Scope, invariant};
use std::collections::BTreeSet;
use std::rc::Rc;

/// Contents are written back unasked when this many blocks of them hold up entries.
pub(super) const ORDERED_BLOCKS_MAX: usize = 2048;

/// What nobody waits for is sent out this long after its end: a `sync` of the whole system never
/// reaches a FUSE server, so what has returned had better be durable soon. Many entries share a
/// write by then.
pub(super) const SEND_AFTER: Nanos = Nanos::from_millis(10);

impl Redo {
    /// Moves everything on that became durable meanwhile.
    pub(super) fn retire(&self) {
        let mut state = self.state.borrow_mut();
        let s = &mut *state;
        while let Some(serial) = s.serials.advance(|lsn| self.log.is_durable(lsn)) {
            let Some(sent) = s.queue.take_sent(serial) else { continue };
            assert_eq!(sent.serial, serial, "I2: entries become durable in their order");
            for txn in sent.txns {
                s.busy.release(txn);
            }
            for e in sent.freed {
                s.dirty_pages.freed(e, serial); // I4
            }
            let (oldest, lsn) = (s.dirty_pages.oldest_rec_lsn(), s.serials.lsn(serial));
            let kept = oldest.is_none_or(|o| o >= self.log.log().head());
            invariant!(self.plant, kept, "I5: {lsn:?} is durable, {oldest:?} is needed and gone");
        }
    }

    /// The caller is about to be told that everything up to this serial is durable.
    pub(super) fn check_durable(&self, serial: Serial) {
        let s = self.state.borrow();
        let upto = s.serials.durable();
        let safe = || s.serials.lsn(serial).is_none_or(|lsn| self.log.is_durable(lsn));
        invariant!(self.plant, serial <= upto, "I7: {serial:?} is promised, {upto:?} is durable");
        invariant!(self.plant, safe(), "I7: the log has not made {serial:?} durable");
    }

    /// Waits until everything up to this serial is durable (I7), for a caller.
    pub(super) async fn wait(&self, serial: Serial) -> Result<(), IntegrityError> {
        let waited = self.begin_wait(serial);
        let result = self.wait_for(serial, true).await;
        if let Some(w) = waited {
            let now = self.cache.env().now();
            self.state.borrow_mut().ways.ended(w, now, result.is_ok());
        }
        result
    }

    /// The same; `urgent`: a caller waits, and not only a task of the background.
    async fn wait_for(&self, serial: Serial, urgent: bool) -> Result<(), IntegrityError> {
        let given = self.state.borrow().serials.given();
        assert!(serial <= given, "I7: {serial:?} would be waited for in vain, {given:?} has ended");
        let mut _barrier = None;
        loop {
            self.check()?;
            self.retire();
            let lsn = {
                let s = self.state.borrow();
                if s.serials.durable() >= serial {
                    return Ok(());
                }
                s.serials.lsn(serial)
            };
            match lsn {
                Some(lsn) => {
                    _barrier = None;
                    self.log.flush(lsn).await.map_err(|e| self.log_error(e))?;
                    if self.plant.is("ack-out-of-order") {
                        return Ok(());
                    }
                    let durable = self.log.is_durable(lsn);
                    invariant!(self.plant, durable, "I7: {lsn} was flushed, and is not durable");
                }
                None => {
                    let first = self.state.borrow().queue.first();
                    self.push_out(urgent).await?;
                    // The first entry has taken in what ended meanwhile, and waits for its contents
                    // too. Where many write, that could go on for ever: they begin one by one now,
                    // and what ends alone is an entry of its own.
                    let stays = first.is_some() && self.state.borrow().queue.first() == first;
                    _barrier = stays.then(|| Barrier::new(self, false));
                }
            }
        }
    }

    /// Brings the queue a step further.
    async fn push_out(&self, urgent: bool) -> Result<(), IntegrityError> {
        self.append()?;
        let waits = {
            let s = self.state.borrow();
            s.queue.waits((&s.open, &s.busy))
        };
        match waits {
            Waits::No => {
                let left = self.state.borrow().queue.entry_bytes();
                assert_eq!(left, 0, "I2: {left} bytes of entries wait, and for nothing");
                Ok(())
            }
            Waits::ForData => self.commit_data(urgent).await,
            Waits::ForOpen => {
                let none = self.state.borrow().open.is_empty();
                assert!(!none, "I3: an entry waits for an open operation, and none is open");
                // Nobody begins until those who are mixed with it have ended.
                let _barrier = Barrier::new(self, false);
                self.ended.wait().await;
                Ok(())
            }
        }
    }

    /// Makes contents durable in place that entries wait for, then sends these (I9): all that have
    /// ended by now, because whoever comes next then finds its own done, and a disk seeks less for
    /// more writes at a time. If a caller waits and the log is quicker, they go into it
    /// instead.
    async fn commit_data(&self, urgent: bool) -> Result<(), IntegrityError> {
        let _turn = self.committing.lock().await;
        if urgent && self.log_ordered() {
            return self.append();
        }
        let (bufs, upto) = {
            let s = self.state.borrow();
            s.queue.ordered_up_to(s.serials.given(), (&s.open, &s.busy))
        };
        let written: BTreeSet<BlockNo> = bufs.iter().map(Buf::block).collect();
        if !bufs.is_empty() && !self.plant.is("entry-before-contents") {
            self.cache.write(bufs).await?;
            let written = self.cache.epoch();
            self.cache.flush_device().await?;
            let flushed = written < self.cache.epoch();
            assert!(flushed, "I9: contents count as durable that were written in {written:?}");
        }
        {
            // Whatever an operation has begun to change meanwhile may have been kept back.
            let s = &mut *self.state.borrow_mut();
            let (free, upto) = s.queue.ordered_up_to(upto, (&s.open, &s.busy));
            let missed = free.iter().find(|b| !written.contains(&b.block()));
            assert!(missed.is_none(), "I9: {missed:?} counts as durable, and was not written");
            s.queue.data_durable(upto);
        }
        self.append()
    }

    /// Makes everything that has ended durable, as a task of its own; one at a time.
    pub(super) fn flush_in_background(&self) {
        if self.flushing.replace(true) {
            return;
        }
        let redo = self.strong();
        self.cache.env().spawn("log flush", async move {
            let given = redo.state.borrow().serials.given();
            // A failure is sticky and known to the cache.
            let _ = redo.wait_for(given, false).await;
            assert!(redo.flushing.replace(false), "two tasks flush the log in the background");
        });
    }

    /// Sends out what has ended and nobody waits for, soon, by a task that lives as long as there
    /// is some. Between two rounds lies at least as much time as the last one took, so that the
    /// disk has most of its time for those who wait.
    pub(super) fn send_soon(&self) {
        if self.sending.replace(true) {
            return;
        }
        let (redo, env) = (self.me.clone(), self.cache.env().clone());
        let mut pause = self.send_after;
        self.cache.env().spawn("log send", async move {
            loop {
                env.sleep(pause).await;
                let Some(redo) = redo.upgrade() else { return };
                let began = env.now();
                // A failure is sticky and known to the cache.
                let failed = redo.send_out().await.is_err();
                let all = {
                    let s = redo.state.borrow();
                    s.serials.durable() >= s.serials.given()
                };
                if failed || all || redo.stopping.get() {
                    assert!(redo.sending.replace(false), "two tasks send out what has ended");
                    return;
                }
                pause = redo.send_after.max(env.now().since(began));
            }
        });
    }

    /// Makes durable what does not wait for open operations, and keeps nobody from beginning.
    async fn send_out(&self) -> Result<(), IntegrityError> {
        self.append()?;
        let waits = {
            let s = self.state.borrow();
            s.queue.waits((&s.open, &s.busy))
        };
        if waits == Waits::ForData {
            self.commit_data(false).await?;
        }
        let appended = self.state.borrow().serials.newest_appended();
        self.wait(appended).await
    }

    /// Starts to write contents back if they hold up too much.
    pub(super) fn push_data(&self) {
        if self.state.borrow().queue.ordered_blocks() > ORDERED_BLOCKS_MAX {
            self.flush_in_background();
        }
    }

    pub(super) async fn sync_scope(&self, scope: Scope) -> Result<(), IntegrityError> {
        match scope {
            Scope::Txn(ended) => {
                self.wait(ended.into()).await?;
                self.check_durable(ended.into());
                Ok(())
            }
            Scope::Files { files, .. } => {
                // Of what has ended since, only what concerns these files is waited for.
                let newest = {
                    let s = self.state.borrow();
                    files.iter().filter_map(|f| s.files.get(&u64::from(f.ino.0)).copied()).max()
                };
                let newest = newest.unwrap_or(Serial::NONE);
                if !self.data.ordered {
                    self.sync_contents(&files, newest).await?;
                }
                self.wait(newest).await?;
                self.check_durable(newest);
                Ok(())
            }
            Scope::All => self.commit_all().await,
        }
    }

    /// Those of the blocks that hold contents which are not in the log.
    fn unlogged(&self, bufs: impl Iterator<Item = Buf>) -> Vec<Buf> {
        let s = self.state.borrow();
        bufs.filter(|b| b.kind() == BufKind::Data && !s.data.is_logged(b.block())).collect()
    }

    /// The same of blocks in their order, and each block that lies between two of them: without
    /// an indirect block, one write of a file's contents would become two.
    fn unlogged_and_between(&self, all: &[Buf]) -> Vec<Buf> {
        let in_order = all.is_sorted_by(|a, b| a.block() < b.block());
        assert!(in_order, "what lies between two blocks is looked for in no order");
        let wanted = self.unlogged(all.iter().cloned());
        let numbers: BTreeSet<u64> = wanted.iter().map(|b| b.block().0).collect();
        let of = |b: u64| numbers.contains(&b);
        let between = |b: u64| b > 0 && of(b - 1) && of(b + 1);
        let goes = |b: &&Buf| of(b.block().0) || between(b.block().0);
        all.iter().filter(goes).cloned().collect()
    }

    /// Makes durable what has ended, as a task that does so within every interval: operations
    /// nobody waits for, and contents that are not logged. Other blocks stay where they are until
    /// the log fills; they are written back when nothing has happened for an interval.
    pub(super) fn start_clock(self: &Rc<Self>, interval: Nanos) {
        let redo = Rc::downgrade(self);
        let env = self.cache.env().clone();
        self.cache.env().spawn("log commit by time", async move {
            let mut before = None;
            loop {
                env.sleep(Nanos((interval.0 / 2).max(1))).await;
                let Some(redo) = redo.upgrade() else { return };
                if redo.stopping.get() || redo.check().is_err() {
                    return;
                }
                // A failure is sticky and known to the cache.
                let _ = redo.commit_all().await;
                let end = redo.log.end();
                if redo.stopping.get() {
                    return;
                }
                if before.replace(end) == Some(end) && !redo.state.borrow().dirty_pages.is_empty() {
                    let _ = redo.checkpoint().await;
                }
            }
        });
    }

    /// Makes durable what has ended, and contents that are not logged.
    async fn commit_all(&self) -> Result<(), IntegrityError> {
        let given = self.state.borrow().serials.given();
        self.wait_for(given, false).await?;
        if self.data.ordered {
            return Ok(()); // what is not logged was written back before
        }
        let data = self.unlogged_and_between(&self.cache.dirty_all());
        if !data.is_empty() {
            self.cache.write(data).await?;
        }
        if self.state.borrow().data.has_unflushed() {
            self.cache.flush_device().await?;
        }
        Ok(())
    }

    /// Writes the files' contents back and makes them durable, while the log is written beside.
    async fn sync_contents(
        &self,
        files: &[FileScope],
        given: Serial,
    ) -> Result<(), IntegrityError> {
        let bufs = self.unlogged(files.iter().flat_map(|f| self.cache.dirty_of(f.ino)));
        let flushed = |ino: Ino| self.state.borrow().data.is_flushed(ino);
        if bufs.is_empty() && files.iter().all(|f| flushed(f.ino)) {
            return Ok(());
        }
        if self.state.borrow().serials.durable() < given {
            self.flush_in_background();
        }
        self.cache.write(bufs).await?;
        if files.iter().any(|f| !flushed(f.ino)) {
            self.cache.flush_device().await?;
        }
        Ok(())
    }

    /// Forces what can be forced while an operation is open: it must not wait for open ones.
    pub(super) async fn relieve(&self, why: Pressure) -> Result<(), IntegrityError> {
        self.send_out().await?;
        if why == Pressure::CacheFull {
            self.cache.write_all().await?;
        }
        add(&self.counters.presses, 1);
        Ok(())
    }
}
