//! The workers, the volumes they enter, and the front ends whose completions they take: one worker
//! a CPU.
//!
//! Invariants:
//! * P1. A request that the kernel has keeps its place, and the memory that it points to, until it
//!   ends, which it does once.
//! * P2. Whoever enters a volume brings all in, and what it asks of its disks goes to one of these.
//! * P3. Each front end has a byte of its own in the user data of its entries, which is not 0.
//! * P4. Workers outlive what they work for: a volume that is open has all of them.

use crate::ring::{Entry, Ring};
use crate::room::SpaceWaits;
use crate::worker;
use crate::{HostFile, now};
use env::{IoDone, IoRequest};
use std::cell::Cell;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;
use vfs::{FsError, Monitor, Out, VolumeState, Work};

/// Work for volumes, by the volume's number.
pub type WorkList = Vec<(usize, Work)>;

/// A front end with entries of its own on the workers' rings.
pub trait Source: Send + Sync {
    /// Called once on each worker's thread: its first entries. `tag` goes into the top byte of
    /// their user data.
    fn start(&self, pool: &Pool, worker: usize, tag: u64);
    /// An entry of this source has ended on this worker: `data` is its user data without the tag.
    fn complete(&self, pool: &Pool, worker: usize, data: u64, result: i32, work: &mut WorkList);
}

/// A volume and the disks it lies on.
pub struct Hosted {
    /// The volume.
    pub monitor: Arc<Monitor>,
    /// Its disks, by `DiskId`.
    pub disks: Vec<Arc<HostFile>>,
}

/// How often a thread enters at most with what it has read at once, the first time included, before
/// it answers.
const ROUNDS: usize = 4;

impl Hosted {
    /// Enters the volume. What it wants to read and the kernel has in memory is read here and
    /// taken in at once: no other thread is woken, and the answer goes out with the others. The
    /// requests left in `out` are for a ring.
    pub(crate) fn enter(&self, work: &mut Vec<Work>, done: &mut Vec<IoDone>, out: &mut Out) {
        self.monitor.enter(now(), work, done, out);
        let mut tried = 0;
        for _ in 1..ROUNDS {
            let at_once = |r: &mut IoRequest| self.disks[usize::from(r.disk.0)].read_at_once(r);
            let read = out.io.extract_if(tried.., at_once);
            let ended = |r: IoRequest| IoDone::of_disk(r.id, r.blocks, Ok(()));
            done.extend(read.map(ended));
            tried = out.io.len(); // they are for a ring
            if done.is_empty() {
                break;
            }
            self.monitor.enter(now(), work, done, out);
        }
        assert!(work.is_empty() && done.is_empty(), "P2: something is left outside of a volume");
        let others = out.io.iter().find(|r| usize::from(r.disk.0) >= self.disks.len());
        assert!(others.is_none(), "P2: {others:?} is for none of {} disks", self.disks.len());
    }
}

/// What a worker is told from outside.
pub(crate) enum Message {
    /// Begin with this source, under this tag.
    Start(Arc<dyn Source>, u64),
    /// Submit a volume's disk requests.
    Disk(usize, Vec<IoRequest>),
    /// Submit what a thread that is no worker asks the kernel.
    Submit(Vec<Entry>),
    /// A request of a volume's to a bucket has ended.
    Ended(usize, IoDone),
}

/// One worker's ring and mailbox.
pub(crate) struct Inbox {
    pub(crate) ring: Ring,
    pub(crate) wakeup: OwnedFd,
    pub(crate) messages: Mutex<Vec<Message>>,
}

