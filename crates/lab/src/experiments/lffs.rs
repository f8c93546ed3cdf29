//! One client that makes and removes small files on the disks of seltzer-2000, with a log on the
//! same disk or on a second one, synchronous or not, beside FFS with ordered synchronous metadata
//! and FFS without any order. There is no processor in it: where the paper's was the limit, the
//! rates here are higher.

use super::mail::{Pool, Way, thread};
use super::report::{Findings, Table};
use super::rig::{Caller, Machine, ROOT, Rig, secs};
use super::{Scale, cheetah_9lp};
use crate::postmark::Parameters;
use crate::subject::Setting;
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

/// Makes `files` files of 64 KB, 50 in a directory; seconds until all are on the disk.
fn creates(setting: Setting, files: u64, f: &mut Findings) -> Result<f64, String> {
    let mut rig = Rig::new(&machine(64 << 20), setting)?;
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
    let took = rig.callers(false, [work])?;
    f.note(took.0);
    Ok(secs(took))
}

/// Makes files of no bytes and removes each at once; pairs a second.
fn pairs(setting: Setting, pairs: u64, f: &mut Findings) -> Result<f64, String> {
    let mut rig = Rig::new(&machine(64 << 20), setting)?;
    let work = async move |c: Caller| -> Result<(), FsError> {
        for n in 0..pairs {
            c.create(ROOT, &format!("f{n}")).await?;
            c.unlink(ROOT, &format!("f{n}")).await?;
        }
        c.sync_all().await
    };
    let took = rig.callers(false, [work])?;
    f.note(took.0);
    Ok(pairs as f64 / secs(took))
}

/// As many as the paper had scripts of SDET in the middle of its range.
const CLIENTS: u64 = 10;

/// PostMark with several clients; half of its files fit into memory, as of the paper's large ones;
/// transactions a second.
fn mail(setting: Setting, (files, count): (u64, u64), f: &mut Findings) -> Result<f64, String> {
    let told = Parameters { files, bytes: (512, 16_384), reads: 5, creates: 5 };
    // Files have 8.3 KB on average, and 10.2 KB in blocks.
    let mut rig = Rig::new(&machine(files * 5120), setting)?;
    let pool = Pool::shared(told);
    let client = || {
        let pool = pool.clone();
        async move |c: Caller| -> Result<(), FsError> {
            thread(c.clone(), pool, Way { request: 1 << 20, sync: false }).await?;
            c.sync_all().await
        }
    };
    rig.callers(false, [client()])?;
    pool.borrow_mut().transactions = count;
    let took = rig.callers(false, (0..CLIENTS).map(|_| client()))?;
    f.note(took.0);
    Ok(count as f64 / secs(took))
}

fn machine(cache_bytes: u64) -> Machine {
    Machine {
        disk: cheetah_9lp,
        log: cheetah_9lp,
        bytes: (9 << 30, 128 << 20),
        cache_bytes: cache_bytes as usize,
        inodes: 65_536,
    }
}

/// The experiment.
pub(super) fn second_disk(scale: Scale) -> Result<Findings, String> {
    let (files, count) = scale.pick((2048, 5000), (400, 100));
    let post = scale.pick((12_000, 6000), (1000, 300));
    let mut f = Findings::default();
    let title = format!(
        "{files} files of 64 KB; PostMark of {CLIENTS} clients, {} files; {count} empty files, \
         made and removed",
        post.0
    );
    let columns = ["system", "MB/s", "transactions a second", "pairs a second"];
    let mut t = Table::new(&title, &columns);
    let mut all: BTreeMap<&str, [f64; 3]> = BTreeMap::new();
    for (name, setting) in systems() {
        let mb = files as f64 * 0.065_536 / creates(setting, files, &mut f)?;
        let (post, pair) = (mail(setting, post, &mut f)?, pairs(setting, count, &mut f)?);
        t.row(vec![name.into(), format!("{mb:.2}"), format!("{post:.0}"), format!("{pair:.0}")]);
        all.insert(name, [mb, post, pair]);
    }
    f.tables.push(t);
    claims(scale, &all, &mut f);
    Ok(f)
}

fn claims(scale: Scale, all: &BTreeMap<&str, [f64; 3]>, f: &mut Findings) {
    const CREATES: usize = 0;
    const MAIL: usize = 1;
    const PAIRS: usize = 2;
    // What is the same for each system, as reading bitmaps first, weighs more in a short run.
    let (matters, matters_not, near) = scale.pick((1.25, 1.1, 0.85), (1.15, 1.2, 0.75));
    let times = |what: usize, a: &str, b: &str| all[a][what] / all[b][what];
    let n = times(MAIL, "lffs-wafs-2sync", "lffs-wafs-1sync");
    let what =
        format!("PostMark, a synchronous log: the second disk matters, {matters} times and more");
    f.claim(what, format!("{n:.2} times"), n >= matters);
    for (name, what) in [("files of 64 KB", CREATES), ("PostMark", MAIL)] {
        let n = times(what, "lffs-wafs-2async", "lffs-wafs-1async");
        let claim =
            format!("{name}, an asynchronous log: it does not, less than {matters_not} times");
        f.claim(claim, format!("{n:.2} times"), n < matters_not);
        let n = times(what, "lffs-wafs-1async", "ffs-async");
        let claim = format!("{name}, asynchronous logs come near FFS-async, {near} of it and more");
        f.claim(claim, format!("{n:.2} of it"), n >= near);
        let (a, b) =
            (times(what, "lffs-wafs-1sync", "ffs"), times(what, "lffs-wafs-1async", "ffs"));
        let claim = format!("{name}: FFS is behind every log");
        f.claim(claim, format!("{a:.2} and {b:.2} times as fast"), a > 1.0 && b > 1.0);
    }
    let n = times(PAIRS, "lffs-wafs-2sync", "ffs-async");
    let what = "pairs: whoever is synchronous is below 5 % of who is not";
    f.claim(what, format!("{:.1} % of FFS-async", 100.0 * n), n < 0.05);
}
