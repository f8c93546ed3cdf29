//! Images in which one field says what no store has ever written, with right checksums all the
//! same: opening them, or using them, ends with an error that says so, and never with a panic, a
//! loop without end, or memory for what is not there.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "a panic is what is looked for")]

use crate::common::{Op, contents, made, opened, perform};
use lfs::BLOCK_BYTES;
use sim::{Image, World, block_on};
use std::sync::mpsc;
use std::time::Duration;

/// A store with a table of several pages, and a log behind the newest checkpoint.
fn image() -> (Image, u64) {
    let (base, blocks) = made();
    let mut world = World::new(base);
    block_on(&mut world, async move |env, disk| {
        let store = opened(env, disk, None).await.unwrap();
        // Neighbours are written apart, so that each is an extent of its own.
        let some = |from| (from..blocks * 7 / 8).step_by(2);
        let all: Vec<u64> = some(0).chain(some(1)).collect();
        for v in &all {
            perform(&store, Op::Write { v: *v, n: 1, tag: 1 + v, fua: false }).await.unwrap();
        }
        perform(&store, Op::Checkpoint).await.unwrap();
        for v in all.iter().step_by(2) {
            perform(&store, Op::Write { v: *v, n: 1, tag: 9000 + v, fua: false }).await.unwrap();
        }
        perform(&store, Op::Checkpoint).await.unwrap();
        perform(&store, Op::Discard { v: 4, n: 1 }).await.unwrap();
        perform(&store, Op::Write { v: 8, n: 2, tag: 7, fua: true }).await.unwrap();
    });
    (world.disk, blocks)
}

struct Hostile {
    bytes: Vec<u8>,
    seed: u32,
    blocks: u64,
}

impl Hostile {
    fn new() -> Hostile {
        let (image, blocks) = image();
        Hostile { bytes: image.to_vec(), seed: crc32c::crc32c(&[7; 16]), blocks }
    }
    fn get(&self, at: usize, n: usize) -> u64 {
        self.bytes[at..at + n].iter().rev().fold(0, |sum, b| sum << 8 | u64::from(*b))
    }
    fn set(&mut self, at: usize, n: usize, value: u64) {
        self.bytes[at..at + n].copy_from_slice(&value.to_le_bytes()[..n]);
    }
    fn sum(&self, from: usize, to: usize) -> u32 {
        crc32c::crc32c_append(self.seed, &self.bytes[from..to])
    }
    /// The newest slot.
    fn slot(&self) -> usize {
        let slots = [2, 3].map(|n| n * BLOCK_BYTES);
        slots.into_iter().max_by_key(|s| self.get(s + 8, 8)).unwrap()
    }
    fn slot_summed(&mut self) {
        let slot = self.slot();
        let sum = self.sum(slot + 8, slot + BLOCK_BYTES);
        self.set(slot + 4, 4, u64::from(sum));
    }
    fn body(&self) -> usize {
        assert_eq!(self.get(self.slot() + 24, 4), 1, "the body is in one piece");
        self.get(self.slot() + 28, 8) as usize * BLOCK_BYTES
    }
    fn body_summed(&mut self) {
        let (slot, body) = (self.slot(), self.body());
        let len = self.get(slot + 16, 4) as usize;
        let sum = self.sum(body, body + len);
        self.set(slot + 20, 4, u64::from(sum));
        self.slot_summed();
    }
    fn segment_start(n: u64) -> usize {
        (16 + n * crate::common::SEGMENT / BLOCK_BYTES as u64) as usize * BLOCK_BYTES
    }
    /// Where the heads, the usage table and the runs begin, behind their numbers.
    fn parts(&self) -> [usize; 3] {
        let heads = self.body() + 40;
        let usage = heads + 12 * self.get(heads - 4, 4) as usize + 4;
        [heads, usage, usage + 12 * self.get(usage - 4, 4) as usize + 4]
    }
    /// The run of the most pages, as the body names it.
    fn run(&self) -> usize {
        let mut at = self.parts()[2];
        let mut all = Vec::new();
        for _ in 0..self.get(at - 4, 4) {
            all.push((self.get(at + 8, 4), at));
            at += 20 + 12 * self.get(at + 16, 4) as usize;
        }
        all.into_iter().max().expect("there is a run").1
    }
    /// Its index: where it lies, and of how many pages.
    fn index(&self) -> (usize, usize) {
        let run = self.run();
        (self.get(run + 20, 8) as usize * BLOCK_BYTES, self.get(run + 8, 4) as usize)
    }
    fn index_summed(&mut self) {
        let (index, pages) = self.index();
        let sum = self.sum(index, index + 16 * pages);
        self.set(self.run() + 12, 4, u64::from(sum));
        self.body_summed();
    }
    fn page(&self, n: usize) -> usize {
        self.get(self.index().0 + 16 * n + 8, 8) as usize * BLOCK_BYTES
    }
    fn page_summed(&mut self, n: usize) {
        let page = self.page(n);
        let sum = self.sum(page + 4, page + BLOCK_BYTES);
        self.set(page, 4, u64::from(sum));
    }
    /// The first partial segment behind the checkpoint, by the users' head.
    fn partial(&self) -> usize {
        let heads = self.parts()[0];
        let (segment, offset) = (self.get(heads, 4), self.get(heads + 4, 4) as usize);
        let next = Hostile::segment_start(self.get(heads + 8, 4));
        let here = Hostile::segment_start(segment) + offset * BLOCK_BYTES;
        let is_one = |at: &usize| self.bytes[*at..].starts_with(b"CLFS");
        [here, next].into_iter().find(is_one).expect("a log behind the checkpoint")
    }
    fn partial_summed(&mut self) {
        let at = self.partial();
        let end = at + (1 + self.get(at + 44, 4) as usize) * BLOCK_BYTES;
        let sum = self.sum(at + 8, end);
        self.set(at + 4, 4, u64::from(sum));
    }
    /// One entry in the place of all, without payload.
    fn entry(&mut self, words: &[u64]) {
        let at = self.partial();
        self.set(at + 44, 4, 0);
        self.set(at + 52, 2, 1);
        for (i, word) in words.iter().enumerate() {
            self.set(at + 56 + 8 * i, 8, *word);
        }
        self.partial_summed();
    }
    fn a_segment(&self, is: impl Fn(u64) -> bool) -> u64 {
        let usage = self.parts()[1];
        let n = self.get(usage - 4, 4);
        (0..n).find(|n| is(self.get(usage + 12 * *n as usize, 4))).expect("there is one")
    }
}

