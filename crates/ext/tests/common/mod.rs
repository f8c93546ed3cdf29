//! A world for the tests of the layout: a volume on a disk in memory, the operations over it, and
//! the real e2fsck's opinion of what they leave behind. What a test does to a file it does through
//! `ufs`, as a user would; what it wants to see of the layout it asks of the `Store`.
#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test file uses its part")]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "tests meet the real world"
)]

pub mod strict;

use cache::{Cache, CacheOptions};
use env::{DiskId, Engine, Env, Rng, Rope};
use ext::{Ext, LoadError, Loaded};
use format::ext::Superblock;
use format::ext::superblock::{SUPERBLOCK_AT, SUPERBLOCK_BYTES};
use format::mkfs::{MkfsOptions, Plan, Profile};
use format::{FileBlock, Ino};
use integrity::{Mechanism, Plant};
use mechanisms::{Mode, Recipe};
use rustix::fs::SeekFrom;
use sim::Image;
use std::cell::RefCell;
use std::fs::File;
use std::future::Future;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;
use ufs::Ufs;
use ufs::store::{Contents, Inodes, Run, Space};
use vfs::{
    Attr, Call, Cred, FsError, MakeKind, Reply, Request, SetAttr, Stability, StatFs, Volume,
};

/// A directory of its own, removed when it goes.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Scratch {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let shm = Path::new("/dev/shm");
        let base = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
        let dir = base.join(format!("cairn-ext-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Scratch(dir)
    }
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
    /// A directory in this one.
    pub fn folder(&self, name: &str) -> Scratch {
        let dir = self.path(name);
        std::fs::create_dir_all(&dir).unwrap();
        Scratch(dir)
    }
}
impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A tool of e2fsprogs, which may be outside the PATH of a user.
pub fn tool(name: &str) -> Command {
    let place = Path::new("/usr/sbin").join(name);
    Command::new(if place.exists() { place } else { name.into() })
}

pub fn options(size: u64, block: usize, inode: usize, profile: Profile) -> MkfsOptions {
    MkfsOptions {
        block_bytes: block,
        inode_bytes: inode,
        label: "test".into(),
        ..MkfsOptions::plain(size, profile)
    }
}

/// What a mechanism without a log or journal is built of.
pub fn recipe(cache: &Rc<Cache>) -> Recipe {
    let (cache, plant) = (cache.clone(), Plant::NONE);
    Recipe { cache, plant, log: None, journal: None, groups: None, intents: None }
}

/// A virtual world with a volume's engine in it.
pub struct World {
    engine: Engine,
    pub sim: sim::World,
    pub cache_bytes: usize,
}

impl World {
    pub fn with_disk(disk: Image) -> World {
        let sim = sim::World::new(disk);
        World { engine: Engine::new(7), sim, cache_bytes: 64 << 20 }
    }

    /// With a volume of `format::mkfs`.
    pub fn mkfs(o: &MkfsOptions) -> World {
        let mut disk = Image::new(o.size_bytes);
        let plan = Plan::new(o).unwrap();
        let put = |b: format::BlockNo, bytes: &[u8]| -> Result<(), ()> {
            disk.write(b.0 * o.block_bytes as u64, bytes);
            Ok(())
        };
        plan.each_block(put).unwrap();
        World::with_disk(disk)
    }

    /// With a small ordinary volume.
    pub fn small() -> World {
        World::mkfs(&options(64 << 20, 4096, 256, Profile::Ext2))
    }

    /// With a volume of the real mke2fs.
    pub fn mke2fs(size: u64, args: &[&str]) -> World {
        let scratch = Scratch::new();
        let image = scratch.path("v");
        File::create(&image).unwrap().set_len(size).unwrap();
        let out = tool("mke2fs").args(["-q", "-F"]).args(args).arg(&image).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        World::with_disk(load(&image, size))
    }

