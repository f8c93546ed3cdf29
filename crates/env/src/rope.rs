//! A payload on its way in or out: pieces of blocks, one after the other, counted and never copied
//! on the way.
//! It is `Send`, so that the long copy into a reply's buffer happens outside the monitor.
//!
//! Invariants:
//! * R1. It is as long as its pieces together, none of which is empty or reaches beyond its block.

use crate::{Block, SECTOR_BYTES};
use std::ops::Range;

/// Bytes in pieces.
#[derive(Clone, Default, Debug)]
pub struct Rope {
    parts: Vec<(Block, Range<usize>)>,
    len: usize,
}

impl Rope {
    /// No bytes.
    pub fn new() -> Rope {
        Rope::default()
    }

    /// A copy of `bytes`, cut into blocks of `block_len` so that the first cut falls where the
    /// file's block border is: `skew` is the first byte's offset in its block. Whole blocks are
    /// then taken over by the cache as they are; short pieces lie in shorter ones.
    pub fn cut(bytes: &[u8], skew: usize, block_len: usize) -> Rope {
        assert!(skew < block_len);
        let mut rope = Rope::new();
        let mut at = 0;
        let mut start = skew;
        while at < bytes.len() {
            let n = (block_len - start).min(bytes.len() - at);
            // A short piece, which is copied anyway, needs no memory for a whole block.
            let short = n.next_multiple_of(SECTOR_BYTES);
            let (len, first) = if short < block_len / 2 { (short, 0) } else { (block_len, start) };
            let mut block = Block::zeroed(len);
            block.bytes_mut()[first..first + n].copy_from_slice(&bytes[at..at + n]);
            rope.push(block, first..first + n);
            (at, start) = (at + n, 0);
        }
        assert_eq!(rope.len, bytes.len(), "R1: a copy in pieces is not as long as the bytes");
        rope
    }

    /// Appends a piece of a block.
    pub fn push(&mut self, block: Block, range: Range<usize>) {
        let len = block.len();
        let inside = range.start <= range.end && range.end <= len;
        assert!(inside, "R1: a piece is bytes {range:?} of a block of {len}");
        if !range.is_empty() {
            self.len += range.len();
            self.parts.push((block, range));
        }
    }

    /// How many bytes.
    pub fn len(&self) -> usize {
        self.len
    }
    /// None at all?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The pieces in order.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().map(|(b, r)| &b.bytes()[r.clone()])
    }

    /// The pieces with the blocks they lie in.
    pub fn blocks(&self) -> &[(Block, Range<usize>)] {
        &self.parts
    }

    /// Copies everything to the start of `out`, which is at least `len` bytes.
    pub fn copy_to(&self, out: &mut [u8]) {
        let mut at = 0;
        for p in self.parts() {
            out[at..at + p.len()].copy_from_slice(p);
            at += p.len();
        }
        assert_eq!(at, self.len, "R1: the pieces are not as long as the whole");
    }

    /// Copies `len` bytes from `from` on to `out`; what lies beyond the end is left alone.
    pub fn copy_range(&self, from: usize, out: &mut [u8]) {
        let (mut skip, mut at) = (from, 0);
        for p in self.parts() {
            if skip >= p.len() {
                skip -= p.len();
                continue;
            }
            let n = (p.len() - skip).min(out.len() - at);
            out[at..at + n].copy_from_slice(&p[skip..skip + n]);
            (skip, at) = (0, at + n);
            if at == out.len() {
                return;
            }
        }
    }

    /// The bytes from `from` on.
    pub fn behind(&self, from: usize) -> Rope {
        let (mut rest, mut skip) = (Rope::new(), from);
        for (block, range) in &self.parts {
            let n = skip.min(range.len());
            skip -= n;
            rest.push(block.clone(), range.start + n..range.end);
        }
        let left = self.len.saturating_sub(from);
        assert_eq!(rest.len, left, "R1: behind byte {from} of {} there is less or more", self.len);
        rest
    }

    /// Cuts it to `len` bytes if it is longer.
    pub fn truncate(&mut self, len: usize) {
        while self.len > len {
            let over = self.len - len;
            let last = self.parts.last_mut().expect("R1: a rope with bytes has a last part");
            if last.1.len() <= over {
                self.len -= last.1.len();
                self.parts.pop();
            } else {
                last.1.end -= over;
                self.len -= over;
            }
        }
    }

    /// All bytes in one vector.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut v = vec![0; self.len];
        self.copy_to(&mut v);
        v
    }
}

/// A part of what is to be sent: bytes of its own, or those of blocks that others use as well.
#[derive(Debug)]
pub enum Piece {
    /// Its own.
    Own(Vec<u8>),
    /// Of blocks, which are held until it is sent.
    Shared(Rope),
}

impl Piece {
    /// How many bytes.
    pub fn len(&self) -> usize {
        match self {
            Piece::Own(v) => v.len(),
            Piece::Shared(r) => r.len(),
        }
    }
    /// None at all?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The bytes in order.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let (own, shared) = match self {
            Piece::Own(v) => (Some(v.as_slice()), None),
            Piece::Shared(r) => (None, Some(r.parts())),
        };
        own.into_iter().chain(shared.into_iter().flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_and_join() {
        let bytes: Vec<u8> = (0..10_000).map(|i| (i % 251) as u8).collect();
        let r = Rope::cut(&bytes, 100, 4096);
        assert_eq!(r.blocks()[0].1, 100..4096);
        assert_eq!(r.blocks()[1].1, 0..4096);
        assert_eq!(r.to_vec(), bytes);
        let mut piece = [0; 5000];
        r.copy_range(3990, &mut piece);
        assert_eq!(&piece[..], &bytes[3990..8990]);
        let tail = &r.blocks()[2];
        assert_eq!((tail.0.len(), tail.1.clone()), (4096, 0..1908));
        let few = Rope::cut(&bytes[..600], 700, 4096);
        assert_eq!((few.blocks()[0].0.len(), few.to_vec()), (1024, bytes[..600].to_vec()));
        let mut short = r.clone();
        short.truncate(4000);
        assert_eq!(short.to_vec(), &bytes[..4000]);
        for from in [0, 100, 3996, 8092, 9_999, 10_000] {
            assert_eq!(r.behind(from).to_vec(), &bytes[from..]);
        }
        for piece in [Piece::Own(bytes.clone()), Piece::Shared(r)] {
            assert_eq!(piece.len(), bytes.len());
            assert_eq!(piece.parts().collect::<Vec<_>>().concat(), bytes);
        }
    }
}
