//! Blocks that belong to two files, or twice to one. The one whose map or names the block is by
//! what is in it keeps it, else the one that met it first; another file gets a copy if the block is
//! a file's contents, and loses its pointer if it is anything else.

use crate::CheckError;
use crate::extents;
use crate::finding::{Kind, Place};
use crate::inode::is_fast;
use crate::owners::{Kept, Role};
use crate::run::Check;
use crate::tables::Claims;
use crate::walk::{Map, Pointer, Then, walk};
use format::bytes::set32;
use format::ext::extents::Mapped;
use format::ufs::inode::{InodeMut, InodeRef};
use format::{BlockNo, Ino};

impl Check<'_> {
    /// Leaves every block to one owner. The tables are out of date afterwards.
    pub(crate) fn resolve_double_claims(&mut self) -> Result<(), CheckError> {
        let geo = self.geo();
        let inodes: Vec<Ino> = self.infos.used().map(|(ino, _)| ino).collect();
        // A block of attributes was claimed before any of these, or refused; it stays what it is.
        let xattrs = self.xattr_users.iter().filter(|(_, n)| n.is_some()).map(|(b, _)| *b);
        let own = xattrs.chain(self.resize_top.map(u64::from));
        let fixed: Vec<u64> = own.chain(self.bad_blocks.iter().copied()).collect();
        let mut kept = Kept { owners: self.owners(&inodes)?, taken: Claims::default(), geo };
        fixed.into_iter().for_each(|b| kept.give_away(b));
        // A directory's block has names in it: directories come first.
        for dirs in [true, false] {
            for ino in &inodes {
                let is_dir = self.infos.get(*ino).kind == 2;
                if is_dir == dirs {
                    self.settle_in(*ino, &mut kept)?;
                }
            }
        }
        Ok(())
    }

    fn settle_in(&mut self, ino: Ino, kept: &mut Kept) -> Result<(), CheckError> {
        let mut raw = self.raw_inode(ino)?;
        let inode = InodeRef(&raw);
        if !(inode.is_file() || inode.is_dir() || inode.is_symlink()) || is_fast(&raw) {
            return Ok(());
        }
        if inode.is_inline() {
            return Ok(());
        }
        if inode.has_extents() {
            return self.settle_in_tree(ino, &mut raw, kept);
        }
        let is_contents = !inode.is_dir();
        let mut map: Map = std::array::from_fn(|n| InodeRef(&raw).pointer(n));
        let mut copy: Vec<Pointer> = Vec::new();
        let mut gone = 0u64;
        let (twice, geo) = (&self.twice, self.geo());
        walk(&mut self.view, &self.frame, &mut map, &mut |p| {
            if p.fault.is_some() {
                return Then::Skip;
            }
            let role = Role::of(p.level, !is_contents);
            if !twice.is_claimed(&geo, p.block) || kept.takes(p.block.0, (ino, role)) {
                return Then::Follow;
            }
            if p.level == 0 && is_contents {
                copy.push(*p);
                return Then::Skip;
            }
            gone += 1;
            Then::Clear
        })?;
        for (n, v) in map.iter().enumerate() {
            InodeMut(&mut raw).set_pointer(n, *v);
        }
        if copy.is_empty() && gone == 0 {
            return Ok(());
        }
        let text = format!(
            "{} of its blocks have another owner, too: {} copied, {gone} pointers cleared",
            copy.len() as u64 + gone,
            copy.len()
        );
        self.found(Kind::BlockTwice, Place::Inode(ino), text);
        if gone > 0 {
            self.give_back_size(ino, &mut raw)?;
        }
        for p in copy {
            self.give_copy(&mut raw, &p)?;
        }
        self.edit_inode(ino, |b| b.copy_from_slice(&raw))
    }

    /// The size of a file was set to what was mapped, which was others': it is as it was, and will
    /// be looked at again.
    fn give_back_size(&mut self, ino: Ino, raw: &mut [u8]) -> Result<(), CheckError> {
        if InodeRef(raw).is_file() {
            InodeMut(raw).set_size(self.size_found(ino)?);
        }
        Ok(())
    }

    /// Puts a copy of the block in its place; without room, a hole.
    fn give_copy(&mut self, raw: &mut [u8], p: &Pointer) -> Result<(), CheckError> {
        assert_eq!(p.level, 0, "K2: a block of pointers, {}, is copied", p.block);
        let new = match self.alloc_for_pointer() {
            Some(new) => {
                self.copy(new, p.block);
                new
            }
            None => BlockNo(0),
        };
        match p.holder {
            None => InodeMut(raw).set_pointer(p.index, new.0 as u32),
            Some(holder) => {
                self.view.edit(holder, |b| set32(b, 4 * p.index, new.0 as u32))?;
            }
        }
        Ok(())
    }

    /// The same of an extent tree, which is made anew: other files' blocks are left out of it, or
    /// copied, and its nodes are its own.
    fn settle_in_tree(
        &mut self,
        ino: Ino,
        raw: &mut [u8],
        kept: &mut Kept,
    ) -> Result<(), CheckError> {
        let tree = extents::read(&self.view, &self.frame, raw, ino)?;
        let is_dir = InodeRef(raw).is_dir();
        let (mut all, mut copied, mut gone) = (Vec::new(), 0u64, 0u64);
        for m in &tree.extents {
            let role = Role::of(0, is_dir);
            let mut rest = *m;
            for b in m.start.0..m.start.0 + u64::from(m.len) {
                let shared = self.twice.is_claimed(&kept.geo, BlockNo(b));
                if !shared || kept.takes(b, (ino, role)) {
                    continue;
                }
                let before = (b - rest.start.0) as u32;
                let (left, right) = cut_at(rest, before);
                all.extend(left);
                if let Some(new) = self.copy_of(b, is_dir || m.unwritten) {
                    all.push(Mapped { first: rest.first + before, len: 1, start: new, ..*m });
                    copied += 1;
                } else {
                    gone += 1;
                }
                rest = right;
            }
            all.extend(Some(rest).filter(|m| m.len > 0));
        }
        let blocks = |all: &[Mapped]| all.iter().map(|m| u64::from(m.len)).sum::<u64>();
        let (had, has) = (blocks(&tree.extents), blocks(&all));
        assert_eq!(has + gone, had, "K6: inode {ino} keeps {has} blocks and loses {gone}");
        let mut foreign_node = |b: &BlockNo| {
            self.twice.is_claimed(&kept.geo, *b) && !kept.takes(b.0, (ino, Role::Node))
        };
        let nodes = tree.nodes.iter().filter(|b| foreign_node(b)).count() as u64;
        if copied + gone + nodes == 0 {
            return Ok(());
        }
        let text = format!(
            "{} of its blocks have another owner, too: {copied} copied, {gone} left out, {nodes} \
             nodes of its extent tree made anew",
            copied + gone + nodes
        );
        self.found(Kind::BlockTwice, Place::Inode(ino), text);
        if gone > 0 {
            self.give_back_size(ino, raw)?;
        }
        if self.put_tree(ino, raw, &all).is_some() {
            self.edit_inode(ino, |b| b.copy_from_slice(raw))?;
        }
        Ok(())
    }

    /// A copy of another file's block; None: it is left out, or there is no room for one.
    fn copy_of(&mut self, b: u64, left_out: bool) -> Option<BlockNo> {
        let new = if left_out { None } else { self.alloc_block() }?;
        self.copy(new, BlockNo(b));
        Some(new)
    }

    /// Makes a block a copy of another one, which is not to be written before.
    fn copy(&mut self, to: BlockNo, of: BlockNo) {
        self.view.put_copy(to, of);
        let geo = self.geo();
        self.copied.claim(&geo, of);
    }
}

/// An extent without its `at`-th block: what is before it, and what is behind it, which may be
/// empty.
fn cut_at(m: Mapped, at: u32) -> (Option<Mapped>, Mapped) {
    assert!(at < m.len, "K6: block {at} is taken out of {m:?}");
    let right = Mapped {
        first: m.first + at + 1,
        len: m.len - at - 1,
        start: m.start.plus(u64::from(at) + 1),
        ..m
    };
    (Some(Mapped { len: at, ..m }).filter(|m| m.len > 0), right)
}
