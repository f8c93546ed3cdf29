//! What the core may ask of a disk, and what a disk promises. The rules are those of a device with
//! a volatile write cache; nothing here knows which world the disk is of.
//!
//! D1 A completed write is visible to later reads, and not durable.
//! D2 A write with [`Durability::Fua`] is durable when it completes; only that write.
//! D3 A flush makes durable every write that *completed before the flush was issued*.
//! D4 Nothing orders requests in flight, not even two to one place; so never have two writes to one
//! place.
//! D5 A crash keeps any subset of the sectors of writes that are not durable.
//! D6 A failed write leaves any mixture of old and new sectors; a failed flush promises nothing.

use crate::Block;
use std::fmt;
use std::future::Future;
use std::pin::Pin;

/// A future of one volume: boxed, and not `Send`.
pub type Local<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// When may a write be acknowledged?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// When the device has it; a flush makes it durable later.
    Cached,
    /// When it is durable.
    Fua,
}

/// What went wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskErrorKind {
    /// The device said no.
    Io,
    /// The place lies beyond the device's end.
    OutOfRange,
    /// The medium under the image is full (a sparse file on a full file system).
    NoSpace,
    /// The device was opened for reading only.
    ReadOnly,
    /// The device, or what lies under the image, cannot do that.
    Unsupported,
}

/// A failed request: what, and where on the device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiskError {
    /// What went wrong.
    pub kind: DiskErrorKind,
    /// The request: "write", "read", "flush".
    pub during: &'static str,
    /// The first byte of the request.
    pub at: u64,
    /// The system's words, if it gave any.
    pub detail: String,
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            DiskErrorKind::Io => "input/output error",
            DiskErrorKind::OutOfRange => "beyond the end of the device",
            DiskErrorKind::NoSpace => "no space left on the medium under the image",
            DiskErrorKind::ReadOnly => "the device is open for reading only",
            DiskErrorKind::Unsupported => "the device cannot do that",
        };
        write!(f, "{} at byte {}: {what}", self.during, self.at)?;
        if !self.detail.is_empty() {
            write!(f, " ({})", self.detail)?;
        }
        Ok(())
    }
}
impl std::error::Error for DiskError {}

/// A disk, as seen from inside a volume.
pub trait Disk {
    /// Its size in bytes.
    fn size_bytes(&self) -> u64;
    /// Reads into `blocks`, one after the other from byte `at` on, and gives them back filled. All
    /// lengths and `at` are multiples of the sector size.
    fn read(&self, at: u64, blocks: Vec<Block>) -> Local<'_, Result<Vec<Block>, DiskError>>;
    /// The same, past whatever this machine keeps of the device: for what another machine writes.
    /// `at` and the length are multiples of 4096 where the device has as much.
    fn read_fresh(&self, at: u64, blocks: Vec<Block>) -> Local<'_, Result<Vec<Block>, DiskError>> {
        self.read(at, blocks)
    }
    /// Writes `blocks` one after the other from byte `at` on.
    fn write(
        &self,
        at: u64,
        blocks: Vec<Block>,
        how: Durability,
    ) -> Local<'_, Result<(), DiskError>>;
    /// Makes every write completed before this call durable.
    fn flush(&self) -> Local<'_, Result<(), DiskError>>;
    /// Tells the device that these bytes are not needed any more. What they read as afterwards is
    /// undefined.
    fn discard(&self, at: u64, len: u64) -> Local<'_, Result<(), DiskError>>;
}
