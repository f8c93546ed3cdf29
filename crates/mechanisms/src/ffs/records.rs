//! The ordered edits that are not durable yet, by block and by transaction. It decides which are
//! ready, and follows them through capture, write and flush; it writes nothing itself.

use super::phase::PHASES;
use super::render::render;
use crate::audit::Audit;
use crate::unflushed::{Progress, Unflushed};
use cache::{Buf, FlushEpoch, Image};
use format::{BlockNo, Extent};
use integrity::{Before, Change, Edit, TxnId};
use std::collections::BTreeMap;
use std::ops::Range;

#[derive(Debug)]
pub(super) struct Record {
    pub(super) txn: TxnId,
    pub(super) phase: usize,
    pub(super) range: Range<usize>,
    pub(super) before: Option<Before>,
    /// Does it make a count of users one less?
    pub(super) is_count: bool,
    pub(super) state: Progress,
}

struct TxnState {
    ended: bool,
    /// Does its caller wait for it?
    waits: bool,
    /// Has he waited long enough? What is left goes behind, as of one for which nobody waits.
    returned: bool,
    /// Are its edits rolled back in images until their turn comes?
    rolls_back: bool,
    /// Records not durable yet, by phase.
    left: [u32; PHASES],
    blocks: Vec<(usize, Buf)>,
}

impl TxnState {
    fn lowest(&self) -> Option<usize> {
        self.left.iter().position(|&n| n > 0)
    }
}

#[derive(Default)]
pub(super) struct Records {
    by_block: BTreeMap<BlockNo, Vec<Record>>,
    txns: BTreeMap<TxnId, TxnState>,
    /// Blocks with written records.
    unflushed: Unflushed,
    /// Open transactions whose owners and permissions are another's records, and of which phase.
    joins: BTreeMap<TxnId, (TxnId, usize)>,
    durable: Vec<TxnId>,
    audit: Audit,
}

/// The bytes of an edit, and what they were. A count of links is announced with the word that it
/// lies in, and the rest of that, half of the group, is another change's.
fn told_of(edit: &Edit) -> (Range<usize>, Option<Before>) {
    let counts =
        matches!(edit.change, Change::LinkUp(_) | Change::LinkDown(_) | Change::ParentLinkDown(_));
    let (range, before) = (edit.range.clone(), edit.before.clone());
    let now = edit.buf.bytes();
    match before.as_deref() {
        Some(old) if counts && old.len() == 4 && old[..2] == now[range.start..range.start + 2] => {
            let count = Before::from(&old[2..]);
            assert_eq!(count.len(), 2, "I1: a count of links in {range:?}");
            (range.start + 2..range.end, Some(count))
        }
        _ => (range, before),
    }
}

impl Records {
    pub(super) fn new() -> Records {
        Records::default()
    }

    pub(super) fn add(&mut self, txn: TxnId, phase: usize, edit: &Edit) {
        let inside = edit.range.end <= edit.buf.bytes().len() && !edit.range.is_empty();
        assert!(inside && phase < PHASES, "I1: a record of {:?} of {:?}", edit.range, edit.buf);
        let lengths = edit.before.as_ref().is_none_or(|b| b.len() == edit.range.len());
        assert!(lengths, "I1: what {:?} was before has another length", edit.range);
        let joined = self.joined(txn, edit);
        let (range, before) = told_of(edit);
        let (txn, phase) = joined.unwrap_or((txn, phase));
        let record = Record {
            txn,
            phase,
            range,
            before,
            is_count: matches!(edit.change, Change::ShareDown(_)),
            state: Progress::Pending,
        };
        self.by_block.entry(edit.buf.block()).or_default().push(record);
        let t = self.txns.entry(txn).or_insert_with(|| TxnState {
            ended: false,
            waits: false,
            returned: false,
            rolls_back: false,
            left: [0; PHASES],
            blocks: Vec::new(),
        });
        let may_be = !t.ended || joined.is_some();
        assert!(may_be, "I3: an edit of transaction {txn}, which has ended");
        t.left[phase] += 1;
        t.rolls_back |= edit.before.is_some();
        if !t.blocks.iter().any(|(p, b)| *p == phase && b.same(&edit.buf)) {
            t.blocks.push((phase, edit.buf.clone()));
        }
    }

