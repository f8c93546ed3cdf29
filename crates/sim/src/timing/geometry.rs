//! What a drive's mechanism is made of: zones, skews, the seek curve, overheads; and where a sector
//! lies. Sector `s` of track `(c, h)` passes the head at the angle `(s + h * track skew + c *
//! cylinder skew) / sectors`, where a cylinder's skew counts those of its tracks too.
//!
//! Invariants, of a drive's numbers:
//! * G1. Zones follow one another from the first cylinder on, each with cylinders and sectors.
//! * G2. A longer seek takes no less time.
//! * G3. Everything takes time: a turn, the bus, the controller; only settling before a write may
//!   take less than before a read.
//! * G4. A sector lies at one place of the disk: on a track of its zone, at an angle of a turn.
//! * G5. A disk that has grown has room for what it was to have, and hardly more.

use super::SECTOR_BYTES;
use super::buffer::Buffering;

/// Seek time by distance in cylinders, in microseconds: the points of a measured curve, straight
/// lines between.
#[derive(Clone, Debug)]
pub struct SeekCurve(pub Vec<(u32, f64)>);

impl SeekCurve {
    /// The time for this distance.
    pub fn micros(&self, distance: u32) -> f64 {
        if distance == 0 {
            return 0.0;
        }
        let after = self.0.partition_point(|p| p.0 < distance);
        match (after.checked_sub(1).map(|i| self.0[i]), self.0.get(after)) {
            (_, Some(&(d, t))) if d == distance => t,
            (None, Some(&(_, t))) => t,
            (Some((d0, t0)), Some(&(d1, t1))) => {
                t0 + (t1 - t0) * f64::from(distance - d0) / f64::from(d1 - d0)
            }
            (Some((_, t)), None) => t,
            (None, None) => 0.0,
        }
    }

    /// The mean time between two cylinders, each equally likely: the distance `x`, as a part of
    /// all, has the density `2 * (1 - x)`.
    pub(crate) fn mean_us(&self, cylinders: u32) -> f64 {
        const STEPS: u32 = 4096;
        let at = |i: u32| {
            let x = (f64::from(i) + 0.5) / f64::from(STEPS);
            2.0 * (1.0 - x) * self.micros((x * f64::from(cylinders)).round() as u32)
        };
        (0..STEPS).map(at).sum::<f64>() / f64::from(STEPS)
    }

    /// The curve of this shape over `cylinders` of another disk that begins with `first_us` and has
    /// the mean `mean_us`.
    pub(super) fn shaped(&self, cylinders: u32, first_us: f64, mean_us: f64) -> SeekCurve {
        let (last, _) = self.0[self.0.len() - 1];
        let begin = self.0[0].1;
        let scaled = |&(d, t): &(u32, f64)| {
            let d = f64::from(d) * f64::from(cylinders) / f64::from(last + 1);
            (d.round().max(1.0) as u32, t - begin)
        };
        let mut shape = SeekCurve(self.0.iter().map(scaled).collect());
        shape.0.dedup_by_key(|p| p.0);
        let first = (1, 0.0);
        if shape.0[0].0 > 1 {
            shape.0.insert(0, first);
        }
        let factor = (mean_us - first_us) / shape.mean_us(cylinders);
        SeekCurve(shape.0.into_iter().map(|(d, t)| (d, first_us + factor * t)).collect())
    }
}

/// Cylinders from `first` on, each track with so many sectors of 512 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Zone {
    /// Its first cylinder.
    pub first: u32,
    /// Sectors a track.
    pub sectors: u32,
    /// Sectors by which a track begins later than the one before it in its cylinder.
    pub track_skew: u32,
    /// Sectors by which a cylinder's first track begins later than the last one before it.
    pub cylinder_skew: u32,
}

/// What the controller takes for itself, in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Overheads {
    /// Of a read from the track buffer.
    pub read_hit_us: f64,
    /// Of a read from the medium.
    pub read_miss_us: f64,
    /// Of a write to the medium.
    pub write_us: f64,
}

/// A mechanism's numbers.
#[derive(Clone, Debug)]
pub struct Geometry {
    /// How many cylinders.
    pub cylinders: u32,
    /// Tracks a cylinder.
    pub heads: u32,
    /// From the outermost inwards.
    pub zones: Vec<Zone>,
    /// One turn, in microseconds.
    pub turn_us: f64,
    /// Seek by distance.
    pub seek: SeekCurve,
    /// How much longer the head settles before a write, in microseconds.
    pub write_settle_us: f64,
    /// From one head to another, in microseconds.
    pub head_switch_us: f64,
    /// The controller's share.
    pub overhead: Overheads,
    /// The track buffer.
    pub buffer: Buffering,
    /// Between the buffer and the machine.
    pub bus_bytes_per_sec: u64,
}

/// A place on the platters.
pub(super) struct Place {
    pub(super) cylinder: u32,
    pub(super) head: u32,
    /// Where on the turn it begins, from 0 to 1.
    pub(super) angle: f64,
    /// Sectors of its track.
    pub(super) sectors: u32,
    /// Sectors from it to the track's end.
    pub(super) left_on_track: u64,
}

impl Geometry {
    /// Sectors of the n-th zone.
    fn zone_sectors(&self, n: usize) -> u64 {
        let z = self.zones[n];
        let end = self.zones.get(n + 1).map_or(self.cylinders, |next| next.first);
        u64::from(end - z.first) * u64::from(self.heads) * u64::from(z.sectors)
    }

