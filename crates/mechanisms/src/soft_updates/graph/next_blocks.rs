//! What to write next so that something becomes durable: the edges are followed from what is wanted
//! down to what can be written now. It changes nothing.

use super::super::order::{CONTENTS, needs};
use super::contents::blocks_of;
use super::{Graph, NodeId, Operation};
use crate::unflushed::Progress;
use cache::Buf;
use format::BlockNo;
use std::collections::{BTreeMap, BTreeSet};

impl Graph {
    /// The blocks to write now so that `wanted` become durable soonest: those with something that
    /// they wait for and that may stand, or is on its way.
    pub(in super::super) fn next_blocks(&self, wanted: &[NodeId]) -> Vec<Buf> {
        let mut seen = BTreeSet::new();
        let mut todo: Vec<NodeId> = wanted.to_vec();
        let (mut blocks, mut contents) = (BTreeMap::new(), BTreeMap::new());
        while let Some(id) = todo.pop() {
            let Some(n) = self.nodes.get(id) else { continue };
            if !seen.insert(id) || matches!(n.state, Progress::Written(_)) {
                continue;
            }
            blocks.insert(n.buf.block(), n.buf.clone());
            if n.state == Progress::Captured {
                continue;
            }
            todo.extend(n.after.iter().chain(&n.under));
            let op = &self.operations[n.txn];
            let mask = needs(n.step);
            let below =
                |id: &&NodeId| self.nodes.get(**id).is_some_and(|m| mask & (1 << m.step) != 0);
            if op.waits_for(mask) {
                todo.extend(op.nodes.iter().filter(below));
            }
            if op.waits_for(mask & 1 << CONTENTS) {
                contents.extend(self.unwritten(op));
            }
        }
        let useful = |block: &BlockNo| {
            let standing = self.standing(*block);
            standing.iter().any(|s| s.stands && s.ended && seen.contains(&s.id))
        };
        blocks.retain(|b, _| useful(b));
        blocks.extend(contents);
        blocks.into_values().collect()
    }

    /// Do these wait for an operation that has not ended, or stand on one, by whatever way?
    pub(in super::super) fn hangs_on_open(&self, wanted: &[NodeId]) -> bool {
        let (mut seen, mut todo) = (BTreeSet::new(), wanted.to_vec());
        while let Some(id) = todo.pop() {
            let Some(n) = self.nodes.get(id).filter(|n| n.is_pending()) else { continue };
            if !self.is_ended(id) {
                return true;
            }
            if !seen.insert(id) {
                continue;
            }
            todo.extend(n.after.iter().chain(&n.under));
            let (op, mask) = (&self.operations[n.txn], needs(n.step));
            if op.waits_for(mask) {
                let is_below =
                    |id: &&NodeId| self.nodes.get(**id).is_some_and(|m| mask & (1 << m.step) != 0);
                todo.extend(op.nodes.iter().filter(is_below));
            }
        }
        false
    }

    /// The contents of the operation that have yet to be written, or are on their way.
    fn unwritten(&self, op: &Operation) -> impl Iterator<Item = (BlockNo, Buf)> {
        let buf = |b| Some((b, self.contents.unwritten_of(b)?.clone()));
        blocks_of(&op.contents).filter_map(buf)
    }
}
