//! Who stands by follows the tail of the log, and has in memory what the writer wrote meanwhile
//! when it takes over; and does so only when it has looked and heard nothing. What a volume is it
//! does not know.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bucket::{AtRest, FormatOptions, OpenOptions, Pace, Store, TakeOver};
use env::{Block, Bucket, BucketError, BucketErrorKind, Disk, Durability, Env, Local, Nanos};
use env::{ObjectDone, ObjectOp};
use sim::{Image, SimBucket, Trouble, Way, World, block_on};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

async fn open(env: &Env, bucket: Rc<dyn Bucket>, take_over: TakeOver) -> Result<Store, String> {
    open_with(env, bucket, (take_over, None)).await
}

async fn open_with(
    env: &Env,
    bucket: Rc<dyn Bucket>,
    (take_over, plant): (TakeOver, Option<&'static str>),
) -> Result<Store, String> {
    let after = Nanos::from_secs(1);
    let pace = Pace { keep: Nanos(0), ..Pace::default() };
    let options = OpenOptions { take_over, after, plant, pace, ..OpenOptions::default() };
    Store::open(env.clone(), bucket, options).await
}

/// The volume that these tests open, of 512 blocks.
async fn make(env: &Env, bucket: &Rc<dyn Bucket>, at_rest: AtRest) -> Result<(), String> {
    let (uuid, size_bytes) = ([7; 16], 512 * 4096);
    let format = FormatOptions { uuid, size_bytes, force: false, at_rest };
    bucket::format(env.clone(), bucket.clone(), &format).await?.finish().await
}

#[test]
fn what_the_writer_wrote_is_in_memory() {
    followed_and_taken_over(None).unwrap();
}

/// A standby that has followed the log past a checkpoint names that one in its fence: the one that
/// it began with is gone, and whoever opens the volume after it finds no beginning.
#[test]
fn a_checkpoint_that_a_standby_missed_shows() {
    followed_and_taken_over(Some(bucket::STANDBY_PLANT)).unwrap_err();
}

fn followed_and_taken_over(plant: Option<&'static str>) -> Result<(), String> {
    let mut world = World::new(Image::new(4096));
    block_on(&mut world, |env, _| async move {
        let all = SimBucket::new(env.clone(), 3, Trouble::NONE);
        let writes = all.machine(None);
        let bucket: Rc<dyn Bucket> = Rc::new(Way(writes.clone()));
        make(&env, &bucket, AtRest { compressed: true, key: None }).await?;
        let writer = open(&env, bucket, TakeOver::Refuse).await?;
        for n in 200..240_u64 {
            let block = vec![Block::copy_of(&[1; 4096])];
            writer.write(n * 4096, block, Durability::Fua).await.map_err(|e| e.to_string())?;
        }
        writer.checkpoint().await.map_err(|e| e.to_string())?;
        let standby: Rc<dyn Bucket> = Rc::new(Way(all.machine(None)));
        let (world, taken) = (env.clone(), Rc::new(RefCell::new(None)));
        let into = taken.clone();
        env.spawn("standby", async move {
            let store = open_with(&world, standby, (TakeOver::Wait, plant)).await;
            *into.borrow_mut() = Some((store, world.now()));
        });
        env.sleep(Nanos::from_millis(500)).await;
        for n in 0..120_u64 {
            let block = vec![Block::copy_of(&[n as u8 + 1; 4096])];
            writer.write(n * 4096, block, Durability::Fua).await.map_err(|e| e.to_string())?;
            if n == 90 {
                // What it has not followed yet is gone.
                writer.checkpoint().await.map_err(|e| e.to_string())?;
            }
        }
        env.sleep(Nanos::from_secs(1)).await;
        writes.kill();
        let killed = env.now();
        env.sleep(Nanos::from_secs(4)).await;
        let (store, when) = taken.borrow_mut().take().expect("it has taken over");
        let (store, took) = (store?, when.since(killed));
        assert!(took < Nanos::from_secs(2), "{took:?}");
        let [_, gets, lists, _] = store.stats().requests;
        // When it began, behind its fence, and for garbage: listing may take longer than the rest.
        assert!(plant.is_some() || lists <= 3, "{lists} listings");
        for n in 0..120_u64 {
            let read = store.read(n * 4096, vec![Block::zeroed(4096)]).await;
            assert_eq!(read.map_err(|e| e.to_string())?[0].bytes()[7], n as u8 + 1);
        }
        assert_eq!(store.stats().requests[1], gets, "nothing is asked of the bucket");
        // More than two windows of objects: none of the newest is the writer's before.
        for n in 0..80_u64 {
            let block = vec![Block::copy_of(&[n as u8 + 1; 4096])];
            store.write(n * 4096, block, Durability::Fua).await.map_err(|e| e.to_string())?;
        }
        let third: Rc<dyn Bucket> = Rc::new(Way(all.machine(None)));
        let third = open(&env, third, TakeOver::Insist).await?;
        for n in 0..120_u64 {
            let read = third.read(n * 4096, vec![Block::zeroed(4096)]).await;
            assert_eq!(read.map_err(|e| e.to_string())?[0].bytes()[7], n as u8 + 1);
        }
        Ok::<_, String>(())
    })
}

/// A way to the bucket that fails between two moments.
struct Cut(Rc<dyn Bucket>, Env, [Nanos; 2]);

impl Bucket for Cut {
    fn ask(&self, op: ObjectOp) -> Local<'_, Result<ObjectDone, BucketError>> {
        let [from, to] = self.2;
        if (from..to).contains(&self.1.now()) {
            let (kind, name) = (BucketErrorKind::Unknown, op.name().to_owned());
            let error = BucketError { kind, during: op.verb(), name, detail: String::new() };
            return Box::pin(async move { Err(error) });
        }
        self.0.ask(op)
    }
}

