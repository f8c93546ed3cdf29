//! Holes: pointers of a range are cleared and what they pointed at is freed. Indirect blocks stay,
//! so that the map's shape is the same afterwards. Where a transaction is bounded, a hole that
//! needs more than one goes in steps, from its beginning.

use super::extents::Spot;
use super::indirect::Walk;
use crate::Ext;
use crate::alloc::Runs;
use format::ext::Geometry;
use format::{BlockNo, Extent, FileBlock, GroupNo};
use integrity::{Credits, Txn};
use std::collections::BTreeSet;
use std::ops::Range;
use ufs::InodeHandle;
use ufs::store::PunchStep;
use vfs::FsError;

/// Runs punched before others are let in.
const RUNS_AT_ONCE: u64 = 256;

/// What the punching of some runs may edit.
#[derive(Default)]
struct Edits {
    /// The block with the map of the last run; runs come in the order of their places in the file.
    leaf: Option<BlockNo>,
    leaves: u64,
    groups: BTreeSet<GroupNo>,
    /// Their blocks of descriptors.
    descriptors: BTreeSet<u32>,
    blocks: u64,
    runs: u64,
}

impl Edits {
    /// A run goes that `leaf` maps; `node`: that is a node of a tree, which goes with its last.
    fn add(&mut self, geo: &Geometry, leaf: BlockNo, run: Extent, node: bool) {
        if self.leaf.replace(leaf) != Some(leaf) {
            self.leaves += 1;
            if node {
                self.free(geo, Extent { start: leaf, len: 1 });
            }
        }
        self.free(geo, run);
    }

    fn free(&mut self, geo: &Geometry, run: Extent) {
        let group = geo.group_of(run.start);
        self.groups.insert(group);
        self.descriptors.insert(geo.desc_block_of(group));
        self.blocks += run.len;
        self.runs += 1;
    }

    /// What a transaction needs for them, and for something besides.
    fn credits(&self, beside: Credits) -> Credits {
        let maps = self.groups.len() + self.descriptors.len();
        Credits {
            blocks: beside.blocks + self.leaves + maps as u64,
            frees: beside.frees + self.blocks,
            runs: beside.runs + self.runs,
            ..beside
        }
    }
}

impl Ext {
    /// See `Store::punch_steps`.
    pub(crate) async fn steps_of_punch(
        &self,
        h: &InodeHandle,
        range: Range<FileBlock>,
        beside: Credits,
    ) -> Result<Vec<PunchStep>, FsError> {
        let (mut steps, mut edits) = (Vec::new(), Edits::default());
        let mut at = range.start;
        while self.mechanism.atomic() && at < range.end {
            let (len, mapped) = self.to_punch(h, at, range.end.0 - at.0).await?;
            if let Some((leaf, start)) = mapped {
                let freed = Extent { start, len };
                let need = edits.credits(beside);
                let is_node = self.has_extents(h) && leaf != h.buf.block();
                edits.add(&self.geo, leaf, freed, is_node);
                if need != beside && !self.has_room_for(&edits.credits(beside)) {
                    steps.push(PunchStep { to: at, need });
                    edits = Edits::default();
                    edits.add(&self.geo, leaf, freed, is_node);
                }
            }
            at = at.plus(len);
        }
        steps.push(PunchStep { to: range.end, need: edits.credits(beside) });
        Ok(steps)
    }

    /// How far the hole or the run at `at` goes, `max` at most; of a run, which block maps it and
    /// where it lies.
    async fn to_punch(
        &self,
        h: &InodeHandle,
        at: FileBlock,
        max: u64,
    ) -> Result<(u64, Option<(BlockNo, BlockNo)>), FsError> {
        if self.has_extents(h) {
            return Ok(match self.spot(h, at).await? {
                Spot::Hole(len) => (len.min(max), None),
                Spot::Mapped(m) => {
                    let leaf = self.leaf_of(h, at.0).await?;
                    // An extent may go on through many groups, each with a bitmap of its own.
                    let g = self.geo.group_of(m.start);
                    let end = self.geo.group_start(g).0 + u64::from(self.geo.group_blocks(g));
                    let len = u64::from(m.len).min(end - m.start.0);
                    (len.min(max), Some((leaf, m.start)))
                }
            });
        }
        let walk = self.walk(h, at).await?;
        let run = self.run_of(h.ino, &walk, max)?;
        Ok(match (run.start, &walk) {
            (Some(start), Walk::Leaf(leaf)) => (run.len, Some((leaf.buf.block(), start))),
            _ => (run.len, None),
        })
    }

    /// May one transaction need so much? What it edits has to stay in memory until it ends.
    fn has_room_for(&self, need: &Credits) -> bool {
        need.blocks <= self.cache.capacity() as u64 / 4 && self.mechanism.fits(need)
    }

    /// Frees `from..to`, one step.
    pub(crate) async fn punch_blocks(
        &self,
        txn: &mut Txn,
        h: &InodeHandle,
        from: FileBlock,
        to: FileBlock,
    ) -> Result<(), FsError> {
        let mut at = from;
        let mut runs = 0;
        while at < to {
            let walk = self.walk(h, at).await?;
            let run = self.run_of(h.ino, &walk, to.0 - at.0)?;
            if let (Some(start), Walk::Leaf(leaf)) = (run.start, &walk) {
                self.clear_run(txn, h, leaf, 0, Extent { start, len: run.len });
                self.give_back(txn, h, Runs::one(start, run.len)).await?;
                runs += 1;
            }
            at = at.plus(run.len);
            if runs >= RUNS_AT_ONCE {
                runs = 0;
                self.env.yield_now().await;
            }
        }
        Ok(())
    }
}
