//! Recovery: the entries of one client in their order, revoked ones dropped, the rest merged by
//! block and written back in the order of places; then the log is emptied. Until that is durable
//! the log is as it was, so a crash in the middle repeats it, to the same end.
//!
//! Where memory is not enough for all that is said, it goes in passes: each reads the whole log,
//! and keeps and writes back what concerns the next share of the volume's blocks. (A share of the
//! log instead would not do: what it says of a block may be revoked by the next share.)

use super::entry::{Item, decode};
use super::patch::Patch;
use env::{Block, Disk, Durability};
use format::{BlockNo, Extent, FormatError};
use integrity::{IntegrityError, Plant};
use std::collections::BTreeMap;
use std::rc::Rc;
use wal::{Client, LogError, Lsn};

/// Blocks in one transfer.
const RUN_MAX: usize = 256;

/// What a log holds for one volume, in memory.
pub struct Replay {
    block_bytes: usize,
    patches: BTreeMap<BlockNo, Patch>,
    /// The blocks that it is about: from the first on, below the second.
    from: BlockNo,
    below: BlockNo,
    /// Bytes of memory that the patches take, and may take.
    memory: usize,
    memory_max: usize,
    /// Entries read, and the items in them.
    entries: u64,
    items: u64,
}

/// What recovery did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Replayed {
    /// Entries in the log.
    pub entries: u64,
    /// Items in them.
    pub items: u64,
    /// Blocks written back.
    pub blocks: u64,
    /// Transfers they were written in.
    pub writes: u64,
    /// How often the log was read.
    pub passes: u64,
}

fn log_error(e: LogError) -> IntegrityError {
    match e {
        LogError::Disk(e) => e.into(),
        other => FormatError::corrupt(other.to_string(), "the log").into(),
    }
}

