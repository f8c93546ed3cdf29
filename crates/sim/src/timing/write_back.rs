//! A write cache in front of a disk with a head: a write ends at the bus's speed until the cache is
//! full, and a flush pays for every dirty extent, in ascending order. What the cache has taken is
//! not durable; that is `Medium`'s business, this is only about time.

use super::simple::transfer;
use super::{Access, HeadDisk, Kind, Timing};
use env::Nanos;
use std::collections::BTreeMap;

const BUS_BYTES_PER_SEC: u64 = 300_000_000;
const COMMAND: Nanos = Nanos::from_micros(20);
const CACHE_BYTES: u64 = 16 << 20;
const EXTENT_BYTES_MAX: u64 = 1 << 20;

/// The disk with its cache.
pub struct WriteBack {
    disk: HeadDisk,
    /// First byte and length of what is dirty; extents do not touch.
    dirty: BTreeMap<u64, u64>,
    bytes: u64,
    free_at: Nanos,
}

impl WriteBack {
    /// `disk` behind a cache of 16 MiB.
    pub fn new(disk: HeadDisk) -> WriteBack {
        WriteBack { disk, dirty: BTreeMap::new(), bytes: 0, free_at: Nanos(0) }
    }

    fn note(&mut self, at: u64, len: u64) {
        let (mut start, mut end) = (at, at + len);
        while let Some((&s, &l)) = self.dirty.range(..=end).next_back() {
            if s + l < start {
                break;
            }
            (start, end) = (start.min(s), end.max(s + l));
            self.dirty.remove(&s);
            self.bytes -= l;
        }
        self.dirty.insert(start, end - start);
        self.bytes += end - start;
    }

    fn covers(&self, at: u64, len: u64) -> bool {
        let found = self.dirty.range(..=at).next_back();
        found.is_some_and(|(&s, &l)| s + l >= at + len)
    }

    /// Empties the cache; when that is done.
    fn empty(&mut self, mut now: Nanos) -> Nanos {
        for (mut at, mut len) in std::mem::take(&mut self.dirty) {
            while len > 0 {
                let n = len.min(EXTENT_BYTES_MAX);
                let kind = Kind::Write { fua: true };
                now = self.disk.ends_at(now, Access { kind, at, len: n });
                (at, len) = (at + n, len - n);
            }
        }
        self.bytes = 0;
        now
    }
}

impl Timing for WriteBack {
    fn ends_at(&mut self, now: Nanos, a: Access) -> Nanos {
        let begin = now.max(self.free_at);
        let bus = begin.plus(COMMAND).plus(transfer(a.len, BUS_BYTES_PER_SEC));
        let end = match a.kind {
            Kind::Flush => self.empty(begin.plus(COMMAND)),
            Kind::Write { fua: true } => self.disk.ends_at(bus, a),
            Kind::Write { fua: false } => {
                self.note(a.at, a.len);
                if self.bytes > CACHE_BYTES { self.empty(bus) } else { bus }
            }
            Kind::Read if self.covers(a.at, a.len) => bus,
            Kind::Read => self.disk.ends_at(begin, a),
        };
        self.free_at = end;
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_synchronous_write_costs_what_the_medium_costs() {
        let mut d = WriteBack::new(HeadDisk::cheetah_15k(1 << 30));
        let mut now = Nanos(0);
        let n = 200;
        for i in 0..n {
            let w = Access { kind: Kind::Write { fua: false }, at: i * 4096, len: 4096 };
            now = d.ends_at(now, w);
            assert_eq!(d.dirty.len(), 1);
            now = d.ends_at(now, Access { kind: Kind::Flush, at: 0, len: 0 });
            assert_eq!(d.bytes, 0);
        }
        // Measured with tools of this class of disk: about 248 a second, a turn each.
        let rate = n as f64 / (now.0 as f64 / 1e9);
        assert!((220.0..260.0).contains(&rate), "{rate} a second");
    }

    #[test]
    fn extents_that_touch_become_one() {
        let mut d = WriteBack::new(HeadDisk::sata_7200(1 << 30));
        for (at, len) in [(0, 4096), (8192, 4096), (4096, 4096), (0, 100), (1 << 20, 512)] {
            d.note(at, len);
        }
        assert_eq!(d.dirty.iter().collect::<Vec<_>>(), [(&0, &12288), (&(1 << 20), &512)]);
        assert_eq!(d.bytes, 12800);
    }
}
