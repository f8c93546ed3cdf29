//! Ranges of bytes that lie in summaries only: what operations changed in blocks whose contents as
//! a whole have not been written since. It knows which bytes they are, and asks no disk.
//!
//! A block's contents are what the table leads to, with its ranges over it. Only newer contents of
//! the whole block, or its being freed, take them away; a move of the block does not (I11).

use crate::codec::{Reader, Writer};
use crate::geometry::{BLOCK_BYTES, Virt};
use env::Block;
use std::collections::BTreeMap;

/// Bytes of one block, and so many zeros behind them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Range {
    pub(crate) at: u16,
    pub(crate) bytes: Vec<u8>,
    pub(crate) zeros: u16,
}

impl Range {
    pub(crate) fn end(&self) -> usize {
        usize::from(self.at) + self.len()
    }
    /// Bytes of the block that it says.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() + usize::from(self.zeros)
    }
    /// Bytes in a summary, without what names the block.
    pub(crate) fn encoded(&self) -> usize {
        8 + self.bytes.len().next_multiple_of(8)
    }
    pub(crate) fn encode(&self, w: &mut Writer) {
        w.u16(self.at).u16(self.bytes.len() as u16).u16(self.zeros).u16(0).bytes(&self.bytes);
        let padded = self.bytes.len().next_multiple_of(8) - self.bytes.len();
        w.bytes(&[0; 8][..padded]);
    }
    pub(crate) fn decode(r: &mut Reader<'_>) -> Option<Range> {
        let (at, len, zeros, _) = (r.u16()?, r.u16()?, r.u16()?, r.u16()?);
        let raw = r.bytes(usize::from(len).next_multiple_of(8))?;
        let range = Range { at, bytes: raw[..usize::from(len)].to_vec(), zeros };
        (range.end() <= BLOCK_BYTES).then_some(range)
    }
    fn apply(&self, block: &mut [u8]) {
        let (at, end) = (usize::from(self.at), usize::from(self.at) + self.bytes.len());
        block[at..end].copy_from_slice(&self.bytes);
        block[end..self.end()].fill(0);
    }
}

/// A run of zeros this long is cheaper said than written.
const ZERO_RUN: usize = 32;
/// Bytes of one range at most, so that a summary has room for several.
const RANGE_BYTES_MAX: usize = 1024;

/// These bytes at `at` as ranges, long runs of zeros left out.
pub(crate) fn ranges_of(at: usize, bytes: &[u8]) -> Vec<Range> {
    let end = at + bytes.len();
    assert!(end <= BLOCK_BYTES, "I11: bytes {at} to {end} of a block");
    let mut all: Vec<Range> = Vec::new();
    let mut from = 0;
    while from < bytes.len() {
        let zeros = bytes[from..].iter().take_while(|b| **b == 0).count();
        if (zeros >= ZERO_RUN || from + zeros == bytes.len()) && zeros > 0 {
            match all.last_mut().filter(|r| r.zeros == 0) {
                Some(last) => last.zeros = zeros as u16,
                None => all.push(Range {
                    at: (at + from) as u16,
                    bytes: Vec::new(),
                    zeros: zeros as u16,
                }),
            }
            from += zeros;
            continue;
        }
        let end = next_zero_run(bytes, from + zeros).min(from + RANGE_BYTES_MAX);
        let part = bytes[from..end].to_vec();
        all.push(Range { at: (at + from) as u16, bytes: part, zeros: 0 });
        from = end;
    }
    let said: usize = all.iter().map(Range::len).sum();
    assert_eq!(said, bytes.len(), "I11: ranges say another number of bytes than there are");
    all
}

/// Where the first long run of zeros from `from` on begins, or the end.
fn next_zero_run(bytes: &[u8], from: usize) -> usize {
    let (mut at, mut zeros) = (from, 0);
    while at < bytes.len() {
        zeros = if bytes[at] == 0 { zeros + 1 } else { 0 };
        at += 1;
        if zeros == ZERO_RUN {
            return at - ZERO_RUN;
        }
    }
    bytes.len()
}

