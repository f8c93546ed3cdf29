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
}

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
        // A read that starts where the last ended, or within it (parts of blocks), goes on.
        let sequential =
            first <= self.next && first + 1 >= self.next && (first > 0 || self.next <= 1);
        self.next = end;
        if !sequential && first != 0 {
            (self.window, self.ahead_to) = (0, end);
            return None;
        }
        if self.ahead_to < end {
            self.ahead_to = end;
        }
        self.window = (self.window * 2).clamp(len.max(8), window_max);
        // Ask for more when less than half a window is left ahead of the reader.
        if self.ahead_to - end > self.window / 2 {
            return None;
        }
        let from = self.ahead_to;
        let to = (end + self.window).min(file_blocks);
        if to <= from {
            return None;
        }
        self.ahead_to = to;
        Some((from, to - from))
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
}
