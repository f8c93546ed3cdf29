//! The journaled blocks that are not durable in place yet: what may be written of each (the gate),
//! and since which transaction the journal is needed for it (needed_from). It writes nothing.

use super::transaction::Tid;
use crate::audit::Audit;
use crate::unflushed::Unflushed;
use cache::{Buf, FlushEpoch, Image};
use env::{Block, IdMap};
use format::{BlockNo, Extent};
use std::collections::BTreeSet;

struct JournalHead {
    buf: Buf,
    /// Changed by the running transaction.
    in_running: bool,
    /// As the transaction that is being committed left it.
    frozen: Option<Block>,
    /// As the newest committed transaction left it, with its tid.
    committed: Option<(Tid, Block)>,
    /// Contents that the transaction being committed writes back before its commit.
    ordered: Option<Block>,
    /// A write of those is on its way; has ended.
    ordered_sent: bool,
    ordered_in_place: bool,
    /// The committed transactions whose journal copies are needed.
    tids: Vec<Tid>,
    /// The newest of them in the image on its way.
    captured: Option<Tid>,
    /// The newest of them in an image that was written, and when.
    written: Option<(FlushEpoch, Tid)>,
    /// Freed by a transaction that is not durable: memory has other contents, or none.
    freed: bool,
}

#[derive(Default)]
pub(super) struct JournalHeads {
    map: IdMap<u64, JournalHead>,
    /// (tid, block) of every block that needs the journal: the first of the block's tids.
    by_needed_from: BTreeSet<(Tid, u64)>,
    unflushed: Unflushed,
    audit: Audit,
}

impl JournalHeads {
    fn head(&mut self, buf: &Buf) -> &mut JournalHead {
        let head = self.map.entry(buf.block().0).or_insert_with(|| JournalHead {
            buf: buf.clone(),
            in_running: false,
            frozen: None,
            committed: None,
            ordered: None,
            ordered_sent: false,
            ordered_in_place: false,
            tids: Vec::new(),
            captured: None,
            written: None,
            freed: false,
        });
        if !head.buf.same(buf) {
            head.buf = buf.clone();
        }
        head
    }

    /// The running transaction has changed it.
    pub(super) fn join(&mut self, buf: &Buf) {
        let h = self.head(buf);
        (h.in_running, h.freed) = (true, false);
    }

    /// The blocks of the extent that are here, in order.
    fn inside(&self, e: Extent) -> Vec<u64> {
        let range = e.start.0..e.start.0 + e.len;
        if e.len < self.map.len() as u64 {
            return range.filter(|b| self.map.contains_key(b)).collect();
        }
        let mut known: Vec<u64> = self.map.keys().filter(|b| range.contains(*b)).copied().collect();
        known.sort_unstable();
        known
    }

    /// The running transaction has freed these blocks.
    pub(super) fn free(&mut self, e: Extent) {
        for b in self.inside(e) {
            let h = self.map.get_mut(&b).expect("it is inside");
            (h.in_running, h.freed) = (false, true);
            self.drop_if_idle(b);
        }
    }

    /// The running transaction is closed: the block is as that transaction leaves it.
    pub(super) fn freeze(&mut self, block: BlockNo) -> Block {
        let h = self.map.get_mut(&block.0).expect("a block of a transaction has joined it");
        assert!(h.frozen.is_none(), "J3: block {block} is frozen for two transactions");
        assert!(h.in_running && !h.freed, "J3: block {block} is not of the running transaction");
        let image = h.buf.image();
        (h.in_running, h.frozen) = (false, Some(image.clone()));
        image
    }

    /// The closed transaction writes these contents back before its commit, whatever becomes of the
    /// block meanwhile.
    pub(super) fn freeze_ordered(&mut self, buf: &Buf) {
        let image = buf.image();
        let h = self.head(buf);
        assert!(
            h.ordered.is_none(),
            "J2: {buf:?} is frozen, and the transaction before is not committed"
        );
        h.ordered = Some(image);
        (h.ordered_sent, h.ordered_in_place) = (false, false);
    }

    /// Those of the blocks whose frozen contents must still be written. One that was freed since is
    /// written all the same: if the transaction that freed it is lost, its file has it.
    pub(super) fn ordered_left(&self, bufs: &[Buf]) -> Vec<Buf> {
        let left = |b: &&Buf| {
            let Some(h) = self.map.get(&b.block().0) else { return false };
            if h.ordered.is_none() || h.ordered_in_place {
                return false;
            }
            if h.freed && !b.is_dirty() {
                b.mark_dirty();
            }
            b.is_dirty() || b.is_writing()
        };
        bufs.iter().filter(left).cloned().collect()
    }