    /// Runs a task to its end, with every request it makes.
    pub fn run<T: 'static, F: Future<Output = T> + 'static>(
        &mut self,
        task: impl FnOnce(Env) -> F,
    ) -> T {
        let result = Rc::new(RefCell::new(None));
        let out = result.clone();
        let work = task(self.engine.env().clone());
        let mut start = Some(async move {
            let r = work.await;
            *out.borrow_mut() = Some(r);
        });
        let arrive = |env: &Env| {
            if let Some(s) = start.take() {
                env.spawn("test", s);
            }
        };
        self.sim.run(&mut self.engine, arrive, |_| result.borrow().is_some());
        result.take().unwrap()
    }

    pub fn bytes(&self, at: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.sim.disk.read(at, &mut out);
        out
    }
    pub fn superblock(&self) -> Superblock {
        Superblock::decode(&self.bytes(SUPERBLOCK_AT, SUPERBLOCK_BYTES)).unwrap()
    }

    /// Opens the volume.
    pub fn open(&mut self, mode: Mode) -> Vol {
        self.try_open(mode).unwrap()
    }

    pub fn try_open(&mut self, mode: Mode) -> Result<Vol, LoadError> {
        let vol = self.load(|cache| mechanisms::build(mode, &recipe(cache)).unwrap())?;
        let ext = vol.ext.clone();
        self.run(|_| async move { ext.mark_open(false, 1_700_000_000).await }).unwrap();
        Ok(vol)
    }

    /// Loads it, with a mechanism of the test's, and writes nothing.
    pub fn load(&mut self, mechanism: impl Fn(&Rc<Cache>) -> Mechanism) -> Result<Vol, LoadError> {
        let superblock = self.superblock();
        let env = self.engine.env().clone();
        let disk = env.port().disk(DiskId(0), self.sim.disk.size());
        let options = CacheOptions {
            block_bytes: superblock.block_bytes(),
            cache_bytes: self.cache_bytes,
            contents_bytes: usize::MAX,
            interval: None,
            transfer_bytes_max: 1 << 20,
        };
        let cache = Cache::new(env.clone(), disk, options);
        let mechanism = mechanism(&cache);
        cache.start();
        let loaded =
            Loaded { superblock, journal: Vec::new(), read_only: false, plant: Plant::NONE };
        let ext = self.run(|_| Ext::load(env, cache, mechanism, loaded))?;
        let info = || unreachable!("no test asks");
        Ok(Vol { ufs: Ufs::new(ext.clone(), &[7; 16], info), ext })
    }

    /// Closes it as `volume` does.
    pub fn close(&mut self, vol: Vol) {
        self.run(|_| async move {
            vol.ufs.shut().await.unwrap();
            vol.ext.mechanism().close().await.unwrap();
            vol.ext.cache().stop();
            vol.ext.mark_clean(false).await.unwrap();
        });
    }

    /// Closes it and lets e2fsck look.
    pub fn close_and_judge(&mut self, vol: Vol, what: &str) {
        self.close(vol);
        self.judge(what);
    }

    /// The real e2fsck finds nothing.
    pub fn judge(&self, what: &str) {
        let (code, text) = self.e2fsck(&["-fn"]);
        assert_eq!(code, 0, "e2fsck after {what}: {text}");
    }

    /// What e2fsck says of a copy of the image; its exit code first.
    pub fn e2fsck(&self, args: &[&str]) -> (i32, String) {
        let scratch = Scratch::new();
        let image = scratch.path("v");
        self.save(&image);
        let out = tool("e2fsck").args(args).arg(&image).output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        (out.status.code().unwrap_or(-1), text)
    }

    /// The permissions that the disk has of a file in the root directory.
    pub fn mode_on_disk(&self, name: &str) -> u32 {
        let scratch = Scratch::new();
        let image = scratch.path("v");
        self.save(&image);
        let out = tool("debugfs").args(["-R", &format!("stat {name}")]).arg(&image).output();
        let text = String::from_utf8_lossy(&out.unwrap().stdout).into_owned();
        let mode = text.split("Mode:").nth(1).and_then(|t| t.split_whitespace().next());
        u32::from_str_radix(mode.unwrap(), 8).unwrap()
    }

