//! The list of orphans: inodes that must be reclaimed, or cut to their size, after a crash. A chain from the
//! superblock through the inodes' deletion-time fields, as ext3 has it. Only in modes whose transactions are
//! atomic: a chain with a missing link would lose the rest.

use crate::Ext;
use format::Ino;
use format::bytes::set32;
use format::ext::inode::{InodeMut, InodeRef};
use integrity::{Change, Txn};
use ufs::InodeHandle;
use vfs::FsError;

const LAST_ORPHAN_AT: usize = 0xe8;

impl Ext {
    fn set_head(&self, txn: &mut Txn, ino: Ino) {
        self.sb.borrow_mut().set_last_orphan(ino.0);
        let (buf, at) = &self.sb_buf;
        let at = at + LAST_ORPHAN_AT;
        txn.edit(buf, at..at + 4, Change::State, |b| set32(b, 0, ino.0));
    }

    pub(crate) fn orphan_push(&self, txn: &mut Txn, h: &InodeHandle) {
        if !self.mechanism.atomic() || self.orphans.borrow().contains(&h.ino) {
            return;
        }
        let head = self.orphans.borrow().last().copied().unwrap_or(Ino(0));
        h.edit(txn, Change::Attr(h.ino), |raw| InodeMut(raw).set_dtime(head.0));
        self.set_head(txn, h.ino);
        self.orphans.borrow_mut().push(h.ino);
    }

    pub(crate) async fn orphan_drop(&self, txn: &mut Txn, h: &InodeHandle) -> Result<(), FsError> {
        let place = self.orphans.borrow().iter().position(|i| *i == h.ino);
        let Some(place) = place else { return Ok(()) };
        let (after, before) = {
            let list = self.orphans.borrow();
            (list.get(place + 1).copied(), place.checked_sub(1).map(|p| list[p]))
        };
        let next = before.unwrap_or(Ino(0));
        match after {
            None => self.set_head(txn, next),
            Some(pred) => {
                let p = self.slot(pred).await?;
                p.edit(txn, Change::Attr(pred), |raw| InodeMut(raw).set_dtime(next.0));
            }
        }
        h.edit(txn, Change::Attr(h.ino), |raw| InodeMut(raw).set_dtime(0));
        self.orphans.borrow_mut().retain(|i| *i != h.ino);
        Ok(())
    }

    /// Follows the chain as it was found on disk; a chain that loops or leaves the volume ends there.
    pub async fn load_orphans(&self) -> Result<Vec<InodeHandle>, FsError> {
        let mut found = Vec::new();
        let mut next = Ino(self.sb.borrow().last_orphan());
        while next.0 != 0 && self.geo.has_ino(next) && found.len() < self.geo.inodes() as usize {
            let h = self.slot(next).await?;
            if found.iter().any(|f: &InodeHandle| f.ino == next) {
                tracing::warn!("the list of orphans loops at inode {next}");
                break;
            }
            next = Ino(h.with(|raw| InodeRef(raw).dtime()));
            found.push(h);
        }
        *self.orphans.borrow_mut() = found.iter().rev().map(|h| h.ino).collect();
        Ok(found)
    }
}
