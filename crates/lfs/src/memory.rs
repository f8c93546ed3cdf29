//! What is in memory above the store: blocks that the cleaner need not read again, counted by
//! segment. Whose memory that is, and what leaves it when, is not known here.
//!
//! Rule        A block that is moved may be taken from memory only if memory holds what lies at the
//!             place that it is moved from (I16): the bytes that were put last or read since, with
//!             no range over them, of a block that nobody writes but by groups.
//! Terms       *resident*: in memory, with a known place in a segment. *contents of a segment*:
//!             which blocks were put where in it, kept from its first block on, so that no summary
//!             has to be read for what memory has; the oldest go when they are more than four
//!             times what is in memory.
//! Cost        a number for each block in memory, one for each segment, 24 bytes for each block of
//!             the segments whose contents are known.

use crate::geometry::{SegNo, Virt};
use crate::store::Store;
use env::{Block, IdMap, IdSet};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// Who holds blocks in memory above the store. It says so by [`Store::came`] and [`Store::gone`].
pub trait Memory {
    /// The block's bytes, if they are those that were put last, or read since.
    fn contents(&self, v: Virt) -> Option<Block>;
}

/// A block that was put into a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Put {
    pub(crate) v: Virt,
    pub(crate) stamp: u64,
    /// Which block of the segment.
    pub(crate) slot: u32,
}

/// Blocks of known contents at least, however little is in memory.
const KNOWN_LEAST: usize = 1 << 14;

/// Which blocks are in memory, and what is known of where they lie.
#[derive(Default)]
pub(crate) struct Residents {
    memory: Option<Rc<dyn Memory>>,
    /// Blocks in memory, and the segment of each that is resident.
    blocks: IdMap<u64, Option<SegNo>>,
    /// Residents of each segment.
    counts: IdMap<u32, u32>,
    /// Blocks that were written other than by groups.
    outside: IdSet<u64>,
    known: BTreeMap<u32, Vec<Put>>,
    /// Segments of `known`, in the order in which they were begun, and the blocks of all.
    order: VecDeque<u32>,
    puts: usize,
}

impl Residents {
    pub(crate) fn memory(&self) -> Option<Rc<dyn Memory>> {
        self.memory.clone()
    }
    /// Is there anybody who says what is in memory?
    pub(crate) fn is_watched(&self) -> bool {
        self.memory.is_some()
    }
    /// Residents of a segment whose contents are known; the others' are of no use.
    pub(crate) fn of(&self, seg: SegNo) -> u32 {
        let count = || self.counts.get(&seg.0).copied().unwrap_or(0);
        if self.known.contains_key(&seg.0) { count() } else { 0 }
    }
    /// What was put into a segment, if that is known from its first block on.
    pub(crate) fn contents_of(&self, seg: SegNo) -> Option<&[Put]> {
        self.known.get(&seg.0).map(Vec::as_slice)
    }
    /// The segment of a resident.
    pub(crate) fn lies_in(&self, v: Virt) -> Option<SegNo> {
        self.blocks.get(&v.0).copied().flatten()
    }

    /// Is what is counted of residents, and of contents, what is there?
    fn are_counted(&self) -> bool {
        let mut counts: IdMap<u32, u32> = IdMap::default();
        self.blocks.values().flatten().for_each(|seg| *counts.entry(seg.0).or_default() += 1);
        let puts: usize = self.known.values().map(Vec::len).sum();
        counts == self.counts && puts == self.puts
    }

    fn count(&mut self, seg: Option<SegNo>, more: bool) {
        let Some(seg) = seg else { return };
        let n = self.counts.entry(seg.0).or_default();
        assert!(more || *n > 0, "I16: segment {} has no residents", seg.0);
        *n = if more { *n + 1 } else { *n - 1 };
        if *n == 0 {
            self.counts.remove(&seg.0);
        }
    }

    /// The block lies in this segment, or nowhere where what memory has would do.
    pub(crate) fn lies(&mut self, v: Virt, seg: Option<SegNo>) {
        if !self.is_watched() {
            return;
        }
        let seg = seg.filter(|_| !self.outside.contains(&v.0));
        let Some(before) = self.blocks.get_mut(&v.0) else { return };
        let before = std::mem::replace(before, seg);
        self.count(before, false);
        self.count(seg, true);
    }

    /// The same of `n` blocks.
    pub(crate) fn all_lie(&mut self, v: Virt, n: u64, seg: Option<SegNo>) {
        if self.is_watched() {
            (v.0..v.0 + n).for_each(|v| self.lies(Virt(v), seg));
        }
    }

    /// Somebody writes the block past those who hold it in memory.
    pub(crate) fn written_outside(&mut self, v: Virt) {
        if self.is_watched() {
            self.outside.insert(v.0);
            self.lies(v, None);
        }
    }

