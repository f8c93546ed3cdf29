//! The log beside raft-engine, TiKV's log: writers that append an entry and wait until it is
//! durable, in the same directory, one after the other. What is measured is how well entries of
//! many writers share device writes; it says nothing of recovery.
//!
//! ```text
//! cairn-bench-log DIRECTORY [SECONDS [BYTES]]
//! ```

use env::{DiskId, Engine, Env, IoDone, IoRequest};
use host::{HostFile, now};
use raft_engine::{Config, Engine as Raft, LogBatch, ReadableSize};
use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};
use wal::{Client, FormatOptions, Log, LogArea, LogError, OpenOptions};

type AnyError = Box<dyn std::error::Error>;

const WRITERS: [usize; 3] = [1, 8, 64];
/// Requests that the device gets at a time from us.
const THREADS: usize = 8;
const LOG_BYTES: u64 = 256 << 20;

/// Carries out our requests on threads, so that several are in flight.
struct Device {
    requests: mpsc::Sender<IoRequest>,
    done: mpsc::Receiver<IoDone>,
}

impl Device {
    fn new(file: Arc<HostFile>) -> Device {
        let (requests, taken) = mpsc::channel::<IoRequest>();
        let (give, done) = mpsc::channel();
        let taken = Arc::new(Mutex::new(taken));
        for _ in 0..THREADS {
            let (file, taken, give) = (file.clone(), taken.clone(), give.clone());
            std::thread::spawn(move || {
                loop {
                    let next = taken.lock().map(|t| t.recv());
                    let Ok(Ok(request)) = next else { return };
                    if give.send(file.carry_out(request)).is_err() {
                        return;
                    }
                }
            });
        }
        Device { requests, done }
    }
}

/// One writer: appends and waits, until the time is up.
async fn write(client: Client, bytes: Vec<u8>, until: Instant, n: Rc<Cell<u64>>) {
    let run = async {
        while Instant::now() < until {
            let room = client.reserve(bytes.len() as u64).await?;
            let lsn = client.append_reserved(room, &bytes)?;
            client.flush(lsn).await?;
            client.trim(lsn);
            n.set(n.get() + 1);
        }
        Ok::<(), LogError>(())
    };
    if let Err(e) = run.await {
        eprintln!("{e}");
        std::process::exit(1);
    }
}

async fn all_writers(
    env: Env,
    bytes: u64,
    (writers, len, time): (usize, usize, Duration),
) -> Result<(u64, wal::LogStats), LogError> {
    let area = LogArea::whole(env.port().disk(DiskId(0), bytes));
    Log::format(&area, &FormatOptions { uuid: *b"cairn-bench-log-", ..Default::default() }).await?;
    let log = Log::open(&env, area, OpenOptions::default()).await?;
    let n = Rc::new(Cell::new(0));
    let until = Instant::now() + time;
    let left = Rc::new(Cell::new(writers));
    for w in 0..writers {
        let client = log.client([w as u8 + 1; 16], "bench")?;
        let (n, left) = (n.clone(), left.clone());
        env.spawn("writer", async move {
            write(client, vec![w as u8; len], until, n).await;
            left.set(left.get() - 1);
        });
    }
    while left.get() > 0 {
        env.sleep(env::Nanos::from_millis(1)).await;
    }
    Ok((n.get(), log.stats()))
}

/// Ours: entries a second, and a word on how.
fn ours(dir: &Path, what: (usize, usize, Duration)) -> Result<(f64, String), AnyError> {
    let path = dir.join("cairn.log");
    // Blocks that are there already: as on a partition, and as who cares about speed would do it.
    std::fs::write(&path, vec![1; LOG_BYTES as usize])?;
    let file = Arc::new(HostFile::open(&path, false)?);
    file.flush()?;
    file.write_past_cache();
    let device = Device::new(file);
    let result = Rc::new(Cell::new(None));
    let mut start = Some(result.clone());
    let mut engine = Engine::new(1);
    let mut done: Vec<IoDone> = Vec::new();
    let began = Instant::now();
    let (n, stats) = loop {
        engine.turn(now(), &mut done, |env| {
            if let Some(result) = start.take() {
                let e = env.clone();
                env.spawn("main", async move {
                    result.set(Some(all_writers(e, LOG_BYTES, what).await));
                });
            }
        });
        for request in engine.take_io() {
            device.requests.send(request)?;
        }
        if let Some(end) = result.take() {
            break end?;
        }
        let wait = engine.deadline().map_or(1_000_000, |d| d.since(now().mono).0);
        done.extend(device.done.recv_timeout(Duration::from_nanos(wait.max(1))));
        done.extend(device.done.try_iter());
    };
    let rate = n as f64 / began.elapsed().as_secs_f64();
    let each = stats.entries as f64 / stats.writes.max(1) as f64;
    let bytes = stats.write_bytes / stats.entries.max(1);
    std::fs::remove_file(&path)?;
    Ok((rate, format!("{each:.1} entries a write, {bytes} bytes each, window {}", stats.window)))
}

/// raft-engine's.
fn theirs(dir: &Path, (writers, len, time): (usize, usize, Duration)) -> Result<f64, AnyError> {
    let dir = dir.join("raft-engine");
    let config = Config {
        dir: dir.display().to_string(),
        batch_compression_threshold: ReadableSize(0),
        ..Config::default()
    };
    let engine = Raft::open(config)?;
    let (stop, n) = (AtomicBool::new(false), AtomicU64::new(0));
    let began = Instant::now();
    std::thread::scope(|s| {
        for w in 0..writers {
            let (engine, stop, n) = (&engine, &stop, &n);
            s.spawn(move || {
                let bytes = vec![w as u8; len];
                while !stop.load(Ordering::Relaxed) {
                    let mut batch = LogBatch::with_capacity(1);
                    let put = batch.put(w as u64 + 1, b"k".to_vec(), bytes.clone());
                    if put.is_err() || engine.write(&mut batch, true).is_err() {
                        eprintln!("raft-engine: a write failed");
                        std::process::exit(1);
                    }
                    n.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        std::thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
    });
    let rate = n.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64();
    drop(engine);
    std::fs::remove_dir_all(&dir)?;
    Ok(rate)
}

fn main() -> Result<(), AnyError> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some(dir) = args.first().map(Path::new) else {
        return Err("usage: cairn-bench-log DIRECTORY [SECONDS [BYTES]]".into());
    };
    let number = |i: usize, default: usize| args.get(i).map_or(Ok(default), |a| a.parse());
    let (seconds, len) = (number(1, 3)?, number(2, 1024)?);
    println!("durable entries of {len} bytes a second, {seconds} s each");
    for writers in WRITERS {
        let what = (writers, len, Duration::from_secs(seconds as u64));
        let (rate, how) = ours(dir, what)?;
        println!("{writers:3} writers  cairn-wal {rate:8.0}  ({how})");
        println!("{writers:3} writers  raft-engine {:6.0}", theirs(dir, what)?);
    }
    Ok(())
}
