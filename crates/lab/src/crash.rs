//! The crash explorer: runs a scenario once, builds the images that a power cut could have left at
//! each moment, and has each judged. Every finding names the state, and the state can be built
//! again from its name.
//!
//! Invariants:
//! * X1. Each seed is taken in once, in the order of the seeds: one command has one result.
//! * X2. A state is counted where it is seen first: a run's states are the images that it adds to
//!   those of its mode, and what is said of one that is broken leads to it again.
//! * X3. A run ends when it has its states, has found what it was to find, or has no seeds left.
//! * X4. The states of a seed come in the order of their names, each name once.
//! * X5. At a cut no caller has more under way than one act, and one that a failing disk refused.
//! * X6. A report has a run for each scenario that was asked for, and no scenario has more states
//!   than its share and what one seed may add to it.

use crate::acts::Act;
use crate::judge::{Expected, Verdict, judge};
use crate::lifecycle;
use crate::record::{Lasted, Progress, Recorded, record};
use crate::scenario::{
    EXTENTS, FAILING, GROUPS, INLINE, OF_STORES, SHIFTS, SPLITS, VALUES, WIDE, ZEROS, seeds,
};
use crate::subject::{Setting, VolumeKind};
use integrity::Plant;
use serde::Serialize;
use sim::{CrashImages, Event, Image};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// What to explore.
#[derive(Clone, Debug)]
pub struct CrashOptions {
    /// The mode, and its options.
    pub setting: Setting,
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
    /// Images judged besides, left by a second power cut in the middle of recovery.
    pub cut_again: u64,
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

/// Violations kept of each run.
const KEPT: usize = 20;
/// Seeded variants of each cut.
const RANDOM_VARIANTS: u64 = 6;
/// A state's place: the event it is cut after, and which of the images possible there.
pub(crate) type StateId = (u64, u64);

/// A state that was judged.
pub(crate) struct Judged {
    pub(crate) id: StateId,
    pub(crate) digest: u64,
    pub(crate) wrong: Vec<String>,
    pub(crate) losses: BTreeSet<&'static str>,
    pub(crate) again: u64,
}

/// What is known of one volume at a cut.
pub(crate) struct Known<'a> {
    pub(crate) done: Vec<Act>,
    pub(crate) in_flight: Vec<&'a Act>,
    /// As of [`Expected`].
    pub(crate) began: Vec<usize>,
    pub(crate) lasted: Vec<Lasted>,
}

impl<'a> Known<'a> {
    /// `lasted`: of all acts of the run.
    pub(crate) fn at(
        (r, lasted): (&'a Recorded, &[Lasted]),
        progress: &Progress,
        volume: usize,
    ) -> Known<'a> {
        let mine = |i: &&usize| **i % r.setups.len() == volume;
        let answered = progress.answered.iter().filter(mine).map(|i| r.acts[*i].clone());
        let done = r.setups[volume].iter().cloned().chain(answered).collect();
        let in_flight = progress.in_flight.iter().filter(mine).map(|i| &r.acts[*i]).collect();
        // What was set up was done one after the other.
        let setup = r.setups[volume].len();
        let (mut count, mut before) = (setup, vec![setup]);
        for i in &progress.answered {
            count += usize::from(mine(&i));
            before.push(count);
        }
        let since = |i: &usize| before[progress.since[i]];
        let began = (0..setup).chain(progress.answered.iter().filter(mine).map(since)).collect();
        let open = |i: &usize| lasted[*i].map(|(begun, _)| (begun, u64::MAX));
        let answered = progress.answered.iter().filter(mine).map(|i| lasted[*i]);
        let under_way = progress.in_flight.iter().filter(mine).map(open);
        let lasted = vec![r.set_up; setup].into_iter().chain(answered).chain(under_way).collect();
        Known { done, in_flight, began, lasted }
    }

    fn expected(&self, setup: usize, (r, o): (&Recorded, &CrashOptions)) -> Expected<'_> {
        let (done, in_flight) = (&self.done, &self.in_flight);
        let (began, lasted) = (&self.began, &self.lasted);
        let (callers, remote) = (r.callers, r.remote as u64);
        Expected { done, in_flight, began, lasted, setup, callers, remote, plant: o.plant }
    }
}

