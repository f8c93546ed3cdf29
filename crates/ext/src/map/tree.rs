//! Changing an extent tree. A leaf's extents are taken as a list, the list is changed (list.rs),
//! and what comes of it is put back; where it does not fit, room is made first, by splitting a node
//! or by a further level, one step at a time.
//!
//! Invariants:
//! * E1. Between any two steps the tree is whole, its entries in order: a crash, or an error for
//!   want of space, may leave a node with room to spare, never one that is not found.
//! * E2. An index entry's file block is the first of the node under it (e2fsck asks for it).
//! * E3. No node but the root is empty, none has more entries than room.
//! * E4. What is mapped can be named, and is none of the volume's own blocks.
//! * E5. What a leaf maps no longer is given up, block for block.
//! * E6. What is mapped is found again, and a leaf has so many blocks more, or as many as before.
//! * E7. A leaf maps nothing that belongs under its neighbours.

use super::extents::{Below, Spot};
use super::list::{List, blocks_in, blocks_of, replaced};
use crate::Ext;
use crate::alloc::{Goal, Runs};
use crate::plants::{NODE_EARLY, REUSED_EARLY, SPLIT_IN_TWO};
use cache::{Buf, BufKind, Role};
use format::ext::extents::{self, BLOCKS_MAX, ENTRY, Head, Mapped};
use format::ufs::inode::{BLOCK_AT, InodeRef};
use format::{BlockNo, Extent, FileBlock, FormatError};
use integrity::{Change, InitKind, LeadsTo, PointerAt, Txn};
use smallvec::SmallVec;
use std::ops::Range;
use ufs::InodeHandle;
use vfs::FsError;

/// Entries that a change of one range adds at most.
pub(super) const MORE: usize = 2;
/// Bytes of the root, in the inode.
const ROOT_BYTES: usize = 60;

/// The nodes from the root to a leaf.
pub(super) type Way = SmallVec<[Node; 1]>;

/// A node on the way to a file block.
pub(super) struct Node {
    buf: Buf,
    /// Its bytes in the block.
    bytes: Range<usize>,
    head: Head,
    /// The entry that the way goes through.
    at: usize,
}

impl Node {
    fn with<T>(&self, f: impl FnOnce(&[u8]) -> T) -> T {
        f(&self.buf.bytes()[self.bytes.clone()])
    }
    pub(super) fn list(&self) -> List {
        self.with(|n| (0..self.head.entries).map(|i| extents::mapped(n, i)).collect())
    }
    /// Entries that it has room for.
    pub(super) fn max(&self) -> usize {
        self.head.max
    }
    fn is_root(&self) -> bool {
        self.bytes.start != 0
    }
    fn is_full(&self) -> bool {
        self.head.entries == self.head.max
    }
}

/// Does each node on the way begin where the one above it says?
fn check_keys(h: &InodeHandle, way: &[Node]) {
    for (above, below) in way.iter().zip(&way[1..]) {
        let (key, first) = (
            above.with(|n| extents::first_of(n, above.at)),
            below.with(|n| extents::first_of(n, 0)),
        );
        assert_eq!(key, first, "E2: the key of a node of inode {}, and its first block", h.ino);
    }
}

/// Does what the way's leaf is to map lie between its neighbours, as the nodes above it have them?
/// (The first leaf of all may come to begin earlier.)
pub(super) fn is_between(way: &[Node], list: &[Mapped]) -> bool {
    let (Some(first), Some(last)) = (list.first(), list.last()) else { return true };
    way[..way.len() - 1].iter().all(|above| {
        let key = |i| u64::from(above.with(|n| extents::first_of(n, i)));
        let behind = above.at == 0 || key(above.at - 1) < u64::from(first.first);
        behind && (above.at + 1 == above.head.entries || last.end() <= key(above.at + 1))
    })
}

