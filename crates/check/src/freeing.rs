//! Giving inodes and what they hold back: claims are withdrawn, users of attribute blocks counted
//! down. The bitmaps follow in the last pass.

use crate::CheckError;
use crate::extents;
use crate::inode::is_fast;
use crate::run::Check;
use crate::walk::{Map, Then, walk};
use format::Ino;
use format::ufs::inode::InodeRef;
use format::ufs::xattr;

impl Check<'_> {
    /// Frees an inode and its blocks.
    pub(crate) fn free_inode(&mut self, ino: Ino) -> Result<(), CheckError> {
        let kind = self.infos.get(ino).kind;
        assert!(kind != 0, "K3: inode {ino} is freed, and is free");
        let mut raw = self.raw_inode(ino)?;
        self.release_blocks_of(ino, &raw)?;
        self.clear_slot(ino, &mut raw);
        self.info_mut(ino).kind = 0;
        self.edit_inode(ino, |b| b.copy_from_slice(&raw))
    }

    /// Withdraws an inode's claims.
    pub(crate) fn release_blocks_of(&mut self, ino: Ino, raw: &[u8]) -> Result<(), CheckError> {
        let geo = self.geo();
        let i = InodeRef(raw);
        let holds = i.is_file() || i.is_dir() || i.is_symlink() && !is_fast(raw);
        let holds = holds && !i.is_inline();
        if holds && i.has_extents() {
            let tree = extents::read(&self.view, &self.frame, raw, ino)?;
            let mapped = tree.extents.iter();
            let blocks = mapped.flat_map(|m| (0..m.len).map(|n| m.start.plus(u64::from(n))));
            blocks.chain(tree.nodes.iter().copied()).for_each(|b| self.claims.release(&geo, b));
        } else if holds {
            let mut map: Map = std::array::from_fn(|n| i.pointer(n));
            let claims = &mut self.claims;
            walk(&mut self.view, &self.frame, &mut map, &mut |p| {
                if p.fault.is_some() || !claims.is_claimed(&geo, p.block) {
                    return Then::Skip;
                }
                claims.release(&geo, p.block);
                Then::Follow
            })?;
        }
        self.release_xattr_block(self.xattr_block_of(raw))
    }

    fn release_xattr_block(&mut self, b: format::BlockNo) -> Result<(), CheckError> {
        let geo = self.geo();
        let Some(Some(users)) = self.xattr_users.get_mut(&b.0) else { return Ok(()) };
        assert!(*users > 0, "K3: attribute block {b} loses a user that was not counted");
        *users -= 1;
        let left = *users;
        if left == 0 {
            self.xattr_users.remove(&b.0);
            self.claims.release(&geo, b);
            return Ok(());
        }
        self.view.edit(b, |bytes| xattr::set_refcount(bytes, left))
    }
}
