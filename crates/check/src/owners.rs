//! Whose a block is that several files claim: what is in it may prove that it is a directory's, a
//! block of pointers, or a node of an extent tree. What belongs to a file as its contents proves
//! nothing, and needs no proof, for a copy of it is as good.

use crate::CheckError;
use crate::dirblock;
use crate::extents;
use crate::inode::{begins_as_directory, is_fast};
use crate::run::Check;
use crate::tables::Claims;
use crate::walk::{Map, Then, walk};
use format::bytes::le32;
use format::ext::Geometry;
use format::ext::csum::{entries_part, has_tail};
use format::ufs::inode::InodeRef;
use format::{BlockNo, Ino};
use std::collections::{BTreeMap, BTreeSet};

/// As what a file has a block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Role {
    /// Contents.
    Contents,
    /// A directory's entries.
    Entries,
    /// Pointers, of this level.
    Pointers(u8),
    /// A node of an extent tree.
    Node,
}

impl Role {
    /// That of a block in a map of pointers.
    pub(crate) fn of(level: u8, is_dir: bool) -> Role {
        match (level, is_dir) {
            (0, true) => Role::Entries,
            (0, false) => Role::Contents,
            (level, _) => Role::Pointers(level),
        }
    }
}

/// How sure it is that a block is what a file has it as.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Proof {
    /// It may be, and lies behind the end of the file.
    Behind,
    /// It may be.
    Plausible,
    /// It is a block of this kind.
    Kind,
    /// It says that it is this very inode's.
    Own,
}

/// Who owns which of the blocks that several claim.
pub(crate) struct Kept {
    pub(crate) owners: BTreeMap<u64, (Ino, Role)>,
    pub(crate) taken: Claims,
    pub(crate) geo: Geometry,
}

impl Kept {
    /// Nobody gets it any more.
    pub(crate) fn give_away(&mut self, b: u64) {
        self.taken.claim(&self.geo, BlockNo(b));
    }

    /// Is it this claim that keeps the block? What nothing shows to be pointers, or names, is none.
    pub(crate) fn takes(&mut self, b: u64, (ino, role): (Ino, Role)) -> bool {
        let may = match (self.owners.get(&b), role) {
            (Some(owner), _) => *owner == (ino, role),
            (None, Role::Pointers(_) | Role::Entries) => false,
            (None, _) => true,
        };
        may && !self.taken.claim(&self.geo, BlockNo(b))
    }
}

/// A claim that may be proven: the block, as what, and the first block of the file in it.
type Claim = (BlockNo, Role, u64);

