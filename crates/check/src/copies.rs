//! Copies of blocks that a repair makes, as runs of where each is from: what a block holds is read
//! when the repair is written, so that files that share gigabytes take no memory for them.

use format::BlockNo;
use std::collections::BTreeMap;

/// Runs of copies: the first block that is written, the first that is read, and how many.
pub(crate) type Runs = Vec<(u64, u64, u64)>;

/// Blocks that will hold what others do, by where they are written.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub(crate) struct Copies(BTreeMap<u64, (u64, u64)>);

impl Copies {
    /// What a block is a copy of.
    pub(crate) fn source(&self, b: BlockNo) -> Option<BlockNo> {
        let (first, (from, len)) = self.0.range(..=b.0).next_back()?;
        (b.0 - first < *len).then(|| BlockNo(from + (b.0 - first)))
    }

    /// Makes a block the copy of another one, which is none itself.
    pub(crate) fn put(&mut self, to: BlockNo, from: BlockNo) {
        let is_copy = from == to || self.source(from).is_some();
        assert!(!is_copy, "K2: block {from} is a copy itself, and read before it is written");
        self.forget(to);
        if let Some((first, (source, len))) = self.0.range_mut(..to.0).next_back()
            && first + *len == to.0
            && *source + *len == from.0
        {
            *len += 1;
        } else {
            self.0.insert(to.0, (from.0, 1));
        }
        let of = self.source(to);
        assert_eq!(of, Some(from), "K2: block {to} would become a copy of another one");
    }

    /// It is a copy no longer.
    pub(crate) fn forget(&mut self, b: BlockNo) {
        let Some((first, (from, len))) = self.0.range(..=b.0).next_back() else { return };
        let (first, from, len, at) = (*first, *from, *len, b.0 - *first);
        if at >= len {
            return;
        }
        self.0.remove(&first);
        if at > 0 {
            self.0.insert(first, (from, at));
        }
        if at + 1 < len {
            self.0.insert(b.0 + 1, (from + at + 1, len - at - 1));
        }
        let of = self.source(b);
        assert!(of.is_none(), "K2: block {b} is no copy any more, and one of {of:?}");
    }

    /// Those among the blocks of a range, each with what it is a copy of.
    pub(crate) fn among(&self, first: u64, count: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let before = self.0.range(..first).next_back().map_or(first, |(at, _)| *at);
        let end = first.saturating_add(count);
        self.0.range(before..end.max(before)).flat_map(move |(at, (from, len))| {
            let (low, high) = ((*at).max(first), (at + len).min(end));
            (low..high).map(move |b| (b, from + (b - at)))
        })
    }

    /// All of them.
    pub(crate) fn runs(&self) -> Runs {
        self.0.iter().map(|(to, (from, len))| (*to, *from, *len)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_joined_and_cut() {
        let mut c = Copies::default();
        (0..5).for_each(|n| c.put(BlockNo(100 + n), BlockNo(10 + n)));
        assert_eq!(c.runs(), [(100, 10, 5)]);
        c.forget(BlockNo(102));
        assert_eq!(c.runs(), [(100, 10, 2), (103, 13, 2)]);
        assert_eq!(c.source(BlockNo(102)), None);
        c.put(BlockNo(103), BlockNo(50));
        assert_eq!(c.source(BlockNo(103)), Some(BlockNo(50)));
        assert_eq!(c.source(BlockNo(104)), Some(BlockNo(14)));
        let all: Vec<_> = c.among(101, 3).collect();
        assert_eq!(all, [(101, 11), (103, 50)]);
        assert_eq!(c.among(105, 1 << 40).count(), 0);
    }

    /// Random copies, in runs and alone, made anew and taken back, against a map of blocks.
    #[test]
    fn runs_are_what_a_map_of_blocks_is() {
        let mut rng = env::Rng::new(5);
        for _ in 0..200 {
            let (mut c, mut twin) = (Copies::default(), BTreeMap::new());
            for _ in 0..80 {
                let (to, run) = (100 + rng.below(40), 1 + rng.below(6));
                // What is read is never written: K2.
                let from = rng.below(2) * 50 + rng.below(30);
                for b in to..to + run {
                    if rng.below(3) > 0 {
                        c.put(BlockNo(b), BlockNo(from + b - to));
                        twin.insert(b, from + b - to);
                    } else {
                        c.forget(BlockNo(b));
                        twin.remove(&b);
                    }
                }
                let (first, count) = (90 + rng.below(60), rng.below(20));
                let among: Vec<_> = c.among(first, count).collect();
                let here = twin.range(first..first + count).map(|(b, from)| (*b, *from));
                assert_eq!(among, here.collect::<Vec<_>>(), "{first}, {count}");
            }
            let all = (0..200).filter_map(|b| c.source(BlockNo(b)).map(|from| (b, from.0)));
            assert!(all.eq(twin.iter().map(|(b, from)| (*b, *from))));
            let total: u64 = c.runs().iter().map(|r| r.2).sum();
            assert_eq!(total, twin.len() as u64);
        }
    }
}
