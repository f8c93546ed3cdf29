//! The cleaner: makes empty segments by moving what lives out of those that a policy has chosen
//! by the usage table alone (policy.rs); the four verbs (candidates, where a block is now, move it
//! if it is still there, release) are 4.4BSD's. It does not know what blocks hold.

use crate::geometry::{BLOCK_BYTES, SegNo};
use crate::idle::{self, Cleaning};
use crate::pace::STEP_BLOCKS;
use crate::policy::{Candidate, Limits, Plan, Planner, Policy, Way};
use crate::possible::are_different;
use crate::state::{State, Stuck};
use crate::store::{Inner, Store};
use crate::survivors::Survivor;
use crate::usage::{Segment, Use, pause_after};
use env::DiskError;
use std::rc::Rc;

/// When the cleaner works under pressure, and how much at a time. Sprite's began below a few tens
/// of free segments, took a few tens, and ended at 50 to 100 (rosenblum-1992).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Thresholds {
    /// It begins when fewer than so many of a hundred segments are free, beyond what is kept for
    /// the table and for itself,
    pub begin: u32,
    /// and goes on until so many are.
    pub stop: u32,
    /// Segments that a pass empties at most.
    pub victims: u32,
}

impl Default for Thresholds {
    fn default() -> Thresholds {
        Thresholds { begin: 2, stop: 4, victims: u32::MAX }
    }
}

impl Thresholds {
    /// Errors: what cannot be.
    pub fn checked(self) -> Result<Thresholds, String> {
        match self {
            Thresholds { victims: 0, .. } => Err("a pass has a victim at least".into()),
            t if t.begin >= t.stop || t.stop > 50 => {
                Err("it begins below where it stops, which is 50 of 100 at most".into())
            }
            t => Ok(t),
        }
    }
}

/// So many of a hundred segments, and a few at least.
fn part(s: &State, percent: u32) -> u32 {
    (u64::from(s.geometry.segments) * u64::from(percent) / 100).max(3) as u32
}

/// Below so many free segments the cleaner runs.
pub(crate) fn low(s: &State) -> u32 {
    s.reserve() + part(s, s.thresholds.begin)
}
/// It goes on until there are so many.
fn high(s: &State) -> u32 {
    low(s) + part(s, s.thresholds.stop - s.thresholds.begin)
}
/// So many passes one after the other that gain nothing end the cleaning.
const IN_VAIN_MAX: u32 = 3;

/// What passes one after the other have gained.
struct Gain {
    /// When something was gained last: free segments, blocks that users had written, and changes.
    spare: u32,
    used: u64,
    changes: u64,
    /// Passes since then.
    in_vain: u32,
}

impl Gain {
    fn since(s: &State) -> Gain {
        Gain { spare: s.spare(), used: s.pace.used, changes: s.changes(), in_vain: 0 }
    }

    /// After a pass: have the last few gained nothing, neither free segments nor a segment that
    /// users have filled meanwhile?
    fn is_ended(&mut self, s: &State) -> bool {
        let filled = s.pace.used - self.used >= u64::from(s.geometry.segment_blocks);
        if s.spare() > self.spare || filled {
            *self = Gain::since(s);
            return false;
        }
        self.in_vain += 1;
        self.in_vain == IN_VAIN_MAX
    }
}
/// Segments that a pass may fill though operations under way may need them.
const ROOM_LEAST: u32 = 16;
/// Free segments for each of the cleaner's heads, from which on a pass uses all of them.
const SPREAD_FROM: u32 = 3;
/// Victims that a pass may have however little is free.
const VICTIMS_LEAST: u32 = 4;
/// Blocks read into memory in a pass.
const PASS_BLOCKS: u64 = (20 << 20) / BLOCK_BYTES as u64;

/// What a pass is for.
#[derive(Clone, Copy)]
pub(crate) struct Pass {
    pub(crate) policy: Policy,
    /// Segments that are to be freed.
    pub(crate) wanted: u32,
    /// In idle time: it ends when more than so many requests have come.
    pub(crate) idle: Option<u64>,
}

