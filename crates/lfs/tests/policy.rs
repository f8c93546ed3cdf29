//! The cleaner's policies by tables alone: what they take first, what they may not take, and which
//! of two ways they choose.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use lfs::{Candidate, Costs, Lifespans, Limits, Planner, Policy, SegNo, Way};

const BLOCKS: u32 = 32;

fn candidate(segment: u32, live: u32, age: u64) -> Candidate {
    Candidate {
        segment: SegNo(segment),
        live,
        blocks: BLOCKS,
        cached: 0,
        holes: BLOCKS - live,
        age,
    }
}

/// The disk of matthews-1997, with blocks of 8 KiB.
fn costs() -> Costs {
    Costs::new(15e6, 5e6, 256 << 10, 8192)
}

fn all() -> Limits {
    Limits { victims: 100, moved: u64::MAX, plugged: u64::MAX, freed: u64::MAX }
}

fn order(policy: Policy, candidates: &[Candidate]) -> Vec<u32> {
    let mut sorted = candidates.to_vec();
    policy.sort(&mut sorted, &costs());
    sorted.iter().map(|c| c.segment.0).collect()
}

#[test]
fn each_policy_has_its_order() {
    let some = [candidate(0, 24, 100_000), candidate(1, 8, 10), candidate(2, 28, 20_000_000)];
    assert_eq!(order(Policy::Greedy, &some), [1, 0, 2]);
    assert_eq!(order(Policy::CostBenefit, &some), [2, 0, 1]);
    let near = [candidate(0, 4, 900), candidate(1, 24, 10_000)];
    assert_eq!(order(Policy::CostBenefit, &near), [1, 0], "the age itself");
    assert_eq!(order(Policy::Balanced, &near), [0, 1], "its root");
    let emptier = [candidate(0, 2, 399), candidate(1, 8, 999)];
    assert_eq!(order(Policy::Balanced, &emptier), [0, 1], "reading counts half");
    assert_eq!(order(Policy::Adaptive, &emptier), [1, 0], "and here in full");
    let cached = Candidate { cached: 24, ..candidate(0, 24, 100) };
    let read = candidate(1, 23, 100);
    assert_eq!(order(Policy::CostBenefit, &[cached, read]), [1, 0]);
    assert_eq!(order(Policy::CostBenefitCached, &[cached, read]), [0, 1], "nothing to read");
    assert_eq!(order(Policy::Balanced, &[read, cached]), [0, 1]);
    let half = Candidate { cached: 23, ..candidate(2, 24, 100) };
    assert_eq!(order(Policy::Balanced, &[read, half, cached]), [0, 2, 1], "partial credit");
    for (name, policy) in Policy::ALL {
        assert_eq!((Policy::named(name), policy.name()), (Some(policy), name));
        let mut same = [candidate(5, 3, 1), candidate(2, 3, 1), candidate(9, 3, 1)];
        policy.sort(&mut same, &costs());
        assert_eq!(same.map(|c| c.segment.0), [2, 5, 9], "{name}: equals by their numbers");
    }
}

#[test]
fn limits_are_kept() {
    let some: Vec<Candidate> = (0..20).map(|n| candidate(n, 16, 1)).collect();
    let plan = |limits| Planner::new(Policy::Greedy, costs(), 1).plan(some.clone(), &limits);
    assert_eq!(plan(Limits { victims: 3, ..all() }).victims.len(), 3);
    assert_eq!(plan(Limits { moved: 40, ..all() }).victims.len(), 2);
    assert_eq!(plan(Limits { freed: 40, ..all() }).victims.len(), 3);
    assert_eq!(plan(all()).victims.len(), 20);
}

/// Whatever the table: no segment is emptied and plugged in one pass, the holes are enough, and
/// none of the fullest is left out for an emptier one.
#[test]
fn plugs_fit_into_the_fullest() {
    let mut rng = env::Rng::new(3);
    for round in 0..300 {
        let n = 2 + rng.below(40) as u32;
        let one = |i| candidate(i, 1 + rng.below(u64::from(BLOCKS) - 1) as u32, 1);
        let some: Vec<Candidate> = (0..n).map(one).collect();
        let plan = Planner::new(Policy::Plug, costs(), 1).plan(some.clone(), &all());
        if plan.way == Way::Clean {
            assert!(plan.targets.is_empty());
            continue;
        }
        let live: u32 = plan.victims.iter().map(|c| c.live).sum();
        let holes: u32 = plan.targets.iter().map(|c| c.holes).sum();
        assert!(live <= holes && !plan.victims.is_empty(), "round {round}");
        let fullest = plan.victims.iter().map(|c| c.live).max();
        for t in &plan.targets {
            assert!(!plan.victims.contains(t), "round {round}: {t:?} is both");
            assert!(Some(t.live) >= fullest, "round {round}");
        }
        let least = plan.targets.iter().map(|c| c.live).min().unwrap();
        let out = some.iter().filter(|c| !plan.targets.contains(c) && !plan.victims.contains(c));
        assert!(out.into_iter().all(|c| c.live <= least), "round {round}");
    }
}

