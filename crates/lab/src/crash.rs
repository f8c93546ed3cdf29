//! The crash explorer: runs a scenario once, builds the images that a power cut could have left at
//! each moment, and has each judged. Every finding names the state, and the state can be built
//! again from its name.

use crate::acts::Act;
use crate::judge::{Expected, judge};
use crate::scenario::{script, seeds};
use crate::subject::{Subject, fresh};
use integrity::Plant;
use serde::Serialize;
use sim::{CrashImages, Event, Image, Trace};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use volume::Mode;

/// What to explore.
#[derive(Clone, Debug)]
pub struct CrashOptions {
    /// The mode.
    pub mode: Mode,
    /// One scenario by name; None: all.
    pub scenario: Option<String>,
    /// The first seed.
    pub seed: u64,
    /// At least so many distinct images, adding seeds until there are.
    pub states: u64,
    /// A planted bug.
    pub plant: Plant,
    /// Stop at the first violation.
    pub first: bool,
}

/// A broken promise.
#[derive(Clone, Debug, Serialize)]
pub struct Violation {
    /// What is wrong.
    pub what: String,
    /// Which state: scenario, seed, event, variant.
    pub state: String,
    /// The command that shows it again.
    pub replay: String,
}

/// One scenario with one seed, or all seeds of it that were run.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// The mode.
    pub mode: String,
    /// Its options.
    pub options: String,
    /// The scenario.
    pub scenario: String,
    /// The first seed.
    pub seed: u64,
    /// Distinct images judged.
    pub states: u64,
    /// Broken promises.
    pub violations: Vec<Violation>,
    /// What was lost without a promise, by kind.
    pub losses: BTreeMap<String, u64>,
}

/// Everything that was explored.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CrashReport {
    /// By scenario.
    pub runs: Vec<Run>,
}

/// A scenario's run: the trace from the moment it was set up.
struct Recorded {
    base: Image,
    trace: Trace,
    setup: Vec<Act>,
    /// Acts by their number in the marks.
    acts: Vec<Act>,
}

/// Violations kept of each run.
const KEPT: usize = 20;
/// Seeded variants of each cut.
const RANDOM_VARIANTS: u64 = 6;
/// Every so many distinct states the real e2fsck judges one.
const E2FSCK_EVERY: u64 = 400;

fn record(o: &CrashOptions, name: &str, seed: u64) -> Result<Recorded, String> {
    let script = script(name, seed).ok_or_else(|| format!("no scenario {name}"))?;
    let mut setup = Subject::open(fresh(2 << 20), o.mode, false, (Plant::NONE, seed))?;
    let mut done = Vec::new();
    for act in script.setup {
        if setup.act(u64::MAX / 4, &act).is_ok() {
            done.push(act);
        }
    }
    // The setup is durable; what follows runs on the same opened volume, with the bug planted.
    let base = setup.world.disk.clone();
    drop(setup);
    let mut device = crate::subject::SimDevice(base);
    volume::recover(&mut device, 1_700_000_050, &mut ()).map_err(|e| e.to_string())?;
    let base = device.0;
    let mut v = Subject::open(base.clone(), o.mode, false, (o.plant, seed))?;
    let mut acts = Vec::new();
    for act in script.acts {
        let n = acts.len() as u64;
        if v.act(n, &act).is_ok() {
            acts.push(act);
        } else {
            acts.push(Act::Fsync("/".into())); // refused: nothing is promised of it
        }
    }
    v.pass(6_000_000_000);
    Ok(Recorded { base, trace: v.world.trace.clone(), setup: done, acts })
}

struct Shared<'a> {
    options: &'a CrashOptions,
    seen: Mutex<BTreeSet<u64>>,
    states: AtomicU64,
    run: Mutex<Run>,
}

impl Shared<'_> {
    fn enough(&self) -> bool {
        let found = self.options.first
            && !self.run.lock().expect("nobody panics holding it").violations.is_empty();
        found || self.states.load(Ordering::Relaxed) >= self.options.states
    }
}

