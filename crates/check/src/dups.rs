//! Blocks that belong to two files, or twice to one. The one that met the block first keeps it;
//! another file gets a copy if the block is a file's contents, and loses its pointer if it is
//! anything else.

use crate::CheckError;
use crate::finding::{Kind, Place};
use crate::inode::is_fast;
use crate::run::Check;
use crate::walk::{Map, Pointer, Then, walk};
use format::bytes::set32;
use format::ext::inode::{InodeMut, InodeRef};
use format::{BlockNo, Ino};
use std::collections::BTreeSet;

impl Check<'_> {
    /// Leaves every block to one owner. The tables are out of date afterwards.
    pub(crate) fn resolve_double_claims(&mut self) -> Result<(), CheckError> {
        let mut kept: BTreeSet<u32> = BTreeSet::new();
        let inodes: Vec<Ino> = self.infos.used().map(|(ino, _)| ino).collect();
        // A block of attributes was claimed before any of these, or refused; it stays what it is.
        kept.extend(self.xattr_users.iter().filter(|(_, n)| n.is_some()).map(|(b, _)| *b));
        kept.extend(self.resize_top.iter().chain(&self.bad_blocks));
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

    fn settle_in(&mut self, ino: Ino, kept: &mut BTreeSet<u32>) -> Result<(), CheckError> {
        let mut raw = self.raw_inode(ino)?;
        let inode = InodeRef(&raw);
        if !(inode.is_file() || inode.is_dir() || inode.is_symlink()) || is_fast(&raw) {
            return Ok(());
        }
        let is_contents = !inode.is_dir();
        let mut map: Map = std::array::from_fn(|n| InodeRef(&raw).pointer(n));
        let mut copy: Vec<Pointer> = Vec::new();
        let mut gone = 0u64;
        let twice = &self.twice;
        walk(&mut self.view, &self.frame, &mut map, &mut |p| {
            if p.fault.is_some() {
                return Then::Skip;
            }
            let key = p.block.0 as u32;
            if !twice.contains(&key) || kept.insert(key) {
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
        for p in copy {
            self.give_copy(&mut raw, &p)?;
        }
        self.edit_inode(ino, |b| b.copy_from_slice(&raw))
    }

    /// Puts a copy of the block in its place; without room, a hole.
    fn give_copy(&mut self, raw: &mut [u8], p: &Pointer) -> Result<(), CheckError> {
        let new = match self.alloc_block() {
            Some(new) => {
                let bytes = self.view.read(p.block)?;
                self.view.put_fresh(new, bytes);
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
}
