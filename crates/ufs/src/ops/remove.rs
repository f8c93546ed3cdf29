//! Taking names away: the name first, then the count; the file itself goes when nobody holds it.

use super::{Ctx, Done, check_name, is_dots};
use crate::Ufs;
use crate::inode::Inode;
use crate::store::{InodeHandle, Store, Transaction};
use env::Nanos;
use env::sync::LockGuard;
use format::FileBlock;
use format::intent::Intent;
use format::ufs::inode::{InodeMut, Which};
use format::ufs::map;
use integrity::{Change, Credits};
use std::rc::Rc;
use vfs::{FsError, Reply};

/// With so many files without names in memory, who removes another frees it before it returns.
const BEHIND_MAX: usize = 16 << 10;
/// How long the first of them waits: most bursts of removals are over by then.
const BEHIND_AFTER: Nanos = Nanos::from_secs(2);
/// So many are freed in a row; then others get their turn for a moment.
const BEHIND_IN_A_ROW: usize = 32;
/// How long that moment is.
const BEHIND_PAUSE: Nanos = Nanos::from_millis(1);

fn is_unlinked(h: &InodeHandle) -> bool {
    h.with(|raw| format::ufs::inode::InodeRef(raw).links() == 0)
}

impl<S: Store> Ufs<S> {
    /// The directory and a child of it, both locked; the name still names the child.
    pub(super) async fn lock_child(
        &self,
        dir: &Rc<Inode>,
        name: &[u8],
    ) -> Result<(Vec<LockGuard>, Rc<Inode>), FsError> {
        loop {
            let child = self.child(dir, name).await?.ok_or(FsError::NotFound)?;
            let locks = match self.lock(&[dir, &child]).await {
                Ok(l) => l,
                Err(FsError::Stale) if !self.is_gone(dir) => continue, // the name is another's now
                Err(e) => return Err(e),
            };
            let still = self.find(dir, name).await?;
            if still.is_some_and(|f| f.ino == child.ino()) {
                return Ok((locks, child));
            }
        }
    }

    pub(super) async fn unlink(&self, ctx: &mut Ctx, dir: u32, name: &[u8]) -> Done {
        let dir = self.inode(dir).await?;
        if !dir.is_dir() {
            return Err(FsError::NotDir);
        }
        check_name(name)?;
        self.permit_search(ctx, &dir).await?;
        if is_dots(name) {
            return Err(FsError::IsDir);
        }
        let before = self.pre(&dir);
        ctx.wcc[0] = self.wcc(ctx, Some(before), &dir);
        let (locks, child) = self.lock_child(&dir, name).await?;
        let before = self.pre(&dir);
        ctx.wcc[0] = self.wcc(ctx, Some(before), &dir);
        self.permit_names(ctx, &dir).await?;
        self.permit_sticky(ctx, &dir, &child)?;
        if child.is_dir() {
            return Err(FsError::IsDir);
        }
        let mut txn = self.store.begin(Credits::to_free(32)).await?;
        if let Err(e) = self.remove_name(&mut txn, &dir, name, child.ino()).await {
            return self.abandon(txn, locks, e).await;
        }
        self.touch_changed(&mut txn, &dir.h);
        if let Err(e) = self.drop_link(&mut txn, &child).await {
            return self.abandon(txn, locks, e).await;
        }
        ctx.wcc[0] = self.wcc(ctx, Some(before), &dir);
        self.finish(ctx, txn, locks).await?;
        Ok(Reply::Done)
    }

    /// One name of the file is gone. With the last one the file goes too, unless somebody holds it.
    pub(super) async fn drop_link(
        &self,
        txn: &mut S::Txn,
        child: &Rc<Inode>,
    ) -> Result<(), FsError> {
        assert!(child.lock.is_busy(), "U1: a name of {} goes, and it is not locked", child.ino());
        let links = child.links().saturating_sub(1);
        let behind = links == 0 && self.is_freed_behind(child);
        if links > 0 || behind || self.table.is_held(child.ino()) {
            self.set_links(txn, &child.h, links, Change::LinkDown(child.ino()));
            self.touch(txn, &child.h, &[Which::Change]);
            if links == 0 {
                self.mark_unlinked_open(txn, child);
                self.store.orphan_add(txn, &child.h).await?;
            }
            if behind {
                self.free_behind(child);
            }
            return Ok(());
        }
        self.mark_unlinked_open(txn, child);
        self.free_orphan(txn, child).await
    }