    /// Lets e2fsck change the image; its exit code first.
    pub fn e2fsck_writing(&mut self, args: &[&str]) -> (i32, String) {
        let scratch = Scratch::new();
        let image = scratch.path("v");
        self.save(&image);
        let out = tool("e2fsck").args(args).arg(&image).output().unwrap();
        self.sim.disk = load(&image, self.sim.disk.size());
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        (out.status.code().unwrap_or(-1), text)
    }

    /// Lets debugfs change the image.
    pub fn debugfs(&mut self, commands: &[&str]) {
        let scratch = Scratch::new();
        let image = scratch.path("v");
        self.save(&image);
        let script = scratch.path("script");
        std::fs::write(&script, commands.join("\n")).unwrap();
        let out = tool("debugfs").args(["-w", "-f"]).arg(&script).arg(&image).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        self.sim.disk = load(&image, self.sim.disk.size());
    }

    pub fn save(&self, to: &Path) {
        let f = File::create(to).unwrap();
        f.set_len(self.sim.disk.size()).unwrap();
        let mut parts: Vec<_> = std::iter::once(0..self.sim.disk.size()).collect();
        while let Some(part) = parts.pop() {
            let len = part.end - part.start;
            if self.sim.disk.is_hole(part.start, len) {
                continue;
            }
            if len <= CHUNK as u64 {
                f.write_all_at(&self.bytes(part.start, len as usize), part.start).unwrap();
                continue;
            }
            let middle = part.start + (len / 2).next_multiple_of(CHUNK as u64);
            parts.extend([part.start..middle, middle..part.end]);
        }
    }

    // What a user does; each waits until it is answered.

    pub fn call(&mut self, vol: &Vol, request: Request) -> Result<Reply, FsError> {
        self.call_as(vol, Cred::root(), request)
    }
    pub fn call_as(&mut self, vol: &Vol, cred: Cred, request: Request) -> Result<Reply, FsError> {
        let call = Call { cred, ..Call::local(request) };
        let ufs = vol.ufs.clone();
        self.run(|_| ufs.call(call)).result
    }
    pub fn make(&mut self, v: &Vol, dir: u32, name: &str, kind: MakeKind) -> Result<u32, FsError> {
        let attr = SetAttr { mode: Some(0o755), ..SetAttr::default() };
        let name = name.as_bytes().to_vec();
        let r = Request::Make { dir, name, kind, attr, fail_if_exists: true, umask: 0 };
        match self.call(v, r)? {
            Reply::Entry { attr, .. } => Ok(attr.ino),
            other => panic!("{other:?}"),
        }
    }
    pub fn file(&mut self, v: &Vol, dir: u32, name: &str) -> u32 {
        self.make(v, dir, name, MakeKind::File { exclusive: None }).unwrap()
    }
    pub fn dir(&mut self, v: &Vol, dir: u32, name: &str) -> u32 {
        self.make(v, dir, name, MakeKind::Dir).unwrap()
    }
    pub fn write(&mut self, v: &Vol, ino: u32, offset: u64, data: &[u8]) -> Result<u32, FsError> {
        let bs = v.block_bytes();
        let data = Rope::cut(data, (offset % bs as u64) as usize, bs);
        let stability = Stability::Unstable;
        let r = Request::write(ino, offset, data, stability);
        match self.call(v, r)? {
            Reply::Written { len, .. } => Ok(len),
            other => panic!("{other:?}"),
        }
    }
    pub fn read(&mut self, v: &Vol, ino: u32, offset: u64, len: u32) -> Result<Vec<u8>, FsError> {
        match self.call(v, Request::Read { ino, offset, len })? {
            Reply::Data { data, .. } => {
                let mut out = vec![0; data.len()];
                data.copy_to(&mut out);
                Ok(out)
            }
            other => panic!("{other:?}"),
        }
    }
    pub fn resize(&mut self, v: &Vol, ino: u32, size: u64) -> Result<(), FsError> {
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        self.call(v, Request::SetAttr { ino, set }).map(drop)
    }
    pub fn unlink(&mut self, v: &Vol, dir: u32, name: &str) -> Result<(), FsError> {
        self.call(v, Request::Unlink { dir, name: name.as_bytes().to_vec() }).map(drop)
    }
    pub fn lookup(&mut self, v: &Vol, dir: u32, name: &str) -> u32 {
        match self.call(v, Request::Lookup { dir, name: name.as_bytes().to_vec() }).unwrap() {
            Reply::Entry { attr, .. } => attr.ino,
            other => panic!("{other:?}"),
        }
    }
    pub fn attr(&mut self, v: &Vol, ino: u32) -> Attr {
        match self.call(v, Request::GetAttr { ino }).unwrap() {
            Reply::Attr(a) => a,
            other => panic!("{other:?}"),
        }
    }
    pub fn sync(&mut self, v: &Vol) -> Result<(), FsError> {
        self.call(v, Request::SyncAll).map(drop)
    }

