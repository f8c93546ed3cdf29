//! The end of a server, watched: whoever waits for it is told what for, and who stops it a second
//! time does not wait. It knows no front end.

use super::served::Served;
use crate::say;
use host::{Pool, Stop, Stops};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use vfs::VolumeState;

/// An end that takes longer is explained.
const QUIET: Duration = Duration::from_secs(2);
/// A signal that comes sooner is the first one once more: timeout(1), for one, sends it to the
/// process and to its group.
const ECHO: Duration = Duration::from_millis(500);

/// Why a server ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// A signal asked for it: the next one is the second.
    Signal,
    /// What it served is gone: whoever stops it does so for the first time.
    Gone,
    /// A pool's process: the pool's signal may come from its service or terminal as well, and who
    /// does not wait for the pool ends that.
    Pool,
}

/// Does what is to be done at the end, `f`, and tells meanwhile what takes long. A second SIGTERM
/// or SIGINT ends the process there and then.
pub(super) fn watched<T>(
    stops: &Stops,
    (volumes, pool): (&[Served], &Pool),
    why: Why,
    f: impl FnOnce() -> T,
) -> T {
    let ended = AtomicBool::new(false);
    let watch = || watch(stops, (volumes, pool), why, &ended);
    std::thread::scope(|s| {
        // Without a thread to be had, it ends all the same.
        let _ = std::thread::Builder::new().name("end".into()).spawn_scoped(s, watch);
        let done = f();
        ended.store(true, Ordering::Relaxed);
        done
    })
}

fn watch(stops: &Stops, (volumes, pool): (&[Served], &Pool), why: Why, ended: &AtomicBool) {
    let begun = Instant::now();
    let mut stopped = (why == Why::Signal).then_some(begun);
    let mut told = false;
    let mut over = || {
        if !told && begun.elapsed() >= QUIET {
            told = true;
            closing(volumes, pool);
        }
        ended.load(Ordering::Relaxed)
    };
    while let Some(stop) = stops.heard(&mut over) {
        if stop == Stop::Hangup || why == Why::Pool {
            continue;
        }
        if stopped.is_some_and(|at: Instant| at.elapsed() >= ECHO) {
            end_now(volumes);
        }
        stopped.get_or_insert_with(Instant::now);
    }
}

/// What is waited for.
fn closing(volumes: &[Served], pool: &Pool) {
    for (n, v) in volumes.iter().enumerate().filter(|(_, v)| is_open(v)) {
        let what = match pool.waits_for_room(n) {
            Some(_) => "no space left on the medium",
            None => "waiting for the disk",
        };
        say::err(&format!("closing {}: {what}", v.file.path().display()));
    }
}

/// As kill -9: nothing more is written.
fn end_now(volumes: &[Served]) {
    let open = volumes.iter().filter(|v| is_open(v));
    let open: Vec<String> = open.map(|v| v.file.path().display().to_string()).collect();
    if !open.is_empty() {
        say::err(&format!(
            "cairn: stopped twice: {} is not closed; what is durable stays, and the next opening \
             recovers it",
            open.join(", ")
        ));
    }
    std::process::exit(1);
}

fn is_open(v: &Served) -> bool {
    v.monitor.state() == VolumeState::Open
}
