//! A cut that has met a read error, or what else leaves contents beyond a file's end: the checker
//! beside service takes them away, before the file may become longer and show them.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::{ROOT, World, pattern};
use mechanisms::Mode;
use ufs::{Pace, Pass};

#[test]
fn what_lies_beyond_a_files_end_is_taken_away_by_the_checker() {
    for args in [&["-t", "ext3", "-O", "^has_journal"][..], &["-t", "ext4", "-O", "^metadata_csum"]]
    {
        for left in [3000, 13 << 10, 0] {
            let mut w = World::mke2fs(16 << 20, &[args, &["-b", "1024"]].concat());
            let v = w.open(Mode::SoftUpdates);
            let f = w.file(&v, ROOT, "f");
            w.write(&v, f, 0, &pattern(1, 300 << 10)).unwrap();
            w.close(v);
            w.debugfs(&[&format!("set_inode_field f size {left}")]);
            let v = w.open(Mode::SoftUpdates);
            let ufs = v.ufs.clone();
            let pass = w.run(|_| async move { ufs.scrub(&Pace::default()).await }).unwrap();
            assert_eq!(pass, Pass::Done(0));
            w.resize(&v, f, 300 << 10).unwrap();
            let read = w.read(&v, f, 0, 300 << 10).unwrap();
            let end = (left as usize).next_multiple_of(1024);
            assert!(read[end..].iter().all(|b| *b == 0), "{args:?}: {left} bytes are left");
            w.close_and_judge(v, "after the checker");
        }
    }
}
