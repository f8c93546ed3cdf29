//! The layout as the operations see it: each call of [`ufs::Store`], delegating to the file that
//! does it. What the volume is, its transactions and its inodes here; the other subjects, a file
//! each.

mod attributes;
mod contents;
mod directories;
mod space;

use crate::Ext;
use crate::plants::{LEAF_IN_TWO, NOT_RENEWED, SYNC_JOINS, TIMES_LEFT};
use check::live::Watch;
use env::Env;
use format::{FormatError, Ino};
use integrity::{Credits, Ended, FileScope, Guarantees, Scope, Txn, TxnId};
use ufs::store::{Inodes, StoreInfo, Syncs, Transactions};
use ufs::{InodeHandle, Limits};
use vfs::{FsError, Kind};

impl StoreInfo for Ext {
    fn env(&self) -> &Env {
        &self.env
    }
    fn watch(&self) -> Option<&Watch> {
        Some(&self.watch)
    }
    fn limits(&self) -> Limits {
        self.limits
    }
    fn guarantees(&self) -> Guarantees {
        self.mechanism.guarantees()
    }
    fn writable(&self) -> Result<(), FsError> {
        let stopped = self.read_only.get() || self.damaged.get() || self.cache.failure().is_some();
        if stopped { Err(FsError::ReadOnly) } else { Ok(()) }
    }
    fn corrupt(&self, e: &FormatError) -> FsError {
        self.damage(e)
    }
}

impl Transactions for Ext {
    type Txn = Txn;

    async fn begin(&self, need: Credits) -> Result<Txn, FsError> {
        self.writable()?;
        if !self.survey.has_ended() {
            self.surveyed().await;
            self.writable()?;
        }
        let inside = self.still.enter().await;
        let mut txn = self.begin_inside(need).await?;
        txn.inside = Some(inside);
        Ok(txn)
    }
    fn begins_at_once(&self, need: &Credits) -> bool {
        let waits = !self.survey.has_ended() || self.still.is_held() || self.cache.throttles();
        !waits && self.mechanism.begins_at_once(need)
    }
    async fn renew(&self, txn: &mut Txn, need: Credits) -> Result<(), FsError> {
        let (reserve, inside) = (txn.reserve, txn.inside.take());
        assert!(inside.is_some(), "H1: an operation goes on outside of who waits for it to end");
        if !self.plant.is(NOT_RENEWED) {
            self.seal(txn);
        }
        let ended = txn.end_early().await;
        self.watch.ends(txn.number);
        ended.map_err(|e| self.failed(&e))?;
        // An operation of several steps stays one for who waits until none is under way.
        *txn = self.begin_inside(need).await?;
        (txn.reserve, txn.inside) = (reserve, inside);
        Ok(())
    }
    async fn end(&self, txn: Txn) -> Result<Ended, FsError> {
        if txn.is_over() {
            return Err(FsError::Io); // why, was said when it could not be renewed
        }
        let mut txn = txn;
        self.seal(&mut txn);
        let (number, inside) = (txn.number, txn.inside.take());
        assert!(inside.is_some(), "H1: an operation ends outside of who waits for it to end");
        let ended = self.mechanism.end(txn).await;
        self.watch.ends(number);
        ended.map_err(|e| self.failed(&e))
    }
    async fn returned(&self, ended: Ended, durable: bool) -> Result<(), FsError> {
        self.mechanism.durable(ended).await.map_err(|e| self.failed(&e))?;
        if durable {
            let synced = self.mechanism.sync(Scope::Txn(ended)).await;
            synced.map_err(|e| self.failed(&e))?;
        }
        Ok(())
    }
    fn keeps_old_name(&self, by: TxnId) -> bool {
        self.mechanism.keeps_old_name(by)
    }
    async fn amid_split(&self, txn: &mut Txn) -> Result<(), FsError> {
        if self.plant.is(LEAF_IN_TWO) { self.in_two(txn).await } else { Ok(()) }
    }
}

impl Syncs for Ext {
    async fn sync_inodes(&self, inodes: &[InodeHandle], data_only: bool) -> Result<(), FsError> {
        let files =
            inodes.iter().map(|h| FileScope { ino: h.ino, inode_block: h.buf.block() }).collect();
        let data_only = data_only || self.plant.is(TIMES_LEFT);
        let scope = Scope::Files { files, data_only };
        let joins = inodes.first().filter(|_| self.plant.is(SYNC_JOINS)).map(|h| h.ino);
        if let Some(ino) = joins
            && self.syncing.joins(ino).await
        {
            return Ok(());
        }
        let synced = self.mechanism.sync(scope).await;
        joins.into_iter().for_each(|ino| self.syncing.ended(ino));
        synced.map_err(|e| self.failed(&e))
    }
    async fn sync_all(&self) -> Result<(), FsError> {
        self.mechanism.sync(Scope::All).await.map_err(|e| self.failed(&e))
    }
    async fn quiesce(&self) -> Result<(), FsError> {
        let done = self.cache.write_all().await;
        done.map_err(|e| self.failed(&e.into()))
    }
    fn has_busy_extents(&self) -> bool {
        self.mechanism.has_busy_extents()
    }
    fn is_unseen(&self, ino: Ino) -> bool {
        self.mechanism.is_unseen(ino)
    }
}

impl Inodes for Ext {
    async fn inode(&self, ino: Ino) -> Result<InodeHandle, FsError> {
        let h = self.slot(ino).await?;
        self.check_inode(&h)?;
        Ok(h)
    }
    fn inode_cached(&self, ino: Ino) -> Option<InodeHandle> {
        let h = self.slot_cached(ino)?;
        self.check_inode(&h).ok()?;
        Some(h)
    }
    async fn alloc_inode(
        &self,
        txn: &mut Txn,
        parent: &InodeHandle,
        kind: Kind,
    ) -> Result<InodeHandle, FsError> {
        self.new_inode(txn, parent, kind).await
    }
    async fn free_inode(&self, txn: &mut Txn, inode: &InodeHandle) -> Result<(), FsError> {
        self.release_inode(txn, inode).await
    }
    async fn orphan_add(&self, txn: &mut Txn, inode: &InodeHandle) -> Result<(), FsError> {
        self.orphan_push(txn, inode);
        Ok(())
    }
    async fn orphan_remove(&self, txn: &mut Txn, inode: &InodeHandle) -> Result<(), FsError> {
        self.orphan_drop(txn, inode);
        Ok(())
    }
    async fn orphans(&self) -> Result<Vec<InodeHandle>, FsError> {
        self.load_orphans().await
    }
}

impl Ext {
    /// A transaction of who has entered.
    async fn begin_inside(&self, need: Credits) -> Result<Txn, FsError> {
        self.cache.throttle().await;
        let begun = self.mechanism.begin(need).await;
        let mut txn = begun.map_err(|e| self.failed(&e))?;
        txn.number = self.watch.begins();
        Ok(txn)
    }
}
