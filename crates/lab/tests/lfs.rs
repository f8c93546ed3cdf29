//! Volumes in a log-structured store, in the store's own mode: what a power cut leaves is the state
//! after some operation, the exported volume is sound, and planted bugs are found.
#![allow(clippy::unwrap_used, reason = "a test may")]

use integrity::Plant;
use lab::Setting;
use lab::crash::{CrashOptions, explore};
use volume::{Commit, Mode};

fn found(commit: Commit, scenario: &str, plant: Option<&'static str>, states: u64) -> Vec<String> {
    let scenario = Some(scenario.to_owned());
    violations(commit, scenario, plant, states)
}

/// No scenario: those in which such a bug is looked for.
fn violations(
    commit: Commit,
    scenario: Option<String>,
    plant: Option<&'static str>,
    states: u64,
) -> Vec<String> {
    let setting = Setting { commit, ..Setting::plain(Mode::Lfs) };
    let (plant, first) = (Plant(plant), plant.is_some());
    let o = CrashOptions { setting, scenario, seed: 0, states, plant, first };
    let runs = explore(&o).unwrap().runs;
    let all = runs.into_iter().flat_map(|r| r.violations);
    all.map(|v| format!("{} {}", v.state, v.what)).collect()
}

#[test]
fn every_cut_leaves_a_prefix_of_the_operations() {
    for commit in [Commit::Sync, Commit::Async] {
        for scenario in ["seq-2", "append", "callers", "random"].into_iter().chain(lab::OF_STORES) {
            assert_eq!(found(commit, scenario, None, 25), Vec::<String>::new(), "{scenario}");
        }
    }
}

#[test]
fn planted_bugs_are_found() {
    for plant in Mode::Lfs.info().plants {
        let any = ["callers", "random", "seq-2"]
            .iter()
            .any(|s| !found(Commit::Sync, s, Some(plant), 60).is_empty());
        assert!(any, "{plant}");
    }
}

#[test]
fn bugs_of_the_store_are_found_through_its_volume() {
    for plant in [
        "group-end-ignored",
        "free-record-lost",
        "serial-reset",
        "ranges-not-checkpointed",
        "thin-given-back-early",
    ] {
        let found = violations(Commit::Sync, None, Some(plant), 600);
        assert!(!found.is_empty(), "{plant}");
    }
}
