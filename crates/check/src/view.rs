//! The volume as the repair will leave it: the device's blocks with the mended ones laid over them.
//! Every pass reads through it, so that a later pass sees what an earlier one has mended; nothing
//! is written.

use crate::CheckError;
use crate::copies::{Copies, Runs};
use crate::io::ReadBlocks;
use format::BlockNo;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The number of the first block that is none of the volume's: contents of an inode, shown as a
/// block. No volume has so many.
pub(crate) const IMAGES: u64 = 1 << 52;

/// Blocks laid over others. Views of one moment share them: who changes one copies all.
pub(crate) type Laid = Arc<BTreeMap<u64, Vec<u8>>>;

/// What lies over the device's blocks: mended ones, images, and copies of other blocks.
#[derive(Clone, Default)]
pub(crate) struct Layers {
    pub(crate) mended: Laid,
    pub(crate) images: Laid,
    pub(crate) copies: Arc<Copies>,
}

pub(crate) struct View<'a> {
    image: &'a dyn ReadBlocks,
    block_bytes: usize,
    mended: Laid,
    images: Laid,
    /// Mended blocks that nothing on the device points at yet: they are written first.
    fresh: BTreeSet<u64>,
    /// Blocks of those that hold what others do on the device.
    copies: Arc<Copies>,
}

