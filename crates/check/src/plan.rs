//! What a check hands back: the findings, and the blocks that mend them in the order in which they
//! may be written. A repair cut off anywhere is mended by the next one: the volume is marked as not
//! clean first, copies made for the repair are durable before anything points at them, and the mark
//! comes off last.

use crate::copies::Runs;
use crate::finding::{Class, Finding, Kind, Place};
use crate::io::{IoError, Progress, WriteBlocks};
use std::collections::BTreeMap;

/// Findings kept in full; the rest is only counted.
const KEPT: usize = 10_000;

/// The blocks that a repair writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub(crate) block_bytes: usize,
    /// The superblock's block as it is while the repair runs: not clean.
    pub(crate) opening: Option<(u64, Vec<u8>)>,
    /// Copies of blocks, which are made before anything else is changed: the first block that is
    /// written, the first that is read, and how many.
    pub(crate) copies: Runs,
    pub(crate) fresh: BTreeMap<u64, Vec<u8>>,
    pub(crate) rest: BTreeMap<u64, Vec<u8>>,
    /// The superblock's block, last.
    pub(crate) closing: Option<(u64, Vec<u8>)>,
}

impl Plan {
    /// Is there nothing to write?
    pub fn is_empty(&self) -> bool {
        self.blocks() == 0
    }
    /// How many blocks it writes.
    pub fn blocks(&self) -> usize {
        let copies: u64 = self.copies.iter().map(|c| c.2).sum();
        let own = self.fresh.len() + self.rest.len() + usize::from(self.closing.is_some());
        own + usize::try_from(copies).unwrap_or(usize::MAX)
    }
    /// The blocks that it copies, each with its place: to which byte, and from which. They are
    /// written behind the first of the stages and durable before the second is begun.
    pub fn copies(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let bs = self.block_bytes as u64;
        let each = move |(to, from, len): &(u64, u64, u64)| {
            let (to, from) = (*to, *from);
            (0..*len).map(move |n| ((to + n) * bs, (from + n) * bs))
        };
        self.copies.iter().flat_map(each)
    }
    /// Bytes of a block.
    pub fn block_bytes(&self) -> usize {
        self.block_bytes
    }
    /// What the repair writes, in stages: each is to be durable before the next is begun. A
    /// stage has bytes and their places. [`Plan::copies`] belong to it, too.
    pub fn stages(&self) -> Vec<Vec<(u64, &[u8])>> {
        let bs = self.block_bytes as u64;
        if self.is_empty() {
            return Vec::new();
        }
        let others = self.fresh.len() + self.rest.len() + self.copies.len();
        let marked = self.opening.is_some() && self.closing.is_some();
        assert!(marked || others == 0, "K1: {others} blocks are written without a mark");
        let (opening, closing) = (self.opening.as_slice(), self.closing.as_slice());
        let ends = [opening, closing]
            .map(|end| end.iter().map(|(b, bytes)| (b * bs, bytes.as_slice())).collect());
        let [opening, closing] = ends;
        let [fresh, rest] = [&self.fresh, &self.rest]
            .map(|all| all.iter().map(|(b, bytes)| (b * bs, bytes.as_slice())).collect());
        let all: [Vec<_>; 4] = [opening, fresh, rest, closing];
        all.into_iter().filter(|stage| !stage.is_empty()).collect()
    }
    /// Writes the repair. Returns once it is durable; the first error ends it, and the volume is
    /// then still marked as not clean.
    pub fn apply(
        &self,
        to: &mut dyn WriteBlocks,
        progress: &mut dyn Progress,
    ) -> Result<(), IoError> {
        let (mut done, total) = (0, self.blocks() as u64);
        let mut block = vec![0; self.block_bytes];
        for (n, stage) in self.stages().into_iter().enumerate() {
            for (at, bytes) in stage {
                to.write_at(at, bytes)?;
                done += 1;
                progress.step("repair", done.min(total), total);
            }
            to.flush()?;
            for (at, from) in self.copies().filter(|_| n == 0) {
                to.read_back(from, &mut block)?;
                to.write_at(at, &block)?;
                done += 1;
                progress.step("repair", done.min(total), total);
            }
            if n == 0 && !self.copies.is_empty() {
                to.flush()?;
            }
        }
        let all = total + u64::from(self.opening.is_some());
        assert_eq!(done, all, "K1: a repair of {all} blocks writes {done}");
        Ok(())
    }
    /// The blocks as they will be, by number, but for copies: the superblock's is as it is at the
    /// end.
    pub fn images(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let all = self.fresh.iter().chain(&self.rest).map(|(b, bytes)| (*b, bytes.as_slice()));
        all.chain(self.closing.iter().map(|(b, bytes)| (*b, bytes.as_slice())))
    }
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What is wrong, in the order of the passes; the first ten thousand of them.
    pub findings: Vec<Finding>,
    /// How many findings there are of each kind, all of them.
    pub counts: BTreeMap<Kind, u64>,
    /// What is still wrong after the repair: nothing, unless there was no room or the damage is
    /// beyond it. Empty without [`crate::Options::verify`].
    pub left: Vec<Finding>,
    /// The repair.
    pub plan: Plan,
    /// Does the superblock say that the volume was closed cleanly?
    pub marked_clean: bool,
    /// How many findings' repairs take away something with a name.
    pub names_lost: u64,
    /// Blocks and inodes in use that a bitmap marks as free.
    pub unmarked: u64,
    /// Files and directories in use, for the summary.
    pub inodes_used: u64,
    /// Blocks in use, for the summary.
    pub blocks_used: u64,
}

