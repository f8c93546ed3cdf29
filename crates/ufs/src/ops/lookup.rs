//! Finding names, and giving inodes back.
//! Nothing here changes a volume but the end of a file that nobody holds.

use super::{Ctx, Done, is_dots};
use crate::Ufs;
use crate::dir::Found;
use crate::inode::Inode;
use crate::store::Store;
use format::Ino;
use std::rc::Rc;
use vfs::access::{DELETE, EXECUTE, WRITE, allows, granted};
use vfs::{FsError, NAME_BYTES_MAX, Reply};

impl<S: Store> Ufs<S> {
    pub(super) async fn lookup(&self, ctx: &Ctx, dir: u32, name: &[u8]) -> Done {
        let dir = self.inode(dir).await?;
        let child = self.step(ctx, &dir, name).await?;
        Ok(self.entry(ctx, &child, false))
    }

    pub(super) async fn by_number(&self, ctx: &Ctx, ino: u32) -> Done {
        if ino != format::ROOT_INO.0 && ino < self.store.limits().first_ino {
            return Err(FsError::Stale);
        }
        let inode = self.inode(ino).await?;
        Ok(self.entry(ctx, &inode, false))
    }

    /// Each directory on the way has to let the caller search it.
    pub(super) async fn walk(&self, ctx: &Ctx, dir: u32, path: &[u8]) -> Done {
        let mut at = self.inode(dir).await?;
        for name in path.split(|b| *b == b'/').filter(|n| !n.is_empty()) {
            at = self.step(ctx, &at, name).await?;
        }
        if !at.is_dir() {
            return Err(FsError::NotDir);
        }
        Ok(self.entry(ctx, &at, false))
    }

    async fn step(&self, ctx: &Ctx, dir: &Rc<Inode>, name: &[u8]) -> Result<Rc<Inode>, FsError> {
        if !dir.is_dir() {
            return Err(FsError::NotDir);
        }
        self.permit_search(ctx, dir).await?;
        if name.len() > NAME_BYTES_MAX {
            return Err(FsError::NameTooLong);
        }
        self.child(dir, name).await?.ok_or(FsError::NotFound)
    }

    /// The inode of a name, if there is one.
    pub(crate) async fn child(
        &self,
        dir: &Rc<Inode>,
        name: &[u8],
    ) -> Result<Option<Rc<Inode>>, FsError> {
        self.child_as(dir, name, false).await
    }

    /// The same for who has the directory locked: no name of it is on its way out.
    pub(crate) async fn child_locked(
        &self,
        dir: &Rc<Inode>,
        name: &[u8],
    ) -> Result<Option<Rc<Inode>>, FsError> {
        assert!(dir.lock.is_busy(), "U1: a name is looked for by who has not locked {}", dir.ino());
        self.child_as(dir, name, true).await
    }

    async fn child_as(
        &self,
        dir: &Rc<Inode>,
        name: &[u8],
        is_mine: bool,
    ) -> Result<Option<Rc<Inode>>, FsError> {
        if name == b"." {
            return Ok(Some(dir.clone()));
        }
        loop {
            let Some(found) = self.entry_of(dir, name).await? else { return Ok(None) };
            let (seen, is_read) = (dir.changes.get(), self.table.get(found.ino).is_none());
            match self.inode(found.ino.0).await {
                // While it was read the name may have gone, and its number be another file's.
                Ok(_) if is_read && dir.changes.get() != seen => (),
                Ok(i) => return Ok(Some(i)),
                // Removed while we looked, or a name of a free inode, which fsck repairs.
                Err(FsError::Stale) => match self.entry_of(dir, name).await? {
                    Some(again) if again.ino != found.ino => (), // replaced: it is another's now
                    Some(_) if is_mine || !dir.lock.is_busy() => {
                        let what = format!("a name of inode {}, which is free", found.ino);
                        let at = format!("directory inode {}", dir.ino());
                        return Err(self.store.corrupt(&format::FormatError::corrupt(what, at)));
                    }
                    _ => return Ok(None),
                },
                Err(e) => return Err(e),
            }
        }
    }

    /// What a name, or "..", leads to.
    async fn entry_of(&self, dir: &Rc<Inode>, name: &[u8]) -> Result<Option<Found>, FsError> {
        if !is_dots(name) {
            return self.find(dir, name).await;
        }
        // One that is removed meanwhile would have a hole where its dots were.
        let _shared = self.lock_shared(dir).await?;
        Ok(Some(self.parent_of(dir).await?))
    }

    pub(super) async fn forget(&self, ino: u32, count: u64) -> Done {
        if self.table.release(Ino(ino), count)
            && let Some(inode) = self.table.get(Ino(ino))
            && inode.unlinked_open.get()
        {
            self.let_go(&inode).await?;
        }
        Ok(Reply::Done)
    }

    pub(super) async fn access(&self, ctx: &Ctx, ino: u32, mask: u32) -> Done {
        let inode = self.inode(ino).await?;
        if !ctx.cred.check {
            return Ok(Reply::Access(mask));
        }
        let acl = self.access_list(&inode).await?;
        let attr = self.attr(&inode.h);
        let mut have = granted(&attr, &acl, &ctx.cred);
        if inode.is_dir() && allows(&attr, &acl, &ctx.cred, WRITE | EXECUTE) {
            have |= DELETE;
        }
        if self.store.writable().is_err() {
            have &= !(WRITE | DELETE);
        }
        Ok(Reply::Access(have & mask))
    }

    pub(super) async fn readlink(&self, ino: u32) -> Done {
        let inode = self.inode(ino).await?;
        if !inode.with(|i| i.is_symlink()) {
            return Err(FsError::Invalid);
        }
        let size = inode.size() as usize;
        let bs = self.store.limits().block_bytes;
        if inode.with(|i| i.is_fast_symlink()) {
            return Ok(Reply::Bytes(inode.with(|i| i.map_bytes())[..size].to_vec()));
        }
        if size > bs {
            let what = format!("a symbolic link of {size} bytes");
            let e = format::FormatError::corrupt(what, format!("inode {ino}"));
            return Err(self.store.corrupt(&e));
        }
        let bufs = self.store.read_blocks(&inode.h, format::FileBlock(0), 1).await?;
        let text = bufs.first().and_then(|b| b.as_ref().map(|b| b.bytes()[..size].to_vec()));
        text.map(Reply::Bytes).ok_or(FsError::Io)
    }
}
