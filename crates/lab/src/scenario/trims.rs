//! The disk is told what is free, while files are cut short and taken away, and others take what
//! they held: no crash may show discarded bytes in a file.

use super::{Script, s};
use crate::acts::Act;
use env::Rng;

/// One changes the files, one trims.
const CALLERS: usize = 2;
const ROUNDS: u64 = 5;

fn setup(long: usize) -> Vec<Act> {
    let mut acts = Vec::new();
    for n in 0..ROUNDS {
        let (old, over) = (format!("/old{n}"), format!("/over{n}"));
        acts.extend([Act::Create(old.clone()), Act::Write(old, 0, long, 0x20 + n as u8)]);
        acts.extend([Act::Create(over.clone()), Act::Write(over, 0, 700, 0x30 + n as u8)]);
    }
    acts.push(Act::Sync);
    acts
}

pub(super) fn script(seed: u64) -> Script {
    let mut rng = Rng::new(seed);
    let long = 3000 + rng.below(20_000) as usize;
    let mut acts = Vec::new();
    for n in 0..ROUNDS {
        let old = format!("/old{n}");
        let goes = match rng.below(4) {
            0 => Act::Unlink(old),
            1 => Act::Truncate(old, rng.below(long as u64)),
            2 => Act::Punch(old, 1024, long as u64),
            _ => Act::Rename(format!("/over{n}"), old),
        };
        let new = format!("/new{n}");
        acts.extend([goes, Act::Pause(0)]);
        acts.extend([Act::Create(new.clone()), Act::Trim]);
        acts.extend([Act::Write(new.clone(), 0, long, 0x40 + n as u8), Act::Pause(0)]);
        let durable = if rng.one_in(2) { Act::Fsync(new) } else { Act::Pause(rng.below(3)) };
        acts.extend([durable, if rng.one_in(2) { Act::Trim } else { Act::Pause(0) }]);
    }
    acts.extend([Act::Fsync(s("/new0")), Act::Trim]);
    Script { callers: CALLERS, ..Script::new(setup(long), acts) }
}
