//! Rendering: what of a node is taken back in an image, and how. Link counts are taken back by the
//! difference, because many operations count on one inode at the same time and none of them waits
//! for another; everything else by the bytes and bits from before.

use env::{Few, SECTOR_BYTES};
use format::bytes::{le16, set16};
use format::ufs::dirent::HEAD;
use integrity::{Change, Edit, Plant, Undo};
use std::ops::Range;

/// One thing to take back.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Piece {
    /// Bytes or bits.
    Bytes(Undo),
    /// A count of 16 bits at this byte went up by so much.
    Count(usize, u16),
}

/// Everything that one node takes back, in the order of its edits.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Backward(Few<Piece>);

/// Counts lie in a group's descriptor of so many bytes.
const COUNTS_BYTES: usize = 32;

/// Bytes of a pointer to attributes; what is longer is attributes that come and go with it.
const POINTER_BYTES: usize = 4;

/// Where the count of links lies in the word that is announced.
const COUNT_IN_WORD: usize = 2;

impl Backward {
    /// Of one edit; nothing if the bytes from before are not known.
    pub(super) fn of(edit: &Edit, plant: Plant) -> Backward {
        let is_pointer = matches!(edit.change, Change::XattrPointer { .. });
        if is_pointer && edit.range.len() > POINTER_BYTES && plant.is("attributes-apart") {
            return Backward::default();
        }
        if edit.change == Change::Counts {
            return Backward::of_counts(edit);
        }
        if let Some((at, by)) = count_of(edit) {
            let piece = (by != 0).then_some(Piece::Count(at, by));
            return Backward(Few::from_iter(piece));
        }
        let forgotten =
            plant.is("freed-before-count") && matches!(edit.change, Change::FreeInode(_));
        let undo = match written_anew(edit).filter(|_| !forgotten) {
            Some(all) if all.span() == edit.range => Some(all),
            Some(head) => edit.undo().map(|mut undo| {
                undo.join(head);
                undo
            }),
            None => edit.undo(),
        };
        let Some(undo) = undo.filter(|u| !u.is_empty()) else { return Backward::default() };
        let back = Backward(Few::from_iter([Piece::Bytes(undo)]));
        // A copy of the block for each edit.
        debug_assert!(back.gives(edit), "I1: {:?} is taken back to something else", edit.change);
        back
    }

    /// Does it make of the block what it was before the edit?
    fn gives(&self, edit: &Edit) -> bool {
        let mut image = edit.buf.bytes().to_vec();
        self.apply(&mut image);
        edit.before.as_ref().is_none_or(|before| image[edit.range.clone()] == **before)
    }

    /// Of bytes as they are told.
    #[cfg(test)]
    pub(super) fn of_bytes(at: usize, before: &[u8], after: &[u8]) -> Backward {
        let undo = Undo::of(at, before, after, integrity::Grain::Words);
        Backward(Few::from_iter([Piece::Bytes(undo)]))
    }

