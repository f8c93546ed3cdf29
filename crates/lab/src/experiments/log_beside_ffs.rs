//! A volume in a log-structured store beside the same in place, file size by file size
//! (seltzer-1995, section 3): making files, reading them in the order in which they were made,
//! writing over them and removing them, with names that wait for the disk in place and without. The
//! store is the one that is served; it makes durable what nobody waits for some 10 ms later, where
//! the paper's keeps it for 30 s.

use super::by_size::{Amount, Did, Made, REQUEST, make, run, write};
use super::report::{Findings, Table};
use super::rig::{Machine, Rig};
use super::seltzer::Rate;
use super::verdict::{Stated, Verdict};
use super::{Scale, cores, rz26};
use crate::subject::Setting;
use env::Nanos;
use std::cell::RefCell;
use std::rc::Rc;
use volume::{Commit, Mode};

const SIZES_KB: [u64; 9] = [1, 4, 16, 48, 64, 128, 512, 1024, 4096];
const FEW_KB: [u64; 3] = [1, 64, 1024];

/// What a call costs the processor: Sprite's log made 155 files a second at its processor's speed,
/// in three calls each, on a machine half as fast.
pub(super) const WORK: Nanos = Nanos::from_micros(1000);

const IN_PLACE: usize = 0;
const LOG: usize = 2;

