//! Plugging: what lives in victims goes into the holes of fuller segments, so that each victim is
//! free for the price of its live blocks. It does not choose which (policy.rs).
//!
//! ```text
//!  victims are read -> plugs are written into holes, by place -> flush
//!      -> the targets' amended summaries, then a record of each plug, in the log
//! ```
//!
//! Safety      A hole is written only if neither checkpoint knows anything in it, so that a crash
//!             falls back to nothing that was there: its block died before the older one began
//!             ([`Deaths`]). Its segment was closed before the older one began, so that no log that
//!             is ever followed has a sum over it. Records follow a flush of the plugs, and count
//!             only if the block is still where it was copied from. Victims stay whole until both
//!             checkpoints say that they are empty (I2), and a target is not given away meanwhile:
//!             it counts as being read.
//! Amended     What a plugged segment holds beside what its summaries say is in a block of its own,
//!             a virtual one behind those of users, so that it is written, moved and freed as any
//!             other: "CLAM", how many (4), then for each: slot (4), stamp (8), virtual block (8).

use crate::codec::{Reader, Writer};
use crate::geometry::{BLOCK_BYTES, Place, SegNo, Virt};
use crate::policy::Candidate;
use crate::state::State;
use crate::store::Inner;
use crate::summary::Summary;
use crate::survivors::Survivor;
use crate::usage::Use;
use env::{Block, DiskError, Durability, IdMap};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Places whose blocks died lately, each with the checkpoint that had begun last by then.
#[derive(Default)]
pub(crate) struct Deaths {
    /// None: nobody asks.
    places: Option<IdMap<u64, u64>>,
    /// All places that are not in the map died before the checkpoint after this one began.
    others: u64,
}

/// Places remembered at most.
const DEATHS_MAX: usize = 1 << 18;

impl Deaths {
    /// From now on they are remembered. `begun`: the last checkpoint begun.
    pub(crate) fn remember(&mut self, begun: u64) {
        (self.places, self.others) = (Some(IdMap::default()), begun);
    }
    pub(crate) fn note(&mut self, place: Place, n: u64, begun: u64) {
        let Some(places) = &mut self.places else { return };
        let before = self.others;
        assert!(before <= begun, "I12: {place:?} died at checkpoint {begun}, others at {before}");
        if places.len() as u64 + n > DEATHS_MAX as u64 {
            // Too many to tell apart: all of them died now.
            places.clear();
            self.others = begun;
            return;
        }
        places.extend((place.0..place.0 + n).map(|p| (p, begun)));
    }
    /// A checkpoint is durable.
    pub(crate) fn forget(&mut self, durable: u64) {
        if let Some(places) = &mut self.places {
            places.retain(|_, begun| durable < *begun + 2);
        }
    }
    /// Do both checkpoints know that nothing lives there?
    fn is_known(&self, place: Place, durable: u64) -> bool {
        let died = self.places.as_ref().and_then(|p| p.get(&place.0)).copied();
        self.places.is_some() && durable >= died.unwrap_or(self.others).max(self.others) + 2
    }
}

/// A block in a slot of a plugged segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Amended {
    pub(crate) slot: u32,
    pub(crate) stamp: u64,
    pub(crate) v: Virt,
}

const MAGIC: [u8; 4] = *b"CLAM";
/// Plugs that a segment has at most.
const AMENDED_MAX: usize = (BLOCK_BYTES - 8) / 20;

fn encode(all: &[Amended]) -> Block {
    let n = all.len();
    assert!(n <= AMENDED_MAX, "I12: {n} plugs of a segment, of which {AMENDED_MAX} can be told");
    let mut w = Writer::default();
    w.bytes(&MAGIC).u32(all.len() as u32);
    for a in all {
        w.u32(a.slot).u64(a.stamp).u64(a.v.0);
    }
    w.0.resize(BLOCK_BYTES, 0);
    Block::copy_of(&w.0)
}

/// What a segment of so many blocks is said to hold: one block a slot, whatever was written there.
fn decode(raw: &[u8], slots: u32) -> Vec<Amended> {
    let mut r = Reader(raw);
    let count = if r.bytes(4) == Some(&MAGIC) { r.u32().unwrap_or(0) } else { 0 };
    let one = |_| Some(Amended { slot: r.u32()?, stamp: r.u64()?, v: Virt(r.u64()?) });
    let all = (0..count.min(AMENDED_MAX as u32)).map_while(one);
    let mut seen = BTreeSet::new();
    all.filter(|a| a.slot < slots && seen.insert(a.slot)).collect()
}

/// A segment with holes.
struct Target {
    segment: SegNo,
    /// What it holds by plugging, as far as it lives.
    amended: Vec<Amended>,
    holes: Vec<Place>,
}

