//! Extent trees as a check sees them: read leniently, so that whatever is sound of a damaged one is
//! known. Who owns a block is the caller's question, as with `walk`'s pointers.

use crate::CheckError;
use crate::root;
use crate::tables::Frame;
use crate::view::View;
use format::bytes::set16;
use format::ext::csum::InodeSeed;
use format::ext::extents::{BLOCKS_MAX, Head, Mapped, child, first_of, head, mapped};
use format::ufs::inode::{BLOCK_AT, InodeRef};
use format::{BlockNo, Ino};
use std::collections::BTreeSet;

/// Where an inode's map ends.
const ROOT_BYTES: usize = 60;

/// What is in an inode's extent tree.
#[derive(Default)]
pub(crate) struct Tree {
    /// What can be mapped, in order and apart.
    pub(crate) extents: Vec<Mapped>,
    /// The blocks of its nodes.
    pub(crate) nodes: Vec<BlockNo>,
    /// All blocks that were looked at as nodes.
    pub(crate) met: BTreeSet<u64>,
    /// Those of the nodes with a wrong checksum.
    pub(crate) sums: Vec<BlockNo>,
    /// Entries that lead where nothing of a file can be, or over one another.
    pub(crate) illegal: u64,
    /// Nodes that are none.
    pub(crate) garbage: u64,
    /// Entries that are not in order, or not below what the node above says.
    pub(crate) crooked: bool,
    /// There is no root.
    pub(crate) no_root: bool,
}

impl Tree {
    /// Can it stay as it is, but for checksums?
    pub(crate) fn is_sound(&self) -> bool {
        self.illegal + self.garbage == 0 && !self.crooked && !self.no_root
    }

    /// Takes away what is written from block `limit` of the file on; returns how many blocks.
    pub(crate) fn cut_written(&mut self, limit: u64) -> u64 {
        let mut gone = 0;
        for m in self.extents.iter_mut().filter(|m| !m.unwritten && m.end() > limit) {
            let keep = limit.saturating_sub(u64::from(m.first)) as u32;
            gone += u64::from(m.len - keep);
            m.len = keep;
        }
        self.extents.retain(|m| m.len > 0);
        let beyond = self.extents.iter().find(|m| !m.unwritten && m.end() > limit);
        assert!(beyond.is_none(), "K9: {beyond:?} goes on beyond block {limit} of the file");
        gone
    }

    /// Blocks of the file and nodes.
    pub(crate) fn blocks(&self) -> u64 {
        let mapped: u64 = self.extents.iter().map(|m| u64::from(m.len)).sum();
        mapped + self.nodes.len() as u64
    }
}

/// Is it the root of an extent tree, as far as its header says?
pub(crate) fn is_root(raw: &[u8]) -> bool {
    head(&raw[BLOCK_AT..BLOCK_AT + ROOT_BYTES], None).is_ok()
}

/// Reads the tree of an inode.
pub(crate) fn read(
    view: &View<'_>,
    frame: &Frame,
    raw: &[u8],
    ino: Ino,
) -> Result<Tree, CheckError> {
    let seed = frame.geo.sums.of_inode(ino, InodeRef(raw).generation());
    let end = InodeRef(raw).size().div_ceil(frame.geo.block_bytes as u64);
    let root = &raw[BLOCK_AT..BLOCK_AT + ROOT_BYTES];
    let from = |root: &[u8], h| -> Result<Tree, CheckError> {
        let (seen, tree) = (BTreeSet::new(), Tree::default());
        let mut reader = Reader { view, frame, seed, end, seen, tree };
        reader.node(root, h, (0, BLOCKS_MAX))?;
        let mut tree = Tree { met: reader.seen, ..reader.tree };
        set_apart(&mut tree);
        let all = &tree.extents;
        let apart = all.windows(2).all(|w| w[0].end() <= u64::from(w[1].first));
        assert!(apart, "K9: extents of inode {ino} are not apart");
        let other = all.iter().find(|m| m.len == 0 || !frame.may_hold_all(m.start, m.len));
        assert!(other.is_none(), "K9: {other:?} of inode {ino}");
        Ok(tree)
    };
    let tree = match head(root, None) {
        Ok(h) => from(root, h)?,
        Err(_) => Tree { no_root: true, ..Tree::default() },
    };
    if tree.illegal + tree.garbage == 0 && !tree.no_root {
        return Ok(tree);
    }
    match root::mended(view, frame, root)? {
        Some((root, h)) => {
            let other = from(&root, h)?;
            Ok(Tree { crooked: true, met: &other.met | &tree.met, ..other })
        }
        None => Ok(tree),
    }
}

struct Reader<'r, 'v> {
    view: &'r View<'v>,
    frame: &'r Frame,
    seed: Option<InodeSeed>,
    /// The block behind the file's last, by its size.
    end: u64,
    seen: BTreeSet<u64>,
    tree: Tree,
}

