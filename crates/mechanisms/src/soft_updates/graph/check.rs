//! What holds of the graph between any two steps (the invariants are those of the folder's header):
//! its parts agree, what is durable was due, and a graph that is empty is empty all through. It
//! changes nothing.

use super::super::lying::Lying;
use super::super::order::{CONTENTS, STEPS};
use super::{Graph, Node, NodeId, Standing};
use crate::unflushed::Progress;
use cache::{Buf, FlushEpoch};
use env::IdMap;
use format::{BlockNo, Extent, Ino};
use integrity::TxnId;

/// Of so many nodes a build with debug assertions compares everything at each flush.
pub(super) const NODES_MAX: usize = 500;

/// A node is added to those of its block, which are looked through by their order.
pub(super) fn check_order(list: &[Lying], new: &Lying) {
    let last = list.last().map(|l| l.id);
    assert!(last < Some(new.id), "I3: node {} lies behind {last:?} in its block", new.id);
}

impl Graph {
    /// Nodes of the block are durable: is what each of them waits for? A crash shows the disk as it
    /// is from now on.
    pub(super) fn check_durable(&self, block: BlockNo, epoch: FlushEpoch) {
        let durable = |n: &Node| n.state.is_durable_by(epoch);
        for id in self.in_block(block) {
            let n = &self.nodes[id];
            if !durable(n) {
                continue;
            }
            let (txn, step) = (n.txn, n.step);
            assert!(self.is_ended(id), "I1: step {step} of {txn} is durable, and has not ended");
            let due = self.is_due(n, &self.operations[txn]);
            assert!(due, "I2: step {step} of {txn} is durable before its turn");
            // Where its operation has written over a newer node, it stands without that.
            let older = n.under.iter().filter(|u| **u < id);
            let under = older.filter_map(|u| self.nodes.get(*u)).find(|u| !durable(u));
            let over = under.map(|u| (u.txn, u.step));
            assert!(over.is_none(), "I1: step {step} of {txn} is durable without {over:?}");
        }
    }

    /// The block is about to be written: no other write of it is on its way.
    pub(super) fn check_idle(&self, buf: &Buf, standing: &[Standing]) {
        let is_sent = |s: &&Standing| self.nodes[s.id].state == Progress::Captured;
        let sent = standing.iter().find(is_sent).map(|s| s.id);
        assert!(sent.is_none(), "I2: {buf:?} is written while {sent:?} of it is on its way");
    }

    /// The nodes, and what is known of them by block, by inode, by directory and by operation,
    /// agree; and all edges lead back in time, so that there is no circle.
    pub(in super::super) fn check(&self) {
        let mut left: IdMap<TxnId, [u32; STEPS]> = IdMap::default();
        let (mut bytes, mut edges) = (0, 0);
        let mut over: IdMap<NodeId, u32> = IdMap::default();
        let under = self.nodes.iter().flat_map(|(_, n)| &n.under);
        under.for_each(|u| *over.entry(*u).or_default() += 1);
        for (id, n) in self.nodes.iter() {
            left.entry(n.txn).or_default()[n.step] += 1;
            bytes += n.backward.memory_bytes();
            edges += n.after.len();
            let others = over.get(&id).copied().unwrap_or_default();
            assert_eq!(n.over, others, "I10: so many nodes lie over node {id}");
            let listed = self.in_block(n.buf.block()).filter(|i| *i == id).count();
            assert_eq!(listed, 1, "I1: node {id} is {listed} times in block {}", n.buf.block());
            let own = |i: &Ino| self.by_own.has(*i, id);
            assert!(n.own.iter().all(own), "an fsync would not find node {id} of {:?}", n.own);
            let names = |d: &Ino| self.by_names.has(*d, id);
            assert!(n.names_in.iter().all(names), "an fsync would not find name {id}");
            let later = n.after.iter().find(|o| **o >= id);
            assert!(later.is_none(), "I3: node {id} waits for the later one {later:?}");
        }
        assert_eq!(bytes, self.counts.bytes, "as much is taken back as is counted");
        assert_eq!(edges, self.counts.edges, "I3: nodes wait for as many others as are counted");
        let listed: usize = self.by_block.values().map(|l| l.len()).sum();
        assert_eq!(listed, self.nodes.len(), "I6: {listed} nodes lie in blocks");
        for (txn, n) in self.contents.by_operation() {
            left.entry(txn).or_default()[CONTENTS] += n;
        }
        for (txn, op) in self.operations.iter() {
            let own = left.remove(&txn).unwrap_or_default();
            assert_eq!(op.left, own, "I2: what operation {txn} waits for, and its nodes");
        }
        assert!(left.is_empty(), "I2: a node is left of an operation that is durable");
    }

    /// Nothing is left of any operation.
    pub(in super::super) fn check_empty(&self) {
        let operations = self.operations.iter().next().map(|(txn, _)| txn);
        assert!(operations.is_none(), "I2: operation {operations:?} has no node left, and is here");
        let block = self.by_block.keys().min();
        assert!(block.is_none(), "I6: something waits in block {block:?}, and is no node");
        let block = self.contents.blocks().min();
        assert!(block.is_none(), "I2: contents of block {block:?} are durable, and waited for");
        let own = self.by_own.any().or(self.by_names.any());
        assert!(own.is_none(), "an fsync of inode {own:?} would look for nodes that are durable");
        let frees = self.awaited.keys().next();
        assert!(frees.is_none(), "I4: what was freed waits for node {frees:?}, which is durable");
    }

    /// The first of these that is not durable yet.
    pub(in super::super) fn first_before_release(&self, txn: TxnId) -> Option<NodeId> {
        self.before_release(txn).into_iter().find(|id| self.has(*id))
    }

    /// The block, if it has a node that has yet to be written.
    pub(super) fn pending_of(&self, block: BlockNo) -> Option<Buf> {
        let mut nodes = self.in_block(block).map(|id| &self.nodes[id]);
        let node = nodes.find(|n| n.is_pending()).map(|n| n.buf.clone());
        node.or_else(|| self.contents.pending_of(block).cloned())
    }

    /// Does something of the block wait?
    pub(in super::super) fn is_known(&self, block: BlockNo) -> bool {
        self.by_block.contains_key(&block) || self.contents.has(block)
    }

    /// The blocks of the extent with nodes that have yet to be written.
    pub(in super::super) fn pending_in(&self, e: Extent) -> Vec<Buf> {
        if e.len <= self.len() as u64 {
            return (0..e.len).filter_map(|n| self.pending_of(e.start.plus(n))).collect();
        }
        self.blocks_in(e).into_iter().filter_map(|b| self.pending_of(b)).collect()
    }

    /// The blocks of the extent in which something waits, in order. An extent may be long, and so
    /// may be what waits: the shorter of the two is looked through.
    pub(super) fn blocks_in(&self, e: Extent) -> Vec<BlockNo> {
        if e.len <= self.len() as u64 {
            let all = (0..e.len).map(|n| e.start.plus(n));
            return all.filter(|b| self.is_known(*b)).collect();
        }
        let known = self.by_block.keys().copied().chain(self.contents.blocks());
        let mut all: Vec<BlockNo> =
            known.filter(|b| (e.start..e.start.plus(e.len)).contains(b)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}