    /// Counts of a group, which many operations change at the same time: each of 16 bits by the
    /// difference. A directory changes two words beside each other. What is longer than a group's
    /// descriptor is no count, and is left as it is.
    fn of_counts(edit: &Edit) -> Backward {
        let Some(before) = edit.before.as_ref().filter(|b| b.len() <= COUNTS_BYTES) else {
            return Backward::default();
        };
        let (start, bytes) = (edit.range.start, edit.buf.bytes());
        let by = |at: usize| le16(&bytes, start + at).wrapping_sub(le16(before, at));
        let pieces = (0..before.len() / 2).map(|n| (start + 2 * n, by(2 * n)));
        Backward(pieces.filter(|(_, by)| *by != 0).map(|(at, by)| Piece::Count(at, by)).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn join(&mut self, later: Backward) {
        for piece in later.0 {
            match (self.0.last_mut(), piece) {
                (Some(Piece::Bytes(all)), Piece::Bytes(u)) => all.join(u),
                (_, piece) => self.0.push(piece),
            }
        }
    }

    /// The same in fewer pieces, where many edits wrote the same bytes.
    pub(super) fn flatten(&mut self) {
        for piece in self.0.iter_mut() {
            if let Piece::Bytes(undo) = piece {
                undo.flatten();
            }
        }
    }

    /// Takes it back in `image`.
    pub(super) fn apply(&self, image: &mut [u8]) {
        for piece in self.0.iter().rev() {
            match piece {
                Piece::Bytes(undo) => undo.apply(image),
                Piece::Count(at, by) => set16(image, *at, le16(image, *at).wrapping_sub(*by)),
            }
        }
    }

    /// From the first byte that it may change to behind the last.
    pub(super) fn span(&self) -> Range<usize> {
        let one = |p: &Piece| match p {
            Piece::Bytes(u) => u.span(),
            Piece::Count(at, _) => *at..*at + 2,
        };
        let all = self.0.iter().map(one).filter(|r| !r.is_empty());
        all.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or(0..0)
    }

    /// The sector in which all of it lies, if that is one.
    pub(super) fn sector(&self) -> Option<usize> {
        let Range { start, end } = self.span();
        let first = start / SECTOR_BYTES;
        (start < end && (end - 1) / SECTOR_BYTES == first).then_some(first)
    }

    /// Does it take nothing back but counts?
    pub(super) fn is_counts(&self) -> bool {
        self.0.iter().all(|p| matches!(p, Piece::Count(..)))
    }

    /// Can the later one not stand without this one? Two counts can.
    pub(super) fn is_under(&self, later: &Backward) -> bool {
        let range = |at: usize| -> Range<usize> { at..at + 2 };
        let meet = |a: &Piece, b: &Piece| match (a, b) {
            (Piece::Bytes(a), Piece::Bytes(b)) => a.meets(b),
            (Piece::Bytes(u), Piece::Count(at, _)) | (Piece::Count(at, _), Piece::Bytes(u)) => {
                u.touches(&range(*at))
            }
            (Piece::Count(..), Piece::Count(..)) => false,
        };
        self.0.iter().any(|a| later.0.iter().any(|b| meet(a, b)))
    }

    /// About so many bytes of memory it needs.
    pub(super) fn memory_bytes(&self) -> usize {
        let one = |p: &Piece| match p {
            Piece::Bytes(u) => u.memory_bytes(),
            Piece::Count(..) => size_of::<Piece>(),
        };
        self.0.iter().map(one).sum()
    }
}

/// What an edit has written as a whole, whether it differs from what was there or not: a later
/// edit of that stands on this one. An entry's head, a pointer, a length, an owner; the count of an
/// inode that is freed, because an older operation may have taken it to zero with the last name;
/// and the count that falls to zero itself: a directory's, before its children's share of it is
/// gone in the image too, would be lower than the names that are left.
fn written_anew(edit: &Edit) -> Option<Undo> {
    let before = edit.before.as_ref()?;
    let start = edit.range.start;
    match edit.change {
        Change::AddEntry { at, .. } | Change::RemoveEntry { at, .. } => {
            let at = usize::from(at);
            let head = before.get(at - start..at - start + HEAD)?;
            Some(Undo::of_all(at, head))
        }
        Change::LinkDown(_) if falls_to_zero(edit) => Some(Undo::of_all(start, before)),
        Change::FreeInode(_)
        | Change::ChangeEntry { .. }
        | Change::DotDot { .. }
        | Change::MapPointer { .. }
        | Change::Unmap { .. }
        | Change::XattrPointer { .. }
        | Change::Owner(_)
        | Change::Grow(_)
        | Change::GrowDir(_)
        | Change::Shrink(_) => Some(Undo::of_all(start, before)),
        _ => None,
    }
}

/// The count that an edit changes, and by how much; None if it is no count, or not that alone.
fn count_of(edit: &Edit) -> Option<(usize, u16)> {
    let counts =
        matches!(edit.change, Change::LinkUp(_) | Change::LinkDown(_) | Change::ParentLinkDown(_));
    let before = edit.before.as_ref().filter(|b| counts && b.len() == 4)?;
    if falls_to_zero(edit) {
        return None;
    }
    let bytes = edit.buf.bytes();
    let after = &bytes[edit.range.clone()];
    let by = le16(after, COUNT_IN_WORD).wrapping_sub(le16(before, COUNT_IN_WORD));
    (before[..COUNT_IN_WORD] == after[..COUNT_IN_WORD])
        .then_some((edit.range.start + COUNT_IN_WORD, by))
}

/// Is it the end of an inode's last name, as far as the word of the count tells?
fn falls_to_zero(edit: &Edit) -> bool {
    let is_word = edit.range.len() == 4 && matches!(edit.change, Change::LinkDown(_));
    is_word && le16(&edit.buf.bytes(), edit.range.start + COUNT_IN_WORD) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use integrity::Before;

    fn count(by: u16) -> Backward {
        Backward(Few::from_iter([Piece::Count(2, by)]))
    }

    fn bytes(at: usize, before: &[u8], after: &[u8]) -> Backward {
        Backward::of_bytes(at, before, after)
    }

    #[test]
    fn a_count_that_falls_to_zero_stands_on_its_children() {
        let child = count(0xffff);
        let last = bytes(0, &[0, 0, 2, 0], &[0; 4]);
        assert!(child.is_under(&last));
        let mut image = [0; 4];
        last.apply(&mut image);
        child.apply(&mut image);
        assert_eq!(image, [0, 0, 3, 0]);
    }

    #[test]
    fn all_counts_of_a_directory_that_is_made_are_taken_back() {
        let buf = crate::testing::cache().get_new(
            format::BlockNo(2),
            cache::BufKind::Meta,
            format::Ino(0),
        );
        let before = [9, 0, 50, 0, 3, 0, 0, 0]; // free blocks, free inodes, directories, flags
        buf.modify(|b| b[12..20].copy_from_slice(&[8, 0, 49, 0, 4, 0, 0, 0]));
        let edit = Edit {
            buf: buf.clone(),
            range: 12..20,
            before: Some(Before::from(&before[..])),
            change: Change::Counts,
        };
        let back = Backward::of(&edit, Plant::NONE);
        assert!(back.is_counts() && !back.is_empty());
        let mut image = buf.bytes().to_vec();
        back.apply(&mut image);
        assert_eq!(image[12..20], before);
    }

    #[test]
    fn counts_are_taken_back_in_any_order() {
        let (up, down) = (count(1), count(0xffff));
        let mut image = [0, 0, 5, 0];
        up.apply(&mut image);
        assert_eq!(image[2], 4);
        down.apply(&mut image);
        assert_eq!(image[2], 5);
        assert!(!up.is_under(&down));
    }

    #[test]
    fn what_was_written_over_goes_with_what_wrote_it() {
        let first = bytes(0, &[0; 4], &[1; 4]);
        let then = bytes(0, &[1; 4], &[2; 4]);
        let beside = bytes(4, &[0; 4], &[9; 4]);
        assert!(first.is_under(&then) && !first.is_under(&beside));
        assert!(first.is_under(&count(1)));
        let mut image = [2, 2, 2, 2, 9, 9, 9, 9];
        then.apply(&mut image);
        first.apply(&mut image);
        assert_eq!(image, [0, 0, 0, 0, 9, 9, 9, 9]);
    }
}
