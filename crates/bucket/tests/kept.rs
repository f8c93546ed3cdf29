//! What a cache keeps of a bucket's objects is of those objects and of no others, also where an
//! older state of the bucket was put back, or copied, and was written on: objects of the same names
//! hold something else then.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bucket::{AtRest, FormatOptions, Key, OpenOptions, Pace, Store, TakeOver};
use env::{Block, Bucket, BucketError, Disk, Durability, Env, Local, ObjectDone, ObjectOp};
use sim::{Image, SimBucket, Trouble, Way, World, block_on};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// What is dead is deleted as soon as that may be.
const AT_ONCE: Pace = Pace { checkpoint_objects: 256, slack_blocks: 4096, keep: env::Nanos(0) };

const BLOCKS: u64 = 512;
const CALM: Trouble = Trouble::NONE;

/// Ranges of objects by whose they are, their names and where they lie.
type Ranges = Rc<RefCell<BTreeMap<([u8; 16], String, (u64, u64)), Vec<u8>>>>;

/// A bucket with a cache.
struct Keeping {
    below: Rc<dyn Bucket>,
    kept: Ranges,
}

impl Bucket for Keeping {
    fn ask(&self, op: ObjectOp) -> Local<'_, Result<ObjectDone, BucketError>> {
        Box::pin(async move {
            let ObjectOp::GetKept { name, range, of, anew } = op.clone() else {
                return self.below.ask(op).await;
            };
            let source = (of, name, range);
            if let Some(bytes) = self.kept.borrow().get(&source).filter(|_| !anew) {
                return Ok(ObjectDone::Kept(bytes.clone()));
            }
            let done = self.below.ask(op).await?;
            if let ObjectDone::Bytes(bytes) = &done {
                self.kept.borrow_mut().insert(source, bytes.clone());
            }
            Ok(done)
        })
    }
}

async fn open(
    env: &Env,
    below: &SimBucket,
    (kept, key): (&Ranges, &Option<Key>),
    read_only: bool,
) -> Store {
    let below: Rc<dyn Bucket> = Rc::new(Way(below.machine(None)));
    let bucket = Rc::new(Keeping { below, kept: kept.clone() });
    let (take_over, key) = (TakeOver::Insist, key.clone());
    let options = OpenOptions {
        read_only,
        take_over,
        key,
        kept: true,
        pace: AT_ONCE,
        ..OpenOptions::default()
    };
    Store::open(env.clone(), bucket, options).await.unwrap()
}

async fn write(store: &Store, byte: u8) {
    let all = (0..BLOCKS).map(|_| Block::copy_of(&[byte; 4096])).collect();
    store.write(0, all, Durability::Fua).await.unwrap();
    store.close().await.unwrap();
}

/// What all blocks hold.
async fn read(store: &Store) -> u8 {
    let memory = (0..BLOCKS).map(|_| Block::zeroed(4096)).collect();
    let read = store.read(0, memory).await.unwrap();
    let byte = read[0].bytes()[0];
    assert!(read.iter().all(|b| b.bytes().iter().all(|b| *b == byte)), "a mixture");
    byte
}

#[test]
fn objects_of_another_course_of_things_are_not_taken_for_these() {
    for key in [None, Key::parse(&[7; 32]).ok()] {
        block_on(&mut World::new(Image::new(4096)), move |env, _| async move {
            let kept = Ranges::default();
            let with = (&kept, &key);
            let first = SimBucket::new(env.clone(), 1, CALM);
            let below: Rc<dyn Bucket> = Rc::new(Way(first.machine(None)));
            let at_rest = AtRest { compressed: false, key: key.clone() };
            let size_bytes = BLOCKS * 4096;
            let format = FormatOptions { uuid: [7; 16], size_bytes, force: false, at_rest };
            bucket::format(env.clone(), below, &format).await.unwrap().finish().await.unwrap();
            write(&open(&env, &first, with, false).await, 1).await;
            let other = SimBucket::of(env.clone(), first.objects(), (2, CALM));
            write(&open(&env, &first, with, false).await, 2).await;
            assert_eq!(read(&open(&env, &first, with, true).await).await, 2);
            let again = open(&env, &first, with, true).await;
            assert_eq!(read(&again).await, 2);
            assert!(again.stats().kept > 0, "the cache is asked: {:?}", again.stats());
            write(&open(&env, &other, with, false).await, 3).await;
            assert_eq!(first.names(), other.names(), "it went on under the same names");
            assert_eq!(read(&open(&env, &other, with, true).await).await, 3);
            assert_eq!(read(&open(&env, &first, with, true).await).await, 2);
        });
    }
}

/// A part that is wrong although the cache takes it for right (its own sum holds) is read from the
/// bucket, and kept as it is there.
#[test]
fn what_is_kept_and_wrong_is_read_again() {
    for key in [None, Key::parse(&[7; 32]).ok()] {
        block_on(&mut World::new(Image::new(4096)), move |env, _| async move {
            let kept = Ranges::default();
            let with = (&kept, &key);
            let bucket = SimBucket::new(env.clone(), 1, CALM);
            let below: Rc<dyn Bucket> = Rc::new(Way(bucket.machine(None)));
            let at_rest = AtRest { compressed: false, key: key.clone() };
            let size_bytes = BLOCKS * 4096;
            let format = FormatOptions { uuid: [7; 16], size_bytes, force: false, at_rest };
            bucket::format(env.clone(), below, &format).await.unwrap().finish().await.unwrap();
            write(&open(&env, &bucket, with, false).await, 1).await;
            assert_eq!(read(&open(&env, &bucket, with, true).await).await, 1);
            assert!(!kept.borrow().is_empty());
            kept.borrow_mut().values_mut().for_each(|part| part[100] ^= 1);
            assert_eq!(read(&open(&env, &bucket, with, true).await).await, 1);
            let again = open(&env, &bucket, with, true).await;
            assert_eq!(read(&again).await, 1);
            let stats = again.stats();
            let blocks = stats.bytes[1] / 4096;
            assert!(stats.kept > 0 && blocks < BLOCKS, "what is kept is right again: {stats:?}");
        });
    }
}
