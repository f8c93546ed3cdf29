//! A clone is made while the origin's writer writes, cleans, and deletes the snapshot that it is
//! made of; either is killed or stands still at any of its requests, and answers are lost. A clone
//! that was made is there, shows what the snapshot showed whatever the origin does, and keeps that
//! from being deleted; of one that was not, nothing is left that anybody opens. Each planted bug
//! must be found.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bucket::{
    AtRest, CLONE_PLANTS, CloneOptions, FormatOptions, OpenOptions, Pace, Store, TakeOver,
};
use env::{Block, Disk, DiskError, Env, Nanos, Rng};
use lfs::{Change, Group, Virt};
use sim::{Cut, Image, Machine, SimBucket, Trouble, World, block_on};
use std::cell::RefCell;
use std::rc::Rc;

/// What is dead is deleted as soon as that may be.
const AT_ONCE: Pace = Pace { checkpoint_objects: 256, slack_blocks: 4096, keep: Nanos(0) };

const BLOCKS: u64 = 64;
const ORIGIN: &str = "a/";
const CLONE: &str = "c/";
const SNAPSHOT: &str = "s";

type Tags = Vec<u64>;

/// How one run goes.
#[derive(Clone, Copy, Debug)]
struct Plan {
    seed: u64,
    trouble: Trouble,
    /// What happens to the origin's writer, and to who makes the clone.
    cuts: [Option<(u64, Cut)>; 2],
    /// The clone is begun so long after the snapshot was made, and the snapshot deleted.
    begins: [Nanos; 2],
    plant: Option<&'static str>,
}

/// What was told to be done.
#[derive(Default)]
struct Told {
    /// What the snapshot holds, since it was made.
    shown: Option<Tags>,
    deleted: bool,
    cloned: bool,
}

type Known = Rc<RefCell<Told>>;

fn options(plant: Option<&'static str>, writer: &str) -> OpenOptions {
    OpenOptions {
        take_over: TakeOver::Insist,
        writer: writer.to_owned(),
        cache_blocks: 8,
        plant,
        pace: AT_ONCE,
        ..OpenOptions::default()
    }
}

fn text(e: DiskError) -> String {
    e.to_string()
}

async fn tags(disk: &dyn Disk) -> Result<Tags, String> {
    let memory = (0..BLOCKS).map(|_| Block::zeroed(4096)).collect();
    let blocks = disk.read(0, memory).await.map_err(text)?;
    let tag = |b: &Block| u64::from_le_bytes(b.bytes()[..8].try_into().unwrap());
    Ok(blocks.iter().map(tag).collect())
}

/// Writes some blocks, and frees some; what they hold then is in `now`.
async fn write(store: &Store, rng: &mut Rng, now: &mut Tags) -> Result<(), String> {
    let mut changes = Vec::new();
    for _ in 0..=rng.below(5) {
        let (v, tag) = (rng.below(BLOCKS), if rng.one_in(6) { 0 } else { rng.next_u64() | 1 });
        now[v as usize] = tag;
        let mut block = Block::zeroed(4096);
        block.bytes_mut()[..8].copy_from_slice(&tag.to_le_bytes());
        changes.push(match tag {
            0 => Change::Free(Virt(v), 1),
            _ => Change::Whole(Virt(v), block),
        });
    }
    let number = store.put(&Group { changes }).await.map_err(text)?;
    store.flush_to(number).await.map_err(text)
}

/// Writes, writes checkpoints and cleans: what nobody needs is deleted.
async fn busy(store: &Store, rng: &mut Rng, now: &mut Tags, rounds: u64) -> Result<(), String> {
    for _ in 0..rounds {
        write(store, rng, now).await?;
        if rng.one_in(3) {
            store.checkpoint().await.map_err(text)?;
        }
        if rng.one_in(4) {
            store.clean(4).await.map_err(text)?;
        }
    }
    Ok(())
}

/// The origin's writer.
async fn writer((env, way): (Env, Rc<Machine>), plan: Plan, told: Known) -> Result<(), String> {
    let mut rng = Rng::new(plan.seed * 7 + 1);
    let bucket = way.below(ORIGIN);
    let store = Store::open(env.clone(), bucket, options(plan.plant, "writer")).await?;
    let mut now = vec![0; BLOCKS as usize];
    busy(&store, &mut rng, &mut now, 20).await?;
    let shown = now.clone();
    store.snapshot(SNAPSHOT, 7).await?;
    told.borrow_mut().shown = Some(shown);
    let end = env.now();
    while env.now().since(end) < plan.begins[1] {
        busy(&store, &mut rng, &mut now, 1).await?;
    }
    if plan.begins[1] > Nanos(0) && store.delete_snapshot(SNAPSHOT).await.is_ok() {
        told.borrow_mut().deleted = true;
    }
    busy(&store, &mut rng, &mut now, 20).await
}

