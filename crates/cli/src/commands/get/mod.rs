//! `cairn get`: trees out of a volume, without mounting. The volume may come from anybody, so
//! nothing is written through a symbolic link: neither one that the volume itself brought nor one
//! that lies in the target already. Each directory is opened from the one above it.

use crate::args::PathsArgs;
use crate::attributes;
use crate::image::Image;
use crate::progress::Bar;
use crate::subtree::Subtree;
use crate::{Failure, Outcome, say};
use check::Progress;
use format::shown;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Timespec, Timestamps};
use rustix::fs::{fchmod, futimens, mkdirat, openat, symlinkat, unlinkat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use vfs::{Attr, Kind, Reply, Request};

const DIR: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const FILE: OFlags = OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::TRUNC);

fn local(path: &Path, e: Errno) -> Failure {
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

/// `cairn get IMAGE PATH… [TARGET]`.
pub fn run(a: &PathsArgs) -> Result<Outcome, Failure> {
    let image = Image::open(&a.image, true, a.log.as_deref())?;
    let (paths, target) = match a.paths.split_last() {
        Some((last, rest)) if !rest.is_empty() => (rest, PathBuf::from(last)),
        _ => (&a.paths[..], PathBuf::from(".")),
    };
    for path in paths {
        let at = image.walk(path)?;
        let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or("");
        let inside = target.is_dir() && !name.is_empty();
        let to = if inside { target.join(name) } else { target.clone() };
        match at.kind() {
            // What the caller has named himself may be a link.
            Kind::Dir => tree(&image, path, &at, (&to, !inside))?,
            _ => one(
                &image,
                path,
                &at,
                &Place { dir: CWD, name: to.as_os_str(), shown: &to, named: !inside },
            )?,
        }
    }
    image.close()?;
    Ok(Outcome::Done)
}

/// Where something is to be written.
struct Place<'a> {
    dir: BorrowedFd<'a>,
    name: &'a OsStr,
    shown: &'a Path,
    /// Has the caller named it himself? Then it may be a link.
    named: bool,
}

impl Place<'_> {
    fn open(&self, flags: OFlags, mode: Mode) -> Result<OwnedFd, Failure> {
        let through = if self.named { OFlags::empty() } else { OFlags::NOFOLLOW };
        let opened = openat(self.dir, self.name, flags | through | OFlags::CLOEXEC, mode);
        opened.map_err(|e| local(self.shown, e))
    }

    /// A file to write into, and whether it is a new one.
    fn file(&self) -> Result<(File, bool), Failure> {
        let mode = Mode::from_raw_mode(0o666);
        let flags = FILE | OFlags::EXCL | OFlags::CLOEXEC;
        match openat(self.dir, self.name, flags, mode) {
            Ok(new) => Ok((File::from(new), true)),
            Err(Errno::EXIST) => Ok((File::from(self.open(FILE, mode)?), false)),
            Err(e) => Err(local(self.shown, e)),
        }
    }

    /// Makes a directory, if it is not there.
    fn directory(&self) -> Result<OwnedFd, Failure> {
        match mkdirat(self.dir, self.name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => self.open(DIR, Mode::empty()),
            Err(e) => Err(local(self.shown, e)),
        }
    }
}

fn tree(image: &Image, path: &str, at: &Attr, (to, named): (&Path, bool)) -> Result<(), Failure> {
    let tree = Subtree::look(image, path, at)?;
    let top = Place { dir: CWD, name: to.as_os_str(), shown: to, named }.directory()?;
    let mut bar = Bar::new();
    let mut done = 0;
    for n in 0..tree.dirs.len() {
        let names = tree.names(n);
        let mut shown_dir = to.to_owned();
        let mut dir = top.try_clone().map_err(|e| Failure::Failed(e.to_string()))?;
        for name in names {
            let name = OsStr::from_bytes(name);
            shown_dir.push(name);
            let place = Place { dir: dir.as_fd(), name, shown: &shown_dir, named: false };
            dir = place.directory()?;
        }
        for (name, attr) in tree.entries(image, n)?.1 {
            let from = format!("{}/{}", tree.path(n), shown(&name));
            let name = OsStr::from_bytes(&name);
            let to = shown_dir.join(name);
            one(image, &from, &attr, &Place { dir: dir.as_fd(), name, shown: &to, named: false })?;
            done += 1;
            bar.step("copying", done, tree.others);
        }
    }
    Ok(())
}

/// Writes what a file holds. Its holes stay holes, but in what is no file itself.
fn contents(
    image: &Image,
    path: &str,
    at: &Attr,
    (to, shown_to): (&mut File, &Path),
) -> Result<(), Failure> {
    let failed = |e: std::io::Error| {
        Failure::Failed(format!("{}: {e}", shown(shown_to.as_os_str().as_bytes())))
    };
    if !to.metadata().is_ok_and(|m| m.is_file()) {
        return image.read(path, at.ino, |part| to.write_all(part).map_err(failed));
    }
    image.read_data(path, at.ino, |offset, part| to.write_all_at(part, offset).map_err(failed))?;
    to.set_len(at.size).map_err(failed)
}

/// Gives a file the attributes that it has in the volume. The mode that it is to have: without the
/// access list, where the host does not keep that.
fn attributes_of(image: &Image, path: &str, at: &Attr, to: &File) -> Result<u32, Failure> {
    let mut mode = at.mode;
    let Reply::Bytes(list) = image.ask(path, Request::ListXattr { ino: at.ino })? else {
        return Ok(mode);
    };
    for name in attributes::names_in(&list) {
        let asked = Request::GetXattr { ino: at.ino, name: name.to_vec() };
        let Reply::Bytes(value) = image.ask(path, asked)? else { continue };
        let is_list = name == attributes::ACCESS_LIST;
        if let Err(e) = attributes::set(to, name, &value) {
            mode = if is_list { attributes::mode_without(&value, mode) } else { mode };
            say::err(&format!("cairn: {path}: without its {}: {e}", shown(name)));
        }
    }
    Ok(mode)
}

/// Writes what is no directory.
fn one(image: &Image, path: &str, at: &Attr, to: &Place<'_>) -> Result<(), Failure> {
    let fail = |e| local(to.shown, e);
    match at.kind() {
        Kind::File => {
            let (mut file, new) = to.file()?;
            if let Err(e) = contents(image, path, at, (&mut file, to.shown)) {
                if new {
                    // A part of a file is none; what was there before is gone anyway.
                    let _ = unlinkat(to.dir, to.name, AtFlags::empty());
                }
                return Err(e);
            }
            let mode = attributes_of(image, path, at, &file)?;
            fchmod(&file, Mode::from_raw_mode(mode & 0o777)).map_err(fail)?;
            let mtime = Timespec { tv_sec: at.mtime.sec, tv_nsec: at.mtime.nsec.into() };
            let as_it_is = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
            let times = Timestamps { last_access: as_it_is, last_modification: mtime };
            let _ = futimens(&file, &times); // a pipe has none
        }
        Kind::Symlink => {
            let Reply::Bytes(text) = image.ask(path, Request::ReadLink { ino: at.ino })? else {
                return Err(image.failure(path, vfs::FsError::Io));
            };
            symlinkat(OsStr::from_bytes(&text), to.dir, to.name).map_err(fail)?;
        }
        _ => say::err(&format!("cairn: {path}: a device, fifo or socket is left out")),
    }
    Ok(())
}
