//! Making room for a name in a directory with an index by hash: a leaf without room is laid out
//! anew or split, a directory of one block without room gets an index. All of that is one
//! transaction, which comes before that of the name.
//!
//! What the directory gets is appended first, in blocks that nothing leads to yet; then names move
//! and the index changes without an await, so that who walks finds either the old or the new.

use super::tree::{Lost, Way, bad};
use crate::Ufs;
use crate::inode::Inode;
use crate::ops::Ctx;
use crate::store::{Store, Transaction};
use cache::Buf;
use format::ext::csum::entries_part;
use format::ufs::dirent::{self, entries, needed};
use format::ufs::dirgrow::{self, Bounds, Level};
use format::ufs::dirhash::NameHash;
use format::ufs::dirindex::{self, Pointer, RootInfo};
use format::ufs::dirleaf::{self, Name, Split};
use format::ufs::inode::{FLAG_INDEX, InodeMut};
use format::{FileBlock, Ino};
use integrity::{Change, Credits};
use vfs::FsError;

/// A change of a directory's shape.
struct Reshape {
    /// Its new blocks, from its end on.
    new: Vec<Vec<u8>>,
    /// The leaf that is split, or the block that becomes a root, and its new contents.
    first: (Buf, Vec<u8>),
    /// Nodes that change.
    nodes: Vec<(Buf, Vec<u8>)>,
    /// The directory gets its index by this.
    is_first: bool,
}

/// Have these leaves as many names as there were?
fn check_kept(leaves: &[&[u8]], tail: usize, had: usize) {
    let count = |leaf: &&[u8]| dirleaf::count(entries_part(leaf, tail));
    let have: Result<usize, _> = leaves.iter().map(count).sum();
    assert_eq!(have.ok(), Some(had), "U8: names of a leaf that is laid out anew");
}

/// Lies each name of a leaf that is split on its side of the border? Not in release: with the names
/// hashed once more a split takes half as long again.
fn check_border(split: &Split, tail: usize, hash: &NameHash) {
    if !cfg!(debug_assertions) {
        return;
    }
    let hashes = |leaf: &[u8]| -> Vec<u32> {
        let names = dirleaf::names(entries_part(leaf, tail), hash).unwrap_or_default();
        names.iter().map(|n| n.hash).collect()
    };
    let (lower, upper) = (hashes(&split.lower), hashes(&split.upper));
    let border = split.hash & !1;
    let below = lower.iter().all(|h| *h < border || *h == border && split.hash & 1 == 1);
    let above = upper.iter().all(|h| *h >= border);
    assert!(below && above, "U8: a name on the wrong side of the border {border:#x}");
}

/// Where in its leaf a name has slack, or gets it.
enum Slack {
    /// In the entry there.
    There(usize),
    /// In the leaf, laid out anew.
    Packed(Vec<u8>),
    /// In one of two.
    Split(Split),
}

/// Finds or makes slack for a name among the entries of its leaf.
fn slack_in(
    part: &[u8],
    name: &[u8],
    way: &Way,
    (bytes, tail): (usize, usize),
) -> Result<Slack, Lost> {
    if let Some(at) = dirent::find_slack(part, name.len())? {
        return Ok(Slack::There(at));
    }
    let mut names = dirleaf::names(part, &way.hash)?;
    // Laid out anew only if that gives more than this room.
    let used: usize = names.iter().map(|n| needed(n.name.len())).sum();
    if names.len() < 2 || used + needed(name.len()) <= bytes / 4 * 3 {
        let packed = dirleaf::pack(&names, bytes, tail);
        names.push(Name { hash: way.target, ino: Ino(1), kind: 0, name });
        if let (Some(packed), Some(_)) = (packed, dirleaf::pack(&names, bytes, tail)) {
            check_kept(&[&packed], tail, names.len() - 1);
            return Ok(Slack::Packed(packed));
        }
        names.pop();
    }
    let split = dirleaf::split(&names, bytes, tail);
    let split = split.ok_or_else(|| bad("a leaf that cannot be split", way.leaf))?;
    check_kept(&[&split.lower, &split.upper], tail, names.len());
    check_border(&split, tail, &way.hash);
    Ok(Slack::Split(split))
}

