//! An NFS server with a metadata log, on the disks of vahalia-1995: ten RZ26 with a file system
//! each, one with the log that all share, and a processor that can do 650 operations a second.
//! Without the log its metadata are written in place, in order (mode `sync`), on eleven disks.
//!
//! Invariants:
//! * D1. Of the operations that are done some change something, and each was a call of a client.
//! * D2. A client has a directory and files of its own.
//! * D3. A load lasts as long as it was to: no client begins when it is over.

use super::latency::Latency;
use super::report::{Findings, Table};
use super::rig::{Caller, Machine, ROOT, Rig, secs};
use super::verdict::{Stated, Verdict};
use super::{Scale, cores, rz26, rz26_half_as_fast};
use crate::subject::Setting;
use env::{Nanos, Rng};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use vfs::{FsError, Request, SetAttr, SetTime, Time};
use volume::{Mode, OpenOptions};

/// What an operation costs the processor: a 650th of a second.
pub(super) const WORK: Nanos = Nanos::from_micros(1538);

pub(super) fn machine() -> Machine {
    Machine {
        disk: rz26,
        log: rz26,
        bytes: (1000 << 20, 32 << 20),
        cache_bytes: 12 << 20,
        inodes: 16_384,
    }
}

/// File systems on so many disks, with the log on one more.
pub(super) fn logging(volumes: u16) -> Setting {
    Setting { outside: true, volumes, ..Setting::plain(Mode::Redo) }
}

/// A client's directory and its files.
type ClientDir = (u32, Vec<u32>);

/// Everybody who uses the server, and what they have done.
#[derive(Clone)]
struct Load {
    dirs: Rc<RefCell<Vec<ClientDir>>>,
    /// All operations, and those that change something.
    done: Rc<Cell<(u64, u64)>>,
    until: Nanos,
    /// The mean time between a reply and the next request.
    think: Nanos,
    /// Files of each client.
    files: u64,
}

/// One operation of the mix; how many were asked, and how many of those change something. Of a
/// hundred 80 change nothing, 16 write or set attributes, 4 change names.
async fn operation(
    c: &Caller,
    rng: &mut Rng,
    dir: (u32, &[u32]),
    n: u64,
) -> Result<(u64, u64), FsError> {
    let ino = dir.1[rng.below(dir.1.len() as u64) as usize];
    let kind = rng.below(100);
    match kind {
        0..=39 => drop(c.ask(Request::GetAttr { ino }).await?),
        40..=79 => c.read(ino, 8192).await?,
        80..=94 => c.write(ino, (8192 * rng.below(4), 8192), true).await?,
        95 => {
            let set = SetAttr { mode: Some(0o644 | (n % 2) as u32), ..SetAttr::default() };
            drop(c.ask(Request::SetAttr { ino, set }).await?);
        }
        96 | 97 => c.create(dir.0, &format!("n{n}")).await.map(|_| ())?,
        98 => {
            c.create(dir.0, &format!("r{n}")).await?;
            c.unlink(dir.0, &format!("r{n}")).await?;
        }
        _ => c.mkdir(dir.0, &format!("d{n}")).await.map(|_| ())?,
    }
    Ok(match kind {
        98 => (2, 2),
        _ => (1, u64::from(kind >= 80)),
    })
}

async fn prepare(c: Caller, load: Load, n: u64) -> Result<(), FsError> {
    let dir = c.mkdir(ROOT, &format!("client{n}")).await?;
    let mut files = Vec::new();
    // Reading must change nothing, as in the paper; a time of access that lies ahead is not set
    // again.
    let atime = Some(SetTime::To(Time { sec: 2_000_000_000, nsec: 0 }));
    for i in 0..load.files {
        let ino = c.create(dir, &format!("f{i}")).await?;
        c.write(ino, (0, 32_768), false).await?;
        let set = SetAttr { atime, ..SetAttr::default() };
        drop(c.ask(Request::SetAttr { ino, set }).await?);
        files.push(ino);
    }
    load.dirs.borrow_mut()[n as usize] = (dir, files);
    Ok(())
}

