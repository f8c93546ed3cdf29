//! The segment usage table: what each segment is for, how many of its blocks live, how old the
//! youngest is, and when it may be used again. It knows no disk and no policy.

use crate::geometry::SegNo;
use env::Nanos;
use std::collections::BTreeSet;

/// What a segment is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    /// Nothing: it may be taken.
    Free,
    /// A head writes into it, or will next.
    Open,
    /// It holds contents.
    Closed,
    /// It holds the table, or a checkpoint's body.
    Table,
}

/// One segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Segment {
    pub(crate) used: Use,
    /// Live blocks of contents.
    pub(crate) live: u32,
    /// The stamp of the youngest block written or moved into it.
    pub(crate) youngest: u64,
    /// The last checkpoint begun when its last block died.
    emptied: u64,
    /// The last checkpoint begun when its head left it.
    pub(crate) closed: u64,
    /// Reads under way, and plugs.
    pub(crate) reads: u32,
    /// The head that filled it, and the stamp when that began; until it has emptied.
    filled: Option<(u8, u64)>,
    /// The disk could not read it: so often, and it is left alone until then.
    failures: u32,
    alone_until: Nanos,
}

impl Segment {
    /// Does the cleaner leave it as it is, since the disk could not read it?
    pub(crate) fn is_left_alone(&self, now: Nanos) -> bool {
        self.failures > 0 && now < self.alone_until
    }
}

/// A disk that has failed so often, one time after the other, is asked again only then.
pub(crate) fn pause_after(failures: u32) -> Nanos {
    Nanos::from_secs(10 << failures.saturating_sub(1).min(9))
}

/// How segments are filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Filled {
    /// Segments by what they are for: free, written into, of contents, of the table.
    pub segments: [u32; 4],
    /// Those of contents by how much of them lives, in tenths.
    pub tenths: [u32; 10],
}

impl Filled {
    /// A segment, of which so many blocks live.
    pub(crate) fn add(&mut self, used: Use, live: u32, blocks: u32) {
        self.segments[used as usize] += 1;
        if used == Use::Closed {
            let tenth = (u64::from(live) * 10 / u64::from(blocks)).min(9);
            self.tenths[tenth as usize] += 1;
        }
    }
}

/// All segments.
pub(crate) struct Usage {
    segments: Vec<Segment>,
    free: BTreeSet<u32>,
    /// Closed, and nothing in it lives; not yet said by both checkpoints.
    empty: BTreeSet<u32>,
    /// The last one taken; the next is looked for behind it.
    last: u32,
    /// Segments of the table.
    tables: u32,
    /// Live blocks of all segments.
    live: u64,
    /// Blocks of a segment.
    blocks: u32,
    /// A segment of which a checkpoint said something else than the table and the log do.
    lied: Option<SegNo>,
    /// Checkpoints begun, and durable.
    pub(crate) begun: u64,
    pub(crate) durable: u64,
}

impl Usage {
    pub(crate) fn new(segments: u32, blocks: u32) -> Usage {
        let one = Segment {
            used: Use::Free,
            live: 0,
            youngest: 0,
            emptied: 0,
            closed: 0,
            reads: 0,
            filled: None,
            failures: 0,
            alone_until: Nanos(0),
        };
        Usage {
            segments: vec![one; segments as usize],
            free: (0..segments).collect(),
            empty: BTreeSet::new(),
            last: 0,
            tables: 0,
            live: 0,
            blocks,
            lied: None,
            begun: 0,
            durable: 0,
        }
    }

