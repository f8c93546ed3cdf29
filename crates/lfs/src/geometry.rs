//! Where things lie on the disk below: numbers of segments and places, and the arithmetic between
//! them. It reads and writes nothing.

use crate::owners::Owners;

/// The unit of the store: virtual blocks, places and summaries are of this size.
pub const BLOCK_BYTES: usize = 4096;
pub(crate) const BLOCK: u64 = BLOCK_BYTES as u64;

/// A block's number as the layer above knows it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Virt(pub u64);

/// A block's number on the disk below.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Place(pub u64);

impl Place {
    pub(crate) fn byte(self) -> u64 {
        self.0 * BLOCK
    }
    pub(crate) fn plus(self, n: u64) -> Place {
        Place(self.0 + n)
    }
}

/// A segment's number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SegNo(pub u32);

/// The first block that belongs to a segment: before it lie a superblock and the checkpoint slots.
pub(crate) const FIRST: u64 = 16;
/// Where the two checkpoint slots lie.
pub(crate) const SLOTS: [Place; 2] = [Place(2), Place(3)];

/// The shape of a store, fixed when it is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Blocks in a segment.
    pub segment_blocks: u32,
    /// How many segments.
    pub segments: u32,
    /// Virtual blocks.
    pub virtual_blocks: u64,
    /// Open segments for contents: the first are the users', the others the cleaner's (heads.rs).
    pub heads: u8,
}

