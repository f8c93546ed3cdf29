//! What a request costs on a volume of the largest size: no more than what lies there.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bucket::{AtRest, FormatOptions, OpenOptions, Store, TakeOver};
use env::{Block, Bucket, Disk, DiskErrorKind, Durability};
use sim::{Image, SimBucket, Trouble, Way, World, block_on};
use std::rc::Rc;

const BLOCKS: u64 = 1 << 40;

/// A trim of the whole volume was gone through block by block: years.
#[test]
fn all_of_a_huge_volume_is_given_back_at_once() {
    block_on(&mut World::new(Image::new(4096)), |env, _| async move {
        let all = SimBucket::new(env.clone(), 1, Trouble::NONE);
        let way = || -> Rc<dyn Bucket> { Rc::new(Way(all.machine(None))) };
        let format = FormatOptions {
            uuid: [7; 16],
            size_bytes: BLOCKS * 4096,
            force: false,
            at_rest: AtRest::default(),
        };
        bucket::format(env.clone(), way(), &format).await.unwrap().finish().await.unwrap();
        let options = || OpenOptions { take_over: TakeOver::Insist, ..OpenOptions::default() };
        let store = Store::open(env.clone(), way(), options()).await.unwrap();
        let places = [0, 5, 1 << 20, BLOCKS - 1];
        for (n, v) in (1u8..).zip(places) {
            // Some lie in objects when they are freed, and some have only gathered.
            let how = if n.is_multiple_of(2) { Durability::Fua } else { Durability::Cached };
            store.write(v * 4096, vec![Block::copy_of(&[n; 4096])], how).await.unwrap();
        }
        // None of it goes into a group (I4).
        for n in [1, 2] {
            let blocks = vec![Block::zeroed(4096); n];
            let at = (BLOCKS + 1 - n as u64) * 4096;
            let refused = store.write(at, blocks, Durability::Cached).await.unwrap_err();
            assert_eq!(refused.kind, DiskErrorKind::OutOfRange);
            assert!(store.discard(at, n as u64 * 4096).await.is_err());
        }
        store.discard(4096, (BLOCKS - 2) * 4096).await.unwrap();
        store.flush().await.unwrap();
        store.close().await.unwrap();
        let store = Store::open(env, way(), options()).await.unwrap();
        for (v, want) in places.into_iter().zip([1, 0, 0, 4]) {
            let read = store.read(v * 4096, vec![Block::zeroed(4096)]).await.unwrap();
            assert_eq!(read[0].bytes(), [want; 4096], "block {v}");
        }
    });
}
