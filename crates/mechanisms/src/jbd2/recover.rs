//! Recovery: what a journal holds, as updates of blocks, in three passes (hatzieleftheriou-2013,
//! and jbd2's own). *Scan* finds the transactions whose commit is there; *revoke* drops what is not
//! to be replayed; *replay* merges the rest by block. It reads the journal and writes nothing:
//! whoever asks applies it to the volume, or looks through it.
//!
//! All three go on together, transaction by transaction. Where memory is not enough for all
//! updates, the journal is read several times, each time for the next share of the volume's blocks;
//! the first time has seen all of it, so that damage is found before anything is written.
//!
//! The first block that is not what comes next ends the journal: a crash in the middle of a
//! transaction. But damage is no end. If a later block shows that the transaction was committed,
//! replaying only what is before it would lose what was promised, so nothing is replayed. Where the
//! block is none of the transaction's at all, as behind the last one of every journal, that is
//! looked for as far only as the next block of the journal's own could be, so that a long journal
//! is not read to its end each time.

use super::transaction::Tid;
use format::jbd2::{Head, JournalSuperblock, Kind, MULTIWRITE_HEAD, OldSum, Piece, Shape, What};
use format::jbd2::{incompat, unescape};
use format::{BlockNo, FormatError};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// No descriptor has fewer bytes for a block that it lists.
const TAG_BYTES_MIN: u32 = 8;
/// Memory that a revocation counts as.
const REVOKED_BYTES: usize = 64;

/// A journal as recovery sees it.
pub struct Reader<'a> {
    /// Its superblock.
    pub superblock: JournalSuperblock,
    /// Blocks of the volume.
    pub volume_blocks: u64,
    /// Reads a block of the journal.
    pub read: &'a dyn Fn(u32) -> Result<Vec<u8>, FormatError>,
}

/// What is to be done to one block.
#[derive(Clone, Debug)]
enum Update {
    Whole(Vec<u8>),
    Part { offset: usize, bytes: Vec<u8>, fresh: bool },
}

impl Update {
    /// Bytes of memory that it takes, about.
    fn cost(&self) -> usize {
        let (Update::Whole(bytes) | Update::Part { bytes, .. }) = self;
        bytes.len() + 64
    }
    /// Does nothing older of the block matter?
    fn is_complete(&self) -> bool {
        matches!(self, Update::Whole(_) | Update::Part { fresh: true, .. })
    }
}

fn cost(updates: &[Update]) -> usize {
    updates.iter().map(Update::cost).sum()
}

/// Updates, by block: of each what is newest, in order.
#[derive(Clone, Debug, Default)]
struct Share {
    updates: BTreeMap<BlockNo, Vec<Update>>,
    /// Bytes of memory that they take.
    memory: usize,
    /// From this block on it was too much; None: everything is here.
    rest: Option<BlockNo>,
}

impl Share {
    fn add(&mut self, block: BlockNo, update: Update) {
        let list = self.updates.entry(block).or_default();
        if update.is_complete() {
            assert!(self.memory >= cost(list), "block {block} takes more memory than all");
            self.memory -= cost(list);
            list.clear();
        }
        self.memory += update.cost();
        list.push(update);
    }

    fn remove(&mut self, block: BlockNo) -> Vec<Update> {
        let gone = self.updates.remove(&block).unwrap_or_default();
        assert!(self.memory >= cost(&gone), "block {block} takes more memory than all");
        self.memory -= cost(&gone);
        gone
    }

    /// Leaves the last blocks to the next part if there is too much of them.
    fn shrink(&mut self, memory_max: usize) {
        if self.memory <= memory_max {
            return;
        }
        // By half, so that this is not done again after the next transaction.
        while self.memory > memory_max / 2 && self.updates.len() > 1 {
            let Some((block, list)) = self.updates.pop_last() else { return };
            assert!(self.memory >= cost(&list), "block {block} takes more memory than all");
            self.memory -= cost(&list);
            let further = self.rest.is_none_or(|rest| block < rest);
            assert!(further, "block {block} was left to the next part, and came again");
            self.rest = Some(block);
        }
    }

