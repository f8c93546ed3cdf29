//! Pass 4: link counts. What has no name but should have one goes to lost+found, what was never
//! more than begun is freed; every other count is set to the names found.

use crate::CheckError;
use crate::finding::{Kind, Place};
use crate::run::Check;
use crate::tables::Info;
use format::Ino;
use format::ext::features::ro_compat;
use format::ufs::inode::{FLAG_INDEX, InodeMut, InodeRef};

/// Links beyond which a directory counts as having one, as e2fsck has it.
const LINKS_MOST: u32 = 65_000;

impl Check<'_> {
    /// Compares every inode's links with the names found.
    pub(crate) fn check_links(&mut self) -> Result<(), CheckError> {
        let nameless: Vec<(Ino, Info)> = self
            .infos
            .used()
            .filter(|(ino, i)| i.names == 0 && i.kind != 2 && !self.is_reserved(*ino))
            .filter(|(ino, _)| !self.values.holders.contains(ino) && !self.chain.contains(ino))
            .collect();
        for (ino, info) in nameless {
            let text = if info.empty {
                self.free_inode(ino)?;
                "an empty file without a name; freed"
            } else if self.frees_nameless {
                self.free_inode(ino)?;
                "a file without a name; freed"
            } else {
                self.attach(ino)?;
                "a file without a name; moved to lost+found"
            };
            self.found(Kind::Unattached, Place::Inode(ino), text);
        }
        self.check_values()?;
        let subdirs = self.count_subdirs();
        let used: Vec<(Ino, Info)> =
            self.infos.used().filter(|(ino, _)| !self.is_reserved(*ino)).collect();
        for (ino, info) in used {
            let counted = match self.dirs.find(ino) {
                Some(i) => 2 + subdirs[i],
                None => info.names,
            };
            let is_dir = info.kind == 2;
            if is_dir && info.links == 1 && self.may_be_uncounted(ino)? {
                continue;
            }
            if is_dir && counted > LINKS_MOST && !self.sb.has_ro_compat(ro_compat::DIR_NLINK) {
                let text = "a directory with more links than are counted, without dir_nlink; set";
                self.found(Kind::SuperField, Place::Inode(ino), text);
                self.sb.allow_features();
                self.sb.set_ro_compat(self.sb.ro_compat() | ro_compat::DIR_NLINK);
            }
            let want = if counted > LINKS_MOST { 1 } else { counted };
            if want != u32::from(info.links) && want > 0 {
                self.set_links(ino, info, want as u16)?;
            }
        }
        Ok(())
    }

    /// May a directory say that its links are not counted, since it had more than can be, once?
    /// Only where it has an index, as in Linux and e2fsck: any other's one link is a wrong count.
    fn may_be_uncounted(&self, dir: Ino) -> Result<bool, CheckError> {
        let is_indexed = InodeRef(&self.raw_inode(dir)?).flags() & FLAG_INDEX != 0;
        Ok(is_indexed && self.sb.has_ro_compat(ro_compat::DIR_NLINK))
    }

    fn count_subdirs(&self) -> Vec<u32> {
        let mut subdirs = vec![0; self.dirs.list.len()];
        for d in self.dirs.list.iter().filter(|d| d.parent != 0 && d.ino != d.parent) {
            if let Some(i) = self.dirs.find(Ino(d.parent)) {
                subdirs[i] += 1;
            }
        }
        subdirs
    }

    fn set_links(&mut self, ino: Ino, info: Info, want: u16) -> Result<(), CheckError> {
        assert!(want > 0, "K3: inode {ino} is in use, and is to have no links");
        let kind = if info.links > want { Kind::LinksHigh } else { Kind::LinksLow };
        let text = format!("{} links, should be {want}; set", info.links);
        self.found(kind, Place::Inode(ino), text);
        self.edit_inode(ino, |raw| InodeMut(raw).set_links(want))
    }
}
