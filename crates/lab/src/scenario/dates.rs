//! Files of which hardly more than the times change, side by side in their blocks of inodes:
//! written in place, dated as who copies files does, given owners and second names, read; and made
//! durable one at a time. A time that is lost shows only if nothing else takes its inode to the
//! disk.

use super::{Act, Rng, Script, s};

const FILES: u64 = 6;
const BYTES: u64 = 6000;

pub(super) fn script(seed: u64) -> Script {
    let mut rng = Rng::new(seed);
    let file = |n: u64| format!("/d/f{n}");
    let made = |n: u64| [Act::Create(file(n)), Act::Write(file(n), 0, BYTES as usize, 1 + n as u8)];
    let setup = [Act::Mkdir(s("/d"))].into_iter().chain((0..FILES).flat_map(made));
    let setup = setup.chain([Act::Sync]).collect();
    let mut acts = Vec::new();
    for round in 0..14u64 {
        let p = file(rng.below(FILES));
        let long = if rng.one_in(3) { 3000 } else { 100 };
        let write = Act::Write(p.clone(), rng.below(BYTES - long), long as usize, round as u8);
        match rng.below(8) {
            0..=2 => acts.push(write),
            3..=4 => acts.push(Act::Date(p.clone(), round as u8)),
            // Dated after it was written, as who copies files does.
            5 => acts.extend([write, Act::Date(p.clone(), round as u8)]),
            6 => acts.push(Act::Own(p.clone(), 1 + round as u8)),
            _ => acts.push(Act::Read(p.clone())),
        }
        if rng.one_in(8) {
            acts.push(Act::Link(p.clone(), format!("/d/l{round}")));
        }
        acts.push(match rng.below(6) {
            0 => Act::Fdatasync(p),
            1 => Act::Date(s("/d"), 100 + round as u8),
            2 => Act::Fsync(s("/d")),
            _ => Act::Fsync(p),
        });
    }
    Script { ticks: true, ..Script::new(setup, acts) }
}