/// Explores one script. `only`: one state of it.
fn explore_script(shared: &Shared<'_>, name: &str, seed: u64, only: Option<(u64, u64)>) {
    let recorded = match record(shared.options, name, seed) {
        Ok(r) => r,
        Err(why) => return report(shared, (name, seed, 0, 0), vec![why], Vec::new()),
    };
    let mut images = CrashImages::new(&recorded.trace, &recorded.base);
    let (mut answered, mut in_flight) = (0, None);
    let mut cut = 0;
    loop {
        if only.is_none_or(|(c, _)| c == cut) {
            let mut done = recorded.setup.clone();
            done.extend_from_slice(&recorded.acts[..answered]);
            let expected =
                Expected { done: &done, in_flight: in_flight.map(|i: usize| &recorded.acts[i]) };
            for variant in 0..images.variants(RANDOM_VARIANTS) {
                if only.is_none_or(|(_, v)| v == variant) {
                    let image = images.image(variant);
                    one_state(shared, &image, &expected, (name, seed, cut, variant));
                }
            }
        }
        if only.is_none() && shared.enough() {
            return;
        }
        match images.step() {
            None => return,
            Some(Event::Mark(m)) if (*m / 2) < recorded.acts.len() as u64 => {
                let n = (*m / 2) as usize;
                if m % 2 == 0 {
                    in_flight = Some(n);
                } else {
                    (answered, in_flight) = (n + 1, None);
                }
            }
            Some(_) => (),
        }
        cut += 1;
    }
}

type StateId<'a> = (&'a str, u64, u64, u64);

fn one_state(shared: &Shared<'_>, image: &Image, e: &Expected<'_>, id: StateId<'_>) {
    // The same image at another moment is another state: more may have been promised by then.
    let key = image.digest() ^ (e.done.len() as u64).wrapping_mul(0x9e37_79b9);
    if !shared.seen.lock().expect("nobody panics holding it").insert(key) {
        return;
    }
    let n = shared.states.fetch_add(1, Ordering::Relaxed);
    let verdict = judge(image, shared.options.mode, e, n.is_multiple_of(E2FSCK_EVERY));
    report(shared, id, verdict.wrong, verdict.losses);
}

fn report(shared: &Shared<'_>, id: StateId<'_>, wrong: Vec<String>, losses: Vec<&'static str>) {
    if wrong.is_empty() && losses.is_empty() {
        return;
    }
    let mut run = shared.run.lock().expect("nobody panics holding it");
    for l in losses {
        *run.losses.entry(l.to_owned()).or_default() += 1;
    }
    for what in wrong {
        if run.violations.len() < KEPT {
            let state = format!("{}:{}:{}:{}", id.0, id.1, id.2, id.3);
            let plant = shared.options.plant.0.map_or(String::new(), |p| format!(" --plant {p}"));
            let mode = shared.options.mode;
            let replay = format!("cairn crash --mode {mode}{plant} --replay {state}");
            run.violations.push(Violation { what, state, replay });
        }
    }
}

fn empty_run(o: &CrashOptions, scenario: &str, seed: u64) -> Run {
    Run {
        mode: o.mode.to_string(),
        options: String::new(),
        scenario: scenario.to_owned(),
        seed,
        states: 0,
        violations: Vec::new(),
        losses: BTreeMap::new(),
    }
}

/// Explores. With several scenarios the wanted states are shared between them; those that run out
/// of seeds leave theirs to the random one.
pub fn explore(o: &CrashOptions) -> Result<CrashReport, String> {
    let all: Vec<&str> = crate::scenarios().iter().map(|s| s.0).collect();
    let names = match &o.scenario {
        Some(s) if all.contains(&s.as_str()) => vec![s.as_str()],
        Some(s) => return Err(format!("no scenario {s}: there are {}", all.join(", "))),
        None => all,
    };
    let mut report = CrashReport::default();
    let mut left = o.states;
    for (i, name) in names.iter().enumerate() {
        let share = left / (names.len() - i) as u64;
        let run = explore_scenario(&CrashOptions { states: share.max(1), ..o.clone() }, name);
        left = left.saturating_sub(run.states);
        let stop = o.first && !run.violations.is_empty();
        report.runs.push(run);
        if stop {
            break;
        }
    }
    Ok(report)
}

