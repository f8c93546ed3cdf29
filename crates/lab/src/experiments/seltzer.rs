//! The systems of seltzer-2000 on its disks, as they are here, and what one of them did of a
//! workload. The processor takes the same for each call in all of them: what the paper's logs cost
//! its processor is not in here, so the disks' writes stand beside the rates.
//!
//! Invariants:
//! * T1. A rate is of something that was done in some time, and what was written took writes.
//! * T2. No two systems have one name.

use super::cheetah_9lp;
use super::latency::{Latency, Op};
use super::rig::{Caller, Machine, Rig, secs};
use super::verdict::Stated;
use crate::subject::Setting;
use env::Nanos;
use vfs::FsError;
use volume::{Commit, Mode};

pub(super) const FFS: &str = "ffs";
pub(super) const ASYNC: &str = "ffs-async";
pub(super) const SOFT: &str = "soft-updates";
pub(super) const SYNC1: &str = "lffs-wafs-1sync";
pub(super) const SYNC2: &str = "lffs-wafs-2sync";
pub(super) const ASYNC1: &str = "lffs-wafs-1async";
pub(super) const ASYNC2: &str = "lffs-wafs-2async";

/// The log in a file of the file system. Here it is in blocks of the volume too, as that of
/// [`ASYNC1`] is: the paper's two differ by what its log apart costs the processor.
pub(super) const FILE: &str = "lffs-file";

/// The name by which a system of the paper was run.
pub(super) fn run_as(system: &'static str) -> &'static str {
    if system == FILE { ASYNC1 } else { system }
}

/// The paper's names, and what they are here.
pub(super) fn systems() -> [(&'static str, Setting); 7] {
    let log = |outside, commit| Setting { outside, commit, ..Setting::plain(Mode::Redo) };
    let all = [
        (FFS, Setting::plain(Mode::Sync)),
        (ASYNC, Setting::plain(Mode::Async)),
        (SOFT, Setting::plain(Mode::SoftUpdates)),
        (SYNC1, log(false, Commit::Sync)),
        (SYNC2, log(true, Commit::Sync)),
        (ASYNC1, log(false, Commit::Async)),
        (ASYNC2, log(true, Commit::Async)),
    ];
    let twice = |n: usize| all[..n].iter().any(|(name, _)| *name == all[n].0);
    assert!(!(0..all.len()).any(twice), "T2: one name for two systems");
    all
}

/// What a system did of a workload in a second, and what it asked of the disks.
pub(super) struct Rate {
    pub(super) per_sec: f64,
    pub(super) writes: u64,
    pub(super) wait: Latency,
    pub(super) note: u64,
}

impl Rate {
    /// Runs it; it does `amount`.
    pub(super) fn of<F>(rig: &mut Rig, amount: f64, work: F) -> Result<Rate, String>
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
        let bytes = volume.write_bytes + log.write_bytes;
        assert!(amount > 0.0 && took > Nanos(0), "T1: {amount} in {took:?}");
        assert!((writes == 0) == (bytes == 0), "T1: {bytes} bytes in {writes} writes");
        Ok(Rate { per_sec: amount / secs(took), writes, wait, note: took.0 })
    }
}

/// What each call costs the processor: FFS-async makes and removes 9,142 empty files a second in
/// the paper, which is its processor's doing.
pub(super) const WORK: Nanos = Nanos::from_micros(55);

/// 512 MB in the paper, of which it uses an unknown part for blocks.
pub(super) fn machine(cache_bytes: u64) -> Machine {
    Machine {
        disk: cheetah_9lp,
        log: cheetah_9lp,
        bytes: (8 << 30, 128 << 20),
        cache_bytes: cache_bytes as usize,
        inodes: 65_536,
    }
}

/// A new volume, whose processor is the paper's.
pub(super) fn new_rig(machine: &Machine, setting: Setting) -> Result<Rig, String> {
    let mut rig = Rig::new(machine, setting)?;
    rig.set_work(WORK);
    Ok(rig)
}

/// A ratio of the paper's: where it is near one, the paper says that there is no difference.
pub(super) fn ratio(number: u32, what: String, paper: f64) -> Stated {
    if (0.95..1.05).contains(&paper) {
        Stated::equal(number, what).valued(paper)
    } else {
        Stated::times(number, what, paper)
    }
}
