//! Cleaning and plugging under random updates, at every fullness, on three disks: the figures of
//! matthews-1997 (3, 4, 6 and 8), and beside them what an independent simulator gave. The policies
//! are the store's own; the log is a model, without table, summaries and checkpoints.

use super::report::{Findings, Table};
use super::segments::{Did, Drive, Plugs, Shape};
use super::updates::{Load, run};
use super::verdict::{Stated, Verdict};
use super::{Scale, cores};
use lfs::Policy;

/// The paper's disk, its fast one, and Sprite's.
const DRIVES: [(&str, Drive); 3] = [
    ("15 ms, 5 MB/s", Drive { access_ms: 15.0, bandwidth: 5.0 }),
    ("10 ms, 15 MB/s", Drive { access_ms: 10.0, bandwidth: 15.0 }),
    ("17.5 ms, 1.3 MB/s", Drive { access_ms: 17.5, bandwidth: 1.3 }),
];

/// Of 100 blocks, so many live.
const FULL: [u32; 10] = [50, 60, 70, 80, 85, 88, 90, 92, 95, 99];

/// What an independent simulator gave: fullness; on the first disk victims' utilisation, write
/// cost, and overall cost of cleaning, plugging and the paper's choice; overall costs on the fast
/// disk.
type Reference = (u32, [f64; 5], Option<[f64; 3]>);
const REFERENCE: [Reference; 9] = [
    (60, [0.31, 2.89, 3.72, 4.94, 3.72], None),
    (70, [0.45, 3.64, 4.68, 5.90, 4.68], Some([5.74, 9.55, 5.74])),
    (80, [0.61, 5.12, 6.58, 7.12, 6.58], Some([8.02, 11.83, 8.02])),
    (85, [0.69, 6.53, 8.39, 7.83, 8.39], Some([10.26, 13.20, 10.26])),
    (88, [0.75, 7.90, 10.16, 8.42, 9.84], None),
    (90, [0.78, 9.24, 11.88, 8.78, 10.04], Some([14.50, 14.92, 14.50])),
    (92, [0.82, 11.1, 14.31, 9.26, 10.11], None),
    (95, [0.875, 16.05, 20.64, 10.06, 10.33], Some([25.24, 17.55, 18.80])),
    (99, [0.957, 46.2, 59.4, 12.01, 12.01], Some([72.6, 20.98, 20.98])),
];

/// The same for segments of so many KiB at 85 %: overall cost with partial segments. For 256 KiB
/// the table above has 6.53 and, with partial segments, 10.39, where this row has 6.66 and 10.6: it
/// was made by other passes. By passes that are twice as large it comes out again.
const REFERENCE_SIZES: [(u64, f64); 8] = [
    (8, 3.29),
    (16, 14.6),
    (32, 13.8),
    (64, 12.4),
    (128, 11.3),
    (256, 10.6),
    (512, 10.2),
    (1024, 10.05),
];

/// Of ratios, the one that is furthest from 1.
fn furthest(all: impl Iterator<Item = f64>) -> f64 {
    all.fold(1.0, |worst: f64, r| if (r - 1.0).abs() > (worst - 1.0).abs() { r } else { worst })
}

/// The columns of the tables.
const POLICIES: [Policy; 4] = [Policy::Greedy, Policy::Plug, Policy::Paper, Policy::Adaptive];

/// A disk of the experiment's size.
fn shape(scale: Scale, policy: Policy) -> Shape {
    let paper = Shape::paper(policy);
    let part = scale.pick(1, 16);
    Shape {
        segments: paper.segments / part,
        pass_bytes: paper.pass_bytes / u64::from(part),
        ..paper
    }
}

fn blocks_of(s: &Shape, full: f64) -> u32 {
    (f64::from(s.blocks()) * full) as u32
}

/// One run, and its result under each disk where the disk changes nothing.
#[derive(Clone, Copy)]
struct Job {
    full: u32,
    policy: usize,
    drive: usize,
}

/// All runs of the main tables.
struct Curves {
    scale: Scale,
    full: Vec<u32>,
    jobs: Vec<Job>,
    did: Vec<Did>,
}

impl Curves {
    fn new(scale: Scale) -> Curves {
        let full = scale.pick(FULL.to_vec(), vec![60, 85, 92]);
        let mut jobs = Vec::new();
        for &full in &full {
            for policy in 0..POLICIES.len() {
                // What is cleaned, or plugged, does not depend on the disk unless it is a choice.
                let drives = if policy < 2 { 1 } else { DRIVES.len() };
                jobs.extend((0..drives).map(|drive| Job { full, policy, drive }));
            }
        }
        let did = cores::each(&jobs, |j| {
            let s = Shape { drive: DRIVES[j.drive].1, ..shape(scale, POLICIES[j.policy]) };
            run(s, blocks_of(&s, f64::from(j.full) / 100.0), Load::Uniform, 10)
        });
        Curves { scale, full, jobs, did }
    }

