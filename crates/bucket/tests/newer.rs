//! Who follows a log is never told that what it has is the newest when it is not, whatever was
//! deleted meanwhile: the object that came next, or all of them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bucket::{AtRest, FormatOptions, OpenOptions, Store, TakeOver};
use env::{Block, Bucket, Disk, Durability, Env, Local};
use sim::{Image, SimBucket, Trouble, Way, World, block_on};
use std::rc::Rc;

const CALM: Trouble = Trouble { refused: 0, lost: 0, late: 0 };

fn with_volume(
    test: impl FnOnce(Env, Rc<dyn Bucket>) -> Local<'static, Result<(), String>> + 'static,
) {
    let done = block_on(&mut World::new(Image::new(4096)), move |env, _| async move {
        let all = SimBucket::new(env.clone(), 1, CALM);
        let bucket: Rc<dyn Bucket> = Rc::new(Way(all.machine(None)));
        let format = FormatOptions {
            uuid: [7; 16],
            size_bytes: 64 * 4096,
            force: false,
            at_rest: AtRest::default(),
        };
        bucket::format(env.clone(), bucket.clone(), &format).await?.finish().await?;
        test(env, bucket).await
    });
    done.unwrap();
}

async fn open(env: &Env, bucket: &Rc<dyn Bucket>, read_only: bool) -> Result<Store, String> {
    let take_over = TakeOver::Insist;
    let options = OpenOptions { read_only, take_over, ..OpenOptions::default() };
    Store::open(env.clone(), bucket.clone(), options).await
}

async fn write(store: &Store, tag: u8) -> Result<(), String> {
    let block = vec![Block::copy_of(&[tag; 4096])];
    store.write(0, block, Durability::Fua).await.map_err(|e| e.to_string())
}

async fn read(store: &Store) -> Result<u8, String> {
    let read = store.read(0, vec![Block::zeroed(4096)]).await.map_err(|e| e.to_string())?;
    Ok(read[0].bytes()[0])
}

/// A writer opens the volume, and what it wrote first is dead and deleted before anybody has
/// followed it: behind its fence nothing seems to come.
#[test]
fn what_came_behind_a_fence_was_deleted() {
    with_volume(|env, bucket| {
        Box::pin(async move {
            let writer = open(&env, &bucket, false).await?;
            write(&writer, 1).await?;
            writer.close().await.map_err(|e| e.to_string())?;
            let follower = open(&env, &bucket, true).await?;
            assert_eq!(read(&follower).await?, 1);
            let writer = open(&env, &bucket, false).await?;
            for tag in 2..6 {
                write(&writer, tag).await?;
            }
            writer.checkpoint().await.map_err(|e| e.to_string())?;
            let now = follower.newer().await?.expect("the log has gone on");
            assert_eq!(read(&now).await?, 5, "as it was when it was asked for, or later");
            assert!(now.newer().await?.is_none());
            Ok(())
        })
    });
}

/// The log is gone, as when another folder lies where the bucket was.
#[test]
fn a_log_that_is_gone_is_not_one_that_stands_still() {
    with_volume(|env, bucket| {
        Box::pin(async move {
            let writer = open(&env, &bucket, false).await?;
            write(&writer, 1).await?;
            writer.close().await.map_err(|e| e.to_string())?;
            let follower = open(&env, &bucket, true).await?;
            assert!(follower.newer().await?.is_none());
            for name in bucket.list("log/", "").await.map_err(|e| e.to_string())? {
                bucket.delete(&name).await.map_err(|e| e.to_string())?;
            }
            // An empty log may be found; it is not taken for what was there.
            assert!(!matches!(follower.newer().await, Ok(None)));
            Ok(())
        })
    });
}