    /// A head begins to fill a segment.
    pub(crate) fn begins(&mut self, seg: SegNo) {
        if !self.is_watched() {
            return;
        }
        self.forget(seg);
        let before = self.known.insert(seg.0, Vec::new());
        assert!(before.is_none(), "I16: segment {} begins, and its contents are known", seg.0);
        self.order.push_back(seg.0);
        let (listed, known) = (self.order.len(), self.known.len());
        assert_eq!(listed, known, "I16: the contents of {known} segments are known");
        debug_assert!(self.are_counted(), "I16: residents of segments are counted wrongly");
        let most = KNOWN_LEAST.max(4 * self.blocks.len());
        while self.puts > most && self.order.len() > 1 {
            let oldest = self.order.pop_front().expect("there are several");
            self.drop_contents(oldest);
        }
    }

    /// Nothing is known of its contents any more.
    pub(crate) fn forget(&mut self, seg: SegNo) {
        if self.known.contains_key(&seg.0) {
            self.order.retain(|s| *s != seg.0);
            self.drop_contents(seg.0);
        }
    }

    fn drop_contents(&mut self, seg: u32) {
        let gone = self.known.remove(&seg).map_or(0, |all| all.len());
        let puts = self.puts;
        assert!(gone <= puts, "I16: {gone} blocks of segment {seg} are forgotten, of {puts}");
        self.puts -= gone;
    }

    /// A block was put into a segment.
    pub(crate) fn put(&mut self, seg: SegNo, put: Put) {
        if let Some(all) = self.known.get_mut(&seg.0) {
            assert!(all.last().is_none_or(|l| l.slot < put.slot), "I3: {put:?} is behind it");
            all.push(put);
            self.puts += 1;
        }
    }

    /// Bytes that all this takes.
    pub(crate) fn bytes(&self) -> usize {
        self.blocks.len() * 24 + self.counts.len() * 16 + self.puts * size_of::<Put>()
    }
}

impl Store {
    /// From now on blocks are taken from there that the cleaner would read; nothing is in it yet.
    pub fn set_memory(&self, memory: Rc<dyn Memory>) {
        let residents = &mut self.inner.state.borrow_mut().residents;
        assert!(residents.blocks.is_empty(), "I16: a memory that has seen all that came");
        residents.memory = Some(memory);
    }

    /// The block has its place in memory; what is read of it from now on, or put, is there.
    pub fn came(&self, v: Virt) {
        let residents = &mut self.inner.state.borrow_mut().residents;
        if residents.is_watched() {
            residents.blocks.entry(v.0).or_default();
        }
    }

    /// It has left memory.
    pub fn gone(&self, v: Virt) {
        let residents = &mut self.inner.state.borrow_mut().residents;
        let before = residents.blocks.remove(&v.0).flatten();
        residents.count(before, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;
    impl Memory for Nothing {
        fn contents(&self, _: Virt) -> Option<Block> {
            None
        }
    }

    fn watched(blocks: u64) -> Residents {
        let blocks = (0..blocks).map(|v| (v, None)).collect();
        Residents { memory: Some(Rc::new(Nothing)), blocks, ..Residents::default() }
    }

    #[test]
    fn a_segment_counts_those_of_its_blocks_that_are_in_memory() {
        let mut r = watched(10);
        (0..5).for_each(|n| r.begins(SegNo(n)));
        r.all_lie(Virt(0), 20, Some(SegNo(3)));
        assert_eq!(r.of(SegNo(3)), 10, "the others are not in memory");
        r.lies(Virt(4), Some(SegNo(2)));
        r.lies(Virt(5), None);
        r.written_outside(Virt(6));
        r.lies(Virt(6), Some(SegNo(3)));
        assert_eq!((r.of(SegNo(3)), r.of(SegNo(2))), (7, 1));
        let lie = [4, 5, 6, 7, 11].map(|v| r.lies_in(Virt(v)));
        assert_eq!(lie, [Some(SegNo(2)), None, None, Some(SegNo(3)), None]);
        r.forget(SegNo(3));
        assert_eq!(r.of(SegNo(3)), 0, "what it holds would have to be read first");
    }

    #[test]
    fn the_oldest_contents_go_first() {
        let mut r = watched(1);
        let per = KNOWN_LEAST as u32 / 4;
        for seg in (0..6).map(SegNo) {
            r.begins(seg);
            (0..per).for_each(|slot| r.put(seg, Put { v: Virt(9), stamp: 1, slot }));
        }
        let known = |n| r.contents_of(SegNo(n)).map(<[Put]>::len);
        assert_eq!((known(0), known(1)), (None, Some(per as usize)));
        assert_eq!(known(5), Some(per as usize));
    }
}
