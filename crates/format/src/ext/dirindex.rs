//! The nodes of a directory's hash index: which of its blocks they are, and what is made of them
//! when the index is given up. Names are hashed in `dirhash`.

use crate::FormatError;
use crate::bytes::{le16, le32, set16};
use crate::ext::dirent::{ENTRY_MIN, init_empty_before};

/// Where the root has what it says of the index, behind its two entries.
const INFO: usize = 2 * ENTRY_MIN;
/// Where the entries of the root and of other nodes begin.
const ROOT_ENTRIES: usize = INFO + 8;
const NODE_ENTRIES: usize = 8;
/// Bytes of an entry: a hash, and a block of the directory.
const ENTRY: usize = 8;
/// More levels than these no index has.
const LEVELS_MAX: u8 = 3;

/// What the root says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Root {
    /// Levels of nodes below it.
    pub levels: u8,
    /// The directory's blocks that its entries name.
    pub children: Vec<u32>,
}

/// Reads the root, the directory's first block.
pub fn root(block: &[u8]) -> Result<Root, FormatError> {
    let (info_bytes, levels) = (block[INFO + 5], block[INFO + 6]);
    let dots = usize::from(le16(block, 4)) == ENTRY_MIN
        && usize::from(le16(block, ENTRY_MIN + 4)) == block.len() - ENTRY_MIN;
    if !dots || info_bytes != 8 || levels > LEVELS_MAX {
        return Err(FormatError::corrupt("the root of its index is not one", "block 0"));
    }
    Ok(Root { levels, children: children(block, ROOT_ENTRIES)? })
}

/// The directory's blocks that a node below the root names.
pub fn node(block: &[u8]) -> Result<Vec<u32>, FormatError> {
    if le32(block, 0) != 0 || usize::from(le16(block, 4)) != block.len() {
        return Err(FormatError::corrupt("a node of its index is not one", "its first entry"));
    }
    children(block, NODE_ENTRIES)
}

fn children(block: &[u8], at: usize) -> Result<Vec<u32>, FormatError> {
    let (limit, count) = (usize::from(le16(block, at)), usize::from(le16(block, at + 2)));
    if count == 0 || count > limit || at + ENTRY * limit > block.len() {
        let what = format!("a node of its index with {count} of {limit} entries");
        return Err(FormatError::corrupt(what, format!("byte {at}")));
    }
    // Only the low 28 bits are a block's number.
    Ok((0..count).map(|n| le32(block, at + ENTRY * n + 4) & 0x0fff_ffff).collect())
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ino;
    use crate::bytes::set32;
    use crate::ext::dirent::{entries, put_dots};

    #[test]
    fn a_root_becomes_a_block_of_entries() {
        let mut b = vec![0; 1024];
        init_empty_before(&mut b, 12);
        put_dots(&mut b, Ino(5), Ino(2), true);
        b[INFO..].fill(0);
        set16(&mut b, ENTRY_MIN + 4, 1012);
        b[INFO + 5] = 8;
        set16(&mut b, ROOT_ENTRIES, 100);
        set16(&mut b, ROOT_ENTRIES + 2, 2);
        set32(&mut b, ROOT_ENTRIES + 4, 1);
        set32(&mut b, ROOT_ENTRIES + 12, 7);
        assert_eq!(root(&b), Ok(Root { levels: 0, children: vec![1, 7] }));
        flatten(&mut b, true, 12);
        assert!(root(&b).is_err());
        let all: Vec<_> = entries(&b).map(Result::unwrap).collect();
        assert_eq!((all[0].name, all[1].name), (&b"."[..], &b".."[..]));
        assert_eq!(all.iter().map(|e| e.rec_len).sum::<usize>(), 1024);
        assert_eq!(all.last().unwrap().rec_len, 12);
        assert!(crate::ext::csum::has_tail(&b));
    }
}
