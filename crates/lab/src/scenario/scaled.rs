//! A scenario on a volume of larger blocks: everything that is counted in bytes is as many blocks
//! there, so that what fills an inode's own pointers, or crosses into an indirect block, does so.
//!
//! Invariants of a script, which judges rely on:
//! * S1. There are states to be looked at: the act from which on they are is one of its own.
//! * S2. There is somebody to do the acts, and what fails is counted among as many.
//! * S3. What is not the whole of a path's length is a file's place: a path begins with a `/` and
//!   has no empty name in it.
//! * S4. Bytes that meet on short blocks meet on longer ones: of two places the further stays it.

use super::{HOLES, Script, holes, script};
use crate::acts::Act;

/// The script of a scenario and seed, on a volume whose blocks are `times` as long as the shortest;
/// None: no such scenario.
pub(crate) fn script_on(name: &str, seed: u64, times: u64) -> Option<Script> {
    let script = match name {
        // An indirect block maps more of them, too.
        HOLES => holes::script(seed, times),
        _ if times == 1 => script(name, seed)?,
        _ => script(name, seed)?.scaled(times),
    };
    script.check(name, seed);
    Some(script)
}

impl Script {
    fn check(&self, name: &str, seed: u64) {
        let (from, count) = (self.from, self.acts.len());
        assert!(from <= count, "S1: {name}:{seed} is looked at from act {from} on, of {count}");
        assert!(self.callers > 0, "S2: nobody does {name}:{seed}");
        let paths = self.setup.iter().chain(&self.acts).flat_map(Act::paths);
        let odd =
            |p: &&str| !p.starts_with('/') || p.contains("//") || p.len() > 1 && p.ends_with('/');
        let odd: Vec<&str> = paths.filter(odd).collect();
        assert!(odd.is_empty(), "S3: {odd:?} of {name}:{seed} are no paths");
    }

    /// The same for a volume whose blocks are `times` as long.
    pub(crate) fn scaled(self, times: u64) -> Script {
        let all = |acts: Vec<Act>| acts.into_iter().map(|a| a.scaled(times)).collect();
        let volume_bytes = self.volume_bytes * times;
        Script { setup: all(self.setup), acts: all(self.acts), volume_bytes, ..self }
    }
}

impl Act {
    /// The same act on a volume whose blocks are `times` as long: what fills, cuts or crosses so
    /// many blocks there does so here, and what ends within one does so at any byte.
    pub(crate) fn scaled(mut self, times: u64) -> Act {
        let place = |at: u64| at * times + at % times;
        let long = |at: u64, len: u64| place(at + len) - place(at);
        match &mut self {
            Act::Truncate(_, size) | Act::Vanish(_, size) => *size = place(*size),
            Act::Write(_, at, len, _) | Act::WriteSync(_, at, len, _) => {
                (*at, *len) = (place(*at), long(*at, *len as u64) as usize);
            }
            Act::Punch(_, at, len)
            | Act::Allocate(_, at, len, _)
            | Act::Zero(_, at, len, _)
            | Act::Collapse(_, at, len)
            | Act::Insert(_, at, len) => {
                (*at, *len) = (place(*at), long(*at, *len));
            }
            Act::Emerge(_, len, _) | Act::Linger(_, len, _) => *len = place(*len as u64) as usize,
            _ => (),
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All scenarios, of the first seed and of the last.
    #[test]
    fn every_scenario_has_a_script_for_every_seed() {
        for (name, _) in crate::scenarios() {
            for seed in [0, 1, 2, 1 << 32, u64::MAX - 1, u64::MAX] {
                for times in [1, 2, 4] {
                    let Some(script) = script_on(name, seed, times) else { continue };
                    assert!(script.volume_bytes >= 1 << 20, "{name}:{seed}");
                }
            }
        }
    }

    #[test]
    fn places_stay_in_their_order() {
        for times in [1, 2, 4, 64] {
            let place = |at: u64| match Act::Truncate("/f".into(), at).scaled(times) {
                Act::Truncate(_, at) => at,
                other => panic!("{other:?}"),
            };
            let wrong = (0..5000)
                .find(|at| place(*at) >= place(at + 1) || place(1024 * at) != 1024 * at * times);
            assert_eq!(wrong, None, "S4: {times} times as long");
        }
    }
}
