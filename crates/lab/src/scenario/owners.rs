//! What an inode says besides its length: owner, group and permissions, and attributes that come
//! and go, of files, of directories and of what has two names; and files that are written, made
//! durable and given attributes after their last name has gone. Single files are made durable, and
//! for an NFS client everything.

use super::{Script, s};
use crate::acts::Act;
use crate::model::Model;
use env::Rng;

/// Attributes that an inode has room for, and some that it has not.
const BYTES: [usize; 4] = [10, 40, 300, 500];
/// Acts of a script.
const ACTS: usize = 18;

/// Is it gone with this name?
fn has_one_name(model: &Model, path: &str) -> bool {
    let id = model.find(path).ok();
    model.tree().into_values().filter(|i| Some(*i) == id).count() == 1
}

pub(super) fn script(seed: u64) -> Script {
    if seed % 4 == 3 {
        return lists(seed);
    }
    let mut rng = Rng::new(seed ^ 0x0e77);
    let mut setup = vec![Act::Mkdir(s("/A")), Act::Mkdir(s("/A/d"))];
    for n in 0..4 {
        setup.push(Act::Create(format!("/A/f{n}")));
        setup.push(Act::Write(format!("/A/f{n}"), 0, 700 * (1 + n), 1 + n as u8));
    }
    setup.push(Act::Attribute(s("/A/f0"), BYTES[rng.below(4) as usize], 1));
    setup.push(Act::Attribute(s("/A/d"), BYTES[rng.below(4) as usize], 1));
    setup.push(Act::Own(s("/A/f1"), 7));
    setup.push(Act::Sync);
    let mut model = Model::default();
    for act in &setup {
        let _ = model.apply(act);
    }
    let mut acts: Vec<Act> = Vec::new();
    let mut n = 1;
    while acts.len() < ACTS {
        n += 1;
        let all: Vec<String> = model.tree().into_keys().filter(|p| p != "/A").collect();
        let any = |rng: &mut Rng| all[rng.below(all.len() as u64) as usize].clone();
        let (p, q) = (any(&mut rng), any(&mut rng));
        let new = format!("/A/n{n}");
        let some = match rng.below(16) {
            0..=2 => vec![Act::Own(p, n)],
            3 | 4 => vec![Act::Attribute(p, BYTES[rng.below(4) as usize], n)],
            5 | 6 => vec![Act::Strip(p)],
            7 => vec![Act::Create(new.clone()), Act::Own(new.clone(), n), Act::Fsync(new)],
            8 if !has_one_name(&model, &p) => vec![Act::Fsync(p)],
            8 => vec![Act::Linger(p, 1 + rng.below(9000) as usize, n)],
            9 => vec![Act::Link(p, new)],
            10 => vec![Act::Write(p, rng.below(9000), 1 + rng.below(3000) as usize, n)],
            11 => vec![Act::Truncate(p, rng.below(6000))],
            12 => vec![Act::Rename(p, q)],
            13 => vec![Act::Pause(rng.below(4))],
            14 => vec![Act::Own(p.clone(), n), Act::Fsync(p)],
            _ => vec![Act::Fsync(p)],
        };
        // What fails is left out.
        acts.extend(some.into_iter().filter(|act| model.apply(act).is_ok()));
    }
    let (is_holding, is_remote) = (rng.one_in(4), rng.one_in(3));
    let remote = if is_remote { 0 } else { usize::MAX };
    Script { is_holding, remote, ..Script::new(setup, acts) }
}

/// Access lists, whose mask the group's permissions are: within the inode, and, beside a long
/// attribute, in a block.
fn lists(seed: u64) -> Script {
    let mut rng = Rng::new(seed ^ 0xacce);
    let file = |n: u64| format!("/f{n}");
    let mut setup: Vec<Act> = (0..3).map(|n| Act::Create(file(n))).collect();
    setup.push(Act::Grant(file(0), 7));
    setup.push(Act::Sync);
    let mut acts = Vec::new();
    for n in 0..ACTS as u64 {
        let p = file(rng.below(3));
        acts.push(match rng.below(8) {
            0..=3 => Act::Grant(p, rng.below(8) as u8),
            4 => Act::Attribute(p, BYTES[rng.below(4) as usize], n as u8),
            5 => Act::Write(p, rng.below(3000), 900, n as u8),
            6 => Act::Pause(rng.below(3)),
            _ => Act::Fsync(p),
        });
    }
    Script::new(setup, acts)
}
