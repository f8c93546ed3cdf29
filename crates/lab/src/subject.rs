//! A volume in the virtual world: made, opened, asked, read back.

use crate::acts::{Act, ino_of};
use check::{IoError, ReadBlocks, WriteBlocks};
use env::{Engine, Env, Nanos};
use format::jbd2::device::JournalDevice;
use format::mkfs::{MkfsOptions, Profile};
use integrity::Plant;
use sim::timing::{Jitter, Timing};
use sim::{Image, World};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use vfs::{Answer, Call, FsError, Kind, Reply, Request, Volume};
use volume::{Commit, Mode, OpenOptions};

/// An image as recovery uses it.
pub struct SimDevice(pub Image);

impl ReadBlocks for SimDevice {
    fn size_bytes(&self) -> u64 {
        self.0.size()
    }
    fn read_at(&self, at: u64, into: &mut [u8]) -> Result<(), IoError> {
        self.0.read(at, into);
        Ok(())
    }
    fn known_zero(&self, at: u64, len: u64) -> bool {
        self.0.is_hole(at, len)
    }
}
impl WriteBlocks for SimDevice {
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> Result<(), IoError> {
        self.0.write(at, bytes);
        Ok(())
    }
    fn flush(&mut self) -> Result<(), IoError> {
        Ok(())
    }
}

/// How a volume is opened in the lab: the mode and its options.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setting {
    /// The mode.
    pub mode: Mode,
    /// Is the log on a disk of its own?
    pub outside: bool,
    /// When does a returned operation count as done?
    pub commit: Commit,
    /// Are contents durable before what points at them (`redo`)?
    pub ordered_data: bool,
    /// Up to how many bytes a write is logged; None: a block.
    pub threshold: Option<u64>,
}

impl Setting {
    /// A mode without options.
    pub fn plain(mode: Mode) -> Setting {
        let commit = Commit::Sync;
        Setting { mode, outside: false, commit, ordered_data: false, threshold: None }
    }

    /// Has the volume a journal?
    pub(crate) fn has_journal(&self) -> bool {
        self.mode.is_journal() || self.mode.is_redo()
    }

    /// The options of an opening, without those that say where the disks are.
    pub(crate) fn open_options(&self, cache_bytes: usize) -> OpenOptions {
        OpenOptions {
            commit: self.commit,
            threshold: self.threshold,
            ordered_data: self.ordered_data,
            ..OpenOptions::plain(self.mode, cache_bytes, [9; 16])
        }
    }

    /// The options as the command line has them.
    pub fn options(&self) -> String {
        let mut all = Vec::new();
        if self.outside {
            all.push("--log log".to_owned());
        }
        if self.commit == Commit::Async {
            all.push("--commit async".to_owned());
        }
        if self.ordered_data {
            all.push("--ordered-data".to_owned());
        }
        all.extend(self.threshold.map(|t| format!("--threshold {t}")));
        all.join(" ")
    }
}

/// Bytes of a log's own disk.
const LOG_BYTES: u64 = 1 << 20;

/// The disks of a new volume of this kind: its own, and its log's.
pub(crate) fn new_disks(size_bytes: u64, setting: Setting) -> Vec<Image> {
    if setting.outside && setting.mode.is_journal() {
        return with_journal_outside(size_bytes);
    }
    let mut all = vec![fresh(size_bytes, setting.has_journal())];
    if setting.outside {
        all.push(Image::new(LOG_BYTES));
    }
    all
}

/// A small, fresh volume, and the device with its journal.
fn with_journal_outside(size_bytes: u64) -> Vec<Image> {
    const JOURNAL: [u8; 16] = *b"cairn-lab-jrnl-1";
    let mut log = SimDevice(Image::new(LOG_BYTES));
    let blocks = (LOG_BYTES / 1024) as u32;
    let journal = JournalDevice { block_bytes: 1024, blocks, uuid: JOURNAL };
    let made = volume::make_journal(&mut log, &journal, VOLUME, (true, 1_700_000_000));
    made.expect("a small journal can be made");
    vec![made_of(MkfsOptions { journal_device: Some(JOURNAL), ..options(size_bytes, true) }), log.0]
}

