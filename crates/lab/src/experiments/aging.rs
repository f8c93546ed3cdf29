//! What age costs a volume in place (seltzer-1995, section 5): volumes that files come to and go
//! from, by three habits and more or less full, until their free space is in pieces; then files of
//! three sizes are made in it and read, beside the same on an empty volume. The paper laid the free
//! blocks of its authors' file servers out anew; here they come of a seed, and the files that lie
//! between them are there.

use super::aged::{Habit, Kind, aged, empty, in_use};
use super::by_size::{Made, REQUEST, make};
use super::log_beside_ffs::WORK;
use super::report::{Findings, Table};
use super::rig::{Machine, Rig};
use super::seltzer::Rate;
use super::verdict::{Stated, Verdict};
use super::{Scale, cores, m2694};
use crate::subject::{Setting, SimDevice};
use sim::Image;
use std::cell::RefCell;
use std::rc::Rc;
use volume::{Layout, Mode};

/// Of 100 blocks, so many are in use.
const FULL: [u64; 5] = [20, 40, 60, 75, 90];
const SIZES_KB: [u64; 3] = [16, 64, 1024];

/// The paper's FFS waits for names; without that, what is left is how the blocks lie.
const MODES: [(&str, Mode); 2] = [("ffs", Mode::Sync), ("ffs-async", Mode::Async)];
const FFS: usize = 0;
const ASYNC: usize = 1;

fn machine(bytes: u64) -> Machine {
    let inodes = (bytes / 4096) as u32;
    Machine { disk: m2694, log: m2694, bytes: (bytes, 0), cache_bytes: 16 << 20, inodes }
}

/// Files of one size, made and read: MB a second, and how they lie.
struct Test {
    made: Rate,
    read: Rate,
    lie: Layout,
}

impl Test {
    /// Made, read.
    fn rates(&self) -> [f64; 2] {
        [self.made.per_sec, self.read.per_sec]
    }
}

fn lie(disk: &Image, files: &[u32]) -> Result<Layout, String> {
    volume::layout_of(&SimDevice(disk.clone()), files).map_err(|e| e.to_string())
}

fn test(on: &Machine, disk: &Image, mode: Mode, (kb, data_kb): (u64, u64)) -> Result<Test, String> {
    let (files, bytes) = (data_kb / kb, kb << 10);
    assert!(files > 0, "there is a file of {kb} KB in {data_kb} KB");
    let mb = (files * bytes) as f64 / 1e6;
    let setting = Setting::plain(mode);
    let open = |disks| -> Result<Rig, String> {
        let mut rig = Rig::over(on, setting, disks, |o| o)?;
        rig.set_work(WORK);
        Ok(rig)
    };
    let made: Rc<RefCell<Made>> = Rc::default();
    let mut rig = open(vec![disk.clone()])?;
    let into = made.clone();
    let created = Rate::of(&mut rig, mb, async move |c| {
        let made = make(&c, files, bytes).await?;
        into.replace(made);
        Ok(())
    })?;
    let disks = rig.closed()?;
    let lie = lie(&disks[0], &made.borrow().files)?;
    let mut rig = open(disks)?;
    let read = Rate::of(&mut rig, mb, async move |c| {
        for ino in made.take().files {
            for at in (0..bytes).step_by(REQUEST as usize) {
                c.read_at(ino, (at, REQUEST.min(bytes - at))).await?;
            }
        }
        Ok(())
    })?;
    Ok(Test { made: created, read, lie })
}

/// A volume and what was found on it.
struct Did {
    /// Of 100 blocks so many are in use.
    full: f64,
    /// Files, and how they and free space lie.
    files: u64,
    layout: Layout,
    /// By mode, then by size.
    tests: Vec<Test>,
}

impl Did {
    fn of(&self, mode: usize, size: usize) -> &Test {
        &self.tests[mode * SIZES_KB.len() + size]
    }

    /// What is left of the empty volume's rates: by size, made and read.
    fn left(&self, empty: &Did, mode: usize) -> [[f64; 2]; 3] {
        [0, 1, 2].map(|size| {
            let (ours, theirs) = (self.of(mode, size).rates(), empty.of(mode, size).rates());
            [ours[0] / theirs[0], ours[1] / theirs[1]]
        })
    }
}

