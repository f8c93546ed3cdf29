//! Directories `/i` (indexed), `/l` and `/s` (linear), as Linux makes them, and changes in them,
//! between which single files are made durable: then an index may have been given up by one
//! operation, and the names of the next are on the disk before that is. The first has more blocks
//! than an inode points at; the twelfth entry's head in the last begins 4 bytes before a line's
//! end: its block is swapped for a copy when a link takes its place.

use super::{Script, s};
use crate::acts::Act;
use env::Rng;

pub(super) fn script(seed: u64) -> Script {
    let mut rng = Rng::new(seed);
    let name = |dir: &str, i: u64| {
        let len = [40, 120, 200][(i % 3) as usize];
        format!("{dir}/{i:03}{}", "k".repeat(len))
    };
    let mut setup = vec![Act::Mkdir(s("/i")), Act::Mkdir(s("/l")), Act::Create(s("/f"))];
    let (many, few) = (110, 20);
    // A directory never shrinks: what is linked and unlinked again leaves room for the index.
    setup.extend((0..many + 20).map(|i| Act::Link(s("/f"), name("/i", i))));
    setup.extend((many..many + 20).map(|i| Act::Unlink(name("/i", i))));
    setup.extend((0..few).map(|i| Act::Create(name("/l", i))));
    setup.push(Act::Mkdir(s("/l/sub")));
    setup.push(Act::Mkdir(s("/i/sub")));
    setup.push(Act::Mkdir(s("/s")));
    setup.extend((0..14).map(|i| Act::Create(format!("/s/{i:02}{}", "s".repeat(34)))));
    setup.push(Act::Symlink(s("/link"), s("there")));
    setup.push(Act::Sync);
    let mut acts = Vec::new();
    for n in 0..10 {
        let (a, b) = (name("/i", rng.below(many)), name("/l", rng.below(few)));
        let act = match rng.below(12) {
            0 => Act::Unlink(a),
            1 => Act::Unlink(b),
            2 => Act::Create(format!("/i/new{n}")),
            3 => Act::Create(format!("/l/{}{n}", "n".repeat(150))),
            4 => Act::Rename(a, format!("/i/{}{n}", "r".repeat(180))),
            5 => Act::Rename(b, a),
            6 => Act::Rename(s("/l/sub"), format!("/i/moved{n}")),
            7 => Act::Rename(s("/i/sub"), format!("/l/moved{n}")),
            8 => Act::Mkdir(format!("/i/dir{n}")),
            9 => Act::Rename(s("/i"), format!("/l/i{n}")),
            10 => {
                acts.push(Act::Create(format!("/s/before{n}")));
                Act::Rename(s("/link"), format!("/s/11{}", "s".repeat(34)))
            }
            _ => Act::Rmdir(s("/i/sub")),
        };
        let is_copied = matches!(&act, Act::Rename(from, _) if from == "/link");
        acts.push(act);
        if is_copied && rng.one_in(2) {
            acts.push(Act::Create(format!("/s/behind{n}")));
            acts.push(Act::Fsync(format!("/s/behind{n}")));
        }
        acts.extend(durable_beside(&mut rng, n));
    }
    let kernel = vec![(s("/i"), true), (s("/l"), false), (s("/s"), false)];
    Script { kernel, ..Script::new(setup, acts) }
}

/// Sometimes a file is made durable, and what it waits for with it: an old one, or a new name.
fn durable_beside(rng: &mut Rng, n: u64) -> Vec<Act> {
    let new = || format!("/i/durable{n}");
    match rng.below(6) {
        0 => vec![Act::Fsync(s("/"))],
        1 => vec![Act::Create(s("/l/other")), Act::Fsync(s("/l/other"))],
        2 => vec![Act::Create(new()), Act::Fsync(new())],
        3 => vec![Act::Link(s("/f"), new()), Act::Fsync(s("/f"))],
        _ => Vec::new(),
    }
}
