//! A volume in this process, behind the same monitor and workers as when it is served, with nothing
//! in front of it: what FUSE and NFS cost is the difference to this.

use super::{Place, Target};
use crate::commands::serve;
use crate::commands::served::{self, Served};
use crate::image::open_args;
use crate::{Failure, Outcome};
use env::Rope;
use host::Pool;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use vfs::{MakeKind, Reply, Request, SetAttr, Stability, VolumeInfo};

/// Nothing takes so long.
const PATIENCE: Duration = Duration::from_secs(120);

/// The opened volume.
pub(super) struct Inside {
    volume: Served,
    pool: Arc<Pool>,
    info: VolumeInfo,
}

impl Inside {
    /// Opens the image, in the mode it was last used in if none is named.
    pub(super) fn open(path: &Path, mode: Option<&str>) -> Result<Inside, Failure> {
        let args = |found: &volume::Found| open_args(found, mode, None);
        let near = crate::buckets::near_of_volume(&crate::args::OpenArgs::default())?
            .map(|(path, _)| path);
        let volume =
            served::open_as(path, (false, None, near.as_deref()), served::Front::Any, args)?;
        let pool = serve::start(std::slice::from_ref(&volume))?;
        let info = volume.info()?;
        Ok(Inside { volume, pool, info })
    }
}

impl Target for Inside {
    fn places(&self, folder: &str, threads: usize) -> Result<Vec<Box<dyn Place>>, Failure> {
        let in_folder = |dir, name: &str| -> Result<Folder, Failure> {
            let place = Folder { pool: self.pool.clone(), dir, ino: 0, block_bytes: 0 };
            let ino = place.make(name, MakeKind::Dir).map_err(|e| format!("{name}: {e}"))?;
            Ok(Folder { dir: ino, block_bytes: self.info.block_bytes as usize, ..place })
        };
        let at = in_folder(self.info.root_ino, folder)?;
        let place = |t| Ok(Box::new(in_folder(at.dir, &format!("t{t}"))?) as Box<dyn Place>);
        (0..threads).map(place).collect()
    }
    fn finish(self: Box<Self>, folder: &str, threads: usize) -> Result<(), Failure> {
        let root_ino = self.info.root_ino;
        let mut root = Folder { pool: self.pool.clone(), dir: root_ino, ino: 0, block_bytes: 0 };
        let tidy = |place: &mut Folder| {
            place.open(folder)?;
            place.dir = place.ino;
            (0..threads).try_for_each(|t| place.rmdir(&format!("t{t}")))?;
            place.dir = root_ino;
            place.rmdir(folder)
        };
        tidy(&mut root).map_err(|e| format!("{folder}: {e}"))?;
        match serve::close(&[self.volume], &self.pool)? {
            Outcome::Done => Ok(()),
            _ => Err(Failure::Failed("the volume was not closed".into())),
        }
    }
}

struct Folder {
    pool: Arc<Pool>,
    dir: u32,
    /// The file's.
    ino: u32,
    block_bytes: usize,
}

fn attr() -> SetAttr {
    SetAttr { mode: Some(0o755), ..SetAttr::default() }
}

impl Folder {
    fn ask(&self, request: Request) -> io::Result<Reply> {
        host::ask(&self.pool, 0, request, PATIENCE)
            .ok_or_else(|| io::Error::other("the volume refuses it, or does not answer"))
    }
    fn make(&self, name: &str, kind: MakeKind) -> io::Result<u32> {
        let (name, fail_if_exists) = (name.as_bytes().to_vec(), kind == MakeKind::Dir);
        let (dir, attr) = (self.dir, attr());
        match self.ask(Request::Make { dir, name, kind, attr, fail_if_exists, umask: 0 })? {
            Reply::Entry { attr, .. } => Ok(attr.ino),
            _ => Err(io::Error::other("an unexpected reply")),
        }
    }
}

impl Place for Folder {
    fn mkdir(&mut self, name: &str) -> io::Result<()> {
        self.make(name, MakeKind::Dir).map(drop)
    }
    fn create(&mut self, name: &str) -> io::Result<()> {
        self.ino = self.make(name, MakeKind::File { exclusive: None })?;
        Ok(())
    }
    fn open(&mut self, name: &str) -> io::Result<()> {
        let request = Request::Lookup { dir: self.dir, name: name.as_bytes().to_vec() };
        match self.ask(request)? {
            Reply::Entry { attr, .. } => self.ino = attr.ino,
            _ => return Err(io::Error::other("an unexpected reply")),
        }
        Ok(())
    }
    fn write(&mut self, offset: u64, bytes: &[u8], durable: bool) -> io::Result<()> {
        let at = (offset % self.block_bytes as u64) as usize;
        let request = Request::Write {
            ino: self.ino,
            offset,
            data: Rope::cut(bytes, at, self.block_bytes),
            stability: if durable { Stability::FileSync } else { Stability::Unstable },
            append: false,
            kill_suid: false,
            upto: vfs::WriteUpTo::OneOperation,
        };
        self.ask(request).map(drop)
    }
    fn sync(&mut self) -> io::Result<()> {
        self.ask(Request::Fsync { ino: self.ino, data_only: false }).map(drop)
    }
    fn read(&mut self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        match self.ask(Request::Read { ino: self.ino, offset, len: into.len() as u32 })? {
            Reply::Data { data, .. } if data.len() == into.len() => {
                let mut at = 0;
                for part in data.parts() {
                    into[at..at + part.len()].copy_from_slice(part);
                    at += part.len();
                }
                Ok(())
            }
            _ => Err(io::Error::other("a short read")),
        }
    }
    fn stat(&mut self) -> io::Result<()> {
        self.ask(Request::GetAttr { ino: self.ino }).map(drop)
    }
    fn remove(&mut self, name: &str) -> io::Result<()> {
        let name = name.as_bytes().to_vec();
        self.ask(Request::Unlink { dir: self.dir, name }).map(drop)
    }
    fn rmdir(&mut self, name: &str) -> io::Result<()> {
        let name = name.as_bytes().to_vec();
        self.ask(Request::Rmdir { dir: self.dir, name }).map(drop)
    }
}
