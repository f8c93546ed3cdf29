//! What a disk was asked in a run, and the images a power cut could have left. The device's rules
//! (env::disk): a write is durable when it ended with FUA, or when a flush that was issued after
//! its end has ended; of all other writes that were issued any subset of sectors may have reached
//! the medium. An older write that is still in the cache never covers a newer one that is durable.
//!
//! Invariants:
//! * T1. A write is of whole sectors of a disk that there is: what is torn, and what covers what,
//!   is told apart by the sector.
//! * T2. Writes and flushes begin in the order of their numbers, each that there is, and each ends
//!   once at most, after it has begun.
//! * T3. What is durable has ended, and is no longer among what may be lost.
//! * T4. What may be lost is applied in the order in which it was written, so that of two writes of
//!   a sector the later one is what is left.
//! * T5. Where nothing may be lost, what is durable is all that there is: no sector is ahead of it.
//! * T6. An image has what may be lost of the cut that it is of, and nothing else: a variant leaves
//!   out one of these writes, or has one, or some.

use crate::Image;
use env::{DiskId, IdMap, Rng};
use std::sync::Arc;

/// The unit that is written whole or not at all.
const SECTOR: usize = 512;

/// One write.
#[derive(Clone, Debug)]
pub struct Write {
    /// Where: the volume's disk, or a log's.
    pub disk: DiskId,
    /// First byte.
    pub at: u64,
    /// What.
    pub bytes: Arc<[u8]>,
    /// Durable when it ends?
    pub fua: bool,
}

impl Write {
    /// Have the two a byte in common?
    fn meets(&self, other: &Write) -> bool {
        let end = |w: &Write| w.at + w.bytes.len() as u64;
        self.disk == other.disk && self.at < end(other) && other.at < end(self)
    }

    /// Its sectors, and where each goes.
    fn sectors(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let places = (self.at..).step_by(SECTOR);
        places.zip(self.bytes.chunks(SECTOR))
    }
}

/// What happened, in order.
#[derive(Clone, Debug)]
pub enum Event {
    /// A write was issued.
    WriteIssued(usize),
    /// It has ended.
    WriteEnded(usize),
    /// A flush was issued.
    FlushIssued(usize),
    /// It has ended.
    FlushEnded(usize),
    /// Something of the caller's own: an operation begun or answered.
    Mark(u64),
}

/// A run's events.
#[derive(Clone, Default)]
pub struct Trace {
    /// The writes, by number.
    pub writes: Vec<Write>,
    /// Which disk was flushed, by the flush's number.
    pub flushes: Vec<DiskId>,
    /// In order.
    pub events: Vec<Event>,
    /// What the wall clock showed at each mark, in nanoseconds, in their order; none: not known.
    pub marked: Vec<u64>,
}

impl Trace {
    /// Two writes of one place that were in flight together, the first such: nothing says which of
    /// them is on the disk in the end. It is for disks that do not fail, where each write ends.
    pub fn two_in_one_place(&self) -> Option<(usize, usize)> {
        let mut in_flight: Vec<usize> = Vec::new();
        for event in &self.events {
            match event {
                Event::WriteIssued(w) => {
                    let mine = &self.writes[*w];
                    if let Some(other) = in_flight.iter().find(|o| self.writes[**o].meets(mine)) {
                        return Some((*other, *w));
                    }
                    in_flight.push(*w);
                }
                Event::WriteEnded(w) => {
                    let i = in_flight.iter().position(|o| o == w);
                    let i = i.unwrap_or_else(|| panic!("T2: write {w} ends, and is not under way"));
                    in_flight.remove(i);
                }
                _ => (),
            }
        }
        None
    }
}

/// The crash images of a trace, cut by cut.
pub struct CrashImages<'a> {
    trace: &'a Trace,
    /// What is durable at the cut, by disk.
    durable: Vec<Image>,
    /// Issued and not durable, in the order of issue.
    pub volatile: Vec<usize>,
    /// So many writes have been issued.
    issued: usize,
    ended: Vec<bool>,
    /// For each flush that was issued: the writes that had ended then; None: it has ended.
    covered: Vec<Option<Vec<usize>>>,
    /// The newest durable write of a sector, while older ones may not be durable.
    ahead: IdMap<(u16, u64), usize>,
    next: usize,
}

