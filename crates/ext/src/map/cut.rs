//! Shrinking a file's map, from its end: pointers are cleared where they survive, and what they
//! pointed at is freed. An indirect block that goes as a whole is freed as it is; nothing in it is
//! edited. Where a transaction is bounded, a large cut goes in steps, each of which leaves a
//! smaller file's map.

use crate::Ext;
use crate::alloc::Runs;
use cache::{Buf, BufKind};
use format::ext::Geometry;
use format::ufs::map::{POINTERS, first_of, pointer};
use format::{BlockNo, FileBlock, FormatError};
use integrity::{Credits, Txn};
use std::collections::BTreeSet;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use ufs::InodeHandle;
use ufs::store::Transactions;
use vfs::FsError;

/// Blocks that one transaction gives up, where a transaction is bounded.
const STEP: u64 = 4096;
/// Groups whose blocks one transaction gives up: each has a bitmap and a descriptor.
const GROUPS: usize = 24;
/// Runs that one transaction gives up: each is named to the log, and has bits of its own in a
/// bitmap.
const RUNS: usize = 512;
/// What each of them may edit: bitmaps, descriptors, maps, the inode.
pub(crate) const RENEWED: Credits = Credits::to_free(64);
/// Indirect blocks read ahead of the cut.
const AHEAD: usize = 16;

/// One step of a cut.
struct Cut<'a> {
    h: &'a InodeHandle,
    /// File blocks from here on go.
    from: FileBlock,
    /// What is to be freed.
    freed: Runs,
    /// It ends at the next border once it has freed so many, so many groups' ([`GROUPS`]), or in so
    /// many runs ([`RUNS`]).
    budget: u64,
    /// The groups of what is to be freed, where there is a budget.
    groups: BTreeSet<u32>,
}

impl Cut<'_> {
    fn give_up(&mut self, b: BlockNo, geo: &Geometry) {
        self.freed.push(b);
        if self.budget < u64::MAX {
            self.groups.insert(geo.group_of(b).0);
        }
    }
    /// Has it freed as much as one transaction should?
    fn is_enough(&self) -> bool {
        let scattered = self.groups.len() >= GROUPS || self.freed.runs() >= RUNS;
        self.freed.blocks() >= self.budget || (self.budget < u64::MAX && scattered)
    }
}

/// How far a step has come in one part of the map.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// All of it stays or what went was unmapped.
    Stays,
    /// All of it goes, the block at its root included.
    Goes,
    /// The budget is used up before its first block.
    Stopped,
}

type Step<'a, T> = Pin<Box<dyn Future<Output = Result<T, FsError>> + 'a>>;

impl Ext {
    /// Frees the file's blocks from `from` on.
    pub(crate) async fn cut(
        &self,
        txn: &mut Txn,
        h: &InodeHandle,
        from: FileBlock,
    ) -> Result<(), FsError> {
        let budget = if self.mechanism.atomic() { STEP } else { u64::MAX };
        while !self.cut_step(txn, h, from, budget).await? {
            self.renew(txn, RENEWED).await?;
        }
        Ok(())
    }

    /// One step; true if nothing is left to cut.
    async fn cut_step(
        &self,
        txn: &mut Txn,
        h: &InodeHandle,
        from: FileBlock,
        budget: u64,
    ) -> Result<bool, FsError> {
        let (freed, groups) = (Runs::default(), BTreeSet::new());
        let mut cut = Cut { h, from, freed, budget, groups };
        let done = match self.cut_pointers(txn, &mut cut).await {
            Ok(done) => done,
            Err(e) => {
                // What comes before it in the map stays; what is mapped no more goes.
                self.give_back(txn, h, cut.freed).await?;
                return Err(e);
            }
        };
        if done {
            let stays = |i: &usize| first_of(*i, self.per_block()) < from;
            let left =
                (0..POINTERS).find(|i| !stays(i) && self.inode_leaf(h, *i).pointer(0).0 != 0);
            assert_eq!(left, None, "M5: a pointer of inode {} that a cut at {from} leaves", h.ino);
        }
        let some = cut.freed.blocks() > 0;
        assert!(
            done || some,
            "A3: a step of a cut gives nothing up, and the next would not either"
        );
        self.give_back(txn, h, cut.freed).await?;
        Ok(done)
    }