    fn of(&self, full: u32, policy: usize, drive: usize) -> (Shape, Did) {
        let run = if policy < 2 { 0 } else { drive };
        let is = |j: &Job| (j.full, j.policy, j.drive) == (full, policy, run);
        let at = self.jobs.iter().position(is).expect("it was run");
        let s = Shape { drive: DRIVES[drive].1, ..shape(self.scale, POLICIES[policy]) };
        (s, self.did[at])
    }

    fn overall(&self, full: u32, policy: usize, drive: usize) -> f64 {
        let (s, did) = self.of(full, policy, drive);
        did.overall(&s, None)
    }

    /// What the policy costs beside the cheaper of cleaning and plugging.
    fn beside_best(&self, full: u32, policy: usize, drive: usize) -> f64 {
        let best = self.overall(full, 0, drive).min(self.overall(full, 1, drive));
        self.overall(full, policy, drive) / best
    }

    fn tables(&self, f: &mut Findings) {
        for (drive, (name, _)) in DRIVES.iter().enumerate() {
            let title = format!(
                "Random updates, {name}: time beside that of the new blocks alone (whole segments)"
            );
            let columns =
                ["% full", "victims' u", "EQ1", "clean", "plug", "in runs", "paper", "adaptive"];
            let mut t = Table::new(&title, &columns);
            for &full in &self.full {
                let ((s, clean), (_, plug)) = (self.of(full, 0, drive), self.of(full, 1, drive));
                let cost = |policy| format!("{:.2}", self.overall(full, policy, drive));
                t.row(vec![
                    full.to_string(),
                    format!("{:.3}", clean.utilisation(&s)),
                    format!("{:.2}", clean.write_cost(&s)),
                    cost(0),
                    cost(1),
                    format!("{:.2}", plug.overall_in_runs(&s)),
                    cost(2),
                    cost(3),
                ]);
            }
            f.tables.push(t);
        }
        for d in &self.did {
            f.note(d.moved ^ d.plugged << 20 ^ d.read << 40);
        }
    }

    /// Ours over the independent simulator's, the cell that is furthest from 1.
    fn furthest(&self) -> f64 {
        let mut all = Vec::new();
        let mut see = |ours: f64, theirs: f64| all.push(ours / theirs);
        for (full, base, fast) in REFERENCE.iter().filter(|r| self.full.contains(&r.0)) {
            let (s, clean) = self.of(*full, 0, 0);
            see(clean.utilisation(&s), base[0]);
            see(clean.write_cost(&s), base[1]);
            (0..3).for_each(|p| see(self.overall(*full, p, 0), base[2 + p]));
            let fast = fast.iter().flat_map(|all| all.iter().enumerate());
            fast.for_each(|(p, theirs)| see(self.overall(*full, p, 1), *theirs));
        }
        furthest(all.into_iter())
    }

    fn claims(&self, f: &mut Findings) {
        let within = self.scale.pick(0.03, 0.08);
        let what = "every cell of an independent simulator's table, the one furthest off";
        let stated = Stated::between(0, what, (1.0 - within, 1.0 + within));
        f.claim(stated.because("the same model; other numbers drawn"), self.furthest());
        let worst = |policy| {
            let all = (0..DRIVES.len()).flat_map(|d| self.full.iter().map(move |full| (d, full)));
            all.map(|(d, full)| self.beside_best(*full, policy, d)).fold(0.0, f64::max)
        };
        let stated = Stated::between(
            26,
            "the paper's choice beside the better way, at its worst",
            (0.9, 1.15),
        );
        let why = "the rule looks one pass ahead: it goes on cleaning where plugging, kept to, \
                   would leave emptier victims behind; the paper's plugging pays for headers, \
                   which hides most of it";
        f.claim(stated.stands(Verdict::Contradicted).because(why), worst(2));
        let stated = Stated::between(
            0,
            "our adaptive choice beside the better way, at its worst",
            (0.9, 1.05),
        );
        let why = "what each way costs once it has settled is measured, not one pass of it";
        f.claim(stated.because(why), worst(3));
        let (s, clean) = self.of(85, 0, 0);
        let by_formula = clean.write_cost(&s) * (1.0 - clean.utilisation(&s)) / 2.0;
        let stated = Stated::equal(20, "write cost beside 2 / (1 - u), at 85 %");
        f.claim(stated.because("whole victims are read"), by_formula);
    }
}