/// The states of one seed, each judged once. `only`: one of them.
fn explore_script(
    o: &CrashOptions,
    name: &str,
    seed: u64,
    only: Option<StateId>,
) -> Result<Vec<Judged>, String> {
    if name == lifecycle::NAME {
        return lifecycle::explore_life(o, seed, only);
    }
    let r = record(o.setting, o.plant, name, seed)?;
    let lasted = r.lasted();
    let mut images = CrashImages::of_disks(&r.trace, r.base.clone());
    let mut progress = Progress { failed: r.failed.clone(), ..Progress::default() };
    let mut seen = BTreeSet::new();
    let mut all = Vec::new();
    let mut cut = 0;
    loop {
        if progress.begun >= r.from && only.is_none_or(|(c, _)| c == cut) {
            let known: Vec<Known<'_>> =
                (0..r.setups.len()).map(|v| Known::at((&r, &lasted), &progress, v)).collect();
            let expected: Vec<Expected<'_>> =
                known.iter().zip(&r.setups).map(|(k, s)| k.expected(s.len(), (&r, o))).collect();
            for variant in 0..images.variants(RANDOM_VARIANTS) {
                if only.is_some_and(|(_, v)| v != variant) {
                    continue;
                }
                let disks = images.images(variant);
                let digests = disks.iter().map(Image::digest);
                let digest = digests.reduce(|all, d| all.rotate_left(9) ^ d).unwrap_or(0);
                // The same image at another moment is judged again: more may be promised by then.
                if seen.insert((digest, progress.answered.len(), progress.begun)) {
                    let verdict = judge(&disks, o.setting, &expected, digest);
                    let Verdict { wrong, losses, again } = verdict;
                    all.push(Judged { id: (cut, variant), digest, wrong, losses, again });
                }
            }
        }
        let broken = all.last().is_some_and(|j: &Judged| !j.wrong.is_empty());
        if only.is_none() && ((o.first && broken) || seen.len() as u64 >= o.states) {
            return Ok(in_order(all));
        }
        let Some(event) = images.step() else { return Ok(in_order(all)) };
        progress.note(event, r.acts.len());
        let (busy, callers) = (progress.in_flight.len(), r.callers as usize * r.setups.len());
        let most = callers + r.failed.len();
        assert!(busy <= most, "X5: {busy} acts of {callers} callers are under way at {cut}");
        cut += 1;
    }
}

/// X4.
pub(crate) fn in_order(all: Vec<Judged>) -> Vec<Judged> {
    let rises = all.is_sorted_by(|a, b| a.id < b.id);
    assert!(rises, "X4: of {} states one comes before an earlier one", all.len());
    all
}

/// What has been explored of a scenario. Seeds are taken in whenever they are finished, but in
/// their order, so that one command has one result however many threads there are.
struct Merge<'a> {
    options: &'a CrashOptions,
    /// Images of the whole mode.
    images: &'a mut BTreeSet<u64>,
    /// By their places behind the first seed, as what follows.
    finished: BTreeMap<u64, Result<Vec<Judged>, String>>,
    next: u64,
    last: u64,
    run: Run,
    full: bool,
}

impl Merge<'_> {
    fn take(&mut self, n: u64, states: Result<Vec<Judged>, String>) {
        let twice = self.finished.insert(n, states).is_some() || n < self.next;
        assert!(!twice, "X1: seed {n} is taken in twice, and {} is the next", self.next);
        while !self.full
            && let Some(states) = self.finished.remove(&self.next)
        {
            let seed = seed_of(self.options, &self.run.scenario, self.next);
            self.next += 1;
            match states {
                Err(why) => {
                    broken(self.options, &mut self.run, (seed, (0, 0)), why);
                    self.last = self.next;
                }
                Ok(all) => all.into_iter().for_each(|j| self.one(seed, j)),
            }
            let found = self.options.first && !self.run.violations.is_empty();
            let enough = self.run.states >= self.options.states;
            self.full = found || enough || self.next >= self.last;
        }
    }

    fn one(&mut self, seed: u64, j: Judged) {
        self.run.states += u64::from(self.images.insert(j.digest));
        self.run.cut_again += j.again;
        for kind in j.losses {
            *self.run.losses.entry(kind.to_owned()).or_default() += 1;
        }
        for what in j.wrong {
            broken(self.options, &mut self.run, (seed, j.id), what);
        }
    }
}

