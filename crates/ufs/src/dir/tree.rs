//! Directories with an index by hash, which is kept on disk and asked there: from the root over
//! its nodes to the leaf with the names of a hash, and on along the leaves.
//!
//! Whoever walks need not hold the directory's lock. Names move from leaf to leaf between two
//! awaits of whoever splits one, and the directory's *shape* is counted then, so that a walk that
//! has met a change of it begins again.

use super::Found;
use super::known::Root;
use crate::Ufs;
use crate::inode::Inode;
use crate::store::Store;
use cache::Buf;
use format::ext::csum::entries_part;
use format::ufs::dirent;
use format::ufs::dirhash::NameHash;
use format::ufs::dirindex::{self, Node, Pointer, RootInfo, is_node_shaped};
use format::ufs::inode::FLAG_INDEX;
use format::{FileBlock, FormatError};
use smallvec::SmallVec;
use vfs::FsError;

/// A node that a way passes through.
pub(super) struct Step {
    pub(super) block: u32,
    /// The place of the pointer that it takes, of so many.
    pub(super) at: usize,
    count: usize,
    /// The hash of the pointer after it.
    next: Option<u32>,
}

/// The way from an index's root to a leaf.
pub(super) struct Way {
    pub(super) info: RootInfo,
    pub(super) hash: NameHash,
    /// What was looked for.
    pub(super) target: u32,
    pub(super) steps: SmallVec<[Step; 2]>,
    pub(super) leaf: u32,
}

/// Why a walk ends early. Damage may be none: the shape may have changed.
pub(super) enum Lost {
    Damage(FormatError),
    Fs(FsError),
}

impl From<FsError> for Lost {
    fn from(e: FsError) -> Lost {
        Lost::Fs(e)
    }
}
impl From<FormatError> for Lost {
    fn from(e: FormatError) -> Lost {
        Lost::Damage(e)
    }
}

/// Damage at a block of the directory.
pub(super) fn bad(what: &str, block: u32) -> Lost {
    Lost::Damage(FormatError::corrupt(what, format!("block {block}")))
}

impl<S: Store> Ufs<S> {
    /// Has the directory an index on disk that is asked and kept?
    pub(crate) fn is_indexed(&self, dir: &Inode) -> bool {
        !dir.index_broken.get() && self.has_index_flag(dir)
    }

    /// Says the directory that it has one, on a volume whose indexes are kept?
    pub(crate) fn has_index_flag(&self, dir: &Inode) -> bool {
        let has_flag = dir.with(|i| i.flags()) & FLAG_INDEX != 0;
        has_flag && self.store.limits().index_rules.is_some()
    }

    pub(super) fn lost(&self, dir: &Inode, why: Lost) -> FsError {
        match why {
            Lost::Damage(e) => self.dir_damage(dir, &e),
            Lost::Fs(e) => e,
        }
    }

    /// A block of an indexed directory.
    pub(super) async fn tree_block(&self, dir: &Inode, n: u32) -> Result<Buf, Lost> {
        let bytes = self.store.limits().block_bytes as u64;
        if dir.unlinked_open.get() {
            return Err(Lost::Fs(FsError::Stale)); // its blocks are going
        }
        if u64::from(n) * bytes >= dir.size() {
            return Err(bad("an index that leaves its directory", n));
        }
        let known = dir.place_of(n).and_then(|at| self.store.dir_block_in_memory(&dir.h, at));
        if let Some(buf) = known {
            return Ok(buf);
        }
        match self.store.dir_block_judged(&dir.h, FileBlock(u64::from(n))).await? {
            (buf, None) => {
                dir.note_place(n, buf.block());
                Ok(buf)
            }
            (_, Some(e)) => Err(Lost::Damage(e)),
        }
    }

    /// A leaf of an indexed directory.
    pub(super) async fn leaf(&self, dir: &Inode, n: u32) -> Result<Buf, Lost> {
        let buf = self.tree_block(dir, n).await?;
        let is_node = n == 0 || is_node_shaped(&buf.bytes(), self.store.limits().dir_tail);
        if is_node { Err(bad("a node of its index in place of a leaf", n)) } else { Ok(buf) }
    }

    /// The way to the leaf with the hash that `target` says, given how names are hashed.
    pub(super) async fn way(
        &self,
        dir: &Inode,
        target: impl Fn(&NameHash) -> u32,
    ) -> Result<Way, Lost> {
        let from_root = |r: &Root| {
            let mut way = Way::new(r.info, r.hash, target(&r.hash));
            let at = r.find(way.target);
            way.step(0, at, r.pointers.len(), |n| r.pointers[n]);
            way
        };
        let mut way = match dir.with_root(from_root) {
            Some(way) => way,
            None => from_root(&self.read_root(dir).await?),
        };
        self.descend(dir, &mut way, true).await?;
        Ok(way)
    }

    /// Reads and decodes the root, which is known then.
    async fn read_root(&self, dir: &Inode) -> Result<Root, Lost> {
        let limits = self.store.limits();
        let rules = limits.index_rules.ok_or(Lost::Fs(FsError::Stale))?;
        let buf = self.tree_block(dir, 0).await?;
        let bytes = buf.bytes();
        let (info, node) = dirindex::root(&bytes, limits.dir_tail)?;
        let Some(hash) = rules.hash(info.version) else {
            return Err(bad("an index by an unknown hash", 0));
        };
        if info.levels > rules.levels_max {
            return Err(bad("an index of too many levels", 0));
        }
        check_once(&buf, &node)?;
        let root = Root { shape: dir.shape.get(), info, hash, pointers: node.pointers() };
        dir.note_root(root.clone());
        Ok(root)
    }

