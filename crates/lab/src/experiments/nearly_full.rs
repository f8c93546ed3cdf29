//! A volume that is nearly full, for an hour: callers make, append to, overwrite, cut, rename and
//! remove files with a cache far smaller than what they use, and give way only when they are told
//! that it is full. What they wait for, what memory is taken, and whether anybody is refused while
//! there is room. It knows no mechanism; what waits in memory is told by a mode's counters.
//!
//! Invariants:
//! * J1. Each operation is counted once; of those that were refused, some were wrongly.
//! * J2. A caller knows his own files: each has a name of its own.
//! * J3. A volume has no more free than it has, and its counters of events rise.

use super::latency::Op;
use super::report::{Findings, Table};
use super::rig::{BLOCK, Caller, Machine, ROOT, Rig};
use super::verdict::Stated;
use super::{Scale, cores, sata_7200};
use crate::setting::SimDevice;
use crate::subject::Setting;
use check::{Options, check};
use env::{Nanos, Rng};
use std::cell::RefCell;
use std::rc::Rc;
use vfs::{FsError, RenameMode, Reply, Request, SetAttr, StatFs, VolumeInfo};
use volume::Mode;

const MODES: [Mode; 4] = [Mode::SoftUpdates, Mode::Async, Mode::Ordered, Mode::Unified];
const CALLERS: u64 = 16;
/// More room than all callers together can ask for at a time.
const SLACK_BYTES: u64 = 4 << 20;
const FILE_BYTES: u64 = 96 << 10;

/// How large: bytes of the volume and of its cache, and for how long.
#[derive(Clone, Copy)]
struct Size {
    volume: u64,
    cache: usize,
    time: Nanos,
}

/// The most of something in the first half of the time, and in the second.
#[derive(Clone, Copy, Default)]
struct Halves([u64; 2]);

impl Halves {
    fn note(&mut self, second: bool, n: u64) {
        let half = &mut self.0[usize::from(second)];
        *half = n.max(*half);
    }
    fn most(self) -> u64 {
        self.0[0].max(self.0[1])
    }
}

/// What was found of a run.
#[derive(Default)]
struct Did {
    operations: u64,
    /// Refused for want of room; of these, with more than `SLACK_BYTES` free.
    refused: (u64, u64),
    longest: (Nanos, Option<Op>),
    fullest: u64,
    dependencies: Halves,
    undo_bytes: Halves,
    cached_bytes: Halves,
    rollbacks: u64,
}

type Shared = Rc<RefCell<Did>>;

/// A file of a caller's: its name's number, inode and length.
#[derive(Clone, Copy)]
struct File {
    name: u64,
    ino: u32,
    len: u64,
}

/// One who works in a directory of his own.
struct Worker {
    c: Caller,
    shared: Shared,
    rng: Rng,
    dir: u32,
    files: Vec<File>,
    next: u64,
}

fn name_of(n: u64) -> Vec<u8> {
    format!("file-{n}").into_bytes()
}

impl Worker {
    /// Notes how long something took, and whether he was refused while there was room.
    async fn noted<T>(
        &self,
        (op, begun): (Op, Nanos),
        result: Result<T, FsError>,
    ) -> Result<T, FsError> {
        let took = self.c.env.now().since(begun);
        {
            let did = &mut *self.shared.borrow_mut();
            did.operations += 1;
            did.longest = did.longest.max((took, Some(op)));
        }
        if matches!(result, Err(FsError::NoSpace)) {
            let free = statfs(&self.c).await?;
            let did = &mut *self.shared.borrow_mut();
            did.refused.0 += 1;
            did.refused.1 += u64::from(free.available * BLOCK > SLACK_BYTES);
            let (all, wrongly) = did.refused;
            assert!(wrongly <= all && all <= did.operations, "J1: {wrongly} of {all} refused");
        }
        result
    }

    async fn ask(&self, request: Request) -> Result<Reply, FsError> {
        let begun = (Op::of(&request), self.c.env.now());
        let result = self.c.ask(request).await;
        self.noted(begun, result).await
    }

    async fn write(&self, ino: u32, at: u64, len: u64) -> Result<(), FsError> {
        let begun = (Op::Write, self.c.env.now());
        let result = self.c.write(ino, (at, len), false).await;
        self.noted(begun, result).await
    }

    /// One of his files.
    fn any(&mut self) -> Option<usize> {
        let n = self.files.len() as u64;
        (n > 0).then(|| self.rng.below(n) as usize)
    }