impl Store {
    /// Cleans until nothing is gained, or `segments` have been emptied. Returns how many were.
    pub async fn clean(&self, segments: u32) -> Result<u32, DiskError> {
        let mut emptied = 0;
        while emptied < segments {
            let before = self.inner.state.borrow().spare();
            let (policy, wanted) = (self.inner.options.policy, segments - emptied);
            let done = self.inner.clean_pass(Pass { policy, wanted, idle: None }).await;
            self.inner.pass_ended();
            emptied += done?;
            self.inner.checkpoint().await?;
            self.inner.checkpoint().await?;
            if self.inner.state.borrow().spare() <= before {
                break;
            }
        }
        Ok(emptied)
    }

    /// What the cleaner could take now.
    pub fn candidates(&self) -> Vec<Candidate> {
        self.inner.candidates()
    }
}

impl Inner {
    /// The task: runs until there are enough free segments, or nothing is to be gained.
    pub(crate) async fn clean(self: Rc<Self>) {
        let mut gain = Gain::since(&self.state.borrow());
        loop {
            let (spare, least, goal) = {
                let s = self.state.borrow();
                let least = s.reserve() + s.segments_wanted;
                (s.spare(), least, high(&s).max(least))
            };
            if spare >= goal || self.check_failed().is_err() {
                break;
            }
            // Where the policy's choice has gained nothing, the emptiest are the last resort.
            let policy = if gain.in_vain == 0 { self.options.policy } else { Policy::Greedy };
            if let Err(e) = self.clean_and_release(policy, goal - spare).await {
                self.cleaning_failed(e);
                break;
            }
            self.changed.wake_all();
            let mut s = self.state.borrow_mut();
            if gain.is_ended(&s) {
                let stuck = s.spare() < least && s.changes() == gain.changes;
                let (changes, until, why) =
                    (s.changes(), s.usage.tried_again(self.env.now()), s.no_room());
                if stuck && s.stuck.is_none() {
                    tracing::warn!("changes find no room: {}", why.detail);
                }
                s.stuck = stuck.then_some(Stuck { changes, until, why });
                s.clean_from = s.changes() + u64::from(self.geometry.segment_blocks);
                break;
            }
        }
        let mut s = self.state.borrow_mut();
        assert!(s.cleaning, "I10: the cleaner ends, and nobody has begun it");
        (s.cleaning, s.segments_wanted) = (false, 0);
        drop(s);
        self.changed.wake_all();
    }

    /// What could not be read stops nobody but who waits for room now; the store fails only where a
    /// write or a flush has (I9).
    pub(crate) fn cleaning_failed(&self, e: DiskError) {
        if e.during != "read" || self.check_failed().is_err() {
            self.fail(e);
            return;
        }
        tracing::warn!("segments are not emptied, and it is tried again: {e}");
        let s = &mut *self.state.borrow_mut();
        let until = Some(self.env.now().plus(pause_after(1)));
        s.clean_from = s.changes() + u64::from(self.geometry.segment_blocks);
        s.stuck = Some(Stuck { changes: s.changes(), until, why: e });
    }

    /// One pass, and the checkpoints after which what it emptied is free.
    async fn clean_and_release(
        self: &Rc<Self>,
        policy: Policy,
        wanted: u32,
    ) -> Result<(), DiskError> {
        // What another pass holds is not free before that one ends; this one waits for it.
        let waiting = self.state.borrow().usage.ripening_count();
        let result = async {
            if waiting < wanted && self.options.cleaning != Cleaning::Off {
                let wanted = wanted - waiting;
                self.clean_pass(Pass { policy, wanted, idle: None }).await?;
            }
            self.checkpoint().await?;
            self.worked_checkpoint();
            if self.state.borrow().usage.waiting_count() > 0 {
                self.checkpoint().await?;
            }
            Ok(())
        };
        let result = result.await;
        self.pass_ended();
        result
    }

