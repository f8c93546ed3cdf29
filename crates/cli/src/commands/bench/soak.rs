//! `cairn bench soak`: mixed load for as long as wanted, and how long the slowest operation took
//! without the time of its disk requests, which the server's log tells of (`cairn serve -v`, see
//! crates/host/src/slow.rs). An operation that takes over a second by itself is a stall, and a
//! failure. It counts no rates; the other workloads do.

use super::{Place, on_threads, target_of};
use crate::args::BenchArgs;
use crate::{Failure, Outcome};
use env::{Nanos, Rng};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Mutex;

/// A century: nobody waits longer, and the clock counts so far.
const SECONDS_MAX: u64 = 100 * 365 * 86_400;
/// Longer than this by itself, an operation has stalled.
const STALL: Nanos = Nanos::from_secs(1);
/// Operations shorter than this are not kept.
const NOTABLE: Nanos = Nanos::from_millis(100);
/// Names that a thread uses, again and again.
const NAMES: u64 = 24;
/// Bytes after which a file is begun anew.
const FILE_BYTES: u64 = 3 << 20;

/// An operation that took a while, by the monotonic clock.
#[derive(Clone)]
struct Slow {
    what: &'static str,
    begun: Nanos,
    ended: Nanos,
}

/// What all threads have seen.
#[derive(Default)]
struct Seen {
    operations: u64,
    slow: Vec<Slow>,
}

/// Runs the soak. Errors: the target cannot be used, or an operation stalled.
pub(super) fn run(a: &BenchArgs) -> Result<Outcome, Failure> {
    let target = target_of(a)?;
    let folder = format!("cairn-soak-{}", std::process::id());
    let places = target.places(&folder, a.threads)?;
    let end = host::now().mono.plus(Nanos::from_secs(a.seconds.min(SECONDS_MAX)));
    let seen = Mutex::new(Seen::default());
    let worked = on_threads(places, |n, place| thread(place, n as u64, end, &seen));
    worked.map_err(|e| format!("{}: {e}", a.target))?;
    target.finish(&folder, a.threads)?;
    let seen = seen.into_inner().unwrap_or_else(|broken| broken.into_inner());
    let requests = a.server_log.as_deref().map_or(Ok(Vec::new()), disk_requests)?;
    report(&seen, &requests)
}

fn report(seen: &Seen, requests: &[(Nanos, Nanos)]) -> Result<Outcome, Failure> {
    let alone = |s: &Slow| without(s, requests);
    let worst = seen.slow.iter().max_by_key(|s| alone(s));
    let told = worst.map_or_else(String::new, |s| {
        let (all, own) = (s.ended.since(s.begun).0 / 1_000_000, alone(s).0 / 1_000_000);
        format!("; the slowest, {}: {all} ms, {own} ms without its disk requests", s.what)
    });
    tell!("soak: {} operations{told}", seen.operations);
    let stalls: Vec<_> = seen.slow.iter().filter(|s| alone(s) > STALL).collect();
    if stalls.is_empty() {
        return Ok(Outcome::Done);
    }
    for s in stalls.iter().take(10) {
        tell!("  {} took {} ms from {}", s.what, s.ended.since(s.begun).0 / 1_000_000, s.begun.0);
    }
    Err(Failure::Failed(format!("{} operations took over a second by themselves", stalls.len())))
}

/// How long an operation took while no slow disk request ran.
fn without(slow: &Slow, requests: &[(Nanos, Nanos)]) -> Nanos {
    let (mut own, mut at) = (0, slow.begun);
    // In the order of their beginnings, so that what overlaps is counted once.
    for &(begun, ended) in requests {
        if ended <= at || begun >= slow.ended {
            continue;
        }
        own += begun.since(at).0;
        at = ended.max(at);
    }
    Nanos(own + slow.ended.since(at).0)
}

/// The slow disk requests in a server's log, in the order of their beginnings.
fn disk_requests(log: &Path) -> Result<Vec<(Nanos, Nanos)>, Failure> {
    let text = std::fs::read(log).map_err(|e| format!("{}: {e}", log.display()))?;
    let text = String::from_utf8_lossy(&text);
    let of_line = |line: &str| {
        let (_, rest) = line.split_once("disk request of ")?;
        let mut words = rest.split([' ', ':']).filter_map(|w| w.parse::<u64>().ok());
        let (_took_ms, begun, ended) = (words.next()?, words.next()?, words.next()?);
        Some((Nanos(begun), Nanos(ended)))
    };
    let mut all: Vec<_> = text.lines().filter_map(of_line).collect();
    all.sort();
    Ok(all)
}

fn thread(mut place: Box<dyn Place>, n: u64, end: Nanos, into: &Mutex<Seen>) -> io::Result<()> {
    let mut load = Load { rng: Rng::new(n), sizes: [None; NAMES as usize], seen: Seen::default() };
    let mut result = Ok(());
    while host::now().mono < end && result.is_ok() {
        result = match load.step(&mut *place) {
            // A full volume is part of the load: something goes.
            Err(e) if e.kind() == ErrorKind::StorageFull => load.make_room(&mut *place),
            other => other,
        };
    }
    let tidied = (0..NAMES).try_for_each(|name| load.remove(&mut *place, name));
    let mut all = into.lock().unwrap_or_else(|broken| broken.into_inner());
    all.operations += load.seen.operations;
    all.slow.append(&mut load.seen.slow);
    result.and(tidied)
}

