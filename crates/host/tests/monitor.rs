//! Many threads at one monitor: does every call get its answer, is there never more than one thread
//! inside, and does nobody wait for ever while others come and go? The volume behind the monitor is
//! a toy whose calls need each kind of wake-up: another task's, a timer's, a disk request's.

#![allow(clippy::unwrap_used)]

use env::sync::Lock;
use env::{Block, Disk, DiskId, Durability, Env, Local, Nanos, Rng};
use host::{HostFile, Pool};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use vfs::{Answer, Call, Front, FsError, Monitor, Reply, Request, Volume, VolumeState};
use vfs::{Ticket, Work};

const SECTOR: usize = 512;
const DISK_BYTES: u64 = 1 << 20;
/// No answer within this time is a lost wake-up; a loaded machine is slow, but not that slow.
const FOR_EVER: Duration = Duration::from_secs(20);

/// Counts its calls without atomics: two threads inside at once would lose some.
struct Toy {
    env: Env,
    disk: Rc<dyn Disk>,
    calls: Cell<u64>,
    lock: Lock,
    sectors: RefCell<Vec<u8>>,
    somebody_inside: AtomicBool,
    closed_with: Arc<AtomicU64>,
}

impl Toy {
    /// What only one thread at a time may do, for long enough that two would meet.
    fn alone(&self) {
        assert!(!self.somebody_inside.swap(true, Ordering::SeqCst), "two threads are inside");
        let before = self.calls.get();
        for _ in 0..50 {
            std::hint::spin_loop();
        }
        self.calls.set(before + 1);
        self.somebody_inside.store(false, Ordering::SeqCst);
    }

    /// Writes a sector and reads it back, under a lock that others wait for.
    async fn use_disk(&self, n: u32) -> Result<Reply, FsError> {
        let _mine = self.lock.lock().await;
        let at = u64::from(n) % (DISK_BYTES / SECTOR as u64);
        let byte = self.sectors.borrow()[at as usize].wrapping_add(1);
        let block = Block::copy_of(&[byte; SECTOR]);
        let offset = at * SECTOR as u64;
        let how = if n & 8 == 0 { Durability::Cached } else { Durability::Fua };
        self.disk.write(offset, vec![block], how).await.map_err(|_| FsError::Io)?;
        let back = self.disk.read(offset, vec![Block::zeroed(SECTOR)]).await;
        let back = back.map_err(|_| FsError::Io)?;
        assert!(back[0].bytes().iter().all(|b| *b == byte), "the disk has something else");
        self.sectors.borrow_mut()[at as usize] = byte;
        Ok(Reply::Done)
    }
}

impl Volume for Toy {
    fn call(self: Rc<Self>, call: Call) -> Local<'static, Answer> {
        Box::pin(async move {
            self.alone();
            let Request::GetAttr { ino } = call.request else { return Ok(Reply::Done).into() };
            let result = match ino % 8 {
                0..=3 => Ok(Reply::Done),
                4 => {
                    self.env.yield_now().await;
                    Ok(Reply::Done)
                }
                5 | 6 => self.use_disk(ino / 8).await,
                _ => {
                    self.env.sleep(Nanos(u64::from(ino % 1000) * 300)).await;
                    Ok(Reply::Done)
                }
            };
            result.into()
        })
    }

    fn close(self: Rc<Self>) -> Local<'static, Result<(), FsError>> {
        Box::pin(async move {
            self.closed_with.store(self.calls.get(), Ordering::SeqCst);
            Ok(())
        })
    }
}

/// One who asks: how many of his calls are open, and which are answered.
#[derive(Default)]
struct Caller {
    answered: Mutex<Vec<u64>>,
    something: Condvar,
}

impl Front for Caller {
    fn reply(&self, id: u64, answer: Answer) {
        assert!(answer.result.is_ok(), "call {id}: {:?}", answer.result);
        self.answered.lock().unwrap().push(id);
        self.something.notify_one();
    }
}

impl Caller {
    /// The calls answered since; at least one.
    fn wait(&self) -> Vec<u64> {
        let all = self.answered.lock().unwrap();
        let (mut all, late) =
            self.something.wait_timeout_while(all, FOR_EVER, |a| a.is_empty()).unwrap();
        assert!(!late.timed_out(), "no answer in {FOR_EVER:?}: a wake-up is lost");
        std::mem::take(&mut *all)
    }
}