impl<'a> CrashImages<'a> {
    /// Before the first event, on this disk.
    pub fn new(trace: &'a Trace, base: &Image) -> CrashImages<'a> {
        CrashImages::of_disks(trace, vec![base.clone()])
    }

    /// Before the first event, on the volume's disk and its logs, in the order of their numbers.
    pub fn of_disks(trace: &'a Trace, durable: Vec<Image>) -> CrashImages<'a> {
        for (n, w) in trace.writes.iter().enumerate() {
            let size = durable.get(usize::from(w.disk.0)).map_or(0, Image::size);
            let (at, len) = (w.at, w.bytes.len());
            let whole = at.is_multiple_of(SECTOR as u64) && len.is_multiple_of(SECTOR) && len > 0;
            let fits = at.checked_add(len as u64).is_some_and(|end| end <= size);
            assert!(whole && fits, "T1: write {n} of {len} bytes at {at} of {:?}", w.disk);
        }
        let issued = trace.events.iter().filter(|e| matches!(e, Event::WriteIssued(_))).count();
        let all = trace.writes.len();
        assert_eq!(issued, all, "T2: so many of all writes were issued: no image has the others");
        CrashImages {
            trace,
            durable,
            volatile: Vec::new(),
            issued: 0,
            ended: vec![false; trace.writes.len()],
            covered: Vec::new(),
            ahead: IdMap::default(),
            next: 0,
        }
    }

    /// Goes on to after the next event; None at the end. The event is told.
    pub fn step(&mut self) -> Option<&'a Event> {
        let event = self.trace.events.get(self.next)?;
        self.next += 1;
        match event {
            Event::WriteIssued(w) => {
                assert_eq!(*w, self.issued, "T2: writes are issued in another order");
                self.issued += 1;
                self.volatile.push(*w);
            }
            Event::WriteEnded(w) => {
                assert!(*w < self.issued, "T2: write {w} ends, and was not issued");
                assert!(!self.ended[*w], "T2: write {w} ends twice");
                self.ended[*w] = true;
                if self.trace.writes[*w].fua {
                    self.make_durable(&[*w]);
                }
            }
            Event::FlushIssued(f) => {
                // A flush is of one disk; its number is its place among all of them.
                assert_eq!(*f, self.covered.len(), "T2: flushes are issued in another order");
                let there = self.trace.flushes.len();
                assert!(*f < there, "T2: flush {f} of {there} is issued");
                let disk = self.trace.flushes[*f];
                let ours = |w: &usize| self.ended[*w] && self.trace.writes[*w].disk == disk;
                self.covered.push(Some(self.volatile.iter().copied().filter(ours).collect()));
            }
            Event::FlushEnded(f) => {
                let done = self.covered.get_mut(*f).and_then(Option::take);
                self.make_durable(&done.unwrap_or_else(|| {
                    panic!("T2: flush {f} ends twice, or was not issued");
                }));
            }
            Event::Mark(_) => (),
        }
        Some(event)
    }

    /// These writes are durable now. Older ones of the same sectors that are not (in the cache
    /// ahead of a write with FUA, or failed) can no longer be what is left of those.
    fn make_durable(&mut self, writes: &[usize]) {
        for &w in writes {
            let Some(i) = self.volatile.iter().position(|v| *v == w) else { continue };
            self.volatile.remove(i);
            assert!(self.ended[w], "T3: write {w} is durable, and has not ended");
            // Looked for among all that are volatile.
            debug_assert!(!self.volatile.contains(&w), "T3: write {w} is durable, and may be lost");
            let write = &self.trace.writes[w];
            let disk = write.disk;
            for (at, sector) in write.sectors() {
                let newer = self.ahead.get(&(disk.0, at)).is_some_and(|n| *n > w);
                if !newer {
                    self.durable[usize::from(disk.0)].write(at, sector);
                }
                if !newer && !self.volatile.is_empty() {
                    self.ahead.insert((disk.0, at), w);
                }
            }
        }
        if self.volatile.is_empty() {
            self.ahead.clear();
        }
    }

    /// The volume's image of variant `n`; see [`CrashImages::images`].
    pub fn image(&self, n: u64) -> Image {
        self.images(n).swap_remove(0)
    }

    /// The disks' images of variant `n` of this cut: 0 nothing volatile, 1 all that had ended, 2
    /// all; then single omissions and single survivors; then seeded subsets, every other one with
    /// torn sectors.
    pub fn images(&self, n: u64) -> Vec<Image> {
        let (count, all) = (self.singled_out(), self.volatile.len() as u64);
        // They are spread over all that are volatile.
        let single = |n: u64| n * all / count.max(1);
        let in_order = self.volatile.is_sorted();
        assert!(in_order, "T4: writes would be applied in another order: {:?}", self.volatile);
        let ahead = self.ahead.len();
        assert!(all > 0 || ahead == 0, "T5: {ahead} sectors are ahead, and nothing may be lost");
        let mut images = self.durable.clone();
        let mut rng = Rng::new(n.wrapping_mul(0x51_7c_c1) ^ self.next as u64);
        let mut kept = 0;
        for (i, &w) in self.volatile.iter().enumerate() {
            let i = i as u64;
            let keep = match n {
                0 => false,
                1 => self.ended[w],
                2 => true,
                n if n < 3 + count => i != single(n - 3),
                n if n < 3 + 2 * count => i == single(n - 3 - count),
                _ => rng.one_in(2),
            };
            let torn = n >= 3 + 2 * count && n % 2 == 1 && rng.one_in(3);
            if !torn && !keep {
                continue;
            }
            kept += 1;
            let write = &self.trace.writes[w];
            for (at, sector) in write.sectors() {
                let newer = self.ahead.get(&(write.disk.0, at)).is_some_and(|n| *n > w);
                if !newer && (!torn || rng.one_in(2)) {
                    images[usize::from(write.disk.0)].write(at, sector);
                }
            }
        }
        let (least, most) = match n {
            0 => (0, 0),
            2 => (all, all),
            n if n != 1 && n < 3 + count => (all - 1, all - 1),
            n if n != 1 && n < 3 + 2 * count => (1, 1),
            _ => (0, all),
        };
        let fits = (least..=most).contains(&kept);
        assert!(
            fits,
            "T6: variant {n} has {kept} writes of {all}, and {least} to {most} are meant"
        );
        images
    }

    /// So many of the volatile writes are left out, or left alone, one at a time.
    fn singled_out(&self) -> u64 {
        (self.volatile.len() as u64).min(8)
    }

    /// How many variants are worth looking at, with `random` seeded ones.
    pub fn variants(&self, random: u64) -> u64 {
        match self.singled_out() {
            0 => 1,
            n => 3 + 2 * n + random,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn trace(writes: &[(u16, u64, u8, bool)], events: Vec<Event>) -> Trace {
        let writes = writes.iter().map(|&(disk, at, byte, fua)| {
            let bytes: Arc<[u8]> = vec![byte; SECTOR].into();
            Write { disk: DiskId(disk), at, bytes, fua }
        });
        let flushes = vec![DiskId(0), DiskId(1)];
        Trace { writes: writes.collect(), flushes, events, ..Trace::default() }
    }
    fn byte(image: &Image, at: u64) -> u8 {
        let mut b = [0];
        image.read(at, &mut b);
        b[0]
    }
    fn at_end<'a>(t: &'a Trace, disks: usize) -> CrashImages<'a> {
        let mut c = CrashImages::of_disks(t, vec![Image::new(1 << 16); disks]);
        while c.step().is_some() {}
        c
    }
    use Event::{FlushEnded, FlushIssued, WriteEnded, WriteIssued};

    #[test]
    fn a_flush_covers_what_ended_before_it_was_issued_on_its_own_disk() {
        let events = vec![
            WriteIssued(0),
            WriteIssued(1),
            WriteIssued(2),
            WriteEnded(0),
            WriteEnded(2),
            FlushIssued(0),
            WriteEnded(1),
            FlushEnded(0),
        ];
        let t = trace(&[(0, 0, 1, false), (0, 512, 2, false), (1, 0, 3, false)], events);
        let c = at_end(&t, 2);
        let durable = c.images(0);
        assert_eq!((byte(&durable[0], 0), byte(&durable[0], 512), byte(&durable[1], 0)), (1, 0, 0));
        let ended = c.images(1);
        assert_eq!((byte(&ended[0], 512), byte(&ended[1], 0)), (2, 3));
    }

    #[test]
    fn an_older_write_in_the_cache_never_covers_a_newer_durable_one() {
        let before = vec![WriteIssued(0), WriteEnded(0), WriteIssued(1), WriteEnded(1)];
        let after = [before.clone(), vec![FlushIssued(0), FlushEnded(0)]].concat();
        for events in [before, after] {
            let t = trace(&[(0, 0, 1, false), (0, 0, 2, true)], events);
            let c = at_end(&t, 1);
            assert!((0..20).all(|n| byte(&c.image(n), 0) == 2));
        }
    }

    #[test]
    fn each_version_of_a_sector_that_is_not_durable_can_be_left() {
        let events = (0..3).flat_map(|n| [WriteIssued(n), WriteEnded(n)]).collect();
        let t = trace(&[(0, 0, 1, false), (0, 0, 2, false), (0, 0, 3, false)], events);
        let c = at_end(&t, 1);
        let left: BTreeSet<u8> = (0..60).map(|n| byte(&c.image(n), 0)).collect();
        assert_eq!(left.into_iter().collect::<Vec<_>>(), [0, 1, 2, 3]);
    }

    #[test]
    fn two_writes_of_one_place_at_once_are_seen() {
        let writes = [(0, 0, 1, false), (0, 512, 2, false), (1, 0, 3, false), (0, 0, 4, false)];
        let begun = vec![WriteIssued(0), WriteIssued(1), WriteIssued(2)];
        let after = [begun.clone(), vec![WriteEnded(0), WriteIssued(3)]].concat();
        assert_eq!(trace(&writes, after).two_in_one_place(), None);
        let beside = [begun, vec![WriteEnded(1), WriteIssued(3)]].concat();
        assert_eq!(trace(&writes, beside).two_in_one_place(), Some((0, 3)));
    }

    #[test]
    #[should_panic(expected = "T2: flush 0 ends twice")]
    fn a_flush_ends_once() {
        at_end(&trace(&[], vec![FlushIssued(0), FlushEnded(0), FlushEnded(0)]), 2);
    }

    #[test]
    #[should_panic(expected = "T1")]
    fn parts_of_sectors_are_not_written() {
        at_end(&trace(&[(0, 100, 1, false)], Vec::new()), 1);
    }

    /// A naive twin: of each sector all that was written to it, and since when it is durable.
    #[derive(Default)]
    struct Twin {
        /// By sector: the writes, in their order, and of each whether it is durable.
        written: std::collections::BTreeMap<(u16, u64), Vec<(usize, bool)>>,
    }

    impl Twin {
        fn durable(&mut self, w: usize) {
            let all = self.written.values_mut().flatten();
            all.filter(|(n, _)| *n == w).for_each(|one| one.1 = true);
        }

        /// What may be left of a sector: the newest durable write, or any newer one. None: zeros.
        fn may_be(&self, at: (u16, u64)) -> BTreeSet<Option<usize>> {
            let all = self.written.get(&at).map_or(&[][..], Vec::as_slice);
            let newest = all.iter().rposition(|(_, durable)| *durable);
            let first = newest.map_or(0, |n| n + 1);
            let newer = all[first..].iter().map(|(n, _)| Some(*n));
            newer.chain([newest.map(|n| all[n].0)]).collect()
        }

        /// The same of all sectors of two disks, by the bytes that the writes have.
        fn all(&self, sectors: u64) -> BTreeSet<Left> {
            let ats = (0..sectors).map(|n| n * SECTOR as u64);
            let places = ats.flat_map(|at| [(0, at), (1, at)]);
            let value = |w: Option<usize>| w.map_or(0, |w| w as u8 + 1);
            let of = |p| self.may_be(p).into_iter().map(move |w| (p, value(w)));
            places.flat_map(of).collect()
        }
    }

    /// Random writes, some of which fail, and flushes, many under way at a time: after each event
    /// every image shows what may be left, and all images together all of it.
    #[test]
    fn what_may_be_left_is_what_a_naive_twin_says() {
        const PLACES: u64 = 4;
        for seed in 0..60 {
            let mut rng = Rng::new(seed);
            let (mut writes, mut events) = (Vec::new(), Vec::new());
            let (mut in_flight, mut flushing, mut flushes) = (Vec::new(), Vec::new(), 0);
            while events.len() < 40 {
                match rng.below(5) {
                    0 | 1 => {
                        let place = (rng.below(2) as u16, rng.below(PLACES) * 512);
                        let taken = |w: &usize| {
                            let (disk, at, ..): (u16, u64, u8, bool) = writes[*w];
                            (disk, at) == place
                        };
                        if !in_flight.iter().any(taken) {
                            let n = writes.len();
                            writes.push((place.0, place.1, n as u8 + 1, rng.one_in(4)));
                            events.push(WriteIssued(n));
                            in_flight.push(n);
                        }
                    }
                    2 if !in_flight.is_empty() => {
                        let w = in_flight.remove(rng.below(in_flight.len() as u64) as usize);
                        // One that fails never ends.
                        events.extend((!rng.one_in(8)).then_some(WriteEnded(w)));
                    }
                    3 if flushes < 2 => {
                        events.push(FlushIssued(flushes));
                        flushing.push(flushes);
                        flushes += 1;
                    }
                    4 if !flushing.is_empty() => events.push(FlushEnded(flushing.remove(0))),
                    _ => (),
                }
            }
            let t = trace(&writes, events);
            let disks = vec![Image::new(PLACES * SECTOR as u64); 2];
            let mut images = CrashImages::of_disks(&t, disks);
            let (mut twin, mut ended, mut covers) = (Twin::default(), BTreeSet::new(), Vec::new());
            while let Some(event) = images.step() {
                match event {
                    WriteIssued(w) => {
                        let write = &t.writes[*w];
                        let at = (write.disk.0, write.at);
                        twin.written.entry(at).or_default().push((*w, false));
                    }
                    WriteEnded(w) => {
                        ended.insert(*w);
                        if t.writes[*w].fua {
                            twin.durable(*w);
                        }
                    }
                    FlushIssued(f) => {
                        let of = |w: &&usize| t.writes[**w].disk == t.flushes[*f];
                        covers.push(ended.iter().filter(of).copied().collect::<Vec<_>>());
                    }
                    FlushEnded(f) => covers[*f].iter().for_each(|w| twin.durable(*w)),
                    Event::Mark(_) => (),
                }
                let (seen, may) = (left(&images, 30), twin.all(PLACES));
                assert!(seen.is_subset(&may), "seed {seed} after {event:?}: {seen:?} of {may:?}");
            }
            assert_eq!(left(&images, 3000), twin.all(PLACES), "seed {seed}: not all is shown");
        }
    }

    /// A sector, and the byte in it.
    type Left = ((u16, u64), u8);

    /// What so many seeded images leave, by sector.
    fn left(images: &CrashImages<'_>, random: u64) -> BTreeSet<Left> {
        let all = (0..images.variants(random)).map(|n| images.images(n));
        let sectors = |disks: Vec<Image>| {
            let of = |d: u16| {
                let image = &disks[usize::from(d)];
                let ats = (0..image.size()).step_by(SECTOR);
                ats.map(|at| ((d, at), byte(image, at))).collect::<Vec<Left>>()
            };
            [of(0), of(1)].concat()
        };
        all.flat_map(sectors).collect()
    }
}