    /// First verb: closed segments with something dead in them.
    fn candidates(&self) -> Vec<Candidate> {
        let s = self.state.borrow();
        let whole = self.geometry.packed();
        let now = self.env.now();
        let is_cleanable = |g: &Segment| g.used == Use::Closed && !g.is_left_alone(now);
        let may = |g: &Segment| is_cleanable(g) && g.live > 0 && g.live < whole;
        let holes = |n: SegNo, g: &Segment| if s.may_plug(n) { whole - g.live } else { 0 };
        let residents = |n: SegNo, g: &Segment| {
            // A damaged table may lead to more of it than is counted as living.
            s.residents.of(n).min(g.live)
        };
        s.usage
            .all()
            .filter(|(_, g)| may(g))
            .map(|(segment, g)| Candidate {
                segment,
                live: g.live,
                blocks: whole,
                cached: residents(segment, &g),
                holes: holes(segment, &g),
                age: s.stamp.saturating_sub(g.youngest),
            })
            .collect()
    }

    /// Moves what lives out of up to so many segments as are wanted. Returns how many are empty.
    pub(crate) async fn clean_pass(self: &Rc<Self>, pass: Pass) -> Result<u32, DiskError> {
        let _alone = self.passing.lock().await;
        let left = self.state.borrow().to_move;
        assert_eq!(left, 0, "I10: a pass begins where another has blocks to move");
        let plan = self.plan(pass);
        self.check_plan(&plan);
        self.keep_victims(&plan.victims, true);
        let result = self.empty(&plan, pass.idle).await;
        self.keep_victims(&plan.victims, false);
        self.state.borrow_mut().to_move = 0;
        result?;
        self.issue(false);
        let s = &mut *self.state.borrow_mut();
        let is_empty = |c: &&Candidate| s.usage.get(c.segment).live == 0;
        let emptied = plan.victims.iter().filter(is_empty).count() as u32;
        s.stats.cleaned += u64::from(emptied);
        Ok(emptied)
    }

    /// A pass is about to begin: what it empties and what it fills are different, and hold contents
    /// that no head adds to (I12, I13).
    fn check_plan(&self, plan: &Plan) {
        let s = self.state.borrow();
        let all = || plan.victims.iter().chain(&plan.targets).map(|c| c.segment);
        assert!(are_different(all()), "I12: a segment is to be emptied, and emptied or filled too");
        let other = all().find(|seg| s.usage.get(*seg).used != Use::Closed);
        assert!(other.is_none(), "I13: a pass is to have {other:?}, which is not closed");
        let more = plan.victims.iter().find(|c| s.usage.get(c.segment).live != c.live);
        assert!(more.is_none(), "I10: a pass counts what lives in {more:?}, and more does");
    }

    /// Nobody is given these segments until they are let go (I13).
    fn keep_victims(&self, victims: &[Candidate], keep: bool) {
        let s = &mut *self.state.borrow_mut();
        if !s.planted("victim-given-away") {
            victims.iter().for_each(|c| s.usage.reading(c.segment, keep));
        }
    }

    /// Reads the victims, and moves what lives in them.
    async fn empty(
        self: &Rc<Self>,
        Plan { way, victims, targets }: &Plan,
        idle: Option<u64>,
    ) -> Result<(), DiskError> {
        let costs = self.state.borrow().planner.costs();
        let mut survivors = Vec::new();
        for c in victims {
            if self.is_disturbed(idle) {
                return Ok(());
            }
            self.survivors_if_readable(c.segment, &mut survivors).await?;
            self.worked(costs.read_of(c));
        }
        // Cold with cold: what was not written for long goes together.
        survivors.sort_by_key(|s| (s.stamp, s.from));
        match way {
            Way::Plug => self.plug(targets, survivors).await?,
            Way::Clean => self.move_in_steps(survivors, idle).await?,
        }
        self.forget_amended(victims).await
    }

