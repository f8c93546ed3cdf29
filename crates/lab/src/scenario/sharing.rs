//! Files whose attributes are equal, which Linux keeps in one block that counts its users: they are
//! removed and given other attributes, while new files take what was freed. A count that falls
//! before the pointer that it counted is gone frees the block under another file.

use super::{Script, s};
use crate::acts::Act;
use env::Rng;

/// Files that share.
const FILES: u64 = 6;
/// More than an inode has room for beside itself.
const ATTRIBUTE_BYTES: usize = 400;

pub(super) fn script(seed: u64) -> Script {
    let mut rng = Rng::new(seed ^ 0x5a4e);
    let file = |n: u64| format!("/f{n}");
    let mut setup: Vec<Act> = (0..FILES).map(|n| Act::Create(file(n))).collect();
    setup.push(Act::Attribute(file(0), ATTRIBUTE_BYTES, 0xa0));
    setup.extend([Act::Create(s("/other")), Act::Sync]);
    // Several have no file in common: what one makes durable would be what another had written.
    let callers = 1 + rng.below(2) as usize;
    let mut acts = Vec::new();
    for n in 0..FILES {
        acts.push(match rng.below(3) {
            0 => Act::Attribute(file(n), ATTRIBUTE_BYTES, n as u8),
            _ => Act::Unlink(file(n)),
        });
        acts.push(Act::Create(format!("/new{n}")));
        if callers > 1 {
            acts.push(Act::Fsync(s("/other")));
            continue;
        }
        // What is freed too early is taken at once.
        acts.push(Act::Write(format!("/new{n}"), 0, 5000, 9));
        acts.push(match rng.below(4) {
            0 => Act::Fsync(format!("/new{n}")),
            1 => Act::Fsync(s("/other")),
            2 => Act::Attribute(format!("/new{n}"), ATTRIBUTE_BYTES, 7),
            _ => Act::Pause(rng.below(8)),
        });
    }
    let sharing = (0..FILES).map(file).collect();
    Script { sharing, callers, ..Script::new(setup, acts) }
}