    /// Leaves the blocks from this one on to the next part.
    fn leave(&mut self, rest: BlockNo) {
        let nearer = self.rest.is_none_or(|before| rest <= before);
        assert!(nearer, "{rest} is left to the next part, and {:?} was", self.rest);
        for list in self.updates.split_off(&rest).into_values() {
            assert!(self.memory >= cost(&list), "the blocks from {rest} on take more than all");
            self.memory -= cost(&list);
        }
        self.rest = Some(rest);
    }
}

/// What a journal holds.
#[derive(Clone, Debug, Default)]
pub struct Replay {
    share: Share,
    /// Transactions found.
    pub transactions: u64,
    /// Journal blocks read.
    pub blocks_scanned: u64,
    /// Copies that were the newest of their blocks and then revoked.
    pub revoked: u64,
    /// The number for the next transaction, as it stands on disk.
    pub next_tid: u32,
}

/// A transaction: its updates, and what older ones are not to be replayed of.
#[derive(Default)]
struct Found {
    share: Share,
    revoked: BTreeSet<BlockNo>,
}

impl Found {
    /// There is more of it. Leaves the last blocks to the next part if there is too much of them.
    fn add(&mut self, updates: Vec<(BlockNo, Update)>, revoked: Vec<BlockNo>, memory_max: usize) {
        let rest = self.share.rest;
        let is_here = |b: &BlockNo| rest.is_none_or(|rest| *b < rest);
        for (block, update) in updates.into_iter().filter(|(b, _)| is_here(b)) {
            self.share.add(block, update);
        }
        self.share.shrink(memory_max);
        let bounded = self.share.memory <= memory_max || self.share.updates.len() == 1;
        assert!(bounded, "a transaction takes {} bytes of {memory_max}", self.share.memory);
        self.revoked.extend(revoked.into_iter().filter(is_here));
        let most = memory_max / REVOKED_BYTES;
        if self.revoked.len() > most.max(1) {
            let middle = self.revoked.iter().nth(self.revoked.len() / 2).copied();
            let rest = middle.into_iter().chain(self.share.rest).min();
            rest.into_iter().for_each(|rest| self.share.leave(rest));
        }
        if let Some(rest) = self.share.rest {
            drop(self.revoked.split_off(&rest));
        }
    }
}

/// One copy in the journal that a descriptor lists, as the scan goes along.
struct Scan<'a, 'b> {
    r: &'b Reader<'a>,
    shape: Shape,
    at: u32,
    /// The transaction that is read, or comes next.
    tid: Tid,
    scanned: u64,
    /// The blocks whose updates are kept: from the first on, below the second.
    from: BlockNo,
    below: BlockNo,
    /// Bytes of memory that one transaction may take.
    memory_max: usize,
    /// Of the transaction that is being read, where commits have such sums.
    sum: Option<OldSum>,
    /// When the last transaction was committed: what has an earlier time was there before.
    time: (u64, u32),
}

/// Why a scan ended at a block.
enum Step {
    Committed(Found),
    /// What was begun was never committed.
    End,
}

impl Replay {
    /// Reads the journal. Errors: `Corrupt` with the place, when a committed transaction is
    /// damaged; nothing must be replayed then.
    pub fn load(r: &Reader<'_>) -> Result<Replay, FormatError> {
        Replay::load_part(r, BlockNo(0), usize::MAX)
    }

