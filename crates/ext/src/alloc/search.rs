//! Finding a run of free blocks in one group's bitmap. Pure: it sees bits and a test of what may be
//! reused, and knows neither files nor groups.

use format::ext::bitmap::{next_one, next_zero};

/// What is looked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    /// The first bit that will do.
    pub(crate) from: usize,
    /// Is a run that begins just there better than any other, however short?
    pub(crate) exact: bool,
    /// How many bits are wanted; more are never given.
    pub(crate) want: usize,
    /// Fewer than this are no use.
    pub(crate) least: usize,
    /// After so many runs that may not be reused yet the search ends: for a place near the one
    /// that was asked for it is not worth while to ask about thousands.
    pub(crate) patience: usize,
}

/// What a search has seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Seen {
    /// The run to take: first bit and length.
    pub(crate) run: Option<(usize, usize)>,
    /// The first free bit, reusable or not; the end if there is none.
    pub(crate) first: usize,
    /// The longest free run that was met.
    pub(crate) longest: usize,
    /// Was all of it looked at?
    pub(crate) complete: bool,
    /// Was something passed over because it may not be reused yet?
    pub(crate) held: bool,
    /// Everything free from the first bit asked about to this one is held; 0 if nothing is.
    pub(crate) held_to: usize,
}

/// The first run of the wanted length in `ask.from..end`, else the longest. `may` says whether bits
/// (first, count) may be reused.
pub(crate) fn search(map: &[u8], end: usize, ask: Ask, may: impl Fn(usize, usize) -> bool) -> Seen {
    let mut seen = Seen { first: end, ..Seen::default() };
    let mut best = 0;
    let mut only_held = true;
    let mut patience = ask.patience;
    let mut at = ask.from;
    while let Some(start) = next_zero(map, at, end) {
        let limit = (start + ask.want).min(end);
        let stop = next_one(map, start, limit).unwrap_or(limit);
        at = stop;
        seen.first = seen.first.min(start);
        seen.longest = seen.longest.max(stop - start);
        if stop - start <= best {
            continue;
        }
        let (bit, len) = usable(start, stop - start, &may);
        if len < stop - start {
            seen.held = true;
            // It is passed over, and may be longer than what was wanted of it.
            let free_to = next_one(map, stop, end).unwrap_or(end);
            seen.longest = seen.longest.max(free_to - start);
        }
        if bit > start || len == 0 {
            // Held at its beginning: the rest of it is a run of its own.
            at = if len == 0 { stop } else { bit };
            if only_held {
                seen.held_to = at;
            }
            if patience == 0 {
                return seen;
            }
            patience -= 1;
            continue;
        }
        only_held = false;
        let exact = ask.exact && bit == ask.from;
        if exact || len >= ask.want {
            seen.run = Some((bit, len));
            return seen;
        }
        if len >= ask.least && len > best {
            best = len;
            seen.run = Some((bit, len));
        }
    }
    seen.complete = true;
    seen
}

/// The first part of a run that may be reused; its length is 0 if there is none.
pub(super) fn usable(
    start: usize,
    len: usize,
    may: impl Fn(usize, usize) -> bool,
) -> (usize, usize) {
    if may(start, len) {
        return (start, len);
    }
    let first = (start..start + len).find(|&b| may(b, 1));
    let Some(first) = first else { return (start, 0) };
    let n = (first..start + len).take_while(|&b| may(b, 1)).count();
    (first, n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::ext::bitmap::clear;

    fn map(free: &[usize]) -> Vec<u8> {
        let mut m = vec![0xff; 64];
        free.iter().for_each(|&b| clear(&mut m, b));
        m
    }
    fn ask(from: usize, want: usize, least: usize) -> Ask {
        Ask { from, exact: true, want, least, patience: usize::MAX }
    }
    fn all(_: usize, _: usize) -> bool {
        true
    }

    #[test]
    fn the_place_asked_for_then_the_first_good_run_then_the_longest() {
        let m = map(&[3, 70, 71, 72, 200, 201]);
        assert_eq!(search(&m, 512, ask(3, 4, 1), all).run, Some((3, 1)));
        assert_eq!(search(&m, 512, ask(4, 2, 1), all).run, Some((70, 2)));
        let longest = search(&m, 512, ask(4, 9, 1), all);
        assert_eq!((longest.run, longest.longest), (Some((70, 3)), 3));
        let short = search(&m, 512, ask(4, 9, 4), all);
        assert_eq!((short.run, short.longest, short.held), (None, 3, false));
        assert_eq!(search(&m, 200, ask(73, 1, 1), all).run, None);
        let no_place = Ask { exact: false, ..ask(3, 2, 1) };
        assert_eq!(search(&m, 512, no_place, all).run, Some((70, 2)));
    }

    #[test]
    fn what_is_held_is_passed_over() {
        let m = map(&(10..40).collect::<Vec<_>>());
        let held =
            |first: usize, n: usize| move |b: usize, c: usize| b >= first + n || b + c <= first;
        let s = search(&m, 512, ask(0, 4, 1), held(10, 10));
        assert_eq!((s.run, s.held, s.held_to), (Some((20, 4)), true, 20));
        let s = search(&m, 512, ask(0, 4, 1), held(12, 28));
        assert_eq!((s.run, s.held), (Some((10, 2)), true));
        let s = search(&m, 512, ask(0, 4, 1), held(10, 30));
        assert_eq!((s.run, s.held, s.held_to), (None, true, 40));
    }

    /// Every other block is held, and then comes one that is not: found, unless the search is to
    /// be a short one.
    #[test]
    fn a_search_nearby_gives_up_before_it_has_asked_about_everything() {
        let m = map(&(10..=400).step_by(2).collect::<Vec<_>>());
        let asked = std::cell::Cell::new(0);
        let held = |b: usize, _: usize| {
            asked.set(asked.get() + 1);
            b == 400
        };
        let s = search(&m, 512, ask(10, 1, 1), held);
        assert_eq!((s.run, s.held), (Some((400, 1)), true));
        let near = Ask { patience: 16, ..ask(10, 1, 1) };
        asked.set(0);
        let s = search(&m, 512, near, held);
        assert_eq!((s.run, s.held, s.complete), (None, true, false));
        assert!(asked.get() <= 2 * 17, "{} questions", asked.get());
    }
}
