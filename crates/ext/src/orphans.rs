//! The list of orphans: inodes that must be reclaimed, or cut to their size, after a crash. A chain
//! from the superblock through the inodes' deletion-time fields, as ext3 has it. Only in modes
//! whose transactions are atomic: a chain with a missing link would lose the rest.
//!
//! Invariants:
//! * L1. The list in memory is the chain: each inode's deletion time is the number of the one that
//!   was on the list when it came, and nobody else writes there as long as it is on it.
//! * L2. An inode leaves the list before it is freed.
//! * L3. The superblock, in memory and in its block, leads to the inode that came last.

use crate::Ext;
use format::Ino;
use format::bytes::set32;
use format::ext::Superblock;
use format::ext::csum::Sums;
use format::ufs::inode::{InodeMut, InodeRef};
use integrity::{Change, Txn};
use std::collections::BTreeSet;
use ufs::InodeHandle;
use vfs::FsError;

impl Ext {
    fn set_head(&self, txn: &mut Txn, ino: Ino) {
        self.sb.borrow_mut().set_last_orphan(ino.0);
        let (buf, at) = &self.sb_buf;
        let has_sum = matches!(self.geo.sums, Sums::All(_));
        // Whoever changes the head changes both words (seal.rs, 3).
        let words = Superblock::words_of_orphan(&buf.bytes()[*at..], ino.0, has_sum);
        for (word, value) in words {
            let own = at + word..at + word + 4;
            txn.edit_sealed(buf, own, Change::State, |b| set32(b, 0, value));
        }
    }

    /// L3, after the list has changed.
    fn check_head(&self) {
        let list = self.orphans.borrow();
        let (last, (buf, at)) = (list.last().map_or(0, |o| o.ino.0), &self.sb_buf);
        let heads =
            (self.sb.borrow().last_orphan(), Superblock::head_of_orphans(&buf.bytes()[*at..]));
        assert_eq!(heads, (last, last), "L3: the head of the list of orphans");
    }

    pub(crate) fn is_orphan(&self, ino: Ino) -> bool {
        self.orphans.borrow().iter().any(|o| o.ino == ino)
    }

    /// What the link of this one in the list leads to; the last's leads where a crash has left it.
    fn check_link(&self, place: usize) {
        let list = self.orphans.borrow();
        let Some(before) = place.checked_sub(1).map(|p| list[p].ino) else { return };
        let (link, ino) = (list[place].with(|raw| InodeRef(raw).dtime()), list[place].ino);
        assert_eq!(link, before.0, "L1: the link of inode {ino} in the list of orphans");
    }

    pub(crate) fn orphan_push(&self, txn: &mut Txn, h: &InodeHandle) {
        if !self.mechanism.atomic() || self.is_orphan(h.ino) {
            return;
        }
        let head = self.orphans.borrow().last().map_or(Ino(0), |o| o.ino);
        h.edit(txn, Change::Attr(h.ino), |raw| InodeMut(raw).set_dtime(head.0));
        self.set_head(txn, h.ino);
        self.orphans.borrow_mut().push(h.clone());
        self.check_link(self.orphans.borrow().len() - 1);
        self.check_head();
    }

    /// Takes the inode out of the chain; its neighbour's link is an edit of the same transaction.
    pub(crate) fn orphan_drop(&self, txn: &mut Txn, h: &InodeHandle) {
        let place = self.orphans.borrow().iter().position(|o| o.ino == h.ino);
        let Some(place) = place else { return };
        self.check_link(place);
        if place + 1 < self.orphans.borrow().len() {
            self.check_link(place + 1);
        }
        let (after, next) = {
            let list = self.orphans.borrow();
            let before = place.checked_sub(1).map_or(Ino(0), |p| list[p].ino);
            (list.get(place + 1).cloned(), before)
        };
        match after {
            None => self.set_head(txn, next),
            Some(pred) => self.link_to(txn, &pred, next),
        }
        h.edit(txn, Change::Attr(h.ino), |raw| InodeMut(raw).set_dtime(0));
        self.orphans.borrow_mut().remove(place);
        if place < self.orphans.borrow().len() {
            self.check_link(place);
        }
        self.check_head();
        debug_assert!(!self.is_orphan(h.ino), "L1: inode {} is on the list twice", h.ino);
    }

    /// Sets a link of the chain. The inode is another operation's business: where its slot has a
    /// checksum, which covers what that has changed, all of it is edited (seal.rs, 3).
    fn link_to(&self, txn: &mut Txn, from: &InodeHandle, to: Ino) {
        let change = Change::Attr(from.ino);
        if self.geo.sums.dir_tail() == 0 {
            return from.edit(txn, change, |raw| InodeMut(raw).set_dtime(to.0));
        }
        let slot = from.offset..from.offset + from.len;
        txn.edit(&from.buf, slot, change, |raw| InodeMut(raw).set_dtime(to.0));
    }

    /// Follows the chain as it was found on disk, and remembers it, the first of the chain last. A
    /// chain that loops or leaves the volume ends there; what is lost of it fsck finds.
    pub(crate) async fn load_orphans(&self) -> Result<Vec<InodeHandle>, FsError> {
        let mut found = Vec::new();
        let mut seen = BTreeSet::new();
        let mut next = Ino(self.sb.borrow().last_orphan());
        while next.0 != 0 {
            if !self.geo.has_ino(next) || next.0 < self.geo.first_ino || !seen.insert(next) {
                tracing::warn!("the list of orphans ends at inode {next}, which cannot be in it");
                break;
            }
            let h = self.slot(next).await?;
            next = Ino(h.with(|raw| InodeRef(raw).dtime()));
            found.push(h);
        }
        found.reverse();
        *self.orphans.borrow_mut() = found.clone();
        Ok(found)
    }
}
