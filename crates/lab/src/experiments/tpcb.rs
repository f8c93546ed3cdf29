//! A database's transactions in the manner of TPC-B on a log-structured store and in place
//! (seltzer-1995, section 4): each reads a block at random, changes it, and adds to its history;
//! the database's log is elsewhere. The disk's arm is the limit; the cleaner needs it too. What is
//! written waits in memory until it fills a transfer, as there: nothing is made durable by itself.

use super::report::{Findings, Table};
use super::verdict::{Stated, Verdict};
use super::{Scale, cores, rz26};
use env::{Block, Disk, DiskError, DiskErrorKind, Durability, Env, Nanos, Rng};
use lfs::{
    BLOCK_BYTES, Change, Cleaning, FormatOptions, Group, OpenOptions, Policy, Speed, Store, Virt,
};
use sim::{Image, World, block_on};
use std::collections::BTreeSet;
use std::rc::Rc;

/// What a transaction costs the processor.
const WORK: Nanos = Nanos::from_micros(900);
/// The mean access of the disk, in nanoseconds, and its bytes a second.
const COSTS: Speed = Speed { access: 15_100_000, bandwidth: 2_600_000 };
const BYTES: u64 = BLOCK_BYTES as u64;

/// Where the database lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum System {
    /// In place: what was changed is written by itself, a few seconds later, in order.
    InPlace,
    /// In a store of four times the size, which needs no cleaner as long as it runs.
    Uncleaned,
    /// In a store that is as large as the disk. When it is full everything stops, and most of what
    /// is dead is cleaned at once.
    AtOnce,
    /// In a store that is as large as the disk, with this policy.
    Cleaned(Policy),
}

const SYSTEMS: [(&str, System); 5] = [
    ("in place", System::InPlace),
    ("log, no cleaner", System::Uncleaned),
    ("log, cleaned at once when full", System::AtOnce),
    ("log, cost-benefit", System::Cleaned(Policy::CostBenefit)),
    ("log, balanced", System::Cleaned(Policy::Balanced)),
];
const IN_PLACE: usize = 0;
const UNCLEANED: usize = 1;
const BSD: usize = 3;
const OURS: usize = 4;

/// One run.
#[derive(Clone, Copy)]
struct Job {
    disk_bytes: u64,
    /// Of 100 of the disk's blocks that a volume has, so many are the database's.
    full: u64,
    system: System,
    /// Transactions for each block of the disk.
    rounds: f64,
}

/// What is written of a transaction, and how it is read.
enum Database {
    Log(Store),
    /// The blocks that have been changed.
    InPlace(Rc<dyn Disk>, BTreeSet<u64>),
}

/// Changed blocks that in-place systems let wait.
const DIRTY_MAX: usize = 64;

/// Most of the segments that what is dead takes.
fn dead_segments(store: &Store) -> u32 {
    let filled = store.filled();
    let tenths = (0..).zip(filled.tenths).map(|(n, segments)| segments * (10 - n)).sum::<u32>();
    tenths * 3 / 40
}

/// Passes that may empty nothing: what they have moved is in a segment that the next ones fill.
const IN_VAIN_MAX: u32 = 8;

/// Everything stops until most of what is dead is cleaned.
async fn clean_at_once(store: &Store) -> Result<(), DiskError> {
    let (mut wanted, mut in_vain) = (dead_segments(store).max(2), 0);
    while wanted > 0 && in_vain < IN_VAIN_MAX {
        let emptied = store.clean(wanted).await?;
        in_vain = if emptied == 0 { in_vain + 1 } else { 0 };
        wanted = wanted.saturating_sub(emptied);
    }
    Ok(())
}

impl Database {
    async fn read(&self, block: u64) -> Result<(), DiskError> {
        let memory = vec![Block::zeroed(BLOCK_BYTES)];
        match self {
            Database::Log(store) => store.read(block * BYTES, memory).await.map(|_| ()),
            Database::InPlace(disk, _) => disk.read(block * BYTES, memory).await.map(|_| ()),
        }
    }

    async fn write(&mut self, block: u64) -> Result<(), DiskError> {
        match self {
            Database::Log(store) => {
                let kept = match store.reserve(1).await {
                    Err(e) if e.kind == DiskErrorKind::NoSpace => {
                        clean_at_once(store).await?;
                        store.reserve(1).await?
                    }
                    other => other?,
                };
                let changes = vec![Change::Whole(Virt(block), Block::zeroed(BLOCK_BYTES))];
                store.put(&Group { changes }, kept).await.map(|_| ())
            }
            Database::InPlace(disk, dirty) => {
                dirty.insert(block);
                while dirty.len() > DIRTY_MAX {
                    for at in std::mem::take(dirty) {
                        let one = vec![Block::zeroed(BLOCK_BYTES)];
                        disk.write(at * BYTES, one, Durability::Cached).await?;
                    }
                }
                Ok(())
            }
        }
    }
}

fn options(virtual_bytes: Option<u64>) -> FormatOptions {
    FormatOptions {
        uuid: [7; 16],
        segment_bytes: Some(1 << 20),
        virtual_bytes,
        heads: None,
        disk: None,
    }
}

