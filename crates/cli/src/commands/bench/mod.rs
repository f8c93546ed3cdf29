//! `cairn bench`: the same workload on a directory, over NFS, or on a volume in this process, and
//! the rates it reached. Each thread works in a folder of its own, and a phase begins for all of
//! them when the one before has ended for all.

mod directory;
mod inside;
mod nfs;
mod soak;
mod workloads;

use crate::args::BenchArgs;
use crate::{Failure, Outcome};
use std::io;
use std::path::Path;
use std::sync::{Barrier, Mutex, OnceLock};
use std::time::Instant;
use workloads::{Phase, WORKLOADS};

/// Where a thread works: a folder, and one file in it at a time.
trait Place: Send {
    /// Makes a folder.
    fn mkdir(&mut self, name: &str) -> io::Result<()>;
    /// Makes an empty file, which the calls below are about.
    fn create(&mut self, name: &str) -> io::Result<()>;
    /// The calls below are about this file from now on.
    fn open(&mut self, name: &str) -> io::Result<()>;
    /// Writes all of the bytes. `durable`: before it returns.
    fn write(&mut self, offset: u64, bytes: &[u8], durable: bool) -> io::Result<()>;
    /// Makes the file durable.
    fn sync(&mut self) -> io::Result<()>;
    /// Fills `into`.
    fn read(&mut self, offset: u64, into: &mut [u8]) -> io::Result<()>;
    /// Asks for the file's attributes.
    fn stat(&mut self) -> io::Result<()>;
    /// Removes a file.
    fn remove(&mut self, name: &str) -> io::Result<()>;
    /// Removes a folder.
    fn rmdir(&mut self, name: &str) -> io::Result<()>;
}

/// What the threads work on.
trait Target {
    /// A place for each thread, in a new folder; two names for the folder do not meet.
    fn places(&self, folder: &str, threads: usize) -> Result<Vec<Box<dyn Place>>, Failure>;
    /// Takes the empty folders away, and whatever was opened.
    fn finish(self: Box<Self>, folder: &str, threads: usize) -> Result<(), Failure>;
}

/// One phase's result.
struct Rate {
    name: &'static str,
    operations: u64,
    seconds: f64,
}

impl Rate {
    fn per_second(&self) -> f64 {
        self.operations as f64 / self.seconds.max(1e-9)
    }
}

/// The command.
pub fn run(a: &BenchArgs) -> Result<Outcome, Failure> {
    if a.workload == "soak" && a.threads > 0 {
        return soak::run(a);
    }
    let names: Vec<&str> = WORKLOADS.iter().map(|w| w.0).collect();
    let Some((_, phases)) = WORKLOADS.iter().find(|w| w.0 == a.workload) else {
        let why = format!("no workload {}: there are {}, soak", a.workload, names.join(", "));
        return Err(Failure::Usage(why));
    };
    if a.threads == 0 || a.count == 0 {
        return Err(Failure::Usage("--threads and --count are at least 1".into()));
    }
    let target = target_of(a)?;
    let folder = format!("cairn-bench-{}", std::process::id());
    let places = target.places(&folder, a.threads)?;
    let rates = all_phases(phases, places, a.count).map_err(|e| format!("{}: {e}", a.target))?;
    target.finish(&folder, a.threads)?;
    report(a, &rates)?;
    Ok(Outcome::Done)
}

fn target_of(a: &BenchArgs) -> Result<Box<dyn Target>, Failure> {
    if let Some(url) = a.target.strip_prefix("nfs://") {
        return Ok(Box::new(nfs::Server::at(url)?));
    }
    if a.target.starts_with("sim:") {
        return Err(Failure::Usage(format!("{}: not in this version", a.target)));
    }
    let path = Path::new(&a.target);
    if path.is_dir() {
        return Ok(Box::new(directory::Tree(path.to_owned())));
    }
    Ok(Box::new(inside::Inside::open(path, a.mode.as_deref())?))
}

