//! Extent trees: a node is a header of 12 bytes and up to `max` entries of 12 bytes. The root lies
//! in the inode's 60 bytes of map; other nodes are blocks. Leaves (depth 0) map file blocks to disk
//! blocks, the others point at nodes by the first file block under each.

use crate::bytes::{le16, le32, set16, set32};
use crate::{BlockNo, FormatError};
use std::ops::Range;

/// Begins every node.
pub const MAGIC: u16 = 0xf30a;
/// Bytes of the header, and of each entry.
pub const ENTRY: usize = 12;
/// The deepest tree: more is damage.
pub const DEPTH_MAX: u16 = 5;
/// The most blocks of one extent.
pub const LEN_MAX: u32 = 1 << 15;
/// The most blocks of an unwritten one, whose length is stored with [`LEN_MAX`] added.
pub const UNWRITTEN_MAX: u32 = LEN_MAX - 1;
/// File blocks are numbers below this; the last is never used, because lengths count it.
pub const BLOCKS_MAX: u64 = u32::MAX as u64;

/// A node's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// Entries in use.
    pub entries: usize,
    /// Entries that fit.
    pub max: usize,
    /// Levels below this node; 0: a leaf.
    pub depth: u16,
}

/// An entry of a leaf: file blocks and where they lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapped {
    /// The first file block.
    pub first: u32,
    /// How many blocks.
    pub len: u32,
    /// Where they lie.
    pub start: BlockNo,
    /// Allocated, but reads as zeros.
    pub unwritten: bool,
}

impl Mapped {
    /// The file block after its last.
    pub fn end(&self) -> u64 {
        u64::from(self.first) + u64::from(self.len)
    }
    /// The most blocks that an extent of this kind may have.
    pub fn len_max(&self) -> u32 {
        if self.unwritten { UNWRITTEN_MAX } else { LEN_MAX }
    }
}

/// How many entries fit in a node of so many bytes.
pub fn max_entries(node_bytes: usize) -> usize {
    (node_bytes - ENTRY) / ENTRY
}

/// Where a node that is a block has its checksum.
pub(super) fn tail_at(node: &[u8]) -> usize {
    ENTRY + ENTRY * usize::from(le16(node, 4)).min(max_entries(node.len() - 4))
}

/// Reads and checks a node's header; `depth`: what it must be, for any but the root.
#[inline]
pub fn head(node: &[u8], depth: Option<u16>) -> Result<Head, String> {
    let h = Head {
        entries: usize::from(le16(node, 2)),
        max: usize::from(le16(node, 4)),
        depth: le16(node, 6),
    };
    if le16(node, 0) != MAGIC {
        return Err("no extent node's magic number".into());
    }
    if h.depth > DEPTH_MAX || depth.is_some_and(|d| d != h.depth) {
        return Err(format!("an extent node of depth {}", h.depth));
    }
    // Room may be left for a checksum; a node with less was made to be in the way.
    let room = max_entries(node.len());
    if h.max == 0 || h.max > room || h.max + 2 < room || h.entries > h.max {
        return Err(format!("an extent node with {} entries of {}", h.entries, h.max));
    }
    if h.entries == 0 && h.depth > 0 {
        return Err("an index of extents without entries".into());
    }
    Ok(h)
}

/// Writes a node's header.
pub fn set_head(node: &mut [u8], h: Head) {
    let fits = h.entries <= h.max && h.max <= max_entries(node.len()) && h.depth <= DEPTH_MAX;
    assert!(fits, "F3: a node that nobody could read: {h:?}");
    set16(node, 0, MAGIC);
    set16(node, 2, h.entries as u16);
    set16(node, 4, h.max as u16);
    set16(node, 6, h.depth);
    set32(node, 8, 0);
    // An index that is being made has no entries for a moment, which nobody else would read.
    let again = head(node, Some(h.depth));
    let empty = h.entries == 0 && h.depth > 0;
    assert!(empty || again == Ok(h), "F1: the head {h:?} of a node is read as {again:?}");
}

/// The first file block of entry `i`, of a leaf or not.
#[inline]
pub fn first_of(node: &[u8], i: usize) -> u32 {
    le32(node, ENTRY + ENTRY * i)
}

/// Entry `i` of a leaf.
#[inline]
pub fn mapped(node: &[u8], i: usize) -> Mapped {
    let e = &node[ENTRY + ENTRY * i..][..ENTRY];
    let len = u32::from(le16(e, 4));
    let unwritten = len > LEN_MAX;
    Mapped {
        first: le32(e, 0),
        len: if unwritten { len - LEN_MAX } else { len },
        start: BlockNo(u64::from(le16(e, 6)) << 32 | u64::from(le32(e, 8))),
        unwritten,
    }
}