    pub(crate) fn get(&self, s: SegNo) -> Segment {
        self.segments[s.0 as usize]
    }
    fn at(&mut self, s: SegNo) -> &mut Segment {
        &mut self.segments[s.0 as usize]
    }
    pub(crate) fn all(&self) -> impl Iterator<Item = (SegNo, Segment)> {
        (0..).map(SegNo).zip(self.segments.iter().copied())
    }
    /// How they are filled; each has so many blocks.
    pub(crate) fn filled(&self, blocks: u32) -> Filled {
        let mut filled = Filled::default();
        self.segments.iter().for_each(|s| filled.add(s.used, s.live, blocks));
        filled
    }
    /// Live blocks of all of them.
    pub(crate) fn live(&self) -> u64 {
        self.live
    }
    pub(crate) fn free_count(&self) -> u32 {
        self.free.len() as u32
    }
    /// Free segments and those that the table has taken, of the `reserve` that is kept for it.
    pub(crate) fn free_or_table(&self, reserve: u32) -> u32 {
        self.free_count() + self.tables.min(reserve)
    }
    /// A segment of which a checkpoint said something else than was so: a damaged disk.
    pub(crate) fn lied(&self) -> Option<SegNo> {
        self.lied
    }
    /// Empty segments that wait for checkpoints.
    pub(crate) fn waiting_count(&self) -> u32 {
        self.empty.len() as u32
    }
    /// Of these, those that nobody holds: checkpoints are all that they wait for.
    pub(crate) fn ripening_count(&self) -> u32 {
        let held = |n: &&u32| self.segments[**n as usize].reads > 0;
        (self.empty.len() - self.empty.iter().filter(held).count()) as u32
    }

    /// Takes a free segment; None: there is none.
    pub(crate) fn take(&mut self, used: Use) -> Option<SegNo> {
        let behind = self.free.range(self.last..).next().or_else(|| self.free.iter().next());
        let seg = SegNo(*behind?);
        self.free.remove(&seg.0);
        self.last = seg.0;
        let s = self.at(seg);
        assert!(s.used == Use::Free && s.live == 0 && s.reads == 0, "I2: it is free: {s:?}");
        (s.used, s.youngest, s.filled) = (used, 0, None);
        (s.failures, s.alone_until) = (0, Nanos(0));
        self.tables += u32::from(used == Use::Table);
        Some(seg)
    }

    /// What a segment is for was read from the disk, or found by rolling forward.
    pub(crate) fn claim(&mut self, seg: SegNo, used: Use) {
        let live = self.get(seg).live;
        let may = used != Use::Table || live == 0;
        assert!(may, "I8: segment {} is the table's, and {live} blocks live in it", seg.0);
        self.free.remove(&seg.0);
        self.empty.remove(&seg.0);
        let before = std::mem::replace(&mut self.at(seg).used, used);
        self.tables += u32::from(used == Use::Table);
        self.tables -= u32::from(before == Use::Table);
    }

    /// As a checkpoint has it. `reusable`: both checkpoints say that it is free.
    pub(crate) fn load(&mut self, seg: SegNo, (live, youngest): (u32, u64), reusable: bool) {
        let before = self.get(seg);
        let is_new = before.used == Use::Free && before.live == 0;
        assert!(is_new, "I8: segment {} is loaded, and was {before:?}", seg.0);
        assert!(!reusable || live == 0, "I2: segment {} is free, and {live} blocks live", seg.0);
        let emptied = self.begun.saturating_sub(1);
        self.live += u64::from(live);
        let s = self.at(seg);
        (s.live, s.youngest) = (live, youngest);
        if !reusable {
            (s.used, s.emptied, s.closed) = (Use::Closed, emptied, emptied);
            self.free.remove(&seg.0);
            if live == 0 {
                self.empty.insert(seg.0);
            }
        }
    }

    /// A head begins to fill it.
    pub(crate) fn fill(&mut self, seg: SegNo, head: u8, stamp: u64) {
        let s = self.at(seg);
        let begins = s.used == Use::Open && s.filled.is_none();
        assert!(begins, "I3: head {head} begins to fill segment {}, which is {s:?}", seg.0);
        s.filled = Some((head, stamp));
    }

    /// The disk could not read it: what lives there is left there for a while, longer each time.
    pub(crate) fn is_unreadable(&mut self, seg: SegNo, now: Nanos) {
        let s = self.at(seg);
        s.failures = s.failures.saturating_add(1);
        s.alone_until = now.plus(pause_after(s.failures));
    }

    /// When the first of the segments that are left alone is tried again.
    pub(crate) fn tried_again(&self, now: Nanos) -> Option<Nanos> {
        let alone = |s: &&Segment| s.used == Use::Closed && s.is_left_alone(now);
        self.segments.iter().filter(alone).map(|s| s.alone_until).min()
    }

