//! Volumes whose inodes are as long as those of ext2 once were, 128 bytes: twice as many in a
//! block, times in seconds, no room for attributes. The acts are those of other scenarios, with
//! time between them where that is what they are about.

use super::{Act, Rng, Script, attributes, dates, random};

pub(super) fn script(seed: u64) -> Script {
    let mut rng = Rng::new(seed ^ 0x128);
    let of = seed / 3;
    let script = match seed % 3 {
        0 => {
            let all = dates::script(of);
            let rests = |act: Act| {
                let rest = rng.one_in(3).then(|| Act::Pause(1 + rng.below(2)));
                [Some(act), rest].into_iter().flatten()
            };
            let acts = all.acts.into_iter().flat_map(rests).collect();
            Script { acts, setup: all.setup, ..Script::new(Vec::new(), Vec::new()) }
        }
        1 => attributes::script(of),
        _ => random(of),
    };
    Script { has_small_inodes: true, ..script }
}
