//! A checkpoint whose body goes on from one segment to the next, as that of a large store does: all
//! of them are the table's as long as it is needed, and free afterwards.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{Op, perform};
use env::{Disk, Env};
use lfs::{FormatOptions, OpenOptions, Store};
use sim::{Image, World, block_on};
use std::rc::Rc;

const DISK: u64 = 400 << 20;
const TABLE: usize = 3;

async fn formatted(disk: &Rc<dyn Disk>) {
    let options = FormatOptions {
        uuid: [7; 16],
        segment_bytes: Some(32 << 10),
        virtual_bytes: None,
        heads: None,
        disk: None,
    };
    lfs::format(disk, &options).await.unwrap();
}

async fn opened(env: &Env, disk: &Rc<dyn Disk>) -> Store {
    Store::open(env.clone(), disk.clone(), OpenOptions::default()).await.unwrap()
}

/// Block `v` for each of `blocks`, each once more.
async fn write(store: &Store, blocks: std::ops::Range<u64>, tag: u64) {
    for v in blocks {
        perform(store, Op::Write { v, n: 1, tag: tag + v, fua: false }).await.unwrap();
    }
    store.flush().await.unwrap();
}

#[test]
fn checkpoints_keep_no_more_segments_than_the_newest_two_need() {
    block_on(&mut World::new(Image::new(DISK)), async move |env, disk| {
        formatted(&disk).await;
        let store = opened(&env, &disk).await;
        for n in 0..60 {
            write(&store, n..n + 3, 1).await;
            store.checkpoint().await.unwrap();
            let now = store.filled().segments[TABLE];
            // Two bodies of some segments each, and two runs: 10 after a few.
            assert!(now <= 20, "{now} segments are the table's after {n} checkpoints");
        }
    });
}
