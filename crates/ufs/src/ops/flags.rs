//! The flags that `chattr` sets and `lsattr` shows: which of them can be set here, and what an
//! immutable inode and one that can only be appended to keep whoever asks from, root too. The rest
//! are kept and mean nothing here.

use super::{Ctx, Done};
use crate::Ufs;
use crate::inode::Inode;
use crate::store::Store;
use format::ufs::inode::{FLAG_APPEND, FLAG_IMMUTABLE, InodeMut, Which};
use integrity::{Change, Credits};
use vfs::{FsError, Reply};

/// The flags that are shown (Linux: `EXT4_FL_USER_VISIBLE`).
const SHOWN: u32 = 0x705b_dfff;
/// Those of them that a user may change and that stand for nothing which has to be done at once:
/// secure removal, undelete, compress, sync, immutable, append, no dump, no access times, journaled
/// contents, no tail, synchronous directory, top of a hierarchy.
const SETTABLE: u32 = 0x0003_c0ff;
/// Those that keep others off.
const BINDING: u32 = FLAG_IMMUTABLE | FLAG_APPEND;
/// Those that only root may change: these, and that contents are journaled, as they are at a cost
/// for all when Linux mounts the volume.
const OF_ROOT: u32 = BINDING | 0x4000;
/// Those that only a directory has: synchronous changes, the top of a hierarchy.
const OF_DIRECTORIES: u32 = 0x1_0000 | 0x2_0000;

impl<S: Store> Ufs<S> {
    pub(super) async fn flags(&self, ino: u32) -> Done {
        let inode = self.inode(ino).await?;
        Ok(Reply::Flags(inode.with(|i| i.flags()) & SHOWN))
    }

    pub(super) async fn set_flags(&self, ctx: &mut Ctx, ino: u32, flags: u32) -> Done {
        let inode = self.inode(ino).await?;
        let locks = self.lock(&[&inode]).await?;
        let old = inode.with(|i| i.flags());
        let changed = (old & SHOWN) ^ (flags & SHOWN);
        let misplaced = if inode.is_dir() { 0 } else { OF_DIRECTORIES };
        if changed & !SETTABLE != 0 || flags & (misplaced | !SHOWN) != 0 {
            return Err(FsError::NotSupported);
        }
        self.permit_owner(ctx, &inode)?;
        if changed & OF_ROOT != 0 && ctx.cred.uid != 0 {
            return Err(FsError::Perm);
        }
        // Nor do the flags of what stays immutable change.
        if old & flags & FLAG_IMMUTABLE != 0 && changed != 0 {
            return Err(FsError::Perm);
        }
        self.store.writable()?;
        let mut txn = self.begin(ctx, Credits::to_free(8)).await?;
        inode.h.edit(&mut txn, Change::Attr(inode.ino()), |raw| {
            InodeMut(raw).set_flags(old ^ changed);
        });
        self.touch(&mut txn, &inode.h, &[Which::Change]);
        self.finish(ctx, txn, locks).await?;
        Ok(Reply::Done)
    }

    /// Nothing of an immutable inode changes, nor names in an immutable directory.
    pub(crate) fn check_immutable(&self, inode: &Inode) -> Result<(), FsError> {
        self.check_unbound(inode, FLAG_IMMUTABLE)
    }

    /// Nor has what can only grow its attributes changed, or another name, or none.
    pub(crate) fn check_free(&self, inode: &Inode) -> Result<(), FsError> {
        self.check_unbound(inode, BINDING)
    }

    fn check_unbound(&self, inode: &Inode, by: u32) -> Result<(), FsError> {
        if inode.with(|i| i.flags()) & by != 0 { Err(FsError::Perm) } else { Ok(()) }
    }

    /// Contents from `offset` on are to change: an immutable file's do not, and of one that can
    /// only be appended to only what comes after them.
    pub(crate) fn check_contents(&self, inode: &Inode, offset: u64) -> Result<(), FsError> {
        self.check_immutable(inode)?;
        if offset < inode.size() { self.check_free(inode) } else { Ok(()) }
    }
}
