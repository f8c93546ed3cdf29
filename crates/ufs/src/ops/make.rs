//! Making a file of any kind: the inode first, the name last.

use super::{Ctx, Done, check_name, is_dots};
use crate::Ufs;
use crate::attr::time_to_set;
use crate::inode::Inode;
use crate::store::{InodeHandle, Store, Transaction};
use crate::xattrs::Inherited;
use format::FileBlock;
use format::ufs::dirent;
use format::ufs::inode::{FAST_SYMLINK_MAX, InodeMut, RawTime, Which, inherited_flags};
use integrity::{Change, Credits};
use std::rc::Rc;
use vfs::access::owners;
use vfs::{FsError, Kind, MakeKind, SetAttr, SetTime};

/// What is to be made.
pub(super) struct New {
    pub(super) kind: MakeKind,
    pub(super) attr: SetAttr,
    pub(super) umask: u32,
    pub(super) fail_if_exists: bool,
    /// What the directory gives it; filled in by `make`.
    pub(super) inherited: Inherited,
}

impl super::NewMode for New {
    fn mode(&self) -> u32 {
        self.attr.mode.unwrap_or(0)
    }
    fn umask(&self) -> u32 {
        self.umask
    }
    fn is_dir(&self) -> bool {
        matches!(self.kind, MakeKind::Dir)
    }
    fn is_symlink(&self) -> bool {
        matches!(self.kind, MakeKind::Symlink(_))
    }
}

/// The metadata blocks a create may edit: two bitmaps and descriptors, the inode, the directory's
/// block and its map, an attribute block.
const CREDITS: Credits = Credits::blocks(24);

fn kind_of(k: &MakeKind) -> Kind {
    match k {
        MakeKind::File { .. } => Kind::File,
        MakeKind::Dir => Kind::Dir,
        MakeKind::Symlink(_) => Kind::Symlink,
        MakeKind::Special(kind, _) => *kind,
    }
}

/// The two times in which an exclusive create keeps its verifier; 31 bits of each half.
fn verifier_times(v: [u8; 8]) -> (RawTime, RawTime) {
    let half = |b: &[u8]| i64::from(u32::from_le_bytes([b[0], b[1], b[2], b[3]]) & 0x7fff_ffff);
    ((half(&v[..4]), 0), (half(&v[4..]), 0))
}

/// Does such a file need a first block?
fn has_contents(kind: Kind) -> bool {
    matches!(kind, Kind::Dir | Kind::Symlink)
}

impl<S: Store> Ufs<S> {
    pub(super) async fn make(&self, ctx: &mut Ctx, dir: u32, name: &[u8], new: New) -> Done {
        let mut new = new;
        let dir = self.inode(dir).await?;
        if !dir.is_dir() {
            return Err(FsError::NotDir);
        }
        check_name(name)?;
        if is_dots(name) {
            return Err(FsError::Exists);
        }
        self.permit_search(ctx, &dir).await?;
        let mut locks = self.lock(&[&dir]).await?;
        let before = self.pre(&dir);
        ctx.wcc[0] = self.wcc(ctx, Some(before), &dir);
        if dir.links() == 0 {
            return Err(FsError::NotFound);
        }
        if let Some(old) = self.child_locked(&dir, name).await? {
            drop(locks);
            return self.existing(ctx, &old, &new).await;
        }
        self.permit_names(ctx, &dir).await?;
        self.store.writable()?;
        if matches!(new.kind, MakeKind::Dir) && !self.may_link(&dir) {
            return Err(FsError::TooManyLinks);
        }
        self.check_new(ctx, &new)?;
        self.prepare_name(ctx, &dir, name).await?;
        if matches!(new.kind, MakeKind::File { .. }) {
            self.store.allow_size(new.attr.size.unwrap_or(0)).await?;
        }
        new.inherited = self.inherited_lists(&dir, &new).await?;
        let need = self.credits_with(CREDITS, &new.inherited.lists);
        let mut txn = self.begin(ctx, need).await?;
        let made = self.make_in(ctx, &mut txn, &dir, name, &new).await;
        let child = match made {
            Ok(c) => c,
            Err(e) => return self.abandon(txn, locks, e).await,
        };
        // Until `end` nobody changes it, or makes names in it.
        locks.extend(child.lock.try_lock());
        ctx.wcc[0] = self.wcc(ctx, Some(before), &dir);
        let reply = self.entry(ctx, &child, true);
        self.note_name(&child, &dir);
        self.finish(ctx, txn, locks).await?;
        Ok(reply)
    }

