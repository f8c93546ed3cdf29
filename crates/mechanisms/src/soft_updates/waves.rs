//! Waves: all that is due is written, then one flush. Who makes something durable follows what it
//! waits for and writes no other blocks than those, as often as that takes.

use super::graph::NodeId;
use super::intents::Appended;
use super::order::{NAMES, UNNAMES};
use super::{IDLE_WAVES_MAX, SoftUpdates};
use crate::touched::Known;
use cache::{Buf, BufKind, WriteGate};
use env::{DiskError, DiskErrorKind};
use format::Ino;
use integrity::{Ended, FileScope, IntegrityError, TxnId};
use std::collections::BTreeSet;

/// What who makes something durable does where that hangs on an operation which has not ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnOpen {
    /// Waits for its end.
    Wait,
    /// Leaves it: he has an operation open himself, for whose end that one may wait.
    GiveUp,
}

/// So many operations together make room for whoever finds none.
const OLDEST: usize = 64;

impl SoftUpdates {
    /// Writes down durably what the operations that have ended may leave half done (J1).
    pub(super) async fn write_intents(&self) -> Result<(), IntegrityError> {
        let Some(intents) = &self.intents else { return Ok(()) };
        match intents.append().await {
            Ok(Appended::These(txns)) => self.graph.borrow_mut().logged(&txns),
            Ok(Appended::All) => {
                assert!(!intents.is_on(), "J4: operations go without intents, which are believed");
                self.graph.borrow_mut().log_all();
            }
            Err(_) if self.plant.is("failed-intents-forgotten") => {
                self.graph.borrow_mut().log_all();
            }
            Err(e) => {
                self.stop(&e);
                return Err(e);
            }
        }
        Ok(())
    }

    /// A log that fails stops the volume, as its disk would (I8): whose intents it has lost may not
    /// be seen any more, nor what stands on them.
    pub(super) fn stop(&self, e: &IntegrityError) {
        if let IntegrityError::Disk(e) = e {
            self.cache.fail(e);
        } else {
            let (kind, detail) = (DiskErrorKind::Io, e.to_string());
            self.cache.fail(&DiskError { kind, during: "log access", at: 0, detail });
        }
    }

    /// Writes blocks, those of `forced` with whatever has to be left out, and flushes.
    pub(super) async fn wave(&self, bufs: Vec<Buf>, forced: &[Buf]) -> Result<(), IntegrityError> {
        self.waves.set(self.waves.get() + 1);
        self.cancel_gone();
        self.write_intents().await?;
        let mut all = bufs;
        all.extend_from_slice(forced);
        // A block that an open operation has freed is clean; who waits for what is in it goes on.
        for buf in all.iter().filter(|b| !b.is_dirty()) {
            if self.graph.borrow().is_waiting(buf.block()) {
                buf.mark_dirty(); // I7
            }
        }
        self.force(forced, true);
        let written = self.write_forced(all, forced).await;
        self.force(forced, false);
        written?;
        if self.plant.is("sync-skips-flush") {
            return Ok(());
        }
        Ok(self.cache.flush_device().await?)
    }

    /// Writes blocks, and those of `forced` again that were freed while they were on their way.
    async fn write_forced(&self, all: Vec<Buf>, forced: &[Buf]) -> Result<(), DiskError> {
        self.cache.write(all).await?;
        let dropped = self.busy.borrow().take_back_dropped(forced);
        self.cache.write(dropped).await
    }

    /// Makes nodes durable, and what `plain` blocks hold besides; always flushes. The waves are
    /// those of all who wait.
    async fn make_durable(
        &self,
        wanted: Vec<NodeId>,
        plain: Vec<Buf>,
    ) -> Result<(), IntegrityError> {
        self.try_durable(wanted, plain, OnOpen::Wait).await.map(drop)
    }

    /// Changes whenever a wave may do more than the one before: an operation may have ended while
    /// that was on its way.
    fn progress(&self) -> ((usize, u64, u64), u64) {
        (self.graph.borrow().progress(), self.ends.get())
    }

