//! A disk with a head: seek by distance, the turn of the platter, transfer at the zone's rate. One
//! access at a time, in the order in which they come; what orders them better is the caller. No
//! write cache: a write ends when it is on the medium (`write_back` puts a cache in front).

use super::{Access, Kind, Timing};
use env::Nanos;

/// Seek time by distance in cylinders, in microseconds: the points of a measured curve, straight
/// lines between.
#[derive(Clone, Debug)]
pub struct SeekCurve(pub Vec<(u32, f64)>);

impl SeekCurve {
    fn micros(&self, distance: u32) -> f64 {
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

    /// `first` for the next cylinder and `full` across `cylinders`, by the square root between.
    pub fn by_root(first: f64, full: f64, cylinders: u32) -> SeekCurve {
        let span = f64::from(cylinders.max(2));
        let points = (0..=32u32).map(|i| {
            let d = 1.0 + (span - 1.0) * f64::from(i * i) / 1024.0;
            (d as u32, first + (full - first) * (d / span).sqrt())
        });
        let mut points: Vec<(u32, f64)> = points.collect();
        points.dedup_by_key(|p| p.0);
        SeekCurve(points)
    }
}

/// Cylinders from `first` on with so many sectors of 512 bytes a track.
#[derive(Clone, Copy, Debug)]
pub struct Zone {
    /// Its first cylinder.
    pub first: u32,
    /// Sectors a track.
    pub sectors: u32,
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
    /// Settling before a write, in microseconds.
    pub write_settle_us: f64,
    /// From one head to the next, in microseconds.
    pub head_switch_us: f64,
    /// Sectors by which a track starts later than the one before it.
    pub track_skew: u32,
    /// The controller's share of a read and of a write, in microseconds.
    pub overhead_us: (f64, f64),
    /// Does a read that goes on where the last one ended come from the track buffer?
    pub read_ahead: bool,
}

const SECTOR: u64 = 512;

/// The disk: geometry, where the head is, and since when.
pub struct HeadDisk {
    g: Geometry,
    /// First sector of each zone.
    starts: Vec<u64>,
    /// Sectors of the device are spread over the whole disk by this factor, so that a small image
    /// has the distances of a full disk.
    stretch: f64,
    cylinder: u32,
    next_sector: u64,
    free_at_us: f64,
}

/// A place on the platters.
struct Place {
    cylinder: u32,
    head: u32,
    angle: f64,
    sectors: u32,
}

impl HeadDisk {
    /// A disk of this geometry. An image of `size_bytes` covers it from the outside as far as it
    /// goes.
    pub fn new(g: Geometry, size_bytes: u64) -> HeadDisk {
        let mut starts = vec![0];
        for pair in g.zones.windows(2) {
            let tracks = u64::from(pair[1].first - pair[0].first) * u64::from(g.heads);
            let last = starts.last().copied().unwrap_or(0);
            starts.push(last + tracks * u64::from(pair[0].sectors));
        }
        let last = g.zones.last().expect("a geometry has a zone");
        let tracks = u64::from(g.cylinders - last.first) * u64::from(g.heads);
        let whole = starts.last().copied().unwrap_or(0) + tracks * u64::from(last.sectors);
        let stretch = if size_bytes / SECTOR > whole {
            whole as f64 / (size_bytes / SECTOR) as f64
        } else {
            1.0
        };
        HeadDisk { g, starts, stretch, cylinder: 0, next_sector: 0, free_at_us: 0.0 }
    }

    fn place(&self, sector: u64) -> Place {
        let s = (sector as f64 * self.stretch) as u64;
        let zone = self.starts.partition_point(|&start| start <= s).saturating_sub(1);
        let z = self.g.zones[zone];
        let within = s - self.starts[zone];
        let track = within / u64::from(z.sectors);
        let cylinder = z.first + (track / u64::from(self.g.heads)) as u32;
        let on_track = within % u64::from(z.sectors) + track * u64::from(self.g.track_skew);
        Place {
            cylinder: cylinder.min(self.g.cylinders - 1),
            head: (track % u64::from(self.g.heads)) as u32,
            angle: (on_track % u64::from(z.sectors)) as f64 / f64::from(z.sectors),
            sectors: z.sectors,
        }
    }