/// All workers.
pub struct Pool {
    pub(crate) inboxes: Vec<Arc<Inbox>>,
    pub(crate) volumes: Vec<Hosted>,
    pub(crate) sources: RwLock<Vec<Arc<dyn Source>>>,
    pub(crate) stop: AtomicBool,
    /// Writes that wait for room on the media under the volumes.
    pub(crate) room: Arc<SpaceWaits>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

thread_local! {
    static ME: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The number of CPUs, which is the number of workers and of FUSE's queues.
pub(crate) fn cpus() -> usize {
    // SAFETY: sysconf takes a number and gives one.
    #[expect(unsafe_code, reason = "std gives the CPUs allowed, FUSE counts those configured")]
    let n = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    usize::try_from(n).unwrap_or(1).max(1)
}

impl Pool {
    /// Starts the workers for these volumes.
    pub fn start(volumes: Vec<(Arc<Monitor>, Vec<Arc<HostFile>>)>) -> std::io::Result<Arc<Pool>> {
        let inboxes = (0..cpus()).map(|_| inbox()).collect::<std::io::Result<Vec<_>>>()?;
        let volumes: Vec<Hosted> =
            volumes.into_iter().map(|(monitor, disks)| Hosted { monitor, disks }).collect();
        let pool = Arc::new(Pool {
            inboxes,
            room: Arc::new(SpaceWaits::new(volumes.len())),
            volumes,
            sources: RwLock::default(),
            stop: AtomicBool::new(false),
            threads: Mutex::default(),
        });
        // All of them begin, or none: what one has asked its disks would come to nobody.
        let all_there = Arc::new(OnceLock::new());
        let start = |me: usize| {
            let (pool, all_there) = (pool.clone(), all_there.clone());
            let run = move || {
                ME.set(Some(me));
                if *all_there.wait() {
                    worker::run(&pool, me);
                }
            };
            std::thread::Builder::new().name(format!("worker {me}")).spawn(run)
        };
        let started: std::io::Result<Vec<_>> = (0..pool.inboxes.len()).map(start).collect();
        let _ = all_there.set(started.is_ok()); // once
        *pool.threads.lock().expect("nobody panics while holding it") = started?;
        Ok(pool)
    }

    /// How many workers.
    pub fn workers(&self) -> usize {
        self.inboxes.len()
    }
    /// The volumes.
    pub fn volumes(&self) -> &[Hosted] {
        &self.volumes
    }

    /// Adds a front end and starts it on every worker.
    pub fn add_source(&self, source: Arc<dyn Source>) {
        let mut sources = self.sources.write().expect("nobody panics while holding it");
        sources.push(source.clone());
        let n = sources.len();
        assert!((1..0xff).contains(&n), "P3: there is no tag for front end {n}");
        let tag = (n as u64) << 56;
        drop(sources);
        for worker in 0..self.inboxes.len() {
            self.send(worker, Message::Start(source.clone(), tag));
        }
    }

    /// Enters a volume from a thread that is no worker. What the disk is asked goes to a worker's
    /// ring.
    pub fn enter(&self, volume: usize, work: &mut Vec<Work>) {
        let mut out = Out::default();
        let hosted = &self.volumes[volume];
        let before = hosted.monitor.deadline();
        hosted.enter(work, &mut Vec::new(), &mut out);
        let sooner = hosted.monitor.deadline() != before;
        if !out.io.is_empty() || sooner {
            self.send(0, Message::Disk(volume, std::mem::take(&mut out.io)));
        }
        out.answer();
    }

    /// It is the end, soon: writes that find the medium full wait no longer than a few seconds.
    pub fn stopping(&self) {
        self.room.stop(now().mono);
    }

    /// For how long this volume's writes have waited for room on the medium under it; None: they do
    /// not.
    pub fn waits_for_room(&self, volume: usize) -> Option<Duration> {
        let since = self.room.waits_since(volume)?;
        Some(Duration::from_nanos(now().mono.since(since).0))
    }

    /// Closes a volume and waits until it is closed. The workers carry out what it still writes.
    pub fn close(&self, volume: usize) -> Result<(), FsError> {
        let monitor = &self.volumes[volume].monitor;
        if monitor.state() == VolumeState::Open {
            self.enter(volume, &mut vec![Work::Close]);
        }
        loop {
            match monitor.state() {
                VolumeState::Closed(result) => return result,
                VolumeState::Open => std::thread::sleep(Duration::from_millis(1)),
                _ => return Ok(()), // it was never open
            }
        }
    }

    fn send(&self, worker: usize, message: Message) {
        self.inboxes[worker].send(message);
    }

    /// Queues entries on a worker's ring. Of another worker's they are submitted at once; on the
    /// caller's own they go with its next wait. A thread that is no worker leaves them to the one
    /// whose ring it is: with a thread that ends the kernel cancels what it has submitted, whatever
    /// ring that is in, and an entry of a FUSE queue would be lost, with the request it was to
    /// take.
    pub fn push(&self, worker: usize, entries: &[Entry]) {
        let Some(me) = ME.get() else {
            return self.send(worker, Message::Submit(entries.to_vec()));
        };
        let ring = &self.inboxes[worker].ring;
        ring.push(entries);
        if me != worker && !ring.submit() {
            self.inboxes[worker].wake();
        }
    }

    /// Stops the workers and waits for them. The volumes are closed before.
    pub fn stop(&self) {
        let is_open = |h: &Hosted| h.monitor.state() == VolumeState::Open;
        let open = self.volumes.iter().position(is_open);
        assert!(open.is_none(), "P4: the workers of volume {open:?} end, and it is open");
        self.stop.store(true, Ordering::SeqCst);
        self.inboxes.iter().for_each(|i| i.wake());
        let threads = std::mem::take(&mut *self.threads.lock().expect("nobody panics holding it"));
        for t in threads {
            if t.join().is_err() {
                tracing::error!("a worker has panicked");
            }
        }
    }
}

impl Inbox {
    /// Leaves a message, and wakes the worker.
    pub(crate) fn send(&self, message: Message) {
        self.messages.lock().expect("nobody panics while holding it").push(message);
        self.wake();
    }

    fn wake(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: writes eight bytes that live through the call to a descriptor of ours.
        #[expect(unsafe_code, reason = "std has no eventfd")]
        unsafe {
            libc::write(self.wakeup.as_raw_fd(), one.as_ptr().cast(), 8);
        }
    }
}

fn inbox() -> std::io::Result<Arc<Inbox>> {
    // SAFETY: eventfd gives a descriptor that nobody else has, or -1.
    #[expect(unsafe_code, reason = "std has no eventfd")]
    let wakeup = unsafe {
        let fd = libc::eventfd(0, libc::EFD_CLOEXEC);
        if fd < 0 {
            return Err(std::io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(fd)
    };
    Ok(Arc::new(Inbox { ring: Ring::new()?, wakeup, messages: Mutex::default() }))
}
