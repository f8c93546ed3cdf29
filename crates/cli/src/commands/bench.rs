//! `cairn bench`: a workload on a directory, wherever that is mounted from, and the rate it
//! reached.

use crate::args::BenchArgs;
use crate::{Failure, Outcome};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

type Job = fn(&Path, u64) -> std::io::Result<u64>;

/// The workloads: each does `count` operations in a directory of its own and tells how many.
const WORKLOADS: &[(&str, Job)] = &[
    ("smallfiles", small_files),
    ("append", append),
    ("fsync", fsync),
    ("write", write),
    ("read", read),
];

/// The command.
pub fn run(a: &BenchArgs) -> Result<Outcome, Failure> {
    let names: Vec<&str> = WORKLOADS.iter().map(|w| w.0).collect();
    let found = WORKLOADS.iter().find(|w| w.0 == a.workload);
    let Some((name, job)) = found else {
        let why = format!("no workload {}: there are {}", a.workload, names.join(", "));
        return Err(Failure::Usage(why));
    };
    if a.target.starts_with("nfs://") || a.target.starts_with("sim:") {
        return Err(Failure::Usage(format!("{}: not in this version", a.target)));
    }
    let dir = PathBuf::from(&a.target).join(format!("cairn-bench-{}", std::process::id()));
    fs::create_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let start = Instant::now();
    let results: Vec<std::io::Result<u64>> = std::thread::scope(|s| {
        let threads: Vec<_> = (0..a.threads)
            .map(|t| {
                let dir = dir.join(format!("t{t}"));
                s.spawn(move || {
                    fs::create_dir(&dir)?;
                    job(&dir, a.count)
                })
            })
            .collect();
        let failed = || Err(std::io::Error::other("a thread panicked"));
        threads.into_iter().map(|t| t.join().unwrap_or_else(|_| failed())).collect()
    });
    let seconds = start.elapsed().as_secs_f64();
    let mut operations = 0;
    for r in results {
        operations += r.map_err(|e| format!("{}: {e}", dir.display()))?;
    }
    let _ = fs::remove_dir_all(&dir);
    let rate = operations as f64 / seconds;
    if a.json {
        let all = serde_json::json!({
            "workload": name, "target": a.target, "threads": a.threads,
            "operations": operations, "seconds": seconds, "per_second": rate,
        });
        println!("{all}");
    } else {
        println!("{name}: {operations} operations in {seconds:.2} s, {rate:.0}/s");
    }
    Ok(Outcome::Done)
}

fn small_files(dir: &Path, count: u64) -> std::io::Result<u64> {
    for i in 0..count {
        fs::write(dir.join(format!("f{i}")), [7; 1024])?;
    }
    for i in 0..count {
        fs::remove_file(dir.join(format!("f{i}")))?;
    }
    Ok(2 * count)
}

fn append(dir: &Path, count: u64) -> std::io::Result<u64> {
    let mut f = OpenOptions::new().create(true).append(true).open(dir.join("log"))?;
    (0..count).try_for_each(|_| f.write_all(&[7; 1024]))?;
    Ok(count)
}

fn fsync(dir: &Path, count: u64) -> std::io::Result<u64> {
    let mut f = OpenOptions::new().create(true).append(true).open(dir.join("log"))?;
    for _ in 0..count {
        f.write_all(&[7; 1024])?;
        f.sync_data()?;
    }
    Ok(count)
}

fn write(dir: &Path, count: u64) -> std::io::Result<u64> {
    let mut f = File::create(dir.join("big"))?;
    let block = vec![7; 1 << 20];
    (0..count).try_for_each(|_| f.write_all(&block))?;
    f.sync_all()?;
    Ok(count)
}

fn read(dir: &Path, count: u64) -> std::io::Result<u64> {
    write(dir, count)?;
    let mut f = File::open(dir.join("big"))?;
    let mut block = vec![0; 1 << 20];
    (0..count).try_for_each(|_| f.read_exact(&mut block))?;
    Ok(count)
}
