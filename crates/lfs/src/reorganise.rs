//! Laying what is read together one behind the other, in idle time (matthews-1997, section
//! 5): chains of the graph (graph.rs) are moved as the cleaner moves survivors, in their order. It
//! does not know why blocks are read.
//!
//! Rule        A chain is moved only if the accesses that it has cost weigh more than moving it
//!             does, and while an eighth of the segments is free. What moving has cost and what it
//!             has saved since are kept beside each other: when the former is ahead by more than
//!             [`TRIAL_SEGMENTS`] it ends, until reads have made up for it.
//! Cost        Reading the segments that a chain lies in, writing it, and cleaning what it leaves
//!             behind. Blocks keep their stamps; those whose segment is being written stay.

use crate::clean;
use crate::geometry::{Place, SegNo, Virt};
use crate::graph::{Chain, Graph};
use crate::idle::{Cleaning, Ended, begin};
use crate::state::State;
use crate::store::{Inner, OpenOptions};
use crate::survivors::Survivor;
use crate::usage::Use;
use env::{DiskError, IdMap, Nanos};
use std::collections::BTreeSet;
use std::rc::Rc;

/// An access that is shorter is not worth a move, unless somebody says that it is.
const ACCESS_LEAST: u64 = 1_000_000;
/// Moving may cost so many segments' reading and writing more than it has saved.
const TRIAL_SEGMENTS: f64 = 64.0;
/// What is left behind has to be cleaned some day: segments' reading and writing for each moved.
const CLEANED_LATER: f64 = 2.0;

/// Is it done? On a disk whose access takes long, if nobody says otherwise.
pub(crate) fn is_wanted(options: &OpenOptions) -> bool {
    let slow = options.disk.is_some_and(|d| d.access >= ACCESS_LEAST);
    let may = options.cleaning == Cleaning::Idle && !options.read_only;
    may && options.reorganise.unwrap_or(slow)
}

impl State {
    /// A block of the volume is read from where it lies.
    pub(crate) fn note_order_of_reads(&mut self, v: Virt, place: Place, now: Nanos) {
        let costs = self.planner.costs();
        let disk = (&costs, self.geometry.segment_blocks);
        let Some(graph) = &mut self.graph else { return };
        if v.0 < self.geometry.virtual_blocks && graph.note((v, place), now, disk) {
            self.stats.reorganise_saved += costs.access(self.geometry.segment_blocks) as u64;
        }
    }

    /// Has moving paid so far, but for what it may try?
    fn reorganising_pays(&self) -> bool {
        let trial = TRIAL_SEGMENTS * self.planner.costs().segment;
        self.stats.reorganise_spent as f64 <= self.stats.reorganise_saved as f64 + trial
    }

    /// Is there anything to be looked at, and does looking pay?
    pub(crate) fn wants_to_reorganise(&self) -> bool {
        self.graph.as_ref().is_some_and(|g| g.has_news()) && self.reorganising_pays()
    }

    /// Nanoseconds that moving a chain out of so many segments takes in all.
    fn moving(&self, blocks: usize, segments: usize) -> f64 {
        let written = blocks as f64 / f64::from(self.geometry.packed());
        (segments as f64 + written.ceil() + CLEANED_LATER * written) * self.planner.costs().segment
    }

    /// The chains whose moving pays, by what they have cost.
    fn worth_moving(&mut self) -> Vec<Chain> {
        let (costs, g) = (self.planner.costs(), self.geometry);
        let disk = (&costs, g.segment_blocks);
        let Some(graph) = &mut self.graph else { return Vec::new() };
        let all = graph.chains(g.packed() as usize, disk);
        let all: Vec<(Chain, usize)> = all
            .into_iter()
            .map(|c| {
                let places = graph.places(&c).into_iter();
                let segments: BTreeSet<SegNo> = places.filter_map(|p| g.segment_of(p)).collect();
                (c, segments.len())
            })
            .collect();
        let access = costs.access(g.segment_blocks);
        let pays = |(c, segments): &(Chain, usize)| {
            c.crossed() as f64 * access > self.moving(c.blocks.len(), *segments)
        };
        all.into_iter().filter(pays).map(|c| c.0).collect()
    }
}

impl Inner {
    /// Moves chains, one after the other, until something is asked or no more is to be gained.
    pub(crate) async fn reorganise_while_idle(
        self: &Rc<Self>,
        asked: u64,
    ) -> Result<Ended, DiskError> {
        if !self.state.borrow().wants_to_reorganise() {
            return Ok(Ended::Done);
        }
        let chains = self.state.borrow_mut().worth_moving();
        for chain in chains {
            if self.is_disturbed(Some(asked)) {
                self.state.borrow_mut().graph.iter_mut().for_each(Graph::look_again);
                return Ok(Ended::Disturbed);
            }
            if !self.state.borrow().reorganising_pays() || !self.has_room_to_lay(&chain) {
                break;
            }
            let _alone = self.passing.lock().await;
            let segments = self.hold_segments_of(&chain).await?;
            let result = self.lay(&chain, &segments, asked).await;
            self.let_go(&segments);
            self.state.borrow_mut().to_move = 0;
            result?;
            self.issue(false);
        }
        let disturbed = self.is_disturbed(Some(asked));
        Ok(if disturbed { Ended::Disturbed } else { Ended::Done })
    }