/// Writes entry `i` of a leaf.
pub fn set_mapped(node: &mut [u8], i: usize, m: &Mapped) {
    assert!(m.len > 0 && m.len <= m.len_max(), "F3: {m:?} has no length that can be stored");
    assert!(m.start.0 < 1 << 48, "F3: {m:?} lies where it cannot be stored");
    assert!(m.end() <= BLOCKS_MAX, "F3: {m:?} goes beyond a file's last block");
    let e = &mut node[ENTRY + ENTRY * i..][..ENTRY];
    set32(e, 0, m.first);
    set16(e, 4, (m.len + if m.unwritten { LEN_MAX } else { 0 }) as u16);
    set16(e, 6, (m.start.0 >> 32) as u16);
    set32(e, 8, m.start.0 as u32);
    let again = mapped(node, i);
    assert_eq!(again, *m, "F1: an extent is read as another one");
}

/// The node under entry `i` of an index.
#[inline]
pub fn child(node: &[u8], i: usize) -> BlockNo {
    let e = &node[ENTRY + ENTRY * i..][..ENTRY];
    BlockNo(u64::from(le16(e, 8)) << 32 | u64::from(le32(e, 4)))
}

/// Writes entry `i` of an index.
pub fn set_index(node: &mut [u8], i: usize, first: u32, child: BlockNo) {
    assert!(child.0 < 1 << 48, "F3: node {child} has a number that cannot be stored");
    let e = &mut node[ENTRY + ENTRY * i..][..ENTRY];
    set32(e, 0, first);
    set32(e, 4, child.0 as u32);
    set16(e, 8, (child.0 >> 32) as u16);
    set16(e, 10, 0);
    let again = (first_of(node, i), self::child(node, i));
    assert_eq!(again, (first, child), "F1: an entry of an index is read as another one");
}

/// The last entry that begins at `at` or before it; None: all begin later.
#[inline]
pub fn find(node: &[u8], entries: usize, at: u64) -> Option<usize> {
    let (mut low, mut high) = (0, entries);
    while low < high {
        let mid = (low + high) / 2;
        if u64::from(first_of(node, mid)) <= at {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    // Each look into a tree comes here, once for each of its levels.
    debug_assert!(
        low == 0 || u64::from(first_of(node, low - 1)) <= at,
        "F3: file block {at} is looked for in entry {low}, which begins behind it"
    );
    low.checked_sub(1)
}

/// Does a node whose entries are in order map what the one above says, file blocks from the first
/// of `range` on, up to its end? Its head is given. (Linux asks for it, too.)
pub fn check_range(node: &[u8], h: Head, range: &Range<u64>) -> Result<(), String> {
    let Some(last) = h.entries.checked_sub(1) else { return Ok(()) };
    let first = u64::from(first_of(node, 0));
    let end = match h.depth {
        0 => mapped(node, last).end(),
        _ => u64::from(first_of(node, last)) + 1,
    };
    if first != range.start || end > range.end {
        let (from, to) = (range.start, range.end);
        return Err(format!("an extent node of blocks {first} to {end}, should be {from} to {to}"));
    }
    Ok(())
}

/// Do the entries of a node come in order, and do a leaf's not overlap?
pub fn check_entries(node: &[u8], h: Head) -> Result<(), FormatError> {
    let bad = |what: String| Err(FormatError::corrupt(what, "a node of an extent tree"));
    let mut next = 0u64;
    for i in 0..h.entries {
        let first = u64::from(first_of(node, i));
        if first < next {
            return bad(format!("extents of file block {first} that are out of order"));
        }
        next = first + 1;
        if h.depth == 0 {
            let m = mapped(node, i);
            if m.len == 0 || m.end() > BLOCKS_MAX {
                return bad(format!("an extent of {} blocks at file block {first}", m.len));
            }
            next = m.end();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back() {
        let mut node = vec![0; 1024];
        set_head(&mut node, Head { entries: 3, max: 84, depth: 0 });
        let all = [(0, 1, 7, false), (5, 32768, 1 << 40, false), (40_000, 32767, 9, true)];
        for (i, (first, len, start, unwritten)) in all.into_iter().enumerate() {
            let m = Mapped { first, len, start: BlockNo(start), unwritten };
            set_mapped(&mut node, i, &m);
            assert_eq!(mapped(&node, i), m);
        }
        let h = head(&node, Some(0)).unwrap();
        check_entries(&node, h).unwrap();
        assert_eq!(find(&node, 3, 4), Some(0));
        assert_eq!(find(&node, 3, 5), Some(1));
        assert_eq!(find(&node, 3, u64::from(u32::MAX)), Some(2));
        set_index(&mut node, 0, 3, BlockNo(0x1234_5678_9abc));
        assert_eq!((first_of(&node, 0), child(&node, 0)), (3, BlockNo(0x1234_5678_9abc)));
        assert_eq!(find(&node, 3, 2), None);
        assert!(head(&node, Some(1)).is_err());
    }
}
