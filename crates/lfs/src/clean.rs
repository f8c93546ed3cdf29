//! The cleaner: makes empty segments by moving what lives out of those that a policy has chosen
//! by the usage table alone (policy.rs); the four verbs (candidates, where a block is now, move it
//! if it is still there, release) are 4.4BSD's. It does not know what blocks hold.

use crate::geometry::{BLOCK_BYTES, Place, SegNo, Virt};
use crate::policy::{Candidate, Limits, Plan, Planner, Policy, Way};
use crate::state::State;
use crate::store::{Inner, Store};
use crate::summary::{Entry, Summary};
use crate::usage::{Segment, Use};
use env::{Block, DiskError};
use std::rc::Rc;

/// Below so many free segments the cleaner runs.
pub(crate) fn low(s: &State) -> u32 {
    s.reserve() + (s.geometry.segments / 50).max(3)
}
/// It goes on until there are so many.
fn high(s: &State) -> u32 {
    low(s) + (s.geometry.segments / 50).max(3)
}
/// So many passes one after the other that gain nothing end the cleaning.
const IN_VAIN_MAX: u32 = 3;
/// Segments that a pass may fill though operations under way may need them.
const ROOM_LEAST: u32 = 16;
/// Blocks read into memory in a pass.
const PASS_BLOCKS: u64 = (20 << 20) / BLOCK_BYTES as u64;

/// A live block of a victim.
pub(crate) struct Survivor {
    pub(crate) v: Virt,
    pub(crate) stamp: u64,
    pub(crate) from: Place,
    pub(crate) block: Block,
}

