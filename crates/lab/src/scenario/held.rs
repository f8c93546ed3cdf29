//! Other scenarios through a mount whose kernel holds what it has looked up: a name goes in one
//! change, the file or directory in a later one, and what both wait for is each its own. The acts
//! are those scenarios'; only who asks is another.

use super::{Script, script};

/// The scenarios.
const OF: [&str; 6] = ["callers", "random", "fronts", "moves", "mix", "postmark"];

pub(super) fn script_of(seed: u64) -> Option<Script> {
    let (of, seed) = (OF[(seed % OF.len() as u64) as usize], seed / OF.len() as u64);
    script(of, seed).map(|s| Script { is_holding: true, ..s })
}
