//! Files whose attributes are equal, which Linux keeps in one block that counts its users: they are
//! removed and given other attributes, while new files take what was freed. A count that falls
//! before the pointer that it counted is gone frees the block under another file.

use super::Script;
use crate::acts::Act;
use env::Rng;

/// Files that share.
const FILES: u64 = 6;
/// More than an inode has room for beside itself.
const ATTRIBUTE_BYTES: usize = 400;

/// Each caller has files of its own, of which their names tell.
fn file(lane: u64, what: &str, n: u64) -> String {
    format!("/c{lane}n{what}{n}")
}

pub(super) fn script(seed: u64) -> Script {
    let mut rng = Rng::new(seed ^ 0x5a4e);
    let callers = 1 + rng.below(2);
    let rounds = || (0..FILES / callers).flat_map(|n| (0..callers).map(move |lane| (lane, n)));
    let sharing: Vec<String> = rounds().map(|(lane, n)| file(lane, "shares", n)).collect();
    let mut setup: Vec<Act> = sharing.iter().cloned().map(Act::Create).collect();
    setup.push(Act::Attribute(sharing[0].clone(), ATTRIBUTE_BYTES, 0xa0));
    setup.push(Act::Sync);
    let all: Vec<[Act; 4]> = rounds().map(|at| acts(&mut rng, at)).collect();
    // One act of each caller in turn.
    let turns = all.chunks(callers as usize);
    let acts = turns.flat_map(|turn| (0..4).flat_map(|i| turn.iter().map(move |a| a[i].clone())));
    let acts: Vec<Act> = acts.collect();
    Script { sharing, callers: callers as usize, ..Script::new(setup, acts) }
}

/// A file shares no longer, and another takes what is freed too early at once.
fn acts(rng: &mut Rng, (lane, n): (u64, u64)) -> [Act; 4] {
    let (shares, new) = (file(lane, "shares", n), file(lane, "new", n));
    let first = match rng.below(3) {
        0 => Act::Attribute(shares, ATTRIBUTE_BYTES, n as u8),
        _ => Act::Unlink(shares),
    };
    let last = match rng.below(3) {
        0 => Act::Fsync(new.clone()),
        1 => Act::Attribute(new.clone(), ATTRIBUTE_BYTES, 7),
        _ => Act::Pause(rng.below(8)),
    };
    [first, Act::Create(new.clone()), Act::Write(new, 0, 5000, 9), last]
}
