//! Files whose inodes lie side by side in one block of the table, each of another caller's, who is
//! in the middle of changing it while others change two at once: what lies between two that an
//! operation has changed is another's.

use super::Script;
use crate::acts::Act;
use env::Rng;

const CALLERS: u64 = 4;
/// Files of each, made in turn.
const FILES: u64 = 3;
const ROUNDS: u64 = 6;
const BYTES: u64 = 12 << 10;

fn file(caller: u64, n: u64) -> String {
    format!("/c{caller}n{n}")
}

/// Operations on one inode that take a while, and on two.
fn act(rng: &mut Rng, caller: u64, round: u64) -> Vec<Act> {
    let (one, other) = (file(caller, rng.below(2)), file(caller, 2));
    let value = rng.next_u64() as u8;
    // At first two cut, who have to read what is free, and two link files that lie behind those.
    let what = if round == 0 { 3 * (caller % 2) } else { rng.below(6) };
    let one = if round == 0 { file(caller, 0) } else { one };
    match what {
        0 | 1 => vec![Act::Truncate(one, 1 + rng.below(BYTES))],
        2 => vec![Act::Write(one, rng.below(BYTES), 5000, value)],
        3 => vec![Act::Link(one, format!("/c{caller}nlink{round}"))],
        4 => vec![Act::Rename(one.clone(), other), Act::Create(one)],
        _ => vec![Act::Unlink(one.clone()), Act::Create(one)],
    }
}

pub(super) fn script(seed: u64) -> Script {
    let mut rng = Rng::new(seed);
    let all = || (0..FILES).flat_map(|n| (0..CALLERS).map(move |c| file(c, n)));
    let made = all().map(Act::Create);
    // Only their last blocks are written: who cuts one in a hole looks for what lies there.
    let written = all().map(|f| Act::Write(f, BYTES - 12, 12, 1));
    let setup = made.chain(written).chain([Act::Sync]).collect();
    // Each does his own acts one after the other: the list is dealt to the callers in turn.
    let mut lane = |c| (0..ROUNDS).flat_map(|round| act(&mut rng, c, round)).collect();
    let lanes: Vec<Vec<Act>> = (0..CALLERS).map(&mut lane).collect();
    let all = lanes.iter().map(Vec::len).min().unwrap_or(0);
    let acts = (0..all).flat_map(|n| lanes.iter().map(move |l| l[n].clone())).collect();
    Script { callers: CALLERS as usize, ..Script::new(setup, acts) }
}
