//! The memory of one entry of a FUSE queue: shared with the kernel, which has it while it waits for
//! a request; then one request has it until its reply is committed.
//!
//! States      the kernel's -its completion comes-> ours -asks the volume-> asked -is answered->
//!             ours -goes with its reply-> the kernel's

use crate::decode::Shape;
use crate::dev::told;
use crate::init::PAYLOAD;
use crate::wire::{HEAD_OUT, u32_at, u64_at};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

/// As the kernel lays it out: two headers of 128 bytes, then its own words, then (a page on) the
/// payload.
const IN_OUT: usize = 0;
const FIXED: usize = 128;
const COMMIT_ID: usize = 256 + 8;
const PAYLOAD_LEN: usize = 256 + 16;
pub(crate) const PAGE: usize = 4096;

/// One entry.
pub(crate) struct Slot {
    memory: UnsafeCell<Box<[u8]>>,
    /// The reply's shape, and when the request came.
    asked: UnsafeCell<(Shape, Instant)>,
    iovecs: UnsafeCell<[libc::iovec; 2]>,
    /// Who has it: [`KERNELS`], [`OURS`] or [`ASKED`].
    state: AtomicU8,
}

/// The kernel has it, and writes to it.
const KERNELS: u8 = 0;
/// A thread of ours has it: a request has come, or is answered.
const OURS: u8 = 1;
/// A request has it, which has yet to be answered.
const ASKED: u8 = 2;

/// SAFETY: a slot changes hands between threads, one at a time: the worker that took its completion
/// has it until it enters the volume; then the one thread that carries the reply out
/// (`Front::reply` is called once for each call). The monitor's mutex orders the two. The kernel
/// writes to it only between a commit and the next completion.
#[expect(unsafe_code, reason = "memory shared with the kernel, handed from thread to thread")]
unsafe impl Sync for Slot {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "as above")]
unsafe impl Send for Slot {}

impl Slot {
    pub(crate) fn new() -> Slot {
        let mut memory = vec![0; PAGE + PAYLOAD].into_boxed_slice();
        let base = memory.as_mut_ptr();
        let iovecs = [
            libc::iovec { iov_base: base.cast(), iov_len: PAGE },
            libc::iovec { iov_base: base.wrapping_add(PAGE).cast(), iov_len: PAYLOAD },
        ];
        Slot {
            memory: UnsafeCell::new(memory),
            asked: UnsafeCell::new((Shape::Empty, Instant::now())),
            iovecs: UnsafeCell::new(iovecs),
            state: AtomicU8::new(KERNELS),
        }
    }

    /// The memory, for the one who has the slot.
    #[expect(unsafe_code, clippy::mut_from_ref, reason = "see the argument at `Sync`")]
    fn memory(&self) -> &mut [u8] {
        // SAFETY: see `Sync`: whoever calls has the slot alone.
        unsafe { &mut *self.memory.get() }
    }

    /// The two pieces that the entry is registered with; they live as long as the slot.
    pub(crate) fn iovecs(&self) -> *const libc::iovec {
        self.iovecs.get().cast()
    }
    pub(crate) fn head(&self) -> &[u8] {
        &self.memory()[IN_OUT..IN_OUT + 128]
    }
    pub(crate) fn fixed(&self) -> &[u8] {
        &self.memory()[FIXED..FIXED + 128]
    }
    pub(crate) fn rest(&self) -> &[u8] {
        let len = u32_at(self.memory(), PAYLOAD_LEN) as usize;
        &self.memory()[PAGE..PAGE + len.min(PAYLOAD)]
    }
    pub(crate) fn commit_id(&self) -> u64 {
        u64_at(self.memory(), COMMIT_ID)
    }
    /// It passes on to another. Whoever has it is alone with it, so a load and a store will do.
    fn pass(&self, from: u8, to: u8) {
        let state = self.state.load(Ordering::Relaxed);
        assert_eq!(state, from, "F1: the memory of a request, which is to pass on to {to}");
        self.state.store(to, Ordering::Relaxed);
    }

    /// Its completion has come: it is ours.
    pub(crate) fn comes(&self) {
        self.pass(KERNELS, OURS);
    }
    /// It goes with its reply: it is the kernel's again.
    pub(crate) fn goes(&self) {
        self.pass(OURS, KERNELS);
    }
    /// A request came now whose reply is to have this shape.
    pub(crate) fn set_asked(&self, shape: Shape) {
        self.pass(OURS, ASKED);
        // SAFETY: see `Sync`.
        #[expect(unsafe_code, reason = "see the argument at `Sync`")]
        unsafe {
            *self.asked.get() = (shape, Instant::now());
        }
    }
    /// The request is about to be answered; once.
    pub(crate) fn take_asked(&self) -> (Shape, Instant) {
        self.pass(ASKED, OURS);
        // SAFETY: see `Sync`.
        #[expect(unsafe_code, reason = "see the argument at `Sync`")]
        unsafe {
            *self.asked.get()
        }
    }
    /// Room for the reply's body.
    pub(crate) fn payload(&self) -> &mut [u8] {
        &mut self.memory()[PAGE..]
    }
    /// Writes the reply's head: the body is in the payload.
    pub(crate) fn finish(&self, result: Result<usize, i32>) {
        let (len, error) = match result {
            Ok(n) => (n, 0),
            Err(e) => (0, -told(e)),
        };
        assert!(len <= PAYLOAD, "F2: an answer of {len} bytes lies in memory of {PAYLOAD}");
        let memory = self.memory();
        let unique = u64_at(memory, IN_OUT + 8);
        memory[IN_OUT..IN_OUT + 4].copy_from_slice(&((HEAD_OUT + len) as u32).to_ne_bytes());
        memory[IN_OUT + 4..IN_OUT + 8].copy_from_slice(&error.to_ne_bytes());
        memory[IN_OUT + 8..IN_OUT + 16].copy_from_slice(&unique.to_ne_bytes());
        memory[PAYLOAD_LEN..PAYLOAD_LEN + 4].copy_from_slice(&(len as u32).to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F1: whatever is out of its turn is found, and nothing else.
    #[test]
    fn memory_passes_from_one_to_the_next_and_never_otherwise() {
        type Step = fn(&Slot);
        let steps: [(Step, u8, u8); 4] = [
            (Slot::comes, KERNELS, OURS),
            (|s| s.set_asked(Shape::Empty), OURS, ASKED),
            (|s| assert_eq!(s.take_asked().0, Shape::Empty), ASKED, OURS),
            (Slot::goes, OURS, KERNELS),
        ];
        for (step, from, to) in steps {
            for state in [KERNELS, OURS, ASKED] {
                let slot = Slot::new();
                slot.state.store(state, Ordering::Relaxed);
                let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| step(&slot)));
                assert_eq!(done.is_ok(), state == from, "{from} to {to}, of {state}");
                assert!(done.is_err() || slot.state.load(Ordering::Relaxed) == to);
            }
        }
    }
}
