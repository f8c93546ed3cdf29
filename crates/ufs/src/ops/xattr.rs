//! Extended attributes, as they are asked for. Who may: `user.` follows the file's permissions and
//! is for files and directories only; `trusted.` is root's; access lists are the owner's.

use super::{Ctx, Done};
use crate::Ufs;
use crate::inode::Inode;
use crate::store::Store;
use crate::xattrs::{ACL_ACCESS, ACL_DEFAULT};
use format::ufs::acl;
use format::ufs::inode::{InodeMut, Which};
use format::ufs::xattr::{Attribute, VALUE_MAX, join_name, split_name};
use integrity::Change;
use std::rc::Rc;
use vfs::access::{READ, WRITE};
use vfs::{FsError, Reply, XattrMode};

/// What a program may do that root may, given to its file.
const CAPABILITY: &[u8] = b"security.capability";

/// Namespace and name. Errors: `NotSupported`, another namespace; `Invalid`, none but that.
fn parts_of(full: &[u8]) -> Result<(u8, &[u8]), FsError> {
    let namespaces: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    let why = if namespaces.contains(&full) { FsError::Invalid } else { FsError::NotSupported };
    split_name(full).ok_or(why)
}

impl<S: Store> Ufs<S> {
    fn check_space(&self, ctx: &Ctx, inode: &Inode, full: &[u8]) -> Result<(), FsError> {
        if full.starts_with(b"user.") && !inode.with(|i| i.is_file() || i.is_dir()) {
            return Err(FsError::Perm);
        }
        if full.starts_with(b"trusted.") && ctx.cred.check && ctx.cred.uid != 0 {
            return Err(FsError::Perm);
        }
        Ok(())
    }

    pub(super) async fn getxattr(&self, ctx: &Ctx, ino: u32, full: &[u8]) -> Done {
        let inode = self.inode(ino).await?;
        let (index, name) = parts_of(full)?;
        self.check_space(ctx, &inode, full).map_err(|_| FsError::NoData)?;
        if full.starts_with(b"user.") {
            self.permit(ctx, &inode, READ).await?;
        }
        let list = self.attributes(&inode.h).await?;
        let found = list.into_iter().find(|a| a.index == index && a.name == name);
        let value = self.attribute_value(&inode.h, found.ok_or(FsError::NoData)?).await?;
        if index == ACL_ACCESS || index == ACL_DEFAULT {
            let list = acl::from_disk(&value).ok_or(FsError::Io)?;
            return Ok(Reply::Bytes(acl::to_kernel(&list)));
        }
        Ok(Reply::Bytes(value))
    }

    pub(super) async fn listxattr(&self, ctx: &Ctx, ino: u32) -> Done {
        let inode = self.inode(ino).await?;
        let mut names = Vec::new();
        for a in self.attributes(&inode.h).await? {
            let Some(full) = join_name(a.index, &a.name) else { continue };
            // Over FUSE the kernel asks before it reads one, and not before it lists them.
            let hidden = full.starts_with(b"trusted.") && ctx.cred.uid != 0;
            if !hidden && self.check_space(ctx, &inode, &full).is_ok() {
                names.extend(full);
                names.push(0);
            }
        }
        Ok(Reply::Bytes(names))
    }