impl Reader<'_, '_> {
    /// A node whose header is sound, for the file's blocks `low..high`.
    fn node(&mut self, node: &[u8], h: Head, (low, high): (u64, u64)) -> Result<(), CheckError> {
        let mut from = low;
        for i in 0..h.entries {
            let first = u64::from(first_of(node, i));
            self.tree.crooked |= first < from || first >= high;
            let next = if i + 1 < h.entries { u64::from(first_of(node, i + 1)) } else { high };
            if h.depth == 0 {
                let m = self.cut_to(mapped(node, i), next);
                self.extent(m, (from..next).contains(&first));
            } else {
                self.below(child(node, i), h.depth - 1, (first, next))?;
            }
            from = first + 1;
        }
        Ok(())
    }

    fn below(&mut self, b: BlockNo, depth: u16, range: (u64, u64)) -> Result<(), CheckError> {
        if !self.frame.may_hold(b) || !self.seen.insert(b.0) {
            self.tree.illegal += 1;
            return Ok(());
        }
        let mut bytes = self.view.read(b)?;
        let h = match head(&bytes, Some(depth)) {
            Ok(h) => h,
            Err(_) => match self.but_for_depth(&mut bytes, depth, range.0) {
                Some(h) => h,
                None => {
                    self.tree.garbage += 1;
                    return Ok(());
                }
            },
        };
        if self.seed.is_some_and(|s| s.check_extents(b, &bytes).is_err()) {
            self.tree.sums.push(b);
        }
        self.tree.crooked |= h.entries == 0 || u64::from(first_of(&bytes, 0)) != range.0;
        self.tree.nodes.push(b);
        self.node(&bytes, h, range)
    }

    /// The header of a node that is one for these blocks of the file but for the depth that it
    /// says, which is set. A node of another level is none: its entries, read as of this one, lead
    /// nowhere.
    fn but_for_depth(&mut self, bytes: &mut [u8], depth: u16, first: u64) -> Option<Head> {
        set16(bytes, 6, depth);
        let h = head(bytes, Some(depth)).ok().filter(|h| h.entries > 0)?;
        let leads = if depth == 0 { mapped(bytes, 0).start } else { child(bytes, 0) };
        let fits = u64::from(first_of(bytes, 0)) == first && self.frame.may_hold(leads);
        self.tree.crooked |= fits;
        fits.then_some(h)
    }

    /// An extent goes no further than to the next one: its length is wrong, and not that one.
    fn cut_to(&mut self, m: Mapped, next: u64) -> Mapped {
        let first = u64::from(m.first);
        if m.end() <= next || next <= first {
            return m;
        }
        self.tree.crooked = true;
        self.tree.illegal += 1;
        Mapped { len: (next - first) as u32, ..m }
    }

    /// Those parts of an extent that may be a file's. One that goes where no file's block can be
    /// has a wrong length, and might have all that is free: it ends with the file. If it is not
    /// `placed` between its neighbours either, it is none.
    fn extent(&mut self, m: Mapped, placed: bool) {
        if m.len == 0 || m.end() > BLOCKS_MAX {
            self.tree.illegal += 1;
            return;
        }
        let (start, end) = (m.start.0, m.start.0 + u64::from(m.len));
        let (low, high) = (u64::from(self.frame.geo.first_data_block) + 1, self.frame.geo.blocks);
        let (mut at, to) = (start.max(low), end.min(high));
        let (mut held, before) = (0, self.tree.extents.len());
        while at < to {
            let (own, after) = self.frame.own_after(BlockNo(at)).unwrap_or((to, to));
            let part_end = own.min(to);
            if at < part_end {
                let len = (part_end - at) as u32;
                let first = m.first + (at - start) as u32;
                self.tree.extents.push(Mapped { first, len, start: BlockNo(at), ..m });
                held += part_end - at;
            }
            at = after.max(part_end);
        }
        if held < u64::from(m.len) {
            self.tree.illegal += 1;
            let end = if placed { self.end } else { 0 };
            let len = |m: &Mapped| end.saturating_sub(u64::from(m.first)).min(u64::from(m.len));
            let parts = self.tree.extents.split_off(before);
            let kept = parts.into_iter().map(|m| Mapped { len: len(&m) as u32, ..m });
            self.tree.extents.extend(kept.filter(|m| m.len > 0));
        }
    }
}

/// Leaves each block of the file to the first extent that maps it.
fn set_apart(tree: &mut Tree) {
    tree.crooked |= tree.extents.windows(2).any(|w| w[0].end() > u64::from(w[1].first));
    if !tree.crooked {
        return;
    }
    tree.extents.sort_by_key(|m| m.first);
    let mut end = 0u64;
    for m in &mut tree.extents {
        let over = end.saturating_sub(u64::from(m.first)).min(u64::from(m.len)) as u32;
        tree.illegal += u64::from(over > 0);
        *m = Mapped {
            first: m.first + over,
            len: m.len - over,
            start: m.start.plus(u64::from(over)),
            ..*m
        };
        end = end.max(m.end());
    }
    tree.extents.retain(|m| m.len > 0);
}
