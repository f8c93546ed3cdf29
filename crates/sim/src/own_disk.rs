//! A disk of one machine that uses a bucket: its reads and writes count among the machine's
//! requests, and it is cut at them as at the others. What was not durable when the machine was
//! killed may be lost, in any sectors. Who uses it, and for what, it does not know.

use crate::bucket::Machine;
use crate::image::Image;
use env::{Block, Disk, DiskError, Durability, Env, Local, Nanos, Rng, SECTOR_BYTES};
use std::cell::RefCell;
use std::rc::Rc;

/// What outlives the machine.
pub struct Platter {
    env: Env,
    durable: RefCell<Image>,
    /// Written, and not flushed.
    cached: RefCell<Vec<(u64, Vec<u8>)>>,
    rng: RefCell<Rng>,
}

/// A write takes up to so long.
const LATENCY: Nanos = Nanos::from_millis(2);

impl Platter {
    /// A blank one. `seed` decides what a cut leaves.
    pub fn new(env: Env, bytes: u64, seed: u64) -> Rc<Platter> {
        let (durable, rng) = (RefCell::new(Image::new(bytes)), RefCell::new(Rng::new(seed)));
        Rc::new(Platter { env, durable, cached: RefCell::default(), rng })
    }

    /// The machine is gone, and its power: of what was not flushed any sectors are there.
    pub fn lose_power(&self) {
        for (at, bytes) in std::mem::take(&mut *self.cached.borrow_mut()) {
            self.apply_some(at, &bytes);
        }
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
        let end = at + into.len() as u64;
        for (from, bytes) in self.cached.borrow().iter() {
            let to = from + bytes.len() as u64;
            let (first, last) = (at.max(*from), end.min(to));
            if first < last {
                let part = &bytes[(first - from) as usize..(last - from) as usize];
                into[(first - at) as usize..(last - at) as usize].copy_from_slice(part);
            }
        }
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
            let bytes: Vec<u8> = blocks.iter().flat_map(|b| b.bytes().to_vec()).collect();
            if self.latency().await || self.machine.is_cut_late(n) {
                self.platter.apply_some(at, &bytes);
                std::future::pending::<()>().await;
            }
            match how {
                Durability::Fua => self.platter.durable.borrow_mut().write(at, &bytes),
                Durability::Cached => self.platter.cached.borrow_mut().push((at, bytes)),
            }
            self.machine.pass(n, true).await;
            Ok(())
        })
    }
    fn flush(&self) -> Local<'_, Result<(), DiskError>> {
        Box::pin(async move {
            let n = self.machine.next_request();
            self.machine.pass(n, false).await;
            let ended = self.platter.cached.borrow().len();
            if self.latency().await || self.machine.is_cut_late(n) {
                std::future::pending::<()>().await;
            }
            for (at, bytes) in self.platter.cached.borrow_mut().drain(..ended) {
                self.platter.durable.borrow_mut().write(at, &bytes);
            }
            self.machine.pass(n, true).await;
            Ok(())
        })
    }
    fn discard(&self, _: u64, _: u64) -> Local<'_, Result<(), DiskError>> {
        Box::pin(async { Ok(()) })
    }
}