const FREE: u64 = 1 << 31;
const TABLE: u64 = 1 << 30;

/// Opens it and does all that can be done with it: the first error, or nothing.
fn used(h: &Hostile) -> Result<(), String> {
    let mut image = Image::new(h.bytes.len() as u64);
    image.write(0, &h.bytes);
    let (blocks, (tell, told)) = (h.blocks, mpsc::channel());
    std::thread::spawn(move || {
        let done = block_on(&mut World::new(image), async move |env, disk| {
            let store = opened(env, disk, None).await?;
            let mut first = contents(&store, blocks).await.err();
            let wrong = store.verify(true).await.map(|r| r.wrong);
            first = first.or(wrong.map_or_else(|e| Some(e.to_string()), |w| w.first().cloned()));
            for v in (0..blocks - 8).step_by(7) {
                let mut all = vec![Op::Write { v, n: 7, tag: 1 + v, fua: true }];
                let also = match v % 3 {
                    0 => Op::Clean,
                    1 => Op::Checkpoint,
                    _ => Op::Discard { v, n: 3 },
                };
                all.push(also);
                for op in all {
                    first = first.or(perform(&store, op).await.err());
                }
            }
            let closed = store.close().await.map_err(|e| e.to_string());
            first.map_or(closed, Err)
        });
        let _ = tell.send(done);
    });
    let done = told.recv_timeout(Duration::from_secs(60));
    done.unwrap_or_else(|e| panic!("a panic, or a loop without end: {e}"))
}

fn refused(h: &Hostile, why: &str) {
    let done = used(h).unwrap_err();
    assert!(done.contains(why), "{done:?} does not say {why:?}");
}

#[test]
fn the_image_is_right_as_it_is() {
    let mut h = Hostile::new();
    h.index_summed();
    h.page_summed(0);
    h.partial_summed();
    assert_eq!(used(&h), Ok(()));
}

#[test]
fn a_device_without_a_block() {
    let done = block_on(&mut World::new(Image::new(512)), async |_, disk| {
        lfs::superblock(&disk).await.map(|_| ())
    });
    assert!(done.is_err());
}

/// Fields of the newest slot and its body. Each ends the checkpoint, which says why; the store
/// opens from the one before, so that is spoilt too.
fn checkpoint_refused(change: impl Fn(&mut Hostile), why: &str) {
    let mut h = Hostile::new();
    change(&mut h);
    let other = 5 * BLOCK_BYTES - h.slot();
    h.bytes[other] ^= 1;
    refused(&h, why);
}

#[test]
fn a_checkpoint_of_more_bytes_than_its_place_has() {
    let huge = |h: &mut Hostile| {
        h.set(h.slot() + 16, 4, 0xffff_ffff);
        h.slot_summed();
    };
    checkpoint_refused(huge, "the place of a checkpoint's body");
}

