//! Committing: the running transaction is closed, written to the journal, and made durable. One at
//! a time, while the next one is already running; whoever asks meanwhile shares the next commit, so
//! nobody waits for a timer.

use super::encode::{Encoder, Frozen};
use super::transaction::{Tid, Transaction};
use super::{Jbd2, State, add};
use cache::{Buf, BufKind, FlushEpoch};
use env::{Block, Durability, Nanos, both};
use format::{BlockNo, Extent};
use integrity::{Freed, IntegrityError, invariant};
use std::rc::Rc;

/// Metadata and journaled contents are written back by themselves every so many commit intervals.
const WRITE_BACK_INTERVALS: u64 = 6;

/// A closed transaction, ready to be written.
struct Closed {
    tid: Tid,
    blocks: Vec<Frozen>,
    ordered: Vec<Buf>,
    revokes: Vec<BlockNo>,
}

impl Jbd2 {
    /// Starts the task that commits, and the one that asks it to every interval.
    pub(super) fn start_tasks(self: &Rc<Self>) {
        let weak = Rc::downgrade(self);
        self.cache.env().spawn("commit", async move {
            loop {
                let Some(jbd2) = weak.upgrade() else { return };
                if jbd2.stopping.get() {
                    return;
                }
                if !jbd2.is_wanted() {
                    jbd2.kick.wait().await;
                    continue;
                }
                if let Err(e) = jbd2.commit().await {
                    jbd2.fail(&e);
                    return;
                }
            }
        });
        let weak = Rc::downgrade(self);
        let (env, tick) = (self.cache.env().clone(), Nanos((self.interval.0 / 2).max(1)));
        self.cache.env().spawn("commit by time", async move {
            let mut written_back = env.now();
            loop {
                env.sleep(tick).await;
                let Some(jbd2) = weak.upgrade() else { return };
                if jbd2.stopping.get() || jbd2.check().is_err() {
                    return;
                }
                let all = env.now().since(written_back).0 >= WRITE_BACK_INTERVALS * jbd2.interval.0;
                if all {
                    written_back = env.now();
                }
                jbd2.write_back(all).await;
            }
        });
    }

    /// Commits what has gathered, and writes back what nothing else will.
    async fn write_back(&self, all: bool) {
        let tid = self.state.borrow().running.tid;
        // A failure is sticky, and later callers see it.
        let _ = self.wait_for(tid).await;
        let mut dirty = self.cache.dirty_all();
        if !all {
            dirty.retain(|b| b.kind() == BufKind::Data && !self.policy.journals_data());
        }
        let _ = self.cache.write(dirty).await;
    }

    /// Nothing begins and nothing is committed from now on (J9).
    pub(super) fn fail(&self, e: &IntegrityError) {
        if let IntegrityError::Disk(e) = e {
            self.cache.fail(e);
        } else {
            let (kind, detail) = (env::DiskErrorKind::Io, e.to_string());
            self.cache.fail(&env::DiskError { kind, during: "commit", at: 0, detail });
        }
        self.changed.wake_all();
        self.space.wake_all();
    }

    pub(super) fn is_wanted(&self) -> bool {
        let s = self.state.borrow();
        self.wanted.get() >= s.running.tid && !s.running.is_empty()
    }

    /// Asks for the commit of this transaction.
    pub(super) fn want(&self, tid: Tid) {
        let running = self.state.borrow().running.tid;
        assert!(tid <= running, "J8: {tid} is wanted, and {running} runs");
        self.wanted.set(self.wanted.get().max(tid));
        self.kick.wake_all();
    }

    /// Waits until this transaction is durable (J8).
    pub(super) async fn wait_for(&self, tid: Tid) -> Result<(), IntegrityError> {
        let running = self.state.borrow().running.tid;
        assert!(tid <= running, "J8: {tid} would be waited for in vain, {running} runs");
        loop {
            self.check()?;
            if self.committed.get() >= tid {
                return Ok(());
            }
            {
                let s = self.state.borrow();
                if s.running.tid <= tid && s.running.is_empty() && s.committing.is_none() {
                    let upto = self.committed.get().next();
                    assert_eq!(upto, s.running.tid, "J8: what was closed is durable");
                    return Ok(()); // nothing has ended that is not durable
                }
            }
            self.want(tid);
            self.changed.wait().await;
        }
    }

    async fn commit(&self) -> Result<(), IntegrityError> {
        let closed = self.close_running().await?;
        self.write_out(&closed).await?;
        self.committed(&closed);
        add(&self.counters.commits, 1);
        self.changed.wake_all();
        if self.log.is_half_full() || self.log.used_bytes() > self.live_bytes_max {
            self.checkpoint_in_background();
        }
        Ok(())
    }