/// Is each node of the way as it was read, and leads to the next? Its owner has the inode locked:
/// only another file, whose contents lie in the same block on a damaged volume, can have changed it
/// while somebody waited.
fn stands(way: &[Node]) -> bool {
    let is_same = |n: &Node| n.with(|b| extents::head(b, Some(n.head.depth))) == Ok(n.head);
    let leads =
        |(n, below): (&Node, &Node)| n.with(|b| extents::child(b, n.at)) == below.buf.block();
    way.iter().all(is_same) && way.iter().zip(&way[1..]).all(leads)
}

impl Ext {
    /// The way from the root to the leaf that has, or would have, file block `at`. It stands as
    /// long as nobody waits.
    pub(super) async fn way_to(&self, h: &InodeHandle, at: u64) -> Result<Way, FsError> {
        let bad = |what: String| FormatError::corrupt(what, format!("inode {}", h.ino));
        let root = h.offset + BLOCK_AT;
        let bytes = h.with(|raw| InodeRef(raw).map_bytes());
        let head = extents::head(&bytes, None).map_err(|what| self.damage(&bad(what)))?;
        // Of an inode without names nobody has checked it.
        extents::check_entries(&bytes, head).map_err(|e| self.damage(&e))?;
        let bytes = root..root + ROOT_BYTES;
        let mut way = Way::new();
        way.push(Node { buf: h.buf.clone(), bytes, head, at: 0 });
        let mut end = BLOCKS_MAX;
        loop {
            let last = way.last_mut().expect("the root is there");
            let entries = last.head.entries;
            last.at = last.with(|n| extents::find(n, entries, at)).unwrap_or(0);
            if last.head.depth == 0 {
                let stands = way.len() == 1 || stands(&way);
                return stands
                    .then_some(way)
                    .ok_or_else(|| self.changed_meanwhile(h, FileBlock(at)));
            }
            let (i, depth) = (last.at, last.head.depth - 1);
            let first = |n: &[u8], i| u64::from(extents::first_of(n, i));
            if i + 1 < entries {
                end = last.with(|n| first(n, i + 1));
            }
            let (block, from) = last.with(|n| (extents::child(n, i), first(n, i)));
            let below = Below { block, depth, range: from..end };
            let buf = self.extent_node(h, &below).await?;
            let head = extents::head(&buf.bytes(), Some(depth));
            let head = head.map_err(|what| self.damage(&bad(what)))?;
            let bytes = 0..self.block_bytes();
            way.push(Node { buf, bytes, head, at: 0 });
        }
    }

    /// Changes a node; `entries`: how many it has then.
    fn put_node(
        &self,
        txn: &mut Txn,
        h: &InodeHandle,
        node: &mut Node,
        entries: usize,
        f: impl FnOnce(&mut [u8]),
    ) {
        let at = if node.is_root() { PointerAt::Inode(0) } else { PointerAt::Block(0) };
        let leads_to = match node.head.depth {
            0 => LeadsTo::Contents,
            d => LeadsTo::Map(d as u8 - 1),
        };
        let new = Extent { start: BlockNo(0), len: 0 };
        let change = Change::MapPointer { ino: h.ino, at, leads_to, old: BlockNo(0), new };
        let (ino, max) = (h.ino, node.head.max);
        assert!(entries <= max, "E3: {entries} entries in a node of inode {ino}, room for {max}");
        assert!(entries > 0 || node.is_root(), "E3: a node of inode {ino} is left empty");
        node.head.entries = entries;
        let head = node.head;
        txn.edit_words(&node.buf, node.bytes.clone(), change, |n| {
            f(n);
            extents::set_head(n, head);
        });
        // Not in release: it looks at hundreds of entries for each that changes.
        let in_order = || node.with(|n| extents::check_entries(n, head)).is_ok();
        debug_assert!(in_order(), "E1: a node of inode {ino} has its entries out of order");
    }

