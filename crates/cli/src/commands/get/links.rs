//! Hard links, as `get` makes them again: of a file with several names the first that is found is
//! written, and the others become names of it. It is found again by its directory, and has to be
//! the file that was written: somebody may have put another one in its place meanwhile.

use super::place::{Place, Within, kind_of, local};
use crate::{Failure, say};
use rustix::fs::{AtFlags, Stat, linkat, unlinkat};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::Path;
use vfs::Attr;

/// What tells files of the host apart.
type Id = (u64, u64);

fn id_of(stat: &Stat) -> Id {
    (stat.st_dev, stat.st_ino)
}

/// The first name that was written of a file with several.
struct First {
    within: Within,
    name: OsString,
    id: Id,
    /// How many names of it have not been found yet.
    left: u16,
}

/// All of them, by their inodes in the volume.
#[derive(Default)]
pub struct Links(BTreeMap<u32, First>);

impl Links {
    /// This is the first name of a file that has more.
    pub fn remember(&mut self, at: &Attr, to: &Place<'_>, within: &Within) {
        let Some(stat) = to.stat() else { return };
        let (within, name, id) = (within.clone(), to.name.to_owned(), id_of(&stat));
        let left = u16::try_from(at.nlink - 1).unwrap_or(u16::MAX);
        self.0.insert(at.ino, First { within, name, id, left });
    }

    /// Makes it another name of the file that is there already; false: none is, or the host makes
    /// no links there, and it has to be written.
    pub fn link(&mut self, path: &str, at: &Attr, to: &Place<'_>) -> Result<bool, Failure> {
        let Some(first) = self.0.get_mut(&at.ino) else { return Ok(false) };
        let dir = first.within.open()?;
        let shown = Path::new(&first.name);
        let from = Place { dir: dir.as_fd(), name: &first.name, shown, named: false };
        if from.stat().map(|s| id_of(&s)) != Some(first.id) {
            return Ok(false);
        }
        let make = || linkat(from.dir, from.name, to.dir, to.name, AtFlags::empty());
        let made = match make() {
            Err(Errno::EXIST) => match to.stat() {
                Some(there) if id_of(&there) == first.id => Ok(()),
                // What was there is replaced by what is of its kind.
                Some(there) if from.stat().is_some_and(|f| kind_of(&f) == kind_of(&there)) => {
                    unlinkat(to.dir, to.name, AtFlags::empty()).and_then(|()| make())
                }
                _ => Err(Errno::LOOP),
            },
            other => other,
        };
        match made {
            Ok(()) => {
                first.left = first.left.saturating_sub(1);
                if first.left == 0 {
                    self.0.remove(&at.ino);
                }
                Ok(true)
            }
            Err(e @ (Errno::XDEV | Errno::MLINK | Errno::PERM | Errno::OPNOTSUPP)) => {
                let why = std::io::Error::from(e);
                say::err(&format!("cairn: {path}: a copy, and no link to the other: {why}"));
                Ok(false)
            }
            Err(e) => Err(local(to.shown, e)),
        }
    }
}
