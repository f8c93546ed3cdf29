//! A disk of one machine that uses a bucket: its reads and writes count among the machine's
//! requests, and it is cut at them as at the others. What was not durable when the machine was
//! killed may be lost, in any sectors; what is lost is lost at that moment, and nothing of it comes
//! later. Who uses it, and for what, it does not know.
//!
//! Invariants:
//! * D1. A flush makes durable what had been written when it was asked for, and nothing else.
//! * D2. What waits in the cache never covers what is newer and durable.
//! * D3. A request is of whole sectors of this disk.
//! * D4. Two writes of one place are never under way together.
//! * D5. When the power has gone nothing is under way and nothing in the cache: what the platter
//!   has then it has until the next machine writes.
//! * D6. The cache holds writes in the order in which they ended.

use crate::bucket::Machine;
use crate::image::Image;
use env::{Block, Disk, DiskError, Durability, Env, Local, Nanos, Rng, SECTOR_BYTES};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

/// What outlives the machine.
pub struct Platter {
    env: Env,
    durable: RefCell<Image>,
    /// Written, and not flushed, in the order in which it was.
    cached: RefCell<Vec<Cached>>,
    /// So many writes have gone through the cache.
    written: Cell<u64>,
    /// The writes under way, with their numbers among the machine's requests.
    under_way: RefCell<Vec<UnderWay>>,
    /// How often the power has gone.
    cuts: Cell<u64>,
    rng: RefCell<Rng>,
}

/// A write in the cache.
struct Cached {
    /// Its number among those.
    number: u64,
    at: u64,
    bytes: Vec<u8>,
}

impl Cached {
    /// The part of it that a range of `len` bytes from `at` on covers: its place in that range, and
    /// in these bytes.
    fn part(&self, at: u64, len: usize) -> Option<(Range<usize>, Range<usize>)> {
        let first = at.max(self.at);
        let last = (at + len as u64).min(self.at + self.bytes.len() as u64);
        let within = |from: u64| (first - from) as usize..(last - from) as usize;
        (first < last).then(|| (within(at), within(self.at)))
    }
}

/// A write under way: its number, its first byte, and what it brings.
type UnderWay = (u64, u64, Rc<[u8]>);

/// A write takes up to so long.
const LATENCY: Nanos = Nanos::from_millis(2);

impl Platter {
    /// A blank one. `seed` decides what a cut leaves.
    pub fn new(env: Env, bytes: u64, seed: u64) -> Rc<Platter> {
        let (durable, rng) = (RefCell::new(Image::new(bytes)), RefCell::new(Rng::new(seed)));
        let (cached, under_way) = (RefCell::default(), RefCell::default());
        let (written, cuts) = (Cell::default(), Cell::default());
        Rc::new(Platter { env, durable, cached, written, under_way, cuts, rng })
    }

    /// The machine is gone, and its power: of what was not flushed any sectors are there.
    pub fn lose_power(&self) {
        self.cuts.set(self.cuts.get() + 1);
        for Cached { at, bytes, .. } in std::mem::take(&mut *self.cached.borrow_mut()) {
            self.apply_some(at, &bytes);
        }
        for (_, at, bytes) in std::mem::take(&mut *self.under_way.borrow_mut()) {
            self.apply_some(at, &bytes);
        }
    }

    /// A write is over, or will never be: is it under way still, or has the power gone meanwhile?
    fn ends(&self, n: u64, since: u64) -> bool {
        if self.cuts.get() != since {
            return false;
        }
        let mut all = self.under_way.borrow_mut();
        let before = all.len();
        all.retain(|w| w.0 != n);
        assert_eq!(all.len() + 1, before, "D5: write {n} is not under way");
        true
    }

    /// Changes a byte.
    pub fn damage(&self, at: u64) {
        let mut byte = [0];
        let mut image = self.durable.borrow_mut();
        image.read(at, &mut byte);
        image.write(at, &[byte[0] ^ 0x40]);
    }

    fn apply_some(&self, at: u64, bytes: &[u8]) {
        for (n, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
            if self.rng.borrow_mut().one_in(2) {
                self.durable.borrow_mut().write(at + (n * SECTOR_BYTES) as u64, sector);
            }
        }
    }

    fn read(&self, at: u64, into: &mut [u8]) {
        self.durable.borrow().read(at, into);
        for write in self.cached.borrow().iter() {
            if let Some((there, here)) = write.part(at, into.len()) {
                into[there].copy_from_slice(&write.bytes[here]);
            }
        }
    }

