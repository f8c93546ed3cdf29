//! What an operation's edits come to when it ends: the blocks with the ranges that were
//! changed, what was freed and what is new, and which inodes that concerns. Shared by all
//! mechanisms that write down what operations did; it knows none of their logs.

use cache::Buf;
use format::{BlockNo, Extent, Ino};
use integrity::{Change, Plant, Txn};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Range;

/// The blocks an operation has changed, with the ranges, in order.
pub(crate) type Touched = BTreeMap<BlockNo, (Buf, ByteRanges)>;

/// Ranges of bytes of one block: two need no memory of their own.
pub(crate) type ByteRanges = SmallVec<[Range<usize>; 2]>;

/// Is the block in one of these, which are in order?
pub(crate) fn contains(extents: &[Extent], b: BlockNo) -> bool {
    debug_assert!(extents.is_sorted(), "block {b} is looked for in no order: {extents:?}");
    let before = extents.partition_point(|e| e.start <= b);
    before.checked_sub(1).is_some_and(|i| b.0 < extents[i].start.0 + extents[i].len)
}

/// Sorts ranges and joins those that touch.
pub(crate) fn merge(ranges: &mut ByteRanges) {
    ranges.sort_by_key(|r| (r.start, r.end));
    ranges.dedup_by(|next, r| {
        let touches = next.start <= r.end;
        if touches {
            r.end = r.end.max(next.end);
        }
        touches
    });
    let apart = ranges.windows(2).all(|w| w[0].end < w[1].start);
    debug_assert!(apart, "the same bytes would be written down twice: {ranges:?}");
}

/// The extents that the operation's edits of one kind name, in order.
pub(crate) fn extents(txn: &Txn, pick: impl Fn(&Change) -> Option<Extent>) -> Vec<Extent> {
    let mut all: Vec<Extent> = txn.edits.iter().filter_map(|e| pick(&e.change)).collect();
    all.sort_unstable();
    all
}

/// Planted bug: is the change one of times, which no fsync is to make durable?
pub(crate) fn is_left(plant: Plant, change: &Change) -> bool {
    plant.is("times-left-behind") && matches!(change, Change::Attr(_))
}

/// The inodes that a change belongs to.
pub(crate) fn files_of(change: &Change) -> [Option<Ino>; 2] {
    use Change as C;
    match *change {
        C::AllocInode(i) | C::FreeInodeBit(i) | C::InitInode(i) | C::Grow(i) | C::GrowDir(i) => {
            [Some(i), None]
        }
        C::Shrink(i)
        | C::Attr(i)
        | C::Owner(i)
        | C::Held(i)
        | C::DropIndex(i)
        | C::LinkUp(i)
        | C::LinkDown(i) => [Some(i), None],
        C::ShareDown(i) | C::ParentLinkDown(i) | C::FreeInode(i) | C::Reindex(i) => [Some(i), None],
        C::InitBlock { ino, .. }
        | C::MapPointer { ino, .. }
        | C::Unmap { ino, .. }
        | C::XattrPointer { ino, .. } => [Some(ino), None],
        C::AddEntry { dir, ino, .. } | C::RemoveEntry { dir, ino, .. } => [Some(dir), Some(ino)],
        C::ChangeEntry { dir, new, .. } => [Some(dir), Some(new)],
        C::DotDot { dir, parent } => [Some(dir), Some(parent)],
        C::AllocBlocks(_) | C::FreeBlocks(_) | C::Counts | C::State => [None, None],
    }
}
