//! An NFS server with a metadata log, on the disks of vahalia-1995: ten RZ26 with files, one with
//! the log, and a processor that can do 650 operations a second. Without the log its metadata are
//! written in place, in order (mode `sync`).

use super::report::{Findings, Table};
use super::rig::{Caller, Machine, Processor, ROOT, Rig, secs};
use super::{Scale, rz26};
use crate::subject::Setting;
use env::{Nanos, Rng};
use sim::timing::{Access, HeadDisk, Kind, Timing};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use vfs::{FsError, Request, SetAttr, SetTime, Time};
use volume::{Mode, OpenOptions};

/// Disks with files.
const DISKS: u64 = 10;
/// What an operation costs the processor: a 650th of a second.
const WORK: Nanos = Nanos::from_micros(1538);

/// Several disks as one: each has its share of the bytes, and all of them work at a time.
struct Side {
    disks: Vec<HeadDisk>,
    share: u64,
}

impl Timing for Side {
    fn ends_at(&mut self, now: Nanos, a: Access) -> Nanos {
        if a.kind == Kind::Flush {
            return self.disks.iter_mut().map(|d| d.ends_at(now, a)).max().unwrap_or(now);
        }
        let n = (a.at / self.share).min(self.disks.len() as u64 - 1);
        self.disks[n as usize].ends_at(now, Access { at: a.at - n * self.share, ..a })
    }
}

fn side(bytes: u64) -> Box<dyn Timing> {
    let share = bytes / DISKS;
    Box::new(Side { disks: (0..DISKS).map(|_| HeadDisk::rz26(share)).collect(), share })
}

/// The log's disk with everything half as fast.
fn slow_rz26(bytes: u64) -> Box<dyn Timing> {
    struct Slow(HeadDisk, Nanos);
    impl Timing for Slow {
        fn ends_at(&mut self, now: Nanos, a: Access) -> Nanos {
            // One access at a time, so what it takes counts from when the one before it ended.
            let begin = now.max(self.1);
            let end = self.0.ends_at(begin, a);
            self.1 = end.plus(Nanos(end.since(begin).0 / 2));
            self.1
        }
    }
    Box::new(Slow(HeadDisk::rz26(bytes), Nanos(0)))
}

fn machine() -> Machine {
    Machine {
        disk: side,
        log: rz26,
        bytes: (10 << 30, 32 << 20),
        cache_bytes: 128 << 20,
        inodes: 65_536,
    }
}

fn logging() -> Setting {
    Setting { outside: true, ..Setting::plain(Mode::Redo) }
}

/// A client's directory and its files.
type ClientDir = (u32, Vec<u32>);

/// Everybody who uses the server, and what they have done.
#[derive(Clone)]
struct Load {
    processor: Processor,
    dirs: Rc<RefCell<Vec<ClientDir>>>,
    /// All operations, and those that change something.
    done: Rc<Cell<(u64, u64)>>,
    until: Nanos,
    /// The mean time between a reply and the next request.
    think: Nanos,
    /// Files of each client.
    files: u64,
}

/// One operation of the mix; how many of what was asked changes something. Of a hundred 80 change
/// nothing, 16 write or set attributes, 4 change names.
async fn operation(c: &Caller, rng: &mut Rng, dir: (u32, &[u32]), n: u64) -> Result<u64, FsError> {
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
    Ok(if kind == 98 { 2 } else { u64::from(kind >= 80) })
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
    load.dirs.borrow_mut().push((dir, files));
    Ok(())
}

async fn client(c: Caller, load: Load, seed: u64) -> Result<(), FsError> {
    let mut rng = Rng::new(seed);
    let (dir, files) = load.dirs.borrow()[seed as usize].clone();
    let mut n = 0;
    while c.env.now() < load.until {
        c.env.sleep(Nanos(load.think.0 / 500 * rng.below(1000))).await;
        load.processor.work(&c.env, WORK).await;
        let changes = operation(&c, &mut rng, (dir, &files), n).await?;
        n += 1;
        let (all, intrusive) = load.done.get();
        load.done.set((all + 1, intrusive + changes));
    }
    Ok(())
}

/// What was measured at one load.
struct Point {
    per_sec: f64,
    log_writes: f64,
    efficiency: f64,
}

const CLIENTS: u64 = 64;

