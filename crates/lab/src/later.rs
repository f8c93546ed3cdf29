//! What later operations may have put into a file's blocks, where a mode writes contents in place:
//! which bytes, and where these lay before ranges were put in or taken out.
//!
//! Invariants:
//! * Q1. Where a range lay before it was moved it was no longer.
//! * Q2. Pieces are of the range, one behind the other, each within a block.

use crate::acts::Act;
use crate::contents::Contents as Bytes;

/// So many bytes put in at a place, or taken out.
#[derive(Clone, Copy)]
pub(crate) enum Shift {
    In(u64, u64),
    Out(u64, u64),
}

impl Shift {
    pub(crate) fn of(act: &Act) -> Option<Shift> {
        match act {
            Act::Insert(_, at, len) => Some(Shift::In(*at, *len)),
            Act::Collapse(_, at, len) => Some(Shift::Out(*at, *len)),
            _ => None,
        }
    }
    /// Where a range lay before it; what was put in lay nowhere.
    fn undone(self, l: Later) -> impl Iterator<Item = Later> {
        let (at, from, up, down) = match self {
            Shift::In(at, len) => (at, at + len, 0, len),
            Shift::Out(at, len) => (at, at, len, 0),
        };
        let stays = Later { from: l.from, to: l.to.min(at), byte: l.byte };
        let moved = Later {
            from: l.from.max(from) + up - down,
            to: (l.to + up).saturating_sub(down),
            byte: l.byte,
        };
        [stays, moved].into_iter().filter(|l| l.from < l.to)
    }
}

/// Where a range lay before all of these.
pub(crate) fn before(shifts: &[Shift], l: Later) -> Vec<Later> {
    let undo = |all: Vec<Later>, s: &Shift| all.into_iter().flat_map(|l| s.undone(l)).collect();
    let long = l.to.saturating_sub(l.from);
    let before: Vec<Later> = shifts.iter().rev().fold(vec![l], undo);
    let had: u64 = before.iter().map(|l| l.to - l.from).sum();
    assert!(had <= long, "Q1: {long} bytes were {had} before");
    before
}

/// Bytes that a later act writes.
pub(crate) struct Later {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) byte: u8,
}

/// Are these the wanted bytes but where one of these writes may have changed them?
pub(crate) fn differ_by(bytes: &Bytes, want: &Bytes, later: &[Later]) -> bool {
    bytes.differs_from(want).all(|(at, have)| later.iter().any(|l| l.may_be(at, have)))
}

impl Later {
    /// Its pieces, each within a block.
    pub(crate) fn pieces(&self, bs: u64) -> impl Iterator<Item = Later> + '_ {
        (self.from / bs..self.to.div_ceil(bs)).map(move |b| Later {
            from: self.from.max(b * bs),
            to: self.to.min((b + 1) * bs),
            byte: self.byte,
        })
    }

    fn may_be(&self, at: u64, have: u8) -> bool {
        (self.from..self.to).contains(&at) && crate::acts::byte_at(self.byte, at) == have
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::Rng;

    /// Of each byte of a file it is known which of the first ones it is; None: it was put in.
    #[test]
    fn a_range_lay_where_its_bytes_were() {
        for seed in 0..300 {
            let mut rng = Rng::new(seed);
            let mut now: Vec<Option<u64>> = (0..400).map(Some).collect();
            let mut shifts = Vec::new();
            for _ in 0..rng.below(5) {
                let at = rng.below(now.len() as u64);
                let len = 1 + rng.below(40).min(now.len() as u64 - at - 1);
                let (from, to) = (at as usize, (at + len) as usize);
                if rng.one_in(2) {
                    now.splice(from..from, vec![None; len as usize]);
                    shifts.push(Shift::In(at, len));
                } else if to < now.len() {
                    now.drain(from..to);
                    shifts.push(Shift::Out(at, len));
                }
            }
            let from = rng.below(now.len() as u64);
            let to = from + rng.below(now.len() as u64 - from + 1);
            let lay = before(&shifts, Later { from, to, byte: 1 });
            let mut found: Vec<u64> = lay.iter().flat_map(|l| l.from..l.to).collect();
            found.sort_unstable();
            let mut wanted: Vec<u64> =
                now[from as usize..to as usize].iter().copied().flatten().collect();
            wanted.sort_unstable();
            assert_eq!(found, wanted, "Q1: seed {seed}");
        }
    }

    #[test]
    fn pieces_are_of_the_range_and_each_of_a_block() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let (from, bs) = (rng.below(5000), 1 << (9 + rng.below(4)));
            let l = Later { from, to: from + 1 + rng.below(9000), byte: 1 };
            let pieces: Vec<Later> = l.pieces(bs).collect();
            let follows = pieces.windows(2).all(|w| w[0].to == w[1].from);
            let ends = (pieces[0].from, pieces[pieces.len() - 1].to) == (l.from, l.to);
            let within = |p: &Later| p.from < p.to && p.from / bs == (p.to - 1) / bs;
            assert!(follows && ends && pieces.iter().all(within), "Q2: seed {seed}");
        }
    }
}
