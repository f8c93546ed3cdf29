//! Names that go about between directories of many blocks, some behind an indirect one: files with
//! several names, with attributes, links by text, and directories, which take theirs along. What is
//! left behind is taken by new names, and directories that have become empty are removed.

use super::Script;
use crate::acts::Act;
use crate::model::{Model, Node};
use env::Rng;

/// Directories that all callers share.
const DIRS: u64 = 3;
/// Long names in each of them before: more than its own pointers have blocks for, in the first.
const NAMES: [u64; DIRS as usize] = [50, 20, 3];
/// Acts of each caller.
const ACTS: usize = 18;

fn dir(n: u64) -> String {
    format!("/big{n}")
}

/// A name of the caller's in one of the directories.
fn name(rng: &mut Rng, caller: u64) -> String {
    let long = if rng.one_in(2) { "n".repeat(200) } else { String::new() };
    format!("{}/c{caller}n{}{long}", dir(rng.below(DIRS)), rng.below(12))
}

/// One that is there and is the caller's, with what it is.
fn any(rng: &mut Rng, model: &Model, caller: u64) -> Option<(String, bool)> {
    let mark = format!("/c{caller}n");
    let tree = model.tree();
    let mine: Vec<_> = tree.iter().filter(|(p, _)| p.contains(&mark)).collect();
    if mine.is_empty() {
        return None;
    }
    let (path, id) = mine[rng.below(mine.len() as u64) as usize];
    Some((path.clone(), matches!(model.node(*id), Node::Dir(_))))
}

fn act(rng: &mut Rng, model: &Model, caller: u64) -> Act {
    let new = name(rng, caller);
    let Some((old, is_dir)) = any(rng, model, caller) else { return Act::Create(new) };
    let value = rng.next_u64() as u8;
    match (rng.below(16), is_dir) {
        (0..=5, _) => Act::Rename(old, new),
        (6, false) => Act::Link(old, new),
        (7, true) => Act::Create(format!("{old}/c{caller}nin")),
        (7 | 8, false) => Act::Unlink(old),
        (8 | 9, true) => Act::Rmdir(old),
        (9, false) => Act::Attribute(old, 100 + rng.below(400) as usize, value),
        (10, false) => Act::Write(old, 0, 1 + rng.below(15_000) as usize, value),
        (10 | 11, true) => Act::Rename(old, new),
        (11, false) => Act::Fsync(old),
        (12, _) => Act::Mkdir(new),
        (13, _) => Act::Symlink(new, "t".repeat(if rng.one_in(2) { 20 } else { 300 })),
        (14, _) => Act::Pause(rng.below(4)),
        _ => Act::Create(new),
    }
}

pub(super) fn script(seed: u64) -> Script {
    let mut rng = Rng::new(seed ^ 0x5f1e);
    let callers = 1 + rng.below(3);
    let mut setup = Vec::new();
    for d in 0..DIRS {
        setup.push(Act::Mkdir(dir(d)));
        let old = |n: u64| format!("{}/{}{n}", dir(d), "o".repeat(220));
        setup.extend((0..NAMES[d as usize]).map(|n| Act::Create(old(n))));
        for c in 0..callers {
            setup.push(Act::Create(format!("{}/c{c}nold{d}", dir(d))));
            setup.push(Act::Mkdir(format!("{}/c{c}nsub{d}", dir(d))));
        }
    }
    setup.push(Act::Sync);
    let mut models: Vec<Model> = (0..callers).map(|_| Model::default()).collect();
    for m in &mut models {
        for act in &setup {
            let _ = m.apply(act);
        }
    }
    let mut acts = Vec::new();
    for (_, c) in (0..ACTS).flat_map(|n| (0..callers).map(move |c| (n, c))) {
        let model = &mut models[c as usize];
        let next = loop {
            let act = act(&mut rng, model, c);
            if model.apply(&act).is_ok() {
                break act;
            }
        };
        acts.push(next);
    }
    Script { callers: callers as usize, ..Script::new(setup, acts) }
}
