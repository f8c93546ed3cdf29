//! A file in very many pieces goes, as a whole or in part, with a log that is small beside it; what
//! is left of the way may have to be gone at the next opening. A hole is there as a whole or not at
//! all.

use super::{Script, s};
use crate::acts::Act;
use env::Rng;

/// Blocks of each of the two files: more runs than an entry of a log of 1 MiB could free.
const PIECES: u64 = 1600;
const VOLUME_BYTES: u64 = 4 << 20;

pub(super) fn script(seed: u64) -> Script {
    let mut rng = Rng::new(seed);
    let long = PIECES * 1024;
    let setup = vec![
        Act::Create(s("/f")),
        Act::Create(s("/g")),
        Act::Create(s("/h")),
        Act::Write(s("/f"), 0, long as usize, 1),
        Act::Write(s("/g"), 0, long as usize, 2),
        Act::Unlink(s("/g")), // there is less to judge
        Act::Sync,
    ];
    let gone = match rng.below(6) {
        0 | 1 => Act::Unlink(s("/f")),
        2 => Act::Truncate(s("/f"), rng.below(long / 2)),
        3 | 4 => Act::Punch(s("/f"), rng.below(long / 4), long / 4 + rng.below(long)),
        _ => Act::Rename(s("/h"), s("/f")),
    };
    let value = rng.next_u64() as u8;
    let acts = vec![
        gone,
        Act::Create(s("/new")),
        Act::Write(s("/new"), 0, 1 + rng.below(9000) as usize, value),
        Act::Fsync(s("/new")),
    ];
    Script { volume_bytes: VOLUME_BYTES, is_woven: true, ..Script::new(setup, acts) }
}