/// Makes the clone.
async fn cloner((env, way): (Env, Rc<Machine>), plan: Plan, told: Known) -> Result<(), String> {
    while told.borrow().shown.is_none() {
        env.sleep(Nanos::from_millis(5)).await;
    }
    env.sleep(plan.begins[0]).await;
    let how = CloneOptions {
        uuid: [9; 16],
        places: (format!("/{ORIGIN}"), format!("/{CLONE}")),
        key: None,
        plant: plan.plant,
    };
    let of = (way.below(ORIGIN), SNAPSHOT);
    bucket::clone_snapshot(&env, of, way.below(CLONE), how).await?;
    told.borrow_mut().cloned = true;
    Ok(())
}

/// Everything has ended, and nothing goes wrong any more: is what was told true?
async fn judge((env, bucket): (&Env, &SimBucket), plan: Plan, told: &Told) -> Result<(), String> {
    let Some(shown) = told.shown.clone() else { return Ok(()) };
    if told.deleted && told.cloned {
        return Err("broken: a snapshot was deleted that a clone needs (C3)".into());
    }
    let way = SimBucket::of(env.clone(), bucket.objects(), (1, CALM)).machine(None);
    let mut rng = Rng::new(plan.seed);
    // The origin goes on without the clone's knowledge.
    let origin = Store::open(env.clone(), way.below(ORIGIN), options(plan.plant, "last")).await?;
    let mut now = tags(&origin).await?;
    for turn in 0..2 {
        busy(&origin, &mut rng, &mut now, 15).await?;
        if let Some(wrong) = origin.verify().await.map_err(|e| e.to_string())?.first() {
            return Err(format!("broken: {wrong}"));
        }
        let opened = Store::open(env.clone(), way.below(CLONE), options(plan.plant, "clone")).await;
        let clone = match opened {
            Ok(clone) => clone,
            Err(why) if told.cloned => return Err(format!("broken: a clone is gone: {why}")),
            Err(why) if why.contains("damaged") => return Err(format!("broken: {why}")),
            // It was never made to its end, and its origin is free.
            Err(_) => {
                let left = origin.snapshots().iter().any(|s| s.name == SNAPSHOT);
                return if left { origin.delete_snapshot(SNAPSHOT).await } else { Ok(()) };
            }
        };
        if turn == 0 {
            its_own_way(&clone, (&mut rng, shown.clone())).await?;
        }
        if origin.snapshots().iter().any(|s| s.name == SNAPSHOT)
            && origin.delete_snapshot(SNAPSHOT).await.is_ok()
        {
            return Err("broken: a snapshot can be deleted that a clone needs (C3)".into());
        }
    }
    Ok(())
}

/// A clone shows what it began as, and then what is written to it; its own snapshots too.
async fn its_own_way(clone: &Store, (rng, shown): (&mut Rng, Tags)) -> Result<(), String> {
    let mut now = shown.clone();
    let check = |found: Tags, now: &Tags, what: &str| match found == *now {
        true => Ok(()),
        false => Err(format!("broken: {what} does not show what it should (C1)")),
    };
    check(tags(clone).await?, &now, "a clone")?;
    clone.snapshot("own", 8).await?;
    busy(clone, rng, &mut now, 12).await?;
    check(tags(clone).await?, &now, "a clone that is written")?;
    let own = clone.snapshot_disk("own")?;
    check(tags(&own).await?, &shown, "a clone's snapshot")?;
    match clone.verify().await.map_err(|e| e.to_string())?.first() {
        Some(wrong) => Err(format!("broken: {wrong}")),
        None => Ok(()),
    }
}

/// One run. Errors: what was broken. Returns the requests of the writer and of who clones, and
/// whether the clone was made.
fn run(plan: Plan) -> Result<([u64; 2], bool), String> {
    let mut world = World::new(Image::new(4096));
    block_on(&mut world, move |env, _| async move {
        let maker = SimBucket::new(env.clone(), plan.seed, CALM);
        let format = FormatOptions {
            uuid: [7; 16],
            size_bytes: BLOCKS * 4096,
            force: false,
            at_rest: AtRest::default(),
        };
        let way = maker.machine(None).below(ORIGIN);
        bucket::format(env.clone(), way, &format).await?.finish().await?;
        let bucket = SimBucket::of(env.clone(), maker.objects(), (plan.seed, plan.trouble));
        let told = Known::default();
        let ways = plan.cuts.map(|cut| bucket.machine(cut));
        let (to, known) = ((env.clone(), ways[0].clone()), told.clone());
        env.spawn("writer", async move {
            let _ = writer(to, plan, known).await; // it may fail, and says so to nobody
        });
        let (to, known) = ((env.clone(), ways[1].clone()), told.clone());
        env.spawn("cloner", async move {
            let _ = cloner(to, plan, known).await;
        });
        // All that is late has come, and whoever stood still goes on.
        env.sleep(Nanos::from_secs(200)).await;
        let told = std::mem::take(&mut *told.borrow_mut());
        judge((&env, &bucket), plan, &told).await?;
        Ok((ways.map(|w| w.requests()), told.cloned))
    })
}

const CALM: Trouble = Trouble::NONE;
const ROUGH: Trouble = Trouble::ROUGH;

fn calm(seed: u64) -> Plan {
    let begins = [Nanos::from_millis(50), Nanos(0)];
    Plan { seed, trouble: CALM, cuts: [None, None], begins, plant: None }
}