async fn made(env: &Env, disk: Rc<dyn Disk>, job: &Job) -> Result<Database, String> {
    let (policy, cleaning) = match job.system {
        System::InPlace => return Ok(Database::InPlace(disk, BTreeSet::new())),
        System::Uncleaned => (Policy::default(), Cleaning::Off),
        System::AtOnce => (Policy::CostBenefit, Cleaning::Off),
        System::Cleaned(policy) => (policy, Cleaning::Pressure),
    };
    lfs::format(&disk, &options(None)).await?;
    let options = OpenOptions { policy, cleaning, disk: Some(COSTS), ..OpenOptions::default() };
    Ok(Database::Log(Store::open(env.clone(), disk, options).await?))
}

/// Transactions a second, in the second half.
fn run(job: &Job) -> Result<f64, String> {
    let job = *job;
    let blocks = lfs::shape(job.disk_bytes, &options(None))?.virtual_blocks * job.full / 100;
    let times = if job.system == System::Uncleaned { 4 } else { 1 };
    let bytes = job.disk_bytes * times;
    let mut world = World::new(Image::new(bytes));
    world.forget();
    world.set_timings(vec![rz26(bytes)]);
    block_on(&mut world, move |env, disk| async move {
        let text = |e: DiskError| format!("{} % full, {:?}: {e}", job.full, job.system);
        let mut db = made(&env, disk, &job).await?;
        if let Database::Log(_) = db {
            for block in 0..blocks {
                db.write(block).await.map_err(text)?;
            }
        }
        let (mut rng, all) = (Rng::new(5), ((job.disk_bytes / BYTES) as f64 * job.rounds) as u64);
        let mut half = env.now();
        // The history is the last of its blocks.
        let (accounts, mut history) = (blocks * 15 / 16, blocks * 15 / 16);
        for n in 0..all {
            if n == all / 2 {
                half = env.now();
            }
            let account = rng.below(accounts);
            db.read(account).await.map_err(text)?;
            env.sleep(WORK).await;
            db.write(account).await.map_err(text)?;
            if n % 64 == 0 {
                history = if history + 1 == blocks { accounts } else { history + 1 };
                db.write(history).await.map_err(text)?;
            }
        }
        let secs = env.now().since(half).0 as f64 / 1e9;
        Ok((all - all / 2) as f64 / secs)
    })
}

/// The experiment.
pub(super) fn tpcb(scale: Scale) -> Result<Findings, String> {
    let full = scale.pick(vec![20, 48, 60, 75, 85, 95], vec![20, 48]);
    let disk_bytes = scale.pick(256 << 20, 64 << 20);
    // The log goes round the disk before the half that counts, and again in it.
    let rounds = scale.pick(2.4, 1.6);
    let mut jobs = Vec::new();
    for &full in &full {
        jobs.extend(SYSTEMS.map(|(_, system)| Job { disk_bytes, full, system, rounds }));
    }
    let did: Vec<f64> = cores::each(&jobs, run).into_iter().collect::<Result<_, _>>()?;
    let rows: Vec<&[f64]> = did.chunks(SYSTEMS.len()).collect();
    let mut f = Findings::default();
    let columns: Vec<&str> = ["% full"].into_iter().chain(SYSTEMS.map(|s| s.0)).collect();
    let mut t = Table::new("Transactions a second", &columns);
    for (full, row) in full.iter().zip(&rows) {
        let cells = row.iter().map(|x| format!("{x:.1}"));
        t.row([full.to_string()].into_iter().chain(cells).collect());
    }
    f.tables.push(t);
    did.iter().for_each(|x| f.note(x.to_bits()));
    let half = rows[1];
    let what = "a log without a cleaner beside in place, 48 % full";
    let why = "an access is saved for each transaction; indirect blocks and inodes, which the \
               paper's log writes with each flush, are not in a store of blocks";
    f.claim(Stated::times(15, what, 1.5).because(why), half[UNCLEANED] / half[IN_PLACE]);
    let what = "a log cleaned by cost-benefit beside one without a cleaner, 48 % full";
    let why = "victims are hardly half full, and reading one takes a single access: a cleaner that \
               waits for nothing else costs an eighth; the paper's reads segment by segment, in \
               a process of its own";
    let stated = Stated::times(16, what, 0.66).stands(Verdict::Contradicted);
    f.claim(stated.because(why), half[BSD] / half[UNCLEANED]);
    let what = "in place, the fullest beside the emptiest";
    let why = "no arm goes further for being full, but for the length of the file";
    let last = rows[rows.len() - 1][IN_PLACE];
    let stated = Stated::equal(17, what).stands(Verdict::Contradicted);
    f.claim(stated.because(why), last / rows[0][IN_PLACE]);
    let what = "our own goal: our log with its cleaner beside in place, 48 % full";
    let why = "the cleaner takes less than what a log saves";
    f.claim(Stated::between(0, what, (1.0, 3.0)).because(why), half[OURS] / half[IN_PLACE]);
    Ok(f)
}