    /// The part of one step that changes the map, from the inode's last pointer on; true if nothing
    /// is left to cut. Also where that fails, each block that was given up is mapped no more.
    async fn cut_pointers(&self, txn: &mut Txn, cut: &mut Cut<'_>) -> Result<bool, FsError> {
        let h = cut.h;
        for i in (0..POINTERS).rev() {
            let leaf = self.inode_leaf(h, i);
            let b = leaf.pointer(0);
            if b.0 == 0 {
                continue;
            }
            let first = first_of(i, self.per_block());
            if i < 12 {
                if first >= cut.from {
                    self.check_pointer(h.ino, b, "a block")?;
                    cut.give_up(b, &self.geo);
                    self.set_pointer(txn, h, &leaf, 0, BlockNo(0));
                }
                continue;
            }
            let level = i - 11;
            let part = self.cut_tree(txn, cut, b, level, first).await?;
            if part == Part::Goes {
                self.set_pointer(txn, h, &leaf, 0, BlockNo(0));
            }
            if part == Part::Stopped || (i > 12 && cut.is_enough()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Frees blocks that were the file's.
    pub(super) async fn give_back(
        &self,
        txn: &mut Txn,
        h: &InodeHandle,
        freed: Runs,
    ) -> Result<(), FsError> {
        let count = freed.blocks() as i64;
        if count == 0 {
            return Ok(());
        }
        self.free_blocks(txn, freed).await?;
        self.count_sectors(txn, h, -count);
        Ok(())
    }

    /// Cuts the tree under block `b`, which maps file blocks from `first` on through `level` levels
    /// of indirect blocks.
    fn cut_tree<'a>(
        &'a self,
        txn: &'a mut Txn,
        cut: &'a mut Cut<'_>,
        b: BlockNo,
        level: usize,
        first: FileBlock,
    ) -> Step<'a, Part> {
        Box::pin(async move {
            let span = self.per_block().pow(level as u32);
            if first.0 + span <= cut.from.0 {
                return Ok(Part::Stays);
            }
            let buf = self.indirect(cut.h.ino, b).await?;
            let whole = first.0 >= cut.from.0;
            let part = match level {
                1 => self.cut_leaf(txn, cut, &buf, first)?,
                _ => self.cut_node(txn, cut, &buf, level, first).await?,
            };
            if whole && part == Part::Goes {
                cut.give_up(b, &self.geo);
            }
            Ok(part)
        })
    }

    /// Cuts an indirect block that points at the file's own blocks.
    fn cut_leaf(
        &self,
        txn: &mut Txn,
        cut: &mut Cut<'_>,
        buf: &Buf,
        first: FileBlock,
    ) -> Result<Part, FsError> {
        if cut.freed.blocks() > self.geo.blocks {
            let what = "its map has more blocks than the volume";
            let at = format!("inode {}", cut.h.ino);
            return Err(self.damage(&FormatError::corrupt(what, at)));
        }
        let keep = cut.from.0.saturating_sub(first.0) as usize;
        let children = |i: usize| Some((i, pointer(&buf.bytes(), i))).filter(|(_, b)| b.0 != 0);
        let going: Vec<_> = (keep..self.per_block() as usize).filter_map(children).collect();
        for (_, child) in &going {
            self.check_pointer(cut.h.ino, *child, "a block")?;
        }
        for (i, child) in going {
            cut.give_up(child, &self.geo);
            if keep > 0 {
                let leaf = self.block_leaf(buf.clone(), i, 0);
                self.set_pointer(txn, cut.h, &leaf, 0, BlockNo(0));
            }
        }
        Ok(if keep > 0 { Part::Stays } else { Part::Goes })
    }

    /// Cuts an indirect block that points at indirect blocks, from its last pointer on.
    async fn cut_node(
        &self,
        txn: &mut Txn,
        cut: &mut Cut<'_>,
        buf: &Buf,
        level: usize,
        first: FileBlock,
    ) -> Result<Part, FsError> {
        let whole = first.0 >= cut.from.0;
        let span = self.per_block().pow(level as u32 - 1);
        let mut gone = Vec::new();
        let mut stopped = Ok(false);
        let mut ahead = usize::MAX;
        for i in (0..self.per_block() as usize).rev() {
            let child = pointer(&buf.bytes(), i);
            let at = first.plus(i as u64 * span);
            if child.0 == 0 || at.0 + span <= cut.from.0 {
                continue;
            }
            if cut.is_enough() {
                stopped = Ok(true);
                break;
            }
            if i < ahead {
                ahead = i.saturating_sub(AHEAD);
                self.prefetch(buf, ahead..i);
                // A long cut lets others in.
                self.env.yield_now().await;
            }
            match self.cut_tree(txn, cut, child, level - 1, at).await {
                Ok(Part::Goes) => gone.push(i),
                Ok(Part::Stays) => (),
                Ok(Part::Stopped) => {
                    stopped = Ok(true);
                    break;
                }
                Err(e) => {
                    stopped = Err(e);
                    break;
                }
            }
        }
        if whole && stopped == Ok(false) {
            return Ok(Part::Goes);
        }
        for i in gone {
            let leaf = self.block_leaf(buf.clone(), i, level - 1);
            self.set_pointer(txn, cut.h, &leaf, 0, BlockNo(0));
        }
        stopped.map(|s| if s { Part::Stopped } else { Part::Stays })
    }

    /// Reads the indirect blocks that the cut comes to next.
    fn prefetch(&self, buf: &Buf, which: Range<usize>) {
        for i in which {
            let b = pointer(&buf.bytes(), i);
            if b.0 != 0 && !self.meets_system(b, 1) && self.cache.get_cached(b).is_none() {
                self.cache.prefetch(b, 1, BufKind::Meta);
            }
        }
    }
}
