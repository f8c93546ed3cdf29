//! A small journal that goes round: what is written over, and what is still needed of it. Only the
//! end of each run is looked at.

use super::{Act, Rng, Script};

/// Small fsynced changes until the journal has been used up; only the end is looked at.
pub(super) fn script(seed: u64) -> Script {
    let mut rng = Rng::new(seed);
    let file = |i: u64| format!("/w{i}");
    let setup = (0..4).map(|i| Act::Create(file(i))).chain([Act::Sync]).collect();
    let mut acts = Vec::new();
    for n in 0..150u64 {
        let i = rng.below(4);
        let (at, len) = (rng.below(20_000), 1 + rng.below(2500));
        let value = if n % 7 == 0 { 0xc0 } else { rng.next_u64() as u8 };
        acts.push(Act::Write(file(i), at, len as usize, value));
        acts.push(Act::Fsync(file(i)));
        if n % 3 == 0 {
            acts.push(Act::Create(format!("/x{n}")));
            acts.push(Act::Fsync(format!("/x{n}")));
        }
    }
    let from = acts.len() / 2 + rng.below(acts.len() as u64 / 2) as usize;
    Script { from, ..Script::new(setup, acts) }
}
