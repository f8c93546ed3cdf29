//! The cache beside a naive twin: tasks read, change, write and flush blocks of a disk whose
//! requests end when the test says so, in any order; the twin knows each block's newest number.

use crate::{Buf, BufKind, Cache, CacheOptions, FlushEpoch, Image, WriteGate};
use env::sync::Notify;
use env::{Block, Disk, DiskError, Durability, Engine, Env, Local, Nanos, Now, Rng};
use format::BlockNo;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

const BYTES: usize = 512;
/// More than the 64 that are in memory at least.
const BLOCKS: u64 = 90;

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"))
}

fn block_of(number: u64) -> Block {
    let mut b = Block::zeroed(BYTES);
    b.bytes_mut()[..8].copy_from_slice(&number.to_le_bytes());
    b
}

/// A request on its way, for so many blocks; a flush has none.
struct Request {
    first: u64,
    len: u64,
    is_done: Cell<bool>,
    done: Notify,
}

/// The disk, the gate, and what both have seen.
struct World {
    rng: RefCell<Rng>,
    requests: RefCell<Vec<Rc<Request>>>,
    /// The numbers that a read finds, and those that are durable.
    visible: RefCell<BTreeMap<u64, u64>>,
    durable: RefCell<BTreeMap<u64, u64>>,
    /// Ended writes that no flush has covered: epoch, block, number.
    written: RefCell<Vec<(FlushEpoch, u64, u64)>>,
    /// Nothing is refused any more.
    is_open: Cell<bool>,
    /// What each block holds.
    newest: RefCell<Vec<u64>>,
}

impl World {
    async fn request(&self, at: u64, blocks: usize, is_read: bool) {
        let (first, len) = (at / BYTES as u64, blocks as u64);
        let meets = |r: &Rc<Request>| r.first < first + len && first < r.first + r.len;
        let busy = self.requests.borrow().iter().any(meets);
        assert!(!busy, "C1: two requests for block {first} and {len} more, read: {is_read}");
        let (is_done, done) = (Cell::new(false), Notify::new());
        let request = Rc::new(Request { first, len, is_done, done });
        self.requests.borrow_mut().push(request.clone());
        while !request.is_done.get() {
            request.done.wait().await;
        }
    }

    /// Ends one of the requests; false: there is none.
    fn end_one(&self) -> bool {
        let mut requests = self.requests.borrow_mut();
        if requests.is_empty() {
            return false;
        }
        let n = self.rng.borrow_mut().below(requests.len() as u64) as usize;
        let request = requests.swap_remove(n);
        request.is_done.set(true);
        request.done.wake_all();
        true
    }
}

impl Disk for World {
    fn size_bytes(&self) -> u64 {
        BLOCKS * BYTES as u64
    }
    fn read(&self, at: u64, blocks: Vec<Block>) -> Local<'_, Result<Vec<Block>, DiskError>> {
        Box::pin(async move {
            self.request(at, blocks.len(), true).await;
            let visible = self.visible.borrow();
            let one = |n: u64| visible.get(&(at / BYTES as u64 + n)).copied().unwrap_or(0);
            Ok((0..blocks.len() as u64).map(|n| block_of(one(n))).collect())
        })
    }
    fn write(
        &self,
        at: u64,
        blocks: Vec<Block>,
        _: Durability,
    ) -> Local<'_, Result<(), DiskError>> {
        Box::pin(async move {
            let before: Vec<u64> = blocks.iter().map(|b| number(b.bytes())).collect();
            self.request(at, blocks.len(), false).await;
            let after: Vec<u64> = blocks.iter().map(|b| number(b.bytes())).collect();
            assert_eq!(before, after, "C4: an image has changed on its way");
            self.visible.borrow_mut().extend((at / BYTES as u64..).zip(after));
            Ok(())
        })
    }
    fn flush(&self) -> Local<'_, Result<(), DiskError>> {
        Box::pin(async {
            let covered = self.visible.borrow().clone();
            self.request(0, 0, false).await;
            self.durable.borrow_mut().extend(covered);
            Ok(())
        })
    }
    fn discard(&self, _: u64, _: u64) -> Local<'_, Result<(), DiskError>> {
        Box::pin(async { Ok(()) })
    }
}

struct Gate(Rc<World>);