    /// A new block for a node, with what `f` puts there.
    async fn new_node(
        &self,
        txn: &mut Txn,
        h: &InodeHandle,
        near: BlockNo,
        depth: u16,
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> Result<BlockNo, FsError> {
        let goal = if self.geo.has_block(near) { Goal::At(near) } else { self.goal_near(h) };
        let e = self.alloc_for_node(txn, goal).await?;
        let buf = self.cache.get_new(e.start, BufKind::Meta, h.ino);
        self.mark(&buf, Role::Extents(self.generation(h)));
        let tail = if self.geo.sums.dir_tail() > 0 { 4 } else { 0 };
        let max = extents::max_entries(self.block_bytes() - tail);
        let init = Change::InitBlock { ino: h.ino, kind: InitKind::Indirect };
        txn.edit(&buf, 0..self.block_bytes(), init, |n| {
            n.fill(0);
            let entries = fill(n);
            assert!((1..=max).contains(&entries), "E3: a new node with {entries} entries");
            extents::set_head(n, Head { entries, max, depth });
        });
        self.count_sectors(txn, h, 1);
        self.before_names_move(h, &buf).await?;
        Ok(e.start)
    }

    /// Where the mechanism keeps no order, a node of a directory is durable before anything else
    /// is that the names in its blocks are found by: they may be of files that were fsynced long
    /// ago. (Of a file itself nothing is promised once it is changed again.)
    async fn before_names_move(&self, h: &InodeHandle, node: &Buf) -> Result<(), FsError> {
        let is_dir = h.with(|raw| InodeRef(raw).is_dir());
        let is_ordered = self.mechanism.guarantees().new_blocks_first;
        match is_dir && !is_ordered && !self.plant.is(NODE_EARLY) {
            true => self.make_durable(node).await,
            false => Ok(()),
        }
    }

    /// The root's entries go into a new block under it.
    async fn grow_tree(
        &self,
        txn: &mut Txn,
        h: &InodeHandle,
        way: &mut [Node],
    ) -> Result<(), FsError> {
        let root = &mut way[0];
        let depth = root.head.depth;
        if depth >= extents::DEPTH_MAX {
            return Err(FsError::FileTooBig);
        }
        let (used, entries) = (ENTRY + ENTRY * root.head.entries, root.head.entries);
        let old = root.with(|n| n[..used].to_vec());
        let near = BlockNo(0); // in the inode's group
        let fill = |n: &mut [u8]| {
            n[..used].copy_from_slice(&old);
            entries
        };
        let child = self.new_node(txn, h, near, depth, fill).await?;
        let first = extents::first_of(&old, 0);
        assert!(entries > 0, "E3: a node of inode {} would begin nowhere", h.ino);
        root.head.depth += 1;
        self.put_node(txn, h, root, 1, |n| {
            n[ENTRY..].fill(0);
            extents::set_index(n, 0, first, child);
        });
        Ok(())
    }

    /// The last entries of node `l` of the way, whose parent has room, go into a new block: half of
    /// them, or the last alone where a file grows at its end.
    async fn split_node(
        &self,
        txn: &mut Txn,
        h: &InodeHandle,
        way: &mut [Node],
        l: usize,
    ) -> Result<(), FsError> {
        let (parent, node) = (&way[l - 1], &way[l]);
        let entries = node.head.entries;
        assert!(!parent.is_full(), "E3: a node of inode {} is split below a full one", h.ino);
        let at_end = node.at + 1 == entries;
        let keep = if at_end { entries - 1 } else { entries / 2 };
        let from = ENTRY + ENTRY * keep..ENTRY + ENTRY * entries;
        let moved = node.with(|n| n[from].to_vec());
        let near = node.buf.block().plus(1);
        let depth = node.head.depth;
        let below = depth + 1 == parent.head.depth;
        assert!(
            below,
            "E1: node {} of inode {} is split, of another depth",
            node.buf.block(),
            h.ino
        );
        let count = entries - keep;
        let fill = |n: &mut [u8]| {
            n[ENTRY..ENTRY + moved.len()].copy_from_slice(&moved);
            count
        };
        let first = node.with(|n| extents::first_of(n, keep));
        let (i, n) = (parent.at + 1, parent.head.entries);
        let key = |i| parent.with(|b| extents::first_of(b, i));
        let in_order = key(i - 1) < first && (i == n || first < key(i));
        assert!(in_order, "E1: half of a node of inode {} goes where it is not found", h.ino);
        let right = self.new_node(txn, h, near, depth, fill).await?;
        if !stands(&way[l - 1..=l]) {
            return Err(self.changed_meanwhile(h, FileBlock(u64::from(first))));
        }
        let (above, below) = way.split_at_mut(l);
        let (parent, node) = (&mut above[l - 1], &mut below[0]);
        let has_two = |b: &mut [u8]| {
            b.copy_within(ENTRY + ENTRY * i..ENTRY + ENTRY * n, ENTRY + ENTRY * (i + 1));
            extents::set_index(b, i, first, right);
        };
        if self.plant.is(SPLIT_IN_TWO) {
            self.put_node(txn, h, node, keep, |_| ());
            self.in_two(txn).await?;
            self.put_node(txn, h, parent, n + 1, has_two);
            return Ok(());
        }
        // A crash in between leaves in the node what its right neighbour has, and is found there.
        self.put_node(txn, h, parent, n + 1, has_two);
        self.before_names_move(h, &parent.buf).await?;
        self.put_node(txn, h, node, keep, |_| ());
        Ok(())
    }

    /// The way to `at`, whose leaf has room for `more` entries.
    pub(super) async fn way_with_room(
        &self,
        txn: &mut Txn,
        h: &InodeHandle,
        at: u64,
        more: usize,
    ) -> Result<Way, FsError> {
        loop {
            let mut way = self.way_to(h, at).await?;
            let leaf = way.last().expect("the root is there");
            if leaf.head.entries + more <= leaf.head.max {
                return Ok(way);
            }
            match (1..way.len()).rev().find(|l| !way[l - 1].is_full()) {
                Some(l) => self.split_node(txn, h, &mut way, l).await?,
                None => self.grow_tree(txn, h, &mut way).await?,
            }
        }
    }

    /// The most blocks that mapping one more run at `at` changes: a bitmap, its descriptor, and the
    /// nodes on the way; the same for each node that has to be made for it.
    pub(super) async fn most_changed_at(
        &self,
        h: &InodeHandle,
        at: FileBlock,
    ) -> Result<u64, FsError> {
        let way = self.way_to(h, at.0).await?;
        let (leaf, above) = way.split_last().expect("the root is there");
        let new = match leaf.head.entries + MORE <= leaf.head.max {
            true => 0,
            false => 1 + above.iter().rev().take_while(|n| n.is_full()).count(),
        };
        Ok((2 + way.len() + 3 * new) as u64)
    }

    /// Puts a list into the way's leaf, which has room for it. A node that is empty then goes, into
    /// `freed`.
    pub(super) fn put_leaf(
        &self,
        txn: &mut Txn,
        h: &InodeHandle,
        way: &mut [Node],
        list: &[Mapped],
        freed: &mut Runs,
    ) {
        let last = way.len() - 1;
        if list.is_empty() && last > 0 {
            return self.drop_node(txn, h, way, freed);
        }
        assert!(is_between(way, list), "E7: {list:?} of inode {} in another's place", h.ino);
        let leaf = &mut way[last];
        assert_eq!(leaf.head.depth, 0, "E1: extents of inode {} in an index", h.ino);
        let had = leaf.head.entries;
        // A leaf that somebody else has left empty begins nowhere.
        let before = (had > 0).then(|| leaf.with(|n| extents::first_of(n, 0)));
        self.put_node(txn, h, leaf, list.len(), |n| {
            let end = ENTRY + ENTRY * had.max(list.len());
            n[ENTRY..end].fill(0);
            list.iter().enumerate().for_each(|(i, m)| extents::set_mapped(n, i, m));
        });
        if let Some(first) = list.first().map(|m| m.first).filter(|f| Some(*f) != before) {
            self.put_key(txn, h, &mut way[..last], first);
        }
        check_keys(h, way);
    }

    /// The node under the last of `above` begins with another file block now.
    fn put_key(&self, txn: &mut Txn, h: &InodeHandle, above: &mut [Node], first: u32) {
        for node in above.iter_mut().rev() {
            let (i, n) = (node.at, node.head.entries);
            let child = node.with(|b| extents::child(b, i));
            assert!(node.head.depth > 0, "E2: a key of inode {} in a leaf", h.ino);
            self.put_node(txn, h, node, n, |b| extents::set_index(b, i, first, child));
            if i > 0 {
                break;
            }
        }
    }

    /// The way's leaf is empty, and goes; so does what is empty without it.
    fn drop_node(&self, txn: &mut Txn, h: &InodeHandle, way: &mut [Node], freed: &mut Runs) {
        for l in (1..way.len()).rev() {
            freed.push(way[l].buf.block());
            if self.plant.is(REUSED_EARLY) {
                self.untold.borrow_mut().push(way[l].buf.block());
            }
            let going = way[l].buf.block();
            let parent = &mut way[l - 1];
            let (i, n) = (parent.at, parent.head.entries);
            let leads_there = parent.with(|b| extents::child(b, i)) == going;
            assert!(leads_there, "E5: {going} of inode {} goes, and another is left", h.ino);
            if n == 1 && parent.is_root() {
                parent.head.depth = 0;
                return self.put_node(txn, h, parent, 0, |b| b[ENTRY..].fill(0));
            }
            if n == 1 {
                continue;
            }
            self.put_node(txn, h, parent, n - 1, |b| {
                b.copy_within(ENTRY + ENTRY * (i + 1)..ENTRY + ENTRY * n, ENTRY + ENTRY * i);
                b[ENTRY + ENTRY * (n - 1)..ENTRY + ENTRY * n].fill(0);
            });
            if i == 0 {
                let first = way[l - 1].with(|b| extents::first_of(b, 0));
                self.put_key(txn, h, &mut way[..l - 1], first);
            }
            return;
        }
    }

    /// Maps `m` where there is a hole, or in the place of what is there within one extent.
    pub(crate) async fn tree_put(
        &self,
        txn: &mut Txn,
        h: &InodeHandle,
        m: Mapped,
    ) -> Result<(), FsError> {
        let range = u64::from(m.first)..m.end();
        assert!(m.len > 0 && m.end() <= BLOCKS_MAX, "E4: {m:?} of inode {}", h.ino);
        let own = self.meets_system(m.start, u64::from(m.len));
        assert!(!own, "E4: inode {} would map the volume's own blocks: {m:?}", h.ino);
        let mut way = self.way_to(h, range.start).await?;
        let leaf = way.last().expect("the root is there");
        let max = leaf.head.max;
        let mut list = replaced(&leaf.list(), &range, Some(m));
        if list.len() > max {
            way = self.way_with_room(txn, h, range.start, MORE).await?;
            let leaf = way.last().expect("the root is there");
            list = replaced(&leaf.list(), &range, Some(m));
        }
        let leaf = way.last().expect("the root is there").list();
        let took: u64 = blocks_in(&leaf, &range).iter().map(|e| e.len).sum();
        if took != 0 && took != u64::from(m.len) || !is_between(&way, &list) {
            return Err(self.changed_meanwhile(h, FileBlock(range.start)));
        }
        let (had, has) = (blocks_of(&leaf) - took, blocks_of(&list));
        assert_eq!(had + u64::from(m.len), has, "E6: blocks of a leaf of inode {}", h.ino);
        self.put_leaf(txn, h, &mut way, &list, &mut Runs::default());
        // Not in release: each node on the way is looked at once more.
        let found = || self.spot_cached(h, FileBlock(range.start));
        let is_there = |s: &Spot| matches!(s, Spot::Mapped(f) if f.start == m.start);
        debug_assert!(found().is_none_or(|s| is_there(&s)), "E6: {m:?} is not found");
        Ok(())
    }

    /// The block with the leaf that has, or would have, file block `at`.
    pub(super) async fn leaf_of(&self, h: &InodeHandle, at: u64) -> Result<BlockNo, FsError> {
        Ok(self.way_to(h, at).await?.last().map_or(h.buf.block(), |leaf| leaf.buf.block()))
    }
}