    /// Are they numbers of a drive? A table with a mistake in it would give figures all the same.
    pub(super) fn check(&self) {
        let ends = self.zones.iter().skip(1).map(|z| z.first).chain([self.cylinders]);
        let mut from = 0;
        for (zone, end) in self.zones.iter().zip(ends) {
            let follows = zone.first == from && zone.first < end && zone.sectors > 0;
            assert!(follows, "G1: {zone:?}, the one before it ends at {from}");
            from = end;
        }
        assert!(from == self.cylinders && self.heads > 0, "G1: zones end at {from}");
        let rises = |p: &[(u32, f64)]| p[0].0 < p[1].0 && p[0].1 <= p[1].1;
        let first = self.seek.0.first().is_some_and(|p| p.0 > 0 && p.1 > 0.0);
        assert!(first && self.seek.0.windows(2).all(rises), "G2: {:?}", self.seek);
        let o = &self.overhead;
        let times = [self.head_switch_us, o.read_hit_us, o.read_miss_us, o.write_us];
        let pass = self.turn_us > 0.0 && self.bus_bytes_per_sec > 0;
        assert!(pass && times.iter().all(|us| *us >= 0.0), "G3: {self:?}");
    }

    /// All of them.
    pub fn capacity_bytes(&self) -> u64 {
        (0..self.zones.len()).map(|n| self.zone_sectors(n)).sum::<u64>() * SECTOR_BYTES
    }

    /// Has room for so much, with more cylinders of the last zone if need be.
    pub(super) fn grow_to(&mut self, size_bytes: u64) {
        let missing = size_bytes.saturating_sub(self.capacity_bytes()).div_ceil(SECTOR_BYTES);
        let last = self.zones.last().expect("a geometry has a zone");
        let more = missing.div_ceil(u64::from(self.heads) * u64::from(last.sectors));
        let cylinder = u64::from(self.heads) * u64::from(last.sectors) * SECTOR_BYTES;
        self.cylinders += u32::try_from(more).unwrap_or(u32::MAX - self.cylinders);
        let has = self.capacity_bytes();
        let right = size_bytes <= has && (missing == 0 || has - size_bytes < cylinder);
        assert!(right, "G5: a disk of {size_bytes} bytes has grown to {has}");
    }

    /// The same mechanism with everything `times` as slow.
    pub fn slower(mut self, times: f64) -> Geometry {
        assert!(times > 0.0, "G3: {times} times as slow");
        self.turn_us *= times;
        self.seek.0.iter_mut().for_each(|p| p.1 *= times);
        self.write_settle_us *= times;
        self.head_switch_us *= times;
        let o = &mut self.overhead;
        for us in [&mut o.read_hit_us, &mut o.read_miss_us, &mut o.write_us] {
            *us *= times;
        }
        self.bus_bytes_per_sec = (self.bus_bytes_per_sec as f64 / times) as u64;
        self
    }

    pub(super) fn bus_us(&self, bytes: u64) -> f64 {
        bytes as f64 * 1e6 / self.bus_bytes_per_sec as f64
    }

    pub(super) fn place(&self, sector: u64) -> Place {
        let mut within = sector;
        let mut n = 0;
        while n + 1 < self.zones.len() && within >= self.zone_sectors(n) {
            within -= self.zone_sectors(n);
            n += 1;
        }
        let z = self.zones[n];
        let (sectors, heads) = (u64::from(z.sectors), u64::from(self.heads));
        let (track, on_track) = (within / sectors, within % sectors);
        let (cylinder, head) = (track / heads, track % heads);
        let track_skew = u64::from(z.track_skew);
        let a_cylinder = (heads - 1) * track_skew + u64::from(z.cylinder_skew);
        let skewed = on_track + head * track_skew + cylinder * a_cylinder;
        let cylinder = u64::from(z.first) + cylinder;
        assert!(cylinder < u64::from(self.cylinders), "G4: sector {sector} on {cylinder}");
        Place {
            cylinder: cylinder as u32,
            head: head as u32,
            angle: (skewed % sectors) as f64 / sectors as f64,
            sectors: z.sectors,
            left_on_track: sectors - on_track,
        }
    }

    /// The mean time of a random access of `bytes` that the buffer does not hold: overhead, seek,
    /// half a turn, transfer. Sectors are equally likely, so the outer cylinders, which have more,
    /// are likelier.
    #[cfg(test)]
    pub(super) fn mean_access_us(&self, bytes: u64, write: bool) -> f64 {
        const PARTS: u64 = 512;
        let all = self.capacity_bytes() / SECTOR_BYTES;
        let at: Vec<Place> =
            (0..PARTS).map(|i| self.place((2 * i + 1) * all / (2 * PARTS))).collect();
        let mut seek_us = 0.0;
        for a in &at {
            for b in &at {
                let mut us = self.seek.micros(a.cylinder.abs_diff(b.cylinder));
                // Between the middles of the same part lies a seek of a third of it.
                if a.cylinder == b.cylinder {
                    us = self.seek.micros(self.cylinders / (3 * PARTS as u32));
                }
                seek_us += us + if write { self.write_settle_us } else { 0.0 };
            }
        }
        let sectors = bytes.div_ceil(SECTOR_BYTES) as f64;
        let transfer = |p: &Place| {
            // A request that lies across two tracks waits for the skew.
            let sector_us = self.turn_us / f64::from(p.sectors);
            let across = (sectors - 1.0) / f64::from(p.sectors);
            let skew = f64::from(self.zones[0].track_skew) / f64::from(self.zones[0].sectors);
            sectors * sector_us + across * skew * self.turn_us
        };
        let transfer_us = at.iter().map(transfer).sum::<f64>() / PARTS as f64;
        let overhead_us = if write { self.overhead.write_us } else { self.overhead.read_miss_us };
        let bus_us = if write { 0.0 } else { self.bus_us(SECTOR_BYTES) };
        let seek_us = seek_us / (PARTS * PARTS) as f64;
        overhead_us + seek_us + self.turn_us / 2.0 + transfer_us + bus_us
    }
}
