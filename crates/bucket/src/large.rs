//! A volume of 1 TiB that is full, in 100,000 objects, is opened behind a line of 20 ms and
//! 100 MB/s, in virtual time; and one of very many pieces is given back. Their tables are made up;
//! the objects that these lead to are names.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_macros, reason = "the figures are shown with --nocapture")]

use crate::object::name;
use crate::state::{Info, place};
use crate::{AtRest, BLOCK_BYTES, FormatOptions, OpenOptions, Store};
use env::{Bucket, Disk, Env, Nanos};
use lfs::{Extent, Virt};
use sim::{Image, Line, Objects, SimBucket, Way, World, block_on};
use std::rc::Rc;

const OBJECTS: u64 = 100_000;
const BLOCKS: u64 = (1 << 40) / BLOCK_BYTES as u64;
/// What opening it may take, and the table in memory.
const OPENED_WITHIN: Nanos = Nanos::from_secs(10);
const TABLE_BYTES: usize = 32 << 20;

/// The objects of such a volume.
async fn made(env: &Env) -> Objects {
    let bucket = SimBucket::new(env.clone(), 1, sim::Trouble::NONE);
    let way = || -> Rc<dyn Bucket> { Rc::new(Way(bucket.machine(None))) };
    let (uuid, size_bytes) = ([7; 16], BLOCKS * BLOCK_BYTES as u64);
    let at_rest = AtRest { compressed: true, key: None };
    let format = FormatOptions { uuid, size_bytes, force: false, at_rest };
    let making = crate::format(env.clone(), way(), &format).await.unwrap();
    making.finish().await.unwrap();
    let store = Store::open(env.clone(), way(), OpenOptions::default()).await.unwrap();
    let first = {
        let s = &mut *store.inner.state.borrow_mut();
        let first = s.next;
        let each = BLOCKS / OBJECTS;
        for i in 0..OBJECTS {
            let (serial, v) = (first.plus(i), i * each);
            let n = if i + 1 == OBJECTS { BLOCKS - v } else { each } as u32;
            s.table.objects.insert(serial, Info { head_bytes: 21_568, blocks: n, live: n });
            // Two runs in each, as after some time.
            let half = n / 2;
            for (from, n) in [(u64::from(half), n - half), (0, half)] {
                let place = Some(place(serial, from));
                s.table.extents.set(Extent { v: Virt(v + from), n, place });
            }
        }
        s.next = first.plus(OBJECTS);
        s.acknowledged = s.next.before();
        s.since = (1, 0);
        first
    };
    store.close().await.unwrap();
    let mut objects = bucket.objects();
    objects.extend((0..OBJECTS).map(|i| (name(first.plus(i)), [0; 8][..].into())));
    objects
}

/// More ranges of it have contents than the head of an object has room for; then none has.
#[test]
fn a_volume_in_pieces_is_given_back_at_once() {
    const PIECES: u64 = 1_100_000;
    const EACH: u64 = 50_000;
    let mut world = World::new(Image::new(4096));
    block_on(&mut world, |env, _| async move {
        let bucket = SimBucket::new(env.clone(), 1, sim::Trouble::NONE);
        let way = || -> Rc<dyn Bucket> { Rc::new(Way(bucket.machine(None))) };
        let (uuid, size_bytes) = ([7; 16], 4 * PIECES * BLOCK_BYTES as u64);
        let format = FormatOptions { uuid, size_bytes, force: false, at_rest: AtRest::default() };
        let making = crate::format(env.clone(), way(), &format).await.unwrap();
        making.finish().await.unwrap();
        let store = Store::open(env.clone(), way(), OpenOptions::default()).await.unwrap();
        {
            let s = &mut *store.inner.state.borrow_mut();
            let first = s.next;
            for i in 0..PIECES {
                let (serial, index) = (first.plus(i / EACH), i % EACH);
                let blocks = EACH as u32;
                s.table.objects.insert(serial, Info { head_bytes: 96, blocks, live: blocks });
                let place = Some(place(serial, index));
                s.table.extents.set(Extent { v: Virt(2 * i), n: 1, place });
            }
            s.next = first.plus(PIECES / EACH);
            (s.acknowledged, s.since) = (s.next.before(), (1, 0));
        }
        store.checkpoint().await.unwrap();
        store.discard(0, size_bytes / 2).await.unwrap();
        store.flush().await.unwrap();
        let options = OpenOptions { read_only: true, ..OpenOptions::default() };
        let reader = Store::open(env.clone(), way(), options).await.unwrap();
        assert_eq!(reader.mapped().len(), 0, "all was given back");
        store.close().await.unwrap();
    });
}

#[test]
fn a_full_volume_of_a_tebibyte_is_opened_in_time() {
    let mut world = World::new(Image::new(4096));
    block_on(&mut world, |env, _| async move {
        let line = Line { delay: Nanos::from_millis(20), bytes_per_s: 100_000_000 };
        let bucket = SimBucket::behind(env.clone(), line);
        bucket.put_all(made(&env).await);
        for read_only in [true, false] {
            let machine = bucket.machine(None);
            let way: Rc<dyn Bucket> = Rc::new(Way(machine.clone()));
            let began = env.now();
            let options = OpenOptions { read_only, ..OpenOptions::default() };
            let store = Store::open(env.clone(), way, options).await.unwrap();
            let (took, memory) = (env.now().since(began), store.table_memory_bytes());
            println!("read only {read_only}: {took:?}, {memory} bytes of table");
            assert!(took < OPENED_WITHIN, "{took:?}");
            assert!(memory < TABLE_BYTES, "{memory}");
            let (objects, blocks, live) = store.filled();
            assert!(objects >= OBJECTS && blocks == live && live >= BLOCKS, "{objects} {live}");
            store.close().await.unwrap();
        }
    });
}
