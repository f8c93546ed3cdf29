//! How long a writer waits where the cleaner works: several callers write blocks at random, each
//! durable before the next, to a log-structured store that is more or less full, on the modelled
//! SATA disk. The store is the one that volumes lie in; it is asked as its volumes ask it.
//!
//! Invariants:
//! * U1. Each write is counted once: whose wait is lost may have been the longest.

use super::report::{Findings, Table};
use super::verdict::Stated;
use super::{Scale, cores};
use env::{Block, Env, Nanos, Rng};
use lfs::{BLOCK_BYTES, Change, FormatOptions, Group, OpenOptions, Policy, Store, Virt};
use sim::timing::by_name;
use sim::{Image, World, block_on};
use std::cell::RefCell;
use std::rc::Rc;

/// One run.
#[derive(Clone, Copy)]
struct Job {
    disk_bytes: u64,
    /// Of 100 of the volume's blocks, so many hold something.
    full: u64,
    callers: u64,
    /// Each block is written again so many times, as often on average as any other.
    rounds: u64,
    /// Whom the cleaner takes.
    policy: Policy,
}

/// Nanoseconds that writes took: until there was room, and until they were durable.
#[derive(Default)]
struct Waits {
    room: Vec<u64>,
    whole: Vec<u64>,
}

/// What was found of a run.
struct Did {
    waits: Waits,
    took: Nanos,
    amplification: f64,
    /// Bytes that the table took at most.
    memory: usize,
}

/// The time that so many of 1000 do not exceed, in milliseconds.
fn of_1000(sorted: &[u64], n: usize) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get(last * n / 1000).map_or(0.0, |t| *t as f64 / 1e6)
}

/// Writes a block.
async fn write(store: &Store, v: u64, n: u64) -> Result<u64, env::DiskError> {
    let kept = store.reserve(1).await?;
    let block = Block::copy_of(&n.to_le_bytes().repeat(BLOCK_BYTES / 8));
    store.put(&Group { changes: vec![Change::Whole(Virt(v), block)] }, kept).await
}

/// A caller: writes one block after the other, as long as there are some `left` to be written.
async fn call(env: Env, store: Store, shared: Rc<RefCell<Shared>>, seed: u64) {
    let mut rng = Rng::new(seed);
    loop {
        let v = {
            let mut s = shared.borrow_mut();
            if s.left == 0 || s.failed.is_some() {
                s.callers -= 1;
                return;
            }
            s.left -= 1;
            rng.below(s.blocks)
        };
        let begun = env.now();
        let written = async {
            let kept = store.reserve(1).await?;
            let room = env.now().since(begun).0;
            let block = Block::copy_of(&seed.to_le_bytes().repeat(BLOCK_BYTES / 8));
            let group = Group { changes: vec![Change::Whole(Virt(v), block)] };
            let number = store.put(&group, kept).await?;
            store.flush_to(number).await?;
            Ok::<u64, env::DiskError>(room)
        };
        match written.await {
            Ok(room) => {
                let s = &mut *shared.borrow_mut();
                s.waits.room.push(room);
                s.waits.whole.push(env.now().since(begun).0);
            }
            Err(e) => shared.borrow_mut().failed = Some(e.to_string()),
        }
    }
}

/// What the callers of a run have in common.
struct Shared {
    blocks: u64,
    left: u64,
    callers: u64,
    failed: Option<String>,
    waits: Waits,
}

fn run(job: &Job) -> Result<Did, String> {
    let job = *job;
    let mut world = World::new(Image::new(job.disk_bytes));
    world.set_timings(vec![by_name("sata7200", job.disk_bytes).expect("it is one of sim's")]);
    world.forget();
    block_on(&mut world, move |env, disk| async move {
        let options = FormatOptions {
            uuid: [7; 16],
            segment_bytes: None,
            virtual_bytes: None,
            heads: None,
            disk: None,
        };
        let volume = lfs::format(&disk, &options).await?.virtual_blocks;
        let how = OpenOptions { policy: job.policy, ..OpenOptions::default() };
        let store = Store::open(env.clone(), disk, how).await?;
        let blocks = volume * job.full / 100;
        let text = |e: env::DiskError| e.to_string();
        for v in 0..blocks {
            write(&store, v, 0).await.map_err(text)?;
        }
        // Until its segments are as they will be.
        let mut rng = Rng::new(1);
        for n in 0..blocks {
            write(&store, rng.below(blocks), n).await.map_err(text)?;
        }
        // All that is on its way comes to rest before.
        store.checkpoint().await.map_err(text)?;
        env.sleep(Nanos::from_secs(30)).await;
        let (left, callers) = (blocks * job.rounds, job.callers);
        let shared = Shared { blocks, left, callers, failed: None, waits: Waits::default() };
        let (begun, before) = (env.now(), store.totals());
        let shared = Rc::new(RefCell::new(shared));
        for n in 0..job.callers {
            env.spawn("caller", call(env.clone(), store.clone(), shared.clone(), n));
        }
        let mut memory = 0;
        while shared.borrow().callers > 0 {
            memory = memory.max(store.table_memory_bytes());
            env.sleep(Nanos::from_millis(10)).await;
        }
        let took = env.now().since(begun);
        let (failed, mut waits) = {
            let s = &mut *shared.borrow_mut();
            (s.failed.take(), std::mem::take(&mut s.waits))
        };
        if let Some(failed) = failed {
            return Err(failed);
        }
        let counted = (waits.room.len() as u64, waits.whole.len() as u64);
        assert_eq!(counted, (left, left), "U1: waits for room, and in all, of {left} writes");
        waits.room.sort_unstable();
        waits.whole.sort_unstable();
        // The cleaner and the checkpoints come to rest.
        env.sleep(Nanos::from_secs(30)).await;
        let after = store.totals();
        let written = (after.written - before.written) * BLOCK_BYTES as u64;
        let amplification = written as f64 / (after.user_bytes - before.user_bytes) as f64;
        if let Some(wrong) = store.verify(true).await.map_err(text)?.wrong.into_iter().next() {
            return Err(wrong);
        }
        Ok(Did { waits, took, amplification, memory })
    })
}

