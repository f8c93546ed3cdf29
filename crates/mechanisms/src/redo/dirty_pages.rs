//! Every block with changes that are not durable in place yet: what may be written of it now (the
//! gate), and from where on the log is needed for it (its recLSN). It writes nothing and knows no
//! transaction.
//!
//! A block that changes all the time is never free of changes that the log does not have yet. So
//! when the gate has refused it once, an image is taken at the next moment when none of its bytes
//! belongs to an operation that has not ended; that image is written back when its newest entry is
//! durable, whatever has come since.

use super::serials::Serial;
use crate::audit::Audit;
use crate::unflushed::Unflushed;
use cache::{Buf, FlushEpoch, Image};
use env::{Block, IdMap};
use format::{BlockNo, Extent};
use std::collections::BTreeSet;
use wal::Lsn;

/// One block. Numbers are serials of operations, unless they say otherwise.
#[derive(Default)]
struct Page {
    /// The newest that has ended and changed it.
    newest: Serial,
    /// The first LSN from which on the log is needed for it.
    rec_lsn: Option<Lsn>,
    /// An image without bytes of open operations, and its newest.
    candidate: Option<(Serial, Block)>,
    /// The gate has refused it.
    wanted: bool,
    /// The newest in the image on its way.
    in_flight: Option<Serial>,
    /// The newest that was written back, and the flush epoch it was written in.
    written: Option<(FlushEpoch, Serial)>,
}

impl Page {
    /// Takes an image without bytes of open operations, if none is there and it would bring more
    /// into place than what is on its way or was written: what was written twice of one serial
    /// would, once the first is durable, ask for the log from before the entries that came since.
    fn take_candidate(&mut self, buf: &Buf) {
        let sent = self.in_flight.max(self.written.map(|w| w.1));
        if self.candidate.is_none() && sent < Some(self.newest) {
            self.candidate = Some((self.newest, buf.image()));
        }
    }
}

#[derive(Default)]
pub(super) struct DirtyPages {
    map: IdMap<u64, Page>,
    /// (recLSN, block) of every block.
    by_rec_lsn: BTreeSet<(Lsn, u64)>,
    /// Blocks that were written and wait for a flush.
    unflushed: Unflushed,
    audit: Audit,
}

impl DirtyPages {
    /// An operation that changed the block has ended. `open`: others that also changed it have not.
    pub(super) fn ended(&mut self, buf: &Buf, serial: Serial, open: bool) {
        let s = self.map.entry(buf.block().0).or_default();
        assert!(s.newest < serial, "I2: {serial:?} of {buf:?} ends after {:?}", s.newest);
        s.newest = serial;
        if s.wanted && !open {
            s.take_candidate(buf);
        }
    }

    /// The operation's entry is in the log at this LSN.
    pub(super) fn appended(&mut self, block: BlockNo, lsn: Lsn) {
        let s = self.map.entry(block.0).or_default();
        if s.rec_lsn.is_none() {
            let newest = self.by_rec_lsn.last().map_or(lsn, |h| h.0);
            assert!(newest <= lsn, "I5: block {block} needs the log from {lsn}, behind {newest}");
            s.rec_lsn = Some(lsn);
            let new = self.by_rec_lsn.insert((lsn, block.0));
            assert!(new, "I5: block {block} needed the log from {lsn} already, and did not know");
        }
        let from = s.rec_lsn;
        assert!(from <= Some(lsn), "I4: block {block} needs the log from {from:?}, behind {lsn}");
    }

    /// Has an operation changed the block that may not be durable in place?
    pub(super) fn is_changed(&self, block: BlockNo) -> bool {
        self.map.get(&block.0).is_some_and(|s| s.newest > Serial::NONE)
    }

    /// Has an operation of a later entry than this one changed it?
    pub(super) fn is_changed_after(&self, block: BlockNo, serial: Serial) -> bool {
        self.map.get(&block.0).is_some_and(|s| s.newest > serial)
    }

    /// What may be written of the block now. NotYet: something in it is not durable in the log.
    pub(super) fn before_write(&mut self, buf: &Buf, open: bool, durable: Serial) -> Image {
        if !open && !self.map.contains_key(&buf.block().0) {
            return Image::AsIs; // nothing of it concerns the log
        }
        let s = self.map.entry(buf.block().0).or_default();
        let kept = s.rec_lsn.is_none() || s.newest > Serial::NONE;
        assert!(kept, "I4: {buf:?} needs the log, and no operation has changed it");
        let sent = s.in_flight;
        assert!(sent.is_none(), "I4: {buf:?} is written while {sent:?} of it is on its way");
        if !open && s.newest <= durable {
            (s.candidate, s.wanted, s.in_flight) = (None, false, Some(s.newest));
            return Image::AsIs;
        }
        let ahead = s.candidate.as_ref().is_some_and(|c| c.0 > s.newest);
        assert!(!ahead, "I1: an image of {buf:?} has more than {:?}", s.newest);
        if let Some((serial, image)) = s.candidate.take_if(|c| c.0 <= durable) {
            (s.wanted, s.in_flight) = (false, Some(serial));
            return Image::Instead(image);
        }
        s.wanted = true;
        if !open {
            s.take_candidate(buf);
        }
        Image::NotYet
    }

