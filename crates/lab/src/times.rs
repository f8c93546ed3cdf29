//! When objects were changed last, as far as the acts tell: each time of an inode is of a moment
//! between the beginning and the end of the last act that sets it, or of one after it that may.
//! Acts of which nobody knows when they were done leave nothing known. It judges no contents.

use crate::acts::{Act, date_of};
use crate::model::Model;
use crate::record::Lasted;
use crate::seen::Seen;
use std::collections::BTreeMap;

/// From when to when, in nanoseconds since 1970.
type Span = (u64, u64);

/// The times of an inode, in the order of [`Seen::times`].
const MODIFY: usize = 0;
const CHANGE: usize = 1;
const ACCESS: usize = 2;
const NAMES: [&str; 3] = [
    "a time of modification of another moment",
    "a time of change of another moment",
    "a time of access of another moment",
];

/// What an act does to a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Does {
    Sets,
    /// Or leaves it as it was: it may have been refused, is done by halves, or had nothing to do.
    May,
}

/// An act that may be seen in a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    act: usize,
    does: Does,
    /// None: it is not known.
    span: Option<Span>,
}

/// By object, and by time: all acts that may be seen in it.
#[derive(Default)]
pub(crate) struct Times {
    of: BTreeMap<usize, [Vec<Entry>; 3]>,
    acts: usize,
}

/// The objects that an act may find at its paths and in their directories.
type Touched = Vec<Option<usize>>;

/// What an act does to one object: to which of its times.
type Effects = Vec<(usize, [Option<Does>; 3])>;

const ALL: [Option<Does>; 3] = [Some(Does::Sets); 3];
const CONTENTS: [Option<Does>; 3] = [Some(Does::Sets), Some(Does::Sets), None];
const MAY_CONTENTS: [Option<Does>; 3] = [Some(Does::May), Some(Does::May), None];
const INODE: [Option<Does>; 3] = [None, Some(Does::Sets), None];
const MAY_INODE: [Option<Does>; 3] = [None, Some(Does::May), None];

impl Times {
    /// What is at the act's paths, and then what their directories are: to be asked before it is
    /// applied, for [`Times::note`].
    pub(crate) fn touched(act: &Act, m: &Model) -> Touched {
        let paths = act.paths().into_iter().chain(act.dirs());
        paths.map(|p| m.find(p).ok()).collect()
    }

    /// An act was done, the next one; `before`: what was at its paths. `sure`: it was answered.
    pub(crate) fn note(
        &mut self,
        act: &Act,
        (before, after): (&Touched, &Model),
        (lasted, sure): (Lasted, bool),
    ) {
        let n = self.acts;
        self.acts += 1;
        for (id, does) in effects(act, before, &Times::touched(act, after)) {
            let all = self.of.entry(id).or_default();
            for (which, does) in (0..).zip(does) {
                let Some(does) = does else { continue };
                let does = if sure { does } else { Does::May };
                let span = match act {
                    Act::Date(_, n) if which != CHANGE => {
                        let at = date_of(*n);
                        Some((at, at))
                    }
                    _ => lasted,
                };
                let rises = all[which].last().is_none_or(|e| e.act <= n);
                assert!(rises, "act {n} is noted behind {:?}", all[which].last());
                all[which].push(Entry { act: n, does, span });
            }
        }
    }

    /// Shows the object times that it cannot have, where the acts before `sure` are seen in it, and
    /// those before `most` may be? Which time that is.
    pub(crate) fn wrong(
        &self,
        id: usize,
        (sure, most): (usize, usize),
        seen: &Seen,
    ) -> Option<&'static str> {
        let all = self.of.get(&id)?;
        let fits = |which: usize| {
            let all = &all[which][..all[which].partition_point(|e| e.act < most)];
            let last = all.iter().rposition(|e| e.act < sure && e.does == Does::Sets);
            // Of a time that none of them has set nothing is known.
            let Some(last) = last else { return true };
            all[last..].iter().any(|e| e.span.is_none_or(|span| shows(span, seen.times[which])))
        };
        [MODIFY, CHANGE, ACCESS].into_iter().find(|which| !fits(*which)).map(|which| NAMES[which])
    }
}

