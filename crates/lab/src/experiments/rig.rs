//! A volume on modelled disks in virtual time, and callers of it: what an experiment is made of.
//! The volume is the one that is served; only the disks and the time are not real. Nothing takes
//! time but the disks, and what an experiment lets callers wait for.
//!
//! Invariants:
//! * R1. The figures of an experiment are those of its disks: each disk's traffic is taken once,
//!   and what is written is whole sectors, one at least a write.
//! * R2. Each call of a caller is in the book once, with the time that it took, and what it has
//!   computed is the processor's.
//! * R3. A machine's disks are as large as the machine says.
//! * R4. Callers take time only where the disks, the processor or they themselves let them wait.

use super::latency::{Book, Latencies, Op};
use crate::subject::{Setting, SimDevice, Subject};
use env::{Env, Nanos, Rope};
use format::jbd2::device::JournalDevice;
use format::mkfs::{MkfsOptions, Profile};
use sim::timing::Timing;
use sim::{Image, Traffic, World};
use std::cell::Cell;
use std::rc::Rc;
use vfs::{Call, FsError, MakeKind, Reply, Request, SetAttr, Stability, Volume};
use volume::OpenOptions;

/// A disk's model, by the size of the disk.
pub(crate) type Model = fn(u64) -> Box<dyn Timing>;

/// The disks, and what is made of them.
#[derive(Clone, Copy)]
pub(crate) struct Machine {
    /// The volume's.
    pub(crate) disk: Model,
    /// The log's, where the log is outside.
    pub(crate) log: Model,
    /// Sizes of the two; with a log inside, the second is that log's.
    pub(crate) bytes: (u64, u64),
    /// Memory of each volume for blocks.
    pub(crate) cache_bytes: usize,
    /// Inodes of the volume.
    pub(crate) inodes: u32,
}

/// Bytes of a block.
pub(crate) const BLOCK: u64 = 4096;
const NOW_SECS: u32 = 1_700_000_000;
/// Bytes of the journal that only keeps others off while the log is outside.
const GUARD_BYTES: u64 = 4 << 20;

/// An opened volume on a machine.
pub(crate) struct Rig {
    pub(crate) subject: Subject,
    volumes: usize,
    book: Book,
    server: Option<Server>,
}

/// What a request costs the processor before anything else is done for it.
#[derive(Clone)]
struct Server {
    processor: Processor,
    work: Nanos,
}

/// The n-th volume's UUID.
pub(crate) fn uuid(n: u16) -> [u8; 16] {
    let mut uuid = *crate::subject::VOLUME;
    uuid[15] += n as u8;
    uuid
}

/// New disks for this setting: one a volume, then the log's where that is outside.
fn new_disks(m: &Machine, s: Setting) -> Vec<Image> {
    const JOURNAL: [u8; 16] = *b"cairn-experiment";
    let journal_outside = s.outside && s.mode.is_journal();
    let journal = s.has_journal();
    let inside = if s.outside { GUARD_BYTES } else { m.bytes.1 };
    let options = |n| MkfsOptions {
        inodes: Some(m.inodes),
        journal_bytes: (journal && !journal_outside).then_some(inside),
        journal_device: journal_outside.then_some(JOURNAL),
        label: format!("lab{n}"),
        uuid: uuid(n),
        now_secs: NOW_SECS,
        ..MkfsOptions::plain(m.bytes.0, if journal { Profile::Ext3 } else { Profile::Ext2 })
    };
    if s.in_segments() {
        return vec![in_segments(m.bytes.0, options(0))];
    }
    let mut disks = Vec::new();
    for n in 0..s.volumes {
        let mut device = SimDevice(Image::new(m.bytes.0));
        volume::make(&mut device, &options(n), true).expect("an experiment's volume can be made");
        disks.push(device.0);
    }
    if s.outside {
        let mut log = SimDevice(Image::new(m.bytes.1));
        if journal_outside {
            let blocks = (m.bytes.1 / BLOCK) as u32;
            let journal = JournalDevice { block_bytes: BLOCK as usize, blocks, uuid: JOURNAL };
            let made =
                volume::make_journal(&mut log, &journal, crate::subject::VOLUME, (true, NOW_SECS));
            made.expect("an experiment's journal can be made");
        }
        disks.push(log.0);
    }
    disks
}

/// A disk with a log-structured store, and the volume in it.
fn in_segments(bytes: u64, volume: MkfsOptions) -> Image {
    let (uuid, segment_bytes, virtual_bytes, heads) = (uuid(0), None, None, None);
    let store = lfs::FormatOptions { uuid, segment_bytes, virtual_bytes, heads, disk: None };
    let mut world = World::new(Image::new(bytes));
    world.forget();
    let made = sim::block_on(&mut world, move |env, disk| async move {
        volume::make_on_segments(env, disk, &store, &volume).await
    });
    made.expect("an experiment's volume can be made");
    world.disk
}

