//! Large sets and counts by number, in the memory that they need: a bit a block, and four bytes an
//! inode, in the parts of the volume that are in use.

use format::Extent;

/// Numbers in a part of a set.
const PART: u64 = 4096;
type Part = Box<[u64; PART as usize / 64]>;

/// A set of numbers below a bound.
#[derive(Debug)]
pub(super) struct BitSet {
    parts: Vec<Option<Part>>,
    /// What the parts hold that are not there: all of their numbers, or none.
    rest: bool,
}

impl BitSet {
    pub(super) fn below(bound: u64) -> BitSet {
        let parts = (0..=bound / PART).map(|_| None).collect();
        BitSet { parts, rest: false }
    }
    fn none(rest: bool) -> Part {
        Box::new([if rest { u64::MAX } else { 0 }; PART as usize / 64])
    }
    pub(super) fn has(&self, n: u64) -> bool {
        let part = self.parts.get((n / PART) as usize);
        part.is_some_and(|part| match part {
            Some(words) => words[(n % PART / 64) as usize] & 1 << (n % 64) != 0,
            None => self.rest,
        })
    }
    fn word(&mut self, n: u64) -> Option<&mut u64> {
        let part = self.parts.get_mut((n / PART) as usize)?;
        let words = part.get_or_insert_with(|| BitSet::none(self.rest));
        Some(&mut words[(n % PART / 64) as usize])
    }
    /// True if it was not in it. What is beyond the bound is nobody's.
    pub(super) fn add(&mut self, n: u64) -> bool {
        let Some(word) = self.word(n) else { return true };
        let bit = 1 << (n % 64);
        let new = *word & bit == 0;
        *word |= bit;
        new
    }
    pub(super) fn remove(&mut self, n: u64) {
        if self.has(n)
            && let Some(word) = self.word(n)
        {
            *word &= !(1 << (n % 64));
        }
    }
    pub(super) fn fill(&mut self) {
        self.parts.fill_with(|| None);
        self.rest = true;
    }
    /// Takes out all that the other set has.
    pub(super) fn take_out(&mut self, other: &BitSet) {
        for (a, b) in self.parts.iter_mut().zip(&other.parts) {
            let is_empty = a.is_none() && !self.rest;
            match b {
                _ if is_empty => (),
                None if other.rest => *a = Some(BitSet::none(false)),
                None => (),
                Some(b) => {
                    let a = a.get_or_insert_with(|| BitSet::none(self.rest));
                    a.iter_mut().zip(b.iter()).for_each(|(a, b)| *a &= !b);
                }
            }
        }
    }
    pub(super) fn add_all(&mut self, e: Extent) {
        for i in 0..e.len {
            self.add(e.start.0 + i);
        }
    }
}

const PAGE: usize = 4096;

/// Counts by number.
#[derive(Debug, Default)]
pub(super) struct Counts(Vec<Option<Box<[u32; PAGE]>>>);

impl Counts {
    pub(super) fn get(&self, n: u32) -> u32 {
        let page = self.0.get(n as usize / PAGE).and_then(Option::as_ref);
        page.map_or(0, |p| p[n as usize % PAGE])
    }
    pub(super) fn change(&mut self, n: u32, by: i32) {
        let page = n as usize / PAGE;
        if self.0.len() <= page {
            self.0.resize_with(page + 1, || None);
        }
        let page = self.0[page].get_or_insert_with(|| Box::new([0; PAGE]));
        let count = &mut page[n as usize % PAGE];
        *count = count.saturating_add_signed(by);
    }
    /// Those that are not 0.
    pub(super) fn all(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let pages = self.0.iter().enumerate().filter_map(|(n, p)| Some((n, p.as_ref()?)));
        pages.flat_map(|(n, page)| {
            let counts = page.iter().enumerate().filter(|(_, c)| **c != 0);
            counts.map(move |(i, c)| ((n * PAGE + i) as u32, *c))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::BlockNo;
    use std::collections::BTreeSet;

    #[test]
    fn a_set_is_what_a_naive_one_is() {
        const BOUND: u64 = 5 * PART + 77;
        let mut rng = env::Rng::new(3);
        let (mut sets, mut naive) =
            ([BitSet::below(BOUND), BitSet::below(BOUND)], [(); 2].map(|()| BTreeSet::new()));
        for round in 0..4000 {
            let (i, n) = (rng.below(2) as usize, rng.below(BOUND));
            match rng.below(if round % 1000 == 999 { 5 } else { 3 }) {
                0 => assert_eq!(sets[i].add(n), naive[i].insert(n)),
                1 => {
                    let e = Extent { start: BlockNo(n), len: rng.below(200).min(BOUND - n) };
                    sets[i].add_all(e);
                    naive[i].extend(n..n + e.len);
                }
                2 => {
                    sets[i].remove(n);
                    naive[i].remove(&n);
                }
                3 => {
                    sets[i].fill();
                    naive[i] = (0..BOUND).collect();
                }
                _ => {
                    let [a, b] = &mut sets;
                    a.take_out(b);
                    let [a, b] = &mut naive;
                    a.retain(|n| !b.contains(n));
                }
            }
            assert_eq!(sets[i].has(n), naive[i].contains(&n));
        }
        for (set, naive) in sets.iter().zip(&naive) {
            assert!((0..BOUND).all(|n| set.has(n) == naive.contains(&n)));
        }
        assert!(sets[0].add(1 << 60) && !sets[0].has(1 << 60), "beyond the bound");
    }
}
