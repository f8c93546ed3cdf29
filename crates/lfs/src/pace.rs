//! Pacing: who waits for room is served in the order in which he came, and while a pass of the
//! cleaner is under way, writers get its room bit by bit, as its work is done. It does not know
//! which blocks are moved, nor what is written.
//!
//! Rule        Of the blocks that users may write while a pass lasts, the part whose share of the
//!             pass's work is done, and a little ahead, may have been written.
//! Terms       *room of a pass*: what is free when it begins, less what it will write itself; a
//!             pass has no more victims than free segments, so its room is at least what it frees.
//!             *work*: nanoseconds that it is expected to take, by the costs of the disk.
//! Bound       Who has `n` blocks before him, his own included, waits for `n / room` of a pass, and
//!             for one step of it: the reading of a victim, [`STEP_BLOCKS`] moved and flushed, or
//!             what a checkpoint asks of the disk. Nobody waits for more than a pass and those
//!             before him, unless it gains nothing.
//! Cost        A flush for each step of a pass, which those share who wait for one anyway.

use crate::policy::{Costs, Plan, Way};
use crate::store::Inner;
use env::DiskError;
use std::rc::Rc;

/// The cleaner moves so many blocks, and then waits until they are durable.
pub(crate) const STEP_BLOCKS: usize = 128;
/// Part of a pass's room that users have before any of its work is done.
const AHEAD: f64 = 1.0 / 8.0;
/// Operations keep room for the most that they may write: one block is written for so many kept.
const KEPT_FOR_EACH: u64 = 8;
/// What the two checkpoints behind a pass ask of the disk.
const CHECKPOINT_REQUESTS: f64 = 4.0;

/// A pass that is under way.
struct Pass {
    /// Blocks that users may write while it lasts, and those that they had written before.
    room: u64,
    before: u64,
    /// Nanoseconds of work: all, and done.
    work: f64,
    done: f64,
}

/// What a group is to do, as far as its room goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// More blocks may hold something afterwards.
    More,
    /// What holds something is changed, or holds nothing afterwards.
    NoMore,
}

/// How far users and the cleaner have come.
#[derive(Default)]
pub(crate) struct Pace {
    /// Blocks of log that users have written since the store was opened.
    pub(crate) used: u64,
    pass: Option<Pass>,
}

impl Pace {
    /// A pass begins, during which users may write `room` blocks.
    pub(crate) fn begin(&mut self, plan: &Plan, room: u64, costs: &Costs) {
        let victims: f64 = plan.victims.iter().map(|c| costs.read_of(c)).sum();
        let counted: f64 = plan.victims.iter().map(|c| costs.read(c)).sum();
        let moved = match plan.way {
            Way::Clean => costs.clean(&plan.victims).0 - counted,
            Way::Plug => costs.plug(&plan.victims).0 - counted,
        };
        let work = victims + moved.max(0.0) + 2.0 * CHECKPOINT_REQUESTS * costs.block;
        assert!(work.is_finite() && work > 0.0, "a pass takes its time: {work} ns");
        self.pass = Some(Pass { room, before: self.used, work, done: 0.0 });
    }

    /// May one group more be put, while so many blocks are kept for others?
    fn allows(&self, kept: u64) -> bool {
        let Some(p) = &self.pass else { return true };
        let part = (p.done / p.work + AHEAD).min(1.0);
        let (now, before) = (self.used, p.before);
        assert!(before <= now, "I10: users have written {now} blocks, and had {before}");
        let used = now - before + kept / KEPT_FOR_EACH;
        (used as f64) < p.room as f64 * part
    }
}

impl Inner {
    /// The cleaner has worked for so many nanoseconds, as the disk's costs have it.
    pub(crate) fn worked(&self, nanos: f64) {
        assert!(nanos >= 0.0, "work that was done stays done: {nanos} ns");
        if let Some(p) = &mut self.state.borrow_mut().pace.pass {
            p.done += nanos;
        }
        self.changed.wake_all();
    }

    /// The same for one of the checkpoints behind a pass.
    pub(crate) fn worked_checkpoint(&self) {
        let block = self.state.borrow().planner.costs().block;
        self.worked(CHECKPOINT_REQUESTS * block);
    }

    /// The pass, and the checkpoints behind it, have ended.
    pub(crate) fn pass_ended(&self) {
        self.state.borrow_mut().pace.pass = None;
        self.changed.wake_all();
    }

