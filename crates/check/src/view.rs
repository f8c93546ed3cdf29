//! The volume as the repair will leave it: the device's blocks with the mended ones laid over them.
//! Every pass reads through it, so that a later pass sees what an earlier one has mended; nothing
//! is written.

use crate::CheckError;
use crate::io::ReadBlocks;
use format::BlockNo;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The number of the first block that is none of the volume's: contents of an inode, shown as a
/// block. No volume has so many.
pub(crate) const IMAGES: u64 = 1 << 52;

/// Blocks laid over others. Views of one moment share them: who changes one copies all.
pub(crate) type Laid = Arc<BTreeMap<u64, Vec<u8>>>;

pub(crate) struct View<'a> {
    image: &'a dyn ReadBlocks,
    block_bytes: usize,
    mended: Laid,
    images: Laid,
    /// Mended blocks that nothing on the device points at yet: they are written first.
    fresh: BTreeSet<u64>,
}

impl<'a> View<'a> {
    pub(crate) fn new(image: &'a dyn ReadBlocks, block_bytes: usize) -> View<'a> {
        View::over(image, block_bytes, (Laid::default(), Laid::default()))
    }

    /// With these mended blocks and images laid over the device's.
    pub(crate) fn over(
        image: &'a dyn ReadBlocks,
        block_bytes: usize,
        (mended, images): (Laid, Laid),
    ) -> View<'a> {
        View { image, block_bytes, mended, images, fresh: BTreeSet::new() }
    }

    /// What is laid over the device's blocks: mended ones, and images.
    pub(crate) fn laid(&self) -> (Laid, Laid) {
        (self.mended.clone(), self.images.clone())
    }

    /// Is nothing mended beyond this?
    pub(crate) fn mends_only(&self, mended: &Laid) -> bool {
        Arc::ptr_eq(&self.mended, mended)
    }

    /// Are there no other images than these?
    pub(crate) fn shows_only(&self, images: &Laid) -> bool {
        Arc::ptr_eq(&self.images, images)
    }

    /// More images.
    pub(crate) fn show(&mut self, more: Laid) {
        if !more.is_empty() {
            Arc::make_mut(&mut self.images).extend(Arc::unwrap_or_clone(more));
        }
    }

    fn laid_over(&mut self, b: BlockNo) -> &mut BTreeMap<u64, Vec<u8>> {
        Arc::make_mut(if b.0 < IMAGES { &mut self.mended } else { &mut self.images })
    }

    pub(crate) fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    pub(crate) fn read(&self, b: BlockNo) -> Result<Vec<u8>, CheckError> {
        let laid = if b.0 < IMAGES { &self.mended } else { &self.images };
        if let Some(bytes) = laid.get(&b.0) {
            return Ok(bytes.clone());
        }
        let mut bytes = vec![0; self.block_bytes];
        self.image.read_at(b.0 * self.block_bytes as u64, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads the blocks from `start` on that fill `into`.
    pub(crate) fn read_run(&self, start: BlockNo, into: &mut [u8]) -> Result<(), CheckError> {
        self.image.read_at(start.0 * self.block_bytes as u64, into)?;
        let count = (into.len() / self.block_bytes) as u64;
        for (b, bytes) in self.mended.range(start.0..start.0 + count) {
            let at = (b - start.0) as usize * self.block_bytes;
            into[at..at + self.block_bytes].copy_from_slice(bytes);
        }
        Ok(())
    }

    /// Are these blocks known to be zero without being read?
    pub(crate) fn known_zero(&self, start: BlockNo, count: u64) -> bool {
        let bs = self.block_bytes as u64;
        self.image.known_zero(start.0 * bs, count * bs)
            && self.mended.range(start.0..start.0 + count).next().is_none()
    }

    /// Has the repair changed it?
    pub(crate) fn is_mended(&self, b: BlockNo) -> bool {
        self.mended.contains_key(&b.0)
    }

    /// Changes a block. What stays as it was is not written.
    pub(crate) fn edit<T>(
        &mut self,
        b: BlockNo,
        f: impl FnOnce(&mut [u8]) -> T,
    ) -> Result<T, CheckError> {
        let mut bytes = self.read(b)?;
        let out = f(&mut bytes);
        self.laid_over(b).insert(b.0, bytes);
        Ok(out)
    }

    /// Takes back what was put there.
    pub(crate) fn forget(&mut self, b: BlockNo) {
        self.laid_over(b).remove(&b.0);
    }

    pub(crate) fn put(&mut self, b: BlockNo, bytes: Vec<u8>) {
        assert_eq!(bytes.len(), self.block_bytes, "a whole block");
        self.laid_over(b).insert(b.0, bytes);
    }

    /// As `put`, for a block that was free before.
    pub(crate) fn put_fresh(&mut self, b: BlockNo, bytes: Vec<u8>) {
        self.fresh.insert(b.0);
        self.put(b, bytes);
    }

    /// The mended blocks that differ from the device's, and which of them are fresh.
    pub(crate) fn into_changes(self) -> Result<Changes, CheckError> {
        let mut changed = BTreeMap::new();
        let mut old = vec![0; self.block_bytes];
        for (b, bytes) in Arc::unwrap_or_clone(self.mended) {
            self.image.read_at(b * self.block_bytes as u64, &mut old)?;
            if old != bytes {
                changed.insert(b, bytes);
            }
        }
        Ok((changed, self.fresh))
    }
}

pub(crate) type Changes = (BTreeMap<u64, Vec<u8>>, BTreeSet<u64>);