impl WriteGate for Gate {
    fn before_write(&self, buf: &Buf) -> Image {
        match self.0.rng.borrow_mut().below(4) {
            0 if !self.0.is_open.get() => Image::NotYet,
            1 if !self.0.is_open.get() => Image::Instead(block_of(number(&buf.bytes()) - 1)),
            _ => Image::AsIs,
        }
    }
    fn after_write(&self, buf: &Buf, _: &Image, _: Result<(), &DiskError>, epoch: FlushEpoch) {
        let b = buf.block().0;
        let n = self.0.visible.borrow()[&b];
        self.0.written.borrow_mut().push((epoch, b, n));
    }
    fn flushed(&self, epoch: FlushEpoch) {
        let mut written = self.0.written.borrow_mut();
        for (_, b, n) in written.extract_if(.., |(e, ..)| *e < epoch) {
            let durable = self.0.durable.borrow().get(&b).copied();
            assert!(durable >= Some(n), "C5: block {b}: {n} counts as durable, {durable:?} is");
        }
    }
}

/// Reads a block, and perhaps changes it.
async fn visit(cache: Rc<Cache>, world: Rc<World>, b: u64, change: bool) {
    let buf = cache.get(BlockNo(b), BufKind::Data).await.expect("this disk never fails");
    let newest = &mut world.newest.borrow_mut()[b as usize];
    assert_eq!(number(&buf.bytes()), *newest, "C3: block {b} has left memory with a change");
    if change {
        *newest += 1;
        buf.modify(|bytes| bytes[..8].copy_from_slice(&newest.to_le_bytes()));
    }
}

/// What differs from the disk is known to be dirty, under its owner too (C2).
fn check(cache: &Cache, world: &World) {
    let dirty: Vec<u64> = cache.dirty_all().iter().map(|b| b.block().0).collect();
    for (b, newest) in world.newest.borrow().iter().enumerate() {
        let same = world.visible.borrow().get(&(b as u64)).copied().unwrap_or(0) == *newest;
        assert!(same || dirty.contains(&(b as u64)), "C2: block {b} is dirty, and nobody knows");
    }
}

fn turn(engine: &mut Engine, f: impl FnOnce(&Env)) {
    engine.turn(Now { mono: Nanos(0), wall: Nanos(0) }, &mut Vec::new(), f);
}

fn step(engine: &mut Engine, cache: &Rc<Cache>, world: &Rc<World>) {
    let (what, b) = {
        let mut rng = world.rng.borrow_mut();
        (rng.below(16), rng.below(BLOCKS))
    };
    let (c, w) = (cache.clone(), world.clone());
    turn(engine, |env| match what {
        0..=5 => env.spawn("visit", visit(c, w, b, what < 4)),
        6..=8 => {
            let some = |_: &Buf| w.rng.borrow_mut().below(3) > 0;
            let bufs: Vec<Buf> = c.dirty_all().into_iter().filter(some).collect();
            env.spawn("write", async move { c.write(bufs).await.expect("it never fails") });
        }
        9 => env.spawn("flush", async move { c.flush_device().await.expect("it never fails") }),
        _ => {
            w.end_one();
        }
    });
    check(cache, world);
}

/// Ends requests until there are none.
fn drain(engine: &mut Engine, cache: &Cache, world: &World) {
    let mut any = true;
    while any {
        turn(engine, |_| any = world.end_one());
        check(cache, world);
    }
}

#[test]
fn every_change_reaches_the_disk_and_none_is_lost_on_the_way() {
    for seed in 0..40 {
        let world = Rc::new(World {
            rng: RefCell::new(Rng::new(seed)),
            requests: RefCell::default(),
            visible: RefCell::default(),
            durable: RefCell::default(),
            written: RefCell::default(),
            is_open: Cell::new(false),
            newest: RefCell::new(vec![0; BLOCKS as usize]),
        });
        let (mut engine, mut made) = (Engine::new(seed), None);
        turn(&mut engine, |env| {
            let options = CacheOptions {
                block_bytes: BYTES,
                cache_bytes: 0,
                contents_bytes: 0,
                interval: None,
                transfer_bytes_max: 4 * BYTES,
            };
            made = Some(Cache::new(env.clone(), world.clone(), options));
        });
        let cache = made.expect("the turn made it");
        cache.set_gate(Rc::new(Gate(world.clone())));
        (0..500).for_each(|_| step(&mut engine, &cache, &world));
        drain(&mut engine, &cache, &world);
        world.is_open.set(true);
        let all = cache.clone();
        turn(&mut engine, |env| {
            env.spawn("write all", async move { all.write_all().await.expect("it never fails") });
        });
        drain(&mut engine, &cache, &world);
        assert_eq!(cache.counts().1, 0, "seed {seed}: what is written is clean");
        for (b, newest) in world.newest.borrow().iter().enumerate() {
            let durable = world.durable.borrow().get(&(b as u64)).copied().unwrap_or(0);
            assert_eq!(durable, *newest, "seed {seed}: block {b}");
        }
    }
}
