//! The latencies of one operation: how many, how many failed, and how they are distributed, since
//! the beginning and of late. A value is kept to within a tenth, so a distribution takes a few KiB.
//!
//! Invariants:
//! * L1. Answers with an error, and those of late, are among all.
//! * L2. Each answer lies in one bucket, and the bounds of these rise.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// "Of late" means the last window that is over and the one that has begun.
const WINDOW_SECS: u64 = 15;

/// Digits of a value that are kept: the bounds of its bucket are a tenth apart.
const DIGITS: u8 = 1;

/// What takes longer is taken for this: a month.
const LONGEST_US: u64 = 30 * 24 * 3600 * 1_000_000;

/// How long answers took, in microseconds, each rounded up by at most a tenth.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Percentiles {
    /// How many answers this is about.
    pub count: u64,
    /// Half of them took no longer.
    pub p50_us: u64,
    /// Nine of ten took no longer.
    pub p90_us: u64,
    /// All but one of a hundred took no longer.
    pub p99_us: u64,
    /// None took longer.
    pub max_us: u64,
}

pub(crate) struct Latency {
    pub(crate) errors: u64,
    pub(crate) total: Duration,
    all: Histogram<u64>,
    /// The window that has begun, and the one before it.
    recent: [Histogram<u64>; 2],
    /// The number of the window that has begun.
    window: u64,
}

fn empty() -> Histogram<u64> {
    let mut h = Histogram::new(DIGITS).expect("one digit is between 0 and 5");
    h.auto(true); // it grows with the longest
    h
}

impl Latency {
    pub(crate) fn new() -> Latency {
        let recent = [empty(), empty()];
        Latency { errors: 0, total: Duration::ZERO, all: empty(), recent, window: 0 }
    }

    /// An answer after `took`, `at` since the recorder's beginning.
    pub(crate) fn record(&mut self, took: Duration, failed: bool, at: Duration) {
        self.turn(at);
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).clamp(1, LONGEST_US);
        self.errors += u64::from(failed);
        self.total += took;
        for h in [&mut self.all, &mut self.recent[0]] {
            h.record(us).expect("it grows as it needs");
        }
        let (failed, recent, all) = (self.errors, self.recent[0].len(), self.all.len());
        assert!(failed.max(recent) <= all, "L1: {failed} failed, {recent} of late, of {all}");
    }

    /// Begins another window if it is time.
    fn turn(&mut self, at: Duration) {
        let window = at.as_secs() / WINDOW_SECS;
        if window <= self.window {
            return;
        }
        self.recent.swap(0, 1);
        self.recent[0].reset();
        if window > self.window + 1 {
            self.recent[1].reset();
        }
        self.window = window;
    }

    pub(crate) fn all(&self) -> Percentiles {
        percentiles(&self.all)
    }

    /// Of the last 15 to 30 seconds.
    pub(crate) fn recent(&mut self, at: Duration) -> Percentiles {
        self.turn(at);
        let mut both = self.recent[0].clone();
        both.add(&self.recent[1]).expect("it grows as it needs");
        percentiles(&both)
    }

    /// How many took up to each of these bounds, but longer than the one before it, in seconds, as
    /// Prometheus has them; the last bound takes the rest.
    pub(crate) fn buckets(&self, bounds: &[f64]) -> Vec<(f64, u64)> {
        let mut counted = 0;
        let below = |bound: f64| match bound {
            f64::INFINITY => self.all.len(),
            b => self
                .all
                .iter_recorded()
                .map_while(|v| {
                    let us = v.value_iterated_to() as f64;
                    (us <= b * 1e6).then(|| v.count_since_last_iteration())
                })
                .sum(),
        };
        let more = |bound: &f64| {
            let now = below(*bound);
            assert!(counted <= now, "L2: up to {bound} s are {now}, and up to less {counted}");
            let new = now - counted;
            counted = now;
            (*bound, new)
        };
        let buckets: Vec<(f64, u64)> = bounds.iter().map(more).collect();
        let rest = self.all.len() - counted;
        let takes_all = bounds.last() == Some(&f64::INFINITY);
        assert!(!takes_all || rest == 0, "L2: {rest} answers lie in no bucket");
        buckets
    }
}

fn percentiles(h: &Histogram<u64>) -> Percentiles {
    Percentiles {
        count: h.len(),
        p50_us: h.value_at_quantile(0.5),
        p90_us: h.value_at_quantile(0.9),
        p99_us: h.value_at_quantile(0.99),
        max_us: h.max(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(value: u64, wanted: u64) -> bool {
        value >= wanted && value <= wanted + wanted / 8
    }

    #[test]
    fn percentiles_are_within_a_tenth() {
        let mut l = Latency::new();
        for us in 1..=10_000 {
            l.record(Duration::from_micros(us), us % 100 == 0, Duration::ZERO);
        }
        let p = l.all();
        assert_eq!((p.count, l.errors), (10_000, 100));
        for (value, wanted) in [(p.p50_us, 5000), (p.p90_us, 9000), (p.p99_us, 9900)] {
            assert!(near(value, wanted), "{value} for {wanted}");
        }
        assert!(near(p.max_us, 10_000));
    }

    #[test]
    fn what_is_older_than_two_windows_is_not_of_late() {
        let mut l = Latency::new();
        let secs = Duration::from_secs;
        l.record(secs(1), false, secs(0));
        l.record(secs(2), false, secs(WINDOW_SECS));
        assert_eq!(l.recent(secs(WINDOW_SECS)).count, 2);
        assert_eq!(l.recent(secs(2 * WINDOW_SECS)).count, 1);
        assert_eq!(l.recent(secs(9 * WINDOW_SECS)).count, 0);
        assert_eq!(l.all().count, 2);
    }

    #[test]
    fn every_answer_lies_in_one_bucket() {
        let mut l = Latency::new();
        for us in [1, 3, 70, 900, 5_000_000_000] {
            l.record(Duration::from_micros(us), false, Duration::ZERO);
        }
        let buckets = l.buckets(&[4e-6, 1e-4, 1.0, f64::INFINITY]);
        assert_eq!(buckets.iter().map(|b| b.1).collect::<Vec<_>>(), [2, 1, 1, 1]);
    }
}
