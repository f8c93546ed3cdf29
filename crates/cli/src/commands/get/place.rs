//! Where `get` writes: a name in a directory that is open, so that nobody can lead the way there
//! elsewhere by a symbolic link. The directory of a tree is found again by the names below the
//! tree's top, and none of them may be a link either.

use crate::Failure;
use format::shown;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::fs::{mkdirat, openat, statat, unlinkat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

const DIR: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const FILE: OFlags = OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::TRUNC);
/// Until they have the mode that they have in the volume, nobody else looks into them.
const NEW_FILE: Mode = Mode::RUSR.union(Mode::WUSR);
const NEW_DIR: Mode = Mode::RWXU;

/// Why something cannot be written on the host.
pub fn local(path: &Path, e: Errno) -> Failure {
    let why = match e {
        Errno::LOOP | Errno::NOTDIR => {
            "something else has this name here, perhaps a symbolic link: nothing is written \
             through it"
                .to_owned()
        }
        e => std::io::Error::from(e).to_string(),
    };
    Failure::Failed(format!("{}: {why}", shown(path.as_os_str().as_bytes())))
}

/// Where something is to be written.
pub struct Place<'a> {
    pub dir: BorrowedFd<'a>,
    pub name: &'a OsStr,
    pub shown: &'a Path,
    /// Has the caller named it himself? Then it may be a link.
    pub named: bool,
}

impl Place<'_> {
    fn open(&self, flags: OFlags, mode: Mode) -> Result<OwnedFd, Failure> {
        let through = if self.named { OFlags::empty() } else { OFlags::NOFOLLOW };
        let opened = openat(self.dir, self.name, flags | through | OFlags::CLOEXEC, mode);
        opened.map_err(|e| local(self.shown, e))
    }

    /// A file to write into, and whether it is a new one.
    pub fn file(&self) -> Result<(File, bool), Failure> {
        let flags = FILE | OFlags::EXCL | OFlags::CLOEXEC;
        let new = || openat(self.dir, self.name, flags, NEW_FILE).map(|f| (File::from(f), true));
        match new() {
            // Another name of it would get these contents too, and may be one of this tree.
            Err(Errno::EXIST) if !self.named && self.has_other_names() => {
                unlinkat(self.dir, self.name, AtFlags::empty())
                    .and_then(|()| new())
                    .map_err(|e| local(self.shown, e))
            }
            Err(Errno::EXIST) => Ok((File::from(self.open(FILE, NEW_FILE)?), false)),
            other => other.map_err(|e| local(self.shown, e)),
        }
    }

    /// Makes a directory, if it is not there; whether it was not.
    pub fn directory(&self) -> Result<(OwnedFd, bool), Failure> {
        match mkdirat(self.dir, self.name, NEW_DIR) {
            Ok(()) => Ok((self.open(DIR, Mode::empty())?, true)),
            Err(Errno::EXIST) => Ok((self.open(DIR, Mode::empty())?, false)),
            Err(e) => Err(local(self.shown, e)),
        }
    }

    /// What lies there, no link being followed.
    pub fn stat(&self) -> Option<Stat> {
        statat(self.dir, self.name, AtFlags::SYMLINK_NOFOLLOW).ok()
    }
    pub fn is_symlink(&self) -> bool {
        self.stat().is_some_and(|s| kind_of(&s) == FileType::Symlink)
    }
    fn has_other_names(&self) -> bool {
        self.stat().is_some_and(|s| kind_of(&s) == FileType::RegularFile && s.st_nlink > 1)
    }
}

pub fn kind_of(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// A directory below the top of a tree that is being written, or the one that we are in.
#[derive(Clone)]
pub struct Within {
    top: Option<Rc<OwnedFd>>,
    names: Vec<Vec<u8>>,
}

impl Within {
    pub fn new(top: &Rc<OwnedFd>, names: Vec<&[u8]>) -> Within {
        let names = names.into_iter().map(<[u8]>::to_vec).collect();
        Within { top: Some(top.clone()), names }
    }
    /// Where paths begin that the caller has named.
    pub fn here() -> Within {
        Within { top: None, names: Vec::new() }
    }

    /// Makes it, as far as it is not there; and its path, where the top's is `shown`.
    pub fn make(&self, shown: &Path) -> Result<(OwnedFd, PathBuf), Failure> {
        let (mut dir, mut shown) = (self.begin()?, shown.to_owned());
        for name in &self.names {
            let name = OsStr::from_bytes(name);
            shown.push(name);
            let place = Place { dir: dir.as_fd(), name, shown: &shown, named: false };
            dir = place.directory()?.0;
        }
        Ok((dir, shown))
    }

    /// Opens it again.
    pub fn open(&self) -> Result<OwnedFd, Failure> {
        let mut dir = self.begin()?;
        for name in &self.names {
            let name = OsStr::from_bytes(name);
            let (place, shown) = (dir, Path::new(name));
            dir =
                Place { dir: place.as_fd(), name, shown, named: false }.open(DIR, Mode::empty())?;
        }
        Ok(dir)
    }

    fn begin(&self) -> Result<OwnedFd, Failure> {
        match &self.top {
            Some(top) => top.try_clone().map_err(|e| Failure::Failed(e.to_string())),
            None => openat(CWD, ".", DIR, Mode::empty()).map_err(|e| local(Path::new("."), e)),
        }
    }
}
