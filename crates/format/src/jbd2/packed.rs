//! The journal blocks of modes `wasteless` and `selective` (hatzieleftheriou-2013): descriptors
//! whose tags name whole blocks or parts of them, and multiwrite blocks, in which the parts lie one
//! behind the other. What a transaction holds, and when, is the mechanism's question.
//!
//! A journal with such blocks has the feature bit [`super::incompat::PACKED`], which neither e2fsck
//! nor Linux knows: they refuse it while it holds something, and would misread it otherwise. Its
//! revocations, commits and superblock are those of every other journal.
//!
//! ```text
//! descriptor  head(12) count(4) tags(24 each) ... sum(4)
//! tag         block(8) sum(4) offset(2) len(2) flags(4) 0(4)
//! multiwrite  magic(4) tid(4) used(4) 0(4) parts ...
//! ```
//! A part's place in its multiwrite block is the sum of the lengths before it. A part never leaves
//! its block, and the first part of a descriptor begins a new one.

use super::{HEAD, Head, Kind, Shape, be32, be64, crc, put32, put64};
use crate::{BlockNo, FormatError};

/// Begins a multiwrite block. Not the journal's own magic number, so that nobody takes it for one
/// of the other kinds.
const MULTIWRITE_MAGIC: u32 = 0x4d57_0001;
/// Bytes before the first part of a multiwrite block.
pub const MULTIWRITE_HEAD: usize = 16;
const TAGS: usize = HEAD + 4;
const TAG: usize = 24;

const ESCAPED: u32 = 1;
const PART: u32 = 2;
const FRESH: u32 = 4;
const NEXT_BLOCK: u32 = 8;

/// What a tag stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// A block of the journal holds all of it.
    Whole {
        /// Was it escaped?
        escaped: bool,
    },
    /// A part of it lies in a multiwrite block.
    Part {
        /// First byte within the block in place.
        offset: usize,
        /// How many bytes.
        len: usize,
        /// The rest of the block is zeros, whatever is in place.
        fresh: bool,
        /// The multiwrite block is the next one of the journal.
        next_block: bool,
    },
}

/// A tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Where it belongs on the volume.
    pub block: BlockNo,
    /// What of it.
    pub what: What,
    /// The sum of the bytes, by [`Shape::block_sum`].
    pub sum: u32,
}

impl Shape {
    /// How many tags one descriptor of this kind has room for.
    pub fn pieces_per_block(&self) -> usize {
        (self.block_bytes - 4 - TAGS) / TAG
    }

    /// A descriptor of transaction `tid`, for at least one piece and at most
    /// [`Shape::pieces_per_block`].
    pub fn packed_descriptor(&self, tid: u32, pieces: &[Piece]) -> Vec<u8> {
        let (count, most) = (pieces.len(), self.pieces_per_block());
        assert!((1..=most).contains(&count), "F3: {count} tags in a descriptor, of {most}");
        let mut out = vec![0; self.block_bytes];
        Head { kind: Kind::Descriptor, tid }.encode(&mut out);
        put32(&mut out, HEAD, pieces.len() as u32);
        for (p, raw) in pieces.iter().zip(out[TAGS..].chunks_exact_mut(TAG)) {
            put64(raw, 0, p.block.0);
            put32(raw, 8, p.sum);
            let (offset, len, flags) = match p.what {
                What::Whole { escaped } => (0, 0, if escaped { ESCAPED } else { 0 }),
                What::Part { offset, len, fresh, next_block } => {
                    let inside = len > 0 && offset + len <= self.block_bytes;
                    assert!(inside, "F1: {len} bytes of a block from {offset} on");
                    let fresh = if fresh { FRESH } else { 0 };
                    let next = if next_block { NEXT_BLOCK } else { 0 };
                    (offset, len, PART | fresh | next)
                }
            };
            raw[12..14].copy_from_slice(&(offset as u16).to_be_bytes());
            raw[14..16].copy_from_slice(&(len as u16).to_be_bytes());
            put32(raw, 16, flags);
        }
        self.seal(&mut out);
        let first = pieces.iter().find(|p| matches!(p.what, What::Part { .. })).map(|p| p.what);
        let begins = first.is_none_or(|w| matches!(w, What::Part { next_block: true, .. }));
        assert!(begins, "F3: the first part of a descriptor goes on in another one's block");
        let same = self.pieces(&out).is_ok_and(|all| all == pieces);
        assert!(same, "F1: {count} pieces are read as others");
        out
    }

