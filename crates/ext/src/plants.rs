//! Bugs of the layout that the crash explorer can plant, as a mechanism has some of its own. They
//! are about extents and checksums, so that only volumes of ext4 show them.

use crate::Ext;
use crate::alloc::DISCARDED_EARLY;
use env::sync::Notify;
use format::Ino;
use integrity::{Credits, TouchedBlocks, Txn};
use std::cell::RefCell;
use std::collections::BTreeSet;
use ufs::store::{Syncs, Transactions};
use vfs::FsError;

/// Their names.
pub const PLANTS: &[&str] = &[
    NOT_RENEWED,
    SPLIT_IN_TWO,
    LEAF_IN_TWO,
    MARKED_EARLY,
    INLINE_DROPPED,
    DESC_BEHIND,
    VALUE_IN_TWO,
];

/// Those that show on volumes of any kind, in modes that promise something of contents.
pub const PLANTS_ANYWHERE: &[&str] = &[DISCARDED_EARLY];

/// One more, of modes that promise contents as they were after some operation: elsewhere half a
/// move looks like a write that is not durable.
pub const PLANTS_OF_CONTENTS: &[&str] = &[SHIFTED_IN_TWO];

/// One more, of modes in which few contents go to their place: where they go into a log or journal,
/// they come after the node there, so that a replay ends with them.
pub const PLANTS_IN_PLACE: &[&str] = &[REUSED_EARLY];

/// One of every mode: each of them promises an fsynced file's times.
pub const PLANTS_EVERYWHERE: &[&str] = &[TIMES_LEFT];

/// Those of modes that keep no order at all.
pub const PLANTS_UNORDERED: &[&str] = &[INLINE_EARLY, NODE_EARLY];

/// Where an operation goes on in another transaction, the checksums of what it has changed so far
/// stay as they were.
pub(crate) const NOT_RENEWED: &str = "checksum-not-renewed";
/// An operation that has changed two inodes of a block seals those between them too, over what
/// others are in the middle of. Only entries that hold bytes and not blocks show it, and few
/// states: the explorer's own tests look for it, in scenario `neighbours`.
pub(crate) const SUMS_BETWEEN: &str = "sums-between";
/// The mechanism is not told that a node of an extent tree was freed, so that it is reused before
/// that is durable, and a replay may put the old node over what is there then.
pub(crate) const REUSED_EARLY: &str = "extent-node-reused-early";
/// A node of an extent tree is split in one transaction, and its other half found in the next.
pub(crate) const SPLIT_IN_TWO: &str = "index-split-in-two";
/// A leaf of a directory's index is split in one transaction, and its other half found in the next.
pub(crate) const LEAF_IN_TWO: &str = "directory-split-in-two";
/// What is counted in a block of descriptors that is read on demand is not told to the mechanism,
/// and so is lost when the block leaves memory.
pub(crate) const DESC_BEHIND: &str = "descriptor-left-behind";
/// Contents leave their inode in one transaction, and come into their block in the next.
pub(crate) const INLINE_DROPPED: &str = "inline-dropped-early";
/// A directory's inode leads to the block into which its names move before that is durable.
pub(crate) const INLINE_EARLY: &str = "inline-led-to-early";
/// A node of a directory's tree is led to before it is durable.
pub(crate) const NODE_EARLY: &str = "node-led-to-early";
/// The inode of an attribute's value is made in one transaction, and named in the next.
pub(crate) const VALUE_IN_TWO: &str = "value-in-two";
/// An fsync is an fdatasync: times may be left behind. Mechanisms that make no difference between
/// the two ask for this bug themselves.
pub(crate) const TIMES_LEFT: &str = "times-left-behind";
/// An fsync of a file that somebody else is just making durable waits for that one alone, which may
/// have begun before what was written last. The explorer's own tests look for it, in scenario
/// `company`.
pub(crate) const SYNC_JOINS: &str = "sync-joins-another";
/// An unwritten extent is written in one transaction, and its contents are the next one's.
pub(crate) const MARKED_EARLY: &str = "unwritten-marked-early";
/// A range of a file is inserted or taken out by two transactions, with half of what follows moved
/// in between.
pub(crate) const SHIFTED_IN_TWO: &str = "range-shifted-in-two";

/// Planted bug: the files that somebody is making durable.
#[derive(Default)]
pub(crate) struct Syncing {
    files: RefCell<BTreeSet<Ino>>,
    ended: Notify,
}

impl Syncing {
    /// Waits for whoever is making the file durable; false: nobody was, and the caller now is.
    pub(crate) async fn joins(&self, ino: Ino) -> bool {
        if self.files.borrow_mut().insert(ino) {
            return false;
        }
        while self.files.borrow().contains(&ino) {
            self.ended.wait().await;
        }
        true
    }

    pub(crate) fn ended(&self, ino: Ino) {
        self.files.borrow_mut().remove(&ino);
        self.ended.wake_all();
    }
}

impl Ext {
    /// What a transaction has changed and not sealed yet. With the bug that is about it, all from
    /// the first changed byte of a block to its last.
    pub(crate) fn touched(&self, txn: &mut Txn) -> TouchedBlocks {
        let mut touched = txn.take_touched();
        if self.plant.is(SUMS_BETWEEN) {
            touched.sort_by_key(|(buf, range)| (buf.block(), range.start));
            touched.dedup_by(|next, before| {
                let same = next.0.same(&before.0);
                if same {
                    before.1.end = before.1.end.max(next.1.end);
                }
                same
            });
        }
        touched
    }

    /// Planted bug: what should be one transaction is two, the first of which is durable before the
    /// second begins.
    pub(crate) async fn in_two(&self, txn: &mut Txn) -> Result<(), FsError> {
        self.seal(txn);
        txn.end_early().await.map_err(|e| self.failed(&e))?;
        self.sync_all().await?;
        *txn = self.begin(Credits::blocks(64)).await?;
        Ok(())
    }
}
