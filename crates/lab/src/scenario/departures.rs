//! Files that are made one after another in the same sectors of a directory and removed together,
//! in their order, against it or in none, before the disk has seen them; some stay, and directories
//! among them wait for more than they do, while others of the same sector are made durable.

use super::Script;
use crate::acts::Act;
use crate::model::Model;
use env::Rng;

const DIR: &str = "/A";

/// A name of its own, short or long.
fn name(rng: &mut Rng, n: usize) -> String {
    let long = if rng.one_in(4) { "-that-takes-more-room-than-others" } else { "" };
    format!("{DIR}/c0n{n}{long}")
}

/// Several are made, and most of the files among them removed; then something is made durable.
fn round(rng: &mut Rng, next: &mut usize) -> Vec<Act> {
    let (mut acts, mut files) = (Vec::new(), Vec::new());
    for _ in 0..2 + rng.below(6) {
        let path = name(rng, *next);
        *next += 1;
        if rng.one_in(4) {
            acts.push(Act::Mkdir(path));
            continue;
        }
        acts.push(Act::Create(path.clone()));
        if rng.one_in(3) {
            let bytes = 1 + rng.below(5000) as usize;
            acts.push(Act::Write(path.clone(), 0, bytes, rng.next_u64() as u8));
        }
        files.push(path);
    }
    match rng.below(3) {
        0 => files.reverse(),
        1 => (1..files.len()).for_each(|n| files.swap(n, rng.below(n as u64 + 1) as usize)),
        _ => (),
    }
    let stay = rng.below(3) as usize;
    files.truncate(files.len().saturating_sub(stay));
    acts.extend(files.into_iter().map(Act::Unlink));
    if rng.one_in(3) {
        let again = rng.below(*next as u64) as usize;
        acts.push(Act::Create(name(rng, again)));
    }
    match rng.below(6) {
        0 => acts.push(Act::Sync),
        1 => acts.push(Act::Pause(rng.below(3))),
        2 => acts.push(Act::Fsync(DIR.to_owned())),
        _ => {
            let path = name(rng, *next);
            *next += 1;
            acts.extend([Act::Create(path.clone()), Act::Fsync(path)]);
        }
    }
    acts
}

pub(super) fn script(seed: u64) -> Script {
    let mut rng = Rng::new(seed);
    let setup = vec![Act::Mkdir(DIR.to_owned()), Act::Sync];
    let mut model = Model::default();
    for act in &setup {
        let _ = model.apply(act);
    }
    let (mut acts, mut next) = (Vec::new(), 0);
    while acts.len() < 30 {
        // What fails, because a name is there or is not, is left out.
        let some = round(&mut rng, &mut next).into_iter();
        acts.extend(some.filter(|act| model.apply(act).is_ok()));
    }
    Script { is_holding: rng.one_in(2), ..Script::new(setup, acts) }
}