    /// May such a file be made, by this caller and in this layout?
    fn check_new(&self, ctx: &Ctx, new: &New) -> Result<(), FsError> {
        owners::may_make(&new.kind, &ctx.cred)?;
        let limits = self.store.limits();
        match &new.kind {
            MakeKind::Symlink(text) if text.contains(&0) => Err(FsError::Invalid),
            MakeKind::Symlink(t) if t.is_empty() || t.len() >= limits.block_bytes.min(4096) => {
                Err(FsError::NameTooLong)
            }
            MakeKind::File { .. } if new.attr.size.is_some_and(|s| s > limits.file_bytes_max) => {
                Err(FsError::FileTooBig)
            }
            _ => Ok(()),
        }
    }

    /// The name exists: an error, or for a file that may exist, that file.
    async fn existing(&self, ctx: &mut Ctx, old: &Rc<Inode>, new: &New) -> Done {
        let MakeKind::File { exclusive } = &new.kind else { return Err(FsError::Exists) };
        if let Some(v) = exclusive {
            let (a, m) = verifier_times(*v);
            let same = old.with(|i| {
                i.time(Which::Access) == Some(a) && i.time(Which::Modify) == Some(m) && i.is_file()
            });
            if same && ctx.durable {
                self.sync_file(old, false).await?;
            }
            let same = same && !self.is_gone(old);
            return if same { Ok(self.entry(ctx, old, true)) } else { Err(FsError::Exists) };
        }
        if new.fail_if_exists {
            return Err(FsError::Exists);
        }
        if new.attr.size.is_some() && old.with(|i| i.is_file()) {
            let set = SetAttr { size: new.attr.size, ..SetAttr::default() };
            // What is told beside the answer is the directory's, and not the file's.
            let of_dir = ctx.wcc;
            let done = self.setattr(ctx, old.ino().0, &set).await;
            ctx.wcc = of_dir;
            done?;
        }
        if ctx.durable {
            // Whoever made it a moment ago may not have waited until it was durable.
            self.sync_file(old, false).await?;
        }
        if self.is_gone(old) {
            return Err(FsError::Stale); // removed meanwhile, and its number may be another file's
        }
        Ok(self.entry(ctx, old, false))
    }

    async fn make_in(
        &self,
        ctx: &Ctx,
        txn: &mut S::Txn,
        dir: &Rc<Inode>,
        name: &[u8],
        new: &New,
    ) -> Result<Rc<Inode>, FsError> {
        // What can fail for want of space comes first.
        self.make_slack(txn, dir, name.len()).await?;
        let kind = kind_of(&new.kind);
        let h = self.store.alloc_inode(txn, &dir.h, kind).await?;
        self.fill_inode(ctx, txn, dir, &h, new);
        let built = self.fill_contents(txn, dir, &h, &new.kind).await;
        let built = match built {
            Ok(()) => self.set_lists(txn, &h, &new.inherited).await,
            Err(e) => Err(e),
        };
        if let Err(e) = built {
            self.unmake(txn, &h).await?;
            return Err(e);
        }
        if has_contents(kind) {
            let links = if kind == Kind::Dir { 2 } else { 1 };
            self.set_links(txn, &h, links, Change::InitInode(h.ino));
        }
        let mode = h.with(|raw| format::ufs::inode::InodeRef(raw).mode());
        if kind == Kind::Dir {
            self.count_subdir(txn, dir, 1, Change::LinkUp(dir.ino()));
        }
        let links = h.with(|raw| format::ufs::inode::InodeRef(raw).links());
        assert!(links > 0, "U5: inode {} is to have a name, and counts none", h.ino);
        self.add_name(txn, dir, name, h.ino, mode).await?;
        self.touch_changed(txn, &dir.h);
        self.table.remove(h.ino);
        Ok(self.table.add(Inode::new(h)))
    }

    fn fill_inode(&self, ctx: &Ctx, txn: &mut S::Txn, dir: &Inode, h: &InodeHandle, new: &New) {
        let kind = kind_of(&new.kind);
        let parent = self.attr(&dir.h);
        let own = owners::of_new(&parent, kind, new.inherited.mode, &new.attr, &ctx.cred);
        let flags = inherited_flags(dir.with(|i| i.flags()), own.mode as u16);
        let now = self.now();
        let time = |t: Option<SetTime>| t.map_or(now, |t| time_to_set(t, now));
        let (mut atime, mut mtime) = (time(new.attr.atime), time(new.attr.mtime));
        if let MakeKind::File { exclusive: Some(v) } = &new.kind {
            (atime, mtime) = verifier_times(*v);
        }
        h.edit(txn, Change::InitInode(h.ino), |raw| {
            let mut i = InodeMut(raw);
            i.set_mode(own.mode as u16);
            i.set_flags(i.as_ref().flags() | flags);
            i.set_uid(own.uid);
            i.set_gid(own.gid);
            // No links until its first block is there: it must not be found without.
            i.set_links(u16::from(!has_contents(kind)));
            i.set_time(Which::Access, atime);
            i.set_time(Which::Modify, mtime);
            i.set_time(Which::Change, now);
            i.set_time(Which::Create, now);
            match &new.kind {
                MakeKind::Symlink(text) => {
                    i.set_size(text.len() as u64);
                    if text.len() <= FAST_SYMLINK_MAX {
                        i.set_fast_symlink(text);
                    }
                }
                MakeKind::Special(Kind::Block | Kind::Char, device) => i.set_device(*device),
                MakeKind::File { .. } => i.set_size(new.attr.size.unwrap_or(0)),
                _ => (),
            }
        });
    }

