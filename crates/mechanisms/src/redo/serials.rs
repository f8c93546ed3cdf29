//! The order of operations: each that has ended gets a serial; when its entry is in the log, the
//! serial has an LSN; when the log's durable prefix has passed it, it is durable. It knows no
//! blocks.

use std::collections::VecDeque;
use wal::Lsn;

/// Serials, their LSNs, and how far they are durable. Serial 0 is before all.
#[derive(Default)]
pub(super) struct Serials {
    /// The newest that has been given out.
    given: u64,
    /// The LSNs of `base + 1`, `base + 2`, ...: appended, and not forgotten.
    lsns: VecDeque<Lsn>,
    base: u64,
    /// Every serial up to this one is durable.
    durable: u64,
}

impl Serials {
    /// The next serial.
    pub(super) fn give(&mut self) -> u64 {
        self.given += 1;
        self.given
    }
    pub(super) fn given(&self) -> u64 {
        self.given
    }
    pub(super) fn durable(&self) -> u64 {
        self.durable
    }

    /// The entry with this serial is in the log; they come in order.
    pub(super) fn appended(&mut self, serial: u64, lsn: Lsn) {
        assert_eq!(serial, self.base + self.lsns.len() as u64 + 1, "entries are appended in order");
        self.lsns.push_back(lsn);
    }

    /// Where the entry is, if it is in the log and not forgotten.
    pub(super) fn lsn(&self, serial: u64) -> Option<Lsn> {
        let i = serial.checked_sub(self.base + 1)?;
        self.lsns.get(i as usize).copied()
    }

    /// Where the entries after this serial's begin, if that is in the log and not forgotten. The
    /// next serial may share its entry, and then it begins where this one does.
    pub(super) fn after(&self, serial: u64) -> Option<Lsn> {
        self.lsn(serial + 1).or_else(|| self.lsn(serial).map(|l| Lsn(l.0 + 1)))
    }

    /// The newest in the log.
    pub(super) fn newest_appended(&self) -> u64 {
        self.base + self.lsns.len() as u64
    }

    /// Moves the durable serial on by one if its entry is durable.
    pub(super) fn advance(&mut self, is_durable: impl Fn(Lsn) -> bool) -> Option<u64> {
        let next = self.durable + 1;
        if !self.lsn(next).is_some_and(is_durable) {
            return None;
        }
        self.durable = next;
        Some(next)
    }

    /// Nobody asks for durable entries below this LSN any more.
    pub(super) fn forget_below(&mut self, lsn: Lsn) {
        while self.base < self.durable && self.lsns.front().is_some_and(|l| *l < lsn) {
            self.lsns.pop_front();
            self.base += 1;
        }
    }
}
