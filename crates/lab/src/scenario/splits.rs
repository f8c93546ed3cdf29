//! Directories of ext4 volumes whose names lie by their hashes: leaves are full and split, the
//! first index of a directory is made, a root is full and gets a level below it. Nothing is written
//! to files.

use super::{Script, s};
use crate::acts::Act;
use env::Rng;

/// A directory, and the names in it.
struct Names {
    dir: &'static str,
    all: Vec<String>,
}

impl Names {
    /// A new name, so long that a block of 1 KiB holds three or four.
    fn new_one(&mut self, rng: &mut Rng) -> String {
        let fill = "n".repeat(200 + rng.below(40) as usize);
        let path = format!("{}/{:08x}{fill}", self.dir, rng.next_u64() as u32);
        self.all.push(path.clone());
        path
    }

    fn take(&mut self, rng: &mut Rng) -> Option<String> {
        let n = self.all.len() as u64;
        (n > 0).then(|| self.all.swap_remove(rng.below(n) as usize))
    }
}

pub(super) fn script(seed: u64) -> Script {
    let mut rng = Rng::new(seed);
    let mut dirs = ["/d", "/e"].map(|dir| Names { dir, all: Vec::new() });
    let mut setup = vec![Act::Mkdir(s("/d")), Act::Mkdir(s("/e")), Act::Create(s("/f"))];
    // Nearly as many leaves as a root of 1 KiB has pointers to, or few of them.
    let many = if seed % 8 == 3 { 123 * 5 / 2 } else { 4 + rng.below(16) };
    for _ in 0..many {
        setup.push(Act::Link(s("/f"), dirs[0].new_one(&mut rng)));
    }
    let few = rng.below(4);
    for _ in 0..few {
        setup.push(Act::Create(dirs[1].new_one(&mut rng)));
    }
    setup.push(Act::Sync);
    let mut acts = Vec::new();
    for n in 0..24 {
        let d = usize::from(rng.one_in(3));
        match rng.below(8) {
            0..=3 => acts.push(Act::Link(s("/f"), dirs[d].new_one(&mut rng))),
            4 => acts.push(Act::Create(dirs[d].new_one(&mut rng))),
            5 => acts.extend(dirs[d].take(&mut rng).map(Act::Unlink)),
            _ => {
                if let Some(old) = dirs[d].take(&mut rng) {
                    let to = usize::from(rng.one_in(2));
                    acts.push(Act::Rename(old, dirs[to].new_one(&mut rng)));
                }
            }
        }
        if n % 5 == 4 {
            let newest = dirs[d].all.last().cloned();
            acts.push(newest.filter(|_| rng.one_in(2)).map_or(Act::Sync, Act::Fsync));
        }
    }
    Script::new(setup, acts)
}