/// Plugging with headers takes their room too: the same data fills more of the disk.
fn headers(scale: Scale, c: &Curves, f: &mut Findings) {
    const ROOM: f64 = 1.0625;
    let full = scale.pick(vec![80, 85, 88, 90, 92], vec![85]);
    let with = |full: f64| {
        let s = Shape { plugs: Plugs::Headers, ..shape(scale, Policy::Plug) };
        run(s, blocks_of(&s, full), Load::Uniform, 10).overall(&s, None)
    };
    let all = cores::each(&full, |n| with(f64::from(*n) / 100.0 * ROOM));
    let title = "What plugging pays to find its blocks again, 15 ms, 5 MB/s";
    let mut t =
        Table::new(title, &["% of data", "clean", "plug", "block headers", "segment headers"]);
    let in_segments = |full| {
        let (s, did) = c.of(full, 1, 0);
        did.overall(&Shape { plugs: Plugs::Segments, ..s }, None)
    };
    for (n, cost) in full.iter().zip(&all).filter(|(n, _)| c.full.contains(n)) {
        let free = [c.overall(*n, 0, 0), c.overall(*n, 1, 0), *cost, in_segments(*n)];
        t.row([n.to_string()].into_iter().chain(free.map(|x| format!("{x:.2}"))).collect());
    }
    f.tables.push(t);
    let of = |n: u32| full.iter().position(|x| *x == n).map(|i| c.overall(n, 0, 0) / all[i]);
    let partials = 2.0;
    let between = |what: &str, bounds| Stated::between(24, what, bounds);
    let stated = between("cleaning beside plugging with headers, at 85 %", (0.5, 1.0));
    f.claim(stated.because("cleaning is still the better way"), of(85).unwrap_or(f64::NAN));
    if scale == Scale::Small {
        return;
    }
    let stated = between("the same at 90 %", (1.0, 2.0));
    f.claim(stated.because("and here it is not"), of(90).unwrap_or(f64::NAN));
    let stated = Stated::times(24, "cleaning at 99 %, with partial segments", 64.5);
    f.claim(stated.because("as in the paper"), c.overall(99, 0, 0) + partials);
    let at_99 = with(0.99);
    let stated = Stated::at_most(24, "plugging with headers at 99 %", (5.0, 15.0, ""));
    f.claim(stated.because("as in the paper"), at_99 + partials);
    let stated =
        Stated::between(32, "block headers at 99 % beside segment headers at 85 %", (0.1, 1.0));
    f.claim(stated.because("as in the paper"), at_99 / in_segments(85));
    let stated = Stated::between(27, "cleaning beside plugging at 90 %, fast disk", (0.5, 1.0));
    let why = "the first disk has crossed over there, the fast one has not";
    f.claim(stated.because(why), c.overall(90, 0, 1) / c.overall(90, 1, 1));
}

/// Segments of each size, random updates, 85 % full; by passes as above, and twice as large.
fn sizes(scale: Scale, f: &mut Findings) {
    let kib = scale.pick(vec![8_u64, 16, 32, 64, 128, 256, 512, 1024], vec![8, 64, 256]);
    let jobs: Vec<(u64, u64)> = kib.iter().flat_map(|kib| [(*kib, 1), (*kib, 2)]).collect();
    let did = cores::each(&jobs, |(kib, passes)| {
        let base = shape(scale, Policy::Greedy);
        let segments = (u64::from(base.segments) * base.segment_bytes / (kib << 10)) as u32;
        let pass_bytes = base.pass_bytes * passes;
        let s = Shape { segment_bytes: kib << 10, segments, pass_bytes, ..base };
        (s, run(s, blocks_of(&s, 0.85), Load::Uniform, 10))
    });
    let rows: Vec<&[(Shape, Did)]> = did.chunks(2).collect();
    let title = "Segment size, random updates at 85 %, 15 ms, 5 MB/s";
    let columns = ["KiB", "EQ1", "inefficiency", "overall", "with partials", "by passes of 40 MB"];
    let mut t = Table::new(title, &columns);
    let overall = |(s, d): &(Shape, Did)| d.overall(s, Some(4));
    for (kib, row) in kib.iter().zip(&rows) {
        let (s, d) = &row[0];
        let inefficiency = s.request(s.segment_bytes) / s.transfer(s.segment_bytes);
        let cost = [d.write_cost(s), inefficiency, d.overall(s, None)];
        let all = cost.into_iter().chain(row.iter().map(overall));
        t.row([kib.to_string()].into_iter().chain(all.map(|x| format!("{x:.2}"))).collect());
    }
    f.tables.push(t);
    let furthest_of = |passes: usize| {
        let beside = kib.iter().zip(&rows).filter_map(|(kib, row)| {
            let found = REFERENCE_SIZES.iter().find(|r| r.0 == *kib)?;
            Some(overall(&row[passes]) / found.1)
        });
        furthest(beside)
    };
    let what = "segment sizes: an independent simulator's overall cost, the one furthest off";
    let why = "its row contradicts its own table, which has 10.39 at 256 KiB where the row has \
               10.6: other passes";
    let stated = Stated::between(0, what, (0.97, 1.03));
    f.claim(stated.stands(Verdict::Contradicted).because(why), furthest_of(0));
    let what = "the same, by passes of 40 MB";
    let stated = Stated::between(0, what, (0.97, 1.03));
    f.claim(stated.because("twice as large: the row comes out again"), furthest_of(1));
    let (s, d) = &rows[0][0];
    let stated = Stated::times(23, "segments of one block, whole", 10.2);
    f.claim(
        stated.because("no cleaning: a segment is free when its block dies"),
        d.overall(s, None),
    );
}

/// The experiment.
pub(super) fn cleaning(scale: Scale) -> Result<Findings, String> {
    let mut f = Findings::default();
    let curves = Curves::new(scale);
    curves.tables(&mut f);
    curves.claims(&mut f);
    headers(scale, &curves, &mut f);
    sizes(scale, &mut f);
    Ok(f)
}
