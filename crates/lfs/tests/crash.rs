//! The power is cut after every event of a run, and again in the middle of recovery: what is found
//! is a prefix of the writes, with everything that was promised. Each planted bug must be found.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "a bug that panics has a thread of its own")]

use crate::common::{
    APART, Op, PLUGGING, REMEMBERING, Twin, apply, contents, is_promise, made, made_for, opened,
    perform, plugging, script,
};
use env::{Disk, Nanos, Rng};
use lfs::{Change, FormatOptions, Group, OpenOptions, Store, Virt};
use sim::timing::Constant;
use sim::{CrashImages, Event, Image, Trace, World, block_on};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

struct Run {
    base: Image,
    trace: Trace,
    blocks: u64,
    /// After so many operations; 0: before the first.
    states: Vec<Twin>,
}

fn record(ops: &[Op], plant: Option<&'static str>) -> Run {
    let (base, blocks) = made_for(plant);
    let mut states = vec![vec![(0, 0); blocks as usize]];
    for op in ops {
        let mut next = states.last().unwrap().clone();
        apply(&mut next, op);
        states.push(next);
    }
    let mut world = World::new(base.clone());
    let (pen, ops) = (world.pen(), ops.to_vec());
    block_on(&mut world, move |env, disk| async move {
        let store = opened(env, disk, plant).await.unwrap();
        for (i, op) in (1..).zip(ops) {
            pen.mark(2 * i);
            perform(&store, op).await.unwrap();
            if is_promise(&op) {
                pen.mark(2 * i + 1);
            }
        }
        store.flush().await.unwrap();
    });
    Run { base, trace: world.trace, blocks, states }
}

/// What was found on an image, and the trace of finding it: recovery, and what follows.
type Found = (Result<Twin, String>, Trace);

/// Recovers, compares what is kept with what is, writes on, and looks whether that is all there
/// when the store is opened again.
fn recover(image: &Image, blocks: u64, plant: Option<&'static str>) -> Found {
    let mut world = World::new(image.clone());
    let found = block_on(&mut world, move |env, disk| async move {
        let store = opened(env, disk, plant).await?;
        let found = contents(&store, blocks).await?;
        let report = store.verify(false).await.map_err(|e| e.to_string())?;
        if let Some(w) = report.wrong.first() {
            return Err(w.clone());
        }
        Ok(found)
    });
    let trace = std::mem::take(&mut world.trace);
    let more = [(0, 7, 1 << 40), (9, 1, 2 << 40), (2, 7, 3 << 40)];
    (found.and_then(|f| go_on(world.disk, f, &more, plant)), trace)
}

/// Opened again, written, and opened once more: nothing else has changed.
fn go_on(
    image: Image,
    found: Twin,
    more: &[(u64, u64, u64)],
    plant: Option<&'static str>,
) -> Result<Twin, String> {
    let blocks = found.len() as u64;
    let mut world = World::new(image);
    let all = more.to_vec();
    block_on(&mut world, move |env, disk| async move {
        let store = opened(env, disk, plant).await?;
        for (v, n, tag) in all {
            perform(&store, Op::Write { v, n, tag, fua: true }).await?;
        }
        Ok::<(), String>(())
    })?;
    let mut want = found.clone();
    more.iter().for_each(|&(v, n, tag)| apply(&mut want, &Op::Write { v, n, tag, fua: true }));
    let now = block_on(&mut World::new(world.disk), move |env, disk| async move {
        let store = opened(env, disk, plant).await?;
        contents(&store, blocks).await
    })?;
    match now.iter().zip(&want).position(|(a, b)| a != b) {
        None => Ok(found),
        Some(v) => Err(format!("written on and opened again: block {v} differs")),
    }
}

