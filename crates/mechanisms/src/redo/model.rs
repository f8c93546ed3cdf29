//! The dirty page table and the queue beside naive twins: random steps, and after each of them the
//! twin says what must hold. A twin keeps everything that ever happened and looks through it.

use super::dirty_pages::DirtyPages;
use super::entry::EntryBuf;
use super::open::{Open, Ranges, TxnIds};
use super::queue::{Batch, Ordered, Queue, Waits};
use super::serials::{Serial, Serials};
use crate::busy_extents::BusyExtents;
use crate::record::ByteRanges;
use crate::testing::{self, Writes};
use cache::{Buf, BufKind, FlushEpoch, Image};
use env::Rng;
use format::{BlockNo, Extent, Ino};
use integrity::TxnId;
use std::collections::{BTreeMap, BTreeSet};
use wal::Lsn;

const BLOCKS: u64 = 6;

/// What has happened to one block.
#[derive(Default)]
struct Block {
    /// Operations that have changed it and have not ended.
    open: BTreeSet<TxnId>,
    /// Those that have ended.
    ended: Vec<Serial>,
    writes: Writes<Serial>,
}

/// A life of the table: operations, appends, writes, flushes.
struct Life {
    rng: Rng,
    bufs: Vec<Buf>,
    pages: DirtyPages,
    serials: Serials,
    /// Where each serial's entry lies, and the blocks it changes, once it has ended.
    entries: BTreeMap<Serial, (Option<Lsn>, Vec<u64>)>,
    open: BTreeMap<TxnId, Vec<u64>>,
    blocks: BTreeMap<u64, Block>,
    /// The newest entry's.
    lsn: Lsn,
    durable_lsn: Lsn,
    epoch: FlushEpoch,
    last: TxnId,
}

impl Life {
    fn new(seed: u64) -> Life {
        let cache = testing::cache();
        let buf = |n| cache.get_new(BlockNo(n), BufKind::Meta, Ino(0));
        Life {
            rng: Rng::new(seed),
            bufs: (0..BLOCKS).map(buf).collect(),
            pages: DirtyPages::default(),
            serials: Serials::default(),
            entries: BTreeMap::new(),
            open: BTreeMap::new(),
            blocks: (0..BLOCKS).map(|b| (b, Block::default())).collect(),
            lsn: Lsn(100),
            durable_lsn: Lsn(0),
            epoch: FlushEpoch(1),
            last: TxnId::NONE,
        }
    }

    /// The block in memory says which of its operations is the newest, and how many are open.
    fn refresh(&self, b: u64) {
        let block = &self.blocks[&b];
        let newest = block.ended.last().map_or(0, |s| s.0);
        self.bufs[b as usize].modify(|bytes| {
            bytes[..8].copy_from_slice(&newest.to_le_bytes());
            bytes[8] = block.open.len() as u8;
        });
    }

    fn begin(&mut self) {
        let blocks = (0..1 + self.rng.below(3)).map(|_| self.rng.below(BLOCKS)).collect();
        self.begin_on(blocks);
    }

    fn begin_on(&mut self, blocks: BTreeSet<u64>) {
        self.last = self.last.next();
        for b in &blocks {
            self.blocks.get_mut(b).unwrap().open.insert(self.last);
            self.refresh(*b);
        }
        self.open.insert(self.last, blocks.into_iter().collect());
    }

    fn end(&mut self) {
        let Some((_, blocks)) = self.open.pop_first() else { return };
        let id = self.blocks[&blocks[0]].open.first().copied().unwrap();
        let serial = self.serials.give();
        for b in &blocks {
            let block = self.blocks.get_mut(b).unwrap();
            block.open.remove(&id);
            block.ended.push(serial);
            self.refresh(*b);
            let open = !self.blocks[b].open.is_empty();
            self.pages.ended(&self.bufs[*b as usize], serial, open);
        }
        self.entries.insert(serial, (None, blocks));
    }