    /// The same of the blocks from `from` on, as many as `memory_max` bytes are enough for, but at
    /// least one; [`Replay::rest`] tells where the others begin. What one transaction has of them
    /// comes on top, as much again at most (but for many parts of one block).
    pub fn load_part(
        r: &Reader<'_>,
        from: BlockNo,
        memory_max: usize,
    ) -> Result<Replay, FormatError> {
        let mut replay = Replay { next_tid: r.superblock.sequence, ..Replay::default() };
        if r.superblock.start == 0 {
            return Ok(replay);
        }
        let shape = Shape::of(&r.superblock)?;
        let at = r.superblock.start;
        let below = BlockNo(u64::MAX);
        let tid = Tid::first(r.superblock.sequence);
        let (scanned, sum, time) = (0, None, (0, 0));
        let mut scan = Scan { r, shape, at, tid, scanned, from, below, memory_max, sum, time };
        while let Step::Committed(f) = scan.transaction()? {
            replay.take(f);
            replay.share.shrink(memory_max);
            scan.below = replay.share.rest.unwrap_or(below);
            if scan.scanned > u64::from(r.superblock.blocks) {
                return Err(corrupt("it has no end", "the journal"));
            }
        }
        let Share { updates, memory, rest } = &replay.share;
        let all: usize = updates.values().map(|list| cost(list)).sum();
        assert_eq!(*memory, all, "updates take as much memory as was counted");
        let inside = |b: &BlockNo| *b >= from && rest.is_none_or(|rest| *b < rest);
        let ends = updates.first_key_value().into_iter().chain(updates.last_key_value());
        assert!(ends.map(|(b, _)| b).all(inside), "a part from {from} on has blocks of another");
        replay.blocks_scanned = scan.scanned;
        // The number of a transaction that was begun and not committed is never used again.
        replay.next_tid = scan.tid.next().on_disk();
        Ok(replay)
    }

    /// Adds a transaction: of each block what is newest, and nothing of those it revokes.
    fn take(&mut self, f: Found) {
        self.transactions += 1;
        f.share.rest.into_iter().for_each(|rest| self.share.leave(rest));
        for (block, list) in f.share.updates {
            list.into_iter().for_each(|update| self.share.add(block, update));
        }
        for block in f.revoked {
            self.revoked += self.share.remove(block).len() as u64;
        }
    }

    /// Where the next part begins; None: everything is here.
    pub fn rest(&self) -> Option<BlockNo> {
        self.share.rest
    }

    /// The blocks that it changes, in order.
    pub fn blocks(&self) -> impl Iterator<Item = BlockNo> + '_ {
        self.share.updates.keys().copied()
    }

    /// Does what is in place of the block matter? If not, it need not be read.
    pub fn needs_current(&self, block: BlockNo) -> bool {
        let first = self.share.updates.get(&block).and_then(|u| u.first());
        !first.is_some_and(Update::is_complete)
    }

    /// Makes of `bytes`, as they are in place, what they are to be.
    pub fn apply(&self, block: BlockNo, bytes: &mut [u8]) {
        for u in self.share.updates.get(&block).into_iter().flatten() {
            match u {
                Update::Whole(all) => bytes.copy_from_slice(all),
                Update::Part { offset, bytes: part, fresh } => {
                    if *fresh {
                        bytes.fill(0);
                    }
                    bytes[*offset..offset + part.len()].copy_from_slice(part);
                }
            }
        }
    }
}

fn corrupt(what: &str, at: impl Into<String>) -> FormatError {
    FormatError::corrupt(what, at)
}

impl Scan<'_, '_> {
    fn next(&mut self) -> Result<Vec<u8>, FormatError> {
        let block = (self.r.read)(self.at)?;
        self.at += 1;
        if self.at >= self.r.superblock.blocks {
            self.at = self.r.superblock.first;
        }
        self.scanned += 1;
        Ok(block)
    }

    fn keeps(&self, block: BlockNo) -> bool {
        (self.from..self.below).contains(&block)
    }

    fn place(&self, at: u32) -> String {
        format!("journal block {at}, transaction {}", self.tid)
    }

