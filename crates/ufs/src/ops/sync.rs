//! Making things durable: a file with the names by which it was made, a directory with what it
//! newly names, or everything.

use super::Done;
use crate::Ufs;
use crate::inode::Inode;
use crate::store::{InodeHandle, Store};
use std::rc::Rc;
use vfs::{FsError, Reply};

impl<S: Store> Ufs<S> {
    /// Remembers that `dir` names the inode, until that is known to be durable.
    pub(super) fn note_name(&self, inode: &Inode, dir: &Inode) {
        if !self.store.guarantees().names_durable {
            self.table.names.note(inode.ino(), dir.ino());
        }
    }

    pub(super) async fn fsync(&self, ino: u32, data_only: bool) -> Done {
        let inode = self.inode(ino).await?;
        self.wait_for_changes(&inode).await;
        self.sync_file(&inode, data_only).await?;
        Ok(Reply::Attr(self.attr(&inode.h)))
    }

    /// Waits for whoever is changing the file, in modes in which that becomes durable in steps: one
    /// who cuts it has forgotten contents that the disk still points at, and one who makes it may
    /// not have its name on the disk.
    pub(super) async fn wait_for_changes(&self, inode: &Inode) {
        if !self.store.guarantees().atomic && inode.lock.try_shared().is_none() {
            drop(inode.lock.shared().await);
        }
    }

    pub(super) async fn sync_file(
        &self,
        inode: &Rc<Inode>,
        data_only: bool,
    ) -> Result<(), FsError> {
        let then = self.table.names.now();
        let mut chain = vec![inode.clone()];
        // Where a move may be half done after a crash, what lies below may be found under neither
        // name. Which directories are above the inode is not known; few are moved.
        let moved =
            if self.store.guarantees().atomic { Vec::new() } else { self.table.names.moved() };
        for dir in moved {
            if let Ok(d) = self.inode(dir.0).await {
                chain.push(d);
            }
        }
        // Which names are made durable: no more than were there when it began, and no others of a
        // directory's children than those in it.
        let mut names = Vec::new();
        // Up to the first directories whose own names are durable.
        let mut next = 0;
        while next < chain.len() {
            for dir in self.table.names.dirs_of(chain[next].ino()) {
                names.push((chain[next].ino(), dir));
                let known = chain.iter().any(|i| i.ino() == dir);
                if !known && let Ok(d) = self.inode(dir.0).await {
                    chain.push(d);
                }
            }
            next += 1;
        }
        if inode.is_dir() {
            for child in self.table.names.inodes_in(inode.ino()) {
                names.push((child, inode.ino()));
                if let Ok(c) = self.inode(child.0).await {
                    chain.push(c);
                }
            }
        }
        let handles: Vec<InodeHandle> = chain.iter().map(|i| i.h.clone()).collect();
        self.store.sync_inodes(&handles, data_only).await?;
        for (ino, dir) in names {
            self.table.names.durable(ino, dir, then);
        }
        Ok(())
    }

    pub(super) async fn sync_all(&self) -> Done {
        let then = self.table.names.now();
        self.store.sync_all().await?;
        self.table.names.all_durable(then);
        Ok(Reply::Done)
    }

    /// Everything durable, and in its place.
    pub(super) async fn quiesce(&self) -> Done {
        if self.store.writable().is_err() {
            return Ok(Reply::Done);
        }
        self.sync_all().await?;
        self.store.quiesce().await?;
        Ok(Reply::Done)
    }

    /// Makes everything durable if there are many new names. Others go on meanwhile.
    pub(super) async fn bound_names(&self) {
        if self.table.names.are_many() && !self.bounding.replace(true) {
            let _ = self.sync_all().await; // an error is sticky: who needs what failed hears of it
            self.bounding.set(false);
        }
    }
}
