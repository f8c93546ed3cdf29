//! Files that never were: one made and removed again before anything of it could be seen on the
//! disk costs no wave. What its operations wait for, and what they take back, is forgotten; its
//! blocks in memory are as they would be after all of it, and go out whenever they do.
//!
//! Rule (I10)  The operations from the file's making to its going are forgotten together, and only
//!             if they concern that file alone, no image held more of them than bits in use and
//!             contents, and nothing left in their blocks would bring a byte of them back.

use super::SoftUpdates;
use super::graph::{Graph, NodeId, add_in_order};
use super::order::{self, CONTENTS, NAMES, Place};
use crate::record::files_of;
use env::{Few, IdMap, SerialMap};
use format::Ino;
use integrity::{Change, Plant, TxnId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Whom an operation concerns, apart from directories whose names it changes.
#[derive(Default, Debug)]
pub(super) struct About {
    inodes: Few<Ino>,
    makes: bool,
    /// What it did cannot be told apart from what others did.
    is_shared: bool,
}

impl About {
    /// Takes notice of a change that needs an order.
    pub(super) fn note(&mut self, change: &Change, plant: Plant) {
        if order::step_of(change, Place::Any, plant).is_none() {
            return;
        }
        match *change {
            Change::AddEntry { ino, .. } | Change::RemoveEntry { ino, .. } => {
                self.inodes.add(ino);
            }
            Change::ChangeEntry { .. }
            | Change::DotDot { .. }
            | Change::XattrPointer { .. }
            | Change::ShareDown(_) => self.is_shared = true,
            _ => files_of(change).into_iter().flatten().for_each(|i| self.inodes.add(i)),
        }
        self.makes |= matches!(change, Change::InitInode(_));
    }

    fn is_alone(&self, ino: Ino) -> bool {
        !self.is_shared && self.inodes.iter().all(|i| *i == ino)
    }
}

/// The operations in memory, by the inodes they concern.
#[derive(Default)]
pub(super) struct Lives {
    of: SerialMap<TxnId, About>,
    /// In order: few of most, and of a file that is appended to thousands.
    by_inode: IdMap<Ino, VecDeque<TxnId>>,
}

impl Lives {
    /// The operation has ended, with something of it not durable.
    pub(super) fn note(&mut self, txn: TxnId, about: About) {
        for ino in &about.inodes {
            add_in_order(self.by_inode.entry(*ino).or_default(), txn);
        }
        let old = self.of.insert(txn, about);
        assert!(old.is_none(), "I10: operation {txn} ends twice");
    }

    /// Is no operation in memory?
    pub(super) fn is_empty(&self) -> bool {
        self.of.is_empty() && self.by_inode.is_empty()
    }

    /// All operations of the inode, which the last of them has freed, if they begin with its making
    /// and concern nothing else.
    pub(super) fn whole(&self, ino: Ino) -> Option<BTreeSet<TxnId>> {
        let all = self.by_inode.get(&ino)?;
        let begins = all.front().and_then(|txn| self.of.get(*txn)).is_some_and(|a| a.makes);
        let alone = |txn: &TxnId| self.of.get(*txn).is_some_and(|a| a.is_alone(ino));
        (begins && all.iter().all(alone)).then(|| all.iter().copied().collect())
    }

    /// Forgets these operations, of which nothing is left. There may be tens of thousands in
    /// memory, and a flush ends few of them: the others are not looked at.
    pub(super) fn sweep(&mut self, gone: Vec<TxnId>) {
        for txn in gone {
            let Some(about) = self.of.remove(txn) else { continue };
            for ino in about.inodes {
                let Some(all) = self.by_inode.get_mut(&ino) else { continue };
                let known = all.binary_search(&txn).ok().and_then(|at| all.remove(at));
                assert!(
                    known.is_some(),
                    "I10: {ino} does not know of operation {txn}, which changed it"
                );
                if all.is_empty() {
                    self.by_inode.remove(&ino);
                }
            }
        }
    }
}

impl SoftUpdates {
    /// Files of which the disk has seen nothing, and which are gone, are forgotten (I10).
    pub(super) fn cancel(&self, freed: &Few<Ino>) {
        for ino in freed {
            let Some(txns) = self.lives.borrow().whole(*ino) else { continue };
            let mut graph = self.graph.borrow_mut();
            if graph.are_unseen(&txns, self.intents.is_some()) {
                graph.forget(&txns);
                // The next file of that number begins a life of its own.
                self.lives.borrow_mut().sweep(graph.take_gone());
                self.cancelled.set(self.cancelled.get() + 1);
            }
        }
    }
}

impl Graph {
    /// May these operations be forgotten together (I10)? All nodes that theirs stand on, directly
    /// or through others, must be the makings of older names, whose spare space they took and gave
    /// back; and no other node may stand on theirs. (The removal of a name does not count: rolled
    /// back, it would show its name again, over whose text theirs may have been written.) No name
    /// of theirs may wait for the removal of an older one in another block: the next to take the
    /// name would not know of that any more (I9). `wholly`: not even bits in use and contents were
    /// seen.
    pub(super) fn are_unseen(&self, txns: &BTreeSet<TxnId>, wholly: bool) -> bool {
        let Some(nodes) = self.nodes_of(txns, wholly) else { return false };
        let Some(first) = nodes.first().copied() else { return false };
        let anything_goes = self.plant().is("cancel-over-others");
        // Of a block of bits or inodes thousands wait: what lies over one is counted.
        let mut over: BTreeMap<NodeId, u32> = BTreeMap::new();
        let under = nodes.iter().filter_map(|id| self.node(*id)).flat_map(|n| &n.under);
        under.for_each(|u| *over.entry(*u).or_default() += 1);
        if !anything_goes && !self.lie_over_names(&nodes, first) {
            return false;
        }
        nodes.iter().all(|id| {
            let n = self.node(*id).expect("it is one of theirs");
            let is_unseen = !wholly && n.step == CONTENTS || n.is_pending();
            let waits = |u: &NodeId| self.has(*u) && !nodes.contains(u);
            let is_free = n.step != NAMES || !n.after.iter().any(waits);
            let is_free = is_free || self.plant().is("cancel-between-names");
            let is_top = n.over == over.get(id).copied().unwrap_or_default();
            is_unseen && is_free && is_top
        })
    }

    /// Do the nodes, of which this is the first, lie over older names only, through others too?
    fn lie_over_names(&self, nodes: &BTreeSet<NodeId>, first: NodeId) -> bool {
        let below = |id: &NodeId| self.node(*id).into_iter().flat_map(|n| &n.under).copied();
        let (mut seen, mut todo) = (BTreeSet::new(), Vec::new());
        todo.extend(nodes.iter().flat_map(below));
        while let Some(id) = todo.pop() {
            if nodes.contains(&id) || !seen.insert(id) {
                continue;
            }
            if id >= first || !self.is_name(id) {
                return false;
            }
            if !self.plant().is("cancel-over-goings") {
                todo.extend(below(&id));
            }
        }
        true
    }

    /// The nodes of the operations; None if one of them has none any more, if an inode or a name of
    /// one is durable (the disk has seen it: its going needs its order), or, if they are to be
    /// there `wholly`, if any of their nodes is.
    fn nodes_of(&self, txns: &BTreeSet<TxnId>, wholly: bool) -> Option<BTreeSet<NodeId>> {
        let mut all = BTreeSet::new();
        for txn in txns {
            let op = self.operation(*txn)?;
            if op.is_seen() && !self.plant().is("cancel-what-was-seen") {
                return None;
            }
            if wholly && !(op.nodes.iter().all(|id| self.has(*id)) && self.has_unwritten(*txn)) {
                return None;
            }
            all.extend(op.nodes.iter().filter(|id| self.has(**id)));
        }
        Some(all)
    }

    /// Is it durable, or a name in a directory's block?
    fn is_name(&self, id: NodeId) -> bool {
        self.node(id).is_none_or(|n| n.step == NAMES && !n.names_in.is_empty())
    }
}
