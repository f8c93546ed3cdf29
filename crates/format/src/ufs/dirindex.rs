//! The nodes of a directory's hash index: which of its blocks hold the names with which hashes.
//! The root is the directory's first block, whose ".." covers all behind it; a further node is one
//! unused entry. Names are hashed in `dirhash`.

use crate::FormatError;
use crate::bytes::{le16, le32, set16, set32};
use crate::ext::csum::entries_part;
use crate::ufs::dirent::{ENTRY_MIN, entries, init_empty_before};

/// Where the root has what it says of the index, behind its two entries.
const INFO: usize = 2 * ENTRY_MIN;
/// Where the entries of the root and of other nodes begin.
const ROOT_ENTRIES: usize = INFO + 8;
const NODE_ENTRIES: usize = 8;
/// Bytes of an entry: a hash, and a block of the directory.
const ENTRY: usize = 8;
/// Only the low 28 bits are a block's number.
const BLOCK_MASK: u32 = 0x0fff_ffff;
/// Bytes of a checksum behind the entries, where there is one.
const SUM: usize = 8;

/// Where a directory has its "..".
pub const DOTDOT_AT: u64 = ENTRY_MIN as u64;

/// A pointer of a node: to the names from this hash on, in that block of the directory. The lowest
/// bit of the hash says that the block before has names with the same hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pointer {
    /// The first hash; of a node's first pointer it is not kept, and 0 here.
    pub hash: u32,
    /// The block of the directory.
    pub block: u32,
}

/// A node, as it lies in a block.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    block: &'a [u8],
    at: usize,
    count: usize,
}

/// What the root says beside its pointers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RootInfo {
    /// Which hash.
    pub version: u8,
    /// Levels of nodes below it.
    pub levels: u8,
}

/// Pointers that fit in a node, where blocks end with `tail` bytes for a checksum, or none.
pub fn limit(is_root: bool, block_bytes: usize, tail: usize) -> usize {
    (block_bytes - entries_at(is_root) - if tail > 0 { SUM } else { 0 }) / ENTRY
}

fn entries_at(is_root: bool) -> usize {
    if is_root { ROOT_ENTRIES } else { NODE_ENTRIES }
}

/// Reads the root. Errors: `Corrupt`, if it is not one.
pub fn root(block: &[u8], tail: usize) -> Result<(RootInfo, Node<'_>), FormatError> {
    let info = RootInfo { version: block[INFO + 4], levels: block[INFO + 6] };
    let dots = usize::from(le16(block, 4)) == ENTRY_MIN
        && usize::from(le16(block, ENTRY_MIN + 4)) == block.len() - ENTRY_MIN;
    let plain = le32(block, INFO) == 0 && block[INFO + 5] == 8 && block[INFO + 7] & 1 == 0;
    if !dots || !plain {
        return Err(FormatError::corrupt("the root of its index is not one", "block 0"));
    }
    Ok((info, Node::at(block, true, tail)?))
}

/// Has the block the shape of a node below the root: one unused entry as long as all of it? Before
/// `tail` bytes for a checksum no other block has; without them an empty leaf may look so, unless
/// its numbers are a node's.
pub fn is_node_shaped(block: &[u8], tail: usize) -> bool {
    let unused = le32(block, 0) == 0 && usize::from(le16(block, 4)) == block.len();
    unused && (tail > 0 || node(block, tail).is_ok())
}

/// The entries of block `n` of a directory whose index may be damaged, as a whole chain: of a node
/// none, and none of a root that has no such chain. (The root's dots are where they always are.)
pub fn listed_part(block: &[u8], n: u64, tail: usize) -> &[u8] {
    let part = entries_part(block, tail);
    let no_list = n == 0 && entries(part).any(|e| e.is_err());
    if no_list || n > 0 && is_node_shaped(block, tail) { &[] } else { part }
}

/// Is the first block of a directory no root but a block of entries?
pub fn is_first_of_list(block: &[u8], tail: usize) -> bool {
    let covers_all = usize::from(le16(block, ENTRY_MIN + 4)) == block.len() - ENTRY_MIN;
    !covers_all && !listed_part(block, 0, tail).is_empty()
}

/// Reads a node below the root. Errors: `Corrupt`, if it is not one.
pub fn node(block: &[u8], tail: usize) -> Result<Node<'_>, FormatError> {
    if le32(block, 0) != 0 || usize::from(le16(block, 4)) != block.len() {
        return Err(FormatError::corrupt("a node of its index is not one", "its first entry"));
    }
    Node::at(block, false, tail)
}