impl<S: Store> Ufs<S> {
    /// Before a transaction adds a name: makes room for it, where the directory's names lie by
    /// their hashes or begin to. The caller holds the directory's lock.
    pub(crate) async fn prepare_name(
        &self,
        ctx: &Ctx,
        dir: &Inode,
        name: &[u8],
    ) -> Result<(), FsError> {
        assert!(dir.lock.is_busy(), "U1: room for a name in a directory that nobody has locked");
        self.prepare_inline(ctx, dir, name.len()).await?;
        let limits = self.store.limits();
        let Some(rules) = limits.index_rules else { return self.unindex(dir).await };
        self.store.writable()?;
        if dir.index_broken.get() && self.has_index_flag(dir) {
            return self.give_up_index(dir).await;
        }
        if !self.is_indexed(dir) {
            if dir.size() != limits.block_bytes as u64 {
                return Ok(());
            }
            let made = self.first_index(dir, rules.version, name).await;
            let Some(reshape) = made.map_err(|e| self.lost(dir, e))? else { return Ok(()) };
            self.reshape(ctx, dir, reshape).await?;
        }
        loop {
            match self.room_for(dir, name).await {
                Ok(Some(reshape)) => self.reshape(ctx, dir, reshape).await?,
                Ok(None) => return Ok(()),
                Err(Lost::Damage(e)) => {
                    self.break_index(dir, &e);
                    return self.give_up_index(dir).await;
                }
                Err(e) => return Err(self.lost(dir, e)),
            }
        }
    }

    /// What makes room for a name in its leaf, or a step to that; None: there is room.
    async fn room_for(&self, dir: &Inode, name: &[u8]) -> Result<Option<Reshape>, Lost> {
        if dir.known_slack(name).is_some() {
            return Ok(None);
        }
        let (bytes, tail) = (self.store.limits().block_bytes, self.store.limits().dir_tail);
        let way = self.way(dir, |h| h.of(name)).await?;
        let leaf = self.leaf(dir, way.leaf).await?;
        let slack = slack_in(entries_part(&leaf.bytes(), tail), name, &way, (bytes, tail))?;
        let split = match slack {
            Slack::There(at) => {
                dir.note_slack(name, u64::from(way.leaf) * bytes as u64 + at as u64);
                return Ok(None);
            }
            Slack::Packed(packed) => {
                let first = (leaf, packed);
                return Ok(Some(Reshape { new: vec![], first, nodes: vec![], is_first: false }));
            }
            Slack::Split(split) => split,
        };
        let end = (dir.size() / bytes as u64) as u32;
        let pointer = Pointer { hash: split.hash, block: end };
        let (nodes, mut new) = self.with_pointer(dir, &way, pointer).await?;
        new.insert(0, split.upper);
        Ok(Some(Reshape { new, first: (leaf, split.lower), nodes, is_first: false }))
    }