    /// A directory's first block, a long link's text.
    async fn fill_contents(
        &self,
        txn: &mut S::Txn,
        dir: &Inode,
        h: &InodeHandle,
        kind: &MakeKind,
    ) -> Result<(), FsError> {
        let limits = self.store.limits();
        let empty = || vec![0; limits.block_bytes];
        match kind {
            MakeKind::Dir if self.make_inline_dir(txn, h, dir.ino()) => (),
            MakeKind::Dir => {
                let mut block = empty();
                dirent::init_empty_before(&mut block, limits.dir_tail);
                dirent::put_dots(&mut block, h.ino, dir.ino(), limits.entry_kinds);
                self.store.dir_grow(txn, h, FileBlock(0), &block).await?;
                let size = limits.block_bytes as u64;
                h.edit(txn, Change::InitInode(h.ino), |raw| InodeMut(raw).set_size(size));
            }
            MakeKind::Symlink(text) if text.len() > FAST_SYMLINK_MAX => {
                let mut block = empty();
                block[..text.len()].copy_from_slice(text);
                self.store.dir_grow(txn, h, FileBlock(0), &block).await?;
            }
            _ => (),
        }
        Ok(())
    }

    /// Makes a file that has no name, and goes with its last hold or in a crash unless a link gives
    /// it one. A crash finds it on the list of orphans; where there is none, fsck frees it.
    pub(super) async fn make_unnamed(&self, ctx: &mut Ctx, dir: u32, new: New) -> Done {
        let mut new = new;
        let dir = self.inode(dir).await?;
        if !dir.is_dir() {
            return Err(FsError::NotDir);
        }
        if !ctx.hold {
            return Err(FsError::Invalid); // it would be gone before anybody could use it
        }
        self.permit_names(ctx, &dir).await?;
        let locks = self.lock(&[&dir]).await?;
        if dir.links() == 0 {
            return Err(FsError::NotFound);
        }
        self.store.writable()?;
        new.inherited = self.inherited_lists(&dir, &new).await?;
        let need = self.credits_with(CREDITS, &new.inherited.lists);
        let mut txn = self.begin(ctx, need).await?;
        let h = match self.store.alloc_inode(&mut txn, &dir.h, Kind::File).await {
            Ok(h) => h,
            Err(e) => return self.abandon(txn, locks, e).await,
        };
        self.fill_inode(ctx, &mut txn, &dir, &h, &new);
        self.set_links(&mut txn, &h, 0, Change::InitInode(h.ino));
        if let Err(e) = self.set_lists(&mut txn, &h, &new.inherited).await {
            let _ = self.unmake(&mut txn, &h).await; // the first error is the one to tell
            return self.abandon(txn, locks, e).await;
        }
        self.store.orphan_add(&mut txn, &h).await?;
        self.table.remove(h.ino);
        let file = self.table.add(Inode::new(h));
        file.unnamed.set(true);
        self.mark_unlinked_open(&mut txn, &file);
        let reply = self.entry(ctx, &file, true);
        self.finish(ctx, txn, locks).await?;
        Ok(reply)
    }

    /// The character device 0:0 by which overlayfs hides a name: an inode that waits for one.
    pub(super) async fn make_whiteout(
        &self,
        ctx: &Ctx,
        txn: &mut S::Txn,
        dir: &Inode,
    ) -> Result<InodeHandle, FsError> {
        let kind = MakeKind::Special(Kind::Char, (0, 0));
        let (attr, inherited) = (SetAttr::default(), Inherited::default());
        let new = New { kind, attr, umask: 0, fail_if_exists: true, inherited };
        let h = self.store.alloc_inode(txn, &dir.h, Kind::Char).await?;
        self.fill_inode(ctx, txn, dir, &h, &new);
        self.table.remove(h.ino);
        Ok(h)
    }

    /// Gives back an inode that got no name.
    pub(super) async fn unmake(&self, txn: &mut S::Txn, h: &InodeHandle) -> Result<(), FsError> {
        if txn.is_over() {
            return Err(FsError::Io); // the disk has failed while a value went
        }
        self.store.set_xattr_block(txn, h, None).await?;
        self.cut_blocks(txn, h, FileBlock(0)).await?;
        self.check_bare(h);
        self.store.free_inode(txn, h).await
    }
}
