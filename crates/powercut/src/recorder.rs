//! A disk that notes what it is asked: a FUSE file system with one file, `disk`, in memory. The
//! kernel's page cache is not between (direct I/O), so each write comes as it was made, with its
//! flags. A write is answered by a thread of its own, in another order than they came in, so that
//! writes are in flight beside one another as on a real disk.
//!
//! The rules are those of sim::CrashImages: a write is durable when it ended with FUA (O_DSYNC) or
//! when a flush that was issued after its end has ended. As of a real disk, a write is of whole
//! sectors or refused: what is torn, and what covers what, is told apart by the sector.
//!
//! Invariants:
//! * N1. What the disk holds is what the noted writes have made of what it held first: of a write
//!   that was not noted every image would know nothing.
//! * N2. A write has ended before it is answered, and a flush when it is: none is answered twice.

use env::{DiskId, Rng, SECTOR_BYTES};
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyWrite, Request, WriteFlags,
};
use sim::{Event, Image, Trace, Write};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, UNIX_EPOCH};

/// The one file's inode.
const DISK: INodeNo = INodeNo(2);
/// How long the kernel may keep names and attributes: nothing ever changes.
const FOREVER: Duration = Duration::from_secs(3600);

/// What the disk holds, and what it was asked.
struct State {
    image: Image,
    /// As it was mounted.
    first: Image,
    trace: Trace,
    /// False: the power is off, and nothing is noted any more.
    powered: bool,
}

impl State {
    fn new(image: Image) -> State {
        State { first: image.clone(), image, trace: Trace::default(), powered: true }
    }

    /// Takes a write in. Its number, if it is noted.
    fn take(&mut self, at: u64, data: &[u8], fua: bool) -> Option<usize> {
        if !self.powered {
            return None;
        }
        self.image.write(at, data);
        let number = self.trace.writes.len();
        self.trace.writes.push(Write { disk: DiskId(0), at, bytes: data.into(), fua });
        self.trace.events.push(Event::WriteIssued(number));
        Some(number)
    }

    /// Cuts the power: what was noted up to now.
    fn cut(&mut self) -> Trace {
        self.powered = false;
        let trace = std::mem::take(&mut self.trace);
        let mut noted = self.first.clone();
        trace.writes.iter().for_each(|w| noted.write(w.at, &w.bytes));
        assert_eq!(noted.digest(), self.image.digest(), "N1: the disk holds what was not noted");
        let mut ended = vec![false; trace.writes.len()];
        for event in &trace.events {
            let Event::WriteEnded(w) = event else { continue };
            let before = std::mem::replace(&mut ended[*w], true);
            assert!(!before, "N2: write {w} was answered twice");
        }
        trace
    }
}

/// The state, shared by the file system and whoever watches.
#[derive(Clone)]
struct Shared(Arc<Mutex<State>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(|broken| broken.into_inner())
    }

    fn note(&self, event: Event) {
        let mut state = self.lock();
        if state.powered {
            state.trace.events.push(event);
        }
    }
}

/// A mounted recording disk; dropped, it is unmounted.
pub(crate) struct Recorder {
    shared: Shared,
    path: PathBuf,
    _session: BackgroundSession,
}

impl Recorder {
    /// Mounts a disk with these contents at `dir`. Errors: FUSE cannot mount there.
    pub(crate) fn mount(dir: &Path, image: Image, seed: u64) -> Result<Recorder, String> {
        let state = State::new(image);
        let shared = Shared(Arc::new(Mutex::new(state)));
        let (ended, waiting) = channel();
        let answering = shared.clone();
        std::thread::spawn(move || answer(&answering, &waiting, Rng::new(seed)));
        let disk = Disk { shared: shared.clone(), ended: Mutex::new(ended) };
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("powercut".into())];
        let session = fuser::spawn_mount(disk, dir, &config);
        let session = session.map_err(|e| format!("mounting at {}: {e}", dir.display()))?;
        Ok(Recorder { shared, path: dir.join("disk"), _session: session })
    }

    /// Where the disk is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Notes something of the caller's own between what the disk is asked.
    pub(crate) fn mark(&self, number: u64) {
        self.shared.note(Event::Mark(number));
    }

    /// Cuts the power: what was noted up to now.
    pub(crate) fn cut(&self) -> Trace {
        self.shared.lock().cut()
    }
}

