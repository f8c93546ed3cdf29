//! A volume of more than 2^32 blocks in the modes with a log and with a journal: filled, cut off,
//! recovered, read, emptied and closed. e2fsck judges it, and our own check.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use check::{IoError, ReadBlocks};
use env::{Env, Rope};
use format::Ino;
use format::ext::Geometry;
use rustix::fs::SeekFrom;
use sim::{Image, World, block_on};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use vfs::{Call, MakeKind, Reply, Request, SetAttr, Stability, Volume, XattrMode};
use volume::{Ground, Mode, OpenOptions};

const BYTES: u64 = 17 << 40;
const BLOCK: usize = 4096;
const DIRS: u32 = 120;
const LEN: usize = 20_000;

/// A file that goes when it does.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let shm = Path::new("/dev/shm");
        let base = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
        Scratch(base.join(format!("cairn-huge-{name}-{}", std::process::id())))
    }
}
impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn tool(name: &str) -> Command {
    let place = Path::new("/usr/sbin").join(name);
    Command::new(if place.exists() { place } else { name.into() })
}

fn made() -> Image {
    let scratch = Scratch::new("made");
    let f = File::create_new(&scratch.0).unwrap();
    f.set_len(BYTES).unwrap();
    let features = ["-q", "-F", "-t", "ext4", "-O", "meta_bg,^resize_inode"];
    assert!(tool("mke2fs").args(features).arg(&scratch.0).status().unwrap().success());
    let f = File::open(&scratch.0).unwrap();
    let (mut image, mut at, mut block) = (Image::new(BYTES), 0, [0; BLOCK]);
    // Error: there are only holes from here on.
    while let Ok(data) = rustix::fs::seek(&f, SeekFrom::Data(at)) {
        at = data - data % BLOCK as u64;
        f.read_exact_at(&mut block, at).unwrap();
        if block != [0; BLOCK] {
            image.write(at, &block);
        }
        at += BLOCK as u64;
    }
    image
}

/// What e2fsck says of it; None: it is content.
fn judged(image: &Image) -> Option<String> {
    let scratch = Scratch::new("judged");
    let f = File::create_new(&scratch.0).unwrap();
    f.set_len(BYTES).unwrap();
    let mut parts: Vec<_> = std::iter::once(0..BYTES).collect();
    let mut block = [0; BLOCK];
    while let Some(part) = parts.pop() {
        let len = part.end - part.start;
        if image.is_hole(part.start, len) {
            continue;
        }
        if len <= BLOCK as u64 {
            image.read(part.start, &mut block);
            f.write_all_at(&block, part.start).unwrap();
            continue;
        }
        let middle = part.start + (len / 2).next_multiple_of(BLOCK as u64);
        parts.extend([part.start..middle, middle..part.end]);
    }
    let out = tool("e2fsck").arg("-fn").arg(&scratch.0).output().unwrap();
    (!out.status.success()).then(|| String::from_utf8_lossy(&out.stdout).into_owned())
}

struct Disk(Image);

impl ReadBlocks for Disk {
    fn size_bytes(&self) -> u64 {
        BYTES
    }
    fn read_at(&self, at: u64, into: &mut [u8]) -> Result<(), IoError> {
        self.0.read(at, into);
        Ok(())
    }
    fn known_zero(&self, at: u64, len: u64) -> bool {
        self.0.is_hole(at, len)
    }
}

/// What our own check finds.
fn findings(image: &Image) -> Vec<String> {
    let options = check::Options { now_secs: 1_800_000_000, verify: false, mark_clean: false };
    let report = check::check(&Disk(image.clone()), &options, &mut ()).unwrap();
    report.findings.iter().map(|f| format!("{:?}", f.kind)).collect()
}

async fn opened(env: Env, mode: Mode) -> Rc<dyn Volume> {
    let options = OpenOptions::plain(mode, 4 << 20, [3; 16]);
    volume::open_on(Ground::alone(env, BYTES, None), options).await.unwrap()
}

async fn asked(volume: &Rc<dyn Volume>, request: Request) -> Reply {
    volume.clone().call(Call::local(request)).await.result.unwrap()
}

