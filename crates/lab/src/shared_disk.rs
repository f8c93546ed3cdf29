//! Several machines with one disk between them, on which lies a volume with mmp: each has an engine
//! of its own, stands still now and then, is cut off, and tries to open the volume whenever it
//! likes. What is judged is who wrote to the disk when, and what is there in the end. How mmp keeps
//! them apart it does not know.

use crate::acts::Act;
use crate::perform::perform;
use crate::setting::{JUDGED_SECS, Setting, SimDevice, VolumeKind, new_disks};
use check::{Options, check};
use env::{DiskError, Engine, IoDone, IoOp, Nanos, Now, ReadNow, Rng};
use format::ext::features::incompat;
use integrity::Plant;
use sim::Image;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use volume::{Ground, MMP_PLANTS, Mode, OpenOptions, User, open_on, probe};

const MACHINES: usize = 3;
const SECOND: u64 = 1_000_000_000;
/// Bytes of each file that a machine makes.
const FILE_BYTES: usize = 3000;
/// Whoever has not ended by then waits for ever.
const LIMIT: u64 = 4000 * SECOND;

/// The disk, for who reads without waiting.
struct Lent(Arc<Mutex<Image>>);

impl std::fmt::Debug for Lent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the disk")
    }
}

impl ReadNow for Lent {
    fn read_now(&self, at: u64, into: &mut [u8]) -> Result<(), DiskError> {
        self.0.lock().unwrap().read(at, into);
        Ok(())
    }
}

/// What a machine has come to.
#[derive(Default)]
struct Told {
    /// Openings, each with a number that no other machine's has.
    opened: Vec<u64>,
    /// The one under way.
    now: Option<u64>,
    refused: u64,
    /// Files that are durable.
    durable: Vec<String>,
    /// It was open and found that it may not write any more.
    lost: Vec<u64>,
    ended: bool,
}

struct Machine {
    engine: Engine,
    told: Rc<RefCell<Told>>,
    /// Requests that were carried out, and when it hears of it.
    ends: Vec<(u64, IoDone)>,
    /// It stands still until then.
    still: u64,
    /// When it stands still, or is cut off for good; and how long.
    fate: Vec<(u64, Option<u64>)>,
    stood: bool,
    dead: bool,
    begun: bool,
}

struct World {
    now: u64,
    disk: Arc<Mutex<Image>>,
    mmp: Range<u64>,
    machines: Vec<Machine>,
    /// By which opening the volume was written, in this order.
    tenures: Vec<(usize, u64)>,
    rng: Rng,
}

impl World {
    fn new(setting: Setting, seed: u64, plant: Plant) -> World {
        let disk = new_disks(4 << 20, setting).remove(0);
        let sb = probe(&SimDevice(disk.clone())).unwrap().superblock;
        let block = sb.mmp_block().unwrap().0 * sb.block_bytes() as u64;
        let mut rng = Rng::new(seed);
        let machines = (0..MACHINES).map(|n| machine(n, setting, rng.split(), plant)).collect();
        World {
            now: 0,
            mmp: block..block + sb.block_bytes() as u64,
            disk: Arc::new(Mutex::new(disk)),
            machines,
            tenures: Vec::new(),
            rng,
        }
    }

    /// Until all have ended. Errors: somebody waits for ever.
    fn run(&mut self) -> Result<(), String> {
        while self.machines.iter().any(|m| !m.dead && !m.told.borrow().ended) {
            if self.now > LIMIT {
                return Err(format!("somebody waits for ever: {}", self.waiting()));
            }
            for n in 0..self.machines.len() {
                self.turn(n);
            }
            let at_work = |m: &&Machine| !m.dead && !m.told.borrow().ended;
            let next = self.machines.iter().filter(at_work).filter_map(Machine::next).min();
            self.now = next.map_or(LIMIT + 1, |next| next.max(self.now + 1));
        }
        Ok(())
    }

    fn waiting(&mut self) -> String {
        let at_work = self.machines.iter_mut().filter(|m| !m.dead && !m.told.borrow().ended);
        let told = at_work.map(|m| {
            let (opened, asked) = (m.told.borrow().opened.len(), m.ends.len());
            let names = m.engine.executor().live_names();
            format!("in opening {opened}, {asked} requests under way: {names:?}")
        });
        told.collect::<Vec<_>>().join("; ")
    }

