//! Attributes whose values have no room in a block on a volume with ea_inode, and so lie in inodes
//! of their own: set, replaced by longer and shorter ones, and freed with their files, while others
//! take what was freed. On some volumes there is room for few, and more are refused in the middle.

use super::Script;
use crate::acts::Act;
use env::Rng;

/// The scenario for volumes with `ea_inode` alone.
pub const VALUES: &str = "values";

const FILES: u64 = 4;
const ACTS: u64 = 18;
/// A volume on which there is hardly room, and what is left of it.
const SMALL_BYTES: u64 = 1 << 20;
const LEFT_BYTES: usize = 24 << 10;

fn file(lane: u64, n: u64) -> String {
    format!("/c{lane}nv{n}")
}

/// Beside the inode, in a block, or beyond one.
fn bytes(rng: &mut Rng) -> usize {
    let most = [60, 700, 3000, 20_000][rng.below(4) as usize];
    1 + rng.below(most) as usize
}

pub(super) fn script(seed: u64) -> Script {
    let mut rng = Rng::new(seed ^ 0xea1);
    let callers = 1 + rng.below(2);
    let mut setup = Vec::new();
    for (lane, n) in (0..callers).flat_map(|lane| (0..FILES).map(move |n| (lane, n))) {
        setup.push(Act::Create(file(lane, n)));
        setup.push(Act::Attribute(file(lane, n), 400 * (1 + n as usize) * (1 + n as usize), 1));
    }
    let is_full = rng.one_in(3);
    if is_full {
        let (spare, fill) = ("/spare".to_owned(), "/fill".to_owned());
        setup.extend([Act::Create(spare.clone()), Act::Create(fill.clone())]);
        setup.push(Act::Write(spare.clone(), 0, LEFT_BYTES, 1));
        // Until there is no room: the rest is refused.
        setup.extend((0..SMALL_BYTES >> 10).map(|n| Act::Write(fill.clone(), n << 10, 1024, 1)));
        setup.push(Act::Unlink(spare));
    }
    setup.push(Act::Sync);
    let mut acts = Vec::new();
    for n in 0..ACTS {
        for lane in 0..callers {
            let f = file(lane, rng.below(FILES));
            let value = 2 + rng.below(200) as u8;
            acts.push(match rng.below(10) {
                0 => Act::Unlink(f),
                1 => Act::Create(f),
                2 => Act::Rename(f, file(lane, rng.below(FILES))),
                3 => Act::Write(f, 0, 1 + rng.below(9000) as usize, value),
                4 if n % 2 == 0 => Act::Fsync(f),
                5 => Act::Pause(rng.below(7)),
                _ => Act::Attribute(f, bytes(&mut rng), value),
            });
        }
    }
    let mut script = Script { callers: callers as usize, ..Script::new(setup, acts) };
    script.volume_bytes = if is_full { SMALL_BYTES } else { script.volume_bytes };
    script
}
