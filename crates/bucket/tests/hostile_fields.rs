//! Buckets in which one field of one object says what no writer has ever put there, with right
//! checksums all the same: opening the volume, or using it, ends with an error that names the
//! object and the field, and never with a panic, a loop without end, or memory for what is not
//! there.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "a panic is what is looked for")]

use bucket::{AtRest, FormatOptions, OpenOptions, Pace, Store, TakeOver};
use env::{Block, Bucket, Disk, Durability, Env, Nanos};
use sim::{Image, Objects, SimBucket, Trouble, Way, World, block_on};
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;

const BLOCKS: u64 = 64;
const BLOCK: u64 = 4096;
const UUID: [u8; 16] = [7; 16];
const PACE: Pace = Pace { checkpoint_objects: 256, slack_blocks: 4096, keep: Nanos(0) };

/// Where an object's head has what.
const KIND: usize = 12;
const SERIAL: usize = 32;
const EPOCH: usize = 40;
const PREVIOUS: usize = 48;
const HEAD_BYTES: usize = 60;
const CHECKPOINT: usize = 64;
const WRITTEN: usize = 80;
const FREED: usize = 84;
const TEXT: usize = 88;
const BODY_SUM: usize = 92;
const LISTS: usize = 96;

async fn opened(env: &Env, bucket: &Rc<dyn Bucket>, read_only: bool) -> Result<Store, String> {
    let take_over = TakeOver::Insist;
    let options = OpenOptions { read_only, take_over, pace: PACE, ..OpenOptions::default() };
    Store::open(env.clone(), bucket.clone(), options).await
}

async fn write(store: &Store, v: u64, n: u64, tag: u8) -> Result<(), String> {
    let blocks = (0..n).map(|i| Block::copy_of(&[tag.wrapping_add(i as u8); BLOCK as usize]));
    let done = store.write(v * BLOCK, blocks.collect(), Durability::Fua).await;
    done.map_err(|e| e.to_string())
}

/// A volume with snapshots, and with `tail` a log behind the newest checkpoint: changes that free a
/// range, and at the end changes that say something of a snapshot.
fn objects(tail: bool) -> Objects {
    block_on(&mut World::new(Image::new(4096)), move |env, _| async move {
        let all = SimBucket::new(env.clone(), 1, Trouble::NONE);
        let bucket: Rc<dyn Bucket> = Rc::new(Way(all.machine(None)));
        let (size_bytes, at_rest) = (BLOCKS * BLOCK, AtRest::default());
        let format = FormatOptions { uuid: UUID, size_bytes, force: false, at_rest };
        bucket::format(env.clone(), bucket.clone(), &format).await.unwrap().finish().await.unwrap();
        let store = opened(&env, &bucket, false).await.unwrap();
        write(&store, 0, 40, 1).await.unwrap();
        store.snapshot("one", 7).await.unwrap();
        write(&store, 4, 9, 50).await.unwrap();
        store.snapshot("two", 8).await.unwrap();
        write(&store, 8, 2, 70).await.unwrap();
        write(&store, 50, 1, 80).await.unwrap();
        store.checkpoint().await.unwrap();
        if tail {
            store.discard(20 * BLOCK, 3 * BLOCK).await.unwrap();
            write(&store, 5, 2, 90).await.unwrap();
            store.snapshot("three", 9).await.unwrap();
        }
        all.objects()
    })
}

struct Hostile {
    objects: Objects,
    /// The last object of the log, and its name.
    name: String,
    bytes: Vec<u8>,
}

