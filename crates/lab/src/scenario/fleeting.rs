//! Files that are made and removed again at once, among names that stay: in slots that older names
//! have left, beside names whose going is not durable, linked and renamed meanwhile, with contents,
//! while others are made durable around them.

use super::{Script, s};
use crate::acts::Act;
use crate::model::Model;
use env::Rng;

const DIRS: [&str; 2] = ["/A", "/B"];

/// A name of the same few, short and long, so that slots fit for others.
fn name(rng: &mut Rng) -> String {
    let dir = DIRS[rng.below(2) as usize];
    let long = if rng.one_in(3) { "-that-takes-more-room-than-others" } else { "" };
    format!("{dir}/c0nt{}{long}", rng.below(5))
}

/// One file's life, from its making to its going, or to where it stays.
fn life(rng: &mut Rng) -> Vec<Act> {
    let (p, q) = (name(rng), name(rng));
    let mut acts = vec![Act::Create(p.clone())];
    let mut last = p.clone();
    if rng.one_in(2) {
        acts.push(Act::Write(p.clone(), 0, 1 + rng.below(15_000) as usize, rng.next_u64() as u8));
    }
    let other = DIRS.iter().find(|d| !p.starts_with(**d)).expect("there are two");
    let seen = rng.one_in(3);
    if seen {
        // What is made durable beside it takes its inode along, and not its name.
        acts.extend(new_in(other, rng));
    } else if rng.one_in(3) {
        // Of a file that was there: bits and contents.
        let beside = format!("{}/c0nkeep", DIRS[rng.below(2) as usize]);
        acts.push(Act::Write(beside.clone(), rng.below(5000), 900, 9));
        acts.push(if rng.one_in(3) { Act::Sync } else { Act::Fsync(beside) });
    }
    match rng.below(6) {
        0 => {
            acts.push(Act::Link(p.clone(), q.clone()));
            acts.push(Act::Unlink(p));
            last = q;
        }
        1 => {
            acts.push(Act::Rename(p, q.clone()));
            last = q;
        }
        2 => acts.push(Act::Pause(rng.below(3))),
        3 => acts.push(Act::Truncate(p, rng.below(9000))),
        _ => (),
    }
    if !rng.one_in(6) {
        acts.push(Act::Unlink(last));
    }
    if seen {
        acts.extend(new_in(other, rng));
    }
    acts
}

/// So many names that each directory has more than one block of a KiB.
fn fillers() -> Vec<String> {
    let of = |d: &'static str| {
        (0..30).map(move |n| format!("{d}/c0nfill{n}-that-takes-more-room-than-others"))
    };
    DIRS.into_iter().flat_map(of).collect()
}

/// A name that goes and comes again twice, and the last file of it is made durable.
fn again(rng: &mut Rng) -> Vec<Act> {
    let path = stays(rng.below(4) as usize);
    let (new, gone) = (Act::Create(path.clone()), Act::Unlink(path.clone()));
    vec![gone.clone(), new.clone(), gone, new, Act::Fsync(path)]
}

/// Names behind the fillers.
fn stays(n: usize) -> String {
    format!("{}/c0nt{n}-that-takes-more-room-than-others", DIRS[n % 2])
}

/// A new file in the directory is made durable.
fn new_in(dir: &str, rng: &mut Rng) -> [Act; 2] {
    let new = format!("{dir}/c0nnew{}", rng.below(40));
    [Act::Create(new.clone()), Act::Fsync(new)]
}

pub(super) fn script(seed: u64) -> Script {
    let mut rng = Rng::new(seed);
    let mut setup: Vec<Act> = DIRS.iter().map(|d| Act::Mkdir(s(d))).collect();
    let is_wide = seed.is_multiple_of(3);
    let fillers = if is_wide { fillers() } else { Vec::new() };
    setup.extend(fillers.iter().cloned().map(Act::Create));
    setup.extend((0..4).filter(|_| is_wide).map(|n| Act::Create(stays(n))));
    for n in 0..4 {
        let path = format!("{}/c0nt{n}", DIRS[n % 2]);
        setup.push(Act::Create(path.clone()));
        setup.push(Act::Write(path, 0, 700 * n, 1 + n as u8));
    }
    setup.extend(DIRS.iter().map(|d| Act::Create(format!("{d}/c0nkeep"))));
    // Room before the names that stay, in other blocks: there come the next ones.
    setup.extend(fillers.into_iter().step_by(3).map(Act::Unlink));
    setup.push(Act::Sync);
    let mut model = Model::default();
    for act in &setup {
        let _ = model.apply(act);
    }
    let mut acts: Vec<Act> = Vec::new();
    while acts.len() < 24 {
        let some = match rng.below(8) {
            0 => vec![Act::Unlink(name(&mut rng))],
            1 => vec![Act::Fsync(name(&mut rng))],
            2 => vec![Act::Create(name(&mut rng))],
            3 | 4 if is_wide => again(&mut rng),
            _ => life(&mut rng),
        };
        // What fails, because a name is there or is not, is left out.
        acts.extend(some.into_iter().filter(|act| model.apply(act).is_ok()));
    }
    if rng.one_in(2) {
        return Script { is_holding: rng.one_in(3), ..Script::new(setup, acts) };
    }
    acts.retain(|act| *act != Act::Sync);
    beside(&mut rng, setup, acts)
}

/// The same with a second caller in the same directories, who makes things durable all the time:
/// what is removed may be on its way to the disk.
fn beside(rng: &mut Rng, setup: Vec<Act>, acts: Vec<Act>) -> Script {
    let own = |n: usize| format!("{}/c1nown{n}", DIRS[n % 2]);
    let mut both = Vec::new();
    for (n, act) in acts.into_iter().enumerate() {
        let other = match n % 3 {
            0 => Act::Create(own(n - n % 3)),
            1 => Act::Fsync(own(n - n % 3)),
            _ => Act::Pause(0),
        };
        both.extend([act, other]);
        if rng.one_in(3) {
            both.extend([Act::Pause(rng.below(2)), Act::Pause(0)]);
        }
    }
    Script { callers: 2, ..Script::new(setup, both) }
}
