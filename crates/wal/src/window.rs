//! How many log writes may be in flight, found by measuring the device, and when another one goes
//! out beside those that are. It decides and writes nothing.
//!
//! With one write in flight, clients that wait for their entries fall into two convoys: half arrive
//! while the other half's write is under way. An entry waits on average for half the time between
//! two issues and then for its write; with `w` writes in flight that a device serves in `s(w)`
//! each, issues are `s(w) / w` apart, and a full cycle of a client that asks again at once is about
//! `s(w) * (1 + 1 / w)`. So that product is what is made small, by trying the neighbouring widths
//! now and then, while there is enough waiting to fill them.
//!
//! An idle device is written to at once. While it is not, whoever is the first to come back would
//! take a place in the window for a single entry, and those behind it would find the window full.
//! So another write goes out only with its share: as many entries as the window would get each if
//! all who are about came; or with fewer, when all who are about have come. A write with much less
//! than its share, such as the first one's on an idle device, takes no place. Nobody waits longer
//! for that than with one write in flight, because a write that ends lets go whatever is there.

use env::Nanos;

/// The widths that are tried.
const WIDTHS: [usize; 8] = [1, 2, 3, 4, 6, 8, 12, 16];
/// Completed writes that make a measurement.
const SAMPLE: u32 = 32;
/// Measurements at the chosen width before a neighbour is tried again.
const SETTLED: u32 = 16;

#[derive(Debug)]
enum Phase {
    /// At the best known width; so many measurements so far.
    Settled(u32),
    /// Trying this neighbour.
    Trying(usize),
}

/// The window.
#[derive(Debug)]
pub(crate) struct Window {
    /// Index of the best known width.
    best: usize,
    best_cost: Option<u64>,
    phase: Phase,
    /// The next neighbour to try: wider?
    up: bool,
    sum: u64,
    count: u32,
    /// Set by an option instead of by measuring.
    fixed: Option<usize>,
    /// How many entries were in flight or waiting when a write ended: the most of late, in
    /// sixteenths.
    about: u64,
}

impl Window {
    /// A window that measures, or one of fixed width.
    pub(crate) fn new(fixed: Option<usize>) -> Window {
        Window {
            best: 1,
            best_cost: None,
            phase: Phase::Settled(SETTLED - 1),
            up: true,
            sum: 0,
            count: 0,
            fixed,
            about: 0,
        }
    }

    /// Does a write with the `waiting` entries go out now, beside those in flight, each with so
    /// many?
    pub(crate) fn may_issue(&self, in_flight: impl Iterator<Item = u64>, waiting: u64) -> bool {
        let width = self.width();
        let (mut writes, mut places, mut entries) = (0, 0, 0);
        for n in in_flight {
            writes += 1;
            entries += n;
            places += usize::from(2 * n * 16 * width as u64 >= self.about);
        }
        let share = waiting * 16 * width as u64 >= self.about;
        let all = (waiting + entries) * 16 >= self.about;
        writes == 0 || (writes < 2 * width && places < width && (share || all))
    }

    /// A write has ended while so many entries were in flight or waiting.
    pub(crate) fn note_entries(&mut self, n: u64) {
        self.about = (self.about - self.about / 16).max(n * 16);
    }

    fn index(&self) -> usize {
        match self.phase {
            Phase::Settled(_) => self.best,
            Phase::Trying(i) => i,
        }
    }

    /// How many writes may be in flight.
    pub(crate) fn width(&self) -> usize {
        self.fixed.unwrap_or(WIDTHS[self.index()])
    }

    /// A write has ended that was issued as the `in_flight`-th.
    pub(crate) fn note(&mut self, in_flight: usize, took: Nanos) {
        if self.fixed.is_some() || in_flight != self.width() {
            return; // it tells nothing about this width
        }
        self.sum += took.0;
        self.count += 1;
        if self.count < SAMPLE {
            return;
        }
        let w = self.width() as u64;
        let cost = self.sum / u64::from(self.count) * (w + 1) / w;
        (self.sum, self.count) = (0, 0);
        self.measured(cost);
    }

    fn measured(&mut self, cost: u64) {
        match self.phase {
            Phase::Settled(n) => {
                self.best_cost = Some(cost);
                self.phase = Phase::Settled(n + 1);
                if n + 1 >= SETTLED {
                    self.try_next();
                }
            }
            Phase::Trying(i) => {
                // A gain below a thirtieth is noise, and a narrower window is kinder to other
                // writes.
                let gain = if i > self.best { cost + cost / 30 } else { cost };
                if self.best_cost.is_none_or(|b| gain < b) {
                    (self.best, self.best_cost) = (i, Some(cost));
                    self.try_next(); // further the same way
                } else {
                    self.up = !self.up;
                    self.phase = Phase::Settled(0);
                }
            }
        }
    }

    fn try_next(&mut self) {
        let next = if self.up { self.best + 1 } else { self.best.wrapping_sub(1) };
        if next < WIDTHS.len() {
            assert_eq!(next.abs_diff(self.best), 1, "only a neighbour of the best width is tried");
            self.phase = Phase::Trying(next);
        } else {
            self.up = !self.up;
            self.phase = Phase::Settled(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device that serves one write in `service(width)` microseconds.
    fn converge(service: impl Fn(usize) -> u64) -> usize {
        let mut w = Window::new(None);
        for _ in 0..20_000 {
            w.note(w.width(), Nanos::from_micros(service(w.width())));
        }
        WIDTHS[w.best]
    }

    #[test]
    fn a_parallel_device_gets_many_and_a_serial_one_few() {
        // All at once at no extra cost, up to 16: the more the better.
        assert!(converge(|_| 1000) >= 8);
        // Strictly one after the other: a second in flight hides the gap, a third only waits.
        assert!(converge(|w| 1000 * w as u64) <= 2);
        // What tools/slowdisk.c shows for gp3: 482, 836, 1,308 a second with 1, 2, 4 in flight.
        let gp3 = |w: usize| {
            [2075, 2392, 2700, 3058, 4100, 5500, 8000, 11000]
                [WIDTHS.iter().position(|x| *x == w).unwrap()]
        };
        assert!((2..=4).contains(&converge(gp3)));
    }

    #[test]
    fn another_write_goes_out_with_its_share_and_an_idle_device_is_written_to_at_once() {
        let mut w = Window::new(Some(2));
        w.note_entries(32);
        let go = |w: &Window, flights: &[u64], n| w.may_issue(flights.iter().copied(), n);
        assert!(go(&w, &[], 1));
        assert!(!go(&w, &[16], 15));
        assert!(go(&w, &[16], 16));
        assert!(!go(&w, &[16, 16], 32), "the window is full");
        // One that went alone takes no place from the others.
        assert!(!go(&w, &[1], 15));
        assert!(go(&w, &[1, 16], 15), "all have come");
        assert!(!go(&w, &[1, 16], 14), "one is on his way");
        // When fewer are about, shares shrink.
        (0..100).for_each(|_| w.note_entries(2));
        assert!(go(&w, &[1], 1));
    }

    #[test]
    fn an_idle_log_measures_nothing() {
        let mut w = Window::new(None);
        for _ in 0..10_000 {
            w.note(1, Nanos::from_micros(1));
        }
        assert_eq!(w.width(), 2);
    }
}