impl<'a> View<'a> {
    pub(crate) fn new(image: &'a dyn ReadBlocks, block_bytes: usize) -> View<'a> {
        View::over(image, block_bytes, Layers::default())
    }

    /// With these laid over the device's blocks.
    pub(crate) fn over(image: &'a dyn ReadBlocks, block_bytes: usize, over: Layers) -> View<'a> {
        let Layers { mended, images, copies } = over;
        View { image, block_bytes, mended, images, fresh: BTreeSet::new(), copies }
    }

    /// What is laid over the device's blocks.
    pub(crate) fn laid(&self) -> Layers {
        let (mended, images) = (self.mended.clone(), self.images.clone());
        Layers { mended, images, copies: self.copies.clone() }
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

    /// Lays a block over what is there. A copy that is changed is none any more, but a new block.
    fn lay(&mut self, b: BlockNo, bytes: Vec<u8>) {
        if self.copies.source(b).is_some() {
            Arc::make_mut(&mut self.copies).forget(b);
            self.fresh.insert(b.0);
        }
        self.laid_over(b).insert(b.0, bytes);
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
        let from = self.copies.source(b).unwrap_or(b);
        self.image.read_at(from.0 * self.block_bytes as u64, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads the blocks from `start` on that fill `into`.
    pub(crate) fn read_run(&self, start: BlockNo, into: &mut [u8]) -> Result<(), CheckError> {
        let whole = into.len().is_multiple_of(self.block_bytes);
        assert!(whole, "K1: {} bytes from block {start} on are read, not whole blocks", into.len());
        self.image.read_at(start.0 * self.block_bytes as u64, into)?;
        let count = (into.len() / self.block_bytes) as u64;
        for (b, from) in self.copies.among(start.0, count) {
            let at = (b - start.0) as usize * self.block_bytes;
            let part = &mut into[at..at + self.block_bytes];
            self.image.read_at(from * self.block_bytes as u64, part)?;
        }
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
            && self.copies.among(start.0, count).next().is_none()
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
        self.lay(b, bytes);
        Ok(out)
    }

    /// What the device has there.
    pub(crate) fn read_old(&self, b: BlockNo) -> Result<Vec<u8>, CheckError> {
        let mut bytes = vec![0; self.block_bytes];
        self.image.read_at(b.0 * self.block_bytes as u64, &mut bytes)?;
        Ok(bytes)
    }

    /// Takes back what was mended of a block that was there before.
    pub(crate) fn restore(&mut self, b: BlockNo) {
        if self.mended.contains_key(&b.0) && !self.fresh.contains(&b.0) {
            self.forget(b);
        }
    }

    /// Takes back what was put there.
    pub(crate) fn forget(&mut self, b: BlockNo) {
        self.laid_over(b).remove(&b.0);
    }

    pub(crate) fn put(&mut self, b: BlockNo, bytes: Vec<u8>) {
        assert_eq!(bytes.len(), self.block_bytes, "K1: a whole block");
        self.lay(b, bytes);
    }

    /// As `put`, for a block that was free before.
    pub(crate) fn put_fresh(&mut self, b: BlockNo, bytes: Vec<u8>) {
        assert!(b.0 < IMAGES, "K1: block {b} is no block of the volume, and is given out");
        self.fresh.insert(b.0);
        self.put(b, bytes);
    }

    /// Makes a block that was free before a copy of another one. What was mended there before it
    /// became free is nothing any more.
    pub(crate) fn put_copy(&mut self, to: BlockNo, of: BlockNo) {
        assert!(to != of && to.0 < IMAGES, "K2: block {to} becomes a copy of block {of}");
        if let Some(bytes) = self.mended.get(&of.0).cloned() {
            self.put_fresh(to, bytes);
            return;
        }
        self.forget(to);
        let from = self.copies.source(of).unwrap_or(of);
        Arc::make_mut(&mut self.copies).put(to, from);
    }

    /// The mended blocks that differ from the device's, which of them are fresh, and the copies.
    pub(crate) fn into_changes(self) -> Result<Changes, CheckError> {
        let image = self.images.keys().next();
        assert!(image.is_none(), "K1: {image:?} is no block of the volume, and is shown as one");
        let mut changed = BTreeMap::new();
        let mut old = vec![0; self.block_bytes];
        for (b, bytes) in Arc::unwrap_or_clone(self.mended) {
            self.image.read_at(b * self.block_bytes as u64, &mut old)?;
            let copied = self.copies.source(BlockNo(b));
            assert!(copied.is_none(), "K1: block {b} is mended, and a copy of {copied:?} too");
            if old != bytes {
                changed.insert(b, bytes);
            }
        }
        let runs = self.copies.runs();
        for (_, from, len) in &runs {
            let no_copy = self.copies.among(*from, *len).next().is_none();
            let no_fresh = self.fresh.range(*from..*from + *len).next().is_none();
            assert!(
                no_copy && no_fresh,
                "K2: what {len} blocks from {from} on hold is copied late"
            );
        }
        Ok((changed, self.fresh, runs))
    }
}

pub(crate) type Changes = (BTreeMap<u64, Vec<u8>>, BTreeSet<u64>, Runs);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    /// A block of pointers is mended, its file loses it, and the next copy takes its place.
    #[test]
    fn a_copy_takes_the_place_of_what_was_mended_there() {
        let image = [[1u8; 64], [2; 64]].concat();
        let mut view = View::new(&image, 64);
        view.edit(BlockNo(1), |b| b.fill(9)).unwrap();
        view.put_copy(BlockNo(1), BlockNo(0));
        assert_eq!(view.read(BlockNo(1)).unwrap(), [1; 64]);
        let (changed, fresh, copies) = view.into_changes().unwrap();
        assert!(changed.is_empty() && fresh.is_empty(), "{changed:?}");
        assert_eq!(copies, [(1, 0, 1)]);
    }

    /// A copy that a later round mends is no copy any more: it is written once, as it will be, and
    /// before anything leads to it.
    #[test]
    fn a_copy_that_is_changed_is_written_once() {
        let image = [[1u8; 64], [2; 64], [3; 64]].concat();
        let mut view = View::new(&image, 64);
        view.put_copy(BlockNo(1), BlockNo(0));
        view.put_copy(BlockNo(2), BlockNo(0));
        view.edit(BlockNo(1), |b| b[0] = 9).unwrap();
        view.put(BlockNo(2), vec![7; 64]);
        let (changed, fresh, copies) = view.into_changes().unwrap();
        assert_eq!(copies, [], "K1: each block once");
        assert_eq!((changed[&1][..2].to_vec(), changed[&2][0]), (vec![9, 1], 7));
        assert_eq!(fresh, BTreeSet::from([1, 2]));
    }
}
