//! So many callers at once that a small log has not room for all of them, and more come: each is in
//! the middle of its operation, which reads the disk, when the others begin theirs.

use super::Script;
use crate::acts::Act;
use env::Rng;

/// With fewer the log has room for all.
const CALLERS: u64 = 16;
/// Bytes of the file that each of them finds: its map has an indirect block, which is not in
/// memory.
const LONG: u64 = 20 << 10;

fn long(caller: u64) -> String {
    format!("/c{caller}nlong")
}
fn short(caller: u64) -> String {
    format!("/c{caller}nshort")
}
fn new(caller: u64) -> String {
    format!("/c{caller}nnew")
}

fn setup() -> Vec<Act> {
    let files = (0..CALLERS).flat_map(|c| [Act::Create(long(c)), Act::Create(short(c))]);
    let written = (0..CALLERS).map(|c| Act::Write(long(c), 0, LONG as usize, 1 + c as u8));
    files.chain(written).chain([Act::Sync]).collect()
}

/// What a caller does with his file.
fn first(rng: &mut Rng, caller: u64) -> Act {
    match rng.below(5) {
        0 => Act::Unlink(long(caller)),
        1 => Act::Truncate(long(caller), rng.below(LONG / 2)),
        2 => Act::Rename(short(caller), long(caller)),
        3 => Act::Punch(long(caller), rng.below(900), LONG / 2 + rng.below(LONG)),
        // A part of its first and of its last block stay, and are read.
        _ => Act::Write(long(caller), 100, LONG as usize - 200, rng.next_u64() as u8),
    }
}

pub(super) fn script(seed: u64) -> Script {
    let mut rng = Rng::new(seed);
    // All do the same with some seeds.
    let same = seed.is_multiple_of(2);
    let cut = rng.below(LONG / 2);
    let mut acts: Vec<Act> = (0..CALLERS)
        .map(|c| if same { Act::Truncate(long(c), cut) } else { first(&mut rng, c) })
        .collect();
    let value = rng.next_u64() as u8;
    acts.extend((0..CALLERS).map(|c| Act::Create(new(c))));
    acts.extend((0..CALLERS).map(|c| {
        let len = if c < 2 { 100_000 } else { 1 + rng.below(3000) as usize };
        Act::Write(new(c), 0, len, value)
    }));
    acts.extend((0..CALLERS).map(|c| Act::Fsync(new(c))));
    Script { callers: CALLERS as usize, ..Script::new(setup(), acts) }
}