impl Report {
    /// Is nothing wrong?
    pub fn is_sound(&self) -> bool {
        self.counts.is_empty()
    }
    /// Leaves out that the superblock's totals are not those of the groups: of a volume in a
    /// log-structured store they are reckoned when it is opened, and written when it is closed.
    pub fn leave_out_totals(&mut self) {
        let is_total = |f: &Finding| f.kind == Kind::Counts && f.place == Place::Volume;
        let before = self.findings.len();
        self.findings.retain(|f| !is_total(f));
        let gone = (before - self.findings.len()) as u64;
        let counts = self.counts.entry(Kind::Counts).or_insert(0);
        *counts = counts.saturating_sub(gone);
        self.counts.retain(|_, n| *n > 0);
    }
    /// Would the repair take away anything that has a name? (Mode `async` then asks first.)
    pub fn loses_names(&self) -> bool {
        self.names_lost > 0
    }
    /// The worst class found.
    pub fn worst(&self) -> Option<Class> {
        self.counts.keys().map(|k| k.class()).max()
    }
    /// Could a crash in mode `sync` with operations of at most `callers` callers in flight have
    /// left this?
    pub fn is_sync_leftover(&self, callers: u64) -> bool {
        // A block of names on its way into two has as many names twice as fit into a block.
        let counted = |k: &Kind| k.class() == Class::InFlight && *k != Kind::NameInTwoBlocks;
        let in_flight: u64 = self.counts.iter().filter(|(k, _)| counted(k)).map(|(_, n)| n).sum();
        // A rename of a directory over another can leave three of them: two names, an old "..", and
        // the directory it displaces.
        self.worst() != Some(Class::Damage) && in_flight <= 3 * callers
    }
    /// What no crash in mode `sync` leaves, as a line; None: the repair takes nothing away that
    /// anybody was promised.
    pub fn beyond_sync(&self) -> Option<String> {
        self.first_of(|k| k.class() == Class::Damage)
    }
    /// What no crash in mode `soft-updates` leaves, as a line: anything but space that is not given
    /// back yet, counts that are too high, hints, a directory on its way between two names, and the
    /// block by which a directory was about to grow.
    pub fn beyond_soft_updates(&self) -> Option<String> {
        use Kind::{BeyondEnd, NameInTwoBlocks};
        if self.unmarked > 0 {
            return Some(format!("{} blocks or inodes in use are marked as free", self.unmarked));
        }
        let beyond =
            self.findings.iter().find(|f| f.kind == BeyondEnd && !f.is_growing_directory());
        let bad = self.first_of(|k| k.class() == Class::Damage || k == NameInTwoBlocks);
        bad.or_else(|| beyond.map(ToString::to_string))
    }
    /// What no crash in any mode leaves, because no operation on files ever changes it.
    pub fn beyond_any_crash(&self) -> Option<String> {
        use Kind::{BackupDamaged, DescDamaged, NoRoot, ResizeInode, SuperDamaged};
        let fixed = [SuperDamaged, DescDamaged, BackupDamaged, ResizeInode, NoRoot];
        self.first_of(|k| fixed.contains(&k))
    }
    fn first_of(&self, is: impl Fn(Kind) -> bool) -> Option<String> {
        let kind = self.counts.keys().copied().find(|k| is(*k))?;
        // Only so many are kept in full.
        let found = self.findings.iter().find(|f| f.kind == kind);
        Some(found.map_or_else(|| kind.name().to_owned(), ToString::to_string))
    }
    pub(crate) fn add(&mut self, f: Finding) {
        *self.counts.entry(f.kind).or_insert(0) += 1;
        self.names_lost += u64::from(f.loses_name);
        if self.findings.len() < KEPT {
            self.findings.push(f);
        }
    }
}
