//! A volume that is full in a store without free segments: what is there is written again, new
//! blocks are refused, files are taken away, and then everything works again. It is written in
//! single blocks where there may be no room, so that an act is done or refused, never in part.

use super::Script;
use crate::acts::Act;
use env::Rng;

const CALLERS: u64 = 3;
/// Files of each caller, and blocks of each.
const FILES: u64 = 4;
const BLOCKS: u64 = 36;
/// The volume: its store has twice as many.
const VOLUME_BYTES: u64 = 1 << 20;
const BLOCK: u64 = 4096;
/// Idle time enough for the store to do what it does by itself.
const REST_SECS: u64 = 5;

fn file(caller: u64, n: u64) -> String {
    format!("/c{caller}nf{n}")
}

fn one_block(rng: &mut Rng, caller: u64, n: u64, block: u64) -> Act {
    Act::Write(file(caller, n), block * BLOCK, BLOCK as usize, rng.next_u64() as u8)
}

/// Blocks that are there already.
fn overwrite(rng: &mut Rng, caller: u64) -> Act {
    let at = rng.below(BLOCKS - 6) * BLOCK;
    let len = (rng.below(6) + 1) * BLOCK;
    Act::Write(file(caller, rng.below(FILES - 1)), at, len as usize, rng.next_u64() as u8)
}

/// While there is no room.
fn pressed(rng: &mut Rng, caller: u64, n: u64) -> Act {
    let own = file(caller, rng.below(FILES - 1));
    match rng.below(8) {
        0 => Act::Create(format!("/c{caller}nnew{n}")),
        1 => {
            let behind = BLOCKS + rng.below(20);
            one_block(rng, caller, FILES - 1, behind)
        }
        2..=3 => Act::Fsync(own),
        _ => overwrite(rng, caller),
    }
}

/// What makes room.
fn less(rng: &mut Rng, caller: u64) -> Act {
    match rng.below(3) {
        0 => Act::Truncate(file(caller, FILES - 1), rng.below(BLOCKS) * BLOCK),
        1 => Act::Unlink(file(caller, FILES - 1)),
        _ => Act::Fsync(file(caller, 0)),
    }
}

/// When there is some again.
fn again(rng: &mut Rng, caller: u64, n: u64) -> Act {
    match rng.below(4) {
        0 => Act::Create(format!("/c{caller}nlater{n}")),
        1 => Act::Rename(file(caller, 0), format!("/c{caller}nr")),
        2 => Act::Fsync(file(caller, 1)),
        _ => {
            let behind = BLOCKS + rng.below(8);
            one_block(rng, caller, 1, behind)
        }
    }
}

/// `is_thin`: the store is full before the volume is.
pub(super) fn script(seed: u64, is_thin: bool) -> Script {
    let mut rng = Rng::new(seed);
    let all = || (0..CALLERS).flat_map(|c| (0..FILES - 1).map(move |n| file(c, n)));
    let len = (BLOCKS * BLOCK) as usize;
    let mut setup: Vec<Act> =
        all().flat_map(|f| [Act::Create(f.clone()), Act::Write(f, 0, len, 1)]).collect();
    setup.extend((0..CALLERS).map(|c| Act::Create(file(c, FILES - 1))));
    // Until there is no room: the rest is refused.
    for block in 0..BLOCKS + if is_thin { 110 } else { 24 } {
        setup.extend((0..CALLERS).map(|c| one_block(&mut rng, c, FILES - 1, block)));
    }
    setup.push(Act::Sync);
    // Each seed begins elsewhere between one cleaning and the next.
    for n in 0..100 + rng.below(60) {
        setup.push(overwrite(&mut rng, n % CALLERS));
    }
    setup.push(Act::Sync);
    let mut acts: Vec<Act> = (0..24).map(|n| pressed(&mut rng, n % CALLERS, n)).collect();
    acts.extend((0..2 * CALLERS).map(|n| less(&mut rng, n % CALLERS)));
    if is_thin {
        // In which what has emptied is given back.
        acts.extend((0..CALLERS).map(|_| Act::Pause(REST_SECS)));
    }
    acts.extend((0..12).map(|n| again(&mut rng, n % CALLERS, n)));
    let volume_bytes = VOLUME_BYTES;
    Script { callers: CALLERS as usize, volume_bytes, is_thin, ..Script::new(setup, acts) }
}
