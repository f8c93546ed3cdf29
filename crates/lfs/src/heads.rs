//! Heads: the segments that are being written, and the partial segment that each is filling. Which
//! head a block goes to is decided by how long it is expected to live; who waits for a partial, and
//! when it goes to the disk, is not known here.
//!
//! Rule        What users write goes to one head, or to two where the policy keeps apart what will
//!             be written again soon and what will not; what the cleaner moves goes to the others,
//!             the older a block the further behind. The log is followed by serials alone: what
//!             was put later must never be in a partial with a lower serial than what it replaces
//!             (I14), and no partial says that a group ends there while an open one holds a part
//!             of what users put before (I5).
//! Terms       *class*: SepBIT's (policy.rs), of which each has a head where a store has six: 0 and
//!             1 are users', 2 to 5 the cleaner's. *Lived*: how long ago the contents that are
//!             replaced were written. No list of blocks is kept for it: the youngest block of their
//!             segment says it nearly as well, since a segment is filled with what is of one age.
//! Cost        A flush writes a partial for each of the users' heads that holds something. So a
//!             policy of ours uses the second only while users put more than a segment between two
//!             flushes.

use crate::geometry::{Place, SegNo};
use crate::policy::{Lifespans, Policy};
use crate::state::State;
use crate::summary::Entry;
use env::Block;
use std::collections::BTreeSet;

/// The head of what users write, where there is one; of what orders groups in any case.
pub(crate) const USERS: usize = 0;

/// Where partial segments of one kind go.
pub(crate) struct Head {
    /// Writes here,
    pub(crate) segment: SegNo,
    /// from this block on,
    pub(crate) offset: u32,
    /// and here when it is full; announced by every summary of this head (I3).
    pub(crate) next: SegNo,
    pub(crate) open: Option<Open>,
}

impl Head {
    pub(crate) fn at((segment, offset, next): (SegNo, u32, SegNo)) -> Head {
        Head { segment, offset, next, open: None }
    }
}

/// A partial segment that is being filled.
pub(crate) struct Open {
    pub(crate) start: Place,
    pub(crate) entries: Vec<Entry>,
    pub(crate) entry_bytes: usize,
    pub(crate) blocks: Vec<Block>,
    about: About,
}

impl Open {
    pub(crate) fn at(start: Place) -> Open {
        let (entries, blocks, about) = (Vec::new(), Vec::new(), About::default());
        Open { start, entries, entry_bytes: 0, blocks, about }
    }
    /// Which of its blocks lies at `place`.
    pub(crate) fn index_of(&self, place: Place) -> Option<usize> {
        let i = place.0.checked_sub(self.start.0 + 1)? as usize;
        (i < self.blocks.len()).then_some(i)
    }
}

/// What the entries of a partial are about.
#[derive(Default)]
struct About {
    blocks: BTreeSet<u64>,
    /// Freed: the first, and the one behind the last.
    freed: Vec<(u64, u64)>,
    /// What comes before them and behind them matters for all blocks.
    all: bool,
}

fn is_about_all(entry: &Entry) -> bool {
    matches!(entry, Entry::Snapshot(_) | Entry::Ended { .. } | Entry::Handed { .. })
}

impl About {
    fn note(&mut self, entry: &Entry) {
        let (v, n) = entry.blocks();
        match entry {
            Entry::Free { .. } => self.freed.push((v.0, v.0 + n)),
            e if is_about_all(e) => self.all = true,
            _ => {
                self.blocks.insert(v.0);
            }
        }
    }
    /// Does it matter which comes first, one of these or this?
    fn meets(&self, entry: &Entry) -> bool {
        let (v, n) = entry.blocks();
        let end = v.0 + n;
        let blocks = self.blocks.range(v.0..end).next().is_some();
        let freed = self.freed.iter().any(|(from, to)| *from < end && v.0 < *to);
        self.all || is_about_all(entry) || blocks || freed
    }
}

