//! Files that never were: one made and removed again before anything of it could be seen on the
//! disk costs no wave. What its operations wait for, and what they take back, is forgotten; its
//! blocks in memory are as they would be after all of it, and go out whenever they do.
//!
//! Rule (I10)  The operations from the file's making to its going are forgotten together, and only
//!             if they concern that file alone, no image held more of them than bits in use and
//!             contents, and nothing left in their blocks would bring a byte of them back.
//! When        As soon as the file is gone; and where names of others that go, too, lie over its
//!             own, with those, before the next wave. Who cannot be forgotten then never is.

use super::SoftUpdates;
use super::graph::{Above, Graph, NodeId, UNDER_MAX, add_in_order};
use super::order::{self, CONTENTS, NAMES, Place};
use crate::record::files_of;
use env::{Few, IdMap, SerialMap};
use format::{BlockNo, Ino};
use integrity::{Change, Freed, Integrity, Plant, TxnId};
use std::collections::{BTreeSet, VecDeque};

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
    /// Files that were made and are gone, and were not tried with others yet.
    gone: BTreeSet<Ino>,
}

/// A file's operations, from its making to its going.
struct Life {
    txns: BTreeSet<TxnId>,
    nodes: BTreeSet<NodeId>,
}

/// What may be forgotten together.
#[derive(Default)]
struct Unseen {
    lives: Vec<Life>,
    nodes: BTreeSet<NodeId>,
    above: Above,
}

/// So often some are left out because others are, before all are.
const ROUNDS_MAX: usize = 16;

impl Lives {
    /// The operation has ended, with something of it not durable.
    pub(super) fn note(&mut self, txn: TxnId, about: About) {
        for ino in &about.inodes {
            if about.makes {
                self.gone.remove(ino); // another file of that number
            }
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
            // What the disk has seen of a file that is gone it has seen for good.
            let life = self.life_of(*ino);
            if life.is_some_and(|life| !self.forget(vec![life])) {
                self.lives.borrow_mut().gone.insert(*ino);
            }
        }
    }

    /// The same of those whose names lie over one another. A wave is about to write them.
    pub(super) fn cancel_gone(&self) {
        let gone = std::mem::take(&mut self.lives.borrow_mut().gone);
        let all: Vec<Life> = gone.into_iter().filter_map(|ino| self.life_of(ino)).collect();
        if !all.is_empty() && self.forget(all) {
            self.retire();
            self.ended.wake_all(); // who waits for what is forgotten
        }
    }

    /// The file's operations, of which the disk has seen nothing.
    fn life_of(&self, ino: Ino) -> Option<Life> {
        let txns = self.lives.borrow().whole(ino)?;
        let nodes = self.graph.borrow().nodes_of(&txns, self.intents.is_some())?;
        Some(Life { txns, nodes })
    }

    /// Forgets those of these files' operations that can be. False: none.
    fn forget(&self, all: Vec<Life>) -> bool {
        let mut graph = self.graph.borrow_mut();
        let unseen = graph.unseen(all);
        if unseen.lives.is_empty() {
            return false;
        }
        let txns = unseen.lives.iter().flat_map(|l| &l.txns).copied().collect();
        let blocks = graph.blocks_of(&txns);
        graph.hand_on(&unseen.nodes, &unseen.above);
        graph.forget(&txns);
        // The next file of that number begins a life of its own.
        self.lives.borrow_mut().sweep(graph.take_gone());
        self.cancelled.set(self.cancelled.get() + unseen.lives.len() as u64);
        // What was freed, and was to be written only because somebody waited for it.
        let is_left = |b: &BlockNo| graph.is_known(*b) || self.may_reuse(Freed::block(*b));
        let idle: Vec<BlockNo> = blocks.into_iter().filter(|b| !is_left(b)).collect();
        drop(graph);
        idle.into_iter().for_each(|b| self.cache.forget(b));
        true
    }
}

