//! Names that change places, and names that come again where others were: two entries of one sector
//! take each other's inodes, and a name that went and came and went comes back in a slot that
//! another has left. Files and directories, made durable one at a time.

use super::{Script, s};
use crate::acts::Act;
use crate::model::Model;
use env::Rng;

/// So long is the end of a name of which a sector has room for few.
const LONG: &str = "-that-takes-so-much-of-a-sector-that-few-of-them-fit";
/// Names that fill blocks of a KiB, each with no room left.
const FULL: usize = 60;
/// Acts of a script.
const ACTS: usize = 18;

/// Every third seed is about names that come again, the others about places.
pub(super) fn script(seed: u64) -> Script {
    if seed % 3 == 2 { again(seed) } else { places(seed) }
}

fn kept(setup: Vec<Act>, acts: impl FnMut(&Model) -> Vec<Act>) -> Script {
    let mut model = Model::default();
    for act in &setup {
        let _ = model.apply(act);
    }
    let (mut next, mut all) = (acts, Vec::new());
    while all.len() < ACTS {
        // What fails, because a name is there or is not, is left out.
        let some = next(&model);
        all.extend(some.into_iter().filter(|act| model.apply(act).is_ok()));
    }
    Script::new(setup, all)
}

/// Files and directories side by side in one directory, with something in each of these.
fn places(seed: u64) -> Script {
    let mut rng = Rng::new(seed ^ 0x5a4b);
    let mut setup = vec![Act::Mkdir(s("/A"))];
    for n in 0..3 {
        setup.push(Act::Create(format!("/A/f{n}")));
        setup.push(Act::Write(format!("/A/f{n}"), 0, 600 + 1500 * n, 1 + n as u8));
        setup.push(Act::Mkdir(format!("/A/d{n}")));
        setup.push(Act::Create(format!("/A/d{n}/in")));
        setup.push(Act::Write(format!("/A/d{n}/in"), 0, 900, 0x11 + n as u8));
    }
    setup.push(Act::Sync);
    let mut count = 0;
    kept(setup, |model| {
        count += 1;
        let all: Vec<String> = model.tree().into_keys().collect();
        let of_a: Vec<&String> = all.iter().filter(|p| p.matches('/').count() == 2).collect();
        let any = |rng: &mut Rng| of_a[rng.below(of_a.len() as u64) as usize].clone();
        let (a, b) = (any(&mut rng), any(&mut rng));
        let below: Vec<&String> = all.iter().filter(|p| p.matches('/').count() == 3).collect();
        match rng.below(12) {
            0..=4 if a != b => vec![Act::Exchange(a, b)],
            5 => vec![Act::Rename(a, b)],
            6 => vec![Act::Create(format!("/A/n{count}"))],
            7 => vec![Act::Unlink(a)],
            8 => vec![Act::Link(a, format!("/A/l{count}"))],
            9 => vec![Act::Fsync(a)],
            10 => vec![Act::Fsync(s("/A"))],
            _ if !below.is_empty() => {
                let p = below[rng.below(below.len() as u64) as usize].clone();
                match rng.below(4) {
                    0 => vec![Act::Write(p.clone(), 300, 900, count as u8), Act::Fsync(p)],
                    1 => vec![Act::WriteSync(p, 300, 900, count as u8)],
                    _ => vec![Act::Fsync(p)],
                }
            }
            _ => vec![Act::Pause(2)],
        }
    })
}

/// Full blocks of names, of which single ones go and come: the only room is where another was.
fn again(seed: u64) -> Script {
    let mut rng = Rng::new(seed ^ 0xa6a1);
    let name = |n: u64| format!("/A/n{n:02}{LONG}");
    let mut setup = vec![Act::Mkdir(s("/A"))];
    setup.extend((0..FULL as u64).map(|n| Act::Create(name(n))));
    setup.push(Act::Sync);
    kept(setup, |model| {
        // Of the same few: they go from the end, and room is made before them.
        let (late, early) = (name(50 + rng.below(5)), name(rng.below(40)));
        let comes = Act::Create(late.clone());
        match rng.below(8) {
            0 | 1 => {
                let back = [Act::Unlink(late.clone()), comes.clone(), Act::Unlink(late.clone())];
                let then = [Act::Unlink(early), comes, Act::Fsync(late)];
                back.into_iter().chain(then).collect()
            }
            2 => vec![Act::Unlink(late)],
            3 => vec![comes],
            4 => vec![Act::Unlink(early)],
            5 => vec![Act::Rename(early, late)],
            6 => vec![Act::Fsync(late)],
            _ if model.find(&late).is_ok() => vec![Act::Exchange(late, early)],
            _ => vec![Act::Fsync(early)],
        }
    })
}
