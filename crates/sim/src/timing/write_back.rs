//! A write cache in front of a disk with a head: a write ends at the bus's speed until the cache is
//! full, what is dirty goes to the medium in ascending order while nothing else is asked, and a
//! flush waits for all of it. What the cache has taken is not durable; that is `Medium`'s business,
//! this is only about time.
//!
//! Invariants:
//! * C1. Dirty extents do not touch, none is empty, and `bytes` is their sum.
//! * C2. One access follows the other: none ends before the one before it.
//! * C3. A cache that was written down has no more than it was to have: nothing after a flush.
//! * C4. What was just written is dirty, and what was written through is not.
//! * C5. One write to the medium is as long as others can wait, and of one extent.
//! * C6. What is asked lies on the disk below.

use super::simple::transfer;
use super::{Access, HeadDisk, Kind, Timing};
use env::Nanos;
use std::collections::BTreeMap;

const COMMAND: Nanos = Nanos::from_micros(20);
/// One write to the medium at most: whoever comes meanwhile waits for it.
const EXTENT_BYTES_MAX: u64 = 1 << 20;
/// The disk writes by itself after nothing was asked for so long (an assumption).
const IDLE: Nanos = Nanos::from_millis(5);

/// How large a cache is. It holds at most so many runs of sectors, each in a segment, however short
/// they are: random writes fill it long before its bytes are used.
#[derive(Clone, Copy, Debug)]
pub struct CacheSize {
    /// Bytes of all.
    pub bytes: u64,
    /// Runs of sectors.
    pub segments: usize,
}

/// The disk with its cache.
pub struct WriteBack {
    disk: HeadDisk,
    size: CacheSize,
    /// First byte and length of what is dirty.
    dirty: BTreeMap<u64, u64>,
    bytes: u64,
    /// Where the last write to the medium ended: the next goes on from there.
    swept_to: u64,
    free_at: Nanos,
}

impl WriteBack {
    /// `disk` behind a cache of this size.
    pub fn new(disk: HeadDisk, size: CacheSize) -> WriteBack {
        let (dirty, now) = (BTreeMap::new(), Nanos(0));
        WriteBack { disk, size, dirty, bytes: 0, swept_to: 0, free_at: now }
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
        self.check();
        assert!(self.covers(at, len), "C4: {len} bytes at {at} were written, and are not dirty");
    }

    /// A scan of all extents.
    fn check(&self) {
        debug_assert_eq!(self.bytes, self.dirty.values().sum::<u64>(), "C1: the sum is another");
        let apart = |(a, b): ((&u64, &u64), (&u64, &u64))| a.0 + a.1 < *b.0;
        debug_assert!(
            self.dirty.iter().zip(self.dirty.iter().skip(1)).all(apart)
                && self.dirty.values().all(|len| *len > 0),
            "C1: extents touch, or hold nothing: {:?}",
            self.dirty
        );
    }

    /// What is written through is no longer dirty.
    fn forget(&mut self, at: u64, len: u64) {
        let end = at + len;
        let touched = self.dirty.range(..end).rev().take_while(|(s, l)| *s + *l > at);
        for (s, l) in touched.map(|(s, l)| (*s, *l)).collect::<Vec<_>>() {
            self.dirty.remove(&s);
            self.bytes -= l;
            for (from, to) in [(s, at.max(s)), (end.min(s + l), s + l)] {
                if from < to {
                    self.dirty.insert(from, to - from);
                    self.bytes += to - from;
                }
            }
        }
        self.check();
        let touched = self.dirty.range(..end).next_back().filter(|(s, l)| *s + *l > at);
        assert!(
            touched.is_none(),
            "C4: {len} bytes at {at} went through, and {touched:?} is dirty"
        );
    }

    fn covers(&self, at: u64, len: u64) -> bool {
        let found = self.dirty.range(..=at).next_back();
        found.is_some_and(|(&s, &l)| s + l >= at + len)
    }

    /// Writes the next dirty extent in ascending order, from `now` on; when that is done.
    fn write_one(&mut self, now: Nanos) -> Nanos {
        let next = self.dirty.range(self.swept_to..).next().or_else(|| self.dirty.iter().next());
        let Some((&at, &len)) = next else { return now };
        let n = len.min(EXTENT_BYTES_MAX);
        self.dirty.remove(&at);
        if n < len {
            self.dirty.insert(at + n, len - n);
        }
        self.bytes -= n;
        self.swept_to = at + n;
        self.check();
        assert!(n > 0 && n <= EXTENT_BYTES_MAX, "C5: {n} bytes at {at} go out at once");
        self.disk.ends_at(now, Access { kind: Kind::Write { fua: true }, at, len: n })
    }

    /// Writes until no more than so much is dirty; when that is done.
    fn write_down_to(&mut self, max: CacheSize, mut now: Nanos) -> Nanos {
        while self.bytes > max.bytes || self.dirty.len() > max.segments {
            let (before, left) = (now, self.bytes);
            now = self.write_one(now);
            assert!(self.bytes < left && before <= now, "C3: {left} bytes stay at {before:?}");
        }
        now
    }

    /// What the disk has written by itself before `now`.
    fn pass_idle_time(&mut self, now: Nanos) {
        let idle_from = self.free_at.plus(IDLE);
        while self.bytes > 0 && idle_from.max(self.disk.free_at()) < now {
            let begin = idle_from.max(self.disk.free_at());
            self.write_one(begin);
        }
    }
}

