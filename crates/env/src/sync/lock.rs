//! A lock with many readers or one writer, first come first served. A guard keeps the lock alive,
//! so a task can carry it about.
//!
//! Invariants:
//! * L1. It has readers, or one writer, or nobody.
//! * L2. Whoever waits has a later number than all before him, and nobody gets in past him.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

#[derive(Default)]
struct State {
    readers: usize,
    writer: bool,
    next: u64,
    queue: VecDeque<Waiter>,
}
struct Waiter {
    ticket: u64,
    shared: bool,
    waker: Waker,
}

impl State {
    fn free_for(&self, shared: bool) -> bool {
        !self.writer && (shared || self.readers == 0)
    }
    fn take(&mut self, shared: bool) {
        let (readers, writer) = (self.readers, self.writer);
        assert!(
            self.free_for(shared),
            "L1: a lock is taken that {readers} read, or one writes: {writer}"
        );
        if shared { self.readers += 1 } else { self.writer = true }
    }
    /// Wakes the first in the queue, and with a reader all readers right behind it.
    fn wake_next(&self) {
        if let Some(first) = self.queue.front()
            && self.free_for(first.shared)
        {
            first.waker.wake_by_ref();
        }
    }
}

/// The lock.
#[derive(Default, Clone)]
pub struct Lock(Rc<RefCell<State>>);

impl Lock {
    /// An open lock.
    pub fn new() -> Lock {
        Lock::default()
    }

    /// Waits until nobody holds it.
    pub async fn lock(&self) -> LockGuard {
        self.acquire(false).await;
        LockGuard(self.clone())
    }

    /// Waits until no writer holds it or waits before us.
    pub async fn shared(&self) -> SharedGuard {
        self.acquire(true).await;
        SharedGuard(self.clone())
    }

    /// Takes it if that needs no waiting.
    pub fn try_lock(&self) -> Option<LockGuard> {
        self.try_acquire(false).then(|| LockGuard(self.clone()))
    }

    /// Takes it shared if that needs no waiting.
    pub fn try_shared(&self) -> Option<SharedGuard> {
        self.try_acquire(true).then(|| SharedGuard(self.clone()))
    }

    /// Is it held, or waited for?
    pub fn is_busy(&self) -> bool {
        let s = self.0.borrow();
        s.writer || s.readers > 0 || !s.queue.is_empty()
    }

    fn try_acquire(&self, shared: bool) -> bool {
        let mut s = self.0.borrow_mut();
        let free = s.queue.is_empty() && s.free_for(shared);
        if free {
            s.take(shared);
        }
        free
    }

    async fn acquire(&self, shared: bool) {
        if self.try_acquire(shared) {
            return;
        }
        let ticket = {
            let mut s = self.0.borrow_mut();
            s.next += 1;
            s.next
        };
        let mut place = Place { lock: self, ticket, queued: false };
        poll_fn(|cx| {
            let mut s = self.0.borrow_mut();
            if !place.queued {
                place.queued = true;
                let last = s.queue.back().map(|w| w.ticket);
                assert!(last < Some(ticket), "L2: {ticket} waits for a lock behind {last:?}");
                s.queue.push_back(Waiter { ticket, shared, waker: cx.waker().clone() });
                return Poll::Pending;
            }
            if s.queue.front().is_some_and(|w| w.ticket == ticket) && s.free_for(shared) {
                s.queue.pop_front();
                place.queued = false;
                s.take(shared);
                s.wake_next(); // a reader behind a reader
                return Poll::Ready(());
            }
            if let Some(w) = s.queue.iter_mut().find(|w| w.ticket == ticket) {
                w.waker.clone_from(cx.waker());
            }
            Poll::Pending
        })
        .await;
    }

    fn release(&self, shared: bool) {
        let mut s = self.0.borrow_mut();
        if shared {
            assert!(s.readers > 0 && !s.writer, "L1: a reader lets go of a lock that none has");
            s.readers -= 1;
        } else {
            assert!(s.writer && s.readers == 0, "L1: a writer lets go of a lock that it has not");
            s.writer = false;
        }
        s.wake_next();
    }
}

/// A place in the queue; a task that is dropped while it waits gives it up.
struct Place<'a> {
    lock: &'a Lock,
    ticket: u64,
    queued: bool,
}
impl Drop for Place<'_> {
    fn drop(&mut self) {
        if self.queued {
            let mut s = self.lock.0.borrow_mut();
            s.queue.retain(|w| w.ticket != self.ticket);
            s.wake_next();
        }
    }
}

/// Holds a lock alone until it is dropped.
pub struct LockGuard(Lock);
impl Drop for LockGuard {
    fn drop(&mut self) {
        self.0.release(false);
    }
}

/// Holds a lock together with other readers until it is dropped.
pub struct SharedGuard(Lock);
impl Drop for SharedGuard {
    fn drop(&mut self) {
        self.0.release(true);
    }
}
