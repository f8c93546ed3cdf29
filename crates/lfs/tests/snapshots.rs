//! Snapshots against twins of their moments: whatever is written, freed, moved and plugged
//! afterwards, and wherever the power is cut, also while they are made, deleted and cleaned around,
//! each shows what was there when it was made. Each planted bug must be found.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "a bug that panics has a thread of its own")]

use crate::common::{Op, PLUGGING, Twin, apply, is_promise, made, opened, perform, tags_of};
use env::{Block, Disk, Env, Nanos, Rng};
use lfs::{BLOCK_BYTES, OpenOptions, Store};
use sim::{CrashImages, Event, Image, Trace, World, block_on};
use std::collections::BTreeSet;
use std::rc::Rc;

#[derive(Clone, Copy, Debug)]
enum Step {
    Do(Op),
    /// Make the snapshot of this number; delete it.
    Make(u64),
    End(u64),
}

/// The volume, and its snapshots by their names.
#[derive(Clone, PartialEq, Eq, Debug)]
struct State {
    live: Twin,
    snapshots: Vec<(String, Twin)>,
}

fn name(n: u64) -> String {
    format!("s{n}")
}

fn stepped(state: &State, step: Step) -> State {
    let mut next = state.clone();
    match step {
        Step::Do(op) => apply(&mut next.live, &op),
        Step::Make(n) => next.snapshots.push((name(n), next.live.clone())),
        Step::End(n) => next.snapshots.retain(|s| s.0 != name(n)),
    }
    next
}

async fn carried_out(store: &Store, step: Step) -> Result<(), String> {
    match step {
        Step::Do(op) => perform(store, op).await,
        Step::Make(n) => store.snapshot(&name(n), n).await,
        Step::End(n) => store.delete_snapshot(&name(n)).await,
    }
}

async fn seen(disk: &dyn Disk, blocks: u64) -> Result<Twin, String> {
    let mut all = Twin::new();
    for v in (0..blocks).step_by(32) {
        let n = 32.min(blocks - v);
        let memory = (0..n).map(|_| Block::zeroed(BLOCK_BYTES)).collect();
        let read = disk.read(v * BLOCK_BYTES as u64, memory).await.map_err(|e| e.to_string())?;
        for block in &read {
            all.push(tags_of(block.bytes())?);
        }
    }
    Ok(all)
}

async fn state_of(store: &Store, blocks: u64) -> Result<State, String> {
    let live = seen(store, blocks).await?;
    let mut snapshots = Vec::new();
    for s in store.snapshots() {
        let disk = store.snapshot_disk(&s.name)?;
        snapshots.push((s.name, seen(&disk, blocks).await?));
    }
    Ok(State { live, snapshots })
}

async fn whole(store: &Store) -> Result<(), String> {
    let wrong = store.verify(true).await.map_err(|e| e.to_string())?.wrong;
    wrong.into_iter().next().map_or(Ok(()), Err)
}

/// Writes in an eighth of the volume, so that a few snapshots fit, snapshots that come and go,
/// checkpoints and cleaning.
fn script(seed: u64, blocks: u64, len: usize) -> Vec<Step> {
    let mut rng = Rng::new(seed);
    let (span, mut tag, mut there) = (blocks / 8, 0, Vec::new());
    let mut one = || {
        tag += 1;
        let n = rng.below(3) + 1;
        let v = rng.below(span - n - 2);
        match rng.below(40) {
            0..=2 if there.len() < 3 => {
                there.push(tag);
                Step::Make(tag)
            }
            3..=4 if !there.is_empty() => {
                let i = rng.below(there.len() as u64) as usize;
                Step::End(there.remove(i))
            }
            5..=7 => Step::Do(Op::Clean),
            8..=9 => Step::Do(Op::Checkpoint),
            10..=11 => Step::Do(Op::Flush),
            12..=13 => Step::Do(Op::Discard { v, n }),
            14..=18 => Step::Do(Op::Patch { v, tag }),
            19..=22 => Step::Do(Op::Group { v, n, tag, known: rng.one_in(2), durable: true }),
            _ => Step::Do(Op::Write { v, n, tag, fua: rng.one_in(4) }),
        }
    };
    (0..len).map(|_| one()).collect()
}

