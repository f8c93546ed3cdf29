//! New contents that are freed again while they, and others' contents, are still being written
//! back: what was to wait for them must not become durable without what freed them.

use super::{Script, s};
use crate::acts::Act;
use env::Rng;

/// Callers: with one to do it all, the others only look on.
const CALLERS: usize = 4;
/// How often it is done.
const ROUNDS: u64 = 4;

/// Blocks that held other bytes are free; `/c0ne` and `/c2nc` have contents, and the file of each
/// round is there and empty.
fn setup(long: usize) -> Vec<Act> {
    let written =
        |p: &str, len: usize, value: u8| vec![Act::Create(s(p)), Act::Write(s(p), 0, len, value)];
    let mut acts = written("/gone", 60_000, 0xee);
    acts.extend(written("/c0nx", 900, 1));
    acts.extend(written("/c0ne", long, 2));
    acts.extend(written("/c0nc", long, 3));
    acts.extend(written("/c2nc", long, 4));
    for n in 0..ROUNDS {
        acts.push(Act::Create(format!("/c1na{n}")));
        acts.push(Act::Create(format!("/c0na{n}")));
        acts.push(Act::Create(format!("/c0nb{n}")));
    }
    acts.extend([Act::Sync, Act::Unlink(s("/gone")), Act::Sync]);
    acts
}

/// One caller does it one after the other; the small write is what the fsync waits for.
fn alone(rng: &mut Rng, round: u64, long: usize) -> Vec<[Act; CALLERS]> {
    let file = format!("/c0na{round}");
    let value = 0x10 + round as u8;
    let freed = match rng.below(4) {
        0 => Act::Unlink(file.clone()),
        1 => Act::Truncate(file.clone(), rng.below(long as u64)),
        2 => Act::Punch(file.clone(), 0, long as u64),
        _ => Act::Rename(format!("/c0nb{round}"), file.clone()),
    };
    let acts = [
        Act::Write(s("/c0nx"), 0, 1 + rng.below(900) as usize, value),
        Act::Write(file, 0, long, value),
        Act::Write(s("/c0nc"), 0, long, value),
        freed,
        Act::Fsync(s("/c0nx")),
    ];
    let idle = || Act::Pause(0);
    acts.map(|a| [a, idle(), idle(), idle()]).into()
}

/// Four at once: the first one's contents are being written back when the others come. Whoever
/// waits for contents of its own is answered before who waits for others', and begins the next
/// round before it; so two change places from round to round.
fn together(round: u64, long: usize) -> Vec<[Act; CALLERS]> {
    let file = format!("/c1na{round}");
    let value = 0x10 + round as u8;
    let write = |p: &str| Act::Write(s(p), 0, long, value);
    let mut acts = [write("/c0ne"), write(&file), write("/c2nc"), Act::Unlink(file.clone())];
    if round % 2 == 1 {
        acts.swap(1, 2);
    }
    vec![acts]
}

pub(super) fn script(seed: u64) -> Script {
    let mut rng = Rng::new(seed);
    let long = 3000 + rng.below(9000) as usize;
    let is_alone = rng.one_in(2);
    let mut acts = Vec::new();
    for round in 0..ROUNDS {
        let rows = if is_alone { alone(&mut rng, round, long) } else { together(round, long) };
        acts.extend(rows.into_iter().flatten());
        acts.extend((0..CALLERS).map(|_| Act::Pause(1)));
    }
    Script { callers: CALLERS, ..Script::new(setup(long), acts) }
}