    /// The head that fills or filled it, if that was since the store was opened.
    pub(crate) fn filler(&self, seg: SegNo) -> Option<u8> {
        self.get(seg).filled.map(|f| f.0)
    }

    /// It is full and empty again: the head that filled it, and when that began; said once.
    pub(crate) fn ended(&mut self, seg: SegNo) -> Option<(u8, u64)> {
        let s = self.at(seg);
        if s.used != Use::Closed || s.live > 0 {
            return None;
        }
        s.filled.take()
    }

    /// A head has left it.
    pub(crate) fn close(&mut self, seg: SegNo) {
        let begun = self.begun;
        let s = self.at(seg);
        assert_eq!(s.used, Use::Open, "I3: a head leaves segment {}, and was not in it", seg.0);
        (s.used, s.closed) = (Use::Closed, begun);
        if s.live == 0 {
            s.emptied = begun;
            self.empty.insert(seg.0);
        }
    }

    /// A block of contents lies in it now.
    pub(crate) fn born(&mut self, seg: SegNo, stamp: u64) {
        self.live += 1;
        let s = self.at(seg);
        assert_eq!(s.used, Use::Open, "I8: contents go where a head writes");
        s.live += 1;
        s.youngest = s.youngest.max(stamp);
        self.is_full_at_most(seg);
    }

    /// More lives in it than it has room for behind a summary: its count was wrong from the start.
    fn is_full_at_most(&mut self, seg: SegNo) {
        if self.get(seg).live >= self.blocks {
            self.lied.get_or_insert(seg);
        }
    }

    /// A block of contents was put into a hole of it.
    pub(crate) fn plugged(&mut self, seg: SegNo, stamp: u64) {
        self.empty.remove(&seg.0);
        self.live += 1;
        let s = self.at(seg);
        assert_eq!(s.used, Use::Closed, "I12: plugs go into closed segments");
        s.live += 1;
        s.youngest = s.youngest.max(stamp);
        self.is_full_at_most(seg);
    }

    /// `n` of its blocks are dead now.
    pub(crate) fn died(&mut self, seg: SegNo, n: u32) {
        let begun = self.begun;
        let s = self.at(seg);
        if s.live < n {
            // The table of a disk may lead anywhere, also into segments that were free or its own
            // when the store was opened: that is no bug, and ends the store as damage does (I8).
            self.lied.get_or_insert(seg);
            return;
        }
        self.live -= u64::from(n);
        let s = self.at(seg);
        s.live -= n;
        if s.live == 0 && s.used == Use::Closed {
            s.emptied = begun;
            self.empty.insert(seg.0);
        }
    }

    pub(crate) fn reading(&mut self, seg: SegNo, more: bool) {
        let s = self.at(seg);
        let holds = matches!(s.used, Use::Open | Use::Closed);
        assert!(holds, "I13: segment {} is held for what it has, and is {s:?}", seg.0);
        assert!(more || s.reads > 0, "I13: segment {} is let go, and nobody holds it", seg.0);
        s.reads = if more { s.reads + 1 } else { s.reads - 1 };
    }

    /// A table's segment that no checkpoint names any more is free at once.
    pub(crate) fn free_table(&mut self, seg: SegNo) {
        let s = self.at(seg);
        let is_own = s.used == Use::Table && s.live == 0 && s.reads == 0;
        assert!(is_own, "I2: the table leaves segment {}, which is {s:?}", seg.0);
        s.used = Use::Free;
        assert!(self.tables > 0, "I10: the table leaves segment {}, and has none", seg.0);
        self.tables -= 1;
        let new = self.free.insert(seg.0);
        assert!(new, "I2: segment {} was the table's, and free", seg.0);
    }

    /// Nobody takes this free segment until it is given.
    pub(crate) fn withhold(&mut self, seg: SegNo) {
        let was = self.free.remove(&seg.0);
        assert!(was, "I2: segment {} is kept back, and may not be taken anyway", seg.0);
    }
    pub(crate) fn give(&mut self, seg: SegNo) {
        let s = self.get(seg);
        let kept = s.used == Use::Free && s.live == 0;
        assert!(kept, "I2: segment {} was kept back, and is {s:?}", seg.0);
        let new = self.free.insert(seg.0);
        assert!(new, "I2: segment {} is given, and could be taken before", seg.0);
    }