    /// Reads one transaction.
    fn transaction(&mut self) -> Result<Step, FormatError> {
        let tid = self.tid;
        let mut found = Found::default();
        let mut bad: Option<FormatError> = None;
        let begin = self.scanned;
        self.sum = self.r.superblock.old_sums.then(OldSum::default);
        loop {
            if self.scanned - begin > u64::from(self.r.superblock.blocks) {
                return Ok(Step::End);
            }
            let at = self.at;
            let block = self.next()?;
            let head = Head::decode(&block).filter(|h| h.tid == tid.on_disk());
            match head.map(|h| h.kind) {
                Some(Kind::Descriptor) => match self.descriptor(&block, tid, &mut bad) {
                    Ok(listed) => found.add(listed, Vec::new(), self.memory_max),
                    Err(e) => return self.is_damaged(&e, at),
                },
                Some(Kind::Revoke) => match self.shape.revoked(&block) {
                    Ok(mut list) => {
                        list.retain(|b| self.keeps(*b));
                        found.add(Vec::new(), list, self.memory_max);
                    }
                    Err(e) => return self.is_damaged(&e, at),
                },
                Some(Kind::Commit) => {
                    let Some(time) = self.shape.committed(&block) else {
                        let e = corrupt("a commit with a wrong checksum", self.place(at));
                        return self.is_it_the_end(e, self.ring());
                    };
                    if self.sum.is_some_and(|s| !s.agrees(&block)) {
                        let what = "a commit whose checksum is not that of its blocks";
                        bad.get_or_insert_with(|| corrupt(what, self.place(at)));
                    }
                    if let Some(e) = bad {
                        return self.after_commit(e);
                    }
                    (self.tid, self.time) = (tid.next(), time);
                    return Ok(Step::Committed(found));
                }
                _ => {
                    let e = corrupt("a block that is none of its", self.place(at));
                    // So many blocks may lie between one with a head and the next.
                    let gap = block.len() as u32 / TAG_BYTES_MIN;
                    return self.is_it_the_end(e, gap);
                }
            }
        }
    }

    /// The commit is there, what it commits is not. In the packed format all are written at once,
    /// and where commits may overtake what they commit as well, so that a crash can leave this of
    /// the last transaction; else it is damage.
    fn after_commit(&mut self, e: FormatError) -> Result<Step, FormatError> {
        let overtakes = self.r.superblock.incompat & incompat::ASYNC_COMMIT != 0;
        let at_once = self.shape.packed || overtakes && self.sum.is_some();
        let next = self.tid.next();
        if at_once && !self.has_commit(next..=next, self.ring()) {
            return Ok(Step::End);
        }
        Err(e)
    }

    /// A block of the transaction's own cannot be read.
    fn is_damaged(&mut self, e: &FormatError, at: u32) -> Result<Step, FormatError> {
        self.is_it_the_end(corrupt(&e.to_string(), self.place(at)), self.ring())
    }

    /// Something is not what it should be. If the transaction was never committed, a crash has
    /// ended the journal here. `gap`: see [`Scan::has_commit`].
    fn is_it_the_end(&mut self, e: FormatError, gap: u32) -> Result<Step, FormatError> {
        if self.shape.sums == format::jbd2::Sums::None {
            return Ok(Step::End); // anything may look like a commit
        }
        // Where all is written at once, or commits may overtake, its own proves nothing.
        let overtakes = self.r.superblock.incompat & incompat::ASYNC_COMMIT != 0;
        let next = self.tid.next();
        let first = if self.shape.packed || overtakes { next } else { self.tid };
        if self.has_commit(first..=next, gap) { Err(e) } else { Ok(Step::End) }
    }

    /// Blocks that transactions can have.
    fn ring(&self) -> u32 {
        self.r.superblock.blocks - self.r.superblock.first
    }

