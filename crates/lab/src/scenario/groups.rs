//! A volume of many small groups in hardly any memory: the blocks of group descriptors are not
//! kept, but read when a group is used, and go again with what was changed in them. Directories are
//! spread over the groups; what is in them comes and goes while others' contents take the memory.

use super::Script;
use crate::acts::Act;
use env::Rng;

/// The third scenario for volumes of ext4 alone.
pub const GROUPS: &str = "groups";

/// Directories, by each of which another group is used.
const DIRS: u64 = 16;
const ACTS: u64 = 24;
/// Forty groups of [`GROUP_BLOCKS`]: three blocks of descriptors.
const VOLUME_BYTES: u64 = 10 << 20;
/// Blocks of a group of such a volume.
pub(crate) const GROUP_BLOCKS: u32 = 256;
/// Blocks of memory in which it is used: less than a block of descriptors stays by itself.
pub(crate) const CACHE_BLOCKS: usize = 64;

fn dir(n: u64) -> String {
    format!("/g{n}")
}

pub(super) fn script(seed: u64) -> Script {
    let mut rng = Rng::new(seed ^ 0x6702);
    let mut setup: Vec<Act> = Vec::new();
    for d in 0..DIRS {
        let file = format!("{}/old", dir(d));
        setup.extend([Act::Mkdir(dir(d)), Act::Create(file.clone())]);
        setup.push(Act::Write(file, 0, 5000, 1 + d as u8));
    }
    setup.push(Act::Sync);
    let mut acts = Vec::new();
    for n in 0..ACTS {
        let d = dir(rng.below(DIRS));
        let (old, new) = (format!("{d}/old"), format!("{d}/n{n}"));
        match rng.below(8) {
            0 => acts.push(Act::Unlink(old)),
            1 => acts.push(Act::Truncate(old, rng.below(3000))),
            2 => acts.push(Act::Mkdir(format!("{d}/sub{n}"))),
            3 => acts.push(Act::Rename(old, format!("{}/moved{n}", dir(rng.below(DIRS))))),
            4 => acts.push(Act::Write(old, 4000, 9000, 0x80 + n as u8)),
            _ => {
                acts.push(Act::Create(new.clone()));
                acts.push(Act::Write(new.clone(), 0, 1 + rng.below(30_000) as usize, n as u8));
            }
        }
        match rng.below(4) {
            0 => acts.push(Act::Fsync(new)),
            1 => acts.push(Act::Read(format!("{}/old", dir(rng.below(DIRS))))),
            2 => acts.push(Act::Pause(rng.below(7))),
            _ => (),
        }
    }
    Script { volume_bytes: VOLUME_BYTES, has_small_groups: true, ..Script::new(setup, acts) }
}
