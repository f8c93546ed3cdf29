//! Rendering the image of a block: a private copy in which the edits whose turn has not come are
//! rolled back. The live block is never touched, so nobody waits for the write.

use super::records::Record;
use crate::unflushed::Progress;
use cache::{Buf, Image};
use format::bytes::{le32, set32};
use std::ops::Range;

/// The image of `buf`, whose records (oldest first) are `list`. Going back from the newest edit: an
/// unready one is undone; a ready one is captured, and its bytes stand, whatever older edits of the
/// same bytes wait for (they are captured with it where it covers them wholly, since nothing of
/// them is left to write). A count of users is taken back by the difference: many operations take
/// one from it, none of which waits for another, so that the last count stands for none of them.
pub(super) fn render(buf: &Buf, list: &mut [Record], ready: impl Fn(&Record) -> bool) -> Image {
    let mut image = None;
    let mut standing: Vec<Range<usize>> = Vec::new();
    for r in list.iter_mut().rev() {
        if ready(r) {
            if !r.is_count {
                standing.push(r.range.clone());
            }
            capture(r);
            continue;
        }
        if standing.iter().any(|s| s.start <= r.range.start && r.range.end <= s.end) {
            capture(r);
            continue;
        }
        let Some(before) = &r.before else {
            capture(r); // a mechanism that does not roll back
            continue;
        };
        let bytes = image.get_or_insert_with(|| buf.image());
        let out = bytes.bytes_mut();
        let (old, range) = (before.len(), &r.range);
        assert_eq!(old, range.len(), "I1: {old} bytes are put back in {range:?} of {buf:?}");
        if r.is_count {
            let users = le32(out, r.range.start);
            set32(out, r.range.start, users + 1);
            continue;
        }
        for (i, at) in r.range.clone().enumerate() {
            if !standing.iter().any(|s| s.contains(&at)) {
                out[at] = before[i];
            }
        }
    }
    image.map_or(Image::AsIs, Image::Instead)
}

fn capture(r: &mut Record) {
    if r.state == Progress::Pending {
        r.state = Progress::Captured;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use cache::BufKind;
    use env::Rng;
    use format::{BlockNo, Ino};
    use integrity::{Before, TxnId};

    /// The twin makes the edits again from the beginning, and leaves out those that are not ready.
    #[test]
    fn an_image_is_what_the_ready_edits_alone_make_of_the_block() {
        let cache = testing::cache();
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            cache.forget(BlockNo(seed % 60)); // what the last life left in it
            let buf = cache.get_new(BlockNo(seed % 60), BufKind::Meta, Ino(0));
            let (mut list, mut wanted) = (Vec::new(), [0; 64]);
            for n in 1..20u8 {
                let start = rng.below(40) as usize;
                let range = start..start + 1 + rng.below(24) as usize;
                let before = Some(Before::from(&buf.bytes()[range.clone()]));
                buf.modify(|bytes| bytes[range.clone()].fill(n));
                let is_ready = rng.one_in(2);
                if is_ready {
                    wanted[range.clone()].fill(n);
                }
                let txn = TxnId(u64::from(is_ready));
                let (phase, is_count) = (0, false);
                list.push(Record { txn, phase, range, before, is_count, state: Progress::Pending });
            }
            let image = match render(&buf, &mut list, |r| r.txn == TxnId(1)) {
                Image::AsIs => buf.image(),
                Image::Instead(image) => image,
                Image::NotYet => panic!("an image can always be rendered"),
            };
            assert_eq!(image.bytes()[..64], wanted, "I1: seed {seed}");
            let stand = list.iter().filter(|r| r.txn == TxnId(1));
            assert!(stand.clone().all(|r| r.state == Progress::Captured), "I2: seed {seed}");
        }
    }

    /// Three operations each take a user from one block, and any of them may become ready first.
    #[test]
    fn a_count_is_one_less_for_each_operation_that_is_ready() {
        let cache = testing::cache();
        for ready in 0..8u64 {
            let buf = cache.get_new(BlockNo(100 + ready), BufKind::Meta, Ino(0));
            let mut list = Vec::new();
            buf.modify(|b| set32(b, 4, 9));
            for txn in 0..3 {
                let before = Some(Before::from(&buf.bytes()[4..8]));
                buf.modify(|b| set32(b, 4, 8 - txn as u32));
                let (txn, phase) = (TxnId(txn), 0);
                let (range, state) = (4..8, Progress::Pending);
                list.push(Record { txn, phase, range, before, is_count: true, state });
            }
            let image = match render(&buf, &mut list, |r| ready >> r.txn.0 & 1 == 1) {
                Image::AsIs => buf.image(),
                Image::Instead(image) => image,
                Image::NotYet => panic!("an image can always be rendered"),
            };
            assert_eq!(le32(image.bytes(), 4), 9 - ready.count_ones(), "I1: {ready:03b} ready");
        }
    }
}
