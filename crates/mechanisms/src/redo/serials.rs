//! The order of operations: each that has ended gets a serial; when its entry is in the log, the
//! serial has an LSN; when the log's durable prefix has passed it, it is durable. It knows no
//! blocks.

use integrity::Ended;
use std::collections::VecDeque;
use wal::Lsn;

/// The place of an operation among those that have ended, counted from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) struct Serial(pub(crate) u64);

impl Serial {
    /// Before all operations.
    pub(crate) const NONE: Serial = Serial(0);

    pub(crate) fn next(self) -> Serial {
        Serial(self.0 + 1)
    }
    /// The one before it.
    pub(crate) fn before(self) -> Serial {
        assert!(self > Serial::NONE, "I2: nothing lies before the first operation");
        Serial(self.0 - 1)
    }
    /// From `first` to `last`, both included.
    pub(crate) fn all(first: Serial, last: Serial) -> impl Iterator<Item = Serial> {
        (first.0..=last.0).map(Serial)
    }
}

impl From<Serial> for Ended {
    fn from(serial: Serial) -> Ended {
        Ended(serial.0)
    }
}

impl From<Ended> for Serial {
    fn from(ended: Ended) -> Serial {
        Serial(ended.0)
    }
}

/// Serials, their LSNs, and how far they are durable.
#[derive(Default)]
pub(super) struct Serials {
    /// The newest that has been given out.
    given: Serial,
    /// The LSNs of `base + 1`, `base + 2`, ...: appended, and not forgotten.
    lsns: VecDeque<Lsn>,
    base: Serial,
    /// Every serial up to this one is durable.
    durable: Serial,
}

impl Serials {
    /// The next serial.
    pub(super) fn give(&mut self) -> Serial {
        self.given = self.given.next();
        self.given
    }
    pub(super) fn given(&self) -> Serial {
        self.given
    }
    pub(super) fn durable(&self) -> Serial {
        self.durable
    }

    /// The entry with this serial is in the log; they come in order.
    pub(super) fn appended(&mut self, serial: Serial, lsn: Lsn) {
        assert_eq!(serial, self.newest_appended().next(), "I2: entries are appended in order");
        let rises = self.lsns.back().is_none_or(|l| *l <= lsn);
        assert!(rises, "I2: {serial:?} lies at {lsn}, before the entry that precedes it");
        self.lsns.push_back(lsn);
        let given = self.given;
        assert!(serial <= given, "I2: {serial:?} is in the log, {given:?} has ended");
    }

    /// Where the entry is, if it is in the log and not forgotten.
    pub(super) fn lsn(&self, serial: Serial) -> Option<Lsn> {
        let i = serial.0.checked_sub(self.base.0 + 1)?;
        self.lsns.get(i as usize).copied()
    }

    /// Where the entries after this serial's begin, if that is in the log and not forgotten. The
    /// next serial may share its entry, and then it begins where this one does.
    pub(super) fn after(&self, serial: Serial) -> Option<Lsn> {
        self.lsn(serial.next()).or_else(|| self.lsn(serial).map(|l| Lsn(l.0 + 1)))
    }

    /// The newest in the log.
    pub(super) fn newest_appended(&self) -> Serial {
        Serial(self.base.0 + self.lsns.len() as u64)
    }

    /// Moves the durable serial on by one if its entry is durable.
    pub(super) fn advance(&mut self, is_durable: impl Fn(Lsn) -> bool) -> Option<Serial> {
        let next = self.durable.next();
        if !self.lsn(next).is_some_and(is_durable) {
            return None;
        }
        self.durable = next;
        let (appended, given) = (self.newest_appended(), self.given);
        assert!(next <= appended && appended <= given, "I2: {next:?}, {appended:?}, {given:?}");
        Some(next)
    }

    /// Nobody asks for durable entries below this LSN any more.
    pub(super) fn forget_below(&mut self, lsn: Lsn) {
        while self.base < self.durable && self.lsns.front().is_some_and(|l| *l < lsn) {
            self.lsns.pop_front();
            self.base = self.base.next();
        }
        let (trimmed, durable) = (self.base, self.durable);
        assert!(trimmed <= durable, "I5: {trimmed:?} is forgotten, {durable:?} durable");
    }
}
