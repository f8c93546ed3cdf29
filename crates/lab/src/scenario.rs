//! The scenarios: what is set up, and what is done while the power may fail. In the manner of
//! CrashMonkey's ACE: each operation alone and every pair of operations over a few names, besides
//! scripted and random mixes.

use crate::acts::Act;
use crate::model::Model;
use crate::random::random_act;
use env::Rng;

/// A scenario of one seed: set up (and made durable) first, then done.
pub(crate) struct Script {
    pub(crate) setup: Vec<Act>,
    pub(crate) acts: Vec<Act>,
}

/// Names and what they are.
pub fn scenarios() -> &'static [(&'static str, &'static str)] {
    &[
        ("seq-1", "each operation alone, over a few names"),
        ("seq-2", "every pair of operations"),
        (
            "mix",
            "a scripted mix: growing directories, renames over, long symlinks, truncates, fsyncs",
        ),
        ("append", "small appends to several files, with fsync"),
        ("random", "random operations"),
    ]
}

/// How many seeds a scenario has; None: as many as wanted.
pub(crate) fn seeds(name: &str) -> Option<u64> {
    let n = operations().len() as u64;
    match name {
        "seq-1" => Some(n),
        "seq-2" => Some(n * n),
        "mix" => Some(1),
        _ => None,
    }
}

fn s(p: &str) -> String {
    p.to_owned()
}

fn base() -> Vec<Act> {
    vec![
        Act::Mkdir(s("/A")),
        Act::Mkdir(s("/B")),
        Act::Create(s("/A/f")),
        Act::Write(s("/A/f"), 0, 3000, 1),
        Act::Create(s("/B/f")),
        Act::Write(s("/B/f"), 0, 20_000, 2),
        Act::Create(s("/f")),
        Act::Mkdir(s("/A/d")),
        Act::Mkdir(s("/B/e")),
        Act::Sync,
    ]
}

/// The operations of the sequences; some fail after others, which is an answer too.
fn operations() -> Vec<Act> {
    vec![
        Act::Create(s("/A/new")),
        Act::Create(s("/new")),
        Act::Mkdir(s("/A/newdir")),
        Act::Symlink(s("/A/short"), s("target")),
        Act::Symlink(s("/B/long"), "x".repeat(300)),
        Act::Link(s("/A/f"), s("/B/hard")),
        Act::Link(s("/f"), s("/A/hard")),
        Act::Unlink(s("/A/f")),
        Act::Unlink(s("/B/f")),
        Act::Rmdir(s("/A/d")),
        Act::Rename(s("/A/f"), s("/A/g")),
        Act::Rename(s("/A/f"), s("/B/f")),
        Act::Rename(s("/B/f"), s("/new")),
        Act::Rename(s("/A/d"), s("/B/d")),
        Act::Rename(s("/A/d"), s("/B/e")),
        Act::Rename(s("/B"), s("/C")),
        Act::Truncate(s("/B/f"), 5000),
        Act::Truncate(s("/A/f"), 0),
        Act::Truncate(s("/f"), 30_000),
        Act::Write(s("/A/f"), 2500, 30_000, 3),
        Act::Write(s("/f"), 0, 100, 4),
        Act::Fsync(s("/A/f")),
        Act::Fsync(s("/f")),
        Act::Sync,
    ]
}

/// The script of a scenario and seed; None: no such scenario.
pub(crate) fn script(name: &str, seed: u64) -> Option<Script> {
    let all = operations();
    let n = all.len() as u64;
    Some(match name {
        "seq-1" => Script { setup: base(), acts: vec![all[(seed % n) as usize].clone()] },
        "seq-2" => {
            let (a, b) = (seed / n % n, seed % n);
            Script { setup: base(), acts: vec![all[a as usize].clone(), all[b as usize].clone()] }
        }
        "mix" => Script { setup: vec![Act::Mkdir(s("/d")), Act::Sync], acts: mix() },
        "append" => append(seed),
        "random" => random(seed),
        _ => return None,
    })
}

fn mix() -> Vec<Act> {
    let mut acts = Vec::new();
    let long = "a-name-long-enough-to-fill-a-block-with-few-of-them";
    for i in 0..30 {
        acts.push(Act::Create(format!("/d/{long}-{i}")));
    }
    acts.push(Act::Write(format!("/d/{long}-3"), 0, 15_000, 5));
    acts.push(Act::Fsync(format!("/d/{long}-3")));
    acts.push(Act::Rename(format!("/d/{long}-4"), format!("/d/{long}-3")));
    acts.push(Act::Mkdir(s("/e")));
    acts.push(Act::Mkdir(s("/d/sub")));
    acts.push(Act::Rename(s("/d/sub"), s("/e/sub")));
    acts.push(Act::Symlink(s("/e/long"), "y".repeat(500)));
    for i in 10..20 {
        acts.push(Act::Unlink(format!("/d/{long}-{i}")));
    }
    acts.push(Act::Link(format!("/d/{long}-5"), s("/e/hard")));
    acts.push(Act::Write(s("/e/hard"), 0, 40_000, 6));
    acts.push(Act::Fsync(s("/e/hard")));
    acts.push(Act::Truncate(s("/e/hard"), 13_000));
    acts.push(Act::Create(s("/e/after")));
    acts.push(Act::Write(s("/e/after"), 0, 20_000, 7));
    acts.push(Act::Fsync(s("/e/after")));
    acts.push(Act::Unlink(s("/e/after")));
    acts.push(Act::Rmdir(s("/e/sub")));
    acts
}

fn append(seed: u64) -> Script {
    let mut rng = Rng::new(seed);
    let file = |i: u64| format!("/log{i}");
    let setup = (0..3).map(|i| Act::Create(file(i))).chain([Act::Sync]).collect();
    let mut ends = [0u64; 3];
    let mut acts = Vec::new();
    for _ in 0..25 {
        let i = rng.below(3);
        let len = 1 + rng.below(2500);
        acts.push(Act::Write(file(i), ends[i as usize], len as usize, rng.next_u64() as u8));
        ends[i as usize] += len;
        if rng.one_in(2) {
            acts.push(Act::Fsync(file(i)));
        }
    }
    Script { setup, acts }
}

fn random(seed: u64) -> Script {
    let mut rng = Rng::new(seed);
    let mut model = Model::default();
    let mut list = |n: u64, model: &mut Model| -> Vec<Act> {
        let mut acts = Vec::new();
        while (acts.len() as u64) < n {
            let act = random_act(&mut rng, model);
            if model.apply(&act).is_ok() {
                acts.push(act);
            }
        }
        acts
    };
    let mut setup = list(20, &mut model);
    setup.push(Act::Sync);
    let acts = list(25, &mut model);
    Script { setup, acts }
}
