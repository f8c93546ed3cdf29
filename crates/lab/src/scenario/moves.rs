//! Names that go from one directory to another: to one just made, out of one that is then removed,
//! by a link and an unlink, and through directories that grow into an indirect block. Whatever
//! comes first on the disk, a file that was durable once keeps a name that is reached.

use super::{Script, s};
use crate::acts::Act;
use env::Rng;

/// Files there are before.
const FILES: u64 = 6;
/// Names that fill more than a directory's own pointers have blocks for.
const MANY: usize = 60;

/// Files are moved about; every fourth seed fills a large directory instead.
pub(super) fn script(seed: u64) -> Script {
    if seed % 4 == 3 { growing(seed) } else { moving(seed) }
}

fn moving(seed: u64) -> Script {
    let mut rng = Rng::new(seed);
    let mut setup = vec![Act::Mkdir(s("/x")), Act::Mkdir(s("/y")), Act::Mkdir(s("/y/in"))];
    for n in 0..FILES {
        let dir = if n % 2 == 0 { "/x" } else { "/y/in" };
        setup.push(Act::Create(format!("{dir}/f{n}")));
        setup.push(Act::Write(format!("{dir}/f{n}"), 0, 700, 0x20 + n as u8));
    }
    setup.push(Act::Sync);
    let mut acts = Vec::new();
    for n in 0..FILES {
        let old = format!("{}/f{n}", if n % 2 == 0 { "/x" } else { "/y/in" });
        let dir = format!("/n{}", rng.below(3));
        acts.push(Act::Mkdir(dir.clone()));
        let new = format!("{dir}/g{n}");
        if rng.one_in(3) {
            acts.push(Act::Link(old.clone(), new));
            acts.push(Act::Unlink(old));
        } else {
            acts.push(Act::Rename(old, new));
        }
        match rng.below(6) {
            0 => acts.push(Act::Pause(3)),
            1 => acts.push(Act::Rename(dir.clone(), format!("{dir}-moved"))),
            2 => acts.push(Act::Fsync(format!("{dir}/g{n}"))),
            _ => (),
        }
    }
    acts.extend([Act::Rmdir(s("/y/in")), Act::Rmdir(s("/y")), Act::Rmdir(s("/x"))]);
    Script::new(setup, acts)
}

fn growing(seed: u64) -> Script {
    let mut rng = Rng::new(seed);
    let name = |n: usize| format!("/big/{}{n}", "n".repeat(230));
    let mut setup = vec![Act::Mkdir(s("/big"))];
    setup.extend((0..MANY - 20).map(|n| Act::Create(name(n))));
    setup.push(Act::Sync);
    let mut acts: Vec<Act> = (MANY - 20..MANY).map(|n| Act::Create(name(n))).collect();
    acts.insert(rng.below(20) as usize, Act::Pause(3));
    acts.push(Act::Write(name(MANY - 1), 0, 15_000, 7));
    acts.push(Act::Pause(3));
    acts.push(Act::Write(name(MANY - 1), 15_000, 3000, 8));
    acts.push(Act::Truncate(name(MANY - 1), 14_000));
    acts.push(Act::Fsync(name(MANY - 2)));
    acts.extend((0..6).map(|n| Act::Unlink(name(n))));
    Script::new(setup, acts)
}
