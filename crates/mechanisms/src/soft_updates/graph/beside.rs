//! Edges between operations: a node is seen only beside an older one that has written none of its
//! bytes, or after it. Who needs which is latest.rs's to say.

use super::{Graph, NodeId};
use env::Few;
use format::BlockNo;
use std::collections::BTreeSet;

impl Graph {
    /// From now on the node waits for `others` too. Of one file thousands of names may be new when
    /// one goes, so they are not looked for one by one.
    pub(super) fn come_after(&mut self, id: NodeId, others: &BTreeSet<NodeId>) {
        let node = self.nodes.get_mut(id).expect("it was found just now");
        let known: BTreeSet<NodeId> = node.after.iter().copied().collect();
        let is_new = |o: &&NodeId| **o != id && !known.contains(o);
        let new: Few<NodeId> = others.iter().filter(is_new).copied().collect();
        let later = new.iter().find(|o| **o > id);
        assert!(later.is_none(), "I3: node {id} is to wait for {later:?}, which came later");
        self.counts.edges += new.len();
        node.after.extend(new);
    }

    /// The same of one.
    fn come_after_one(&mut self, id: NodeId, older: NodeId) {
        let node = self.nodes.get_mut(id).expect("it was made just now");
        if !node.after.contains(&older) {
            node.after.push(older);
            self.counts.edges += 1;
        }
    }

    /// Does the node stand in no image without the older one?
    pub(in super::super) fn lies_over(&self, id: NodeId, older: NodeId) -> bool {
        self.nodes.get(id).is_some_and(|n| n.under.contains(&older))
    }

    /// The node may be seen only with an older one of another operation: beside it in one sector,
    /// else after it, because a write may be torn between two. (A pointer with the length that
    /// covers it, whose contents are still on their way; a name with the going of the same name.)
    pub(in super::super) fn stands_beside(&mut self, id: NodeId, older: NodeId) {
        let Some(o) = self.nodes.get(older) else { return }; // durable
        let (txn, place) = (o.txn, (o.buf.block(), o.backward.sector()));
        let node = self.nodes.get_mut(id).expect("it was made just now");
        if node.txn != txn {
            assert!(older < id, "I9: an edge leads back in time");
            if place != (node.buf.block(), node.backward.sector()) || place.1.is_none() {
                self.come_after_one(id, older);
            } else {
                self.stands_on(id, older);
            }
        }
    }

    fn stands_on(&mut self, id: NodeId, older: NodeId) {
        let node = self.nodes.get_mut(id).expect("it was made just now");
        if !node.under.contains(&older) {
            node.under.push(older);
            self.lies_under(older);
        }
    }

    /// The node comes after everything of others that waits in the block, of which it shows a copy:
    /// none of that may be forgotten as if it had not been seen (I10).
    pub(in super::super) fn come_after_block(&mut self, id: NodeId, block: BlockNo) {
        let txn = self.nodes[id].txn;
        let is_others = |o: &NodeId| self.nodes[*o].txn != txn;
        let all: Vec<NodeId> = self.in_block(block).filter(is_others).collect();
        for older in all {
            assert!(older < id, "I14: an edge leads back in time");
            self.come_after_one(id, older);
            self.stands_on(id, older);
        }
    }

    /// What is changed in a copy comes after the pointer to it; what the pointer's own operation
    /// has changed there comes by the pointer, and whom it concerns that does.
    pub(in super::super) fn stand_in_copy(&mut self, id: NodeId, pointer: NodeId) {
        let Some(of) = self.nodes.get(pointer).map(|n| n.txn) else { return }; // durable
        let node = self.nodes.get_mut(id).expect("it was made just now");
        if node.txn != of {
            self.come_after_one(id, pointer);
            return;
        }
        let (own, names_in) = (node.own.clone(), node.names_in.clone());
        self.note_concerns(pointer, own, names_in);
    }
}
