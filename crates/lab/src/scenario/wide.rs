//! Directories of large blocks, which short scripts fill only with long names: one that is about to
//! need a block behind an indirect one, one about to need its second and its third. Names come and
//! go at their ends while files are made durable in them.

use super::{Script, s};
use crate::acts::Act;
use env::Rng;

/// So many of the long names fit into a block of 4 KiB.
const IN_BLOCK: u64 = 19;
/// What an inode points at by itself.
const DIRECT: u64 = 12;
const ACTS: u64 = 20;

fn name(dir: &str, n: u64) -> String {
    format!("{dir}/{n:03}{}", "w".repeat(200))
}

pub(super) fn script(seed: u64) -> Script {
    let mut rng = Rng::new(seed ^ 0x1de);
    let mut setup = vec![Act::Create(s("/f")), Act::Mkdir(s("/deep")), Act::Mkdir(s("/flat"))];
    let (deep, flat) = (IN_BLOCK * DIRECT - rng.below(4), IN_BLOCK - rng.below(3));
    setup.extend((0..deep).map(|n| Act::Link(s("/f"), name("/deep", n))));
    setup.extend((0..flat).map(|n| Act::Create(name("/flat", n))));
    setup.push(Act::Sync);
    let mut acts = Vec::new();
    let (mut in_deep, mut in_flat) = (deep, flat);
    for n in 0..ACTS {
        let to_deep = rng.one_in(2);
        let (dir, count) = if to_deep { ("/deep", in_deep) } else { ("/flat", in_flat) };
        let new = name(dir, count);
        acts.push(match rng.below(10) {
            0 => Act::Unlink(name(dir, rng.below(count))),
            1 => Act::Rename(name("/flat", rng.below(in_flat)), new.clone()),
            2 => Act::Rename(name("/deep", rng.below(in_deep)), new.clone()),
            3 => Act::Link(s("/f"), new.clone()),
            4 => Act::Symlink(new.clone(), "t".repeat(300)),
            5 => Act::Mkdir(new.clone()),
            _ => Act::Create(new.clone()),
        });
        (in_deep, in_flat) = (in_deep + u64::from(to_deep), in_flat + u64::from(!to_deep));
        match rng.below(6) {
            0 => acts.push(Act::Write(new, 0, 1 + rng.below(15_000) as usize, n as u8)),
            1 => acts.push(Act::Fsync(new)),
            2 => acts.push(Act::Pause(rng.below(4))),
            _ => (),
        }
    }
    Script::new(setup, acts)
}