    /// Owner and permissions that lie over what another transaction takes back are taken back with
    /// it, all of them: whose that is, and its phase. None: they lie over nothing that waits.
    fn joined(&mut self, txn: TxnId, edit: &Edit) -> Option<(TxnId, usize)> {
        if !matches!(edit.change, Change::Owner(_)) {
            return None;
        }
        let (of, range) = (self.joins.get(&txn).copied(), &edit.range);
        let meets = |r: &&Record| r.range.start < range.end && range.start < r.range.end;
        let waits =
            |r: &&Record| r.txn != txn && r.before.is_some() && r.state == Progress::Pending;
        let list = self.by_block.get(&edit.buf.block())?;
        let over = list.iter().rev().filter(waits).find(meets).map(|r| (r.txn, r.phase));
        let same = |of: &(TxnId, usize)| list.iter().any(|r| waits(&r) && (r.txn, r.phase) == *of);
        let to = of.filter(same).or(over)?;
        assert_ne!(to.0, txn, "I1: an owner of {txn} waits for itself");
        self.joins.insert(txn, to);
        Some(to)
    }

    /// The transaction has ended. A delayed one whose edits are all of one phase needs no order any
    /// more, and one without edits that are not durable is durable.
    pub(super) fn end(&mut self, txn: TxnId, waits: bool) {
        self.joins.remove(&txn);
        let Some(t) = self.txns.get_mut(&txn) else {
            self.durable.push(txn);
            return;
        };
        assert!(!t.ended, "I3: transaction {txn} ends twice");
        (t.ended, t.waits) = (true, waits);
        let phases = t.left.iter().filter(|&&n| n > 0).count();
        let blocks: Vec<BlockNo> = t.blocks.iter().map(|(_, b)| b.block()).collect();
        let plain = !waits && t.rolls_back && phases == 1;
        if phases > 0 && !plain {
            return;
        }
        self.txns.remove(&txn);
        for b in blocks {
            self.retain(b, |r| r.txn != txn);
        }
        self.durable.push(txn);
    }

    fn retain(&mut self, block: BlockNo, keep: impl Fn(&Record) -> bool) {
        if let Some(list) = self.by_block.get_mut(&block) {
            list.retain(keep);
            if list.is_empty() {
                self.by_block.remove(&block);
            }
        }
    }

    pub(super) fn first_phase(&self, txn: TxnId) -> Option<usize> {
        self.txns.get(&txn)?.lowest()
    }
    pub(super) fn last_phase(&self, txn: TxnId) -> Option<usize> {
        self.txns.get(&txn)?.left.iter().rposition(|&n| n > 0)
    }

    /// The blocks with records of this phase.
    pub(super) fn bufs_of(&self, txn: TxnId, phase: usize) -> Vec<Buf> {
        let Some(t) = self.txns.get(&txn) else { return Vec::new() };
        if t.left[phase] == 0 {
            return Vec::new();
        }
        t.blocks.iter().filter(|(p, _)| *p == phase).map(|(_, b)| b.clone()).collect()
    }

    /// The blocks with records, some more than once.
    pub(super) fn bufs(&self) -> Vec<Buf> {
        self.txns.values().flat_map(|t| t.blocks.iter().map(|(_, b)| b.clone())).collect()
    }

    pub(super) fn phase_done(&self, txn: TxnId, phase: usize) -> bool {
        self.txns.get(&txn).is_none_or(|t| t.left[phase] == 0)
    }