impl Hostile {
    fn of(objects: Objects) -> Hostile {
        let mut log = objects.iter().filter(|(name, _)| name.starts_with("log/"));
        let (name, bytes) = log.next_back().map(|(n, b)| (n.clone(), b.to_vec())).unwrap();
        Hostile { objects, name, bytes }
    }
    /// The last object is changes.
    fn changes() -> Hostile {
        Hostile::of(objects(true))
    }
    /// The last one is a checkpoint.
    fn checkpoint() -> Hostile {
        let h = Hostile::of(objects(false));
        assert_eq!(h.get(KIND, 1), 2);
        h
    }
    fn get(&self, at: usize, n: usize) -> u64 {
        self.bytes[at..at + n].iter().rev().fold(0, |sum, b| sum << 8 | u64::from(*b))
    }
    fn set(&mut self, at: usize, n: usize, value: u64) {
        self.bytes[at..at + n].copy_from_slice(&value.to_le_bytes()[..n]);
    }
    fn body(&self) -> usize {
        self.get(HEAD_BYTES, 4) as usize
    }
    /// Where the body has its objects, fences, extents and snapshots, behind their numbers.
    fn parts(&self) -> [usize; 4] {
        let objects = self.body() + 4;
        let fences = objects + 16 * self.get(objects - 4, 4) as usize + 4;
        let extents = fences + 8 * self.get(fences - 4, 4) as usize + 8;
        let snapshots = extents + 20 * self.get(extents - 8, 8) as usize + 8;
        [objects, fences, extents, snapshots]
    }
    fn extent(&self, is: impl Fn(u64, u64) -> bool) -> usize {
        let [_, _, extents, snapshots] = self.parts();
        let mut all = (extents..snapshots - 8).step_by(20);
        all.find(|at| is(self.get(*at, 8), self.get(at + 12, 8))).unwrap()
    }
    /// Another list of blocks and of freed ranges, in the place of what the object has; what comes
    /// behind them is gone.
    fn lists(&mut self, written: &[u64], freed: &[(u64, u64)]) {
        self.set(WRITTEN, 4, written.len() as u64);
        self.set(FREED, 4, freed.len() as u64);
        self.set(TEXT, 4, 0);
        self.set(KIND, 4, 1);
        self.bytes.truncate(LISTS);
        let freed = freed.iter().flat_map(|(v, n)| [*v, *n]);
        for word in written.iter().copied().chain(freed) {
            self.bytes.extend(word.to_le_bytes());
        }
        self.set(HEAD_BYTES, 4, self.bytes.len() as u64);
    }
    /// What it says of snapshots: so many blocks have moved, and these records.
    fn said(&mut self, written: &[u64], moved: u32, records: &[&[u8]]) {
        self.lists(written, &[]);
        self.set(KIND, 4, 0x101);
        self.bytes.extend(moved.to_le_bytes());
        self.bytes.extend((records.len() as u32).to_le_bytes());
        records.iter().for_each(|r| self.bytes.extend(*r));
        self.set(HEAD_BYTES, 4, self.bytes.len() as u64);
    }
    /// With right sums.
    fn put(&mut self) {
        let body = self.body();
        if self.get(KIND, 1) == 2 {
            let sum = crc32c::crc32c(&self.bytes[body..]);
            self.set(BODY_SUM, 4, u64::from(sum));
        }
        let sum = crc32c::crc32c_append(crc32c::crc32c(&UUID), &self.bytes[12..body]);
        self.set(8, 4, u64::from(sum));
        self.objects.insert(self.name.clone(), self.bytes.clone().into());
    }
    fn refused(&mut self, field: &str) {
        self.put();
        let done = used(self.objects.clone()).unwrap_err();
        assert!(done.contains(&self.name), "{done:?} does not name {}", self.name);
        assert!(done.contains(field), "{done:?} does not say {field:?}");
    }
}

/// Opens the volume and does all that can be done with it: the first error, or nothing.
async fn use_all(env: Env, bucket: Rc<dyn Bucket>) -> Result<(), String> {
    let text = |e: env::DiskError| e.to_string();
    let reader = opened(&env, &bucket, true).await?;
    let store = opened(&env, &bucket, false).await?;
    let mut first = None;
    let names: Vec<String> = store.snapshots().into_iter().map(|s| s.name).collect();
    for v in 0..BLOCKS {
        let memory = || vec![Block::zeroed(BLOCK as usize)];
        first = first.or(store.read(v * BLOCK, memory()).await.err().map(text));
        for name in &names {
            match store.snapshot_disk(name) {
                Ok(disk) => first = first.or(disk.read(v * BLOCK, memory()).await.err().map(text)),
                Err(e) => first = first.or(Some(e)),
            }
        }
    }
    for v in (0..BLOCKS - 4).step_by(3) {
        first = first.or(write(&store, v, 3, v as u8).await.err());
        first = first.or(store.discard((v + 1) * BLOCK, BLOCK).await.err().map(text));
        if v % 9 == 0 {
            first = first.or(store.clean(8).await.err().map(text));
        }
    }
    first = first.or(store.snapshot("more", 1).await.err());
    for name in &names {
        first = first.or(store.delete_snapshot(name).await.err());
    }
    first = first.or(store.checkpoint().await.err().map(text));
    first = first.or(reader.newer().await.err());
    let closed = store.close().await.map_err(text);
    first.map_or(closed, Err)
}