fn systems() -> [(&'static str, Setting); 3] {
    let log = Setting { commit: Commit::Async, ..Setting::plain(Mode::Lfs) };
    let [sync, later] = [Mode::Sync, Mode::Async].map(Setting::plain);
    [("ffs", sync), ("ffs-async", later), ("lfs", log)]
}

fn machine() -> Machine {
    Machine {
        disk: rz26,
        log: rz26,
        bytes: (900 << 20, 64 << 20),
        cache_bytes: 16 << 20,
        inodes: 16_384,
    }
}

/// Files that are there are read and written over, by who has nothing in memory.
struct Used {
    read: Rate,
    overwritten: Rate,
}

fn used(on: &Machine, setting: Setting, size_kb: u64, amount: Amount) -> Result<Used, String> {
    let (files, bytes) = (amount.files(size_kb), size_kb << 10);
    let mb = (files * bytes) as f64 / 1e6;
    let made: Rc<RefCell<Made>> = Rc::default();
    let mut rig = Rig::new(on, setting)?;
    let into = made.clone();
    Rate::of(&mut rig, mb, async move |c| {
        let made = make(&c, files, bytes).await?;
        into.replace(made);
        Ok(())
    })?;
    let mut rig = rig.reopened(on, setting)?;
    rig.set_work(WORK);
    let of = made.clone();
    let read = Rate::of(&mut rig, mb, async move |c| {
        let all = of.borrow().files.clone();
        for ino in all {
            for at in (0..bytes).step_by(REQUEST as usize) {
                c.read_at(ino, (at, REQUEST.min(bytes - at))).await?;
            }
        }
        Ok(())
    })?;
    let mut rig = rig.reopened(on, setting)?;
    rig.set_work(WORK);
    let overwritten = Rate::of(&mut rig, mb, async move |c| {
        for ino in made.take().files {
            write(&c, ino, bytes).await?;
        }
        c.sync_all().await
    })?;
    Ok(Used { read, overwritten })
}

/// The experiment.
pub(super) fn by_size(scale: Scale) -> Result<Findings, String> {
    let sizes = scale.pick(&SIZES_KB[..], &FEW_KB[..]);
    let amount =
        scale.pick(Amount { data_kb: 8 << 10, least: 32 }, Amount { data_kb: 400, least: 20 });
    let systems = systems();
    let jobs: Vec<(usize, u64)> =
        (0..systems.len()).flat_map(|s| sizes.iter().map(move |kb| (s, *kb))).collect();
    let machine = machine();
    let did = cores::each(&jobs, |(s, kb)| {
        let setting = systems[*s].1;
        let did = run((&machine, WORK), setting, *kb, amount)?;
        Ok::<_, String>((did, used(&machine, setting, *kb, amount)?))
    });
    let did: Vec<(Did, Used)> = did.into_iter().collect::<Result<_, _>>()?;
    let mut f = Findings::default();
    for (d, u) in &did {
        f.note(d.creates.note ^ d.deletes.note);
        f.note(u.read.note ^ u.overwritten.note);
    }
    let heads: Vec<String> = sizes.iter().map(|kb| format!("{kb} KB")).collect();
    let columns: Vec<&str> = ["system"].into_iter().chain(heads.iter().map(|h| &h[..])).collect();
    let mut table = |title: &str, cell: fn(&(Did, Used)) -> String| {
        let mut t = Table::new(title, &columns);
        for ((name, _), row) in systems.iter().zip(did.chunks(sizes.len())) {
            t.row([(*name).to_owned()].into_iter().chain(row.iter().map(cell)).collect());
        }
        f.tables.push(t);
    };
    table("Files made, MB/s", |(d, _)| format!("{:.3}", d.creates.per_sec));
    table("Files read, MB/s", |(_, u)| format!("{:.3}", u.read.per_sec));
    table("Requests written while files are read for the first time", |(_, u)| {
        u.read.writes.to_string()
    });
    table("Files written over, MB/s", |(_, u)| format!("{:.3}", u.overwritten.per_sec));
    table("Files removed, in a second", |(d, _)| format!("{:.1}", d.deletes.per_sec));
    let beside = |kb: u64, of: fn(&(Did, Used)) -> f64| {
        let n = sizes.iter().position(|s| *s == kb).expect("it was run");
        of(&did[LOG * sizes.len() + n]) / of(&did[IN_PLACE * sizes.len() + n])
    };
    let made = |kb| beside(kb, |d| d.0.creates.per_sec);
    let removed = |kb| beside(kb, |d| d.0.deletes.per_sec);
    claims(&mut f, (made(1), made(1024)), (removed(1), removed(64)));
    let largest = sizes[sizes.len() - 1];
    let what = "the largest files written over: lfs beside ffs, which the paper has tuned for this";
    let why = "a partial segment goes out in one transfer; the paper's log loses a turn of the \
               disk with each 64 KB, which is its whole difference";
    let stated = Stated::times(14, what, 0.87).stands(Verdict::Contradicted);
    f.claim(stated.because(why), beside(largest, |d| d.1.overwritten.per_sec));
    let what = "the largest files read: lfs beside ffs, which the paper has tuned for writing";
    let why = "ours is not tuned for writing at the cost of reading: it lies in one piece, as the \
               paper's does that is tuned for reading, which it finds equal";
    let stated = Stated::times(14, what, 1.33).stands(Verdict::Contradicted);
    f.claim(stated.because(why), beside(largest, |d| d.1.read.per_sec));
    Ok(f)
}

/// What the paper says of small files, and of their ends.
fn claims(f: &mut Findings, (made_1, made_1024): (f64, f64), (removed_1, removed_64): (f64, f64)) {
    let why = "nobody waits for a name in the log, but each call takes the processor a millisecond \
               here; in place each name waits for several turns";
    let stated = Stated::times(12, "files of 1 KB made: lfs beside ffs", 10.0);
    f.claim(stated.because(why), made_1);
    let why = "contents weigh most; what is left in place is a wait for each name and length";
    let stated = Stated::equal(12, "files of 1 MB made: lfs beside ffs");
    f.claim(stated.stands(Verdict::Contradicted).because(why), made_1024);
    let why = "as of making them; a name in place is more turns here than there";
    let what = "files of 1 KB removed: lfs beside ffs";
    f.claim(Stated::times(13, what, 10.0).because(why), removed_1);
    let what = "files of 64 KB removed: lfs beside ffs";
    let stated = Stated::times(13, what, 10.0).stands(Verdict::Contradicted);
    let why = "each has an indirect block here, of blocks of 4 KB, which is read first, and \
               between two reads the arm goes to the log, which is made durable every 10 ms; the \
               paper's waits for 30 s, and its blocks of 8 KB need no indirect one before 96 KB";
    f.claim(stated.because(why), removed_64);
}
