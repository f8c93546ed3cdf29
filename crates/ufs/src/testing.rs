//! What tests of one inode stand on: a block in a cache that nothing is read into. A volume on a
//! store in memory is for those of more (crates/ufs/tests).

use cache::{Buf, BufKind, Cache, CacheOptions};
use env::{DiskId, Engine, Nanos, Now};
use format::{BlockNo, Ino};

/// Runs this with a block of zeros of 1 KiB.
pub(crate) fn with_a_block(f: impl FnOnce(Buf)) {
    let now = Now { mono: Nanos(0), wall: Nanos(0) };
    Engine::new(1).turn(now, &mut Vec::new(), |env| {
        let options = CacheOptions {
            block_bytes: 1024,
            cache_bytes: 1 << 20,
            contents_bytes: usize::MAX,
            interval: None,
            transfer_bytes_max: 1024,
        };
        let cache = Cache::new(env.clone(), env.port().disk(DiskId(0), 1 << 20), options);
        f(cache.get_new(BlockNo(1), BufKind::Meta, Ino(0)));
    });
}