impl Rig {
    /// Makes the volume and opens it. Only what is done from now on is counted.
    pub(crate) fn new(m: &Machine, setting: Setting) -> Result<Rig, String> {
        Rig::with(m, setting, |o| o)
    }

    /// As `new`, with options changed.
    pub(crate) fn with(
        m: &Machine,
        setting: Setting,
        change: impl FnOnce(OpenOptions) -> OpenOptions,
    ) -> Result<Rig, String> {
        Rig::over(m, setting, new_disks(m, setting), change)
    }

    /// As after an unmount and a mount: everything is on the disks, and nothing in memory.
    pub(crate) fn reopened(mut self, m: &Machine, setting: Setting) -> Result<Rig, String> {
        let server = self.server.take();
        let rig = Rig::over(m, setting, self.closed()?, |o| o)?;
        Ok(Rig { server, ..rig })
    }

    /// Opens the volume that lies on these disks.
    pub(crate) fn over(
        m: &Machine,
        setting: Setting,
        disks: Vec<Image>,
        change: impl FnOnce(OpenOptions) -> OpenOptions,
    ) -> Result<Rig, String> {
        let volumes = usize::from(setting.volumes);
        for (n, disk) in disks.iter().enumerate() {
            let wanted = if n < volumes { m.bytes.0 } else { m.bytes.1 };
            assert_eq!(disk.size(), wanted, "R3: disk {n} of {volumes} volumes");
        }
        let mut timings: Vec<_> = (0..volumes).map(|_| (m.disk)(m.bytes.0)).collect();
        if disks.len() > volumes {
            timings.push((m.log)(m.bytes.1));
        }
        let options = change(setting.open_options(m.cache_bytes));
        let mut subject = Subject::open_several((disks, setting.volumes), options, timings, 1)?;
        subject.world.forget();
        let mut rig = Rig { subject, volumes, book: Book::default(), server: None };
        rig.take_traffic();
        Ok(rig)
    }

    /// From now on each request costs the one processor so much, which counts as its time.
    pub(crate) fn set_work(&mut self, work: Nanos) {
        self.server = Some(Server { processor: Processor::default(), work });
    }

    /// The time now.
    pub(crate) fn now(&self) -> Nanos {
        Nanos(self.subject.world.now())
    }

    /// What the volumes' disks were asked together, and the log's, since the last time.
    pub(crate) fn take_traffic(&mut self) -> [Traffic; 2] {
        let all = self.subject.world.take_traffic();
        let mut sum = [Traffic::default(); 2];
        let most = self.subject.world.logs.len() + 1;
        assert!(all.len() <= most && self.volumes <= most, "R1: {} disks of {most}", all.len());
        for (n, t) in all.into_iter().enumerate() {
            // What is read without waiting may be parts of sectors.
            let whole = t.write_bytes.is_multiple_of(512) && t.write_bytes >= 512 * t.writes;
            assert!(whole && t.read_bytes >= t.reads, "R1: disk {n} has done {t:?}");
            let s = &mut sum[usize::from(n >= self.volumes)];
            s.reads += t.reads;
            s.read_bytes += t.read_bytes;
            s.writes += t.writes;
            s.write_bytes += t.write_bytes;
            s.flushes += t.flushes;
        }
        sum
    }

    /// So many requests since the last time.
    pub(crate) fn calls(&self) -> usize {
        self.book.count()
    }

    /// How long requests took since the last time.
    pub(crate) fn take_latencies(&mut self) -> Latencies {
        self.book.take()
    }

    /// Runs callers to their ends; how long all of it took. The n-th uses the n-th volume, and so
    /// on in turn. `durable`: no reply before what it says is durable, as over NFS.
    pub(crate) fn callers<F>(
        &mut self,
        durable: bool,
        callers: impl IntoIterator<Item = F>,
    ) -> Result<Nanos, String>
    where
        F: AsyncFnOnce(Caller) -> Result<(), FsError> + 'static,
    {
        let begun = self.now();
        let noted = self.book.count();
        let tasks = callers.into_iter().map(|f| -> crate::subject::Task {
            let (book, server) = (self.book.clone(), self.server.clone());
            Box::new(move |env, volume| {
                Box::pin(async move { f(Caller { env, volume, durable, book, server }).await })
            })
        });
        let tasks: Vec<crate::subject::Task> = tasks.collect();
        let count = tasks.len();
        self.subject.spread(tasks).map_err(|e| format!("a caller failed: {e:?}"))?;
        let (took, asked) = (self.now().since(begun), self.book.count() - noted);
        let busy = count > 0 || (took, asked) == (Nanos(0), 0);
        assert!(busy, "R4: nobody has asked {asked} times, and it took {took:?}");
        Ok(took)
    }

    /// Closes the volume; its disks.
    pub(crate) fn closed(mut self) -> Result<Vec<Image>, String> {
        self.subject.shut().map_err(|e| format!("the volume cannot be closed: {e:?}"))?;
        Ok(self.subject.disks())
    }

