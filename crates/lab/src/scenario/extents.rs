//! Files in many pieces on a volume of ext4: their trees have leaves that split, grow full and go;
//! space is allocated ahead and written later, in blocks that others' contents were in before.

use super::{Script, s};
use crate::acts::Act;
use env::Rng;

/// Blocks of each of the files in pieces: more than a leaf of 1 KiB has room for.
const BLOCKS: u64 = 90;

pub(super) fn script(seed: u64) -> Script {
    let mut rng = Rng::new(seed);
    let files = ["/a", "/b", "/c"];
    let mut setup: Vec<Act> = files.iter().map(|f| Act::Create(s(f))).collect();
    setup.push(Act::Create(s("/old")));
    // All of the space that is left has had contents.
    setup.push(Act::Write(s("/old"), 0, 1 << 20, 0xee));
    setup.push(Act::Sync);
    setup.push(Act::Unlink(s("/old")));
    setup.push(Act::Sync);
    let len = (BLOCKS * 1024) as usize;
    setup.extend(["/a", "/b"].map(|f| Act::Write(s(f), 0, len, f.as_bytes()[1])));
    setup.push(Act::Sync);
    let mut acts = Vec::new();
    for n in 0..14 {
        let f = s(files[rng.below(3) as usize]);
        let at = rng.below(BLOCKS) * 1024;
        let value = 1 + rng.below(200) as u8;
        match rng.below(9) {
            0 => acts.push(Act::Punch(f, at + 100 * rng.below(5), 1 + rng.below(6000))),
            1 => acts.push(Act::Punch(f, at, 1024 * (1 + rng.below(40)))),
            2 => acts.push(Act::Truncate(f, rng.below(BLOCKS * 1024))),
            3 => acts.push(Act::Write(f, at, 1 + rng.below(5000) as usize, value)),
            4 => {
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
    Script { is_woven: true, ..Script::new(setup, acts) }
}
