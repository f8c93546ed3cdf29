//! The gate: the cache asks it before it writes a block back, and tells it how the write went. The
//! mechanisms implement it; the cache knows none of them.

use crate::{Buf, FlushEpoch};
use env::{Block, DiskError, Local};
use format::BlockNo;

/// What may be written back in place of a dirty block.
#[derive(Clone, Debug)]
pub enum Image {
    /// The block as it is; it is clean afterwards unless it is modified meanwhile.
    AsIs,
    /// This instead, with some edits rolled back; the block stays dirty.
    Instead(Block),
    /// Nothing yet; the block stays dirty.
    NotYet,
}

/// An operation's place among those that have begun, by the mechanism's numbers: 1 is the first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Begun(pub u64);

impl Begun {
    /// Before all of them.
    pub const NONE: Begun = Begun(0);
}

/// Decides when a change may reach the disk. No call may call back into a layout, and only
/// [`WriteGate::prepare`] may wait.
pub trait WriteGate {
    /// Many dirty blocks are about to be written. What would be refused only because something is
    /// not durable yet is made durable first, so that no refused block tears a long transfer in
    /// two. It waits for no operation that is open: that one may itself wait for room in memory.
    fn prepare(&self) -> Local<'_, ()> {
        Box::pin(async {})
    }
    /// May contents be written back while their file is still being written? Not where they are in
    /// a journal first: asked for early, each share of a stream would be a commit.
    fn allows_write_behind(&self) -> bool {
        true
    }
    /// Would the dirty block be clean after a write now? Where room in memory is wanted, blocks of
    /// which something would be taken back are written last.
    fn is_whole(&self, _: &Buf) -> bool {
        true
    }
    /// The last operation that has begun.
    fn last_begun(&self) -> Begun {
        Begun::NONE
    }
    /// How much of operations up to `last` has yet to be written in the block? Who writes back by
    /// time goes on as long as that becomes less, and not because of what has changed meanwhile.
    fn behind(&self, _: &Buf, _last: Begun) -> usize {
        0
    }
    /// From now on, or no longer: these blocks are written though all that waits in them has to be
    /// left out, because what needs no order in them is due.
    fn force(&self, _: &[Buf], _on: bool) {}
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
    /// The volume has failed, and this is the first that is heard of it: whoever waits for what
    /// will not come now is to be woken.
    fn failed(&self, _: &DiskError) {}
}

/// Is told which blocks are in memory, by who keeps them below and would read them otherwise. It
/// must not call back into the cache from here.
pub trait Watch {
    /// The block has its place in memory.
    fn came(&self, block: BlockNo);
    /// It has left memory.
    fn gone(&self, block: BlockNo);
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

/// A gate that is shut for good. It replaces the mechanism's when a volume is dropped, because the
/// cache and its mechanism keep one another alive.
pub struct ShutGate;

impl WriteGate for ShutGate {
    fn before_write(&self, _: &Buf) -> Image {
        Image::NotYet
    }
    fn after_write(&self, _: &Buf, _: &Image, _: Result<(), &DiskError>, _: FlushEpoch) {}
    fn flushed(&self, _: FlushEpoch) {}
}