/// A write that is done and not yet answered.
struct Ended {
    number: Option<usize>,
    len: u32,
    reply: ReplyWrite,
}

/// Answers writes in an order of its own until the disk is gone.
fn answer(shared: &Shared, waiting: &Receiver<Ended>, mut rng: Rng) {
    let mut all: Vec<Ended> = Vec::new();
    while let Ok(first) = waiting.recv() {
        all.push(first);
        if rng.one_in(2) {
            std::thread::sleep(Duration::from_micros(rng.below(200)));
        }
        all.extend(waiting.try_iter());
        while !all.is_empty() {
            let Ended { number, len, reply } =
                all.swap_remove(rng.below(all.len() as u64) as usize);
            if let Some(number) = number {
                shared.note(Event::WriteEnded(number));
            }
            reply.written(len);
        }
    }
}

/// Is this a run of whole sectors, and not an empty one?
fn is_of_sectors(at: u64, len: usize) -> bool {
    len > 0 && at.is_multiple_of(SECTOR_BYTES as u64) && len.is_multiple_of(SECTOR_BYTES)
}

/// The file system.
struct Disk {
    shared: Shared,
    ended: Mutex<Sender<Ended>>,
}

impl Disk {
    fn attr(&self, ino: INodeNo) -> Option<FileAttr> {
        let (kind, perm, nlink, size) = match ino {
            INodeNo::ROOT => (FileType::Directory, 0o755, 2, 0),
            DISK => (FileType::RegularFile, 0o600, 1, self.shared.lock().image.size()),
            _ => return None,
        };
        Some(FileAttr {
            ino,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }
}

impl Filesystem for Disk {
    fn lookup(&self, _req: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attr(DISK).filter(|_| name == "disk") {
            Some(attr) => reply.entry(&FOREVER, &attr, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.attr(ino) {
            Some(attr) => reply.attr(&FOREVER, &attr),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let state = self.shared.lock();
        let len = state.image.size().saturating_sub(offset).min(u64::from(size));
        let mut bytes = vec![0; len as usize];
        state.image.read(offset, &mut bytes);
        drop(state);
        reply.data(&bytes);
    }

    fn write(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if !is_of_sectors(offset, data.len()) {
            return reply.error(Errno::EINVAL);
        }
        if offset + data.len() as u64 > self.shared.lock().image.size() {
            return reply.error(Errno::ENOSPC);
        }
        let fua = flags.0 & libc::O_DSYNC != 0;
        let number = self.shared.lock().take(offset, data, fua);
        let ended = Ended { number, len: data.len() as u32, reply };
        // The answering thread ends after this file system, never before.
        let _ = self.ended.lock().unwrap_or_else(|broken| broken.into_inner()).send(ended);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _only_data: bool, reply: ReplyEmpty) {
        let number = {
            let mut state = self.shared.lock();
            let number = state.trace.flushes.len();
            if state.powered {
                state.trace.flushes.push(DiskId(0));
                state.trace.events.push(Event::FlushIssued(number));
            }
            number
        };
        self.shared.note(Event::FlushEnded(number));
        reply.ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_in_until_the_cut_is_noted() {
        let mut disk = State::new(Image::new(4096));
        assert_eq!(disk.take(0, &[1; 512], false), Some(0));
        assert_eq!(disk.take(512, &[2; 512], true), Some(1));
        disk.trace.events.push(Event::WriteEnded(1));
        let trace = disk.cut();
        assert_eq!((trace.writes.len(), trace.events.len()), (2, 3));
        assert!(trace.writes[1].fua && !trace.writes[0].fua);
        assert_eq!(disk.take(0, &[3; 512], true), None, "the power is off");
    }

    #[test]
    #[should_panic(expected = "N1")]
    fn a_write_that_is_not_noted_is_seen() {
        let mut disk = State::new(Image::new(4096));
        disk.take(0, &[1; 512], true);
        disk.trace.writes.clear();
        disk.cut();
    }

    #[test]
    fn parts_of_sectors_are_refused() {
        assert!(is_of_sectors(512, 1024));
        assert!(
            ![(0, 0), (0, 100), (100, 512), (512, 513)]
                .into_iter()
                .any(|(a, l)| is_of_sectors(a, l))
        );
    }
}