/// Makes a volume sound, as opening it does first, with its journal wherever that is.
pub(crate) fn recover(disks: &mut [Image]) -> Result<(), String> {
    const NOW_SECS: u32 = 1_700_000_100;
    let mut devices: Vec<SimDevice> = disks.iter().cloned().map(SimDevice).collect();
    let (volume, log) = devices.split_first_mut().expect("a volume has a disk");
    let log = log.first_mut().map(|l| l as &mut dyn volume::Device);
    volume::recover(volume, log, NOW_SECS, &mut ()).map_err(|e| e.to_string())?;
    for (disk, device) in disks.iter_mut().zip(devices) {
        *disk = device.0;
    }
    Ok(())
}

/// The volume's UUID.
pub(crate) const VOLUME: &[u8; 16] = b"cairn-lab-volume";

/// A small, fresh volume.
pub fn fresh(size_bytes: u64, journal: bool) -> Image {
    made_of(options(size_bytes, journal))
}

fn options(size_bytes: u64, journal: bool) -> MkfsOptions {
    MkfsOptions {
        size_bytes,
        block_bytes: 1024,
        inode_bytes: 256,
        inodes: Some(512),
        profile: if journal { Profile::Ext3 } else { Profile::Ext2 },
        journal_bytes: journal.then_some(1 << 20),
        journal_device: None,
        label: "lab".into(),
        uuid: *VOLUME,
        hash_seed: [7; 16],
        owner: (0, 0),
        now_secs: 1_700_000_000,
    }
}

fn made_of(options: MkfsOptions) -> Image {
    let mut device = SimDevice(Image::new(options.size_bytes));
    volume::make(&mut device, &options, true).expect("a small volume can be made");
    device.0
}

/// What a caller of a volume does, from its beginning to its end.
pub(crate) type Task =
    Box<dyn FnOnce(Env, Rc<dyn Volume>) -> env::Local<'static, Result<(), FsError>>>;

/// An opened volume with its world.
pub struct Subject {
    /// The world it is in.
    pub world: World,
    engine: Engine,
    volume: Rc<dyn Volume>,
}

/// What lives in an engine holds the engine's handle, and is freed only if the engine lets it go.
impl Drop for Subject {
    fn drop(&mut self) {
        self.engine.kill();
    }
}

impl Subject {
    /// Opens the volume on this disk.
    pub fn open(
        disks: Vec<Image>,
        setting: Setting,
        read_only: bool,
        (plant, seed): (Plant, u64),
    ) -> Result<Subject, String> {
        // With some seeds the journals commit, and send home, in the middle of everything.
        let often = seed % 3 != 0 && setting.has_journal();
        let commit_interval = if often { Nanos::from_micros(500) } else { Nanos::from_secs(5) };
        let options =
            OpenOptions { read_only, plant, commit_interval, ..setting.open_options(4 << 20) };
        let mut timings: Vec<Box<dyn Timing>> = Vec::new();
        if setting.mode.is_redo() && seed % 2 == 1 {
            // Writes overtake one another.
            let jitter = |n| -> Box<dyn Timing> { Box::new(Jitter::new(seed ^ n)) };
            timings = (0..disks.len() as u64).map(jitter).collect();
        }
        Subject::open_as(disks, options, timings, seed)
    }

    /// Opens the volume on these disks with these options; `timings` is a model for each disk, or
    /// nothing.
    pub(crate) fn open_as(
        disks: Vec<Image>,
        options: OpenOptions,
        timings: Vec<Box<dyn Timing>>,
        seed: u64,
    ) -> Result<Subject, String> {
        let mut disks = disks.into_iter();
        let disk = disks.next().expect("a volume has a disk");
        let logs: Vec<Image> = disks.collect();
        let mut found = volume::probe(&SimDevice(disk.clone())).map_err(|e| e.to_string())?;
        if let Some(log) = logs.first() {
            found.attach(&SimDevice(log.clone())).map_err(|e| e.to_string())?;
        }
        let options = OpenOptions { log_disk_bytes: logs.first().map(Image::size), ..options };
        let opener = volume::opener(found, disk.size(), options);
        let mut world = World::new(disk);
        world.logs = logs;
        if !timings.is_empty() {
            world.set_timings(timings);
        }
        let mut engine = Engine::new(seed);
        let slot = Rc::new(RefCell::new(None));
        let mut opener = Some((opener, slot.clone()));
        let opened = slot.clone();
        world.run(
            &mut engine,
            move |env| {
                if let Some((open, slot)) = opener.take() {
                    let opening = open(env.clone());
                    env.spawn("open", async move { *slot.borrow_mut() = Some(opening.await) });
                }
            },
            |_| opened.borrow().is_some(),
        );
        let volume = slot.borrow_mut().take().expect("it has opened or failed")?;
        Ok(Subject { world, engine, volume })
    }

