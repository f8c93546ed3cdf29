//! Cleaning where some blocks are written more often than others: which victims, and which blocks
//! go together; segment sizes, and cleaning from memory, under a load in the manner of a file
//! server's (matthews-1997, figures 1, 2, 5 and 9; the trace itself is not to be had).

use super::report::{Findings, Table};
use super::segments::{Did, Drive, Placement, Shape};
use super::updates::{Load, run};
use super::verdict::Stated;
use super::{Scale, cores};
use lfs::Policy;

/// A policy with where it puts blocks.
type Scheme = (&'static str, Policy, Placement);

const SCHEMES: [Scheme; 5] = [
    ("greedy", Policy::Greedy, Placement::Two),
    ("cost-benefit", Policy::CostBenefit, Placement::Two),
    ("balanced", Policy::Balanced, Placement::Two),
    ("SepBIT", Policy::SepBit, Placement::SepBit),
    ("balanced, SepBIT's classes", Policy::Balanced, Placement::SepBit),
];
const GREEDY: usize = 0;
const COST_BENEFIT: usize = 1;
const SEPBIT: usize = 3;
const OURS: usize = 4;

const LOADS: [(&str, Load); 6] = [
    ("uniform", Load::Uniform),
    ("10 % get 90 %", Load::Hot(10)),
    ("the same, shifting", Load::Shifting(10)),
    ("Zipf 0.8", Load::Zipf(80)),
    ("Zipf 1.0", Load::Zipf(100)),
    ("Zipf 1.2", Load::Zipf(120)),
];

/// The paper's disk in a quarter of its size: the curves are the same.
fn shape(scale: Scale, policy: Policy) -> Shape {
    let paper = Shape::paper(policy);
    let part = scale.pick(4, 32);
    Shape {
        segments: paper.segments / part,
        pass_bytes: paper.pass_bytes / u64::from(part),
        ..paper
    }
}

fn at(s: &Shape, full: u32, load: Load) -> Did {
    let blocks = (u64::from(s.blocks()) * u64::from(full) / 100) as u32;
    run(*s, blocks, load, 10)
}

/// Blocks written for each that users write, by load and fullness.
fn amplification(scale: Scale, f: &mut Findings) {
    let full = scale.pick(vec![70, 80, 90], vec![80]);
    let mut jobs = Vec::new();
    for (_, load) in &LOADS {
        for &full in &full {
            jobs.extend(SCHEMES.iter().map(|s| (*load, full, *s)));
        }
    }
    let did = cores::each(&jobs, |(load, full, (_, policy, placement))| {
        let s = Shape { placement: *placement, ..shape(scale, *policy) };
        at(&s, *full, *load)
    });
    did.iter().for_each(|d| f.note(d.moved));
    let columns: Vec<&str> = ["load", "% full"].into_iter().chain(SCHEMES.map(|s| s.0)).collect();
    let mut t = Table::new("Blocks written for each that users write", &columns);
    let rows: Vec<&[Did]> = did.chunks(SCHEMES.len()).collect();
    let mut of = LOADS.iter().flat_map(|(name, _)| full.iter().map(move |full| (name, full)));
    for row in &rows {
        let (name, full) = of.next().expect("a row for each");
        let cells = row.iter().map(|d| format!("{:.2}", d.amplification()));
        t.row([(*name).to_owned(), full.to_string()].into_iter().chain(cells).collect());
    }
    f.tables.push(t);
    let ratio = |row: &[Did], a: usize, b: usize| row[a].amplification() / row[b].amplification();
    let skewed = &rows[full.len()..];
    let worst = skewed.iter().map(|r| ratio(r, OURS, SEPBIT)).fold(0.0, f64::max);
    let what = "blocks written under skewed loads: balanced with SepBIT's classes beside SepBIT \
                itself, at its worst";
    let why = "the same classes; the root of the age instead of the age, and reading counts half";
    f.claim(Stated::between(0, what, (0.5, 1.0)).because(why), worst);
    let middle = full.len() / 2;
    let what = "cost-benefit beside greedy, uniform, 80 %";
    let stated = Stated::between(31, what, (1.0, 2.0));
    f.claim(stated.because("age says nothing here"), ratio(rows[middle], COST_BENEFIT, GREEDY));
    let what = "cost-benefit beside greedy, 10 % get 90 %, 80 %";
    let stated = Stated::between(31, what, (0.4, 1.0));
    let hot = rows[full.len() + middle];
    f.claim(stated.because("old segments stay as they are"), ratio(hot, COST_BENEFIT, GREEDY));
}

/// Writes between two flushes: half a minute of the trace.
const TOGETHER: u64 = 50;

/// Disks, two of which have the same product of access and bandwidth.
const DRIVES: [(&str, Drive); 4] = [
    ("15 ms, 5 MB/s", Drive { access_ms: 15.0, bandwidth: 5.0 }),
    ("7.5 ms, 10 MB/s", Drive { access_ms: 7.5, bandwidth: 10.0 }),
    ("10 ms, 15 MB/s", Drive { access_ms: 10.0, bandwidth: 15.0 }),
    ("17.5 ms, 1.3 MB/s", Drive { access_ms: 17.5, bandwidth: 1.3 }),
];

/// Segments of each size under the server's load, on each disk.
fn sizes(scale: Scale, f: &mut Findings) {
    let kib = scale.pick(vec![16_u64, 32, 64, 128, 256, 512, 1024, 2048], vec![64, 256, 1024]);
    let did = cores::each(&kib, |kib| {
        let base = shape(scale, Policy::CostBenefit);
        let segments = (u64::from(base.segments) * base.segment_bytes / (kib << 10)) as u32;
        let pass_bytes = base.pass_bytes.max(4 * (kib << 10));
        let s = Shape { segment_bytes: kib << 10, segments, pass_bytes, ..base };
        (s, at(&s, 85, Load::Server))
    });
    let cost = |(s, d): &(Shape, Did), drive: Drive| {
        let s = Shape { drive, ..*s };
        d.overall(&s, Some(TOGETHER.min(u64::from(s.per()))))
    };
    let columns: Vec<&str> = ["KiB", "EQ1"].into_iter().chain(DRIVES.map(|d| d.0)).collect();
    let title = "Segment size, a server's load at 85 %: overall cost on each disk";
    let mut t = Table::new(title, &columns);
    for (kib, one) in kib.iter().zip(&did) {
        let cells = DRIVES.iter().map(|d| format!("{:.2}", cost(one, d.1)));
        let head = [kib.to_string(), format!("{:.2}", one.1.write_cost(&one.0))];
        t.row(head.into_iter().chain(cells).collect());
    }
    f.tables.push(t);
    for (name, drive) in DRIVES {
        let best =
            did.iter().zip(&kib).min_by(|a, b| cost(a.0, drive).total_cmp(&cost(b.0, drive)));
        let best = best.map_or(0, |b| b.1 << 10) as f64;
        let product = 4.0 * drive.access_ms * drive.bandwidth * 1e3;
        let stated =
            Stated::between(21, format!("the best segment beside 4ab, {name}"), (0.5, 2.0));
        let why = "the curve is flat about its lowest point; the load is not the paper's";
        f.claim(stated.proxy().because(why), best / product);
    }
    let apart = did.iter().map(|one| cost(one, DRIVES[0].1) / cost(one, DRIVES[1].1));
    let apart = apart.fold(1.0, |a: f64, b| if (b - 1.0).abs() > (a - 1.0).abs() { b } else { a });
    let stated = Stated::equal(22, "disks with the same product ab, at every size");
    f.claim(stated.because("by the formula"), apart);
}

/// Cleaning beside plugging, and from memory, under the server's load.
fn server(scale: Scale, f: &mut Findings) {
    let full = scale.pick(vec![60, 75, 85, 90, 95, 98], vec![85, 95]);
    // Policy, and how many parts of the volume fit into memory.
    let ways = [
        (Policy::CostBenefit, None),
        (Policy::Plug, None),
        (Policy::Adaptive, None),
        (Policy::CostBenefit, Some(4)),
        (Policy::CostBenefitCached, Some(16)),
        (Policy::CostBenefitCached, Some(4)),
    ];
    let jobs: Vec<_> = full.iter().flat_map(|n| ways.iter().map(move |w| (*n, *w))).collect();
    let all = cores::each(&jobs, |(full, (policy, part))| {
        let s = shape(scale, *policy);
        let blocks = u64::from(s.blocks()) * u64::from(*full) / 100;
        let s = Shape { memory: part.map_or(0, |n| (blocks / n) as usize), ..s };
        at(&s, *full, Load::Server).overall(&s, Some(u64::from(s.per())))
    });
    let columns =
        ["% full", "clean", "plug", "adaptive", "memory 1/4, unaware", "aware, 1/16", "aware, 1/4"];
    let mut t = Table::new("A server's load: overall cost, 15 ms, 5 MB/s", &columns);
    let rows: Vec<&[f64]> = all.chunks(ways.len()).collect();
    for (full, row) in full.iter().zip(&rows) {
        let cells = row.iter().map(|x| format!("{x:.2}"));
        t.row([full.to_string()].into_iter().chain(cells).collect());
    }
    f.tables.push(t);
    let of = |n: u32| full.iter().position(|x| *x == n).map(|i| rows[i]).expect("it was run");
    let stated =
        Stated::between(25, "cleaning beside plugging, a server's load at 85 %", (0.3, 1.0));
    f.claim(stated.proxy().because("not the paper's trace"), of(85)[0] / of(85)[1]);
    let what = "cleaning from memory beside not, 95 %, memory for a quarter of the volume";
    let why = "not the paper's trace; there 256 MB of memory";
    f.claim(Stated::times(28, what, 0.89).proxy().because(why), of(95)[5] / of(95)[0]);
    let stated = Stated::between(0, format!("our own goal: {what}"), (0.1, 0.9));
    f.claim(stated.because("what is written lately is in memory"), of(95)[5] / of(95)[0]);
}

/// The experiment.
pub(super) fn skew(scale: Scale) -> Result<Findings, String> {
    let mut f = Findings::default();
    amplification(scale, &mut f);
    sizes(scale, &mut f);
    server(scale, &mut f);
    Ok(f)
}
