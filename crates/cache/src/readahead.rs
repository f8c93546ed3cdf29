//! Sequential reads: notices that a file is read from front to back, and says how far ahead to
//! read. One for each open file; it decides and does not read.

/// Watches one file's reads.
#[derive(Default, Debug)]
pub struct ReadAhead {
    /// Where the next sequential read would start, in file blocks.
    next: u64,
    /// Blocks asked ahead so far, exclusive end.
    ahead_to: u64,
    /// The window, in blocks.
    window: u64,
    /// Blocks of the file that this pass has read one after the other.
    run: u64,
}

/// A pass is a stream when it has read this many of the largest windows.
const STREAM_WINDOWS: u64 = 2;

impl ReadAhead {
    /// A read of `len` blocks at `first`; the file has `file_blocks`. Returns the blocks to read
    /// ahead, as (first, count), if it is time. `window_max` is in blocks.
    pub fn note(
        &mut self,
        first: u64,
        len: u64,
        file_blocks: u64,
        window_max: u64,
    ) -> Option<(u64, u64)> {
        let end = first + len;
        if !self.goes_on(first, end) {
            (self.next, self.ahead_to, self.window, self.run) = (end, end, 0, 0);
            if first != 0 {
                return None;
            }
        }
        self.run += end.saturating_sub(self.next.max(first));
        self.next = self.next.max(end);
        self.ahead_to = self.ahead_to.max(end);
        self.window = (self.window * 2).clamp(len.max(8), window_max.max(len));
        let (next, ahead) = (self.next, self.ahead_to);
        assert!(next <= ahead, "reads up to block {next}, and was to read ahead up to {ahead}");
        // Ask for more when less than half a window is left ahead of the reader.
        if self.ahead_to - self.next > self.window / 2 {
            return None;
        }
        let from = self.ahead_to;
        let to = (self.next + self.window).min(file_blocks);
        if to <= from {
            return None;
        }
        assert!(from >= end && to <= file_blocks, "reads ahead {from} to {to}, behind or beyond");
        self.ahead_to = to;
        Some((from, to - from))
    }

    /// Is the file being read from front to back, and has been for long?
    pub fn is_stream(&self, window_max: u64) -> bool {
        self.run >= STREAM_WINDOWS * window_max
    }

    /// Does a read of `first..end` belong to the pass? A kernel that reads ahead itself sends
    /// several requests at once, and they arrive in any order: up to what was asked ahead, and not
    /// further back than a window.
    fn goes_on(&self, first: u64, end: u64) -> bool {
        let restarts = first == 0 && self.next > 1;
        !restarts && first <= self.ahead_to && end + self.window >= self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequential_reads_are_ahead_and_random_ones_are_not() {
        let mut r = ReadAhead::default();
        let mut asked = 0;
        for i in 0..100 {
            if let Some((from, n)) = r.note(i, 1, 1000, 256) {
                assert_eq!(from, asked.max(i + 1));
                asked = from + n;
            }
            assert!(i == 0 || asked > i + 1, "block {i} is not ahead");
        }
        assert_eq!(r.note(500, 1, 1000, 256), None);
        assert_eq!(r.note(300, 1, 1000, 256), None);
        assert!(r.note(301, 1, 1000, 256).is_some());
    }

    #[test]
    fn requests_that_overtake_each_other_are_one_pass() {
        let mut r = ReadAhead::default();
        r.note(0, 32, 100_000, 1024);
        for i in (32..50_000).step_by(64) {
            r.note(i + 32, 32, 100_000, 1024);
            r.note(i, 32, 100_000, 1024);
            assert!(r.ahead_to >= i + 64);
        }
        assert_eq!(r.window, 1024);
    }

    #[test]
    fn a_long_pass_is_a_stream() {
        let mut r = ReadAhead::default();
        for i in 0..3000 {
            r.note(i, 1, 3000, 256);
            assert_eq!(r.is_stream(256), i >= 511);
        }
        r.note(0, 1, 3000, 256);
        assert!(!r.is_stream(256));
    }
}