    /// Sets an attribute, or removes it (`value` None). With the value: does it take set-group-id
    /// away?
    pub(super) async fn setxattr(
        &self,
        ctx: &mut Ctx,
        ino: u32,
        full: &[u8],
        value: Option<(Vec<u8>, bool)>,
        mode: XattrMode,
    ) -> Done {
        let inode = self.inode(ino).await?;
        let (index, name) = parts_of(full)?;
        if name.len() > 255 {
            return Err(FsError::Range);
        }
        if value.as_ref().is_some_and(|(v, _)| v.len() > VALUE_MAX) {
            return Err(FsError::TooBig);
        }
        self.check_space(ctx, &inode, full)?;
        let is_acl = index == ACL_ACCESS || index == ACL_DEFAULT;
        if is_acl {
            self.permit_owner(ctx, &inode)?;
        } else if full.starts_with(b"user.") {
            self.permit(ctx, &inode, WRITE).await?;
        } else if ctx.cred.check && ctx.cred.uid != 0 {
            return Err(FsError::Perm);
        }
        self.check_free(&inode)?;
        self.store.writable()?;
        let locks = self.lock(&[&inode]).await?;
        let mut list = self.attributes(&inode.h).await?;
        let at = list.iter().position(|a| a.index == index && a.name == name);
        match (mode, at) {
            (XattrMode::Create, Some(_)) => return Err(FsError::Exists),
            (XattrMode::Replace, None) if is_acl && value.is_none() => return Ok(Reply::Done),
            (XattrMode::Replace, None) => return Err(FsError::NoData),
            _ => (),
        }
        if let Some(i) = at {
            list.remove(i);
        }
        let mut new_mode = None;
        if let Some((v, kill_sgid)) = value {
            let value = if is_acl { self.acl_value(&inode, index, &v, &mut new_mode)? } else { v };
            if !(is_acl && value.is_empty()) {
                self.store.announce_attributes().await?;
                list.push(Attribute { index, name: name.to_vec(), value, elsewhere: None });
            }
            // The kernel says so of a default list too, which changes no mode.
            if kill_sgid && index == ACL_ACCESS {
                new_mode = Some(new_mode.unwrap_or_else(|| inode.with(|i| i.mode())) & !0o2000);
            }
        }
        let mut txn = self.begin(ctx, self.credits_of(&inode.h, &list)).await?;
        let from = self.store.xattr_pointer(&inode.h);
        if let Err(e) = self.put_or_move(&mut txn, &inode.h, &list).await {
            return self.abandon(txn, locks, e).await;
        }
        let now = self.now();
        inode.h.edit(&mut txn, Change::Attr(inode.ino()), |raw| {
            InodeMut(raw).set_time(Which::Change, now);
        });
        if let Some(mode) = new_mode {
            let to = self.store.xattr_pointer(&inode.h);
            Self::put_mode(&mut txn, &inode.h, mode, (from, to));
        }
        self.finish(ctx, txn, locks).await?;
        Ok(Reply::Done)
    }

    /// Has it perhaps capabilities that are ours to take away? Without waiting.
    pub(super) fn may_have_capability(&self, ctx: &Ctx, inode: &Inode) -> bool {
        ctx.cred.check && Self::has_attributes(&inode.h)
    }

    /// Before a file's contents or its owner change: the capabilities go that it was given as what
    /// it was. (A kernel does that by itself before it asks over FUSE.) The caller may make the
    /// change, and has no lock.
    pub(super) async fn drop_capability(
        &self,
        ctx: &Ctx,
        inode: &Rc<Inode>,
    ) -> Result<(), FsError> {
        let (index, name) = split_name(CAPABILITY).ok_or(FsError::NotSupported)?;
        if !self.may_have_capability(ctx, inode) {
            return Ok(());
        }
        let list = self.attributes(&inode.h).await?;
        if !list.iter().any(|a| a.index == index && a.name == name) {
            return Ok(());
        }
        let locks = self.lock(&[inode]).await?;
        let mut list = self.attributes(&inode.h).await?;
        list.retain(|a| a.index != index || a.name != name);
        let mut txn = self.begin(ctx, self.credits_of(&inode.h, &list)).await?;
        if let Err(e) = self.put_or_move(&mut txn, &inode.h, &list).await {
            return self.abandon(txn, locks, e).await;
        }
        // Durable with the change that comes next, or before it. The file's times are that one's.
        self.store.end(txn).await.map(drop)
    }

    /// An access list as it is stored; one that says no more than the mode does is not stored at
    /// all.
    fn acl_value(
        &self,
        inode: &Inode,
        index: u8,
        kernel: &[u8],
        new_mode: &mut Option<u16>,
    ) -> Result<Vec<u8>, FsError> {
        if kernel.len() <= 4 {
            return Ok(Vec::new());
        }
        let list = acl::from_kernel(kernel).ok_or(FsError::Invalid)?;
        if index == ACL_DEFAULT {
            return if inode.is_dir() { Ok(acl::to_disk(&list)) } else { Err(FsError::Access) };
        }
        let mode = crate::xattrs::mode_of_list(&list, inode.with(|i| i.mode()));
        *new_mode = Some(mode);
        let minimal = list.len() == 3;
        Ok(if minimal { Vec::new() } else { acl::to_disk(&list) })
    }
}
