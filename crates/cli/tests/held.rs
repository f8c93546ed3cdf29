//! A server in mode `async` to which files come and go, as at a mail server: what was freed is
//! given back, so that neither its memory nor the time of an operation grows with all that ever
//! was.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod served;

use served::{Client, Folder, Server};
use std::time::{Duration, Instant};

const ROUNDS: u32 = 3_000;

/// Makes and removes a file so many times; the time it took.
fn churn(on: &mut Client, rounds: u32) -> Duration {
    let root = on.root.clone();
    let start = Instant::now();
    for n in 0..rounds {
        let name = format!("f{}", n % 7);
        on.create_new(&root, &name).unwrap();
        on.remove(&root, &name).unwrap();
    }
    start.elapsed()
}

#[test]
fn files_that_come_and_go_leave_nothing() {
    let folder = Folder::new();
    let image = folder.volume("v.img", "64M");
    let more = ["--mode", "async", "--unsafe-async", "--cache", "32M"];
    let server = Server::trusting(&[&image], "127.0.0.1:0", &more);
    let mut on = server.client("/");
    let first = churn(&mut on, ROUNDS);
    let rss = server.memory_kib("VmRSS");
    let later = (0..3).map(|_| churn(&mut on, ROUNDS)).min().unwrap();
    let grown = server.memory_kib("VmRSS").saturating_sub(rss);
    // 0.7 KB for each file that was, without a bound: 6 MB.
    assert!(grown < 3 << 10, "{grown} KiB more after {} files", 3 * ROUNDS);
    assert!(later < first * 4, "{ROUNDS} files took {first:?}, later {later:?}");
    drop(on);
    server.stop();
}