    /// Appends the next entry, unless a block of it has an open operation's bytes.
    fn append(&mut self) {
        let next = self.serials.newest_appended().next();
        let Some((at, blocks)) = self.entries.get_mut(&next) else { return };
        self.lsn.0 += 1 + self.rng.below(50);
        *at = Some(self.lsn);
        self.serials.appended(next, self.lsn);
        blocks.iter().for_each(|b| self.pages.appended(BlockNo(*b), self.lsn));
    }

    fn make_durable(&mut self) {
        self.durable_lsn = Lsn(self.lsn.0.saturating_sub(self.rng.below(60)));
        let upto = self.durable_lsn;
        while self.serials.advance(|lsn| lsn <= upto).is_some() {}
    }

    fn write(&mut self, b: u64) {
        let block = self.blocks.get_mut(&b).unwrap();
        if !block.writes.is_idle() {
            return;
        }
        let buf = &self.bufs[b as usize];
        let open = !block.open.is_empty();
        let image = match self.pages.before_write(buf, open, self.serials.durable()) {
            Image::NotYet => return,
            Image::AsIs => buf.image(),
            Image::Instead(image) => image,
        };
        let bytes = image.bytes();
        let newest = Serial(u64::from_le_bytes(bytes[..8].try_into().unwrap()));
        assert_eq!(bytes[8], 0, "I1: block {b} goes with an open operation's bytes");
        assert!(newest <= self.serials.durable(), "I1: block {b} goes before {newest:?}");
        block.writes.begin(newest);
    }

    fn end_write(&mut self, b: u64) {
        let ok = !self.rng.one_in(5);
        self.end_write_as(b, ok);
    }

    fn end_write_as(&mut self, b: u64, ok: bool) {
        let (block, epoch) = (self.blocks.get_mut(&b).unwrap(), self.epoch);
        if block.writes.end(ok, epoch) {
            self.pages.after_write(BlockNo(b), ok, epoch);
        }
    }

    fn flush(&mut self) {
        let epoch = self.epoch.next();
        self.epoch = epoch;
        self.pages.flushed(epoch, |n| self.serials.after(n));
        self.blocks.values_mut().for_each(|b| b.writes.flushed(epoch));
        // As the mechanism trims.
        self.serials.forget_below(self.pages.oldest_rec_lsn().unwrap_or(Lsn(self.lsn.0 + 1)));
    }

    fn want(&mut self, b: u64) {
        self.pages.want(&self.bufs[b as usize], !self.blocks[&b].open.is_empty());
    }

    /// The next entry goes into the log, and is durable.
    fn append_durably(&mut self) {
        self.append();
        self.durable_lsn = self.lsn;
        while self.serials.advance(|lsn| lsn <= self.durable_lsn).is_some() {}
    }

    /// A durable operation has freed the block, if none that is newer has changed it.
    fn free(&mut self, b: u64) {
        let durable = self.serials.durable();
        let block = self.blocks.get_mut(&b).unwrap();
        if block.open.is_empty() && block.writes.is_idle() {
            let start = BlockNo(b);
            self.pages.freed(Extent { start, len: 1 }, durable);
            if block.ended.last().is_some_and(|s| *s <= durable) {
                block.writes.freed(durable);
            }
        }
    }

    /// Whatever is not durable in place is in the log from the oldest recLSN on (I4, I5).
    fn check(&self) {
        let oldest = self.pages.oldest_rec_lsn();
        for (b, block) in &self.blocks {
            let needed = block.ended.iter().filter(|s| **s > block.writes.in_place);
            let from = needed.filter_map(|s| self.entries[s].0).min();
            if let Some(from) = from {
                let kept = oldest.is_some_and(|o| o <= from);
                assert!(kept, "I5: block {b} needs {from}, and {oldest:?} is the oldest");
            }
        }
    }

    fn step(&mut self) {
        let b = self.rng.below(BLOCKS);
        match self.rng.below(22) {
            0..=3 if self.open.len() < 3 => self.begin(),
            0..=7 => self.end(),
            8..=10 => self.append(),
            11 | 12 => self.make_durable(),
            13 | 14 => self.write(b),
            15 | 16 => self.end_write(b),
            17 => self.flush(),
            18 => self.free(b),
            _ => self.want(b),
        }
        self.pages.check();
        self.check();
    }

