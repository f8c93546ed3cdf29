//! A caller who writes, cuts, renames, links and unlinks his files, in directories of his own, and
//! two who make these same files durable meanwhile, or everything: what he had been answered before
//! they began is durable when they are answered, whoever else was waiting for it. Files change
//! their names and directories, and lose one of several names, in the middle of that.

use super::{Act, Rng, Script, s};

/// Callers: the first changes things.
const CALLERS: usize = 3;
const ROUNDS: usize = 16;
const DIRS: [&str; 2] = ["/c0nA", "/c0nB"];

pub(super) fn script(seed: u64) -> Script {
    let mut rng = Rng::new(seed ^ 0xc0_4a);
    let mut files: Vec<String> = (0..4).map(|n| format!("{}/f{n}", DIRS[n % 2])).collect();
    let mut setup: Vec<Act> = DIRS.iter().map(|d| Act::Mkdir(s(d))).collect();
    for (n, f) in (1..).zip(&files) {
        setup.extend([Act::Create(f.clone()), Act::Write(f.clone(), 0, 3000, n)]);
    }
    setup.push(Act::Sync);
    let mut acts = Vec::new();
    for round in 0..ROUNDS {
        // For a while it is one file that all are about.
        let n = if rng.one_in(3) { rng.below(files.len() as u64) as usize } else { 0 };
        let p = files[n].clone();
        acts.push(change(&mut rng, (&mut files, n), round));
        let new = files.get(n).unwrap_or(&p).clone();
        let others =
            |rng: &mut Rng| (1..CALLERS).map(|_| sync(rng, (&p, &new))).collect::<Vec<_>>();
        acts.extend(others(&mut rng));
        // He waits too, for another file, or he would be done before the first of them is answered.
        let own = files[rng.below(files.len() as u64) as usize].clone();
        acts.push(if rng.one_in(2) { Act::Fsync(own) } else { Act::Fdatasync(own) });
        acts.extend(others(&mut rng));
    }
    Script { callers: CALLERS, ..Script::new(setup, acts) }
}

/// What another makes durable: mostly what is being changed just now, under its old name or its new
/// one.
fn sync(rng: &mut Rng, (old, new): (&str, &str)) -> Act {
    let of = s(if rng.one_in(2) { new } else { old });
    match rng.below(16) {
        0..=7 => Act::Fsync(of),
        8..=12 => Act::Fdatasync(of),
        13 => Act::Fsync(s(DIRS[rng.below(2) as usize])),
        14 => Act::Sync,
        _ => Act::Pause(0),
    }
}

/// What the first caller does with the n-th of his files.
fn change(rng: &mut Rng, (files, n): (&mut Vec<String>, usize), round: usize) -> Act {
    let p = files[n].clone();
    let new = format!("{}/g{round}", DIRS[rng.below(2) as usize]);
    match rng.below(12) {
        0..=2 => Act::Write(p, rng.below(2500), 1 + rng.below(900) as usize, round as u8),
        3 => Act::Write(p, 2000 + rng.below(9000), 4000, round as u8),
        4 => Act::Truncate(p, rng.below(15_000)),
        5..=6 => {
            files[n].clone_from(&new);
            Act::Rename(p, new)
        }
        7 => {
            files.push(new.clone());
            Act::Link(p, new)
        }
        8 if files.len() > 3 => Act::Unlink(files.swap_remove(n)),
        9 if files.len() > 3 => {
            let over = (n + 1) % files.len();
            let to = files[over].clone();
            files.remove(n);
            Act::Rename(p, to)
        }
        10 => Act::Date(p, round as u8),
        _ => {
            files.push(new.clone());
            Act::Create(new)
        }
    }
}
