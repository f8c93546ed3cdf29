//! What a file holds: pages that clones share until one of them changes one, and zeros that take no
//! room. A judge keeps a file's contents of each moment and compares them for each crash state, so
//! that a sparse file of many MiB must not cost more than what was written to it.
//!
//! Invariants, by which equal contents are equal page by page:
//! * K1. No page that is kept is all zeros.
//! * K2. None lies behind the end, and what a page has behind it is zero.
//! * K3. A range that is put in or taken out lies within, and what was written elsewhere is there
//!   as it was.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

const PAGE: u64 = 4096;
type Page = [u8; PAGE as usize];
const ZEROS: &Page = &[0; PAGE as usize];

/// A file's bytes.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Contents {
    len: u64,
    pages: BTreeMap<u64, Arc<Page>>,
}

impl Contents {
    /// How many bytes.
    pub fn len(&self) -> u64 {
        self.len
    }
    /// Has it none?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// Cuts it, or adds zeros.
    pub fn resize(&mut self, len: u64) {
        if len < self.len {
            self.zero(len..self.len);
        }
        self.len = len;
        self.check_end();
    }
    /// Looks at the last page.
    fn check_end(&self) {
        let Some((n, page)) = self.pages.last_key_value() else { return };
        let left = self.len.saturating_sub(n * PAGE).min(PAGE) as usize;
        assert!(left > 0 && is_zero(&page[left..]), "K2: page {n} of {} bytes", self.len);
    }
    /// Writes from byte `at` on; it grows if need be.
    pub fn write(&mut self, at: u64, bytes: &[u8]) {
        self.len = self.len.max(at + bytes.len() as u64);
        let mut rest = bytes;
        for (n, within) in pieces(at..at + bytes.len() as u64) {
            let (now, then) = rest.split_at(within.len());
            rest = then;
            let is_zero = is_zero(now);
            if is_zero && !self.pages.contains_key(&n) {
                continue;
            }
            let page = self.pages.entry(n).or_insert_with(|| Arc::new([0; PAGE as usize]));
            Arc::make_mut(page)[within].copy_from_slice(now);
            self.drop_if_zero(n, is_zero);
        }
        self.check_end();
    }
    /// Makes the range zeros, as far as it is within.
    pub fn zero(&mut self, range: Range<u64>) {
        let end = range.end.min(self.len);
        let range = range.start.min(end)..end;
        let (first, last) = (range.start / PAGE, range.end.div_ceil(PAGE));
        let there: Vec<u64> = match first < last {
            true => self.pages.range(first..last).map(|(n, _)| *n).collect(),
            false => Vec::new(),
        };
        for n in there {
            let within = within(n, &range);
            let page = self.pages.get_mut(&n).expect("it was there");
            Arc::make_mut(page)[within].fill(0);
            self.drop_if_zero(n, true);
        }
    }
    /// Takes a range that it has out; what follows moves to its place.
    pub fn collapse(&mut self, at: u64, len: u64) {
        assert!(at + len <= self.len, "K3: {len} bytes at {at} of {} are taken out", self.len);
        self.zero(at..at + len);
        let mut new = Contents { len: self.len - len, pages: BTreeMap::new() };
        for (run, byte) in self.runs() {
            let to = if run.start < at { run.start } else { run.start - len };
            new.write(to, &vec![byte; (run.end - run.start) as usize]);
        }
        new.check_end();
        // Byte by byte.
        debug_assert_eq!(new.written().count(), self.written().count(), "K3: some have gone");
        *self = new;
    }
    /// Puts zeros before what lies at `at`, which moves behind them.
    pub fn insert(&mut self, at: u64, len: u64) {
        assert!(at <= self.len, "K3: {len} bytes are put in at {at} of {}", self.len);
        let mut new = Contents { len: self.len + len, pages: BTreeMap::new() };
        for (run, byte) in self.runs() {
            let stays = run.start..run.end.min(at);
            let moves = run.start.max(at)..run.end;
            for (part, by) in [(stays, 0), (moves, len)].into_iter().filter(|p| !p.0.is_empty()) {
                new.write(part.start + by, &vec![byte; (part.end - part.start) as usize]);
            }
        }
        new.check_end();
        // Byte by byte.
        debug_assert_eq!(new.written().count(), self.written().count(), "K3: some have gone");
        *self = new;
    }
    fn drop_if_zero(&mut self, n: u64, may_be: bool) {
        if may_be && is_zero(&self.pages[&n][..]) {
            self.pages.remove(&n);
        }
        // A page is compared.
        debug_assert!(self.pages.get(&n).is_none_or(|p| !is_zero(&p[..])), "K1: page {n} is zeros");
    }
    /// The byte there; zero behind its end.
    pub(crate) fn byte(&self, at: u64) -> u8 {
        self.pages.get(&(at / PAGE)).map_or(0, |page| page[(at % PAGE) as usize])
    }
    /// Is the range all zeros?
    pub fn is_zero(&self, range: Range<u64>) -> bool {
        let zero = |(n, within): (u64, Range<usize>)| {
            self.pages.get(&n).is_none_or(|p| is_zero(&p[within]))
        };
        pieces(range).all(zero)
    }
    /// Runs of one byte that is not zero, with their places; none crosses from page to page.
    pub fn runs(&self) -> impl Iterator<Item = (Range<u64>, u8)> + '_ {
        self.pages.iter().flat_map(|(n, page)| {
            let mut at = n * PAGE;
            let parts = page.chunk_by(|a, b| a == b).map(move |part| {
                at += part.len() as u64;
                (at - part.len() as u64..at, part[0])
            });
            parts.filter(|(_, b)| *b != 0)
        })
    }
    /// The bytes that are not zero, with their places.
    pub fn written(&self) -> impl Iterator<Item = (u64, u8)> + '_ {
        self.runs().flat_map(|(run, b)| run.map(move |at| (at, b)))
    }
    /// Where it has another byte than `other`, as far as both reach, and which.
    pub(crate) fn differs_from<'a>(
        &'a self,
        other: &'a Contents,
    ) -> impl Iterator<Item = (u64, u8)> + 'a {
        let end = self.len.min(other.len);
        let numbers: BTreeSet<u64> = self.pages.keys().chain(other.pages.keys()).copied().collect();
        numbers.into_iter().flat_map(move |n| {
            let page = |of: &'a Contents| of.pages.get(&n).map_or(ZEROS, |p| &**p);
            let (mine, others) = (page(self), page(other));
            let bytes = if std::ptr::eq(mine, others) { 0 } else { PAGE as usize };
            let differ = (0..bytes).filter(move |i| mine[*i] != others[*i]);
            differ.map(move |i| (n * PAGE + i as u64, mine[i])).filter(move |(at, _)| *at < end)
        })
    }
}

