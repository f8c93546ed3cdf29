//! What one client has asked of one volume by one front end. Threads that answer add to it; a lock
//! an operation keeps them apart, held for some tens of nanoseconds.

use crate::latency::{Latency, Percentiles};
use crate::slow::{SLOW, Slow, SlowList};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// An operation's latencies, once it was asked for.
type Operation = Mutex<Option<Box<Latency>>>;

/// Latencies by operation, of one front end, volume and client.
pub struct Series {
    pub(crate) front: &'static str,
    pub(crate) export: String,
    pub(crate) client: String,
    names: &'static [&'static str],
    operations: Box<[Operation]>,
    begun: Instant,
    slow: Arc<SlowList>,
}

/// One operation as it stands.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct OperationSummary {
    /// Its name.
    pub operation: Cow<'static, str>,
    /// Answers with an error.
    pub errors: u64,
    /// The sum of all latencies.
    pub total_secs: f64,
    /// Since the beginning.
    pub all: Percentiles,
    /// Of the last 15 to 30 seconds.
    pub recent: Percentiles,
}

/// A series as it stands.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SeriesSummary {
    /// By which way it came: "nfs" or "fuse".
    pub front: Cow<'static, str>,
    /// The volume's name.
    pub export: String,
    /// Who asked; empty for a mount.
    pub client: String,
    /// What was asked for at least once.
    pub operations: Vec<OperationSummary>,
}

fn lock(operation: &Operation) -> MutexGuard<'_, Option<Box<Latency>>> {
    operation.lock().expect("nobody panics while holding it")
}

impl Series {
    /// Operations have numbers; `names` are theirs, the last one of all that have a greater one.
    pub(crate) fn new(
        front: &'static str,
        names: &'static [&'static str],
        (export, client): (String, String),
        (begun, slow): (Instant, Arc<SlowList>),
    ) -> Series {
        assert!(!names.is_empty(), "a front end has operations");
        let operations = names.iter().map(|_| Operation::default()).collect();
        Series { front, export, client, names, operations, begun, slow }
    }

    /// The operation of this number that came at `arrived` was answered now, perhaps with an error.
    /// Returns how long it took.
    pub fn answered(&self, number: usize, arrived: Instant, failed: bool) -> Duration {
        let now = Instant::now();
        let took = now.saturating_duration_since(arrived);
        let number = number.min(self.names.len() - 1);
        lock(&self.operations[number]).get_or_insert_with(|| Box::new(Latency::new())).record(
            took,
            failed,
            now.saturating_duration_since(self.begun),
        );
        if took >= SLOW {
            self.slow.add(took, || self.slow(number));
        }
        took
    }

    /// Are its operations called so?
    pub(crate) fn is_under(&self, names: &[&str]) -> bool {
        self.names == names
    }

    fn slow(&self, number: usize) -> Slow {
        Slow {
            at: 0,
            front: self.front.into(),
            export: self.export.clone(),
            client: self.client.clone(),
            operation: self.names[number].into(),
            took_ms: 0,
        }
    }

    /// As it stands now.
    pub fn summary(&self) -> SeriesSummary {
        let at = self.begun.elapsed();
        let named = self.names.iter().zip(&self.operations);
        let one = |(name, operation): (&&'static str, &Operation)| {
            let mut guard = lock(operation);
            let l = guard.as_mut()?;
            Some(OperationSummary {
                operation: Cow::Borrowed(name),
                errors: l.errors,
                total_secs: l.total.as_secs_f64(),
                all: l.all(),
                recent: l.recent(at),
            })
        };
        SeriesSummary {
            front: self.front.into(),
            export: self.export.clone(),
            client: self.client.clone(),
            operations: named.filter_map(one).collect(),
        }
    }

    /// Each operation's name, sum in seconds, count and buckets, as Prometheus has them.
    pub(crate) fn histograms(&self, bounds: &[f64]) -> Vec<Histogram> {
        let named = self.names.iter().zip(&self.operations);
        let one = |(name, operation): (&&'static str, &Operation)| {
            let guard = lock(operation);
            let l = guard.as_ref()?;
            Some(Histogram {
                operation: name,
                sum_secs: l.total.as_secs_f64(),
                count: l.all().count,
                buckets: l.buckets(bounds),
            })
        };
        named.filter_map(one).collect()
    }
}

pub(crate) struct Histogram {
    pub(crate) operation: &'static str,
    pub(crate) sum_secs: f64,
    pub(crate) count: u64,
    pub(crate) buckets: Vec<(f64, u64)>,
}
