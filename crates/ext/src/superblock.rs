//! The superblock's state while the volume is open: not clean from before the first write until
//! after the last one is durable. Its writes at opening and closing go through no transaction,
//! because nothing else is in flight then.
//!
//! Invariants:
//! * P1. A superblock that is written can be read: whoever opens the volume finds it sound.
//! * P2. What is announced is said in the superblock, in memory and in its block.

use crate::Ext;
use env::sync::Lock;
use env::{Block, Disk, DiskError, Durability};
use format::ext::Superblock;
use format::ext::features::{compat, incompat, ro_compat};
use format::ext::superblock::{LABEL, STATE_VALID, SUPERBLOCK_BYTES};
use integrity::{Change, Credits, invariant};
use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use ufs::store::{StoreInfo, Transactions};
use vfs::FsError;

/// Files of this many bytes and more are large.
const LARGE: u64 = 1 << 31;
/// The superblock's words from `s_rev_level` to `s_feature_ro_compat`.
const FEATURES: Range<usize> = 0x4c..0x68;

/// Which features that are set while it is open the volume has, durably.
pub(crate) struct Announced {
    large: Cell<bool>,
    attributes: Cell<bool>,
    /// Held by whoever sets one.
    turn: Lock,
}

impl Announced {
    /// As the superblock on the disk says.
    pub(crate) fn of(sb: &Superblock) -> Announced {
        Announced {
            large: Cell::new(sb.has_ro_compat(ro_compat::LARGE_FILE)),
            attributes: Cell::new(sb.has_compat(compat::EXT_ATTR)),
            turn: Lock::default(),
        }
    }
}

/// Says when it was opened, and that it was once more.
fn set_opened(sb: &mut Superblock, now: u32) {
    sb.set_mtime(now);
    sb.set_wtime(now);
    let mounts = sb.mount_count().saturating_add(1);
    sb.set_mount_count(mounts);
    sb.settle_hash_sign();
}

/// A superblock with the times and counts that it will have while the volume is open.
pub fn marked_open(found: &Superblock, now: u32) -> Superblock {
    let mut sb = found.clone();
    set_opened(&mut sb, now);
    sb
}

impl Ext {
    /// P1, before it is written.
    fn check_superblock(&self) {
        let read = Superblock::decode(&self.sb.borrow().bytes()[..]);
        assert!(read.is_ok(), "P1: a superblock that nobody could read: {:?}", read.err());
    }

    /// Writes the superblock in memory to its place, and flushes.
    pub(crate) async fn store_superblock(&self) -> Result<(), DiskError> {
        let (buf, at) = &self.sb_buf;
        let at = *at;
        self.check_superblock();
        {
            let sb = self.sb.borrow();
            buf.modify(|b| b[at..at + SUPERBLOCK_BYTES].copy_from_slice(&sb.bytes()[..]));
        }
        self.cache.write(vec![buf.clone()]).await?;
        self.cache.flush_device().await
    }

    /// The same past the cache, which takes a disk that is full for one that has failed: a store
    /// that snapshots fill has not. It is the last that is written of the block.
    async fn store_superblock_at_once(&self) -> Result<(), DiskError> {
        let (buf, at) = &self.sb_buf;
        self.check_superblock();
        let mut block = buf.image();
        {
            let sb = self.sb.borrow();
            block.bytes_mut()[*at..*at + SUPERBLOCK_BYTES].copy_from_slice(&sb.bytes()[..]);
        }
        let disk = self.cache.disk();
        let place = buf.block().0 * self.block_bytes() as u64;
        disk.write(place, vec![block], Durability::Cached).await?;
        disk.flush().await
    }

    /// Takes over what the block with the superblock holds on disk now: the boot area before it may
    /// have been written past the cache.
    pub async fn reload_superblock_block(&self, disk: &Rc<dyn Disk>) -> Result<(), DiskError> {
        let (buf, _) = &self.sb_buf;
        let at = buf.block().0 * self.block_bytes() as u64;
        let read = disk.read(at, vec![Block::zeroed(self.block_bytes())]).await?;
        let block = read.into_iter().next().expect("one block was asked for");
        // Whoever leaves it as it is has nothing to write: a full store would refuse that later.
        if buf.is_dirty() {
            buf.replace(block)
        } else {
            buf.refresh(block)
        }
        Ok(())
    }

    /// Before the first write: the volume is not clean, or, in a mode with a journal, needs that
    /// replayed. In a flush of its own, because a power cut must not find later writes under a
    /// clean mark.
    pub async fn mark_open(&self, journaled: bool, now: u32) -> Result<(), DiskError> {
        {
            let mut sb = self.sb.borrow_mut();
            if journaled {
                // As Linux has it: the volume is sound once its journal is replayed.
                let bits = sb.incompat() | incompat::RECOVER;
                sb.set_incompat(bits);
            } else {
                let state = sb.state() & !STATE_VALID;
                sb.set_state(state);
            }
            set_opened(&mut sb, now);
        }
        self.store_superblock().await
    }

