//! The edges of the graphs: in which step of its operation each change may become durable, and whom
//! it concerns. Taken from the operation graphs of soft updates (mckusick-1999)
//! on ext2's layout. It knows no bytes and no blocks in memory.

use super::lying::Head;
use format::Ino;
use integrity::{Change, InitKind, Plant, PointerAt};

/// Steps of one operation; a change of one becomes durable after all changes of the lower ones.
pub(super) const STEPS: usize = 11;

/// Contents, bits that say what is in use, new blocks of a map or a directory, counts up.
pub(super) const CONTENTS: usize = 0;
/// Inodes, their own pointers and lengths: before any name.
pub(super) const INODES: usize = 1;
/// Pointers in blocks of a map that are in use already: after the length that covers them.
const MAPS: usize = 2;
/// Names appear or change.
pub(super) const NAMES: usize = 3;
/// Old names go.
pub(super) const UNNAMES: usize = 4;
/// Pointers in blocks of a map are cleared: before the length that no longer covers them.
const CUTS: usize = 5;
/// Counts down; inodes, their pointers and lengths cleared.
const RELEASES: usize = 6;
/// The users that an attribute block counts, after the pointer of one is gone.
const SHARES: usize = 7;
/// The parent's count, after its child is gone.
const PARENTS: usize = 8;
/// Bits of what is no longer pointed at are cleared.
pub(super) const FREES: usize = 9;
/// Counts that are hints, where intents are kept: for nobody, and nobody waits for them.
pub(super) const HINTS: usize = 10;

// A set of steps is the bits of 16 ([`needs`]), and what is a hint waits for nothing.
const _: () = assert!(STEPS <= 16 && HINTS == STEPS - 1 && FREES < HINTS && PARENTS < FREES);

/// The bugs that can be planted here and in the mechanism (`cairn crash --plant`).
pub(crate) const PLANTS: &[&str] = &[
    "pointer-before-contents",
    "pointer-before-bit",
    "inode-before-bit",
    "length-before-inode",
    "new-block-before-contents",
    "name-before-inode",
    "name-before-count",
    "changed-name-before-count",
    "map-before-length",
    "set-length-forgotten",
    "old-name-first",
    "release-before-unname",
    "count-down-before-unname",
    "parent-count-first",
    "share-first",
    "share-forgotten",
    "length-before-cut",
    "bits-before-release",
    "inode-bit-before-release",
    "freed-before-count",
    "completion-is-durable",
    "no-rollback",
    "older-edits-forgotten",
    "name-again-early",
    "index-dropped-late",
    "inode-freed-early",
    "copied-early",
    "attributes-apart",
    "cancel-between-names",
    "cancel-over-goings",
    "cancel-hands-nothing-on",
    "cancel-over-others",
    "cancel-what-was-seen",
    "unreachable-name",
    "moved-out-forgotten",
    "last-name-first",
    "sync-skips-names",
    "sync-skips-old-names",
    "sync-skips-flush",
    "intent-skipped",
    "intent-late",
    "intent-after-bits",
    "intent-expires-early",
    "stale-intents-believed",
    "intents-expire-in-recovery",
    "failed-intents-forgotten",
    "failed-wave-serves",
    "failed-wave-wakes-nobody",
];

/// Where a change lies, as far as its step depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// Anywhere.
    Any,
    /// In a block that the same operation has made, and that nothing durable points at.
    NewBlock,
    /// In the inode of a directory, whose new block is in a block of its map: a directory's length
    /// covers only what is mapped.
    BehindMap,
}