/// What is run: an empty volume, or a habit at a fullness.
type Job = Option<(&'static Habit, u64)>;

fn run(job: &Job, bytes: u64, data_kb: u64) -> Result<Did, String> {
    let on = machine(bytes);
    let new = empty(&on);
    let (disk, files) = match job {
        None => (new.clone(), 0),
        Some((habit, full)) => aged(&on, new.clone(), habit, *full)?,
    };
    let layout = volume::layout(&SimDevice(disk.clone()), 1 << 20).map_err(|e| e.to_string())?;
    let mut tests = Vec::new();
    for (_, mode) in MODES {
        for kb in SIZES_KB {
            tests.push(test(&on, &disk, mode, (kb, data_kb))?);
        }
    }
    Ok(Did { full: in_use(&new, &disk)?, files, layout, tests })
}

/// All that was run.
struct All {
    full: Vec<u64>,
    empty: Did,
    /// By habit, then by fullness.
    aged: Vec<Did>,
}

impl All {
    fn rows(&self) -> impl Iterator<Item = (&'static Habit, u64, &Did)> {
        let of = Habit::ALL.iter().flat_map(move |h| self.full.iter().map(move |full| (h, *full)));
        of.zip(&self.aged).map(|((h, full), did)| (h, full, did))
    }

    /// Every ratio to the empty volume of a mode that is asked for.
    fn left(&self, mode: usize, which: impl Fn(Kind, u64) -> bool) -> Vec<f64> {
        let rows = self.rows().filter(|(h, full, _)| which(h.kind, *full));
        rows.flat_map(|(.., did)| did.left(&self.empty, mode).into_iter().flatten()).collect()
    }

    fn lying(&self, f: &mut Findings) {
        let columns = [
            "volume",
            "% full",
            "files",
            "layout score",
            "pieces a file",
            "free runs",
            "KiB of a run",
        ];
        let mut t = Table::new("Aged volumes: how files lie, and what is free", &columns);
        let number = |n: Option<f64>| n.map_or_else(String::new, |n| format!("{n:.2}"));
        let mut row = |name: &str, did: &Did| {
            let l = &did.layout;
            t.row(vec![
                name.to_owned(),
                format!("{:.0}", did.full),
                did.files.to_string(),
                number(l.score),
                number(l.extents_a_file),
                l.free_fragments.to_string(),
                (l.free_fragment_bytes >> 10).to_string(),
            ]);
        };
        row("empty", &self.empty);
        self.rows().for_each(|(h, _, did)| row(h.name, did));
        f.tables.push(t);
    }

    fn columns() -> Vec<String> {
        let of = |kb: &u64| [format!("{kb} KB made"), format!("{kb} KB read")];
        SIZES_KB.iter().flat_map(of).collect()
    }

    fn rates(&self, f: &mut Findings, mode: usize) {
        let title = format!(
            "{}: files made and read, MB/s where the volume is empty, and the part of that where \
             it has aged",
            MODES[mode].0
        );
        let heads = All::columns();
        let heads = heads.iter().map(|h| &h[..]);
        let columns: Vec<&str> = ["volume", "% full"].into_iter().chain(heads).collect();
        let mut t = Table::new(&title, &columns);
        let cells = |name: &str, full: String, of: [[f64; 2]; 3]| -> Vec<String> {
            let of = of.into_iter().flatten().map(|x| format!("{x:.2}"));
            [name.to_owned(), full].into_iter().chain(of).collect()
        };
        let rates = [0, 1, 2].map(|size| self.empty.of(mode, size).rates());
        t.row(cells("empty", "0".to_owned(), rates));
        for (h, full, did) in self.rows() {
            t.row(cells(h.name, full.to_string(), did.left(&self.empty, mode)));
        }
        f.tables.push(t);
    }

    fn pieces(&self, f: &mut Findings) {
        let heads = SIZES_KB.map(|kb| format!("{kb} KB"));
        let columns: Vec<&str> =
            ["volume", "% full"].into_iter().chain(heads.iter().map(|h| &h[..])).collect();
        let title = "In how many pieces the new files lie, and their layout score";
        let mut t = Table::new(title, &columns);
        let mut row = |name: &str, full: u64, did: &Did| {
            let cell = |size| {
                let l = did.of(ASYNC, size).lie;
                format!("{:.1}, {:.2}", l.extents_a_file.unwrap_or(0.0), l.score.unwrap_or(1.0))
            };
            let of = [0, 1, 2].map(cell);
            t.row([name.to_owned(), full.to_string()].into_iter().chain(of).collect());
        };
        row("empty", 0, &self.empty);
        self.rows().for_each(|(h, full, did)| row(h.name, full, did));
        f.tables.push(t);
    }
}

fn mean(all: &[f64]) -> f64 {
    all.iter().sum::<f64>() / all.len().max(1) as f64
}

/// Of the pairs of a habit's fullnesses, the share where the fuller volume is slower, over all
/// sizes, made and read.
fn slower_if_fuller(all: &All, habit: usize, mode: usize) -> f64 {
    let one = &all.aged[habit * all.full.len()..][..all.full.len()];
    let left = one.iter().map(|d| d.left(&all.empty, mode).into_iter().flatten().collect());
    let left: Vec<Vec<f64>> = left.collect();
    let (mut pairs, mut slower) = (0, 0);
    for (n, fuller) in left.iter().enumerate() {
        for emptier in &left[..n] {
            pairs += fuller.len();
            slower += fuller.iter().zip(emptier).filter(|(a, b)| a < b).count();
        }
    }
    slower as f64 / pairs.max(1) as f64
}

/// The experiment.
pub(super) fn aging(scale: Scale) -> Result<Findings, String> {
    let full = scale.pick(FULL.to_vec(), vec![40, 75]);
    let (bytes, data_kb) = scale.pick((192 << 20, 8 << 10), (64 << 20, 2 << 10));
    let mut jobs: Vec<Job> = vec![None];
    jobs.extend(Habit::ALL.iter().flat_map(|h| full.iter().map(move |full| Some((h, *full)))));
    let did = cores::each(&jobs, |job| run(job, bytes, data_kb));
    let mut did = did.into_iter().collect::<Result<Vec<Did>, _>>()?.into_iter();
    let empty = did.next().ok_or("an empty volume was run")?;
    let all = All { full, empty, aged: did.collect() };
    let mut f = Findings::default();
    for t in [&all.empty].into_iter().chain(&all.aged).flat_map(|d| &d.tests) {
        f.note(t.made.note ^ t.read.note);
    }
    all.lying(&mut f);
    (0..MODES.len()).for_each(|mode| all.rates(&mut f, mode));
    all.pieces(&mut f);
    claims(&mut f, &all);
    Ok(f)
}

fn least(all: &[f64]) -> f64 {
    all.iter().copied().fold(f64::MAX, f64::min)
}

fn claims(f: &mut Findings, all: &All) {
    for (mode, (name, _)) in MODES.iter().enumerate() {
        let old = all.left(mode, |k, _| k != Kind::News);
        let stated = |what: &str| {
            Stated::amount(19, format!("{name}: {what}"), (0.9, "×")).within(0.85, 1.0)
        };
        let why = "a file finds a run that holds it, or nearly; small ones lie in one piece each, \
                   but not behind one another, so that the disk reads ahead in vain";
        let what = "old volumes beside an empty one, news aside, on the mean";
        f.claim(stated(what).because(why), mean(&old));
        let why = "home directories at 90 %, where free runs have 20 KiB: so full FFS lets nobody \
                   but root fill it; up to 60 % large files keep nine tenths";
        let worst = stated("the same at its worst").stands(Verdict::Weaker);
        f.claim(worst.because(why), least(&old));
        let news = all.left(mode, |k, _| k == Kind::News);
        let what = format!("{name}: news beside the other old volumes, on the mean");
        let why = "up to 75 % articles that expire in their order leave runs behind them; it is \
                   90 % that makes the difference";
        f.claim(Stated::between(19, what, (0.3, 1.0)).because(why), mean(&news) / mean(&old));
        let what = format!("{name}: the same, each at its worst");
        let why = "free runs of two blocks, and a file of 1 MB in 80 pieces";
        f.claim(Stated::between(19, what, (0.3, 1.0)).because(why), least(&news) / least(&old));
    }
    by_fullness(f, all);
    by_size(f, all);
}

/// What makes home directories slower leaves the others as they are.
fn by_fullness(f: &mut Findings, all: &All) {
    let whys = [
        (Verdict::Reproduced, "less is free, and that in smaller runs"),
        (Verdict::Contradicted, "up to 75 % it loses what it loses at 20 %, and at 90 % much more"),
        (Verdict::Contradicted, "it loses nothing that fullness could make more of"),
    ];
    for (n, (h, (verdict, why))) in Habit::ALL.iter().zip(whys).enumerate() {
        let what = format!("ffs, {}: the fuller volume is the slower, of all pairs", h.name);
        let stated = Stated::between(19, what, (0.75, 1.0)).stands(verdict);
        f.claim(stated.because(why), slower_if_fuller(all, n, FFS));
    }
    let (few, many) = (all.full[0], all.full[all.full.len() - 1]);
    let at = |full: u64| mean(&all.left(FFS, |_, n| n == full));
    let what = format!("ffs: volumes at {many} % beside the same at {few} %, on the mean");
    let why = "home directories and news";
    f.claim(Stated::between(19, what, (0.3, 1.0)).because(why), at(many) / at(few));
}

/// The paper finds far smaller losses with large files.
fn by_size(f: &mut Findings, all: &All) {
    let of = |size: usize| {
        let left = all.aged.iter().flat_map(|d| d.left(&all.empty, FFS)[size]);
        mean(&left.collect::<Vec<f64>>())
    };
    let what = "ffs: what is left with files of 1 MB beside files of 16 KB, on the mean";
    let why = "a large file needs one seek a piece, small ones a seek each; at 90 % it is the \
               other way round";
    let beside = of(SIZES_KB.len() - 1) / of(0);
    f.claim(Stated::between(19, what, (1.0, 2.0)).because(why), beside);
}