    /// A wave has changed nothing, and there were `idle` such before it. If an operation has not
    /// ended, what is wanted hangs on that, and its end is waited for: it may be in the middle of a
    /// slow read, and no wave hastens that. False: that is not waited for.
    async fn is_worth_another(&self, idle: &mut u32, on_open: OnOpen) -> bool {
        if !self.graph.borrow().has_open() {
            *idle += 1;
            assert!(*idle < IDLE_WAVES_MAX, "a wave makes progress (I3)");
        } else if on_open == OnOpen::GiveUp {
            return false;
        } else {
            self.ended.wait().await;
        }
        true
    }

    /// As [`SoftUpdates::make_durable`]; false if something of it hangs on an operation that has
    /// not ended, and who asks gives up then.
    async fn try_durable(
        &self,
        wanted: Vec<NodeId>,
        plain: Vec<Buf>,
        on_open: OnOpen,
    ) -> Result<bool, IntegrityError> {
        let mut wanted: Vec<NodeId> = {
            let graph = self.graph.borrow();
            wanted.into_iter().filter(|id| graph.is_over(*id)).collect()
        };
        let (asked, mut idle) = (self.waiting.ask(wanted.clone(), plain), 0);
        loop {
            if let Some(e) = self.cache.failure().filter(|_| !self.plant.is("failed-wave-serves")) {
                return Err(e.into()); // I8: a wave that another led, too
            }
            wanted.retain(|id| self.graph.borrow().has(*id));
            let skips = self.plant.is("sync-skips-flush");
            if self.waiting.is_served(&asked) && (wanted.is_empty() || skips) {
                return Ok(true);
            }
            let Some((all, plain)) = self.waiting.begin() else {
                self.waiting.wait().await;
                continue;
            };
            self.cancel_gone();
            let before = (wanted.len(), self.progress());
            let next = self.graph.borrow().next_blocks(&all);
            let led = self.wave(next, &plain).await;
            if led.is_ok() || self.plant.is("failed-wave-serves") {
                self.waiting.end();
            } else {
                self.waiting.give_up(plain, self.plant);
                self.ended.wake_all(); // they hear of the failure
            }
            led?;
            wanted.retain(|id| self.graph.borrow().has(*id));
            if before != (wanted.len(), self.progress()) {
                idle = 0;
                self.ended.wake_all();
            } else if !self.is_worth_another(&mut idle, on_open).await {
                return Ok(false);
            }
        }
    }

    pub(super) async fn sync_files(
        &self,
        files: &[FileScope],
        data_only: bool,
    ) -> Result<(), IntegrityError> {
        let Some(first) = files.first() else { return Ok(()) };
        let mut wanted = BTreeSet::new();
        let mut plain: Vec<Buf> = self.cache.dirty_of(first.ino);
        {
            let (graph, directories) = (self.graph.borrow(), self.directories.borrow());
            wanted.extend(graph.names_in(first.ino));
            let is_old_name = |id: &NodeId| graph.node(*id).is_some_and(|n| n.step == UNNAMES);
            wanted.extend(graph.owned_by(first.ino).filter(|id| !is_old_name(id)));
            // The others are directories. One with two names after a crash loses one, and what is
            // below it must not be looked for under that.
            let skips = self.plant.is("sync-skips-old-names");
            for f in &files[1..] {
                let own = graph.owned_by(f.ino);
                wanted.extend(own.filter(|id| !(skips && is_old_name(id))));
            }
            let dirs: Vec<Ino> = wanted
                .iter()
                .filter_map(|id| graph.node(*id))
                .flat_map(|n| n.names_in.iter().copied())
                .collect();
            dirs.into_iter().for_each(|d| wanted.extend(directories.reach(d, &graph)));
            if self.plant.is("sync-skips-names") {
                wanted.retain(|id| graph.node(*id).is_none_or(|n| n.step < NAMES));
            }
            plain.retain(|b| b.kind() == BufKind::Data || !graph.is_waiting(b.block()));
        }
        if !(data_only && wanted.is_empty()) {
            plain.extend(files.iter().filter_map(|f| self.cache.get_cached(f.inode_block)));
        }
        self.make_durable(wanted.into_iter().collect(), plain).await
    }

