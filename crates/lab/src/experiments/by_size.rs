//! Making and removing files of one size after another (seltzer-2000, figures 1 and 2): 50 in a
//! directory, in a fixed order, with cold caches. Blocks are of 4 KB here, so that a file has its
//! first indirect block from 52 KB on, and not from 104 KB.

use super::report::{Findings, Table};
use super::rig::{Caller, Machine, ROOT, Rig};
use super::seltzer::{
    ASYNC, ASYNC1, ASYNC2, FFS, Rate, SOFT, SYNC1, SYNC2, WORK, machine, ratio, systems,
};
use super::verdict::Verdict;
use super::{Scale, cores};
use crate::subject::Setting;
use env::Nanos;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use vfs::FsError;

/// The largest file without an indirect block, and the smallest with one, in KB.
const DIRECT_KB: u64 = 48;
const INDIRECT_KB: u64 = 52;

const SIZES_KB: [u64; 15] =
    [2, 4, 8, 16, 32, DIRECT_KB, INDIRECT_KB, 64, 96, 104, 128, 256, 512, 1024, 4096];
const FEW_KB: [u64; 4] = [2, DIRECT_KB, INDIRECT_KB, 1024];

/// A request of a larger write.
pub(super) const REQUEST: u64 = 1 << 20;

/// So many files: `data_kb` altogether, or the least number.
#[derive(Clone, Copy)]
pub(super) struct Amount {
    pub(super) data_kb: u64,
    pub(super) least: u64,
}

impl Amount {
    pub(super) fn files(self, size_kb: u64) -> u64 {
        (self.data_kb / size_kb).max(self.least)
    }
}

/// What one system did with files of one size.
pub(super) struct Did {
    pub(super) creates: Rate,
    pub(super) deletes: Rate,
}

/// The n-th file's name, and whether it is the first of a directory.
fn place(n: u64) -> (String, String, bool) {
    (format!("d{}", n / 50), format!("f{n}"), n.is_multiple_of(50))
}

/// What was made: directories of 50 files each, and the files.
#[derive(Default)]
pub(super) struct Made {
    dirs: Vec<u32>,
    pub(super) files: Vec<u32>,
}

/// Makes so many files of so many bytes, and all of it durable.
pub(super) async fn make(c: &Caller, files: u64, bytes: u64) -> Result<Made, FsError> {
    let (mut made, mut dir) = (Made::default(), ROOT);
    for n in 0..files {
        let (dir_name, name, first) = place(n);
        if first {
            dir = c.mkdir(ROOT, &dir_name).await?;
            made.dirs.push(dir);
        }
        let ino = c.create(dir, &name).await?;
        write(c, ino, bytes).await?;
        made.files.push(ino);
    }
    c.sync_all().await?;
    Ok(made)
}

/// Writes a file from front to back.
pub(super) async fn write(c: &Caller, ino: u32, bytes: u64) -> Result<(), FsError> {
    for at in (0..bytes).step_by(REQUEST as usize) {
        c.write(ino, (at, REQUEST.min(bytes - at)), false).await?;
    }
    Ok(())
}

/// On this machine, with a processor that works for so long at each call.
pub(super) fn run(
    (machine, work): (&Machine, Nanos),
    setting: Setting,
    size_kb: u64,
    amount: Amount,
) -> Result<Did, String> {
    let mut rig = Rig::new(machine, setting)?;
    rig.set_work(work);
    let (files, bytes) = (amount.files(size_kb), size_kb << 10);
    let made: Rc<RefCell<Made>> = Rc::default();
    let into = made.clone();
    let creates = Rate::of(&mut rig, (files * bytes) as f64 / 1e6, async move |c| {
        let made = make(&c, files, bytes).await?;
        into.replace(made);
        Ok(())
    })?;
    let mut rig: Rig = rig.reopened(machine, setting)?;
    let dirs = made.take().dirs;
    let deletes = Rate::of(&mut rig, files as f64, async move |c| -> Result<(), FsError> {
        for n in 0..files {
            c.unlink(dirs[(n / 50) as usize], &place(n).1).await?;
        }
        Ok(())
    })?;
    Ok(Did { creates, deletes })
}

