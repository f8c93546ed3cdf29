//! Can what was read from the disk be? A checksum says that it is as somebody wrote it, and not
//! that it was a store that did. What cannot be is damage, before anything is done by it. It asks
//! no disk.

use crate::checkpoint::Body;
use crate::extents::Extent;
use crate::geometry::{Geometry, SegNo};
use crate::measure::Speed;
use std::collections::BTreeSet;

/// Numbers that are counted up from 0 never come as far.
const COUNTED_MAX: u64 = 1 << 60;

impl Body {
    /// Is it a body of a store of this shape?
    pub(crate) fn is_possible(&self, g: &Geometry) -> bool {
        let counted = [self.generation, self.serial, self.epoch, self.stamp];
        counted.iter().all(|n| *n < COUNTED_MAX)
            && self.segments.len() == g.segments as usize
            && self.segments.iter().all(|s| s.is_possible(g, self.stamp))
            && self.are_heads_possible(g)
            && self.ranges.iter().all(|(v, _)| g.are_blocks(*v, 1))
            && self.snapshots.last <= g.snapshots_max()
    }

    /// Each head has two segments of its own, which hold contents or nothing.
    fn are_heads_possible(&self, g: &Geometry) -> bool {
        let all = || self.heads.iter().flat_map(|h| [h.0, h.2]);
        let open = |n: SegNo| self.segments.get(n.0 as usize).is_some_and(|s| !s.free && !s.table);
        self.heads.len() == usize::from(g.heads)
            && all().all(open)
            && are_different(all())
            && self.heads.iter().all(|h| h.1 <= g.segment_blocks)
    }
}

impl crate::checkpoint::SavedSegment {
    fn is_possible(&self, g: &Geometry, stamp: u64) -> bool {
        let empty = self.live == 0 || !(self.free || self.table);
        empty && self.live < g.segment_blocks && self.youngest <= stamp
    }
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