/// The bytes of a block that are known. What is said of many blocks, a few bytes of each, takes no
/// block of memory for each: a checkpoint and a log may say as much as the disk has.
#[derive(Clone)]
enum Bytes {
    /// As they were said, the last at the end.
    Said(Vec<Range>),
    /// Right within the ranges.
    Image(Block),
    /// All of them.
    Whole(Block),
}

/// Beyond so many bytes in them ranges are put into an image.
const SAID_BYTES_MAX: usize = 512;

impl Bytes {
    /// An image, and whether that is all of the block.
    fn image(&self) -> Block {
        match self {
            Bytes::Image(image) | Bytes::Whole(image) => image.clone(),
            Bytes::Said(all) => {
                let mut image = Block::zeroed(BLOCK_BYTES);
                all.iter().for_each(|r| r.apply(image.bytes_mut()));
                image
            }
        }
    }
    fn add(&mut self, range: &Range) {
        match self {
            Bytes::Image(image) | Bytes::Whole(image) => range.apply(image.bytes_mut()),
            Bytes::Said(all) => {
                all.push(range.clone());
                if all.iter().map(Range::encoded).sum::<usize>() > SAID_BYTES_MAX {
                    *self = Bytes::Image(self.image());
                }
            }
        }
    }
    /// Bytes of memory, about.
    fn memory(&self) -> usize {
        match self {
            Bytes::Image(_) | Bytes::Whole(_) => BLOCK_BYTES,
            Bytes::Said(all) => all.iter().map(|r| r.bytes.len() + 32).sum(),
        }
    }
}

/// What is pending of one block.
#[derive(Clone)]
pub(crate) struct Patch {
    bytes: Bytes,
    /// Sorted, none touching another.
    ranges: Vec<(u16, u16)>,
    /// Names it: one that was taken away and made again is another.
    pub(crate) id: u64,
    /// Raised with each range.
    pub(crate) newest: u64,
}

impl Patch {
    fn note(&mut self, from: usize, to: usize) {
        let (mut from, mut to) = (from as u16, to as u16);
        self.ranges.retain(|&(a, b)| {
            let apart = b < from || to < a;
            if !apart {
                (from, to) = (from.min(a), to.max(b));
            }
            apart
        });
        let i = self.ranges.partition_point(|r| r.0 < from);
        self.ranges.insert(i, (from, to));
        let apart = self.ranges.windows(2).all(|w| w[0].1 < w[1].0);
        debug_assert!(apart, "I11: ranges touch one another: {:?}", self.ranges);
    }
    /// Bytes in its ranges.
    pub(crate) fn len(&self) -> usize {
        self.ranges.iter().map(|(a, b)| usize::from(b - a)).sum()
    }
    /// Its bytes as a whole, over what the disk has; None: that is not known yet.
    pub(crate) fn whole(&self) -> Option<Block> {
        match &self.bytes {
            Bytes::Whole(image) => Some(image.clone()),
            _ => None,
        }
    }
    /// Puts its bytes over `block`.
    pub(crate) fn over(&self, block: &mut Block) {
        let to = block.bytes_mut();
        match &self.bytes {
            Bytes::Whole(image) => *block = image.clone(),
            Bytes::Said(all) => all.iter().for_each(|r| r.apply(to)),
            Bytes::Image(image) => {
                for (a, b) in &self.ranges {
                    let r = usize::from(*a)..usize::from(*b);
                    to[r.clone()].copy_from_slice(&image.bytes()[r]);
                }
            }
        }
    }
    /// What the disk has of it: from now on it is whole.
    fn fill(&mut self, mut base: Block) {
        let len = base.len();
        assert_eq!(len, BLOCK_BYTES, "I11: ranges are put over {len} bytes");
        self.over(&mut base);
        self.bytes = Bytes::Whole(base);
    }
}