    /// Waits until nobody changes the running transaction any more, and takes it (J3).
    async fn close_running(&self) -> Result<Closed, IntegrityError> {
        assert!(!self.closing.replace(true), "J3: two tasks close the running transaction");
        while !self.state.borrow().running.is_quiet() && !self.plant.is("close-early") {
            self.changed.wait().await;
            if let Err(e) = self.check() {
                self.closing.set(false); // everything has failed, and all are woken
                return Err(e);
            }
        }
        let mut state = self.state.borrow_mut();
        let s = &mut *state;
        let tid = s.running.tid;
        let mut next = Transaction::new(tid.next());
        if self.plant.is("close-early") {
            next.adopt_handles(&mut s.running);
        }
        let mut closed = std::mem::replace(&mut s.running, next);
        assert!(s.committing.is_none(), "J3: one transaction is committed at a time");
        let before = self.committed.get();
        assert_eq!(before.next(), tid, "J7: {tid} is closed, and {before} is committed");
        invariant!(self.plant, closed.is_quiet(), "J3: transaction {tid} is closed with handles");
        if cfg!(debug_assertions) {
            // What a damaged volume asks for is not known beforehand: it is no reason to stop.
            let (count, kept) = (closed.blocks.len(), closed.keeps_promise());
            invariant!(self.plant, kept, "J4: {tid} has {count} blocks, and room for fewer");
        }
        let copied = |b: &&Buf| s.logged.contains_key(&b.block().0);
        let over = closed.ordered.values().find(copied);
        invariant!(self.plant, over.is_none(), "J6: {over:?} is written in place over a copy");
        let twice = closed.ordered.keys().find(|b| closed.blocks.contains_key(b));
        invariant!(self.plant, twice.is_none(), "J6: {twice:?} is journaled and written in place");
        let ordered: Vec<Buf> = std::mem::take(&mut closed.ordered).into_values().collect();
        let blocks = std::mem::take(&mut closed.blocks);
        let frozen = blocks.iter().map(|(b, (_, extend))| {
            let block = BlockNo(*b);
            Frozen { block, image: s.heads.freeze(block), extend: extend.clone() }
        });
        let frozen = frozen.collect();
        closed.blocks = blocks;
        ordered.iter().for_each(|b| s.heads.freeze_ordered(b));
        debug_assert!(s.heads.is_closed(), "J3: a block of {tid} is not in it");
        let held = |e: &Extent| !s.busy.may_reuse(Freed::Blocks(*e));
        let held = closed.freed.iter().all(held);
        invariant!(self.plant, held, "J5: {:?} may be used again before the commit", closed.freed);
        let revokes = self.revokes(s, &closed.freed);
        let both = revokes.iter().find(|b| closed.blocks.contains_key(&b.0));
        invariant!(self.plant, both.is_none(), "J6: {both:?} is journaled and revoked at once");
        s.committing = Some(closed);
        drop(state);
        self.closing.set(false);
        self.changed.wake_all();
        self.space.wake_all();
        Ok(Closed { tid, blocks: frozen, ordered, revokes })
    }

    fn encode(&self, closed: &Closed) -> (Vec<Block>, Block) {
        let mut e = Encoder::new(&self.log, closed.tid);
        e.escapes = !self.plant.is("no-escape");
        e.says_fresh = !self.plant.is("new-block-not-cleared");
        e.revoke(&closed.revokes);
        e.blocks(&closed.blocks);
        let now = self.cache.env().wall().max(self.last_time.get());
        self.last_time.set(now);
        let commit = e.commit(now);
        (e.out, commit)
    }

