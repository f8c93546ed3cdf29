//! A disk with a head: seek by distance, the turn of the platter, transfer at the zone's rate with
//! head and cylinder switches in between, and a track buffer that reads ahead. One access at a
//! time, in the order in which they come; whoever asks orders them better. No write cache: a write
//! ends when it is on the medium, and a flush has nothing to do (`write_back` puts a cache in
//! front).
//!
//! Invariants:
//! * H1. An access lies on the disk: behind its end there is no place to seek to.
//! * H2. One access follows the other: none ends before the one before it.
//! * H3. The head turns and moves forward in time: it waits for less than a turn.
//! * H4. The head is on a track that there is, and reads ahead no further than it was told.

use super::buffer::{Buffer, Found};
use super::geometry::{Geometry, Place};
use super::{Access, Kind, SECTOR_BYTES, Timing};
use env::Nanos;

/// A wait for the platter that is shorter than this part of a turn from a whole one is none: what
/// is left of a rounded number.
const ROUNDING: f64 = 1e-9;

/// The disk: its geometry, where the head is, and what the buffer holds.
pub struct HeadDisk {
    g: Geometry,
    /// Its capacity.
    bytes: u64,
    buffer: Buffer,
    cylinder: u32,
    head: u32,
    free_at_us: f64,
}

/// Where the head is, and when.
#[derive(Clone, Copy)]
struct Passing {
    time_us: f64,
    cylinder: u32,
    head: u32,
}

impl HeadDisk {
    /// A disk of this geometry for an image of `size_bytes`, from the outside inwards. A larger
    /// image than the drive's capacity has more cylinders of the last zone.
    pub fn new(mut g: Geometry, size_bytes: u64) -> HeadDisk {
        g.check();
        g.grow_to(size_bytes);
        let bytes = g.capacity_bytes();
        let buffer = Buffer::new(g.buffer, bytes / SECTOR_BYTES);
        assert!(bytes >= size_bytes, "H1: {size_bytes} bytes on a disk of {bytes}");
        HeadDisk { g, bytes, buffer, cylinder: 0, head: 0, free_at_us: 0.0 }
    }

    /// Its numbers.
    pub fn geometry(&self) -> &Geometry {
        &self.g
    }

    /// When nothing is under way any more.
    pub(super) fn free_at(&self) -> Nanos {
        nanos(self.free_at_us)
    }

    /// The time after waiting at `time_us` until the platter has turned to `angle`.
    fn turned_to(&self, angle: f64, time_us: f64) -> f64 {
        let now = (time_us / self.g.turn_us).fract();
        let wait = (angle - now).rem_euclid(1.0);
        assert!((0.0..1.0 + ROUNDING).contains(&wait), "H3: {wait} turns from {now} to {angle}");
        if wait > 1.0 - ROUNDING { time_us } else { time_us + wait * self.g.turn_us }
    }

    /// Moves the head from where it is to the beginning of a place: seek or head switch, whichever
    /// is longer, then the turn.
    fn reach(&self, p: Passing, place: &Place, write: bool) -> Passing {
        let distance = place.cylinder.abs_diff(p.cylinder);
        let switch = if place.head == p.head { 0.0 } else { self.g.head_switch_us };
        let mut move_us = self.g.seek.micros(distance).max(switch);
        if write && move_us > 0.0 {
            move_us = (move_us + self.g.write_settle_us).max(0.0);
        }
        let time_us = self.turned_to(place.angle, p.time_us + move_us);
        Passing { time_us, cylinder: place.cylinder, head: place.head }
    }

    /// Passes over `count` sectors, the first of which is under the head now.
    fn pass(&self, mut p: Passing, mut sector: u64, mut count: u64) -> Passing {
        loop {
            let place = self.g.place(sector);
            let here = count.min(place.left_on_track);
            p.time_us += here as f64 * self.g.turn_us / f64::from(place.sectors);
            (sector, count) = (sector + here, count - here);
            if count == 0 {
                return p;
            }
            p = self.reach(p, &self.g.place(sector), false);
        }
    }

    /// How far the reading ahead that began at `p` with `from` has come at `until_us`; at most to
    /// `limit`.
    fn came(&self, mut p: Passing, (mut from, limit): (u64, u64), until_us: f64) -> (u64, Passing) {
        while from < limit {
            let place = self.g.place(from);
            let sector_us = self.g.turn_us / f64::from(place.sectors);
            let here = place.left_on_track.min(limit - from);
            let passed = ((until_us - p.time_us) / sector_us).floor().max(0.0) as u64;
            if passed < here {
                p.time_us += passed as f64 * sector_us;
                return (from + passed, p);
            }
            (from, p.time_us) = (from + here, p.time_us + here as f64 * sector_us);
            if from == limit {
                return (from, p);
            }
            let next = self.reach(p, &self.g.place(from), false);
            if next.time_us > until_us {
                return (from, p);
            }
            p = next;
        }
        (from, p)
    }

