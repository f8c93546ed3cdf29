//! The vocabulary of changes: what an edit means to a mechanism that orders writes. The logs need
//! only the bytes; the ordering mechanisms need to know which bytes point at which, and nothing
//! more.

use crate::Grain;
use format::{BlockNo, Extent, Ino};

/// What a new block holds, which must be durable before anything points at it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InitKind {
    /// Directory entries.
    Dir,
    /// Block numbers.
    Indirect,
    /// Extended attributes.
    Xattr,
    /// The text of a symbolic link.
    Symlink,
}

/// Where a pointer of a map lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PointerAt {
    /// In the inode's slot, at this place of its array.
    Inode(u16),
    /// In a block of the map, at this place of its array.
    Block(u16),
}

/// What a pointer of a map leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeadsTo {
    /// The file's contents, or a directory's entries.
    Contents,
    /// A further block of the map, with so many levels of them below it (0: none).
    Map(u8),
}

/// The meaning of one edit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Bits of a block bitmap are set.
    AllocBlocks(Extent),
    /// Bits of a block bitmap are cleared. The blocks are not reused before `may_reuse` says so.
    FreeBlocks(Extent),
    /// A bit of an inode bitmap is set.
    AllocInode(Ino),
    /// A bit of an inode bitmap is cleared. The inode is not reused before `may_reuse` says so.
    FreeInodeBit(Ino),
    /// Counters in a group descriptor or the superblock: hints that no order can protect.
    Counts,
    /// State of the superblock (clean, features): written by whoever opens and closes.
    State,
    /// The whole contents of a block that nothing durable points at yet.
    InitBlock {
        /// Whose block.
        ino: Ino,
        /// What it holds.
        kind: InitKind,
    },
    /// An inode's slot is filled for a new file: mode, owner, links, generation.
    InitInode(Ino),
    /// Pointers of a map, which follow one another, are set or moved to new blocks, which do too.
    /// `old` is 0 where there was a hole.
    MapPointer {
        /// Whose map.
        ino: Ino,
        /// Where the first of them lies.
        at: PointerAt,
        /// What they lead to.
        leads_to: LeadsTo,
        /// What they pointed at, from this block on.
        old: BlockNo,
        /// What they point at.
        new: Extent,
    },
    /// Pointers of a map, which follow one another, are cleared.
    Unmap {
        /// Whose map.
        ino: Ino,
        /// Where the first of them lies.
        at: PointerAt,
        /// What they led to.
        leads_to: LeadsTo,
        /// What they pointed at.
        old: Extent,
    },
    /// The pointer to an inode's attribute block changes; either may be 0.
    XattrPointer {
        /// Whose attributes.
        ino: Ino,
        /// The old block.
        old: BlockNo,
        /// The new block.
        new: BlockNo,
    },
    /// A file or directory grows by what is written to it, or what lies of it in the inode changes.
    Grow(Ino),
    /// A directory got longer: only once the block at its new end is mapped.
    GrowDir(Ino),
    /// A file's length is set, shorter or longer, by an operation that promises it (truncate).
    Shrink(Ino),
    /// Times, attributes within the inode: no order needed.
    Attr(Ino),
    /// Owner, group and permissions are set, all of them told: none is seen without the others,
    /// or a file of a stranger's could be set-user-ID for its new owner.
    Owner(Ino),
    /// The count of blocks that an inode holds: a hint, which no order protects.
    Held(Ino),
    /// The count of users of an attribute block, in that block, falls: after the pointer of one.
    ShareDown(Ino),
    /// A directory loses its index flag, before its first entry changes.
    DropIndex(Ino),
    /// A directory's index by hash changes, and names move from one of its blocks to another. Only
    /// where operations are atomic.
    Reindex(Ino),
    /// A link count rises, before the name that it counts.
    LinkUp(Ino),
    /// A link count falls, after the name that it counted is gone.
    LinkDown(Ino),
    /// A parent's link count falls because a child directory is gone or moved: after the child's
    /// own change.
    ParentLinkDown(Ino),
    /// A directory entry appears.
    AddEntry {
        /// In this directory.
        dir: Ino,
        /// For this inode.
        ino: Ino,
        /// Stands for the name: a name has one, and few have the same.
        name: u32,
        /// The byte of the block at which it begins.
        at: u16,
    },
    /// A directory entry changes from one inode to another in place.
    ChangeEntry {
        /// In this directory.
        dir: Ino,
        /// The inode it named.
        old: Ino,
        /// The inode it names.
        new: Ino,
        /// The byte of the block at which it begins.
        at: u16,
    },
    /// A directory's ".." moves to a new parent.
    DotDot {
        /// The directory.
        dir: Ino,
        /// Its new parent.
        parent: Ino,
    },
    /// A directory entry goes.
    RemoveEntry {
        /// In this directory.
        dir: Ino,
        /// For this inode.
        ino: Ino,
        /// Stands for the name, as where it came.
        name: u32,
        /// The byte of the block at which it begins.
        at: u16,
    },
    /// An inode's slot is cleared: links 0, deletion time. Its pointers are cleared by `Unmap` in
    /// the same transaction or before.
    FreeInode(Ino),
}

