//! A directory's hash index: does the tree of hashes lead to every block of the directory once, in order? An
//! index that does not is dropped; the directory then is a plain list of names, which every reader accepts.

use crate::CheckError;
use crate::run::Check;
use crate::tables::Dir;
use format::BlockNo;
use format::bytes::{le16, le32};

/// Where the root's own fields begin: behind the two dots.
const ROOT_INFO: usize = 24;
/// Where entries begin in the root, and in a node behind its unused entry.
const ROOT_ENTRIES: usize = 32;
const NODE_ENTRIES: usize = 8;
/// The hash versions there are: legacy, half MD4, TEA, each signed and unsigned.
const VERSIONS: std::ops::RangeInclusive<u8> = 0..=5;

impl Check<'_> {
    /// Is the index of a directory whose entries are sound itself sound?
    pub(crate) fn index_is_sound(&mut self, d: &Dir) -> Result<bool, CheckError> {
        let root = match self.dirs.blocks.get(d.first) {
            Some(b) if *b != 0 => self.view.read(BlockNo(u64::from(*b)))?,
            _ => return Ok(false),
        };
        let levels = root[ROOT_INFO + 6];
        let head = le32(&root, ROOT_INFO) == 0
            && VERSIONS.contains(&root[ROOT_INFO + 4])
            && root[ROOT_INFO + 5] == 8
            && levels <= 1
            && root[ROOT_INFO + 7] & 1 == 0;
        if !head || usize::from(le16(&root, 12 + 4)) != root.len() - 12 {
            return Ok(false);
        }
        let mut seen = vec![false; d.count as usize];
        seen[0] = true;
        let Some(top) = entries(&root, ROOT_ENTRIES) else { return Ok(false) };
        for (n, (_, block)) in top.iter().enumerate() {
            if !mark(&mut seen, *block) {
                return Ok(false);
            }
            if levels == 0 {
                continue;
            }
            let at = self.dirs.blocks[d.first + *block as usize];
            let node = self.view.read(BlockNo(u64::from(at)))?;
            let unused = le32(&node, 0) == 0 && usize::from(le16(&node, 4)) == node.len();
            let low = top[n].0;
            let high = top.get(n + 1).map_or(u32::MAX, |e| e.0);
            let Some(below) = entries(&node, NODE_ENTRIES).filter(|_| unused) else {
                return Ok(false);
            };
            for (hash, block) in below.iter().skip(1).chain(&below[..1]) {
                let inside = *hash == 0 || (low..=high).contains(hash);
                if !inside || !mark(&mut seen, *block) {
                    return Ok(false);
                }
            }
        }
        Ok(seen.iter().all(|s| *s))
    }
}

/// Marks a block as led to; false: there is none of that number, or it was led to before.
fn mark(seen: &mut [bool], block: u32) -> bool {
    match seen.get_mut(block as usize) {
        Some(s) => !std::mem::replace(s, true),
        None => false,
    }
}

/// The pairs (hash, block) of a node: a limit and a count in place of the first hash, then ascending hashes.
fn entries(node: &[u8], at: usize) -> Option<Vec<(u32, u32)>> {
    let (limit, count) = (usize::from(le16(node, at)), usize::from(le16(node, at + 2)));
    if limit != (node.len() - at) / 8 || count == 0 || count > limit {
        return None;
    }
    let pair = |n: usize| {
        let hash = if n == 0 { 0 } else { le32(node, at + 8 * n) };
        (hash, le32(node, at + 8 * n + 4))
    };
    let all: Vec<(u32, u32)> = (0..count).map(pair).collect();
    all.windows(2).all(|w| w[0].0 <= w[1].0).then_some(all)
}