    /// The last name is gone, and the file lives on until it is given back.
    pub(crate) fn mark_unlinked_open(&self, txn: &mut S::Txn, inode: &Rc<Inode>) {
        let (ino, before, is_dir) = (inode.ino(), inode.links() as u16, inode.is_dir());
        txn.intend(|| Intent::Links { ino, before, is_dir });
        txn.intend(|| Intent::UnlinkedOpen(ino));
        self.table.mark_unlinked_open(inode);
    }

    /// May files be freed by operations of their own behind the one that takes the last name? Where
    /// the mode allows it, and as long as not too many wait for that already.
    fn frees_behind(&self) -> bool {
        self.store.guarantees().releases_behind && self.table.unlinked_open_count() <= BEHIND_MAX
    }

    /// Is the file, whose last name goes, freed behind? One whose map has blocks that may have to
    /// be read first.
    fn is_freed_behind(&self, file: &Inode) -> bool {
        self.is_long(file) && !self.table.is_held(file.ino()) && self.frees_behind()
    }

    fn is_long(&self, file: &Inode) -> bool {
        file.size() > map::DIRECT * self.store.limits().block_bytes as u64
    }

    /// Nobody holds the file without names any more. One of which the disk has seen nothing is
    /// freed at once: made and removed unseen, it may cost no write at all; and so is one whose
    /// map need not be read, where freeing writes nothing by itself.
    pub(super) async fn let_go(&self, file: &Rc<Inode>) -> Result<(), FsError> {
        let costs = self.is_long(file) || self.store.guarantees().names_durable;
        if costs && self.frees_behind() && !self.store.is_unseen(file.ino()) {
            self.free_behind(file);
            return Ok(());
        }
        self.reclaim(file).await
    }

    /// Frees the file after a while, behind those that came before it, one at a time: whoever
    /// removes many reads at the disk's speed, and is to wait neither for the reads for these nor
    /// for the processor.
    fn free_behind(&self, file: &Rc<Inode>) {
        self.table.behind.borrow_mut().push_back(file.clone());
        if self.table.is_freeing.replace(true) {
            return;
        }
        let (me, env) = (self.me.clone(), self.store.env().clone());
        self.store.env().spawn("free files", async move {
            env.sleep(BEHIND_AFTER).await;
            let Some(me) = me.upgrade() else { return }; // closed meanwhile
            for n in 1.. {
                let Some(file) = me.table.behind.borrow_mut().pop_front() else { break };
                if let Err(e) = me.reclaim(&file).await {
                    tracing::warn!("inode {}, which has no name, is not freed: {e}", file.ino());
                }
                if n % BEHIND_IN_A_ROW == 0 {
                    env.sleep(BEHIND_PAUSE).await;
                }
            }
            let was = me.table.is_freeing.replace(false);
            assert!(was, "U6: files are freed behind by two tasks");
        });
    }

    /// Frees an inode that nothing names and nobody holds; its lock is held, and it is
    /// marked as unlinked-open.
    pub(crate) async fn free_orphan(
        &self,
        txn: &mut S::Txn,
        inode: &Rc<Inode>,
    ) -> Result<(), FsError> {
        let ino = inode.ino();
        assert!(inode.lock.is_busy(), "U1: inode {ino} is freed, and is not locked");
        assert!(inode.unlinked_open.get(), "U6: inode {ino} is freed, and may have names");
        self.mark_orphan(txn, &inode.h).await?;
        self.free_file(txn, &inode.h).await?;
        self.table.remove(inode.ino());
        Ok(())
    }

    /// Before an inode is freed in steps: a crash between two of them must find that it has no
    /// links, or it would only cut it to its size.
    async fn mark_orphan(&self, txn: &mut S::Txn, h: &InodeHandle) -> Result<(), FsError> {
        if self.store.guarantees().atomic {
            self.set_links(txn, h, 0, Change::LinkDown(h.ino));
        }
        self.store.orphan_add(txn, h).await
    }

