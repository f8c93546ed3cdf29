//! The graph in memory: what is not durable yet, and what each piece of it waits for. It decides
//! what an image may hold, and follows that through capture, write and flush; it writes nothing.
//!
//! A *node* is what one operation does to one block in one step. It waits for the lower steps of
//! its operation, and for the nodes in `after`, until they are durable; and it stands in an image
//! only beside the nodes `under` it, whose bytes it has written over. Both point at nodes that were
//! there before, so that there is no circle.

mod beside;
mod capture;
mod chains;
mod check;
mod contents;
mod index;
mod next_blocks;
mod successors;

use self::capture::Standing;
use self::contents::{Contents, blocks_of};
use self::index::ByInode;
pub(super) use self::index::add_in_order;
pub(super) use self::successors::{Above, UNDER_MAX};
use super::lying::{Head, Lying, LyingList, Under, join, under_of};
use super::order::{CONTENTS, FREES, STEPS, UNNAMES, needs};
use super::render::Backward;
use crate::unflushed::{Progress, Unflushed};
use cache::{Buf, FlushEpoch};
use env::{Few, IdMap, SerialMap};
use format::{BlockNo, Extent, Ino};
use integrity::{Plant, TxnId, invariant};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Names a node; later ones are greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub(super) struct NodeId(pub(super) u64);

impl NodeId {
    /// That of the next one.
    fn next(self) -> NodeId {
        NodeId(self.0 + 1)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<u64> for NodeId {
    fn from(number: u64) -> NodeId {
        NodeId(number)
    }
}

impl From<NodeId> for u64 {
    fn from(id: NodeId) -> u64 {
        id.0
    }
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) txn: TxnId,
    pub(super) step: usize,
    pub(super) buf: Buf,
    pub(super) backward: Backward,
    state: Progress,
    pub(super) under: Few<NodeId>,
    /// How many nodes it is under.
    pub(super) over: u32,
    pub(super) after: Few<NodeId>,
    /// Inodes that are not whole, or not named, without it.
    pub(super) own: Few<Ino>,
    /// Directories whose names it changes.
    pub(super) names_in: Few<Ino>,
    /// So many names wait one for another until this one can go, or come (chains.rs).
    chain: u32,
}

impl Node {
    /// Has it yet to be written?
    pub(super) fn is_pending(&self) -> bool {
        self.state == Progress::Pending
    }
}

/// An operation with nodes.
#[derive(Debug, Default)]
pub(super) struct Operation {
    ended: bool,
    /// Its intents are not durable: nothing of it that could be taken for whole may be seen (J1).
    unlogged: bool,
    /// Nodes, and blocks of contents, that are not durable yet, by step.
    left: [u32; STEPS],
    /// The contents that it waits for, durable or not.
    contents: Few<Extent>,
    /// Most have a few, which need no memory of their own.
    pub(super) nodes: SmallVec<[NodeId; 4]>,
    /// The step and the block of each, until it has ended: they are searched at each edit.
    places: SmallVec<[(usize, BlockNo); 4]>,
    /// More of it is durable than bits in use and contents.
    is_seen: bool,
    freed: bool,
    /// Nodes of others that what it has freed waits for.
    frees_after: Vec<NodeId>,
}

impl Operation {
    /// Is something left of the steps in the set?
    fn waits_for(&self, steps: u16) -> bool {
        (0..STEPS).any(|s| steps & (1 << s) != 0 && self.left[s] > 0)
    }
    /// Is more of it durable than bits in use and contents?
    pub(super) fn is_seen(&self) -> bool {
        self.is_seen
    }
}

/// What the graph counts.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Counts {
    /// Images that were written with something taken back.
    pub(super) rollbacks: u64,
    /// Images, these included, after which the block had to be written once more.
    pub(super) extra_writes: u64,
    /// Nodes of all time, and blocks of contents.
    pub(super) nodes: u64,
    /// How often one was captured in an image.
    pub(super) captures: u64,
    /// Bytes of memory for what may be taken back.
    pub(super) bytes: usize,
    /// For how many others the nodes in memory wait, one by one.
    pub(super) edges: usize,
}