    /// Waits until there is room for a group of so many blocks, and keeps it; returns what was
    /// kept. Errors: there will be none until something is freed; or the store has failed.
    pub(crate) async fn admit(
        self: &Rc<Self>,
        blocks: u64,
        purpose: Purpose,
    ) -> Result<u64, DiskError> {
        let kept = with_summaries(blocks);
        let _asking = self.asked();
        let began = self.env.now();
        let _turn = self.turns.lock().await;
        loop {
            self.check_failed()?;
            if purpose == Purpose::More && !self.state.borrow().may_hold_more(kept)? {
                self.changed.wait().await;
                continue;
            }
            if !self.may_put(kept, purpose)? {
                self.make_room(kept, purpose).await;
                continue;
            }
            if self.is_in_pace() {
                break;
            }
            self.changed.wait().await;
        }
        let s = &mut *self.state.borrow_mut();
        s.reserved += kept;
        s.stats.wait_max = s.stats.wait_max.max(self.env.now().since(began).0);
        Ok(kept)
    }

    /// Would [`Inner::admit`] return at once, for what adds nothing?
    pub(crate) fn admits_now(&self, blocks: u64) -> bool {
        let may_put = self.may_put(with_summaries(blocks), Purpose::NoMore).unwrap_or(false);
        may_put && self.is_in_pace() && !self.turns.is_busy()
    }

    fn is_in_pace(&self) -> bool {
        let s = self.state.borrow();
        s.pace.allows(s.reserved)
    }

    /// Gives back what was kept for a group.
    pub(crate) fn release(&self, kept: u64) {
        let s = &mut *self.state.borrow_mut();
        assert!(s.reserved >= kept, "I10: {kept} of {} blocks are given back", s.reserved);
        s.reserved -= kept;
        self.changed.wake_all();
    }
}

/// What is kept for so many blocks of a group: its summaries too.
fn with_summaries(blocks: u64) -> u64 {
    blocks + blocks / 64 + 2
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::geometry::SegNo;
    use crate::policy::Candidate;
    use crate::{FormatOptions, OpenOptions, Store};
    use env::{Nanos, unless};

    /// Who waits until others give back what is kept for them hears of it when the disk fails: they
    /// may never give it back.
    #[test]
    fn who_waits_for_room_on_a_thin_volume_hears_of_a_failure() {
        let mut world = sim::World::new(sim::Image::new(8 << 20));
        sim::block_on(&mut world, |env, disk| async move {
            let (segment_bytes, virtual_bytes) = (Some(32 << 10), Some(64 << 20));
            let options = FormatOptions { segment_bytes, virtual_bytes, ..Default::default() };
            crate::format(&disk, &options).await.unwrap();
            let store = Store::open(env.clone(), disk, OpenOptions::default()).await.unwrap();
            let soon = || env.sleep(Nanos::from_secs(5));
            let n = store.group_blocks_max();
            while unless(store.reserve(n), soon()).await.is_some() {}
            let inner = store.inner.clone();
            env.spawn(
                "the disk fails",
                async move { inner.fail(crate::snapshot::refused("gone")) },
            );
            let heard = unless(store.reserve(n), soon()).await;
            assert!(matches!(heard, Some(Err(_))), "{heard:?}");
        });
    }

    #[test]
    fn users_get_the_room_of_a_pass_as_its_work_is_done() {
        let costs = Costs::new(10e6, 100e6, 1 << 20, 4096);
        let victim =
            Candidate { segment: SegNo(0), live: 100, blocks: 200, cached: 0, holes: 0, age: 0 };
        let plan = Plan { way: Way::Clean, victims: vec![victim; 4], targets: Vec::new() };
        let mut pace = Pace { used: 1000, ..Pace::default() };
        assert!(pace.allows(0), "nothing is under way");
        pace.begin(&plan, 400, &costs);
        let all = pace.pass.as_ref().map_or(0.0, |p| p.work);
        assert!(all > 6.0 * costs.segment && all < 10.0 * costs.segment, "{all}");
        let mut may_use = |done: f64| {
            pace.pass.iter_mut().for_each(|p| p.done = done);
            pace.used = 1000;
            while pace.allows(0) && pace.used < 2000 {
                pace.used += 1;
            }
            pace.used - 1000
        };
        assert_eq!(may_use(0.0), 50);
        assert_eq!(may_use(all / 2.0), 250);
        assert_eq!(may_use(all * 2.0), 400, "and no more");
        pace.pass = None;
        assert!(pace.allows(0));
    }
}
