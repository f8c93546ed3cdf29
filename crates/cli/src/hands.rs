//! Threads that a check looks at several groups with, one for each processor. They know nothing of
//! what they look at.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, available_parallelism, scope};

/// As many threads as there are processors.
pub struct Threads;

impl check::Hands for Threads {
    fn count(&self) -> usize {
        available_parallelism().map_or(1, NonZero::get)
    }

    fn each(&self, jobs: usize, job: &(dyn Fn(usize) + Sync)) {
        let next = AtomicUsize::new(0);
        let work = || {
            let taken = || next.fetch_add(1, Ordering::Relaxed);
            std::iter::repeat_with(taken).take_while(|n| *n < jobs).for_each(job);
        };
        scope(|s| {
            for _ in 1..self.count().min(jobs) {
                if Builder::new().spawn_scoped(s, work).is_err() {
                    break; // where no more are to be had, those that there are do it
                }
            }
            work();
        });
    }
}
