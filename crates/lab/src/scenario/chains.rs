//! Most names of a directory change, one after the other: each new one is made in the place of an
//! old one that waits for its own, and so on, until names take other places. Between them names
//! come and go, and some of it is made durable.

use super::Script;
use crate::acts::Act;
use env::Rng;

/// Names there are before: several sectors full.
const NAMES: usize = 44;

pub(super) fn script(seed: u64) -> Script {
    let mut rng = Rng::new(seed);
    let tail = "t".repeat(rng.below(24) as usize);
    let name = |n: usize, round: u64| format!("/d/{round}n{n:03}{tail}");
    let mut setup = vec![Act::Mkdir("/d".into()), Act::Mkdir("/e".into())];
    for n in 0..NAMES {
        setup.push(Act::Create(name(n, 0)));
        if n % 8 == 0 {
            setup.push(Act::Write(name(n, 0), 0, 600, n as u8));
        }
    }
    setup.push(Act::Sync);
    let (mut acts, mut rounds) = (Vec::new(), vec![0; NAMES]);
    // In one turn or at random; some change twice.
    for k in 0..NAMES + 8 {
        let n = if rng.one_in(3) { rng.below(NAMES as u64) as usize } else { k % NAMES };
        let old = name(n, rounds[n]);
        rounds[n] += 1;
        let new = name(n, rounds[n]);
        match rng.below(12) {
            0 => acts.extend([Act::Link(old.clone(), new), Act::Unlink(old)]),
            1 => acts
                .extend([Act::Rename(old, format!("/e/{k}")), Act::Rename(format!("/e/{k}"), new)]),
            _ => acts.push(Act::Rename(old, new)),
        }
        match rng.below(40) {
            0 => acts.push(Act::Fsync(name(n, rounds[n]))),
            1 => acts.push(Act::Pause(1 + rng.below(6))),
            2 => acts.extend([Act::Create(format!("/d/c{k}")), Act::Unlink(format!("/d/c{k}"))]),
            3 => acts.push(Act::Create(format!("/d/k{k}"))),
            _ => (),
        }
    }
    acts.push(if rng.one_in(2) { Act::Sync } else { Act::Fsync(name(0, rounds[0])) });
    Script::new(setup, acts)
}
