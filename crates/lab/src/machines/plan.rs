//! How one run goes: what happens to which machine, when the second one begins, and what goes wrong
//! on the way to the bucket. It runs nothing.
//!
//! Invariants:
//! * Z1. The cases of a seed are each another one, and each is of a request that there is.
//! * Z2. Something happens in a plan: a machine is cut, a second one comes, or one that is alone.
//! * Z3. A case has a name by which it is found again.

use super::OF_A_SEED;
use env::{Nanos, Rng};
use sim::{Cut, Trouble};
use std::collections::BTreeSet;
use volume::TakeOver;

/// A kind of run.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    /// In how many variants each request is cut.
    variants: u64,
    /// Is the second machine one that only follows?
    pub(crate) follows: bool,
    plan: fn(&Case, &mut Rng) -> Plan,
}

/// One run.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) scenario: &'static Scenario,
    pub(crate) seed: u64,
    /// At which request of the first machine it happens.
    pub(crate) request: u64,
    pub(crate) variant: u64,
}

/// How it goes.
pub(crate) struct Plan {
    pub(crate) trouble: Trouble,
    /// What happens to each machine at which of its requests.
    pub(crate) cuts: [Option<(u64, Cut)>; 3],
    /// The second begins when the first has made so many requests, and this time has passed.
    pub(crate) second: (u64, Nanos),
    /// The third begins so long after the second.
    pub(crate) third: Nanos,
    /// What the second does where the first writes.
    pub(crate) take_over: TakeOver,
    /// The third does the same.
    pub(crate) third_too: bool,
    /// Nobody else comes until the first has ended: it has no reason to end before its last act.
    pub(crate) alone: bool,
    /// What the machines do beside their operations.
    pub(crate) shots: Shots,
}

/// Snapshots in a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shots {
    /// None.
    None,
    /// Machines make some, and delete some.
    Made,
    /// The second machine writes nothing, and makes a clone of one.
    Cloned,
}

/// Nothing goes wrong.
pub(crate) const CALM: Trouble = Trouble::NONE;
const ROUGH: Trouble = Trouble::ROUGH;

pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "cut",
        what: "the writer is killed or stands still at each request; others take over",
        variants: 5,
        follows: false,
        plan: |case, rng| {
            let plan = Plan::calm();
            let cuts = [Some((case.request, cut(case.variant, rng))), None, None];
            let second = (case.request, Nanos::from_millis(rng.below(1500)));
            Plan { cuts, second, ..plan }
        },
    },
    Scenario {
        name: "second",
        what: "a second writer opens at each request of the first, and both go on",
        variants: 2,
        follows: false,
        plan: |case, rng| {
            let second = (case.request, Nanos::from_millis(case.variant * rng.below(40)));
            let third = Nanos::from_millis(rng.below(3000));
            Plan { trouble: listed(case), second, third, ..Plan::calm() }
        },
    },
    Scenario {
        name: "asleep",
        what: "who takes over stands still at one of its requests, and the writer goes on",
        variants: 2,
        follows: false,
        plan: |case, rng| {
            let most = if case.variant == 0 { 400 } else { 10_000 };
            let long = Nanos::from_millis(40 + rng.below(most));
            let cuts = [None, Some((3 + rng.below(40), Cut::StoppedBefore(long))), None];
            let second = (case.request, Nanos(0));
            Plan { trouble: listed(case), cuts, second, ..Plan::calm() }
        },
    },
    Scenario {
        name: "standby",
        what: "a standby waits until the writer, cut at each request, is silent or has ended",
        variants: 5,
        follows: false,
        plan: |case, rng| {
            let cuts = [Some((case.request, cut(case.variant, rng))), None, None];
            let second = (rng.below(20), Nanos(0));
            Plan { cuts, second, take_over: TakeOver::Wait, ..Plan::calm() }
        },
    },
    Scenario {
        name: "standbys",
        what: "two standbys wait for the same writer, which is cut at each request",
        variants: 5,
        follows: false,
        plan: |case, rng| {
            let cuts = [Some((case.request, cut(case.variant, rng))), None, None];
            let second = (rng.below(20), Nanos(0));
            let third = Nanos::from_millis(rng.below(600));
            let take_over = TakeOver::Wait;
            Plan { cuts, second, third, take_over, third_too: true, ..Plan::calm() }
        },
    },
    Scenario {
        name: "shots",
        what: "machines make and delete snapshots, cut at each request; some of which fail",
        variants: 5,
        follows: false,
        plan: |case, rng| {
            let trouble = if case.seed.is_multiple_of(3) { ROUGH } else { CALM };
            let cuts = [Some((case.request, cut(case.variant, rng))), None, None];
            let second = (case.request, Nanos::from_millis(rng.below(1500)));
            Plan { trouble, cuts, second, shots: Shots::Made, ..Plan::calm() }
        },
    },
    Scenario {
        name: "clones",
        what: "a clone is made while the writer goes on; either is cut at each of its requests",
        variants: 5,
        follows: false,
        plan: |case, rng| {
            let trouble = if case.seed.is_multiple_of(3) { ROUGH } else { CALM };
            let (at, writer) = (rng.below(60), rng.one_in(2));
            let cut = cut(case.variant, rng);
            let cuts = match writer {
                true => [Some((case.request, cut)), None, None],
                false => [None, Some((at, cut)), None],
            };
            let second = (case.request.min(40), Nanos::from_millis(rng.below(300)));
            let third = Nanos::from_millis(1000 + rng.below(8000));
            Plan { trouble, cuts, second, third, shots: Shots::Cloned, ..Plan::calm() }
        },
    },
    Scenario {
        name: "lost",
        what: "a writer that is alone loses the answer to each of its requests, and goes on",
        variants: 1,
        follows: false,
        plan: |case, _| {
            let cuts = [Some((case.request, Cut::AnswerLost)), None, None];
            Plan { cuts, alone: true, ..Plan::calm() }
        },
    },
    Scenario {
        name: "rough",
        what: "requests fail, come late and lose their answers; all machines are cut anywhere",
        variants: 5,
        follows: false,
        plan: |case, rng| {
            let mut any = || {
                let (at, kind) = (rng.below(150), rng.below(6));
                (kind < 5).then(|| (at, cut(kind, rng)))
            };
            let cuts = [any(), any(), any()];
            let second = (case.request, Nanos::from_millis(rng.below(1000)));
            let third = Nanos::from_millis(rng.below(3000));
            Plan { trouble: ROUGH, cuts, second, third, ..Plan::calm() }
        },
    },
    Scenario {
        name: "follow",
        what: "a follower is cut at each of its requests, some of which fail or come late",
        variants: 5,
        follows: true,
        plan: |case, rng| {
            let cuts = [None, Some((case.request, cut(case.variant, rng))), None];
            let trouble = if case.seed.is_multiple_of(2) { CALM } else { ROUGH };
            Plan { trouble, cuts, ..Plan::calm() }
        },
    },
];

