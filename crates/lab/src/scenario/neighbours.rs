//! Files whose inodes lie side by side in one block of the table, each of another caller's, who is
//! in the middle of changing it while others change two at once: what lies between two that an
//! operation has changed is another's.

use super::Script;
use crate::acts::Act;
use env::Rng;

const CALLERS: u64 = 4;
const ROUNDS: u64 = 6;
const BYTES: u64 = 12 << 10;

fn file(caller: u64, n: u64) -> String {
    format!("/c{caller}n{n}")
}

fn dir(caller: u64) -> String {
    format!("/c{caller}nd")
}

/// Operations on one inode that take a while, and on two.
fn act(rng: &mut Rng, caller: u64, round: u64) -> Vec<Act> {
    let (one, value) = (file(caller, rng.below(2)), rng.next_u64() as u8);
    let link = |one| Act::Link(one, format!("{}/l{round}", dir(caller)));
    match rng.below(6) {
        // At first two cut, who have to read what is free, and two link what lies around.
        _ if round == 0 && caller.is_multiple_of(2) => {
            vec![Act::Truncate(file(caller, 0), BYTES / 2)]
        }
        _ if round == 0 => vec![link(file(caller, 0))],
        0 | 1 => vec![Act::Truncate(one, 1 + rng.below(BYTES))],
        2 => vec![Act::Write(one, rng.below(BYTES), 5000, value)],
        3 => vec![link(one)],
        4 => vec![Act::Rename(one.clone(), file(caller, 2)), Act::Create(one)],
        _ => vec![Act::Unlink(one.clone()), Act::Create(one)],
    }
}

/// Of four inodes in a block of the table, the first and the third are one caller's, the others
/// another's; the volume's first own inode is the last of its block.
fn setup() -> Vec<Act> {
    let mut acts = vec![Act::Mkdir(dir(0))];
    for (n, one, other) in [(0, 1, 0), (0, 3, 2), (1, 0, 1), (1, 2, 3)] {
        acts.push(if n == 0 { Act::Mkdir(dir(one)) } else { Act::Create(file(one, 2)) });
        acts.push(Act::Create(file(other, n)));
        acts.push(Act::Create(file(one, n)));
        acts.push(Act::Create(file(other, n + 3)));
    }
    acts.push(Act::Mkdir(dir(2)));
    // Only their last blocks are written: who cuts one in a hole looks for what lies there.
    let files = (0..CALLERS).flat_map(|c| [file(c, 0), file(c, 1)]);
    acts.extend(files.map(|f| Act::Write(f, BYTES - 12, 12, 1)));
    acts.push(Act::Sync);
    acts
}

pub(super) fn script(seed: u64) -> Script {
    let mut rng = Rng::new(seed);
    // Each does his own acts one after the other: the list is dealt to the callers in turn.
    let mut lane = |c| (0..ROUNDS).flat_map(|round| act(&mut rng, c, round)).collect();
    let lanes: Vec<Vec<Act>> = (0..CALLERS).map(&mut lane).collect();
    let all = lanes.iter().map(Vec::len).min().unwrap_or(0);
    let acts = (0..all).flat_map(|n| lanes.iter().map(move |l| l[n].clone())).collect();
    Script { callers: CALLERS as usize, ..Script::new(setup(), acts) }
}
