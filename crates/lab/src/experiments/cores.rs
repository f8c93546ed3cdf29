//! Several simulations beside one another, one a core. Each is made, run and dropped by one thread
//! and shares nothing with the others, so that what it gives is what it gives alone.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Runs `job` on each of `all`; the results in their order.
pub(crate) fn each<A: Sync, T: Send>(all: &[A], job: impl Fn(&A) -> T + Sync) -> Vec<T> {
    let cores = thread::available_parallelism().map_or(1, |n| n.get()).min(all.len());
    let next = AtomicUsize::new(0);
    let done: Vec<Mutex<Option<T>>> = all.iter().map(|_| Mutex::new(None)).collect();
    thread::scope(|s| {
        for _ in 0..cores {
            s.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    let Some(a) = all.get(n) else { return };
                    let result = job(a);
                    *done[n].lock().expect("nobody fails with it held") = Some(result);
                }
            });
        }
    });
    let taken = |m: Mutex<Option<T>>| m.into_inner().expect("no thread failed");
    done.into_iter().map(|m| taken(m).expect("each was run")).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn results_come_in_order() {
        let all: Vec<u64> = (0..100).collect();
        assert_eq!(super::each(&all, |n| n * n), all.iter().map(|n| n * n).collect::<Vec<_>>());
    }
}
