//! Names across operations: which directories a crash would not find yet, and which names left a
//! directory for another that is not durable. A name must not go before another of the same file
//! can be reached, by whatever operations that one was made.

use super::graph::{Graph, NodeId};
use super::order::{NAMES, UNNAMES};
use env::Few;
use format::Ino;
use integrity::{Plant, TxnId, invariant};
use std::collections::{BTreeMap, BTreeSet};

/// What an open operation has done to names.
#[derive(Default, Debug)]
pub(super) struct Names {
    /// New names: the directory and the inode.
    pub(super) made: Few<(Ino, Ino)>,
    /// Names that go: the directory, the inode, and whether the name names another one now.
    pub(super) gone: Few<(Ino, Ino, bool)>,
    /// Directories made.
    pub(super) dirs: Few<Ino>,
    /// Directories that have got longer, with what makes them so.
    pub(super) grown: Few<(Ino, NodeId)>,
    /// Inodes freed.
    pub(super) freed: Few<Ino>,
}

impl Names {
    /// Has the operation to do with names or inodes that go? Most writes have not.
    fn are_untouched(&self) -> bool {
        let Names { made, gone, dirs, grown, freed } = self;
        let none = made.is_empty() && gone.is_empty() && freed.is_empty();
        none && dirs.is_empty() && grown.is_empty()
    }
}

/// What is known of directories.
#[derive(Default)]
pub(super) struct Directories {
    /// What must be durable before a crash finds what the directory names, its length aside.
    reach: BTreeMap<Ino, Vec<NodeId>>,
    /// The node that last made the directory longer; those that did so before are under it.
    grown: BTreeMap<Ino, NodeId>,
    /// What must be durable before the directory may lose its own name: the new names of what has
    /// left it. Each once: whoever empties a directory into another adds to it a thousand times.
    left: BTreeMap<Ino, BTreeSet<NodeId>>,
}

impl Directories {
    /// What must be durable before a crash finds what the directory names.
    pub(super) fn reach(&self, dir: Ino, graph: &Graph) -> Vec<NodeId> {
        let all = self.reach.get(&dir).into_iter().flatten().chain(self.grown.get(&dir));
        all.filter(|id| graph.has(**id)).copied().collect()
    }

    /// The directory is longer by this.
    fn grow(&mut self, dir: Ino, node: NodeId, graph: &Graph) {
        let before = self.grown.insert(dir, node).filter(|b| *b != node && graph.has(*b));
        if let Some(b) = before.filter(|b| !graph.lies_over(node, *b)) {
            self.reach.entry(dir).or_default().push(b);
        }
    }

    /// An operation ends: its names wait for those of others that they depend on (I5).
    pub(super) fn end(&mut self, graph: &mut Graph, txn: TxnId, names: &Names, plant: Plant) {
        if names.are_untouched() {
            return;
        }
        let made = graph.of_step(txn, NAMES);
        let told = names.made.is_empty() || !made.is_empty();
        invariant!(plant, told, "I5: {txn} has made names, and nothing else waits for them");
        for (dir, node) in &names.grown {
            self.grow(*dir, *node, graph);
        }
        for (dir, ino) in names.made.iter().filter(|(_, i)| names.dirs.contains(i)) {
            let mut all = self.reach(*dir, graph);
            all.extend(&made);
            self.reach.insert(*ino, all);
        }
        let mut reached = BTreeSet::new();
        if !plant.is("unreachable-name") {
            names.made.iter().for_each(|(dir, _)| reached.extend(self.reach(*dir, graph)));
        }
        let mut kept_by = reached.clone();
        kept_by.extend(made);
        if !names.made.is_empty() {
            graph.wait_for(txn, UNNAMES, &reached);
        }
        for (dir, ino, replaced) in &names.gone {
            let mut all = BTreeSet::new();
            if !plant.is("moved-out-forgotten") {
                all.extend(self.left.remove(ino).into_iter().flatten());
            }
            if !names.freed.contains(ino) && !plant.is("last-name-first") {
                all.extend(self.other_names(graph, txn, *ino));
            }
            all.retain(|id| graph.has(*id));
            graph.wait_for(txn, if *replaced { NAMES } else { UNNAMES }, &all);
            if !(all.is_empty() && kept_by.is_empty()) {
                // What has become durable of it goes with the next flush (`sweep`).
                self.left.entry(*dir).or_default().extend(all.iter().chain(&kept_by));
            }
        }
        graph.note_chains(txn);
        for ino in &names.freed {
            self.reach.remove(ino);
            self.grown.remove(ino);
            self.left.remove(ino);
        }
    }

    /// The names of the inode that other operations have made, and what they are reached by.
    fn other_names(&self, graph: &Graph, txn: TxnId, ino: Ino) -> BTreeSet<NodeId> {
        let (mut all, goings) = (BTreeSet::new(), graph.of_step(txn, UNNAMES));
        for id in graph.owned_by(ino) {
            let Some(n) = graph.node(id).filter(|n| n.step == NAMES && n.txn != txn) else {
                continue;
            };
            if goings.iter().any(|g| graph.lies_over(*g, id)) {
                continue; // the very name that goes
            }
            all.insert(id);
            n.names_in.iter().for_each(|dir| all.extend(self.reach(*dir, graph)));
        }
        all
    }

    /// Does no name wait for anything?
    pub(super) fn is_empty(&self) -> bool {
        self.reach.is_empty() && self.grown.is_empty() && self.left.is_empty()
    }

    /// Forgets what has become durable.
    pub(super) fn sweep(&mut self, graph: &Graph) {
        self.reach.retain(|_, all| {
            all.retain(|id| graph.has(*id));
            !all.is_empty()
        });
        self.grown.retain(|_, id| graph.has(*id));
        self.left.retain(|_, all| {
            all.retain(|id| graph.has(*id));
            !all.is_empty()
        });
    }
}
