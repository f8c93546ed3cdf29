//! A repair that is cut off: at each flush some of the writes since the last one have reached the
//! disk, in any order. What is left must be repaired by the next run, to a volume that e2fsck
//! accepts, and with nothing lost that the whole repair would have kept.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::fields::{Fields, Of};
use crate::common::rounds::number;
use crate::common::{Chance, Scratch, check_both, e2fsck, made};
use check::{IoError, Options, Plan, ReadBlocks, WriteBlocks};

const OPTIONS: Options = Options { now_secs: 1_900_000_000, verify: true, mark_clean: true };

/// What a repair asks of a disk: the writes between its flushes.
struct Asked(Vec<Vec<(u64, Vec<u8>)>>, Vec<u8>);

impl WriteBlocks for Asked {
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> Result<(), IoError> {
        if self.0.is_empty() {
            self.0.push(Vec::new());
        }
        self.0.last_mut().unwrap().push((at, bytes.to_vec()));
        Ok(())
    }
    fn flush(&mut self) -> Result<(), IoError> {
        self.0.push(Vec::new());
        Ok(())
    }
    fn read_back(&self, at: u64, into: &mut [u8]) -> Result<(), IoError> {
        self.1.read_at(at, into)
    }
}

fn put(image: &mut [u8], (at, bytes): &(u64, Vec<u8>)) {
    image[*at as usize..][..bytes.len()].copy_from_slice(bytes);
}

/// Images that a cut in the middle of this repair may leave.
fn cut(broken: &[u8], plan: &Plan, c: &mut Chance) -> Vec<Vec<u8>> {
    let mut asked = Asked(Vec::new(), broken.to_vec());
    plan.apply(&mut asked, &mut ()).unwrap();
    let (mut durable, mut all) = (broken.to_vec(), Vec::new());
    for stage in &asked.0 {
        for _ in 0..stage.len().min(3) {
            let mut left = durable.clone();
            stage.iter().filter(|_| c.below(2) == 0).for_each(|w| put(&mut left, w));
            all.push(left);
        }
        stage.iter().for_each(|w| put(&mut durable, w));
    }
    all
}

#[test]
fn a_repair_that_is_cut_off_can_be_done_again() {
    let s = Scratch::new("cut");
    let image = made(&["-t", "ext2", "-I", "256"], 1024, 9 << 20);
    let fields = Fields::of(&image);
    let (rounds, only) = (number("MUTATIONS").unwrap_or(8), number("SEED"));
    let mut states = 0;
    for seed in (1..=rounds).filter(|n| only.is_none_or(|o| o == *n)) {
        let mut c = Chance(seed * 7919);
        c.next();
        let mut broken = image.clone();
        let mut what = String::new();
        for _ in 0..3 {
            let of = c.pick(&[Of::Inode, Of::Kind, Of::Entry, Of::Entry, Of::Desc]);
            what += &format!("{}; ", fields.mutate(&mut broken, of, &mut c));
        }
        let Ok(first) = check_both(&broken, &OPTIONS) else { continue };
        let mut whole = broken.clone();
        first.plan.apply(&mut whole, &mut ()).unwrap();
        let kept = check_both(&whole, &OPTIONS).unwrap().inodes_used;
        for mut left in cut(&broken, &first.plan, &mut c) {
            states += 1;
            let again = check_both(&left, &OPTIONS).unwrap();
            again.plan.apply(&mut left, &mut ()).unwrap();
            let (code, text) = e2fsck(&s, &left);
            assert_eq!(code, 0, "SEED={seed}: {what}\n{:#?}\n{text}", again.findings);
            let used = check_both(&left, &OPTIONS).unwrap().inodes_used;
            assert!(
                used >= kept,
                "SEED={seed}: {what}\n{used} of {kept} inodes\n{:#?}",
                again.findings
            );
        }
    }
    assert!(only.is_some() || states > 20, "only {states} states");
}
