//! Rendering the image of a block: a private copy in which the edits whose turn has not come are
//! rolled back.
//! The live block is never touched, so nobody waits for the write.

use super::records::{Record, State};
use cache::{Buf, Image};
use std::ops::Range;

/// The image of `buf`, whose records (oldest first) are `list`. Going back from the newest edit: an
/// unready one is undone; a ready one is captured, and its bytes stand, whatever older edits of the
/// same bytes wait for (they are captured with it where it covers them wholly, since nothing of
/// them is left to write).
pub(super) fn render(buf: &Buf, list: &mut [Record], ready: impl Fn(&Record) -> bool) -> Image {
    let mut image = None;
    let mut standing: Vec<Range<usize>> = Vec::new();
    for r in list.iter_mut().rev() {
        if ready(r) {
            standing.push(r.range.clone());
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
        for (i, at) in r.range.clone().enumerate() {
            if !standing.iter().any(|s| s.contains(&at)) {
                out[at] = before[i];
            }
        }
    }
    image.map_or(Image::AsIs, Image::Instead)
}

fn capture(r: &mut Record) {
    if r.state == State::Pending {
        r.state = State::Captured;
    }
}
