//! Block maps: twelve direct pointers, then one indirect, one double and one triple indirect block.
//! Arithmetic from a file block to its path; the blocks themselves are `ext`'s.

use crate::bytes::{le32, set32};
use crate::{BlockNo, FileBlock};
use std::ops::Range;

/// Bytes of a pointer, in an inode and in an indirect block.
pub const POINTER_BYTES: usize = 4;

/// Which of the pointers' bytes are those of `len` pointers from number `i` on.
pub fn bytes_of(i: usize, len: usize) -> Range<usize> {
    POINTER_BYTES * i..POINTER_BYTES * (i + len)
}

/// Pointer number `i` of these, which are an indirect block or the inode's own.
pub fn pointer(pointers: &[u8], i: usize) -> BlockNo {
    BlockNo(u64::from(le32(pointers, POINTER_BYTES * i)))
}

/// All of these pointers.
pub fn pointers(bytes: &[u8]) -> impl Iterator<Item = BlockNo> + '_ {
    bytes.chunks_exact(POINTER_BYTES).map(|p| pointer(p, 0))
}

/// Sets pointer number `i` of these.
pub fn set_pointer(pointers: &mut [u8], i: usize, to: BlockNo) {
    debug_assert!(u32::try_from(to.0).is_ok(), "block {} in a pointer of 32 bits", to.0);
    set32(pointers, POINTER_BYTES * i, to.0 as u32);
}

/// Pointers in the inode.
pub const DIRECT: u64 = 12;
/// All pointers in the inode.
pub const POINTERS: usize = 15;

/// The way to a file block: the index in the inode, then in each indirect block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    /// `indexes[0]` is in the inode (0..15); the others in indirect blocks.
    pub indexes: [u16; 4],
    /// How many of them count: 1 (direct) to 4 (triple indirect).
    pub depth: usize,
}

impl Path {
    /// The file block that it is the way to.
    fn leads_to(&self, per_block: u64) -> FileBlock {
        let below = self.indexes[1..self.depth].iter();
        let n = below.fold(0, |n, index| n * per_block + u64::from(*index));
        first_of(usize::from(self.indexes[0]), per_block).plus(n)
    }
}

/// The path to `b`; None beyond the largest file. `per_block` is the pointers in one block.
pub fn path(b: FileBlock, per_block: u64) -> Option<Path> {
    let mut n = b.0;
    if n < DIRECT {
        return Some(Path { indexes: [n as u16, 0, 0, 0], depth: 1 });
    }
    n -= DIRECT;
    let mut span = per_block;
    for level in 1..=3u16 {
        if n < span {
            let mut indexes = [11 + level, 0, 0, 0];
            let mut rest = n;
            for i in (1..=level as usize).rev() {
                indexes[i] = (rest % per_block) as u16;
                rest /= per_block;
            }
            let path = Path { indexes, depth: level as usize + 1 };
            // Each look into a map comes here.
            debug_assert_eq!(path.leads_to(per_block), b, "F5: {path:?} is another block's");
            return Some(path);
        }
        n -= span;
        span *= per_block;
    }
    None
}

/// The file block at the start of what the inode's pointer `index` maps.
pub fn first_of(index: usize, per_block: u64) -> FileBlock {
    assert!(index < POINTERS, "F5: pointer {index} of an inode leads to no block of a file");
    let p = per_block;
    FileBlock(match index {
        0..12 => index as u64,
        12 => DIRECT,
        13 => DIRECT + p,
        _ => DIRECT + p + p * p,
    })
}

/// The most blocks a map can hold.
pub fn blocks_max(per_block: u64) -> u64 {
    DIRECT + per_block + per_block.pow(2) + per_block.pow(3)
}

/// The largest file that is mapped by pointers, in bytes: what the map can hold, but, without the
/// feature huge_file, no more than `i_blocks` (32 bits of 512-byte units) can count beside as many
/// blocks of the map as the countable ones would have. Linux has the same bound to the block since
/// its 5.19, and a file that it made up to there must be writable here.
pub fn file_bytes_max(block_bytes: usize, huge_files: bool) -> u64 {
    let per_block = block_bytes as u64 / 4;
    let countable = countable_blocks(block_bytes);
    let most = blocks_max(per_block);
    if huge_files || most + map_blocks(most, per_block) <= countable {
        return most * block_bytes as u64;
    }
    let bytes = (countable - map_blocks(countable, per_block)) * block_bytes as u64;
    let held = blocks_max(per_block) * block_bytes as u64;
    assert!(bytes <= held, "F5: a file of {bytes} bytes, and a map holds {held}");
    bytes
}

/// The blocks that 32 bits of 512-byte units can count.
fn countable_blocks(block_bytes: usize) -> u64 {
    u64::from(u32::MAX) / (block_bytes as u64 / 512)
}

/// The blocks of pointers that a map of `blocks` blocks has, where none of them is a hole.
fn map_blocks(blocks: u64, per_block: u64) -> u64 {
    let p = per_block;
    let beyond_single = blocks.saturating_sub(DIRECT + p);
    let double = beyond_single.min(p * p);
    let triple = beyond_single - double;
    let single = u64::from(blocks > DIRECT);
    let roots = u64::from(double > 0) + u64::from(triple > 0);
    single + roots + double.div_ceil(p) + triple.div_ceil(p) + triple.div_ceil(p * p)
}

/// The largest file of extents whose blocks, and those of its tree, 32 bits of 512-byte units can
/// count: all that there are without the feature huge_file.
pub fn countable_bytes_max(block_bytes: usize) -> u64 {
    let per_block = block_bytes as u64 / 4;
    let countable = countable_blocks(block_bytes);
    let meta = map_blocks(blocks_max(per_block), per_block); // more than a tree has
    (countable - meta.min(countable / 2)) * block_bytes as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        let p = |b| path(FileBlock(b), 256).map(|p| (p.indexes, p.depth));
        assert_eq!(p(11), Some(([11, 0, 0, 0], 1)));
        assert_eq!(p(12), Some(([12, 0, 0, 0], 2)));
        assert_eq!(p(12 + 255), Some(([12, 255, 0, 0], 2)));
        assert_eq!(p(12 + 256), Some(([13, 0, 0, 0], 3)));
        assert_eq!(p(12 + 256 + 65536), Some(([14, 0, 0, 0], 4)));
        assert_eq!(p(blocks_max(256) - 1), Some(([14, 255, 255, 255], 4)));
        assert_eq!(p(blocks_max(256)), None);
    }

    /// What Linux 6.18 says of volumes with and without huge_file.
    #[test]
    fn the_longest_file_is_that_of_linux() {
        assert_eq!(file_bytes_max(4096, false), 2_196_873_666_560);
        assert_eq!(file_bytes_max(4096, true), blocks_max(1024) << 12);
        assert_eq!(file_bytes_max(1024, false), blocks_max(256) << 10);
        assert_eq!(map_blocks(12 + 4 + 16 + 64, 4), 1 + (1 + 4) + (1 + 4 + 16));
        assert_eq!((map_blocks(12, 4), map_blocks(13, 4), map_blocks(17, 4)), (0, 1, 3));
    }
}