    fn turn(&mut self, n: usize) {
        let now = self.now;
        let m = &mut self.machines[n];
        if let Some(i) = m.fate.iter().position(|f| f.0 <= now) {
            match m.fate.remove(i).1 {
                None => m.dead = true,
                Some(long) => (m.still, m.stood) = (now + long, true),
            }
        }
        if m.dead || m.told.borrow().ended || m.still > now || m.next().is_some_and(|t| t > now) {
            return;
        }
        let mut done: Vec<IoDone> = m.ends.extract_if(.., |e| e.0 <= now).map(|e| e.1).collect();
        m.begun = true;
        let wall = Nanos(u64::from(JUDGED_SECS) * SECOND / 2 + now);
        m.engine.turn(Now { mono: Nanos(now), wall }, &mut done, |_| ());
        for r in m.engine.take_io() {
            let len: usize = r.blocks.iter().map(env::Block::len).sum();
            let (id, mut blocks, mut at) = (r.id, r.blocks, r.at);
            let mut disk = self.disk.lock().unwrap();
            match r.op {
                IoOp::Read | IoOp::ReadFresh => blocks.iter_mut().for_each(|b| {
                    disk.read(at, b.bytes_mut());
                    at += b.len() as u64;
                }),
                IoOp::Write(_) => {
                    if !(self.mmp.contains(&at) && at + len as u64 <= self.mmp.end) {
                        let of = m.told.borrow().opened.len() as u64;
                        if self.tenures.last() != Some(&(n, of)) {
                            self.tenures.push((n, of));
                        }
                    }
                    for b in &blocks {
                        disk.write(at, b.bytes());
                        at += b.len() as u64;
                    }
                }
                _ => (),
            }
            drop(disk);
            let lent = (r.op == IoOp::Lend).then(|| Arc::new(Lent(self.disk.clone())) as _);
            let slow = if self.rng.one_in(200) { SECOND } else { 2_000_000 };
            let end = now + 20_000 + self.rng.below(slow);
            m.ends.push((end, IoDone { lent, ..IoDone::of_disk(id, blocks, Ok(())) }));
        }
    }

    /// P1, P2, P3: once another opening has written to the volume, an earlier one never does again;
    /// one that neither stood still nor was cut off keeps it; what was durable is there.
    fn judge(&self) -> Result<(), String> {
        let mut seen = BTreeSet::new();
        for t in &self.tenures {
            if !seen.insert(*t) {
                return Err(format!("{t:?} wrote again after another: {:?}", self.tenures));
            }
        }
        for (n, m) in self.machines.iter().enumerate() {
            if !m.stood && !m.told.borrow().lost.is_empty() {
                return Err(format!("machine {n} never stood still and has lost the volume"));
            }
        }
        let mut image = self.disk.lock().unwrap().clone();
        let mut disks = vec![image.clone()];
        crate::setting::recover(&mut disks, JUDGED_SECS)?;
        std::mem::swap(&mut image, &mut disks[0]);
        let options = Options { now_secs: JUDGED_SECS, verify: false, mark_clean: false };
        let report =
            check(&SimDevice(image.clone()), &options, &mut ()).map_err(|e| e.to_string())?;
        if let Some(f) = report.findings.first() {
            return Err(format!("the checker finds {f}"));
        }
        let mut v = crate::subject::Subject::open(
            vec![image],
            Setting { with: incompat::MMP, ..Setting::plain(Mode::Sync) },
            true,
            (Plant::NONE, 1),
        )?;
        let tree = v.tree(true).map_err(|e| e.to_string())?;
        for (n, m) in self.machines.iter().enumerate() {
            let told = m.told.borrow();
            let bytes = crate::acts::payload(n as u8, 0, FILE_BYTES);
            for path in &told.durable {
                match tree.get(path) {
                    None => return Err(format!("{path} was durable and is gone")),
                    Some(seen) if seen.bytes != bytes[..] => {
                        return Err(format!("{path} was durable and has other contents"));
                    }
                    Some(_) => (),
                }
            }
        }
        Ok(())
    }
}

impl Machine {
    /// When it is turned next.
    fn next(&self) -> Option<u64> {
        let timer = if self.begun { self.engine.deadline().map(|d| d.0) } else { Some(0) };
        let end = self.ends.iter().map(|e| e.0).min();
        let fate = self.fate.iter().map(|f| f.0).min();
        let first = timer.into_iter().chain(end).min().map(|t| t.max(self.still));
        first.into_iter().chain(fate).min()
    }
}