/// Does something with each place on a thread of its own, with its number: all of them, or none
/// where there are not so many threads.
fn on_threads(
    places: Vec<Box<dyn Place>>,
    work: impl Fn(usize, Box<dyn Place>) -> io::Result<()> + Sync,
) -> io::Result<()> {
    let (work, all_there, wanted) = (&work, &OnceLock::new(), places.len());
    let results: Vec<io::Result<()>> = std::thread::scope(|s| {
        let start = |(n, place)| {
            let run = move || if *all_there.wait() { work(n, place) } else { Ok(()) };
            std::thread::Builder::new().spawn_scoped(s, run)
        };
        let started: io::Result<Vec<_>> = places.into_iter().enumerate().map(start).collect();
        let _ = all_there.set(started.is_ok()); // once
        let no_thread = |e| io::Error::other(format!("{wanted} threads cannot be had: {e}"));
        let panicked = || Err(io::Error::other("a thread panicked"));
        let threads = started.map_err(no_thread)?.into_iter();
        Ok(threads.map(|t| t.join().unwrap_or_else(|_| panicked())).collect())
    })
    .unwrap_or_else(|e: io::Error| vec![Err(e)]);
    results.into_iter().collect()
}

/// Runs the phases, each on all places at once.
fn all_phases(
    phases: &[Phase],
    places: Vec<Box<dyn Place>>,
    count: u64,
) -> Result<Vec<Rate>, io::Error> {
    let start = Barrier::new(places.len());
    let spans = Mutex::new(vec![(None::<Instant>, None::<Instant>, 0u64); phases.len()]);
    let one = |mut place: Box<dyn Place>| -> io::Result<()> {
        let mut failed = Ok(());
        for (n, phase) in phases.iter().enumerate() {
            start.wait();
            if failed.is_err() {
                continue; // the others are not kept waiting
            }
            let begun = Instant::now();
            let done = (phase.run)(&mut *place, count);
            let ended = Instant::now();
            let mut all = spans.lock().expect("nobody panics while holding it");
            let span = &mut all[n];
            span.0 = Some(span.0.map_or(begun, |b| b.min(begun)));
            span.1 = Some(span.1.map_or(ended, |e| e.max(ended)));
            match done {
                Ok(operations) => span.2 += operations,
                Err(e) => failed = Err(io::Error::new(e.kind(), format!("{}: {e}", phase.name))),
            }
        }
        failed
    };
    on_threads(places, |_, place| one(place))?;
    let spans = spans.into_inner().expect("nobody panics while holding it");
    let rate = |(phase, (begun, ended, operations)): (&Phase, _)| {
        let seconds = Option::zip(begun, ended)
            .map_or(0.0, |(b, e): (Instant, Instant)| e.duration_since(b).as_secs_f64());
        Rate { name: phase.name, operations, seconds }
    };
    Ok(phases.iter().zip(spans).filter(|(p, _)| p.counted).map(rate).collect())
}

fn report(a: &BenchArgs, rates: &[Rate]) -> Result<(), Failure> {
    let operations: u64 = rates.iter().map(|r| r.operations).sum();
    let seconds: f64 = rates.iter().map(|r| r.seconds).sum();
    let all = Rate { name: "", operations, seconds };
    if a.json {
        let phases = rates.iter().map(|r| {
            serde_json::json!({
                "phase": r.name, "operations": r.operations, "seconds": r.seconds,
                "per_second": r.per_second(),
            })
        });
        let all = serde_json::json!({
            "workload": a.workload, "target": a.target, "threads": a.threads,
            "operations": operations, "seconds": seconds, "per_second": all.per_second(),
            "phases": phases.collect::<Vec<_>>(),
        });
        tell!("{}", serde_json::to_string(&all).map_err(|e| e.to_string())?);
        return Ok(());
    }
    if rates.len() > 1 {
        for r in rates {
            tell!(
                "{:10} {:9} operations {:9.3} s {:9.0}/s",
                r.name,
                r.operations,
                r.seconds,
                r.per_second()
            );
        }
    }
    tell!("{}: {operations} operations in {seconds:.2} s, {:.0}/s", a.workload, all.per_second());
    Ok(())
}