    /// Asks and waits; the trace has a mark when it began and when it was answered (twice `number`,
    /// and one more).
    pub fn ask(&mut self, number: u64, request: Request) -> Result<Reply, FsError> {
        self.call(number, Call::local(request)).result
    }

    /// The same for a caller of any kind.
    pub fn call(&mut self, number: u64, call: Call) -> Answer {
        self.world.mark(2 * number);
        let slot = Rc::new(RefCell::new(None));
        let answered = slot.clone();
        let mut call = Some((self.volume.clone(), call, slot.clone()));
        self.world.run(
            &mut self.engine,
            move |env| {
                if let Some((v, call, slot)) = call.take() {
                    env.spawn("call", async move {
                        *slot.borrow_mut() = Some(v.call(call).await);
                    });
                }
            },
            |_| answered.borrow().is_some(),
        );
        self.world.mark(2 * number + 1);
        slot.borrow_mut().take().expect("it was answered")
    }

    /// Starts tasks beside one another and turns the world until all of them have ended. Each gets
    /// the volume and the engine's handle.
    pub(crate) fn together(&mut self, tasks: Vec<Task>) -> Result<(), FsError> {
        let count = tasks.len();
        let ended = Rc::new(RefCell::new(Vec::new()));
        let (volume, into) = (self.volume.clone(), ended.clone());
        let mut tasks = tasks;
        self.world.run(
            &mut self.engine,
            move |env| {
                for task in std::mem::take(&mut tasks) {
                    let (future, into) = (task(env.clone(), volume.clone()), into.clone());
                    env.spawn("task", async move {
                        let result = future.await;
                        into.borrow_mut().push(result);
                    });
                }
            },
            |_| ended.borrow().len() == count,
        );
        ended.borrow().iter().copied().collect()
    }

    /// Closes the volume; the disks as they are then.
    pub fn close(mut self) -> Result<Vec<Image>, FsError> {
        let slot = Rc::new(RefCell::new(None));
        let mut volume = Some((self.volume.clone(), slot.clone()));
        let closed = slot.clone();
        self.world.run(
            &mut self.engine,
            move |env| {
                if let Some((v, slot)) = volume.take() {
                    env.spawn("close", async move { *slot.borrow_mut() = Some(v.close().await) });
                }
            },
            |_| closed.borrow().is_some(),
        );
        slot.borrow_mut().take().expect("it has closed")?;
        Ok(self.disks())
    }

    /// The disks as reads see them: the volume's, then its log's.
    pub fn disks(&self) -> Vec<Image> {
        let mut all = vec![self.world.disk.clone()];
        all.extend(self.world.logs.iter().cloned());
        all
    }

    /// Lets virtual time pass, so that write-back runs.
    pub fn pass(&mut self, ns: u64) {
        let end = self.world.now() + ns;
        let mut armed = false;
        self.world.run(
            &mut self.engine,
            move |env| {
                if !std::mem::replace(&mut armed, true) {
                    let e = env.clone();
                    env.spawn("pass", async move { e.sleep(Nanos(ns)).await });
                }
            },
            |w| w.now() >= end,
        );
    }

    /// The inode at a path.
    pub fn walk(&mut self, path: &str) -> Result<u32, FsError> {
        let mut at = 2;
        for name in path.split('/').filter(|n| !n.is_empty()) {
            let request = Request::Lookup { dir: at, name: name.as_bytes().to_vec() };
            at = ino_of(&self.ask(u64::MAX / 4, request)?).ok_or(FsError::Io)?;
        }
        Ok(at)
    }

    /// Does an act.
    pub fn act(&mut self, number: u64, act: &Act) -> Result<(), FsError> {
        let mut inos = Vec::new();
        for path in act.needs() {
            inos.push(self.walk(path)?);
        }
        self.ask(number, act.request(&inos)).map(|_| ())
    }

