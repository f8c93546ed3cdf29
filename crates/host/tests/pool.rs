//! The workers beside threads that are none of them and end: connections, and whoever waits for
//! pages that the kernel holds back. Nothing here knows FUSE; any entry that stays in a ring does.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use host::{Entry, Pool, Source, WorkList, ring_available};
use io_uring::{opcode, types};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Notes what becomes of its entries.
#[derive(Default)]
struct Notes {
    tag: AtomicU64,
    started: AtomicUsize,
    results: Mutex<Vec<i32>>,
}

impl Source for Notes {
    fn start(&self, _: &Pool, _: usize, tag: u64) {
        self.tag.store(tag, SeqCst);
        self.started.fetch_add(1, SeqCst);
    }
    fn complete(&self, _: &Pool, _: usize, _: u64, result: i32, _: &mut WorkList) {
        self.results.lock().unwrap().push(result);
    }
}

fn until(is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it never came");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The kernel cancels what a thread has submitted when that ends, in whatever ring it is.
#[test]
fn what_a_thread_has_asked_for_goes_on_when_it_has_ended() {
    if !ring_available() {
        eprintln!("skipped: there is no io_uring here");
        return;
    }
    let pool = Pool::start(Vec::new()).unwrap();
    let notes = Arc::new(Notes::default());
    pool.add_source(notes.clone());
    until(|| notes.started.load(SeqCst) == pool.workers());
    let (from, mut into) = std::io::pipe().unwrap();
    let byte: &'static mut [u8; 1] = Box::leak(Box::default()); // the kernel has it
    let fd = types::Fd(from.as_raw_fd());
    let tag = notes.tag.load(SeqCst);
    let read: Entry = opcode::Read::new(fd, byte.as_mut_ptr(), 1).build().user_data(tag).into();
    std::thread::scope(|s| s.spawn(|| pool.push(0, &[read])).join().unwrap());
    // A cancelled one would have come by then.
    std::thread::sleep(Duration::from_millis(100));
    into.write_all(b"x").unwrap();
    until(|| !notes.results.lock().unwrap().is_empty());
    assert_eq!(*notes.results.lock().unwrap(), [1], "one byte was read");
    pool.stop();
}
