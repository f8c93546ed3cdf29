//! The records beside a naive twin: random transactions, images, writes and flushes, and after each
//! step the twin says which edits an image has and which transactions are durable. The twin keeps
//! every edit that ever was and looks through all of them.

use super::phase::PHASES;
use super::records::Records;
use crate::testing;
use cache::{Buf, BufKind, FlushEpoch, Image};
use env::Rng;
use format::{BlockNo, Ino};
use integrity::{Before, Change, Edit, TxnId};
use std::collections::BTreeSet;

const BLOCKS: u64 = 3;

#[derive(Clone, Copy, PartialEq)]
enum State {
    Pending,
    Captured,
    Written(FlushEpoch),
    /// Or needs no order any more.
    Durable,
}

struct Known {
    txn: TxnId,
    phase: usize,
    block: u64,
    at: usize,
    state: State,
}

struct Life {
    rng: Rng,
    bufs: Vec<Buf>,
    records: Records,
    edits: Vec<Known>,
    open: Vec<TxnId>,
    ended: BTreeSet<TxnId>,
    told: BTreeSet<TxnId>,
    writing: [bool; BLOCKS as usize],
    last: TxnId,
    epoch: FlushEpoch,
}

impl Life {
    fn new(seed: u64) -> Life {
        let cache = testing::cache();
        let buf = |n| cache.get_new(BlockNo(n), BufKind::Meta, Ino(0));
        Life {
            rng: Rng::new(seed),
            bufs: (0..BLOCKS).map(buf).collect(),
            records: Records::new(),
            edits: Vec::new(),
            open: Vec::new(),
            ended: BTreeSet::new(),
            told: BTreeSet::new(),
            writing: [false; BLOCKS as usize],
            last: TxnId::NONE,
            epoch: FlushEpoch(1),
        }
    }

    /// An open transaction, or a new one, changes four bytes that nobody else changes.
    fn edit(&mut self) {
        if self.open.is_empty() || self.open.len() < 4 && self.rng.one_in(3) {
            self.last = self.last.next();
            self.open.push(self.last);
        }
        let txn = self.open[self.rng.below(self.open.len() as u64) as usize];
        let (block, phase) = (self.rng.below(BLOCKS), self.rng.below(PHASES as u64) as usize);
        let at = 4 * self.edits.iter().filter(|e| e.block == block).count();
        if at >= testing::BLOCK {
            return;
        }
        let buf = self.bufs[block as usize].clone();
        let before = Some(Before::from(&buf.bytes()[at..at + 4]));
        buf.modify(|bytes| bytes[at..at + 4].fill(1));
        let edit = Edit { buf, range: at..at + 4, before, change: Change::Attr(Ino(1)) };
        self.records.add(txn, phase, &edit);
        self.edits.push(Known { txn, phase, block, at, state: State::Pending });
    }

    fn end(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let txn = self.open.swap_remove(self.rng.below(self.open.len() as u64) as usize);
        let waits = self.rng.one_in(2);
        self.records.end(txn, waits);
        self.ended.insert(txn);
        let own = self.edits.iter().filter(|e| e.txn == txn);
        let phases: BTreeSet<usize> = own.map(|e| e.phase).collect();
        if !waits && phases.len() == 1 {
            let own = self.edits.iter_mut().filter(|e| e.txn == txn);
            own.for_each(|e| e.state = State::Durable);
        }
    }

    /// Have all edits of lower phases of its transaction become durable?
    fn is_ready(&self, e: &Known) -> bool {
        let before = |o: &&Known| o.txn == e.txn && o.phase < e.phase;
        let mut before = self.edits.iter().filter(before);
        self.ended.contains(&e.txn) && before.all(|o| o.state == State::Durable)
    }

    fn capture(&mut self, block: u64) {
        if std::mem::replace(&mut self.writing[block as usize], true) {
            return;
        }
        let buf = &self.bufs[block as usize];
        let image = match self.records.capture(buf) {
            Image::AsIs => buf.image(),
            Image::Instead(image) => image,
            Image::NotYet => panic!("an image can always be rendered"),
        };
        for n in 0..self.edits.len() {
            let e = &self.edits[n];
            if e.block != block {
                continue;
            }
            let shown = e.state != State::Pending || self.is_ready(e);
            let has = image.bytes()[e.at] == 1;
            assert_eq!(has, shown, "I1: phase {} of {} in block {block}", e.phase, e.txn);
            if shown && e.state == State::Pending {
                self.edits[n].state = State::Captured;
            }
        }
    }

    fn end_write(&mut self, block: u64) {
        if !std::mem::replace(&mut self.writing[block as usize], false) {
            return;
        }
        let ok = !self.rng.one_in(5);
        self.records.written(BlockNo(block), ok, self.epoch);
        let to = if ok { State::Written(self.epoch) } else { State::Pending };
        let own = self.edits.iter_mut().filter(|e| e.block == block);
        own.filter(|e| e.state == State::Captured).for_each(|e| e.state = to);
    }

    fn flush(&mut self) {
        self.epoch = self.epoch.next();
        self.records.flushed(self.epoch);
        for e in &mut self.edits {
            if matches!(e.state, State::Written(epoch) if epoch < self.epoch) {
                e.state = State::Durable;
            }
        }
    }

    fn check(&mut self) {
        self.records.check();
        self.told.extend(self.records.take_durable_txns());
        let left = |txn: &TxnId| {
            let mut own = self.edits.iter().filter(|e| e.txn == *txn);
            own.any(|e| e.state != State::Durable)
        };
        let durable: BTreeSet<TxnId> = self.ended.iter().filter(|t| !left(t)).copied().collect();
        assert_eq!(self.told, durable, "I2: which transactions are durable");
    }

    fn step(&mut self) {
        let block = self.rng.below(BLOCKS);
        match self.rng.below(12) {
            0..=4 => self.edit(),
            5 | 6 => self.end(),
            7 | 8 => self.capture(block),
            9 | 10 => self.end_write(block),
            _ => self.flush(),
        }
        self.check();
    }

    fn finish(&mut self) {
        while !self.open.is_empty() {
            self.end();
        }
        for _ in 0..64 {
            for block in 0..BLOCKS {
                self.end_write(block);
                self.capture(block);
            }
            self.flush();
            self.check();
        }
        self.records.check_empty();
    }
}

#[test]
fn edits_become_durable_phase_by_phase() {
    for seed in 0..60 {
        let mut life = Life::new(seed);
        (0..400).for_each(|_| life.step());
        life.finish();
    }
}
