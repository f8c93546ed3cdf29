//! One client that makes and removes small files on the disks of seltzer-2000, with a log on the
//! same disk or on a second one, synchronous or not, beside FFS with ordered synchronous metadata
//! and FFS without any order. There is no processor in it: where the paper's was the limit, the
//! rates here are higher.

use super::report::{Findings, Table};
use super::rig::{Caller, Machine, ROOT, Rig, secs};
use super::{Scale, cheetah_9lp};
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
    let mut rig = Rig::new(&machine(), setting)?;
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
    let mut rig = Rig::new(&machine(), setting)?;
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

fn machine() -> Machine {
    Machine {
        disk: cheetah_9lp,
        log: cheetah_9lp,
        bytes: (9 << 30, 128 << 20),
        cache_bytes: 64 << 20,
        inodes: 65_536,
    }
}

/// The experiment.
pub(super) fn second_disk(scale: Scale) -> Result<Findings, String> {
    let (files, count) = scale.pick((2048, 5000), (400, 300));
    let mut f = Findings::default();
    let title = format!("{files} files of 64 KB; {count} files of no bytes, made and removed");
    let mut t = Table::new(&title, &["system", "MB/s", "pairs a second"]);
    let mut mb = BTreeMap::new();
    let mut rates = BTreeMap::new();
    for (name, setting) in systems() {
        let rate = files as f64 * 0.065_536 / creates(setting, files, &mut f)?;
        let pair = pairs(setting, count, &mut f)?;
        t.row(vec![name.into(), format!("{rate:.2}"), format!("{pair:.0}")]);
        mb.insert(name, rate);
        rates.insert(name, pair);
    }
    f.tables.push(t);
    let times = mb["lffs-wafs-2sync"] / mb["lffs-wafs-1sync"];
    let text = format!("{times:.2} times");
    f.claim("a synchronous log: the second disk matters, 1.25 times and more", text, times >= 1.25);
    let times = mb["lffs-wafs-2async"] / mb["lffs-wafs-1async"];
    let text = format!("{times:.2} times");
    f.claim("an asynchronous log: it does not, less than 1.15 times", text, times < 1.15);
    let share = mb["lffs-wafs-1async"] / mb["ffs-async"];
    let text = format!("{share:.2} of it");
    f.claim("asynchronous logs come near FFS-async, 0.85 of it and more", text, share >= 0.85);
    let times = mb["lffs-wafs-1sync"] / mb["ffs"];
    let text = format!("{times:.2} times");
    f.claim("a synchronous log on the same disk is no slower than FFS", text, times >= 1.0);
    let share = rates["lffs-wafs-2sync"] / rates["ffs-async"];
    let text = format!("{:.1} % of FFS-async", 100.0 * share);
    f.claim("pairs: whoever is synchronous is below 5 % of who is not", text, share < 0.05);
    Ok(f)
}
