//! One operation a file, each readable from top to bottom: lock, begin, edit, end, unlock, answer.

mod attrs;
mod close;
mod dispatch;
mod flags;
mod label;
mod link;
mod lookup;
mod make;
mod map_block;
mod read;
mod readdir;
mod remove;
mod rename;
mod shift;
mod space;
mod sync;
mod trim;
mod write;
mod xattr;

use crate::Ufs;
use crate::inode::Inode;
use crate::store::{Store, Transaction};
use env::sync::{LockGuard, SharedGuard};
use format::Ino;
use integrity::Credits;
use std::rc::Rc;
use vfs::access::{EXECUTE, WRITE, allows, is_owner};
use vfs::{Cred, FsError, NAME_BYTES_MAX, Reply, Wcc};

/// Who asks, and what the answer must carry.
pub(crate) struct Ctx {
    pub(crate) cred: Cred,
    pub(crate) durable: bool,
    pub(crate) hold: bool,
    /// Are the attributes before and after to be in the answer?
    pub(crate) wants_wcc: bool,
    pub(crate) wcc: [Wcc; 2],
    /// Names the request in its transaction: one that comes again after a takeover is known.
    pub(crate) note: Option<u128>,
}

/// What inheritance needs to know of a file that is to be made.
pub(crate) trait NewMode {
    fn mode(&self) -> u32;
    fn umask(&self) -> u32;
    fn is_dir(&self) -> bool;
    fn is_symlink(&self) -> bool;
}

pub(crate) type Done = Result<Reply, FsError>;

/// Checks a name that is to be made, removed or looked up.
pub(crate) fn check_name(name: &[u8]) -> Result<(), FsError> {
    if name.is_empty() || name.iter().any(|&c| c == b'/' || c == 0) {
        return Err(FsError::Invalid);
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(FsError::NameTooLong);
    }
    Ok(())
}

pub(crate) fn is_dots(name: &[u8]) -> bool {
    name == b"." || name == b".."
}

impl<S: Store> Ufs<S> {
    /// The inode in memory, loaded if need be.
    pub(crate) async fn inode(&self, ino: u32) -> Result<Rc<Inode>, FsError> {
        let inode = match self.table.get(Ino(ino)) {
            Some(i) => i,
            // Somebody else may have loaded it meanwhile, and taken its last name.
            None => self.table.add(Inode::new(self.store.inode(Ino(ino)).await?)),
        };
        let is_going = inode.unlinked_open.get() && !self.table.is_held(Ino(ino));
        if is_going { Err(FsError::Stale) } else { Ok(inode) }
    }

    /// Locks inodes exclusively, in the order of their numbers, each once. Errors: `Stale`, if one
    /// of them went while somebody else had the lock: its slot may be another file's by now.
    pub(crate) async fn lock(&self, inodes: &[&Rc<Inode>]) -> Result<Vec<LockGuard>, FsError> {
        let guards = self.lock_anyhow(inodes).await;
        match inodes.iter().any(|i| self.is_gone(i)) {
            true => Err(FsError::Stale),
            false => Ok(guards),
        }
    }

    /// The same shared, for reading one.
    pub(crate) async fn lock_shared(&self, inode: &Rc<Inode>) -> Result<SharedGuard, FsError> {
        let guard = match inode.lock.try_shared() {
            Some(g) => g,
            None => inode.lock.shared().await,
        };
        if self.is_gone(inode) { Err(FsError::Stale) } else { Ok(guard) }
    }

    /// Was the inode freed, or has it no name and no holder? Asked with its lock held.
    pub(crate) fn is_gone(&self, inode: &Rc<Inode>) -> bool {
        let current = self.table.is_current(inode);
        !current || inode.unlinked_open.get() && !self.table.is_held(inode.ino())
    }

