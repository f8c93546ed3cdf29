//! A store without free segments but those that are kept back: its cleaner makes room, into new
//! segments or into holes, while callers write, at times more at once than there is room for.

use super::Script;
use crate::acts::Act;
use env::Rng;

const CALLERS: u64 = 3;
/// Files of each caller, and bytes of each.
const FILES: u64 = 3;
const BYTES: u64 = 150_000;
/// The volume: its store has twice as many.
const VOLUME_BYTES: u64 = 1 << 20;
const BLOCK: u64 = 4096;

fn file(caller: u64, n: u64) -> String {
    format!("/c{caller}nf{n}")
}

/// Some blocks of one of a caller's files.
fn overwrite(rng: &mut Rng, caller: u64, blocks: u64) -> Act {
    let at = rng.below(BYTES / BLOCK - blocks) * BLOCK;
    let len = rng.below(blocks * BLOCK) + 1;
    Act::Write(file(caller, rng.below(FILES)), at, len as usize, rng.next_u64() as u8)
}

/// What one caller does next.
fn next(rng: &mut Rng, caller: u64, n: u64) -> Act {
    let own = file(caller, rng.below(FILES));
    match rng.below(16) {
        0 => Act::Create(format!("/c{caller}nnew{n}")),
        1 => Act::Rename(format!("/c{caller}nnew{}", rng.below(n + 1)), format!("/c{caller}nr")),
        2 => Act::Truncate(own, rng.below(BYTES)),
        3 => Act::Unlink(format!("/c{caller}nr")),
        4 => Act::Punch(own, rng.below(BYTES / 2), rng.below(BYTES / 2)),
        5..=6 => Act::Write(own, 0, BYTES as usize, rng.next_u64() as u8),
        7..=9 => Act::Fsync(own),
        _ => overwrite(rng, caller, 6),
    }
}

pub(super) fn script(seed: u64) -> Script {
    let mut rng = Rng::new(seed);
    let all = || (0..CALLERS).flat_map(|c| (0..FILES).map(move |n| file(c, n)));
    let mut setup: Vec<Act> =
        all().flat_map(|f| [Act::Create(f.clone()), Act::Write(f, 0, BYTES as usize, 1)]).collect();
    setup.push(Act::Sync);
    // Each seed begins elsewhere between one cleaning and the next.
    for n in 0..160 + rng.below(40) {
        setup.push(overwrite(&mut rng, n % CALLERS, 3));
    }
    setup.push(Act::Sync);
    let acts = (0..36).map(|n| next(&mut rng, n % CALLERS, n)).collect();
    let volume_bytes = VOLUME_BYTES;
    Script { callers: CALLERS as usize, volume_bytes, ..Script::new(setup, acts) }
}
