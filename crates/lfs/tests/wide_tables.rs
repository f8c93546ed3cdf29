//! A checkpoint whose body goes on from one segment to the next, as that of a large store does: all
//! of them are the table's as long as it is needed, and free afterwards.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{Op, made_on, opened, perform};
use env::Disk;
use lfs::Store;
use sim::{World, block_on};

const DISK: u64 = 400 << 20;
const TABLE: usize = 3;

/// Block `v` for each of `blocks`, each once more.
async fn write(store: &Store, blocks: std::ops::Range<u64>, tag: u64) {
    for v in blocks {
        perform(store, Op::Write { v, n: 1, tag: tag + v, fua: false }).await.unwrap();
    }
    store.flush().await.unwrap();
}

#[test]
fn checkpoints_keep_no_more_segments_than_the_newest_two_need() {
    block_on(&mut World::new(made_on(DISK, None).0), async move |env, disk| {
        let store = opened(env, disk, None).await.unwrap();
        for n in 0..60 {
            write(&store, n..n + 3, 1).await;
            store.checkpoint().await.unwrap();
            let now = store.filled().segments[TABLE];
            // Two bodies of some segments each, and two runs: 10 after a few.
            assert!(now <= 20, "{now} segments are the table's after {n} checkpoints");
        }
    });
}