    /// Does the acts in `lanes` callers at a time: each does every `lanes`-th of them, one after
    /// the other. The trace has marks as for `ask`.
    pub(crate) fn act_in_lanes(&mut self, acts: &[Act], lanes: usize) -> Vec<Result<(), FsError>> {
        let results = Rc::new(RefCell::new(vec![None; acts.len()]));
        let (volume, pen) = (self.volume.clone(), self.world.pen());
        let mut work: Vec<Vec<(usize, Act)>> = vec![Vec::new(); lanes];
        for (n, act) in acts.iter().enumerate() {
            work[n % lanes].push((n, act.clone()));
        }
        let into = results.clone();
        self.world.run(
            &mut self.engine,
            move |env| {
                for lane in std::mem::take(&mut work) {
                    let (volume, pen, into) = (volume.clone(), pen.clone(), into.clone());
                    env.spawn("lane", async move {
                        for (n, act) in lane {
                            pen.mark(2 * n as u64);
                            let result = perform(&volume, &act).await;
                            pen.mark(2 * n as u64 + 1);
                            into.borrow_mut()[n] = Some(result);
                        }
                    });
                }
            },
            |_| results.borrow().iter().all(Option::is_some),
        );
        let all = results.borrow();
        all.iter().map(|r| r.expect("all are there")).collect()
    }

    /// Every path of the volume with its kind, size and (with `contents`) bytes. Without
    /// lost+found.
    pub fn tree(&mut self, contents: bool) -> Result<BTreeMap<String, Seen>, FsError> {
        let mut all = BTreeMap::new();
        let mut dirs = vec![(String::new(), 2u32)];
        while let Some((path, dir)) = dirs.pop() {
            for e in self.list(dir)? {
                let name = String::from_utf8_lossy(&e.name).into_owned();
                if (path.is_empty() && name == "lost+found") || name == "." || name == ".." {
                    continue;
                }
                let at = format!("{path}/{name}");
                let seen = self.look(e.ino, contents)?;
                if seen.kind == Kind::Dir {
                    dirs.push((at.clone(), e.ino));
                }
                all.insert(at, seen);
            }
        }
        Ok(all)
    }

    fn list(&mut self, dir: u32) -> Result<Vec<vfs::DirEntry>, FsError> {
        let mut all = Vec::new();
        let mut cookie = 0;
        loop {
            let request =
                Request::ReadDir { dir, cookie, max_bytes: 4096, entry_bytes: 24, attrs: false };
            let Reply::Dir { entries, eof, .. } = self.ask(u64::MAX / 4, request)? else {
                return Err(FsError::Io);
            };
            cookie = entries.last().map_or(cookie, |e| e.cookie);
            all.extend(entries);
            if eof {
                return Ok(all);
            }
        }
    }

    fn look(&mut self, ino: u32, contents: bool) -> Result<Seen, FsError> {
        let Reply::Attr(a) = self.ask(u64::MAX / 4, Request::GetAttr { ino })? else {
            return Err(FsError::Io);
        };
        let mut bytes = Vec::new();
        if a.kind() == Kind::Symlink
            && let Reply::Bytes(text) = self.ask(u64::MAX / 4, Request::ReadLink { ino })?
        {
            bytes = text;
        }
        if contents && a.kind() == Kind::File {
            let len = u32::try_from(a.size).unwrap_or(u32::MAX);
            let read = Request::Read { ino, offset: 0, len };
            if let Reply::Data { data, .. } = self.ask(u64::MAX / 4, read)? {
                bytes = data.to_vec();
            }
        }
        Ok(Seen { kind: a.kind(), ino, size: a.size, bytes })
    }
}

/// Does an act from inside the engine.
async fn perform(volume: &Rc<dyn Volume>, act: &Act) -> Result<(), FsError> {
    let mut inos = Vec::new();
    for path in act.needs() {
        let mut at = 2;
        for name in path.split('/').filter(|n| !n.is_empty()) {
            let request = Request::Lookup { dir: at, name: name.as_bytes().to_vec() };
            let reply = volume.clone().call(Call::local(request)).await.result?;
            at = ino_of(&reply).ok_or(FsError::Io)?;
        }
        inos.push(at);
    }
    volume.clone().call(Call::local(act.request(&inos))).await.result.map(|_| ())
}

/// What is at a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// What kind of file.
    pub kind: Kind,
    /// Its inode.
    pub ino: u32,
    /// Its length.
    pub size: u64,
    /// Its contents, or a link's text.
    pub bytes: Vec<u8>,
}
