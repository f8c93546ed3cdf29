//! What is read ahead, and what is on its way: reads that go on where others ended are streams, for
//! which several large requests are kept under way; and nobody asks for a block that somebody else
//! has asked for. It decides and reads nothing.
//!
//! Requests of one reader overtake each other, because the kernel reads ahead too, and between them
//! come others, for the maps of the same file: a stream is what comes near its end, in any order.
//!
//! Invariants  R1 each request that has begun ends once.
//!             R2 what is asked for ahead lies in the volume, behind what the stream has asked for
//!             before: no block twice.

use crate::object::Serial;

/// Blocks of a large request.
pub(crate) const MANY: u64 = 512;
/// Large requests under way for all streams together.
const UNDER_WAY_MAX: u64 = 6;
/// Blocks asked for ahead of a reader, at most: twice what is under way, because requests that
/// share a line end together, and the next ones have to be on their way by then.
const AHEAD: u64 = 2 * UNDER_WAY_MAX * MANY;
/// So far from a stream's end a read belongs to it.
const NEAR: u64 = 256;
/// So many reads make a stream.
const READS_MIN: u32 = 3;
/// Streams known at a time.
const STREAMS: usize = 4;

/// Blocks of an object that are read together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    pub(crate) serial: Serial,
    /// The first, and how many.
    pub(crate) first: u64,
    pub(crate) n: u64,
    pub(crate) head_bytes: u64,
}

impl Run {
    /// Behind the last of them.
    pub(crate) fn end(&self) -> u64 {
        self.first + self.n
    }
    /// Is this block of the object one of them?
    pub(crate) fn holds(&self, serial: Serial, index: u64) -> bool {
        self.serial == serial && (self.first..self.end()).contains(&index)
    }
}

/// Runs that are being read.
#[derive(Default, Debug)]
pub(crate) struct Fetching(Vec<Run>);

impl Fetching {
    pub(crate) fn begin(&mut self, run: Run) {
        assert!(run.n > 0, "R1: a request for no block of object {}", run.serial);
        self.0.push(run);
    }
    pub(crate) fn end(&mut self, run: Run) {
        let at = self.0.iter().position(|r| *r == run);
        assert!(at.is_some(), "R1: {run:?} ends, and has not begun");
        at.map(|at| self.0.swap_remove(at));
    }
    /// Is the block on its way?
    pub(crate) fn holds(&self, serial: Serial, index: u64) -> bool {
        self.0.iter().any(|r| r.holds(serial, index))
    }
    /// How many of `n` blocks from `index` on, which is not on its way, come before one that is.
    pub(crate) fn free(&self, serial: Serial, index: u64, n: u64) -> u64 {
        let under_way = self.holds(serial, index);
        assert!(!under_way, "R1: block {index} of object {serial} is on its way already");
        let later = self.0.iter().filter(|r| r.serial == serial && r.first > index);
        later.map(|r| r.first - index).min().unwrap_or(n).min(n)
    }
}

/// A reader who goes on.
#[derive(Clone, Copy, Default, Debug)]
struct Stream {
    /// Behind the furthest block that was read.
    end: u64,
    /// Behind the last one that was asked for ahead.
    ahead: u64,
    reads: u32,
    /// Blocks that were read.
    blocks: u64,
    /// When it was read last.
    at: u64,
}

impl Stream {
    fn is_near(&self, v: u64, n: u64) -> bool {
        self.reads > 0 && v <= self.end + NEAR && v + n + NEAR >= self.end
    }
    /// Blocks to be asked for ahead: the more, the more were read.
    fn window(&self) -> u64 {
        (2 * MANY + 4 * self.blocks).min(AHEAD)
    }
}

/// The readers who go on.
#[derive(Default, Debug)]
pub(crate) struct Streams {
    all: [Stream; STREAMS],
    now: u64,
    under_way: u64,
}

impl Streams {
    /// `n` blocks from `v` on are read, of `blocks` that there are. Returns what is to be asked for
    /// ahead, as (first, count); [`Streams::ended`] is to be called for each.
    pub(crate) fn note(&mut self, v: u64, n: u64, blocks: u64) -> Vec<(u64, u64)> {
        self.now += 1;
        let near = self.all.iter().position(|s| s.is_near(v, n));
        let oldest = || (0..STREAMS).min_by_key(|i| self.all[*i].at).expect("there are some");
        let i = near.unwrap_or_else(oldest);
        let s = &mut self.all[i];
        if near.is_none() {
            *s = Stream { end: v, ..Stream::default() };
        }
        (s.end, s.at) = (s.end.max(v + n), self.now);
        s.reads = s.reads.saturating_add(1);
        s.blocks += n;
        std::iter::from_fn(|| self.next(i, blocks)).collect()
    }

