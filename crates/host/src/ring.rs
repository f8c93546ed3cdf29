//! An io_uring with 128-byte entries (FUSE's commands need them). Any thread may submit, under a
//! lock; only the worker whose ring it is takes completions. Where io_uring is not to be had,
//! threads do its work.

use crate::threads::Threads;
use io_uring::{IoUring, cqueue, squeue, types};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// A submission.
pub type Entry = squeue::Entry128;

const ENTRIES: u32 = 512;

/// One worker's ring.
pub struct Ring(Kind);

enum Kind {
    Kernel(Box<KernelRing>),
    Threads(Threads),
}

struct KernelRing {
    ring: IoUring<squeue::Entry128>,
    submitting: Mutex<Vec<Entry>>,
    backlog: AtomicBool,
}

/// Has this kernel io_uring, and may we use it?
pub fn ring_available() -> bool {
    KernelRing::new().is_ok()
}

impl Ring {
    /// A new ring, or threads in its place.
    pub fn new() -> std::io::Result<Ring> {
        let kind = match KernelRing::new() {
            Ok(ring) => Kind::Kernel(Box::new(ring)),
            Err(e) => {
                tracing::info!("no io_uring ({e}): threads in its place");
                Kind::Threads(Threads::start()?)
            }
        };
        Ok(Ring(kind))
    }

    /// Queues entries. What they point to must live until their completions are taken, which is the
    /// caller's promise: sources leak or own their memory, the worker owns its requests.
    pub fn push(&self, entries: &[Entry]) {
        match &self.0 {
            Kind::Kernel(ring) => ring.push(entries),
            Kind::Threads(threads) => threads.push(entries),
        }
    }

    /// Gives what is queued to the kernel now: for a ring that is not the caller's own.
    pub fn submit(&self) {
        match &self.0 {
            Kind::Kernel(ring) => ring.submit(),
            Kind::Threads(_) => (), // they have it already
        }
    }

    /// Submits and waits for a completion, at most `timeout_ns`.
    pub(crate) fn wait(&self, timeout_ns: Option<u64>) -> std::io::Result<()> {
        match &self.0 {
            Kind::Kernel(ring) => ring.wait(timeout_ns),
            Kind::Threads(threads) => {
                threads.wait(timeout_ns);
                Ok(())
            }
        }
    }

    /// Takes the completions that are there: (user data, result). Only for the worker whose ring it
    /// is.
    pub(crate) fn completions(&self, into: &mut Vec<(u64, i32)>) {
        match &self.0 {
            Kind::Kernel(ring) => ring.completions(into),
            Kind::Threads(threads) => threads.completions(into),
        }
    }
}

impl KernelRing {
    fn new() -> std::io::Result<KernelRing> {
        let mut b = IoUring::<squeue::Entry128, cqueue::Entry>::builder();
        b.setup_submit_all().setup_cqsize(4 * ENTRIES);
        let ring = b.build(ENTRIES)?;
        Ok(KernelRing { ring, submitting: Mutex::default(), backlog: AtomicBool::new(false) })
    }

    fn push(&self, entries: &[Entry]) {
        let mut waiting = self.submitting.lock().expect("nobody panics while submitting");
        waiting.extend_from_slice(entries);
        self.fill(&mut waiting);
    }

    /// Moves what waits into the kernel's queue as far as it has room.
    fn fill(&self, waiting: &mut Vec<Entry>) {
        // SAFETY: the lock is held, so this is the only submitter.
        #[expect(unsafe_code, reason = "the ring is shared between threads; the lock orders them")]
        let mut queue = unsafe { self.ring.submission_shared() };
        while !waiting.is_empty() {
            let room = (queue.capacity() - queue.len()).min(waiting.len());
            if room == 0 {
                queue.sync();
                drop(queue);
                // Full: the kernel must take what is there before more fits.
                let _ = self.ring.submit();
                #[expect(unsafe_code, reason = "as above")]
                // SAFETY: as above.
                {
                    queue = unsafe { self.ring.submission_shared() };
                }
                continue;
            }
            let some: Vec<Entry> = waiting.drain(..room).collect();
            // SAFETY: see `Ring::push`: what the entries point to outlives them.
            #[expect(unsafe_code, reason = "io_uring takes pointers")]
            unsafe { queue.push_multiple(&some) }.expect("there is room for them");
        }
        self.backlog.store(false, Ordering::Relaxed);
    }

    fn submit(&self) {
        if let Err(e) = self.ring.submit() {
            tracing::error!("io_uring: {e}");
        }
    }

    fn wait(&self, timeout_ns: Option<u64>) -> std::io::Result<()> {
        let ts;
        let result = match timeout_ns {
            None => self.ring.submit_and_wait(1),
            Some(ns) => {
                ts = types::Timespec::new()
                    .sec(ns / 1_000_000_000)
                    .nsec((ns % 1_000_000_000) as u32);
                let args = types::SubmitArgs::new().timespec(&ts);
                self.ring.submitter().submit_with_args(1, &args)
            }
        };
        match result {
            Ok(_) => Ok(()),
            Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::ETIME | libc::EBUSY)) => {
                Ok(())
            }
            Err(e) => Err(e),
        }
    }

    fn completions(&self, into: &mut Vec<(u64, i32)>) {
        // SAFETY: one thread alone takes completions: the worker that owns the ring.
        #[expect(unsafe_code, reason = "the completion side belongs to one thread")]
        let queue = unsafe { self.ring.completion_shared() };
        into.extend(queue.map(|c| (c.user_data(), c.result())));
    }
}