    /// The caller of the transaction waits no longer.
    pub(super) fn returned(&mut self, txn: TxnId) {
        if let Some(t) = self.txns.get_mut(&txn) {
            assert!(t.ended && t.waits, "I3: {txn} returns, and was not waited for");
            t.returned = true;
        }
    }

    /// The blocks of transactions up to `last` for which nobody waits, and of which edits in this
    /// block are not durable; some more than once.
    pub(super) fn held_back(&self, block: BlockNo, last: TxnId) -> Vec<Buf> {
        let list = self.by_block.get(&block).into_iter().flatten();
        let of = list.filter(|r| r.txn <= last).filter_map(|r| self.txns.get(&r.txn));
        let delayed = of.filter(|t| t.ended && !t.waits);
        delayed.flat_map(|t| t.blocks.iter().map(|(_, b)| b.clone())).collect()
    }

    /// The last transaction with a count of users in these blocks that is not durable.
    pub(super) fn last_counted_in(&self, e: Extent) -> Option<TxnId> {
        let all = self.by_block.range(e.start..e.start.plus(e.len)).flat_map(|(_, l)| l);
        all.filter(|r| r.is_count).map(|r| r.txn).max()
    }

    /// How many edits wait in the block, of transactions up to `last` for which nobody waits?
    pub(super) fn behind(&self, block: BlockNo, last: TxnId) -> usize {
        let is_left = |t: &TxnState| t.ended && (t.returned || !t.waits);
        let left = |r: &&Record| self.txns.get(&r.txn).is_some_and(is_left);
        let of = |r: &&Record| r.state == Progress::Pending && r.txn <= last;
        self.by_block.get(&block).map_or(0, |l| l.iter().filter(of).filter(left).count())
    }

    /// What may be written of `buf` now (I1); the ready records are captured in it.
    pub(super) fn capture(&mut self, buf: &Buf) -> Image {
        let Some(list) = self.by_block.get_mut(&buf.block()) else { return Image::AsIs };
        let sent = list.iter().find(|r| r.state == Progress::Captured);
        let sent = sent.map(|r| (r.txn, r.phase));
        assert!(sent.is_none(), "I1: {buf:?} is written while {sent:?} of it is on its way");
        let txns = &self.txns;
        let ready = |r: &Record| {
            txns.get(&r.txn).is_some_and(|t| t.ended && t.lowest().is_none_or(|l| r.phase <= l))
        };
        render(buf, list, ready)
    }

    /// The write of the block has ended.
    pub(super) fn written(&mut self, block: BlockNo, ok: bool, epoch: FlushEpoch) {
        let Some(list) = self.by_block.get_mut(&block) else { return };
        let early = list.iter().any(|r| matches!(r.state, Progress::Written(e) if e > epoch));
        assert!(!early, "I2: block {block} was written in an epoch that is to come");
        let to = Progress::after_write(ok, epoch);
        let mut any = false;
        for r in list.iter_mut().filter(|r| r.state == Progress::Captured) {
            r.state = to;
            any = true;
        }
        if any && ok {
            self.unflushed.add(epoch, block);
        }
    }

    /// What was written before this flush was issued is durable (I2).
    pub(super) fn flushed(&mut self, epoch: FlushEpoch) {
        for block in self.unflushed.take_flushed(epoch) {
            self.finish(block, |r| r.state.is_durable_by(epoch));
        }
        if self.audit.is_due(self.by_block.len()) {
            self.check();
        }
    }

    /// The blocks were freed, durably: their edits matter no more.
    pub(super) fn cancel(&mut self, e: Extent) {
        self.known_in(e).into_iter().for_each(|b| self.finish(b, |_| true));
    }

    /// The transaction itself freed the blocks: its own edits of them are not needed.
    pub(super) fn cancel_own(&mut self, e: Extent, txn: TxnId) {
        self.known_in(e).into_iter().for_each(|b| self.finish(b, |r| r.txn == txn));
    }

