//! `cairn get`: trees out of a volume, without mounting. The volume may come from anybody, so
//! nothing is written through a symbolic link: neither one that the volume itself brought nor one
//! that lies in the target already. Each directory is opened from the one above it, and gets its
//! mode, owner and time when all that is in it is there.

mod links;
mod place;
mod traits;

use crate::args::PathsArgs;
use crate::image::Image;
use crate::progress::Bar;
use crate::subtree::Subtree;
use crate::{Failure, Outcome, say};
use check::Progress;
use format::shown;
use links::Links;
use place::{Place, Within, local};
use rustix::fs::{AtFlags, CWD, symlinkat, unlinkat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use traits::Traits;
use vfs::{Attr, Kind, Reply, Request};

/// `cairn get IMAGE PATH… [TARGET]`.
pub fn run(a: &PathsArgs) -> Result<Outcome, Failure> {
    let image = Image::open(&a.image, true, a.log.as_deref())?;
    let (paths, target) = match a.paths.split_last() {
        Some((last, rest)) if !rest.is_empty() => (rest, PathBuf::from(last)),
        _ => (&a.paths[..], PathBuf::from(".")),
    };
    let mut get = Get { image: &image, links: Links::default(), traits: Traits::new() };
    for path in paths {
        let at = image.walk(path)?;
        let mut names = path.as_bytes().rsplit(|b| *b == b'/');
        let name = OsStr::from_bytes(names.find(|n| !n.is_empty()).unwrap_or_default());
        let path = &shown(path.as_bytes());
        let inside = target.is_dir() && !name.is_empty();
        let to = if inside { target.join(name) } else { target.clone() };
        match at.kind() {
            // What the caller has named himself may be a link.
            Kind::Dir => get.tree(path, &at, (&to, !inside))?,
            _ => {
                if !matches!(at.kind(), Kind::File | Kind::Symlink) {
                    let why = "a device, fifo or socket is not copied";
                    return Err(Failure::Failed(format!("{path}: {why}")));
                }
                let place = Place { dir: CWD, name: to.as_os_str(), shown: &to, named: !inside };
                get.one(path, &at, &place, &Within::here())?;
            }
        }
    }
    image.close()?;
    Ok(Outcome::Done)
}

/// The copying.
struct Get<'a> {
    image: &'a Image,
    links: Links,
    traits: Traits,
}

impl Get<'_> {
    fn tree(&mut self, path: &str, at: &Attr, (to, named): (&Path, bool)) -> Result<(), Failure> {
        let tree = Subtree::look(self.image, path, at)?;
        let place = Place { dir: CWD, name: to.as_os_str(), shown: to, named };
        let (top, made) = place.directory()?;
        let top = Rc::new(top);
        let mut bar = Bar::new();
        let mut done = 0;
        for n in 0..tree.dirs.len() {
            let within = Within::new(&top, tree.names(n));
            let (dir, shown_dir) = within.make(to)?;
            for (name, attr) in tree.entries(self.image, n)?.1 {
                let from = format!("{}/{}", tree.path(n), shown(&name));
                let name = OsStr::from_bytes(&name);
                let to = shown_dir.join(name);
                let place = Place { dir: dir.as_fd(), name, shown: &to, named: false };
                self.one(&from, &attr, &place, &within)?;
                done += 1;
                bar.step("copying", done, tree.others);
            }
        }
        if done != tree.others {
            // It was listed twice: another machine may write the device meanwhile.
            let had = tree.others;
            return Err(Failure::Failed(format!("{path}: it had {had} files, and has {done} now")));
        }
        // One that was there, and that the caller has named, is his.
        let first = usize::from(named && !made);
        // What is below first: who may not write in a directory sets nothing in it.
        for n in (first..tree.dirs.len()).rev() {
            let (dir, at) = (Within::new(&top, tree.names(n)).open()?, &tree.dirs[n]);
            let attr = self.image.attr(at.ino)?;
            self.traits.give(self.image, &tree.path(n), &attr, &File::from(dir))?;
        }
        Ok(())
    }

    /// Writes what is no directory. `within`: how the place's directory is found again.
    fn one(
        &mut self,
        path: &str,
        at: &Attr,
        to: &Place<'_>,
        within: &Within,
    ) -> Result<(), Failure> {
        if at.nlink > 1 && !to.named && self.links.link(path, at, to)? {
            return Ok(());
        }
        match at.kind() {
            Kind::File => self.file(path, at, to)?,
            Kind::Symlink => self.symlink(path, at, to)?,
            _ => {
                say::err(&format!("cairn: {path}: a device, fifo or socket is left out"));
                return Ok(());
            }
        }
        if at.nlink > 1 && !to.named {
            self.links.remember(at, to, within);
        }
        Ok(())
    }

    fn file(&mut self, path: &str, at: &Attr, to: &Place<'_>) -> Result<(), Failure> {
        let (mut file, new) = to.file()?;
        if let Err(e) = contents(self.image, path, at, (&mut file, to.shown)) {
            if new {
                // A part of a file is none; what was there before is gone anyway.
                let _ = unlinkat(to.dir, to.name, AtFlags::empty());
            }
            return Err(e);
        }
        if !file.metadata().is_ok_and(|m| m.is_file()) {
            return Ok(()); // a device or a pipe stays what it is for everybody else
        }
        self.traits.give(self.image, path, at, &file)
    }

    fn symlink(&mut self, path: &str, at: &Attr, to: &Place<'_>) -> Result<(), Failure> {
        let Reply::Bytes(text) = self.image.ask(path, Request::ReadLink { ino: at.ino })? else {
            return Err(self.image.failure(path, vfs::FsError::Io));
        };
        let make = || symlinkat(OsStr::from_bytes(&text), to.dir, to.name);
        let made = match make() {
            // One that was there is replaced, as a file is that was there.
            Err(Errno::EXIST) if to.is_symlink() => {
                unlinkat(to.dir, to.name, AtFlags::empty()).and_then(|()| make())
            }
            other => other,
        };
        made.map_err(|e| local(to.shown, e))?;
        self.traits.give_link(path, at, to);
        Ok(())
    }
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