    /// The index with a pointer more, to the block at the directory's end: nodes that change, and
    /// new ones, which follow that block.
    async fn with_pointer(
        &self,
        dir: &Inode,
        way: &Way,
        pointer: Pointer,
    ) -> Result<(Vec<(Buf, Vec<u8>)>, Vec<Vec<u8>>), Lost> {
        let limits = self.store.limits();
        let (bytes, tail) = (limits.block_bytes, limits.dir_tail);
        let levels_max = limits.index_rules.map_or(0, |r| usize::from(r.levels_max));
        let (mut levels, mut bufs) = (Vec::new(), Vec::new());
        for s in &way.steps {
            let buf = self.tree_block(dir, s.block).await?;
            let pointers = self.node_of(&buf.bytes(), s.block)?.pointers();
            if s.at >= pointers.len() {
                return Err(bad("a node that has become shorter", s.block));
            }
            levels.push(Level { block: s.block, at: s.at, pointers });
            bufs.push((s.block, buf));
        }
        let limit = |is_root| dirindex::limit(is_root, bytes, tail);
        let bounds = Bounds { root: limit(true), node: limit(false), levels: levels_max };
        let (end, mut next) = (pointer.block + 1, pointer.block + 1);
        let changed = dirgrow::add(&mut levels, pointer, bounds, &mut next);
        let changed = changed.ok_or_else(|| {
            tracing::warn!("the index of directory {} is full; see large_dir", dir.ino());
            Lost::Fs(FsError::NoSpace)
        })?;
        let info = RootInfo { levels: (levels.len() - 1) as u8, ..way.info };
        let mut new = vec![Vec::new(); (next - end) as usize];
        let mut nodes: Vec<(Buf, Vec<u8>)> = Vec::new();
        for Level { block, pointers, .. } in changed {
            let old = bufs.iter().find(|(b, _)| *b == block).map(|(_, buf)| buf);
            let mut image = old.map_or(vec![0; bytes], |b| b.bytes().to_vec());
            match block {
                0 => dirindex::make_root(&mut image, info, &pointers, tail),
                _ => dirindex::make_node(&mut image, &pointers, tail),
            }
            self.check_node(&image, block, &pointers)?;
            match old {
                None => new[(block - end) as usize] = image,
                Some(buf) => nodes.push((buf.clone(), image)),
            }
        }
        Ok((nodes, new))
    }

    /// Does a node that was laid out read back? Damage: a leaf had names of another one's hashes,
    /// and where it was split the index would be out of order.
    fn check_node(&self, image: &[u8], block: u32, pointers: &[Pointer]) -> Result<(), Lost> {
        let node = self.node_of(image, block);
        let same = node.as_ref().is_ok_and(|n| n.pointers() == pointers);
        assert!(same, "U12: node {block} of an index does not read back");
        Ok(node?.check_order()?)
    }

    /// The first index of a directory of one block; None: there is room for the name, or the dots
    /// are not where an index needs them.
    async fn first_index(
        &self,
        dir: &Inode,
        version: u8,
        name: &[u8],
    ) -> Result<Option<Reshape>, Lost> {
        let limits = self.store.limits();
        let (bytes, tail) = (limits.block_bytes, limits.dir_tail);
        let hash = limits.index_rules.and_then(|r| r.hash(version));
        let Some(hash) = hash else { return Ok(None) };
        let buf = self.tree_block(dir, 0).await?;
        if dirent::find_slack(entries_part(&buf.bytes(), tail), name.len())?.is_some() {
            return Ok(None);
        }
        let mut root = buf.bytes().to_vec();
        let names = {
            let part = entries_part(&root, tail);
            let mut all = entries(part).flatten();
            let dots = (all.next(), all.next());
            let first = dots.0.is_some_and(|e| e.name == b"." && e.rec_len == dirent::ENTRY_MIN);
            if !first || dots.1.is_none_or(|e| e.name != b"..") {
                return Ok(None);
            }
            dirleaf::names(part, &hash)?
        };
        let mut pointers = vec![Pointer { hash: 0, block: 1 }];
        let new = match dirleaf::split(&names, bytes, tail) {
            Some(s) => {
                pointers.push(Pointer { hash: s.hash, block: 2 });
                vec![s.lower, s.upper]
            }
            None => match dirleaf::pack(&names, bytes, tail) {
                Some(all) => vec![all],
                None => return Ok(None),
            },
        };
        let leaves: Vec<&[u8]> = new.iter().map(Vec::as_slice).collect();
        check_kept(&leaves, tail, names.len());
        dirindex::make_root(&mut root, RootInfo { version, levels: 0 }, &pointers, tail);
        self.check_node(&root, 0, &pointers)?;
        Ok(Some(Reshape { new, first: (buf, root), nodes: vec![], is_first: true }))
    }

