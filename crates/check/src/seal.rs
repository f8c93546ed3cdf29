//! The checksums of what the passes have mended. Those of inodes, descriptors, extent blocks and
//! the superblock are renewed with each change; those of directory and attribute blocks, which
//! change in many places, here, at the end of a round.

use crate::CheckError;
use crate::run::Check;
use format::ext::csum::Sums;
use format::ufs::inode::InodeRef;
use format::{BlockNo, Ino};

impl Check<'_> {
    /// Seals every directory and attribute block that the repair writes.
    pub(crate) fn seal_all(&mut self) -> Result<(), CheckError> {
        let sums = self.geo().sums;
        if !matches!(sums, Sums::All(_)) {
            return Ok(());
        }
        for i in 0..self.dirs.list.len() {
            let d = self.dirs.list[i];
            let blocks = d.first..d.first + d.count as usize;
            let mended: Vec<BlockNo> = self.dirs.blocks[blocks]
                .iter()
                .map(|b| BlockNo(*b))
                .filter(|b| b.0 != 0 && self.view.is_mended(*b))
                .collect();
            if mended.is_empty() {
                continue;
            }
            let generation = InodeRef(&self.raw_inode(Ino(d.ino))?).generation();
            for b in mended {
                let seed = sums.of_inode(Ino(d.ino), generation);
                let sealed = self.view.edit(b, |bytes| {
                    seed.is_none_or(|s| {
                        s.seal_dir(bytes);
                        s.check_dir(b, bytes).is_ok()
                    })
                })?;
                assert!(sealed, "K8: block {b} of directory {} is written unsealed", d.ino);
            }
        }
        let used = self.xattr_users.iter().filter(|(_, n)| n.is_some());
        let attributes: Vec<BlockNo> = used.map(|(b, _)| BlockNo(*b)).collect();
        for b in attributes.into_iter().filter(|b| self.view.is_mended(*b)).collect::<Vec<_>>() {
            let sealed = self.view.edit(b, |bytes| {
                sums.seal_xattr(b, bytes);
                sums.check_xattr(b, bytes).is_ok()
            })?;
            assert!(sealed, "K8: attribute block {b} is written unsealed");
        }
        Ok(())
    }
}
