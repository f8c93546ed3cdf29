//! Volumes whose objects lie compressed and encrypted: they are read as they were written, in parts
//! too; a wrong key, an object under another's name and a flipped bit are errors that name the
//! object; nothing of what was written can be seen in the bucket.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bucket::{AtRest, FormatOptions, Key, OpenOptions, Pace, Store, TakeOver};
use env::{Block, Bucket, Disk, Durability, Env, Local, Rng};
use sim::{Image, SimBucket, Trouble, Way, World, block_on};
use std::rc::Rc;

/// What is dead is deleted as soon as that may be.
const AT_ONCE: Pace = Pace { checkpoint_objects: 256, slack_blocks: 4096, keep: env::Nanos(0) };

const BLOCKS: u64 = 512;

fn key(byte: u8) -> Option<Key> {
    Key::parse(&[byte; 32]).ok()
}

fn ways() -> Vec<AtRest> {
    let all = [(true, None), (false, key(1)), (true, key(1))];
    all.map(|(compressed, key)| AtRest { compressed, key }).into()
}

fn with_volume(
    how: AtRest,
    test: impl FnOnce(Env, Rc<dyn Bucket>) -> Local<'static, Result<(), String>> + 'static,
) {
    let done = block_on(&mut World::new(Image::new(4096)), move |env, _| async move {
        let calm = Trouble::NONE;
        let all = SimBucket::new(env.clone(), 1, calm);
        let bucket: Rc<dyn Bucket> = Rc::new(Way(all.machine(None)));
        let size_bytes = BLOCKS * 4096;
        let format = FormatOptions { uuid: [7; 16], size_bytes, force: false, at_rest: how };
        bucket::format(env.clone(), bucket.clone(), &format).await?.finish().await?;
        test(env, bucket).await
    });
    done.unwrap();
}

async fn open(
    env: &Env,
    bucket: &Rc<dyn Bucket>,
    (read_only, key): (bool, Option<Key>),
) -> Result<Store, String> {
    let take_over = TakeOver::Insist;
    let options =
        OpenOptions { read_only, take_over, key, pace: AT_ONCE, ..OpenOptions::default() };
    Store::open(env.clone(), bucket.clone(), options).await
}

/// Half of them compress well.
fn block(v: u64) -> Block {
    let mut rng = Rng::new(v);
    let mut block = Block::copy_of(&[b'A' + (v % 20) as u8; 4096]);
    if v.is_multiple_of(2) {
        let random = |c: &mut [u8]| c.copy_from_slice(&rng.next_u64().to_le_bytes());
        block.bytes_mut().chunks_mut(8).for_each(random);
    }
    block
}

async fn write(store: &Store) -> Result<(), String> {
    let all = (0..BLOCKS).map(block).collect();
    store.write(0, all, Durability::Fua).await.map_err(|e| e.to_string())?;
    store.close().await.map_err(|e| e.to_string())
}

async fn read(store: &Store, v: u64, n: u64) -> Result<bool, String> {
    let memory = (0..n).map(|_| Block::zeroed(4096)).collect();
    let read = store.read(v * 4096, memory).await.map_err(|e| e.to_string())?;
    Ok(read.iter().zip(v..).all(|(b, v)| b.bytes() == block(v).bytes()))
}

#[test]
fn what_was_written_is_read_in_parts_and_not_seen_by_others() {
    for how in ways() {
        with_volume(how.clone(), move |env, bucket| {
            Box::pin(async move {
                write(&open(&env, &bucket, (false, how.key.clone())).await?).await?;
                let reader = open(&env, &bucket, (true, how.key.clone())).await?;
                for (v, n) in [(300, 1), (7, 9), (500, 12), (0, BLOCKS)] {
                    assert!(read(&reader, v, n).await?, "{how:?}: {n} blocks from {v}");
                }
                let mut bytes = 0;
                for name in bucket.list("", "").await.map_err(|e| e.to_string())? {
                    let raw = bucket.get(&name, None).await.map_err(|e| e.to_string())?;
                    let seen = raw.windows(64).any(|w| w == [b'B'; 64]);
                    assert!(!seen || how.key.is_none(), "{name} shows what it has");
                    bytes += raw.len() as u64;
                }
                if how.compressed {
                    assert!(bytes < BLOCKS * 4096 * 6 / 10, "{bytes}");
                }
                Ok(())
            })
        });
    }
}

#[test]
fn without_the_key_nothing_opens() {
    with_volume(AtRest { compressed: false, key: key(1) }, |env, bucket| {
        Box::pin(async move {
            for (wrong, words) in [(None, "--key-file"), (key(2), "not made with this key")] {
                for read_only in [true, false] {
                    let told = open(&env, &bucket, (read_only, wrong.clone())).await.err();
                    assert!(told.as_ref().is_some_and(|t| t.contains(words)), "{told:?}");
                }
            }
            Ok(())
        })
    });
    with_volume(AtRest::default(), |env, bucket| {
        Box::pin(async move {
            let told = open(&env, &bucket, (true, key(1))).await.err();
            assert!(told.is_some_and(|t| t.contains("not encrypted")), "it may be somebody else's");
            Ok(())
        })
    });
}

/// The largest object of the log.
async fn largest(bucket: &Rc<dyn Bucket>) -> Result<(String, Vec<u8>), String> {
    let mut largest = (String::new(), Vec::new());
    for name in bucket.list("log/", "").await.map_err(|e| e.to_string())? {
        let raw = bucket.get(&name, None).await.map_err(|e| e.to_string())?;
        if raw.len() > largest.1.len() {
            largest = (name, raw);
        }
    }
    Ok(largest)
}

#[test]
fn a_flipped_bit_and_a_swapped_object_are_errors_that_name_it() {
    for how in ways() {
        with_volume(how.clone(), move |env, bucket| {
            Box::pin(async move {
                let text = |e: env::BucketError| e.to_string();
                write(&open(&env, &bucket, (false, how.key.clone())).await?).await?;
                let (name, whole) = largest(&bucket).await?;
                let mut flipped = whole.clone();
                flipped[whole.len() / 2] ^= 4;
                let cut = whole[..whole.len() - 100].to_vec();
                let mut others = bucket.list("log/", "").await.map_err(text)?;
                others.retain(|other| *other != name);
                let other = bucket.get(&others[0], None).await.map_err(text)?;
                for (what, bytes) in [("flipped", flipped), ("cut", cut), ("swapped", other)] {
                    bucket.put(&name, bytes.into()).await.map_err(text)?;
                    let told = match open(&env, &bucket, (true, how.key.clone())).await {
                        Ok(store) => read(&store, 0, BLOCKS).await.err(),
                        Err(why) => Some(why),
                    };
                    let told = told.unwrap_or_else(|| panic!("{how:?}: {what} is not seen"));
                    assert!(told.contains(&name) && told.contains("damaged"), "{what}: {told}");
                }
                bucket.put(&name, whole.into()).await.map_err(text)?;
                let store = open(&env, &bucket, (true, how.key.clone())).await?;
                assert!(read(&store, 0, BLOCKS).await?);
                Ok(())
            })
        });
    }
}