fn model(seed: u64, plant: Option<&'static str>) -> u64 {
    let (mut image, blocks) = made();
    let mut state = State { live: vec![(0, 0); blocks as usize], snapshots: Vec::new() };
    let plugged = Rc::new(std::cell::Cell::new(0));
    for steps in script(seed, blocks, 600).chunks(200) {
        let (before, steps) = (state.clone(), steps.to_vec());
        state = steps.iter().fold(state, |s, step| stepped(&s, *step));
        let (want, plugged) = (state.clone(), plugged.clone());
        let mut world = World::new(image);
        block_on(&mut world, move |env, disk| async move {
            let store = opened(env, disk, plant).await.unwrap();
            assert_eq!(state_of(&store, blocks).await.unwrap(), before, "seed {seed}: opened");
            for step in steps {
                carried_out(&store, step).await.unwrap_or_else(|e| panic!("{step:?}: {e}"));
            }
            assert_eq!(state_of(&store, blocks).await.unwrap(), want, "S1: seed {seed}");
            store.reclaimed().await;
            store.checkpoint().await.unwrap();
            assert_eq!(whole(&store).await, Ok(()), "S2: seed {seed}");
            plugged.set(plugged.get() + store.stats().plugged);
        });
        image = world.disk;
    }
    let mut world = World::new(image);
    block_on(&mut world, move |env, disk| async move {
        let store = opened(env, disk, plant).await.unwrap();
        for s in store.snapshots() {
            store.delete_snapshot(&s.name).await.unwrap();
        }
        store.reclaimed().await;
        store.checkpoint().await.unwrap();
        let report = store.verify(true).await.unwrap();
        assert_eq!((report.wrong, report.snapshots), (vec![], 0), "S5: seed {seed}");
        assert_eq!(seen(&store, blocks).await.unwrap(), state.live);
    });
    plugged.get()
}

#[test]
fn each_shows_what_was_there() {
    for seed in 0..6 {
        model(seed, None);
    }
}

#[test]
fn each_shows_what_was_there_where_holes_are_plugged() {
    let plugged: u64 = (0..6).map(|seed| model(seed, PLUGGING)).sum();
    assert!(plugged > 0, "nothing was plugged");
}

struct Run {
    base: Image,
    trace: Trace,
    blocks: u64,
    states: Vec<State>,
}

fn record(steps: &[Step], plant: Option<&'static str>) -> Run {
    let (base, blocks) = made();
    let first = State { live: vec![(0, 0); blocks as usize], snapshots: Vec::new() };
    let mut states = vec![first];
    for step in steps {
        states.push(stepped(states.last().unwrap(), *step));
    }
    let mut world = World::new(base.clone());
    let (pen, steps) = (world.pen(), steps.to_vec());
    block_on(&mut world, move |env, disk| async move {
        let store = opened(env, disk, plant).await.unwrap();
        for (i, step) in (1..).zip(steps) {
            pen.mark(2 * i);
            carried_out(&store, step).await.unwrap_or_else(|e| panic!("{step:?}: {e}"));
            if !matches!(step, Step::Do(op) if !is_promise(&op)) {
                pen.mark(2 * i + 1);
            }
        }
        store.flush().await.unwrap();
    });
    Run { base, trace: world.trace, blocks, states }
}

/// What is found, again when what was deleted is free, and again when it is opened anew.
fn recovered(
    image: &Image,
    blocks: u64,
    plant: Option<&'static str>,
) -> (Result<State, String>, Trace) {
    let mut world = World::new(image.clone());
    let found = block_on(&mut world, move |env, disk| async move {
        let store = opened(env, disk, plant).await?;
        let found = state_of(&store, blocks).await?;
        whole(&store).await?;
        store.reclaimed().await;
        store.clean(4).await.map_err(|e| e.to_string())?;
        whole(&store).await?;
        if state_of(&store, blocks).await? != found {
            return Err("another after cleaning".into());
        }
        Ok(found)
    });
    let trace = std::mem::take(&mut world.trace);
    let again = block_on(&mut World::new(world.disk), move |env, disk| async move {
        let store = opened(env, disk, plant).await?;
        state_of(&store, blocks).await
    });
    let same = found.and_then(|found| match again? {
        again if again == found => Ok(found),
        _ => Err("another when it is opened again".into()),
    });
    (same, trace)
}