/// The runs: by fullness and callers, ten times the volume, and each policy on the fullest.
fn jobs(scale: Scale) -> (Vec<Job>, Vec<Job>) {
    let full = scale.pick(vec![50, 80, 95], vec![95]);
    let callers = scale.pick(vec![1, 8, 64], vec![64]);
    let (disk_bytes, rounds) = scale.pick((64 << 20, 2), (16 << 20, 1));
    let policy = Policy::default();
    let mut by_fullness = Vec::new();
    for &full in &full {
        by_fullness.extend(callers.iter().map(|&callers| Job {
            disk_bytes,
            full,
            callers,
            rounds,
            policy,
        }));
    }
    let fullest = *by_fullness.last().expect("there are some");
    let by_policy = Policy::ALL.iter().map(|&(_, policy)| Job { policy, ..fullest }).collect();
    by_fullness.push(Job { rounds: scale.pick(10, 2), ..fullest });
    (by_fullness, by_policy)
}

/// A row for each run, by the names of what tells them apart.
fn rows(title: &str, named: &[(String, &Job, &Did)]) -> Table {
    let columns = [
        "% full, cleaner",
        "callers",
        "times the volume",
        "writes a second",
        "half",
        "99.9 of 100",
        "longest",
        "for room: 99.9 of 100",
        "longest",
        "blocks written for each",
        "table in memory, KiB",
    ];
    let mut t = Table::new(title, &columns);
    for (name, job, d) in named {
        let (whole, room) = (&d.waits.whole, &d.waits.room);
        let ms = |sorted: &[u64], n| format!("{:.0}", of_1000(sorted, n));
        t.row(vec![
            name.clone(),
            job.callers.to_string(),
            job.rounds.to_string(),
            format!("{:.0}", whole.len() as f64 * 1e9 / d.took.0 as f64),
            ms(whole, 500),
            ms(whole, 999),
            ms(whole, 1000),
            ms(room, 999),
            ms(room, 1000),
            format!("{:.2}", d.amplification),
            (d.memory >> 10).to_string(),
        ]);
    }
    t
}

/// The longest wait of all of them, milliseconds.
fn longest<'a>(did: impl IntoIterator<Item = &'a Did>) -> f64 {
    did.into_iter().map(|d| of_1000(&d.waits.whole, 1000)).fold(0.0, f64::max)
}

/// The experiment.
pub(super) fn pauses(scale: Scale) -> Result<Findings, String> {
    let (by_fullness, by_policy) = jobs(scale);
    let all: Vec<Job> = by_fullness.iter().chain(&by_policy).copied().collect();
    let mut did: Vec<Did> = cores::each(&all, run).into_iter().collect::<Result<_, _>>()?;
    let did_by_policy = did.split_off(by_fullness.len());
    let mut f = Findings::default();
    let title = format!(
        "Random durable writes of 4 KiB, a log-structured store of {} MiB, 7,200 rpm: what a \
         write waited, and of that for room, ms",
        all[0].disk_bytes >> 20
    );
    let named: Vec<_> =
        by_fullness.iter().zip(&did).map(|(job, d)| (job.full.to_string(), job, d)).collect();
    f.tables.push(rows(&title, &named));
    let title = "The same at the fullest, by whom the cleaner takes";
    let named: Vec<_> = by_policy
        .iter()
        .zip(&did_by_policy)
        .map(|(job, d)| (format!("{}, {}", job.full, job.policy.name()), job, d))
        .collect();
    f.tables.push(rows(title, &named));
    for d in did.iter().chain(&did_by_policy) {
        f.note(d.took.0);
    }
    let what = "our own goal: the longest wait of a write of up to 64 callers, up to 95 % full";
    let why = "writers are slowed as free segments run low, and none waits for all of a pass";
    f.claim(Stated::at_most(0, what, (0.0, 1000.0, "ms")).because(why), longest(&did));
    let of = |plug: bool| {
        let all = by_policy.iter().zip(&did_by_policy);
        longest(all.filter(|(job, _)| (job.policy == Policy::Plug) == plug).map(|(_, d)| d))
    };
    let what = "our own goal: the same by any other policy of the cleaner but `plug`";
    f.claim(Stated::at_most(0, what, (0.0, 1000.0, "ms")).because(why), of(false));
    let what = "the same by `plug`, which never cleans";
    let why = "holes are few and far apart then: the callers share some 60 writes a second";
    f.claim(Stated::at_most(0, what, (0.0, 3000.0, "ms")).because(why), of(true));
    // The last two runs differ in nothing but how much they write.
    let memory = |back: usize| did[did.len() - back].memory as f64;
    let what = "our own goal: memory for the table, ten times the volume written beside twice";
    let stated = Stated::between(0, what, (0.5, 1.25));
    f.claim(
        stated.because("new mappings wait for a checkpoint, and no longer"),
        memory(1) / memory(2),
    );
    Ok(f)
}
