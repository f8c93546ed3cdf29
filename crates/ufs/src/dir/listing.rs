//! Listing a directory by the hashes of its names, so that a cookie says which names are still to
//! come however entries move meanwhile. A directory of one block is listed so too where it may get
//! an index.
//!
//! A cookie is 31 bits of the hash, and below them 32 bits of another hash of the name, so that
//! names that are alike in the first are told apart; names that are alike in both are listed
//! together. It is never below 2^32, which tells it from a byte of a directory without an index.

use super::tree::{Lost, bad};
use crate::Ufs;
use crate::inode::Inode;
use crate::store::Store;
use format::FileBlock;
use format::ext::csum::entries_part;
use format::ufs::dirhash::IndexRules;
use format::ufs::dirleaf::{self, Name};
use siphasher::sip::SipHasher13;
use vfs::FsError;

/// Leaves that are read ahead at once.
const AHEAD: usize = 16;

/// The names of a leaf, or of several where names with one hash lie in more than one.
pub(crate) struct Part {
    /// Each with its cookie, in their order.
    pub(crate) names: Vec<(u64, Name)>,
    /// The hash at which the next part begins.
    pub(crate) next: Option<u32>,
}

/// The hash from which the names behind a cookie are to be looked for.
pub(crate) fn hash_of(cookie: u64) -> u32 {
    (((cookie >> 32).saturating_sub(1)) << 1) as u32
}

pub(super) fn cookie_of(rules: &IndexRules, n: &Name) -> u64 {
    let [a, b, c, d] = rules.seed.map(u64::from);
    let other = SipHasher13::new_with_keys(a << 32 | b, c << 32 | d).hash(&n.name);
    let cookie = (u64::from(n.hash >> 1) + 1) << 32 | other & 0xffff_ffff;
    let is_apart = cookie >> 32 != 0 && cookie >> 63 == 0 && hash_of(cookie) == n.hash & !1;
    assert!(is_apart, "U13: {cookie:#x} does not lead to the hash {:#x}", n.hash);
    cookie
}

impl<S: Store> Ufs<S> {
    /// The rules, if the directory is listed by hash: also where its index is damaged, and where a
    /// listing that has begun so goes on when the index is gone.
    pub(crate) fn lists_by_hash(&self, dir: &Inode, cookie: u64) -> Option<IndexRules> {
        let limits = self.store.limits();
        let small = dir.size() <= limits.block_bytes as u64;
        let goes_on = cookie >> 32 != 0;
        limits.index_rules.filter(|_| small || goes_on || self.has_index_flag(dir))
    }

    /// The names of a directory from a hash on, some of them.
    pub(crate) async fn part(
        &self,
        dir: &Inode,
        rules: &IndexRules,
        hash: u32,
    ) -> Result<Part, FsError> {
        loop {
            let shape = dir.shape.get();
            let part = self.try_part(dir, rules, hash).await;
            match part {
                _ if dir.shape.get() != shape => (),
                Err(Lost::Damage(e)) if self.is_indexed(dir) => self.break_index(dir, &e),
                part => return part.map_err(|e| self.lost(dir, e)),
            }
        }
    }

    async fn try_part(&self, dir: &Inode, rules: &IndexRules, hash: u32) -> Result<Part, Lost> {
        let limits = self.store.limits();
        let (mut bufs, mut next) = (Vec::new(), None);
        let by = if dir.unlinked_open.get() {
            return Ok(Part { names: Vec::new(), next }); // only an empty directory goes
        } else if self.is_indexed(dir) {
            let mut way = self.way(dir, |_| hash).await?;
            self.read_leaves_ahead(dir, &way).await?;
            loop {
                bufs.push(self.leaf(dir, way.leaf).await?);
                if bufs.len() as u64 > dir.size() / limits.block_bytes as u64 {
                    return Err(bad("an index with more leaves than blocks", 0));
                }
                next = self.next_leaf(dir, &mut way).await?;
                if next.is_none_or(|h| h & 1 == 0) {
                    break;
                }
            }
            if next.is_some_and(|n| n <= hash) {
                return Err(bad("an index that is not in the order of hashes", way.leaf));
            }
            Some(way.hash)
        } else if dir.size() > limits.block_bytes as u64 {
            return self.part_of_list(dir, rules, hash).await;
        } else {
            bufs.push(self.store.dir_block(&dir.h, FileBlock(0)).await?);
            rules.hash(rules.version)
        };
        let Some(by) = by else { return Err(Lost::Fs(FsError::Stale)) };
        let mut names = Vec::new();
        for buf in &bufs {
            let bytes = buf.bytes();
            let all = dirleaf::names(entries_part(&bytes, limits.dir_tail), &by)?;
            names.extend(all.into_iter().filter(|n| n.hash >= hash).map(Name::into_owned));
        }
        let mut names: Vec<_> = names.into_iter().map(|n| (cookie_of(rules, &n), n)).collect();
        names.sort_by_key(|n| n.0);
        Ok(Part { names, next })
    }

    async fn read_leaves_ahead(&self, dir: &Inode, way: &super::tree::Way) -> Result<(), Lost> {
        let Some(last) = way.steps.last().filter(|s| s.at.is_multiple_of(AHEAD)) else {
            return Ok(());
        };
        let node = self.tree_block(dir, last.block).await?;
        let all = self.node_of(&node.bytes(), last.block)?.pointers();
        for p in all.iter().skip(last.at + 1).take(AHEAD) {
            self.store.read_ahead(&dir.h, FileBlock(u64::from(p.block)), 1).await;
        }
        Ok(())
    }
}