    /// Lets the reading ahead come as far as it has at `now_us`, and leaves the head there.
    fn catch_up(&mut self, now_us: f64) {
        let Some((began_us, from, limit)) = self.buffer.ahead() else { return };
        let p = Passing { time_us: began_us, cylinder: self.cylinder, head: self.head };
        let (to, p) = self.came(p, (from, limit), now_us);
        assert!(
            (from..=limit).contains(&to),
            "H4: from {from} to {to}, and no further than {limit}"
        );
        assert!(p.time_us >= began_us, "H3: it has read ahead from {began_us} to {} µs", p.time_us);
        self.buffer.came_to(to, p.time_us);
        (self.cylinder, self.head) = (p.cylinder, p.head);
    }

    fn read(&mut self, now_us: f64, first: u64, count: u64) -> f64 {
        self.catch_up(now_us);
        let bus_us = |sectors: u64| self.g.bus_us(sectors * SECTOR_BYTES);
        let at = Passing { time_us: now_us, cylinder: self.cylinder, head: self.head };
        match self.buffer.find(first, count) {
            Found::Whole => {
                self.buffer.wanted(first + count);
                now_us + self.g.overhead.read_hit_us + bus_us(count)
            }
            // The head is passing there: what is missing comes as the platter turns.
            Found::Begun { time_us, reached } => {
                let p = Passing { time_us, ..at };
                let p = self.pass(p, reached, first + count - reached);
                (self.cylinder, self.head) = (p.cylinder, p.head);
                self.buffer.goes_on(first + count, p.time_us);
                p.time_us.max(now_us + self.g.overhead.read_hit_us) + bus_us(1)
            }
            Found::Nothing => {
                let begun = Passing { time_us: now_us + self.g.overhead.read_miss_us, ..at };
                let p = self.reach(begun, &self.g.place(first), false);
                let p = self.pass(p, first, count);
                (self.cylinder, self.head) = (p.cylinder, p.head);
                self.buffer.holds(first, first + count, p.time_us);
                p.time_us + bus_us(1)
            }
        }
    }

    fn write(&mut self, now_us: f64, first: u64, count: u64) -> f64 {
        self.catch_up(now_us);
        self.buffer.overwritten(first, first + count);
        let time_us = now_us + self.g.overhead.write_us;
        let begun = Passing { time_us, cylinder: self.cylinder, head: self.head };
        let p = self.reach(begun, &self.g.place(first), true);
        let p = self.pass(p, first, count);
        (self.cylinder, self.head) = (p.cylinder, p.head);
        p.time_us
    }
}

fn nanos(us: f64) -> Nanos {
    Nanos((us * 1e3) as u64)
}

