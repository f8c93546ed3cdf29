//! Timers, ordered by (time, order of registration) so that equal times fire in the order they were
//! asked for. It knows no clock.

use crate::Nanos;
use std::collections::BTreeMap;
use std::task::Waker;

#[derive(Default)]
pub(crate) struct Timers {
    pending: BTreeMap<(Nanos, u64), Waker>,
    next: u64,
}

impl Timers {
    pub(crate) fn add(&mut self, at: Nanos, waker: Waker) -> (Nanos, u64) {
        self.next += 1;
        let key = (at, self.next);
        let old = self.pending.insert(key, waker);
        assert!(old.is_none(), "two tasks wait for {at:?} under number {}", self.next);
        key
    }
    pub(crate) fn cancel(&mut self, key: (Nanos, u64)) {
        self.pending.remove(&key);
    }
    /// When the first timer fires (monotonic).
    pub(crate) fn next(&self) -> Option<Nanos> {
        self.pending.keys().next().map(|k| k.0)
    }
    /// Takes the wakers of all that are due.
    pub(crate) fn due(&mut self, now: Nanos) -> Vec<Waker> {
        if self.next().is_none_or(|first| first > now) {
            return Vec::new();
        }
        let later = self.pending.split_off(&(Nanos(now.0.saturating_add(1)), 0));
        let due: Vec<Waker> = std::mem::replace(&mut self.pending, later).into_values().collect();
        let first = self.next();
        assert!(first.is_none_or(|at| at > now), "T2: a timer of {first:?} waits on at {now:?}");
        due
    }
}
