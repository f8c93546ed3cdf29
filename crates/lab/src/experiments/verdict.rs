//! What a paper claims, in numbers, and the verdict on what was measured of it. A claim has a
//! tolerance both ways: more than the paper has is told apart from less. It knows no experiment.
//!
//! Invariants:
//! * U1. A tolerance is a range, and the paper's own value lies in it.
//! * U2. What is met is reproduced or stronger, and what is reproduced lies in the tolerance.
//! * U3. A claim says what it is about.

use serde::Serialize;

/// What was found of a claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Within the tolerance.
    Reproduced,
    /// Beyond it, to the side of what the paper says.
    Stronger,
    /// Beyond it to the other side; at least half of the effect is left.
    Weaker,
    /// Less than half of the effect is left (of a ratio, in its logarithm), or the opposite holds.
    Contradicted,
    /// Another workload than the paper's: the numbers stand side by side and prove nothing.
    Proxy,
}

impl Verdict {
    /// As it is printed.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Reproduced => "reproduced",
            Verdict::Stronger => "stronger",
            Verdict::Weaker => "weaker",
            Verdict::Contradicted => "contradicted",
            Verdict::Proxy => "proxy",
        }
    }

    /// How bad it is, for the comparison with what is stated.
    fn rank(self) -> u8 {
        match self {
            Verdict::Reproduced | Verdict::Stronger | Verdict::Proxy => 0,
            Verdict::Weaker => 1,
            Verdict::Contradicted => 2,
        }
    }

    /// Is it worse than `stated`?
    pub(crate) fn is_worse_than(self, stated: Verdict) -> bool {
        self.rank() > stated.rank()
    }
}

/// Something that a paper claims, with what was measured.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Claim {
    /// What.
    pub what: String,
    /// What was measured of it.
    pub measured: String,
    /// Is it so, at least as much as the paper says?
    pub met: bool,
    /// Its number among the papers' claims (docs/lab.md).
    pub number: u32,
    /// The paper's value.
    pub paper: f64,
    /// Ours.
    pub ours: f64,
    /// Ours is the paper's if it lies here.
    pub tolerance: (f64, f64),
    /// Both in this unit.
    pub unit: &'static str,
    /// What follows.
    pub verdict: Verdict,
    /// The verdict that docs/lab.md states and explains, for a run in the paper's size.
    pub stated: Verdict,
    /// Why it is so.
    pub reason: String,
}

impl Claim {
    /// Is it worse than what is stated?
    pub fn is_surprise(&self) -> bool {
        self.verdict.is_worse_than(self.stated)
    }
}

/// To which side of the paper's value its claim is stronger.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    More,
    Less,
    /// It claims that there is no difference.
    Neither,
}

/// A claim before it is measured.
#[derive(Clone, Debug)]
pub(crate) struct Stated {
    number: u32,
    what: String,
    paper: f64,
    tolerance: (f64, f64),
    unit: &'static str,
    side: Side,
    /// The value at which nothing of the claim is left.
    nothing: Option<f64>,
    proxy: bool,
    stands: Verdict,
    reason: String,
}

/// Both ways: the paper's value may be divided or multiplied by this.
const TOLERANCE: f64 = 1.25;
/// The same where the paper says that two things are equal.
const TOLERANCE_OF_EQUALS: f64 = 1.1;

impl Stated {
    fn new(number: u32, what: impl Into<String>, paper: f64, side: Side) -> Stated {
        let by = if side == Side::Neither { TOLERANCE_OF_EQUALS } else { TOLERANCE };
        Stated {
            number,
            what: what.into(),
            paper,
            tolerance: (paper / by, paper * by),
            unit: "",
            side,
            nothing: None,
            proxy: false,
            stands: Verdict::Reproduced,
            reason: String::new(),
        }
    }