async fn make(volume: &Rc<dyn Volume>, dir: u32, name: &str, kind: MakeKind) -> u32 {
    let attr = SetAttr { mode: Some(0o755), ..SetAttr::default() };
    let name = name.as_bytes().to_vec();
    let make = Request::Make { dir, name, kind, attr, fail_if_exists: true, umask: 0 };
    let Reply::Entry { attr, .. } = asked(volume, make).await else { panic!("no entry") };
    attr.ino
}

fn contents(n: u32) -> Vec<u8> {
    (0..LEN as u32).map(|i| (i ^ n.wrapping_mul(i >> 3)) as u8).collect()
}

/// Directories as spread as root's are, each with a file; the directories and files.
async fn fill(volume: &Rc<dyn Volume>) -> Vec<(u32, u32)> {
    let mut all = Vec::new();
    for n in 0..DIRS {
        let dir = make(volume, 2, &format!("d{n}"), MakeKind::Dir).await;
        let ino = make(volume, dir, "file", MakeKind::File { exclusive: None }).await;
        let data = Rope::cut(&contents(n), 0, BLOCK);
        let stability = Stability::Unstable;
        let write = Request::write(ino, 0, data, stability);
        asked(volume, write).await;
        // More than the inode has room for.
        let (name, value, mode) = (b"user.a".to_vec(), vec![n as u8; 700], XattrMode::Either);
        asked(volume, Request::SetXattr { ino, name, value, mode, kill_sgid: false }).await;
        all.push((dir, ino));
    }
    asked(volume, Request::SyncAll).await;
    all
}

/// Each file is as it was; then all are removed but every third.
async fn check_and_remove(volume: &Rc<dyn Volume>, files: Vec<(u32, u32)>) {
    for (n, (dir, ino)) in (0..).zip(files) {
        let read = Request::Read { ino, offset: 0, len: 2 * LEN as u32 };
        let Reply::Data { data, .. } = asked(volume, read).await else { panic!("no data") };
        let mut bytes = vec![0; data.len()];
        data.copy_to(&mut bytes);
        assert!(bytes == contents(n), "file {n}");
        let attribute = Request::GetXattr { ino, name: b"user.a".to_vec() };
        let Reply::Bytes(value) = asked(volume, attribute).await else { panic!("no value") };
        assert!(value == [n as u8; 700], "the attribute of file {n}");
        if n % 3 > 0 {
            asked(volume, Request::Unlink { dir, name: b"file".to_vec() }).await;
            asked(volume, Request::Rmdir { dir: 2, name: format!("d{n}").into_bytes() }).await;
        }
    }
}

#[test]
fn what_was_synced_beyond_2_to_the_32_is_there_after_a_cut() {
    let image = made();
    for mode in [Mode::Unified, Mode::Ordered, Mode::Data] {
        let mut world = World::new(image.clone());
        let files = block_on(&mut world, move |env, _| async move {
            let volume = opened(env, mode).await;
            fill(&volume).await // and there it ends
        });
        let mut world = World::new(world.disk);
        let did = block_on(&mut world, move |env, _| async move {
            let options = OpenOptions::plain(mode, 4 << 20, [3; 16]);
            volume::recover(&Ground::alone(env, BYTES, None), &options).await.unwrap()
        });
        assert!(did.blocks_written > 100, "{mode}: {} blocks replayed", did.blocks_written);
        assert_eq!(judged(&world.disk), None, "{mode}: replayed");
        assert_eq!(findings(&world.disk), [""; 0], "{mode}: replayed");
        let geo = Geometry::of(&volume::probe(&Disk(world.disk.clone())).unwrap().superblock);
        let is_beyond = |ino: u32| geo.group_start(geo.group_of_ino(Ino(ino))).0 >> 32 != 0;
        let beyond = files.iter().filter(|f| is_beyond(f.1)).count();
        assert!(beyond > 2, "{mode}: {beyond} files lie beyond block 2^32");
        block_on(&mut world, move |env, _| async move {
            let volume = opened(env, mode).await;
            check_and_remove(&volume, files).await;
            volume.close().await.unwrap();
        });
        assert_eq!(judged(&world.disk), None, "{mode}: closed");
    }
}