    /// The pieces that follow a descriptor. Errors: `Corrupt` if its checksum is wrong or what it
    /// lists cannot be.
    pub fn pieces(&self, block: &[u8]) -> Result<Vec<Piece>, FormatError> {
        let bad = |what: &str| Err(FormatError::corrupt(what, "a descriptor in the journal"));
        if !self.is_sealed(block) {
            return bad("its checksum is wrong");
        }
        let count = be32(block, HEAD) as usize;
        if count == 0 || count > self.pieces_per_block() {
            return bad("its list has no end");
        }
        let mut pieces = Vec::with_capacity(count);
        for raw in block[TAGS..].chunks_exact(TAG).take(count) {
            let half = |at: usize| usize::from(u16::from_be_bytes([raw[at], raw[at + 1]]));
            let (offset, len, flags) = (half(12), half(14), be32(raw, 16));
            let is_part = flags & PART != 0;
            if is_part && (len == 0 || offset + len > self.block_bytes) {
                return bad("a part of a block that lies beyond it");
            }
            let what = if is_part {
                let (fresh, next_block) = (flags & FRESH != 0, flags & NEXT_BLOCK != 0);
                What::Part { offset, len, fresh, next_block }
            } else {
                What::Whole { escaped: flags & ESCAPED != 0 }
            };
            pieces.push(Piece { block: BlockNo(be64(raw, 0)), what, sum: be32(raw, 8) });
        }
        Ok(pieces)
    }

    /// A multiwrite block: its head, and room for the parts behind it.
    pub fn multiwrite(&self, tid: u32, parts: &[u8]) -> Vec<u8> {
        let (len, most) = (parts.len(), self.block_bytes - MULTIWRITE_HEAD);
        assert!(len <= most, "F3: {len} bytes of parts in a block with room for {most}");
        let mut out = vec![0; self.block_bytes];
        put32(&mut out, 0, MULTIWRITE_MAGIC);
        put32(&mut out, 4, tid);
        put32(&mut out, 8, parts.len() as u32);
        out[MULTIWRITE_HEAD..MULTIWRITE_HEAD + parts.len()].copy_from_slice(parts);
        out
    }

    /// The sum of a piece of transaction `tid`, which says where it belongs, too.
    pub fn piece_sum(&self, tid: u32, block: BlockNo, offset: usize, bytes: &[u8]) -> u32 {
        let mut head = [0; 16];
        put32(&mut head, 0, tid);
        put64(&mut head, 4, block.0);
        put32(&mut head, 12, offset as u32);
        crc(crc(self.seed, &head), bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{JournalSuperblock, incompat};
    use super::*;

    fn shape() -> Shape {
        Shape::of(&JournalSuperblock {
            block_bytes: 1024,
            blocks: 1024,
            first: 1,
            sequence: 1,
            start: 0,
            incompat: incompat::PACKED | incompat::CSUM_V3 | incompat::REVOKE,
            old_sums: false,
            uuid: *b"0123456789abcdef",
        })
        .unwrap()
    }

    #[test]
    fn lists_come_back_and_damage_is_seen() {
        let s = shape();
        assert!(s.packed);
        let all: Vec<Piece> = (0..s.pieces_per_block())
            .map(|n| Piece {
                block: BlockNo(n as u64 * 3),
                what: match n % 3 {
                    0 => What::Whole { escaped: n % 2 == 0 },
                    r => {
                        What::Part { offset: n, len: 1 + n, fresh: r == 1, next_block: n % 2 == 1 }
                    }
                },
                sum: n as u32 ^ 0xffff_0000,
            })
            .collect();
        for n in [1, 2, all.len()] {
            let block = s.packed_descriptor(7, &all[..n]);
            assert_eq!(s.pieces(&block).unwrap(), all[..n]);
            for at in [12, 13, 30, 1023] {
                let mut torn = block.clone();
                torn[at] ^= 1;
                assert!(s.pieces(&torn).is_err());
            }
        }
        let sum = s.piece_sum(1, BlockNo(2), 3, b"abc");
        for other in [
            s.piece_sum(2, BlockNo(2), 3, b"abc"),
            s.piece_sum(1, BlockNo(1), 3, b"abc"),
            s.piece_sum(1, BlockNo(2), 4, b"abc"),
            s.piece_sum(1, BlockNo(2), 3, b"abd"),
        ] {
            assert_ne!(sum, other);
        }
    }
}
