//! What later operations stand on: of each inode, name and attribute block the last node that a
//! later change of it must not be seen without, though it may have written none of the same bytes.
//! It says which; what follows from that for images is the graph's.
//!
//! ```text
//!   an inode is made     ◄─ what is done to that inode (I11)
//!   a length             ◄─ pointers to what it covers
//!   a name goes          ◄─ the same name comes again (I9)
//!   an index is given up ◄─ names and blocks that it does not know of (I12)
//!   users are counted    ◄─ their attribute block is freed (I4)
//!   an inode is changed  ◄─ it is freed (I13)
//!   names in a block     ◄─ the pointer to a copy of it ◄─ names in the copy (I14)
//! ```

use super::SoftUpdates;
use super::graph::{Graph, NodeId};
use super::order::CONTENTS;
use crate::record::files_of;
use env::IdMap;
use format::{BlockNo, Ino};
use integrity::{Change, Edit, Plant, TxnId, invariant};
use std::collections::{BTreeMap, BTreeSet};

/// The last nodes of each kind, until they are durable.
#[derive(Default)]
pub(super) struct Latest {
    /// What makes each inode.
    made: IdMap<Ino, NodeId>,
    /// Each file's length.
    lengths: IdMap<Ino, NodeId>,
    /// Where names went, by directory and what stands for the name.
    removed: IdMap<(Ino, u32), NodeId>,
    /// What says of a directory that its index is none any more.
    unindexed: IdMap<Ino, NodeId>,
    /// The pointers to blocks that are copies of others, by the copy.
    copies: IdMap<BlockNo, NodeId>,
    /// The last fall of an attribute block's count of users.
    shares: BTreeMap<BlockNo, NodeId>,
}

impl Latest {
    /// Is an inode's making not durable yet?
    pub(super) fn is_being_made(&self, ino: Ino) -> bool {
        self.made.contains_key(&ino)
    }

    /// Forgets what has become durable.
    pub(super) fn sweep(&mut self, graph: &Graph, plant: Plant) {
        self.made.retain(|_, node| graph.has(*node));
        let made = &self.made;
        self.lengths.retain(|ino, node| {
            let waits = graph.has(*node);
            let is_made = made.get(ino).is_none_or(|init| init > node);
            invariant!(plant, waits || is_made, "I11: {ino} has a length, and is not made");
            waits
        });
        self.removed.retain(|_, node| graph.has(*node));
        self.unindexed.retain(|_, node| graph.has(*node));
        self.copies.retain(|_, node| graph.has(*node));
        self.shares.retain(|_, node| graph.has(*node));
    }

    /// Everything is durable: later changes stand on nothing.
    pub(super) fn check_empty(&self) {
        assert!(self.removed.is_empty(), "I9: a name's going is durable, and waited for");
        assert!(self.made.is_empty(), "I11: an inode that is durable is being made");
        assert!(self.unindexed.is_empty(), "I12: an index has gone, and names wait for that");
        assert!(self.copies.is_empty(), "I14: a block's copy is in use, and waited for");
        assert!(self.shares.is_empty(), "I4: users are counted, and waited for");
    }

    /// What is done to the inode from now on stands on this.
    fn note_making(&mut self, ino: Ino, id: NodeId, graph: &Graph, plant: Plant) {
        let before = self.made.insert(ino, id).filter(|b| *b != id && graph.has(*b));
        invariant!(plant, before.is_none(), "I4: {ino} is made, and was by {before:?}");
    }
}

/// The directory whose index, if a kernel had made one, does not know of the change.
fn is_beside_index(change: &Change) -> Option<Ino> {
    match *change {
        Change::AddEntry { dir, .. } | Change::ChangeEntry { dir, .. } => Some(dir),
        Change::GrowDir(dir) | Change::MapPointer { ino: dir, .. } => Some(dir),
        _ => None,
    }
}

impl Graph {
    /// Freeing an inode stands on every change of its slot that is not durable, of other bytes
    /// too: if one were rolled back later, it would damage the next owner of the number. Changes
    /// on which another one of these stands already are left out.
    fn stand_on_slot(&mut self, id: NodeId, ino: Ino, block: BlockNo) {
        let all: Vec<NodeId> = self.owned_by(ino).filter(|o| self.is_in(*o, block)).collect();
        let mut reached: BTreeSet<NodeId> = BTreeSet::new();
        for older in all.into_iter().rev() {
            reached.extend(self.node(older).into_iter().flat_map(|n| &n.under));
            if !reached.contains(&older) {
                self.stands_beside(id, older);
            }
        }
    }

