//! An io_uring with 128-byte entries (FUSE's commands need them). Any thread may submit, under a
//! lock; only the worker whose ring it is takes completions. Where io_uring is not to be had,
//! threads do its work.
//!
//! Invariants:
//! * A1. Of the alarms that are set, each goes off before all that were set before it, once.

use crate::now;
use crate::threads::Threads;
use env::Nanos;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use std::cell::UnsafeCell;
use std::sync::Mutex;
use std::time::Duration;

/// A submission.
pub type Entry = squeue::Entry128;

const ENTRIES: u32 = 512;

/// So long the kernel has to find memory for a request.
const MEMORY_WAIT: Duration = Duration::from_millis(1);

/// The completion of an alarm, which nobody is told of: nothing else has this user data.
const ALARM: u64 = u64::MAX;

/// One worker's ring.
pub struct Ring(Kind);

enum Kind {
    Kernel(Box<KernelRing>),
    Threads(Threads),
}

struct KernelRing {
    ring: IoUring<squeue::Entry128>,
    submitting: Mutex<()>,
    alarms: UnsafeCell<Alarms>,
}

/// Timers that end a wait. A wait with a time limit of its own would start a timer and cancel it
/// each time, beside the little that a short request costs.
#[derive(Default)]
struct Alarms {
    /// When those under way go off, the earliest last.
    at: Vec<Nanos>,
    /// The newest one's time, where the kernel reads it.
    time: types::Timespec,
}

/// SAFETY: `alarms` is used only by the worker whose ring it is, in `wait` and `completions`; the
/// kernel reads the time as it takes the entry. Everything else is behind the lock.
#[expect(unsafe_code, reason = "an alarm's time lies where the kernel can read it")]
unsafe impl Sync for KernelRing {}

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

    /// Gives what is queued to the kernel now. Returns whether it was taken: if not, it goes with
    /// the next wait of the worker whose ring it is.
    pub(crate) fn submit(&self) -> bool {
        match &self.0 {
            Kind::Kernel(ring) => ring.submit(),
            Kind::Threads(_) => true, // they have it already
        }
    }

    /// Submits and waits for a completion, at most until `until` (monotonic). It may return a
    /// little earlier or later. Only for the worker whose ring it is.
    pub(crate) fn wait(&self, until: Option<Nanos>) -> std::io::Result<()> {
        match &self.0 {
            Kind::Kernel(ring) => ring.wait(until),
            Kind::Threads(threads) => {
                threads.wait(until.map(|u| u.since(now().mono).0.max(1000)));
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
        Ok(KernelRing { ring, submitting: Mutex::default(), alarms: UnsafeCell::default() })
    }

    fn push(&self, entries: &[Entry]) {
        let _submitting = self.submitting.lock().expect("nobody panics while submitting");
        // SAFETY: the lock is held, so this is the only submitter.
        #[expect(unsafe_code, reason = "the ring is shared between threads; the lock orders them")]
        let mut queue = unsafe { self.ring.submission_shared() };
        let mut left = entries;
        while !left.is_empty() {
            let room = (queue.capacity() - queue.len()).min(left.len());
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
            let (some, rest) = left.split_at(room);
            // SAFETY: see `Ring::push`: what the entries point to outlives them.
            #[expect(unsafe_code, reason = "io_uring takes pointers")]
            unsafe { queue.push_multiple(some) }.expect("there is room for them");
            left = rest;
        }
    }

    #[expect(unsafe_code, clippy::mut_from_ref, reason = "see the argument at `Sync`")]
    fn alarms(&self) -> &mut Alarms {
        // SAFETY: see `Sync`: only the worker calls this, and keeps nothing of it.
        unsafe { &mut *self.alarms.get() }
    }

    /// Sees to it that a completion comes at `until`, if no alarm goes off before.
    fn set_alarm(&self, until: Nanos) {
        let alarms = self.alarms();
        if alarms.at.last().is_some_and(|first| *first <= until) {
            return;
        }
        alarms.at.push(until);
        let falls = alarms.at.is_sorted_by(|later, sooner| sooner < later);
        assert!(falls, "A1: of {} alarms the last is not the earliest", alarms.at.len());
        // One that the kernel has not taken yet gets this time too: it is the one that is wanted.
        // It is how long from now, because the time itself would be another one to the kernel
        // where this process has clocks of its own (time namespaces).
        let left = until.since(now().mono);
        alarms.time = types::Timespec::new().sec(left.secs()).nsec(left.subsec());
        let alarm = opcode::Timeout::new(&raw const alarms.time);
        // By the clock that `now` reads: it goes on while the machine is suspended.
        let alarm = alarm.flags(types::TimeoutFlags::BOOTTIME).build().user_data(ALARM);
        self.push(&[alarm.into()]);
    }

    fn submit(&self) -> bool {
        let submitted = self.ring.submit();
        submitted.inspect_err(|e| tracing::error!("io_uring: {e}")).is_ok()
    }

    fn wait(&self, until: Option<Nanos>) -> std::io::Result<()> {
        if let Some(until) = until {
            self.set_alarm(until);
        }
        let Err(e) = self.ring.submit_and_wait(1) else { return Ok(()) };
        match e.raw_os_error() {
            Some(libc::EINTR | libc::EBUSY) => Ok(()),
            // The kernel has no memory for a request: what is queued stays so until it has.
            Some(libc::EAGAIN) => {
                std::thread::sleep(MEMORY_WAIT);
                Ok(())
            }
            _ => Err(e),
        }
    }

    fn completions(&self, into: &mut Vec<(u64, i32)>) {
        // SAFETY: one thread alone takes completions: the worker that owns the ring.
        #[expect(unsafe_code, reason = "the completion side belongs to one thread")]
        let queue = unsafe { self.ring.completion_shared() };
        for c in queue {
            if c.user_data() == ALARM {
                let earliest = self.alarms().at.pop();
                assert!(earliest.is_some(), "A1: an alarm goes off that nobody has set");
            } else {
                into.push((c.user_data(), c.result()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use std::time::Instant;

    const INSIDE: &str = "CAIRN_TEST_CLOCKS";
    const FOR_EVER: Duration = Duration::from_secs(20);

    /// As after a day of being suspended: the clock that counts on is a day before the other.
    #[test]
    fn an_alarm_goes_off_where_the_clocks_differ() {
        if std::env::var_os(INSIDE).is_some() {
            let ring = Ring::new().expect("threads can be started");
            let until = now().mono.plus(Nanos::from_millis(20));
            while now().mono < until {
                ring.wait(Some(until)).expect("it can be waited for");
                ring.completions(&mut Vec::new());
            }
            return;
        }
        let me = std::env::current_exe().expect("the test is a program");
        let mut inside = Command::new("unshare");
        inside.args(["--time", "--boottime", "86400"]).arg(me).env(INSIDE, "1");
        inside.args(["an_alarm_goes_off_where_the_clocks_differ", "--test-threads", "1"]);
        inside.stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(mut inside) = inside.spawn() else { return println!("skipped: no unshare") };
        let begun = Instant::now();
        while begun.elapsed() < FOR_EVER {
            match inside.try_wait().expect("it is ours") {
                Some(status) if status.success() => return,
                // What a test that has failed ends with.
                Some(status) if status.code() == Some(101) => break,
                Some(_) => return println!("skipped: no clocks of its own"),
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
        let _ = inside.kill();
        panic!("no alarm goes off, or not when it should");
    }
}