async fn client(c: Caller, load: Load, seed: u64) -> Result<(), FsError> {
    let mut rng = Rng::new(seed);
    let (dir, files) = load.dirs.borrow()[seed as usize].clone();
    let wanted = load.files as usize;
    assert!(dir != 0 && files.len() == wanted, "D2: client {seed} has {} files", files.len());
    let mut n = 0;
    while c.env.now() < load.until {
        c.env.sleep(Nanos(load.think.0 / 500 * rng.below(1000))).await;
        let (asked, changed) = operation(&c, &mut rng, (dir, &files), n).await?;
        n += 1;
        let (all, intrusive) = load.done.get();
        load.done.set((all + asked, intrusive + changed));
    }
    Ok(())
}

/// What was measured at one load.
pub(super) struct Point {
    pub(super) per_sec: f64,
    log_writes: f64,
    efficiency: f64,
    wait: Latency,
    pub(super) note: u64,
}

/// Clients, each with one request at a time.
const CLIENTS: u64 = 60;

/// A way to run the server.
#[derive(Clone, Copy)]
pub(super) struct Way {
    pub(super) name: &'static str,
    pub(super) machine: Machine,
    pub(super) setting: Setting,
    /// Is each entry of the log written alone?
    pub(super) alone: bool,
}

/// Runs the mix for so many seconds at a target of operations a second.
pub(super) fn point(
    way: &Way,
    (target, files): (u64, u64),
    seconds: u64,
) -> Result<(Point, Rig), String> {
    let change =
        |o| OpenOptions { commit_interval: Nanos::from_secs(30), log_alone: way.alone, ..o };
    let mut rig = Rig::with(&way.machine, way.setting, change)?;
    let mut load = Load {
        dirs: Rc::new(RefCell::new(vec![(0, Vec::new()); CLIENTS as usize])),
        done: Rc::default(),
        until: Nanos(0),
        think: Nanos(1_000_000_000 * CLIENTS / target),
        files,
    };
    let prepared = load.clone();
    let prepare = |n| {
        let load = prepared.clone();
        async move |c: Caller| prepare(c, load, n).await
    };
    rig.callers(false, (0..CLIENTS).map(prepare))?;
    // All of it is written back, so that the log is short when the load begins.
    let rest = |_| {
        async |c: Caller| -> Result<(), FsError> {
            c.env.sleep(Nanos::from_secs(90)).await;
            c.sync_all().await
        }
    };
    rig.callers(false, (0..way.setting.volumes).map(rest))?;
    rig.take_traffic();
    rig.take_latencies();
    rig.set_work(WORK);
    load.until = rig.now().plus(Nanos::from_secs(seconds));
    let callers = (0..CLIENTS).map(|n| {
        let load = load.clone();
        async move |c: Caller| client(c, load, n).await
    });
    let took = secs(rig.callers(true, callers)?);
    let [_, log] = rig.take_traffic();
    let (all, intrusive) = load.done.get();
    let asked = rig.calls() as u64;
    assert!(intrusive <= all && all == asked, "D1: {intrusive} of {all}, in {asked} calls");
    assert!(took >= seconds as f64, "D3: {took} s of {seconds} are over");
    let point = Point {
        per_sec: all as f64 / took,
        log_writes: log.writes as f64 / took,
        efficiency: intrusive as f64 / log.writes.max(1) as f64,
        wait: rig.take_latencies().all(),
        note: rig.now().0 ^ all,
    };
    Ok((point, rig))
}

/// The ways that are compared.
fn ways() -> [Way; 5] {
    let way = |name, machine, setting, alone| Way { name, machine, setting, alone };
    let slow = Machine { log: rz26_half_as_fast, ..machine() };
    let short = Machine { bytes: (1000 << 20, 10_000_000 / 4096 * 4096), ..machine() };
    let in_place = Setting { volumes: 11, ..Setting::plain(Mode::Sync) };
    [
        way("log", machine(), logging(10), false),
        way("log, not batched", machine(), logging(10), true),
        way("log on a disk half as fast", slow, logging(10), false),
        way("log of 10 MB", short, logging(10), false),
        way("in place", machine(), in_place, false),
    ]
}