/// A machine that opens the volume now and then, works, and closes it.
fn machine(n: usize, setting: Setting, mut rng: Rng, plant: Plant) -> Machine {
    let engine = Engine::new(rng.next_u64());
    let told = Rc::new(RefCell::new(Told::default()));
    let mut fate = Vec::new();
    while rng.one_in(2) && fate.len() < 4 {
        let at = rng.below(200 * SECOND);
        fate.push((at, (!rng.one_in(6)).then(|| rng.below(120 * SECOND))));
    }
    let (env, into) = (engine.env().clone(), told.clone());
    engine.env().spawn("machine", async move {
        let size = 4 << 20;
        for round in 0..3u64 {
            env.sleep(Nanos(rng.below(40 * SECOND))).await;
            let user = User { node: format!("machine {n}"), device: "disk".into() };
            let options = OpenOptions { user, plant, ..setting.open_options(1 << 20) };
            // Whatever is written from here on, to recover it too, is this opening's.
            into.borrow_mut().opened.push(round);
            let opened = open_on(Ground::alone(env.clone(), size, None), options).await;
            let Ok(volume) = opened else {
                into.borrow_mut().refused += 1;
                continue;
            };
            into.borrow_mut().now = Some(round);
            for k in 0..8 {
                let path = format!("/m{n}-{round}-{k}");
                let acts = [
                    Act::Create(path.clone()),
                    Act::Write(path.clone(), 0, FILE_BYTES, n as u8),
                    Act::Sync,
                ];
                let mut failed = false;
                for a in &acts {
                    failed |= perform(&volume, a, false, &mut None).await.is_err();
                }
                if failed {
                    into.borrow_mut().lost.push(round);
                    break;
                }
                into.borrow_mut().durable.push(path);
                // Now and then nothing is written for longer than others wait.
                let most = if rng.one_in(5) { 70 } else { 9 };
                env.sleep(Nanos(rng.below(most * SECOND))).await;
            }
            let _ = volume.close().await; // it may be lost
        }
        into.borrow_mut().ended = true;
    });
    Machine {
        engine,
        told,
        ends: Vec::new(),
        still: 0,
        fate,
        stood: false,
        dead: false,
        begun: false,
    }
}

/// Runs a seed. How many openings there were, and how many were refused.
fn run(seed: u64, plant: Plant) -> Result<(usize, u64), String> {
    let checksums = seed % 4 < 2;
    let mode = [Mode::Unified, Mode::Ordered, Mode::Sync][(seed % 3) as usize];
    let atomic = mode.is_atomic();
    let kind = if atomic { VolumeKind::Ext4 { checksums } } else { VolumeKind::Ext3 };
    let setting = Setting { kind, with: incompat::MMP, ..Setting::plain(mode) };
    let mut world = World::new(setting, seed, plant);
    world.run()?;
    world.judge()?;
    let told: Vec<_> = world.machines.iter().map(|m| m.told.borrow()).collect();
    let opened = told.iter().filter(|t| t.now.is_some()).count();
    Ok((opened, told.iter().map(|t| t.refused).sum()))
}

#[test]
fn one_machine_at_a_time_writes() {
    let (mut opened, mut refused) = (0, 0);
    let mut wrong = Vec::new();
    for seed in 0..120 {
        match run(seed, Plant::NONE) {
            Ok((o, r)) => (opened, refused) = (opened + o, refused + r),
            Err(e) => wrong.push(format!("seed {seed}: {e}")),
        }
    }
    assert!(wrong.is_empty(), "{} seeds:\n{}", wrong.len(), wrong.join("\n"));
    println!("{opened} machines had it, {refused} openings were refused");
    assert!(opened > 150 && refused > 100, "{opened} machines had it, {refused} were refused");
}

#[test]
fn each_planted_bug_of_mmp_is_found() {
    for plant in MMP_PLANTS {
        let wrong = |seed| {
            let run = std::panic::AssertUnwindSafe(|| run(seed, Plant(Some(plant))));
            std::panic::catch_unwind(run).map_or(true, |r| r.is_err())
        };
        let found = (0..400).find(|seed| wrong(*seed));
        println!("{plant}: {found:?}");
        assert!(found.is_some(), "{plant}");
    }
}