    /// Writes the closed transaction; when this returns, it is durable (J2).
    async fn write_out(&self, closed: &Closed) -> Result<(), IntegrityError> {
        let (mut blocks, commit) = self.encode(closed);
        let count = blocks.len() as u32 + 1;
        self.make_room(count).await?;
        if !self.plant.is("start-not-recorded") {
            self.log.start(closed.tid).await?;
        }
        let covered = self.log.covers(closed.tid);
        invariant!(self.plant, covered, "J4: a recovery would not come to {}", closed.tid);
        let ordered = self.write_ordered(closed);
        if self.log.shape.packed {
            if !closed.ordered.is_empty() {
                ordered.await?;
                let written = self.cache.epoch();
                self.cache.flush_device().await?;
                self.check_flushed(closed, written);
            }
            self.check()?; // J9
            let at = self.log.take(closed.tid, count);
            blocks.push(commit);
            self.log.write(at, blocks, Durability::Cached).await?;
            return self.flush_log().await;
        }
        if self.plant.is("commit-before-blocks") {
            return self.write_wrongly(closed, blocks, commit).await;
        }
        assert!(blocks.len() as u32 == count - 1, "J4: as many blocks as there is room for");
        let at = self.log.take(closed.tid, count - 1);
        let (ordered, log) = both(ordered, self.log.write(at, blocks, Durability::Cached)).await;
        ordered?;
        if !self.plant.is("failed-blocks-committed") {
            log?;
        }
        let written = self.cache.epoch();
        if !self.log.is_internal() && !closed.ordered.is_empty() {
            self.cache.flush_device().await?;
        }
        self.flush_log().await?;
        self.check_flushed(closed, written);
        self.check()?; // whatever else has failed meanwhile, this is not committed (J9)
        let at = self.log.take(closed.tid, 1);
        Ok(self.log.write(at, vec![commit], Durability::Fua).await?)
    }

    /// The commit is about to be written, and from here on a crash may find it: contents that were
    /// written by `epoch` must have been flushed.
    fn check_flushed(&self, closed: &Closed, epoch: FlushEpoch) {
        let durable = closed.ordered.is_empty() || epoch < self.cache.epoch();
        invariant!(self.plant, durable, "J2: contents of {} were not flushed", closed.tid);
    }

    async fn write_ordered(&self, closed: &Closed) -> Result<(), IntegrityError> {
        if closed.ordered.is_empty() || self.plant.is("commit-before-contents") {
            return Ok(());
        }
        let mut left = closed.ordered.clone();
        while !left.is_empty() {
            self.cache.write(left).await?;
            left = self.state.borrow().heads.ordered_left(&closed.ordered);
        }
        Ok(())
    }

    /// Planted bug: the commit does not wait for what it commits.
    async fn write_wrongly(
        &self,
        closed: &Closed,
        mut blocks: Vec<Block>,
        commit: Block,
    ) -> Result<(), IntegrityError> {
        self.write_ordered(closed).await?;
        let at = self.log.take(closed.tid, blocks.len() as u32 + 1);
        blocks.push(commit);
        self.log.write(at, blocks, Durability::Cached).await?;
        self.flush_log().await
    }

    async fn flush_log(&self) -> Result<(), IntegrityError> {
        if self.plant.is("no-commit-flush") {
            return Ok(());
        }
        if self.log.is_internal() {
            Ok(self.cache.flush_device().await?)
        } else {
            Ok(self.log.flush().await?)
        }
    }

    /// The transaction is durable: its blocks may be written back, what it freed may be used.
    fn committed(&self, closed: &Closed) {
        let mut state = self.state.borrow_mut();
        let s: &mut State = &mut state;
        let t = s.committing.take().expect("it is being committed");
        assert_eq!(t.tid, closed.tid, "J7: another transaction was written");
        assert_eq!(t.tid, self.committed.get().next(), "J7: numbers follow each other");
        let covered = self.log.covers(t.tid);
        invariant!(self.plant, covered, "J4: {} is durable, and would not be replayed", t.tid);
        for f in &closed.blocks {
            s.heads.committed(f.block, t.tid, f.extend.is_complete());
            s.logged.insert(f.block.0, t.tid);
        }
        let freed = closed.ordered.iter().map(Buf::block);
        let mut forget: Vec<BlockNo> = freed.filter(|b| s.heads.ordered_done(*b)).collect();
        for e in &t.freed {
            forget.append(&mut s.heads.freed_durably(*e));
            let range = e.start.0..e.start.0 + e.len;
            let known: Vec<u64> = s.logged.range(range).map(|(b, _)| *b).collect();
            known.iter().for_each(|b| {
                s.logged.remove(b);
            });
        }
        s.busy.release(t.tid);
        let older = s.busy.holders().find(|holder| *holder <= t.tid);
        assert!(older.is_none(), "J5: {} is durable, and holds what it has freed", t.tid);
        let oldest = s.heads.oldest();
        let kept = oldest.is_none_or(|o| o >= self.log.tail_tid());
        invariant!(self.plant, kept, "J4: {oldest:?} is needed, and the tail has passed it");
        let next = s.running.tid;
        assert_eq!(next, t.tid.next(), "J7: {} is durable, and {next} runs", t.tid);
        self.committed.set(t.tid);
        drop(state);
        forget.into_iter().for_each(|b| self.cache.forget(b));
    }
}
