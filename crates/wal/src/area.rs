//! Where a log lies: a whole disk, or extents of one, seen as one run of bytes. It knows no log
//! format.

use env::{Block, Disk, DiskError, DiskErrorKind, Durability};
use std::rc::Rc;

/// What a host keeps of a disk, it keeps in these.
const PAGE_BYTES: u64 = 4096;

/// A part of a disk, in bytes; both numbers are multiples of the sector size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogExtent {
    /// First byte.
    pub at: u64,
    /// Length.
    pub len: u64,
}

/// The place of a log.
#[derive(Clone)]
pub struct LogArea {
    disk: Rc<dyn Disk>,
    extents: Rc<[LogExtent]>,
    len: u64,
}

impl LogArea {
    /// These extents of `disk`, one after the other.
    pub fn new(disk: Rc<dyn Disk>, extents: Vec<LogExtent>) -> LogArea {
        let whole = |e: &LogExtent| e.at.is_multiple_of(512) && e.len.is_multiple_of(512);
        assert!(extents.iter().all(whole), "a log's extents begin and end with sectors");
        let len = extents.iter().map(|e| e.len).sum();
        LogArea { disk, extents: extents.into(), len }
    }

    /// All of `disk`.
    pub fn whole(disk: Rc<dyn Disk>) -> LogArea {
        let len = disk.size_bytes() / 4096 * 4096;
        LogArea::new(disk, vec![LogExtent { at: 0, len }])
    }

    /// Its length in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.len
    }

    /// The disk it lies on.
    pub fn disk(&self) -> &Rc<dyn Disk> {
        &self.disk
    }

    /// The pieces of the disk under `len` bytes from `at` on, as (place, length).
    fn pieces(&self, at: u64, len: u64) -> Result<Vec<(u64, u64)>, DiskError> {
        if at.checked_add(len).is_none_or(|end| end > self.len) {
            let detail = format!("{len} bytes in a log of {}", self.len);
            return Err(DiskError {
                kind: DiskErrorKind::OutOfRange,
                during: "log access",
                at,
                detail,
            });
        }
        let mut pieces: Vec<(u64, u64)> = Vec::new();
        let (mut skip, mut left) = (at, len);
        for e in self.extents.iter() {
            if skip >= e.len {
                skip -= e.len;
                continue;
            }
            let n = (e.len - skip).min(left);
            if n > 0 {
                pieces.push((e.at + skip, n));
            }
            left -= n;
            skip = 0;
            if left == 0 {
                break;
            }
        }
        assert_eq!(left, 0, "the log's extents end before its length of {}", self.len);
        Ok(pieces)
    }

    /// Reads `len` bytes.
    pub(crate) async fn read(&self, at: u64, len: usize) -> Result<Vec<u8>, DiskError> {
        self.read_as(at, len, false).await
    }

    /// The same where others may be writing some of it: whatever is read of that is left nowhere,
    /// to be found later in the place of what was written.
    pub(crate) async fn read_beside(&self, at: u64, len: usize) -> Result<Vec<u8>, DiskError> {
        self.read_as(at, len, true).await
    }

    async fn read_as(&self, at: u64, len: usize, beside: bool) -> Result<Vec<u8>, DiskError> {
        let whole = at.is_multiple_of(512) && len.is_multiple_of(512);
        assert!(whole, "{len} bytes at {at} are read, which are no whole sectors");
        let mut bytes = Vec::with_capacity(len);
        for (place, n) in self.pieces(at, len as u64)? {
            let room = vec![Block::zeroed(n as usize)];
            // Elsewhere a log is in the blocks of a journal, and nobody else's.
            let pages = (place | n).is_multiple_of(PAGE_BYTES);
            let blocks = match beside && pages {
                true => self.disk.read_fresh(place, room).await?,
                false => self.disk.read(place, room).await?,
            };
            bytes.extend_from_slice(blocks[0].bytes());
        }
        assert_eq!(bytes.len(), len, "a read of the log at {at} came short");
        Ok(bytes)
    }

    /// Writes `bytes`; durable when it returns, if `how` says so. Where extents cut it, the pieces
    /// go one after the other, which is rare and no different from a torn write.
    pub(crate) async fn write(
        &self,
        at: u64,
        bytes: Block,
        how: Durability,
    ) -> Result<(), DiskError> {
        let whole = at.is_multiple_of(512) && bytes.len().is_multiple_of(512);
        assert!(whole, "{} bytes at {at} tear a sector of the log", bytes.len());
        let pieces = self.pieces(at, bytes.len() as u64)?;
        if let [(place, _)] = pieces[..] {
            return self.disk.write(place, vec![bytes], how).await;
        }
        let mut done = 0;
        for (place, n) in pieces {
            let part = Block::copy_of(&bytes.bytes()[done..done + n as usize]);
            self.disk.write(place, vec![part], how).await?;
            done += n as usize;
        }
        assert_eq!(done, bytes.len(), "a write of the log at {at} came short");
        Ok(())
    }

    /// Makes completed writes of the disk durable.
    pub(crate) async fn flush(&self) -> Result<(), DiskError> {
        self.disk.flush().await
    }
}
