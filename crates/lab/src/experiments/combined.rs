//! All that makes writing cheaper, together: the choice between cleaning and plugging at each pass,
//! with what is in memory not read again (matthews-1997, section 4.4 and figure 10), beside a log
//! that only cleans. The policies are the store's own; the log is a model, as in `cleaning`.

use super::report::{Findings, Table};
use super::segments::{Did, Plugs, Shape};
use super::updates::{Load, run};
use super::verdict::Stated;
use super::{Scale, cores};
use lfs::Policy;

const FULL: [u32; 7] = [60, 75, 85, 90, 95, 98, 99];

/// A part of the disk, 128 MB of 1 GB, fits into memory.
const MEMORY: usize = 8;

/// A load, and how many blocks users write in one request: four between two syncs, or those of half
/// a minute, as long as they fit into a segment.
struct Case {
    name: &'static str,
    load: Load,
    together: u32,
    /// A log that only cleans, with the better victims for this load.
    original: Policy,
    /// Why our own goal is reached.
    goal: &'static str,
}

const CASES: [Case; 2] = [
    Case {
        name: "random updates",
        load: Load::Uniform,
        together: 4,
        original: Policy::Greedy,
        goal: "what each way costs once it has settled is measured",
    },
    Case {
        name: "a server's load",
        load: Load::Server,
        together: 32,
        original: Policy::CostBenefit,
        goal: "it begins with segments that are old or in memory, and plugs where that is cheaper",
    },
];

const RANDOM: usize = 0;
const SERVER: usize = 1;

/// What is compared: the original, each way alone, both.
const WAYS: [&str; 5] =
    ["clean", "memory", "the paper's choice", "the paper's, with memory", "adaptive, with memory"];
const BOTH: usize = 3;
const OURS: usize = 4;

impl Case {
    fn way(&self, way: usize) -> (Policy, bool) {
        match way {
            0 => (self.original, false),
            1 => (Policy::CostBenefitCached, true),
            2 => (Policy::Paper, false),
            BOTH => (Policy::Paper, true),
            _ => (Policy::Adaptive, true),
        }
    }
}

/// What was done, and on what.
struct One(Shape, Did, u64);

impl One {
    /// The time beside that of the new blocks alone.
    fn overall(&self) -> f64 {
        self.1.overall(&self.0, Some(self.2))
    }
    /// The cleaner's part of it.
    fn cleaning(&self) -> f64 {
        self.1.cleaning(&self.0, Some(self.2))
    }
}

fn one(scale: Scale, case: &Case, full: u32, way: usize) -> One {
    let (policy, remembers) = case.way(way);
    let (paper, part) = (Shape::paper(policy), scale.pick(4, 32));
    let segments = paper.segments / part;
    let memory = if remembers { (segments * paper.per()) as usize / MEMORY } else { 0 };
    let pass_bytes = paper.pass_bytes / u64::from(part);
    let s = Shape { segments, pass_bytes, memory, plugs: Plugs::Headers, ..paper };
    let blocks = u64::from(s.blocks()) * u64::from(full) / 100;
    One(s, run(s, blocks as u32, case.load, 10), u64::from(case.together))
}

/// The experiment.
pub(super) fn combined(scale: Scale) -> Result<Findings, String> {
    let full = scale.pick(FULL.to_vec(), vec![85, 95]);
    let mut jobs = Vec::new();
    for case in &CASES {
        for &full in &full {
            jobs.extend((0..WAYS.len()).map(|way| (case, full, way)));
        }
    }
    let did = cores::each(&jobs, |(case, full, way)| one(scale, case, *full, *way));
    let mut f = Findings::default();
    did.iter().for_each(|d| f.note(d.overall().to_bits()));
    let rows: Vec<&[One]> = did.chunks(WAYS.len()).collect();
    let loads: Vec<&[&[One]]> = rows.chunks(full.len()).collect();
    for (case, rows) in CASES.iter().zip(&loads) {
        let title = format!(
            "{}, 15 ms, 5 MB/s, memory for an eighth of the disk: overall cost with block headers, \
             and the cleaner's part of it",
            case.name
        );
        let columns: Vec<&str> = ["% full"].into_iter().chain(WAYS).collect();
        let mut t = Table::new(&title, &columns);
        for (full, row) in full.iter().zip(*rows) {
            let cells = row.iter().map(|d| format!("{:.2}, {:.2}", d.overall(), d.cleaning()));
            t.row([full.to_string()].into_iter().chain(cells).collect());
        }
        f.tables.push(t);
    }
    claims(&mut f, &loads);
    Ok(f)
}

/// The most that a way saves of the original's, over all fullnesses.
fn most(rows: &[&[One]], way: usize, of: fn(&One) -> f64) -> f64 {
    rows.iter().map(|row| of(&row[way]) / of(&row[0])).fold(f64::MAX, f64::min)
}

fn claims(f: &mut Findings, loads: &[&[&[One]]]) {
    let why = "at 99 %; nearly all of it is plugging's: what was written lately is not what is \
               emptied";
    let what = "random updates: the paper's choice with memory beside cleaning, at its best";
    let ours = most(loads[RANDOM], BOTH, One::overall);
    f.claim(Stated::times(29, what, 0.25).because(why), ours);
    let what = "the same, the cleaner's part";
    let ours = most(loads[RANDOM], BOTH, One::cleaning);
    f.claim(Stated::times(29, what, 1.0 / 6.0).because(why), ours);
    let why = "not the paper's trace; at 99 %, where plugging is worth most";
    let what = "a server's load: the paper's choice with memory beside cleaning, at its best";
    let ours = most(loads[SERVER], BOTH, One::overall);
    f.claim(Stated::times(29, what, 0.80).proxy().because(why), ours);
    let what = "the same, the cleaner's part";
    let ours = most(loads[SERVER], BOTH, One::cleaning);
    f.claim(Stated::times(29, what, 0.58).proxy().because(why), ours);
    for (case, rows) in CASES.iter().zip(loads) {
        let worst = rows.iter().map(|row| {
            let best = row[..OURS].iter().map(One::overall).fold(f64::MAX, f64::min);
            row[OURS].overall() / best
        });
        let what = format!(
            "our own goal: {}: our adaptive choice with memory beside the best of the others, at \
             its worst",
            case.name
        );
        let stated = Stated::between(0, what, (0.3, 1.05));
        f.claim(stated.because(case.goal), worst.fold(0.0, f64::max));
    }
}
