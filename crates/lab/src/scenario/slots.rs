//! Inodes that are given to new files while changes of the file that had them last still wait: a
//! file that was there is appended to, cut and removed, single files are made durable beside it so
//! that its number is free early, and others take it.

use super::{Script, s};
use crate::acts::Act;
use env::Rng;

const OLD: u64 = 4;

/// Gives a file that stays another name and makes that durable, and with it what else is in the
/// blocks that it needs: its inode lies beside that of the old file. A new file would move the
/// search for a free inode on, past the one that is to be taken.
fn durable(beside: u64, acts: &mut Vec<Act>, n: &mut u64) {
    let keep = format!("/A/keep{beside}");
    *n += 1;
    acts.push(Act::Link(keep.clone(), format!("/A/name{n}")));
    acts.push(Act::Fsync(keep));
}

/// One file's end, and what takes its inode.
fn succession(rng: &mut Rng, i: u64, n: &mut u64) -> Vec<Act> {
    let (old, mut acts) = (format!("/A/old{i}"), Vec::new());
    let grown = 1000 + rng.below(14_000);
    acts.push(Act::Write(old.clone(), grown, 1 + rng.below(1500) as usize, 9));
    if rng.one_in(4) {
        durable(i, &mut acts, n);
    }
    match rng.below(4) {
        0 => acts.push(Act::Truncate(old.clone(), rng.below(1200))),
        1 => (),
        _ => acts.push(Act::Truncate(old.clone(), 0)),
    }
    acts.push(Act::Unlink(old));
    (0..2 + rng.below(2)).for_each(|_| durable(i, &mut acts, n));
    let heir = format!("/A/heir{n}");
    acts.push(match rng.below(4) {
        0 => Act::Mkdir(heir),
        1 => Act::Symlink(heir, s("there")),
        _ => Act::Create(heir),
    });
    durable(i, &mut acts, n);
    acts
}

pub(super) fn script(seed: u64) -> Script {
    let mut rng = Rng::new(seed);
    let mut setup = vec![Act::Mkdir(s("/A"))];
    for i in 0..OLD {
        let old = format!("/A/old{i}");
        setup.push(Act::Create(old.clone()));
        setup.push(Act::Write(old, 0, 1 + rng.below(12_000) as usize, 3));
        setup.push(Act::Create(format!("/A/keep{i}")));
    }
    setup.push(Act::Sync);
    let mut n = 0;
    let acts = (0..OLD).flat_map(|i| succession(&mut rng, i, &mut n)).collect();
    Script::new(setup, acts)
}