    /// The power is cut: what is on the disks then. Everything that was issued has reached them.
    pub(crate) fn cut(self) -> Vec<Image> {
        self.subject.disks()
    }
}

/// Somebody who uses the volume.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) env: Env,
    volume: Rc<dyn Volume>,
    durable: bool,
    book: Book,
    server: Option<Server>,
}

/// The root directory.
pub(crate) const ROOT: u32 = 2;

impl Caller {
    /// Asks.
    pub(crate) async fn ask(&self, request: Request) -> Result<Reply, FsError> {
        let (op, begun) = (Op::of(&request), self.env.now());
        if let Some(s) = &self.server {
            s.processor.work(&self.env, s.work).await;
        }
        let call = Call { durable: self.durable, ..Call::local(request) };
        let result = self.volume.clone().call(call).await.result;
        let took = self.env.now().since(begun);
        let work = self.server.as_ref().map_or(Nanos(0), |s| s.work);
        assert!(took >= work, "R2: {op:?} took {took:?}, and the processor alone {work:?}");
        self.book.note(op, took);
        result
    }

    /// Computes for so long, on the one processor if there is one.
    pub(crate) async fn compute(&self, time: Nanos) {
        match &self.server {
            Some(s) => s.processor.work(&self.env, time).await,
            None => self.env.sleep(time).await,
        }
    }

    async fn make(&self, dir: u32, name: &str, kind: MakeKind) -> Result<u32, FsError> {
        let attr = SetAttr { mode: Some(0o755), ..SetAttr::default() };
        let name = name.as_bytes().to_vec();
        let make = Request::Make { dir, name, kind, attr, fail_if_exists: true, umask: 0 };
        crate::acts::ino_of(&self.ask(make).await?).ok_or(FsError::Io)
    }

    /// A new file.
    pub(crate) async fn create(&self, dir: u32, name: &str) -> Result<u32, FsError> {
        self.make(dir, name, MakeKind::File { exclusive: None }).await
    }

    /// A new directory.
    pub(crate) async fn mkdir(&self, dir: u32, name: &str) -> Result<u32, FsError> {
        self.make(dir, name, MakeKind::Dir).await
    }

    /// The inode of a name.
    pub(crate) async fn lookup(&self, dir: u32, name: &str) -> Result<u32, FsError> {
        let found = self.ask(Request::Lookup { dir, name: name.as_bytes().to_vec() }).await?;
        crate::acts::ino_of(&found).ok_or(FsError::Io)
    }

    /// Removes an empty directory.
    pub(crate) async fn rmdir(&self, dir: u32, name: &str) -> Result<(), FsError> {
        self.ask(Request::Rmdir { dir, name: name.as_bytes().to_vec() }).await.map(|_| ())
    }

    /// Removes a file.
    pub(crate) async fn unlink(&self, dir: u32, name: &str) -> Result<(), FsError> {
        self.ask(Request::Unlink { dir, name: name.as_bytes().to_vec() }).await.map(|_| ())
    }

    /// Writes `len` bytes at `at`; `sync`: durable when it returns, as with O_SYNC.
    pub(crate) async fn write(
        &self,
        ino: u32,
        (at, len): (u64, u64),
        sync: bool,
    ) -> Result<(), FsError> {
        let bytes = vec![(ino % 251) as u8 ^ (at / 97) as u8; len as usize];
        let data = Rope::cut(&bytes, (at % BLOCK) as usize, BLOCK as usize);
        let stability = if sync { Stability::FileSync } else { Stability::Unstable };
        let write = Request::write(ino, at, data, stability);
        match self.ask(write).await? {
            Reply::Written { len: taken, .. } if u64::from(taken) == len => Ok(()),
            // What was taken in part would be counted as if it were all there.
            Reply::Written { .. } => Err(FsError::NoSpace),
            _ => Err(FsError::Io),
        }
    }

    /// Makes everything durable.
    pub(crate) async fn sync_all(&self) -> Result<(), FsError> {
        self.ask(Request::SyncAll).await.map(|_| ())
    }
    /// Reads from the front, as much as one request brings.
    pub(crate) async fn read(&self, ino: u32, len: u64) -> Result<(), FsError> {
        self.read_at(ino, (0, len)).await
    }
    /// Reads, as much as one request brings.
    pub(crate) async fn read_at(&self, ino: u32, (offset, len): (u64, u64)) -> Result<(), FsError> {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        self.ask(Request::Read { ino, offset, len }).await.map(|_| ())
    }
}

/// A processor that does one thing at a time: who asks while it is busy waits in line.
#[derive(Clone, Default)]
pub(crate) struct Processor(Rc<Cell<Nanos>>);

impl Processor {
    /// Works for so long.
    pub(crate) async fn work(&self, env: &Env, time: Nanos) {
        let end = self.0.get().max(env.now()).plus(time);
        self.0.set(end);
        env.sleep_until(end).await;
    }
}

/// Seconds, as a number.
pub(crate) fn secs(t: Nanos) -> f64 {
    t.0 as f64 / 1e9
}