/// Which head a block goes to.
#[derive(Default)]
pub(crate) struct Placing {
    lifespans: Lifespans,
    /// Where what users write is kept apart: never, always, or while they write much.
    apart: Option<Apart>,
    /// A pass of the cleaner spreads what it moves over all of its heads.
    pub(crate) spreads: bool,
    /// Blocks that users have put since the last flush, and between two of them on average.
    since: u64,
    mean: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Apart {
    Always,
    InBulk,
}

impl Placing {
    pub(crate) fn new(policy: Policy, user_heads: usize) -> Placing {
        let apart = match policy {
            Policy::SepBit => Some(Apart::Always),
            Policy::Balanced => Some(Apart::InBulk),
            _ => None,
        };
        Placing { apart: apart.filter(|_| user_heads > 1), ..Placing::default() }
    }
    /// A segment that this head filled is empty, so many writes after it was begun.
    pub(crate) fn ended(&mut self, head: u8, lasted: u64) {
        self.lifespans.ended(head, lasted);
    }
    /// Users' partials are closed because somebody asked for it.
    fn flushed(&mut self) {
        self.mean = (3 * self.mean + self.since) / 4;
        self.since = 0;
    }
}

impl State {
    /// The head of a block that users write. `old`: where its contents lay.
    pub(crate) fn head_of_write(&mut self, old: Option<Place>) -> usize {
        self.placing.since += 1;
        let much = self.placing.since.max(self.placing.mean);
        let apart = match self.placing.apart {
            Some(Apart::Always) => true,
            Some(Apart::InBulk) => much >= u64::from(self.geometry.segment_blocks),
            None => false,
        };
        if !apart {
            return USERS;
        }
        let segment = old.and_then(|p| self.geometry.segment_of(p));
        let lived = segment.map(|s| self.stamp.saturating_sub(self.usage.get(s).youngest));
        let head = usize::from(self.placing.lifespans.of_write(lived));
        let users = self.geometry.user_heads();
        assert!(head < users, "I5: what users write goes to head {head}, and theirs are {users}");
        head
    }

    /// The head of a block with this stamp that is moved out of a segment that head `from` filled.
    pub(crate) fn head_of_move(&self, from: u8, stamp: u64) -> usize {
        let last = self.heads.len() - 1;
        if !self.placing.spreads || self.placing.apart.is_none() {
            return last;
        }
        let class = self.placing.lifespans.of_move(from, self.stamp.saturating_sub(stamp));
        let users = self.geometry.user_heads();
        let head = users + usize::from(class) - 2;
        assert!(head >= users, "I5: what is moved goes to head {head}, and users have {users}");
        head.min(last)
    }

    /// What users' other heads hold of the same blocks comes before this entry (I14).
    pub(crate) fn put_in_order(&mut self, h: usize, entry: &Entry) {
        let users = self.geometry.user_heads();
        if self.placing.apart.is_none() || h >= users || self.planted("heads-out-of-order") {
            return;
        }
        for other in (0..users).filter(|o| *o != h) {
            let open = self.heads[other].open.as_ref();
            if open.is_some_and(|o| o.about.meets(entry)) {
                self.close(other);
            }
        }
    }

    /// An entry is in the open partial of a head.
    pub(crate) fn note_order(&mut self, h: usize) {
        if self.placing.apart.is_none() || h >= self.geometry.user_heads() {
            return;
        }
        let ordered = !self.planted("heads-out-of-order");
        let (before, rest) = self.heads[..self.geometry.user_heads()].split_at_mut(h);
        let Some((head, after)) = rest.split_first_mut() else { return };
        let Some(Open { about, entries, .. }) = head.open.as_mut() else { return };
        let Some(entry) = entries.last() else { return };
        let meets = |other: &Head| other.open.as_ref().is_some_and(|o| o.about.meets(entry));
        let two = ordered && before.iter().chain(&*after).any(meets);
        assert!(!two, "I14: {:?} are in the open partials of two heads", entry.blocks());
        about.note(entry);
    }

    /// Is anything of users' in no closed partial yet?
    pub(crate) fn is_user_open(&self) -> bool {
        let users = self.geometry.user_heads();
        self.heads[..users].iter().any(|h| h.open.is_some())
    }

    /// Everything that users have put is in closed partials, of which the last ends a group (I5).
    pub(crate) fn close_users(&mut self) {
        (0..self.geometry.user_heads()).rev().for_each(|h| self.close(h));
        self.placing.flushed();
        assert!(!self.torn || self.in_group, "I5: nothing of a group is left");
    }

    /// A segment that a head filled may be empty now.
    pub(crate) fn note_lifespan(&mut self, segment: SegNo) {
        if let Some((head, begun)) = self.usage.ended(segment) {
            self.placing.ended(head, self.stamp.saturating_sub(begun));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::Virt;
    use crate::patches::Range;

    #[test]
    fn what_is_about_the_same_block_keeps_its_order() {
        let written = |v| Entry::Written { v: Virt(v), stamp: 1 };
        let range = |v| {
            let range = Range { at: 0, bytes: vec![1], zeros: 0 };
            Entry::Range { v: Virt(v), range }
        };
        let mut about = About::default();
        about.note(&written(7));
        about.note(&Entry::Free { v: Virt(20), n: 4 });
        assert!(about.meets(&range(7)) && about.meets(&written(23)));
        assert!(!about.meets(&range(8)) && !about.meets(&written(24)));
        assert!(about.meets(&Entry::Free { v: Virt(5), n: 3 }));
        assert!(!about.meets(&Entry::Free { v: Virt(8), n: 12 }));
        assert!(about.meets(&Entry::Ended { id: 1, gone: true }), "it is about all of them");
        about.note(&Entry::Ended { id: 1, gone: true });
        assert!(about.meets(&written(1000)));
    }
}
