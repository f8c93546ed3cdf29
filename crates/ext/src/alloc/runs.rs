//! Blocks on their way to being free, as runs: a large file is some thousand runs, and may be
//! hundreds of millions of blocks. It knows no volume, and checks nothing.

use format::{BlockNo, Extent};

/// Blocks in the order in which they were given up.
#[derive(Default)]
pub(crate) struct Runs {
    runs: Vec<Extent>,
    blocks: u64,
}

impl Runs {
    /// One run.
    pub(crate) fn one(start: BlockNo, len: u64) -> Runs {
        Runs { runs: vec![Extent { start, len }], blocks: len }
    }
    pub(crate) fn push(&mut self, b: BlockNo) {
        self.blocks += 1;
        match self.runs.last_mut() {
            Some(last) if last.start.plus(last.len) == b => last.len += 1,
            _ => self.runs.push(Extent { start: b, len: 1 }),
        }
    }
    /// How many blocks.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }
    /// How many runs, if no two turn out to be neighbours.
    pub(crate) fn runs(&self) -> usize {
        self.runs.len()
    }
    /// By their numbers, neighbours joined. What was given up twice, in a damaged map, is there
    /// twice.
    pub(crate) fn sorted(self) -> Vec<Extent> {
        let (mut runs, blocks) = (self.runs, self.blocks);
        runs.sort_unstable();
        runs.dedup_by(|b, a| {
            let next = a.start.plus(a.len) == b.start;
            a.len += if next { b.len } else { 0 };
            next
        });
        let left: u64 = runs.iter().map(|e| e.len).sum();
        assert_eq!(left, blocks, "A3: blocks in runs, and those that were given up");
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_become_one_run_and_doubles_stay_two() {
        let mut r = Runs::default();
        // As a file is cut: leaf after leaf from the end, each from its first block on.
        for b in [20, 21, 22, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 30, 21] {
            r.push(BlockNo(b));
        }
        assert_eq!((r.blocks(), r.runs.len()), (15, 4));
        let sorted: Vec<_> = r.sorted().iter().map(|e| (e.start.0, e.len)).collect();
        assert_eq!(sorted, [(10, 13), (21, 1), (30, 1)]);
    }
}
