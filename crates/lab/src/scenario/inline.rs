//! Files and directories that lie in their inodes on a volume with inline_data: written, cut, made
//! longer, and outgrown, with attributes that take their room, among others that are made durable.

use super::{Script, s};
use crate::acts::Act;
use env::Rng;

/// More than an inode of 256 bytes has room for.
const OUTGROWN: u64 = 130;

pub(super) fn script(seed: u64) -> Script {
    let mut rng = Rng::new(seed);
    let files = ["/a", "/b", "/d/c"];
    let dirs = ["/d", "/e"];
    let mut setup: Vec<Act> = dirs.iter().map(|d| Act::Mkdir(s(d))).collect();
    for (n, f) in (1..).zip(files) {
        setup.push(Act::Create(s(f)));
        setup.push(Act::Write(s(f), 0, 20 + 30 * usize::from(n), n));
    }
    setup.push(Act::Sync);
    let (mut acts, mut names) = (Vec::new(), Vec::new());
    for n in 0..22u64 {
        let f = s(files[rng.below(3) as usize]);
        let value = 1 + rng.below(200) as u8;
        match rng.below(14) {
            0 | 1 => acts.push(Act::Write(f, rng.below(60), 1 + rng.below(60) as usize, value)),
            2 | 3 => acts.push(Act::Write(f, rng.below(200), 1 + rng.below(2500) as usize, value)),
            4 => acts.push(Act::WriteSync(f, rng.below(120), 1 + rng.below(50) as usize, value)),
            5 => acts.push(Act::Truncate(f, rng.below(2 * OUTGROWN))),
            6 => acts.extend([Act::Truncate(f.clone(), 0), Act::Write(f, 0, 50, value)]),
            7 => acts.push(Act::Punch(f, rng.below(100), 1 + rng.below(1500))),
            8 => acts.push(Act::Attribute(f, 1 + rng.below(40) as usize, value)),
            9 if !names.is_empty() => {
                let old: String = names.swap_remove(rng.below(names.len() as u64) as usize);
                let to = format!("{}/moved{n}", dirs[rng.below(2) as usize]);
                let gone = rng.one_in(2);
                acts.push(if gone { Act::Unlink(old) } else { Act::Rename(old, to.clone()) });
                names.extend((!gone).then_some(to));
            }
            10 => {
                let (from, to) = if rng.one_in(2) { ("/d", "/e/in") } else { ("/e", "/d/in") };
                acts.extend([Act::Rename(s(from), s("/up")), Act::Mkdir(s(from))]);
                acts.extend([Act::Rename(s("/up"), s(to)), Act::Fsync(s(to))]);
            }
            _ => {
                let fill = "n".repeat(rng.below(30) as usize);
                let path = format!("{}/{n}{fill}", dirs[rng.below(2) as usize]);
                acts.push(match rng.below(3) {
                    0 => Act::Mkdir(path.clone()),
                    1 => Act::Link(s("/a"), path.clone()),
                    _ => Act::Create(path.clone()),
                });
                names.push(path);
            }
        }
        if n % 4 == 2 {
            let f = s(files[rng.below(3) as usize]);
            acts.push(if rng.one_in(3) { Act::Sync } else { Act::Fsync(f) });
        }
    }
    Script::new(setup, acts)
}
