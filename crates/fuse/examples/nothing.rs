//! How fast is FUSE itself here? A file system that answers at once and keeps names and lengths
//! only, behind the same monitor and on the same transports as a volume. It knows no disk and no
//! crash: `make bench` mounts it as the ceiling that a volume can be held against.
//!
//! `nothing DIR` serves over io_uring, with DEV set over /dev/fuse; it ends when DIR is unmounted.

use env::Local;
use fuse::{CachePolicy, MountOptions, Options, Serving, Session, UringChoice};
use host::{Driver, Pool, Stops};
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use vfs::{
    Answer, Attr, Call, FsError, Kind, MakeKind, Monitor, Reply, Request, StatFs, Time, Volume,
};

const ROOT: u32 = 2;
const BLOCK_BYTES: u32 = 4096;

#[derive(Default)]
struct Nothing {
    names: RefCell<HashMap<(u32, Vec<u8>), u32>>,
    /// By inode number minus [`ROOT`]; what is unlinked stays, since nothing is ever reused.
    inodes: RefCell<Vec<Attr>>,
}

impl Volume for Nothing {
    fn call(self: Rc<Self>, call: Call) -> Local<'static, Answer> {
        let answer = self.answer(call.request).into();
        Box::pin(std::future::ready(answer))
    }
    fn close(self: Rc<Self>) -> Local<'static, Result<(), FsError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

impl Nothing {
    fn with_root() -> Nothing {
        let nothing = Nothing::default();
        nothing.add(Kind::Dir, 0o755);
        nothing
    }

    fn add(&self, kind: Kind, mode: u32) -> Attr {
        let mut inodes = self.inodes.borrow_mut();
        let ino = ROOT + u32::try_from(inodes.len()).expect("fewer files than numbers");
        let attr = Attr {
            ino,
            generation: 1,
            mode: kind.mode_bits() | mode,
            nlink: 1,
            uid: 0,
            gid: 0,
            size: 0,
            blocks: 0,
            atime: Time::default(),
            mtime: Time::default(),
            ctime: Time::default(),
            crtime: None,
            rdev: (0, 0),
            blksize: BLOCK_BYTES,
        };
        inodes.push(attr);
        attr
    }

    fn find(&self, dir: u32, name: &[u8]) -> Option<Attr> {
        let ino = *self.names.borrow().get(&(dir, name.to_vec()))?;
        self.attr(ino).ok()
    }

    fn attr(&self, ino: u32) -> Result<Attr, FsError> {
        let at = ino.checked_sub(ROOT).ok_or(FsError::Stale)? as usize;
        self.inodes.borrow().get(at).copied().ok_or(FsError::Stale)
    }

    fn resize(&self, ino: u32, size: impl Fn(u64) -> u64) -> Result<Attr, FsError> {
        let at = ino.checked_sub(ROOT).ok_or(FsError::Stale)? as usize;
        let mut inodes = self.inodes.borrow_mut();
        let attr = inodes.get_mut(at).ok_or(FsError::Stale)?;
        attr.size = size(attr.size);
        Ok(*attr)
    }

    fn answer(&self, request: Request) -> Result<Reply, FsError> {
        match request {
            Request::Lookup { dir, name } => {
                let attr = self.find(dir, &name).ok_or(FsError::NotFound)?;
                Ok(Reply::Entry { attr, created: false })
            }
            Request::Make { dir, name, kind, attr, .. } => {
                if let Some(attr) = self.find(dir, &name) {
                    return Ok(Reply::Entry { attr, created: false });
                }
                let kind = if kind == MakeKind::Dir { Kind::Dir } else { Kind::File };
                let attr = self.add(kind, attr.mode.unwrap_or(0o644));
                self.names.borrow_mut().insert((dir, name), attr.ino);
                Ok(Reply::Entry { attr, created: true })
            }
            Request::Unlink { dir, name } | Request::Rmdir { dir, name } => {
                let gone = self.names.borrow_mut().remove(&(dir, name));
                gone.map(|_| Reply::Done).ok_or(FsError::NotFound)
            }
            Request::GetAttr { ino } | Request::Fsync { ino, .. } => {
                Ok(Reply::Attr(self.attr(ino)?))
            }
            Request::SetAttr { ino, set } => {
                Ok(Reply::Attr(self.resize(ino, |old| set.size.unwrap_or(old))?))
            }
            Request::Write { ino, offset, data, stability, .. } => {
                let end = offset + data.len() as u64;
                let attr = self.resize(ino, |old| old.max(end))?;
                let len = u32::try_from(data.len()).expect("a request carries less than 4 GiB");
                Ok(Reply::Written { len, stability, attr })
            }
            Request::Forget { .. } | Request::SyncAll => Ok(Reply::Done),
            Request::StatFs => Ok(Reply::StatFs(plenty())),
            Request::GetXattr { .. } => Err(FsError::NoData),
            _ => Err(FsError::NotSupported),
        }
    }
}

fn plenty() -> StatFs {
    let many = 1 << 28;
    StatFs {
        block_bytes: BLOCK_BYTES,
        blocks: many,
        free: many,
        available: many,
        inodes: many,
        inodes_free: many,
        name_bytes_max: 255,
    }
}

fn main() -> Result<(), String> {
    let dir = std::env::args_os().nth(1).ok_or("usage: nothing DIR")?;
    let choice = match std::env::var_os("DEV") {
        Some(_) => UringChoice::Off,
        None => UringChoice::On,
    };
    let stops = Stops::new().map_err(|e| format!("signals: {e}"))?;
    let open = |_env| -> Local<'static, Result<Rc<dyn Volume>, String>> {
        Box::pin(async { Ok(Rc::new(Nothing::with_root()) as Rc<dyn Volume>) })
    };
    let monitor = Arc::new(Monitor::new(0, Box::new(open)));
    Driver::new(monitor.clone(), Vec::new()).open()?;
    let pool = Pool::start(vec![(monitor, Vec::new())]).map_err(|e| format!("io_uring: {e}"))?;
    let (source, options) = ("nothing".into(), Options::default());
    let options = MountOptions { source, options, device: None };
    let policy = CachePolicy {
        secs: 3600,
        returned_is_durable: false,
        writeback: false,
        whole_seconds: false,
    };
    let serving = Serving {
        uring: choice,
        block_bytes: BLOCK_BYTES as usize,
        root_ino: ROOT,
        policy,
        series: fuse::series(&stats::Recorder::default(), "nothing"),
        fellows: Arc::default(),
    };
    let session = Session::start(&pool, 0, Path::new(&dir), &options, serving)?;
    let _ = stops.wait(|| session.has_ended());
    session.unmount()?;
    pool.close(0).map_err(|e| e.to_string())?;
    pool.stop();
    Ok(())
}
