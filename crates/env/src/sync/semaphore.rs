//! Permits, first come first served: bounds how many of something are in flight.
//!
//! Invariants:
//! * S1. A permit is free or taken, and as many are both together as there ever were.
//! * S2. Whoever waits has a later number than all before him, and nobody gets a permit past him.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

struct State {
    permits: usize,
    free: usize,
    next: u64,
    queue: VecDeque<(u64, Waker)>,
}

/// A number of permits.
#[derive(Clone)]
pub struct Semaphore(Rc<RefCell<State>>);

impl Semaphore {
    /// With `permits` of them.
    pub fn new(permits: usize) -> Semaphore {
        let queue = VecDeque::new();
        Semaphore(Rc::new(RefCell::new(State { permits, free: permits, next: 0, queue })))
    }

    /// Takes one, waiting for it if need be.
    pub async fn acquire(&self) -> Permit {
        let mut place = Place { of: self, ticket: None };
        poll_fn(|cx| {
            let mut s = self.0.borrow_mut();
            let first = match place.ticket {
                None => s.queue.is_empty(),
                Some(t) => s.queue.front().is_some_and(|w| w.0 == t),
            };
            if first && s.free > 0 {
                s.free -= 1;
                if let Some(t) = place.ticket.take() {
                    let served = s.queue.pop_front().map(|w| w.0);
                    assert_eq!(served, Some(t), "S2: a permit goes to {t} in another's place");
                }
                s.wake_next();
                return Poll::Ready(());
            }
            match place.ticket {
                None => {
                    s.next += 1;
                    let t = s.next;
                    let last = s.queue.back().map(|w| w.0);
                    assert!(last < Some(t), "S2: {t} waits for a permit behind {last:?}");
                    s.queue.push_back((t, cx.waker().clone()));
                    place.ticket = Some(t);
                }
                Some(t) => {
                    if let Some(w) = s.queue.iter_mut().find(|w| w.0 == t) {
                        w.1.clone_from(cx.waker());
                    }
                }
            }
            Poll::Pending
        })
        .await;
        Permit(self.clone())
    }
}

impl State {
    fn wake_next(&self) {
        if self.free > 0
            && let Some(w) = self.queue.front()
        {
            w.1.wake_by_ref();
        }
    }
}

struct Place<'a> {
    of: &'a Semaphore,
    ticket: Option<u64>,
}
impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(t) = self.ticket {
            let mut s = self.of.0.borrow_mut();
            s.queue.retain(|w| w.0 != t);
            s.wake_next();
        }
    }
}

/// One permit, given back when dropped.
pub struct Permit(Semaphore);
impl Drop for Permit {
    fn drop(&mut self) {
        let mut s = self.0.0.borrow_mut();
        s.free += 1;
        assert!(s.free <= s.permits, "S1: {} permits are free of {}", s.free, s.permits);
        s.wake_next();
    }
}