/// A block on its way into a hole.
struct Plug {
    block: Survivor,
    to: Place,
}

impl Inner {
    /// Puts blocks into the holes of `targets`; those for which there is no hole stay where they
    /// are.
    pub(crate) async fn plug(
        self: &Rc<Self>,
        targets: &[Candidate],
        survivors: Vec<Survivor>,
    ) -> Result<(), DiskError> {
        let block = self.state.borrow().planner.costs().block;
        let mut left = survivors.into_iter().peekable();
        let mut held = Vec::new();
        let mut result = Ok(());
        for t in targets {
            if left.peek().is_none() {
                break;
            }
            if !self.hold(t.segment) {
                continue;
            }
            match self.plugs_of(t.segment, &mut left).await {
                Ok(Some(plugged)) => {
                    self.worked(block * plugged.1.len() as f64);
                    held.push((t.segment, plugged));
                }
                Ok(None) => self.state.borrow_mut().usage.reading(t.segment, false),
                Err(e) => {
                    self.state.borrow_mut().usage.reading(t.segment, false);
                    result = Err(e);
                    break;
                }
            }
        }
        if result.is_ok() && self.plant != Some("plug-unflushed") {
            result = self.disk.flush().await;
        }
        for (segment, (target, plugs)) in held {
            if result.is_ok() && !plugs.is_empty() {
                result = self.record(target, plugs).await;
            }
            self.state.borrow_mut().usage.reading(segment, false);
        }
        result
    }

    /// Nobody takes this segment meanwhile. False: it must not be plugged.
    fn hold(&self, segment: SegNo) -> bool {
        let mut s = self.state.borrow_mut();
        let found = s.usage.get(segment);
        let may = s.may_plug(segment) && found.live > 0 && found.reads == 0;
        if may {
            s.usage.reading(segment, true);
        }
        may
    }

    /// Writes blocks into a segment's holes, those one behind the other at once. None: the disk
    /// cannot say what is in it.
    async fn plugs_of(
        &self,
        segment: SegNo,
        left: &mut impl Iterator<Item = Survivor>,
    ) -> Result<Option<(Target, Vec<Plug>)>, DiskError> {
        let target = match self.target(segment).await {
            Ok(target) => target,
            Err(e) => return self.leave_alone(segment, &e).map(|()| None),
        };
        let room = AMENDED_MAX - target.amended.len().min(AMENDED_MAX);
        let holes = target.holes.iter().take(room);
        let plugs: Vec<Plug> = holes.zip(left).map(|(to, block)| Plug { block, to: *to }).collect();
        for p in &plugs {
            let s = self.state.borrow();
            let there = self.geometry.segment_of(p.to);
            assert_eq!(there, Some(segment), "I12: a plug of segment {} goes elsewhere", segment.0);
            let found = s.usage.get(segment);
            let may = s.may_plug(segment) && found.reads > 0 && !s.pending.contains_key(&p.to.0);
            assert!(may, "I12: {:?} is plugged, in a segment that is {found:?}", p.to);
        }
        for run in plugs.chunk_by(|a, b| a.to.plus(1) == b.to) {
            let blocks = run.iter().map(|p| p.block.block.clone()).collect();
            self.disk.write(run[0].to.byte(), blocks, Durability::Cached).await?;
        }
        self.state.borrow_mut().stats.plug_blocks += plugs.len() as u64;
        Ok(Some((target, plugs)))
    }

    /// What is in a segment, by its summaries and what was amended.
    async fn target(&self, segment: SegNo) -> Result<Target, DiskError> {
        let start = self.geometry.start(segment);
        let mut target = Target { segment, amended: Vec::new(), holes: Vec::new() };
        let mut lives: BTreeMap<u64, bool> = BTreeMap::new();
        for s in self.summaries_of(segment).await? {
            for (entry, place) in s.blocks() {
                let whose = self.whose(entry.blocks().0, place).await?;
                lives.insert(place.0, whose.is_some());
            }
        }
        for a in self.amended(segment).await? {
            let place = start.plus(u64::from(a.slot));
            if let Some(v) = self.whose(a.v, place).await? {
                lives.insert(place.0, true);
                target.amended.push(Amended { v, ..a });
            }
        }
        let s = self.state.borrow();
        let found = lives.values().filter(|lives| **lives).count() as u32;
        if found < s.usage.get(segment).live {
            tracing::warn!("segment {}: its summaries know {found} live blocks", segment.0);
            return Ok(target);
        }
        let young = s.usage.durable < s.usage.get(segment).closed + 2;
        let planted =
            s.planted("plug-into-checkpointed-slot") || s.planted("plug-under-live-sum") && young;
        let known = |p: Place| planted || s.deaths.is_known(p, s.usage.durable);
        let dead = lives.iter().filter(|(_, lives)| !**lives).map(|(p, _)| Place(*p));
        target.holes = dead.filter(|p| known(*p) && !s.pending.contains_key(&p.0)).collect();
        Ok(target)
    }