    /// A write has ended.
    fn take(&self, at: u64, bytes: Vec<u8>, how: Durability) {
        let mut cached = self.cached.borrow_mut();
        if how == Durability::Cached {
            let number = self.written.replace(self.written.get() + 1);
            let last = cached.last().map(|w| w.number);
            assert!(last < Some(number), "D6: write {number} comes to the cache behind {last:?}");
            cached.push(Cached { number, at, bytes });
            return;
        }
        // Older writes of these bytes that are still in the cache become this one.
        for write in cached.iter_mut() {
            if let Some((there, here)) = write.part(at, bytes.len()) {
                write.bytes[here].copy_from_slice(&bytes[there]);
            }
        }
        self.durable.borrow_mut().write(at, &bytes);
        drop(cached);
        // All of it is read again.
        debug_assert!(
            {
                let mut now = vec![0; bytes.len()];
                self.read(at, &mut now);
                now == bytes
            },
            "D2: what is durable at byte {at} is covered by what is older"
        );
    }

    /// The writes before this one in the cache are durable.
    fn flushed(&self, before: u64) {
        let mut cached = self.cached.borrow_mut();
        let mut last = None;
        for Cached { number, at, bytes } in cached.extract_if(.., |w| w.number < before) {
            assert!(
                last.is_none_or(|n| n < number),
                "D1: write {number} is applied after {last:?}"
            );
            last = Some(number);
            self.durable.borrow_mut().write(at, &bytes);
        }
    }

    /// A request of these bytes.
    fn check(&self, at: u64, len: u64) {
        let sector = SECTOR_BYTES as u64;
        let whole = at.is_multiple_of(sector) && len.is_multiple_of(sector);
        let size = self.durable.borrow().size();
        let fits = at.checked_add(len).is_some_and(|end| end <= size);
        assert!(whole && fits, "D3: {len} bytes at {at} of a disk of {size}");
    }

    fn begin(&self, n: u64, at: u64, bytes: &Rc<[u8]>) {
        let mut all = self.under_way.borrow_mut();
        let place = |at: u64, bytes: &[u8]| at..at + bytes.len() as u64;
        let mine = place(at, bytes);
        let meets = |p: &Range<u64>| p.start < mine.end && mine.start < p.end;
        let other = all.iter().map(|(_, at, bytes)| place(*at, bytes)).find(meets);
        assert!(other.is_none(), "D4: {mine:?} is written, and {other:?} is under way");
        all.push((n, at, bytes.clone()));
    }
}

/// The disk, as its machine sees it.
pub struct OwnDisk {
    platter: Rc<Platter>,
    machine: Rc<Machine>,
}

impl OwnDisk {
    /// This platter in that machine.
    pub fn new(platter: Rc<Platter>, machine: Rc<Machine>) -> OwnDisk {
        OwnDisk { platter, machine }
    }

    /// Some time passes; a machine that is killed meanwhile does nothing more.
    async fn latency(&self) -> bool {
        let wait = self.platter.rng.borrow_mut().below(LATENCY.0);
        self.platter.env.sleep(Nanos(wait)).await;
        self.machine.is_killed()
    }
}

