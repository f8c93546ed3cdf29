//! Blocks that are written again and again: which ones, by a seed. Uniform, skewed in several ways,
//! and one in the manner of a file server; how a log copes with each. It knows no experiment.
//!
//! Invariants:
//! * Z1. What is written is some blocks of the volume, and not none.
//! * Z2. Shares rise to the whole, so that each number drawn has a block.
//! * Z3. As much is done as was to be: the halves of a run are as long as one another.

use super::segments::{Did, Log, Shape};
use env::Rng;
use std::ops::Range;

/// Which blocks are written.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Load {
    /// Each as often as any other.
    Uniform,
    /// So many of 100 get the others' share of the writes: 10 get 90.
    Hot(u32),
    /// The same, but which they are changes with each volume's worth of writes.
    Shifting(u32),
    /// The n-th as often as 1 / n to this power, in hundredths.
    Zipf(u32),
    /// Files of eight blocks, six of ten never written again, the others by Zipf's law; four reads
    /// for each write: in place of the Auspex trace.
    Server,
}

/// Which block is next.
pub(super) struct Chooser {
    load: Load,
    blocks: u64,
    rng: Rng,
    /// For Zipf's law: the share of the first so many.
    shares: Vec<f64>,
    done: u64,
}

/// Blocks of a file of the server's.
const FILE: u64 = 8;

impl Chooser {
    pub(super) fn new(load: Load, blocks: u32) -> Chooser {
        let blocks = u64::from(blocks);
        let (of, power) = match load {
            Load::Zipf(hundredths) => (blocks, f64::from(hundredths) / 100.0),
            Load::Server => ((blocks * 4 / 10 / FILE).max(1), 1.0),
            _ => (0, 1.0),
        };
        let mut sum = 0.0;
        let mut shares: Vec<f64> = (1..=of)
            .map(|n| {
                sum += (n as f64).powf(-power);
                sum
            })
            .collect();
        shares.iter_mut().for_each(|s| *s /= sum);
        let rises = shares.is_sorted() && shares.last().is_none_or(|s| *s == 1.0);
        assert!(rises && blocks > 0, "Z2: {:?} of {blocks} blocks", shares.last());
        Chooser { load, blocks, rng: Rng::new(7), shares, done: 0 }
    }

    fn by_zipf(&mut self) -> u64 {
        let u = (self.rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        self.shares.partition_point(|s| *s < u) as u64
    }

    /// One of `hot` in a hundred, from `first` on, or of the others.
    fn hot(&mut self, hot: u32, first: u64) -> u64 {
        let n = (self.blocks * u64::from(hot) / 100).max(1);
        match self.rng.below(100) < 100 - u64::from(hot) {
            true => (first + self.rng.below(n)) % self.blocks,
            false => (first + n + self.rng.below(self.blocks - n)) % self.blocks,
        }
    }

    /// The next block, by a load that has no files.
    pub(super) fn next(&mut self) -> u64 {
        let done = self.done;
        self.done += 1;
        let next = self.at(done);
        assert!(next < self.blocks, "Z1: block {next} of {} is written", self.blocks);
        next
    }

    fn at(&mut self, done: u64) -> u64 {
        match self.load {
            Load::Uniform => self.rng.below(self.blocks),
            Load::Hot(hot) => self.hot(hot, 0),
            Load::Shifting(hot) => self.hot(hot, done / self.blocks * (self.blocks / 10)),
            // Which blocks are written often has nothing to do with where they lay at first.
            Load::Zipf(_) | Load::Server => self.by_zipf() * 48_271 % self.blocks,
        }
    }

    /// Writes the next block, or a few of one file, and reads what is read meanwhile.
    fn step(&mut self, log: &mut Log) {
        if self.load == Load::Server {
            self.done += 1;
            return self.serve(log);
        }
        log.write(self.next() as u32);
    }

    fn serve(&mut self, log: &mut Log) {
        let (written, read) = self.served(log.remembers());
        self.done += written.end - written.start - 1;
        written.for_each(|b| log.write(b as u32));
        read.into_iter().flatten().for_each(|b| log.read(b as u32));
    }

    /// What a client of the server writes, and what is read meanwhile, if that makes a difference:
    /// blocks of one file each.
    pub(super) fn served(&mut self, reads: bool) -> (Range<u64>, Vec<Range<u64>>) {
        let files = self.blocks / FILE;
        let file = self.by_zipf() * 48_271 % files;
        let (from, n) = (self.rng.below(FILE), self.rng.below(FILE) + 1);
        let written = file * FILE + from..file * FILE + (from + n).min(FILE);
        let within = written.start < written.end && written.end <= self.blocks;
        assert!(within, "Z1: {written:?} of {} blocks are written", self.blocks);
        let mut read = || {
            let file = if self.rng.one_in(4) { self.rng.below(files) } else { self.by_zipf() };
            let file = file * 48_271 % files;
            file * FILE..file * FILE + n
        };
        let read = (0..if reads { 4 } else { 0 }).map(|_| read()).collect();
        (written, read)
    }
}

/// Fills the log with so many blocks, one after the other, and writes `rounds` times as many by
/// this load. What is given was done in the second half.
pub(super) fn run(shape: Shape, blocks: u32, load: Load, rounds: u64) -> Did {
    let mut log = Log::new(shape, blocks);
    (0..blocks).for_each(|b| log.write(b));
    let mut chooser = Chooser::new(load, blocks);
    let half = u64::from(blocks) * rounds / 2;
    for end in [half, 2 * half] {
        log.take();
        while chooser.done < end {
            chooser.step(&mut log);
        }
    }
    let did = log.take();
    let beyond = did.new.abs_diff(half);
    assert!(beyond <= FILE, "Z3: {} blocks were written in the half of {half}", did.new);
    did
}
