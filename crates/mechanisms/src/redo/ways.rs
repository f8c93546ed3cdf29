//! Which way contents go that are longer than what is always logged and that a caller waits for: in
//! place and then their entry, or with their entry into the log. It measures both and takes the
//! quicker one. It knows no block and no log.
//!
//! In place costs an access for each place, a flush, and then the log's write; through the log
//! costs one write, and another in place when nobody waits. Where an access takes long and the log
//! has room the log is quicker up to hundreds of kilobytes, unless many callers fill its channel. A
//! disk's figures say little about that (other callers, what else the disk does, a log elsewhere),
//! so what counts is how long callers do wait. Each class of sizes, powers of two, has its own
//! times.
//!
//! For some rounds of all who wait, everything of a class goes the same way: were each contents to
//! take the way that looks quicker just then, both would end up equally slow. What began before a
//! period says nothing about it, nor does its first round, which shares the disk with those.

use env::Nanos;

/// The two ways.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// They are in the entry.
    Logged,
    /// Written back and flushed, then the entry that waits for them goes into the log.
    InPlace,
}

impl Way {
    fn other(self) -> Way {
        match self {
            Way::InPlace => Way::Logged,
            Way::Logged => Way::InPlace,
        }
    }
}

/// A write of more than this always goes in place: a stream needs the disk's bandwidth once, not
/// twice.
pub(super) const LOGGED_BYTES_MAX: u64 = 1 << 20;
/// A period is so many rounds, and at least so many waits.
const ROUNDS: u32 = 4;
const WAITS_MIN: u32 = 16;
/// So many periods go the quicker way before the other one is tried again.
const SETTLED: u32 = 16;
/// Powers of two up to the limit.
const CLASSES: usize = LOGGED_BYTES_MAX.ilog2() as usize + 1;

/// A class of sizes.
#[derive(Clone, Copy)]
struct Class {
    best: Way,
    trying: bool,
    /// How long a wait took in the last period of the best way, and in the last of any.
    best_took: Option<Nanos>,
    settled: u32,
    period: u32,
    /// Waits of this period that are passed over yet, that were measured, and how long those took.
    passed: u32,
    waits: u32,
    sum: Nanos,
}

/// A caller who waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    class: usize,
    period: u32,
    began: Nanos,
}

/// What was measured.
pub(super) struct Ways {
    classes: [Class; CLASSES],
    waiting: u32,
}

impl Default for Ways {
    fn default() -> Ways {
        let class = Class {
            best: Way::Logged,
            trying: false,
            best_took: None,
            settled: SETTLED - 1, // the other way is tried after the first period
            period: 0,
            passed: 0,
            waits: 0,
            sum: Nanos(0),
        };
        Ways { classes: [class; CLASSES], waiting: 0 }
    }
}

fn class_of(bytes: u64) -> usize {
    (bytes.max(1).ilog2() as usize).min(CLASSES - 1)
}

impl Ways {
    /// Begins with either way, because nothing is known: `chance` says with which. (The crash
    /// explorer so sees both from the first write on.)
    pub(super) fn new(chance: u64) -> Ways {
        let mut w = Ways::default();
        if chance.is_multiple_of(2) {
            w.classes.iter_mut().for_each(|c| c.best = Way::InPlace);
        }
        w
    }

    /// The way for writes of so many bytes.
    pub(super) fn of(&self, bytes: u64) -> Way {
        let c = &self.classes[class_of(bytes)];
        match bytes {
            n if n > LOGGED_BYTES_MAX => Way::InPlace,
            _ if c.trying => c.best.other(),
            _ => c.best,
        }
    }

    /// A caller begins to wait for a write of so many bytes.
    pub(super) fn began(&mut self, bytes: u64, now: Nanos) -> Wait {
        self.waiting += 1;
        let class = class_of(bytes);
        Wait { class, period: self.classes[class].period, began: now }
    }