    /// Moves blocks, a few at a time: what others wait for goes to the disk in between.
    pub(crate) async fn move_in_steps(
        self: &Rc<Self>,
        survivors: Vec<Survivor>,
        idle: Option<u64>,
    ) -> Result<(), DiskError> {
        let (costs, whole) = (self.state.borrow().planner.costs(), self.geometry.packed());
        let mut left = survivors.into_iter().peekable();
        while left.peek().is_some() && !self.is_disturbed(idle) {
            let mut moved = 0;
            for b in left.by_ref().take(STEP_BLOCKS) {
                self.move_if_still(b).await?;
                moved += 1;
                let s = &mut *self.state.borrow_mut();
                s.to_move = s.to_move.saturating_sub(1);
            }
            let serial = self.state.borrow().serial;
            self.wait_durable(serial).await?;
            self.worked(f64::from(moved) / f64::from(whole) * costs.segment);
        }
        Ok(())
    }

    /// What the policy takes, within what memory and the reserve allow. Users are told what room
    /// they have meanwhile.
    fn plan(&self, Pass { policy, wanted, idle }: Pass) -> Plan {
        let whole = u64::from(self.geometry.packed());
        let mut candidates = self.candidates();
        if idle.is_some() {
            candidates.retain(idle::is_worth_it);
        }
        let admitted = self.segments_needed(0);
        let s = &mut *self.state.borrow_mut();
        // One more than the blocks fill: a head always has the next one announced. What was
        // admitted has its room (I10), but for a few segments, without which nothing would be
        // gained in a small store: what the table leaves of its own makes up for them.
        let counted = !s.planted("moves-not-counted");
        let admitted = if counted { admitted } else { 0 };
        let table = if counted { s.table_reserve() } else { 0 };
        // Where little is free, all goes to one head.
        let heads = self.geometry.cleaner_heads();
        s.placing.spreads = s.spare() >= table + SPREAD_FROM * heads;
        let kept = table + if s.placing.spreads { heads } else { 1 };
        let left = s.spare().saturating_sub(kept);
        let room = left.saturating_sub(admitted).max(left.min(ROOM_LEAST));
        let moved = (u64::from(room) * whole).min(PASS_BLOCKS);
        let limits = Limits {
            // So that users may write meanwhile what is freed (pace.rs).
            victims: match idle {
                Some(_) => left.min(idle::VICTIMS) as usize,
                None if counted => left.max(VICTIMS_LEAST).min(s.thresholds.victims) as usize,
                None => usize::MAX,
            },
            moved,
            // Each may take a block for what amends its segment.
            plugged: moved,
            freed: u64::from(wanted) * whole,
        };
        let costs = s.planner.costs();
        let plan = if policy == s.planner.policy() {
            s.planner.plan(candidates, &limits)
        } else {
            // The last resort remembers nothing.
            Planner::new(policy, costs, 0).plan(candidates, &limits)
        };
        let live: u64 = plan.victims.iter().map(|c| u64::from(c.live)).sum();
        s.to_move = if plan.way == Way::Clean { live } else { 0 };
        let room = (u64::from(left) * whole).saturating_sub(s.to_move);
        if counted && idle.is_none() {
            s.pace.begin(&plan, room, &costs);
        }
        plan
    }

