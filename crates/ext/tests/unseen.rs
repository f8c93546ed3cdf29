//! Files that are made and removed before the disk has seen them, in soft updates: they cost
//! nothing, in whatever order they go and whatever stays among them.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::{ROOT, Vol, World};
use mechanisms::Mode;
use ufs::store::Space;

const NAMES: usize = 200;

fn cancelled(v: &Vol) -> u64 {
    let all = v.ext.counters();
    all.into_iter().find(|c| c.0 == "cairn_soft_cancelled_total").unwrap().1
}

fn name(n: usize) -> String {
    format!("name-{n:05}")
}

#[test]
fn files_of_one_directory_that_go_together_were_never_there() {
    for (order, stays) in [(0, 0), (1, 0), (7, 0), (0, 10), (7, 10)] {
        let mut w = World::mke2fs(32 << 20, &["-t", "ext2", "-b", "1024"]);
        let v = w.open(Mode::SoftUpdates);
        let dir = w.dir(&v, ROOT, "d");
        w.sync(&v).unwrap();
        let files: Vec<u32> = (0..NAMES).map(|n| w.file(&v, dir, &name(n))).collect();
        for (n, ino) in files.iter().enumerate().step_by(5) {
            w.write(&v, *ino, 0, &[n as u8; 3000]).unwrap();
        }
        // In the order of the directory, against it, in another.
        let at = |n: usize| match order {
            0 => n,
            1 => NAMES - 1 - n,
            step => n * step % NAMES,
        };
        let keep = |n: &usize| stays > 0 && n.is_multiple_of(stays);
        let go: Vec<usize> = (0..NAMES).map(at).filter(|n| !keep(n)).collect();
        for n in &go {
            w.unlink(&v, dir, &name(*n)).unwrap();
        }
        w.sync(&v).unwrap();
        // One file in each block has enlarged the directory, and is not alone.
        let (n, all) = (cancelled(&v), go.len() as u64);
        assert!(n >= all / 2, "order {order}, one stays of {stays}: {n} of {all} files");
        for n in (0..NAMES).filter(keep) {
            assert_eq!(w.lookup(&v, dir, &name(n)), files[n]);
        }
        w.close_and_judge(v, "files that were never there");
    }
}
