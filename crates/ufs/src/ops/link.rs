//! A further name for a file, or the first of one that was made without: the count first, then the
//! name.

use super::{Ctx, Done, check_name, is_dots};
use crate::Ufs;
use crate::store::{Store, Transaction};
use format::intent::Intent;
use format::ufs::inode::Which;
use integrity::{Change, Credits};
use vfs::FsError;

impl<S: Store> Ufs<S> {
    pub(super) async fn link(&self, ctx: &mut Ctx, ino: u32, dir: u32, name: &[u8]) -> Done {
        let file = self.inode(ino).await?;
        let dir = self.inode(dir).await?;
        if !dir.is_dir() {
            return Err(FsError::NotDir);
        }
        check_name(name)?;
        if is_dots(name) {
            return Err(FsError::Exists);
        }
        self.permit_search(ctx, &dir).await?;
        let locks = self.lock(&[&file, &dir]).await?;
        let before = (self.pre(&dir), self.pre(&file));
        ctx.wcc = [self.wcc(ctx, Some(before.0), &dir), self.wcc(ctx, Some(before.1), &file)];
        if file.is_dir() {
            return Err(FsError::Perm);
        }
        let was_unnamed = file.unnamed.get();
        if dir.links() == 0 || file.links() == 0 && !was_unnamed {
            return Err(FsError::NotFound);
        }
        if self.find(&dir, name).await?.is_some() {
            return Err(FsError::Exists);
        }
        self.permit_names(ctx, &dir).await?;
        self.check_free(&file)?;
        if file.links() >= self.store.limits().links_max {
            return Err(FsError::TooManyLinks);
        }
        self.prepare_name(ctx, &dir, name).await?;
        let mut txn = self.begin(ctx, Credits::blocks(16)).await?;
        if let Err(e) = self.make_slack(&mut txn, &dir, name.len()).await {
            return self.abandon(txn, locks, e).await;
        }
        if was_unnamed {
            self.store.orphan_remove(&mut txn, &file.h).await?;
            txn.intend(|| Intent::Spared(file.ino()));
            self.table.spare(&file);
            file.unnamed.set(false);
        }
        let links = file.links() + 1;
        self.set_links(&mut txn, &file.h, links, Change::LinkUp(file.ino()));
        self.touch(&mut txn, &file.h, &[Which::Change]);
        let (mode, counted) = (file.with(|i| i.mode()), file.links());
        assert!(counted > 0, "U5: {} is to have a name, and counts none", file.ino());
        assert!(!file.unlinked_open.get(), "U6: {} gets a name, and is to be freed", file.ino());
        if let Err(e) = self.add_name(&mut txn, &dir, name, file.ino(), mode).await {
            return self.abandon(txn, locks, e).await;
        }
        self.touch_changed(&mut txn, &dir.h);
        ctx.wcc = [self.wcc(ctx, Some(before.0), &dir), self.wcc(ctx, Some(before.1), &file)];
        let reply = self.entry(ctx, &file, true);
        self.note_name(&file, &dir);
        self.finish(ctx, txn, locks).await?;
        Ok(reply)
    }
}
