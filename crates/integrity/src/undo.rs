//! How an edit is taken back in a copy of its block: by mask, so that neighbours in the same bytes,
//! which other operations have changed, stay as they are. It knows bytes and bits, and no meaning.

use crate::Before;
use env::Few;
use std::iter;
use std::ops::Range;

/// What an edit's bytes are made of: the smallest piece that is taken back as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Grain {
    /// Bits of a map, each of its own.
    Bits,
    /// Fields of up to four bytes, none of which crosses a word: half a number is none.
    Words,
}

/// One piece: where it begins, what was there, and which bits of that are meant.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Piece {
    at: usize,
    before: Before,
    /// None: all of them.
    mask: Option<Before>,
}

impl Piece {
    fn range(&self) -> Range<usize> {
        self.at..self.at + self.before.len()
    }
    fn mask_at(&self, at: usize) -> u8 {
        let inside = self.range().contains(&at);
        let mask = || self.mask.as_ref().map_or(0xff, |m| m[at - self.at]);
        if inside { mask() } else { 0 }
    }
}

/// How one edit, or several of one operation in one block, are taken back.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Undo {
    pieces: Few<Piece>,
}

impl Undo {
    /// Of an edit at byte `at` that made `after` of `before`, of equal length.
    pub fn of(at: usize, before: &[u8], after: &[u8], grain: Grain) -> Undo {
        let (old, new) = (before.len(), after.len());
        assert_eq!(old, new, "an edit at byte {at} has bytes that nothing was before");
        let mut pieces = Few::new();
        match grain {
            Grain::Bits => {
                let differ = before.iter().zip(after).map(|(b, a)| b ^ a);
                let mask = match before.len() {
                    1 => Before::from(&[before[0] ^ after[0]][..]),
                    _ => Before::from(&differ.collect::<Vec<u8>>()[..]),
                };
                pieces.push(Piece { at, before: before.into(), mask: Some(mask) });
            }
            Grain::Words => {
                let one = |w: Range<usize>| Piece {
                    at: at + w.start,
                    before: before[w].into(),
                    mask: None,
                };
                pieces.extend(changed_words(at, before, after).map(one));
            }
        }
        let undo = Undo { pieces };
        debug_assert!(undo.gives(at, before, after), "O2: an edit at byte {at} is not taken back");
        undo
    }

    /// Does it make `before` of `after` again?
    fn gives(&self, at: usize, before: &[u8], after: &[u8]) -> bool {
        let mut image = vec![0; at];
        image.extend_from_slice(after);
        self.apply(&mut image);
        image[at..] == *before
    }

    /// Of an edit at byte `at` that wrote all of these bytes anew, changed or not: a later edit of
    /// any of them depends on this one.
    pub fn of_all(at: usize, before: &[u8]) -> Undo {
        let mut pieces = Few::new();
        pieces.push(Piece { at, before: before.into(), mask: None });
        Undo { pieces }
    }

    /// Is there nothing to take back?
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Puts what was there before into `image`, a copy of the block.
    pub fn apply(&self, image: &mut [u8]) {
        for p in self.pieces.iter().rev() {
            let end = p.range().end;
            assert!(end <= image.len(), "an edit up to byte {end} in a block of {}", image.len());
            let out = &mut image[p.range()];
            match &p.mask {
                None => out.copy_from_slice(&p.before),
                Some(mask) => {
                    // For each image of each block of bits.
                    debug_assert_eq!(mask.len(), p.before.len(), "O2: bits at {end} stay changed");
                    for ((out, old), mask) in out.iter_mut().zip(&*p.before).zip(&**mask) {
                        *out = (*out & !mask) | (old & mask);
                    }
                }
            }
        }
    }

    /// Has it a bit in common with the other?
    pub fn meets(&self, other: &Undo) -> bool {
        let meet = self.pieces.iter().any(|a| other.pieces.iter().any(|b| pieces_meet(a, b)));
        let spans_meet = || {
            let (a, b) = (self.span(), other.span());
            a.start < b.end && b.start < a.end
        };
        // Whoever has many to compare looks at their spans first.
        debug_assert!(!meet || spans_meet(), "{self:?} meets {other:?}");
        meet
    }

