//! One machine writes a volume, and another asks it for snapshots: answers are lost, requests fail
//! and come late, either stands still or is killed. What was told to be done is done; what a writer
//! was asked is done once, and by no other writer.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bucket::{AtRest, FormatOptions, OpenOptions, Pace, Store, TakeOver, Wish};
use env::Rng;
use env::{Block, Bucket, BucketError, BucketErrorKind, Env, Local, Nanos, ObjectDone, ObjectOp};
use lfs::{Change, Group, Virt};
use sim::{Cut, Image, Machine, SimBucket, Trouble, Way, World, block_on};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// What is dead is deleted as soon as that may be.
const AT_ONCE: Pace = Pace { checkpoint_objects: 256, slack_blocks: 4096, keep: Nanos(0) };

const CALM: Trouble = Trouble::NONE;
const ROUGH: Trouble = Trouble::ROUGH;

/// What writers did, and what was told to who has asked.
#[derive(Default)]
struct Seen {
    /// How often a snapshot of this name was made, and deleted.
    made: BTreeMap<String, u32>,
    deleted: BTreeMap<String, u32>,
    told: Vec<Wish>,
    silent: u32,
}

type Shared = Rc<RefCell<Seen>>;

fn options(take_over: TakeOver) -> OpenOptions {
    OpenOptions { take_over, writer: "writer".into(), pace: AT_ONCE, ..OpenOptions::default() }
}

/// Writes, and does what it is asked, as a volume would.
async fn writer((env, way): (Env, Rc<Machine>), seen: Shared) -> Result<(), String> {
    let bucket: Rc<dyn Bucket> = Rc::new(Way(way));
    let store = Store::open(env.clone(), bucket, options(TakeOver::Insist)).await?;
    for n in 0.. {
        let Some(every) = store.looks_every() else { return Err("it has stopped".into()) };
        if let Some(asked) = store.asked().await {
            let done = match &asked.wish {
                Wish::Create(name) => store.snapshot(name, 7).await,
                Wish::Delete(name) => store.delete_snapshot(name).await,
            };
            if done.is_ok() {
                let mut seen = seen.borrow_mut();
                let (count, name) = match &asked.wish {
                    Wish::Create(name) => (&mut seen.made, name),
                    Wish::Delete(name) => (&mut seen.deleted, name),
                };
                *count.entry(name.clone()).or_default() += 1;
            }
            store.answer(&asked, done).await;
        }
        let changes = vec![Change::Whole(Virt(n % 64), Block::zeroed(4096))];
        let put = store.put(&Group { changes }).await.map_err(|e| e.to_string())?;
        store.flush_to(put).await.map_err(|e| e.to_string())?;
        env.sleep(every).await;
    }
    Ok(())
}

/// Asks for one after the other.
async fn asker((env, way): (Env, Rc<Machine>), (me, seen): (usize, Shared)) {
    for n in 0..4 {
        let name = format!("m{me}-{n}");
        for wish in [Wish::Create(name.clone()), Wish::Delete(name.clone())] {
            if n % 2 == 0 && wish == Wish::Delete(name.clone()) {
                continue;
            }
            let bucket: Rc<dyn Bucket> = Rc::new(Way(way.clone()));
            let options = options(TakeOver::Refuse);
            match bucket::ask_writer(&env, bucket, &options, wish.clone()).await {
                Ok(Some(())) => seen.borrow_mut().told.push(wish),
                Ok(None) => seen.borrow_mut().silent += 1,
                Err(_) => (), // nobody knows
            }
        }
    }
}

fn run(seed: u64, trouble: Trouble, cuts: [Option<(u64, Cut)>; 2]) -> Result<Seen, String> {
    let mut world = World::new(Image::new(4096));
    block_on(&mut world, move |env, _| async move {
        let maker = SimBucket::new(env.clone(), seed, CALM);
        let way: Rc<dyn Bucket> = Rc::new(Way(maker.machine(None)));
        let (size_bytes, at_rest) = (64 * 4096, AtRest::default());
        let format = FormatOptions { uuid: [7; 16], size_bytes, force: false, at_rest };
        bucket::format(env.clone(), way, &format).await?.finish().await?;
        let bucket = SimBucket::of(env.clone(), maker.objects(), (seed, trouble));
        let seen = Shared::default();
        let first = ((env.clone(), bucket.machine(cuts[0])), seen.clone());
        env.spawn("writer", async move { drop(writer(first.0, first.1).await) });
        env.sleep(Nanos::from_secs(1)).await;
        for (me, cut) in [cuts[1], None].into_iter().enumerate() {
            let to = ((env.clone(), bucket.machine(cut)), seen.clone());
            env.spawn("asker", async move { asker(to.0, (me, to.1)).await });
        }
        // Another takes over in the middle, if the first was cut.
        env.sleep(Nanos::from_secs(3)).await;
        if cuts[0].is_some() {
            let second = ((env.clone(), bucket.machine(None)), seen.clone());
            env.spawn("writer", async move { drop(writer(second.0, second.1).await) });
        }
        env.sleep(Nanos::from_secs(900)).await;
        let calm = SimBucket::of(env.clone(), bucket.objects(), (1, CALM)).machine(None);
        let read_only = OpenOptions { read_only: true, pace: AT_ONCE, ..OpenOptions::default() };
        let last = Store::open(env.clone(), Rc::new(Way(calm)), read_only).await?;
        let there: Vec<String> = last.snapshots().into_iter().map(|s| s.name).collect();
        let seen = std::mem::take(&mut *seen.borrow_mut());
        judge(&seen, &there)?;
        Ok(seen)
    })
}

