//! The store as a disk: whole blocks and parts of them, each write a group of its own, and what is
//! freed. Which blocks lie where it does not know.

use crate::geometry::{BLOCK, BLOCK_BYTES, Virt};
use crate::store::Store;
use env::{Block, Disk, DiskError, DiskErrorKind, Durability, Local};

/// Fills `parts` from byte `from` of `whole` blocks on. All lie at borders of sectors, so that no
/// sector crosses a block.
pub fn copy_parts(whole: &[Block], mut from: usize, parts: &mut [Block]) {
    for sector in parts.iter_mut().flat_map(|b| b.bytes_mut().chunks_mut(env::SECTOR_BYTES)) {
        let block = whole[from / BLOCK_BYTES].bytes();
        sector.copy_from_slice(&block[from % BLOCK_BYTES..][..sector.len()]);
        from += sector.len();
    }
}

impl Disk for Store {
    fn size_bytes(&self) -> u64 {
        self.inner.geometry.virtual_blocks * BLOCK
    }

    fn read(&self, at: u64, mut blocks: Vec<Block>) -> Local<'_, Result<Vec<Block>, DiskError>> {
        Box::pin(async move {
            let len: u64 = blocks.iter().map(|b| b.len() as u64).sum();
            self.inner.check_range("read", at, len)?;
            let _asking = self.inner.asked();
            let (first, last) = (at / BLOCK, (at + len).div_ceil(BLOCK));
            let read = self.inner.read_virtual(Virt(first), last - first).await?;
            if self.inner.state.borrow().wants_to_reorganise() {
                self.inner.watch_for_idle_time();
            }
            if at.is_multiple_of(BLOCK) && blocks.iter().all(|b| b.len() == BLOCK_BYTES) {
                return Ok(read);
            }
            copy_parts(&read, (at - first * BLOCK) as usize, &mut blocks);
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
            let inner = &self.inner;
            let len: u64 = blocks.iter().map(|b| b.len() as u64).sum();
            inner.check_range("write", at, len)?;
            if inner.options.read_only {
                let (kind, during) = (DiskErrorKind::ReadOnly, "write");
                return Err(DiskError { kind, during, at, detail: String::new() });
            }
            if len > 0 {
                let whole =
                    at.is_multiple_of(BLOCK) && blocks.iter().all(|b| b.len() == BLOCK_BYTES);
                // Two parts of one block must not overtake each other.
                let _parts = if whole { None } else { Some(inner.parts.lock().await) };
                let blocks = if whole { blocks } else { self.completed(at, &blocks).await? };
                let mut rest = blocks.into_iter();
                let most = inner.geometry.group_max() as usize;
                for first in (at / BLOCK..).step_by(most) {
                    let group: Vec<Block> = rest.by_ref().take(most).collect();
                    if group.is_empty() {
                        break;
                    }
                    inner.write_virtual(Virt(first), group).await?;
                }
            }
            match how {
                Durability::Cached => Ok(()),
                Durability::Fua => inner.sync().await,
            }
        })
    }

    fn flush(&self) -> Local<'_, Result<(), DiskError>> {
        Box::pin(async move {
            if self.inner.options.read_only {
                return Ok(());
            }
            let _asking = self.inner.asked();
            self.inner.sync().await
        })
    }

    fn discard(&self, at: u64, len: u64) -> Local<'_, Result<(), DiskError>> {
        Box::pin(async move {
            self.inner.check_range("discard", at, len)?;
            if self.inner.options.read_only {
                return Ok(());
            }
            self.inner.discard_virtual(at.div_ceil(BLOCK), (at + len) / BLOCK).await
        })
    }
}

impl Store {
    /// Whole blocks with `parts` in them from byte `at` on.
    async fn completed(&self, at: u64, parts: &[Block]) -> Result<Vec<Block>, DiskError> {
        let len: u64 = parts.iter().map(|b| b.len() as u64).sum();
        let (first, last) = (at / BLOCK, (at + len).div_ceil(BLOCK));
        let mut whole = self.inner.read_virtual(Virt(first), last - first).await?;
        let mut pos = at - first * BLOCK;
        for part in parts.iter().flat_map(|b| b.bytes().chunks(env::SECTOR_BYTES)) {
            let from = (pos % BLOCK) as usize;
            whole[(pos / BLOCK) as usize].bytes_mut()[from..from + part.len()]
                .copy_from_slice(part);
            pos += part.len() as u64;
        }
        Ok(whole)
    }
}