fn judge(
    r: &Run,
    image: &Image,
    (from, to): (usize, usize),
    plant: Option<&'static str>,
) -> Option<String> {
    let (found, trace) = recovered(image, r.blocks, plant);
    let check = |found: Result<State, String>| match found {
        Err(e) => Some(e),
        Ok(s) if r.states[from..=to].contains(&s) => None,
        Ok(s) => {
            let names: Vec<&String> = s.snapshots.iter().map(|s| &s.0).collect();
            Some(format!("not as after {from} to {to} steps, with snapshots {names:?}"))
        }
    };
    if let Some(wrong) = check(found) {
        return Some(wrong);
    }
    if !image.digest().is_multiple_of(6) {
        return None;
    }
    // A second cut, in recovery, reclaiming and cleaning.
    let mut cuts = CrashImages::new(&trace, image);
    let mut n = 0;
    while cuts.step().is_some() {
        n += 1;
        if u64::is_multiple_of(n, 7)
            && let Some(wrong) = check(recovered(&cuts.image(n), r.blocks, plant).0)
        {
            return Some(format!("cut again after {n}: {wrong}"));
        }
    }
    None
}

fn explore(
    r: &Run,
    (every, most): (u64, u64),
    plant: Option<&'static str>,
) -> (u64, Option<String>) {
    let mut cuts = CrashImages::new(&r.trace, &r.base);
    let (mut begun, mut promised) = (0, 0);
    let (mut n, mut states, mut seen) = (0, 0, BTreeSet::new());
    loop {
        let event = cuts.step();
        if let Some(Event::Mark(m)) = event {
            let step = (m / 2) as usize;
            if m % 2 == 1 { promised = step } else { begun = step }
        }
        n += 1;
        let writes = !matches!(event, Some(Event::Mark(_)));
        if writes && u64::is_multiple_of(n, every) {
            for variant in 0..cuts.variants(2) {
                let image = cuts.image(variant);
                if !seen.insert((image.digest(), promised, begun)) {
                    continue;
                }
                states += 1;
                if let Some(wrong) = judge(r, &image, (promised, begun), plant) {
                    return (states, Some(format!("event {n}, variant {variant}: {wrong}")));
                }
            }
        }
        if event.is_none() || states >= most {
            return (states, None);
        }
    }
}

/// How many states of each run: more with CAIRN_SNAPSHOT_STATES, for long explorations.
fn states(usual: u64) -> u64 {
    let asked = std::env::var("CAIRN_SNAPSHOT_STATES").ok().and_then(|n| n.parse().ok());
    asked.unwrap_or(usual)
}

#[test]
fn every_cut_leaves_the_snapshots() {
    let (_, blocks) = made();
    let mut all = 0;
    for (seed, plant) in [(1, None), (2, None), (3, PLUGGING)] {
        let r = record(&script(seed, blocks, 180), plant);
        let (states, wrong) = explore(&r, (13, states(60)), plant);
        assert_eq!(wrong, None, "S1, S3, S5, S6: seed {seed}");
        all += states;
    }
    assert!(all > 100, "{all} states");
}

fn finds(plant: &'static str) -> bool {
    let wrong = move || {
        let (_, blocks) = made();
        (0..6).any(|seed| {
            let r = record(&script(seed, blocks, 180), Some(plant));
            explore(&r, (17, 60), Some(plant)).1.is_some()
        })
    };
    // A bug that runs into an assertion is found too; its thread is of no more use.
    std::thread::spawn(wrong).join().unwrap_or(true)
}

#[test]
fn planted_bugs_are_found() {
    let missed: Vec<_> = lfs::SNAPSHOT_PLANTS.iter().filter(|p| !finds(p)).collect();
    assert_eq!(missed, Vec::<&&str>::new());
}