    /// Everything ends, and then the log is needed for nothing.
    fn finish(&mut self) {
        while !self.open.is_empty() {
            self.end();
        }
        (0..self.entries.len()).for_each(|_| self.append());
        while self.serials.durable() < self.serials.given() {
            self.make_durable();
        }
        for _ in 0..64 {
            for b in 0..BLOCKS {
                self.end_write(b);
                self.write(b);
            }
            self.flush();
            self.check();
        }
        assert!(self.pages.is_empty(), "I4: a block needs the log for ever");
    }
}

#[test]
fn the_log_is_kept_from_the_first_entry_that_a_block_needs() {
    for seed in 0..60 {
        let mut life = Life::new(seed);
        (0..600).for_each(|_| life.step());
        life.finish();
    }
}

/// A block is wanted while it is on its way: no second image of what is in that is taken. It would
/// be written after the block needs a later entry, and ask for the log from before that.
#[test]
fn a_block_that_is_wanted_while_it_is_written_is_not_written_twice() {
    let mut life = Life::new(1);
    life.begin_on([0].into());
    life.end();
    life.append_durably();
    life.write(0);
    life.want(0);
    life.begin_on([1].into());
    life.begin_on([0].into()); // in the middle of a slow read from here on
    life.end();
    life.append_durably();
    life.end_write_as(0, true);
    life.write(0);
    life.flush();
    life.end();
    life.append_durably();
    life.end_write_as(0, true);
    life.flush();
    life.check();
    life.finish();
}

/// An operation's ordered data, each with whether it is durable, or which operation took it over.
#[derive(Default)]
struct Wait {
    blocks: BTreeMap<u64, (bool, Option<Serial>)>,
}

#[test]
fn an_entry_leaves_the_queue_with_what_it_waits_for() {
    let (_engine, client) = testing::client();
    let cache = testing::cache();
    let (open, busy) = (Open::default(), BusyExtents::default());
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let (mut queue, mut waits) = (Queue::default(), BTreeMap::<Serial, Wait>::new());
        let (mut given, mut popped) = (Serial::NONE, Serial::NONE);
        for _ in 0..300 {
            match rng.below(5) {
                0..=2 => {
                    given = given.next();
                    let blocks: BTreeSet<u64> = (0..rng.below(4)).map(|_| rng.below(8)).collect();
                    let over: BTreeSet<u64> = (0..rng.below(3)).map(|_| rng.below(8)).collect();
                    let own = blocks.difference(&over).copied();
                    let buf = |b| cache.get_new(BlockNo(b), BufKind::Data, Ino(9));
                    let ordered: Vec<Buf> = own.map(buf).collect();
                    let wait = ordered.iter().map(|b| (b.block().0, (false, None)));
                    waits.insert(given, Wait { blocks: wait.collect() });
                    queue.push(batch(given, ordered, &client), rng.one_in(5));
                    queue.take_ordered_over(&over);
                    for (_, w) in waits.iter_mut().filter(|(s, _)| **s > popped) {
                        let taken = w.blocks.iter_mut().filter(|(b, _)| over.contains(b));
                        for (_, state) in taken.filter(|(_, (durable, _))| !durable) {
                            state.1.get_or_insert(given);
                        }
                    }
                }
                3 => {
                    let (bufs, upto) = queue.ordered_up_to(given, (&open, &busy));
                    queue.data_durable(upto);
                    let sent: BTreeSet<u64> = bufs.iter().map(|b| b.block().0).collect();
                    for (_, w) in waits.range_mut(..=upto) {
                        let sent = w.blocks.iter_mut().filter(|(b, _)| sent.contains(b));
                        sent.for_each(|(_, state)| state.0 = true);
                    }
                }
                _ => {
                    let Some(b) = queue.pop((&open, &busy)) else { continue };
                    assert_eq!(b.first, popped.next(), "I2: in the order of their ends");
                    for serial in Serial::all(b.first, b.serial) {
                        for (block, (durable, over)) in &waits[&serial].blocks {
                            let with = over.is_some_and(|o| o <= b.serial);
                            assert!(*durable || with, "I9, I10: {serial:?} without block {block}");
                        }
                    }
                    popped = b.serial;
                }
            }
            let waiting: BTreeSet<u64> = (0..8).filter(|b| queue.is_ordered(BlockNo(*b))).collect();
            assert_eq!(waiting.len(), queue.ordered_blocks());
            queue.check();
        }
    }
}

