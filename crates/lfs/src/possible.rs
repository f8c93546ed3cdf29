//! Can what was read from the disk be? A checksum says that it is as somebody wrote it, and not
//! that it was a store that did. What cannot be is damage, before anything is done by it. It asks
//! no disk.

use crate::checkpoint::Body;
use crate::extents::Extent;
use crate::geometry::{BLOCK, Geometry, SegNo, Virt};
use crate::measure::Speed;
use crate::run::{Chunk, PAGE_EXTENTS, Run};
use crate::summary::{Entry, Summary};
use std::collections::BTreeSet;

/// Numbers that are counted up from 0 never come as far.
const COUNTED_MAX: u64 = 1 << 60;
/// Runs of a table at most, whatever program has written it.
const RUNS_MAX: usize = 64;

impl Body {
    /// Is it a body of a store of this shape? Errors: what of it is not.
    pub(crate) fn check(&self, g: &Geometry) -> Result<(), &'static str> {
        let must = |is_right: bool, what| if is_right { Ok(()) } else { Err(what) };
        let counted = [self.generation, self.serial.0, self.epoch.0, self.stamp];
        must(counted.iter().all(|n| *n < COUNTED_MAX), "a counter")?;
        must(self.segments.len() == g.segments as usize, "the usage table's length")?;
        must(self.segments.iter().all(|s| s.is_possible(g, self.stamp)), "the usage table")?;
        must(self.are_heads_possible(g), "a head")?;
        let ranges = self.ranges.iter().all(|(v, _)| v.0 < g.virtual_blocks);
        must(ranges, "the block of a range")?;
        must(self.are_runs_possible(g), "a run")?;
        let snapshots = self.snapshots.last <= g.snapshots_max();
        must(snapshots && self.snapshots.all.iter().all(|s| s.id > 0), "a snapshot's number")
    }

    /// Each page of each run has a block of its own, and each extent a place in a page.
    fn are_runs_possible(&self, g: &Geometry) -> bool {
        let pages: u64 = self.runs.iter().map(|r| r.1 as u64).sum();
        let fits = |(run, pages): &(Run, usize)| {
            let pages = *pages as u64;
            (pages..=pages * PAGE_EXTENTS as u64).contains(&run.extents)
        };
        self.runs.len() <= RUNS_MAX && pages <= g.blocks() && self.runs.iter().all(fits)
    }

    /// Each head has two segments of its own, which hold contents or nothing.
    fn are_heads_possible(&self, g: &Geometry) -> bool {
        let all = || self.heads.iter().flat_map(|h| [h.0, h.2]);
        let open = |n: SegNo| self.segments.get(n.0 as usize).is_some_and(|s| !s.free && !s.table);
        self.heads.len() == usize::from(g.heads)
            && all().all(open)
            && are_different(all())
            && self.heads.iter().all(|h| {
                let live = |n: SegNo| self.segments.get(n.0 as usize).map_or(0, |s| s.live);
                h.1 <= g.segment_blocks && live(h.0) <= h.1 && live(h.2) == 0
            })
    }
}

impl crate::checkpoint::SavedSegment {
    fn is_possible(&self, g: &Geometry, stamp: u64) -> bool {
        let empty = self.live == 0 || !(self.free || self.table);
        empty && self.live < g.segment_blocks && self.youngest <= stamp
    }
}

impl Run {
    /// Can it have this index, of so many pages: in order, and each in a segment?
    pub(crate) fn is_possible(&self, pages: usize, g: &Geometry) -> bool {
        let rises = self.pages.windows(2).all(|w| w[0].0 < w[1].0);
        let lie = self.pages.iter().all(|p| g.segment_of(p.1).is_some());
        self.pages.len() == pages && rises && lie
    }
}

impl Summary {
    /// Can a log of a store of this shape have it? Errors: what of it cannot be.
    pub(crate) fn check(&self, g: &Geometry) -> Result<(), &'static str> {
        let counted = [self.serial.0, self.epoch.0, self.stamp];
        if !counted.iter().all(|n| *n < COUNTED_MAX) {
            return Err("a counter");
        }
        let right = |e: &Entry| {
            let (v, n) = e.blocks();
            let is_own = |v: Virt| g.owner(v).0 > 0;
            g.are_blocks(v, n)
                && match e {
                    Entry::Range { v, .. } => v.0 < g.virtual_blocks,
                    Entry::Snapshot(s) => (1..=g.snapshots_max()).contains(&s.id),
                    Entry::Handed { v, to, .. } => is_own(*v) && *to > 0 && *to < g.owner(*v).0,
                    _ => true,
                }
        };
        if self.entries.iter().all(right) { Ok(()) } else { Err("an entry") }
    }
}

/// Can bytes of this number lie there, one block behind the other, all in segments? A chunk may go
/// on from one segment to the next, which lies behind it.
pub(crate) fn are_chunks(chunks: &[Chunk], bytes: u64, g: &Geometry) -> bool {
    let blocks: u64 = chunks.iter().map(|c| u64::from(c.1)).sum();
    let lies = |c: &Chunk| c.1 > 0 && g.are_segments(c.0, u64::from(c.1));
    blocks == bytes.div_ceil(BLOCK) && blocks <= g.blocks() && chunks.iter().all(lies)
}

/// Are these segments all different?
pub(crate) fn are_different(all: impl Iterator<Item = SegNo>) -> bool {
    let mut seen = BTreeSet::new();
    all.into_iter().all(|n| seen.insert(n))
}

/// Can these be the extents of a page, in order, and of blocks that lie in segments?
pub(crate) fn are_extents(all: &[Extent], g: &Geometry) -> bool {
    let mut end = 0;
    all.iter().all(|e| {
        let behind = e.v.0 >= end && e.n > 0;
        end = e.v.0.saturating_add(u64::from(e.n));
        let lies = e.place.is_none_or(|p| g.are_segments(p, u64::from(e.n)));
        behind && lies && g.are_blocks(e.v, u64::from(e.n))
    })
}

impl Speed {
    /// Can a disk be so quick, and so slow?
    pub(crate) fn is_possible(&self) -> bool {
        (1..=60_000_000_000).contains(&self.access) && (1..=1 << 44).contains(&self.bandwidth)
    }
}
