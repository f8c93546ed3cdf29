//! Finding names, and giving inodes back.
//! Nothing here changes a volume but the end of a file that nobody holds.

use super::{Ctx, Done, is_dots};
use crate::Ufs;
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
        if name == b"." {
            return Ok(Some(dir.clone()));
        }
        let found = if is_dots(name) {
            // One that is removed meanwhile would have a hole where its dots were.
            let _shared = self.lock_shared(dir).await?;
            Some(self.parent_of(dir).await?)
        } else {
            self.find(dir, name).await?
        };
        let Some(found) = found else { return Ok(None) };
        match self.inode(found.ino.0).await {
            Ok(i) => Ok(Some(i)),
            // Removed while we looked, or a name of a free inode, which fsck repairs.
            Err(FsError::Stale) => {
                let again = self.find(dir, name).await?;
                if again.is_some_and(|f| f.ino == found.ino) && !dir.lock.is_busy() {
                    let what = format!("a name of inode {}, which is free", found.ino);
                    let at = format!("directory inode {}", dir.ino());
                    return Err(self.store.corrupt(&format::FormatError::corrupt(what, at)));
                }
                Ok(None)
            }
            Err(e) => Err(e),
        }
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