impl Replay {
    /// Reads what the client's log holds. `progress` is called with how far it is, of how far.
    pub async fn load(
        client: &Client,
        block_bytes: usize,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Replay, IntegrityError> {
        Replay::pass(client, block_bytes, (BlockNo(0), usize::MAX), progress).await
    }

    /// Reads what it holds of the blocks from `from` on, as many as `memory_max` is enough for, but
    /// at least one.
    async fn pass(
        client: &Client,
        block_bytes: usize,
        (from, memory_max): (BlockNo, usize),
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Replay, IntegrityError> {
        let mut r = Replay::empty(block_bytes, (from, memory_max));
        let mut scan = client.scan(Lsn(0));
        let start = client.needs().unwrap_or_default().0;
        while let Some(e) = scan.next().await.map_err(log_error)? {
            r.add(&e.bytes)?;
            r.shrink();
            let (at, end) = scan.progress();
            progress(at.0.saturating_sub(start), end.0.saturating_sub(start));
        }
        let memory: usize = r.patches.values().map(Patch::cost).sum();
        assert_eq!(r.memory, memory, "a replay's patches take as much memory as was counted");
        Ok(r)
    }

    /// What these entries say when they are merged: for figures about a log that is looked at only.
    pub fn of<'a>(
        entries: impl IntoIterator<Item = &'a [u8]>,
        block_bytes: usize,
    ) -> Result<Replay, IntegrityError> {
        let mut r = Replay::empty(block_bytes, (BlockNo(0), usize::MAX));
        entries.into_iter().try_for_each(|e| r.add(e))?;
        Ok(r)
    }

    /// How many items it was made of.
    pub fn items(&self) -> u64 {
        self.items
    }

    fn empty(block_bytes: usize, (from, memory_max): (BlockNo, usize)) -> Replay {
        let below = BlockNo(u64::MAX);
        let (patches, memory, entries, items) = (BTreeMap::new(), 0, 0, 0);
        Replay { block_bytes, patches, from, below, memory, memory_max, entries, items }
    }

    fn add(&mut self, entry: &[u8]) -> Result<(), IntegrityError> {
        self.entries += 1;
        decode(entry, self.block_bytes, |item| {
            self.items += 1;
            match item {
                Item::Write(b, at, bytes) => self.say(b, |p| p.write(at, bytes)),
                Item::Zero(b, at, len) => self.say(b, |p| p.zero(at, len)),
                Item::Revoke(e) => self.revoke(e),
            }
        })?;
        Ok(())
    }

    fn say(&mut self, b: BlockNo, f: impl FnOnce(&mut Patch)) {
        if (self.from..self.below).contains(&b) {
            let known = self.patches.contains_key(&b);
            let p = self.patches.entry(b).or_default();
            let before = if known { p.cost() } else { 0 };
            assert!(self.memory >= before, "block {b} takes more memory than all blocks");
            f(p);
            self.memory = self.memory + p.cost() - before;
        }
    }

    fn revoke(&mut self, e: Extent) {
        let range = self.patches.range(e.start..e.start.plus(e.len));
        let gone: Vec<BlockNo> = range.map(|(b, _)| *b).collect();
        for b in gone {
            let cost = self.patches.remove(&b).map_or(0, |p| p.cost());
            assert!(self.memory >= cost, "block {b} takes more memory than all blocks");
            self.memory -= cost;
        }
        let left = self.patches.range(e.start..e.start.plus(e.len)).next();
        assert!(left.is_none(), "I6: something older would be replayed onto {}", e.start);
    }

    /// Leaves the last blocks to the next pass if there is too much of them.
    fn shrink(&mut self) {
        if self.memory <= self.memory_max {
            return;
        }
        // By half, so that this is not done again at the next entry.
        while self.memory > self.memory_max / 2 && self.patches.len() > 1 {
            let Some((b, p)) = self.patches.pop_last() else { return };
            self.memory -= p.cost();
            assert!(self.from < b && b < self.below, "a pass from {} goes up to {b}", self.from);
            self.below = b;
        }
    }

    /// The blocks it says something of.
    pub fn blocks(&self) -> impl Iterator<Item = BlockNo> {
        self.patches.keys().copied()
    }

    /// Does it say nothing?
    pub fn is_empty(&self) -> bool {
        self.patches.is_empty()
    }

    /// Brings the bytes of a block up to date, for who only reads.
    pub fn apply(&self, block: BlockNo, bytes: &mut [u8]) {
        if let Some(p) = self.patches.get(&block) {
            p.apply(bytes);
        }
    }

    /// Writes everything back; neighbours go in one transfer.
    async fn write_back(&self, disk: &Rc<dyn Disk>) -> Result<Replayed, IntegrityError> {
        let mut done = Replayed { entries: self.entries, items: self.items, ..Replayed::default() };
        let mut run: Vec<(BlockNo, &Patch)> = Vec::new();
        for (b, p) in &self.patches {
            let follows = run.last().is_none_or(|(last, _)| last.plus(1) == *b);
            if !follows || run.len() == RUN_MAX {
                self.send(disk, &std::mem::take(&mut run), &mut done).await?;
            }
            run.push((*b, p));
        }
        if !run.is_empty() {
            self.send(disk, &run, &mut done).await?;
        }
        let (wrote, said) = (done.blocks, self.patches.len() as u64);
        assert_eq!(wrote, said, "I4: the log has {said} blocks, and {wrote} were written");
        Ok(done)
    }

    /// Writes a run of neighbouring blocks.
    async fn send(
        &self,
        disk: &Rc<dyn Disk>,
        run: &[(BlockNo, &Patch)],
        done: &mut Replayed,
    ) -> Result<(), IntegrityError> {
        let (first, last) = (run[0].0, run[run.len() - 1].0);
        let (from, below) = (self.from, self.below);
        assert!(from <= first && last < below, "{first} to {last} are of another pass");
        assert_eq!(last, first.plus(run.len() as u64 - 1), "a transfer of blocks that are apart");
        let at = first.0 * self.block_bytes as u64;
        let mut blocks: Vec<Block> = run.iter().map(|_| Block::zeroed(self.block_bytes)).collect();
        if run.iter().any(|(_, p)| !p.is_whole(self.block_bytes)) {
            blocks = disk.read(at, blocks).await?;
        }
        assert_eq!(blocks.len(), run.len(), "I4: what is said of some blocks would be left out");
        for (block, (_, p)) in blocks.iter_mut().zip(run) {
            p.apply(block.bytes_mut());
        }
        (done.blocks, done.writes) = (done.blocks + run.len() as u64, done.writes + 1);
        Ok(disk.write(at, blocks, Durability::Cached).await?)
    }
}

/// Replays what the client's log holds onto the volume, makes it durable, and empties the log. The
/// disk was flushed, or only just opened; nobody else writes it. What is to be written back takes
/// no more than `memory_max` bytes at a time.
pub async fn recover(
    disk: &Rc<dyn Disk>,
    client: &Client,
    (block_bytes, memory_max): (usize, usize),
    plant: Plant,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Replayed, IntegrityError> {
    disk.flush().await?;
    let mut done = Replayed::default();
    let mut from = BlockNo(0);
    while from.0 < u64::MAX {
        let pass = Replay::pass(client, block_bytes, (from, memory_max), progress).await?;
        let did = pass.write_back(disk).await?;
        (done.entries, done.items) = (did.entries, did.items);
        done.blocks += did.blocks;
        done.writes += did.writes;
        done.passes += 1;
        assert!(from < pass.below, "a pass of the replay does nothing at block {from}");
        from = pass.below;
    }
    if !plant.is("emptied-before-home") {
        disk.flush().await?;
    }
    client.trim(client.end());
    let needs = client.needs();
    assert!(needs.is_none(), "I5: what was replayed is needed from {needs:?} on");
    client.log().persist_last().await.map_err(log_error)?;
    Ok(done)
}