    /// Those contents are in place. True: the block is freed, and memory's copy need not be
    /// written.
    pub(super) fn ordered_done(&mut self, block: BlockNo) -> bool {
        let Some(h) = self.map.get_mut(&block.0) else { return false };
        let freed = h.freed;
        let before = h.ordered.take();
        assert!(before.is_some(), "J2: contents of {block} are in place that were not frozen");
        self.drop_if_idle(block.0);
        freed
    }

    /// The transaction is durable in the journal. `whole`: what older ones hold of the block is not
    /// needed any more.
    pub(super) fn committed(&mut self, block: BlockNo, tid: Tid, whole: bool) {
        let frozen = self.map.get_mut(&block.0).and_then(|h| Some((h.frozen.take()?, h)));
        assert!(frozen.is_some(), "J3: block {block} of {tid} is durable, and was not frozen");
        let Some((image, h)) = frozen else { return };
        let newer = h.committed.as_ref().map(|c| c.0);
        assert!(newer < Some(tid), "J7: block {block} of {newer:?} is replaced by that of {tid}");
        let needed_from = h.tids.first().copied();
        h.committed = Some((tid, image));
        if whole {
            h.tids.clear();
        }
        let rises = h.tids.last().is_none_or(|s| *s < tid);
        assert!(rises, "J7: block {block} is committed by {tid} after {:?}", h.tids);
        h.tids.push(tid);
        let first = h.tids[0];
        if needed_from != Some(first) {
            if let Some(old) = needed_from {
                let listed = self.by_needed_from.remove(&(old, block.0));
                assert!(listed, "J4: block {block} needs the journal from {old}, nobody knows");
            }
            let new = self.by_needed_from.insert((first, block.0));
            assert!(new, "J4: block {block} needs the journal from {first} twice");
        }
    }

    /// The transaction that freed these blocks is durable. Returns those that memory may still
    /// count as dirty, because they had to be written.
    pub(super) fn freed_durably(&mut self, e: Extent) -> Vec<BlockNo> {
        let mut known = self.inside(e);
        known.retain(|b| self.map[b].freed);
        let again = known.iter().find(|b| self.map[*b].in_running);
        assert!(again.is_none(), "J5: {again:?} is in use before its freeing is durable");
        for b in &known {
            if let Some(first) = self.map.remove(b).and_then(|h| h.tids.first().copied()) {
                let listed = self.by_needed_from.remove(&(first, *b));
                assert!(listed, "J4: block {b} needs the journal from {first}, nobody knows");
            }
        }
        known.into_iter().map(BlockNo).collect()
    }

    fn drop_if_idle(&mut self, block: u64) {
        let Some(h) = self.map.get(&block) else { return };
        let waits = h.in_running || h.frozen.is_some() || h.ordered.is_some();
        if !waits && h.tids.is_empty() && h.captured.is_none() {
            self.map.remove(&block);
        }
    }

    /// What may be written of the block now.
    pub(super) fn before_write(&mut self, buf: &Buf) -> Image {
        let Some(h) = self.map.get_mut(&buf.block().0) else { return Image::AsIs };
        let sent = h.captured;
        assert!(sent.is_none(), "J1: {buf:?} is written while {sent:?} of it is on its way");
        let (newest, kept) = (h.committed.as_ref().map(|c| c.0), h.tids.last().copied());
        assert_eq!(newest, kept, "J4: what is committed of {buf:?} and what the journal has");
        h.ordered_sent = h.ordered.is_some();
        if !h.in_running && h.frozen.is_none() && !h.freed {
            h.captured = h.committed.as_ref().map(|c| c.0);
            return Image::AsIs;
        }
        if let Some(ordered) = &h.ordered {
            return Image::Instead(ordered.clone());
        }
        let Some((tid, image)) = &h.committed else { return Image::NotYet };
        if h.written.is_some_and(|(_, s)| s >= *tid) {
            return Image::NotYet; // written; it waits for a flush
        }
        h.captured = Some(*tid);
        Image::Instead(image.clone())
    }

    /// The newest transaction in the image on its way.
    pub(super) fn captured(&self, block: BlockNo) -> Option<Tid> {
        self.map.get(&block.0)?.captured
    }

