//! How long callers waited: each request's time, by what it was.
//!
//! Invariants:
//! * C1. Each request is counted once, under what it was.
//! * C2. A mean lies between the least and the most, and what 99 of 100 do not exceed too.

use env::Nanos;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use vfs::Request;

/// What a request does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Op {
    Read,
    Write,
    Create,
    Unlink,
    Mkdir,
    Rmdir,
    Sync,
    Other,
}

impl Op {
    pub(crate) fn of(request: &Request) -> Op {
        match request {
            Request::Read { .. } => Op::Read,
            Request::Write { .. } => Op::Write,
            Request::Make { kind: vfs::MakeKind::Dir, .. } => Op::Mkdir,
            Request::Make { .. } => Op::Create,
            Request::Unlink { .. } => Op::Unlink,
            Request::Rmdir { .. } => Op::Rmdir,
            Request::SyncAll => Op::Sync,
            _ => Op::Other,
        }
    }
}

/// The times of all requests since somebody took them.
#[derive(Clone, Default)]
pub(crate) struct Book(Rc<RefCell<BTreeMap<Op, Vec<u64>>>>);

impl Book {
    pub(crate) fn note(&self, op: Op, took: Nanos) {
        self.0.borrow_mut().entry(op).or_default().push(took.0);
    }

    /// So many are in it.
    pub(crate) fn count(&self) -> usize {
        self.0.borrow().values().map(Vec::len).sum()
    }

    /// Takes them out.
    pub(crate) fn take(&self) -> Latencies {
        Latencies(std::mem::take(&mut *self.0.borrow_mut()))
    }
}

/// Times of requests.
pub(crate) struct Latencies(BTreeMap<Op, Vec<u64>>);

impl Latencies {
    /// Of these kinds together.
    pub(crate) fn of(&self, ops: &[Op]) -> Latency {
        let mut all: Vec<u64> =
            ops.iter().filter_map(|o| self.0.get(o)).flatten().copied().collect();
        all.sort_unstable();
        let Some(last) = all.len().checked_sub(1) else { return Latency::default() };
        let mean_ms = all.iter().sum::<u64>() as f64 / 1e6 / all.len() as f64;
        let p99_ms = all[last * 99 / 100] as f64 / 1e6;
        let (least, most) = (all[0] as f64 / 1e6, all[last] as f64 / 1e6);
        // A sum of many is rounded once.
        let between = |ms: f64| least * (1.0 - 1e-9) <= ms && ms <= most * (1.0 + 1e-9);
        assert!(between(mean_ms) && between(p99_ms), "C2: {mean_ms}, {p99_ms} of {least}..{most}");
        Latency { mean_ms, p99_ms }
    }

    /// Of everything.
    pub(crate) fn all(&self) -> Latency {
        let ops: Vec<Op> = self.0.keys().copied().collect();
        assert!(ops.is_sorted_by(|a, b| a < b), "C1: {ops:?}");
        self.of(&ops)
    }
}

/// The mean, and what 99 of 100 do not exceed.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Latency {
    pub(crate) mean_ms: f64,
    pub(crate) p99_ms: f64,
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = |ms: f64| match ms {
            a if a >= 100.0 => format!("{a:.0}"),
            a if a >= 1.0 => format!("{a:.1}"),
            a => format!("{a:.2}"),
        };
        write!(f, "{} / {}", n(self.mean_ms), n(self.p99_ms))
    }
}
