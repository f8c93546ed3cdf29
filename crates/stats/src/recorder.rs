//! All series of a server. A front end asks for its series once and keeps it, so that no request
//! looks one up; only so many clients have series of their own, so that memory stays bounded.
//!
//! Invariants:
//! * R1. No more clients have names than there may be, so series have a bound.
//! * R2. A front end, a volume and a client have one series, under the names of that front end.

use crate::series::{Series, SeriesSummary};
use crate::slow::{Slow, SlowList};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Clients that get series of their own; the others share one.
pub const CLIENTS_MAX: usize = 64;
const OTHER: &str = "other";

/// What a server has been asked.
pub struct Recorder {
    begun: Instant,
    series: Mutex<Vec<Arc<Series>>>,
    clients: Mutex<BTreeSet<String>>,
    slow: Arc<SlowList>,
}

impl Default for Recorder {
    fn default() -> Recorder {
        Recorder {
            begun: Instant::now(),
            series: Mutex::default(),
            clients: Mutex::default(),
            slow: Arc::default(),
        }
    }
}

impl Recorder {
    /// The name that a client has in series: its own, or the one that all share who came when there
    /// were enough.
    pub fn client(&self, name: &str) -> String {
        let mut known = self.clients.lock().expect("nobody panics while holding it");
        if known.len() < CLIENTS_MAX || known.contains(name) {
            known.insert(name.to_owned());
            assert!(known.len() <= CLIENTS_MAX, "R1: {} clients have names", known.len());
            return name.to_owned();
        }
        OTHER.to_owned()
    }

    /// The series of a front end, a volume and a client (as [`Recorder::client`] named it; empty
    /// for a mount), found or made. `names` are those of the front end's operations by number.
    pub fn series(
        &self,
        (front, names): (&'static str, &'static [&'static str]),
        export: &str,
        client: &str,
    ) -> Arc<Series> {
        let mut all = self.series.lock().expect("nobody panics while holding it");
        let is_it = |s: &&Arc<Series>| s.front == front && s.export == export && s.client == client;
        if let Some(known) = all.iter().find(is_it) {
            assert!(known.is_under(names), "R2: {front} has two lists of names");
            return known.clone();
        }
        let of = (export.to_owned(), client.to_owned());
        let new = Arc::new(Series::new(front, names, of, (self.begun, self.slow.clone())));
        all.push(new.clone());
        new
    }

    pub(crate) fn all(&self) -> Vec<Arc<Series>> {
        self.series.lock().expect("nobody panics while holding it").clone()
    }

    /// All series as they stand.
    pub fn summary(&self) -> Vec<SeriesSummary> {
        self.all().iter().map(|s| s.summary()).collect()
    }

    /// The operations of late that took long, the newest first.
    pub fn slow(&self) -> Vec<Slow> {
        self.slow.all()
    }

    /// How long it has been recording.
    pub fn age(&self) -> Duration {
        self.begun.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SLOW;

    const FUSE: (&str, &[&str]) = ("fuse", &["lookup", "other"]);

    #[test]
    fn a_series_is_found_again_and_counts_by_operation() {
        let r = Recorder::default();
        let now = Instant::now();
        r.series(FUSE, "a", "").answered(0, now, false);
        r.series(FUSE, "a", "").answered(0, now, true);
        r.series(FUSE, "b", "").answered(77, now, false);
        let all = r.summary();
        let counts = |s: &SeriesSummary| {
            let o = s
                .operations
                .iter()
                .map(|o| (o.operation.clone().into_owned(), o.all.count, o.errors));
            (s.export.clone(), o.collect::<Vec<_>>())
        };
        let of = |export: &str, operation: &str, count: u64, errors: u64| {
            (export.to_owned(), vec![(operation.to_owned(), count, errors)])
        };
        let wanted = [of("a", "lookup", 2, 1), of("b", "other", 1, 0)];
        assert_eq!(all.iter().map(counts).collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn only_so_many_clients_have_names() {
        let r = Recorder::default();
        let names: BTreeSet<String> = (0..1000).map(|n| r.client(&n.to_string())).collect();
        assert_eq!(names.len(), CLIENTS_MAX + 1);
        assert!(names.contains(OTHER));
        assert_eq!(r.client("7"), "7", "who has a name keeps it");
    }

    #[test]
    fn what_took_long_is_remembered_for_a_while() {
        let r = Recorder::default();
        let s = r.series(FUSE, "a", "");
        let Some(long_ago) = Instant::now().checked_sub(SLOW) else { return };
        for _ in 0..1000 {
            s.answered(0, long_ago, false);
        }
        let slow = r.slow();
        assert!(slow.len() < 100 && slow.len() > 9, "{}", slow.len());
        assert!(slow.iter().all(|s| s.took_ms >= 1000 && s.operation == "lookup"));
    }
}