fn broken(o: &CrashOptions, run: &mut Run, (seed, id): (u64, StateId), what: String) {
    if run.violations.len() < KEPT {
        let state = format!("{}:{seed}:{}:{}", run.scenario, id.0, id.1);
        let parts = state.split(':').count();
        assert_eq!(parts, 4, "X2: {state} does not lead to its state again");
        let plant = o.plant.0.map_or(String::new(), |p| format!(" --plant {p}"));
        let replay = {
            let Setting { mode, .. } = o.setting;
            format!("cairn crash --mode {mode} {}{plant} --replay {state}", o.setting.options())
        };
        run.violations.push(Violation { what, state, replay });
    }
}

/// The n-th seed from the first one on; behind the last number of all comes 0. The sequences are
/// walked in a scattered order, so that a part of them is a fair sample.
fn seed_of(o: &CrashOptions, scenario: &str, n: u64) -> u64 {
    let seed = o.seed.wrapping_add(n);
    seeds(scenario).map_or(seed, |all| seed.wrapping_mul(131) % all)
}

fn empty_run(o: &CrashOptions, scenario: &str, seed: u64) -> Run {
    Run {
        mode: o.setting.mode.to_string(),
        options: o.setting.options(),
        scenario: scenario.to_owned(),
        seed,
        states: 0,
        cut_again: 0,
        violations: Vec::new(),
        losses: BTreeMap::new(),
    }
}

/// Explores. With several scenarios the wanted states are shared between them; those that run out
/// of seeds leave theirs to the ones after them. Who looks for a first finding gets a glance at the
/// scenario that he has named, a short round over all of them, then the long one, and if that has
/// found nothing, one in which each scenario has all the states: some bugs show only where a log
/// has gone round several times.
///
/// A scenario's states depend on its name, the seed and its share alone. One scenario more leaves
/// each of the others a smaller share: then runs of all scenarios have other counts for the same
/// seed, runs of one scenario have not (so with `failing`, of volumes with intents).
pub fn explore(o: &CrashOptions) -> Result<CrashReport, String> {
    explore_ways(std::slice::from_ref(o))
}

/// The same in several ways of opening, each with its own wanted states. Who looks for a first
/// finding gets each round in all of them before the next.
pub fn explore_ways(ways: &[CrashOptions]) -> Result<CrashReport, String> {
    let mut all = CrashReport::default();
    for round in [Round::Glance, Round::Short, Round::Long, Round::Each] {
        for o in ways {
            let Some(states) = round.states(o) else { continue };
            let o = CrashOptions { states, ..o.clone() };
            let round = explore_round(&o, matches!(round, Round::Each))?;
            let found = round.runs.iter().any(|r| !r.violations.is_empty());
            if o.first {
                all.runs.clear(); // what one round has shown, the next shows again
            }
            all.runs.extend(round.runs);
            if o.first && found {
                return Ok(all);
            }
        }
    }
    Ok(all)
}

/// Where all scenarios are explored, this one gets at most so many states: it is dear to judge.
fn states_max(name: &str) -> u64 {
    match name {
        "fragments" => 200,
        "crowd" => 200,
        "holes" => 24,
        // It is about one count, which is changed in the first of its operations.
        "sharing" => 400,
        _ => u64::MAX,
    }
}

/// The rounds of a search, each through all ways of opening.
#[derive(Clone, Copy)]
enum Round {
    Glance,
    Short,
    Long,
    Each,
}

impl Round {
    /// So many states has the round; None: it is left out. Who looks for all findings has one.
    fn states(self, o: &CrashOptions) -> Option<u64> {
        let short = |states| (o.first && o.states > states).then_some(states);
        match self {
            Round::Glance => short(300).filter(|_| o.scenario.is_some()),
            Round::Short => short(2500),
            Round::Long => Some(o.states),
            Round::Each => o.first.then_some(o.states),
        }
    }
}

