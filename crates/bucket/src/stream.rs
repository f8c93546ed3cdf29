//! What is read ahead, and what is on its way: reads that go on where others ended are streams, for
//! which several large requests are kept under way; and nobody asks for a block that somebody else
//! has asked for. It decides and reads nothing.
//!
//! Requests of one reader overtake each other, because the kernel reads ahead too, and between them
//! come others, for the maps of the same file: a stream is what comes near its end, in any order.

/// Blocks of a large request.
pub(crate) const MANY: u64 = 512;
/// Large requests under way for all streams together.
const UNDER_WAY_MAX: u64 = 6;
/// Blocks asked for ahead of a reader.
const AHEAD: u64 = UNDER_WAY_MAX * MANY;
/// So far from a stream's end a read belongs to it.
const NEAR: u64 = 256;
/// So many reads make a stream.
const READS_MIN: u32 = 3;
/// Streams known at a time.
const STREAMS: usize = 4;

/// Blocks of an object that are read together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    pub(crate) serial: u64,
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
    pub(crate) fn holds(&self, serial: u64, index: u64) -> bool {
        self.serial == serial && (self.first..self.end()).contains(&index)
    }
}

/// Runs that are being read.
#[derive(Default, Debug)]
pub(crate) struct Fetching(Vec<Run>);

impl Fetching {
    pub(crate) fn begin(&mut self, run: Run) {
        assert!(run.n > 0, "a request for no block of object {}", run.serial);
        self.0.push(run);
    }
    pub(crate) fn end(&mut self, run: Run) {
        let at = self.0.iter().position(|r| *r == run).expect("it has begun");
        self.0.swap_remove(at);
    }
    /// Is the block on its way?
    pub(crate) fn holds(&self, serial: u64, index: u64) -> bool {
        self.0.iter().any(|r| r.holds(serial, index))
    }
    /// How many of `n` blocks from `index` on, which is not on its way, come before one that is.
    pub(crate) fn free(&self, serial: u64, index: u64, n: u64) -> u64 {
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
    /// When it was read last.
    at: u64,
}

impl Stream {
    fn is_near(&self, v: u64, n: u64) -> bool {
        self.reads > 0 && v <= self.end + NEAR && v + n + NEAR >= self.end
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
        let s = &mut self.all[near.unwrap_or_else(oldest)];
        if near.is_none() {
            *s = Stream { end: v, ahead: 0, reads: 0, at: 0 };
        }
        (s.end, s.at) = (s.end.max(v + n), self.now);
        s.reads = s.reads.saturating_add(1);
        let mut wanted = Vec::new();
        if s.reads < READS_MIN {
            return wanted;
        }
        s.ahead = s.ahead.max(s.end);
        let last = (s.end + AHEAD).min(blocks);
        while s.ahead < last && self.under_way < UNDER_WAY_MAX {
            let n = MANY.min(blocks - s.ahead);
            wanted.push((s.ahead, n));
            s.ahead += n;
            self.under_way += 1;
        }
        wanted
    }

    /// A request ahead has ended.
    pub(crate) fn ended(&mut self) {
        assert!(self.under_way > 0, "a request ahead has ended twice");
        self.under_way -= 1;
    }
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
        let whole: Vec<_> = (0..UNDER_WAY_MAX).map(|i| (1096 + i * MANY, MANY)).collect();
        assert_eq!(asked, whole, "from the furthest block on");
        assert_eq!(ahead(&mut s, &[(1096, 32)]), [], "so many are under way");
        s.ended();
        assert_eq!(ahead(&mut s, &[(1128, 32)]), [(1096 + AHEAD, MANY)], "nothing is asked twice");
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
        let run = Run { serial: 3, first: 100, n: 50, head_bytes: 64 };
        f.begin(run);
        assert!(f.holds(3, 149) && !f.holds(3, 150) && !f.holds(4, 120));
        assert_eq!((f.free(3, 90, 512), f.free(3, 150, 512), f.free(4, 90, 8)), (10, 512, 8));
        f.end(run);
        assert!(!f.holds(3, 120));
    }
}