/// Who cannot look does not take a writer for silent that beats.
#[test]
fn who_is_cut_off_does_not_take_over() {
    let mut world = World::new(Image::new(4096));
    let done = block_on(&mut world, |env, _| async move {
        let all = SimBucket::new(env.clone(), 3, Trouble::NONE);
        let bucket: Rc<dyn Bucket> = Rc::new(Way(all.machine(None)));
        make(&env, &bucket, AtRest::default()).await?;
        let writer = open(&env, bucket, TakeOver::Refuse).await?;
        let (now, way) = (env.now(), Rc::new(Way(all.machine(None))));
        let cut = [3, 16].map(|s| now.plus(Nanos::from_secs(s)));
        let standby: Rc<dyn Bucket> = Rc::new(Cut(way, env.clone(), cut));
        let world = env.clone();
        env.spawn("standby", async move {
            let _waits = open(&world, standby, TakeOver::Wait).await;
            panic!("it has taken over");
        });
        for n in 0..60_u64 {
            env.sleep(Nanos::from_millis(500)).await;
            let block = vec![Block::copy_of(&[n as u8; 4096])];
            writer.write(0, block, Durability::Fua).await.map_err(|e| e.to_string())?;
        }
        Ok::<_, String>(())
    });
    done.unwrap();
}

/// A way to the bucket on which what is put takes long, but for heartbeats.
struct Slow(Rc<dyn Bucket>, Env);

impl Bucket for Slow {
    fn ask(&self, op: ObjectOp) -> Local<'_, Result<ObjectDone, BucketError>> {
        let is_slow = op.verb() == "PUT" && !op.name().starts_with("beats/");
        Box::pin(async move {
            if is_slow {
                self.1.sleep(Nanos::from_secs(5)).await;
            }
            self.0.ask(op).await
        })
    }
}

/// A writer that has much to send when it closes is not taken for silent meanwhile.
#[test]
fn who_closes_for_long_is_not_taken_over() {
    let mut world = World::new(Image::new(4096));
    let done = block_on(&mut world, |env, _| async move {
        let all = SimBucket::new(env.clone(), 3, Trouble::NONE);
        let bucket: Rc<dyn Bucket> = Rc::new(Way(all.machine(None)));
        make(&env, &bucket, AtRest::default()).await?;
        let slow: Rc<dyn Bucket> = Rc::new(Slow(bucket, env.clone()));
        let writer = open(&env, slow, TakeOver::Refuse).await?;
        let block = vec![Block::copy_of(&[1; 4096])];
        writer.write(0, block, Durability::Cached).await.map_err(|e| e.to_string())?;
        let standby: Rc<dyn Bucket> = Rc::new(Way(all.machine(None)));
        let (world, taken) = (env.clone(), Rc::new(RefCell::new(None)));
        let into = taken.clone();
        env.spawn("standby", async move {
            let store = open(&world, standby, TakeOver::Wait).await;
            *into.borrow_mut() = Some(store);
        });
        let began = env.now();
        writer.close().await.map_err(|e| e.to_string())?;
        assert!(env.now().since(began) > Nanos::from_secs(4), "it took long");
        env.sleep(Nanos::from_secs(4)).await;
        let store = taken.borrow_mut().take().expect("one that has closed is followed at once")?;
        let read = store.read(0, vec![Block::zeroed(4096)]).await;
        assert_eq!(read.map_err(|e| e.to_string())?[0].bytes()[7], 1);
        Ok::<_, String>(())
    });
    done.unwrap();
}