/// All that is pending.
#[derive(Default)]
pub(crate) struct Patches {
    map: BTreeMap<u64, Patch>,
    bytes: usize,
    /// Bytes of memory in which they are.
    memory: usize,
    count: u64,
}

impl Patches {
    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }
    /// Bytes in all ranges.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
    /// Bytes of memory, about.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.len() * 128 + self.memory
    }
    pub(crate) fn get(&self, v: Virt) -> Option<&Patch> {
        self.map.get(&v.0)
    }
    /// Those among `n` blocks from `v` on.
    pub(crate) fn within(&self, v: Virt, n: u64) -> impl Iterator<Item = (Virt, &Patch)> {
        self.map.range(v.0..v.0 + n).map(|(v, p)| (Virt(*v), p))
    }
    pub(crate) fn all(&self) -> impl Iterator<Item = (Virt, &Patch)> {
        self.map.iter().map(|(v, p)| (Virt(*v), p))
    }

    /// A range of a block is in a summary. `image`: the block's bytes afterwards, if those are
    /// known.
    pub(crate) fn add(&mut self, v: Virt, range: &Range, image: Option<&Block>) {
        let end = range.end();
        assert!(end <= BLOCK_BYTES, "I11: a range of block {} ends at byte {end}", v.0);
        let len = image.map_or(BLOCK_BYTES, Block::len);
        assert_eq!(len, BLOCK_BYTES, "I11: all of block {} is {len} bytes", v.0);
        self.count += 1;
        let count = self.count;
        let p = self.map.entry(v.0).or_insert_with(|| Patch {
            bytes: Bytes::Said(Vec::new()),
            ranges: Vec::new(),
            id: count,
            newest: count,
        });
        let had = (p.len(), p.bytes.memory());
        let counted = self.bytes >= had.0 && self.memory >= had.1;
        assert!(counted, "I11: {had:?} bytes of block {}, of all {}", v.0, self.bytes);
        (self.bytes, self.memory) = (self.bytes - had.0, self.memory - had.1);
        p.newest = count;
        p.note(usize::from(range.at), range.end());
        match image {
            Some(image) => p.bytes = Bytes::Whole(image.clone()),
            None => p.bytes.add(range),
        }
        (self.bytes, self.memory) = (self.bytes + p.len(), self.memory + p.bytes.memory());
    }
    /// What the disk has of a block: from now on it is whole, if it is still the same.
    pub(crate) fn fill(&mut self, v: Virt, id: u64, base: Block) {
        if let Some(p) = self.map.get_mut(&v.0).filter(|p| p.id == id) {
            self.memory -= p.bytes.memory();
            p.fill(base);
            self.memory += p.bytes.memory();
        }
    }
    /// The block has been written as a whole, or freed.
    pub(crate) fn remove(&mut self, v: Virt) {
        if let Some(p) = self.map.remove(&v.0) {
            (self.bytes, self.memory) = (self.bytes - p.len(), self.memory - p.bytes.memory());
        }
    }
    /// The same of `n` blocks; how many there were.
    pub(crate) fn remove_within(&mut self, v: Virt, n: u64) -> usize {
        let all: Vec<Virt> = self.within(v, n).map(|(v, _)| v).collect();
        all.iter().for_each(|v| self.remove(*v));
        all.len()
    }

    /// What is counted of all of them is what they are (I11).
    pub(crate) fn check(&self) {
        let bytes: usize = self.map.values().map(Patch::len).sum();
        assert_eq!(self.bytes, bytes, "I11: bytes of ranges are counted, and are another number");
        let memory: usize = self.map.values().map(|p| p.bytes.memory()).sum();
        assert_eq!(self.memory, memory, "I11: the memory of ranges is counted wrongly");
        let newest = self.map.values().map(|p| p.newest.max(p.id)).max();
        assert!(newest <= Some(self.count), "I11: range {newest:?} of {}", self.count);
    }

    /// The blocks whose last range is the oldest, so many of them, in order.
    pub(crate) fn oldest(&self, n: usize) -> Vec<Virt> {
        let mut all: Vec<(u64, Virt)> = self.all().map(|(v, p)| (p.newest, v)).collect();
        all.sort_unstable_by_key(|(newest, _)| *newest);
        let mut all: Vec<Virt> = all.into_iter().take(n).map(|(_, v)| v).collect();
        all.sort_unstable();
        all
    }

    /// Everything, for a checkpoint's body.
    pub(crate) fn saved(&self) -> Vec<(Virt, Range)> {
        let mut all = Vec::new();
        for (v, p) in self.all() {
            let image = p.bytes.image();
            for &(a, b) in &p.ranges {
                let bytes = &image.bytes()[usize::from(a)..usize::from(b)];
                all.extend(ranges_of(usize::from(a), bytes).into_iter().map(|r| (v, r)));
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::Rng;

    #[test]
    fn ranges_say_the_bytes_they_were_made_of() {
        let mut rng = Rng::new(4);
        for _ in 0..500 {
            let (at, n) = (rng.below(2000) as usize, rng.below(2096) as usize + 1);
            let mut bytes = vec![0_u8; n];
            for _ in 0..rng.below(6) {
                let (from, len) = (rng.below(n as u64) as usize, rng.below(300) as usize);
                let end = (from + len).min(n);
                bytes[from..end].fill(rng.below(3) as u8);
            }
            let ranges = ranges_of(at, &bytes);
            let (mut block, mut next) = (vec![9_u8; BLOCK_BYTES], at);
            for r in &ranges {
                assert_eq!(usize::from(r.at), next, "one behind the other");
                next = r.end();
                r.apply(&mut block);
                let mut w = Writer::default();
                r.encode(&mut w);
                assert_eq!(w.0.len(), r.encoded());
                assert_eq!(Range::decode(&mut Reader(&w.0)).as_ref(), Some(r));
            }
            assert_eq!(next, at + n);
            assert_eq!(block[at..at + n], bytes);
        }
    }

    /// A checkpoint or a log that says a byte of each of many blocks does not fill the memory.
    #[test]
    fn a_few_bytes_of_a_block_take_a_few_in_memory() {
        let mut all = Patches::default();
        for v in 0..1000 {
            all.add(Virt(v), &Range { at: 7, bytes: vec![1], zeros: 900 }, None);
        }
        assert!(all.memory_bytes() < 300_000, "{}", all.memory_bytes());
    }

    #[test]
    fn what_is_pending_is_what_was_said_last() {
        let mut rng = Rng::new(5);
        for known in [false, true] {
            let (mut all, mut twin) = (Patches::default(), vec![7_u8; BLOCK_BYTES]);
            let mut touched = vec![false; BLOCK_BYTES];
            for n in 0..200_u64 {
                let (at, len) = (rng.below(3000) as usize, rng.below(90) as usize + 1);
                twin[at..at + len].fill(n as u8);
                touched[at..at + len].fill(true);
                let image = Block::copy_of(&twin);
                for r in ranges_of(at, &twin[at..at + len]) {
                    all.add(Virt(3), &r, known.then_some(&image));
                }
                assert_eq!(all.bytes(), touched.iter().filter(|t| **t).count());
            }
            let mut base = Block::copy_of(&[7; BLOCK_BYTES]);
            all.get(Virt(3)).unwrap().over(&mut base);
            assert_eq!(base.bytes(), twin);
            let mut again = Patches::default();
            all.saved().iter().for_each(|(v, r)| again.add(*v, r, None));
            let mut base = Block::copy_of(&[7; BLOCK_BYTES]);
            again.get(Virt(3)).unwrap().over(&mut base);
            assert_eq!(base.bytes(), twin, "as a checkpoint has it");
            all.remove(Virt(3));
            assert_eq!((all.len(), all.bytes()), (0, 0));
        }
    }
}
