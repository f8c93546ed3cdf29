//! Chains of names. A name that moved goes after its new one is durable; a name that is made in its
//! place stands on that going; where it moves in turn, its going is one wave later still. So each
//! name knows how many waves its chain takes, and others are told to keep out of a long one.

use super::super::order::{NAMES, UNNAMES};
use super::{Graph, Node, NodeId};
use integrity::TxnId;

/// A chain may be as long as this before new names are to lie elsewhere.
const CHAIN_MAX: u32 = 16;

impl Graph {
    /// The operation ends: how long are the chains that its names are the ends of? At most: what
    /// has become durable below them is not taken off.
    pub(in super::super) fn note_chains(&mut self, txn: TxnId) {
        let mut longest = None;
        for id in self.of_step(txn, NAMES) {
            let chain = self.chain_below(id);
            self.set_chain(id, chain);
            longest = longest.max(Some(chain));
        }
        for id in self.of_step(txn, UNNAMES) {
            let own = longest.map_or(0, |l| l + 1);
            self.set_chain(id, own.max(self.chain_below(id)));
        }
    }

    /// What the node stands on is written with it; what it comes after, a wave earlier.
    fn chain_below(&self, id: NodeId) -> u32 {
        let node = &self.nodes[id];
        let chain = |id: &NodeId| self.nodes.get(*id).map(|n| n.chain);
        let under = node.under.iter().filter_map(chain).max().unwrap_or(0);
        let after = node.after.iter().filter_map(chain).max().map_or(0, |c| c + 1);
        under.max(after)
    }

    fn set_chain(&mut self, id: NodeId, chain: u32) {
        self.nodes.get_mut(id).expect("it was found just now").chain = chain;
    }

    /// Does a name that the operation takes away wait at the end of a long chain?
    pub(in super::super) fn keeps_old_name(&self, txn: TxnId) -> bool {
        let waits = |n: &Node| n.is_pending() && n.chain >= CHAIN_MAX;
        self.of_step(txn, UNNAMES).iter().any(|id| waits(&self.nodes[*id]))
    }
}