    /// The block's write has ended.
    pub(super) fn after_write(&mut self, block: BlockNo, ok: bool, epoch: FlushEpoch) {
        let Some(h) = self.map.get_mut(&block.0) else { return };
        if std::mem::take(&mut h.ordered_sent) && ok {
            h.ordered_in_place = true;
        }
        if let Some(tid) = h.captured.take()
            && ok
        {
            let before = h.written.replace((epoch, tid));
            let rises = before.is_none_or(|(e, t)| e <= epoch && t <= tid);
            assert!(rises, "J1: {tid} of block {block} is written over {before:?}");
            self.unflushed.add(epoch, block);
        }
    }

    /// Writes that ended before this flush began are durable: their places in that order go.
    /// Returns the freed blocks among them, which need not be written again.
    pub(super) fn flushed(&mut self, epoch: FlushEpoch) -> Vec<BlockNo> {
        let mut freed = Vec::new();
        for BlockNo(block) in self.unflushed.take_flushed(epoch) {
            let Some(h) = self.map.get_mut(&block) else { continue };
            let Some((_, tid)) = h.written.filter(|(e, _)| *e < epoch) else { continue };
            let newest = h.tids.last().is_none_or(|s| tid <= *s);
            assert!(newest, "J1: block {block} was written with {tid}, which is not committed");
            h.written = None;
            if let Some(first) = h.tids.first() {
                let listed = self.by_needed_from.remove(&(*first, block));
                assert!(listed, "J4: block {block} needs the journal from {first}, nobody knows");
            }
            h.tids.retain(|s| *s > tid);
            match h.tids.first() {
                Some(first) => {
                    let new = self.by_needed_from.insert((*first, block));
                    assert!(new, "J4: block {block} needs the journal from {first} twice");
                }
                None => {
                    h.committed = None;
                    if h.freed {
                        freed.push(BlockNo(block));
                    }
                    self.drop_if_idle(block);
                }
            }
        }
        if self.audit.is_due(self.map.len()) {
            self.check();
        }
        freed
    }

    /// Is the block journaled and not durable in place? Contents that a closed transaction writes
    /// in place before its commit are not.
    pub(super) fn is_journaled(&self, block: BlockNo) -> bool {
        self.map.get(&block.0).is_some_and(|h| h.ordered.is_none())
    }

    /// Is anything of the block journaled or about to be written?
    pub(super) fn has(&self, block: BlockNo) -> bool {
        self.map.contains_key(&block.0)
    }

    /// The first transaction that is needed; None: none is.
    pub(super) fn oldest(&self) -> Option<Tid> {
        self.by_needed_from.first().map(|h| h.0)
    }

    /// The blocks that hold transactions up to `tid`. Those that memory counts as clean, because
    /// they are freed, are made dirty, so that they are written all the same.
    pub(super) fn needing_up_to(&self, tid: Tid) -> Vec<Buf> {
        let held = self.by_needed_from.range(..=(tid, u64::MAX)).map(|(_, b)| &self.map[b]);
        held.filter(|h| h.written.is_none())
            .map(|h| {
                if h.freed && !h.buf.is_dirty() {
                    h.buf.mark_dirty();
                }
                h.buf.clone()
            })
            .collect()
    }

    /// Each block's transactions and the order of all agree, and what is on its way is committed.
    pub(super) fn check(&self) {
        let needed = self.map.values().filter(|h| !h.tids.is_empty()).count();
        let listed = self.by_needed_from.len();
        assert_eq!(needed, listed, "J4: {needed} blocks need the journal, {listed} are known");
        for (b, h) in &self.map {
            let (first, last) = (h.tids.first().copied(), h.tids.last().copied());
            let known = first.is_none_or(|t| self.by_needed_from.contains(&(t, *b)));
            assert!(known, "J4: block {b} needs the journal from {first:?}, nobody knows");
            let rises = h.tids.windows(2).all(|w| w[0] < w[1]);
            assert!(rises, "J7: block {b} is in transactions {:?}", h.tids);
            let newest = h.committed.as_ref().map(|c| c.0);
            assert_eq!(newest, last, "J4: what is committed of block {b}, and what is needed");
            let mixed = h.in_running && h.freed;
            assert!(!mixed, "J3: the running transaction has freed block {b}, and changed it");
            let sent = h.captured.is_none() || h.captured <= newest.or(h.captured);
            assert!(sent, "J1: {:?} of block {b} is on its way, {newest:?} committed", h.captured);
        }
    }

    /// Has the running transaction changed no block?
    pub(super) fn is_closed(&self) -> bool {
        self.map.values().all(|h| !h.in_running)
    }

    /// Is nothing left that is not durable in place?
    pub(super) fn is_empty(&self) -> bool {
        self.by_needed_from.is_empty()
            && self.map.values().all(|h| !h.in_running && h.frozen.is_none())
    }
}
