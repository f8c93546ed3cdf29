//! States that the judge once called broken, and that every disk may leave: the explorer has to let
//! them pass, or nobody believes it.

use integrity::Plant;
use lab::Setting;
use lab::crash::{CrashOptions, explore};
use volume::{Commit, Mode};

/// An fsync that is an fdatasync loses times alone: it is found wherever something is left to do
/// for an fsync.
#[test]
fn a_lost_time_is_found_in_every_mode() {
    for m in Mode::all() {
        let setting = Setting { commit: Commit::Async, ..Setting::plain(m.mode) };
        for plant in [Plant(Some("times-left-behind")), Plant::NONE] {
            let (scenario, first) = (Some("dates".to_owned()), plant.is_any());
            let o = CrashOptions { setting, scenario, seed: 0, states: 150, plant, first };
            let runs = explore(&o).unwrap().runs;
            let found = runs.into_iter().flat_map(|r| r.violations).map(|v| v.what).next();
            assert_eq!(found.is_some(), first, "{}: {found:?}", m.name);
        }
    }
}

/// An fsync that waits for another's, which may have begun before what was written last: only where
/// several make one file durable.
#[test]
fn an_fsync_that_only_joins_another_is_found() {
    for mode in [Mode::Ordered, Mode::Async] {
        let (setting, plant) = (Setting::plain(mode), Plant(Some("sync-joins-another")));
        let scenario = Some("company".to_owned());
        let o = CrashOptions { setting, scenario, seed: 0, states: 600, plant, first: true };
        let runs = explore(&o).unwrap().runs;
        assert!(runs.iter().any(|r| !r.violations.is_empty()), "{mode}");
    }
}

/// A file of 11,200 bytes loses its last name and is overwritten from byte 9,000 on; in `ordered`
/// that is in place before its name is gone.
#[test]
fn what_a_file_without_a_name_gets_may_be_in_place_before_its_name_is_gone() {
    let kind = lab::VolumeKind::Ext4 { checksums: true };
    let setting = Setting { kind, block_bytes: 4096, ..Setting::plain(Mode::Ordered) };
    let (scenario, plant) = (Some("owners".to_owned()), Plant::NONE);
    let o = CrashOptions { setting, scenario, seed: 28116, states: 30, plant, first: false };
    let runs = explore(&o).unwrap().runs;
    let broken: Vec<_> = runs.into_iter().flat_map(|r| r.violations).map(|v| v.what).collect();
    assert!(broken.is_empty(), "{broken:?}");
}
