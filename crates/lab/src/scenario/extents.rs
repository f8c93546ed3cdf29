//! Files in many pieces on a volume of ext4: their trees have leaves that are full and split, grow
//! and go; space is allocated ahead and written later, in blocks that others' contents were in
//! before.

use super::{Script, s, used_before};
use crate::acts::Act;
use env::Rng;

/// Blocks of each of the files in pieces, every other one of them a hole: as many extents as a leaf
/// of 1 KiB has room for, and one more.
const BLOCKS: u64 = 2 * 85;

pub(super) fn script(seed: u64) -> Script {
    let mut rng = Rng::new(seed);
    let files = ["/a", "/b", "/c"];
    let mut setup: Vec<Act> = files.iter().map(|f| Act::Create(s(f))).collect();
    setup.extend(used_before());
    for f in ["/a", "/b"] {
        let piece = |n| Act::Write(s(f), 2048 * n, 1024, f.as_bytes()[1]);
        setup.extend((0..BLOCKS / 2).map(piece));
    }
    setup.push(Act::Sync);
    let acts = if seed % 3 == 1 { nodes_again(&mut rng) } else { pieces(&mut rng, &files) };
    Script::new(setup, acts)
}

/// Anything with the files.
fn pieces(rng: &mut Rng, files: &[&str]) -> Vec<Act> {
    let mut acts = Vec::new();
    for n in 0..14 {
        let f = s(files[rng.below(3) as usize]);
        let at = rng.below(BLOCKS) * 1024;
        let value = 1 + rng.below(200) as u8;
        match rng.below(9) {
            0 => acts.push(Act::Punch(f, at + 100 * rng.below(5), 1 + rng.below(6000))),
            1 => acts.push(Act::Punch(f, at, 1024 * (1 + rng.below(60)))),
            2 => acts.push(Act::Truncate(f, rng.below(BLOCKS * 1024))),
            3 | 4 => acts.push(Act::Write(f, at, 1 + rng.below(5000) as usize, value)),
            5 => {
                acts.push(Act::Unlink(f.clone()));
                acts.push(Act::Create(f));
            }
            _ => {
                // Few blocks, so that they are one transaction's.
                let len = 1 + rng.below(5 * 1024);
                acts.push(Act::Allocate(f.clone(), at, len, rng.one_in(2)));
                if rng.one_in(2) {
                    let some = 1 + rng.below(len) as usize;
                    acts.push(Act::Write(f.clone(), at + rng.below(700), some, value));
                }
            }
        }
        if n % 3 == 0 {
            acts.push(match rng.below(3) {
                0 => Act::Sync,
                _ => Act::Fsync(s(files[rng.below(3) as usize])),
            });
        }
    }
    acts
}

/// What held a node of a tree that was changed a moment ago comes back as contents.
fn nodes_again(rng: &mut Rng) -> Vec<Act> {
    let mut acts = Vec::new();
    for f in ["/a", "/b"] {
        let hole = 1024 * rng.below(BLOCKS - 8);
        acts.push(Act::Punch(s(f), hole, 4096));
        acts.push(Act::Fsync(s(f)));
        acts.push(Act::Unlink(s(f)));
        for n in 0..3 {
            let new = format!("{f}{n}");
            acts.push(Act::Create(new.clone()));
            acts.push(Act::Write(new.clone(), 0, 1 + rng.below(1024) as usize, 0x30 + n));
            if rng.one_in(2) {
                acts.push(Act::Fsync(new));
            }
        }
    }
    acts.push(Act::Sync);
    acts
}
