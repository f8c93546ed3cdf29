//! A directory's hash index: does the tree of hashes lead to every block of the directory once, in
//! order, and to the block where each name is? An index that does not is dropped; the directory
//! then is a plain list of names, which every reader accepts.

use crate::CheckError;
use crate::dirblock;
use crate::run::Check;
use crate::tables::Dir;
use format::BlockNo;
use format::bytes::{le16, le32};
use format::ext::csum::entries_part;
use format::ext::features::incompat;
use format::ufs::dirhash::NameHash;
use format::ufs::dirindex::{self, is_node_shaped};

/// Where the root's own fields begin: behind the two dots.
const ROOT_INFO: usize = 24;
/// Where entries begin in the root, and in a node behind its unused entry.
const ROOT_ENTRIES: usize = 32;
const NODE_ENTRIES: usize = 8;

/// A pointer of the index: the block, and the hashes that may be found below it.
#[derive(Clone, Copy)]
struct Child {
    block: u32,
    low: u32,
    high: u32,
}

impl Check<'_> {
    /// Is the index of a directory whose entries are sound itself sound?
    pub(crate) fn index_is_sound(&mut self, d: &Dir) -> Result<bool, CheckError> {
        let root = match self.dirs.blocks.get(d.first) {
            Some(b) if *b != 0 => self.view.read(BlockNo(*b))?,
            _ => return Ok(false),
        };
        let levels = root[ROOT_INFO + 6];
        // (A directory may have another version than the volume's new ones.)
        let version = root[ROOT_INFO + 4];
        let hash = NameHash::on_disk(version, self.sb.hashes_unsigned(), self.sb.hash_seed());
        let levels_max = if self.sb.has_incompat(incompat::LARGE_DIR) { 2 } else { 1 };
        let known = root[ROOT_INFO + 5] == 8 && levels <= levels_max;
        let head = le32(&root, ROOT_INFO) == 0 && known;
        let dots = usize::from(le16(&root, 12 + 4)) == root.len() - 12;
        let Some(hash) = hash.filter(|_| head && dots && root[ROOT_INFO + 7] & 1 == 0) else {
            return Ok(false);
        };
        let mut seen = vec![false; d.count as usize];
        seen[0] = true;
        let all = Child { block: 0, low: 0, high: u32::MAX };
        let tail = self.tail();
        let Some(mut below) = children(&root, (true, tail), all) else { return Ok(false) };
        for _ in 0..levels {
            let mut next = Vec::new();
            for node in below {
                match self.children_of(d, node, &mut seen)? {
                    Some(more) => next.extend(more),
                    None => return Ok(false),
                }
            }
            below = next;
        }
        for leaf in below {
            if !mark(&mut seen, leaf.block) {
                return Ok(false);
            }
            let bytes = self.dir_block(d, leaf.block)?;
            let is_node = is_node_shaped(&bytes, tail);
            if is_node || !holds_only(entries_part(&bytes, tail), &hash, leaf) {
                return Ok(false);
            }
        }
        Ok(seen.iter().all(|s| *s))
    }

    fn dir_block(&self, d: &Dir, n: u32) -> Result<Vec<u8>, CheckError> {
        self.view.read(BlockNo(self.dirs.blocks[d.first + n as usize]))
    }

    /// What hangs below a node between root and leaves; None: the node is damaged.
    fn children_of(
        &self,
        d: &Dir,
        node: Child,
        seen: &mut [bool],
    ) -> Result<Option<Vec<Child>>, CheckError> {
        if !mark(seen, node.block) {
            return Ok(None);
        }
        let bytes = self.dir_block(d, node.block)?;
        let unused = le32(&bytes, 0) == 0 && usize::from(le16(&bytes, 4)) == bytes.len();
        Ok(if unused { children(&bytes, (false, self.tail()), node) } else { None })
    }
}

/// Marks a block as led to; false: there is none of that number, or it was led to before.
fn mark(seen: &mut [bool], block: u32) -> bool {
    match seen.get_mut(block as usize) {
        Some(s) => !std::mem::replace(s, true),
        None => false,
    }
}

/// Do all names of a leaf have hashes of its range? The lowest bit of a bound says that a run of
/// equal hashes goes on behind it.
fn holds_only(bytes: &[u8], hash: &NameHash, leaf: Child) -> bool {
    let Some(all) = dirblock::chain(bytes) else { return false };
    all.iter().filter(|e| e.ino != 0).all(|e| {
        let h = hash.of(e.name(bytes));
        h >= leaf.low & !1 && h <= leaf.high
    })
}

/// The pairs (hash, block) of a node: a limit and a count in place of the first hash, then
/// ascending hashes within what the node above says.
fn children(node: &[u8], (is_root, tail): (bool, usize), above: Child) -> Option<Vec<Child>> {
    let at = if is_root { ROOT_ENTRIES } else { NODE_ENTRIES };
    let (limit, count) = (usize::from(le16(node, at)), usize::from(le16(node, at + 2)));
    if limit != dirindex::limit(is_root, node.len(), tail) || count == 0 || count > limit {
        return None;
    }
    let low = |n: usize| if n == 0 { above.low } else { le32(node, at + 8 * n) };
    let child = |n: usize| Child {
        block: le32(node, at + 8 * n + 4),
        low: low(n),
        high: if n + 1 < count { low(n + 1) } else { above.high },
    };
    let all: Vec<Child> = (0..count).map(child).collect();
    all.iter().all(|c| c.low <= c.high && c.low >= above.low && c.high <= above.high).then_some(all)
}
