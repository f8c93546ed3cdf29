//! Directories whose index by hash is damaged. Their names are all in the leaves, so that they are
//! found and listed as in a directory without one: by looking through all blocks, of which the
//! index's own hold none. Linux does the same.
//!
//! A name goes without the index being touched. Before a name comes, the index is given up, and
//! before the root, with a wrong checksum, would get a right one: the nodes become empty leaves
//! while the index is known to be damaged, and in the last transaction the root becomes a block of
//! entries and the directory loses its flag. So no power cut leaves an index that looks sound and
//! is not, nor a node in a directory that is said to have none. `e2fsck -D` makes a new index.

use super::listing::{Part, cookie_of};
use super::tree::Lost;
use crate::Ufs;
use crate::inode::Inode;
use crate::store::{Store, Transaction};
use cache::Buf;
use format::ext::csum::entries_part;
use format::ufs::dirhash::{IndexRules, NameHash};
use format::ufs::dirindex::{self, is_node_shaped, listed_part};
use format::ufs::dirleaf::{self, Name};
use format::ufs::inode::{FLAG_INDEX, InodeMut};
use format::{FileBlock, FormatError};
use integrity::{Change, Credits};
use vfs::FsError;

/// Names that a part of a listing has, and more where others have the last one's hash.
const PART_NAMES: usize = 4096;
/// Nodes that one transaction makes leaves.
const NODES_AT_ONCE: usize = 32;

impl<S: Store> Ufs<S> {
    /// The directory's index is damaged: it is said once, and not asked again.
    pub(super) fn break_index(&self, dir: &Inode, e: &FormatError) {
        if dir.index_broken.replace(true) {
            return;
        }
        self.broken_indexes.set(self.broken_indexes.get() + 1);
        *dir.dir.borrow_mut() = None;
        tracing::warn!(
            "directory inode {}: its hash index is damaged ({e}); its blocks are searched one by \
             one, `e2fsck -D` makes a new index",
            dir.ino()
        );
    }

    /// A block of a directory that is read as a list. What is wrong with the checksum of a node of
    /// its index does not matter.
    pub(crate) async fn list_block(&self, dir: &Inode, n: u64) -> Result<Buf, FsError> {
        if !self.has_index_flag(dir) {
            return self.store.dir_block(&dir.h, FileBlock(n)).await;
        }
        let (buf, wrong) = self.store.dir_block_judged(&dir.h, FileBlock(n)).await?;
        let is_node = n == 0 || is_node_shaped(&buf.bytes(), self.store.limits().dir_tail);
        match wrong {
            Some(e) if !is_node => Err(self.store.corrupt(&e)),
            _ => Ok(buf),
        }
    }