impl<'a> Node<'a> {
    fn at(block: &'a [u8], is_root: bool, tail: usize) -> Result<Node<'a>, FormatError> {
        let at = entries_at(is_root);
        let (has, count) = (usize::from(le16(block, at)), usize::from(le16(block, at + 2)));
        if has != limit(is_root, block.len(), tail) || count == 0 || count > has {
            let what = format!("a node of its index with {count} of {has} entries");
            return Err(FormatError::corrupt(what, format!("byte {at}")));
        }
        Ok(Node { block, at, count })
    }

    /// Its pointers; at least one.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The pointer at a place.
    pub fn pointer(&self, n: usize) -> Pointer {
        assert!(n < self.count, "F3: pointer {n} of a node that has {}", self.count);
        let at = self.at + ENTRY * n;
        let hash = if n == 0 { 0 } else { le32(self.block, at) };
        Pointer { hash, block: le32(self.block, at + 4) & BLOCK_MASK }
    }

    /// The place of the pointer below which a name with this hash is found first.
    pub fn find(&self, hash: u32) -> usize {
        let (mut low, mut high) = (1, self.count);
        while low < high {
            let mid = low + (high - low) / 2;
            if self.pointer(mid).hash > hash { high = mid } else { low = mid + 1 }
        }
        let at = low - 1;
        // Each look into an index comes here, twice where it has a level.
        debug_assert!(
            at == 0 || self.pointer(at).hash <= hash,
            "F3: names with hash {hash:#x} are looked for below pointer {at}"
        );
        at
    }

    /// Do the hashes of its pointers come in their order? Asked by who has not made it.
    pub fn check_order(&self) -> Result<(), FormatError> {
        let hash = |n: usize| self.pointer(n).hash;
        match (1..self.count).find(|n| hash(*n) < hash(n - 1)) {
            None => Ok(()),
            Some(n) => {
                let what = "a node of its index is not in the order of hashes";
                Err(FormatError::corrupt(what, format!("pointer {n}")))
            }
        }
    }

    /// All its pointers.
    pub fn pointers(&self) -> Vec<Pointer> {
        (0..self.count).map(|n| self.pointer(n)).collect()
    }
}

/// Makes a directory's first block the root of an index. The dots are in their places.
pub fn make_root(block: &mut [u8], info: RootInfo, pointers: &[Pointer], tail: usize) {
    let first = usize::from(le16(block, 4));
    assert_eq!(first, ENTRY_MIN, "F2: the two dots do not follow one another");
    let end = block.len() - ENTRY_MIN;
    set16(block, ENTRY_MIN + 4, end as u16);
    block[INFO..].fill(0);
    (block[INFO + 4], block[INFO + 5], block[INFO + 6]) = (info.version, 8, info.levels);
    put(block, true, pointers, tail);
}

/// Makes a block a node below the root.
pub fn make_node(block: &mut [u8], pointers: &[Pointer], tail: usize) {
    block.fill(0);
    let len = block.len();
    set16(block, 4, len as u16);
    put(block, false, pointers, tail);
}

fn put(block: &mut [u8], is_root: bool, pointers: &[Pointer], tail: usize) {
    let (at, most) = (entries_at(is_root), limit(is_root, block.len(), tail));
    assert!((1..=most).contains(&pointers.len()), "F3: {} of {most} pointers", pointers.len());
    let far = pointers.iter().find(|p| p.block > BLOCK_MASK);
    assert!(far.is_none(), "F1: {far:?} leads to a block that has no number in a node");
    for (n, p) in pointers.iter().enumerate() {
        set32(block, at + ENTRY * n, p.hash);
        set32(block, at + ENTRY * n + 4, p.block);
    }
    set16(block, at, most as u16);
    set16(block, at + 2, pointers.len() as u16);
    let node = Node { block, at, count: pointers.len() };
    let same = node.pointers()[1..] == pointers[1..] && node.pointer(0).block == pointers[0].block;
    assert!(same, "F1: {} pointers of a node are read as others", pointers.len());
}

/// Makes a node a block of entries: none, or in the root the two dots, before `tail` bytes.
pub fn flatten(block: &mut [u8], is_root: bool, tail: usize) {
    let dots: [u8; INFO] = block[..INFO].try_into().expect("a block is longer");
    init_empty_before(block, tail);
    if is_root {
        let first = le16(block, 4);
        block[..INFO].copy_from_slice(&dots);
        set16(block, ENTRY_MIN + 4, first - ENTRY_MIN as u16);
    }
    let ends = block.len() - tail;
    let whole = entries(&block[..ends]).all(|e| e.is_ok());
    assert!(whole, "F2: {ends} bytes of entries that a node became are no chain");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ino;
    use crate::ext::csum::has_tail;
    use crate::ufs::dirent::{entries, put_dots};

    fn pointer(hash: u32, block: u32) -> Pointer {
        Pointer { hash, block }
    }

    #[test]
    fn a_root_becomes_a_block_of_entries() {
        let mut b = vec![0; 1024];
        init_empty_before(&mut b, 12);
        put_dots(&mut b, Ino(5), Ino(2), true);
        let info = RootInfo { version: 1, levels: 0 };
        let all = [pointer(0, 1), pointer(40, 7), pointer(81, 2)];
        make_root(&mut b, info, &all, 12);
        assert!(root(&b, 0).is_err(), "its limit leaves room for a checksum");
        let (read, node) = root(&b, 12).unwrap();
        assert_eq!((read, node.pointers()), (info, all.to_vec()));
        let found = [0, 39, 40, 80, 81, 82].map(|h| node.find(h));
        assert_eq!(found, [0, 0, 1, 1, 2, 2]);
        flatten(&mut b, true, 12);
        assert!(root(&b, 12).is_err());
        let all: Vec<_> = entries(&b).map(Result::unwrap).collect();
        assert_eq!((all[0].name, all[1].name), (&b"."[..], &b".."[..]));
        assert_eq!(all.iter().map(|e| e.rec_len).sum::<usize>(), 1024);
        assert_eq!(all.last().unwrap().rec_len, 12);
        assert!(has_tail(&b));
    }

    #[test]
    fn a_node_is_full_to_its_checksum() {
        for tail in [0, 12] {
            let most = limit(false, 1024, tail);
            let all: Vec<_> = (0..most as u32).map(|n| pointer(2 * n, n + 1)).collect();
            let mut b = vec![7; 1024];
            make_node(&mut b, &all, tail);
            assert_eq!(node(&b, tail).unwrap().pointers(), all);
            assert_eq!(8 + 8 * most, if tail > 0 { 1016 } else { 1024 });
            set16(&mut b, 10, most as u16 + 1);
            assert!(node(&b, tail).is_err());
        }
    }
}
