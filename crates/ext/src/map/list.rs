//! A leaf's extents as a list: what becomes of it where a range is mapped otherwise or not at all.
//! Pure: it knows no nodes and no volume.

use format::Extent;
use format::ext::extents::Mapped;
use smallvec::SmallVec;
use std::ops::Range;

/// A leaf's extents; those of most files lie in the inode, and need no memory of their own.
pub(super) type List = SmallVec<[Mapped; 6]>;

/// May the second extent be joined to the first?
fn joins(a: &Mapped, b: &Mapped) -> bool {
    a.unwritten == b.unwritten
        && a.end() == u64::from(b.first)
        && a.start.plus(u64::from(a.len)) == b.start
        && a.len + b.len <= a.len_max()
}

/// A list of extents of which `range` is taken out and `new`, which lies in it, put in its place;
/// neighbours are joined.
pub(super) fn replaced(list: &[Mapped], range: &Range<u64>, new: Option<Mapped>) -> List {
    let mut all = List::with_capacity(list.len() + 2);
    for m in list {
        let (first, end) = (u64::from(m.first), m.end());
        if first < range.start {
            let len = (end.min(range.start) - first) as u32;
            all.push(Mapped { len, ..*m });
        }
        if end > range.end {
            let skip = range.end.saturating_sub(first);
            let (first, start) = (m.first + skip as u32, m.start.plus(skip));
            all.push(Mapped { first, len: m.len - skip as u32, start, ..*m });
        }
    }
    let inside = new.is_none_or(|m| u64::from(m.first) >= range.start && m.end() <= range.end);
    assert!(inside, "E6: {new:?} in the place of file blocks {range:?}");
    all.extend(new);
    all.sort_unstable_by_key(|m| m.first);
    joined(all)
}

/// A list in order, with neighbours joined that can be.
pub(super) fn joined(mut all: List) -> List {
    let apart = || all.is_sorted_by(|a, b| a.end() <= u64::from(b.first));
    debug_assert!(apart(), "E1: extents over one another: {all:?}");
    all.dedup_by(|b, a| {
        let joined = joins(a, b);
        a.len += if joined { b.len } else { 0 };
        joined
    });
    all
}

/// How many blocks the list maps.
pub(super) fn blocks_of(list: &[Mapped]) -> u64 {
    list.iter().map(|m| u64::from(m.len)).sum()
}

/// What of the list lies in the range, as disk blocks.
pub(super) fn blocks_in(list: &[Mapped], range: &Range<u64>) -> Vec<Extent> {
    let inside = |m: &Mapped| {
        let first = u64::from(m.first).max(range.start);
        let end = m.end().min(range.end);
        let start = m.start.plus(first.saturating_sub(u64::from(m.first)));
        (first < end).then(|| Extent { start, len: end - first })
    };
    list.iter().filter_map(inside).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::BlockNo;

    fn m(first: u32, len: u32, start: u64, unwritten: bool) -> Mapped {
        Mapped { first, len, start: BlockNo(start), unwritten }
    }

    #[test]
    fn lists_change_as_ranges_do() {
        let list = [m(0, 10, 100, false), m(20, 10, 200, true)];
        let part = replaced(&list, &(22..25), Some(m(22, 3, 202, false)));
        let want = [list[0], m(20, 2, 200, true), m(22, 3, 202, false), m(25, 5, 205, true)];
        assert_eq!(part.as_slice(), want);
        // All of it written, piece by piece, is one extent again.
        let part = replaced(&part, &(20..22), Some(m(20, 2, 200, false)));
        let part = replaced(&part, &(25..30), Some(m(25, 5, 205, false)));
        assert_eq!(part.as_slice(), [list[0], m(20, 10, 200, false)]);
        let cut = replaced(&part, &(5..25), None);
        assert_eq!(cut.as_slice(), [m(0, 5, 100, false), m(25, 5, 205, false)]);
        let gone: Vec<_> = blocks_in(&part, &(5..25)).iter().map(|e| (e.start.0, e.len)).collect();
        assert_eq!(gone, [(105, 5), (200, 5)]);
        // What follows in the file and on the disk is joined, unless that is too long.
        let next = replaced(&list, &(10..12), Some(m(10, 2, 110, false)));
        assert_eq!(next[0], m(0, 12, 100, false));
        let long = [m(0, 32_767, 1000, false)];
        assert_eq!(replaced(&long, &(32_767..32_769), Some(m(32_767, 2, 33_767, false))).len(), 2);
    }
}
