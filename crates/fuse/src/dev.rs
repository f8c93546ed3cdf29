//! FUSE over /dev/fuse: each worker reads requests from a clone of the device through its ring, and replies are
//! written to the clone they came from. For kernels that do not offer io_uring queues.

use crate::decode::{Decoded, Parts, Shape};
use crate::encode::{Ttl, encode};
use crate::init::PAYLOAD;
use crate::wire::{HEAD_IN, HEAD_OUT, Head, fixed_len, u32_at};
use host::{Entry, Pool, Source, WorkList};
use io_uring::{opcode, types};
use std::cell::UnsafeCell;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use vfs::{Answer, Front, Ticket, Work};

/// Reads in flight on each worker.
const DEPTH: usize = 2;
const ROOM: usize = PAYLOAD + 8192;

struct Buffer(UnsafeCell<Box<[u8]>>);
/// SAFETY: a buffer is the kernel's from the read's submission to its completion, and then the completing
/// worker's alone until it submits the next read.
#[expect(unsafe_code, reason = "memory shared with the kernel")]
unsafe impl Sync for Buffer {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "as above")]
unsafe impl Send for Buffer {}

pub(crate) struct Clones {
    me: Weak<Clones>,
    fds: Vec<OwnedFd>,
    volume: usize,
    block_bytes: usize,
    ttl: Ttl,
    buffers: Vec<Vec<Buffer>>,
    /// Requests that are being answered: kernel's number, shape, clone, by our number.
    pending: Mutex<Vec<Option<(u64, Shape, usize)>>>,
    tag: AtomicU64,
    pub(crate) ended: Arc<AtomicBool>,
}

/// A further descriptor for the same connection, with a queue of its own.
pub(crate) fn clone_of(dev: &OwnedFd) -> io::Result<OwnedFd> {
    const FUSE_DEV_IOC_CLONE: libc::c_ulong = 0x8004_e500;
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
        Err(e) => (&[][..], -e),
    };
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
        // ENOENT: the request was interrupted; ENODEV: unmounted.
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
        shared: (Ttl, Arc<AtomicBool>),
    ) -> io::Result<Arc<Clones>> {
        let fds = (0..workers).map(|_| clone_of(dev)).collect::<io::Result<Vec<_>>>()?;
        Ok(Clones::with(fds, volume, block_bytes, shared))
    }

    /// For one thread that reads the device itself.
    pub(crate) fn beside(
        dev: OwnedFd,
        volume: usize,
        block_bytes: usize,
        shared: (Ttl, Arc<AtomicBool>),
    ) -> Arc<Clones> {
        Clones::with(vec![dev], volume, block_bytes, shared)
    }

    fn with(
        fds: Vec<OwnedFd>,
        volume: usize,
        block_bytes: usize,
        (ttl, ended): (Ttl, Arc<AtomicBool>),
    ) -> Arc<Clones> {
        let buffer = || Buffer(UnsafeCell::new(vec![0; ROOM].into_boxed_slice()));
        let buffers = fds.iter().map(|_| (0..DEPTH).map(|_| buffer()).collect()).collect();
        Arc::new_cyclic(|me| Clones {
            me: me.clone(),
            fds,
            volume,
            block_bytes,
            ttl,
            buffers,
            pending: Mutex::default(),
            tag: 0.into(),
            ended,
        })
    }

    /// The descriptor of a clone.
    pub(crate) fn fd(&self, clone: usize) -> &OwnedFd {
        &self.fds[clone]
    }

    fn read(&self, worker: usize, i: usize) -> Entry {
        let data = self.tag.load(Ordering::Relaxed) | (worker * DEPTH + i) as u64;
        let buffer = self.buffers[worker][i].0.get();
        // SAFETY: the buffer's memory is at a fixed place; see `Buffer`.
        #[expect(unsafe_code, reason = "its address goes to the kernel")]
        let ptr = unsafe { (*buffer).as_mut_ptr() };
        let fd = types::Fd(self.fds[worker].as_raw_fd());
        opcode::Read::new(fd, ptr, ROOM as u32).build().user_data(data).into()
    }

    fn remember(&self, unique: u64, shape: Shape, worker: usize) -> u64 {
        let mut pending = self.pending.lock().expect("nobody panics while holding it");
        let free = pending.iter().position(Option::is_none);
        let at = free.unwrap_or_else(|| {
            pending.push(None);
            pending.len() - 1
        });
        pending[at] = Some((unique, shape, worker));
        at as u64
    }

    /// Takes in one request that was read from a clone.
    pub(crate) fn request(&self, worker: usize, bytes: &[u8], work: &mut WorkList) {
        let head = Head::decode(bytes);
        let len = (u32_at(bytes, 0) as usize).clamp(HEAD_IN, bytes.len().max(HEAD_IN));
        let Some(body) = bytes.get(HEAD_IN..len) else { return };
        let (fixed, rest) = body.split_at(fixed_len(head.opcode).min(body.len()));
        let parts = Parts { head, fixed, rest, block_bytes: self.block_bytes };
        match parts.decode() {
            Decoded::Ask(shape, call) => {
                let id = self.remember(head.unique, shape, worker);
                let front = self.me.upgrade().expect("the pool holds its sources");
                work.push((self.volume, Work::Call(Ticket { front, id }, call)));
            }
            Decoded::Now(0) => write_reply(&self.fds[worker], head.unique, Ok(&[])),
            Decoded::Now(e) => write_reply(&self.fds[worker], head.unique, Err(e)),
            Decoded::Silent(calls) => {
                work.extend(calls.into_iter().map(|c| (self.volume, Work::Silent(c))));
            }
        }
    }
}

impl Source for Clones {
    fn start(&self, pool: &Pool, worker: usize, tag: u64) {
        self.tag.store(tag, Ordering::Relaxed);
        let reads: Vec<Entry> = (0..DEPTH).map(|i| self.read(worker, i)).collect();
        pool.push(worker, &reads);
    }

    fn complete(&self, pool: &Pool, _: usize, data: u64, result: i32, work: &mut WorkList) {
        let (worker, i) = (data as usize / DEPTH, data as usize % DEPTH);
        if result > 0 {
            // SAFETY: the read has ended, so the buffer is ours; see `Buffer`.
            #[expect(unsafe_code, reason = "memory that the kernel has filled")]
            let bytes = unsafe { &(&*self.buffers[worker][i].0.get())[..result as usize] };
            self.request(worker, bytes, work);
        } else if matches!(-result, libc::ENODEV | libc::ECANCELED) {
            self.ended.store(true, Ordering::SeqCst);
            return;
        }
        pool.push(worker, &[self.read(worker, i)]);
    }
}

impl Front for Clones {
    fn reply(&self, id: u64, answer: Answer) {
        let entry = {
            let mut pending = self.pending.lock().expect("nobody panics while holding it");
            pending[id as usize].take()
        };
        let (unique, shape, worker) = entry.expect("a call is answered once");
        thread_local! {
            static OUT: std::cell::RefCell<Vec<u8>> = std::cell::RefCell::new(vec![0; ROOM]);
        }
        OUT.with_borrow_mut(|out| {
            let result = encode(shape, answer, self.ttl, out);
            write_reply(&self.fds[worker], unique, result.map(|n| &out[..n]));
        });
    }
}