fn judge(seen: &Seen, there: &[String]) -> Result<(), String> {
    let counts = seen.made.iter().chain(&seen.deleted);
    if let Some((name, n)) = counts.into_iter().find(|(_, n)| **n > 1) {
        return Err(format!("{name} was done {n} times (Q2)"));
    }
    for wish in &seen.told {
        let gone = |name: &String| seen.told.contains(&Wish::Delete(name.clone()));
        match wish {
            // Whether it is deleted nobody knows where that was not told.
            Wish::Create(name) if name.ends_with(['0', '2']) && !there.contains(name) => {
                return Err(format!("{name} was told to be made, and is not there"));
            }
            Wish::Delete(name) if there.contains(name) => {
                return Err(format!("{name} was told to be deleted, and is there"));
            }
            Wish::Create(name) if gone(name) && there.contains(name) => {
                return Err(format!("{name} was made again (Q2)"));
            }
            _ => (),
        }
    }
    Ok(())
}

#[test]
fn a_writer_does_what_others_ask() {
    let seen = run(1, CALM, [None, None]).unwrap();
    assert_eq!(seen.told.len(), 12, "all is told to be done: {:?}", seen.told);
    assert_eq!(seen.silent, 0);
}

/// Q1, Q3: requests come late and get lost, and another writer takes over.
#[test]
fn what_was_told_to_be_done_is_done_once() {
    let mut told = 0;
    for seed in 0..120 {
        let mut rng = Rng::new(seed ^ 0xa5c);
        let long = Nanos::from_millis(rng.below(20_000));
        let mut cut = |most: u64| {
            let cut = match rng.below(6) {
                0 => Cut::KilledBefore,
                1 => Cut::KilledAfter,
                2 => Cut::KilledLate,
                3 => Cut::StoppedBefore(long),
                4 => Cut::StoppedAfter(long),
                _ => return None,
            };
            Some((10 + rng.below(most), cut))
        };
        let cuts = [cut(120), cut(60)];
        let trouble = if seed % 3 == 0 { CALM } else { ROUGH };
        let seen = run(seed, trouble, cuts);
        told += seen.unwrap_or_else(|why| panic!("seed {seed}, {cuts:?}: {why}")).told.len();
    }
    assert!(told > 300, "most are told: {told}");
}

/// A bucket to which so many answers cannot be put.
struct Mute(Rc<dyn Bucket>, Cell<u32>);

impl Bucket for Mute {
    fn ask(&self, op: ObjectOp) -> Local<'_, Result<ObjectDone, BucketError>> {
        let is_answer = matches!(&op, ObjectOp::Put(name, _) if name.starts_with("answers/"));
        if is_answer && self.1.get() > 0 {
            self.1.set(self.1.get() - 1);
            let (kind, during) = (BucketErrorKind::Unknown, op.verb());
            let error = BucketError { kind, during, name: op.name().into(), detail: String::new() };
            return Box::pin(async { Err(error) });
        }
        self.0.ask(op)
    }
}

/// Q3: what was done and could not be told is told later, and not done again.
#[test]
fn an_answer_that_cannot_be_put_is_put_later() {
    let mut world = World::new(Image::new(4096));
    let done = block_on(&mut world, move |env, _| async move {
        let bucket = SimBucket::new(env.clone(), 1, CALM);
        let way = || -> Rc<dyn Bucket> { Rc::new(Way(bucket.machine(None))) };
        let (size_bytes, at_rest) = (64 * 4096, AtRest::default());
        let format = FormatOptions { uuid: [7; 16], size_bytes, force: false, at_rest };
        bucket::format(env.clone(), way(), &format).await?.finish().await?;
        let mute: Rc<dyn Bucket> = Rc::new(Mute(way(), Cell::new(5)));
        let store = Store::open(env.clone(), mute, options(TakeOver::Insist)).await?;
        let (times, seen) = (Rc::new(Cell::new(0)), env.clone());
        let made = times.clone();
        env.spawn("writer", async move {
            while let Some(every) = store.looks_every() {
                if let Some(asked) = store.asked().await {
                    made.set(made.get() + 1);
                    store.answer(&asked, store.snapshot("once", 7).await).await;
                }
                seen.sleep(every).await;
            }
        });
        let wish = Wish::Create("once".into());
        let told = bucket::ask_writer(&env, way(), &options(TakeOver::Refuse), wish).await;
        Ok::<_, String>((told, times.get()))
    });
    assert_eq!(done, Ok((Ok(Some(())), 1)));
}
