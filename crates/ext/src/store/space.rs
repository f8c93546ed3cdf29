//! Free space, the label, and the counters. Nothing is counted here: the groups and the cache
//! have counted.

use crate::Ext;
use std::ops::Range;
use ufs::store::Space;
use vfs::{FsError, StatFs};

impl Space for Ext {
    async fn statfs(&self) -> StatFs {
        self.surveyed().await;
        // In a thin volume, what its store has room for.
        let room = self.mechanism.space_left().unwrap_or(u64::MAX);
        let free = self.free_blocks.get();
        StatFs {
            block_bytes: self.block_bytes() as u32,
            blocks: self
                .geo
                .blocks
                .saturating_sub(self.survey.own_count() + u64::from(self.geo.first_data_block)),
            free: free.min(room),
            available: self.available(false).min(room),
            inodes: u64::from(self.geo.inodes()),
            inodes_free: self.free_inodes.get(),
            name_bytes_max: 255,
        }
    }
    async fn trim(
        &self,
        among: Range<u64>,
        least: u64,
        stop: &dyn Fn() -> bool,
    ) -> Result<u64, FsError> {
        self.trim_blocks(among, least, stop).await
    }
    async fn trim_freed(&self, least: u64, stop: &dyn Fn() -> bool) -> Result<u64, FsError> {
        self.trim_what_was_freed(least, stop).await
    }
    fn label(&self) -> String {
        self.sb.borrow().label()
    }
    async fn set_label(&self, label: &str) -> Result<(), FsError> {
        self.put_label(label).await
    }
    fn counters(&self) -> Vec<(&'static str, u64)> {
        let s = self.cache.stats();
        let (blocks, dirty) = self.cache.counts();
        let mut all = vec![
            ("cairn_cache_hits_total", s.hits.get()),
            ("cairn_cache_misses_total", s.misses.get()),
            ("cairn_disk_reads_total", s.reads.get()),
            ("cairn_disk_writes_total", s.writes.get()),
            ("cairn_blocks_written_total", s.blocks_written.get()),
            ("cairn_home_bytes_total", s.blocks_written.get() * self.block_bytes() as u64),
            ("cairn_flushes_total", s.flushes.get()),
            ("cairn_free_blocks", self.free_blocks.get()),
            ("cairn_free_inodes", self.free_inodes.get()),
            ("cairn_cache_blocks", blocks as u64),
            ("cairn_cache_capacity_blocks", self.cache.capacity() as u64),
            ("cairn_dirty_bytes", dirty as u64 * self.block_bytes() as u64),
        ];
        all.extend(self.mechanism.counters());
        all.extend(self.watch.counters());
        all
    }
}
