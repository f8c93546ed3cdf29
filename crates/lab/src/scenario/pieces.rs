//! Directories in as many pieces as they have blocks, which grow so that the map of them does:
//! files that were there before and are not touched are found in them still, whatever others make
//! durable beside them in the meantime.

use super::{Script, s};
use crate::acts::Act;
use env::Rng;

/// Long enough that three of them fill a block of 1 KiB.
const NAME_BYTES: usize = 250;
/// Pieces before: as many as an inode has room for, or a node of the tree under it.
const PIECES: [u64; 2] = [3, 83];

/// Names for one block more, and a file that takes the block behind that.
fn piece(i: u64) -> Vec<Act> {
    let name = |n: u64| format!("/d/{}{i:03}{n}", "n".repeat(NAME_BYTES));
    let mut acts: Vec<Act> = (0..3).map(|n| Act::Link(s("/many"), name(n))).collect();
    let pad = format!("/pads/{i}");
    acts.extend([Act::Create(pad.clone()), Act::Write(pad, 0, 1000, 1)]);
    acts
}

pub(super) fn script(seed: u64) -> Script {
    let mut rng = Rng::new(seed);
    let before = PIECES[usize::from(rng.one_in(3))];
    let kept = |n: u64| format!("/d/kept{n}");
    let mut setup = vec![Act::Mkdir(s("/pads")), Act::Create(s("/beside"))];
    // Its inode lies beside that of the file, in one block: who makes one durable writes both.
    setup.extend([Act::Mkdir(s("/d")), Act::Create(s("/many"))]);
    for n in 0..3 {
        setup.extend([Act::Create(kept(n)), Act::Write(kept(n), 0, 700, 2 + n as u8)]);
        setup.extend((0..before / 3).flat_map(|i| piece(3 * i + n)));
    }
    setup.push(Act::Sync);
    let mut acts = Vec::new();
    for i in 0..4 {
        acts.extend(piece(before + i));
        acts.push(Act::Write(s("/beside"), 100 * i, 100, 9));
        match rng.below(4) {
            0 => acts.push(Act::Pause(1 + rng.below(6))),
            1 => acts.push(Act::Fsync(kept(rng.below(3)))),
            _ => (),
        }
        acts.push(Act::Fsync(s("/beside")));
    }
    Script::new(setup, acts)
}
