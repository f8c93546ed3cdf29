//! Inode 7 of volumes that can grow: its map leads to the blocks kept behind the descriptors, in
//! the primary and in every copy. What it must hold follows from the geometry, so that it is
//! compared and, if need be, written anew as a whole.

use crate::CheckError;
use crate::finding::{Kind, Place};
use crate::pass1::RESIZE_INO;
use crate::run::Check;
use format::BlockNo;
use format::bytes::le32;
use format::ext::features::compat;
use format::ext::growth::{self, DOUBLE};
use format::ufs::inode::{InodeMut, InodeRef, Which};
use format::ufs::map::POINTERS;

impl Check<'_> {
    /// Checks inode 7 and its blocks; on volumes without the feature it must be empty.
    pub(crate) fn check_resize_inode(&mut self) -> Result<(), CheckError> {
        if !self.sb.has_compat(compat::RESIZE_INODE) {
            return Ok(()); // pass 1 clears it if it is in use
        }
        let raw = self.raw_inode(RESIZE_INO)?;
        let inode = InodeRef(&raw);
        let top = inode.pointer(DOUBLE);
        let top_legal = self.frame.is_legal(top);
        let contents = growth::reserved(&self.geo());
        let want_sectors = growth::sectors(&self.geo());
        let mut same = top_legal
            && inode.is_file()
            && inode.links() == 1
            && inode.dtime() == 0
            && inode.size() == self.resize_size()
            && u64::from(inode.sectors()) == want_sectors
            && inode.xattr_block().0 == 0
            && inode.flags() == 0
            && le32(&raw, 0x70) == 0
            && le32(&raw, 0x74) == 0
            && inode.extra_isize().is_some()
            && (0..POINTERS).all(|n| n == DOUBLE || inode.pointer(n) == 0);
        if same {
            same = self.view.read(BlockNo(u64::from(top)))? == growth::top(&self.geo());
            for (b, bytes) in &contents {
                same = same && self.view.read(*b)? == *bytes;
            }
        }
        if same {
            let geo = self.geo();
            self.claims.claim(&geo, BlockNo(u64::from(top)));
            self.resize_top = Some(top);
            return Ok(());
        }
        self.found(Kind::ResizeInode, Place::Inode(RESIZE_INO), "damaged; written anew");
        self.renew_resize_inode(top_legal.then_some(top), want_sectors, contents)
    }

    pub(crate) fn resize_size(&self) -> u64 {
        let bs = self.geo().block_bytes as u64;
        let per_block = bs / 4;
        (per_block * per_block + per_block + 12) * bs
    }

    fn renew_resize_inode(
        &mut self,
        top: Option<u32>,
        sectors: u64,
        contents: Vec<(BlockNo, Vec<u8>)>,
    ) -> Result<(), CheckError> {
        let geo = self.geo();
        // Without a usable block of its own the feature is given up: nothing is claimed yet, so
        // that no block can be known to be free.
        let Some(top) = top else {
            return self.drop_resize_inode();
        };
        let bytes = growth::top(&geo);
        self.view.put(BlockNo(u64::from(top)), bytes);
        for (b, bytes) in contents {
            self.view.put(b, bytes);
        }
        let before = self.claims.claim(&geo, BlockNo(u64::from(top)));
        assert!(
            !before,
            "K3: block {top}, of what is kept for growth, was claimed before any file"
        );
        self.resize_top = Some(top);
        let mut raw = vec![0; geo.inode_bytes];
        let now = (i64::from(self.options.now_secs), 0);
        let mut i = InodeMut(&mut raw);
        i.set_extra_isize();
        i.set_mode(0o100_600);
        i.set_links(1);
        i.set_size(self.resize_size());
        i.set_sectors(sectors as u32);
        i.set_pointer(DOUBLE, top);
        for w in [Which::Access, Which::Modify, Which::Change] {
            i.set_time(w, now);
        }
        self.edit_inode(RESIZE_INO, |b| b.copy_from_slice(&raw))
    }

    fn drop_resize_inode(&mut self) -> Result<(), CheckError> {
        self.sb.set_compat(self.sb.compat() & !compat::RESIZE_INODE);
        self.sb.set_reserved_gdt_blocks(0);
        self.frame.geo.reserved_gdt_blocks = 0;
        self.edit_inode(RESIZE_INO, |b| b.fill(0))
    }
}
