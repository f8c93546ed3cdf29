//! One group's free blocks beside a naive twin: runs are taken, given back and held for a while,
//! and what the group believes of its bitmap is compared with the bits, one by one.

use super::search::{Ask, Seen, search};
use crate::group::Group;
use env::Rng;
use format::ext::bitmap;
use std::ops::Range;

const BITS: usize = 192;

/// The twin knows each bit; held ones are free, and may not be used yet.
struct Twin {
    rng: Rng,
    map: Vec<u8>,
    free: Vec<bool>,
    held: Vec<bool>,
    group: Group,
}

impl Twin {
    fn new(seed: u64) -> Twin {
        Twin {
            rng: Rng::new(seed),
            map: vec![0; BITS / 8],
            free: vec![true; BITS],
            held: vec![false; BITS],
            group: Group::new(BITS as u32),
        }
    }

    /// The longest run of bits of which this holds.
    fn longest(&self, from: usize, is: impl Fn(usize) -> bool) -> usize {
        let mut longest = 0;
        let mut run = 0;
        for b in from..BITS {
            run = if is(b) { run + 1 } else { 0 };
            longest = longest.max(run);
        }
        longest
    }

    /// As `Ext::try_group` does.
    fn take(&mut self) {
        let want = 1 + self.rng.below(40) as usize;
        let least = if self.rng.one_in(2) { want } else { 1 };
        let place = self.rng.one_in(3).then(|| self.rng.below(BITS as u64) as usize);
        let from = place.unwrap_or(self.group.cursor).max(self.group.first_free);
        let ask = Ask { from, exact: place == Some(from), want, least, patience: usize::MAX };
        if self.group.longest < least {
            return;
        }
        let seen = search(&self.map, BITS, ask, |b, n| !self.held[b..b + n].contains(&true));
        self.group.learn(ask, seen);
        match seen.run {
            Some((bit, len)) => self.took(ask, bit..bit + len),
            None => self.found_nothing(ask, seen),
        }
    }

    fn took(&mut self, ask: Ask, run: Range<usize>) {
        assert!(run.start >= ask.from && run.end <= BITS && run.len() <= ask.want, "{ask:?}");
        let exact = ask.exact && run.start == ask.from;
        assert!(exact || run.len() >= ask.least, "{ask:?}: {run:?} is too short");
        self.group.takes(run.start, run.len());
        for b in run {
            assert!(self.free[b] && !self.held[b], "{ask:?}: {b} is not to be had");
            self.free[b] = false;
            bitmap::set(&mut self.map, b);
        }
    }

    fn found_nothing(&self, ask: Ask, seen: Seen) {
        let usable = self.longest(ask.from, |b| self.free[b] && !self.held[b]);
        assert!(usable < ask.least || seen.held, "{ask:?}: {usable} blocks would have done");
    }

    /// A used run is freed, and held until a while later.
    fn give_back(&mut self) {
        let at = self.rng.below(BITS as u64) as usize;
        let most = 1 + self.rng.below(30) as usize;
        let run = (at..BITS).take(most).take_while(|b| !self.free[*b]).count();
        for b in at..at + run {
            (self.free[b], self.held[b]) = (true, true);
            bitmap::clear(&mut self.map, b);
        }
        if run > 0 {
            self.group.gets(at, BITS);
        }
    }

    /// What the group believes is true.
    fn check(&self) {
        let first = self.free.iter().position(|f| *f).unwrap_or(BITS);
        let believed = self.group.first_free;
        assert!(
            believed <= first,
            "{first} is free, and nothing is thought to be before {believed}"
        );
        let (longest, believed) = (self.longest(0, |b| self.free[b]), self.group.longest);
        assert!(longest <= believed, "{longest} are free in a row, {believed} are thought to be");
    }
}

#[test]
fn what_a_group_believes_of_its_free_blocks_is_true() {
    for seed in 0..200 {
        let mut twin = Twin::new(seed);
        for _ in 0..400 {
            match twin.rng.below(8) {
                0..=3 => twin.take(),
                4..=6 => twin.give_back(),
                _ => {
                    twin.held.fill(false);
                    twin.group.cursor = 0;
                }
            }
            twin.check();
        }
    }
}
