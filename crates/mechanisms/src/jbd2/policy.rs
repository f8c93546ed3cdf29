//! What the five modes do with file contents, and what an edit means to the running transaction.
//! The first is decided here and nowhere else.
//!
//! A block of contents that the journal may hold a copy of is never written as ordered data: a
//! crash would replay the old copy over the new contents. Being durable in place is not enough for
//! that; the tail must have passed the copy. This is stronger than the rule of the paper.

use super::transaction::Part;
use super::{Jbd2, State, add};
use cache::Buf;
use format::{BlockNo, Extent, Ino};
use integrity::{Change, Edit, Txn, invariant};
use std::ops::Range;

/// What happens to file contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Policy {
    /// They are written back at any time.
    Writeback,
    /// They are written back before the commit.
    Ordered,
    /// They are journaled, in whole blocks.
    Data,
    /// They are journaled, the bytes that were written.
    Wasteless,
    /// Of each write the pieces, one a block, of up to the threshold are journaled, the others are
    /// written back before the commit (hatzieleftheriou-2013, §3.1).
    Selective {
        /// In bytes.
        threshold: u64,
    },
}

/// What happens to one piece of contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Any,
    Ordered,
    Whole,
    Part,
}

impl Policy {
    /// Does the journal hold parts of blocks?
    pub(super) fn is_packed(self) -> bool {
        matches!(self, Policy::Wasteless | Policy::Selective { .. })
    }
    /// May contents be journaled?
    pub(super) fn journals_data(self) -> bool {
        !matches!(self, Policy::Writeback | Policy::Ordered)
    }

    /// `piece`: bytes of the write that are in this block of `block` bytes.
    fn way(self, piece: usize, block: usize) -> Way {
        match self {
            Policy::Writeback => Way::Any,
            Policy::Ordered => Way::Ordered,
            Policy::Data => Way::Whole,
            Policy::Selective { threshold } if piece as u64 > threshold => Way::Ordered,
            _ if piece == block => Way::Whole,
            _ => Way::Part,
        }
    }
}

/// The inode that a change concerns, and how.
fn concern(change: &Change) -> [Option<(Ino, Part)>; 2] {
    let essential = |i: Ino| Some((i, Part::Essential));
    match *change {
        Change::Attr(i) | Change::Owner(i) | Change::Held(i) | Change::ShareDown(i) => {
            [Some((i, Part::Attributes)), None]
        }
        Change::InitBlock { ino, .. }
        | Change::MapPointer { ino, .. }
        | Change::Unmap { ino, .. }
        | Change::XattrPointer { ino, .. } => [essential(ino), None],
        Change::InitInode(i)
        | Change::Grow(i)
        | Change::GrowDir(i)
        | Change::Shrink(i)
        | Change::DropIndex(i)
        | Change::Reindex(i)
        | Change::LinkUp(i)
        | Change::LinkDown(i)
        | Change::ParentLinkDown(i)
        | Change::FreeInode(i) => [essential(i), None],
        Change::AddEntry { dir, ino, .. } | Change::RemoveEntry { dir, ino, .. } => {
            [essential(dir), essential(ino)]
        }
        Change::ChangeEntry { dir, new, .. } => [essential(dir), essential(new)],
        Change::DotDot { dir, parent } => [essential(dir), essential(parent)],
        Change::AllocBlocks(_)
        | Change::FreeBlocks(_)
        | Change::AllocInode(_)
        | Change::FreeInodeBit(_)
        | Change::Counts
        | Change::State => [None, None],
    }
}

fn allocates(txn: &Txn, b: BlockNo) -> bool {
    txn.edits.iter().any(|e| match e.change {
        Change::AllocBlocks(e) => e.start <= b && b.0 < e.start.0 + e.len,
        _ => false,
    })
}

impl Jbd2 {
    pub(super) fn note_edit(&self, txn: &Txn, edit: &Edit) {
        let mut state = self.state.borrow_mut();
        let s = &mut *state;
        let joined = s.running.has_handle(txn.id);
        assert!(joined, "J3: a change of handle {}, which is in another transaction", txn.id);
        let free = s.busy.allows(&edit.change);
        assert!(free, "J5: {:?} before its freeing is committed", edit.change);
        if s.running.add_whole(&edit.buf) {
            s.heads.join(&edit.buf);
        }
        s.running.ordered.remove(&edit.buf.block().0);
        for (ino, part) in concern(&edit.change).into_iter().flatten() {
            s.running.note_inode(ino, part);
        }
        match edit.change {
            Change::FreeBlocks(e) => self.free(s, e),
            Change::FreeInodeBit(_) if self.plant.is("reuse-before-commit") => (),
            Change::FreeInodeBit(ino) => s.busy.add_inode(s.running.tid, ino),
            _ => (),
        }
    }

    fn free(&self, s: &mut State, e: Extent) {
        if !self.plant.is("reuse-before-commit") {
            s.busy.add_blocks(s.running.tid, e); // J5
        }
        s.running.free(e);
        s.heads.free(e);
    }

    pub(super) fn note_data(&self, txn: &mut Txn, ino: Ino, buf: &Buf, range: Range<usize>) {
        let block_bytes = self.cache.block_bytes();
        let mut state = self.state.borrow_mut();
        let s = &mut *state;
        let mut way = self.policy.way(range.len(), block_bytes);
        let b = buf.block().0;
        let journaled = s.running.blocks.contains_key(&b)
            || s.logged.contains_key(&b)
            || s.committing.as_ref().is_some_and(|c| c.blocks.contains_key(&b));
        if way == Way::Ordered && journaled && !self.plant.is("direct-over-logged") {
            way = Way::Whole; // J6
        }
        let part = match way {
            Way::Any | Way::Ordered => Part::Attributes,
            Way::Whole | Way::Part => Part::Essential,
        };
        let joined = s.running.has_handle(txn.id);
        invariant!(self.plant, joined, "J3: contents of handle {}, which has ended", txn.id);
        s.running.note_inode(ino, part);
        let was_ordered = s.running.ordered.contains_key(&b);
        if way == Way::Part && was_ordered {
            way = Way::Whole; // what was to be written back before the commit is in it now
        }
        let may_be_fresh = self.policy.is_packed() && !was_ordered;
        let is_new = match way {
            Way::Any => return,
            Way::Ordered => {
                s.running.ordered.insert(b, buf.clone());
                return;
            }
            // Of a new block only what is not zero need be journaled: what this operation has
            // announced of it, unless some of that was to be written back in its place.
            Way::Whole | Way::Part if may_be_fresh && allocates(txn, buf.block()) => {
                s.running.add_part(buf, range, true)
            }
            Way::Whole => s.running.add_whole(buf),
            Way::Part => s.running.add_part(buf, range, false),
        };
        s.running.ordered.remove(&b);
        if is_new {
            s.heads.join(buf);
        }
    }

    /// The revocations of a closed transaction: of what it frees and the journal has copies of.
    pub(super) fn revokes(&self, s: &State, freed: &[Extent]) -> Vec<BlockNo> {
        if self.plant.is("forget-revoke") {
            return Vec::new();
        }
        let range = |e: &Extent| s.logged.range(e.start.0..e.start.0 + e.len);
        let blocks: Vec<BlockNo> = freed.iter().flat_map(range).map(|(b, _)| BlockNo(*b)).collect();
        add(&self.counters.revokes, blocks.len() as u64);
        blocks
    }
}
