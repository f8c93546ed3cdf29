//! One client that makes and removes small files on the disks of seltzer-2000, with a log on the
//! same disk or on a second one, synchronous or not, beside FFS with ordered synchronous metadata
//! and FFS without any order. The processor takes the same for each call in all of them: what the
//! paper's logs cost its processor is not in here, so the disks' writes stand beside the rates.

use super::latency::{Latency, Op};
use super::mail::{Pool, Way, thread};
use super::report::{Findings, Table};
use super::rig::{Caller, Machine, ROOT, Rig, secs};
use super::verdict::{Stated, Verdict};
use super::{Scale, cheetah_9lp, cores};
use crate::postmark::Parameters;
use crate::subject::Setting;
use env::Nanos;
use std::collections::BTreeMap;
use vfs::FsError;
use volume::{Commit, Mode};

/// The paper's names, and what they are here.
fn systems() -> [(&'static str, Setting); 6] {
    let log = |outside, commit| Setting { outside, commit, ..Setting::plain(Mode::Redo) };
    [
        ("ffs", Setting::plain(Mode::Sync)),
        ("ffs-async", Setting::plain(Mode::Async)),
        ("lffs-wafs-1sync", log(false, Commit::Sync)),
        ("lffs-wafs-2sync", log(true, Commit::Sync)),
        ("lffs-wafs-1async", log(false, Commit::Async)),
        ("lffs-wafs-2async", log(true, Commit::Async)),
    ]
}

/// Makes `files` files of 64 KB, 50 in a directory, until all are on the disk; MB a second.
fn creates(setting: Setting, files: u64) -> Result<Rate, String> {
    let mut rig = new_rig(setting, 64 << 20)?;
    let work = async move |c: Caller| -> Result<(), FsError> {
        let mut dir = ROOT;
        for n in 0..files {
            if n % 50 == 0 {
                dir = c.mkdir(ROOT, &format!("d{n}")).await?;
            }
            let ino = c.create(dir, &format!("f{n}")).await?;
            c.write(ino, (0, 65_536), false).await?;
        }
        c.sync_all().await
    };
    Rate::of(&mut rig, files as f64 * 0.065_536, work)
}

/// Makes files of no bytes and removes each at once; pairs a second.
fn pairs(setting: Setting, pairs: u64) -> Result<Rate, String> {
    let mut rig = new_rig(setting, 64 << 20)?;
    let work = async move |c: Caller| -> Result<(), FsError> {
        for n in 0..pairs {
            c.create(ROOT, &format!("f{n}")).await?;
            c.unlink(ROOT, &format!("f{n}")).await?;
        }
        c.sync_all().await
    };
    Rate::of(&mut rig, pairs as f64, work)
}

/// One client's PostMark.
#[derive(Clone, Copy)]
struct Mail {
    files: u64,
    transactions: u64,
    cache_bytes: u64,
}

/// Transactions a second.
fn mail(setting: Setting, m: Mail) -> Result<Rate, String> {
    let told = Parameters { files: m.files, bytes: (512, 16_384), reads: 5, creates: 5 };
    let mut rig = new_rig(setting, m.cache_bytes)?;
    let pool = Pool::shared(told);
    let client = || {
        let pool = pool.clone();
        async move |c: Caller| -> Result<(), FsError> {
            thread(c.clone(), pool, Way { request: 1 << 20, sync: false }).await?;
            c.sync_all().await
        }
    };
    rig.callers(false, [client()])?;
    pool.borrow_mut().transactions = m.transactions;
    Rate::of(&mut rig, m.transactions as f64, client())
}

/// What a system did of a workload in a second, and what it asked of the disks.
struct Rate {
    per_sec: f64,
    writes: u64,
    wait: Latency,
    note: u64,
}

impl Rate {
    /// Runs it; it does `amount`.
    fn of<F>(rig: &mut Rig, amount: f64, work: F) -> Result<Rate, String>
    where
        F: AsyncFnOnce(Caller) -> Result<(), FsError> + 'static,
    {
        rig.take_traffic();
        rig.take_latencies();
        let took = rig.callers(false, [work])?;
        let [volume, log] = rig.take_traffic();
        let ops = [Op::Create, Op::Unlink, Op::Write, Op::Read];
        let wait = rig.take_latencies().of(&ops);
        let writes = volume.writes + log.writes;
        Ok(Rate { per_sec: amount / secs(took), writes, wait, note: took.0 })
    }
}

/// What each call costs the processor: FFS-async makes and removes 9,142 empty files a second in
/// the paper, which is its processor's doing.
const WORK: Nanos = Nanos::from_micros(55);

/// 512 MB in the paper, of which it uses an unknown part for blocks.
fn new_rig(setting: Setting, cache_bytes: u64) -> Result<Rig, String> {
    let machine = Machine {
        disk: cheetah_9lp,
        log: cheetah_9lp,
        bytes: (8 << 30, 128 << 20),
        cache_bytes: cache_bytes as usize,
        inodes: 65_536,
    };
    let mut rig = Rig::new(&machine, setting)?;
    rig.set_work(WORK);
    Ok(rig)
}

/// How large the workloads are.
#[derive(Clone, Copy)]
struct Sizes {
    creates: u64,
    pairs: u64,
    small: Mail,
    large: Mail,
}

/// The workloads: files of 64 KB, empty files, PostMark small and large.
const WORKLOADS: usize = 4;
const CREATES: usize = 0;
const PAIRS: usize = 1;
const SMALL: usize = 2;
const LARGE: usize = 3;

fn run(setting: Setting, workload: usize, s: Sizes) -> Result<Rate, String> {
    match workload {
        CREATES => creates(setting, s.creates),
        PAIRS => pairs(setting, s.pairs),
        SMALL => mail(setting, s.small),
        _ => mail(setting, s.large),
    }
}

/// The experiment.
pub(super) fn second_disk(scale: Scale) -> Result<Findings, String> {
    // The large PostMark is a tenth of the paper's, with a tenth of its memory.
    let small = Mail { files: 10_000, transactions: 20_000, cache_bytes: 400 << 20 };
    let large = Mail { files: 15_000, transactions: 5000, cache_bytes: 40 << 20 };
    let tiny = Mail { files: 500, transactions: 300, cache_bytes: 2 << 20 };
    let sizes = scale.pick(
        Sizes { creates: 2048, pairs: 5000, small, large },
        Sizes {
            creates: 400,
            pairs: 100,
            small: Mail { cache_bytes: 64 << 20, ..tiny },
            large: tiny,
        },
    );
    let systems = systems();
    let jobs: Vec<(usize, usize)> =
        (0..WORKLOADS).rev().flat_map(|w| (0..systems.len()).map(move |s| (w, s))).collect();
    let did = cores::each(&jobs, |(w, s)| run(systems[*s].1, *w, sizes));
    let mut f = Findings::default();
    let mut all: BTreeMap<(usize, &str), Rate> = BTreeMap::new();
    for ((w, s), rate) in jobs.iter().zip(did) {
        let rate = rate?;
        f.note(rate.note);
        all.insert((*w, systems[*s].0), rate);
    }
    let mut table = |title: String, cell: fn(&Rate, usize) -> String| {
        let columns = ["system", "64 KB", "empty", "PostMark small", "PostMark large"];
        let mut t = Table::new(&title, &columns);
        for (name, _) in &systems {
            let cells = (0..WORKLOADS).map(|w| cell(&all[&(w, *name)], w));
            t.row([(*name).to_owned()].into_iter().chain(cells).collect());
        }
        f.tables.push(t);
    };
    let title = format!(
        "{} files of 64 KB, MB/s; {} empty files, made and removed, pairs/s; PostMark of {} and of \
         {} files, transactions/s",
        sizes.creates, sizes.pairs, sizes.small.files, sizes.large.files
    );
    table(title, |r, w| match w {
        CREATES => format!("{:.2}", r.per_sec),
        _ => format!("{:.0}", r.per_sec),
    });
    table("Writes to the disks".into(), |r, _| r.writes.to_string());
    table("What a call waited, ms: mean / 99 of 100".into(), |r, _| r.wait.to_string());
    claims(&all, &mut f);
    Ok(f)
}

/// A claim: its number, the workload, what is compared with what, the paper's value, what we find,
/// and why.
struct Told(u32, usize, [&'static str; 2], f64, Verdict, &'static str);

const NAMES: [&str; WORKLOADS] =
    ["files of 64 KB", "empty files", "PostMark, small", "PostMark, large"];

fn claims(all: &BTreeMap<(usize, &str), Rate>, f: &mut Findings) {
    for Told(number, workload, [a, b], paper, stands, why) in &TOLD {
        let what = format!("{}: {a} beside {b}", NAMES[*workload]);
        let near = (0.95..1.05).contains(paper);
        let stated = if near {
            Stated::equal(*number, what).valued(*paper)
        } else {
            Stated::times(*number, what, *paper)
        };
        let ours = all[&(*workload, *a)].per_sec / all[&(*workload, *b)].per_sec;
        f.claim(stated.stands(*stands).because(*why), ours);
    }
}

const OK: Verdict = Verdict::Reproduced;
const NOT: Verdict = Verdict::Contradicted;
const LESS: Verdict = Verdict::Weaker;
const FFS: &str = "ffs";
const ASYNC: &str = "ffs-async";
const SYNC1: &str = "lffs-wafs-1sync";
const SYNC2: &str = "lffs-wafs-2sync";
const ASYNC1: &str = "lffs-wafs-1async";
const ASYNC2: &str = "lffs-wafs-2async";

/// Why a synchronous log's place matters less.
const WAITS: &str = "with --commit sync a write waits for the log too, not names alone as in \
                     the paper: two turns of the log's disk a file outweigh the seeks that a \
                     second disk saves";
/// Why asynchronous logs are quicker beside FFS-async.
const PROCESSOR: &str = "the paper's systems run at their processor's speed, and a log \
                         record costs it as much again as the operation; here a call costs \
                         all of them the same, and what is judged is the disks' writes: no \
                         more than FFS-async's";
/// Why synchronous systems are nearer to FFS-async.
const SLOWER: &str = "the synchronous rates are the paper's, turns of the disk; FFS-async, \
                      in the denominator, is slower than the paper's, which ran at its \
                      processor's speed";
const LONG: &str = "the log goes out in long writes, wherever it is";
const TURNS: &str = "a turn of the disk or two for each call, 80 pairs a second in the paper";

const TOLD: [Told; 19] = [
    Told(11, CREATES, [SYNC2, SYNC1], 9.62 / 3.86, NOT, WAITS),
    Told(11, CREATES, [ASYNC2, ASYNC1], 17.94 / 17.52, OK, LONG),
    Told(1, CREATES, [ASYNC1, ASYNC], 17.52 / 18.08, OK, LONG),
    Told(1, CREATES, [FFS, ASYNC], 3.73 / 18.08, OK, "ordered writes for each name"),
    Told(
        1,
        CREATES,
        [SYNC1, FFS],
        3.86 / 3.73,
        NOT,
        "our mode sync writes the inode, then the name, then the size, a turn or more each, where \
         the paper's FFS has one write less",
    ),
    Told(6, PAIRS, [ASYNC1, ASYNC], 4418.0 / 9142.0, NOT, PROCESSOR),
    Told(6, PAIRS, [ASYNC2, ASYNC], 4271.0 / 9142.0, NOT, PROCESSOR),
    Told(6, PAIRS, [SYNC2, ASYNC], 80.0 / 9142.0, LESS, TURNS),
    Told(6, PAIRS, [FFS, ASYNC], 80.0 / 9142.0, OK, TURNS),
    Told(11, SMALL, [SYNC2, SYNC1], 0.095 / 0.093, NOT, WAITS),
    Told(11, LARGE, [SYNC2, SYNC1], 0.918 / 0.605, NOT, WAITS),
    Told(11, SMALL, [ASYNC2, ASYNC1], 0.718 / 0.610, OK, LONG),
    Told(
        11,
        LARGE,
        [ASYNC2, ASYNC1],
        0.975 / 0.972,
        NOT,
        "a tenth of the paper's files and memory: what is written back all the time leaves the \
         log's place more often",
    ),
    Told(10, SMALL, [ASYNC2, ASYNC], 0.718, NOT, PROCESSOR),
    Told(10, SMALL, [SYNC2, ASYNC], 0.095, LESS, SLOWER),
    Told(10, SMALL, [FFS, ASYNC], 0.059, LESS, SLOWER),
    Told(
        10,
        LARGE,
        [ASYNC2, ASYNC],
        0.975,
        NOT,
        "the log keeps metadata in memory that FFS-async writes back one by one when its cache is \
         full",
    ),
    Told(10, LARGE, [SYNC2, ASYNC], 0.918, OK, WAITS),
    Told(10, LARGE, [FFS, ASYNC], 0.535, OK, "ordered writes for each name and each size"),
];
