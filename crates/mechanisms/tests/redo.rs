//! The redo log over a small made-up layout: a counter, a bitmap, tables of numbers, and blocks
//! that are allocated and freed as metadata and as contents, by several tasks whose operations
//! overlap.
//! Power is cut at every request; after recovery the volume must be what some prefix of the
//! operations made it, with all that were acknowledged. Every planted bug must be found.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../wal/tests/world/mod.rs"]
mod world;

mod small_layout;

use small_layout::{Setup, history};

fn setups() -> Vec<Setup> {
    let (ordered, far, plant) = (false, false, None);
    let base = Setup { unified: 0, unified_mode: false, sync: true, ordered, far, plant };
    vec![
        base,
        Setup { sync: false, ..base },
        Setup { unified: 300, ..base },
        Setup { ordered: true, ..base },
        Setup { ordered: true, unified: 300, sync: false, ..base },
        Setup { unified_mode: true, unified: 1024, ..base },
        Setup { unified_mode: true, unified: 0, ..base },
        Setup { unified_mode: true, unified: 300, sync: false, ..base },
        // Whole blocks are written in place directly, over others that are logged.
        Setup { unified_mode: true, unified: 300, ..base },
        Setup { far: true, ordered: true, unified: 300, ..base },
        Setup { far: true, unified_mode: true, unified: 300, sync: false, ..base },
    ]
}

#[test]
fn power_cuts_at_every_request() {
    for setup in setups() {
        for cut in 0..160 {
            history(setup, 1, cut, 2).unwrap();
        }
    }
}

#[test]
fn many_lives() {
    for setup in setups() {
        for seed in 0..120 {
            history(setup, 1000 + seed, 30 + seed * 7 % 160, 8).unwrap();
        }
    }
}

/// Bugs that this layout cannot show.
const ELSEWHERE: [&str; 4] =
    ["guard-before-flag", "flag-before-guard", "never-sent", "room-while-open"];

#[test]
fn planted_bugs_are_found() {
    std::panic::set_hook(Box::new(|_| ()));
    let all = setups();
    let mut blind = Vec::new();
    for (mode, setups) in
        [(mechanisms::Mode::Redo, [all[0]; 2]), (mechanisms::Mode::Unified, [all[5], all[7]])]
    {
        for plant in mode.info().plants {
            // The guard is the volume's, which this layout is without; time passes only where
            // somebody waits, and nobody does within an operation.
            // `cairn crash` finds these.
            if ELSEWHERE.contains(plant) {
                continue;
            }
            // What is freed here comes back as contents too seldom; `cairn crash` finds it. It
            // finds this too: here one that frees comes when the contents are in place.
            let seldom = mode == mechanisms::Mode::Unified && *plant == "no-revoke";
            if seldom || *plant == "freed-contents-forgotten" {
                continue;
            }
            let found = (0..3000).any(|seed| {
                let setup = Setup { plant: Some(plant), ..setups[(seed % 2) as usize] };
                let run = || history(setup, seed, 30 + seed % 150, 8);
                !matches!(std::panic::catch_unwind(run), Ok(Ok(())))
            });
            if !found {
                blind.push(format!("{mode}: {plant}"));
            }
        }
    }
    let _ = std::panic::take_hook();
    assert!(blind.is_empty(), "not found: {blind:?}");
}

#[test]
#[ignore]
fn one() {
    let a = |n: &str| std::env::var(n).unwrap().parse::<u64>().unwrap();
    history(setups()[a("SETUP") as usize], a("SEED"), a("CUT"), a("ROUNDS") as u32).unwrap();
}
