//! Requests of all lengths on one file, many at a time, next to each other: whichever way each of
//! them takes, does every read find what was written last, does no flush fail, and is the file in
//! the end what it should be? The volume behind the monitor keeps the rule of the caches: no block
//! is asked for twice at once. What it looks for is W1 to W3 of crates/host/src/way.rs: W1 is the
//! rule that it keeps itself, and W2 or W3, broken, give a read what is older than the disk.

#![allow(clippy::unwrap_used)]

use env::{Block, Disk, DiskId, Durability, Env, Local, Rng};
use host::{HostFile, Pool};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use vfs::{
    Answer, Call, Front, FsError, Monitor, Reply, Request, Ticket, Volume, VolumeState, Work,
};

const BLOCKS: usize = 2048;
const CALLS: u64 = 10_000;

/// The disk, and what should be on it: each block is one byte, repeated.
struct Mixer {
    env: Env,
    disk: Rc<dyn Disk>,
    path: PathBuf,
    bytes: RefCell<Vec<u8>>,
    busy: RefCell<Vec<bool>>,
    zero: Block,
    calls: Cell<u64>,
}

impl Mixer {
    /// A stretch of blocks that nobody uses: most are short, some long.
    async fn take(&self, rng: &mut Rng) -> Range<usize> {
        loop {
            let long = if rng.one_in(3) { 512 } else { 4 };
            let len = 1 + rng.below(long) as usize;
            let first = rng.below((BLOCKS - len) as u64) as usize;
            let range = first..first + len;
            if self.busy.borrow()[range.clone()].iter().all(|b| !b) {
                self.busy.borrow_mut()[range.clone()].fill(true);
                return range;
            }
            self.env.yield_now().await;
        }
    }

    async fn mix(&self, seed: u64) -> Result<(), env::DiskError> {
        let mut rng = Rng::new(seed);
        if rng.one_in(20) {
            return self.disk.flush().await;
        }
        let range = self.take(&mut rng).await;
        let bs = self.zero.len();
        let at = (range.start * bs) as u64;
        if rng.one_in(2) {
            let room = range.clone().map(|_| Block::zeroed(bs)).collect();
            let found = self.disk.read(at, room).await?;
            for (n, b) in range.clone().zip(found) {
                let is = self.bytes.borrow()[n];
                assert!(b.bytes().iter().all(|&b| b == is), "block {n} is not what was written");
            }
        } else {
            let byte = if rng.one_in(3) { 0 } else { 1 + rng.below(255) as u8 };
            let block = |_| match byte {
                0 => self.zero.clone(),
                b => Block::copy_of(&vec![b; bs]),
            };
            let how = if rng.one_in(8) { Durability::Fua } else { Durability::Cached };
            self.disk.write(at, range.clone().map(block).collect(), how).await?;
            self.bytes.borrow_mut()[range.clone()].fill(byte);
        }
        self.busy.borrow_mut()[range].fill(false);
        Ok(())
    }
}

impl Volume for Mixer {
    fn call(self: Rc<Self>, _: Call) -> Local<'static, Answer> {
        Box::pin(async move {
            let seed = self.calls.replace(self.calls.get() + 1);
            self.mix(seed).await.unwrap();
            Ok(Reply::Done).into()
        })
    }

    fn close(self: Rc<Self>) -> Local<'static, Result<(), FsError>> {
        Box::pin(async move {
            self.disk.flush().await.unwrap();
            let whole = std::fs::read(&self.path).unwrap();
            for (n, bytes) in whole.chunks(self.zero.len()).enumerate() {
                let is = self.bytes.borrow()[n];
                assert!(bytes.iter().all(|&b| b == is), "block {n} of the file");
            }
            Ok(())
        })
    }
}

struct Caller(mpsc::Sender<()>);
impl Front for Caller {
    fn reply(&self, _: u64, answer: Answer) {
        answer.result.unwrap();
        let _ = self.0.send(()); // the test has failed already
    }
}

fn open(file: HostFile, block_bytes: usize) -> Arc<Pool> {
    let (path, size_bytes) = (file.path().to_owned(), file.size_bytes());
    let open = move |env: Env| -> Local<'static, Result<Rc<dyn Volume>, String>> {
        Box::pin(async move {
            let disk = env.port().disk(DiskId(0), size_bytes);
            let (bytes, busy) = (vec![0; BLOCKS].into(), vec![false; BLOCKS].into());
            let (zero, calls) = (Block::zeroed(block_bytes), Cell::new(0));
            Ok(Rc::new(Mixer { env, disk, path, bytes, busy, zero, calls }) as Rc<dyn Volume>)
        })
    };
    let monitor = Arc::new(Monitor::new(1, Box::new(open)));
    let pool = Pool::start(vec![(monitor.clone(), vec![Arc::new(file)])]).unwrap();
    await_state(&monitor, VolumeState::Open);
    pool
}

fn await_state(monitor: &Monitor, state: VolumeState) {
    let begun = Instant::now();
    while monitor.state() != state {
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", monitor.state());
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn mixed(name: &str, block_bytes: usize, prepare: impl FnOnce(&HostFile)) {
    // On a disk, if cargo's folder is on one: in memory there is one way only.
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("ways-{name}"));
    let _ = std::fs::remove_file(&path);
    let file = HostFile::create(&path, (block_bytes * BLOCKS) as u64).unwrap();
    prepare(&file);
    let pool = open(file, block_bytes);
    let (tx, rx) = mpsc::channel();
    let caller = Arc::new(Caller(tx));
    let ask = |id| {
        let ticket = Ticket { front: caller.clone(), id };
        let request = Request::GetAttr { ino: 2 };
        pool.enter(0, &mut vec![Work::Call(ticket, Call::local(request))]);
    };
    (0..32).for_each(ask);
    for n in 32..CALLS + 32 {
        rx.recv_timeout(Duration::from_secs(60)).expect("an answer");
        if n < CALLS {
            ask(n);
        }
    }
    pool.close(0).unwrap();
    pool.stop();
    std::fs::remove_file(path).unwrap();
}

#[test]
fn through_the_page_cache() {
    mixed("through", 4096, |_| ());
}

#[test]
fn blocks_smaller_than_a_page_through_it() {
    mixed("through-small", 1024, |_| ());
}

#[test]
fn with_fua_past_it() {
    mixed("fua", 4096, HostFile::write_past_cache);
}

#[test]
fn all_past_it() {
    mixed("all", 4096, |f| {
        f.write_past_cache();
        f.all_past_cache();
    });
}

#[test]
fn blocks_smaller_than_a_page_all_past_it() {
    mixed("all-small", 1024, HostFile::all_past_cache);
}
