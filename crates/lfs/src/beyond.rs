//! Behind the end of the log: was the power cut there, or is something damaged in its middle? It
//! changes nothing, and does not know what partials say of blocks.
//!
//! Rule        Each partial says up to which serial all was durable when it was closed. A power cut
//!             loses nothing of that, so a whole partial behind the end which says more than the
//!             log has is of a log that is damaged. A later epoch begins behind what was durable in
//!             the one before, so partials that the earlier one left there never say more than
//!             the log has.
//! Bound       Looked at are the places where a head may have gone on: as many blocks as the
//!             largest partial has, and one, behind where it stands and in its announced segment;
//!             from a whole one on, what follows that. Of the last durable partials, those behind
//!             which nothing was written, damage cannot be told from a cut.

use crate::geometry::{BLOCK_BYTES, Place, SegNo};
use crate::store::Inner;
use crate::summary::{ENTRIES_BYTES_MAX, Epoch, Serial, Summary, sum_of};
use std::collections::BTreeSet;
use std::fmt;

/// Blocks behind the beginning of a partial in which the next one of its head begins: its summary,
/// a block for each of the smallest entries that have one, and that next one's first.
const WINDOW: u32 = 1 + ENTRIES_BYTES_MAX as u32 / 16 + 1;

/// Where the log that can be followed ends.
pub(crate) struct End {
    pub(crate) serial: Serial,
    pub(crate) epoch: Epoch,
    /// Each head's segment, next block, and announced segment.
    pub(crate) heads: Vec<(SegNo, u32, SegNo)>,
}

/// A log that is damaged in its middle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Broken {
    /// About where.
    at: Place,
    /// It can be followed up to this partial,
    end: Serial,
    /// and all up to this one was durable.
    durable: Serial,
    /// Which says so.
    by: Serial,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Broken { at, end, durable, by } = self;
        write!(
            f,
            "the log of the store is damaged, about at byte {} of its device: it can be followed \
             up to partial segment {}, and number {} says that all up to {} was durable. What was \
             written behind the damage cannot be reached. Nothing was changed: go back to a \
             backup, or open it for reading only, which shows what was there before, and copy that \
             (cairn lfs export)",
            at.byte(),
            end.0,
            by.0,
            durable.0
        )
    }
}

/// Where a head may have gone on.
#[derive(Clone, Copy)]
struct Stretch {
    /// From where on nothing was found.
    from: Place,
    at: Place,
    left: u32,
}

impl Stretch {
    fn new(from: Place, left: u32) -> Stretch {
        Stretch { from, at: from, left }
    }
}

impl Inner {
    /// Is there something behind the end of the log by which it ought to go on? What cannot be read
    /// says nothing.
    pub(crate) async fn look_beyond(&self, end: End) -> Option<Broken> {
        let all = self.geometry.segment_blocks;
        let mut known: BTreeSet<SegNo> = end.heads.iter().flat_map(|h| [h.0, h.2]).collect();
        let behind = |h: &(SegNo, u32, SegNo)| {
            let here = self.geometry.start(h.0).plus(u64::from(h.1));
            let next = Stretch::new(self.geometry.start(h.2), all);
            [Stretch::new(here, all.saturating_sub(h.1)), next]
        };
        let mut stretches: Vec<Stretch> = end.heads.iter().flat_map(behind).collect();
        let (mut first, mut most) = (None, None);
        while let Some(mut stretch) = stretches.pop() {
            let Some(found) = self.next_in(stretch, &end).await else { continue };
            if first.is_none_or(|(serial, _)| found.serial < serial) {
                first = Some((found.serial, stretch.from));
            }
            if most.is_none_or(|(durable, _)| durable < found.durable) {
                most = Some((found.durable, found.serial));
            }
            if found.next.0 < self.geometry.segments && known.insert(found.next) {
                stretches.push(Stretch::new(self.geometry.start(found.next), all));
            }
            let passed = (found.place.0 - stretch.at.0) as u32 + 1 + found.payload;
            stretch.left = stretch.left.saturating_sub(passed);
            stretch.at = stretch.at.plus(u64::from(passed));
            stretches.push(stretch);
        }
        let ((_, at), (durable, by)) = (first?, most?);
        (durable > end.serial).then_some(Broken { at, end: end.serial, durable, by })
    }

    /// The first whole partial there that is later than the end of the log.
    async fn next_in(&self, stretch: Stretch, end: &End) -> Option<Summary> {
        // Where nothing is missing it lies at once behind the one before.
        for n in [1, WINDOW].map(|n| n.min(stretch.left)) {
            if n == 0 {
                return None;
            }
            let raw = self.read_blocks(stretch.at, u64::from(n)).await.ok()?;
            for (i, block) in (0..u64::from(n)).zip(raw.bytes().chunks(BLOCK_BYTES)) {
                let Some((s, sum)) = Summary::decode(block, stretch.at.plus(i)) else { continue };
                let later = s.serial > end.serial && s.epoch >= end.epoch;
                if later && self.is_whole(&s, sum).await {
                    return Some(s);
                }
            }
        }
        None
    }

    async fn is_whole(&self, s: &Summary, sum: u32) -> bool {
        let n = u64::from(s.payload) + 1;
        if !self.geometry.is_inside(s.place, n) {
            return false;
        }
        let Ok(raw) = self.read_blocks(s.place, n).await else { return false };
        let (head, payload) = raw.bytes().split_at(BLOCK_BYTES);
        sum_of(self.seed, head, payload.chunks(BLOCK_BYTES)) == sum
    }
}
