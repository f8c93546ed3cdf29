//! When a file's contents were changed last, as far as the acts tell: between the beginning and the
//! end of the last one that sets that time, or of one after it that may. Acts of which nobody knows
//! when they were done leave nothing known. It judges no contents.

use crate::acts::Act;
use crate::record::Lasted;
use crate::seen::Seen;
use std::collections::BTreeMap;
use vfs::Kind;

/// From when to when, in nanoseconds since 1970.
pub(crate) type Spans = Vec<(u64, u64)>;

/// By object: when its contents may have been changed last.
#[derive(Default)]
pub(crate) struct Times {
    of: BTreeMap<usize, Spans>,
}

impl Times {
    /// The file whose contents the act changes, or which it makes.
    pub(crate) fn path(act: &Act) -> Option<&str> {
        match act {
            Act::Create(p) | Act::Emerge(p, ..) => Some(p),
            _ => act.changed_file(),
        }
    }

    /// An act was done; `was` and `is`: what was at [`Times::path`] before, and after it. `sure`:
    /// it was answered.
    pub(crate) fn note(
        &mut self,
        act: &Act,
        (was, is): (Option<usize>, Option<usize>),
        (lasted, sure): (Lasted, bool),
    ) {
        let makes = matches!(act, Act::Create(_) | Act::Emerge(..));
        // What was there is another's.
        let id = if makes { is.filter(|_| was.is_none()) } else { was };
        let Some(id) = id else { return };
        let sets = sure && (makes || act.written().is_some_and(|(_, _, len, _)| len > 0));
        let Some(span) = lasted else {
            self.of.remove(&id);
            return;
        };
        if sets {
            self.of.insert(id, vec![span]);
        } else if let Some(all) = self.of.get_mut(&id) {
            all.push(span);
        }
    }

    /// When that may have been; None: it is not known.
    pub(crate) fn of(&self, id: usize) -> Option<&Spans> {
        self.of.get(&id)
    }
}

/// Does the file show one of these times? On small inodes it shows seconds alone.
pub(crate) fn fits(spans: &Spans, seen: &Seen) -> bool {
    const SECOND: u64 = 1_000_000_000;
    let t = seen.times[0];
    let Ok(secs) = u64::try_from(t.sec) else { return false };
    let at = secs * SECOND + u64::from(t.nsec);
    let within = |(from, to): &(u64, u64)| match t.nsec {
        0 => (from / SECOND..=to / SECOND).contains(&secs),
        _ => (*from..=*to).contains(&at),
    };
    seen.kind != Kind::File || spans.iter().any(within)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;

    #[test]
    fn the_last_change_that_sets_a_time_is_what_is_seen_or_one_after_it() {
        let (mut m, mut times) = (Model::default(), Times::default());
        let f = || "/f".to_owned();
        let acts = [
            (Act::Create(f()), 1),
            (Act::Write(f(), 0, 10, 1), 2),
            (Act::Link(f(), "/g".into()), 3),
            (Act::Truncate("/g".into(), 5), 4),
        ];
        for (act, at) in acts {
            let find = |m: &Model| Times::path(&act).and_then(|p| m.find(p).ok());
            let was = find(&m);
            m.apply(&act).unwrap();
            times.note(&act, (was, find(&m)), (Some((at, at)), true));
        }
        let id = m.find("/f").unwrap();
        assert_eq!(times.of(id), Some(&vec![(2, 2), (4, 4)]));
        let under_way = Act::Write(f(), 0, 10, 2);
        times.note(&under_way, (Some(id), Some(id)), (Some((5, u64::MAX)), false));
        assert_eq!(times.of(id), Some(&vec![(2, 2), (4, 4), (5, u64::MAX)]));
        times.note(&under_way, (Some(id), Some(id)), (None, true));
        assert_eq!(times.of(id), None, "nobody knows when that was");
    }
}