/// One thread's files, and what it has seen.
struct Load {
    rng: Rng,
    /// By name; None: there is no such file.
    sizes: [Option<u64>; NAMES as usize],
    seen: Seen,
}

fn name_of(name: u64) -> String {
    format!("file-{name}")
}

impl Load {
    /// One step of one of the kinds of load.
    fn step(&mut self, p: &mut dyn Place) -> io::Result<()> {
        let (name, len) = (self.rng.below(NAMES), 1 + self.rng.below(3000));
        match self.rng.below(16) {
            0..=3 => self.append(p, name, len),
            4 => self.append(p, name, 1 << 20),
            5..=7 => self.alternate(p, name),
            8..=10 => self.remove(p, name),
            11..=12 => self.look(p, name),
            13 => self.sync(p, name),
            _ => self.overwrite(p, name),
        }
    }

    /// Does one operation and measures it.
    fn timed(
        &mut self,
        what: &'static str,
        operation: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let begun = host::now().mono;
        let result = operation();
        let ended = host::now().mono;
        self.seen.operations += 1;
        if ended.since(begun) >= NOTABLE {
            self.seen.slow.push(Slow { what, begun, ended });
        }
        result
    }

    /// Opens a file, which is made if it is not there.
    fn open(&mut self, p: &mut dyn Place, name: u64) -> io::Result<u64> {
        if let Some(size) = self.sizes[name as usize] {
            self.timed("open", || p.open(&name_of(name)))?;
            return Ok(size);
        }
        self.timed("create", || p.create(&name_of(name)))?;
        self.sizes[name as usize] = Some(0);
        Ok(0)
    }

    fn append(&mut self, p: &mut dyn Place, name: u64, len: u64) -> io::Result<()> {
        if self.sizes[name as usize].is_some_and(|size| size + len > FILE_BYTES) {
            self.remove(p, name)?;
        }
        let size = self.open(p, name)?;
        let bytes = vec![name as u8; len as usize];
        let durable = self.rng.one_in(4);
        self.timed("write", || p.write(size, &bytes, durable))?;
        self.sizes[name as usize] = Some(size + len);
        Ok(())
    }

    /// Two files in turn, a KiB each, so that both are in fragments.
    fn alternate(&mut self, p: &mut dyn Place, name: u64) -> io::Result<()> {
        for _ in 0..8 {
            self.append(p, name, 1024)?;
            self.append(p, (name + 1) % NAMES, 1024)?;
        }
        Ok(())
    }

    fn overwrite(&mut self, p: &mut dyn Place, name: u64) -> io::Result<()> {
        let size = self.open(p, name)?;
        let at = self.rng.below(size + 1);
        let len = self.rng.below(9000).min(size - at);
        self.timed("overwrite", || p.write(at, &vec![1; len as usize], false))
    }

    fn look(&mut self, p: &mut dyn Place, name: u64) -> io::Result<()> {
        let size = self.open(p, name)?;
        self.timed("stat", || p.stat())?;
        let mut bytes = vec![0; size.min(100_000) as usize];
        self.timed("read", || p.read(0, &mut bytes))
    }

    fn sync(&mut self, p: &mut dyn Place, name: u64) -> io::Result<()> {
        self.open(p, name)?;
        self.timed("fsync", || p.sync())
    }

    fn remove(&mut self, p: &mut dyn Place, name: u64) -> io::Result<()> {
        if self.sizes[name as usize].take().is_none() {
            return Ok(());
        }
        self.timed("remove", || p.remove(&name_of(name)))
    }

    /// Half of the files go. What a refused write has left of its file's size is not known any
    /// more, so that file goes too, whichever it is.
    fn make_room(&mut self, p: &mut dyn Place) -> io::Result<()> {
        (0..NAMES).try_for_each(|name| self.remove(p, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_requests_that_overlap_are_taken_off_once() {
        let slow = Slow { what: "write", begun: Nanos(100), ended: Nanos(200) };
        let requests = [(50, 110), (120, 150), (140, 160), (190, 300), (400, 500)];
        let requests = requests.map(|(b, e)| (Nanos(b), Nanos(e)));
        assert_eq!(without(&slow, &requests), Nanos(10 + 30));
        assert_eq!(without(&slow, &[]), Nanos(100));
    }

    #[test]
    fn an_operation_that_stalls_is_a_failure() {
        let long = Slow { what: "write", begun: Nanos(0), ended: Nanos::from_secs(2) };
        let seen = Seen { operations: 1, slow: vec![long] };
        assert!(report(&seen, &[]).is_err());
        assert!(report(&seen, &[(Nanos(0), Nanos(1_500_000_000))]).is_ok());
    }
}
