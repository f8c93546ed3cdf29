//! The superblock's state while the volume is open: not clean from before the first write until after the last
//! one is durable. These writes go through no transaction; nothing else is in flight when they are made.

use crate::Ext;
use env::{Block, Disk, DiskError};
use format::ext::features::ro_compat;
use format::ext::superblock::{STATE_VALID, SUPERBLOCK_BYTES};
use integrity::{Change, Txn};
use std::rc::Rc;

impl Ext {
    /// Writes the superblock in memory to its place, and flushes.
    pub async fn store_superblock(&self) -> Result<(), DiskError> {
        let (buf, at) = &self.sb_buf;
        let at = *at;
        {
            let sb = self.sb.borrow();
            buf.modify(|b| b[at..at + SUPERBLOCK_BYTES].copy_from_slice(&sb.bytes()[..]));
        }
        self.cache.write(vec![buf.clone()]).await?;
        self.cache.flush_device().await
    }

    /// Takes over what the block with the superblock holds on disk now: the boot area before it may have been
    /// written past the cache.
    pub async fn reload_superblock_block(&self, disk: &Rc<dyn Disk>) -> Result<(), DiskError> {
        let (buf, _) = &self.sb_buf;
        let at = buf.block().0 * self.block_bytes() as u64;
        let read = disk.read(at, vec![Block::zeroed(self.block_bytes())]).await?;
        buf.replace(read.into_iter().next().expect("one block was asked for"));
        Ok(())
    }

    /// Before the first write: the volume is not clean. In its own flush, because a power cut must not find
    /// later writes under a clean mark.
    pub async fn mark_open(&self) -> Result<(), DiskError> {
        {
            let mut sb = self.sb.borrow_mut();
            let now = self.env.wall().secs() as u32;
            let state = sb.state() & !STATE_VALID;
            sb.set_state(state);
            sb.set_mtime(now);
            sb.set_wtime(now);
            let mounts = sb.mount_count().saturating_add(1);
            sb.set_mount_count(mounts);
        }
        self.store_superblock().await
    }

    /// After everything else is durable: the volume is clean.
    pub async fn mark_clean(&self) -> Result<(), DiskError> {
        {
            let mut sb = self.sb.borrow_mut();
            sb.set_free_blocks(u32::try_from(self.free_blocks.get()).unwrap_or(u32::MAX));
            sb.set_free_inodes(u32::try_from(self.free_inodes.get()).unwrap_or(u32::MAX));
            sb.set_wtime(self.env.wall().secs() as u32);
            if !self.is_damaged() {
                let state = sb.state() | STATE_VALID;
                sb.set_state(state);
            }
        }
        self.store_superblock().await
    }

    /// Before a file grows to 2 GiB: the volume says that it has such files.
    pub(crate) fn need_large_file(&self, txn: &mut Txn) {
        if self.sb.borrow().has_ro_compat(ro_compat::LARGE_FILE) {
            return;
        }
        let bits = self.sb.borrow().ro_compat() | ro_compat::LARGE_FILE;
        self.sb.borrow_mut().set_ro_compat(bits);
        let (buf, at) = &self.sb_buf;
        let at = at + 0x64;
        txn.edit(buf, at..at + 4, Change::State, |b| b.copy_from_slice(&bits.to_le_bytes()));
    }
}
