//! Symbolic links whose texts lie in their inodes or in a block of their own, of every length about
//! where one ends and the other begins: made, renamed over others of the other kind, linked, taken
//! away, and files that take their blocks at once.

use super::{Act, Rng, Script, s};

/// Bytes of texts: the inode has room for 59, a block of the lab's shortest for 1023.
const LENGTHS: [usize; 8] = [1, 58, 59, 60, 61, 200, 1022, 1023];
const ROUNDS: usize = 18;

/// A text that no other round has.
fn text(rng: &mut Rng, round: usize) -> String {
    let len = LENGTHS[rng.below(LENGTHS.len() as u64) as usize];
    let letter = char::from(b'a' + (round % 26) as u8);
    letter.to_string().repeat(len)
}

pub(super) fn script(seed: u64) -> Script {
    let mut rng = Rng::new(seed ^ 0x7e47);
    let path = |rng: &mut Rng| format!("/{}/t{}", ["d", "e"][rng.below(2) as usize], rng.below(4));
    let mut setup = vec![Act::Mkdir(s("/d")), Act::Mkdir(s("/e"))];
    for n in 0..4 {
        let dir = if n % 2 == 0 { "d" } else { "e" };
        setup.push(Act::Symlink(format!("/{dir}/t{n}"), text(&mut rng, n)));
    }
    setup.push(Act::Sync);
    let mut acts = Vec::new();
    for round in 4..4 + ROUNDS {
        let (a, b) = (path(&mut rng), path(&mut rng));
        match rng.below(9) {
            0..=2 => acts.push(Act::Symlink(a, text(&mut rng, round))),
            3 => {
                // As `ln -sf` does it.
                let new = format!("/d/new{round}");
                acts.push(Act::Symlink(new.clone(), text(&mut rng, round)));
                acts.push(Act::Rename(new, a));
            }
            4 => acts.push(Act::Rename(a, b)),
            5 => acts.push(Act::Link(a, b)),
            6..=7 => acts.extend([Act::Unlink(a.clone()), Act::Symlink(a, text(&mut rng, round))]),
            _ => {
                let f = format!("/e/f{round}");
                acts.extend([Act::Unlink(a), Act::Create(f.clone())]);
                acts.push(Act::Write(f.clone(), 0, 3000, round as u8));
                acts.push(Act::Fsync(f));
            }
        }
        match rng.below(6) {
            0 => acts.push(Act::Fsync(s("/d"))),
            1 => acts.push(Act::Fsync(s("/e"))),
            2 if rng.one_in(3) => acts.push(Act::Sync),
            3 => acts.push(Act::Pause(rng.below(4))),
            _ => (),
        }
    }
    Script::new(setup, acts)
}