    /// The caller waits no more; `served`: because the contents are durable.
    pub(super) fn ended(&mut self, wait: Wait, now: Nanos, served: bool) {
        assert!(self.waiting > 0, "a wait that ends has begun");
        self.waiting -= 1;
        let waiting = self.waiting;
        let c = &mut self.classes[wait.class];
        if !served || wait.period != c.period {
            return;
        }
        if c.passed > 0 {
            c.passed -= 1;
            return;
        }
        c.waits += 1;
        c.sum = Nanos(c.sum.0 + now.since(wait.began).0);
        if c.waits >= WAITS_MIN.max(ROUNDS * (waiting + 1)) {
            c.finish(waiting);
        }
    }
}

impl Class {
    /// A period has ended, as so many others wait.
    fn finish(&mut self, waiting: u32) {
        let known = self.waits > 0 && self.passed == 0;
        assert!(known, "a period ends after {} waits, {} to pass over", self.waits, self.passed);
        let measured = !self.trying || self.best_took.is_some();
        assert!(measured, "another way was tried before {:?} was measured", self.best);
        let took = Nanos(self.sum.0 / u64::from(self.waits));
        if !self.trying {
            self.best_took = Some(took);
            self.settled += 1;
            self.trying = self.settled >= SETTLED;
        } else {
            if self.best_took.is_none_or(|b| took < b) {
                (self.best, self.best_took) = (self.best.other(), Some(took));
            }
            (self.trying, self.settled) = (false, 0);
        }
        self.period = self.period.wrapping_add(1);
        (self.passed, self.waits, self.sum) = (waiting, 0, Nanos(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of a thousand waits for so many bytes go through the log, if each way takes so
    /// long.
    fn logged_of_1000(w: &mut Ways, bytes: u64, in_place: u64, logged: u64) -> usize {
        let (mut n, mut now) = (0, Nanos(0));
        for _ in 0..1000 {
            let way = w.of(bytes);
            let wait = w.began(bytes, now);
            now = Nanos(now.0 + if way == Way::Logged { logged } else { in_place });
            w.ended(wait, now, true);
            n += usize::from(way == Way::Logged);
        }
        n
    }

    #[test]
    fn the_quicker_way_is_taken_and_the_other_tried_now_and_then() {
        let mut w = Ways::default();
        assert!((930..1000).contains(&logged_of_1000(&mut w, 16_384, 8_000_000, 4_000_000)));
        // Another size knows nothing of that one.
        assert!((1..70).contains(&logged_of_1000(&mut w, 500_000, 8_000_000, 12_000_000)));
        // The disk has changed: what was slower is found out again.
        assert!((1..300).contains(&logged_of_1000(&mut w, 16_384, 2_000_000, 4_000_000)));
        assert_eq!(logged_of_1000(&mut w, 2 << 20, 8, 4), 0, "a stream is written once");
    }

    /// Thirty-two callers on a channel that is soon full: each alone would be served sooner by the
    /// log, all together are not.
    #[test]
    fn the_way_is_that_on_which_all_together_wait_the_least() {
        let (mut w, mut now, mut logged) = (Ways::default(), Nanos(0), 0);
        for _ in 0..500 {
            let ways: Vec<Way> = (0..32).map(|_| w.of(65_536)).collect();
            let waits: Vec<Wait> = (0..32).map(|_| w.began(65_536, now)).collect();
            let n = ways.iter().filter(|w| **w == Way::Logged).count() as u64;
            now = Nanos(now.0 + n * 1_500_000 + if n < 32 { 30_000_000 } else { 0 });
            waits.into_iter().for_each(|x| w.ended(x, now, true));
            logged += n;
        }
        assert!(logged < 32 * 60, "{logged} of 16,000 were logged");
    }

    #[test]
    fn who_gives_up_waiting_measures_nothing() {
        let mut w = Ways::default();
        for _ in 0..1000 {
            let wait = w.began(4096, Nanos(0));
            w.ended(wait, Nanos(5), false);
        }
        assert_eq!((w.waiting, w.classes[class_of(4096)].waits), (0, 0));
    }
}
