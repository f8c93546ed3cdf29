//! Ranges that are zeroed, on a volume of ext4: the blocks that held something are given back, and
//! others that were never written take their places. They are written, cut and made durable
//! afterwards, or not.

use super::{Script, s, used_before};
use crate::acts::Act;
use env::Rng;

/// Bytes of each of the files.
const BYTES: u64 = 24 << 10;

pub(super) fn script(seed: u64) -> Script {
    let mut rng = Rng::new(seed);
    let files = ["/a", "/b"];
    let mut setup: Vec<Act> = files.iter().map(|f| Act::Create(s(f))).collect();
    setup.extend(used_before());
    for f in files {
        setup.push(Act::Write(s(f), 0, BYTES as usize, f.as_bytes()[1]));
    }
    setup.push(Act::Sync);
    Script::new(setup, acts(&mut rng, &files))
}

fn acts(rng: &mut Rng, files: &[&str]) -> Vec<Act> {
    let mut acts = Vec::new();
    for n in 0..12 {
        let f = s(files[rng.below(2) as usize]);
        let at = rng.below(BYTES);
        let value = 1 + rng.below(200) as u8;
        match rng.below(8) {
            0 => acts.push(Act::Write(f, at, 1 + rng.below(4000) as usize, value)),
            1 => acts.push(Act::Truncate(f, rng.below(BYTES))),
            2 => acts.push(Act::Punch(f, at, 1 + rng.below(5000))),
            _ => {
                let whole = rng.one_in(2);
                let at = if whole { at & !1023 } else { at };
                let len = if whole { 1024 * (1 + rng.below(8)) } else { 1 + rng.below(7000) };
                acts.push(Act::Zero(f.clone(), at, len, rng.one_in(2)));
                if rng.one_in(2) {
                    let some = 1 + rng.below(len) as usize;
                    acts.push(Act::Write(f, at + rng.below(600), some, value));
                }
            }
        }
        if n % 3 == 0 {
            acts.push(match rng.below(3) {
                0 => Act::Sync,
                _ => Act::Fsync(s(files[rng.below(2) as usize])),
            });
        }
    }
    acts
}