    /// Finishes what a crash has left half done: inodes without links are freed, the others are cut
    /// to their size. Returns how many. What there is no room for waits for the next time.
    pub async fn reclaim_orphans(&self) -> Result<usize, FsError> {
        let orphans = self.store.orphans().await?;
        let is_atomic = self.store.guarantees().atomic;
        let mut done = 0;
        for h in &orphans {
            if !is_atomic {
                self.reclaim_in_order(h).await?;
                done += 1;
                continue;
            }
            let mut txn = match self.store.begin(Credits::to_free(32)).await {
                Err(FsError::NoSpace) => {
                    let left = orphans.len() - done;
                    tracing::warn!("no room to free {left} removed files that were in use");
                    break;
                }
                begun => begun?,
            };
            let freed = self.reclaim_orphan(&mut txn, h).await;
            self.store.end(txn).await?;
            match freed {
                // It stays an orphan, and the volume can be used.
                Err(FsError::NoSpace) => {
                    tracing::warn!("orphan inode {}: no room to free it; e2fsck does", h.ino);
                }
                freed => {
                    freed?;
                    done += 1;
                }
            }
        }
        Ok(done)
    }

    async fn reclaim_orphan(&self, txn: &mut S::Txn, h: &InodeHandle) -> Result<(), FsError> {
        if is_unlinked(h) {
            return self.free_file(txn, h).await;
        }
        self.cut_to_size(txn, h).await?;
        self.store.orphan_remove(txn, h).await
    }

    /// The same for the last in the list, where operations are not atomic: it must be off the list
    /// before it is free, or the list would lead to another's inode; and its contents cut before
    /// that. One without links that is off it and not free costs space.
    async fn reclaim_in_order(&self, h: &InodeHandle) -> Result<(), FsError> {
        if !is_unlinked(h) {
            let mut txn = self.store.begin(Credits::to_free(32)).await?;
            self.cut_to_size(&mut txn, h).await?;
            self.store.end(txn).await?;
            self.store.sync_all().await?;
        }
        let mut txn = self.store.begin(Credits::to_free(32)).await?;
        if is_unlinked(h) {
            txn.intend(|| Intent::UnlinkedOpen(h.ino));
        }
        self.store.orphan_remove(&mut txn, h).await?;
        self.store.end(txn).await?;
        self.store.sync_all().await?;
        if is_unlinked(h) {
            let mut txn = self.store.begin(Credits::to_free(32)).await?;
            self.free_file(&mut txn, h).await?;
            self.store.end(txn).await?;
        }
        Ok(())
    }

    async fn cut_to_size(&self, txn: &mut S::Txn, h: &InodeHandle) -> Result<(), FsError> {
        let size = h.with(|raw| format::ufs::inode::InodeRef(raw).size());
        let bs = self.store.limits().block_bytes as u64;
        self.cut_blocks(txn, h, FileBlock(size.div_ceil(bs))).await
    }

    /// Frees an inode with all it has. The order of its edits: pointers cleared, then the inode.
    pub(super) async fn free_file(&self, txn: &mut S::Txn, h: &InodeHandle) -> Result<(), FsError> {
        let named = self.store.guarantees().atomic && !is_unlinked(h);
        assert!(!named, "U6: inode {} is freed, and counts names", h.ino);
        assert!(!self.table.is_held(h.ino), "U6: inode {} is freed, and somebody holds it", h.ino);
        self.clear_contents(txn, h).await?;
        self.drop_values(txn, h).await?;
        self.store.set_xattr_block(txn, h, None).await?;
        self.check_bare(h);
        self.store.orphan_remove(txn, h).await?;
        txn.intend(|| Intent::Spared(h.ino));
        self.store.free_inode(txn, h).await
    }

    /// What is freed has neither contents in it nor attributes elsewhere.
    pub(super) fn check_bare(&self, h: &InodeHandle) {
        let inside = h.with(|raw| {
            let i = format::ufs::inode::InodeRef(raw);
            i.is_inline() && (i.is_file() || i.is_dir() || i.is_symlink())
        });
        assert!(!inside, "U6: inode {} is freed with contents in it", h.ino);
        let attributes = self.store.xattr_pointer(h);
        assert_eq!(attributes.0, 0, "U6: inode {} is freed with attributes", h.ino);
    }

    /// Frees the inode's blocks from `from` on, if it has any: a device has its number in the place
    /// of the first, and a short link its text.
    pub(super) async fn cut_blocks(
        &self,
        txn: &mut S::Txn,
        h: &InodeHandle,
        from: FileBlock,
    ) -> Result<(), FsError> {
        let has_map = h.with(|raw| {
            let i = format::ufs::inode::InodeRef(raw);
            i.is_file() || i.is_dir() || (i.is_symlink() && !i.is_fast_symlink())
        });
        if has_map { self.store.truncate(txn, h, from).await } else { Ok(()) }
    }

