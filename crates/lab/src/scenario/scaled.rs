//! A scenario on a volume of larger blocks: everything that is counted in bytes is as many blocks
//! there, so that what fills an inode's own pointers, or crosses into an indirect block, does so.
//!
//! Invariants of a script, which judges rely on:
//! * S1. There are states to be looked at: the act from which on they are is one of its own.

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