impl Store {
    /// Cleans until nothing is gained, or `segments` have been emptied. Returns how many were.
    pub async fn clean(&self, segments: u32) -> Result<u32, DiskError> {
        let mut emptied = 0;
        while emptied < segments {
            let before = self.inner.state.borrow().spare();
            let policy = self.inner.options.policy;
            emptied += self.inner.clean_pass(policy, segments - emptied).await?;
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
        let mut in_vain = 0;
        loop {
            let (before, least, goal) = {
                let s = self.state.borrow();
                let least = s.reserve() + s.segments_wanted;
                (s.spare(), least, high(&s).max(least))
            };
            if before >= goal || self.check_failed().is_err() {
                break;
            }
            // Where the policy's choice has gained nothing, the emptiest are the last resort.
            let policy = if in_vain == 0 { self.options.policy } else { Policy::Greedy };
            if let Err(e) = self.clean_and_release(policy, goal - before).await {
                self.fail(e);
                break;
            }
            self.changed.wake_all();
            let mut s = self.state.borrow_mut();
            in_vain = if s.spare() > before { 0 } else { in_vain + 1 };
            if in_vain == IN_VAIN_MAX {
                let stuck = s.spare() < least;
                s.stuck = stuck.then(|| s.changes());
                s.clean_from = s.changes() + u64::from(self.geometry.segment_blocks);
                break;
            }
        }
        let mut s = self.state.borrow_mut();
        (s.cleaning, s.segments_wanted) = (false, 0);
        drop(s);
        self.changed.wake_all();
    }

    /// One pass, and the checkpoints after which what it emptied is free.
    async fn clean_and_release(
        self: &Rc<Self>,
        policy: Policy,
        wanted: u32,
    ) -> Result<(), DiskError> {
        let waiting = self.state.borrow().usage.waiting_count();
        if waiting < wanted {
            self.clean_pass(policy, wanted - waiting).await?;
        }
        self.checkpoint().await?;
        if self.state.borrow().usage.waiting_count() > 0 {
            self.checkpoint().await?;
        }
        Ok(())
    }

    /// First verb: closed segments with something dead in them.
    fn candidates(&self) -> Vec<Candidate> {
        let s = self.state.borrow();
        let whole = self.geometry.packed();
        let may = |g: &Segment| g.used == Use::Closed && g.live > 0 && g.live < whole;
        let holes = |n: SegNo, g: &Segment| if s.may_plug(n) { whole - g.live } else { 0 };
        s.usage
            .all()
            .filter(|(_, g)| may(g))
            .map(|(segment, g)| Candidate {
                segment,
                live: g.live,
                blocks: whole,
                cached: 0,
                holes: holes(segment, &g),
                age: s.stamp.saturating_sub(g.youngest),
            })
            .collect()
    }

    /// Moves what lives out of up to `wanted` segments. Returns how many are empty.
    async fn clean_pass(self: &Rc<Self>, policy: Policy, wanted: u32) -> Result<u32, DiskError> {
        let Plan { way, victims, targets } = self.plan(policy, wanted);
        let live = victims.iter().map(|c| u64::from(c.live)).sum();
        self.state.borrow_mut().to_move = if way == Way::Clean { live } else { 0 };
        let mut survivors = Vec::new();
        for c in &victims {
            self.survivors_of(c.segment, &mut survivors).await?;
        }
        // Cold with cold: what was not written for long goes together.
        survivors.sort_by_key(|s| (s.stamp, s.from));
        match way {
            Way::Plug => self.plug(&targets, survivors).await?,
            Way::Clean => {
                for b in survivors {
                    self.move_if_still(b).await?;
                    let s = &mut *self.state.borrow_mut();
                    s.to_move = s.to_move.saturating_sub(1);
                }
            }
        }
        self.forget_amended(&victims).await?;
        self.issue(false);
        let s = &mut *self.state.borrow_mut();
        s.to_move = 0;
        let emptied = victims.iter().filter(|c| s.usage.get(c.segment).live == 0).count() as u32;
        s.stats.cleaned += u64::from(emptied);
        Ok(emptied)
    }

    /// What the policy takes, within what memory and the reserve allow.
    fn plan(&self, policy: Policy, wanted: u32) -> Plan {
        let whole = u64::from(self.geometry.packed());
        let candidates = self.candidates();
        let admitted = self.segments_needed(0);
        let s = &mut *self.state.borrow_mut();
        // One more than the blocks fill: a head always has the next one announced. What was
        // admitted has its room (I10), but for a few segments, without which nothing would be
        // gained in a small store: what the table leaves of its own makes up for them.
        let admitted = if s.planted("moves-not-counted") { 0 } else { admitted };
        let left = s.spare().saturating_sub(s.table_reserve() + 1);
        let room = left.saturating_sub(admitted).max(left.min(ROOM_LEAST));
        let moved = (u64::from(room) * whole).min(PASS_BLOCKS);
        let limits = Limits {
            victims: usize::MAX,
            moved,
            // Each may take a block for what amends its segment.
            plugged: moved,
            freed: u64::from(wanted) * whole,
        };
        if policy == s.planner.policy() {
            return s.planner.plan(candidates, &limits);
        }
        // The last resort remembers nothing.
        Planner::new(policy, s.planner.costs(), 0).plan(candidates, &limits)
    }

    /// Second verb: the blocks of a segment that still lie where its summaries say.
    async fn survivors_of(&self, segment: SegNo, out: &mut Vec<Survivor>) -> Result<(), DiskError> {
        let (start, blocks) = (self.geometry.start(segment), self.geometry.segment_blocks);
        self.state.borrow_mut().usage.reading(segment, true);
        let raw = self.read_blocks(start, u64::from(blocks)).await;
        self.state.borrow_mut().usage.reading(segment, false);
        let raw = raw?;
        self.state.borrow_mut().stats.read_to_clean += u64::from(blocks);
        let part = |i: u64| {
            let at = i as usize * BLOCK_BYTES;
            &raw.bytes()[at..at + BLOCK_BYTES]
        };
        let amended = self.amended(segment).await?;
        let plugged = amended.iter().map(|a| (a.v, a.stamp, start.plus(u64::from(a.slot))));
        let mut named: Vec<(Virt, u64, Place)> = plugged.collect();
        for summary in summaries(raw.bytes(), start) {
            named.extend(summary.blocks().filter_map(|(entry, place)| match entry {
                Entry::Written { v, stamp } | Entry::Moved { v, stamp, .. } => {
                    Some((v, stamp, place))
                }
                _ => None,
            }));
        }
        for (v, stamp, from) in named {
            if let Some(v) = self.whose(v, from).await? {
                let block = Block::copy_of(part(from.0 - start.0));
                out.push(Survivor { v, stamp, from, block });
            }
        }
        Ok(())
    }

    /// The block that lies there: the one that was put there, or a snapshot's of the same number to
    /// which it was given since; None: it is dead.
    pub(crate) async fn whose(&self, put: Virt, at: Place) -> Result<Option<Virt>, DiskError> {
        let (_, v) = self.geometry.owner(put);
        let mut all = vec![v];
        if v.0 < self.geometry.virtual_blocks {
            let s = self.state.borrow();
            all.extend(s.snapshots.all.iter().map(|s| self.geometry.own_block(s.id, v)));
        } else if v.0 >= self.geometry.known_blocks() {
            return Ok(None);
        }
        for v in all {
            if self.where_now(v).await? == Some(at) {
                return Ok(Some(v));
            }
        }
        Ok(None)
    }

    pub(crate) async fn where_now(&self, v: Virt) -> Result<Option<Place>, DiskError> {
        loop {
            let base = self.base(v, 1).await?;
            let s = self.state.borrow();
            if s.table.is_current(&base) {
                return Ok(s.table.place(v, &base));
            }
        }
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
                let mut block = b.block;
                if s.planted("gc-mixes-dirty")
                    && let Some(p) = s.patches.get(b.v)
                {
                    p.over(&mut block);
                }
                s.move_block(b.v, (b.from, b.stamp), block);
            }
            drop(s);
            self.issue(false);
            return Ok(());
        }
    }
}

/// The summaries of a segment's present use, front to back: their serials rise. What an earlier use
/// left behind them does no harm: whether a block lives is for the table to say.
pub(crate) fn summaries(segment: &[u8], start: Place) -> Vec<Summary> {
    let (mut all, mut at): (Vec<Summary>, usize) = (Vec::new(), 0);
    while let Some(raw) = segment.get(at..at + BLOCK_BYTES) {
        let Some((s, _)) = Summary::decode(raw, start.plus((at / BLOCK_BYTES) as u64)) else {
            break;
        };
        if all.last().is_some_and(|last| last.serial >= s.serial) {
            break;
        }
        at += (s.payload as usize + 1) * BLOCK_BYTES;
        if at > segment.len() {
            break;
        }
        all.push(s);
    }
    all
}