/// Who could not reach the bucket for a while does not answer before it has looked (I11): then it
/// is the writer still, or knows that it is not.
#[test]
fn who_was_cut_off_looks_before_it_answers() {
    for is_taken_over in [false, true] {
        let mut world = World::new(Image::new(4096));
        let done = block_on(&mut world, move |env, _| async move {
            let all = SimBucket::new(env.clone(), 3, Trouble::NONE);
            let bucket: Rc<dyn Bucket> = Rc::new(Way(all.machine(None)));
            make(&env, &bucket, AtRest::default()).await?;
            let at = |ms| env.now().plus(Nanos::from_millis(ms));
            let (cut, back) = ([at(1000), at(6000)], at(6000));
            let way: Rc<dyn Bucket> = Rc::new(Cut(bucket, env.clone(), cut));
            let writer = open(&env, way, TakeOver::Refuse).await?;
            env.sleep(Nanos::from_millis(900)).await;
            let asked = env.now();
            writer.sure().await.map_err(|e| e.to_string())?;
            assert_eq!(env.now(), asked, "it looks all the time");
            if is_taken_over {
                let (world, other) = (env.clone(), Rc::new(Way(all.machine(None))));
                env.spawn("standby", async move {
                    let store = open(&world, other, TakeOver::Wait).await.unwrap();
                    world.sleep(Nanos::from_secs(60)).await;
                    drop(store);
                });
            }
            env.sleep(Nanos::from_millis(2500)).await;
            let sure = writer.sure().await;
            assert!(env.now() >= back, "it cannot know");
            match sure {
                Err(e) => assert!(is_taken_over && e.detail.contains("taken over"), "{e}"),
                Ok(()) => assert!(!is_taken_over, "it does not know that it was taken over"),
            }
            Ok::<_, String>(())
        });
        done.unwrap();
    }
}

/// Who stood still after any of its requests knows that it was taken over when it goes on (I11),
/// also where the object that it had put last was deleted meanwhile by who has taken over.
#[test]
fn who_stood_still_is_not_sure_of_what_is_gone() {
    let mut taken_over = 0;
    for n in 0..40 {
        let mut world = World::new(Image::new(4096));
        let done = block_on(&mut world, move |env, _| async move {
            let all = SimBucket::new(env.clone(), 3, Trouble::NONE);
            let maker: Rc<dyn Bucket> = Rc::new(Way(all.machine(None)));
            make(&env, &maker, AtRest::default()).await?;
            let machine = all.machine(Some((n, sim::Cut::StoppedAfter(Nanos::from_secs(8)))));
            let way: Rc<dyn Bucket> = Rc::new(Way(machine));
            let writer = open(&env, way, TakeOver::Refuse).await?;
            let (writes, block) = (writer.clone(), vec![Block::copy_of(&[1; 4096])]);
            env.spawn("write", async move {
                let _ = writes.write(0, block, Durability::Fua).await; // its answer comes too late
            });
            env.sleep(Nanos::from_millis(500)).await;
            let other: Rc<dyn Bucket> = Rc::new(Way(all.machine(None)));
            let other = open(&env, other, TakeOver::Insist).await?;
            if other.opened().epoch <= writer.opened().epoch {
                return Ok(false);
            }
            for n in 0..3 {
                let block = vec![Block::copy_of(&[n + 2; 4096])];
                other.write(0, block, Durability::Fua).await.map_err(|e| e.to_string())?;
                other.checkpoint().await.map_err(|e| e.to_string())?;
            }
            other.close().await.map_err(|e| e.to_string())?;
            env.sleep(Nanos::from_millis(3000)).await;
            match writer.sure().await {
                Err(e) if e.detail.contains("taken over") => Ok(true),
                other => Err(format!("request {n}: {other:?}")),
            }
        });
        taken_over += u64::from(done.unwrap_or_else(|why| panic!("{why}")));
    }
    assert!(taken_over > 20, "{taken_over}");
}

/// A bucket that loses a PUT that it is told to lose, with its answer.
struct Losing(Rc<dyn Bucket>, Cell<bool>);

impl Bucket for Losing {
    fn ask(&self, op: ObjectOp) -> Local<'_, Result<ObjectDone, BucketError>> {
        if matches!(op, ObjectOp::PutAbsent(..)) && self.1.replace(false) {
            return Box::pin(std::future::pending());
        }
        self.0.ask(op)
    }
}

/// A writer is killed when the second object behind its fence is there, and the first is not.
#[test]
fn a_gap_behind_the_last_fence_is_taken_over() {
    let mut world = World::new(Image::new(4096));
    let done = block_on(&mut world, |env, _| async move {
        let all = SimBucket::new(env.clone(), 3, Trouble::NONE);
        let machine = all.machine(None);
        let bucket: Rc<dyn Bucket> = Rc::new(Way(machine.clone()));
        make(&env, &bucket, AtRest::default()).await?;
        let losing = Rc::new(Losing(bucket, Cell::new(false)));
        let writer = open(&env, losing.clone(), TakeOver::Refuse).await?;
        losing.1.set(true);
        for n in 0..2 {
            let (writes, block) = (writer.clone(), vec![Block::copy_of(&[1; 4096])]);
            env.spawn("write", async move {
                let _ = writes.write(n * 4096, block, Durability::Fua).await; // it is killed
            });
            env.sleep(Nanos::from_millis(200)).await;
        }
        machine.kill();
        let logs = all.names().into_iter().filter(|n| n.starts_with("log/")).count();
        assert_eq!(logs, 2, "the fence, and one behind the gap");
        let other: Rc<dyn Bucket> = Rc::new(Way(all.machine(None)));
        let store = open(&env, other, TakeOver::Insist).await?;
        let read = store.read(4096, vec![Block::zeroed(4096)]).await;
        assert_eq!(read.map_err(|e| e.to_string())?[0].bytes()[0], 0, "it is void");
        store.close().await.map_err(|e| e.to_string())
    });
    done.unwrap();
}