/// The experiment.
pub(super) fn by_size(scale: Scale) -> Result<Findings, String> {
    let sizes = scale.pick(&SIZES_KB[..], &FEW_KB[..]);
    let amount =
        scale.pick(Amount { data_kb: 32 << 10, least: 64 }, Amount { data_kb: 400, least: 30 });
    let systems = systems();
    let jobs: Vec<(usize, u64)> =
        (0..systems.len()).flat_map(|s| sizes.iter().rev().map(move |kb| (s, *kb))).collect();
    let on = (&machine(256 << 20), WORK);
    let did = cores::each(&jobs, |(s, kb)| run(on, systems[*s].1, *kb, amount));
    let mut f = Findings::default();
    let mut all: BTreeMap<(&str, u64), Did> = BTreeMap::new();
    for ((s, kb), one) in jobs.iter().zip(did) {
        let one = one?;
        f.note(one.creates.note ^ one.deletes.note);
        all.insert((systems[*s].0, *kb), one);
    }
    let heads: Vec<String> = sizes.iter().map(|kb| format!("{kb} KB")).collect();
    let columns: Vec<&str> = ["system"].into_iter().chain(heads.iter().map(|h| &h[..])).collect();
    let mut table = |title: &str, cell: fn(&Did) -> String| {
        let mut t = Table::new(title, &columns);
        for (name, _) in &systems {
            let cells = sizes.iter().map(|kb| cell(&all[&(*name, *kb)]));
            t.row([(*name).to_owned()].into_iter().chain(cells).collect());
        }
        f.tables.push(t);
    };
    table("Files made, MB/s", |d| format!("{:.2}", d.creates.per_sec));
    table("Files removed, in a second", |d| format!("{:.0}", d.deletes.per_sec));
    table("Writes to the disks while they were made, and until the last was removed", |d| {
        format!("{} / {}", d.creates.writes, d.deletes.writes)
    });
    claims(&all, &mut f);
    Ok(f)
}

/// A claim of figure 1: its number, a size, what is compared with what, the paper's value, what we
/// find, and why.
struct Told(u32, u64, [&'static str; 2], f64, Verdict, &'static str);

/// Of figure 2: a system, how many times as fast it removes files of the second size as of the
/// first, what we find, and why.
struct Falls(&'static str, [u64; 2], f64, Verdict, &'static str);

fn claims(all: &BTreeMap<(&str, u64), Did>, f: &mut Findings) {
    for Told(number, kb, [a, b], paper, stands, why) in &CREATES {
        let (Some(x), Some(y)) = (all.get(&(*a, *kb)), all.get(&(*b, *kb))) else { continue };
        let what = format!("made, {kb} KB: {a} beside {b}");
        let stated = ratio(*number, what, *paper);
        f.claim(stated.stands(*stands).because(*why), x.creates.per_sec / y.creates.per_sec);
    }
    for Falls(name, [from, to], paper, stands, why) in &FALLS {
        let (Some(x), Some(y)) = (all.get(&(*name, *from)), all.get(&(*name, *to))) else {
            continue;
        };
        let what = format!("removed by {name}: files of {to} KB beside files of {from} KB");
        let stated = ratio(5, what, *paper);
        f.claim(stated.stands(*stands).because(*why), y.deletes.per_sec / x.deletes.per_sec);
    }
}

const OK: Verdict = Verdict::Reproduced;
const LESS: Verdict = Verdict::Weaker;
const NOT: Verdict = Verdict::Contradicted;

const WAVES: &str = "soft updates write what an unordered system writes, and some blocks twice";
const TURNS: &str = "each name waits for its inode: turns of the disk, whatever the size";
const LONG: &str = "contents weigh most, and go out in the same way in all of them";
const NOBODY: &str = "nobody waits for the blocks of a removed file: they are given back behind";
const READ: &str = "whoever removes the file reads its indirect block first";

const LENGTHS: &str = "in place each length waits for its contents and for the inode before it, \
                       which the log has in one write";
const FEW: &str = "there are 64 of the large ones: the first reads of cold directories and inodes \
                   weigh more on each";
const WAITS: &str = "the read is added to a wait for the log, where the paper has another \
                     synchronous write";

const CREATES: [Told; 10] = [
    Told(1, 2, [SOFT, ASYNC], 1.26 / 1.61, OK, WAVES),
    Told(1, 16, [SOFT, ASYNC], 8.38 / 8.98, OK, WAVES),
    Told(1, 2, [ASYNC2, ASYNC], 1.51 / 1.61, OK, LONG),
    Told(1, 2, [FFS, ASYNC], 0.21 / 1.61, OK, TURNS),
    Told(1, 64, [FFS, ASYNC], 3.73 / 18.08, OK, TURNS),
    Told(3, 1024, [FFS, SYNC1], 11.70 / 11.26, NOT, LENGTHS),
    Told(4, 2, [ASYNC2, SYNC2], 1.51 / 0.31, OK, TURNS),
    Told(4, 4096, [ASYNC2, SYNC2], 15.86 / 15.90, OK, LONG),
    Told(1, 4096, [SOFT, ASYNC], 15.41 / 15.81, OK, LONG),
    Told(1, 4096, [FFS, ASYNC], 14.32 / 15.81, OK, LONG),
];

const FALLS: [Falls; 6] = [
    Falls(SOFT, [DIRECT_KB, INDIRECT_KB], 3.60 / 3.61, OK, NOBODY),
    Falls(SOFT, [2, 1024], 3.88 / 3.16, NOT, FEW),
    Falls(ASYNC, [DIRECT_KB, INDIRECT_KB], 0.41 / 2.48, LESS, READ),
    Falls(ASYNC1, [DIRECT_KB, INDIRECT_KB], 0.39 / 1.87, OK, READ),
    Falls(ASYNC2, [DIRECT_KB, INDIRECT_KB], 0.40 / 1.87, OK, READ),
    Falls(SYNC1, [DIRECT_KB, INDIRECT_KB], 0.05 / 0.14, NOT, WAITS),
];