    pub(super) async fn sync_txn(&self, ended: Ended) -> Result<(), IntegrityError> {
        let txn = TxnId::from(ended);
        let mut wanted: Vec<NodeId> = Vec::new();
        let known = self.touched.borrow_mut().take(txn);
        {
            let (graph, directories) = (self.graph.borrow(), self.directories.borrow());
            let nodes = graph.operation(txn).map(|op| op.nodes.clone()).unwrap_or_default();
            let concerns = |id: &NodeId| {
                graph.node(*id).is_some_and(|n| !n.own.is_empty() || !n.names_in.is_empty())
            };
            wanted.extend(nodes.into_iter().filter(concerns));
            if let Known::All(trace) = &known {
                trace.dirs.iter().for_each(|d| wanted.extend(directories.reach(*d, &graph)));
                // What is taken back in an image takes attributes with it that lie in its bytes.
                let of = trace.inodes.iter().flat_map(|i| graph.owned_by(*i));
                wanted.extend(of.filter(|id| trace.blocks.iter().any(|b| graph.is_in(*id, *b))));
            }
        }
        match known {
            Known::All(trace) => {
                // Those that are not in memory any more are clean.
                let bufs = trace.blocks.iter().filter_map(|b| self.cache.get_cached(*b)).collect();
                self.make_durable(wanted, bufs).await
            }
            Known::Nothing => self.all_durable(true).await,
            Known::Clean if wanted.is_empty() => Ok(()),
            Known::Clean => self.make_durable(wanted, Vec::new()).await,
        }
    }

    /// Makes reusable what the oldest operations have freed: they are made durable, with what they
    /// wait for and nothing else. Whoever finds another at it waits, and has what that one made.
    pub(super) async fn make_room(&self) -> Result<(), IntegrityError> {
        let before = self.retired.get();
        let _turn = self.room_turn.lock().await;
        if self.retired.get() != before {
            return Ok(());
        }
        let oldest: Vec<(TxnId, Vec<NodeId>)> = {
            let (busy, graph) = (self.busy.borrow(), self.graph.borrow());
            let ended = busy.holders().filter(|txn| graph.has_ended(*txn));
            let waits = ended.map(|txn| (txn, graph.before_release(txn)));
            // What waits for an operation that is open cannot be forced.
            let whole = |w: &(TxnId, Vec<NodeId>)| {
                w.1.iter().any(|id| graph.has(*id)) && !graph.hangs_on_open(&w.1)
            };
            waits.filter(whole).take(OLDEST).collect()
        };
        if oldest.is_empty() {
            return Ok(());
        }
        let wanted = oldest.iter().flat_map(|(_, nodes)| nodes).copied().collect();
        // Who asks has an operation open, and others that wait for room have, too.
        if !self.try_durable(wanted, Vec::new(), OnOpen::GiveUp).await? {
            return Ok(());
        }
        let held = oldest.iter().find(|(txn, _)| self.busy.borrow().holders().any(|t| t == *txn));
        let skips = self.plant.is("sync-skips-flush");
        assert!(held.is_none() || skips, "I4: {held:?} is durable, and holds what it has freed");
        Ok(())
    }

    /// Writes until everything that has ended by now is durable; with `plain`, also what needs no
    /// order.
    pub(super) async fn all_durable(&self, plain: bool) -> Result<(), IntegrityError> {
        let last = self.last_txn.get();
        let mut idle = 0;
        loop {
            let before = self.progress();
            self.keep_all_freed();
            self.wave(self.cache.dirty_all(), &[]).await?;
            let left = self.graph.borrow().oldest_ended().is_some_and(|txn| txn <= last);
            if !left || self.plant.is("sync-skips-flush") {
                break;
            }
            if before != self.progress() {
                idle = 0;
                self.ended.wake_all();
            } else {
                self.is_worth_another(&mut idle, OnOpen::Wait).await;
            }
        }
        let rest = if plain { self.cache.dirty_all() } else { Vec::new() };
        if !rest.is_empty() {
            self.wave(Vec::new(), &rest).await?;
        }
        Ok(())
    }
}
