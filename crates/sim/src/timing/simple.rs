//! Models without a place: a constant and a rate, a solid-state disk with its channels, and chance.
//! For tests, and for the papers that simulate with `a + bytes / b`.
//!
//! Invariants:
//! * S1. Where one access follows the other, none ends before the one before it.
//! * S2. A drive has channels, each busy for a time that does not go back, and a bus that carries
//!   one thing at a time.
//! * S3. Flushes follow one another.

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
        let before = std::mem::replace(&mut self.free_at, end);
        assert!(!self.serial || before <= end, "S1: {a:?} ends at {end:?}, and one at {before:?}");
        end
    }
}

/// A local solid-state disk: several channels at a time behind one bus. A flush takes its time, one
/// after the other, and keeps no channel busy.
#[derive(Clone, Debug)]
pub struct SolidState {
    read: Nanos,
    write: Nanos,
    flush: Nanos,
    bytes_per_sec: u64,
    channels_free_at: Vec<Nanos>,
    bus_free_at: Nanos,
    flushed_at: Nanos,
}

impl SolidState {
    /// A drive on NVMe: 16 channels, 20 µs a read, 15 µs a write into its buffer, 300 µs a flush,
    /// 2 GB/s.
    pub fn nvme() -> SolidState {
        SolidState {
            read: Nanos::from_micros(20),
            write: Nanos::from_micros(15),
            flush: Nanos::from_micros(300),
            bytes_per_sec: 2_000_000_000,
            channels_free_at: vec![Nanos(0); 16],
            bus_free_at: Nanos(0),
            flushed_at: Nanos(0),
        }
    }

    fn flushed(&mut self, begin: Nanos) -> Nanos {
        let before = self.flushed_at;
        self.flushed_at = begin.max(before).plus(self.flush);
        let apart = self.flushed_at >= before.plus(self.flush);
        assert!(apart, "S3: one flush ends at {before:?}, the next at {:?}", self.flushed_at);
        self.flushed_at
    }
}

impl Timing for SolidState {
    fn ends_at(&mut self, now: Nanos, a: Access) -> Nanos {
        let fixed = match a.kind {
            Kind::Flush => return self.flushed(now),
            Kind::Read => self.read,
            Kind::Write { .. } => self.write,
        };
        let free = self.channels_free_at.iter_mut().min().expect("S2: a drive has channels");
        let done = now.max(*free).plus(fixed);
        let end = done.max(self.bus_free_at).plus(transfer(a.len, self.bytes_per_sec));
        let busy = (*free, self.bus_free_at);
        let carried = end >= busy.1.plus(transfer(a.len, self.bytes_per_sec));
        assert!(busy.0 <= end && carried, "S2: {a:?} ends at {end:?}, on {busy:?}");
        (*free, self.bus_free_at) = (end, end);
        if a.kind == (Kind::Write { fua: true }) { self.flushed(end) } else { end }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Mean time of a read of 4 KiB and reads a second, so many always under way.
    fn reads(depth: usize) -> (f64, f64) {
        const READS: usize = 4096;
        let mut d = SolidState::nvme();
        let mut under_way = vec![Nanos(0); depth];
        let mut took = 0;
        for i in 0..READS {
            let next = under_way.iter_mut().min().unwrap();
            let a = Access { kind: Kind::Read, at: i as u64 * 4096, len: 4096 };
            let end = d.ends_at(*next, a);
            took += end.since(*next).0;
            *next = end;
        }
        let last = under_way.iter().max().unwrap().0;
        (took as f64 / 1e3 / READS as f64, READS as f64 * 1e9 / last as f64)
    }

    #[test]
    fn a_solid_state_disk_does_several_things_at_a_time() {
        // 20 µs and 2 µs on the bus.
        let (us, alone) = reads(1);
        assert!((22.0..22.2).contains(&us) && (45_000.0..45_500.0).contains(&alone), "{us} µs");
        let (us, eight) = reads(8);
        assert!((22.0..23.0).contains(&us) && eight > 7.8 * alone, "{us} µs, {eight}/s");
        // Beyond what the bus carries, more at a time wait longer.
        let (us, many) = reads(64);
        assert!((480_000.0..489_000.0).contains(&many), "2 GB/s are 488,281/s: {many}");
        assert!((128.0..134.0).contains(&us), "64 of 2.05 µs each: {us} µs");
    }

    #[test]
    fn a_flush_delays_the_next_flush_alone() {
        let mut d = SolidState::nvme();
        let at = |kind| Access { kind, at: 0, len: 0 };
        assert_eq!(d.ends_at(Nanos(0), at(Kind::Flush)), Nanos::from_micros(300));
        assert_eq!(d.ends_at(Nanos(0), at(Kind::Flush)), Nanos::from_micros(600));
        assert_eq!(d.ends_at(Nanos(0), at(Kind::Read)), Nanos::from_micros(20));
        let fua = at(Kind::Write { fua: true });
        assert_eq!(d.ends_at(Nanos::from_millis(1), fua), Nanos::from_micros(1315));
    }
}