/// The load from little to more than the processor can do, with the log and without, batched and
/// not, and on a slower disk.
pub(super) fn batching(scale: Scale) -> Result<Findings, String> {
    let seconds = scale.pick(60, 6);
    let targets: &[u64] =
        scale.pick(&[25, 100, 200, 300, 400, 500, 600, 800, 1200], &[25, 300, 1200]);
    let ways = ways();
    let jobs: Vec<(&Way, u64)> =
        ways.iter().flat_map(|w| targets.iter().map(move |t| (w, *t))).collect();
    let did = cores::each(&jobs, |(w, t)| point(w, (*t, 12), seconds).map(|(p, _)| p));
    let points: Vec<Point> = did.into_iter().collect::<Result<_, _>>()?;
    let mut f = Findings::default();
    points.iter().for_each(|p| f.note(p.note));
    let all: Vec<&[Point]> = points.chunks(targets.len()).collect();
    let columns: Vec<String> = targets.iter().map(|t| format!("{t}/s")).collect();
    let columns: Vec<&str> = [""].into_iter().chain(columns.iter().map(|c| &c[..])).collect();
    let mut table = |title, cell: fn(&Point) -> String| {
        let mut t = Table::new(title, &columns);
        for (way, points) in ways.iter().zip(&all) {
            t.row([way.name.to_owned()].into_iter().chain(points.iter().map(cell)).collect());
        }
        f.tables.push(t);
    };
    let title = "Operations a second, by how many are asked for (log writes a second, efficiency)";
    table(title, |p| match p.log_writes {
        0.0 => format!("{:.0}", p.per_sec),
        w => format!("{:.0} ({w:.0}, {:.2})", p.per_sec, p.efficiency),
    });
    table("What an operation waited, ms: mean / 99 of 100", |p| p.wait.to_string());
    batching_claims(targets, &all, &mut f);
    Ok(f)
}

fn batching_claims(targets: &[u64], all: &[&[Point]], f: &mut Findings) {
    let [log, alone, slow, short, in_place] = all else { return };
    let last = log.len() - 1;
    let most = |p: &[Point]| p[last].per_sec;
    let why = "the processor is the limit either way";
    let what = "most operations a second: with the log beside in place";
    f.claim(Stated::equal(43, what).because(why), most(log) / most(in_place));
    let why = "the log's disk is the limit: one write an entry";
    let what = "most operations a second: not batched beside batched";
    f.claim(Stated::times(43, what, 400.0 / 650.0).because(why), most(alone) / most(log));
    let why = "one turn of the disk and its overhead each";
    let what = "log writes a second, not batched";
    f.claim(Stated::amount(43, what, (80.0, "/s")).because(why), alone[last].log_writes);
    let why = "entries that come while the log's disk is busy go out together";
    let stated = Stated::times(44, "entries a log write at the most", 1.6).because(why);
    f.claim(stated, log[last].efficiency);
    let why = "nobody is waited for";
    let stated = Stated::equal(44, "entries a log write at light load").because(why);
    f.claim(stated, log[0].efficiency);
    let why = "fewer, fuller writes go to it";
    let what = "most operations a second: a log's disk half as fast beside the other";
    f.claim(Stated::equal(44, what).because(why), most(slow) / most(log));
    let what = "most operations a second: a log of 10 MB beside one of 32 MB";
    let why = "what is in place is cut off the log every 30 s and when it is half full";
    f.claim(Stated::equal(51, what).because(why), most(short) / most(log));
    let wait = |n: usize| log[n].wait.mean_ms / in_place[n].wait.mean_ms;
    let what = "waiting with the log beside in place, little load (the paper: a little more)";
    let why = "one log write takes the place of several ordered writes, of which mode sync has \
               more than the paper's server";
    let stated = Stated::between(50, what, (1.0, 1.5)).stands(Verdict::Contradicted);
    f.claim(stated.because(why), wait(0));
    // Beyond what the processor can do, all wait for it alone.
    let much = targets.iter().rposition(|t| *t < 650).unwrap_or(last);
    let what = format!(
        "waiting with the log beside in place at {} operations a second (the paper: less)",
        targets[much]
    );
    let why = "batches grow with the load";
    f.claim(Stated::between(50, what, (0.5, 1.0)).because(why), wait(much));
}