    /// One thing is so many times another; nothing is left of it when they are equal.
    pub(crate) fn times(number: u32, what: impl Into<String>, paper: f64) -> Stated {
        let side = if paper > 1.0 { Side::More } else { Side::Less };
        Stated { nothing: Some(1.0), unit: "×", ..Stated::new(number, what, paper, side) }
    }

    /// Two things are equal.
    pub(crate) fn equal(number: u32, what: impl Into<String>) -> Stated {
        Stated { unit: "×", ..Stated::new(number, what, 1.0, Side::Neither) }
    }

    /// The paper's own value, which is nearly one.
    pub(crate) fn valued(self, paper: f64) -> Stated {
        let tolerance = (paper / TOLERANCE_OF_EQUALS, paper * TOLERANCE_OF_EQUALS);
        Stated { paper, tolerance, ..self }
    }

    /// An amount; more of it is what the paper claims.
    pub(crate) fn amount(
        number: u32,
        what: impl Into<String>,
        (paper, unit): (f64, &'static str),
    ) -> Stated {
        Stated { unit, ..Stated::new(number, what, paper, Side::More) }
    }

    /// An amount between two; less of it is what the paper claims.
    pub(crate) fn at_most(
        number: u32,
        what: impl Into<String>,
        (low, high, unit): (f64, f64, &'static str),
    ) -> Stated {
        let paper = (low + high) / 2.0;
        Stated { unit, tolerance: (low, high), ..Stated::new(number, what, paper, Side::Less) }
    }

    /// A ratio of which the paper tells no number, but between what it lies; it holds or does not.
    pub(crate) fn between(number: u32, what: impl Into<String>, (low, high): (f64, f64)) -> Stated {
        let paper = (low + high) / 2.0;
        let tolerance = (low, high);
        Stated { unit: "×", tolerance, ..Stated::new(number, what, paper, Side::Neither) }
    }

    /// A goal of our own, without a number and a paper: a ratio of at least the first bound.
    pub(crate) fn goal(what: impl Into<String>, tolerance: (f64, f64)) -> Stated {
        let s = Stated::new(0, what, 1.0, Side::More);
        Stated { unit: "×", tolerance, nothing: Some(0.8), ..s }
    }

    /// Another tolerance, where the paper itself gives one.
    pub(crate) fn within(self, low: f64, high: f64) -> Stated {
        Stated { tolerance: (low, high), ..self }
    }

    /// The workload, or what it runs on, is not the paper's.
    pub(crate) fn proxy(self) -> Stated {
        Stated { proxy: true, stands: Verdict::Proxy, ..self }
    }

    /// Another claim's number.
    pub(crate) fn numbered(self, number: u32) -> Stated {
        Stated { number, ..self }
    }

    /// The verdict that the page states.
    pub(crate) fn stands(self, verdict: Verdict) -> Stated {
        Stated { stands: verdict, ..self }
    }

    /// Why it is as it is.
    pub(crate) fn because(self, reason: impl Into<String>) -> Stated {
        Stated { reason: reason.into(), ..self }
    }

    /// The verdict on `ours`, whatever workload it comes from.
    fn judge(&self, ours: f64) -> Verdict {
        let (low, high) = self.tolerance;
        if (low..=high).contains(&ours) {
            return Verdict::Reproduced;
        }
        // Nothing was measured: neither more nor less than anything.
        if ours.is_nan() {
            return Verdict::Contradicted;
        }
        let more = ours > high;
        match (self.side, self.nothing) {
            (Side::Neither, _) => Verdict::Contradicted,
            (Side::More, _) if more => Verdict::Stronger,
            (Side::Less, _) if !more => Verdict::Stronger,
            (_, Some(nothing)) if ours > 0.0 => {
                let left = (ours / nothing).ln() / (self.paper / nothing).ln();
                if left < 0.5 { Verdict::Contradicted } else { Verdict::Weaker }
            }
            // An amount beyond a bound by less than a factor of two.
            (_, None) if (0.5 * low..=2.0 * high).contains(&ours) => Verdict::Weaker,
            _ => Verdict::Contradicted,
        }
    }

    /// With what was measured.
    pub(crate) fn measured(self, ours: f64) -> Claim {
        let found = self.judge(ours);
        let ((low, high), paper) = (self.tolerance, self.paper);
        let own = self.number == 0 || self.judge(paper) == Verdict::Reproduced;
        assert!(low < high && own, "U1: {}: {paper} of {low} to {high}", self.what);
        let within = (low..=high).contains(&ours);
        let reproduced = found == Verdict::Reproduced;
        assert!(within == reproduced, "U2: {}: {ours} is {found:?}", self.what);
        assert!(!self.what.is_empty(), "U3: nothing is said to be {ours}");
        let verdict = if self.proxy { Verdict::Proxy } else { found };
        Claim {
            measured: format!("{} {}", short(ours), self.unit).trim().to_owned(),
            met: matches!(found, Verdict::Reproduced | Verdict::Stronger),
            what: self.what,
            number: self.number,
            paper: self.paper,
            ours,
            tolerance: self.tolerance,
            unit: self.unit,
            verdict,
            stated: self.stands,
            reason: self.reason,
        }
    }
}

/// A number with three digits that mean something.
pub(crate) fn short(n: f64) -> String {
    match n.abs() {
        a if a >= 100.0 => format!("{n:.0}"),
        a if a >= 10.0 => format!("{n:.1}"),
        a if a >= 0.1 || a == 0.0 => format!("{n:.2}"),
        _ => format!("{n:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdicts(s: &Stated, all: &[f64]) -> Vec<Verdict> {
        all.iter().map(|&ours| s.clone().measured(ours).verdict).collect()
    }

    #[test]
    fn more_and_less_than_the_paper_are_told_apart() {
        use Verdict::{Contradicted, Reproduced, Stronger, Weaker};
        let twice = Stated::times(37, "twice as fast", 2.0);
        let expected = [Stronger, Reproduced, Reproduced, Weaker, Contradicted, Contradicted];
        assert_eq!(verdicts(&twice, &[2.6, 2.4, 1.7, 1.5, 1.3, 0.9]), expected);
        let half = Stated::times(6, "half as fast", 0.5);
        let expected = [Stronger, Reproduced, Weaker, Contradicted, Contradicted];
        assert_eq!(verdicts(&half, &[0.3, 0.45, 0.65, 0.8, 1.04]), expected);
        let equal = Stated::equal(35, "as fast");
        assert_eq!(verdicts(&equal, &[1.05, 1.2, 0.8]), [Reproduced, Contradicted, Contradicted]);
        let seconds = Stated::at_most(45, "seconds", (3.0, 14.0, "s"));
        assert_eq!(
            verdicts(&seconds, &[1.0, 9.0, 16.0, 40.0]),
            [Stronger, Reproduced, Weaker, Contradicted]
        );
    }

    #[test]
    fn what_was_not_measured_is_not_met() {
        let less = [Stated::times(6, "half", 0.5), Stated::at_most(45, "s", (3.0, 14.0, "s"))];
        for s in less.into_iter().chain([Stated::times(37, "twice", 2.0)]) {
            let claim = s.measured(f64::NAN);
            assert_eq!((claim.verdict, claim.met), (Verdict::Contradicted, false), "{claim:?}");
        }
    }

    #[test]
    fn another_workload_proves_nothing() {
        let c = Stated::times(9, "SDET", 1.34).proxy().measured(1.37);
        assert_eq!((c.verdict, c.met, c.is_surprise()), (Verdict::Proxy, true, false));
    }

    #[test]
    fn worse_than_stated_is_a_surprise_and_better_is_not() {
        let s = Stated::times(41, "ten times less", 10.0).stands(Verdict::Weaker);
        assert!(s.clone().measured(1.0).is_surprise());
        assert!(!s.clone().measured(4.0).is_surprise() && !s.measured(11.0).is_surprise());
    }
}