/// The first thing that is wrong with an image, which holds `from..=to` operations.
fn judge(
    r: &Run,
    image: &Image,
    (from, to): (usize, usize),
    plant: Option<&'static str>,
) -> Option<String> {
    let (found, trace) = recover(image, r.blocks, plant);
    let check = |found: Result<Twin, String>| match found {
        Err(e) => Some(e),
        Ok(t) if r.states[from..=to].contains(&t) => None,
        Ok(t) => {
            let near = r.states.iter().rposition(|s| *s == t);
            let wrong = r.states[to].iter().zip(&t).position(|(a, b)| a != b);
            Some(format!("{from}..={to}: state {near:?}, block {wrong:?} differs"))
        }
    };
    if let Some(wrong) = check(found) {
        return Some(wrong);
    }
    // A second cut, in recovery; not of every state, which would take its time.
    if !image.digest().is_multiple_of(4) {
        return None;
    }
    let mut cuts = CrashImages::new(&trace, image);
    let mut n = 0;
    while cuts.step().is_some() {
        n += 1;
        if u64::is_multiple_of(n, 3)
            && let Some(wrong) = check(recover(&cuts.image(n), r.blocks, plant).0)
        {
            return Some(format!("cut again after {n}: {wrong}"));
        }
    }
    None
}

/// Looks at up to `most` states of the cuts of a run; how many, and the first that is wrong.
fn explore(
    r: &Run,
    (step, most): (u64, u64),
    plant: Option<&'static str>,
) -> (u64, Option<String>) {
    explore_from(r, (0, 2), (step, most), plant)
}

