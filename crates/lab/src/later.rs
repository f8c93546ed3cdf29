//! What later operations may have put into a file's blocks, where a mode writes contents in place:
//! which bytes, and where these lay before ranges were put in or taken out.

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
    shifts.iter().rev().fold(vec![l], undo)
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
