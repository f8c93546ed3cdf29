//! Files that are cut, lengthened and filled again, where blocks of their maps stay: the length
//! that covers what is written and the pointer to that come from different operations.

use super::Script;
use crate::acts::Act;
use env::Rng;

/// Files of each caller.
const FILES: u64 = 2;
/// Bytes in a block of the lab's volumes.
const BLOCK: u64 = 1024;
/// A file's own pointers reach so far.
const DIRECT: u64 = 12 * BLOCK;
/// Acts of each caller.
const ACTS: usize = 16;

fn file(caller: u64, n: u64) -> String {
    format!("/c{caller}nf{n}")
}

/// A length, or a place: mostly behind the file's own pointers, in the first indirect block.
fn place(rng: &mut Rng) -> u64 {
    match rng.below(8) {
        0 => rng.below(DIRECT),
        1 => DIRECT + 256 * BLOCK + rng.below(6 * BLOCK),
        _ => DIRECT + rng.below(24 * BLOCK),
    }
}

fn act(rng: &mut Rng, file: String) -> Act {
    let value = rng.next_u64() as u8;
    match rng.below(12) {
        0..=4 => Act::Truncate(file, place(rng)),
        5..=8 => Act::Write(file, place(rng), 1 + rng.below(3 * BLOCK) as usize, value),
        9 => Act::Punch(file, place(rng), 1 + rng.below(6 * BLOCK)),
        10 if rng.one_in(3) => Act::Fsync(file),
        _ => Act::Pause(rng.below(4)),
    }
}

/// Cut in the middle of a block, lengthened, and written to within the new length.
fn again(rng: &mut Rng, file: &str) -> [Act; 4] {
    let (cut, end) = (DIRECT + rng.below(3 * BLOCK), DIRECT + (10 + rng.below(14)) * BLOCK);
    let at = DIRECT + (4 + rng.below(6)) * BLOCK;
    let last = match rng.below(3) {
        0 => Act::Fdatasync(file.to_owned()),
        _ => Act::Pause(rng.below(7)),
    };
    [
        Act::Truncate(file.to_owned(), cut),
        Act::Truncate(file.to_owned(), end),
        Act::Write(file.to_owned(), at, 900, rng.next_u64() as u8),
        last,
    ]
}

pub(super) fn script(seed: u64) -> Script {
    let mut rng = Rng::new(seed ^ 0x1e27);
    let callers = 1 + rng.below(2);
    let mut setup = Vec::new();
    for (c, n) in (0..callers).flat_map(|c| (0..FILES).map(move |n| (c, n))) {
        setup.push(Act::Create(file(c, n)));
        setup.push(Act::Write(file(c, n), 0, (DIRECT + 4 * BLOCK) as usize, 0x20 + n as u8));
    }
    setup.push(Act::Sync);
    let lanes: Vec<Vec<Act>> = (0..callers).map(|c| lane(&mut rng, c)).collect();
    let acts = (0..ACTS).flat_map(|i| lanes.iter().map(move |l| l[i].clone())).collect();
    Script { callers: callers as usize, ..Script::new(setup, acts) }
}

/// What one caller does.
fn lane(rng: &mut Rng, caller: u64) -> Vec<Act> {
    let mut acts = Vec::new();
    while acts.len() < ACTS {
        let of = file(caller, rng.below(FILES));
        match rng.below(3) {
            0 => acts.extend(again(rng, &of)),
            _ => acts.push(act(rng, of)),
        }
    }
    acts
}