    /// The locks alone.
    pub(crate) async fn lock_anyhow(&self, inodes: &[&Rc<Inode>]) -> Vec<LockGuard> {
        let mut sorted: Vec<&Rc<Inode>> = inodes.to_vec();
        sorted.sort_by_key(|i| i.ino());
        sorted.dedup_by_key(|i| i.ino());
        assert!(sorted.is_sorted_by(|a, b| a.ino() < b.ino()), "U2: locks out of their order");
        let mut guards = Vec::with_capacity(sorted.len());
        for i in sorted {
            guards.push(i.lock.lock().await);
        }
        guards
    }

    /// Begins an operation that may need space: for anybody but root it leaves alone what is kept
    /// for root.
    pub(crate) async fn begin(&self, ctx: &Ctx, need: Credits) -> Result<S::Txn, FsError> {
        let mut txn = self.store.begin(need).await?;
        txn.allow_reserve(ctx.cred.uid == 0);
        Ok(txn)
    }

    /// Ends the operation, releases its locks, and waits for what a returned call means.
    pub(crate) async fn finish(
        &self,
        ctx: &Ctx,
        mut txn: S::Txn,
        locks: Vec<LockGuard>,
    ) -> Result<(), FsError> {
        txn.set_note(ctx.note);
        let ended = self.store.end(txn).await;
        drop(locks);
        self.store.returned(ended?, ctx.durable).await
    }

    /// Ends a transaction whose operation has failed half-way, and says why it failed.
    pub(crate) async fn abandon<T>(
        &self,
        txn: S::Txn,
        locks: Vec<LockGuard>,
        why: FsError,
    ) -> Result<T, FsError> {
        let _ = self.store.end(txn).await; // the first error is the one to tell
        drop(locks);
        Err(why)
    }

    /// Has the caller these permissions?
    pub(crate) async fn permit(&self, ctx: &Ctx, inode: &Inode, want: u32) -> Result<(), FsError> {
        if !ctx.cred.check {
            return Ok(());
        }
        let acl = self.access_list(inode).await?;
        let may = allows(&self.attr(&inode.h), &acl, &ctx.cred, want);
        if may { Ok(()) } else { Err(FsError::Access) }
    }

    pub(crate) async fn permit_search(&self, ctx: &Ctx, dir: &Inode) -> Result<(), FsError> {
        self.permit(ctx, dir, EXECUTE).await
    }

    /// May names be added to or taken from the directory?
    pub(crate) async fn permit_names(&self, ctx: &Ctx, dir: &Inode) -> Result<(), FsError> {
        self.permit(ctx, dir, WRITE | EXECUTE).await?;
        self.check_immutable(dir)
    }

    /// In a sticky directory only the owner of the directory or of the file takes a name away; of
    /// what is immutable, or only grows, nobody does.
    pub(crate) fn permit_sticky(
        &self,
        ctx: &Ctx,
        dir: &Inode,
        child: &Inode,
    ) -> Result<(), FsError> {
        self.check_free(dir)?;
        self.check_free(child)?;
        let d = self.attr(&dir.h);
        let free = !ctx.cred.check || d.mode & 0o1000 == 0;
        if free || is_owner(&d, &ctx.cred) || is_owner(&self.attr(&child.h), &ctx.cred) {
            return Ok(());
        }
        Err(FsError::Perm)
    }

    pub(crate) fn permit_owner(&self, ctx: &Ctx, inode: &Inode) -> Result<(), FsError> {
        if !ctx.cred.check || is_owner(&self.attr(&inode.h), &ctx.cred) {
            return Ok(());
        }
        Err(FsError::Perm)
    }

    /// Answers with an inode that was found or made, counting a hold if the front end keeps it.
    pub(crate) fn entry(&self, ctx: &Ctx, inode: &Inode, created: bool) -> Reply {
        if ctx.hold {
            let known = || self.table.get(inode.ino()).is_some_and(|i| std::ptr::eq(&*i, inode));
            // A look more for each entry.
            debug_assert!(known(), "U3: inode {} is told of, and has gone", inode.ino());
            self.table.hold(inode.ino(), 1);
        }
        Reply::Entry { attr: self.attr(&inode.h), created }
    }
}