/// Contents of a block that an open operation has freed are neither written nor counted as written:
/// their entry waits for that operation, and for no other one.
#[test]
fn what_an_open_operation_has_freed_is_not_counted_as_durable() {
    let (_engine, client) = testing::client();
    let cache = testing::cache();
    let buf = |b| cache.get_new(BlockNo(b), BufKind::Data, Ino(9));
    let (mut queue, mut open) = (Queue::default(), Open::default());
    let mut busy = BusyExtents::default();
    open.begin(TxnId(1), client.try_reserve(8).expect("the log has room for these"), true);
    let first = Serial::NONE.next();
    queue.push(batch(first, vec![buf(3)], &client), false);
    queue.push(batch(first.next(), vec![buf(4)], &client), false);
    busy.add_blocks(TxnId(1), Extent { start: BlockNo(4), len: 2 });
    let (bufs, upto) = queue.ordered_up_to(first.next(), (&open, &busy));
    assert_eq!((bufs.len(), upto), (1, first), "what is freed is left to whoever frees it");
    queue.data_durable(upto);
    assert!(queue.pop((&open, &busy)).is_some_and(|b| b.serial == first));
    assert!(queue.pop((&open, &busy)).is_none(), "I9: its contents are nowhere");
    assert_eq!(queue.waits((&open, &busy)), Waits::ForOpen);
    open.end(TxnId(1));
    // It stays held until that is durable, which may be by this very entry.
    assert_eq!(queue.waits((&open, &busy)), Waits::ForData);
    busy.release(TxnId(1));
    assert_eq!(queue.waits((&open, &busy)), Waits::ForData);
}

/// Whether open operations have changed bytes of an entry, asked of few blocks among many and of
/// many among few; and an entry that takes in the same bytes again and again stays short.
#[test]
fn what_an_entry_shares_with_open_operations_is_found_from_either_side() {
    let (_engine, client) = testing::client();
    let mut found = [0, 0];
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let mut open = Open::default();
        open.begin(TxnId(1), client.try_reserve(8).expect("the log has room for these"), true);
        let mut changed = Vec::new();
        for _ in 0..rng.below(4) {
            let (block, at) = (rng.below(12), 4 * rng.below(10) as usize);
            open.edit(TxnId(1), BlockNo(block), at..at + 4);
            changed.push((block, at..at + 4));
        }
        let mut whole = batch(Serial::NONE.next(), Vec::new(), &client);
        for _ in 0..rng.below(40) {
            let mut later = batch(whole.serial.next(), Vec::new(), &client);
            let (block, at) = (rng.below(12), 4 * rng.below(10) as usize);
            later.ranges.insert(BlockNo(block), [at..at + 4, 600..604].into_iter().collect());
            whole.join(later);
        }
        let said = |b: u64, at: usize| {
            let list = whole.ranges.get(&BlockNo(b));
            list.is_some_and(|l| l.iter().any(|r| r.contains(&at)))
        };
        let naive = changed.iter().any(|(b, r)| r.clone().any(|at| said(*b, at)));
        assert_eq!(!open.overlapping(&whole.ranges).is_empty(), naive, "I3: seed {seed}");
        found[usize::from(naive)] += 1;
        let apart = |l: &ByteRanges| l.windows(2).all(|w| w[0].end < w[1].start);
        assert!(whole.ranges.values().all(apart), "seed {seed}: {:?}", whole.ranges);
    }
    assert!(found.iter().all(|n| *n > 20), "{found:?}");
}