impl Check<'_> {
    /// The owners that are proven of blocks that several claim. Blocks of pointers are as they were
    /// found: who is not their owner must not have mended them.
    pub(crate) fn owners(
        &mut self,
        inodes: &[Ino],
    ) -> Result<BTreeMap<u64, (Ino, Role)>, CheckError> {
        let mut pointers: BTreeSet<u64> = BTreeSet::new();
        for ino in inodes {
            let claims = self.shared_claims(*ino)?;
            let all = claims.iter().filter(|c| !matches!(c.1, Role::Entries | Role::Contents));
            pointers.extend(all.map(|c| c.0.0));
        }
        for b in pointers.into_iter().map(BlockNo) {
            if !self.xattr_users.contains_key(&b.0) && self.resize_top.map(u64::from) != Some(b.0) {
                self.view.restore(b);
            }
        }
        let mut best: BTreeMap<u64, (Proof, Ino, Role)> = BTreeMap::new();
        // Any number of directories may claim the same blocks of a file: each is read once.
        let (mut nameless, geo) = (Claims::default(), self.geo());
        for ino in inodes {
            for claim in self.shared_claims(*ino)? {
                if claim.1 == Role::Entries && nameless.is_claimed(&geo, claim.0) {
                    continue;
                }
                let Some(proof) = self.proof(*ino, claim)? else {
                    nameless.claim(&geo, claim.0);
                    continue;
                };
                let key = claim.0.0;
                if best.get(&key).is_none_or(|b| b.0 < proof) {
                    best.insert(key, (proof, *ino, claim.1));
                }
            }
        }
        Ok(best.into_iter().map(|(b, (_, ino, role))| (b, (ino, role))).collect())
    }

    /// What an inode claims besides contents of blocks that others claim, too.
    fn shared_claims(&mut self, ino: Ino) -> Result<Vec<Claim>, CheckError> {
        let (raw, geo) = (self.raw_inode(ino)?, self.geo());
        let inode = InodeRef(&raw);
        let (is_dir, mut all) = (inode.is_dir(), Vec::new());
        if !(inode.is_file() || is_dir || inode.is_symlink()) || is_fast(&raw) || inode.is_inline()
        {
            return Ok(all);
        }
        if inode.has_extents() {
            let tree = extents::read(&self.view, &self.frame, &raw, ino)?;
            let shared = |b: &BlockNo| self.twice.is_claimed(&geo, *b);
            all.extend(tree.nodes.iter().filter(|b| shared(b)).map(|b| (*b, Role::Node, 0)));
            for m in tree.extents.iter().filter(|_| is_dir) {
                let blocks =
                    (0..u64::from(m.len)).map(|n| (m.start.plus(n), u64::from(m.first) + n));
                let shared = blocks.filter(|(b, _)| shared(b));
                all.extend(shared.map(|(b, at)| (b, Role::Entries, at)));
            }
            return Ok(all);
        }
        let mut map: Map = std::array::from_fn(|n| inode.pointer(n));
        let twice = &self.twice;
        let mut met: BTreeSet<u64> = BTreeSet::new();
        walk(&mut self.view, &self.frame, &mut map, &mut |p| {
            if p.fault.is_some() || !twice.is_claimed(&geo, p.block) {
                return if p.fault.is_some() { Then::Skip } else { Then::Follow };
            }
            if is_dir || p.level > 0 {
                all.push((p.block, Role::of(p.level, is_dir), p.file_block.0));
            }
            // One that leads to itself would lead there without end.
            if p.level > 0 && !met.insert(p.block.0) { Then::Skip } else { Then::Follow }
        })?;
        Ok(all)
    }

    /// The size that a file had when it was found: it may have been set to what is mapped.
    pub(crate) fn size_found(&self, ino: Ino) -> Result<u64, CheckError> {
        let (block, at) = self.inode_place(ino);
        let old = self.view.read_old(block)?;
        Ok(InodeRef(&old[at..at + self.geo().inode_bytes]).size())
    }

    /// What a block's contents prove of a claim; None: nothing.
    fn proof(&self, ino: Ino, (b, role, at): Claim) -> Result<Option<Proof>, CheckError> {
        let (bytes, geo) = (self.view.read(b)?, self.geo());
        let raw = self.raw_inode(ino)?;
        let inode = InodeRef(&raw);
        let seed = geo.sums.of_inode(ino, inode.generation());
        let behind = at * geo.block_bytes as u64 >= self.size_found(ino)?;
        Ok(match role {
            Role::Contents => None,
            Role::Entries => {
                let sealed = seed.is_some_and(|s| s.check_dir(b, &bytes).is_ok());
                let own = sealed && has_tail(&bytes) || at == 0 && begins_as_directory(&bytes, ino);
                if own { Some(Proof::Own) } else { self.names(&bytes, ino) }
            }
            Role::Node => match seed.is_some_and(|s| s.check_extents(b, &bytes).is_ok()) {
                true => Some(Proof::Own),
                false => Some(Proof::Kind),
            },
            Role::Pointers(_) => {
                let proof = if behind { Proof::Behind } else { Proof::Plausible };
                self.has_pointers(&bytes).then_some(proof)
            }
        })
    }

    /// Is it a whole chain of entries, some of which name inodes, and none of which says that it
    /// is another directory's? Of a broken one some may be left.
    fn names(&self, bytes: &[u8], dir: Ino) -> Option<Proof> {
        let mut part = entries_part(bytes, self.tail()).to_vec();
        let alive = |ino: u32| {
            ino != 0 && self.geo().has_ino(Ino(ino)) && self.infos.get(Ino(ino)).kind != 0
        };
        let whole = dirblock::chain(&part).is_some();
        if !whole {
            dirblock::salvage(&mut part, &alive);
        }
        let all = dirblock::chain(&part)?;
        let foreign = all.first().is_some_and(|e| e.name(&part) == b"." && e.ino != dir.0);
        let any = all.iter().any(|e| e.name_len > 0 && alive(e.ino));
        let proof = if whole && !foreign { Proof::Kind } else { Proof::Plausible };
        any.then_some(proof)
    }

    /// Are these words pointers, each to another block? One of them may be damaged.
    fn has_pointers(&self, bytes: &[u8]) -> bool {
        let words = bytes.chunks_exact(4).map(|w| le32(w, 0)).filter(|w| *w != 0);
        let mut legal: Vec<u32> = words.clone().filter(|w| self.frame.is_legal(*w)).collect();
        legal.sort_unstable();
        legal.dedup();
        let wrong = words.count() - legal.len();
        legal.len() > 8 * wrong
    }
}