fn random_plan(seed: u64, plant: Option<&'static str>) -> Plan {
    let mut rng = Rng::new(seed ^ 0xc10e);
    let trouble = if rng.one_in(3) { ROUGH } else { CALM };
    let mut cut = |requests: u64| {
        let long = Nanos::from_millis(rng.below(1500));
        let cut = match rng.below(6) {
            0 => Cut::KilledBefore,
            1 => Cut::KilledAfter,
            2 => Cut::KilledLate,
            3 => Cut::StoppedBefore(long),
            4 => Cut::StoppedAfter(long),
            _ => return None,
        };
        Some((rng.below(requests), cut))
    };
    let cuts = [cut(150), cut(30)];
    let begins = [rng.below(800), 1 + rng.below(1500)].map(Nanos::from_millis);
    Plan { seed, trouble, cuts, begins, plant }
}

/// C4: killed anywhere, a clone that has no word gets one, or is never opened.
#[test]
fn who_makes_a_clone_is_cut_at_each_of_its_requests() {
    let ([_, requests], cloned) = run(calm(3)).unwrap();
    assert!(cloned && requests > 8, "{requests}");
    let long = Nanos::from_secs(1);
    let cuts = [Cut::KilledBefore, Cut::KilledAfter, Cut::KilledLate, Cut::StoppedBefore(long)];
    for (n, cut) in (0..requests).flat_map(|n| cuts.map(|cut| (n, cut))) {
        for delete in [0, 100, 300] {
            let begins = [Nanos::from_millis(50), Nanos::from_millis(delete)];
            let plan = Plan { cuts: [None, Some((n, cut))], begins, ..calm(3) };
            run(plan).unwrap_or_else(|why| panic!("{plan:?}: {why}"));
        }
    }
}

/// C2: also between the look for pins, the tombstone, and the next look.
#[test]
fn who_deletes_a_snapshot_stands_still_while_it_is_cloned() {
    for seed in 0..4 {
        let ([requests, _], _) = run(calm(seed)).unwrap();
        for n in 20..requests {
            let begins = [Nanos::from_millis(10), Nanos::from_millis(1)];
            let stop = Cut::StoppedBefore(Nanos::from_millis(100 + 97 * seed));
            let plan = Plan { cuts: [Some((n, stop)), None], begins, ..calm(seed) };
            run(plan).unwrap_or_else(|why| panic!("{plan:?}: {why}"));
        }
    }
}

/// Two who delete one snapshot: one does, the other is told, and the volume can be opened again.
#[test]
fn a_snapshot_that_two_delete_is_deleted_once() {
    let mut world = World::new(Image::new(4096));
    let done: Result<(), String> = block_on(&mut world, move |env, _| async move {
        let maker = SimBucket::new(env.clone(), 5, CALM);
        let way = maker.machine(None).below(ORIGIN);
        let (uuid, size_bytes, at_rest) = ([7; 16], BLOCKS * 4096, AtRest::default());
        let format = FormatOptions { uuid, size_bytes, force: false, at_rest };
        bucket::format(env.clone(), way.clone(), &format).await?.finish().await?;
        let store = Store::open(env.clone(), way.clone(), options(None, "writer")).await?;
        let (mut rng, mut now) = (Rng::new(5), vec![0; BLOCKS as usize]);
        busy(&store, &mut rng, &mut now, 5).await?;
        store.snapshot(SNAPSHOT, 7).await?;
        busy(&store, &mut rng, &mut now, 5).await?;
        let delete = || -> env::Local<'_, _> { Box::pin(store.delete_snapshot(SNAPSHOT)) };
        let both = env::all(vec![delete(), delete()]).await;
        assert_eq!(both.iter().filter(|d| d.is_ok()).count(), 1, "{both:?}");
        drop(store);
        let again = Store::open(env, way, options(None, "next")).await?;
        assert!(again.snapshots().is_empty());
        assert_eq!(tags(&again).await?, now);
        Ok(())
    });
    done.unwrap();
}

/// How many runs: more with CAIRN_BUCKET_RUNS, for long explorations.
fn runs(usual: u64) -> u64 {
    let asked = std::env::var("CAIRN_BUCKET_RUNS").ok().and_then(|n| n.parse().ok());
    asked.unwrap_or(usual)
}

/// C5: what comes late, or twice, changes nothing.
#[test]
fn clones_are_made_while_their_snapshot_goes() {
    let mut made = 0;
    for seed in 0..runs(200) {
        let plan = random_plan(seed, None);
        let done = run(plan).unwrap_or_else(|why| panic!("{plan:?}: {why}"));
        made += u64::from(done.1);
    }
    assert!(made > runs(200) / 20, "some are made: {made}");
}

#[test]
fn each_planted_bug_is_found() {
    for plant in CLONE_PLANTS {
        let found = (0..3000).any(|seed| {
            // Assertions are not what finds it.
            let run = std::panic::catch_unwind(|| run(random_plan(seed, Some(plant))));
            matches!(run, Ok(Err(_)))
        });
        assert!(found, "{plant}");
    }
}