impl Timing for WriteBack {
    fn ends_at(&mut self, now: Nanos, a: Access) -> Nanos {
        self.pass_idle_time(now);
        let begin = now.max(self.free_at);
        let most = self.disk.geometry().capacity_bytes();
        let fits = a.at.checked_add(a.len).is_some_and(|end| end <= most);
        assert!(fits, "C6: {a:?} of a disk of {most}");
        let rate = self.disk.geometry().bus_bytes_per_sec;
        let bus = begin.plus(COMMAND).plus(transfer(a.len, rate));
        let end = match a.kind {
            Kind::Flush => {
                let begun = begin.plus(COMMAND).max(self.disk.free_at());
                self.write_down_to(CacheSize { bytes: 0, segments: 0 }, begun)
            }
            Kind::Write { fua: true } => {
                self.forget(a.at, a.len);
                self.disk.ends_at(bus, a)
            }
            Kind::Write { fua: false } => {
                self.note(a.at, a.len);
                self.write_down_to(self.size, bus)
            }
            Kind::Read if self.covers(a.at, a.len) => bus,
            Kind::Read => self.disk.ends_at(begin, a),
        };
        assert!(end >= begin, "C2: {a:?} ends at {end:?}, and the one before it at {begin:?}");
        let (most, left) = (self.size, (self.bytes, self.dirty.len()));
        let fits = left.0 <= most.bytes && left.1 <= most.segments;
        assert!(fits, "C3: {left:?} is dirty after {a:?}, of {most:?}");
        assert!(a.kind != Kind::Flush || left == (0, 0), "C3: {left:?} is dirty after a flush");
        self.free_at = end;
        end
    }
}

/// A disk whose write cache nobody empties, as mounted with `barrier=0`: a flush does nothing, and
/// a write is never forced through.
pub struct NoBarriers<T>(pub T);

impl<T: Timing> Timing for NoBarriers<T> {
    fn ends_at(&mut self, now: Nanos, a: Access) -> Nanos {
        match a.kind {
            Kind::Flush => now,
            Kind::Write { .. } => {
                self.0.ends_at(now, Access { kind: Kind::Write { fua: false }, ..a })
            }
            Kind::Read => self.0.ends_at(now, a),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::drives;

    const CACHED: Kind = Kind::Write { fua: false };
    const FLUSH: Access = Access { kind: Kind::Flush, at: 0, len: 0 };

    fn cheetah(bytes: u64) -> WriteBack {
        let size = CacheSize { bytes, segments: 32 };
        WriteBack::new(HeadDisk::new(drives::cheetah_15k(), 1 << 30), size)
    }

    #[test]
    fn a_synchronous_write_costs_what_the_medium_costs() {
        let mut d = cheetah(16 << 20);
        let mut now = Nanos(0);
        let n = 200;
        for i in 0..n {
            now = d.ends_at(now, Access { kind: CACHED, at: i * 4096, len: 4096 });
            assert_eq!(d.dirty.len(), 1);
            now = d.ends_at(now, FLUSH);
            assert_eq!(d.bytes, 0);
        }
        // Measured with tools of this class of disk: about 248 a second, a turn each.
        let rate = n as f64 / (now.0 as f64 / 1e9);
        assert!((220.0..260.0).contains(&rate), "{rate} a second");
        // Without barriers it costs the bus.
        let mut d = NoBarriers(cheetah(16 << 20));
        let mut now = Nanos(0);
        for i in 0..n {
            let kind = Kind::Write { fua: true };
            now = d.ends_at(now, Access { kind, at: i * 4096, len: 4096 });
            now = d.ends_at(now, FLUSH);
        }
        assert!(now < Nanos::from_millis(10), "{now:?}");
    }

    #[test]
    fn extents_that_touch_become_one() {
        let mut d = cheetah(16 << 20);
        for (at, len) in [(0, 4096), (8192, 4096), (4096, 4096), (0, 100), (1 << 20, 512)] {
            d.note(at, len);
        }
        assert_eq!(d.dirty.iter().collect::<Vec<_>>(), [(&0, &12288), (&(1 << 20), &512)]);
        assert_eq!(d.bytes, 12800);
        d.forget(4096, 1024);
        let left = [(&0, &4096), (&5120, &7168), (&(1 << 20), &512)];
        assert_eq!(d.dirty.iter().collect::<Vec<_>>(), left);
    }

    #[test]
    fn short_writes_fill_the_segments() {
        let mut d = cheetah(16 << 20);
        let mut now = Nanos(0);
        for i in 0..64 {
            now = d.ends_at(now, Access { kind: CACHED, at: i << 20, len: 4096 });
            assert!(d.dirty.len() <= 32);
        }
        assert!(now > Nanos::from_millis(32), "half of them went to the medium: {now:?}");
    }

    #[test]
    fn a_full_cache_is_as_slow_as_the_medium_and_an_idle_disk_empties_it() {
        let mut d = cheetah(1 << 20);
        let mut now = Nanos(0);
        let write = |d: &mut WriteBack, now, i: u64| {
            d.ends_at(now, Access { kind: CACHED, at: (i * 7919 % 4096) * 65_536, len: 65_536 })
        };
        for i in 0..16 {
            now = write(&mut d, now, i);
        }
        assert!(now < Nanos::from_millis(5), "as many as have room: {now:?}");
        let full = now;
        for i in 16..48 {
            now = write(&mut d, now, i);
        }
        let each_ms = now.since(full).0 as f64 / 1e6 / 32.0;
        assert!((1.0..6.0).contains(&each_ms), "a seek within 256 MiB and a turn: {each_ms} ms");
        // After a second of rest there is nothing to flush.
        let later = now.plus(Nanos::from_secs(1));
        assert_eq!(d.ends_at(later, FLUSH), later.plus(COMMAND));
        assert_eq!(d.bytes, 0);
    }
}
