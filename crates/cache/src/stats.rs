//! What the cache counts, for metrics and for tests that a cached stat costs no disk access.
//! It decides nothing.

use std::cell::Cell;

/// Counters since the volume was opened.
#[derive(Default, Debug)]
pub struct CacheStats {
    /// Blocks found in memory.
    pub hits: Cell<u64>,
    /// Blocks that had to be read.
    pub misses: Cell<u64>,
    /// Read requests to the device.
    pub reads: Cell<u64>,
    /// Write requests to the device for their places.
    pub writes: Cell<u64>,
    /// Blocks written back.
    pub blocks_written: Cell<u64>,
    /// Flushes of the device.
    pub flushes: Cell<u64>,
}

impl CacheStats {
    pub(crate) fn add(counter: &Cell<u64>, n: u64) {
        counter.set(counter.get() + n);
    }
}
