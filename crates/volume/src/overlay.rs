//! A volume seen through what its journal or log holds, for who only reads: a disk whose blocks are
//! brought up to date as they are read. Nothing is written, neither below nor in memory.

use env::{Block, Disk, DiskError, DiskErrorKind, Durability, Local};
use format::BlockNo;
use mechanisms::{JournalReplay, RedoReplay};
use std::collections::BTreeSet;
use std::rc::Rc;

/// What is laid over the blocks.
pub(crate) enum Newer {
    /// A journal of the jbd2 family.
    Journal(Box<JournalReplay>),
    /// A log of byte ranges.
    Log(RedoReplay),
}

impl Newer {
    fn blocks(&self) -> BTreeSet<u64> {
        match self {
            Newer::Journal(r) => r.blocks().map(|b| b.0).collect(),
            Newer::Log(r) => r.blocks().map(|b| b.0).collect(),
        }
    }
    fn apply(&self, block: BlockNo, bytes: &mut [u8]) {
        match self {
            Newer::Journal(r) => r.apply(block, bytes),
            Newer::Log(r) => r.apply(block, bytes),
        }
    }
}

/// The disk.
pub(crate) struct Overlay {
    below: Rc<dyn Disk>,
    block_bytes: u64,
    newer: Newer,
    /// The blocks of which it says something.
    blocks: BTreeSet<u64>,
}

impl Overlay {
    /// `newer` over the blocks of `below`.
    pub(crate) fn new(below: Rc<dyn Disk>, block_bytes: usize, newer: Newer) -> Overlay {
        let blocks = newer.blocks();
        Overlay { below, block_bytes: block_bytes as u64, newer, blocks }
    }

    async fn read_newest(&self, at: u64, mut into: Vec<Block>) -> Result<Vec<Block>, DiskError> {
        let bs = self.block_bytes;
        let end = at + into.iter().map(|b| b.len() as u64).sum::<u64>();
        let (first, last) = (at / bs, end.div_ceil(bs));
        if self.blocks.range(first..last).next().is_none() {
            return self.below.read(at, into).await;
        }
        // The device may end within the last of these.
        let stop = (last * bs).min(self.size_bytes());
        let whole = vec![Block::zeroed((stop - first * bs) as usize)];
        let mut whole = self.below.read(first * bs, whole).await?;
        let len = whole[0].len() as u64;
        assert_eq!(len, stop - first * bs, "V1: the disk fills the memory that it was given");
        for (n, bytes) in (first..).zip(whole[0].bytes_mut().chunks_exact_mut(bs as usize)) {
            if self.blocks.contains(&n) {
                self.newer.apply(BlockNo(n), bytes);
            }
        }
        let mut from = (at - first * bs) as usize;
        for b in &mut into {
            let len = b.len();
            b.bytes_mut().copy_from_slice(&whole[0].bytes()[from..from + len]);
            from += len;
        }
        Ok(into)
    }
}

fn read_only(during: &'static str, at: u64) -> DiskError {
    DiskError { kind: DiskErrorKind::ReadOnly, during, at, detail: String::new() }
}

impl Disk for Overlay {
    fn size_bytes(&self) -> u64 {
        self.below.size_bytes()
    }
    fn read(&self, at: u64, blocks: Vec<Block>) -> Local<'_, Result<Vec<Block>, DiskError>> {
        Box::pin(self.read_newest(at, blocks))
    }
    fn write(&self, at: u64, _: Vec<Block>, _: Durability) -> Local<'_, Result<(), DiskError>> {
        Box::pin(async move { Err(read_only("write", at)) })
    }
    fn flush(&self) -> Local<'_, Result<(), DiskError>> {
        Box::pin(async { Ok(()) })
    }
    fn discard(&self, at: u64, _: u64) -> Local<'_, Result<(), DiskError>> {
        Box::pin(async move { Err(read_only("discard", at)) })
    }
}
