//! One client that makes and removes small files on the disks of seltzer-2000, with a log on the
//! same disk or on a second one, synchronous or not, beside soft updates, FFS with ordered
//! synchronous metadata, and FFS without any order. What the systems are here says seltzer.rs.

use super::mail::{Pool, Way, thread};
use super::report::{Findings, Table};
use super::rig::{Caller, ROOT};
use super::seltzer::{
    ASYNC, ASYNC1, ASYNC2, FFS, FILE, Rate, SOFT, SYNC1, SYNC2, machine, new_rig, ratio, run_as,
    systems,
};
use super::verdict::{Stated, Verdict};
use super::{Scale, cores};
use crate::postmark::Parameters;
use crate::subject::Setting;
use std::collections::BTreeMap;
use vfs::FsError;

/// Makes `files` files of 64 KB, 50 in a directory, until all are on the disk; MB a second.
fn creates(setting: Setting, files: u64) -> Result<Rate, String> {
    let mut rig = new_rig(&machine(64 << 20), setting)?;
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
    let mut rig = new_rig(&machine(64 << 20), setting)?;
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
    let mut rig = new_rig(&machine(m.cache_bytes), setting)?;
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
    writes(&all, sizes, &mut f);
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
        let stated = ratio(*number, what, *paper);
        let ours = all[&(*workload, run_as(a))].per_sec / all[&(*workload, run_as(b))].per_sec;
        f.claim(stated.stands(*stands).because(*why), ours);
    }
}

/// What is judged where the paper's result is its processor's: the disks' writes.
fn writes(all: &BTreeMap<(usize, &str), Rate>, sizes: Sizes, f: &mut Findings) {
    for system in [SOFT, ASYNC1, ASYNC2] {
        let what = format!("empty files: writes to the disks a pair: {system}");
        let why = "far less than one for a pair: the disk does not decide, and the paper's \
                   differences are its processor's";
        let of = all[&(PAIRS, system)].writes as f64 / sizes.pairs as f64;
        f.claim(Stated::between(6, what, (0.0, 0.5)).because(why), of);
        let what = format!("PostMark, small: writes to the disks: {system} beside {ASYNC}");
        let of = all[&(SMALL, system)].writes as f64 / all[&(SMALL, ASYNC)].writes as f64;
        let why = "contents weigh most; some blocks are written twice, or into the log first";
        f.claim(Stated::between(10, what, (0.0, 1.25)).because(why), of);
    }
}

const OK: Verdict = Verdict::Reproduced;
const NOT: Verdict = Verdict::Contradicted;
const LESS: Verdict = Verdict::Weaker;
/// Why a synchronous log's place matters less.
const WAITS: &str = "with --commit sync a write waits for the log too, not names alone as in \
                     the paper: two turns of the log's disk a file outweigh the seeks that a \
                     second disk saves";
/// Why asynchronous logs are quicker beside FFS-async.
const PROCESSOR: &str = "the paper's systems run at their processor's speed, and a log \
                         record costs it as much again as the operation; here a call costs \
                         all of them the same, and the disks' writes are judged below";
/// Why soft updates lose nothing where files come and go.
const UNSEEN: &str = "a file that is made and removed unseen costs no write of its own, nor \
                      more of the processor here than FFS-async's, which at times waits";
const SOFTLY: &str = "soft updates write what has been dirty for a while, when most of the files \
                      have come and gone; FFS-async, all that is dirty when it is too much";
const LITTLE: &str = "a tenth of the paper's memory: blocks are written back while they still wait \
                      for others, and once more when these are durable";
/// Why synchronous systems are nearer to FFS-async.
const SLOWER: &str = "the synchronous rates are the paper's, turns of the disk; FFS-async, \
                      in the denominator, is slower than the paper's, which ran at its \
                      processor's speed";
const LONG: &str = "the log goes out in long writes, wherever it is";
const ONE: &str =
    "LFFS-file and LFFS-wafs-1async are one set-up here, and the paper's latter is as quick";
const TURNS: &str = "a turn of the disk or two for each call, 80 pairs a second in the paper";

const TOLD: [Told; 27] = [
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
    Told(1, CREATES, [SOFT, ASYNC], 18.15 / 18.08, OK, LONG),
    Told(6, PAIRS, [SOFT, ASYNC], 7708.0 / 9142.0, NOT, UNSEEN),
    Told(10, SMALL, [SOFT, ASYNC], 0.851, NOT, SOFTLY),
    Told(10, LARGE, [SOFT, ASYNC], 0.983, NOT, LITTLE),
    Told(6, PAIRS, [ASYNC1, ASYNC], 4418.0 / 9142.0, NOT, PROCESSOR),
    Told(6, PAIRS, [ASYNC2, ASYNC], 4271.0 / 9142.0, NOT, PROCESSOR),
    Told(6, PAIRS, [FILE, ASYNC], 6795.0 / 9142.0, NOT, PROCESSOR),
    Told(10, SMALL, [FILE, ASYNC], 0.792, NOT, PROCESSOR),
    Told(10, LARGE, [FILE, ASYNC], 0.963, OK, LONG),
    Told(1, CREATES, [FILE, ASYNC], 13.08 / 18.08, NOT, ONE),
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