/// Of a page, or a part of one. Compared as a whole, which is many times as fast as byte by byte.
fn is_zero(part: &[u8]) -> bool {
    *part == ZEROS[..part.len()]
}

/// The part of a page in a range of bytes.
fn within(n: u64, range: &Range<u64>) -> Range<usize> {
    let (from, to) = (range.start.max(n * PAGE), range.end.min((n + 1) * PAGE));
    (from - n * PAGE) as usize..(to - n * PAGE) as usize
}

/// A range's pages, and which part of each.
fn pieces(range: Range<u64>) -> impl Iterator<Item = (u64, Range<usize>)> {
    let last = if range.is_empty() { 0 } else { range.end.div_ceil(PAGE) };
    (range.start / PAGE..last).map(move |n| (n, within(n, &range)))
}

impl From<&[u8]> for Contents {
    fn from(bytes: &[u8]) -> Contents {
        let mut all = Contents::default();
        all.write(0, bytes);
        all
    }
}

impl PartialEq<[u8]> for Contents {
    fn eq(&self, bytes: &[u8]) -> bool {
        let Contents { len, pages } = Contents::from(bytes);
        self.len == len && self.pages == pages
    }
}

impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes, {} pages of them written", self.len, self.pages.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::Rng;

    /// Against a plain vector, at random.
    #[test]
    fn it_is_what_a_vector_is() {
        for seed in 0..12 {
            let mut rng = Rng::new(seed);
            let (mut a, mut b) = (Contents::default(), Vec::new());
            let mut old = (a.clone(), b.clone());
            for _ in 0..60 {
                let (at, len) = (rng.below(20_000), rng.below(9000));
                let end = (at + len) as usize;
                match rng.below(7) {
                    5 if (at + len) <= a.len() => {
                        a.collapse(at, len);
                        b.drain(at as usize..end);
                    }
                    6 if at <= a.len() => {
                        a.insert(at, len);
                        b.splice(at as usize..at as usize, vec![0; len as usize]);
                    }
                    0 => {
                        a.resize(at);
                        b.resize(at as usize, 0);
                    }
                    1 => {
                        a.zero(at..at + len);
                        let end = end.min(b.len());
                        b.get_mut(at as usize..end).into_iter().for_each(|z| z.fill(0));
                    }
                    2 => old = (a.clone(), b.clone()),
                    _ => {
                        let bytes = vec![rng.below(3) as u8; len as usize];
                        a.write(at, &bytes);
                        b.resize(b.len().max(end), 0);
                        b[at as usize..end].copy_from_slice(&bytes);
                    }
                }
                assert!(a == b[..] && old.0 == old.1[..], "seed {seed}");
                assert_eq!(a == old.0, b == old.1);
                let zip = || (0..).zip(b.iter().zip(&old.1)).filter(|(_, (x, y))| x != y);
                assert!(a.differs_from(&old.0).eq(zip().map(|(at, (x, _))| (at, *x))));
                let written = (0..).zip(&b).filter(|(_, x)| **x != 0).map(|(at, x)| (at, *x));
                assert!(a.written().eq(written));
                let range = at.min(b.len() as u64)..(end.min(b.len()) as u64);
                let part = b.get(range.start as usize..range.end as usize).unwrap_or(&[]);
                assert_eq!(a.is_zero(range), part.iter().all(|x| *x == 0));
            }
        }
    }
}
