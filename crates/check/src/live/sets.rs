//! Large sets and counts by number, dense, in the memory that they need: a bit a block, and two
//! bytes an inode in the parts of the table that are in use.

use format::Extent;

/// A set of numbers below a bound.
#[derive(Debug)]
pub(super) struct BitSet(Vec<u64>);

impl BitSet {
    pub(super) fn below(bound: u64) -> BitSet {
        BitSet(vec![0; (bound / 64 + 1) as usize])
    }
    pub(super) fn has(&self, n: u64) -> bool {
        self.0.get((n / 64) as usize).is_some_and(|w| w & (1 << (n % 64)) != 0)
    }
    /// True if it was not in it. What is beyond the bound is nobody's.
    pub(super) fn add(&mut self, n: u64) -> bool {
        let Some(word) = self.0.get_mut((n / 64) as usize) else { return true };
        let bit = 1 << (n % 64);
        let new = *word & bit == 0;
        *word |= bit;
        new
    }
    pub(super) fn remove(&mut self, n: u64) {
        if let Some(word) = self.0.get_mut((n / 64) as usize) {
            *word &= !(1 << (n % 64));
        }
    }
    pub(super) fn fill(&mut self) {
        self.0.fill(u64::MAX);
    }
    /// Takes out all that the other set has.
    pub(super) fn take_out(&mut self, other: &BitSet) {
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a &= !b);
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