/// A pool with one toy, opened.
fn pool(name: &str) -> (Arc<Pool>, Arc<AtomicU64>, std::path::PathBuf) {
    let path = std::env::temp_dir().join(format!("cairn-monitor-{name}-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let disk = Arc::new(HostFile::create(&path, DISK_BYTES).unwrap());
    let closed_with = Arc::new(AtomicU64::new(0));
    let told = closed_with.clone();
    let open = move |env: Env| -> Local<'static, Result<Rc<dyn Volume>, String>> {
        Box::pin(async move {
            let disk = env.port().disk(DiskId(0), DISK_BYTES);
            let sectors = RefCell::new(vec![0; DISK_BYTES as usize / SECTOR]);
            let (calls, lock) = (Cell::new(0), Lock::new());
            let somebody_inside = AtomicBool::new(false);
            let closed_with = told;
            let toy = Toy { env, disk, calls, lock, sectors, somebody_inside, closed_with };
            Ok(Rc::new(toy) as Rc<dyn Volume>)
        })
    };
    let monitor = Arc::new(Monitor::new(1, Box::new(open)));
    let pool = Pool::start(vec![(monitor.clone(), vec![disk])]).unwrap();
    await_state(&monitor, |s| *s == VolumeState::Open);
    (pool, closed_with, path)
}

fn await_state(monitor: &Monitor, is: impl Fn(&VolumeState) -> bool) {
    let begun = Instant::now();
    while !is(&monitor.state()) {
        assert!(begun.elapsed() < FOR_EVER, "{:?}", monitor.state());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Closes and checks that every call was counted.
fn close(pool: &Pool, calls: u64, closed_with: &AtomicU64, path: &std::path::Path) {
    pool.enter(0, &mut vec![Work::Close]);
    let monitor = &pool.volumes()[0].monitor;
    await_state(monitor, |s| matches!(s, VolumeState::Closed(Ok(()))));
    assert_eq!(closed_with.load(Ordering::SeqCst), calls, "calls are lost, or two were inside");
    assert_eq!(monitor.live_tasks(), 0);
    pool.stop();
    std::fs::remove_file(path).unwrap();
}

/// Keeps `deep` calls open until `calls` are answered, each once; the longest that it waited.
fn ask_many(pool: &Pool, calls: u64, deep: u64, seed: u64) -> Duration {
    let mut rng = Rng::new(seed);
    let caller = Arc::new(Caller::default());
    let mut seen = vec![false; calls as usize];
    let (mut asked, mut answered) = (0, 0);
    let mut longest = Duration::ZERO;
    while answered < calls {
        let mut work = Vec::new();
        while asked < calls && asked - answered < deep {
            let ticket = Ticket { front: caller.clone(), id: asked };
            let ino = rng.below(1 << 20) as u32;
            work.push(Work::Call(ticket, Call::local(Request::GetAttr { ino })));
            if rng.one_in(16) {
                work.push(Work::Silent(Call::local(Request::SyncAll)));
                SILENT.fetch_add(1, Ordering::SeqCst);
            }
            asked += 1;
        }
        let begun = Instant::now();
        if !work.is_empty() {
            pool.enter(0, &mut work);
        }
        for id in caller.wait() {
            assert!(!std::mem::replace(&mut seen[id as usize], true), "call {id} answered twice");
            answered += 1;
        }
        longest = longest.max(begun.elapsed());
        if rng.one_in(64) {
            std::thread::yield_now();
        }
    }
    longest
}

static SILENT: AtomicU64 = AtomicU64::new(0);

/// `DOOR_CALLS=N` a thread, for more than a few.
#[test]
fn every_call_of_many_threads_is_answered_once() {
    let calls = std::env::var("DOOR_CALLS").ok().and_then(|s| s.parse().ok()).unwrap_or(6000);
    let (pool, closed_with, path) = pool("many");
    let threads: Vec<_> = [1, 1, 2, 4, 8, 16, 3, 64]
        .into_iter()
        .zip(1..)
        .map(|(deep, seed)| {
            let pool = pool.clone();
            std::thread::spawn(move || ask_many(&pool, calls, deep, seed))
        })
        .collect();
    let n = threads.len() as u64;
    for t in threads {
        let longest = t.join().unwrap();
        assert!(longest < FOR_EVER, "one call waited {longest:?}");
    }
    close(&pool, n * calls + SILENT.load(Ordering::SeqCst), &closed_with, &path);
}

/// A thread that comes now and then gets in, while others never leave the monitor alone.
#[test]
fn nobody_is_kept_out_by_those_who_always_come() {
    let (pool, closed_with, path) = pool("starve");
    let stop = AtomicBool::new(false);
    let total = AtomicU64::new(0);
    let longest = std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                while !stop.load(Ordering::SeqCst) {
                    let call = Call::local(Request::SyncAll);
                    pool.enter(0, &mut vec![Work::Silent(call)]);
                    total.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let mut longest = Duration::ZERO;
        for n in 0..200u32 {
            let caller = Arc::new(Caller::default());
            let ticket = Ticket { front: caller.clone(), id: u64::from(n) };
            let begun = Instant::now();
            let call = Call::local(Request::GetAttr { ino: n });
            pool.enter(0, &mut vec![Work::Call(ticket, call)]);
            caller.wait();
            longest = longest.max(begun.elapsed());
            std::thread::sleep(Duration::from_millis(1));
        }
        stop.store(true, Ordering::SeqCst);
        longest
    });
    assert!(longest < FOR_EVER, "one call waited {longest:?}");
    close(&pool, total.load(Ordering::SeqCst) + 200, &closed_with, &path);
}
