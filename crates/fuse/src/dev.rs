//! FUSE over /dev/fuse: threads read requests from clones of the device, enter the volume
//! themselves, and replies are written to the clone they came from. For kernels that do not offer
//! io_uring queues, and for what those do not carry. (Reading through the workers' rings was tried:
//! now and then a request lay unread until the next one came.)

use crate::decode::{Decoded, Parts, Shape};
use crate::encode::encode;
use crate::held_back::send_first;
use crate::init::PAYLOAD;
use crate::shared::Shared;
use crate::wire::{HEAD_IN, HEAD_OUT, Head, fixed_len, u32_at};
use host::Pool;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};
use vfs::{Answer, Front, Ticket, Work};

/// Readers for each CPU. None of them waits for the disk; with more, requests wander between
/// threads that have nothing of them in their caches, at half the rate.
pub(crate) const READERS_PER_CPU: usize = 1;
const ROOM: usize = PAYLOAD + 8192;
/// Linux's errors are below.
const ERRNO_END: i32 = 4096;
/// Where queues serve, the device brings FORGET one by one, each with a wake-up that takes longer
/// than its work, beside whoever removes many files. While they come this fast, they are left to
/// gather for a moment, and then come together.
const GATHERING: Duration = Duration::from_millis(1);

pub(crate) struct Clones {
    me: Weak<Clones>,
    fds: Vec<OwnedFd>,
    volume: usize,
    block_bytes: usize,
    /// Do queues carry what somebody waits for?
    beside: bool,
    shared: Arc<Shared>,
    /// Requests that are being answered, by our number.
    pending: Mutex<Vec<Option<Pending>>>,
}

/// A request that is being answered.
struct Pending {
    /// The kernel's number.
    unique: u64,
    opcode: u32,
    shape: Shape,
    clone: usize,
    arrived: Instant,
}

/// A further descriptor for the same connection, with a queue of its own.
pub(crate) fn clone_of(dev: &OwnedFd) -> io::Result<OwnedFd> {
    const FUSE_DEV_IOC_CLONE: libc::Ioctl = 0x8004_e500_u32 as _; // its type is the C library's
    let new = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let Ok(new) = new else {
        return dev.try_clone(); // unprivileged: the device is not ours to open; share the one queue
    };
    let mut fd = dev.as_raw_fd() as u32;
    // SAFETY: the ioctl reads one number, which lives through the call.
    #[expect(unsafe_code, reason = "std has no ioctl")]
    let rc = unsafe { libc::ioctl(new.as_raw_fd(), FUSE_DEV_IOC_CLONE, &raw mut fd) };
    if rc == 0 { Ok(new.into()) } else { dev.try_clone() }
}

/// Writes one reply.
pub(crate) fn write_reply(fd: &OwnedFd, unique: u64, result: Result<&[u8], i32>) {
    let (body, error) = match result {
        Ok(b) => (b, 0),
        Err(e) => (&[][..], -told(e)),
    };
    // That is how news begin that nobody has asked for.
    assert!(unique != 0, "F1: a request without a number is answered");
    send(fd, (unique, error), body);
}

/// Tells the kernel something that it has not asked; returns when it has acted on that.
pub(crate) fn notify(fd: &OwnedFd, what: i32, body: &[u8]) {
    assert!(what > 0, "F4: news of the kind {what} would be an error");
    send(fd, (0, what), body);
}

/// An error that the kernel takes for one.
pub(crate) fn told(errno: i32) -> i32 {
    assert!((1..ERRNO_END).contains(&errno), "F4: error {errno} is none");
    errno
}

fn send(fd: &OwnedFd, (unique, error): (u64, i32), body: &[u8]) {
    assert!(body.len() <= ROOM, "F2: an answer of {} bytes", body.len());
    let mut head = [0; HEAD_OUT];
    head[..4].copy_from_slice(&((HEAD_OUT + body.len()) as u32).to_ne_bytes());
    head[4..8].copy_from_slice(&error.to_ne_bytes());
    head[8..].copy_from_slice(&unique.to_ne_bytes());
    let iov = [
        libc::iovec { iov_base: head.as_ptr().cast_mut().cast(), iov_len: head.len() },
        libc::iovec { iov_base: body.as_ptr().cast_mut().cast(), iov_len: body.len() },
    ];
    // SAFETY: two pieces of memory that live through the call, which only reads them.
    #[expect(unsafe_code, reason = "one vectored write to a raw descriptor")]
    let n = unsafe { libc::writev(fd.as_raw_fd(), iov.as_ptr(), 2) };
    if n < 0 {
        let e = io::Error::last_os_error();
        // ENOENT: the request was interrupted, or the kernel has forgotten what it is told about;
        // ENODEV: unmounted.
        if !matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENODEV)) {
            tracing::error!("FUSE reply: {e}");
        }
    }
}

impl Clones {
    /// For a clone of the device on each of `workers`.
    pub(crate) fn new(
        dev: &OwnedFd,
        workers: usize,
        volume: usize,
        block_bytes: usize,
        shared: Arc<Shared>,
    ) -> io::Result<Arc<Clones>> {
        let fds = (0..workers).map(|_| clone_of(dev)).collect::<io::Result<Vec<_>>>()?;
        Ok(Clones::with(fds, (volume, block_bytes), false, shared))
    }

