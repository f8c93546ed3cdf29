//! A directory is moved, and a file in it, which had its name long before, is made durable; then
//! everything is on its way, in any order: the file must be found.

use super::{Script, s};
use crate::acts::Act;
use env::Rng;

pub(super) fn script(seed: u64) -> Script {
    let mut rng = Rng::new(seed);
    let setup = vec![
        Act::Mkdir(s("/A")),
        Act::Mkdir(s("/A/d")),
        Act::Create(s("/A/d/f")),
        Act::Write(s("/A/d/f"), 0, 5000, 1),
        Act::Mkdir(s("/A/e")),
        Act::Mkdir(s("/B")),
        Act::Mkdir(s("/B/e")),
        Act::Sync,
    ];
    // The directory that holds the file, or the one above it; to a new name, or over an empty one.
    // Or within its own directory, where a crash may leave it both names.
    let to = match rng.below(4) {
        0 => "/B/e",
        1 => "/B/new",
        2 => "/A/e",
        _ => "/A/new",
    };
    let (from, file) = match rng.one_in(2) && to.starts_with("/B") {
        true => ("/A", format!("{to}/d/f")),
        false => ("/A/d", format!("{to}/f")),
    };
    let mut acts = vec![Act::Rename(s(from), s(to))];
    if rng.one_in(3) {
        acts.push(Act::Rename(s("/B"), s("/C")));
    }
    let file = if acts.len() > 1 { file.replacen("/B", "/C", 1) } else { file };
    if rng.one_in(2) {
        acts.push(Act::Create(s("/other")));
    }
    acts.push(match rng.below(3) {
        0 => Act::Fsync(file),
        1 => Act::Fdatasync(file),
        _ => Act::WriteSync(file, rng.below(4000), 500, 2),
    });
    acts.push(if rng.one_in(2) { Act::Sync } else { Act::Pause(40) });
    Script::new(setup, acts)
}