/// The step of a change; None: it needs no order.
pub(super) fn step_of(change: &Change, place: Place, plant: Plant) -> Option<usize> {
    let forgotten = |name: &str, step: usize| (!plant.is(name)).then_some(step);
    match change {
        Change::AllocBlocks(_) => forgotten("pointer-before-bit", CONTENTS),
        Change::AllocInode(_) => forgotten("inode-before-bit", CONTENTS),
        Change::InitBlock { kind: InitKind::Dir | InitKind::Symlink, .. } => {
            forgotten("new-block-before-contents", CONTENTS)
        }
        Change::InitBlock { .. } => Some(CONTENTS),
        // An index that does not know of a new block is damaged: its flag goes before anything.
        Change::DropIndex(_) | Change::Reindex(_) => Some(CONTENTS),
        Change::MapPointer { .. } if place == Place::NewBlock => Some(CONTENTS),
        // A directory's block swapped for a copy, in which a name has changed.
        Change::MapPointer { old, .. } if old.0 != 0 => Some(NAMES),
        Change::MapPointer { at: PointerAt::Block(_), .. } if plant.is("map-before-length") => {
            Some(CONTENTS)
        }
        Change::MapPointer { at: PointerAt::Block(_), .. } => Some(MAPS),
        Change::MapPointer { at: PointerAt::Inode(_), .. } => Some(INODES),
        Change::InitInode(_) if plant.is("name-before-inode") => Some(UNNAMES),
        Change::LinkUp(_) if plant.is("name-before-count") => Some(UNNAMES),
        // Before a new directory's inode, whose ".." is counted even if nothing names it.
        Change::LinkUp(_) => Some(CONTENTS),
        // An inode that goes keeps its attributes as long as its names: they say who may read it.
        Change::XattrPointer { new, .. } if new.0 == 0 => Some(RELEASES),
        Change::InitInode(_) | Change::XattrPointer { .. } => Some(INODES),
        // Permissions may be taken back with attributes that wait: then the owner is, too.
        Change::Owner(_) => Some(INODES),
        Change::Grow(_) if plant.is("map-before-length") => Some(UNNAMES),
        Change::GrowDir(_) if place == Place::BehindMap => Some(NAMES),
        Change::Grow(_) | Change::GrowDir(_) => Some(INODES),
        Change::ChangeEntry { .. } if plant.is("changed-name-before-count") => Some(CONTENTS),
        Change::AddEntry { .. } | Change::ChangeEntry { .. } | Change::DotDot { .. } => Some(NAMES),
        Change::RemoveEntry { .. } if plant.is("old-name-first") => Some(CONTENTS),
        Change::RemoveEntry { .. } => Some(UNNAMES),
        Change::FreeInode(_)
        | Change::Unmap { at: PointerAt::Inode(_), .. }
        | Change::Shrink(_)
            if plant.is("release-before-unname") || plant.is("length-before-cut") =>
        {
            Some(if plant.is("length-before-cut") { UNNAMES } else { CONTENTS })
        }
        Change::Unmap { at: PointerAt::Block(_), .. } => Some(CUTS),
        Change::LinkDown(_) if plant.is("count-down-before-unname") => Some(CONTENTS),
        Change::LinkDown(_) | Change::FreeInode(_) | Change::Unmap { .. } | Change::Shrink(_) => {
            Some(RELEASES)
        }
        Change::ShareDown(_) if plant.is("share-first") => Some(CONTENTS),
        Change::ShareDown(_) => Some(SHARES),
        Change::ParentLinkDown(_) if plant.is("parent-count-first") => Some(CONTENTS),
        Change::ParentLinkDown(_) => Some(PARENTS),
        Change::FreeBlocks(_) if plant.is("bits-before-release") => Some(CONTENTS),
        Change::FreeInodeBit(_) if plant.is("inode-bit-before-release") => Some(CONTENTS),
        Change::FreeBlocks(_) | Change::FreeInodeBit(_) => Some(FREES),
        Change::Counts | Change::State | Change::Attr(_) | Change::Held(_) => None,
    }
}

/// The steps that must be durable before this one may be seen, as bits.
pub(super) fn needs(step: usize) -> u16 {
    if step == HINTS {
        return 0;
    }
    assert!(step < STEPS, "step {step} of {STEPS}");
    let below = (1u16 << step) - 1;
    // What is freed and the parent's count wait for the same, not for one another.
    if step == FREES { below & !(1 << PARENTS) } else { below }
}

/// Are its bytes put back in images until its turn comes? Not of what is early and harmless: bits
/// that are set, and blocks that nothing points at.
pub(super) fn is_rolled_back(change: &Change) -> bool {
    let early = matches!(change, Change::AllocBlocks(_) | Change::AllocInode(_));
    !early && !matches!(change, Change::InitBlock { .. })
}

/// Does it set bits that say what is in use? Harmless if it is seen early, unless somebody relies
/// on being told of it.
pub(super) fn is_bits(change: &Change) -> bool {
    matches!(change, Change::AllocBlocks(_) | Change::AllocInode(_))
}

/// Whom a change concerns, for who makes something durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Concerns {
    /// The inode that is not whole, or not named, without it.
    pub(super) own: Option<Ino>,
    /// The directory whose names it changes.
    pub(super) names_in: Option<Ino>,
    /// Where the name lies in its block.
    pub(super) head: Head,
}

/// Whom it concerns. Counts that are too high and bits that are not cleared yet concern nobody.
pub(super) fn concerns(change: &Change) -> Concerns {
    let (own, names_in) = match *change {
        Change::InitInode(i)
        | Change::LinkUp(i)
        | Change::Grow(i)
        | Change::GrowDir(i)
        | Change::Shrink(i)
        | Change::Owner(i)
        | Change::DropIndex(i)
        | Change::Reindex(i)
        | Change::MapPointer { ino: i, .. }
        | Change::Unmap { ino: i, .. }
        | Change::XattrPointer { ino: i, .. }
        | Change::DotDot { dir: i, .. } => (Some(i), None),
        Change::AddEntry { dir, ino, .. } => (Some(ino), Some(dir)),
        Change::ChangeEntry { dir, new, .. } => (Some(new), Some(dir)),
        // Of a directory that was moved: with two names, the checker would take one away.
        Change::RemoveEntry { dir, ino, .. } => (Some(ino), Some(dir)),
        _ => (None, None),
    };
    let head = match *change {
        Change::AddEntry { at, .. }
        | Change::ChangeEntry { at, .. }
        | Change::RemoveEntry { at, .. } => Head::At(at),
        _ => Head::None,
    };
    Concerns { own, names_in, head }
}