/// The same with cuts after so many operations have begun, and so many images of each at random.
fn explore_from(
    r: &Run,
    (from, random): (usize, u64),
    (step, most): (u64, u64),
    plant: Option<&'static str>,
) -> (u64, Option<String>) {
    let mut cuts = CrashImages::new(&r.trace, &r.base);
    let (mut begun, mut promised) = (0, 0);
    let (mut n, mut states, mut seen) = (0, 0, BTreeSet::new());
    loop {
        let event = cuts.step();
        if let Some(Event::Mark(m)) = event {
            let op = (m / 2) as usize;
            if m % 2 == 1 { promised = op } else { begun = op }
        }
        n += 1;
        let writes = !matches!(event, Some(Event::Mark(_)));
        if begun > from && writes && u64::is_multiple_of(n, step) {
            for variant in 0..cuts.variants(random) {
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

/// Writes that fill partial segments by themselves, many of them in flight.
fn bulk(seed: u64, blocks: u64) -> Vec<Op> {
    let mut rng = Rng::new(seed);
    let mut one = |tag| match tag % 9 {
        8 => Op::Flush,
        _ => Op::Write { v: rng.below(blocks - 7), n: 7, tag, fua: false },
    };
    (1..80).map(&mut one).collect()
}

#[test]
fn every_cut_leaves_a_prefix() {
    let (mut all, (_, blocks)) = (0, made());
    for seed in 0..3 {
        for (ops, step) in [(script(seed, blocks, 260), 23), (bulk(seed, blocks), 11)] {
            let (states, wrong) = explore(&record(&ops, None), (step, 40), None);
            assert_eq!(wrong, None, "seed {seed}");
            all += states;
        }
    }
    assert!(all > 100, "{all} states");
}

/// The same where blocks are kept apart by how long they live: groups have parts at several heads.
fn apart(seeds: u64, plant: Option<&'static str>) -> (u64, Option<String>) {
    let (_, blocks) = made_for(plant);
    let mut all = 0;
    for seed in 0..seeds {
        for (ops, step) in [(script(seed, blocks, 260), 17), (bulk(seed, blocks), 9)] {
            let (states, wrong) = explore(&record(&ops, plant), (step, 60), plant);
            all += states;
            if wrong.is_some() {
                return (all, wrong.map(|w| format!("seed {seed}: {w}")));
            }
        }
        let wrong = without_the_newest(&script(seed, blocks, 400), plant);
        if wrong.is_some() {
            return (all, wrong);
        }
    }
    (all, None)
}

#[test]
fn every_cut_leaves_a_prefix_where_blocks_are_kept_apart() {
    let (states, wrong) = apart(3, APART);
    assert_eq!(wrong, None);
    assert!(states > 100, "{states} states");
}

/// Blocks that are written again soon go where no others do, and the cleaner's go by their age; a
/// policy that keeps nothing apart leaves those heads alone.
#[test]
fn blocks_are_kept_apart_by_how_long_they_live() {
    let used = |plant| {
        let mut world = World::new(Image::new(24 << 20));
        let (segment_bytes, virtual_bytes, heads) = (Some(32 << 10), None, None);
        let options =
            FormatOptions { uuid: [7; 16], segment_bytes, virtual_bytes, heads, disk: None };
        block_on(&mut world, move |env, disk| async move {
            let shape = lfs::format(&disk, &options).await.unwrap();
            assert_eq!(shape.heads, 6, "it has segments enough");
            let blocks = shape.virtual_blocks;
            let store = opened(env.clone(), disk, plant).await.unwrap();
            let mut rng = Rng::new(3);
            for tag in 0..4 * blocks {
                let one_in_ten = blocks / 10;
                let hot = tag > blocks && !rng.one_in(10);
                let v = if tag < blocks { tag } else { rng.below(blocks) };
                let v = if hot { rng.below(one_in_ten) } else { v };
                perform(&store, Op::Write { v, n: 1, tag, fua: false }).await.unwrap();
            }
            store.flush().await.unwrap();
            // The cleaner comes to rest.
            env.sleep(Nanos::from_secs(30)).await;
            assert_eq!(store.verify(true).await.unwrap().wrong, Vec::<String>::new());
        });
        let of = |w: &sim::Write| (w.bytes.starts_with(b"CLFS")).then(|| w.bytes[54]);
        world.trace.writes.iter().filter_map(of).collect::<BTreeSet<u8>>()
    };
    let all: Vec<u8> = used(APART).into_iter().collect();
    assert!(all.starts_with(&[0, 1, 2]) && all.len() >= 4, "{all:?}");
    assert_eq!(used(None).into_iter().collect::<Vec<u8>>(), [0, 5]);
}

/// Full segments with holes that both checkpoints know, and then with others: the first of them is
/// plugged at the last operations.
fn holes(seed: u64, blocks: u64) -> Vec<Op> {
    let mut rng = Rng::new(seed);
    let mut ops = Vec::new();
    let mut tag = 0;
    let mut write = |ops: &mut Vec<Op>, v, n| {
        tag += 1;
        ops.push(Op::Write { v, n, tag, fua: false });
    };
    (0..blocks / 8).for_each(|i| write(&mut ops, 7 * i, 7));
    for _ in 0..2 {
        (0..blocks / 4).for_each(|_| write(&mut ops, rng.below(blocks / 8 * 7), 1));
        ops.extend([Op::Checkpoint, Op::Checkpoint]);
    }
    for _ in 0..2 {
        (0..14).for_each(|_| write(&mut ops, rng.below(blocks / 8 * 7), 1));
        ops.extend([Op::Clean, Op::Flush]);
    }
    ops
}

/// A few blocks that were all written again, some twice, since the last checkpoint.
fn young_holes(seed: u64) -> Vec<Op> {
    let mut rng = Rng::new(seed);
    let mut ops: Vec<Op> =
        (0..9).map(|i| Op::Write { v: 7 * i, n: 7, tag: 1 + i, fua: false }).collect();
    ops.extend([Op::Checkpoint, Op::Checkpoint]);
    for tag in 100..220 {
        ops.push(Op::Write { v: rng.below(56), n: 1, tag, fua: false });
    }
    ops.extend([Op::Flush, Op::Clean, Op::Flush]);
    ops
}

/// The same where the cleaner plugs holes.
fn while_plugging(seeds: u64, plant: Option<&'static str>) -> (u64, Option<String>) {
    let (_, blocks) = made();
    let mut all = 0;
    for seed in 0..seeds {
        let ops = holes(seed, blocks);
        let last = ops.len() - 18;
        let (mut states, mut wrong) =
            explore_from(&record(&ops, plant), (last, 5), (1, 130), plant);
        if wrong.is_none() {
            let ops = young_holes(seed);
            let r = record(&ops, plant);
            let found = explore_from(&r, (ops.len() - 3, 2), (1, 40), plant);
            (states, wrong) = (states + found.0, found.1);
        }
        all += states;
        let wrong = wrong.or_else(|| without_the_newest(&plugging(seed, blocks, 130), plant));
        if wrong.is_some() {
            return (all, wrong.map(|w| format!("seed {seed}: {w}")));
        }
    }
    (all, None)
}

#[test]
fn every_cut_while_holes_are_plugged_leaves_a_prefix() {
    let (states, wrong) = while_plugging(2, PLUGGING);
    assert_eq!(wrong, None);
    assert!(states > 100, "{states} states");
}

/// A partial of which a sector is missing is not taken for whole, wherever that is.
fn torn(plant: Option<&'static str>) -> Option<String> {
    let r = record(&[Op::Write { v: 5, n: 3, tag: 7, fua: true }], plant);
    let partial = r.trace.writes.iter().rposition(|w| w.bytes.starts_with(b"CLFS")).unwrap();
    let mut cuts = CrashImages::new(&r.trace, &r.base);
    while !matches!(cuts.step(), Some(Event::WriteIssued(n)) if *n == partial) {}
    let write = &r.trace.writes[partial];
    (0..write.bytes.len() / 512).find_map(|missing| {
        let mut image = cuts.image(0);
        for (i, sector) in write.bytes.chunks(512).enumerate().filter(|(i, _)| *i != missing) {
            image.write(write.at + i as u64 * 512, sector);
        }
        judge(&r, &image, (0, 1), plant)
    })
}

#[test]
fn a_torn_partial_ends_the_log() {
    assert_eq!(torn(None), None);
}

/// With the newest checkpoint gone, the older one and the log behind it lead to the same contents.
fn without_the_newest(ops: &[Op], plant: Option<&'static str>) -> Option<String> {
    let r = record(ops, plant);
    let mut cuts = CrashImages::new(&r.trace, &r.base);
    while cuts.step().is_some() {}
    let mut image = cuts.image(2);
    let newest = [2, 3].into_iter().max_by_key(|slot| {
        let mut generation = [0; 8];
        image.read(slot * 4096 + 8, &mut generation);
        u64::from_le_bytes(generation)
    });
    image.write(newest.unwrap() * 4096, &[0; 512]);
    let last = r.states.len() - 1;
    judge(&r, &image, (last, last), plant)
}

/// The same of several scripts.
fn without_the_newest_of_many(plant: Option<&'static str>) -> Option<String> {
    let (_, blocks) = made();
    (0..12).find_map(|seed| {
        let ops = script(seed, blocks, 240 + 40 * seed as usize);
        without_the_newest(&ops, plant).map(|w| format!("seed {seed}: {w}"))
    })
}

/// Segments that die between two checkpoints, and writes that would take them again.
fn rewritten() -> Vec<Op> {
    let write = |tag| Op::Write { v: 0, n: 7, tag, fua: true };
    let before = std::iter::once(Op::Checkpoint).chain((1..5).map(write));
    before.chain([Op::Checkpoint]).chain((5..10).map(write)).collect()
}

#[test]
fn the_older_checkpoint_stands_in() {
    assert_eq!(without_the_newest_of_many(None), None);
    assert_eq!(without_the_newest(&rewritten(), None), None);
}

/// Two partials are on their way, and the second arrives alone: it is not in the log then, nor
/// when another has taken the first one's place.
fn stale_tail(plant: Option<&'static str>) -> Option<String> {
    let (base, blocks) = made();
    let mut world = World::new(base.clone());
    block_on(&mut world, move |env, disk| async move {
        let store = opened(env, disk, None).await.unwrap();
        let write = |v, tag| perform(&store, Op::Write { v, n: 1, tag, fua: true });
        let (a, b) = env::both(write(3, 5), write(6, 7)).await;
        a.and(b).unwrap();
    });
    let mut cuts = CrashImages::new(&world.trace, &base);
    while cuts.step().is_some() {
        for variant in 0..cuts.variants(6) {
            let mut world = World::new(cuts.image(variant));
            let found = block_on(&mut world, move |env, disk| async move {
                let store = opened(env, disk, plant).await?;
                contents(&store, blocks).await
            });
            let on = found.and_then(|f| go_on(world.disk, f, &[(9, 1, 11)], plant));
            if let Err(wrong) = on {
                return Some(wrong);
            }
        }
    }
    None
}

#[test]
fn a_stale_tail_never_joins() {
    assert_eq!(stale_tail(None), None);
}

/// What is written after each opening is found by who reads a segment's summaries.
fn opened_twice(plant: Option<&'static str>) -> Option<String> {
    let mut image = made().0;
    (1..4).find_map(|tag| {
        let mut world = World::new(image.clone());
        let wrong = block_on(&mut world, move |env, disk| async move {
            let store = opened(env, disk, plant).await.unwrap();
            perform(&store, Op::Write { v: 3 * tag, n: 2, tag, fua: true }).await.unwrap();
            store.verify(true).await.unwrap().wrong.into_iter().next()
        });
        image = world.disk;
        wrong
    })
}

#[test]
fn summaries_go_on_where_they_ended() {
    assert_eq!(opened_twice(None), None);
}

/// A full store is written faster than its cleaner makes room.
fn outrun(plant: Option<&'static str>) -> Option<String> {
    let (base, blocks) = made();
    let mut rng = Rng::new(1);
    let fill = (0..blocks / 7).map(|n| 7 * n);
    let again: Vec<u64> = (0..400).map(|_| rng.below(blocks - 7)).collect();
    let all: Vec<u64> = fill.chain(again).collect();
    block_on(&mut World::new(base), move |env, disk| async move {
        let store = opened(env, disk, plant).await.unwrap();
        for (tag, v) in (1..).zip(all) {
            if let Err(e) = perform(&store, Op::Write { v, n: 7, tag, fua: false }).await {
                return Some(e);
            }
        }
        store.verify(true).await.unwrap().wrong.into_iter().next()
    })
}

#[test]
fn writers_wait_for_the_cleaner_of_a_full_store() {
    assert_eq!(outrun(None), None);
}

/// Many callers at once write groups of all lengths to a store of many segments that is full: what
/// the cleaner is about to write is not given to them.
fn crowded(plant: Option<&'static str>) -> Option<String> {
    let mut world = World::new(Image::new(64 << 20));
    let ms = Nanos::from_millis(1);
    world.set_timings(vec![Box::new(Constant::of(ms, ms, ms, 400_000_000))]);
    let options = FormatOptions {
        uuid: [7; 16],
        segment_bytes: Some(64 << 10),
        virtual_bytes: None,
        heads: None,
        disk: None,
    };
    block_on(&mut world, move |env, disk| async move {
        let blocks = lfs::format(&disk, &options).await.unwrap().virtual_blocks;
        let options = OpenOptions { plant, ..OpenOptions::default() };
        let store = Store::open(env.clone(), disk, options).await.unwrap();
        for v in (0..blocks).step_by(64) {
            let n = 64.min(blocks - v);
            perform(&store, Op::Write { v, n, tag: 1, fua: false }).await.unwrap();
        }
        let ended = Rc::new(RefCell::new(Vec::new()));
        for caller in 0..24 {
            let (store, ended, of) = (store.clone(), ended.clone(), env.clone());
            env.spawn("caller", async move {
                let mut rng = Rng::new(caller);
                let mut result = Ok(());
                for tag in 2..40 {
                    // As an operation does, it holds its room while it reads.
                    let n = rng.below(120) + 1;
                    let kept = store.reserve(n).await;
                    of.sleep(Nanos::from_micros(rng.below(400_000))).await;
                    let changes = (0..n).map(|_| Virt(rng.below(blocks)));
                    let changes =
                        changes.map(|v| Change::Whole(v, crate::common::block(tag))).collect();
                    result = match (result, kept) {
                        (Ok(()), Ok(kept)) => store.put(&Group { changes }, kept).await.map(|_| ()),
                        (before, kept) => before.and(kept.map(|kept| store.release(kept))),
                    };
                }
                ended.borrow_mut().push(result.map_err(|e| e.to_string()));
            });
        }
        while ended.borrow().len() < 24 {
            env.sleep(Nanos::from_millis(10)).await;
        }
        let failed = ended.borrow_mut().drain(..).find_map(Result::err);
        // The cleaner comes to rest.
        env.sleep(Nanos::from_secs(30)).await;
        failed.or(store.verify(true).await.unwrap().wrong.into_iter().next())
    })
}

#[test]
fn a_full_store_keeps_what_its_cleaner_is_about_to_write() {
    assert_eq!(crowded(None), None);
}

/// Blocks of which ranges are in no partial yet are moved: a move takes what the disk has of them.
fn moved_while_pending(plant: Option<&'static str>) -> Option<String> {
    let (_, blocks) = made();
    (0..6).find_map(|seed| {
        let mut ops = holes(seed, blocks);
        ops.truncate(ops.len() - 32);
        let mut rng = Rng::new(!seed);
        ops.push(Op::Flush);
        let patch = |tag| Op::Patch { v: rng.below(blocks / 8 * 7), tag };
        ops.extend((9000..9030).map(patch));
        let last = ops.len();
        ops.extend([Op::Clean, Op::Flush]);
        explore_from(&record(&ops, plant), (last, 2), (1, 120), plant).1
    })
}

#[test]
fn a_move_takes_no_bytes_that_are_in_no_partial() {
    assert_eq!(moved_while_pending(None), None);
    assert_eq!(moved_while_pending(REMEMBERING), None);
}

/// What is moved is taken from memory if it is there.
#[test]
fn every_cut_leaves_a_prefix_where_the_cleaner_reads_nothing() {
    let (_, blocks) = made();
    for seed in 0..3 {
        let ops = holes(seed, blocks);
        let last = ops.len() - 18;
        let r = record(&ops, REMEMBERING);
        let (states, wrong) = explore_from(&r, (last, 2), (5, 60), REMEMBERING);
        assert_eq!(wrong, None, "seed {seed}");
        assert!(states > 10, "{states} states");
        let (base, _) = made();
        let stats = block_on(&mut World::new(base), move |env, disk| async move {
            let store = opened(env, disk, REMEMBERING).await.unwrap();
            for op in ops {
                perform(&store, op).await.unwrap();
            }
            assert_eq!(store.verify(true).await.unwrap().wrong, Vec::<String>::new());
            store.stats()
        });
        // All but what the first segment holds, which nobody has seen begin.
        let most = stats.remembered * 10 >= stats.moved * 8;
        assert!(stats.remembered > 20 && most, "{stats:?}");
    }
}

/// The same few segments' worth again and again, much of it in flight: what was there before dies
/// with each write, and is needed until that is durable.
fn hot() -> Vec<Op> {
    let write = |tag| match tag % 20 {
        0 => Op::Flush,
        _ => Op::Write { v: 7 * (tag % 3), n: 7, tag, fua: false },
    };
    (0..70).map(write).collect()
}

#[test]
fn what_newer_contents_replace_stays_until_they_are_durable() {
    assert_eq!(explore(&record(&hot(), None), (1, 120), None).1, None);
}

fn finds(plant: &'static str) -> bool {
    let (_, blocks) = made();
    let wrong = move || match plant {
        "sum-of-first-words" => torn(Some(plant)).is_some(),
        "victim-freed-before-checkpoint" => {
            explore(&record(&hot(), Some(plant)), (1, 400), Some(plant)).1.is_some()
        }
        "one-slot" => without_the_newest_of_many(Some(plant)).is_some(),
        "reuse-after-one-checkpoint" => without_the_newest(&rewritten(), Some(plant)).is_some(),
        "stale-tail-joined" => stale_tail(Some(plant)).is_some(),
        "serial-reset" => opened_twice(Some(plant)).is_some(),
        "budget-without-metadata" => outrun(Some(plant)).is_some(),
        "moves-not-counted" => crowded(Some(plant)).is_some(),
        p if p.contains("head") => apart(6, Some(plant)).1.is_some(),
        "gc-mixes-dirty" | "memory-mixes-dirty" => moved_while_pending(Some(plant)).is_some(),
        p if p.starts_with("plug") => while_plugging(12, Some(plant)).1.is_some(),
        _ => (0..3).any(|seed| {
            let r = record(&script(seed, blocks, 260), Some(plant));
            explore(&r, (11, 100), Some(plant)).1.is_some()
        }),
    };
    // A bug that runs into an assertion is found too; its thread is of no more use.
    std::thread::spawn(wrong).join().unwrap_or(true)
}

#[test]
fn planted_bugs_are_found() {
    assert_eq!(missed(false), Vec::<&str>::new());
}

#[test]
fn planted_bugs_of_plugging_are_found() {
    assert_eq!(missed(true), Vec::<&str>::new());
}

/// Those of plugging, or the others. Who looks at thin volumes finds theirs (thin.rs).
fn missed(plugging: bool) -> Vec<&'static str> {
    let all = lfs::PLANTS.iter().copied().filter(|p| p.starts_with("plug") == plugging);
    all.filter(|p| !p.starts_with("thin") && !finds(p)).collect()
}
