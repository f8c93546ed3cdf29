//! The store as a disk: whole blocks and parts of them, each write a group of its own, and what is
//! freed. Which object holds what it does not know.

use crate::BLOCK_BYTES;
use crate::group::GROUP_BLOCKS;
use crate::store::{Inner, Store};
use env::{Block, Disk, DiskError, DiskErrorKind, Durability, Local, SECTOR_BYTES};
use lfs::{Change, Group, Virt};

const BLOCK: u64 = BLOCK_BYTES as u64;

fn total(blocks: &[Block]) -> u64 {
    blocks.iter().map(|b| b.len() as u64).sum()
}

impl Inner {
    pub(crate) fn check_range(
        &self,
        during: &'static str,
        at: u64,
        len: u64,
    ) -> Result<(), DiskError> {
        let size = self.shape.blocks * BLOCK;
        if at.checked_add(len).is_some_and(|end| end <= size) {
            return Ok(());
        }
        let detail = format!("{len} bytes on a store of {size}");
        Err(DiskError { kind: DiskErrorKind::OutOfRange, during, at, detail })
    }

    fn check_writable(&self, at: u64) -> Result<(), DiskError> {
        if !self.options.read_only {
            return Ok(());
        }
        let (kind, during) = (DiskErrorKind::ReadOnly, "write");
        Err(DiskError { kind, during, at, detail: String::new() })
    }
}

impl Disk for Store {
    fn size_bytes(&self) -> u64 {
        self.inner.shape.blocks * BLOCK
    }

    fn read(&self, at: u64, mut blocks: Vec<Block>) -> Local<'_, Result<Vec<Block>, DiskError>> {
        Box::pin(async move {
            let len = total(&blocks);
            self.inner.check_range("read", at, len)?;
            let (first, last) = (at / BLOCK, (at + len).div_ceil(BLOCK));
            let read = self.inner.read_on(None, first, last - first).await?;
            let read = read.ok_or_else(|| self.inner.missing(None, (first, last - first)))?;
            if at.is_multiple_of(BLOCK) && blocks.iter().all(|b| b.len() == BLOCK_BYTES) {
                return Ok(read);
            }
            lfs::copy_parts(&read, (at - first * BLOCK) as usize, &mut blocks);
            Ok(blocks)
        })
    }

    fn write(
        &self,
        at: u64,
        blocks: Vec<Block>,
        how: Durability,
    ) -> Local<'_, Result<(), DiskError>> {
        Box::pin(async move {
            let len = total(&blocks);
            self.inner.check_range("write", at, len)?;
            self.inner.check_writable(at)?;
            let mut changes = changes(at, &blocks);
            let mut last = 0;
            while !changes.is_empty() {
                self.inner.wait_for_room().await?;
                let most = changes.len().min(GROUP_BLOCKS as usize);
                let group = Group { changes: changes.drain(..most).collect() };
                last = self.inner.put(&group).await?;
            }
            match how {
                Durability::Cached => Ok(()),
                Durability::Fua => self.inner.flush_to(last).await,
            }
        })
    }

    fn flush(&self) -> Local<'_, Result<(), DiskError>> {
        Box::pin(async move {
            if self.inner.options.read_only {
                return Ok(());
            }
            let put = self.inner.state.borrow().put;
            self.inner.flush_to(put).await
        })
    }

    fn discard(&self, at: u64, len: u64) -> Local<'_, Result<(), DiskError>> {
        Box::pin(async move {
            self.inner.check_range("discard", at, len)?;
            let (first, last) = (at.div_ceil(BLOCK), (at + len) / BLOCK);
            if self.inner.options.read_only || first >= last {
                return Ok(());
            }
            let group = Group { changes: vec![Change::Free(Virt(first), last - first)] };
            self.inner.put(&group).await.map(|_| ())
        })
    }
}

/// What a write changes: whole blocks, and ranges of those that it covers in part.
fn changes(at: u64, blocks: &[Block]) -> Vec<Change> {
    let whole = at.is_multiple_of(BLOCK) && blocks.iter().all(|b| b.len() == BLOCK_BYTES);
    if whole {
        let one = |(v, b): (u64, &Block)| Change::Whole(Virt(v), b.clone());
        return (at / BLOCK..).zip(blocks).map(one).collect();
    }
    let mut changes: Vec<Change> = Vec::new();
    let mut pos = at;
    for part in blocks.iter().flat_map(|b| b.bytes().chunks(SECTOR_BYTES)) {
        let (v, from) = (Virt(pos / BLOCK), (pos % BLOCK) as usize);
        pos += part.len() as u64;
        match changes.last_mut() {
            Some(Change::Bytes { v: last, ranges, .. }) if *last == v => {
                ranges.push((from, part.to_vec()));
            }
            _ => {
                changes.push(Change::Bytes { v, ranges: vec![(from, part.to_vec())], image: None });
            }
        }
    }
    changes
}