    async fn reshape(&self, ctx: &Ctx, dir: &Inode, r: Reshape) -> Result<(), FsError> {
        let bytes = self.store.limits().block_bytes as u64;
        let end = dir.size() / bytes;
        let size = (end + r.new.len() as u64) * bytes;
        if size >= super::DIR_BYTES_MAX {
            return Err(FsError::NoSpace);
        }
        let need = Credits::blocks(12 + 8 * (r.new.len() + r.nodes.len()) as u64);
        let mut txn = self.begin(ctx, need).await?;
        let mut done = self.append(&mut txn, dir, end, &r.new).await;
        if done.is_ok() {
            done = self.put_shape(&mut txn, dir, size, &r).await;
        }
        let ended = self.store.end(txn).await;
        done?;
        ended.map(drop)
    }

    /// New blocks at the directory's end, which its size does not tell of yet; all or none.
    async fn append(
        &self,
        txn: &mut S::Txn,
        dir: &Inode,
        end: u64,
        new: &[Vec<u8>],
    ) -> Result<(), FsError> {
        for (n, contents) in (end..).zip(new) {
            let grown = self.store.dir_grow(txn, &dir.h, FileBlock(n), contents).await;
            if let Err(e) = grown {
                self.store.truncate(txn, &dir.h, FileBlock(end)).await?;
                return Err(e);
            }
        }
        Ok(())
    }

    /// Nothing waits here (but for a planted bug).
    async fn put_shape(
        &self,
        txn: &mut S::Txn,
        dir: &Inode,
        size: u64,
        r: &Reshape,
    ) -> Result<(), FsError> {
        assert!(dir.lock.is_busy(), "U1: the shape of {} changes, not locked", dir.ino());
        let bytes = self.store.limits().block_bytes;
        let whole = r.nodes.iter().chain([&r.first]).all(|(_, image)| image.len() == bytes);
        assert!(whole, "U8: parts of blocks of directory {} are laid out anew", dir.ino());
        let before = size - r.new.iter().map(|b| b.len() as u64).sum::<u64>();
        assert_eq!(dir.size(), before, "U1: directory {} has grown meanwhile", dir.ino());
        let change = Change::Reindex(dir.ino());
        let put = |txn: &mut S::Txn, (buf, image): &(Buf, Vec<u8>)| {
            txn.edit_words(buf, 0..image.len(), change, |b| b.copy_from_slice(image));
        };
        put(txn, &r.first);
        if !r.new.is_empty() {
            self.store.amid_split(txn).await?;
        }
        for node in &r.nodes {
            put(txn, node);
        }
        if dir.size() != size {
            dir.h.edit(txn, Change::GrowDir(dir.ino()), |raw| InodeMut(raw).set_size(size));
        }
        if r.is_first {
            let flags = dir.with(|i| i.flags()) | FLAG_INDEX;
            dir.h.edit(txn, change, |raw| InodeMut(raw).set_flags(flags));
            *dir.dir.borrow_mut() = None;
        }
        dir.names_change();
        dir.shape.set(dir.shape.get() + 1);
        Ok(())
    }

    /// The leaf for a name, and the entry in it with the room that was made.
    pub(super) async fn room_of(&self, dir: &Inode, name: &[u8]) -> Result<(u64, usize), FsError> {
        let bytes = self.store.limits().block_bytes as u64;
        if let Some(at) = dir.known_slack(name) {
            return Ok((at / bytes, (at % bytes) as usize));
        }
        let found = async {
            let way = self.way(dir, |h| h.of(name)).await?;
            let leaf = self.tree_block(dir, way.leaf).await?;
            let image = leaf.bytes();
            let part = entries_part(&image, self.store.limits().dir_tail);
            // Or somebody else has written here: a block is used twice.
            let at = dirent::find_slack(part, name.len())?
                .ok_or_else(|| bad("a leaf whose room has gone by itself", way.leaf))?;
            Ok((u64::from(way.leaf), at))
        };
        found.await.map_err(|e: Lost| self.lost(dir, e))
    }
}
