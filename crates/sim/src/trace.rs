//! What a disk was asked in a run, and the images a power cut could have left. The device's rules
//! (env::disk): a write is durable when it ended with FUA, or when a flush that was issued after
//! its end has ended; of all other writes that were issued any subset of sectors may have reached
//! the medium. An older write that is still in the cache never covers a newer one that is durable.

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
}

/// The crash images of a trace, cut by cut.
pub struct CrashImages<'a> {
    trace: &'a Trace,
    /// What is durable at the cut, by disk.
    durable: Vec<Image>,
    /// Issued and not durable, in the order of issue.
    pub volatile: Vec<usize>,
    ended: Vec<bool>,
    /// For each flush: the writes that had ended when it was issued.
    covered: Vec<Vec<usize>>,
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
        CrashImages {
            trace,
            durable,
            volatile: Vec::new(),
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
            Event::WriteIssued(w) => self.volatile.push(*w),
            Event::WriteEnded(w) => {
                assert!(!self.ended[*w], "write {w} ends twice");
                // Looked for among all that are volatile.
                debug_assert!(self.volatile.contains(w), "write {w} ends, and was not issued");
                self.ended[*w] = true;
                if self.trace.writes[*w].fua {
                    self.make_durable(&[*w]);
                }
            }
            Event::FlushIssued(f) => {
                // A flush is of one disk; its number is its place among all of them.
                let disk = self.trace.flushes.get(*f).copied().unwrap_or(DiskId(0));
                assert_eq!(*f, self.covered.len(), "flushes are issued in another order");
                let ours = |w: &usize| self.ended[*w] && self.trace.writes[*w].disk == disk;
                self.covered.push(self.volatile.iter().copied().filter(ours).collect());
            }
            Event::FlushEnded(f) => {
                let done = std::mem::take(&mut self.covered[*f]);
                self.make_durable(&done);
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
            assert!(self.ended[w], "write {w} is durable, and has not ended");
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
        assert!(in_order, "writes would be applied in another order: {:?}", self.volatile);
        let mut images = self.durable.clone();
        let mut rng = Rng::new(n.wrapping_mul(0x51_7c_c1) ^ self.next as u64);
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
            let write = &self.trace.writes[w];
            for (at, sector) in write.sectors() {
                let newer = self.ahead.get(&(write.disk.0, at)).is_some_and(|n| *n > w);
                if !newer && (!torn || rng.one_in(2)) {
                    images[usize::from(write.disk.0)].write(at, sector);
                }
            }
        }
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
        Trace { writes: writes.collect(), flushes: vec![DiskId(0), DiskId(1)], events }
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
}
