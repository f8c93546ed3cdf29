//! Holes in a file of which each indirect block maps one block: a long one frees more than one
//! entry of a small log has room for, and may be seen in steps; all others are there or not.

use super::{Script, s};
use crate::acts::Act;
use env::Rng;

/// The file's blocks on the shortest blocks.
const BLOCKS: u64 = 125;

/// A volume's blocks.
#[derive(Clone, Copy)]
struct Blocks {
    bytes: u64,
    /// How many of them a file has.
    count: u64,
}

impl Blocks {
    /// Longer ones, and fewer, so that a file is about as long to whoever reads it.
    fn of(times: u64) -> Blocks {
        Blocks { bytes: 1024 * times, count: BLOCKS / times }
    }

    /// Where the n-th of the file's blocks begins: as many blocks behind the one before it as an
    /// indirect block maps.
    fn place(self, n: u64) -> u64 {
        (12 + n * (self.bytes / 4)) * self.bytes
    }
}

pub(super) fn script(seed: u64, times: u64) -> Script {
    let b = Blocks::of(times);
    let mut rng = Rng::new(seed);
    let mut setup = vec![Act::Create(s("/f"))];
    let write = |n| Act::Write(s("/f"), b.place(n), b.bytes as usize, 1 + n as u8);
    setup.extend((0..b.count).map(write));
    setup.push(Act::Sync);
    // Half of the holes are long.
    let blocks = if rng.one_in(2) { 105 + rng.below(20) } else { 1 + rng.below(90) };
    let blocks = (blocks / times).max(1);
    let from = rng.below(b.count - blocks + 1);
    // Some begin and end within a block.
    let (first, last) = (256 * times * rng.below(4), 300 * times * rng.below(9));
    let (at, end) = (b.place(from) + first, b.place(from + blocks) - last);
    let value = rng.next_u64() as u8;
    let acts = vec![
        Act::Punch(s("/f"), at, end - at),
        Act::Create(s("/new")),
        Act::Write(s("/new"), 0, 1 + rng.below(9000) as usize, value),
        Act::Fsync(s("/new")),
    ];
    let new = Script::new(setup, acts);
    Script { volume_bytes: new.volume_bytes * times, ..new }
}