fn used(objects: Objects) -> Result<(), String> {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let done = block_on(&mut World::new(Image::new(4096)), move |env, _| async move {
            let all = SimBucket::of(env.clone(), objects, (1, Trouble::NONE));
            use_all(env, Rc::new(Way(all.machine(None)))).await
        });
        let _ = tell.send(done);
    });
    let done = told.recv_timeout(Duration::from_secs(60));
    done.unwrap_or_else(|e| panic!("a panic, or a loop without end: {e}"))
}

#[test]
fn the_buckets_are_right_as_they_are() {
    for mut h in [Hostile::changes(), Hostile::checkpoint()] {
        h.put();
        assert_eq!(used(h.objects), Ok(()));
    }
    let mut h = Hostile::changes();
    h.lists(&[], &[(20, 3), (50, 1)]);
    h.put();
    assert_eq!(used(h.objects), Ok(()));
    let mut h = Hostile::changes();
    h.said(&[], 0, &[&[2, 0, 0, 0, 1, 0, 0, 0]]);
    h.put();
    assert_eq!(used(h.objects), Ok(()));
}

#[test]
fn a_bucket_without_a_log() {
    let mut objects = objects(true);
    objects.retain(|name, _| !name.starts_with("log/"));
    assert_eq!(used(objects), Ok(()), "as that of a new volume");
}

/// An object at the end of all serials: what comes next would be the first again.
#[test]
fn a_serial_that_leaves_none_for_others() {
    for serial in [u64::MAX, 1 << 47, 1 << 46] {
        let mut h = Hostile::checkpoint();
        h.name = format!("log/{serial:016x}");
        h.set(SERIAL, 8, serial);
        h.refused("its serial");
    }
}

#[test]
fn an_epoch_that_has_not_begun() {
    let mut h = Hostile::checkpoint();
    h.set(EPOCH, 8, u64::MAX);
    h.refused("its epoch");
}

#[test]
fn what_is_before_an_object_comes_after_it() {
    for (at, field) in [(PREVIOUS, "the object before it"), (CHECKPOINT, "the newest checkpoint")] {
        let mut h = Hostile::changes();
        let serial = h.get(SERIAL, 8);
        h.set(at, 8, serial + 1000);
        h.refused(field);
    }
}

#[test]
fn lists_that_are_longer_than_the_head() {
    for (at, field) in
        [(WRITTEN, "how many blocks"), (FREED, "how many ranges"), (TEXT, "its writer")]
    {
        let mut h = Hostile::changes();
        h.set(at, 4, 0xffff_ffff);
        h.refused(field);
    }
}

#[test]
fn more_blocks_than_places_have_numbers_for() {
    let mut h = Hostile::changes();
    let many: Vec<u64> = (0..(1 << 16) + 1).map(|i| i % BLOCKS).collect();
    h.lists(&many, &[]);
    h.refused("how many blocks it holds");
}

#[test]
fn blocks_beyond_the_volume() {
    for v in [BLOCKS, 1 << 40, u64::MAX] {
        let mut h = Hostile::changes();
        h.lists(&[3, v], &[]);
        h.refused("a block that it holds");
        h.said(&[3, v | 200 << 30], 1, &[]);
        h.refused("a block that it");
    }
}

#[test]
fn ranges_that_nobody_frees() {
    for range in [(0, u64::MAX), (3, 0), (u64::MAX, 2), (60, 5), (1, 1 << 50)] {
        let mut h = Hostile::changes();
        h.lists(&[], &[range]);
        h.refused("a range that it frees");
    }
}

#[test]
fn more_blocks_moved_than_there_are() {
    let mut h = Hostile::changes();
    h.said(&[3], 2, &[]);
    h.refused("what it says of snapshots");
}