    /// Moves the head and turns the platter; the time at which the access that begins at `t` ends.
    fn access(&mut self, t: f64, at: u64, len: u64, write: bool) -> f64 {
        let first = at / SECTOR;
        let count = len.div_ceil(SECTOR).max(1);
        let place = self.place(first);
        let goes_on = first == self.next_sector && !write && self.g.read_ahead;
        let mut t = t + if write { self.g.overhead_us.1 } else { self.g.overhead_us.0 };
        if !goes_on {
            let distance = place.cylinder.abs_diff(self.cylinder);
            t += self.g.seek.micros(distance);
            if write && distance > 0 {
                t += self.g.write_settle_us;
            }
            let now = (t / self.g.turn_us).fract();
            t += (place.angle - now).rem_euclid(1.0) * self.g.turn_us;
        }
        let end = self.place(first + count - 1);
        let tracks = u64::from(end.cylinder - place.cylinder) * u64::from(self.g.heads)
            + u64::from(end.head)
            - u64::from(place.head);
        t += count as f64 * self.g.turn_us / f64::from(place.sectors);
        let skew = f64::from(self.g.track_skew) * self.g.turn_us / f64::from(place.sectors);
        t += tracks as f64 * skew.max(self.g.head_switch_us);
        self.cylinder = end.cylinder;
        self.next_sector = first + count;
        t
    }
}

impl Timing for HeadDisk {
    fn ends_at(&mut self, now: Nanos, a: Access) -> Nanos {
        if a.kind == Kind::Flush {
            return now.max(Nanos((self.free_at_us * 1e3) as u64));
        }
        let begin = self.free_at_us.max(now.0 as f64 / 1e3);
        self.free_at_us = self.access(begin, a.at, a.len, a.kind != Kind::Read);
        Nanos((self.free_at_us * 1e3) as u64).max(now)
    }
}

impl HeadDisk {
    /// DEC RZ26: 1 GB, 5,360 turns a minute; no write cache.
    pub fn rz26(size_bytes: u64) -> HeadDisk {
        let seek = [
            (1, 1014.0),
            (2, 1902.0),
            (3, 2284.0),
            (4, 2551.0),
            (6, 2792.0),
            (8, 2883.0),
            (12, 3059.0),
            (16, 3169.0),
            (20, 3357.0),
            (30, 3761.0),
            (40, 4017.0),
            (60, 4660.0),
            (80, 5087.0),
            (100, 5490.0),
            (150, 6379.0),
            (200, 6905.0),
            (300, 7698.0),
            (400, 8236.0),
            (600, 9472.0),
            (800, 10579.0),
            (1000, 11663.0),
            (1500, 13880.0),
            (2000, 16188.0),
            (2500, 18676.0),
            (2599, 19099.0),
        ];
        let g = Geometry {
            cylinders: 2599,
            heads: 14,
            zones: vec![Zone { first: 0, sectors: 57 }],
            turn_us: 11_194.0,
            seek: SeekCurve(seek.to_vec()),
            write_settle_us: 0.0,
            head_switch_us: 865.0,
            track_skew: 7,
            overhead_us: (1489.0, 1942.0),
            read_ahead: true,
        };
        HeadDisk::new(g, size_bytes)
    }

    /// Seagate Cheetah 9LP: 9 GB, 10,045 turns a minute.
    pub fn cheetah_9lp(size_bytes: u64) -> HeadDisk {
        let seek = [
            (1, 831.0),
            (2, 1003.0),
            (4, 1092.0),
            (8, 1439.0),
            (16, 1453.0),
            (30, 1624.0),
            (50, 1804.0),
            (100, 2145.0),
            (200, 2517.0),
            (400, 3051.0),
            (600, 3399.0),
            (800, 3823.0),
            (1000, 4118.0),
            (1500, 4757.0),
            (2000, 5282.0),
            (2500, 5815.0),
            (3000, 6345.0),
            (4000, 7419.0),
            (5000, 8492.0),
            (6000, 9698.0),
            (6894, 10627.0),
        ];
        let zones = [
            (0, 254),
            (848, 245),
            (1645, 238),
            (2394, 227),
            (3098, 217),
            (3759, 209),
            (4381, 201),
            (4966, 189),
            (5516, 181),
            (6032, 174),
            (6518, 167),
        ];
        let g = Geometry {
            cylinders: 6962,
            heads: 12,
            zones: zones.map(|(first, sectors)| Zone { first, sectors }).to_vec(),
            turn_us: 5973.0,
            seek: SeekCurve(seek.to_vec()),
            write_settle_us: 461.0,
            head_switch_us: 30.0,
            track_skew: 97,
            overhead_us: (284.0, 907.0),
            read_ahead: true,
        };
        HeadDisk::new(g, size_bytes)
    }