    /// Are so many segments free that neither users nor the cleaner will miss what it takes?
    fn has_room_to_lay(&self, chain: &Chain) -> bool {
        let admitted = self.segments_needed(0);
        let wanted = self.geometry.segments_to_move(chain.blocks.len() as u64);
        let s = self.state.borrow();
        let least = begin(&s).max(clean::low(&s));
        s.spare() > least + admitted + wanted
    }

    /// The closed segments in which its blocks lie now. Nobody is given one from the moment on in
    /// which it is found, until it is let go (I13): to look for the others takes its time.
    async fn hold_segments_of(&self, chain: &Chain) -> Result<BTreeSet<SegNo>, DiskError> {
        let mut all = BTreeSet::new();
        for v in &chain.blocks {
            let place = match self.where_now(*v).await {
                Ok(place) => place,
                Err(e) => {
                    self.let_go(&all);
                    return Err(e);
                }
            };
            let s = &mut *self.state.borrow_mut();
            let found = place.and_then(|p| self.geometry.segment_of(p));
            let may = |seg: &SegNo| {
                let found = s.usage.get(*seg);
                found.used == Use::Closed && !found.is_left_alone(self.env.now())
            };
            if let Some(seg) = found.filter(may)
                && all.insert(seg)
            {
                s.usage.reading(seg, true);
            }
        }
        Ok(all)
    }

    fn let_go(&self, segments: &BTreeSet<SegNo>) {
        let s = &mut *self.state.borrow_mut();
        segments.iter().for_each(|seg| s.usage.reading(*seg, false));
    }

    async fn lay(
        self: &Rc<Self>,
        chain: &Chain,
        segments: &BTreeSet<SegNo>,
        asked: u64,
    ) -> Result<(), DiskError> {
        let order: IdMap<u64, usize> = chain.blocks.iter().map(|v| v.0).zip(0..).collect();
        let (mut survivors, mut of_one) = (Vec::new(), Vec::new());
        for segment in segments {
            if self.is_disturbed(Some(asked)) {
                return Ok(());
            }
            self.survivors_if_readable(*segment, &mut of_one).await?;
            survivors.extend(of_one.drain(..).filter(|s| order.contains_key(&s.v.0)));
        }
        survivors.sort_by_key(|s: &Survivor| order[&s.v.0]);
        {
            let s = &mut *self.state.borrow_mut();
            s.to_move = survivors.len() as u64;
            // All of it goes to one head.
            s.placing.spreads = false;
            s.stats.reorganised += survivors.len() as u64;
            s.stats.reorganise_spent += s.moving(survivors.len(), segments.len()) as u64;
        }
        self.move_in_steps(survivors, Some(asked)).await?;
        let mut places = Vec::with_capacity(chain.blocks.len());
        for v in &chain.blocks {
            places.push(self.where_now(*v).await?);
        }
        if let Some(graph) = &mut self.state.borrow_mut().graph {
            graph.laid(chain, &places);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::{BLOCK_BYTES, FormatOptions, Store};
    use env::{Block, Disk, Durability};
    use sim::timing::Constant;

    async fn write(store: &Store, all: impl Iterator<Item = u64>) {
        for v in all {
            let block = vec![Block::zeroed(BLOCK_BYTES)];
            store.write(v * BLOCK_BYTES as u64, block, Durability::Cached).await.unwrap();
        }
    }

    /// While it is looked where the blocks of a chain lie, the first segment that was found
    /// empties: it is not given away all the same.
    #[test]
    fn segments_are_held_from_when_they_are_found() {
        let mut world = sim::World::new(sim::Image::new(8 << 20));
        let ms = Nanos::from_millis(1);
        world.set_timings(vec![Box::new(Constant::of(ms, ms, ms, 0))]);
        sim::block_on(&mut world, |env, disk| async move {
            let segment_bytes = Some(32 << 10);
            let options = FormatOptions { segment_bytes, ..FormatOptions::default() };
            crate::format(&disk, &options).await.unwrap();
            let options = OpenOptions { table_pages: 2, ..OpenOptions::default() };
            let store = Store::open(env.clone(), disk, options).await.unwrap();
            // A segment, and so much that the table has many pages.
            write(&store, 0..7).await;
            write(&store, (0..900).map(|n| 100 + n * 7 % 900)).await;
            store.checkpoint().await.unwrap();
            // More pages in turn than are kept in memory.
            let far = (0..300).map(|n| [100, 500, 900][n % 3]);
            let blocks = std::iter::once(0).chain(far).map(Virt).collect();
            let chain = Chain { blocks, breaks: Vec::new() };
            let other = store.clone();
            env.spawn("writer", async move {
                write(&other, 0..7).await;
                other.checkpoint().await.unwrap();
                other.checkpoint().await.unwrap();
            });
            let before = store.stats().checkpoints;
            let held = store.inner.hold_segments_of(&chain).await.unwrap();
            assert!(store.stats().checkpoints >= before + 2, "all while it was looked for them");
            let used = |seg: &SegNo| store.inner.state.borrow().usage.get(*seg).used;
            assert!(held.iter().all(|seg| used(seg) == Use::Closed), "I13");
            store.inner.let_go(&held);
        });
    }
}