impl Geometry {
    pub(crate) fn start(&self, seg: SegNo) -> Place {
        assert!(seg.0 < self.segments, "segment {} of {}", seg.0, self.segments);
        Place(FIRST + u64::from(seg.0) * u64::from(self.segment_blocks))
    }
    /// The segment in which a place lies; None: before the first or behind the last.
    pub(crate) fn segment_of(&self, place: Place) -> Option<SegNo> {
        let n = place.0.checked_sub(FIRST)? / u64::from(self.segment_blocks);
        (n < u64::from(self.segments)).then_some(SegNo(n as u32))
    }
    /// Do these places all lie in one segment?
    pub(crate) fn is_inside(&self, place: Place, blocks: u64) -> bool {
        let last = place.0.checked_add(blocks.max(1) - 1).map(Place);
        let first = self.segment_of(place);
        first.is_some() && first == last.and_then(|p| self.segment_of(p))
    }
    /// Do these places all lie in segments, whichever?
    pub(crate) fn are_segments(&self, place: Place, blocks: u64) -> bool {
        let last = place.0.checked_add(blocks.max(1) - 1).map(Place);
        let is_in = |p: Place| self.segment_of(p).is_some();
        is_in(place) && last.is_some_and(is_in)
    }
    /// The block that says what a segment holds by plugging: it is behind those of users.
    pub(crate) fn amended(&self, seg: SegNo) -> Virt {
        Virt(self.virtual_blocks + u64::from(seg.0))
    }
    /// Heads of users'; the others are the cleaner's.
    pub(crate) fn user_heads(&self) -> usize {
        if usize::from(self.heads) >= crate::policy::Lifespans::CLASSES { 2 } else { 1 }
    }
    pub(crate) fn cleaner_heads(&self) -> u32 {
        u32::from(self.heads) - self.user_heads() as u32
    }
    /// Blocks of all segments.
    pub(crate) fn blocks(&self) -> u64 {
        u64::from(self.segments) * u64::from(self.segment_blocks)
    }
    /// Blocks that may live at the same time, so that writing always finds room and the cleaner
    /// always gains something.
    pub fn capacity(&self) -> u64 {
        // A group, its summaries, and what may be pending of other blocks.
        let largest = u64::from(self.group_max()) * 5 / 4 + 2 * self.patched_max();
        let slack = (self.segments / 20).max(self.segments_for(largest) + 3);
        let whole = Geometry { virtual_blocks: self.blocks(), ..*self };
        let kept = whole.reserve() + 2 * u32::from(self.heads) + slack;
        u64::from(self.segments.saturating_sub(kept)) * u64::from(self.packed())
    }
    /// Has the volume more blocks than can live? Then users are refused before there is no room.
    pub fn is_thin(&self) -> bool {
        self.virtual_blocks > self.capacity()
    }
    /// Extents that the table has at most: each block that lies somewhere may be one.
    pub(crate) fn extents_max(&self) -> u64 {
        self.known_blocks().min(self.blocks() + u64::from(self.segments))
    }
    /// Blocks that the table may know.
    pub(crate) fn known_blocks(&self) -> u64 {
        self.virtual_blocks + u64::from(self.segments)
    }
    fn owners(&self) -> Owners {
        Owners::of(self.known_blocks())
    }
    /// What a snapshot has of a block that nobody newer has.
    pub(crate) fn own_block(&self, snapshot: u32, v: Virt) -> Virt {
        let own = self.owners().own_block(snapshot, v);
        assert_eq!(self.owner(own), (snapshot, v), "S2: {own:?} would be two blocks");
        own
    }
    /// The block behind the last that a snapshot can have.
    pub(crate) fn own_end(&self, snapshot: u32) -> u64 {
        self.owners().own_end(snapshot)
    }
    /// Whose it is, and which of his: 0 is the volume, others are snapshots.
    pub(crate) fn owner(&self, v: Virt) -> (u32, Virt) {
        self.owners().owner(v)
    }
    /// Snapshots of a volume, one after the other: an entry of the log has 56 bits for a block.
    pub(crate) fn snapshots_max(&self) -> u32 {
        self.owners().snapshots_max(56)
    }
    /// Can these be blocks of the volume, or of one snapshot?
    pub(crate) fn are_blocks(&self, v: Virt, n: u64) -> bool {
        let (snapshot, first) = self.owner(v);
        let most = if snapshot == 0 { self.known_blocks() } else { self.virtual_blocks };
        let known = snapshot <= self.snapshots_max();
        known && first.0.checked_add(n).is_some_and(|end| end <= most)
    }
    /// The copy of the superblock at the end of a disk, which may have no block at all.
    pub(crate) fn last_copy(disk_bytes: u64) -> Place {
        Place((disk_bytes / BLOCK).saturating_sub(1))
    }
    /// Live blocks that a segment holds when the cleaner has packed it, summaries aside.
    pub(crate) fn packed(&self) -> u32 {
        self.segment_blocks - 2 - self.segment_blocks / 128
    }
    /// Blocks that a group has at most, so that there is always room for one.
    pub(crate) fn group_max(&self) -> u32 {
        // The largest call that a mount makes is 256 blocks of contents.
        (self.blocks() / 12).clamp(64, 360) as u32
    }
    /// Blocks with pending ranges from which on the oldest are written as a whole.
    pub(crate) fn patched_max(&self) -> u64 {
        (self.blocks() / 64).clamp(8, 1024)
    }
    /// Bytes of pending ranges from which on blocks are written as a whole.
    pub(crate) fn ranges_bytes_max(&self) -> u64 {
        (self.blocks() * BLOCK / 128).clamp(16 << 10, 1 << 20)
    }
    /// Segments that users' heads may enter while they take `n` blocks.
    pub(crate) fn segments_for(&self, n: u64) -> u32 {
        n.div_ceil(u64::from(self.segment_blocks) - 1) as u32 + self.user_heads() as u32
    }
    /// The same of the cleaner's.
    pub(crate) fn segments_to_move(&self, n: u64) -> u32 {
        n.div_ceil(u64::from(self.segment_blocks) - 1) as u32 + self.cleaner_heads()
    }
    /// Segments that only the table and the checkpoints may take: three times what the table can
    /// grow to (being written, and named by either checkpoint), three times a checkpoint's body,
    /// and those that a few pages of a run keep.
    pub(crate) fn table_reserve(&self) -> u32 {
        self.table_reserve_for(self.extents_max())
    }
    /// The same of a table of so many extents.
    pub(crate) fn table_reserve_for(&self, extents: u64) -> u32 {
        let run = extents * crate::run::EXTENT_BYTES as u64 * 9 / 8;
        let body = self.body_bytes_max();
        let segment = u64::from(self.segment_blocks) * BLOCK;
        (3 * (run + body)).div_ceil(segment) as u32 + 3 * crate::checkpoint::RUNS_MAX as u32
    }
    /// Bytes of a checkpoint's body at most.
    pub(crate) fn body_bytes_max(&self) -> u64 {
        u64::from(self.segments) * 12 + 4096 + 2 * self.ranges_bytes_max()
    }
    /// Segments that users leave alone.
    pub(crate) fn reserve(&self) -> u32 {
        self.table_reserve() + self.cleaner_reserve()
    }
    /// Segments that only what adds nothing may take where snapshots hold the rest: files can be
    /// removed then, and what opening and closing write has room.
    pub(crate) fn last_reserve(&self) -> u32 {
        self.segments_for(u64::from(self.group_max())) + 2
    }
    /// Segments the cleaner may write in a pass even when nothing else is left.
    pub(crate) fn cleaner_reserve(&self) -> u32 {
        2 + self.segments / 128
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_may_go_on_into_the_next_segment_and_not_beyond_the_last() {
        let g = Geometry { segment_blocks: 64, segments: 4, virtual_blocks: 100, heads: 2 };
        let at = Place(FIRST + 40);
        assert!(g.are_segments(at, 64) && !g.is_inside(at, 64));
        assert!(g.are_segments(Place(FIRST), 256) && !g.are_segments(Place(FIRST), 257));
        assert!(!g.are_segments(Place(FIRST - 1), 2) && !g.are_segments(at, u64::MAX));
    }
}
