//! A volume that is made to stand still, as for a copy, again and again, while callers change it, a
//! second or longer than any interval: what they had been answered is durable by then and in its
//! place, nothing goes out by itself meanwhile that should not, and who has waited goes on.

use super::{Act, Rng, Script, callers};

pub(super) fn script(seed: u64) -> Script {
    let mut rng = Rng::new(seed ^ 0x57_11);
    let all = callers(!seed ^ 0x57);
    // The last caller does nothing else.
    let mut acts = Vec::new();
    for row in all.acts.chunks(all.callers) {
        acts.extend_from_slice(row);
        acts.push(match rng.below(4) {
            0 => Act::Still(0),
            1 => Act::Still(1 + rng.below(7)),
            _ => Act::Pause(0),
        });
    }
    Script { callers: all.callers + 1, acts, ..all }
}
