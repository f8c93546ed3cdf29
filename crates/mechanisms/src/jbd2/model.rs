//! The journal heads beside a naive twin: random transactions, writes and flushes, and after each
//! step the twin says which transactions' copies are needed, and what an image may hold.

use super::journal_heads::JournalHeads;
use super::transaction::Tid;
use crate::testing::{self, Writes};
use cache::{Buf, BufKind, FlushEpoch, Image};
use env::Rng;
use format::{BlockNo, Extent, Ino};
use integrity::Ended;
use std::collections::{BTreeMap, BTreeSet};

const BLOCKS: u64 = 6;

#[derive(Default)]
struct Block {
    /// The transactions that journaled it, and those whose copies are enough without older ones.
    journaled: Vec<(Tid, bool)>,
    writes: Writes<Tid>,
}

struct Life {
    rng: Rng,
    bufs: Vec<Buf>,
    heads: JournalHeads,
    running: Tid,
    joined: BTreeSet<u64>,
    freed: BTreeSet<u64>,
    /// The closed transaction: its blocks and what it freed.
    closed: Option<(Tid, BTreeSet<u64>, BTreeSet<u64>)>,
    committed: Tid,
    blocks: BTreeMap<u64, Block>,
    epoch: FlushEpoch,
}

impl Life {
    fn new(seed: u64) -> Life {
        let cache = testing::cache();
        let buf = |n| cache.get_new(BlockNo(n), BufKind::Meta, Ino(0));
        Life {
            rng: Rng::new(seed),
            bufs: (0..BLOCKS).map(buf).collect(),
            heads: JournalHeads::default(),
            running: Tid::first(1),
            joined: BTreeSet::new(),
            freed: BTreeSet::new(),
            closed: None,
            committed: Tid::first(0),
            blocks: (0..BLOCKS).map(|b| (b, Block::default())).collect(),
            epoch: FlushEpoch(1),
        }
    }

    /// The running transaction changes the block: it says so in its first bytes.
    fn change(&mut self, b: u64) {
        let busy = self.closed.as_ref().is_some_and(|c| c.2.contains(&b));
        if self.freed.contains(&b) || busy {
            return; // it may not be used again yet (J5)
        }
        let buf = &self.bufs[b as usize];
        buf.modify(|bytes| bytes[..8].copy_from_slice(&Ended::from(self.running).0.to_le_bytes()));
        if self.joined.insert(b) {
            self.heads.join(buf);
        }
    }

    fn free(&mut self, b: u64) {
        if self.freed.insert(b) {
            self.joined.remove(&b);
            self.heads.free(Extent { start: BlockNo(b), len: 1 });
        }
    }

    fn close(&mut self) {
        if self.closed.is_none() {
            let blocks = std::mem::take(&mut self.joined);
            for b in &blocks {
                let image = self.heads.freeze(BlockNo(*b));
                assert_eq!(number(image.bytes()), self.running, "frozen as it was left");
            }
            assert!(self.heads.is_closed(), "J3: a block is of two transactions");
            self.closed = Some((self.running, blocks, std::mem::take(&mut self.freed)));
            self.running = self.running.next();
        }
    }

    fn commit(&mut self) {
        let Some((tid, blocks, freed)) = self.closed.take() else { return };
        for b in blocks {
            let whole = self.rng.one_in(2);
            self.heads.committed(BlockNo(b), tid, whole);
            self.blocks.get_mut(&b).unwrap().journaled.push((tid, whole));
        }
        for b in freed {
            self.heads.freed_durably(Extent { start: BlockNo(b), len: 1 });
            self.blocks.get_mut(&b).unwrap().writes.freed(tid);
        }
        self.committed = tid;
    }

    fn write(&mut self, b: u64) {
        let block = self.blocks.get_mut(&b).unwrap();
        let buf = &self.bufs[b as usize];
        let freed =
            self.freed.contains(&b) || self.closed.as_ref().is_some_and(|c| c.2.contains(&b));
        // What is freed is clean in memory; it is written only if the journal is to be trimmed.
        if !block.writes.is_idle() || freed && !self.heads.has(BlockNo(b)) {
            return;
        }
        let image = match self.heads.before_write(buf) {
            Image::NotYet => return,
            Image::AsIs => buf.image(),
            Image::Instead(image) => image,
        };
        let newest = number(image.bytes());
        let upto = self.committed;
        assert!(newest <= upto, "J1: block {b} goes with {newest}, {upto} is committed");
        block.writes.begin(newest);
    }

    fn end_write(&mut self, b: u64) {
        let block = self.blocks.get_mut(&b).unwrap();
        let (ok, epoch) = (!self.rng.one_in(5), self.epoch);
        if block.writes.end(ok, epoch) {
            self.heads.after_write(BlockNo(b), ok, epoch);
        }
    }

    fn flush(&mut self) {
        let epoch = self.epoch.next();
        self.epoch = epoch;
        self.heads.flushed(epoch);
        self.blocks.values_mut().for_each(|b| b.writes.flushed(epoch));
    }

    /// The journal is kept from the oldest copy on that is not durable in place (J4).
    fn check(&self) {
        let oldest = self.heads.oldest();
        for (b, block) in &self.blocks {
            let needed = block.journaled.iter().filter(|j| j.0 > block.writes.in_place);
            let whole = needed.clone().rfind(|j| j.1).map_or(Tid::NONE, |j| j.0);
            if let Some((from, _)) = needed.clone().find(|j| j.0 >= whole) {
                let kept = oldest.is_some_and(|o| o <= *from);
                assert!(kept, "J4: block {b} needs {from}, and {oldest:?} is the oldest");
            }
        }
    }

    fn step(&mut self) {
        let b = self.rng.below(BLOCKS);
        match self.rng.below(16) {
            0..=5 => self.change(b),
            6 => self.free(b),
            7 | 8 => self.close(),
            9 | 10 => self.commit(),
            11 | 12 => self.write(b),
            13 | 14 => self.end_write(b),
            _ => self.flush(),
        }
        self.heads.check();
        self.check();
    }

    fn finish(&mut self) {
        for _ in 0..2 {
            self.commit();
            self.close();
        }
        self.commit();
        for _ in 0..64 {
            for b in 0..BLOCKS {
                self.end_write(b);
                self.write(b);
            }
            self.flush();
            self.check();
        }
        assert!(self.heads.is_empty(), "J4: a block needs the journal for ever");
    }
}

fn number(bytes: &[u8]) -> Tid {
    Ended(u64::from_le_bytes(bytes[..8].try_into().unwrap())).into()
}

#[test]
fn the_journal_is_kept_from_the_first_copy_that_a_block_needs() {
    for seed in 0..60 {
        let mut life = Life::new(seed);
        (0..600).for_each(|_| life.step());
        life.finish();
    }
}