    /// While nothing changes: how much is free, which nobody keeps up to date otherwise.
    pub async fn store_counts(&self) -> Result<(), DiskError> {
        self.surveyed().await;
        self.set_counts();
        self.store_superblock().await
    }

    fn set_counts(&self) {
        assert!(self.survey.has_ended(), "S1: what is free is written before it is counted");
        let mut sb = self.sb.borrow_mut();
        sb.set_free_blocks(self.free_blocks.get());
        sb.set_free_inodes(u32::try_from(self.free_inodes.get()).unwrap_or(u32::MAX));
    }

    /// After everything else is durable: the volume is clean. `at_once`: past the cache.
    pub async fn mark_clean(&self, at_once: bool) -> Result<(), DiskError> {
        self.surveyed().await;
        let dirty = self.cache.counts().1;
        invariant!(self.plant, dirty == 0, "a volume is clean, and {dirty} blocks are not written");
        self.set_counts();
        {
            let mut sb = self.sb.borrow_mut();
            sb.set_wtime(self.env.wall().secs() as u32);
            let bits = sb.incompat() & !incompat::RECOVER;
            sb.set_incompat(bits);
            if !self.is_damaged() {
                let state = sb.state() | STATE_VALID;
                sb.set_state(state);
            }
        }
        if at_once { self.store_superblock_at_once().await } else { self.store_superblock().await }
    }

    /// Before a file grows to 2 GiB: the volume says that it has such files, durably.
    pub(crate) async fn allow_large(&self, size: u64) -> Result<(), FsError> {
        if size < LARGE || self.announced.large.get() {
            return Ok(());
        }
        self.announce(&self.announced.large, |sb| {
            sb.set_ro_compat(sb.ro_compat() | ro_compat::LARGE_FILE);
        })
        .await
    }

    /// Before an inode gets its first attribute: the volume says that it has some, durably.
    pub(crate) async fn announce_attributes(&self) -> Result<(), FsError> {
        if self.announced.attributes.get() {
            return Ok(());
        }
        self.announce(&self.announced.attributes, |sb| {
            sb.set_compat(sb.compat() | compat::EXT_ATTR);
        })
        .await
    }

    /// Sets a feature, durably; whoever finds another at it waits for that, because what he is
    /// about to do could be on the disk first. A volume of revision 0, which has no features,
    /// becomes one of revision 1.
    async fn announce(
        &self,
        is_said: &Cell<bool>,
        set: impl FnOnce(&mut Superblock),
    ) -> Result<(), FsError> {
        self.writable()?;
        let _turn = self.announced.turn.lock().await;
        if is_said.get() {
            return Ok(());
        }
        self.put_state(FEATURES, |sb| {
            sb.allow_features();
            set(sb);
        })
        .await?;
        let (buf, at) = &self.sb_buf;
        let there = buf.bytes()[at + FEATURES.start..at + FEATURES.end]
            == self.sb.borrow().bytes()[FEATURES];
        assert!(there, "P2: a feature is announced that the superblock's block has not");
        is_said.set(true);
        Ok(())
    }

    /// Gives the volume another label, durably. Its copies keep the old one until `cairn label`.
    pub(crate) async fn put_label(&self, label: &str) -> Result<(), FsError> {
        if label.len() > LABEL.len() {
            return Err(FsError::Invalid);
        }
        self.put_state(LABEL, |sb| sb.set_label(label)).await
    }

    /// Changes a field of the superblock, durably. It changes nothing for anybody else, so that it
    /// needs no order where operations are not atomic.
    async fn put_state(
        &self,
        field: Range<usize>,
        change: impl FnOnce(&mut Superblock),
    ) -> Result<(), FsError> {
        if !self.mechanism.atomic() {
            let _inside = self.still.enter().await; // as whoever begins a transaction
            change(&mut self.sb.borrow_mut());
            let stored = self.store_superblock().await;
            return stored.map_err(|e| self.failed(&e.into()));
        }
        let mut txn = self.begin(Credits::to_free(1)).await?;
        change(&mut self.sb.borrow_mut());
        let (buf, at) = &self.sb_buf;
        let (range, sb) = (at + field.start..at + field.end, self.sb.borrow().clone());
        txn.edit(buf, range, Change::State, |b| b.copy_from_slice(&sb.bytes()[field]));
        let ended = self.end(txn).await?;
        self.returned(ended, true).await
    }
}
