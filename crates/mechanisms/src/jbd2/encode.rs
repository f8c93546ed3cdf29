//! A closed transaction as journal blocks: revocations, descriptors with what they list, the
//! commit. It takes images and writes nothing.

use super::log::Log;
use super::transaction::{Extend, PIECE_BYTES, Tid};
use env::Block;
use format::BlockNo;
use format::jbd2::{self, MULTIWRITE_HEAD, Piece, Tag, What};
use std::ops::Range;

/// What is to be journaled of one block, and the block as the transaction left it.
pub(super) struct Frozen {
    pub(super) block: BlockNo,
    pub(super) image: Block,
    pub(super) extend: Extend,
}

/// A part is not cut for less room than this, in bytes.
const CUT_MIN: usize = 256;

/// The blocks of one transaction in the making.
pub(super) struct Encoder<'a> {
    log: &'a Log,
    tid: Tid,
    /// Planted bug: blocks that look like the journal's own are stored as they are.
    pub(super) escapes: bool,
    /// Planted bug: nothing is said of the rest of a new block.
    pub(super) says_fresh: bool,
    pub(super) out: Vec<Block>,
}

impl<'a> Encoder<'a> {
    pub(super) fn new(log: &'a Log, tid: Tid) -> Encoder<'a> {
        let (escapes, says_fresh) = (true, true);
        Encoder { log, tid, escapes, says_fresh, out: Vec::new() }
    }

    /// Lists blocks of which nothing older is to be replayed.
    pub(super) fn revoke(&mut self, blocks: &[BlockNo]) {
        assert!(self.out.is_empty(), "J6: copies come before the revocations of {}", self.tid);
        for some in blocks.chunks(self.log.shape.revokes_per_block()) {
            self.out.push(Block::copy_of(&self.log.shape.revoke(self.tid.on_disk(), some)));
        }
    }

    /// Adds the blocks, whole or in parts.
    pub(super) fn blocks(&mut self, frozen: &[Frozen]) {
        let once = frozen.is_sorted_by(|a, b| a.block < b.block);
        assert!(once, "J2: a block is journaled twice by transaction {}", self.tid);
        if self.log.shape.packed {
            self.packed(frozen);
        } else {
            frozen.chunks(self.log.shape.tags_per_block()).for_each(|some| self.plain(some));
        }
    }

    /// The block as it is stored, and whether it had to be changed for that.
    fn stored(&self, image: &Block) -> (Block, bool) {
        let (len, block) = (image.len(), self.log.shape.block_bytes);
        assert_eq!(len, block, "J2: a copy of {len} bytes in a journal of blocks of {block}");
        let looks_like_ours = image.bytes()[..4] == jbd2::MAGIC.to_be_bytes();
        if !looks_like_ours || !self.escapes {
            return (image.clone(), false);
        }
        let mut copy = image.clone();
        jbd2::escape(copy.bytes_mut());
        let hidden = copy.bytes()[..4] != jbd2::MAGIC.to_be_bytes();
        assert!(hidden, "J2: recovery would take a copy for a block of the journal's own");
        (copy, true)
    }

    fn plain(&mut self, frozen: &[Frozen]) {
        let mut tags = Vec::with_capacity(frozen.len());
        let mut blocks = Vec::with_capacity(frozen.len());
        for f in frozen {
            let (stored, escaped) = self.stored(&f.image);
            let sum = self.log.shape.block_sum(self.tid.on_disk(), stored.bytes());
            tags.push(Tag { block: f.block, escaped, sum });
            blocks.push(stored);
        }
        let descriptor = self.log.shape.descriptor(self.tid.on_disk(), &self.log.uuid, &tags);
        self.out.push(Block::copy_of(&descriptor));
        self.out.append(&mut blocks);
    }

    /// The parts first, so that they share as few blocks as possible.
    fn packed(&mut self, frozen: &[Frozen]) {
        let mut group = Group::default();
        let mut whole: Vec<&Frozen> = Vec::new();
        for f in frozen {
            let Extend::Parts { ranges, fresh } = &f.extend else {
                whole.push(f);
                continue;
            };
            let mut fresh = *fresh && self.says_fresh;
            let ranges =
                if fresh { without_zeros(ranges, f.image.bytes()) } else { ranges.clone() };
            let cost: usize = ranges.iter().map(|r| r.len() + PIECE_BYTES).sum();
            if fresh && cost > self.part_max() / 4 * 3 {
                whole.push(f);
                continue;
            }
            for r in &ranges {
                let mut at = r.start;
                while at < r.end {
                    let end = r.end.min(at + self.space(&group, r.end - at));
                    assert!(at < end, "J2: a part of block {} is put down without end", f.block);
                    let bytes = &f.image.bytes()[at..end];
                    self.part(&mut group, (f.block, at, std::mem::take(&mut fresh)), bytes);
                    at = end;
                }
            }
        }
        self.close_parts(&mut group);
        for f in whole {
            let (stored, escaped) = self.stored(&f.image);
            let sum = self.log.shape.piece_sum(self.tid.on_disk(), f.block, 0, stored.bytes());
            let what = What::Whole { escaped };
            if group.pieces.len() == self.log.shape.pieces_per_block() {
                self.close(&mut group);
            }
            group.pieces.push(Piece { block: f.block, what, sum });
            group.blocks.push(stored);
        }
        self.close(&mut group);
        let left = group.parts.len() + group.blocks.len() + group.pieces.len();
        assert_eq!(left, 0, "J2: {left} pieces of transaction {} are left out", self.tid);
    }

    fn part_max(&self) -> usize {
        self.log.shape.block_bytes - MULTIWRITE_HEAD
    }

    /// How many bytes of a part with `left` to go are put down next: it is cut where the block is
    /// full, unless what would go there is not worth a tag of its own. So parts of half a block
    /// share blocks too.
    fn space(&self, group: &Group, left: usize) -> usize {
        let space = self.part_max() - group.parts.len();
        if space < left && space < CUT_MIN { self.part_max() } else { space }
    }

    fn part(&mut self, group: &mut Group, (block, offset, fresh): Place, bytes: &[u8]) {
        let fits = group.parts.len() + bytes.len() <= self.part_max();
        if !fits || group.pieces.len() == self.log.shape.pieces_per_block() {
            self.close_parts(group);
        }
        if group.pieces.len() == self.log.shape.pieces_per_block() {
            self.close(group);
        }
        let next_block = group.parts.is_empty();
        let (len, left) = (bytes.len(), self.part_max() - group.parts.len());
        assert!(0 < len && len <= left, "J2: {len} bytes where {left} are left");
        let what = What::Part { offset, len: bytes.len(), fresh, next_block };
        let sum = self.log.shape.piece_sum(self.tid.on_disk(), block, offset, bytes);
        group.pieces.push(Piece { block, what, sum });
        group.parts.extend_from_slice(bytes);
    }

    /// Ends the multiwrite block.
    fn close_parts(&mut self, group: &mut Group) {
        if !group.parts.is_empty() {
            let (len, most) = (group.parts.len(), self.part_max());
            assert!(len <= most, "J2: {len} bytes of parts in a block for {most}");
            let block = self.log.shape.multiwrite(self.tid.on_disk(), &group.parts);
            group.blocks.push(Block::copy_of(&block));
            group.parts.clear();
        }
    }

    /// Ends the descriptor.
    fn close(&mut self, group: &mut Group) {
        self.close_parts(group);
        if group.pieces.is_empty() {
            return;
        }
        let (pieces, most) = (group.pieces.len(), self.log.shape.pieces_per_block());
        assert!(pieces <= most, "J2: a descriptor of {pieces} pieces, {most} are the most");
        let begins = |p: &&Piece| match p.what {
            What::Whole { .. } => true,
            What::Part { next_block, .. } => next_block,
        };
        let (named, blocks) = (group.pieces.iter().filter(begins).count(), group.blocks.len());
        assert_eq!(
            named, blocks,
            "J2: a descriptor names {named} of the {blocks} blocks behind it"
        );
        let descriptor = self.log.shape.packed_descriptor(self.tid.on_disk(), &group.pieces);
        self.out.push(Block::copy_of(&descriptor));
        self.out.append(&mut group.blocks);
        group.pieces.clear();
    }

    /// The commit, at a time that never goes back.
    pub(super) fn commit(&self, now: env::Nanos) -> Block {
        Block::copy_of(&self.log.shape.commit(self.tid.on_disk(), now.secs(), now.subsec()))
    }
}

/// The ranges without the zeros at their ends; one byte at least.
fn without_zeros(ranges: &[Range<usize>], bytes: &[u8]) -> Vec<Range<usize>> {
    let cut = |r: &Range<usize>| {
        let used = &bytes[r.clone()];
        let from = used.iter().position(|b| *b != 0)?;
        let to = used.iter().rposition(|b| *b != 0)? + 1;
        Some(r.start + from..r.start + to)
    };
    let mut left: Vec<Range<usize>> = ranges.iter().filter_map(cut).collect();
    assert!(!ranges.is_empty(), "J2: a block is journaled, and no byte of it");
    if left.is_empty() {
        left.push(ranges[0].start..ranges[0].start + 1);
    }
    left
}

/// Block, offset in it, and whether the rest of it is zeros.
type Place = (BlockNo, usize, bool);

/// A descriptor in the making.
#[derive(Default)]
struct Group {
    pieces: Vec<Piece>,
    blocks: Vec<Block>,
    parts: Vec<u8>,
}