/// The formulas of matthews-1997 for victims that are equally full: plugging wins above
/// 1 - 2 T_seg / (n T_block), which is 0.75 on its disk.
#[test]
fn the_papers_choice_is_by_its_formulas() {
    let way = |live: u32| {
        let some: Vec<Candidate> = (0..64).map(|n| candidate(n, live, 1)).collect();
        Planner::new(Policy::Paper, costs(), 1).plan(some, &Limits { victims: 16, ..all() }).way
    };
    assert_eq!(
        [8, 16, 22, 26, 29].map(way),
        [Way::Clean, Way::Clean, Way::Clean, Way::Plug, Way::Plug]
    );
    let c = costs();
    let cost = |(time, freed): (f64, f64)| time / freed;
    let full: Vec<Candidate> = (0..8).map(|n| candidate(n, 24, 1)).collect();
    let expected = (8.0 + 6.0) * c.segment / 64.0;
    assert!((cost(c.clean(&full)) / expected - 1.0).abs() < 1e-9);
    let expected = (8.0 * c.segment + 192.0 * c.block) / 256.0;
    assert!((cost(c.plug(&full)) / expected - 1.0).abs() < 1e-9);
}

/// Old segments come first; the emptiest are tried only where the victims are as full as those of
/// random updates, and kept to where that is cheaper.
#[test]
fn the_adaptive_choice_begins_with_old_segments() {
    let table = |old: u32| {
        let one = |n| if n < 8 { candidate(n, old, 100_000) } else { candidate(n, 24, n.into()) };
        (0..64).map(one).collect::<Vec<_>>()
    };
    let limits = Limits { victims: 8, ..all() };
    let firsts = |old, passes| {
        let mut planner = Planner::new(Policy::Adaptive, costs(), 64 * 32);
        let first = |_| planner.plan(table(old), &limits).victims.iter().any(|c| c.live == old);
        (0..passes).map(first).collect::<Vec<_>>()
    };
    assert!(firsts(4, 500).iter().all(|old| *old), "emptier than at random: nothing is tried");
    let full = firsts(26, 500);
    assert!(full[..8].iter().all(|old| *old), "the old ones first");
    assert!(full.contains(&false), "they are fuller than at random: others are tried");
    assert!(!full[490..].contains(&true), "and were cheaper");
}

/// Where cleaning goes on with victims as full as these, plugging is taken up in the end, and left
/// again when it turns out to be dearer than was thought.
#[test]
fn the_adaptive_choice_tries_and_remembers() {
    let table = |live| (0..64).map(|n| candidate(n, live, 1)).collect::<Vec<_>>();
    let limits = Limits { victims: 8, ..all() };
    let mut planner = Planner::new(Policy::Adaptive, costs(), 64 * 32);
    let mut go = |live, passes: u32| {
        (0..passes).map(|_| planner.plan(table(live), &limits).way).collect::<Vec<_>>()
    };
    assert!(go(10, 500).iter().all(|w| *w == Way::Clean), "nothing to gain");
    assert!(go(24, 500).contains(&Way::Plug), "u = 0.75: plugging leaves emptier victims");
    // It did not: the victims are as full as before, and fuller.
    assert_eq!(go(27, 500).last(), Some(&Way::Plug));
    let back = go(10, 2000);
    assert_eq!(back.last(), Some(&Way::Clean), "cleaning is cheaper again");
    let tried = back.windows(2).filter(|w| w[0] != w[1]).count();
    assert!(tried <= 2, "{tried} changes: it remembers");
}

#[test]
fn classes_are_by_lifespan() {
    let mut l = Lifespans::default();
    assert_eq!((l.of_write(None), l.of_write(Some(1 << 40))), (1, 0), "nothing is known yet");
    assert_eq!((l.of_move(0, 1), l.of_move(1, 1 << 40)), (2, 3));
    (0..16).for_each(|_| l.ended(0, 100));
    (0..16).for_each(|_| l.ended(3, 9));
    assert_eq!((l.of_write(Some(99)), l.of_write(Some(100))), (0, 1));
    assert_eq!([399, 400, 1599, 1600].map(|age| l.of_move(1, age)), [3, 4, 4, 5]);
    assert_eq!(l.of_move(0, 1600), 2);
}