/// In every other seed a listing takes a while, in which others put and delete.
fn listed(case: &Case) -> Trouble {
    let page = if case.seed.is_multiple_of(2) { 0 } else { 3 };
    Trouble { page, ..CALM }
}

fn cut(kind: u64, rng: &mut Rng) -> Cut {
    let long = Nanos::from_millis(rng.below(20_000));
    match kind {
        0 => Cut::KilledBefore,
        1 => Cut::KilledAfter,
        2 => Cut::KilledLate,
        3 => Cut::StoppedBefore(long),
        _ => Cut::StoppedAfter(long),
    }
}

impl Plan {
    /// One machine after the other, and nothing happens.
    pub(crate) fn calm() -> Plan {
        let second = (u64::MAX, Nanos(0));
        let (trouble, cuts) = (CALM, [None, None, None]);
        Plan {
            trouble,
            cuts,
            second,
            third: Nanos::from_secs(8),
            take_over: TakeOver::Insist,
            third_too: false,
            alone: false,
            shots: Shots::None,
        }
    }
}

impl Case {
    /// Is there such a case?
    pub(crate) fn is_one(&self) -> bool {
        self.variant < self.scenario.variants && self.request < u64::MAX
    }

    /// Its name in a report.
    pub(crate) fn name(&self) -> String {
        let name =
            format!("{}:{}:{}:{}", self.scenario.name, self.seed, self.request, self.variant);
        assert_eq!(name.split(':').count(), 4, "Z3: {name} does not lead to its case again");
        name
    }

    pub(crate) fn plan(&self) -> Plan {
        let salt = self.request.wrapping_mul(1009).wrapping_add(self.variant.wrapping_mul(31));
        let plan = (self.scenario.plan)(self, &mut Rng::new((self.seed << 20) ^ salt ^ 0x5eed));
        let happens = plan.cuts.iter().any(Option::is_some) || plan.second.0 < u64::MAX;
        assert!(happens, "Z2: nothing happens in {}", self.scenario.name);
        plan
    }
}

/// Some of a seed's runs, scattered over the requests that the first machine makes.
pub(crate) fn cases(scenario: &'static Scenario, seed: u64, requests: u64) -> Vec<Case> {
    let total = requests * scenario.variants;
    // Where a step has a factor in common with them, it would come to the same ones again.
    let mut step = (10_007 % total.max(1)) | 1;
    while common_factor(step, total) > 1 {
        step += 2;
    }
    let one = |i: u64| {
        let n = (i * step + seed % total) % total;
        Case { scenario, seed, request: n / scenario.variants, variant: n % scenario.variants }
    };
    let all: Vec<Case> = (0..total.min(OF_A_SEED)).map(one).collect();
    let distinct: BTreeSet<(u64, u64)> = all.iter().map(|c| (c.request, c.variant)).collect();
    let (count, last) = (all.len(), distinct.last());
    assert_eq!(distinct.len(), count, "Z1: cases of {} twice", scenario.name);
    assert!(last.is_none_or(|c| c.0 < requests), "Z1: {last:?} of {requests} requests");
    all
}

fn common_factor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_factor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_many_requests_there_are_no_case_comes_twice() {
        for scenario in SCENARIOS {
            for requests in 1..400 {
                for seed in [0, 7, u64::MAX] {
                    let all = cases(scenario, seed, requests);
                    let wanted = (requests * scenario.variants).min(OF_A_SEED);
                    assert_eq!(all.len() as u64, wanted, "Z1: {}", scenario.name);
                }
            }
        }
    }

    #[test]
    fn cases_of_any_numbers_have_a_plan() {
        for scenario in SCENARIOS {
            for n in [0, 1, u64::MAX / 2, u64::MAX - 1] {
                let variant = n.min(scenario.variants - 1);
                Case { scenario, seed: n, request: n, variant }.plan();
            }
        }
    }
}