/// Who writes on and on to one file changes its inode again and again: each of his operations is
/// an entry of its own, since each had ended before the next one began.
#[test]
fn an_entry_is_not_joined_by_who_began_after_it_had_ended() {
    let (_engine, client) = testing::client();
    let cache = testing::cache();
    let (mut queue, mut open, busy) = (Queue::default(), Open::default(), BusyExtents::default());
    let reservation = || client.try_reserve(8).expect("the log has room for these");
    let ranges = || Ranges::from([(BlockNo(5), std::iter::once(0..128).collect())]);
    let mut serial = Serial::NONE;
    for txn in (1..=4).map(TxnId) {
        open.begin(txn, reservation(), true);
        open.edit(txn, BlockNo(5), 0..128);
        let mixed = queue.is_mixed(&open);
        open.end(txn);
        serial = serial.next();
        let ordered = vec![cache.get_new(BlockNo(20 + txn.0), BufKind::Data, Ino(9))];
        let mut ended = batch(serial, ordered, &client);
        (ended.ranges, ended.mixed) = (ranges(), open.overlapping(&ranges()));
        assert!(!queue.push(ended, mixed), "{serial:?} has joined who had ended before");
    }
    open.begin(TxnId(9), reservation(), true);
    open.edit(TxnId(9), BlockNo(5), 0..128);
    assert_eq!(queue.waits((&open, &busy)), Waits::ForData, "no byte of 9 is in an entry");
    let second = Serial::NONE.next().next();
    queue.data_durable(second);
    let first = queue.pop((&open, &busy)).map(|b| (b.first, b.serial));
    assert_eq!(first, Some((Serial::NONE.next(), Serial::NONE.next())));
    assert!(queue.pop((&open, &busy)).is_some_and(|b| b.serial == second));
    assert!(queue.pop((&open, &busy)).is_none(), "I9: contents of the third are not durable");
}

/// Contents that were made durable are not waited for again, if their entry has taken in an
/// operation that ended meanwhile.
#[test]
fn contents_are_written_once_however_many_join_their_entry() {
    let (_engine, client) = testing::client();
    let cache = testing::cache();
    let (mut queue, mut open, busy) = (Queue::default(), Open::default(), BusyExtents::default());
    let buf = |n| cache.get_new(BlockNo(n), BufKind::Data, Ino(9));
    let first = Serial::NONE.next();
    let mut mixed = batch(first, vec![buf(20)], &client);
    // One that had changed the same bytes before is open, and another joins meanwhile.
    open.begin(TxnId(7), client.try_reserve(8).expect("the log has room for these"), true);
    mixed.mixed.push(TxnId(7));
    queue.push(mixed, false);
    let (bufs, upto) = queue.ordered_up_to(first, (&open, &busy));
    assert_eq!((bufs.len(), upto), (1, first));
    assert!(queue.push(batch(first.next(), vec![buf(21)], &client), queue.is_mixed(&open)));
    queue.data_durable(upto);
    let (bufs, _) = queue.ordered_up_to(first.next(), (&open, &busy));
    assert_eq!(bufs.iter().map(|b| b.block().0).collect::<Vec<_>>(), [21]);
    assert_eq!((queue.is_ordered(BlockNo(20)), queue.is_ordered(BlockNo(21))), (false, true));
    queue.check();
    queue.data_durable(first.next());
    assert!(queue.pop((&open, &busy)).is_none(), "I3: operation 7 has not ended");
    open.end(TxnId(7));
    assert!(queue.pop((&open, &busy)).is_some_and(|b| b.serial == first.next()));
}

fn batch(serial: Serial, ordered: Vec<Buf>, client: &wal::Client) -> Batch {
    let reservation = client.try_reserve(8).expect("the log has room for these");
    Batch {
        first: serial,
        serial,
        entry: EntryBuf::new(false),
        ranges: Ranges::new(),
        reservation,
        mixed: TxnIds::new(),
        ordered: ordered.into_iter().map(|buf| Ordered { serial, buf }).collect(),
        freed: Vec::new(),
        txns: vec![TxnId(serial.0)],
    }
}