    /// Is there a commit of one of these transactions in what may be the rest of this one and its
    /// successor? That ends where no block with a head of theirs comes for more than `gap` blocks.
    fn has_commit(&self, of: RangeInclusive<Tid>, gap: u32) -> bool {
        let (first, ring) = (self.r.superblock.first, self.ring());
        let mut quiet = 0;
        for n in 0..ring {
            // What cannot be read shows nothing: it may lie behind the end.
            let block = (self.r.read)(first + (self.at - first + n) % ring).ok();
            let head = block.as_deref().and_then(Head::decode);
            let is_of = |tid: &Tid| head.is_some_and(|h| h.tid == tid.on_disk());
            quiet = if [self.tid, self.tid.next()].iter().any(is_of) { 0 } else { quiet + 1 };
            if quiet > gap {
                return false;
            }
            let is_commit = head.is_some_and(|h| h.kind == Kind::Commit);
            if !is_commit || ![*of.start(), *of.end()].iter().any(is_of) {
                continue;
            }
            // Where a head of this transaction's was right, the number is enough. Else these may be
            // blocks of an older file system, which the time tells.
            let time = block.as_deref().and_then(|b| self.shape.committed(b));
            if time.is_some_and(|t| t >= self.time || gap >= ring) {
                return true;
            }
        }
        false
    }

    /// Reads what a descriptor lists.
    fn descriptor(
        &mut self,
        block: &[u8],
        tid: Tid,
        bad: &mut Option<FormatError>,
    ) -> Result<Vec<(BlockNo, Update)>, FormatError> {
        if self.shape.packed {
            return self.pieces(block, tid, bad);
        }
        let mut all = Vec::new();
        self.add_to_sum(block);
        for tag in self.shape.tags(block)? {
            let at = self.at;
            let mut copy = self.next()?;
            self.add_to_sum(&copy);
            if self.shape.block_sum(tid.on_disk(), &copy) != tag.sum {
                let what = format!("the copy of block {} has a wrong checksum", tag.block);
                bad.get_or_insert_with(|| corrupt(&what, self.place(at)));
            }
            if tag.escaped {
                unescape(&mut copy);
            }
            self.check_target(tag.block, at, bad);
            if self.keeps(tag.block) {
                all.push((tag.block, Update::Whole(copy)));
            }
        }
        Ok(all)
    }

    fn add_to_sum(&mut self, block: &[u8]) {
        if let Some(sum) = &mut self.sum {
            sum.add(block);
        }
    }

    fn check_target(&self, block: BlockNo, at: u32, bad: &mut Option<FormatError>) {
        if block.0 >= self.r.volume_blocks {
            let what = format!("a copy of block {block}, which the volume does not have");
            bad.get_or_insert_with(|| corrupt(&what, self.place(at)));
        }
    }

    fn pieces(
        &mut self,
        block: &[u8],
        tid: Tid,
        bad: &mut Option<FormatError>,
    ) -> Result<Vec<(BlockNo, Update)>, FormatError> {
        let mut all = Vec::new();
        let (mut parts, mut from) = (Vec::new(), 0);
        for Piece { block, what, sum } in self.shape.pieces(block)? {
            let at = self.at;
            let update = match what {
                What::Whole { escaped } => {
                    let copy = self.next()?;
                    self.check_sum(&copy, (block, 0, sum), (tid, at), bad);
                    let mut copy = copy;
                    if escaped {
                        unescape(&mut copy);
                    }
                    Update::Whole(copy)
                }
                What::Part { offset, len, fresh, next_block } => {
                    if next_block {
                        parts = self.next()?;
                        from = MULTIWRITE_HEAD;
                    }
                    let Some(bytes) = parts.get(from..from + len).map(<[u8]>::to_vec) else {
                        return Err(corrupt("parts that leave their block", "a descriptor"));
                    };
                    from += len;
                    self.check_sum(&bytes, (block, offset, sum), (tid, at), bad);
                    Update::Part { offset, bytes, fresh }
                }
            };
            self.check_target(block, at, bad);
            if self.keeps(block) {
                all.push((block, update));
            }
        }
        Ok(all)
    }

    fn check_sum(
        &self,
        bytes: &[u8],
        (block, offset, sum): (BlockNo, usize, u32),
        (tid, at): (Tid, u32),
        bad: &mut Option<FormatError>,
    ) {
        if self.shape.piece_sum(tid.on_disk(), block, offset, bytes) != sum {
            let what = format!("the copy of block {block} has a wrong checksum");
            bad.get_or_insert_with(|| corrupt(&what, self.place(at)));
        }
    }
}