    /// Third verb: a block goes to the cleaner's head, unless somebody has written it meanwhile.
    async fn move_if_still(self: &Rc<Self>, b: Survivor) -> Result<(), DiskError> {
        loop {
            self.check_failed()?;
            if self.state.borrow().pending.len() >= 8192 {
                self.changed.wait().await;
                continue;
            }
            let base = self.base(b.v, 1).await?;
            let mut s = self.state.borrow_mut();
            if !s.table.is_current(&base) {
                continue;
            }
            if s.table.place(b.v, &base) == Some(b.from) {
                let victim = self.geometry.segment_of(b.from).map(|seg| s.usage.get(seg));
                let kept = victim.is_some_and(|v| v.reads > 0) || s.planted("victim-given-away");
                assert!(kept, "I13: {:?} was given away", b.from);
                let mut block = b.block;
                if s.planted("gc-mixes-dirty")
                    && let Some(p) = s.patches.get(b.v)
                {
                    p.over(&mut block);
                }
                let head = s.head_of_move(b.head, b.stamp);
                s.move_block((b.v, &base), (b.from, b.stamp), (head, block));
            }
            drop(s);
            self.issue(false);
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::geometry::Virt;
    use crate::{FormatOptions, OpenOptions};
    use env::{Block, Disk, Durability, Env, Nanos};
    use sim::timing::Constant;
    use sim::{Image, World, block_on};
    use std::cell::Cell;

    const DISK: u64 = 8 << 20;

    async fn write(store: &Store, v: u64, byte: u8) {
        let mut block = Block::zeroed(BLOCK_BYTES);
        block.bytes_mut().fill(byte);
        let at = v * BLOCK_BYTES as u64;
        store.write(at, vec![block], Durability::Cached).await.unwrap();
    }

    /// Blocks are read of a victim; before they are moved, it empties, and is free behind two
    /// checkpoints. Given away, it is written again, with newer contents of the same blocks at the
    /// same places: what was read is then moved over them. Returns what block 0 holds then.
    async fn emptied_before_it_is_moved(
        (env, disk): (Env, Rc<dyn Disk>),
        plant: Option<&'static str>,
    ) -> u8 {
        let options = FormatOptions {
            uuid: [7; 16],
            segment_bytes: Some(32 << 10),
            virtual_bytes: None,
            heads: None,
            disk: None,
        };
        crate::format(&disk, &options).await.unwrap();
        let options = OpenOptions { plant, ..OpenOptions::default() };
        let store = Store::open(env, disk, options).await.unwrap();
        let inner = &store.inner;
        // A segment has room for a summary and these.
        let write_all = async |first: u64, byte| {
            for v in first..first + 7 {
                write(&store, v, byte).await;
            }
        };
        write_all(0, 1).await;
        write_all(20, 1).await;
        let from = inner.where_now(Virt(0)).await.unwrap().unwrap();
        let victim = inner.geometry.segment_of(from).unwrap();
        let c = Candidate { segment: victim, live: 7, blocks: 7, cached: 0, holes: 0, age: 0 };
        let is_free = || inner.state.borrow().usage.get(victim).used == Use::Free;
        inner.keep_victims(&[c], true);
        store.checkpoint().await.unwrap();
        let mut survivors = Vec::new();
        inner.survivors_of(victim, &mut survivors).await.unwrap();
        assert_eq!(survivors.len(), 7, "all of it lives");
        write_all(0, 2).await;
        write_all(40, 2).await;
        for _ in 0..2 {
            store.checkpoint().await.unwrap();
        }
        assert_eq!(is_free(), plant.is_some(), "I13: nobody is given a victim");
        if is_free() {
            inner.state.borrow_mut().usage.next_is(victim);
            let mut other = 60;
            while inner.where_now(Virt(0)).await.unwrap() != Some(from) {
                write_all(other, 3).await;
                write_all(0, 4).await;
                other = if other == 60 { 80 } else { 60 };
            }
        }
        inner.move_in_steps(survivors, None).await.unwrap();
        inner.keep_victims(&[c], false);
        let now = store.read(0, vec![Block::zeroed(BLOCK_BYTES)]).await.unwrap();
        now[0].bytes()[0]
    }

    #[test]
    fn what_was_read_of_a_victim_is_what_lies_there_when_it_is_moved() {
        let with = |plant: Option<&'static str>| {
            block_on(&mut World::new(Image::new(DISK)), move |env, disk| {
                emptied_before_it_is_moved((env, disk), plant)
            })
        };
        assert_eq!(with(None), 2, "I13");
        assert_eq!(with(Some("victim-given-away")), 1, "the planted bug: old contents are back");
    }

    /// A store of which a third of each segment is dead.
    async fn a_third_dead(env: Env, disk: Rc<dyn Disk>) -> Store {
        let options = FormatOptions {
            uuid: [7; 16],
            segment_bytes: Some(64 << 10),
            virtual_bytes: None,
            heads: None,
            disk: None,
        };
        let blocks = crate::format(&disk, &options).await.unwrap().virtual_blocks;
        let store = Store::open(env, disk, OpenOptions::default()).await.unwrap();
        for (from, step) in [(0, 1), (0, 3)] {
            for v in (from..blocks * 3 / 4).step_by(step) {
                write(&store, v, 1).await;
            }
        }
        store.flush().await.unwrap();
        store
    }

    /// Thresholds say when it begins and ends, and how much a pass takes.
    #[test]
    fn thresholds_bound_a_pass() {
        block_on(&mut World::new(Image::new(DISK)), |env, disk| async move {
            let inner = a_third_dead(env.clone(), disk).await.inner;
            let pass = Pass { policy: Policy::default(), wanted: 9, idle: None };
            let bounds = |inner: &Rc<Inner>| {
                let s = inner.state.borrow();
                (low(&s) - s.reserve(), high(&s) - s.reserve())
            };
            let many = inner.plan(pass).victims.len();
            inner.pass_ended();
            let (begin, stop) = bounds(&inner);
            let victims = 2;
            let asked = Thresholds { begin: 20, stop: 40, victims }.checked().unwrap();
            inner.state.borrow_mut().thresholds = asked;
            let few = inner.plan(pass).victims.len();
            assert!(many > few && few == victims as usize, "{many}, then {few}");
            let (earlier, later) = bounds(&inner);
            assert!(earlier > begin && later > stop && later == 2 * earlier);
        });
    }

    /// What one pass has emptied is free only when that one has ended: who is to make room
    /// meanwhile waits for it, and does not find that nothing is to be gained.
    #[test]
    fn what_another_pass_holds_is_waited_for() {
        block_on(&mut World::new(Image::new(DISK)), |env, disk| async move {
            let inner = a_third_dead(env.clone(), disk).await.inner;
            let pass = inner.passing.lock().await;
            let victims = inner.candidates();
            inner.keep_victims(&victims, true);
            let mut all = Vec::new();
            inner.survivors_of(victims[0].segment, &mut all).await.unwrap();
            inner.move_in_steps(all, None).await.unwrap();
            assert!(inner.state.borrow().usage.waiting_count() > 0, "it has emptied one");
            let before = inner.state.borrow().stats.checkpoints;
            let room = inner.clean_and_release(Policy::default(), 1);
            let later = env.sleep(Nanos::from_secs(9));
            assert_eq!(env::unless(room, later).await, None, "it waits");
            assert_eq!(inner.state.borrow().stats.checkpoints, before);
            inner.keep_victims(&victims, false);
            drop(pass);
            inner.clean_and_release(Policy::default(), 1).await.unwrap();
            assert!(inner.state.borrow().usage.get(victims[0].segment).used == Use::Free);
        });
    }

    /// A pass of idle time that ends, because somebody waits for room, does not make the store
    /// forget what the pass for that one is still to move (I10).
    #[test]
    fn what_a_pass_is_to_move_is_counted_until_it_ends() {
        let mut world = World::new(Image::new(DISK));
        let ms = Nanos::from_millis(1);
        world.set_timings(vec![Box::new(Constant::of(ms, ms, ms, 400_000_000))]);
        block_on(&mut world, |env, disk| async move {
            let inner = a_third_dead(env.clone(), disk).await.inner;
            let policy = Policy::default();
            let running = Rc::new(Cell::new(0));
            let start = |idle, wanted| {
                let (inner, running) = (inner.clone(), running.clone());
                running.set(running.get() + 1);
                env.spawn("pass", async move {
                    inner.clean_pass(Pass { policy, wanted, idle }).await.unwrap();
                    running.set(running.get() - 1);
                });
            };
            let asked = inner.state.borrow().idle.asked;
            start(Some(asked), 8);
            env.sleep(Nanos::from_micros(1500)).await;
            inner.state.borrow_mut().idle.asked += 1;
            start(None, 4);
            while running.get() == 2 {
                env.sleep(Nanos::from_micros(100)).await;
            }
            env.sleep(Nanos::from_micros(500)).await;
            assert_eq!(running.get(), 1, "the pass for who waits is under way");
            assert!(inner.state.borrow().to_move > 0, "I10: and has nothing to move any more");
        });
    }
}