    /// A segment's summaries, read one by one.
    async fn summaries_of(&self, segment: SegNo) -> Result<Vec<Summary>, DiskError> {
        let start = self.geometry.start(segment);
        let (mut all, mut at): (Vec<Summary>, u64) = (Vec::new(), 0);
        while at + 1 < u64::from(self.geometry.segment_blocks) {
            let raw = self.read_blocks(start.plus(at), 1).await?;
            let Some((s, _)) = Summary::decode(raw.bytes(), start.plus(at)) else { break };
            if all.last().is_some_and(|last| last.serial >= s.serial) {
                break;
            }
            at += u64::from(s.payload) + 1;
            if at > u64::from(self.geometry.segment_blocks) {
                break; // what it says lies in it would lie in another
            }
            all.push(s);
        }
        Ok(all)
    }

    /// What was plugged into a segment, in this use of it or an earlier one.
    pub(crate) async fn amended(&self, segment: SegNo) -> Result<Vec<Amended>, DiskError> {
        let v = self.geometry.amended(segment);
        match self.where_now(v).await? {
            None => Ok(Vec::new()),
            Some(_) => {
                let raw = self.read_virtual(v, 1).await?;
                Ok(decode(raw[0].bytes(), self.geometry.segment_blocks))
            }
        }
    }

    /// The amended summary, and the records of the plugs, which are on the disk.
    async fn record(self: &Rc<Self>, target: Target, plugs: Vec<Plug>) -> Result<(), DiskError> {
        let start = self.geometry.start(target.segment).0;
        let new = |p: &Plug| Amended {
            slot: (p.to.0 - start) as u32,
            stamp: p.block.stamp,
            v: p.block.v,
        };
        let all: Vec<Amended> = target.amended.into_iter().chain(plugs.iter().map(new)).collect();
        let slots: BTreeSet<u32> = all.iter().map(|a| a.slot).collect();
        assert_eq!(slots.len(), all.len(), "I12: two blocks are said to lie in one slot");
        let v = self.geometry.amended(target.segment);
        loop {
            self.check_failed()?;
            let base = self.base(v, 1).await?;
            let mut s = self.state.borrow_mut();
            if !s.table.is_current(&base) {
                continue;
            }
            let old = s.table.place(v, &base);
            s.amend(v, encode(&all), old);
            break;
        }
        for Plug { block: b, to } in plugs {
            loop {
                let base = self.base(b.v, 1).await?;
                let mut s = self.state.borrow_mut();
                if !s.table.is_current(&base) {
                    continue;
                }
                if s.table.place(b.v, &base) == Some(b.from) {
                    s.plug_block((b.v, &base), (b.from, b.stamp), to);
                }
                break;
            }
        }
        self.issue(false);
        Ok(())
    }

    /// What victims held beside their summaries is known no more.
    pub(crate) async fn forget_amended(
        self: &Rc<Self>,
        victims: &[Candidate],
    ) -> Result<(), DiskError> {
        for c in victims {
            let v = self.geometry.amended(c.segment);
            let gone = self.state.borrow().usage.get(c.segment).live == 0;
            if gone && self.where_now(v).await?.is_some() {
                self.free_amended(v).await?;
            }
        }
        Ok(())
    }

    async fn free_amended(self: &Rc<Self>, v: Virt) -> Result<(), DiskError> {
        loop {
            let base = self.base(v, 1).await?;
            let mut s = self.state.borrow_mut();
            if s.table.is_current(&base) {
                let e = s.table.extent(v, v.0 + 1, &base);
                s.free_amended(e);
                return Ok(());
            }
        }
    }
}

impl State {
    /// Was it closed before the older checkpoint began?
    pub(crate) fn may_plug(&self, segment: SegNo) -> bool {
        let found = self.usage.get(segment);
        let old = self.usage.durable >= found.closed + 2;
        found.used == Use::Closed && (old || self.planted("plug-under-live-sum"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_amends_a_segment_has_one_block_a_slot() {
        let one = |slot, v| Amended { slot, stamp: 5, v: Virt(v) };
        let raw = encode(&[one(3, 9), one(3, 9), one(8, 1), one(7, 2), one(3, 4)]);
        assert_eq!(decode(raw.bytes(), 8), [one(3, 9), one(7, 2)]);
    }
}