impl Timing for HeadDisk {
    fn ends_at(&mut self, now: Nanos, a: Access) -> Nanos {
        let begin_us = self.free_at_us.max(now.0 as f64 / 1e3);
        let (first, end) = (a.at / SECTOR_BYTES, (a.at + a.len).div_ceil(SECTOR_BYTES));
        let count = (end - first).max(1);
        let ends_us = match a.kind {
            // Nothing is volatile here: what has ended is on the medium.
            Kind::Flush => return now,
            _ if end * SECTOR_BYTES > self.bytes => panic!("H1: {a:?} on {} bytes", self.bytes),
            Kind::Read => self.read(begin_us, first, count),
            Kind::Write { .. } => self.write(begin_us, first, count),
        };
        assert!(ends_us >= begin_us, "H2: {a:?} ends at {ends_us} µs, and begins at {begin_us}");
        let there = self.cylinder < self.g.cylinders && self.head < self.g.heads;
        assert!(there, "H4: the head is at {} of {}", self.head, self.cylinder);
        self.free_at_us = ends_us;
        nanos(ends_us).max(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::drives;

    const FUA: Kind = Kind::Write { fua: true };

    fn run(d: &mut HeadDisk, mut now: Nanos, all: &[(Kind, u64, u64)]) -> Vec<f64> {
        let mut took = Vec::new();
        for &(kind, at, len) in all {
            let end = d.ends_at(now, Access { kind, at, len });
            took.push(end.since(now).0 as f64 / 1e6);
            now = end;
        }
        took
    }

    #[test]
    fn a_write_that_follows_the_last_one_waits_a_turn() {
        let mut d = HeadDisk::new(drives::rz26(), 1_000_000_000);
        let all: Vec<_> = (0..10).map(|i| (FUA, i * 512, 512)).collect();
        let took = run(&mut d, Nanos(0), &all);
        // A turn and the sector itself; vahalia-1995's log disk took 12.5 ms with its processor.
        assert!(took[1..].iter().all(|ms| (11.2..11.6).contains(ms)), "{took:?} ms");
    }

    #[test]
    fn reading_on_runs_at_the_media_rate_less_the_skews() {
        // A cylinder is read in a turn a track, its head switches and one cylinder switch.
        for g in [drives::rz26(), drives::cheetah_9lp(), drives::hp97560(), drives::m2694()] {
            let z = g.zones[0];
            let sector_us = g.turn_us / f64::from(z.sectors);
            let skews = (g.heads - 1) * z.track_skew + z.cylinder_skew;
            let cylinder_us = f64::from(g.heads) * g.turn_us + f64::from(skews) * sector_us;
            let bytes = f64::from(g.heads * z.sectors) * 512.0;
            let mut d = HeadDisk::new(g, 1 << 30);
            let all: Vec<_> = (0..512).map(|i| (Kind::Read, i << 16, 65_536)).collect();
            let ms: f64 = run(&mut d, Nanos(0), &all).iter().sum();
            let (rate, expected) = (33_554.432 / ms, bytes / cylinder_us);
            assert!((rate / expected - 1.0).abs() < 0.02, "{rate} for {expected} MB/s");
        }
    }

    #[test]
    fn what_is_in_the_buffer_costs_the_bus_only() {
        let mut d = HeadDisk::new(drives::hp97560(), 1 << 30);
        let took = run(&mut d, Nanos(0), &[(Kind::Read, 1 << 20, 8192)]);
        assert!(took[0] > 5.0, "{took:?}");
        // Meanwhile the disk has read on, up to the fence 64 KiB further.
        let later = Nanos::from_millis(200);
        let took = run(&mut d, later, &[(Kind::Read, (1 << 20) + 8192, 8192)]);
        assert!((2.9..3.1).contains(&took[0]), "2.2 ms and 0.8 ms on the bus: {took:?}");
        let took = run(&mut d, Nanos::from_millis(400), &[(FUA, 1 << 20, 512)]);
        assert!(took[0] > 3.0, "{took:?}");
        let took = run(&mut d, Nanos::from_millis(500), &[(Kind::Read, 1 << 20, 512)]);
        assert!(took[0] > 3.0, "B1: what was written since is read from the buffer: {took:?}");
    }

    #[test]
    fn nothing_is_read_ahead_behind_the_end() {
        let g = drives::hp97560();
        let end = g.capacity_bytes();
        let mut d = HeadDisk::new(g, end);
        for from_end in [512, 4096, 65_536] {
            let last = (Kind::Read, end - from_end, from_end);
            let now = d.free_at();
            run(&mut d, now, &[last]);
            let later = d.free_at().plus(Nanos::from_secs(1));
            run(&mut d, later, &[(Kind::Read, end - 512, 512)]);
        }
    }

    /// Random accesses with pauses: what is on the bus takes the least time, and nothing takes more
    /// than the longest seek, a few turns and the transfer.
    #[test]
    fn every_access_takes_what_a_mechanism_can() {
        for g in [drives::rz26(), drives::cheetah_9lp(), drives::hp97560(), drives::sata_7200()] {
            let (mut rng, mut now, end) = (env::Rng::new(3), Nanos(0), g.capacity_bytes());
            let least_us = g.overhead.read_hit_us.min(g.overhead.write_us);
            let seek_us = g.seek.micros(g.cylinders) + g.write_settle_us.max(0.0);
            let mut d = HeadDisk::new(g.clone(), end);
            for n in 0..3000 {
                let len = 512 * (1 + rng.below(64));
                let near = rng.below(1 << 17) * 512;
                let at = [rng.below(end / 512 - 64) * 512, near, end - len][rng.below(3) as usize];
                let kind = if rng.one_in(3) { FUA } else { Kind::Read };
                let took = d.ends_at(now, Access { kind, at, len }).since(now).0 as f64 / 1e3;
                // At most each track of it waits for a turn of its own.
                let turns = 2.0 + 2.0 * (len / 512) as f64 / 57.0;
                let most = g.overhead.read_miss_us.max(g.overhead.write_us)
                    + seek_us
                    + g.bus_us(len)
                    + g.turn_us * (2.0 + turns);
                assert!((least_us - 1.0..most).contains(&took), "{n}: {kind:?} {len}: {took} µs");
                now = now.plus(Nanos((took * 1e3) as u64 + rng.below(40_000_000)));
            }
        }
    }

    #[test]
    fn a_cylinder_switch_costs_the_cylinder_skew() {
        let g = drives::hp97560();
        let cylinder = u64::from(g.heads * g.zones[0].sectors) * 512;
        let mut d = HeadDisk::new(g, 1 << 30);
        let track = 72 * 512;
        let begin = cylinder - track;
        // The last track of a cylinder and the first of the next in one request: two turns and the
        // skew of 18 sectors.
        let at = |d: &mut HeadDisk, len| run(d, Nanos(0), &[(Kind::Read, begin, len)])[0];
        let one = at(&mut d, track);
        let mut d = HeadDisk::new(drives::hp97560(), 1 << 30);
        let two = at(&mut d, 2 * track);
        let extra = two - one - 14.9925 - 18.0 * 14.9925 / 72.0;
        assert!(extra.abs() < 0.01, "{extra} ms too many");
    }

    #[test]
    fn nothing_is_flushed_where_nothing_is_volatile() {
        let mut d = HeadDisk::new(drives::rz26(), 1 << 30);
        d.ends_at(Nanos(0), Access { kind: FUA, at: 1 << 29, len: 4096 });
        let flush = Access { kind: Kind::Flush, at: 0, len: 0 };
        assert_eq!(d.ends_at(Nanos(5), flush), Nanos(5));
    }
}
