//! The gate: the cache asks it before it writes a block home, and tells it how the write went. The
//! mechanisms implement it; the cache knows none of them.

use crate::{Buf, FlushEpoch};
use env::{Block, DiskError};

/// What may be written home in place of a dirty block.
#[derive(Clone, Debug)]
pub enum Image {
    /// The block as it is; it is clean afterwards unless it is modified meanwhile.
    AsIs,
    /// This instead, with some edits rolled back; the block stays dirty.
    Instead(Block),
    /// Nothing yet; the block stays dirty.
    NotYet,
}

/// Decides when a change may reach the disk. Neither call may wait, or call back into a layout.
pub trait WriteGate {
    /// `buf` is dirty and about to be written.
    fn before_write(&self, buf: &Buf) -> Image;
    /// The write of `image` has ended (it is visible, not durable). It is durable once
    /// [`WriteGate::flushed`] is called with an epoch greater than `epoch`.
    fn after_write(
        &self,
        buf: &Buf,
        image: &Image,
        result: Result<(), &DiskError>,
        epoch: FlushEpoch,
    );
    /// Every write whose `after_write` carried an epoch below `epoch` is durable.
    fn flushed(&self, epoch: FlushEpoch);
}

/// A gate that is always open: for volumes that are only read, and for tests.
pub struct OpenGate;

impl WriteGate for OpenGate {
    fn before_write(&self, _: &Buf) -> Image {
        Image::AsIs
    }
    fn after_write(&self, _: &Buf, _: &Image, _: Result<(), &DiskError>, _: FlushEpoch) {}
    fn flushed(&self, _: FlushEpoch) {}
}