    /// Does it touch any of these bytes?
    pub fn touches(&self, bytes: &Range<usize>) -> bool {
        self.pieces.iter().any(|p| p.at < bytes.end && bytes.start < p.at + p.before.len())
    }

    /// From its first byte to behind its last; empty if it has none.
    pub fn span(&self) -> Range<usize> {
        let ranges = self.pieces.iter().map(Piece::range);
        ranges.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or(0..0)
    }

    /// A later edit joins it: both are taken back together, the later one first.
    pub fn join(&mut self, later: Undo) {
        self.pieces.extend(later.pieces);
    }

    /// The same in as few pieces as there are runs of bytes, each with what was there before the
    /// first edit of it. Bits are left as they are.
    pub fn flatten(&mut self) {
        if self.pieces.len() < 2 || self.pieces.iter().any(|p| p.mask.is_some()) {
            return;
        }
        let span = self.span();
        let mut first: Vec<Option<u8>> = vec![None; span.len()];
        for p in &self.pieces {
            let from = p.at - span.start;
            for (first, before) in first[from..].iter_mut().zip(&*p.before) {
                first.get_or_insert(*before);
            }
        }
        let mut at = span.start;
        self.pieces = Few::new();
        for run in first.chunk_by(|a, b| a.is_some() == b.is_some()) {
            let before: Vec<u8> = run.iter().flatten().copied().collect();
            if !before.is_empty() {
                self.pieces.push(Piece { at, before: before[..].into(), mask: None });
            }
            at += run.len();
        }
    }

    /// About so many bytes of memory it needs.
    pub fn memory_bytes(&self) -> usize {
        let mask = |p: &Piece| p.mask.as_ref().map_or(0, Before::bytes_apart);
        let one = |p: &Piece| size_of::<Piece>() + p.before.bytes_apart() + mask(p);
        self.pieces.iter().map(one).sum()
    }
}

fn pieces_meet(a: &Piece, b: &Piece) -> bool {
    let (a_range, b_range) = (a.range(), b.range());
    let (start, end) = (a_range.start.max(b_range.start), a_range.end.min(b_range.end));
    if a.mask.is_none() && b.mask.is_none() {
        return start < end;
    }
    (start..end).any(|at| a.mask_at(at) & b.mask_at(at) != 0)
}

const LINE_BYTES: usize = 32;

/// The runs of 4-byte words in which `a` and `b` differ; words are counted from the beginning of
/// the block, in which both lie at byte `at`.
pub(crate) fn changed_words(at: usize, a: &[u8], b: &[u8]) -> impl Iterator<Item = Range<usize>> {
    debug_assert!(are_all(at, a, b), "O1: not all of what an edit has changed is told");
    let mut from = 0;
    iter::from_fn(move || {
        let run = next_run(at, a, b, from)?;
        from = run.end;
        Some(run)
    })
}

/// The first of these runs at or behind byte `from` of both.
pub(crate) fn next_run(at: usize, a: &[u8], b: &[u8], from: usize) -> Option<Range<usize>> {
    assert!(a.len() == b.len());
    let (mut from, mut start) = (from, None);
    // Most of an inode stays as it is: whole lines are looked at first.
    while from < a.len() {
        let line_end = (from + LINE_BYTES - (at + from) % LINE_BYTES).min(a.len());
        if start.is_none() && same::<LINE_BYTES>(&a[from..line_end], &b[from..line_end]) {
            from = line_end;
            continue;
        }
        while from < line_end {
            let end = (from + 4 - (at + from) % 4).min(line_end);
            let differs = !same::<4>(&a[from..end], &b[from..end]);
            match start {
                None if differs => start = Some(from),
                Some(start) if !differs => return Some(start..from),
                _ => (),
            }
            from = end;
        }
    }
    start.map(|start| start..a.len())
}