    /// For one thread that reads the device itself.
    pub(crate) fn beside(
        dev: OwnedFd,
        volume: usize,
        block_bytes: usize,
        shared: Arc<Shared>,
    ) -> Arc<Clones> {
        Clones::with(vec![dev], (volume, block_bytes), true, shared)
    }

    fn with(
        fds: Vec<OwnedFd>,
        (volume, block_bytes): (usize, usize),
        beside: bool,
        shared: Arc<Shared>,
    ) -> Arc<Clones> {
        Arc::new_cyclic(|me| Clones {
            me: me.clone(),
            fds,
            volume,
            block_bytes,
            beside,
            shared,
            pending: Mutex::default(),
        })
    }

    /// Reads requests from a clone and has them answered, until it is unmounted.
    pub(crate) fn serve(&self, pool: &Arc<Pool>, clone: usize) {
        let mut room = vec![0; ROOM];
        let mut work = Vec::new();
        let mut last_silent: Option<Instant> = None;
        while let Ok(n) = read_request(&self.fds[clone], &mut room) {
            self.request(pool, clone, &room[..n], &mut work);
            let silent = !work.is_empty() && work.iter().all(|w| matches!(w, Work::Silent(_)));
            if !work.is_empty() {
                pool.enter(self.volume, &mut work);
            }
            if self.beside && silent {
                if last_silent.is_some_and(|t| t.elapsed() < 2 * GATHERING) {
                    std::thread::sleep(GATHERING);
                }
                last_silent = Some(Instant::now());
            }
        }
        self.shared.ended.store(true, Ordering::SeqCst);
    }

    /// How many clones.
    pub(crate) fn count(&self) -> usize {
        self.fds.len()
    }

    fn remember(&self, request: Pending) -> u64 {
        let mut pending = self.pending.lock().expect("nobody panics while holding it");
        let free = pending.iter().position(Option::is_none);
        let at = free.unwrap_or_else(|| {
            pending.push(None);
            pending.len() - 1
        });
        let other = pending[at].replace(request);
        assert!(other.is_none(), "F1: a request takes the place of one that is not answered");
        at as u64
    }

    /// Takes in one request that was read from a clone.
    fn request(&self, pool: &Arc<Pool>, worker: usize, bytes: &[u8], work: &mut Vec<Work>) {
        let head = Head::decode(bytes);
        let len = (u32_at(bytes, 0) as usize).clamp(HEAD_IN, bytes.len().max(HEAD_IN));
        let Some(body) = bytes.get(HEAD_IN..len) else { return };
        let fixed = fixed_len(head.opcode, self.shared.dialect.setxattr_ext);
        let (fixed, rest) = body.split_at(fixed.min(body.len()));
        let (block_bytes, shared) = (self.block_bytes, &*self.shared);
        let parts = Parts { head, fixed, rest, block_bytes, shared };
        match parts.decode() {
            Decoded::Ask(shape, call) => {
                let Head { unique, opcode, .. } = head;
                let arrived = Instant::now();
                self.shared.asks();
                let id = self.remember(Pending { unique, opcode, shape, clone: worker, arrived });
                let front = self.me.upgrade().expect("the pool holds its sources");
                let call = Work::Call(Ticket { front, id }, call);
                work.extend(send_first(pool, self.volume, &self.shared, call));
            }
            Decoded::Now(0) => write_reply(&self.fds[worker], head.unique, Ok(&[])),
            Decoded::Now(e) => write_reply(&self.fds[worker], head.unique, Err(e)),
            Decoded::Probe => {
                let mut out = [0; 256];
                let n = crate::probe::entry(&mut out);
                write_reply(&self.fds[worker], head.unique, Ok(&out[..n]));
            }
            Decoded::Destroyed => {
                if self.shared.is_destroyed() {
                    write_reply(&self.fds[worker], head.unique, Ok(&[]));
                }
            }
            Decoded::Silent(calls) => {
                work.extend(calls.into_iter().map(Work::Silent));
            }
        }
    }
}

/// One request, as many bytes as there are.
pub(crate) fn read_request(dev: &OwnedFd, room: &mut [u8]) -> io::Result<usize> {
    loop {
        // SAFETY: reads into memory that lives through the call.
        #[expect(unsafe_code, reason = "a raw descriptor")]
        let n = unsafe { libc::read(dev.as_raw_fd(), room.as_mut_ptr().cast(), room.len()) };
        if n >= 0 {
            return Ok(n as usize);
        }
        let e = io::Error::last_os_error();
        if !matches!(e.raw_os_error(), Some(libc::EINTR | libc::ENOENT | libc::EAGAIN)) {
            return Err(e);
        }
    }
}

impl Front for Clones {
    fn reply(&self, id: u64, answer: Answer) {
        let entry = {
            let mut pending = self.pending.lock().expect("nobody panics while holding it");
            pending[id as usize].take()
        };
        let Pending { unique, opcode, shape, clone, arrived } =
            entry.expect("a call is answered once");
        let failed = answer.result.is_err();
        self.shared.changes_attributes(shape);
        thread_local! {
            static OUT: std::cell::RefCell<Vec<u8>> = std::cell::RefCell::new(vec![0; ROOM]);
        }
        OUT.with_borrow_mut(|out| {
            let result = encode(shape, answer, (self.shared.policy, self.shared.nodes), out);
            write_reply(&self.fds[clone], unique, result.map(|n| &out[..n]));
        });
        self.shared.answered(opcode, arrived, failed);
    }
}
