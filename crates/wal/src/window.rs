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
//!
//! The narrowest choice is one write with a commit delay: when a write has ended, the callers whom
//! it woke are on their way back with the next thing to wait for. Who has waited meanwhile stays
//! for them, at most for half of a write's time, and then all go together: the two convoys become
//! one, whose cycle is `s(1)` and the delay. It is measured as such, times the share of callers
//! that each write had; so where callers come back late, or come as they please, it does not last.

use env::Nanos;

/// The widths that are tried. The first has a commit delay.
const WIDTHS: [usize; 9] = [1, 1, 2, 3, 4, 6, 8, 12, 16];
const DELAYS: usize = 0;
// The widths rise, so that a neighbour is the next wider one or the next narrower one.
const _: () = {
    let mut i = DELAYS + 2;
    while i < WIDTHS.len() {
        assert!(WIDTHS[i - 1] < WIDTHS[i]);
        i += 1;
    }
    assert!(WIDTHS[DELAYS] == 1 && DELAYS == 0);
};
/// Of a write's time, the part for which those who wait stay for those who are on their way.
const DELAY_PART: u64 = 2;
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
    /// The same of callers.
    callers: u64,
    /// When a write ended last, and about how long one takes.
    ended: Nanos,
    took: Nanos,
    /// Since when the next write is delayed.
    delayed_from: Option<Nanos>,
}

/// A write of the log that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) issued: Nanos,
    pub(crate) now: Nanos,
    /// It was issued as so many were in flight, itself included.
    pub(crate) crowd: usize,
    /// Entries that were in flight or waiting.
    pub(crate) entries: u64,
    /// Callers that waited, and how many of them wait no more.
    pub(crate) callers: u64,
    pub(crate) woken: u64,
}

impl Window {
    /// A window that measures, or one of fixed width.
    pub(crate) fn new(fixed: Option<usize>) -> Window {
        Window {
            best: DELAYS,
            best_cost: None,
            phase: Phase::Settled(SETTLED - 1),
            up: true,
            sum: 0,
            count: 0,
            fixed,
            about: 0,
            callers: 0,
            ended: Nanos(0),
            took: Nanos(0),
            delayed_from: None,
        }
    }

