//! The second part of a pass: names that lead nowhere go, inodes without names are given back, and
//! counts follow. Each is looked at again under the inode's lock, because operations went on.

use super::survey::is_uncut;
use super::{Halt, Scrub, Step};
use crate::inode::Inode;
use crate::store::{InodeHandle, Scrubbed};
use check::live::Tally;
use env::sync::LockGuard;
use format::ufs::inode::in_use;
use format::{BlockNo, Extent, FileBlock, Ino, ROOT_INO};
use integrity::{Change, Credits};
use std::rc::Rc;
use vfs::FsError;

impl<S: Scrubbed> Scrub<'_, S> {
    /// Directories that nothing reachable names lose their names; one with two names loses one, and
    /// ".." follows. True if anything was changed.
    pub(super) async fn mend_names(&self) -> Step<bool> {
        let (mend, free) = {
            let Some(c) = self.watch.census() else { return Err(Halt::Stopped) };
            (c.mend(), c.name_of_free())
        };
        if let Some(ino) = free {
            let what = format!("a directory names inode {ino}, which is free");
            return Err(self.damage(what, format!("inode {ino}")));
        }
        let mut done = false;
        for dir in mend.lost {
            if !self.pace.frees_nameless.get() {
                self.leave_if_lost(dir).await?;
                continue;
            }
            while self.drop_name(dir, None).await? {
                done = true;
                self.pause().await?;
            }
        }
        for dir in self.overlong.take() {
            done |= self.cut_tail(dir).await?;
        }
        for file in self.uncut.take() {
            done |= self.cut_file(file).await?;
        }
        for (dir, child) in mend.extra {
            if self.drop_name(dir, Some(child)).await? {
                tracing::info!("directory {child} had two names; one in directory {dir} went");
                done = true;
            }
        }
        for (dir, parent) in mend.strayed {
            done |= self.lead_back(dir, parent).await?;
        }
        Ok(done)
    }

    /// An inode with its lock, unless it is on its way out.
    async fn locked(&self, ino: Ino) -> Step<Option<(Rc<Inode>, Vec<LockGuard>)>> {
        let inode = match self.ufs.inode(ino.0).await {
            Ok(inode) => inode,
            Err(FsError::Stale | FsError::Access) => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        match self.ufs.lock(&[&inode]).await {
            Ok(locks) => Ok(Some((inode, locks))),
            Err(FsError::Stale) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// A directory without a name, if it is one still, is left to be looked at.
    async fn leave_if_lost(&self, dir: Ino) -> Step<()> {
        let Some((inode, _locks)) = self.locked(dir).await? else { return Ok(()) };
        // Without a name it may live as long as somebody holds it.
        let unlinked = inode.unlinked_open.get();
        if !unlinked && self.watch.census().is_some_and(|c| c.is_lost(dir)) {
            tracing::warn!("directory {dir} has no name: cairn fsck --repair");
            self.left.borrow_mut().insert(dir);
        }
        Ok(())
    }

    /// Takes one name out of a directory, if it is still to go: of `child`, or any. Counts follow
    /// later.
    async fn drop_name(&self, dir: Ino, child: Option<Ino>) -> Step<bool> {
        let Some((dir, locks)) = self.locked(dir).await? else { return Ok(false) };
        let still = self.watch.census().is_some_and(|c| match child {
            Some(child) => c.is_extra(dir.ino(), child),
            None => c.is_lost(dir.ino()),
        });
        if !still {
            return Ok(false);
        }
        let Some((name, ino)) = self.name_to_go(&dir, child).await? else { return Ok(false) };
        let mut txn = self.ufs.store.begin(Credits::to_free(32)).await?;
        if let Err(e) = self.ufs.remove_name(&mut txn, &dir, &name, ino).await {
            return Ok(self.ufs.abandon(txn, locks, e).await?);
        }
        self.ufs.store.end(txn).await?;
        Tally::add(&self.watch.tally.mended, 1);
        Ok(true)
    }

    /// The one that a move has left behind, if that is known.
    async fn name_to_go(&self, dir: &Inode, child: Option<Ino>) -> Step<Option<(Vec<u8>, Ino)>> {
        let old = child.and_then(|c| self.watch.census()?.old_name(dir.ino(), c));
        if let (Some(name), Some(child)) = (old, child)
            && self.ufs.find(dir, &name).await?.is_some_and(|f| f.ino == child)
        {
            return Ok(Some((name, child)));
        }
        self.some_name(dir, child).await
    }

    async fn some_name(&self, dir: &Inode, child: Option<Ino>) -> Step<Option<(Vec<u8>, Ino)>> {
        Ok(self.ufs.last_name(dir, child).await?)
    }

    /// Blocks beyond a directory's end go, with whatever names they hold, which nobody has seen.
    async fn cut_tail(&self, dir: Ino) -> Step<bool> {
        let Some((dir, _locks)) = self.locked(dir).await? else { return Ok(false) };
        let did = self.ufs.cut_tail(&dir).await?;
        Tally::add(&self.watch.tally.mended, u64::from(did));
        Ok(did)
    }

    /// What a file has beyond its end goes.
    async fn cut_file(&self, ino: Ino) -> Step<bool> {
        let Some((file, locks)) = self.locked(ino).await? else { return Ok(false) };
        let (store, bs) = (&self.ufs.store, self.ufs.store.limits().block_bytes as u64);
        if !is_uncut(&file, store.holding(&file.h).await?.end, bs) {
            return Ok(false);
        }
        let mut txn = store.begin(Credits::to_free(48)).await?;
        let end = FileBlock(file.size().div_ceil(bs));
        if let Err(e) = store.truncate(&mut txn, &file.h, end).await {
            return Ok(self.ufs.abandon(txn, locks, e).await?);
        }
        store.end(txn).await?;
        tracing::info!("inode {ino} had contents beyond its end");
        Tally::add(&self.watch.tally.mended, 1);
        Ok(true)
    }

    /// Makes ".." of a directory name the parent that names it.
    async fn lead_back(&self, dir: Ino, parent: Ino) -> Step<bool> {
        let Some((dir, locks)) = self.locked(dir).await? else { return Ok(false) };
        let is_so = self.watch.census().is_some_and(|c| c.is_child(dir.ino(), parent));
        if !is_so || self.ufs.parent_of(&dir).await?.ino == parent {
            return Ok(false);
        }
        let mut txn = self.ufs.store.begin(Credits::to_free(8)).await?;
        if let Err(e) = self.ufs.redirect_parent(&mut txn, &dir, parent).await {
            return Ok(self.ufs.abandon(txn, locks, e).await?);
        }
        self.ufs.store.end(txn).await?;
        Tally::add(&self.watch.tally.mended, 1);
        Ok(true)
    }

    /// Inodes without names are given back.
    pub(super) async fn mend_inodes(&self) -> Step<bool> {
        let nameless: Vec<Ino> = {
            let Some(c) = self.watch.census() else { return Err(Halt::Stopped) };
            let all = c.judged().into_iter();
            all.filter(|i| *i != ROOT_INO && c.names_of(*i) == 0).collect()
        };
        if self.watch.is_planted("reclaims-before-durable") {
            self.free_blocks_first(&nameless).await?;
        }
        let mut done = false;
        for ino in nameless {
            done |= self.free_nameless(ino).await?;
            self.pause().await?;
        }
        Ok(done)
    }

    /// Planted bug: what inodes without names hold is taken for leaked, while they still hold it.
    async fn free_blocks_first(&self, nameless: &[Ino]) -> Step<()> {
        for ino in nameless {
            let h = self.ufs.store.raw_inode(*ino).await?;
            let holding = self.ufs.store.holding(&h).await?;
            self.watch.tell(|c| holding.runs.iter().for_each(|e| c.disown(*e)));
        }
        for g in 0..self.ufs.store.group_count() {
            self.ufs.store.give_back(g).await?;
        }
        self.durable().await
    }

    async fn free_nameless(&self, ino: Ino) -> Step<bool> {
        let (ufs, store) = (self.ufs, &self.ufs.store);
        let h = store.raw_inode(ino).await?;
        let inode = match ufs.table.get(ino) {
            Some(i) => i,
            None => ufs.table.add(Inode::new(h.clone())),
        };
        let locks = ufs.lock_anyhow(&[&inode]).await;
        let fresh = self.watch.census().is_none_or(|c| c.is_fresh(ino) || c.names_of(ino) > 0);
        if fresh || !ufs.table.is_current(&inode) || inode.unlinked_open.get() {
            return Ok(false); // or it lives without a name as long as somebody holds it
        }
        if h.with(in_use) && !self.pace.frees_nameless.get() {
            if self.left.borrow_mut().insert(ino) {
                tracing::warn!("inode {ino} has no name: cairn fsck --repair");
            }
            return Ok(false);
        }
        if inode.is_dir() && self.some_name(&inode, None).await?.is_some() {
            self.left.borrow_mut().insert(ino);
            return Ok(false);
        }
        let mut txn = store.begin(Credits::to_free(32)).await?;
        ufs.mark_unlinked_open(&mut txn, &inode);
        if ufs.table.is_held(ino) {
            ufs.set_links(&mut txn, &h, 0, Change::LinkDown(ino));
        } else if let Err(e) = ufs.free_orphan(&mut txn, &inode).await {
            return Ok(ufs.abandon(txn, locks, e).await?);
        }
        store.end(txn).await?;
        Tally::add(&self.watch.tally.inodes, 1);
        Ok(true)
    }

    /// Counts of links that are too high, of blocks that are wrong, and of users of attributes.
    pub(super) async fn mend_counts(&self) -> Step<()> {
        let known = self.watch.census().map(|c| c.known()).unwrap_or_default();
        for ino in known {
            self.mend_links(ino).await?;
            self.pause().await?;
        }
        for ino in self.miscounted.take() {
            self.mend_held(ino).await?;
        }
        let shared = self.watch.census().map(|c| c.attribute_blocks()).unwrap_or_default();
        for b in shared {
            let did = self.ufs.store.mend_users(b).await?;
            Tally::add(&self.watch.tally.mended, u64::from(did));
            self.pause().await?;
        }
        Ok(())
    }

    /// What the last user of shared attributes has left behind, because they counted more, is a
    /// leak once it is durable that he has left.
    pub(super) async fn disown_attributes(&self) -> Step<()> {
        let left = self.watch.census().map(|c| c.left_attributes()).unwrap_or_default();
        if !left.is_empty() {
            self.durable().await?;
            let block = |b: &BlockNo| Extent { start: *b, len: 1 };
            self.watch.tell(|c| left.iter().map(block).for_each(|e| c.disown(e)));
        }
        Ok(())
    }

    fn links(&self, h: &InodeHandle) -> (u32, u32) {
        let has = h.with(|raw| u32::from(format::ufs::inode::InodeRef(raw).links()));
        (has, self.watch.census().map_or(has, |c| c.links_of(h.ino)))
    }

    async fn mend_links(&self, ino: Ino) -> Step<()> {
        let h = self.ufs.store.raw_inode(ino).await?;
        let uncounted = |has: u32| has == 1 && self.ufs.store.limits().uncounted_dirs;
        if self.links(&h).0 == self.links(&h).1 {
            return Ok(());
        }
        let Some((inode, _locks)) = self.locked(ino).await? else { return Ok(()) };
        let (has, should) = self.links(&h);
        let nameless = ino != ROOT_INO && self.watch.census().is_none_or(|c| c.names_of(ino) == 0);
        if nameless || has == should || inode.is_dir() && uncounted(has) {
            return Ok(());
        }
        if has < should {
            let what = format!("inode {ino} counts {has} links, and {should} names lead to it");
            return Err(self.damage(what, format!("inode {ino}")));
        }
        let mut txn = self.ufs.store.begin(Credits::to_free(4)).await?;
        self.ufs.set_links(&mut txn, &h, should, Change::LinkDown(ino));
        self.ufs.store.end(txn).await?;
        Tally::add(&self.watch.tally.mended, 1);
        Ok(())
    }

    /// The blocks that an inode counts.
    async fn mend_held(&self, ino: Ino) -> Step<()> {
        let Some((inode, _locks)) = self.locked(ino).await? else { return Ok(()) };
        let store = &self.ufs.store;
        let holding = store.holding(&inode.h).await?;
        if holding.uncounted != 0 {
            store.count_held(&inode.h, holding.uncounted).await?;
            Tally::add(&self.watch.tally.mended, 1);
        }
        Ok(())
    }
}
