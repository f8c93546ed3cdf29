//! Writes on their way to being durable, as each mechanism's gate follows them: captured in an
//! image, written, and durable by a flush that was issued after the write had ended. It knows no
//! mechanism, and writes nothing.

use cache::FlushEpoch;
use format::BlockNo;

/// How far an edit has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// In memory alone.
    Pending,
    /// In an image that is on its way.
    Captured,
    /// The write has ended in this epoch; durable by a flush of a later one.
    Written(FlushEpoch),
}

impl Progress {
    /// What a captured edit is when its image's write has ended.
    pub(crate) fn after_write(ok: bool, epoch: FlushEpoch) -> Progress {
        if ok { Progress::Written(epoch) } else { Progress::Pending }
    }
    /// Has a flush of this epoch made it durable?
    pub(crate) fn is_durable_by(self, epoch: FlushEpoch) -> bool {
        matches!(self, Progress::Written(e) if e < epoch)
    }
}

/// Blocks that were written and wait for a flush; one that was written again is in it again.
#[derive(Default, Debug)]
pub(crate) struct Unflushed(Vec<(FlushEpoch, BlockNo)>);

impl Unflushed {
    /// The block's write has ended in this epoch.
    pub(crate) fn add(&mut self, epoch: FlushEpoch, block: BlockNo) {
        let newest = self.0.last().map(|(e, _)| *e);
        let rises = newest.is_none_or(|e| e <= epoch);
        assert!(rises, "block {block} was written in {epoch:?}, and others in {newest:?}");
        self.0.push((epoch, block));
    }
    /// Takes those whose writes ended before the flush of this epoch was issued.
    pub(crate) fn take_flushed(&mut self, epoch: FlushEpoch) -> Vec<BlockNo> {
        self.0.extract_if(.., |(e, _)| *e < epoch).map(|(_, block)| block).collect()
    }
}
