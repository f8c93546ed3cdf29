//! Attributes that outgrow their inode, and others that fit into it again, while single files are
//! made durable: a file that has had an attribute is never without one.

use super::{Script, s};
use crate::acts::Act;
use env::Rng;

const FILES: u64 = 3;
/// Two that an inode has room for, and two that it has not.
const BYTES: [usize; 4] = [10, 40, 300, 500];

pub(super) fn script(seed: u64) -> Script {
    let mut rng = Rng::new(seed ^ 0xa77b);
    let file = |n: u64| format!("/f{n}");
    let mut setup: Vec<Act> = (0..FILES).map(|n| Act::Create(file(n))).collect();
    let first = |rng: &mut Rng, n| Act::Attribute(file(n), BYTES[rng.below(4) as usize], 1);
    setup.extend((0..FILES).map(|n| first(&mut rng, n)));
    setup.push(Act::Sync);
    let mut acts = Vec::new();
    for n in 0..9 {
        let f = file(rng.below(FILES));
        acts.push(Act::Attribute(f.clone(), BYTES[rng.below(4) as usize], 2 + n));
        match rng.below(5) {
            0 => acts.push(Act::Fsync(f)),
            1 => acts.extend([Act::Create(format!("/new{n}")), Act::Fsync(s("/"))]),
            2 => acts.push(Act::Unlink(file(rng.below(FILES)))),
            3 => acts.push(Act::Pause(rng.below(8))),
            _ => (),
        }
    }
    Script::new(setup, acts)
}