    /// The entries of such a block.
    pub(crate) fn listed<'a>(&self, dir: &Inode, block: &'a [u8], n: u64) -> &'a [u8] {
        let tail = self.store.limits().dir_tail;
        let may_be_node = self.has_index_flag(dir);
        if may_be_node { listed_part(block, n, tail) } else { entries_part(block, tail) }
    }

    /// The names from a hash on, some of them, from all blocks of the directory.
    pub(super) async fn part_of_list(
        &self,
        dir: &Inode,
        rules: &IndexRules,
        from: u32,
    ) -> Result<Part, Lost> {
        let bytes = self.store.limits().block_bytes as u64;
        let by = self.hash_of_list(dir, rules).await?;
        let (mut names, mut next): (Vec<Name>, Option<u32>) = (Vec::new(), None);
        for n in 0..dir.size() / bytes {
            if n.is_multiple_of(64) {
                self.store.read_ahead(&dir.h, FileBlock(n), 64.min(dir.size() / bytes - n)).await;
            }
            let buf = self.list_block(dir, n).await?;
            let bytes = buf.bytes();
            let all = dirleaf::names(self.listed(dir, &bytes, n), &by)?;
            let wanted = |m: &Name<&[u8]>| m.hash >= from && next.is_none_or(|end| m.hash < end);
            names.extend(all.into_iter().filter(wanted).map(Name::into_owned));
            if names.len() > 2 * PART_NAMES {
                next = cut(&mut names).or(next);
            }
        }
        next = cut(&mut names).or(next);
        let names = names.into_iter().map(|n| (cookie_of(rules, &n), n));
        let mut names: Vec<_> = names.collect();
        names.sort_by_key(|n| n.0);
        Ok(Part { names, next })
    }

    /// How a listing of it has begun, or would have: as its root says, if that can be read.
    async fn hash_of_list(&self, dir: &Inode, rules: &IndexRules) -> Result<NameHash, Lost> {
        let root = self.list_block(dir, 0).await?;
        let tail = self.store.limits().dir_tail;
        let version = match dirindex::root(&root.bytes(), tail) {
            Ok((info, _)) if self.has_index_flag(dir) => info.version,
            _ => rules.version,
        };
        let hash = rules.hash(version).or_else(|| rules.hash(rules.version));
        hash.ok_or(Lost::Fs(FsError::Stale))
    }

    /// Gives a damaged index up; the directory, which is locked, is a list from then on.
    /// `Corrupt`, and nothing has changed, where it cannot be read as one.
    pub(super) async fn give_up_index(&self, dir: &Inode) -> Result<(), FsError> {
        assert!(dir.lock.is_busy(), "U1: an index goes from a directory that nobody has locked");
        self.read_index(dir).await?;
        let dots = self.parent_of(dir).await?;
        if dots.at != dirindex::DOTDOT_AT {
            let e = FormatError::corrupt("the two dots are not where they belong", "block 0");
            return Err(self.dir_damage(dir, &e));
        }
        let (bytes, tail) = (self.store.limits().block_bytes, self.store.limits().dir_tail);
        let change = Change::DropIndex(dir.ino());
        // Where blocks carry checksums a node would have no place for its own among entries.
        let mut nodes = Vec::new();
        for n in (1..dir.size() / bytes as u64).filter(|_| tail > 0) {
            let buf = self.list_block(dir, n).await?;
            if is_node_shaped(&buf.bytes(), tail) {
                nodes.push(buf);
            }
        }
        for some in nodes.chunks(NODES_AT_ONCE) {
            let mut txn = self.store.begin(Credits::to_free(some.len() as u64 + 4)).await?;
            for buf in some {
                let flatten = |b: &mut [u8]| dirindex::flatten(b, false, tail);
                txn.edit(buf, 0..bytes, change, flatten);
            }
            self.store.end(txn).await?;
        }
        let root = self.list_block(dir, 0).await?;
        let mut txn = self.store.begin(Credits::to_free(8)).await?;
        // A flag that came from nowhere has left the first block a block of entries.
        if tail > 0 && !dirindex::is_first_of_list(&root.bytes(), tail) {
            txn.edit(&root, 0..bytes, change, |b| dirindex::flatten(b, true, tail));
        }
        let flags = dir.with(|i| i.flags()) & !FLAG_INDEX;
        dir.h.edit(&mut txn, change, |raw| InodeMut(raw).set_flags(flags));
        *dir.dir.borrow_mut() = None;
        dir.index_broken.set(false);
        dir.names_change();
        dir.shape.set(dir.shape.get() + 1);
        self.store.end(txn).await.map(drop)
    }

    /// Before a transaction changes the ".." of a directory, which is locked: a root whose checksum
    /// is wrong may not get a right one for that.
    pub(crate) async fn prepare_dots(&self, dir: &Inode) -> Result<(), FsError> {
        if !dir.is_dir() || !self.has_index_flag(dir) {
            return Ok(());
        }
        let (_, wrong) = self.store.dir_block_judged(&dir.h, FileBlock(0)).await?;
        let Some(e) = wrong else { return Ok(()) };
        self.break_index(dir, &e);
        self.give_up_index(dir).await
    }
}

/// Sorts names and keeps the first; returns the hash of the first that goes.
fn cut(names: &mut Vec<Name>) -> Option<u32> {
    names.sort_by_key(|n| n.hash);
    let last = names.get(PART_NAMES - 1)?.hash;
    let keep = names.partition_point(|n| n.hash <= last);
    let next = names.get(keep).map(|n| n.hash);
    names.truncate(keep);
    next
}