    /// From the last node of the way to the leaf: that of the target, or the first one.
    async fn descend(&self, dir: &Inode, way: &mut Way, to_target: bool) -> Result<(), Lost> {
        let tail = self.store.limits().dir_tail;
        while way.steps.len() <= usize::from(way.info.levels) {
            let block = way.leaf;
            let buf = self.tree_block(dir, block).await?;
            let bytes = buf.bytes();
            let node = dirindex::node(&bytes, tail)?;
            check_once(&buf, &node)?;
            let at = if to_target { node.find(way.target) } else { 0 };
            way.step(block, at, node.count(), |n| node.pointer(n));
        }
        let (steps, levels) = (way.steps.len(), usize::from(way.info.levels) + 1);
        assert_eq!(steps, levels, "U12: the way to a leaf of directory {}", dir.ino());
        Ok(())
    }

    /// Goes on to the next leaf; returns the hash of the pointer to it, or None behind the last.
    pub(super) async fn next_leaf(&self, dir: &Inode, way: &mut Way) -> Result<Option<u32>, Lost> {
        while way.steps.last().is_some_and(|s| s.at + 1 >= s.count) {
            way.steps.pop();
        }
        let Some(Step { block, at, .. }) = way.steps.pop() else { return Ok(None) };
        let buf = self.tree_block(dir, block).await?;
        let hash = {
            let bytes = buf.bytes();
            let node = self.node_of(&bytes, block)?;
            if at + 1 >= node.count() {
                return Err(bad("a node that has become shorter", block));
            }
            way.step(block, at + 1, node.count(), |n| node.pointer(n));
            node.pointer(at + 1).hash
        };
        self.descend(dir, way, false).await?;
        Ok(Some(hash))
    }

    pub(super) fn node_of<'a>(&self, bytes: &'a [u8], block: u32) -> Result<Node<'a>, FormatError> {
        let tail = self.store.limits().dir_tail;
        if block == 0 { Ok(dirindex::root(bytes, tail)?.1) } else { dirindex::node(bytes, tail) }
    }

    /// Finds a name in an indexed directory: one block a level, and one leaf, or more where names
    /// with one hash fill several.
    pub(super) async fn find_by_hash(
        &self,
        dir: &Inode,
        name: &[u8],
    ) -> Result<Option<Found>, Lost> {
        if dir.unlinked_open.get() {
            return Ok(None); // only an empty directory goes
        }
        let limits = self.store.limits();
        if let Some(known) = dir.known(name) {
            return Ok(known);
        }
        let changes = dir.changes.get();
        let mut way = self.way(dir, |h| h.of(name)).await?;
        let bs = limits.block_bytes as u64;
        let (place, mut slack) = (|leaf: u32, at: usize| u64::from(leaf) * bs + at as u64, None);
        for n in 0..=dir.size() / bs {
            let buf = self.leaf(dir, way.leaf).await?;
            let looked = dirent::search(entries_part(&buf.bytes(), limits.dir_tail), name)?;
            if n == 0 {
                slack = looked.slack.map(|at| place(way.leaf, at)); // where it would be put
            }
            if let Some((at, ino)) = looked.found {
                let found = Some(Found { at: place(way.leaf, at), ino });
                dir.note_found(name, changes, found, slack);
                return Ok(found);
            }
            let goes_on = way.next_hash().is_some_and(|hash| hash & !1 == way.target);
            if !goes_on || self.next_leaf(dir, &mut way).await?.is_none() {
                dir.note_found(name, changes, None, slack);
                return Ok(None);
            }
        }
        Err(bad("an index with more leaves than blocks", 0))
    }
}

/// Part of a directory's block that is checked beside its checksum: the order of a node's hashes.
const ORDER: usize = 1;

/// Are the pointers of a node in order? That is looked at once after it is read.
fn check_once(buf: &Buf, node: &Node<'_>) -> Result<(), FormatError> {
    if !buf.is_checked(ORDER) {
        node.check_order()?;
        buf.set_checked(ORDER);
    }
    Ok(())
}

impl Way {
    fn new(info: RootInfo, hash: NameHash, target: u32) -> Way {
        Way { info, hash, target, steps: SmallVec::new(), leaf: 0 }
    }

    /// On through the pointer at a place of the node in `block`, which has `count`.
    fn step(&mut self, block: u32, at: usize, count: usize, pointer: impl Fn(usize) -> Pointer) {
        assert!(at < count, "U12: pointer {at} of the {count} in block {block}");
        let next = (at + 1 < count).then(|| pointer(at + 1).hash);
        self.steps.push(Step { block, at, count, next });
        self.leaf = pointer(at).block;
    }

    /// The hash of the pointer to the leaf behind this one; None: there is none.
    fn next_hash(&self) -> Option<u32> {
        self.steps.iter().rev().find_map(|s| s.next)
    }
}