/// Is the scenario one for other volumes, or other modes?
pub(crate) fn left_out(s: Setting, name: &str) -> bool {
    // Of space that was allocated ahead the others show less than all, or nothing; and they have
    // no indexes.
    let ext4 = s.kind != VolumeKind::Ext3;
    match name {
        EXTENTS | SPLITS | SHIFTS | ZEROS => !ext4,
        GROUPS => !ext4 && s.is_prefix(),
        n if OF_STORES.contains(&n) => !s.in_segments(),
        INLINE => !s.has_inline_data(),
        VALUES => !s.has_values(),
        FAILING => !s.intents,
        WIDE => s.block_scale() <= 1,
        _ => false,
    }
}

/// `each`: every scenario gets all of the states, the longest scenarios first.
fn explore_round(o: &CrashOptions, each: bool) -> Result<CrashReport, String> {
    let names = crate::scenarios().iter().map(|s| s.0);
    let cleans = o.setting.in_segments();
    let has = |n: &&str| !left_out(o.setting, n);
    let all: Vec<&str> = names.filter(has).collect();
    let mut names = match &o.scenario {
        Some(s) if all.contains(&s.as_str()) => vec![s.as_str()],
        Some(s) => return Err(format!("no scenario {s}: there are {}", all.join(", "))),
        // Where the store has most to do.
        None if cleans && o.plant.0.is_some_and(|p| lfs::PLANTS.contains(&p)) => OF_STORES.to_vec(),
        None => all,
    };
    if each {
        names.reverse();
    }
    let mut report = CrashReport::default();
    let mut images = BTreeSet::new();
    let mut left = o.states;
    for (i, name) in names.iter().enumerate() {
        let share = left.div_ceil((names.len() - i) as u64).max(1);
        let share = if each { o.states } else { share };
        let share = if names.len() > 1 { share.min(states_max(name)) } else { share };
        let options = CrashOptions { states: share, ..o.clone() };
        let before = images.len() as u64;
        let run = explore_scenario(&options, name, &mut images);
        let (added, states) = (images.len() as u64 - before, run.states);
        assert_eq!(added, states, "X2: {name} counts other states than it has added");
        left = left.saturating_sub(run.states);
        let stop = o.first && !run.violations.is_empty();
        report.runs.push(run);
        if stop {
            return Ok(report);
        }
    }
    let (has, asked) = (report.runs.len(), names.len());
    assert_eq!(has, asked, "X6: runs of all scenarios that were asked for");
    Ok(report)
}

fn explore_scenario(o: &CrashOptions, name: &str, images: &mut BTreeSet<u64>) -> Run {
    let last = seeds(name).unwrap_or(u64::MAX);
    let merge = Mutex::new(Merge {
        options: o,
        images,
        finished: BTreeMap::new(),
        next: 0,
        last,
        run: empty_run(o, name, o.seed),
        full: false,
    });
    let next = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let full = || merge.lock().expect("nobody panics holding it").full;
    std::thread::scope(|s| {
        for _ in 0..threads {
            s.spawn(|| {
                while !full() {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= last {
                        return;
                    }
                    let states = explore_script(o, name, seed_of(o, name, n), None);
                    merge.lock().expect("nobody panics holding it").take(n, states);
                }
            });
        }
    });
    let all = merge.into_inner().expect("nobody panics holding it");
    let (states, wanted) = (all.run.states, o.states);
    assert!(all.full, "X3: {name} has {states} states of {wanted}, and seeds from {} on", all.next);
    all.run
}

/// Builds one state again and judges it; `state` as a violation names it.
pub fn replay(o: &CrashOptions, state: &str) -> Result<CrashReport, String> {
    let parts: Vec<&str> = state.split(':').collect();
    let bad = || format!("{state} is no state: scenario:seed:event:variant");
    let [name, seed, cut, variant] = parts[..] else { return Err(bad()) };
    let number = |s: &str| s.parse::<u64>().map_err(|_| bad());
    let (seed, cut, variant) = (number(seed)?, number(cut)?, number(variant)?);
    let mut run = empty_run(o, name, seed);
    for j in explore_script(o, name, seed, Some((cut, variant)))? {
        run.states += 1;
        j.losses.iter().for_each(|k| *run.losses.entry((*k).to_owned()).or_default() += 1);
        j.wrong.into_iter().for_each(|what| broken(o, &mut run, (seed, j.id), what));
    }
    if run.states == 0 {
        return Err(format!("{state}: this run has no such state"));
    }
    if name != lifecycle::NAME {
        tell_trace(o, name, seed, cut)?;
    }
    Ok(CrashReport { runs: vec![run] })
}