    /// What another operation has done to the inode in this block, if it is not durable.
    fn first_in_slot(&self, ino: Ino, block: BlockNo, txn: TxnId) -> Option<NodeId> {
        let is_others = |id: &NodeId| self.node(*id).is_some_and(|n| n.txn != txn);
        self.owned_by(ino).find(|id| self.is_in(*id, block) && is_others(id))
    }
}

impl SoftUpdates {
    /// What older operations have done to the same inode, name or block is seen with the node, if
    /// not before it; and later ones will stand on this.
    pub(super) fn stand_on_older(&self, txn: TxnId, (id, step): (NodeId, usize), edit: &Edit) {
        self.stand_on_making(id, edit);
        let (mut graph, mut latest) = (self.graph.borrow_mut(), self.latest.borrow_mut());
        let unindexed = is_beside_index(&edit.change).and_then(|dir| latest.unindexed.get(&dir));
        if let Some(dropped) = unindexed.filter(|_| !self.plant.is("index-dropped-late")) {
            graph.stands_beside(id, *dropped); // I12
        }
        if let Some(pointer) = latest.copies.get(&edit.buf.block()) {
            graph.stand_in_copy(id, *pointer); // I14
        }
        match edit.change {
            Change::MapPointer { old, .. } if old.0 != 0 && self.plant.is("copied-early") => (),
            Change::MapPointer { old, new, .. } if old.0 != 0 => {
                graph.come_after_block(id, old); // I14
                let before = latest.copies.insert(new.start, id).filter(|b| graph.has(*b));
                assert!(before.is_none(), "I14: {} is a copy, and was by {before:?}", new.start);
            }
            Change::InitInode(ino) => {
                let old = graph.first_in_slot(ino, edit.buf.block(), txn);
                invariant!(
                    self.plant,
                    old.is_none(),
                    "I13: {ino} is made over {old:?}, which waits"
                );
                latest.note_making(ino, id, &graph, self.plant);
            }
            // A shorter one, too: it may be set to more than it was.
            Change::Shrink(_) if self.plant.is("set-length-forgotten") => (),
            Change::Grow(ino) | Change::Shrink(ino) => {
                latest.lengths.insert(ino, id);
            }
            Change::DropIndex(dir) => {
                latest.unindexed.insert(dir, id);
            }
            Change::RemoveEntry { dir, name, .. } => {
                latest.removed.insert((dir, name), id);
            }
            // A directory never has a name twice.
            Change::AddEntry { dir, name, .. } if !self.plant.is("name-again-early") => {
                if let Some(removed) = latest.removed.get(&(dir, name)) {
                    graph.stands_beside(id, *removed); // I9
                }
            }
            Change::ShareDown(_) => {
                latest.shares.insert(edit.buf.block(), id);
            }
            Change::FreeInode(ino) if !self.plant.is("inode-freed-early") => {
                graph.stand_on_slot(id, ino, edit.buf.block()); // I13
            }
            // The last user's pointer is not the only one that was there.
            Change::FreeBlocks(e) if !self.plant.is("share-forgotten") => {
                let of = latest.shares.range(e.start..e.start.plus(e.len));
                let of: BTreeSet<NodeId> = of.map(|(_, id)| *id).collect();
                graph.free_after(txn, &of);
            }
            Change::MapPointer { ino, .. } if step != CONTENTS => {
                if let Some(length) = latest.lengths.get(&ino) {
                    graph.stands_beside(id, *length);
                }
            }
            _ => (),
        }
    }

    /// What a later operation does to an inode stands on its making, even where that has changed
    /// none of the same bytes: a length must not be seen in what is left of a removed directory.
    fn stand_on_making(&self, id: NodeId, edit: &Edit) {
        if self.plant.is("length-before-inode") {
            return;
        }
        let Some(ino) = files_of(&edit.change)[0] else { return };
        let made = self.latest.borrow().made.get(&ino).copied();
        let mut graph = self.graph.borrow_mut();
        if let Some(made) = made.filter(|m| graph.is_in(*m, edit.buf.block())) {
            graph.stands_beside(id, made); // I11
        }
    }
}
