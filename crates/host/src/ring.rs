//! An io_uring with 128-byte entries (FUSE's commands need them). Any thread may submit, under a
//! lock; only the worker whose ring it is takes completions.

use io_uring::{IoUring, cqueue, squeue, types};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// A submission.
pub type Entry = squeue::Entry128;

const ENTRIES: u32 = 512;

/// One worker's ring.
pub struct Ring {
    ring: IoUring<squeue::Entry128>,
    submitting: Mutex<Vec<Entry>>,
    backlog: AtomicBool,
}

/// Has this kernel io_uring, and may we use it?
pub fn ring_available() -> bool {
    Ring::new().is_ok()
}

impl Ring {
    /// A new ring.
    pub fn new() -> std::io::Result<Ring> {
        let mut b = IoUring::<squeue::Entry128, cqueue::Entry>::builder();
        b.setup_submit_all().setup_cqsize(4 * ENTRIES);
        let ring = b.build(ENTRIES)?;
        Ok(Ring { ring, submitting: Mutex::default(), backlog: AtomicBool::new(false) })
    }

    /// Queues entries. What they point to must live until their completions are taken, which is the
    /// caller's promise: sources leak or own their memory, the worker owns its requests.
    pub fn push(&self, entries: &[Entry]) {
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
            // SAFETY: see `push`: what the entries point to outlives them.
            #[expect(unsafe_code, reason = "io_uring takes pointers")]
            unsafe { queue.push_multiple(&some) }.expect("there is room for them");
        }
        self.backlog.store(false, Ordering::Relaxed);
    }

    /// Gives what is queued to the kernel now: for a ring that is not the caller's own.
    pub fn submit(&self) {
        if let Err(e) = self.ring.submit() {
            tracing::error!("io_uring: {e}");
        }
    }

    /// Submits and waits for a completion, at most `timeout_ns`.
    pub(crate) fn wait(&self, timeout_ns: Option<u64>) -> std::io::Result<()> {
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

    /// Takes the completions that are there: (user data, result). Only for the worker whose ring it
    /// is.
    pub(crate) fn completions(&self, into: &mut Vec<(u64, i32)>) {
        // SAFETY: one thread alone takes completions: the worker that owns the ring.
        #[expect(unsafe_code, reason = "the completion side belongs to one thread")]
        let queue = unsafe { self.ring.completion_shared() };
        into.extend(queue.map(|c| (c.user_data(), c.result())));
    }
}
