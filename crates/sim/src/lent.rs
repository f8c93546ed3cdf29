//! A virtual disk that is lent to who reads without waiting: its contents at that moment, and an
//! account of what was read, which the world charges for. It is not the disk: it sees no later
//! write.
//!
//! Invariants:
//! * L1. Each read that reached the medium is told once, whether it failed there or not: it takes
//!   the time of one.

use crate::image::Image;
use env::{DiskError, DiskErrorKind, DiskId, ReadNow};
use std::fmt;
use std::sync::{Arc, PoisonError};

#[expect(clippy::disallowed_types, reason = "a lent disk is Send, though one thread reads it")]
type Mutex<T> = std::sync::Mutex<T>;

/// What was read of lent disks: disk, byte, length.
#[derive(Clone, Default)]
pub(crate) struct LentReads(Arc<Mutex<Vec<(DiskId, u64, u64)>>>);

impl LentReads {
    fn push(&self, read: (DiskId, u64, u64)) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(read);
    }
    /// What was read since the last call.
    pub(crate) fn take(&self) -> Vec<(DiskId, u64, u64)> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A disk as it was when it was lent.
pub(crate) struct LentImage {
    pub(crate) disk: DiskId,
    pub(crate) image: Image,
    /// Reads that touch this byte fail.
    pub(crate) bad: Option<u64>,
    pub(crate) reads: LentReads,
}

impl fmt::Debug for LentImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LentImage({:?})", self.disk)
    }
}

impl ReadNow for LentImage {
    fn read_now(&self, at: u64, into: &mut [u8]) -> Result<(), DiskError> {
        let (len, size) = (into.len() as u64, self.image.size());
        if at.checked_add(len).is_none_or(|end| end > size) {
            // As the real file has it: what lies there is not zeros.
            let (kind, during) = (DiskErrorKind::OutOfRange, "read");
            let detail = format!("{len} bytes on a device of {size}");
            return Err(DiskError { kind, during, at, detail });
        }
        self.reads.push((self.disk, at, len));
        if self.bad.is_some_and(|b| b >= at && b < at + len) {
            let (kind, during, detail) = (DiskErrorKind::Io, "read", "injected".to_owned());
            return Err(DiskError { kind, during, at, detail });
        }
        self.image.read(at, into);
        Ok(())
    }
    fn known_zero(&self, at: u64, len: u64) -> bool {
        self.image.is_hole(at, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behind_the_end_there_is_nothing_to_read() {
        let (image, reads) = (Image::new(8192), LentReads::default());
        let (told, bad) = (reads.clone(), Some(100));
        let lent = LentImage { disk: DiskId(0), image, bad, reads };
        assert!(lent.read_now(4096, &mut [0; 4096]).is_ok());
        assert!(lent.read_now(64, &mut [0; 64]).is_err_and(|e| e.kind == DiskErrorKind::Io));
        for at in [4097, 8192, u64::MAX] {
            let read = lent.read_now(at, &mut [0; 4096]);
            assert!(read.is_err_and(|e| e.kind == DiskErrorKind::OutOfRange), "{at}");
        }
        assert_eq!(told.take(), [(DiskId(0), 4096, 4096), (DiskId(0), 64, 64)], "L1");
        assert!(told.take().is_empty(), "L1: it is told twice");
    }
}