/// Runs the mix for so many seconds at a target of operations a second.
fn point(
    (m, setting, alone): (&Machine, Setting, bool),
    (target, files): (u64, u64),
    seconds: u64,
    f: &mut Findings,
) -> Result<(Point, Rig), String> {
    let change = |o| OpenOptions { commit_interval: Nanos::from_secs(30), log_alone: alone, ..o };
    let mut rig = Rig::with(m, setting, change)?;
    let think = Nanos(1_000_000_000 * CLIENTS / target);
    let mut load = Load {
        processor: Processor::default(),
        dirs: Rc::default(),
        done: Rc::default(),
        until: Nanos(0),
        think,
        files,
    };
    let prepared = load.clone();
    let prepare = |n| {
        let load = prepared.clone();
        async move |c: Caller| prepare(c, load, n).await
    };
    rig.callers(false, (0..CLIENTS).map(prepare))?;
    // All of it is written back, so that the log is short when the load begins.
    rig.callers(
        false,
        [async |c: Caller| -> Result<(), FsError> {
            c.env.sleep(Nanos::from_secs(90)).await;
            c.sync_all().await
        }],
    )?;
    rig.take_traffic();
    load.until = rig.now().plus(Nanos::from_secs(seconds));
    let callers = (0..CLIENTS).map(|n| {
        let load = load.clone();
        async move |c: Caller| client(c, load, n).await
    });
    let took = secs(rig.callers(true, callers)?);
    let [_, log] = rig.take_traffic();
    let (all, intrusive) = load.done.get();
    f.note(rig.now().0 ^ all);
    let (per_sec, log_writes) = (all as f64 / took, log.writes as f64 / took);
    let efficiency = intrusive as f64 / log.writes.max(1) as f64;
    Ok((Point { per_sec, log_writes, efficiency }, rig))
}

/// The load from little to more than the processor can do, with the log and without, batched and
/// not, and on a slower disk.
pub(super) fn batching(scale: Scale) -> Result<Findings, String> {
    let seconds = scale.pick(60, 6);
    let targets: &[u64] =
        scale.pick(&[25, 100, 200, 300, 400, 500, 600, 800, 1200], &[25, 300, 1200]);
    let slow = Machine { log: slow_rz26, ..machine() };
    let in_place = Setting::plain(Mode::Sync);
    let rows = [
        ("log", machine(), logging(), false),
        ("log, not batched", machine(), logging(), true),
        ("log on a slower disk", slow, logging(), false),
        ("in place", machine(), in_place, false),
    ];
    let mut f = Findings::default();
    let title = "Operations a second, by how many are asked for (log writes a second, efficiency)";
    let columns: Vec<String> = targets.iter().map(|t| format!("{t}/s")).collect();
    let columns: Vec<&str> = [""].into_iter().chain(columns.iter().map(|c| &c[..])).collect();
    let mut t = Table::new(title, &columns);
    let mut all: Vec<Vec<Point>> = Vec::new();
    for (name, m, setting, alone) in &rows {
        let mut points = Vec::new();
        for &target in targets {
            points.push(point((m, *setting, *alone), (target, 12), seconds, &mut f)?.0);
        }
        let cell = |p: &Point| match p.log_writes {
            0.0 => format!("{:.0}", p.per_sec),
            w => format!("{:.0} ({w:.0}, {:.2})", p.per_sec, p.efficiency),
        };
        t.row([(*name).to_owned()].into_iter().chain(points.iter().map(cell)).collect());
        all.push(points);
    }
    f.tables.push(t);
    let last = targets.len() - 1;
    let (log, alone, slower) = (&all[0], &all[1], &all[2]);
    let e = log[0].efficiency;
    f.claim("batching efficiency 1 at light load", format!("{e:.2}"), (0.85..1.1).contains(&e));
    let (e, rises) =
        (log[last].efficiency, log.windows(2).all(|p| p[1].efficiency > 0.95 * p[0].efficiency));
    f.claim("it rises with load, to 1.4 and more", format!("{e:.2}"), rises && e >= 1.4);
    let w = alone[last].log_writes;
    let text = format!("{w:.0}/s, and {:.0} operations/s", alone[last].per_sec);
    let capped = (70.0..95.0).contains(&w) && alone[last].per_sec < 0.85 * log[last].per_sec;
    f.claim("not batched: the log's disk is the limit, at about 80 writes a second", text, capped);
    let (a, b) = (log[last].per_sec, slower[last].per_sec);
    let text = format!("{a:.0}/s and {b:.0}/s");
    let same = (b / a - 1.0).abs() < 0.03;
    f.claim("a slower disk for the log changes nothing, within 3 %", text, same);
    let (a, b) = (log[last].per_sec, all[3][last].per_sec);
    let text = format!("{a:.0}/s and {b:.0}/s");
    let same = (a / b - 1.0).abs() < 0.05;
    f.claim("at the most, as many operations as without a log, within 5 %", text, same);
    Ok(f)
}