fn explore_scenario(o: &CrashOptions, name: &str) -> Run {
    let shared = Shared {
        options: o,
        seen: Mutex::default(),
        states: AtomicU64::new(0),
        run: Mutex::new(empty_run(o, name, o.seed)),
    };
    let next = AtomicU64::new(o.seed);
    let last = seeds(name).map_or(u64::MAX, |n| o.seed + n);
    // The sequences are walked in a scattered order, so that a part of them is a fair sample.
    let scatter = |n: u64| seeds(name).map_or(n, |all| n.wrapping_mul(131) % all);
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|s| {
        for _ in 0..threads {
            s.spawn(|| {
                while !shared.enough() {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= last {
                        return;
                    }
                    explore_script(&shared, name, scatter(n), None);
                }
            });
        }
    });
    let mut run = shared.run.into_inner().expect("nobody panics holding it");
    run.states = shared.states.into_inner();
    run
}

/// Builds one state again and judges it; `state` as a violation names it.
pub fn replay(o: &CrashOptions, state: &str) -> Result<CrashReport, String> {
    let parts: Vec<&str> = state.split(':').collect();
    let bad = || format!("{state} is no state: scenario:seed:event:variant");
    let [name, seed, cut, variant] = parts[..] else { return Err(bad()) };
    let number = |s: &str| s.parse::<u64>().map_err(|_| bad());
    let (seed, cut, variant) = (number(seed)?, number(cut)?, number(variant)?);
    let shared = Shared {
        options: o,
        seen: Mutex::default(),
        states: AtomicU64::new(0),
        run: Mutex::new(empty_run(o, name, seed)),
    };
    explore_script(&shared, name, seed, Some((cut, variant)));
    tell_trace(o, name, seed, cut)?;
    let mut run = shared.run.into_inner().expect("nobody panics holding it");
    run.states = shared.states.into_inner();
    Ok(CrashReport { runs: vec![run] })
}

/// Prints what led to a state: the acts, and what the disk was asked since the last of them began.
fn tell_trace(o: &CrashOptions, name: &str, seed: u64, cut: u64) -> Result<(), String> {
    let r = record(o, name, seed)?;
    r.setup.iter().for_each(|a| eprintln!("setup    {a:?}"));
    for (i, event) in r.trace.events.iter().take(cut as usize).enumerate() {
        match event {
            Event::Mark(m) if m / 2 < r.acts.len() as u64 => {
                let what = if m % 2 == 0 { "begins  " } else { "answered" };
                eprintln!("{i:5} {what} {:?}", r.acts[(m / 2) as usize]);
            }
            Event::Mark(_) => (),
            Event::WriteIssued(w) => {
                let write = &r.trace.writes[*w];
                let (first, n) = (write.at / 1024, write.bytes.len() / 1024);
                eprintln!("{i:5} write {w} of {n} blocks at {first}");
            }
            other => eprintln!("{i:5} {other:?}"),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(mode: Mode, states: u64) -> CrashOptions {
        CrashOptions { mode, scenario: None, seed: 0, states, plant: Plant::NONE, first: false }
    }

    #[test]
    fn no_promise_of_sync_or_async_is_broken() {
        for mode in [Mode::Sync, Mode::Async] {
            let report = explore(&options(mode, 1500)).unwrap();
            let states: u64 = report.runs.iter().map(|r| r.states).sum();
            assert!(states >= 1500, "{states}");
            for r in &report.runs {
                assert!(r.violations.is_empty(), "{:?}", r.violations);
            }
        }
    }

    #[test]
    fn planted_bugs_are_found() {
        for plant in Mode::Sync.info().plants {
            let o = CrashOptions {
                plant: Plant(Some(plant)),
                first: true,
                ..options(Mode::Sync, 20_000)
            };
            let report = explore(&o).unwrap();
            assert!(report.runs.iter().any(|r| !r.violations.is_empty()), "{plant} is not found");
        }
    }
}