/// A full store says so; deleting the snapshot gives its room back.
#[test]
fn a_store_that_snapshots_have_filled() {
    let (image, blocks) = made();
    block_on(&mut World::new(image), move |env, disk| async move {
        let store = opened(env, disk, None).await.unwrap();
        let write = |v, tag| Op::Write { v, n: 1, tag, fua: false };
        for v in 0..blocks {
            perform(&store, write(v, 1)).await.unwrap();
        }
        store.snapshot("before", 0).await.unwrap();
        let (mut written, mut refused) = (0, None);
        for v in 0..blocks {
            match perform(&store, write(v, 2)).await {
                Ok(()) => written += 1,
                Err(e) => {
                    refused = Some(e);
                    break;
                }
            }
        }
        assert!(
            refused.as_ref().is_some_and(|e| e.contains("cairn snapshot delete")),
            "{refused:?}"
        );
        assert!(written > blocks / 16, "{written} of {blocks}");
        let before = store.snapshot_disk("before").unwrap();
        let kept = seen(&before, blocks).await.unwrap();
        assert!((0..blocks).all(|v| kept[v as usize] == (1, 1)));
        store.delete_snapshot("before").await.unwrap();
        store.reclaimed().await;
        assert!(before.read(0, vec![Block::zeroed(BLOCK_BYTES)]).await.is_err(), "it is gone");
        for v in 0..blocks {
            perform(&store, write(v, 3)).await.unwrap();
        }
        assert_eq!(whole(&store).await, Ok(()));
    });
}

#[test]
fn names_are_looked_at_and_old_programs_kept_off() {
    let (image, _) = made();
    let mut world = World::new(image);
    block_on(&mut world, |env, disk| async move {
        let store = opened(env.clone(), disk.clone(), None).await.unwrap();
        for wrong in ["", "a/b", "p1", "with space", &"x".repeat(65)] {
            assert!(store.snapshot(wrong, 0).await.is_err(), "{wrong:?}");
        }
        store.snapshot("a", 7).await.unwrap();
        assert!(store.snapshot("a", 8).await.is_err(), "there is one already");
        assert!(store.delete_snapshot("b").await.is_err());
        assert_eq!(store.snapshots()[0].made, 7);
        let options = OpenOptions { read_only: true, ..OpenOptions::default() };
        let other = Store::open(env, disk, options).await.unwrap();
        assert!(other.snapshot("c", 0).await.is_err() && other.delete_snapshot("a").await.is_err());
    });
    for slot in [2, 3] {
        let mut magic = [0; 4];
        world.disk.read(slot * 4096, &mut magic);
        assert_eq!(&magic, b"CLCS");
    }
}

/// A store in which a deleted snapshot has had many blocks that lie apart.
async fn with_a_deleted_one(env: Env, disk: Rc<dyn Disk>, blocks: u64) -> Store {
    let store = opened(env, disk, None).await.unwrap();
    let write = |v, tag| perform(&store, Op::Write { v, n: 1, tag, fua: false });
    for tag in 1..3 {
        for v in (0..blocks / 2).step_by(2) {
            write(v, tag).await.unwrap();
        }
        if tag == 1 {
            store.snapshot("old", 1).await.unwrap();
        }
    }
    store.checkpoint().await.unwrap();
    store.delete_snapshot("old").await.unwrap();
    store
}

#[test]
fn a_closed_store_frees_nothing_any_more_and_the_next_goes_on() {
    let (image, blocks) = made();
    block_on(&mut World::new(image), move |env, disk| async move {
        let store = with_a_deleted_one(env.clone(), disk.clone(), blocks).await;
        store.close().await.unwrap();
        let closed = store.stats();
        env.sleep(Nanos::from_secs(5)).await;
        assert_eq!(store.stats(), closed, "it was closed");
        let next = opened(env, disk, None).await.unwrap();
        assert_eq!(next.opened().rolled, 0, "a closed store has no log to follow");
        next.reclaimed().await;
        assert!(next.stats().reclaimed > 0, "S5: the next goes on");
        next.checkpoint().await.unwrap();
        assert_eq!(whole(&next).await, Ok(()));
        assert!(closed.reclaimed < blocks / 4, "closing does not wait for it: {closed:?}");
    });
}

#[test]
fn while_somebody_reads_the_disk_nothing_is_freed() {
    let (image, blocks) = made();
    block_on(&mut World::new(image), move |env, disk| async move {
        let store = with_a_deleted_one(env.clone(), disk, blocks).await;
        let secs = Nanos::from_secs;
        store.be_still(env.now().plus(secs(10))).await;
        env.sleep(secs(2)).await;
        let still = store.stats();
        env.sleep(secs(7)).await;
        assert_eq!(store.stats(), still);
        store.be_still(env.now()).await;
        env.sleep(Nanos::from_millis(500)).await;
        store.reclaimed().await;
        assert!(store.stats().reclaimed > still.reclaimed);
        assert_eq!(whole(&store).await, Ok(()));
    });
}