impl Change {
    /// Asserts that it says something: of things that are there, within a block of `block_bytes`.
    /// What came from a disk (the inode that an old entry named) may be anything.
    pub(crate) fn check(&self, block_bytes: usize) {
        match self {
            Change::AllocBlocks(e) | Change::FreeBlocks(e) => {
                assert!(e.len > 0 && e.start.0 > 0, "O1: {self:?} is of no blocks");
            }
            Change::MapPointer { ino, new, .. } => {
                assert!(ino.0 != 0, "O1: {self:?} is of no inode");
                // A node of a tree of extents changes as a whole, and names no blocks.
                let leads = new.len == 0 || new.start.0 != 0;
                assert!(leads, "O1: {self:?} leads to the superblock");
                let ends = new.start.0.checked_add(new.len).is_some();
                assert!(ends, "O1: {self:?} leads beyond all numbers");
            }
            Change::Unmap { ino, old, .. } => {
                assert!(ino.0 != 0 && old.len > 0, "O1: {self:?} unmaps nothing");
            }
            Change::XattrPointer { ino, old, new } => {
                assert!(ino.0 != 0 && old != new, "O1: {self:?} changes nothing");
            }
            Change::AddEntry { dir, ino, at, .. } => {
                assert!(dir.0 != 0 && ino.0 != 0, "O1: {self:?} is an entry of nothing");
                assert!(at.is_multiple_of(4), "O1: {self:?} begins between two words");
                assert!(usize::from(*at) < block_bytes, "O1: {self:?} lies in no block");
            }
            Change::ChangeEntry { dir, new, at, .. } => {
                assert!(dir.0 != 0 && new.0 != 0, "O1: {self:?} is an entry of nothing");
                assert!(usize::from(*at) < block_bytes, "O1: {self:?} lies in no block");
            }
            Change::RemoveEntry { dir, at, .. } => {
                let inside = usize::from(*at) < block_bytes;
                assert!(dir.0 != 0 && inside, "O1: {self:?} lies in no directory");
            }
            Change::DotDot { dir, parent } => {
                assert!(dir.0 != 0 && parent.0 != 0, "O1: {self:?} leads nowhere");
            }
            Change::InitBlock { ino, .. }
            | Change::AllocInode(ino)
            | Change::FreeInodeBit(ino)
            | Change::InitInode(ino)
            | Change::FreeInode(ino)
            | Change::Grow(ino)
            | Change::GrowDir(ino)
            | Change::Shrink(ino)
            | Change::Attr(ino)
            | Change::Owner(ino)
            | Change::Held(ino)
            | Change::ShareDown(ino)
            | Change::DropIndex(ino)
            | Change::Reindex(ino)
            | Change::LinkUp(ino)
            | Change::LinkDown(ino)
            | Change::ParentLinkDown(ino) => assert!(ino.0 != 0, "O1: {self:?} of no inode"),
            Change::Counts | Change::State => (),
        }
    }

    /// The byte of the block at which the entry begins that comes or goes.
    pub(crate) fn entry(&self) -> Option<usize> {
        match self {
            Change::AddEntry { at, .. } | Change::RemoveEntry { at, .. } => Some(usize::from(*at)),
            _ => None,
        }
    }

    /// By how much the number of bits that are set in a map rises; None: it is no edit of a map.
    fn bits(&self) -> Option<i64> {
        match self {
            Change::AllocBlocks(e) => Some(e.len as i64),
            Change::FreeBlocks(e) => Some(-(e.len as i64)),
            Change::AllocInode(_) => Some(1),
            Change::FreeInodeBit(_) => Some(-1),
            _ => None,
        }
    }

    /// Asserts that an edit did with the bits of a map what it said: `before` and `after` are how
    /// many were set. One that was set already, or in another group, is somebody else's.
    pub(crate) fn check_bits(&self, before: u32, after: u32) {
        let (said, did) = (self.bits(), i64::from(after) - i64::from(before));
        assert!(said.is_none_or(|s| s == did), "O1: {self:?} sets {did} bits of its map");
    }

    /// What the edit's bytes are made of.
    pub(crate) fn grain(&self) -> Grain {
        match self {
            Change::AllocBlocks(_)
            | Change::FreeBlocks(_)
            | Change::AllocInode(_)
            | Change::FreeInodeBit(_) => Grain::Bits,
            _ => Grain::Words,
        }
    }
}