    async fn clear_contents(&self, txn: &mut S::Txn, h: &InodeHandle) -> Result<(), FsError> {
        self.cut_blocks(txn, h, FileBlock(0)).await?;
        let size = h.with(|raw| format::ufs::inode::InodeRef(raw).size());
        if size != 0 {
            h.edit(txn, Change::Shrink(h.ino), |raw| InodeMut(raw).set_size(0));
        }
        Ok(())
    }

    /// The last hold of a file without names is given back.
    pub(super) async fn reclaim(&self, inode: &Rc<Inode>) -> Result<(), FsError> {
        let locks = self.lock_anyhow(&[inode]).await;
        // Freed by somebody else, held again, or, one that was made without a name, given one.
        let is_due = self.table.is_current(inode) && inode.unlinked_open.get();
        if !is_due || self.table.is_held(inode.ino()) {
            return Ok(());
        }
        let mut txn = self.store.begin(Credits::to_free(32)).await?;
        if let Err(e) = self.free_file(&mut txn, &inode.h).await {
            return self.abandon(txn, locks, e).await;
        }
        self.table.remove(inode.ino());
        let ended = self.store.end(txn).await;
        drop(locks);
        ended.map(|_| ())
    }

    pub(super) async fn rmdir(&self, ctx: &mut Ctx, dir: u32, name: &[u8]) -> Done {
        let dir = self.inode(dir).await?;
        if !dir.is_dir() {
            return Err(FsError::NotDir);
        }
        check_name(name)?;
        if name == b"." {
            return Err(FsError::Invalid);
        }
        if name == b".." {
            return Err(FsError::NotEmpty);
        }
        self.permit_search(ctx, &dir).await?;
        let before = self.pre(&dir);
        ctx.wcc[0] = self.wcc(ctx, Some(before), &dir);
        let (locks, child) = self.lock_child(&dir, name).await?;
        let before = self.pre(&dir);
        ctx.wcc[0] = self.wcc(ctx, Some(before), &dir);
        self.permit_names(ctx, &dir).await?;
        self.permit_sticky(ctx, &dir, &child)?;
        if !child.is_dir() {
            return Err(FsError::NotDir);
        }
        self.check_empty(&child).await?;
        let mut txn = self.store.begin(Credits::to_free(32)).await?;
        if let Err(e) = self.remove_name(&mut txn, &dir, name, child.ino()).await {
            return self.abandon(txn, locks, e).await;
        }
        self.touch_changed(&mut txn, &dir.h);
        match self.is_named_again(&dir, child.ino()).await {
            Err(e) => return self.abandon(txn, locks, e).await,
            Ok(true) => (),
            Ok(false) => {
                self.count_subdir(&mut txn, &dir, -1, Change::ParentLinkDown(dir.ino()));
            }
        }
        // Last: what it frees may be more than one transaction, and all else is of the first.
        if let Err(e) = self.drop_dir(&mut txn, &child).await {
            return self.abandon(txn, locks, e).await;
        }
        ctx.wcc[0] = self.wcc(ctx, Some(before), &dir);
        self.finish(ctx, txn, locks).await?;
        Ok(Reply::Done)
    }

    pub(super) async fn check_empty(&self, dir: &Inode) -> Result<(), FsError> {
        if self.is_empty(dir).await? { Ok(()) } else { Err(FsError::NotEmpty) }
    }

    /// An empty directory whose name is gone.
    pub(super) async fn drop_dir(&self, txn: &mut S::Txn, dir: &Rc<Inode>) -> Result<(), FsError> {
        assert!(dir.lock.is_busy(), "U1: directory {} goes, and is not locked", dir.ino());
        let links = dir.links();
        if links > 2 {
            // A crash in the middle of a rename may have left it another name, which counts. If it
            // has not, the checker beside service gives it back.
            self.set_links(txn, &dir.h, links - 1, Change::LinkDown(dir.ino()));
            self.touch(txn, &dir.h, &[Which::Change]);
            return Ok(());
        }
        self.mark_unlinked_open(txn, dir);
        if self.table.is_held(dir.ino()) {
            self.set_links(txn, &dir.h, 0, Change::LinkDown(dir.ino()));
            self.touch(txn, &dir.h, &[Which::Change]);
            self.store.orphan_add(txn, &dir.h).await?;
            return Ok(());
        }
        self.free_orphan(txn, dir).await
    }
}
