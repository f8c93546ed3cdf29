//! Holes in a file of which each indirect block maps one block: a long one frees more than one
//! entry of a small log has room for, and may be seen in steps; all others are there or not.

use super::{Script, s};
use crate::acts::Act;
use env::Rng;

/// File blocks from one of the file's blocks to the next: as many as an indirect block maps.
const APART: u64 = 256;
/// The file's blocks, each 1 KiB.
const BLOCKS: u64 = 125;

/// Where the n-th of them begins.
fn place(n: u64) -> u64 {
    (12 + n * APART) * 1024
}

pub(super) fn script(seed: u64) -> Script {
    let mut rng = Rng::new(seed);
    let mut setup = vec![Act::Create(s("/f"))];
    setup.extend((0..BLOCKS).map(|n| Act::Write(s("/f"), place(n), 1024, 1 + n as u8)));
    setup.push(Act::Sync);
    // Half of the holes are long.
    let blocks = if rng.one_in(2) { 105 + rng.below(20) } else { 1 + rng.below(90) };
    let from = rng.below(BLOCKS - blocks + 1);
    // Some begin and end within a block.
    let (at, end) = (place(from) + 256 * rng.below(4), place(from + blocks) - 300 * rng.below(9));
    let value = rng.next_u64() as u8;
    let acts = vec![
        Act::Punch(s("/f"), at, end - at),
        Act::Create(s("/new")),
        Act::Write(s("/new"), 0, 1 + rng.below(9000) as usize, value),
        Act::Fsync(s("/new")),
    ];
    Script::new(setup, acts)
}