/// Are the runs apart, and is all that differs in them?
fn are_all(at: usize, a: &[u8], b: &[u8]) -> bool {
    let (mut runs, mut from) = (Vec::new(), 0);
    while let Some(run) = next_run(at, a, b, from) {
        from = run.end;
        runs.push(run);
    }
    let apart = runs.windows(2).all(|w| w[0].end < w[1].start);
    let said = |at: usize| runs.iter().any(|r| r.contains(&at));
    apart && (0..a.len()).all(|at| a[at] == b[at] || said(at))
}

/// Are they equal? They are of `N` bytes nearly always, for which no library is called.
fn same<const N: usize>(a: &[u8], b: &[u8]) -> bool {
    match (<&[u8; N]>::try_from(a), <&[u8; N]>::try_from(b)) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_differ() {
        let a = [0u8; 70];
        let mut b = a;
        (b[1], b[4], b[15], b[30], b[32], b[69]) = (1, 1, 1, 1, 1, 1);
        assert!(changed_words(0, &a, &b).eq([0..8, 12..16, 28..36, 68..70]));
        assert_eq!(changed_words(0, &a, &a).next(), None);
        let mut of_the_block = changed_words(26, &a[..4], &b[30..34]);
        assert_eq!(of_the_block.next(), Some(0..4));
    }

    /// Random edits, each taken back alone, leave every other one's bits as they are.
    #[test]
    fn one_edit_is_taken_back_and_its_neighbours_stay() {
        let mut state = 7u64;
        let mut next = |n: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % n
        };
        for _ in 0..200 {
            let old: Vec<u8> = (0..64).map(|_| next(256) as u8).collect();
            let (mut live, mut twin) = (old.clone(), old.clone());
            let mut undo = Undo::default();
            for bit in 0..512 {
                // Every third bit is one operation's, every third another's.
                match (bit % 3, next(2)) {
                    (0, 1) => {
                        let before = live[bit / 8];
                        live[bit / 8] ^= 1 << (bit % 8);
                        undo.join(Undo::of(bit / 8, &[before], &[live[bit / 8]], Grain::Bits));
                    }
                    (1, 1) => {
                        live[bit / 8] ^= 1 << (bit % 8);
                        twin[bit / 8] ^= 1 << (bit % 8);
                    }
                    _ => (),
                }
            }
            undo.apply(&mut live);
            assert_eq!(live, twin);
        }
    }

    #[test]
    fn what_is_flattened_takes_back_the_same() {
        let mut undo = Undo::of_all(8, &[1, 2, 3, 4]);
        undo.join(Undo::of(10, &[7, 7, 5, 6], &[0; 4], Grain::Words));
        undo.join(Undo::of_all(20, &[9]));
        undo.join(Undo::of_all(8, &[8, 8]));
        let mut flat = undo.clone();
        flat.flatten();
        assert_eq!(flat.pieces.len(), 2, "bytes 8 to 14, and 20");
        let (mut a, mut b) = ([0; 24], [0; 24]);
        undo.apply(&mut a);
        flat.apply(&mut b);
        assert_eq!((a, a[8..14] == [1, 2, 3, 4, 5, 6]), (b, true));
        assert!(flat.meets(&Undo::of_all(13, &[0])) && !flat.meets(&Undo::of_all(14, &[0; 6])));
    }

    #[test]
    fn two_edits_meet_where_they_have_bits_in_common() {
        let bits = |before: u8, after: u8| Undo::of(9, &[before], &[after], Grain::Bits);
        assert!(bits(0, 1).meets(&bits(1, 0)));
        assert!(!bits(0, 1).meets(&bits(1, 3)));
        let word = |at: usize| Undo::of(at, &[0; 4], &[1; 4], Grain::Words);
        assert!(word(8).meets(&bits(0, 1)) && !word(12).meets(&word(8)));
        assert!(word(8).touches(&(11..12)) && !word(8).touches(&(12..16)));
    }
}
