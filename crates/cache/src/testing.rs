//! A disk for tests that look at what is written, and in which order. It keeps no bytes.

use env::{Block, Disk, DiskError, Durability, Env, Local, Nanos};
use std::cell::{Cell, RefCell};

/// Bytes of a block on it.
pub(crate) const BYTES: usize = 512;

/// Takes everything, and writes down which blocks were written, at the end of each write.
#[derive(Default)]
pub(crate) struct Journal {
    pub(crate) written: RefCell<Vec<u64>>,
    /// Blocks written since the last flush.
    pub(crate) unflushed: Cell<usize>,
    /// What a write takes; None: no time.
    takes: Option<(Env, Nanos)>,
}

impl Journal {
    /// One of which each write takes a while.
    pub(crate) fn slow(env: &Env, takes: Nanos) -> Journal {
        Journal { takes: Some((env.clone(), takes)), ..Journal::default() }
    }
}

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
        Box::pin(async move {
            if let Some((env, takes)) = &self.takes {
                env.sleep(*takes).await;
            }
            let first = at / BYTES as u64;
            self.written.borrow_mut().extend(first..first + blocks.len() as u64);
            self.unflushed.set(self.unflushed.get() + blocks.len());
            Ok(())
        })
    }
    fn flush(&self) -> Local<'_, Result<(), DiskError>> {
        self.unflushed.set(0);
        Box::pin(async { Ok(()) })
    }
    fn discard(&self, _: u64, _: u64) -> Local<'_, Result<(), DiskError>> {
        Box::pin(async { Ok(()) })
    }
}
