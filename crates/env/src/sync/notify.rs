//! A signal: tasks wait for the next one, and one call wakes them all. It holds no memory of
//! signals that nobody waited for, so a waiter checks its condition first and again afterwards.

use std::cell::RefCell;
use std::future::poll_fn;
use std::task::{Poll, Waker};

#[derive(Default)]
struct State {
    count: u64,
    waiting: Vec<Waker>,
}

/// The signal.
#[derive(Default)]
pub struct Notify(RefCell<State>);

impl Notify {
    /// A signal nobody waits for.
    pub fn new() -> Notify {
        Notify::default()
    }
    /// Waits for the next [`Notify::wake_all`] after this call is first polled.
    pub async fn wait(&self) {
        let seen = self.0.borrow().count;
        poll_fn(|cx| {
            let mut s = self.0.borrow_mut();
            if s.count != seen {
                return Poll::Ready(());
            }
            if !s.waiting.iter().any(|w| w.will_wake(cx.waker())) {
                s.waiting.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
    /// Wakes all who wait.
    pub fn wake_all(&self) {
        let waiting = {
            let mut s = self.0.borrow_mut();
            s.count += 1;
            std::mem::take(&mut s.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}