/// Power off at full load: what the log holds, and in how many writes it is written back.
pub(super) fn replay(scale: Scale) -> Result<Findings, String> {
    let mut f = Findings::default();
    let load = (1200, scale.pick(100, 12));
    let (p, rig) = point((&machine(), logging(), false), load, scale.pick(60, 20), &mut f)?;
    let mut disks = rig.cut().into_iter();
    let mut world = sim::World::new(disks.next().ok_or("no disk")?);
    world.logs = disks.collect();
    world.set_timings(vec![side(machine().bytes.0), rz26(machine().bytes.1)]);
    let (_, log_bytes) = machine().bytes;
    world.forget();
    let replayed = sim::block_on(&mut world, move |env, disk| async move {
        let area = wal::LogArea::whole(env.port().disk(env::DiskId(1), log_bytes));
        let text = |e: wal::LogError| e.to_string();
        let log = wal::Log::open(&env, area, wal::OpenOptions::default()).await.map_err(text)?;
        let client = log.client(*crate::subject::VOLUME, "lab").map_err(text)?;
        let plant = integrity::Plant::NONE;
        let block = super::rig::BLOCK as usize;
        let did =
            mechanisms::recover(&disk, &client, (block, usize::MAX), plant, &mut |_, _| ()).await;
        did.map(|did| (did, env.now())).map_err(|e| e.to_string())
    });
    let (did, took) = replayed?;
    let mut t = Table::new(
        &format!("Recovery after a power cut at {:.0} operations a second", p.per_sec),
        &["entries", "items", "blocks", "writes back", "seconds"],
    );
    let cells = [did.entries, did.items, did.blocks, did.writes].map(|n| n.to_string());
    t.row(cells.into_iter().chain([format!("{:.1}", secs(took))]).collect());
    f.tables.push(t);
    f.note(took.0);
    let cut = did.items as f64 / did.writes.max(1) as f64;
    let text = format!("{cut:.1} times, {} items in {} writes", did.items, did.writes);
    f.claim("dropping and merging cuts the writes 8 times and more", text, cut >= 8.0);
    let text = format!("{:.1} s", secs(took));
    f.claim("recovery takes 3 to 14 seconds, or less", text, secs(took) <= 14.0);
    Ok(f)
}

/// Makes directories, removes them, copies files of 1 KB and removes those, one client a disk:
/// seconds of each phase.
fn phases(setting: Setting, each: u64, f: &mut Findings) -> Result<[f64; 4], String> {
    const TREES: u64 = 8;
    let mut rig = Rig::new(&machine(), setting)?;
    let processor = Processor::default();
    let mut took = [0.0; 4];
    let dirs: Rc<RefCell<Vec<(u64, u32)>>> = Rc::default();
    let into = dirs.clone();
    let prepare = async move |c: Caller| -> Result<(), FsError> {
        for tree in 0..TREES {
            let top = c.mkdir(ROOT, &format!("t{tree}")).await?;
            for d in 0..20 {
                let dir = c.mkdir(top, &format!("d{d}")).await?;
                into.borrow_mut().push((tree, dir));
            }
        }
        Ok(())
    };
    rig.callers(true, [prepare])?;
    for (phase, time) in took.iter_mut().enumerate() {
        let worker = |tree: u64| {
            let (processor, dirs) = (processor.clone(), dirs.borrow().clone());
            async move |c: Caller| -> Result<(), FsError> {
                for (_, dir) in dirs.into_iter().filter(|d| d.0 == tree) {
                    for n in 0..each {
                        processor.work(&c.env, WORK).await;
                        step(&c, phase, dir, &format!("e{n}")).await?;
                    }
                }
                Ok(())
            }
        };
        *time = secs(rig.callers(true, (0..TREES).map(worker))?);
    }
    f.note(rig.now().0);
    Ok(took)
}

async fn step(c: &Caller, phase: usize, dir: u32, name: &str) -> Result<(), FsError> {
    match phase {
        0 => c.mkdir(dir, name).await.map(|_| ()),
        1 => c.rmdir(dir, name).await,
        2 => {
            let ino = c.create(dir, name).await?;
            c.write(ino, (0, 1024), true).await
        }
        _ => c.unlink(dir, name).await,
    }
}

/// Table 1.
pub(super) fn small_files(scale: Scale) -> Result<Findings, String> {
    let each = scale.pick(100, 10);
    let mut f = Findings::default();
    let in_place = phases(Setting::plain(Mode::Sync), each, &mut f)?;
    let log = phases(logging(), each, &mut f)?;
    let title = format!("Seconds for {} directories or files of 1 KB, over 8 trees", 160 * each);
    let mut t = Table::new(&title, &["", "in place", "log", "times", "paper"]);
    let names = [
        ("CD: make directories", 3.01),
        ("RD: remove them", 2.28),
        ("CF: copy files", 1.28),
        ("RF: remove them", 1.36),
    ];
    for (i, (name, paper)) in names.into_iter().enumerate() {
        let times = in_place[i] / log[i];
        let cell = |n: f64| format!("{n:.2}");
        t.row(vec![name.into(), cell(in_place[i]), cell(log[i]), cell(times), cell(paper)]);
        // A short run ends before the log has found out how many writes its disk takes at a time.
        let least = scale.pick(paper, paper.min(1.5));
        let what = format!("{name}: at least {least} times as fast with the log");
        f.claim(what, format!("{times:.2} times"), times >= least);
    }
    f.tables.push(t);
    Ok(f)
}