    pub fn free_blocks(&mut self, v: &Vol) -> u64 {
        self.statfs(v).free
    }
    pub fn statfs(&mut self, v: &Vol) -> StatFs {
        let ext = v.ext.clone();
        self.run(|_| async move { ext.statfs().await })
    }

    /// Is there no room for one more directory?
    pub fn dir_fails(&mut self, v: &Vol) -> bool {
        self.make(v, ROOT, "one-more", MakeKind::Dir) == Err(FsError::NoSpace)
    }

    /// Where a file block lies and how far that goes on.
    pub fn map(&mut self, v: &Vol, ino: u32, at: u64, max: u64) -> Result<Run, FsError> {
        let ext = v.ext.clone();
        self.run(|_| async move {
            let h = ext.inode(Ino(ino)).await?;
            ext.map(&h, FileBlock(at), max).await
        })
    }
    /// The file's blocks on disk, one after the other; 0 for a hole.
    pub fn blocks(&mut self, v: &Vol, ino: u32, count: u64) -> Vec<u64> {
        let mut all = Vec::new();
        while (all.len() as u64) < count {
            let done = all.len() as u64;
            let run = self.map(v, ino, done, count - done).unwrap();
            all.extend((0..run.len).map(|i| run.start.map_or(0, |b| b.0 + i)));
        }
        all
    }
}

/// What is sparse stays so.
const CHUNK: usize = 4096;

fn load(image: &Path, size: u64) -> Image {
    let f = File::open(image).unwrap();
    let mut disk = Image::new(size);
    let mut buf = vec![0; CHUNK];
    let mut at = 0;
    // Error: there are only holes from here on.
    while let Ok(data) = rustix::fs::seek(&f, SeekFrom::Data(at)) {
        at = data - data % CHUNK as u64;
        let n = (size - at).min(CHUNK as u64) as usize;
        f.read_exact_at(&mut buf[..n], at).unwrap();
        if buf[..n].iter().any(|&b| b != 0) {
            disk.write(at, &buf[..n]);
        }
        at += n as u64;
    }
    disk
}

/// An opened volume.
pub struct Vol {
    pub ext: Rc<Ext>,
    pub ufs: Rc<Ufs<Ext>>,
}

impl Vol {
    pub fn block_bytes(&self) -> usize {
        self.ext.geometry().block_bytes
    }
    pub fn group_of(&self, ino: u32) -> u32 {
        self.ext.geometry().group_of_ino(Ino(ino)).0
    }
    pub fn group_of_block(&self, b: u64) -> u32 {
        self.ext.geometry().group_of(format::BlockNo(b)).0
    }
}

pub const ROOT: u32 = 2;

/// Somebody who is not root.
pub fn nobody() -> Cred {
    Cred { uid: 65534, gid: 65534, groups: Arc::new([]), check: false }
}

/// `len` bytes that tell `seed` and their place.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    Rng::new(seed).fill(&mut out);
    out
}