impl Graph {
    /// Which of these files' operations may be forgotten together (I10)? All nodes that theirs
    /// stand on, directly or through others, must be the makings of older names, whose spare space
    /// they took and gave back; and in each sector of names at most one other node may stand on
    /// theirs, which takes over (successors.rs). (The removal of a name does not count: rolled
    /// back, it would show its name again, over whose text theirs may have been written.) No name
    /// of theirs may wait for the removal of an older one in another block: the next to take the
    /// name would not know of that any more (I9).
    fn unseen(&self, mut lives: Vec<Life>) -> Unseen {
        for _ in 0..ROUNDS_MAX {
            let nodes: BTreeSet<NodeId> = lives.iter().flat_map(|l| &l.nodes).copied().collect();
            // Most that are kept are, because they lie over a going: that is seen soonest.
            let mut kept = self.over_goings(&nodes);
            if kept.is_empty() {
                let above = self.above(&nodes);
                kept = self.kept(&nodes, &above);
                if kept.is_empty() {
                    return Unseen { lives, nodes, above };
                }
            }
            // What lies in one sector goes together, or in no order that is known.
            let sectors: BTreeSet<_> = kept.iter().filter_map(|id| self.name_sector(*id)).collect();
            let stays = |id: &NodeId| {
                kept.contains(id) || self.name_sector(*id).is_some_and(|s| sectors.contains(&s))
            };
            lives.retain(|l| !l.nodes.iter().any(stays));
        }
        Unseen::default()
    }

    /// Which of the nodes lie directly over the going of another name, or over no name at all?
    fn over_goings(&self, nodes: &BTreeSet<NodeId>) -> BTreeSet<NodeId> {
        if self.plant().is("cancel-over-others") {
            return BTreeSet::new();
        }
        let is_going = |u: &NodeId| !nodes.contains(u) && !self.is_name(*u);
        let is_over = |id: &&NodeId| self.node(**id).is_some_and(|n| n.under.iter().any(is_going));
        nodes.iter().filter(is_over).copied().collect()
    }

    /// Which of the nodes cannot be forgotten, if all the others are?
    fn kept(&self, nodes: &BTreeSet<NodeId>, above: &Above) -> BTreeSet<NodeId> {
        let successors: BTreeSet<NodeId> = above.successors.values().copied().collect();
        let anything_goes = self.plant().is("cancel-over-others");
        let mut names = nodes.clone(); // known to go
        let is_kept = |id: &&NodeId| {
            let n = self.node(**id).expect("it is one of theirs");
            let waits = |u: &NodeId| self.has(*u) && !nodes.contains(u);
            let is_free = n.step != NAMES || !n.after.iter().any(waits);
            let is_free = is_free || self.plant().is("cancel-between-names");
            let outside = n.under.iter().filter(|u| !nodes.contains(u) && !successors.contains(u));
            let mut outside = outside.copied();
            !is_free
                || !anything_goes && outside.any(|u| u > **id || !self.are_names(u, &mut names))
        };
        let mut kept: BTreeSet<NodeId> = nodes.iter().filter(is_kept).copied().collect();
        kept.extend(&above.kept);
        // A successor, too, is over names alone.
        let is_over_going = |id: &NodeId| !self.are_names(*id, &mut names);
        let over_goings: Vec<NodeId> = successors.into_iter().filter(is_over_going).collect();
        kept.extend(over_goings);
        kept
    }

    /// Is the node, with all that it stands on, the making of a name? Those of which that is known
    /// are `known`.
    fn are_names(&self, id: NodeId, known: &mut BTreeSet<NodeId>) -> bool {
        let mut todo = vec![id];
        while let Some(id) = todo.pop() {
            if known.contains(&id) {
                continue;
            }
            if !self.is_name(id) {
                return false;
            }
            known.insert(id);
            if !self.plant().is("cancel-over-goings") {
                todo.extend(self.node(id).into_iter().flat_map(|n| &n.under));
            }
        }
        true
    }

    /// The nodes of the operations; None if there are none, or one of them has none any more, if an
    /// inode or a name of one is durable or on its way (the disk sees it: its going needs its
    /// order), or, if they are to be there `wholly`, if any of their nodes is; or if one stands on
    /// too many.
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
        let is_unseen = |id: &NodeId| {
            let n = self.node(*id).expect("it is one of theirs");
            (!wholly && n.step == CONTENTS || n.is_pending()) && n.under.len() <= UNDER_MAX
        };
        let any = !all.is_empty() && all.iter().all(is_unseen);
        any.then_some(all)
    }

    /// Is it durable, or a name in a directory's block?
    fn is_name(&self, id: NodeId) -> bool {
        self.node(id).is_none_or(|n| n.step == NAMES && !n.names_in.is_empty())
    }
}
