//! Recovery: the entries of one client in their order, revoked ones dropped, the rest merged by
//! block and written home in the order of places; then the log is emptied. Until that is durable
//! the log is as it was, so a crash in the middle repeats it, to the same end.

use super::entry::{Item, decode};
use env::{Block, Disk, Durability};
use format::{BlockNo, FormatError};
use integrity::{IntegrityError, Plant};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use wal::{Client, LogError, Lsn};

/// Blocks in one transfer.
const RUN_MAX: usize = 256;

/// What the log says of one block.
struct Patch {
    bytes: Vec<u8>,
    /// The ranges of it that are said, sorted, apart.
    said: Vec<Range<usize>>,
}

impl Patch {
    fn new(block_bytes: usize) -> Patch {
        Patch { bytes: vec![0; block_bytes], said: Vec::new() }
    }

    fn say(&mut self, r: Range<usize>) {
        if r.is_empty() {
            return;
        }
        let (mut start, mut end) = (r.start, r.end);
        self.said.retain(|s| {
            let touches = s.start <= end && start <= s.end;
            if touches {
                (start, end) = (start.min(s.start), end.max(s.end));
            }
            !touches
        });
        let at = self.said.partition_point(|s| s.start < start);
        self.said.insert(at, start..end);
    }

    fn is_whole(&self) -> bool {
        self.said.first() == Some(&(0..self.bytes.len()))
    }

    fn apply(&self, bytes: &mut [u8]) {
        for r in &self.said {
            bytes[r.clone()].copy_from_slice(&self.bytes[r.clone()]);
        }
    }
}

/// What a log holds for one volume, in memory.
pub struct Replay {
    block_bytes: usize,
    patches: BTreeMap<BlockNo, Patch>,
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
    /// Blocks written home.
    pub blocks: u64,
    /// Transfers they were written in.
    pub writes: u64,
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
        let mut r = Replay { block_bytes, patches: BTreeMap::new(), entries: 0, items: 0 };
        let mut scan = client.scan(Lsn(0));
        let start = client.needs().unwrap_or_default().0;
        while let Some(e) = scan.next().await.map_err(log_error)? {
            r.add(&e.bytes)?;
            let (at, end) = scan.progress();
            progress(at.0.saturating_sub(start), end.0.saturating_sub(start));
        }
        Ok(r)
    }

    fn add(&mut self, entry: &[u8]) -> Result<(), IntegrityError> {
        self.entries += 1;
        let (patches, items, block_bytes) = (&mut self.patches, &mut self.items, self.block_bytes);
        decode(entry, block_bytes, |item| {
            *items += 1;
            match item {
                Item::Write(b, at, bytes) => {
                    let p = patches.entry(b).or_insert_with(|| Patch::new(block_bytes));
                    p.bytes[at..at + bytes.len()].copy_from_slice(bytes);
                    p.say(at..at + bytes.len());
                }
                Item::Zero(b, at, len) => {
                    let p = patches.entry(b).or_insert_with(|| Patch::new(block_bytes));
                    p.bytes[at..at + len].fill(0);
                    p.say(at..at + len);
                }
                Item::Revoke(e) => {
                    let gone: Vec<BlockNo> =
                        patches.range(e.start..e.start.plus(e.len)).map(|(b, _)| *b).collect();
                    gone.into_iter().for_each(|b| drop(patches.remove(&b)));
                }
            }
        })?;
        Ok(())
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

    /// Writes everything home; neighbours go in one transfer.
    async fn write_home(&self, disk: &Rc<dyn Disk>) -> Result<Replayed, IntegrityError> {
        let mut done = Replayed { entries: self.entries, items: self.items, ..Replayed::default() };
        let mut run: Vec<Block> = Vec::new();
        let mut next = BlockNo(0);
        for (b, p) in &self.patches {
            if !run.is_empty() && (*b != next || run.len() == RUN_MAX) {
                self.send(disk, next, std::mem::take(&mut run), &mut done).await?;
            }
            let mut block = Block::zeroed(self.block_bytes);
            if !p.is_whole() {
                let at = b.0 * self.block_bytes as u64;
                let read = disk.read(at, vec![block]).await?;
                block = read.into_iter().next().expect("one block was asked for");
            }
            p.apply(block.bytes_mut());
            run.push(block);
            next = b.plus(1);
        }
        if !run.is_empty() {
            self.send(disk, next, run, &mut done).await?;
        }
        Ok(done)
    }

    /// Writes a run of blocks that ends before `end`.
    async fn send(
        &self,
        disk: &Rc<dyn Disk>,
        end: BlockNo,
        run: Vec<Block>,
        done: &mut Replayed,
    ) -> Result<(), IntegrityError> {
        let first = end.0 - run.len() as u64;
        (done.blocks, done.writes) = (done.blocks + run.len() as u64, done.writes + 1);
        Ok(disk.write(first * self.block_bytes as u64, run, Durability::Cached).await?)
    }
}

/// Replays what the client's log holds onto the volume, makes it durable, and empties the log. The
/// disk was flushed, or only just opened; nobody else writes it.
pub async fn recover(
    disk: &Rc<dyn Disk>,
    client: &Client,
    block_bytes: usize,
    plant: Plant,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Replayed, IntegrityError> {
    disk.flush().await?;
    let replay = Replay::load(client, block_bytes, progress).await?;
    let done = replay.write_home(disk).await?;
    if !plant.is("emptied-before-home") {
        disk.flush().await?;
    }
    client.trim(client.end());
    client.log().persist().await.map_err(log_error)?;
    Ok(done)
}
