//! Where a file's blocks lie, whichever way its map is kept: the one place that asks which. Old
//! files of a volume with extents keep the map they were made with.

use super::extents::Spot;
use crate::Ext;
use format::FileBlock;
use format::ufs::inode::InodeRef;
use ufs::InodeHandle;
use ufs::store::Run;
use vfs::FsError;

/// What lies there as a reader sees it: unwritten blocks are a hole.
fn as_run(spot: Spot, max: u64) -> Run {
    let run = match spot {
        Spot::Hole(len) => Run { start: None, len: len.clamp(1, max) },
        Spot::Mapped(m) => {
            let start = (!m.unwritten).then_some(m.start);
            Run { start, len: u64::from(m.len).min(max) }
        }
    };
    assert!((1..=max).contains(&run.len), "M6: {run:?}, where {max} were asked for");
    run
}

impl Ext {
    pub(crate) fn has_extents(&self, h: &InodeHandle) -> bool {
        h.with(|raw| InodeRef(raw).has_extents())
    }

    /// The run of blocks, or the hole, that begins at `at`, at most `max` blocks long.
    pub(crate) async fn find(
        &self,
        h: &InodeHandle,
        at: FileBlock,
        max: u64,
    ) -> Result<Run, FsError> {
        if self.is_inline(h) {
            return Ok(Run { start: None, len: max }); // it has no blocks
        }
        if self.has_extents(h) {
            return Ok(as_run(self.spot(h, at).await?, max));
        }
        let walk = self.walk(h, at).await?;
        let run = self.run_of(h.ino, &walk, max)?;
        assert!((1..=max).contains(&run.len), "M6: {run:?} at {at}, where {max} were asked for");
        Ok(run)
    }

    /// As [`Ext::find`], if nothing has to be read.
    pub(crate) fn find_cached(&self, h: &InodeHandle, at: FileBlock, max: u64) -> Option<Run> {
        if self.is_inline(h) {
            return Some(Run { start: None, len: max });
        }
        if self.has_extents(h) {
            return Some(as_run(self.spot_cached(h, at)?, max));
        }
        let walk = self.walk_cached(h, at)?;
        self.run_of(h.ino, &walk, max).ok()
    }
}