#[test]
fn records_that_cannot_be() {
    let made = |id: u32| {
        let mut r = 1_u32.to_le_bytes().to_vec();
        r.extend(id.to_le_bytes());
        r.extend([0; 4]);
        r.extend(5_u64.to_le_bytes());
        r.extend(1_u32.to_le_bytes());
        r.push(b'x');
        r
    };
    let ended = |id: u32| [2_u32.to_le_bytes(), id.to_le_bytes()].concat();
    for records in [
        vec![made(0)],
        vec![made(2)],
        vec![made(u32::MAX)],
        vec![ended(9)],
        vec![ended(u32::MAX)],
        vec![ended(1), ended(1)],
        vec![made(9), made(9)],
    ] {
        let mut h = Hostile::changes();
        let records: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
        h.said(&[3], 0, &records);
        h.refused("a record of a snapshot");
    }
    let mut h = Hostile::changes();
    h.said(&[3], 0, &[&[9; 8]]);
    h.refused("what it says of snapshots");
    let mut h = Hostile::changes();
    h.said(&[3], 0, &[]);
    let count = h.bytes.len() - 4;
    h.set(count, 4, 0xffff_ffff);
    h.refused("what it says of snapshots");
}

#[test]
fn a_fence_with_contents_and_a_kind_that_is_none() {
    let mut h = Hostile::changes();
    h.lists(&[3], &[]);
    h.set(KIND, 4, 3);
    h.refused("is wrong");
    h.set(KIND, 4, 9);
    h.refused("its kind");
}

#[test]
fn objects_of_a_table_that_cannot_be() {
    let change = |f: &dyn Fn(&mut Hostile, usize)| {
        let mut h = Hostile::checkpoint();
        let at = h.parts()[0];
        f(&mut h, at);
        h.refused("an object in its table");
    };
    change(&|h, at| h.set(at - 4, 4, 0xffff_ffff));
    change(&|h, at| h.set(at, 8, u64::MAX));
    change(&|h, at| h.set(at, 8, 0));
    change(&|h, at| h.set(at + 8, 4, u64::MAX >> 32));
    change(&|h, at| h.set(at + 12, 4, u64::MAX >> 32));
}

#[test]
fn fences_of_a_table_that_cannot_be() {
    for fence in [u64::MAX, 1 << 46, 0] {
        let mut h = Hostile::checkpoint();
        let at = h.parts()[1];
        h.set(at, 8, fence);
        h.refused("a fence in its table");
    }
    let mut h = Hostile::checkpoint();
    let at = h.parts()[1];
    h.set(at - 4, 4, 0xffff_ffff);
    h.refused("in its table");
}

#[test]
fn extents_of_a_table_that_cannot_be() {
    let lies = |_: u64, place: u64| place > 0;
    let change = |f: &dyn Fn(&mut Hostile, usize)| {
        let mut h = Hostile::checkpoint();
        let at = h.extent(lies);
        f(&mut h, at);
        h.refused("in its table");
    };
    change(&|h, at| h.set(at, 8, u64::MAX));
    change(&|h, at| h.set(at, 8, 1 << 62));
    change(&|h, at| h.set(at, 8, BLOCKS));
    // With what lives of the object already, more than a number holds.
    change(&|h, at| h.set(at + 8, 4, 0xffff_ffff));
    change(&|h, at| h.set(at + 20 + 8, 4, 0xffff_fffe));
    change(&|h, at| h.set(at + 8, 4, 0));
    change(&|h, at| h.set(at + 12, 8, u64::MAX));
    change(&|h, at| h.set(at + 12, 8, 1 << 63 | 1 << 50));
    change(&|h, at| h.set(at + 12, 8, h.get(at + 12, 8) | 0xffff));
    // One over another.
    change(&|h, at| h.set(at + 20, 8, h.get(at, 8)));
    let mut h = Hostile::checkpoint();
    let at = h.parts()[2];
    h.set(at - 8, 8, u64::MAX);
    h.refused("in its table");
}

#[test]
fn snapshots_of_a_table_that_cannot_be() {
    let change = |f: &dyn Fn(&mut Hostile, usize)| {
        let mut h = Hostile::checkpoint();
        let at = h.parts()[3];
        assert_eq!((h.get(at - 8, 4), h.get(at - 4, 4)), (2, 2), "the last, and how many");
        f(&mut h, at);
        h.refused("in its table");
    };
    change(&|h, at| h.set(at - 8, 4, 0xffff_ffff));
    change(&|h, at| h.set(at - 4, 4, 0xffff_ffff));
    change(&|h, at| h.set(at, 4, 7));
    change(&|h, at| h.set(at, 4, 0));
    change(&|h, at| h.set(at + 4, 4, 1));
    change(&|h, at| h.set(at + 16, 4, 0xffff_ffff));
}