    /// The segments that may be used again: nothing in them lives, and both checkpoints say so
    /// (I2).
    /// `after`: so many checkpoints, which is two unless a bug is planted.
    pub(crate) fn release(&mut self, after: u64) -> Vec<SegNo> {
        let (durable, begun) = (self.durable, self.begun);
        assert!(durable <= begun, "I7: checkpoint {durable} is durable, {begun} is the last begun");
        let freed = self.release_if(|s| durable >= s.emptied + after);
        if after < 2 {
            self.last = freed.first().map_or(self.last, |s| s.0);
        }
        freed
    }

    /// A planted bug's: segments that are empty as the newer checkpoint has it, and in the older
    /// are not.
    pub(crate) fn empty_in_one(&self) -> Vec<SegNo> {
        let newer = |n: &u32| self.durable > self.segments[*n as usize].emptied;
        self.empty.iter().copied().filter(newer).map(SegNo).collect()
    }

    /// The next one taken is this, if it is free.
    #[cfg(test)]
    pub(crate) fn next_is(&mut self, seg: SegNo) {
        self.last = seg.0;
    }

    /// A planted bug: whatever is empty is used again, and next.
    pub(crate) fn release_at_once(&mut self) {
        if let Some(first) = self.release_if(|_| true).first() {
            self.last = first.0;
        }
    }

    /// The counters kept beside the segments are the sums over them (I2, I8, I10). What a segment
    /// itself says was read from the disk, and is not judged here.
    pub(crate) fn check(&self) {
        let count = |f: fn(&Segment) -> bool| self.segments.iter().filter(|s| f(s)).count();
        let live: u64 = self.segments.iter().map(|s| u64::from(s.live)).sum();
        assert_eq!(self.live, live, "I8: what lives is counted, and is another number");
        let tables = count(|s| s.used == Use::Table);
        assert_eq!(self.tables as usize, tables, "I10: the table's segments are counted wrongly");
        let wrong = count(|s| s.live > 0 && !matches!(s.used, Use::Open | Use::Closed));
        assert_eq!(wrong, 0, "I2: blocks live in segments that are free, or the table's");
        let of = |n: &u32| self.segments[*n as usize];
        let taken = self.free.iter().find(|n| of(n).used != Use::Free || of(n).reads > 0);
        assert!(taken.is_none(), "I2: segment {taken:?} may be taken, and is somebody's");
        let is_empty = |s: &Segment| s.used == Use::Closed && s.live == 0;
        let full = self.empty.iter().find(|n| !is_empty(&of(n)));
        assert!(full.is_none(), "I2: segment {full:?} is to be free, and is not empty");
        let (known, all) = (self.empty.len(), count(|s| s.used == Use::Closed && s.live == 0));
        assert_eq!(known, all, "I2: of {all} segments that are empty {known} are known");
    }

    fn release_if(&mut self, may: impl Fn(&Segment) -> bool) -> Vec<SegNo> {
        let ripe = |n: &u32| {
            let s = &self.segments[*n as usize];
            assert_eq!(s.live, 0, "I2: an empty segment holds nothing that lives");
            assert_eq!(s.used, Use::Closed, "I2: segment {n} is empty, and is not what was closed");
            s.reads == 0 && may(s)
        };
        let ripe: Vec<u32> = self.empty.iter().copied().filter(ripe).collect();
        for n in &ripe {
            self.empty.remove(n);
            self.at(SegNo(*n)).used = Use::Free;
            assert!(self.free.insert(*n), "I2: segment {n} was full, and could be taken");
        }
        ripe.into_iter().map(SegNo).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After a crash a checkpoint says of a segment that it is the table's, which a head has taken
    /// since: it is no part of what is kept for the table any more (I10).
    #[test]
    fn a_segment_that_was_the_tables_is_none_of_its_own() {
        let mut usage = Usage::new(8, 8);
        usage.claim(SegNo(0), Use::Table);
        usage.claim(SegNo(0), Use::Table);
        usage.claim(SegNo(1), Use::Table);
        assert_eq!(usage.free_or_table(8), 8);
        usage.claim(SegNo(0), Use::Open);
        assert_eq!(usage.free_or_table(8), 7, "I10");
    }
}
