//! Names that lie over names which are forgotten (I10). In a sector of a directory each name is cut
//! out of the spare space of the one before it, so that its node lies over that one's. When the
//! lower file is forgotten, with its making and its going, the upper name, its *successor*, is left
//! as the only one that stands on the space: taken back, it has to give back all that the three had
//! changed.
//!
//! ```text
//!   live, in order of time     a is made ◄── b is made ◄── a goes
//!   a is forgotten             b is made, over what a lay over; its undo is that of all three
//! ```
//!
//! One successor in a sector can do that, if it has been seen no more than they have and if all
//! that is forgotten lies over older nodes or itself: then the order of nodes is that of time, and
//! no other node can have changed in between what they did.

use super::super::lying::{self, Head, Lying};
use super::super::order::{NAMES, UNNAMES};
use super::super::render::Backward;
use super::contents::blocks_of;
use super::{Graph, Node, NodeId};
use env::SECTOR_BYTES;
use format::BlockNo;
use integrity::{TxnId, invariant};
use std::collections::{BTreeMap, BTreeSet};

/// What stands on more than so many others directly is not looked into: a slot that one name after
/// another has taken, each of which waits.
pub(in super::super) const UNDER_MAX: usize = 64;

/// A sector of a directory's block.
type Sector = (BlockNo, usize);

/// Who lies over what is forgotten.
#[derive(Default)]
pub(in super::super) struct Above {
    /// In each sector of names that others lie over, the one that takes over.
    pub(in super::super) successors: BTreeMap<Sector, NodeId>,
    /// What cannot be forgotten, because others lie over it that cannot take over.
    pub(in super::super) kept: BTreeSet<NodeId>,
}

/// Does it make a name, or take one away?
fn changes_name(n: &Node) -> bool {
    matches!(n.step, NAMES | UNNAMES) && !n.names_in.is_empty()
}

impl Graph {
    /// Who lies over these nodes and is none of them?
    pub(in super::super) fn above(&self, nodes: &BTreeSet<NodeId>) -> Above {
        let mut above = Above::default();
        // Of a block of inodes thousands wait: what lies over one is counted.
        let mut over: BTreeMap<NodeId, u32> = BTreeMap::new();
        let under = nodes.iter().filter_map(|id| self.nodes.get(*id)).flat_map(|n| &n.under);
        under.for_each(|u| *over.entry(*u).or_default() += 1);
        let mut sectors: BTreeMap<Sector, (u32, Vec<NodeId>)> = BTreeMap::new();
        for id in nodes {
            let own = over.get(id).copied().unwrap_or_default();
            let all = self.nodes[*id].over;
            assert!(own <= all, "I10: {own} nodes lie over node {id}, of {all}");
            match self.name_sector(*id) {
                Some(sector) => {
                    let (edges, members) = sectors.entry(sector).or_default();
                    *edges += all - own;
                    members.push(*id);
                }
                None if own < all || self.is_wide_name(*id) => drop(above.kept.insert(*id)),
                None => (),
            }
        }
        for (sector, (edges, members)) in sectors.into_iter().filter(|(_, (n, _))| *n > 0) {
            match self.successor_in(sector, &members, edges) {
                Some(id) => drop(above.successors.insert(sector, id)),
                None => above.kept.extend(members),
            }
        }
        above
    }

    /// The sector in which the node makes or takes away a name.
    pub(in super::super) fn name_sector(&self, id: NodeId) -> Option<Sector> {
        let n = self.nodes.get(id).filter(|n| changes_name(n))?;
        n.backward.sector().map(|s| (n.buf.block(), s))
    }

    /// Does it take back bytes of names in more than one sector? Nobody could take over both.
    fn is_wide_name(&self, id: NodeId) -> bool {
        let n = &self.nodes[id];
        changes_name(n) && !n.backward.is_empty() && n.backward.sector().is_none()
    }

