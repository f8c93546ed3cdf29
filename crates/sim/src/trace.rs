//! What a disk was asked in a run, and the images a power cut could have left. The device's rules
//! (env::disk): a write is durable when it ended with FUA, or when a flush that was issued after
//! its end has ended; of all other writes that were issued any subset of sectors may have reached
//! the medium.

use crate::Image;
use env::Rng;
use std::sync::Arc;

/// The unit that is written whole or not at all.
const SECTOR: usize = 512;

/// One write.
#[derive(Clone, Debug)]
pub struct Write {
    /// First byte.
    pub at: u64,
    /// What.
    pub bytes: Arc<[u8]>,
    /// Durable when it ends?
    pub fua: bool,
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
    /// In order.
    pub events: Vec<Event>,
}

/// The crash images of a trace, cut by cut.
pub struct CrashImages<'a> {
    trace: &'a Trace,
    /// What is durable at the cut.
    pub durable: Image,
    /// Issued and not durable, in the order of issue.
    pub volatile: Vec<usize>,
    ended: Vec<bool>,
    /// For each flush: the writes that had ended when it was issued.
    covered: Vec<Vec<usize>>,
    next: usize,
}

impl<'a> CrashImages<'a> {
    /// Before the first event, on this disk.
    pub fn new(trace: &'a Trace, base: &Image) -> CrashImages<'a> {
        CrashImages {
            trace,
            durable: base.clone(),
            volatile: Vec::new(),
            ended: vec![false; trace.writes.len()],
            covered: Vec::new(),
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
                self.ended[*w] = true;
                if self.trace.writes[*w].fua {
                    self.settle(&[*w]);
                }
            }
            Event::FlushIssued(_) => {
                let ended = self.volatile.iter().copied().filter(|w| self.ended[*w]).collect();
                self.covered.push(ended);
            }
            Event::FlushEnded(f) => {
                let done = std::mem::take(&mut self.covered[*f]);
                self.settle(&done);
            }
            Event::Mark(_) => (),
        }
        Some(event)
    }

    fn settle(&mut self, writes: &[usize]) {
        for w in writes {
            if let Some(i) = self.volatile.iter().position(|v| v == w) {
                self.volatile.remove(i);
                let write = &self.trace.writes[*w];
                self.durable.write(write.at, &write.bytes);
            }
        }
    }

    /// The image of variant `n` of this cut: 0 nothing volatile, 1 all that had ended, 2 all; then
    /// single omissions and single survivors; then seeded subsets, every other one with torn
    /// sectors.
    pub fn image(&self, n: u64) -> Image {
        let count = self.volatile.len() as u64;
        let mut image = self.durable.clone();
        let mut rng = Rng::new(n.wrapping_mul(0x51_7c_c1) ^ self.next as u64);
        for (i, &w) in self.volatile.iter().enumerate() {
            let i = i as u64;
            let keep = match n {
                0 => false,
                1 => self.ended[w],
                2 => true,
                n if n < 3 + count => i != n - 3,
                n if n < 3 + 2 * count => i == n - 3 - count,
                _ => rng.one_in(2),
            };
            let torn = n >= 3 + 2 * count && n % 2 == 1 && rng.one_in(3);
            let write = &self.trace.writes[w];
            if torn {
                for (s, sector) in write.bytes.chunks(SECTOR).enumerate() {
                    if rng.one_in(2) {
                        image.write(write.at + (s * SECTOR) as u64, sector);
                    }
                }
            } else if keep {
                image.write(write.at, &write.bytes);
            }
        }
        image
    }

    /// How many variants are worth looking at, with `random` seeded ones.
    pub fn variants(&self, random: u64) -> u64 {
        match self.volatile.len() as u64 {
            0 => 1,
            n => 3 + 2 * n.min(8) + random,
        }
    }
}
