//! Who follows a log is never told that what it has is the newest when it is not, whatever was
//! deleted meanwhile: the object that came next, or all of them; and whatever a taker that was
//! asleep puts in a deleted name.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bucket::{AtRest, FormatOptions, OpenOptions, Pace, Store, TakeOver};
use env::{Block, Bucket, BucketError, BucketErrorKind, Disk, Durability, Env, Local, Nanos};
use env::{ObjectDone, ObjectOp};
use sim::{Cut, Image, SimBucket, Trouble, Way, World, block_on};
use std::rc::Rc;

/// What is dead is deleted as soon as that may be.
const AT_ONCE: Pace = Pace { checkpoint_objects: 256, slack_blocks: 4096, keep: Nanos(0) };

const CALM: Trouble = Trouble::NONE;

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

/// A new volume, and who writes it.
async fn made(env: &Env, bucket: &Rc<dyn Bucket>) -> Result<Store, String> {
    let (uuid, size_bytes) = ([7; 16], 64 * 4096);
    let format = FormatOptions { uuid, size_bytes, force: false, at_rest: AtRest::default() };
    bucket::format(env.clone(), bucket.clone(), &format).await?.finish().await?;
    open(env, bucket, false).await
}

async fn open(env: &Env, bucket: &Rc<dyn Bucket>, read_only: bool) -> Result<Store, String> {
    let take_over = TakeOver::Insist;
    let options = OpenOptions { read_only, take_over, pace: AT_ONCE, ..OpenOptions::default() };
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

/// A taker sleeps before one of its requests, while the writer goes on and deletes what came behind
/// what the followers know. Where it was about to put its fence, that lies in a deleted name then,
/// and seems to go on from there. Returns how many followers have met one.
fn a_taker_sleeps_before_its_request(n: u64) -> usize {
    let done = block_on(&mut World::new(Image::new(4096)), move |env, _| async move {
        let all = SimBucket::new(env.clone(), n, CALM);
        let bucket: Rc<dyn Bucket> = Rc::new(Way(all.machine(None)));
        let writer = made(&env, &bucket).await?;
        write(&writer, 1).await?;
        let kept = vec![Block::copy_of(&[9; 4096])];
        writer.write(4096, kept, Durability::Fua).await.map_err(|e| e.to_string())?;
        let mut followers = Vec::new();
        for _ in 0..40 {
            followers.push(open(&env, &bucket, true).await?);
        }
        let asleep = Nanos::from_secs(5);
        let taker: Rc<dyn Bucket> =
            Rc::new(Way(all.machine(Some((n, Cut::StoppedBefore(asleep))))));
        let (world, began) = (env.clone(), env.now());
        env.spawn("taker", async move { drop(open(&world, &taker, false).await) });
        env.sleep(Nanos::from_secs(2)).await;
        for tag in 2..7 {
            if write(&writer, tag).await.is_err() {
                return Ok(0); // the taker has slept behind its fence, or not at all
            }
        }
        if writer.checkpoint().await.is_err() {
            return Ok(0);
        }
        env.sleep(Nanos(asleep.0.saturating_sub(env.now().since(began).0))).await;
        let fence = |name: &String| all.objects()[name][12] == 3;
        let fences =
            || all.names().iter().filter(|n| n.starts_with("log/")).filter(|n| fence(n)).count();
        let (before, mut met) = (fences(), 0);
        for follower in followers {
            env.sleep(Nanos::from_millis(9)).await;
            met += usize::from(fences() > before);
            if let Some(now) = follower.newer().await? {
                assert_eq!(read(&now).await?, 6, "before request {n}");
            } else {
                panic!("request {n}: what it has is not the newest");
            }
        }
        Ok::<_, String>(met)
    });
    done.unwrap()
}

#[test]
fn a_fence_in_a_deleted_name_is_not_followed() {
    let met: usize = (0..12).map(a_taker_sleeps_before_its_request).sum();
    assert!(met > 20, "{met} have met one");
}

/// What dies is kept for as long as a follower may show it.
#[test]
fn what_a_follower_shows_is_there_for_a_while() {
    with_volume(|env, bucket| {
        Box::pin(async move {
            let pace = Pace::default();
            let options =
                OpenOptions { take_over: TakeOver::Insist, pace, ..OpenOptions::default() };
            let writer = Store::open(env.clone(), bucket.clone(), options).await?;
            write(&writer, 1).await?;
            let follower = open(&env, &bucket, true).await?;
            for tag in 2..6 {
                write(&writer, tag).await?;
            }
            writer.checkpoint().await.map_err(|e| e.to_string())?;
            let objects = || async { bucket.list("log/", "").await.map(|all| all.len()) };
            let text = |e: BucketError| e.to_string();
            let there = objects().await.map_err(text)?;
            env.sleep(Nanos(pace.keep.0 * 9 / 10)).await;
            assert_eq!(read(&follower).await?, 1, "the moment that it shows is whole");
            env.sleep(pace.keep).await;
            assert!(objects().await.map_err(text)? + 3 < there, "then it goes");
            Ok(())
        })
    });
}

/// The objects behind an old checkpoint, which could not be deleted, cannot be read for a while.
struct Unread(Rc<dyn Bucket>, String);

impl Bucket for Unread {
    fn ask(&self, op: ObjectOp) -> Local<'_, Result<ObjectDone, BucketError>> {
        let reads = matches!(op, ObjectOp::Get(..));
        if reads && op.name().starts_with("log/") && op.name() > self.1.as_str() {
            let (kind, name) = (BucketErrorKind::Unknown, op.name().to_owned());
            let error = BucketError { kind, during: op.verb(), name, detail: String::new() };
            return Box::pin(async move { Err(error) });
        }
        self.0.ask(op)
    }
}

#[test]
fn what_cannot_be_read_is_not_left_out() {
    let done = block_on(&mut World::new(Image::new(4096)), |env, _| async move {
        let all = SimBucket::new(env.clone(), 1, CALM);
        let bucket: Rc<dyn Bucket> = Rc::new(Way(all.machine(None)));
        let writer = made(&env, &bucket).await?;
        write(&writer, 1).await?;
        writer.checkpoint().await.map_err(|e| e.to_string())?;
        let (old, names) = (all.objects(), all.names());
        let end = names.into_iter().rfind(|n| n.starts_with("log/")).unwrap();
        for tag in 2..50 {
            write(&writer, tag).await?;
        }
        writer.checkpoint().await.map_err(|e| e.to_string())?;
        all.put_all(old);
        let bad: Rc<dyn Bucket> = Rc::new(Unread(bucket.clone(), end));
        let shown = open(&env, &bad, true).await;
        assert!(shown.is_err(), "{:?} is shown", read(&shown?).await);
        assert_eq!(read(&open(&env, &bucket, true).await?).await?, 49);
        Ok::<_, String>(())
    });
    done.unwrap();
}
