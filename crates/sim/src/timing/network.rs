//! A block store behind a network: a delay for each request, a limit on requests a second and on
//! bytes a second, many requests at once. What it has acknowledged is durable, so a flush costs one
//! delay.
//!
//! Invariants:
//! * N1. Neither limit is ever taken back: what is asked later is let through no sooner, and each
//!   answer comes the delay after it was asked, at least.

use super::{Access, Timing};
use crate::timing::simple::transfer;
use env::Nanos;

/// A network disk.
#[derive(Clone, Copy, Debug)]
pub struct Network {
    /// Of each request.
    pub delay: Nanos,
    /// Requests a second.
    pub requests_per_sec: u64,
    /// Bytes a second.
    pub bytes_per_sec: u64,
    next_request: Nanos,
    next_bytes: Nanos,
}

impl Network {
    /// A general-purpose volume of a cloud: 0.8 ms, 3000 requests and 125 MB a second.
    pub fn gp3() -> Network {
        Network {
            delay: Nanos::from_micros(800),
            requests_per_sec: 3000,
            bytes_per_sec: 125_000_000,
            next_request: Nanos(0),
            next_bytes: Nanos(0),
        }
    }
}

impl Timing for Network {
    fn ends_at(&mut self, now: Nanos, a: Access) -> Nanos {
        let begin = now.max(self.next_request).max(self.next_bytes);
        let before = (self.next_request, self.next_bytes);
        self.next_request = begin.plus(Nanos(1_000_000_000 / self.requests_per_sec.max(1)));
        self.next_bytes = begin.plus(transfer(a.len, self.bytes_per_sec));
        let rise = before.0 <= self.next_request && before.1 <= self.next_bytes;
        let end = self.next_bytes.plus(self.delay);
        assert!(rise && end >= now.plus(self.delay), "N1: {a:?} at {now:?}: {before:?}, {self:?}");
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::Kind;

    #[test]
    fn a_mean_access_is_the_delay_and_the_rates_are_limits() {
        let mut d = Network::gp3();
        let a = Access { kind: Kind::Read, at: 0, len: 4096 };
        // One at a time: the delay and 4 KiB at 125 MB/s.
        let end = d.ends_at(Nanos(0), a);
        assert_eq!(end, Nanos(800_000 + 32_768));
        // A thousand at once: 3000 a second.
        let begin = Nanos::from_secs(1);
        let last = (0..1000).map(|_| d.ends_at(begin, a)).max().unwrap();
        let rate = 1e12 / last.since(begin).0 as f64;
        assert!((2980.0..3020.0).contains(&rate), "{rate}");
    }
}
