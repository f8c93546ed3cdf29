//! A disk for tests that look at what is written, and in which order. It keeps no bytes.

use env::{Block, Disk, DiskError, Durability, Local};
use std::cell::RefCell;

/// Bytes of a block on it.
pub(crate) const BYTES: usize = 512;

/// Takes everything, and writes down which blocks it was asked to write.
#[derive(Default)]
pub(crate) struct Journal(pub(crate) RefCell<Vec<u64>>);

impl Disk for Journal {
    fn size_bytes(&self) -> u64 {
        1 << 30
    }
    fn read(&self, _: u64, blocks: Vec<Block>) -> Local<'_, Result<Vec<Block>, DiskError>> {
        Box::pin(async { Ok(blocks) })
    }
    fn write(
        &self,
        at: u64,
        blocks: Vec<Block>,
        _: Durability,
    ) -> Local<'_, Result<(), DiskError>> {
        let first = at / BYTES as u64;
        self.0.borrow_mut().extend(first..first + blocks.len() as u64);
        Box::pin(async { Ok(()) })
    }
    fn flush(&self) -> Local<'_, Result<(), DiskError>> {
        Box::pin(async { Ok(()) })
    }
    fn discard(&self, _: u64, _: u64) -> Local<'_, Result<(), DiskError>> {
        Box::pin(async { Ok(()) })
    }
}
