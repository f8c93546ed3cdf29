//! Names that are moved out of a directory, whose going waits for the new ones; names that are made
//! in the room they leave; and behind those, files that are made and removed again unseen. All of
//! it in one sector, and then another name goes at once, so that the block is written.

use super::{Script, s};
use crate::acts::Act;
use env::Rng;

pub(super) fn script(seed: u64) -> Script {
    let mut rng = Rng::new(seed);
    // Long enough for several short names in its room.
    let moved = format!("/A/x{}", "y".repeat(60 + rng.below(90) as usize));
    let mut setup = vec![Act::Mkdir(s("/A")), Act::Mkdir(s("/B"))];
    for name in ["/A/p", &moved, "/A/q", "/A/zz"] {
        setup.push(Act::Create(s(name)));
        setup.push(Act::Write(s(name), 0, 700, 7));
    }
    setup.push(Act::Sync);
    let mut acts = Vec::new();
    if rng.one_in(3) {
        acts.push(Act::Unlink(s("/A/p")));
    }
    acts.push(Act::Rename(moved, s("/B/moved")));
    // So many names lie between the going and the file that comes and goes.
    acts.extend((0..1 + seed % 3).map(|n| Act::Create(format!("/A/u{n}"))));
    for n in 0..1 + rng.below(2) {
        let name = format!("/A/v{n}{}", "w".repeat(rng.below(12) as usize));
        acts.push(Act::Create(name.clone()));
        if rng.one_in(2) {
            acts.push(Act::Write(name.clone(), 0, 900, 5));
        }
        acts.push(Act::Unlink(name));
    }
    if rng.one_in(3) {
        acts.push(Act::Rename(s("/A/q"), s("/B/also-moved")));
    }
    acts.push(Act::Unlink(s("/A/zz")));
    acts.push(if rng.one_in(2) { Act::Sync } else { Act::Fsync(s("/A/u0")) });
    Script::new(setup, acts)
}
