//! What an image of a block may hold (I1): which of its nodes stand in it, and the private copy in
//! which the others are taken back. The live block is never changed.

use super::super::order::needs;
use super::{Graph, Node, NodeId, Operation};
use crate::unflushed::Progress;
use cache::{Buf, Image};
use format::BlockNo;
use integrity::invariant;

/// A node of a block that is looked at as a whole.
pub(super) struct Standing {
    pub(super) id: NodeId,
    /// May it stand in an image?
    pub(super) stands: bool,
    /// Has it yet to be written?
    is_pending: bool,
    /// Has its operation ended?
    pub(super) ended: bool,
}

impl Graph {
    /// Is everything durable that the node waits for?
    pub(super) fn is_due(&self, n: &Node, op: &Operation) -> bool {
        let ended = op.ended || self.plant.is("open-edits-shown");
        let logged = !op.unlogged || n.backward.is_empty();
        ended && logged && !op.waits_for(needs(n.step)) && n.after.iter().all(|id| !self.has(*id))
    }

    /// The block's nodes, oldest first, and whether each may stand in an image (I1).
    pub(super) fn standing(&self, block: BlockNo) -> Vec<Standing> {
        let list = self.by_block.get(&block).map_or(&[][..], |list| list);
        let mut all: Vec<Standing> = Vec::with_capacity(list.len());
        for id in list.iter().map(|l| l.id) {
            let n = &self.nodes[id];
            let op = self.operations.get(n.txn).expect("an operation has its nodes");
            let beside = |u: &NodeId| {
                let at = all.binary_search_by_key(u, |s| s.id);
                at.map_or(true, |at| all[at].stands)
            };
            let stands = n.state != Progress::Pending
                || self.plant.is("no-rollback")
                || self.is_due(n, op) && n.under.iter().all(beside);
            all.push(Standing { id, stands, is_pending: n.is_pending(), ended: op.ended });
        }
        all
    }

    /// Does everything in the block stand, so that it is clean after a write?
    pub(in super::super) fn is_whole(&self, block: BlockNo) -> bool {
        self.standing(block).iter().all(|s| s.stands && s.ended)
    }

    /// What may be written of `buf` now. `force`: even if none of it becomes durable by that.
    pub(in super::super) fn capture(&mut self, buf: &Buf, force: bool) -> Image {
        let standing = self.standing(buf.block());
        self.check_idle(buf, &standing);
        let is_new = |s: &Standing| s.stands && s.is_pending && s.ended;
        let contents = self.contents.pending_of(buf.block()).is_some();
        let has_new = contents || standing.iter().any(is_new);
        if !force && !has_new && standing.iter().any(|s| !s.stands) {
            return Image::NotYet;
        }
        self.counts.captures += self.contents.capture(buf.block()) as u64;
        if standing.is_empty() {
            return Image::AsIs;
        }
        let mut image = None;
        let mut all_shown = true;
        for s in standing.iter().rev() {
            let n = self.nodes.get_mut(s.id).expect("it is in the list");
            if !s.stands && !n.backward.is_empty() {
                all_shown = false;
                n.backward.apply(image.get_or_insert_with(|| buf.image()).bytes_mut());
                continue;
            }
            all_shown &= s.stands && s.ended;
            if is_new(s) {
                let hidden = self.operations[n.txn].unlogged;
                let told = !hidden || n.backward.is_empty() || self.plant.is("no-rollback");
                invariant!(self.plant, told, "J1: an image shows what no intent tells of");
                n.state = Progress::Captured;
                self.counts.captures += 1;
            }
        }
        self.counts.rollbacks += u64::from(image.is_some());
        self.counts.extra_writes += u64::from(image.is_some() || !all_shown);
        let left = || standing.iter().any(|s| self.nodes[s.id].is_pending());
        let kept = image.is_some() || !all_shown || self.plant.is_any() || !left();
        debug_assert!(kept, "I7: {buf:?} is clean, and something in it waits");
        match image {
            Some(image) => Image::Instead(image),
            // What is left out is the mark that it is durable: the block is written once more.
            None if !all_shown => Image::Instead(buf.image()),
            None => Image::AsIs,
        }
    }
}
