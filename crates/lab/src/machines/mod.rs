//! Whole volumes in a bucket, written by several machines that all believe they are right: each is
//! killed or stands still at any of its requests, answers are lost and requests come late. Whoever
//! opens the volume next finds a prefix of what the one before did, with all that one was told is
//! durable, and no object is ever overwritten. It knows volumes only through their requests.

mod follow;
mod history;
mod plan;
mod run;
mod shots;

use crate::crash::{CrashOptions, CrashReport, Run, Violation};
use plan::{Case, SCENARIOS, Scenario};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bugs that can be planted in the store in a bucket, and in following one.
pub fn plants() -> impl Iterator<Item = &'static str> {
    let of_snapshots = bucket::SNAPSHOT_PLANTS.iter().chain(bucket::CLONE_PLANTS);
    let of_volumes = volume::WRITER_PLANTS.iter().chain(volume::FOLLOWER_PLANTS);
    bucket::PLANTS.iter().chain(of_snapshots).chain(of_volumes).copied()
}

/// Violations kept of each scenario.
const KEPT: usize = 20;
/// Runs of one seed, before the next one's.
const OF_A_SEED: u64 = 60;

/// The scenarios: their names, and what each is about.
pub fn scenarios() -> Vec<(&'static str, &'static str)> {
    SCENARIOS.iter().map(|s| (s.name, s.what)).collect()
}

/// Explores: at least so many runs, shared between the scenarios, each of which is cut in another
/// way. Errors: there is no such scenario.
pub fn explore(o: &CrashOptions) -> Result<CrashReport, String> {
    // A planted bug is looked for where there is what it breaks.
    let of_follower = |p| volume::FOLLOWER_PLANTS.contains(&p);
    let about = |p: &'static str| {
        let is = |all: &[&str]| all.contains(&p);
        match () {
            () if is(bucket::SNAPSHOT_PLANTS) => Some("shots"),
            () if is(bucket::CLONE_PLANTS) => Some("clones"),
            () => None,
        }
    };
    let apt = |s: &Scenario| {
        let fits = |p| about(p).map_or(of_follower(p) == s.follows, |name| name == s.name);
        o.plant.0.is_none_or(fits)
    };
    let named = |s: &Scenario| o.scenario.as_deref().is_none_or(|name| name == s.name);
    let wanted = |s: &&Scenario| if o.scenario.is_some() { named(s) } else { apt(s) };
    let all: Vec<&Scenario> = SCENARIOS.iter().filter(wanted).collect();
    if all.is_empty() {
        let names: Vec<&str> = SCENARIOS.iter().map(|s| s.name).collect();
        return Err(format!("no such scenario in a bucket: there are {}", names.join(", ")));
    }
    let share = o.states.div_ceil(all.len() as u64);
    let mut report = CrashReport::default();
    for scenario in all {
        let run = explore_scenario(o, scenario, share);
        let found = !run.violations.is_empty();
        report.runs.push(run);
        if o.first && found {
            break;
        }
    }
    Ok(report)
}

/// One run again; `state` as a violation names it.
pub fn replay(o: &CrashOptions, state: &str) -> Result<CrashReport, String> {
    let bad = || format!("{state} is no state: scenario:seed:request:variant");
    let parts: Vec<&str> = state.split(':').collect();
    let [name, seed, request, variant] = parts[..] else { return Err(bad()) };
    let number = |s: &str| s.parse::<u64>().map_err(|_| bad());
    let scenario = SCENARIOS.iter().find(|s| s.name == name).ok_or_else(bad)?;
    let (seed, request, variant) = (number(seed)?, number(request)?, number(variant)?);
    let case = Case { scenario, seed, request, variant };
    if !case.is_one() {
        return Err(format!("{state}: {name} has no such state"));
    }
    let mut run = empty(o, scenario);
    take((o, true), &mut run, case);
    Ok(CrashReport { runs: vec![run] })
}

