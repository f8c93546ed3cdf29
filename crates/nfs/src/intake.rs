//! The memory for requests that have come in part, over all connections. Each connection has a
//! little of its own; before it reads a longer record it takes as much from here as the record's
//! mark announces. When nothing is left, the other connections wait and read nothing meanwhile. One
//! that has begun a record has the memory for all of it, so at least one can always go on; if its
//! client sends nothing more, it is in the way of the others and is closed.
//!
//! Invariants:
//! * M1. All hold what each holds together, and never more than there may be.
//! * M2. Nobody waits for more than all may have, which would never come.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// What each connection may hold without asking.
pub(crate) const FREE_BYTES: usize = 16 << 10;
/// What all may hold beyond that.
const ALL_BYTES_MAX: usize = 64 << 20;
/// Whoever waits longer than this for memory is closed. Those that hold it have less time.
const PATIENCE: Duration = Duration::from_secs(60);

/// The memory of all connections.
#[derive(Default)]
pub(crate) struct Intake {
    held: Mutex<Held>,
    less: Condvar,
}

#[derive(Default)]
struct Held {
    bytes: usize,
    waiting: usize,
}

/// What a connection holds of it.
pub(crate) struct Share {
    all: Arc<Intake>,
    bytes: usize,
}

impl Intake {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().expect("nobody panics while holding it")
    }

    /// Takes so much, waiting for it. False: it did not come free.
    pub(crate) fn take(&self, bytes: usize) -> bool {
        assert!(bytes <= ALL_BYTES_MAX, "M2: {bytes} bytes are waited for");
        let full = |h: &mut Held| h.bytes + bytes > ALL_BYTES_MAX;
        let mut held = self.held();
        held.waiting += 1;
        let (mut held, _) = self
            .less
            .wait_timeout_while(held, PATIENCE, full)
            .expect("nobody panics while holding it");
        held.waiting -= 1;
        let has = !full(&mut held);
        held.bytes += if has { bytes } else { 0 };
        assert!(held.bytes <= ALL_BYTES_MAX, "M1: {} bytes are held by all", held.bytes);
        has
    }

    fn give_back(&self, bytes: usize) {
        let mut held = self.held();
        let all = held.bytes;
        assert!(bytes <= all, "M1: {bytes} bytes are given back, of {all} that all hold");
        held.bytes -= bytes;
        drop(held);
        self.less.notify_all();
    }
}

impl Share {
    pub(crate) fn new(all: &Arc<Intake>) -> Share {
        Share { all: all.clone(), bytes: 0 }
    }
    /// How much more has to be taken before so much may be held.
    pub(crate) fn missing(&self, needed: usize) -> usize {
        needed.saturating_sub(FREE_BYTES + self.bytes)
    }
    /// So much more was taken.
    pub(crate) fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
    }
    /// No more than so much is needed: gives back the rest.
    pub(crate) fn shrink(&mut self, needed: usize) {
        let rest = self.bytes.saturating_sub(needed.saturating_sub(FREE_BYTES));
        if rest > 0 {
            self.bytes -= rest;
            self.all.give_back(rest);
        }
    }
    /// Does somebody wait for what is held here?
    pub(crate) fn is_in_the_way(&self) -> bool {
        self.bytes > 0 && self.all.held().waiting > 0
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shrink(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_waited_for() {
        let all = Arc::new(Intake::default());
        let mut one = Share::new(&all);
        assert_eq!(one.missing(FREE_BYTES), 0);
        assert_eq!(one.missing(FREE_BYTES + ALL_BYTES_MAX), ALL_BYTES_MAX);
        assert!(all.take(ALL_BYTES_MAX));
        one.add(ALL_BYTES_MAX);
        assert!(!one.is_in_the_way());
        let other = all.clone();
        let waiting = std::thread::spawn(move || other.take(1000));
        while !one.is_in_the_way() {
            std::thread::yield_now();
        }
        // What is whole makes room.
        one.shrink(FREE_BYTES + ALL_BYTES_MAX - 1000);
        assert!(waiting.join().unwrap());
        assert!(!one.is_in_the_way());
        let mut two = Share::new(&all);
        two.add(1000);
        drop(one);
        assert_eq!(all.held().bytes, 1000);
        drop(two);
        assert_eq!(all.held().bytes, 0);
    }
}