    /// The node that alone lies over some of these, the names of a sector, `edges` times; None:
    /// there are several, or it cannot take over. Thousands may wait in the block: those that came
    /// before the first of these, and those of other sectors, are not looked at.
    fn successor_in(&self, sector: Sector, members: &[NodeId], edges: u32) -> Option<NodeId> {
        let is_member = |id: &NodeId| members.binary_search(id).is_ok();
        let count = |id: NodeId| self.nodes[id].under.iter().filter(|u| is_member(u)).count();
        let bytes = sector.1 * SECTOR_BYTES..(sector.1 + 1) * SECTOR_BYTES;
        let list = self.by_block.get(&sector.0)?;
        let newer = &list[list.partition_point(|l| l.id <= members[0])..];
        let here = newer.iter().rev().filter(|l| lying::meet(&l.bytes, &bytes)).map(|l| l.id);
        let is_crowded = |id: NodeId| self.nodes[id].under.len() > UNDER_MAX;
        let is_upper = |id: &NodeId| !is_member(id) && (is_crowded(*id) || count(*id) > 0);
        let mut upper = here.filter(is_upper);
        let (id, None) = (upper.next()?, upper.next()) else { return None };
        let successor = &self.nodes[id];
        let is_name = successor.step == NAMES && self.name_sector(id) == Some(sector);
        let is_fit = is_name && successor.is_pending() && self.is_ended(id);
        let are_in_time = members.iter().all(|m| {
            let mut under = self.nodes[*m].under.iter().filter(|u| self.nodes.contains(**u));
            under.all(|u| u < m && (is_member(u) || *u <= id))
        });
        let is_in_time = successor.under.iter().all(|u| *u < id || !self.nodes.contains(*u));
        (is_fit && count(id) == edges as usize && are_in_time && is_in_time).then_some(id)
    }

    /// The blocks in which these operations have nodes or contents.
    pub(in super::super) fn blocks_of(&self, txns: &BTreeSet<TxnId>) -> BTreeSet<BlockNo> {
        let ops = || txns.iter().filter_map(|txn| self.operations.get(*txn));
        let nodes = ops().flat_map(|op| &op.nodes).filter_map(|id| self.nodes.get(*id));
        let contents = ops().flat_map(|op| blocks_of(&op.contents));
        nodes.map(|n| n.buf.block()).chain(contents).collect()
    }

    /// Before these are forgotten, who lies over them takes over what they take back, and lies over
    /// what they lay over.
    pub(in super::super) fn hand_on(&mut self, nodes: &BTreeSet<NodeId>, above: &Above) {
        if self.plant.is("cancel-hands-nothing-on") {
            return;
        }
        let mut all: BTreeMap<Sector, Vec<NodeId>> =
            above.successors.iter().map(|(sector, id)| (*sector, vec![*id])).collect();
        for id in nodes {
            if let Some(its) = self.name_sector(*id).and_then(|s| all.get_mut(&s)) {
                its.push(*id);
            }
        }
        for (sector, mut its) in all {
            its.sort_unstable();
            self.take_over(above.successors[&sector], &its);
        }
    }

    /// The node stands for all of these, itself among them, in the order of time.
    fn take_over(&mut self, id: NodeId, all: &[NodeId]) {
        let mut backward = Backward::default();
        let mut under: BTreeSet<NodeId> = BTreeSet::new();
        for n in all.iter().map(|n| &self.nodes[*n]) {
            backward.join(n.backward.clone());
            under.extend(n.under.iter().filter(|u| self.nodes.contains(**u)));
        }
        backward.flatten();
        under.retain(|u| all.binary_search(u).is_err());
        let later = under.iter().find(|u| **u > id);
        invariant!(self.plant, later.is_none(), "I3: node {id} would stand on {later:?}");
        let bytes = backward.span();
        let node = self.nodes.get_mut(id).expect("it was found just now");
        let (was, is) = (node.backward.sector(), backward.sector());
        invariant!(self.plant, was == is, "I10: node {id} of sector {was:?} takes over {is:?}");
        self.counts.bytes += backward.memory_bytes();
        self.counts.bytes -= node.backward.memory_bytes();
        node.backward = backward;
        node.under.retain(|u| all.binary_search(u).is_err());
        let new: Vec<NodeId> = under.into_iter().filter(|u| !node.under.contains(u)).collect();
        node.under.extend(new.iter().copied());
        let block = node.buf.block();
        new.into_iter().for_each(|u| self.lies_under(u));
        let list = self.by_block.get_mut(&block).expect("it knows its nodes");
        let lying = Lying { id, bytes, is_counts: false, all: false, head: Head::None };
        lying::join(list, &lying);
    }
}
