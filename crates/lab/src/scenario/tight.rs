//! A volume on which there is hardly room: files go and others take what they held at once, which
//! may not be before it is durable that they have gone. Written in single blocks, so that an act is
//! done or refused, never in part.

use super::Script;
use crate::acts::Act;
use env::Rng;

const CALLERS: u64 = 3;
const ROUNDS: u64 = 8;
/// Blocks of a file.
const BLOCKS: u64 = 6;
/// Of the volume, of which some 800 KiB hold files.
const VOLUME_BYTES: u64 = 1 << 20;
/// The smallest block there is, so that no write is of two.
const BYTES: u64 = 1024;

fn old(caller: u64, n: u64) -> String {
    format!("/c{caller}nold{n}")
}

fn one_block(file: &str, block: u64, byte: u64) -> Act {
    Act::Write(file.to_owned(), block * 4 * BYTES, BYTES as usize, byte as u8)
}

/// What makes room.
fn less(rng: &mut Rng, caller: u64, n: u64) -> Act {
    match rng.below(3) {
        0 => Act::Truncate(old(caller, n), rng.below(2) * 4 * BYTES),
        1 => Act::Punch(old(caller, n), 0, BLOCKS * 4 * BYTES),
        _ => Act::Unlink(old(caller, n)),
    }
}

pub(super) fn script(seed: u64) -> Script {
    let mut rng = Rng::new(seed);
    let mut setup = Vec::new();
    for (n, c) in (0..ROUNDS).flat_map(|n| (0..CALLERS).map(move |c| (n, c))) {
        setup.push(Act::Create(old(c, n)));
        setup.extend((0..BLOCKS).map(|b| one_block(&old(c, n), b, 0x20 + n)));
    }
    // Until there is no room: the rest is refused.
    for n in 0..4 {
        setup.push(Act::Create(format!("/fill{n}")));
        setup.extend((0..200).map(|b| one_block(&format!("/fill{n}"), b, 1)));
    }
    setup.push(Act::Sync);
    let mut lanes: Vec<Vec<Act>> = Vec::new();
    for c in 0..CALLERS {
        let mut acts = Vec::new();
        for n in 0..ROUNDS {
            let new = format!("/c{c}nnew{n}");
            acts.extend([Act::Create(new.clone()), less(&mut rng, c, n)]);
            acts.extend((0..BLOCKS).map(|b| one_block(&new, b, 0x80 + n)));
            let durable = rng.one_in(3);
            acts.push(if durable { Act::Fsync(new) } else { Act::Pause(rng.below(2)) });
        }
        lanes.push(acts);
    }
    let rounds = lanes[0].len();
    assert!(lanes.iter().all(|l| l.len() == rounds), "each caller has as many acts");
    let acts = (0..rounds).flat_map(|i| lanes.iter().map(move |l| l[i].clone())).collect();
    let volume_bytes = VOLUME_BYTES;
    Script { callers: CALLERS as usize, volume_bytes, ..Script::new(setup, acts) }
}