    /// Until when a write waits for callers who are on their way, if so many are here and nothing
    /// is in flight; None: for nobody.
    pub(crate) fn delays_until(&mut self, now: Nanos, callers: u64) -> Option<Nanos> {
        if self.fixed.is_some() || self.index() != DELAYS || callers * 16 >= self.callers {
            return None;
        }
        let until = Nanos(self.ended.0 + self.took.0 / DELAY_PART);
        if now >= until {
            return None;
        }
        self.delayed_from.get_or_insert(now);
        Some(until)
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

    /// A write has ended.
    pub(crate) fn note(&mut self, w: Ended) {
        assert!(w.issued <= w.now && w.crowd > 0, "a write ends that was not under way: {w:?}");
        assert!(w.woken <= w.callers, "{} of {} callers wait no more", w.woken, w.callers);
        let took = w.now.since(w.issued);
        // As long as it was: a timer that fires late, or a busy processor, counts too.
        let delayed = self.delayed_from.take().map_or(Nanos(0), |from| w.issued.since(from));
        self.about = (self.about - self.about / 16).max(w.entries * 16);
        self.callers = (self.callers - self.callers / 16).max(w.callers * 16);
        self.ended = w.now;
        self.took = Nanos(if self.took.0 == 0 { took.0 } else { (self.took.0 * 7 + took.0) / 8 });
        let one = self.width() == 1 && (w.callers < 2 || w.woken == 0);
        if self.fixed.is_some() || w.crowd != self.width() || one {
            return; // it tells nothing about this width
        }
        let n = self.width() as u64;
        self.sum += match self.index() {
            DELAYS => (took.0 + delayed.0) * w.callers / w.woken,
            _ => took.0 * (n + 1) / n,
        };
        self.count += 1;
        if self.count == SAMPLE {
            let cost = self.sum / u64::from(self.count);
            (self.sum, self.count) = (0, 0);
            self.measured(cost);
        }
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

    /// A write that took so long. Of 32 callers it had half, but all if `back_at_once` and it is
    /// delayed; if they do not come, it has stayed for them in vain.
    fn ended(w: &Window, took_us: u64, back_at_once: bool) -> Ended {
        let took = Nanos::from_micros(took_us);
        let stays = w.index() == DELAYS && !back_at_once;
        let issued = Nanos(w.ended.0 + if stays { took.0 / DELAY_PART } else { 0 });
        let woken = if w.index() == DELAYS && back_at_once { 32 } else { 16 };
        let now = Nanos(issued.0 + took.0);
        let crowd = w.width();
        Ended { issued, now, crowd, entries: 32, callers: 32, woken }
    }

    /// A device that serves one write in `service(width)` microseconds.
    fn converge(service: impl Fn(usize) -> u64, back_at_once: bool) -> usize {
        let mut w = Window::new(None);
        for _ in 0..20_000 {
            // Somebody has waited since the last one ended.
            w.delays_until(w.ended, 1);
            w.note(ended(&w, service(w.width()), back_at_once));
        }
        w.best
    }

    #[test]
    fn a_parallel_device_gets_many_and_a_serial_one_few() {
        let width = |service: &dyn Fn(usize) -> u64| WIDTHS[converge(service, false)];
        // All at once at no extra cost, up to 16: the more the better.
        assert!(width(&|_| 1000) >= 8);
        // Strictly one after the other: a second in flight hides the gap, a third only waits.
        assert!(width(&|w| 1000 * w as u64) <= 2);
        // What tools/slowdisk.c shows for gp3: 482, 836, 1,308 a second with 1, 2, 4 in flight.
        let gp3 = |w: usize| {
            let nth = WIDTHS[1..].iter().position(|x| *x == w).unwrap();
            [2075, 2392, 2700, 3058, 4100, 5500, 8000, 11000][nth]
        };
        assert!((2..=4).contains(&width(&gp3)));
    }

    #[test]
    fn another_write_goes_out_with_its_share_and_an_idle_device_is_written_to_at_once() {
        let mut w = Window::new(Some(2));
        let note = |w: &mut Window, n| w.note(Ended { entries: n, ..ended(w, 1, false) });
        note(&mut w, 32);
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
        (0..100).for_each(|_| note(&mut w, 2));
        assert!(go(&w, &[1], 1));
    }

    #[test]
    fn callers_who_come_back_at_once_share_a_write_and_others_are_not_waited_for_long() {
        let mut w = Window::new(None);
        w.note(ended(&w, 4000, true));
        let ended_at = w.ended.0;
        let at = |us| Nanos(ended_at + Nanos::from_micros(us).0);
        assert_eq!(w.delays_until(at(10), 1), Some(at(2000)), "half of 4 ms");
        assert_eq!(w.delays_until(at(10), 32), None, "all are here");
        assert_eq!(w.delays_until(at(2000), 1), None, "the others have not come");
        // A disk that turns: whoever misses a write waits for a turn. All in one convoy are
        // quicker.
        let turns = |w: usize| 4000 * w as u64;
        assert_eq!(converge(turns, true), DELAYS);
        assert_ne!(converge(turns, false), DELAYS, "they never came: it has only cost time");
    }

    #[test]
    fn a_lone_caller_is_never_kept_and_measures_nothing() {
        let mut w = Window::new(None);
        for _ in 0..10_000 {
            w.note(Ended { entries: 1, callers: 1, woken: 1, ..ended(&w, 100, true) });
            assert_eq!(w.delays_until(w.ended, 1), None);
        }
        assert_eq!(w.best_cost, None);
    }
}
