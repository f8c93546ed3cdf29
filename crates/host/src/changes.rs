//! Where a disk was written since somebody asked: a bit for each unit, for whoever copies a disk in
//! use. What volumes write it does not know.
//!
//! Invariants  C1 a unit is marked before a write to it begins *and* after it has ended: who takes
//!             the marks and then reads has the new bytes, or finds the unit marked once more.
//!             C2 who takes no mark, and sees no write under way after that and no mark later, has
//!             read the disk of one moment.
//!             C3 what is marked are bytes that the disk has, in order and once each.

use env::{Block, IoOp, IoRequest};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// The smallest unit.
const UNIT_BYTES: u64 = 4096;
/// Units at most: 8 MiB of bits.
const UNITS_MAX: u64 = 1 << 26;

/// Marks of units that were written.
#[derive(Debug)]
pub struct Changes {
    size_bytes: u64,
    unit_bytes: u64,
    bits: Vec<AtomicU64>,
}

impl Changes {
    fn new(size_bytes: u64) -> Changes {
        let mut unit_bytes = UNIT_BYTES;
        while size_bytes.div_ceil(unit_bytes) > UNITS_MAX {
            unit_bytes *= 2;
        }
        let words = size_bytes.div_ceil(unit_bytes).div_ceil(64);
        Changes { size_bytes, unit_bytes, bits: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }

    fn mark(&self, (at, len): (u64, u64)) {
        let end = at.saturating_add(len).min(self.size_bytes);
        for unit in at / self.unit_bytes..end.div_ceil(self.unit_bytes) {
            self.bits[(unit / 64) as usize].fetch_or(1 << (unit % 64), Ordering::SeqCst);
        }
    }

    /// What is marked, as ranges (first byte, bytes) in order; nothing is afterwards.
    pub fn take(&self) -> Vec<(u64, u64)> {
        let mut all: Vec<(u64, u64)> = Vec::new();
        for (n, word) in (0u64..).zip(&self.bits) {
            let mut bits = word.swap(0, Ordering::SeqCst);
            while bits != 0 {
                let unit = n * 64 + u64::from(bits.trailing_zeros());
                bits &= bits - 1;
                let at = unit * self.unit_bytes;
                let (size, before) = (self.size_bytes, all.last().map_or(0, |(a, n)| a + n));
                assert!(before <= at && at < size, "C3: byte {at} of {size}, behind {before}");
                let len = self.unit_bytes.min(self.size_bytes - at);
                match all.last_mut() {
                    Some((first, bytes)) if *first + *bytes == at => *bytes += len,
                    _ => all.push((at, len)),
                }
            }
        }
        all
    }
}

/// A range that a request writes: its first byte, and how many.
pub(crate) type Written = (u64, u64);

fn written(r: &IoRequest) -> Option<Written> {
    match r.op {
        IoOp::Write(_) => Some((r.at, r.blocks.iter().map(|b: &Block| b.len() as u64).sum())),
        IoOp::Discard { len } => Some((r.at, len)),
        IoOp::Read | IoOp::ReadFresh | IoOp::Flush | IoOp::Lend | IoOp::Object => None,
    }
}

/// The writes of one disk.
#[derive(Default, Debug)]
pub(crate) struct Writing {
    under_way: AtomicU64,
    /// Does somebody want to know? So that who writes need not ask for the other.
    watched: AtomicBool,
    watch: Mutex<Weak<Changes>>,
}

impl Writing {
    /// A request is about to be carried out; what it writes, for [`Writing::ended`].
    pub(crate) fn begun(&self, request: &IoRequest) -> Option<Written> {
        let range = written(request)?;
        self.under_way.fetch_add(1, Ordering::SeqCst);
        self.mark(range);
        Some(range)
    }

    /// It has ended, well or not.
    pub(crate) fn ended(&self, range: Option<Written>) {
        let Some(range) = range else { return };
        self.mark(range);
        let before = self.under_way.fetch_sub(1, Ordering::SeqCst);
        assert!(before > 0, "C2: a write of {range:?} ends that never began");
    }

    /// Both, for one that is carried out while what is returned lives.
    pub(crate) fn at(&self, request: &IoRequest) -> Guard<'_> {
        Guard(self, self.begun(request))
    }

    fn mark(&self, range: Written) {
        if self.watched.load(Ordering::SeqCst) {
            let watch = self.watch.lock().expect("nobody panics while holding it");
            match watch.upgrade() {
                Some(changes) => changes.mark(range),
                None => self.watched.store(false, Ordering::SeqCst),
            }
        }
    }

    pub(crate) fn watch(&self, size_bytes: u64) -> Arc<Changes> {
        let changes = Arc::new(Changes::new(size_bytes));
        let mut watch = self.watch.lock().expect("nobody panics while holding it");
        *watch = Arc::downgrade(&changes);
        self.watched.store(true, Ordering::SeqCst);
        changes
    }

    pub(crate) fn under_way(&self) -> u64 {
        self.under_way.load(Ordering::SeqCst)
    }
}

/// A write that is being carried out.
pub(crate) struct Guard<'a>(&'a Writing, Option<Written>);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.ended(self.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::{DiskId, Durability};

    fn write(at: u64, len: usize) -> IoRequest {
        let blocks = vec![Block::zeroed(len)];
        let op = IoOp::Write(Durability::Cached);
        IoRequest { id: 0, disk: DiskId(0), op, at, blocks, object: None }
    }

    #[test]
    fn a_write_is_seen_when_it_begins_and_again_when_it_has_ended() {
        let disk = Writing::default();
        let before = disk.begun(&write(0, 512));
        let changes = disk.watch(1 << 20);
        assert_eq!(changes.take(), []);
        disk.ended(before);
        assert_eq!(changes.take(), [(0, 4096)], "C1: it ended while somebody watched");
        let range = disk.begun(&write(8192, 8192));
        assert_eq!((changes.take(), disk.under_way()), (vec![(8192, 8192)], 1), "C1, C2");
        disk.ended(range);
        assert_eq!((changes.take(), disk.under_way()), (vec![(8192, 8192)], 0), "C1, C2");
        assert_eq!(changes.take(), []);
    }

    #[test]
    fn neighbours_are_one_range_and_the_last_unit_may_be_short() {
        let disk = Writing::default();
        let changes = disk.watch((1 << 20) + 512);
        for at in [4096, 0, 1 << 20, 300 << 10] {
            drop(disk.at(&write(at, 512)));
        }
        let discard = IoRequest { op: IoOp::Discard { len: 4096 }, blocks: vec![], ..write(0, 0) };
        drop(disk.at(&IoRequest { at: 8192, ..discard }));
        assert_eq!(changes.take(), [(0, 12288), (300 << 10, 4096), (1 << 20, 512)]);
        drop(changes);
        drop(disk.at(&write(0, 512)));
        assert!(!disk.watched.load(Ordering::SeqCst), "nobody watches any more");
    }

    #[test]
    fn a_large_disk_has_larger_units() {
        let changes = Changes::new(1 << 40);
        changes.mark((1, 1));
        assert_eq!(changes.take(), [(0, 16384)]);
        assert!(changes.bits.len() as u64 * 64 <= UNITS_MAX);
    }
}
