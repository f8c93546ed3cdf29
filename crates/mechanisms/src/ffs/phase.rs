//! The order of a transaction's edits: which phase each change belongs to. Taken from the operation
//! graphs of ordered writes (create: inode before name; unlink: name before link count; rename: new
//! name before the old one goes). It knows no bytes.

use integrity::{Change, Plant};

/// How many phases there are.
pub(super) const PHASES: usize = 6;

/// New contents, before any pointer to them.
const CONTENTS: usize = 0;
/// Inodes, link counts up, pointers: before any name.
const INODES: usize = 1;
/// Names appear or change.
const NAMES: usize = 2;
/// Old names go.
const UNNAMES: usize = 3;
/// Link counts down, pointers and inodes cleared.
const RELEASES: usize = 4;
/// The parent's count, after its child is gone.
const PARENTS: usize = 5;

// A phase begins when the ones before it are durable, so their numbers are their order.
const _: () = assert!(CONTENTS < INODES && INODES < NAMES && NAMES < UNNAMES);
const _: () = assert!(UNNAMES < RELEASES && RELEASES < PARENTS && PARENTS == PHASES - 1);

/// The bugs that can be planted here and in the mechanism (`cairn crash --plant`).
pub(crate) const PLANTS: &[&str] = &[
    "skip-flush",
    "ack-before-durable",
    "no-rollback",
    "parent-count-first",
    "share-first",
    "attributes-first",
    "length-before-pointer",
    "name-before-inode",
    "link-count-after-name",
    "contents-after-pointer",
    "release-before-unname",
    "old-name-first",
    "unordered-truncate",
];

/// The phase of a change; None needs no order (bitmaps and counts are repaired, attributes stand
/// alone).
pub(super) fn phase_of(change: &Change, plant: Plant) -> Option<usize> {
    let phase = match change {
        Change::InitBlock { .. } if plant.is("contents-after-pointer") => UNNAMES,
        // An index that does not know of a new block is damaged: its flag goes before anything.
        Change::InitBlock { .. } | Change::DropIndex(_) | Change::Reindex(_) => CONTENTS,
        Change::InitInode(_) => INODES,
        Change::LinkUp(_) if plant.is("link-count-after-name") => UNNAMES,
        Change::LinkUp(_) | Change::Grow(_) => INODES,
        // An inode that goes keeps its attributes as long as its names: they say who may read it.
        Change::XattrPointer { new, .. } if new.0 == 0 && !plant.is("attributes-first") => RELEASES,
        // A directory's block swapped for a copy, in which a name has changed.
        Change::MapPointer { old, .. } | Change::XattrPointer { old, .. } if old.0 != 0 => NAMES,
        Change::MapPointer { .. } | Change::XattrPointer { .. } => INODES,
        // Permissions may be taken back with attributes that wait: not without the owner.
        Change::Owner(_) => INODES,
        Change::AddEntry { .. } if plant.is("name-before-inode") => CONTENTS,
        // The length may lie in another sector than the pointer to the block at the end.
        Change::GrowDir(_) if plant.is("length-before-pointer") => CONTENTS,
        Change::GrowDir(_) => NAMES,
        Change::AddEntry { .. } | Change::ChangeEntry { .. } | Change::DotDot { .. } => NAMES,
        Change::RemoveEntry { .. } if plant.is("old-name-first") => CONTENTS,
        Change::RemoveEntry { .. } => UNNAMES,
        Change::LinkDown(_) | Change::FreeInode(_) if plant.is("release-before-unname") => CONTENTS,
        Change::Unmap { .. } | Change::Shrink(_) if plant.is("unordered-truncate") => return None,
        Change::LinkDown(_) | Change::FreeInode(_) | Change::Unmap { .. } | Change::Shrink(_) => {
            RELEASES
        }
        Change::ParentLinkDown(_) if plant.is("parent-count-first") => CONTENTS,
        Change::ShareDown(_) if plant.is("share-first") => CONTENTS,
        Change::ParentLinkDown(_) | Change::ShareDown(_) => PARENTS,
        Change::AllocBlocks(_)
        | Change::FreeBlocks(_)
        | Change::AllocInode(_)
        | Change::FreeInodeBit(_)
        | Change::Counts
        | Change::State
        | Change::Attr(_)
        | Change::Held(_) => return None,
    };
    Some(phase)
}

/// Does a returned call with such a change promise that it survives? (The others are delayed.)
pub(super) fn is_promised(change: &Change) -> bool {
    match change {
        Change::MapPointer { old, .. } | Change::XattrPointer { old, .. } => old.0 != 0,
        Change::InitInode(_)
        | Change::LinkUp(_)
        | Change::DropIndex(_)
        | Change::Reindex(_)
        | Change::GrowDir(_)
        | Change::AddEntry { .. }
        | Change::ChangeEntry { .. }
        | Change::DotDot { .. }
        | Change::RemoveEntry { .. }
        | Change::LinkDown(_)
        | Change::FreeInode(_)
        | Change::Unmap { .. }
        | Change::Shrink(_)
        | Change::ParentLinkDown(_) => true,
        _ => false,
    }
}

/// The last phase that the caller of an operation with these changes waits for; None: he waits for
/// none. What is released follows behind a name that goes, and where no name does; not what a
/// directory held, because a crash would show it without its name.
pub(super) fn last_waited<'a>(changes: impl Iterator<Item = &'a Change>) -> Option<usize> {
    let (mut unnames, mut frees, mut makes) = (false, false, false);
    for change in changes {
        match change {
            Change::ParentLinkDown(_) | Change::DotDot { .. } => return Some(PHASES - 1),
            Change::RemoveEntry { .. } | Change::ChangeEntry { .. } => unnames = true,
            Change::FreeInode(_) => frees = true,
            Change::InitInode(_) => makes = true,
            _ => (),
        }
    }
    match (unnames, frees && !makes) {
        (true, _) => Some(UNNAMES),
        (false, true) => None,
        (false, false) => Some(PHASES - 1),
    }
}

/// Does it clear or move a pointer, so that what it pointed at may be freed?
pub(super) fn frees_pointer(change: &Change) -> bool {
    match change {
        Change::MapPointer { old, .. } | Change::XattrPointer { old, .. } => old.0 != 0,
        Change::Unmap { .. } | Change::FreeInode(_) | Change::Shrink(_) => true,
        _ => false,
    }
}

/// Bitmaps and counters: nobody waits for them.
pub(super) fn is_hint(change: &Change) -> bool {
    matches!(
        change,
        Change::AllocBlocks(_)
            | Change::FreeBlocks(_)
            | Change::AllocInode(_)
            | Change::FreeInodeBit(_)
            | Change::Counts
            | Change::State
    )
}
