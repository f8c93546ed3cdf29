//! The orphan file: blocks with the numbers of inodes whose removal or truncation is under way.
//! What is listed is finished by the passes that follow, so that the list becomes empty.

use crate::CheckError;
use crate::finding::{Kind, Place};
use crate::run::Check;
use format::bytes::{le32, set32};
use format::ext::csum::InodeSeed;
use format::ext::features::{compat, ro_compat};
use format::ufs::inode::InodeRef;
use format::{BlockNo, Ino};
use std::collections::BTreeSet;

/// Behind the numbers of each block: this, and a checksum.
const MAGIC: u32 = 0x0b10_ca04;
const TAIL: usize = 8;

impl Check<'_> {
    /// The removed files on the chain of orphans of a volume that is whole with them; none where
    /// something else is on it too: that is for the repair.
    pub(crate) fn chain_in_use(&self) -> Result<BTreeSet<Ino>, CheckError> {
        let (mut chain, mut next) = (BTreeSet::new(), self.sb.last_orphan());
        while self.keeps_chain && next != 0 {
            let ino = Ino(next);
            if !self.geo().has_ino(ino) || ino.0 < self.geo().first_ino || !chain.insert(ino) {
                return Ok(BTreeSet::new());
            }
            let raw = self.raw_inode(ino)?;
            let inode = InodeRef(&raw);
            if inode.links() != 0 || inode.mode() == 0 || inode.is_dir() {
                return Ok(BTreeSet::new());
            }
            next = inode.dtime();
        }
        Ok(chain)
    }

    /// The inode of the orphan file, on a volume that has one.
    pub(crate) fn orphan_file(&self) -> Option<Ino> {
        let ino = Ino(self.sb.orphan_file());
        self.sb.has_compat(compat::ORPHAN_FILE).then_some(ino)
    }

    /// Empties the orphan file. Runs before the inodes are looked at.
    pub(crate) fn check_orphan_file(&mut self) -> Result<(), CheckError> {
        let present = self.sb.has_ro_compat(ro_compat::ORPHAN_PRESENT);
        let ino = Ino(self.sb.orphan_file());
        if self.orphan_file().is_none() {
            if present {
                let text = "orphan_present without orphan_file; cleared";
                self.found(Kind::SuperField, Place::Volume, text);
                self.set_orphans_absent();
            }
            return if ino.0 == 0 { Ok(()) } else { self.drop_unused_orphan_file(ino) };
        }
        let known = self.geo().has_ino(ino) && ino.0 >= self.geo().first_ino;
        let called = if known { self.orphan_blocks(ino)? } else { Called::Another };
        // Whoever uses the one needs the other.
        let alone = !self.sb.has_compat(compat::HAS_JOURNAL);
        if called != Called::Orphans || alone {
            let text = match called {
                Called::Orphans => "an orphan file without a journal; the volume has none now",
                _ => "the orphan file is damaged; the volume has none now",
            };
            self.found(Kind::OrphanFile, Place::Inode(ino), text);
            self.sb.set_compat(self.sb.compat() & !compat::ORPHAN_FILE);
            self.set_orphans_absent();
            return self.drop_orphan_file(ino, called);
        }
        if present {
            self.found(Kind::OrphanList, Place::Inode(ino), "the orphan file is in use; emptied");
            self.crashed = true;
            self.set_orphans_absent();
        }
        let lists = self.sb.lists_orphans();
        assert!(!lists, "K8: an orphan file that was emptied is said to list something");
        Ok(())
    }

    /// The superblock names an orphan file, and does not have the feature.
    fn drop_unused_orphan_file(&mut self, ino: Ino) -> Result<(), CheckError> {
        let known = self.geo().has_ino(ino) && ino.0 >= self.geo().first_ino;
        let called = if known { self.orphan_blocks(ino)? } else { Called::Another };
        let text = "named as the orphan file of a volume that has none; cleared";
        self.found(Kind::OrphanFile, Place::Inode(ino), text);
        self.drop_orphan_file(ino, called)
    }

    fn drop_orphan_file(&mut self, ino: Ino, called: Called) -> Result<(), CheckError> {
        // Another file is for the passes that follow: it may have names, and what it holds.
        if called != Called::Another {
            self.edit_inode(ino, |b| b.fill(0))?;
        }
        self.sb.forget_orphan_file();
        Ok(())
    }

    fn set_orphans_absent(&mut self) {
        self.sb.set_ro_compat(self.sb.ro_compat() & !ro_compat::ORPHAN_PRESENT);
    }

    /// Looks at the file's blocks, and empties those that hold something.
    fn orphan_blocks(&mut self, ino: Ino) -> Result<Called, CheckError> {
        let raw = self.raw_inode(ino)?;
        let (inode, bs) = (InodeRef(&raw), self.geo().block_bytes);
        if !inode.is_file() {
            return Ok(Called::Another);
        }
        let (count, end) = (inode.size() / bs as u64, bs - TAIL);
        let seed = self.geo().sums.of_inode(ino, inode.generation());
        let is_sealed = |b: BlockNo, bytes: &[u8]| {
            seed.map(|s| s.orphans(b, &bytes[..end]) == le32(bytes, end + 4))
        };
        let blocks = self.blocks_of(ino, &raw)?;
        let (mut is_one, mut is_all) = (false, true);
        for (_, b) in &blocks {
            let bytes = self.view.read(*b)?;
            let is_its = le32(&bytes, end) == MAGIC || is_sealed(*b, &bytes) == Some(true);
            (is_one, is_all) = (is_one || is_its, is_all && is_its);
        }
        if !is_one {
            return Ok(Called::Another);
        }
        // What nothing shows to be a block of it may be another file's, and is not emptied.
        let whole = is_all && blocks.iter().zip(0..).all(|((at, _), n)| at.0 == n);
        if !whole || inode.size() % bs as u64 != 0 || blocks.len() as u64 != count {
            return Ok(Called::Damaged);
        }
        for (_, b) in blocks {
            let bytes = self.view.read(b)?;
            // Where nothing has checksums, e2fsck wants none here.
            let is_right = is_sealed(b, &bytes).unwrap_or(le32(&bytes, end + 4) == 0);
            let sound = is_right && le32(&bytes, end) == MAGIC;
            let used = bytes[..end].iter().any(|b| *b != 0);
            if sound && !used {
                continue;
            }
            let (kind, text) = match sound {
                true => {
                    (Kind::OrphanList, format!("block {b} of the orphan file lists some; emptied"))
                }
                false => {
                    (Kind::OrphanFile, format!("block {b} of the orphan file is damaged; emptied"))
                }
            };
            self.found(kind, Place::Inode(ino), text);
            self.crashed |= used;
            self.view.put(b, empty(bs, b, seed));
        }
        Ok(Called::Orphans)
    }
}

/// What the superblock calls the orphan file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Called {
    /// It is one, and is empty now.
    Orphans,
    /// It was one, and cannot be used.
    Damaged,
    /// Nothing in it says that it ever was one: the superblock may name any file.
    Another,
}

fn empty(bytes: usize, b: BlockNo, seed: Option<InodeSeed>) -> Vec<u8> {
    let (mut block, end) = (vec![0; bytes], bytes - TAIL);
    set32(&mut block, end, MAGIC);
    if let Some(seed) = seed {
        let sum = seed.orphans(b, &block[..end]);
        set32(&mut block, end + 4, sum);
    }
    block
}