/// What the act does to which objects.
fn effects(act: &Act, before: &Touched, after: &Touched) -> Effects {
    let paths = act.paths().len();
    let was = |n: usize| before.get(n).copied().flatten();
    let is = |n: usize| after.get(n).copied().flatten();
    let mut all = Effects::new();
    let mut one = |id: Option<usize>, does| all.extend(id.map(|id| (id, does)));
    match act {
        Act::Create(_) | Act::Mkdir(_) | Act::Symlink(..) | Act::Emerge(..) => {
            one(is(0).filter(|_| was(0).is_none()), ALL);
        }
        Act::Write(_, _, len, _) | Act::WriteSync(_, _, len, _) if *len > 0 => {
            one(was(0), CONTENTS);
        }
        Act::Truncate(..)
        | Act::Punch(..)
        | Act::Allocate(..)
        | Act::Zero(..)
        | Act::Collapse(..)
        | Act::Insert(..)
        | Act::Linger(..)
        | Act::Vanish(..) => one(was(0), MAY_CONTENTS),
        Act::Attribute(..) | Act::Own(..) | Act::Link(..) => one(was(0), INODE),
        Act::Strip(_) | Act::Grant(..) | Act::Unlink(_) => one(was(0), MAY_INODE),
        // What is moved, and what it takes the place of, which may have another name.
        Act::Rename(..) | Act::Whiteout(..) | Act::Exchange(..) => {
            one(was(0), MAY_INODE);
            one(was(1), MAY_INODE);
            one(is(0).filter(|id| Some(*id) != was(0) && Some(*id) != was(1)), ALL);
        }
        Act::Date(..) => one(was(0), ALL),
        Act::Read(_) => one(was(0), [None, None, Some(Does::May)]),
        _ => (),
    }
    // A name has changed in these directories, if anything has.
    let done = (0..paths).any(|n| was(n) != is(n));
    let does = if done { CONTENTS } else { MAY_CONTENTS };
    (paths..before.len()).for_each(|n| one(was(n), does));
    all
}

/// Is the time within the span? On small inodes it shows seconds alone.
fn shows((from, to): Span, t: vfs::Time) -> bool {
    const SECOND: u64 = 1_000_000_000;
    let Ok(secs) = u64::try_from(t.sec) else { return false };
    match t.nsec {
        0 => (from / SECOND..=to / SECOND).contains(&secs),
        nsec => (from..=to).contains(&(secs * SECOND + u64::from(nsec))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contents::Contents;
    use vfs::{Kind, Time};

    fn seen(at: [u64; 3]) -> Seen {
        let times = at.map(|ns| Time { sec: 0, nsec: ns as u32 });
        let (kind, bytes) = (Kind::File, Contents::default());
        Seen { kind, ino: 11, size: 0, bytes, attribute: None, owner: None, mode: 0o755, times }
    }

    /// Each act at a nanosecond of its own, from 1 on.
    fn noted(acts: &[Act]) -> (Model, Times) {
        let (mut m, mut times) = (Model::default(), Times::default());
        for (at, act) in (1..).zip(acts) {
            let was = Times::touched(act, &m);
            m.apply(act).unwrap();
            times.note(act, (&was, &m), (Some((at, at)), true));
        }
        (m, times)
    }

    #[test]
    fn each_time_is_of_the_last_act_that_sets_it_or_of_one_after_it_that_may() {
        let f = || "/f".to_owned();
        let acts = [
            Act::Create(f()),
            Act::Write(f(), 0, 10, 1),
            Act::Link(f(), "/g".into()),
            Act::Truncate("/g".into(), 5),
            Act::Read(f()),
        ];
        let (m, times) = noted(&acts);
        let id = m.find("/f").unwrap();
        let all = (usize::MAX, usize::MAX);
        let wrong = |of, at| times.wrong(id, of, &seen(at)).map(|w| &w[..17]);
        for right in [[2, 3, 1], [4, 4, 1], [2, 4, 5]] {
            assert_eq!(wrong(all, right), None, "{right:?}");
        }
        assert_eq!(wrong(all, [1, 3, 1]), Some("a time of modific"), "lost");
        assert_eq!(wrong(all, [2, 2, 1]), Some("a time of change "), "lost");
        assert_eq!(wrong(all, [2, 6, 1]), Some("a time of change "), "from the future");
        assert_eq!(wrong(all, [2, 3, 2]), Some("a time of access "), "another's");
        // Only what makes it is durable: all that came since may be seen.
        assert_eq!(wrong((1, usize::MAX), [1, 1, 1]), None);
        assert_eq!(wrong((1, 2), [1, 3, 1]), Some("a time of change "), "not yet");
        let root = |at| times.wrong(0, all, &seen(at)).is_none();
        assert!(root([3, 3, 0]) && !root([1, 3, 0]), "the name came third");
    }

    #[test]
    fn a_date_that_was_set_is_what_is_seen() {
        let acts = [Act::Create("/f".into()), Act::Date("/f".into(), 3)];
        let (m, times) = noted(&acts);
        let id = m.find("/f").unwrap();
        let mut s = seen([0, 2, 0]);
        let then = Time::from_wall(env::Nanos(date_of(3)));
        (s.times[MODIFY], s.times[ACCESS]) = (then, then);
        assert_eq!(times.wrong(id, (2, 2), &s), None);
        assert!(times.wrong(id, (1, 1), &s).is_some(), "before it was set");
        s.times[ACCESS] = Time { sec: 0, nsec: 1 };
        assert!(times.wrong(id, (2, 2), &s).is_some(), "a part of it");
    }

    #[test]
    fn of_what_nobody_knows_when_it_was_done_nothing_is_judged() {
        let (mut m, mut times) = (Model::default(), Times::default());
        for act in [Act::Create("/f".into()), Act::Write("/f".into(), 0, 10, 1)] {
            let was = Times::touched(&act, &m);
            m.apply(&act).unwrap();
            times.note(&act, (&was, &m), (None, true));
        }
        assert_eq!(times.wrong(m.find("/f").unwrap(), (2, 2), &seen([7, 8, 9])), None);
    }
}