#[derive(Default)]
pub(super) struct Graph {
    nodes: SerialMap<NodeId, Node>,
    by_block: IdMap<BlockNo, LyingList>,
    contents: Contents,
    by_own: ByInode,
    by_names: ByInode,
    operations: SerialMap<TxnId, Operation>,
    unflushed: Unflushed,
    last: NodeId,
    /// Operations of which only what they free, and parents' counts, may be left.
    released: Vec<TxnId>,
    /// Operations of which nothing is left, since somebody asked.
    gone: Vec<TxnId>,
    /// For each node that is waited for before something may be reused: the operations that have
    /// freed it.
    awaited: BTreeMap<NodeId, Vec<TxnId>>,
    pub(super) counts: Counts,
    plant: Plant,
}

impl Graph {
    pub(super) fn new(plant: Plant) -> Graph {
        Graph { plant, ..Graph::default() }
    }
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// How many nodes there are, with the blocks of contents that are waited for.
    pub(super) fn len(&self) -> usize {
        self.nodes.len() + self.contents.len()
    }
    pub(super) fn has(&self, id: NodeId) -> bool {
        self.nodes.contains(id)
    }
    /// Is it a node of this block that is not durable?
    pub(super) fn is_in(&self, id: NodeId, block: BlockNo) -> bool {
        self.nodes.get(id).is_some_and(|n| n.buf.block() == block)
    }
    pub(super) fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id)
    }
    pub(super) fn plant(&self) -> Plant {
        self.plant
    }
    /// The block's nodes, oldest first.
    pub(super) fn in_block(&self, block: BlockNo) -> impl Iterator<Item = NodeId> + '_ {
        self.by_block.get(&block).into_iter().flatten().map(|l| l.id)
    }
    pub(super) fn operation(&self, txn: TxnId) -> Option<&Operation> {
        self.operations.get(txn)
    }
    /// The oldest operation that has ended and is not durable.
    pub(super) fn oldest_ended(&self) -> Option<TxnId> {
        self.operations.iter().filter(|(_, op)| op.ended).map(|(txn, _)| txn).min()
    }
    /// Has the node's operation ended?
    pub(super) fn is_over(&self, id: NodeId) -> bool {
        self.nodes.contains(id) && self.is_ended(id)
    }

    /// An edit of an operation that has not ended: into the node of its step and block. Returns it.
    pub(super) fn add(
        &mut self,
        (txn, step): (TxnId, usize),
        buf: &Buf,
        backward: Backward,
        concerns: super::order::Concerns,
    ) -> NodeId {
        let op = self.operations.get_or_insert_with(txn, Default::default);
        assert!(!op.ended, "an edit of an operation that has ended");
        let nodes = &self.nodes;
        let list = self.by_block.entry(buf.block()).or_default();
        let place = (step, buf.block());
        let at = op.places.iter().rposition(|p| *p == place);
        let same = at.map(|at| op.nodes[at]).filter(|id| nodes.contains(*id));
        let (bytes, is_counts) = (backward.span(), backward.is_counts());
        let (id, head) = (same.unwrap_or(self.last.next()), concerns.head);
        let mut lying = Lying { id, bytes, is_counts, all: false, head };
        let forgotten = self.plant.is("older-edits-forgotten");
        let mut under = Under::new();
        if !forgotten && !backward.is_empty() && step != FREES {
            let sought = if step == UNNAMES { head } else { Head::None };
            (under, lying.all) = under_of(list, nodes, (&lying, sought), &backward);
        }
        self.counts.bytes += backward.memory_bytes();
        if same.is_some() {
            join(list, &lying);
        }
        let id = same.unwrap_or_else(|| {
            self.last = self.last.next();
            self.counts.nodes += 1;
            check::check_order(list, &lying);
            list.push(lying);
            op.left[step] += 1;
            op.nodes.push(self.last);
            op.places.push(place);
            let new = Node {
                txn,
                step,
                buf: buf.clone(),
                backward: Backward::default(),
                state: Progress::Pending,
                under: Few::new(),
                over: 0,
                after: Few::new(),
                own: Few::new(),
                names_in: Few::new(),
                chain: 0,
            };
            self.nodes.insert(self.last, new);
            self.last
        });
        let node = self.nodes.get_mut(id).expect("it was found or made");
        let early = !node.is_pending();
        invariant!(self.plant, !early, "I1: {buf:?} changes, and step {step} of {txn} is written");
        assert!(buf.is_dirty(), "I7: {buf:?} has changed, and would not be written");
        let itself = under.contains(&id);
        assert!(!itself, "I3: step {step} of operation {txn} stands on itself in {buf:?}");
        node.backward.join(backward);
        if same.is_some() {
            under.retain(|u| !node.under.contains(u));
        }
        node.under.extend(under.iter().copied());
        self.note_concerns(id, concerns.own, concerns.names_in);
        under.iter().for_each(|u| self.lies_under(*u));
        id
    }

    /// Whom the node concerns, besides those that it does already.
    fn note_concerns(
        &mut self,
        id: NodeId,
        own: impl IntoIterator<Item = Ino>,
        names_in: impl IntoIterator<Item = Ino>,
    ) {
        let node = self.nodes.get_mut(id).expect("it is there");
        for ino in own {
            node.own.add(ino);
            self.by_own.add(ino, id);
        }
        for dir in names_in {
            node.names_in.add(dir);
            self.by_names.add(dir, id);
        }
    }

    /// One more node lies over it.
    fn lies_under(&mut self, id: NodeId) {
        if let Some(n) = self.nodes.get_mut(id) {
            n.over += 1;
        }
    }

    /// From now on the operation's nodes of `step` wait for `others` too.
    pub(super) fn wait_for(&mut self, txn: TxnId, step: usize, others: &BTreeSet<NodeId>) {
        let Some(op) = self.operations.get(txn).filter(|_| !others.is_empty()) else { return };
        for id in op.nodes.clone() {
            if self.nodes.get(id).is_some_and(|n| n.step == step) {
                self.come_after(id, others);
            }
        }
    }

    /// What the operation frees stays in use until these nodes, of others, are durable too.
    pub(super) fn free_after(&mut self, txn: TxnId, others: &BTreeSet<NodeId>) {
        self.wait_for(txn, FREES, others);
        let Some(op) = self.operations.get_mut(txn) else { return };
        for id in others.iter().filter(|id| self.nodes.contains(**id)) {
            op.frees_after.push(*id);
            self.awaited.entry(*id).or_default().push(txn);
        }
    }

    /// Changes whenever something is captured, written or durable, or there is more.
    pub(super) fn progress(&self) -> (usize, u64, u64) {
        (self.len(), self.counts.nodes, self.counts.captures)
    }
    /// Is there a node in the block that has yet to be written?
    pub(super) fn is_waiting(&self, block: BlockNo) -> bool {
        self.pending_of(block).is_some()
    }

    /// How many there are of operations that have ended and have a number up to `last`.
    pub(super) fn waiting_for(&self, block: BlockNo, last: TxnId) -> usize {
        let nodes = self.in_block(block).map(|id| &self.nodes[id]);
        let left = |n: &&Node| n.is_pending() && n.txn <= last && self.has_ended(n.txn);
        nodes.filter(left).count() + self.contents.waiting_for(block, last)
    }

    /// The operation's nodes of a step that are not durable yet.
    pub(super) fn of_step(&self, txn: TxnId, step: usize) -> Vec<NodeId> {
        let nodes = self.operations.get(txn).map(|op| &op.nodes[..]).unwrap_or_default();
        let is = |id: &&NodeId| self.nodes.get(**id).is_some_and(|n| n.step == step);
        nodes.iter().filter(is).copied().collect()
    }

    /// What concerns an inode that this operation frees is promised to nobody.
    pub(super) fn forget_own(&mut self, txn: TxnId, ino: Ino) {
        let Some(op) = self.operations.get(txn) else { return };
        for id in &op.nodes {
            if let Some(n) = self.nodes.get_mut(*id) {
                n.own.retain(|i| *i != ino);
            }
            self.by_own.forget(ino, *id);
        }
    }

    /// The operation has ended.
    pub(super) fn end(&mut self, txn: TxnId, freed: bool, unlogged: bool) {
        match self.operations.get_mut(txn) {
            Some(op) => {
                assert!(!op.ended, "operation {txn} ends twice");
                op.ended = true;
                let (nodes, places) = (op.nodes.len(), op.places.len());
                assert_eq!(nodes, places, "I3: nodes of {txn}, and where they lie");
                op.places = SmallVec::new();
                op.unlogged = unlogged;
                op.freed = freed;
                self.check_released(txn);
            }
            None if freed => self.released.push(txn),
            None => (),
        }
    }

    /// The intents of these operations are durable.
    pub(super) fn logged(&mut self, txns: &[TxnId]) {
        for txn in txns {
            if let Some(op) = self.operations.get_mut(*txn) {
                assert!(op.ended, "J1: the intents of {txn} are durable, and it has not ended");
                op.unlogged = false;
            }
        }
    }
    /// No operation needs intents.
    pub(super) fn log_all(&mut self) {
        self.operations.values_mut().for_each(|op| op.unlogged = false);
    }
    /// Has the operation ended, with something of it not durable?
    pub(super) fn has_ended(&self, txn: TxnId) -> bool {
        self.operations.get(txn).is_some_and(|op| op.ended)
    }

    /// Has an operation changed something, and not ended?
    pub(super) fn has_open(&self) -> bool {
        self.operations.iter().any(|(_, op)| !op.ended)
    }

    /// What has to be durable before what the operation has freed may be reused.
    pub(super) fn before_release(&self, txn: TxnId) -> Vec<NodeId> {
        let Some(op) = self.operations.get(txn) else { return Vec::new() };
        let is_before =
            |id: &&NodeId| self.nodes.get(**id).is_some_and(|n| needs(FREES) & (1 << n.step) != 0);
        op.nodes.iter().filter(is_before).chain(&op.frees_after).copied().collect()
    }

    fn check_released(&mut self, txn: TxnId) {
        let Some(op) = self.operations.get_mut(txn) else { return };
        let waits = op.frees_after.iter().any(|id| self.nodes.contains(*id));
        if op.ended && op.freed && !waits && !op.waits_for(needs(FREES)) {
            // A removed tree releases thousands with one flush: not to be looked through for each.
            let again = cfg!(debug_assertions) && self.released.contains(&txn);
            assert!(!again, "I4: what operation {txn} has freed is released twice");
            op.freed = false;
            self.released.push(txn);
        }
    }

    /// Operations whose releases have become durable since the last call.
    pub(super) fn take_released(&mut self) -> Vec<TxnId> {
        std::mem::take(&mut self.released)
    }

    /// Operations of which nothing is left since the last call.
    pub(super) fn take_gone(&mut self) -> Vec<TxnId> {
        std::mem::take(&mut self.gone)
    }

    fn is_ended(&self, id: NodeId) -> bool {
        let txn = self.nodes[id].txn;
        self.operations[txn].ended
    }

    /// The write of the block has ended.
    pub(super) fn written(&mut self, block: BlockNo, ok: bool, epoch: FlushEpoch) {
        let to = Progress::after_write(ok, epoch);
        let mut any = self.contents.written(block, to);
        for l in self.by_block.get(&block).into_iter().flatten() {
            if let Some(n) = self.nodes.get_mut(l.id).filter(|n| n.state == Progress::Captured) {
                n.state = to;
                any = true;
            }
        }
        if any && ok {
            self.unflushed.add(epoch, block);
        }
    }

    /// What was written before this flush was issued is durable (I2).
    pub(super) fn flushed(&mut self, epoch: FlushEpoch) {
        for block in self.unflushed.take_flushed(epoch) {
            if cfg!(debug_assertions) && !self.plant.is_any() {
                self.check_durable(block, epoch);
            }
            self.finish(block, |state| state.is_durable_by(epoch));
        }
        if cfg!(debug_assertions) && self.len() <= check::NODES_MAX {
            self.check();
        }
    }

    /// Nothing on the disk points at the blocks any more: what waits in them matters no more (I6).
    /// Returns those with nodes that had yet to be written.
    pub(super) fn cancel(&mut self, e: Extent) -> Vec<Buf> {
        let known = self.blocks_in(e);
        let left = known.iter().filter_map(|b| self.pending_of(*b)).collect();
        known.iter().for_each(|b| self.finish(*b, |_| true));
        let first = known.iter().find(|b| self.is_known(**b));
        assert!(first.is_none(), "I6: {first:?} waits in blocks that may be used");
        left
    }

    /// What these operations did, in all, has come to nothing: they are forgotten (I10).
    pub(super) fn forget(&mut self, txns: &BTreeSet<TxnId>) {
        for txn in txns {
            let runs = self.operations.get(*txn).map(|op| op.contents.clone()).unwrap_or_default();
            blocks_of(&runs).for_each(|b| self.finish_contents(b, |t, _| t == *txn));
        }
        let ids = txns.iter().filter_map(|t| self.operations.get(*t)).flat_map(|op| &op.nodes);
        let mut by_block: BTreeMap<BlockNo, BTreeSet<NodeId>> = BTreeMap::new();
        for (id, n) in ids.filter_map(|id| Some((*id, self.nodes.get(*id)?))) {
            by_block.entry(n.buf.block()).or_default().insert(id);
        }
        for (block, ids) in by_block {
            // A block of bits knows thousands of others, which are not looked at.
            let list = self.by_block.get_mut(&block).expect("it knows its nodes");
            for id in &ids {
                let at = list.binary_search_by_key(id, |l| l.id).expect("it is in its block");
                list.remove(at);
            }
            if list.is_empty() {
                self.by_block.remove(&block);
            }
            ids.into_iter().for_each(|id| self.let_go(id));
        }
        let gone = txns.iter().all(|t| !self.operations.contains(*t));
        invariant!(self.plant, gone, "I10: an operation that is forgotten has nodes left");
        let lost = || self.nodes.iter().any(|(_, n)| txns.contains(&n.txn));
        debug_assert!(!lost(), "I10: a node of an operation that is forgotten is left");
    }

    fn finish(&mut self, block: BlockNo, done: impl Fn(Progress) -> bool) {
        self.finish_contents(block, |_, state| done(state));
        let Some(list) = self.by_block.get_mut(&block) else { return };
        let mut gone: SmallVec<[NodeId; 8]> = SmallVec::new();
        list.retain(|l| {
            let is_left = !done(self.nodes[l.id].state);
            if !is_left {
                gone.push(l.id);
            }
            is_left
        });
        if list.is_empty() {
            self.by_block.remove(&block);
        }
        gone.into_iter().for_each(|id| self.let_go(id));
    }

    /// The node is durable, or matters no more; its block's list knows nothing of it now.
    fn let_go(&mut self, id: NodeId) {
        let n = self.nodes.remove(id).expect("it was in the list");
        let (all, own) = (self.counts.bytes, n.backward.memory_bytes());
        assert!(own <= all, "I1: node {id} takes back {own} bytes of {all}");
        self.counts.bytes = all - own;
        let (edges, after) = (self.counts.edges, n.after.len());
        assert!(after <= edges, "I3: node {id} waits for {after} others, of {edges} in all");
        self.counts.edges = edges - after;
        for u in &n.under {
            if let Some(u) = self.nodes.get_mut(*u) {
                assert!(u.over > 0, "I10: nothing lies over a node on which {id} stands");
                u.over -= 1;
            }
        }
        n.own.iter().for_each(|i| self.by_own.forget(*i, id));
        n.names_in.iter().for_each(|d| self.by_names.forget(*d, id));
        for txn in self.awaited.remove(&id).unwrap_or_default() {
            self.check_released(txn);
        }
        self.step_done(n.txn, n.step);
    }

    /// One thing less of this step is left of the operation.
    fn step_done(&mut self, txn: TxnId, step: usize) {
        let op = self.operations.get_mut(txn).expect("an operation has its nodes");
        assert!(op.left[step] > 0, "I2: what is durable is not counted in step {step} of {txn}");
        op.left[step] -= 1;
        op.is_seen |= step != CONTENTS;
        self.check_released(txn);
        if self.operations.get(txn).is_some_and(|op| op.ended && op.left == [0; STEPS]) {
            self.operations.remove(txn);
            self.gone.push(txn);
        }
    }

    /// Nodes that this inode is not whole or not named without.
    pub(super) fn owned_by(&self, ino: Ino) -> impl Iterator<Item = NodeId> + '_ {
        self.by_own.of(ino)
    }
    /// Nodes that change names in the directory.
    pub(super) fn names_in(&self, dir: Ino) -> impl Iterator<Item = NodeId> + '_ {
        self.by_names.of(dir)
    }
}