    /// A request ahead has ended. Returns the next one to be made in its place, of the stream that
    /// was read last.
    pub(crate) fn ended(&mut self, blocks: u64) -> Option<(u64, u64)> {
        assert!(self.under_way > 0, "R1: a request ahead has ended twice");
        self.under_way -= 1;
        let mut by_time: Vec<usize> = (0..STREAMS).collect();
        by_time.sort_by_key(|i| std::cmp::Reverse(self.all[*i].at));
        by_time.into_iter().find_map(|i| self.next(i, blocks))
    }

    /// The stream's next request ahead, if there may be one more.
    fn next(&mut self, i: usize, blocks: u64) -> Option<(u64, u64)> {
        let s = &mut self.all[i];
        s.ahead = s.ahead.max(s.end);
        let last = (s.end + s.window()).min(blocks);
        if s.reads < READS_MIN || s.ahead >= last || self.under_way >= UNDER_WAY_MAX {
            return None;
        }
        let n = spread(self.under_way).min(blocks - s.ahead);
        s.ahead += n;
        let (ahead, end) = (s.ahead, s.end);
        let inside = n > 0 && ahead <= blocks && ahead < end + AHEAD + MANY;
        assert!(inside, "R2: {n} blocks up to {ahead} for who reads at {end} of {blocks}");
        self.under_way += 1;
        Some((s.ahead - n, n))
    }
}

/// Blocks of a request that is made beside so many others. Those that share a line go on at the
/// same rate: as many as begin together would end together if they were as long, and leave the
/// line idle until the next ones' first bytes are there.
fn spread(under_way: u64) -> u64 {
    MANY * (UNDER_WAY_MAX + 1 + under_way) / (2 * UNDER_WAY_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCKS: u64 = 1 << 20;

    fn ahead(s: &mut Streams, reads: &[(u64, u64)]) -> Vec<(u64, u64)> {
        reads.iter().flat_map(|(v, n)| s.note(*v, *n, BLOCKS)).collect()
    }

    #[test]
    fn who_reads_in_any_order_close_to_the_end_is_one_stream() {
        let mut s = Streams::default();
        let asked = ahead(&mut s, &[(1000, 32), (1064, 32), (70_000, 1), (1032, 32)]);
        // One behind the other, none as long as another.
        let wanted = |from: u64, under_way: std::ops::Range<u64>| {
            let mut at = from;
            let each = |n| {
                at += spread(n);
                (at - spread(n), spread(n))
            };
            under_way.map(each).collect::<Vec<_>>()
        };
        assert_eq!(asked, wanted(1096, 0..4), "from the furthest on, as far as is worth it by now");
        let next = asked.last().map_or(0, |(v, n)| v + n);
        let asked = ahead(&mut s, &[(1096, 256), (1352, 256)]);
        assert_eq!(asked, wanted(next, 4..UNDER_WAY_MAX), "as many as may be under way");
        let next = asked.last().map_or(0, |(v, n)| v + n);
        assert_eq!(s.ended(BLOCKS), Some((next, MANY)), "nothing twice");
    }

    #[test]
    fn a_request_that_ends_is_followed_by_the_next_up_to_the_window() {
        let mut s = Streams::default();
        let read = [(0, 500), (500, 500), (1000, 500), (1500, 500)];
        let mut asked = ahead(&mut s, &read).iter().map(|(_, n)| n).sum::<u64>();
        while let Some((_, n)) = s.ended(BLOCKS) {
            asked += n;
        }
        let behind = 1500 + asked - 2000; // the third read was the first to ask
        assert!((AHEAD..AHEAD + MANY).contains(&behind), "{behind} ahead, then he has to go on");
        assert_eq!(ahead(&mut s, &[(2000, 500)]).len(), 1);
    }

    #[test]
    fn reads_here_and_there_are_no_stream() {
        let mut s = Streams::default();
        let reads: Vec<_> = (0..100).map(|i| (i * 7919 * 64 % BLOCKS, 4)).collect();
        assert_eq!(ahead(&mut s, &reads), []);
    }

    #[test]
    fn nothing_is_asked_for_behind_the_end() {
        let mut s = Streams::default();
        let asked = ahead(&mut s, &[(BLOCKS - 100, 8), (BLOCKS - 92, 8), (BLOCKS - 84, 8)]);
        assert_eq!(asked, [(BLOCKS - 76, 76)]);
    }

    #[test]
    fn what_is_on_its_way_is_not_asked_for_again() {
        let mut f = Fetching::default();
        let (three, four) = (Serial(3), Serial(4));
        let run = Run { serial: three, first: 100, n: 50, head_bytes: 64 };
        f.begin(run);
        assert!(f.holds(three, 149) && !f.holds(three, 150) && !f.holds(four, 120));
        assert_eq!((f.free(three, 90, 512), f.free(three, 150, 512)), (10, 512));
        assert_eq!(f.free(four, 90, 8), 8);
        f.end(run);
        assert!(!f.holds(three, 120));
    }
}