/// Prints what led to a state: the acts, and what the disk was asked since the last of them began.
fn tell_trace(o: &CrashOptions, name: &str, seed: u64, cut: u64) -> Result<(), String> {
    let r = record(o.setting, o.plant, name, seed)?;
    for (n, setup) in r.setups.iter().enumerate() {
        setup.iter().for_each(|a| eprintln!("setup of volume {}  {a:?}", n + 1));
    }
    for (i, event) in r.trace.events.iter().take(cut as usize).enumerate() {
        match event {
            Event::Mark(m) if m / 2 < r.acts.len() as u64 => {
                let what = if m % 2 == 0 { "begins  " } else { "answered" };
                eprintln!("{i:5} {what} {:?}", r.acts[(m / 2) as usize]);
            }
            Event::Mark(_) => (),
            Event::WriteIssued(w) => {
                let write = &r.trace.writes[*w];
                let bs = o.setting.block_bytes;
                let (first, n) = (write.at / bs, write.bytes.len() as u64 / bs);
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
    use volume::{Commit, Mode};

    fn options(mode: Mode, states: u64) -> CrashOptions {
        let setting = Setting::plain(mode);
        CrashOptions { setting, scenario: None, seed: 0, states, plant: Plant::NONE, first: false }
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
    fn after_async_a_check_mends_torn_checksums_and_half_trees() {
        for checksums in [true, false] {
            let o = options(Mode::Async, 700);
            let setting = Setting { kind: VolumeKind::Ext4 { checksums }, ..o.setting };
            for r in explore(&CrashOptions { setting, ..o }).unwrap().runs {
                assert!(r.violations.is_empty(), "{checksums}: {:?}", r.violations);
            }
        }
    }

    #[test]
    fn larger_blocks_keep_what_is_promised() {
        for mode in volume::MODES.iter().map(|m| m.mode) {
            for (bytes, states) in [(4096, 70), (2048, 35)] {
                let setting = Setting::plain(mode).with_blocks(bytes);
                for r in explore(&CrashOptions { setting, ..options(mode, states) }).unwrap().runs {
                    assert!(r.violations.is_empty(), "{bytes}: {:?}", r.violations);
                }
            }
        }
    }

    #[test]
    fn volumes_with_one_log_keep_what_they_promise_together_and_alone() {
        let shared = |commit, plant, first| {
            let setting =
                Setting { outside: true, volumes: 2, commit, ..Setting::plain(Mode::Redo) };
            let states = if first { 4000 } else { 500 };
            explore(&CrashOptions { setting, plant, first, ..options(Mode::Redo, states) }).unwrap()
        };
        for commit in [Commit::Sync, Commit::Async] {
            for r in shared(commit, Plant::NONE, false).runs {
                assert!(r.violations.is_empty(), "{:?}", r.violations);
            }
        }
        let found = shared(Commit::Sync, Plant(Some("ack-before-log")), true);
        let first = found.runs.iter().find_map(|r| r.violations.first());
        let first = first.expect("an acknowledgement before the log's write is found");
        assert!(first.replay.contains("--volumes 2"), "{}", first.replay);
    }

    #[test]
    fn contents_freed_on_their_way_to_the_disk_hold_nobody_elses() {
        let short = |commit, plant, states| {
            let setting = Setting { commit, ..Setting::plain(Mode::Unified) };
            let scenario = Some("short-lives".to_owned());
            let first = plant != Plant::NONE;
            let o = CrashOptions { setting, scenario, plant, first, ..options(Mode::Unified, 0) };
            let report = explore(&CrashOptions { states, ..o }).unwrap();
            report.runs.into_iter().flat_map(|r| r.violations).collect::<Vec<_>>()
        };
        for commit in [Commit::Sync, Commit::Async] {
            let found = short(commit, Plant::NONE, 200);
            assert!(found.is_empty(), "{found:?}");
            let forgotten = Plant(Some("freed-contents-forgotten"));
            assert!(!short(commit, forgotten, 1000).is_empty(), "{commit:?}");
        }
    }

    #[test]
    fn what_nobody_waits_for_is_durable_soon_and_for_nfs_at_once() {
        for mode in [Mode::Redo, Mode::Unified] {
            for scenario in ["pause", "fronts"] {
                let setting = Setting { commit: Commit::Async, ..Setting::plain(mode) };
                let scenario = Some(scenario.to_owned());
                let o = CrashOptions { setting, scenario, ..options(mode, 150) };
                for r in explore(&o).unwrap().runs {
                    assert!(r.violations.is_empty(), "{mode}: {:?}", r.violations.first());
                }
            }
        }
    }

    #[test]
    fn a_file_in_many_pieces_goes_with_a_small_log() {
        for mode in [Mode::Redo, Mode::Unified] {
            let scenario = Some("fragments".to_owned());
            let o = CrashOptions { scenario, ..options(mode, 12) };
            for r in explore(&o).unwrap().runs {
                assert!(r.violations.is_empty(), "{mode}: {:?}", r.violations.first());
            }
        }
    }

    #[test]
    fn nobody_waits_for_ever_for_room_in_a_small_log() {
        for mode in [Mode::Redo, Mode::Unified] {
            for plant in [Plant::NONE, Plant(Some("room-while-open"))] {
                let (scenario, first) = (Some("crowd".to_owned()), plant != Plant::NONE);
                let o = CrashOptions { scenario, plant, first, ..options(mode, 12) };
                let report = explore(&o).unwrap();
                let found = report.runs.iter().any(|r| !r.violations.is_empty());
                assert_eq!(found, first, "{mode}, {plant:?}: {:?}", report.runs);
            }
        }
    }

    #[test]
    fn sums_of_inodes_between_two_are_left_to_who_changes_those() {
        for mode in [Mode::Redo, Mode::Unified] {
            for plant in [Plant::NONE, Plant(Some("sums-between"))] {
                let (scenario, first) = (Some("neighbours".to_owned()), plant != Plant::NONE);
                let o = CrashOptions { scenario, plant, first, ..options(mode, 300) };
                let setting = Setting { kind: VolumeKind::Ext4 { checksums: true }, ..o.setting };
                let report = explore(&CrashOptions { setting, ..o }).unwrap();
                let found = report.runs.iter().any(|r| !r.violations.is_empty());
                assert_eq!(found, first, "{mode}, {plant:?}: {:?}", report.runs);
            }
        }
    }

    #[test]
    fn a_file_made_durable_below_a_moved_directory_is_found() {
        for mode in [Mode::Sync, Mode::Async, Mode::Ordered] {
            let scenario = Some("moved".to_owned());
            let o = CrashOptions { scenario, ..options(mode, 300) };
            for r in explore(&o).unwrap().runs {
                assert!(r.violations.is_empty(), "{mode}: {:?}", r.violations.first());
            }
        }
    }

    #[test]
    fn a_hole_is_there_as_a_whole_or_not_at_all() {
        let scenario = Some("fragments".to_owned());
        let plant = Plant(Some("holes-in-steps"));
        let o = CrashOptions { scenario, plant, first: true, ..options(Mode::Selective, 150) };
        let report = explore(&o).unwrap();
        assert!(report.runs.iter().any(|r| !r.violations.is_empty()));
    }

    #[test]
    fn behind_the_last_seed_of_all_comes_the_first() {
        for (scenario, seed) in
            [("append", u64::MAX), ("append", u64::MAX - 1), ("seq-1", u64::MAX)]
        {
            let o =
                CrashOptions { seed, scenario: Some(scenario.into()), ..options(Mode::Sync, 90) };
            let runs = explore(&o).unwrap().runs;
            assert!(runs[0].states >= 90 && runs[0].violations.is_empty(), "{:?}", runs[0]);
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