fn empty(o: &CrashOptions, scenario: &Scenario) -> Run {
    Run {
        mode: o.setting.mode.to_string(),
        options: "--in-bucket".into(),
        scenario: scenario.name.to_owned(),
        seed: o.seed,
        states: 0,
        cut_again: 0,
        violations: Vec::new(),
        losses: BTreeMap::new(),
    }
}

fn explore_scenario(o: &CrashOptions, scenario: &'static Scenario, share: u64) -> Run {
    let all = Mutex::new(empty(o, scenario));
    let (next, begun) = (AtomicU64::new(o.seed), AtomicU64::new(0));
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let full = || {
        let found = !all.lock().expect("nobody panics holding it").violations.is_empty();
        begun.load(Ordering::Relaxed) >= share || o.first && found
    };
    std::thread::scope(|s| {
        for _ in 0..threads {
            s.spawn(|| {
                while !full() {
                    // Behind the last seed of all comes the first.
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    for case in plan::cases(scenario, seed, run::requests(seed)) {
                        if full() {
                            return;
                        }
                        begun.fetch_add(1, Ordering::Relaxed);
                        let mut one = empty(o, scenario);
                        take((o, false), &mut one, case);
                        let mut all = all.lock().expect("nobody panics holding it");
                        all.states += one.states;
                        all.violations.extend(one.violations);
                        all.violations.truncate(KEPT);
                    }
                }
            });
        }
    });
    let mut run = all.into_inner().expect("nobody panics holding it");
    run.violations.sort_by(|a, b| a.state.cmp(&b.state));
    run
}

/// Does one run and notes what came of it.
fn take((o, tell): (&CrashOptions, bool), run: &mut Run, case: Case) {
    run.states += 1;
    let planted = o.plant.is_any();
    let what = match std::panic::catch_unwind(|| run::run(case, o.plant, tell)) {
        Ok(Ok(_)) => return,
        Ok(Err(why)) => why,
        // A planted bug has to be found by its consequences.
        Err(_) if planted => return,
        Err(_) => "broken: an assertion failed, see above".into(),
    };
    let state = case.name();
    let plant = o.plant.0.map_or(String::new(), |p| format!(" --plant {p}"));
    let replay = format!("cairn crash --in-bucket{plant} --replay {state}");
    run.violations.push(Violation { what, state, replay });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting::Setting;
    use integrity::Plant;
    use volume::Mode;

    fn options(states: u64, plant: Plant) -> CrashOptions {
        let (setting, first) = (Setting::plain(Mode::Lfs), plant.is_any());
        CrashOptions { setting, scenario: None, seed: 0, states, plant, first }
    }

    #[test]
    fn whoever_takes_a_volume_over_finds_what_was_acknowledged() {
        let report = explore(&options(360, Plant::NONE)).unwrap();
        assert_eq!(report.runs.len(), SCENARIOS.len());
        for r in &report.runs {
            assert!(r.states >= 36 && r.violations.is_empty(), "{:?}", r.violations);
        }
    }

    #[test]
    fn a_case_that_there_is_not_is_not_run() {
        for state in
            ["second:0:0:18446744073709551615", "cut:0:18446744073709551615:0", "cut:0:1:5"]
        {
            let told = replay(&options(1, Plant::NONE), state).err().unwrap_or_default();
            assert!(told.contains("no such state"), "{state}: {told}");
        }
        let last = replay(&options(1, Plant::NONE), "cut:18446744073709551615:3:1").unwrap();
        assert!(last.runs[0].violations.is_empty(), "{:?}", last.runs[0].violations);
    }

    #[test]
    fn each_planted_bug_of_a_bucket_is_found() {
        // Those of snapshots and clones are looked for beside the store itself (crates/bucket), and
        // here by who has more time.
        let of_volumes = volume::WRITER_PLANTS.iter().chain(volume::FOLLOWER_PLANTS);
        for plant in bucket::PLANTS.iter().chain(of_volumes).copied() {
            // The rarest shows after some 3,000 states; how many depends on the store's timing.
            let report = explore(&options(12_000, Plant(Some(plant)))).unwrap();
            let found = report.runs.iter().any(|r| !r.violations.is_empty());
            assert!(found, "{plant}");
        }
    }
}
