//! Blocks for the tests of this crate's structures: a cache over a disk in memory, which answers at
//! once, and an engine whose time stands still. It knows no mechanism.

use cache::{Cache, CacheOptions, FlushEpoch};
use env::{Block, Disk, DiskError, Durability, Engine, Local, Nanos, Now};
use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use wal::{Client, FormatOptions, Log, LogArea, OpenOptions};

pub(crate) const BLOCK: usize = 1024;

/// A twin of what becomes of one block's writes; `N` numbers the changes that an image has.
#[derive(Default)]
pub(crate) struct Writes<N> {
    on_its_way: Option<N>,
    /// Ended and not flushed.
    written: Vec<(FlushEpoch, N)>,
    /// Everything up to this is durable in place, or matters no more.
    pub(crate) in_place: N,
}

impl<N: Copy + Ord> Writes<N> {
    pub(crate) fn is_idle(&self) -> bool {
        self.on_its_way.is_none()
    }

    /// An image goes whose newest change this is.
    pub(crate) fn begin(&mut self, newest: N) {
        assert!(self.on_its_way.replace(newest).is_none(), "two writes of a block");
    }

    /// Its write ends; false: there is none.
    pub(crate) fn end(&mut self, ok: bool, epoch: FlushEpoch) -> bool {
        let Some(newest) = self.on_its_way.take() else { return false };
        if ok {
            self.written.push((epoch, newest));
        }
        true
    }

    /// A flush of this epoch has ended.
    pub(crate) fn flushed(&mut self, epoch: FlushEpoch) {
        for (_, newest) in self.written.extract_if(.., |(e, _)| *e < epoch) {
            self.in_place = self.in_place.max(newest);
        }
    }

    /// The block is free: what it had up to this change matters no more.
    pub(crate) fn freed(&mut self, upto: N) {
        (self.in_place, self.on_its_way) = (upto, None);
    }
}

/// A disk in memory.
struct Memory(RefCell<Vec<u8>>);

impl Disk for Memory {
    fn size_bytes(&self) -> u64 {
        self.0.borrow().len() as u64
    }
    fn read(&self, at: u64, mut blocks: Vec<Block>) -> Local<'_, Result<Vec<Block>, DiskError>> {
        let mut from = at as usize;
        for b in &mut blocks {
            let to = from + b.len();
            b.bytes_mut().copy_from_slice(&self.0.borrow()[from..to]);
            from = to;
        }
        Box::pin(async { Ok(blocks) })
    }
    fn write(
        &self,
        at: u64,
        blocks: Vec<Block>,
        _: Durability,
    ) -> Local<'_, Result<(), DiskError>> {
        let mut from = at as usize;
        for b in &blocks {
            let to = from + b.len();
            self.0.borrow_mut()[from..to].copy_from_slice(b.bytes());
            from = to;
        }
        // At once, but for who looks in between.
        let mut asked = false;
        Box::pin(poll_fn(move |cx| {
            if std::mem::replace(&mut asked, true) {
                return Poll::Ready(Ok(()));
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        }))
    }
    fn flush(&self) -> Local<'_, Result<(), DiskError>> {
        Box::pin(async { Ok(()) })
    }
    fn discard(&self, _: u64, _: u64) -> Local<'_, Result<(), DiskError>> {
        Box::pin(async { Ok(()) })
    }
}

/// A disk of so many bytes, all zeros.
pub(crate) fn memory(bytes: usize) -> Rc<dyn Disk> {
    Rc::new(Memory(RefCell::new(vec![0; bytes])))
}

fn turn(engine: &mut Engine, f: impl FnOnce(&env::Env)) {
    engine.turn(Now { mono: Nanos(0), wall: Nanos(0) }, &mut Vec::new(), f);
}

/// A cache of a volume of 64 KiB.
pub(crate) fn cache() -> Rc<Cache> {
    let (mut engine, mut cache) = (Engine::new(1), None);
    turn(&mut engine, |env| {
        let options = CacheOptions {
            block_bytes: BLOCK,
            cache_bytes: 1 << 20,
            contents_bytes: 1 << 20,
            interval: None,
            transfer_bytes_max: 1 << 20,
        };
        cache = Some(Cache::new(env.clone(), memory(64 * BLOCK), options));
    });
    cache.expect("the turn made it")
}

/// The only client of a log of 4 MiB, and the engine that the log needs.
pub(crate) fn client() -> (Engine, Client) {
    let (engine, client, _) = client_in(4 << 20);
    (engine, client)
}

/// The same of a log in so many bytes, and where that lies.
pub(crate) fn client_in(bytes: usize) -> (Engine, Client, LogArea) {
    let mut engine = Engine::new(1);
    let made: Rc<RefCell<Option<Client>>> = Rc::default();
    let area = LogArea::whole(memory(bytes));
    turn(&mut engine, |env| {
        let (own, made, area) = (env.clone(), made.clone(), area.clone());
        env.spawn("log", async move {
            Log::format(&area, &FormatOptions::default()).await.expect("the disk has room");
            let log = Log::open(&own, area, OpenOptions::default()).await.expect("it was made");
            *made.borrow_mut() = Some(log.client([1; 16], "test").expect("it is the first"));
        });
    });
    let client = made.borrow_mut().take().expect("the disk answers at once");
    (engine, client, area)
}

/// The same of a task that is made of an engine's environment.
pub(crate) fn run<F: Future<Output = ()> + 'static>(task: impl FnOnce(env::Env) -> F) {
    let (mut engine, mut own) = (Engine::new(1), None);
    turn(&mut engine, |env| own = Some(env.clone()));
    done(&mut engine, task(own.expect("the turn gave it")));
}

/// Does the task to its end, which waits for nothing but such disks.
pub(crate) fn done(engine: &mut Engine, task: impl Future<Output = ()> + 'static) {
    let ended = Rc::new(RefCell::new(false));
    let mut first = Some((task, ended.clone()));
    for _ in 0..1000 {
        turn(engine, |env| {
            if let Some((task, ended)) = first.take() {
                env.spawn("test", async move {
                    task.await;
                    *ended.borrow_mut() = true;
                });
            }
        });
        if *ended.borrow() {
            return;
        }
    }
    panic!("the task does not end");
}
