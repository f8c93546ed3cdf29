//! Ranges taken out of files and put into them, on a volume of ext4: of files in one piece and in
//! so many that their trees have leaves, among writes in place, holes and cuts.

use super::{Script, s};
use crate::acts::Act;
use env::Rng;

/// Blocks of each file.
const BLOCKS: u64 = 40;
/// Pieces of the file in pieces, a hole between any two: more than two leaves of 1 KiB have room
/// for.
const PIECES: u64 = 2 * 84 + 20;

pub(super) fn script(seed: u64) -> Script {
    let mut rng = Rng::new(seed);
    let files = ["/a", "/b", "/c"];
    let mut setup: Vec<Act> = files.iter().map(|f| Act::Create(s(f))).collect();
    for (f, value) in [("/a", 0x61), ("/b", 0x62)] {
        setup.extend((0..4).map(|n| {
            let len = BLOCKS / 4 * 1024;
            Act::Write(s(f), n * len, len as usize, value + 4 * n as u8)
        }));
    }
    let piece = |n| Act::Write(s("/c"), 2048 * n, 1024, 1 + (n % 90) as u8);
    setup.extend((0..PIECES).map(piece));
    setup.push(Act::Sync);
    let mut acts = Vec::new();
    for n in 0..12 {
        let f = files[rng.below(3) as usize];
        let blocks = if f == "/c" { 2 * PIECES } else { BLOCKS };
        let at = 1024 * rng.below(blocks);
        let len = 1024 * (1 + rng.below(12));
        let value = 1 + rng.below(200) as u8;
        acts.push(match rng.below(8) {
            0..=2 => Act::Collapse(s(f), at, len),
            3 | 4 => Act::Insert(s(f), at, len),
            5 => Act::Punch(s(f), at + 100 * rng.below(5), 1 + rng.below(6000)),
            6 if rng.one_in(4) => Act::Truncate(s(f), at + rng.below(1024)),
            _ => Act::Write(s(f), at + rng.below(700), 1 + rng.below(5000) as usize, value),
        });
        if n % 3 == 0 {
            acts.push(match rng.below(3) {
                0 => Act::Sync,
                _ => Act::Fsync(s(f)),
            });
        }
    }
    Script::new(setup, acts)
}