    async fn create(&mut self) -> Result<(), FsError> {
        let (name, len) = (self.next, self.rng.below(FILE_BYTES) + 1);
        self.next += 1;
        let text = String::from_utf8_lossy(&name_of(name)).into_owned();
        let begun = (Op::Create, self.c.env.now());
        let made = self.c.create(self.dir, &text).await;
        let ino = self.noted(begun, made).await?;
        let known = self.files.iter().any(|f| f.name == name || f.ino == ino);
        assert!(!known, "J2: file {name} is a new one, with the inode of another, {ino}");
        self.files.push(File { name, ino, len: 0 });
        let wrote = self.write(ino, 0, len).await;
        self.files.last_mut().expect("it was added").len = if wrote.is_ok() { len } else { 0 };
        wrote
    }

    async fn unlink(&mut self) -> Result<(), FsError> {
        let Some(n) = self.any() else { return Ok(()) };
        let f = self.files.swap_remove(n);
        self.ask(Request::Unlink { dir: self.dir, name: name_of(f.name) }).await.map(|_| ())
    }

    async fn change(&mut self, what: u64) -> Result<(), FsError> {
        let Some(n) = self.any() else { return self.create().await };
        let f = self.files[n];
        match what {
            0..=14 => {
                let more = self.rng.below(32 << 10) + 1;
                self.write(f.ino, f.len, more).await?;
                self.files[n].len += more;
            }
            15..=29 => {
                let at = self.rng.below(f.len + 1);
                self.write(f.ino, at, 4000).await?;
            }
            30..=44 => self.c.read(f.ino, f.len).await?,
            45..=49 => {
                let size = self.rng.below(f.len + 1);
                let set = SetAttr { size: Some(size), ..SetAttr::default() };
                self.ask(Request::SetAttr { ino: f.ino, set }).await?;
                self.files[n].len = size;
            }
            50..=54 => {
                let (to, mode) = (self.next, RenameMode::Replace);
                self.next += 1;
                let (name, to_name) = (name_of(f.name), name_of(to));
                let (dir, to_dir) = (self.dir, self.dir);
                self.ask(Request::Rename { dir, name, to_dir, to_name, mode }).await?;
                self.files[n].name = to;
            }
            _ => {
                self.ask(Request::Fsync { ino: f.ino, data_only: false }).await?;
            }
        }
        Ok(())
    }

    async fn step(&mut self) -> Result<(), FsError> {
        match self.rng.below(100) {
            0..=29 => self.create().await,
            30..=41 => self.unlink().await,
            n => self.change(n - 42).await,
        }
    }

    /// Works until then; when the volume is full he removes some of his files.
    async fn work(mut self, end: Nanos) -> Result<(), FsError> {
        while self.c.env.now() < end {
            match self.step().await {
                Err(FsError::NoSpace) => {
                    for _ in 0..4 {
                        self.unlink().await?;
                    }
                }
                other => other?,
            }
            // Work that the disk has no part in takes time too.
            self.c.env.sleep(Nanos::from_micros(200)).await;
        }
        Ok(())
    }
}

async fn statfs(c: &Caller) -> Result<StatFs, FsError> {
    match c.ask(Request::StatFs).await? {
        Reply::StatFs(s) => Ok(s),
        _ => Err(FsError::Io),
    }
}

fn counter(info: &VolumeInfo, name: &str) -> u64 {
    info.counters.iter().find(|c| c.0 == name).map_or(0, |c| c.1)
}

/// Looks at what is in memory, twice a second.
async fn watch(c: Caller, shared: Shared, (begun, end): (Nanos, Nanos)) -> Result<(), FsError> {
    let half = Nanos(begun.0 + end.since(begun).0 / 2);
    while c.env.now() < end {
        let Reply::Info(info) = c.ask(Request::Info).await? else { return Err(FsError::Io) };
        let space = statfs(&c).await?;
        let second = c.env.now() >= half;
        {
            let did = &mut *shared.borrow_mut();
            did.dependencies.note(second, counter(&info, "cairn_soft_dependencies"));
            did.undo_bytes.note(second, counter(&info, "cairn_soft_undo_bytes"));
            did.cached_bytes.note(second, counter(&info, "cairn_cache_blocks") * BLOCK);
            let rollbacks = counter(&info, "cairn_soft_rollbacks_total");
            let (has, free) = (space.blocks, space.free);
            assert!(free <= has && space.available <= free, "J3: {free} of {has} are free");
            assert!(did.rollbacks <= rollbacks, "J3: {rollbacks} after {}", did.rollbacks);
            did.rollbacks = rollbacks;
            did.fullest = did.fullest.max(100 * (space.blocks - space.free) / space.blocks);
        }
        c.env.sleep(Nanos::from_millis(500)).await;
    }
    Ok(())
}