#[test]
fn a_run_of_more_extents_than_pages_hold() {
    let huge = |h: &mut Hostile| {
        h.set(h.run(), 8, u64::MAX);
        h.body_summed();
    };
    checkpoint_refused(huge, "a run of a checkpoint's body");
}

#[test]
fn an_index_whose_pages_lie_nowhere() {
    for place in [u64::MAX, u64::MAX / BLOCK_BYTES as u64 + 1, 0] {
        let nowhere = |h: &mut Hostile| {
            h.set(h.index().0 + 8, 8, place);
            h.index_summed();
        };
        checkpoint_refused(nowhere, "the index of a run of the table");
    }
}

#[test]
fn an_index_that_does_not_lie_in_segments() {
    let nowhere = |h: &mut Hostile| {
        h.set(h.run() + 20, 8, u64::MAX / 2);
        h.body_summed();
    };
    checkpoint_refused(nowhere, "the index of a run of the table");
}

#[test]
fn a_segment_of_the_table_with_contents() {
    let both = |h: &mut Hostile| {
        let n = (h.index().0 - Hostile::segment_start(0)) / crate::common::SEGMENT as usize;
        h.set(h.parts()[1] + 12 * n, 4, 3);
        h.body_summed();
    };
    checkpoint_refused(both, "a segment of the table and contents");
}

#[test]
fn a_head_with_more_alive_than_it_has_written() {
    let more = |h: &mut Hostile| {
        let [heads, usage, _] = h.parts();
        let next = h.get(heads + 8, 4) as usize;
        h.set(usage + 12 * next, 4, 2);
        h.body_summed();
    };
    checkpoint_refused(more, "a head of a checkpoint's body");
}

#[test]
fn a_page_that_begins_before_its_index_says() {
    let mut h = Hostile::new();
    assert!(h.index().1 > 1, "several pages");
    let (first, second) = (h.page(0), h.page(1));
    let v = h.get(first + 8, 8);
    h.set(second + 8, 8, v);
    h.page_summed(1);
    refused(&h, "a page of the table is damaged");
}

#[test]
fn a_block_of_an_owner_that_no_number_has() {
    let mut h = Hostile::new();
    let page = h.page(0);
    let n = h.get(page + 4, 4) as usize;
    let last = page + 8 + 20 * (n - 1);
    h.set(last, 8, h.get(last, 8) | 1 << 60);
    h.page_summed(0);
    refused(&h, "a page of the table is damaged");
}

#[test]
fn a_block_that_lies_where_nobody_has_contents() {
    let is_free = |s| s & FREE > 0;
    let is_table = |s| s & TABLE > 0;
    for segment in [Hostile::new().a_segment(is_free), Hostile::new().a_segment(is_table)] {
        let mut h = Hostile::new();
        let place = Hostile::segment_start(segment) / BLOCK_BYTES;
        let first = h.page(0) + 8;
        h.set(first + 8, 8, place as u64 + 1);
        h.page_summed(0);
        refused(&h, "is damaged");
    }
}

#[test]
fn a_log_with_counters_that_cannot_be() {
    for field in [16, 24] {
        let mut h = Hostile::new();
        h.set(h.partial() + field, 8, u64::MAX);
        h.partial_summed();
        refused(&h, "a counter of a partial segment");
    }
}

#[test]
fn a_log_that_goes_on_over_contents_or_the_table() {
    let is_full = |s: u64| (1..FREE).contains(&s) && s & TABLE == 0;
    for is in [is_full as fn(u64) -> bool, |s| s & TABLE > 0] {
        let mut h = Hostile::new();
        let next = h.a_segment(is);
        h.set(h.partial() + 48, 4, next);
        h.partial_summed();
        refused(&h, "the next segment of a partial segment");
    }
}

#[test]
fn a_log_with_entries_that_cannot_be() {
    let id = 1_u64 << 40;
    for words in [
        [3 << 56, u64::MAX, 0, 0],           // more blocks than there are
        [3 << 56 | 1 << 55, 1, 0, 0],        // of nobody
        [6 << 56, 9, 1, 0x61],               // a snapshot without a number
        [6 << 56 | 0xffff_ffff, 9, 1, 0x61], // one with a number that none has
        [8 << 56 | id | 1, 1, 1, 0],         // handed to a snapshot that is not there
        [4 << 56 | 1 << 30, 1 << 32, 0, 0],  // bytes of a block that the volume has not
    ] {
        let mut h = Hostile::new();
        h.entry(&words);
        refused(&h, "of a partial segment");
    }
}
