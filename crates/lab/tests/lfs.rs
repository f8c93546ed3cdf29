//! Volumes in a log-structured store, in the store's own mode: what a power cut leaves is the state
//! after some operation, the exported volume is sound, and planted bugs are found.
#![allow(clippy::unwrap_used, reason = "a test may")]

use integrity::Plant;
use lab::Setting;
use lab::crash::{CrashOptions, explore};
use volume::{Commit, Mode};

fn found(commit: Commit, scenario: &str, plant: Option<&'static str>, states: u64) -> Vec<String> {
    let setting = Setting { commit, ..Setting::plain(Mode::Lfs) };
    let (plant, first, scenario) = (Plant(plant), plant.is_some(), Some(scenario.to_owned()));
    let o = CrashOptions { setting, scenario, seed: 0, states, plant, first };
    let runs = explore(&o).unwrap().runs;
    let all = runs.into_iter().flat_map(|r| r.violations);
    all.map(|v| format!("{} {}", v.state, v.what)).collect()
}

#[test]
fn every_cut_leaves_a_prefix_of_the_operations() {
    for commit in [Commit::Sync, Commit::Async] {
        let of_stores = [lab::CLEANING, lab::FULL, lab::THIN];
        for scenario in ["seq-2", "append", "callers", "random"].into_iter().chain(of_stores) {
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
        let any = [lab::THIN, lab::CLEANING, lab::FULL]
            .iter()
            .any(|s| !found(Commit::Sync, s, Some(plant), 200).is_empty());
        assert!(any, "{plant}");
    }
}