fn run(mode: Mode, size: Size) -> Result<(Did, u64), String> {
    let machine = Machine {
        disk: sata_7200,
        log: sata_7200,
        bytes: (size.volume, 8 << 20),
        cache_bytes: size.cache,
        inodes: 32_768,
    };
    let mut rig = Rig::new(&machine, Setting::plain(mode))?;
    let shared = Shared::default();
    let begun = rig.now();
    let end = begun.plus(size.time);
    let caller = |n: u64| {
        let shared = shared.clone();
        async move |c: Caller| {
            if n == CALLERS {
                return watch(c, shared, (begun, end)).await;
            }
            let dir = c.mkdir(ROOT, &format!("dir-{n}")).await?;
            let (rng, files) = (Rng::new(n), Vec::new());
            Worker { c, shared, rng, dir, files, next: 0 }.work(end).await
        }
    };
    rig.callers(false, (0..=CALLERS).map(caller))?;
    rig.subject.shut().map_err(|e| format!("{mode}: the volume cannot be closed: {e:?}"))?;
    let note = rig.now().0;
    let disk = SimDevice(rig.subject.disks().swap_remove(0));
    let options = Options { now_secs: 1_700_000_000, verify: false, mark_clean: false };
    let report = check(&disk, &options, &mut ()).map_err(|e| e.to_string())?;
    if !report.is_sound() {
        return Err(format!("{mode}: {:?}", report.counts));
    }
    Ok((shared.take(), note))
}

/// The experiment.
pub(super) fn nearly_full(scale: Scale) -> Result<Findings, String> {
    let hour = Size { volume: 192 << 20, cache: 8 << 20, time: Nanos::from_secs(3600) };
    let short = Size { volume: 48 << 20, cache: 4 << 20, time: Nanos::from_secs(40) };
    let size = scale.pick(hour, short);
    let did = cores::each(&MODES, |mode| run(*mode, size));
    let did: Vec<(Did, u64)> = did.into_iter().collect::<Result<_, _>>()?;
    let mut f = Findings::default();
    let title = format!(
        "{CALLERS} callers on a volume of {} MiB, kept full, cache {} MiB, {} s, 7,200 rpm",
        size.volume >> 20,
        size.cache >> 20,
        size.time.0 / 1_000_000_000,
    );
    let columns = [
        "mode",
        "operations a second",
        "longest, ms",
        "which",
        "% full at most",
        "refused",
        "with room",
        "cache MiB at most",
        "dependencies at most",
        "bytes to take back at most",
        "rollbacks",
    ];
    let mut t = Table::new(&title, &columns);
    for (mode, (d, note)) in MODES.iter().zip(&did) {
        t.row(vec![
            mode.to_string(),
            format!("{:.0}", d.operations as f64 * 1e9 / size.time.0 as f64),
            format!("{:.0}", d.longest.0.0 as f64 / 1e6),
            d.longest.1.map(|op| format!("{op:?}").to_lowercase()).unwrap_or_default(),
            d.fullest.to_string(),
            d.refused.0.to_string(),
            d.refused.1.to_string(),
            format!("{:.1}", d.cached_bytes.most() as f64 / (1 << 20) as f64),
            d.dependencies.most().to_string(),
            d.undo_bytes.most().to_string(),
            d.rollbacks.to_string(),
        ]);
        f.note(*note);
    }
    f.tables.push(t);
    assert!(did[0].0.dependencies.most() > 0, "the watch sees no dependencies");
    claims(&did[0].0, &did[1].0, &mut f);
    Ok(f)
}

/// Of mode soft-updates, beside async, in which nothing waits for anything but memory.
fn claims(soft: &Did, free: &Did, f: &mut Findings) {
    let what = "our own goal: soft-updates: refused while there is room";
    let why = "what is being freed is made free first, and then the operation is tried again";
    f.claim(Stated::between(0, what, (0.0, 0.5)).because(why), soft.refused.1 as f64);
    let [first, second] = soft.dependencies.0;
    let growth = second as f64 / first.max(1) as f64;
    let what = "our own goal: soft-updates: dependencies at most, second half beside first";
    let why = "with many in memory whoever begins an operation first writes a wave";
    f.claim(Stated::between(0, what, (0.0, 1.25)).because(why), growth);
    let what = "our own goal: soft-updates: the longest operation beside that of async";
    let why =
        "who finds no room makes the oldest operations that freed some durable, and no others";
    let ours = soft.longest.0.0 as f64 / free.longest.0.0 as f64;
    f.claim(Stated::between(0, what, (0.0, 1.25)).because(why), ours);
}