    /// A SAS disk of 15,000 turns a minute, 122 to 204 MB/s; seeks 3.4 and 3.9 ms on average.
    pub fn cheetah_15k(size_bytes: u64) -> HeadDisk {
        HeadDisk::modern(size_bytes, 4000.0, (400.0, 6600.0), (1594, 953))
    }

    /// A SATA disk of 7,200 turns a minute, 70 to 130 MB/s; seeks 8.5 and 9.5 ms on average.
    pub fn sata_7200(size_bytes: u64) -> HeadDisk {
        HeadDisk::modern(size_bytes, 8333.0, (800.0, 18_000.0), (2115, 1139))
    }

    /// A disk with a root-shaped seek curve and a track that shortens evenly from outside to
    /// inside.
    fn modern(size_bytes: u64, turn_us: f64, seek: (f64, f64), track: (u32, u32)) -> HeadDisk {
        const ZONES: u32 = 16;
        let heads = 8;
        let mean = u64::from((track.0 + track.1) / 2) * u64::from(heads);
        // The platters are as large as the image, so that the image spans all of them.
        let cylinders = (size_bytes / SECTOR).div_ceil(mean).max(u64::from(ZONES) * 2);
        let cylinders = u32::try_from(cylinders).unwrap_or(u32::MAX);
        let zones = (0..ZONES).map(|z| Zone {
            first: (u64::from(cylinders) * u64::from(z) / u64::from(ZONES)) as u32,
            sectors: track.0 - (track.0 - track.1) * z / (ZONES - 1),
        });
        let g = Geometry {
            cylinders,
            heads,
            zones: zones.collect(),
            turn_us,
            seek: SeekCurve::by_root(seek.0, seek.1, cylinders),
            write_settle_us: 500.0,
            head_switch_us: seek.0,
            track_skew: (seek.0 / turn_us * f64::from(track.0)) as u32 + 1,
            overhead_us: (100.0, 100.0),
            read_ahead: true,
        };
        HeadDisk::new(g, size_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::Rng;

    fn mean_ms(disk: &mut HeadDisk, size: u64, kind: Kind) -> f64 {
        let (mut rng, mut now, n) = (Rng::new(1), Nanos(0), 2000);
        for _ in 0..n {
            let at = rng.below(size / 4096) * 4096;
            now = disk.ends_at(now, Access { kind, at, len: 4096 });
        }
        now.0 as f64 / 1e6 / f64::from(n)
    }

    #[test]
    fn random_accesses_take_what_the_data_sheets_say() {
        // Mean seek, half a turn, transfer and overhead: 10.44 + 5.60 + 1.6 + 1.5; 5.47 + 2.99 +
        // 0.2 + 0.3.
        let rz = mean_ms(&mut HeadDisk::rz26(1_050_000_000), 1_050_000_000, Kind::Read);
        assert!((18.0..20.5).contains(&rz), "rz26: {rz} ms");
        let c = mean_ms(&mut HeadDisk::cheetah_9lp(9_100_000_000), 9_100_000_000, Kind::Read);
        assert!((8.3..9.5).contains(&c), "cheetah 9LP: {c} ms");
    }

    #[test]
    fn a_write_that_follows_the_last_one_waits_a_turn() {
        let mut d = HeadDisk::rz26(1_000_000_000);
        let mut now = Nanos(0);
        let mut last = Nanos(0);
        for i in 0..10 {
            let kind = Kind::Write { fua: true };
            last = now;
            now = d.ends_at(now, Access { kind, at: i * 512, len: 512 });
        }
        let ms = now.since(last).0 as f64 / 1e6;
        assert!((11.0..12.0).contains(&ms), "{ms} ms"); // facts: 12.5 ms a log write
    }

    #[test]
    fn reading_on_runs_at_the_media_rate() {
        let mut d = HeadDisk::cheetah_9lp(9_100_000_000);
        let mut now = Nanos(0);
        for i in 0..100 {
            now = d.ends_at(now, Access { kind: Kind::Read, at: i << 20, len: 1 << 20 });
        }
        let rate = 100.0 * 1048.576 / (now.0 as f64 / 1e6);
        assert!((14.0..22.0).contains(&rate), "{rate} MB/s");
    }
}