impl Disk for OwnDisk {
    fn size_bytes(&self) -> u64 {
        self.platter.durable.borrow().size()
    }
    fn read(&self, at: u64, mut blocks: Vec<Block>) -> Local<'_, Result<Vec<Block>, DiskError>> {
        Box::pin(async move {
            let n = self.machine.next_request();
            self.machine.pass(n, false).await;
            self.platter.check(at, blocks.iter().map(|b| b.len() as u64).sum());
            let mut from = at;
            for b in &mut blocks {
                self.platter.read(from, b.bytes_mut());
                from += b.len() as u64;
            }
            Ok(blocks)
        })
    }
    fn write(
        &self,
        at: u64,
        blocks: Vec<Block>,
        how: Durability,
    ) -> Local<'_, Result<(), DiskError>> {
        Box::pin(async move {
            let n = self.machine.next_request();
            self.machine.pass(n, false).await;
            let bytes: Rc<[u8]> = blocks.iter().flat_map(|b| b.bytes().to_vec()).collect();
            self.platter.check(at, bytes.len() as u64);
            self.platter.begin(n, at, &bytes);
            let since = self.platter.cuts.get();
            let is_cut = self.latency().await || self.machine.is_cut_late(n);
            if !self.platter.ends(n, since) {
                std::future::pending::<()>().await;
            }
            if is_cut {
                self.platter.apply_some(at, &bytes);
                std::future::pending::<()>().await;
            }
            self.platter.take(at, bytes.to_vec(), how);
            self.machine.pass(n, true).await;
            Ok(())
        })
    }
    fn flush(&self) -> Local<'_, Result<(), DiskError>> {
        Box::pin(async move {
            let n = self.machine.next_request();
            self.machine.pass(n, false).await;
            let (before, since) = (self.platter.written.get(), self.platter.cuts.get());
            let is_cut = self.latency().await || self.machine.is_cut_late(n);
            if is_cut || self.platter.cuts.get() != since {
                std::future::pending::<()>().await;
            }
            self.platter.flushed(before);
            self.machine.pass(n, true).await;
            Ok(())
        })
    }
    fn discard(&self, _: u64, _: u64) -> Local<'_, Result<(), DiskError>> {
        Box::pin(async { Ok(()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SimBucket, Trouble, World, block_on};

    const DISK_BYTES: u64 = 1 << 16;

    /// Runs this on a disk of its own.
    fn on_a_disk<F: Future<Output = ()> + 'static>(
        seed: u64,
        f: impl FnOnce(Env, Rc<OwnDisk>) -> F + 'static,
    ) {
        block_on(&mut World::new(Image::new(4096)), move |env, _| {
            let machine = SimBucket::new(env.clone(), seed, Trouble::NONE).machine(None);
            let platter = Platter::new(env.clone(), DISK_BYTES, seed);
            f(env, Rc::new(OwnDisk::new(platter, machine)))
        });
    }

    fn sector(v: u8) -> Vec<Block> {
        vec![Block::copy_of(&[v; SECTOR_BYTES])]
    }

    async fn first(disk: &OwnDisk) -> u8 {
        disk.read(0, vec![Block::zeroed(SECTOR_BYTES)]).await.unwrap()[0].bytes()[0]
    }

    #[test]
    fn what_is_older_and_in_the_cache_never_covers_what_is_durable() {
        on_a_disk(1, |_, disk| async move {
            disk.write(0, sector(1), Durability::Cached).await.unwrap();
            disk.write(0, sector(2), Durability::Fua).await.unwrap();
            assert_eq!(first(&disk).await, 2);
            disk.flush().await.unwrap();
            assert_eq!(first(&disk).await, 2);
            disk.write(0, sector(3), Durability::Cached).await.unwrap();
            disk.write(0, sector(4), Durability::Fua).await.unwrap();
            disk.platter.lose_power();
            assert_eq!(first(&disk).await, 4);
        });
    }

    /// Two flushes under way together, and a write that ends between their ends.
    #[test]
    fn a_flush_takes_what_was_there_when_it_was_asked_for() {
        for seed in 0..40 {
            on_a_disk(seed, |env, disk| async move {
                disk.write(0, sector(1), Durability::Cached).await.unwrap();
                for _ in 0..2 {
                    let disk = disk.clone();
                    env.spawn("flush", async move { disk.flush().await.unwrap() });
                }
                env.yield_now().await;
                disk.write(512, sector(2), Durability::Cached).await.unwrap();
                env.sleep(Nanos::from_millis(10)).await;
                let (mut durable, platter) = ([0; 513], &disk.platter);
                platter.durable.borrow().read(0, &mut durable);
                assert_eq!((durable[0], durable[512]), (1, 0), "what was flushed, and no more");
            });
        }
    }

    /// A write that was under way when the power went: some of its sectors are there at once, and
    /// none come when the next machine has begun.
    #[test]
    fn nothing_reaches_the_platter_behind_the_loss_of_power() {
        for seed in 0..40 {
            on_a_disk(seed, |env, disk| async move {
                let old = disk.clone();
                env.spawn("writes", async move {
                    let block = vec![Block::copy_of(&[1; 8 * SECTOR_BYTES])];
                    let _ = old.write(0, block, Durability::Fua).await;
                });
                env.sleep(Nanos(1)).await;
                disk.machine.kill();
                disk.platter.lose_power();
                let left = disk.platter.durable.borrow().digest();
                env.sleep(Nanos::from_millis(10)).await;
                let now = disk.platter.durable.borrow().digest();
                assert_eq!(left, now, "D5: what was under way comes later");
            });
        }
    }

    #[test]
    #[should_panic(expected = "D4")]
    fn two_writes_of_one_place_are_a_bug() {
        on_a_disk(1, |env, disk| async move {
            let other = disk.clone();
            env.spawn("other", async move {
                let _ = other.write(0, sector(1), Durability::Cached).await;
            });
            env.yield_now().await;
            let _ = disk.write(0, sector(2), Durability::Fua).await;
        });
    }

    #[test]
    #[should_panic(expected = "D3")]
    fn a_read_behind_the_end_is_a_bug() {
        on_a_disk(1, |_, disk| async move {
            let _ = disk.read(DISK_BYTES, sector(0)).await;
        });
    }
}