    /// Is every edit of the block in the image on its way, if that is `all` of it, or written?
    pub(super) fn has_captured(&self, block: BlockNo, all: bool) -> bool {
        let list = self.by_block.get(&block).filter(|_| all);
        list.is_none_or(|l| l.iter().all(|r| r.state != Progress::Pending))
    }

    /// Has any of the blocks a record?
    pub(super) fn has_any_in(&self, e: Extent) -> bool {
        self.by_block.range(e.start..e.start.plus(e.len)).next().is_some()
    }

    /// Has the block an edit that has yet to be written?
    pub(super) fn is_pending(&self, block: BlockNo) -> bool {
        let list = self.by_block.get(&block);
        list.is_some_and(|l| l.iter().any(|r| r.state == Progress::Pending))
    }

    /// Those of the blocks that have records.
    pub(super) fn known_in(&self, e: Extent) -> Vec<BlockNo> {
        self.by_block.range(e.start..e.start.plus(e.len)).map(|(b, _)| *b).collect()
    }

    fn finish(&mut self, block: BlockNo, done: impl Fn(&Record) -> bool) {
        let Some(list) = self.by_block.get_mut(&block) else { return };
        for r in list.extract_if(.., |r| done(r)) {
            if let Some(t) = self.txns.get_mut(&r.txn) {
                assert!(t.left[r.phase] > 0, "I2: more edits are durable than there were");
                t.left[r.phase] -= 1;
                if t.ended && t.lowest().is_none() {
                    self.txns.remove(&r.txn);
                    self.durable.push(r.txn);
                }
            }
        }
        if list.is_empty() {
            self.by_block.remove(&block);
        }
    }

    /// Nothing is left of any transaction.
    pub(super) fn check_empty(&self) {
        let block = self.by_block.keys().next();
        assert!(block.is_none(), "I2: an edit of {block:?} is not durable in a closed volume");
        let txn = self.txns.iter().find(|(_, t)| t.ended).map(|(txn, _)| *txn);
        assert!(txn.is_none(), "I3: transaction {txn:?} has no edit left, and is not durable");
        let told = self.durable.is_empty();
        assert!(told, "I4: nobody was told that {:?} are durable", self.durable);
        self.check();
    }

    /// The records and what is counted of them agree: each is of a transaction that is not durable,
    /// and counted in its phase.
    pub(super) fn check(&self) {
        let mut found: BTreeMap<TxnId, [u32; PHASES]> = BTreeMap::new();
        for (block, list) in &self.by_block {
            assert!(!list.is_empty(), "I5: block {block} is known for no edit");
            list.iter().for_each(|r| found.entry(r.txn).or_default()[r.phase] += 1);
        }
        for (txn, t) in &self.txns {
            let (left, own) = (t.left, found.remove(txn).unwrap_or_default());
            assert_eq!(left, own, "I2: what transaction {txn} waits for, and its edits");
            let phases = left.iter().any(|n| *n > 0);
            assert!(!t.ended || phases, "I3: {txn} waits for nothing, and is not durable");
        }
        let lost = found.keys().next();
        assert!(lost.is_none(), "I2: transaction {lost:?} is durable, and has edits left");
    }

    /// The transactions that have become durable since the last call.
    pub(super) fn take_durable_txns(&mut self) -> Vec<TxnId> {
        let left = self.durable.iter().find(|t| self.txns.contains_key(t));
        assert!(left.is_none(), "I4: {left:?} counts as durable, and has edits that are not");
        std::mem::take(&mut self.durable)
    }

    /// Planted bug: the block's records no longer hold anything back.
    pub(super) fn make_ready(&mut self, block: BlockNo) {
        for r in self.by_block.get_mut(&block).into_iter().flatten() {
            r.before = None;
        }
    }

    /// Planted bug: a phase counts as durable though nothing was flushed.
    pub(super) fn forget_order(&mut self, txn: TxnId, phase: usize) {
        for buf in self.bufs_of(txn, phase) {
            self.finish(buf.block(), |r| r.txn == txn && r.phase == phase);
        }
    }
}
