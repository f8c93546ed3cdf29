//! Models without a place: a constant and a rate, and chance. For solid-state disks, for tests, and
//! for the papers that simulate with `a + bytes / b`.

use super::{Access, Kind, Timing};
use env::{Nanos, Rng};

/// A constant for each kind of access and a rate; accesses wait for one another only where
/// `serial`.
#[derive(Clone, Copy, Debug)]
pub struct Constant {
    /// Of a read.
    pub read: Nanos,
    /// Of a write.
    pub write: Nanos,
    /// Of a flush, and on top of a write with FUA.
    pub flush: Nanos,
    /// Bytes a second; 0: at once.
    pub bytes_per_sec: u64,
    /// One access at a time?
    pub serial: bool,
    free_at: Nanos,
}

impl Constant {
    /// Everything at once.
    pub const INSTANT: Constant = Constant::of(Nanos(0), Nanos(0), Nanos(0), 0);
    /// A local solid-state disk.
    pub const NVME: Constant = Constant::of(
        Nanos::from_micros(20),
        Nanos::from_micros(15),
        Nanos::from_micros(300),
        2_000_000_000,
    );

    /// These constants and this rate, one access at a time.
    pub const fn of(read: Nanos, write: Nanos, flush: Nanos, bytes_per_sec: u64) -> Constant {
        Constant { read, write, flush, bytes_per_sec, serial: true, free_at: Nanos(0) }
    }
}

/// How long `bytes` take at a rate; 0: no time.
pub(super) fn transfer(bytes: u64, bytes_per_sec: u64) -> Nanos {
    if bytes_per_sec == 0 {
        return Nanos(0);
    }
    let ns = u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_sec);
    Nanos(u64::try_from(ns).unwrap_or(u64::MAX))
}

impl Timing for Constant {
    fn ends_at(&mut self, now: Nanos, a: Access) -> Nanos {
        let fixed = match a.kind {
            Kind::Read => self.read,
            Kind::Write { fua: false } => self.write,
            Kind::Write { fua: true } => self.write.plus(self.flush),
            Kind::Flush => self.flush,
        };
        let begin = if self.serial { now.max(self.free_at) } else { now };
        let end = begin.plus(fixed).plus(transfer(a.len, self.bytes_per_sec));
        self.free_at = end;
        end
    }
}

/// Any time between two bounds, so that requests end in any order: for tests and the crash
/// explorer.
pub struct Jitter {
    rng: Rng,
}

impl Jitter {
    /// By this seed.
    pub fn new(seed: u64) -> Jitter {
        Jitter { rng: Rng::new(seed) }
    }
}

impl Timing for Jitter {
    fn ends_at(&mut self, now: Nanos, _: Access) -> Nanos {
        now.plus(Nanos(20_000 + self.rng.below(180_000)))
    }
}