    /// The block is to be written back soon: an image is taken now, or when it can be.
    pub(super) fn want(&mut self, buf: &Buf, open: bool) {
        let Some(s) = self.map.get_mut(&buf.block().0) else { return };
        s.wanted = true;
        if !open {
            s.take_candidate(buf);
        }
    }

    /// Planted bug: whatever the block holds is written back.
    pub(super) fn before_write_unchecked(&mut self, buf: &Buf) -> Image {
        if let Some(s) = self.map.get_mut(&buf.block().0) {
            s.in_flight = Some(s.newest);
        }
        Image::AsIs
    }

    /// What the image on its way has of the block: everything up to this serial.
    pub(super) fn in_flight(&self, block: BlockNo) -> Option<Serial> {
        self.map.get(&block.0)?.in_flight
    }

    /// The block's write has ended.
    pub(super) fn after_write(&mut self, block: BlockNo, ok: bool, epoch: FlushEpoch) {
        let Some(s) = self.map.get_mut(&block.0) else { return };
        if let Some(serial) = s.in_flight.take()
            && ok
        {
            let before = s.written.replace((epoch, serial));
            let rises = before.is_none_or(|(e, n)| e <= epoch && n <= serial);
            assert!(rises, "I4: {serial:?} of block {block} is written over {before:?}");
            self.unflushed.add(epoch, block);
        }
    }

    /// What was written before this flush was issued is durable in place: its recLSN goes.
    /// `after` says where the entries behind a serial begin.
    pub(super) fn flushed(&mut self, epoch: FlushEpoch, after: impl Fn(Serial) -> Option<Lsn>) {
        for BlockNo(block) in self.unflushed.take_flushed(epoch) {
            let Some(s) = self.map.get_mut(&block) else { continue };
            // A later write of it has an entry of its own in the list.
            let Some((_, serial)) = s.written.filter(|(e, _)| *e < epoch) else { continue };
            assert!(serial <= s.newest, "I4: {serial:?} was written of a block with less");
            s.written = None;
            if let Some(rec_lsn) = s.rec_lsn {
                let listed = self.by_rec_lsn.remove(&(rec_lsn, block));
                assert!(listed, "I5: block {block} needs the log from {rec_lsn}, and nobody knows");
            }
            if s.newest <= serial {
                if s.in_flight.is_none() {
                    self.map.remove(&block);
                } else {
                    s.rec_lsn = None;
                }
                continue;
            }
            // The next entry for it lies somewhere behind the newest that is in place, and not
            // before what was needed until now: that may be known better (the same was in place
            // already, and then came a later entry).
            s.rec_lsn = s.rec_lsn.max(after(serial));
            if let Some(rec_lsn) = s.rec_lsn {
                self.by_rec_lsn.insert((rec_lsn, block));
            }
        }
        if self.audit.is_due(self.map.len()) {
            self.check();
        }
    }

    /// Each page and the order of all recLSNs agree, and no image has more than has ended.
    pub(super) fn check(&self) {
        let needing = self.map.values().filter(|s| s.rec_lsn.is_some()).count();
        let listed = self.by_rec_lsn.len();
        assert_eq!(needing, listed, "I5: {needing} blocks need the log, {listed} are known");
        for (b, s) in &self.map {
            let (rec_lsn, newest) = (s.rec_lsn, s.newest);
            let known = rec_lsn.is_none_or(|lsn| self.by_rec_lsn.contains(&(lsn, *b)));
            assert!(known, "I5: block {b} needs the log from {rec_lsn:?}, and nobody knows");
            let image = s.candidate.as_ref().map(|c| c.0);
            let most = image.max(s.in_flight).max(s.written.map(|w| w.1));
            assert!(most <= Some(newest), "I1: {most:?} of block {b}, which has {newest:?}");
        }
    }

    /// The blocks were freed by an operation that is durable now: the log is not needed for them.
    pub(super) fn freed(&mut self, extent: Extent, serial: Serial) {
        let few = extent.len < self.map.len() as u64;
        let blocks: Vec<u64> = if few {
            (0..extent.len).map(|i| extent.start.0 + i).collect()
        } else {
            let inside = |b: &&u64| (extent.start.0..extent.start.0 + extent.len).contains(*b);
            self.map.keys().filter(inside).copied().collect()
        };
        for b in blocks {
            if let Some(s) = self.map.get(&b)
                && s.newest <= serial
            {
                if let Some(rec_lsn) = s.rec_lsn {
                    let listed = self.by_rec_lsn.remove(&(rec_lsn, b));
                    assert!(listed, "I5: block {b} needs the log from {rec_lsn}, and nobody knows");
                }
                self.map.remove(&b);
            }
        }
        if self.audit.is_due(self.map.len()) {
            self.check();
        }
    }

    /// From where on the log is needed; None: not at all.
    pub(super) fn oldest_rec_lsn(&self) -> Option<Lsn> {
        self.by_rec_lsn.first().map(|h| h.0)
    }

    /// The blocks that need the log below `lsn`, the oldest first.
    pub(super) fn needing_below(&self, lsn: Lsn) -> Vec<BlockNo> {
        self.by_rec_lsn.range(..(lsn, 0)).map(|h| BlockNo(h.1)).collect()
    }

    /// Is nothing left that is not durable in place?
    pub(super) fn is_empty(&self) -> bool {
        self.by_rec_lsn.is_empty() && self.map.values().all(|s| s.rec_lsn.is_none())
    }
}
