//! What a file is besides its contents, as `get` gives it to what it has written: attributes and
//! access lists, mode and time, and for root the owner too, as tar(1) and `cp -a` have it. Without
//! its owner nothing keeps the bits that let whoever runs it become him.

use super::place::Place;
use crate::attributes;
use crate::image::Image;
use crate::{Failure, say};
use format::shown;
use rustix::fs::{AtFlags, Gid, Mode, Timespec, Timestamps, UTIME_OMIT, Uid};
use rustix::fs::{chownat, fchmod, fchown, futimens, utimensat};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::fs::File;
use vfs::{Attr, Kind, Reply, Request};

/// Gives them.
pub struct Traits {
    /// Owners too, until the host refuses one.
    owners: bool,
}

fn owner_of(at: &Attr) -> (Option<Uid>, Option<Gid>) {
    // The last number is nobody's: to the host it means that the owner stays.
    let known = |id: u32| Some(id).filter(|id| *id != u32::MAX);
    (known(at.uid).map(Uid::from_raw), known(at.gid).map(Gid::from_raw))
}

fn times_of(at: &Attr) -> Timestamps {
    let last_modification = Timespec { tv_sec: at.mtime.sec, tv_nsec: at.mtime.nsec.into() };
    let as_it_is = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    Timestamps { last_access: as_it_is, last_modification }
}

impl Traits {
    pub fn new() -> Traits {
        Traits { owners: geteuid().is_root() }
    }

    /// To a file or directory.
    pub fn give(&mut self, image: &Image, path: &str, at: &Attr, to: &File) -> Result<(), Failure> {
        let failed = |e: Errno| Failure::Failed(format!("{path}: its mode: {e}"));
        let (uid, gid) = owner_of(at);
        // Before its mode, of which a new owner takes bits away.
        let owned = self.owners && self.tell(path, fchown(to, uid, gid));
        let mode = attributes_of(image, path, at, to)?;
        let kept = match at.kind() {
            _ if owned => 0o7777,
            Kind::Dir => 0o1777,
            _ => 0o777,
        };
        fchmod(to, Mode::from_raw_mode(mode & kept)).map_err(failed)?;
        let _ = futimens(to, &times_of(at)); // a host that keeps no such time has another one
        Ok(())
    }

    /// To a symbolic link, which has no mode.
    pub fn give_link(&mut self, path: &str, at: &Attr, to: &Place<'_>) {
        let ((uid, gid), itself) = (owner_of(at), AtFlags::SYMLINK_NOFOLLOW);
        if self.owners {
            self.tell(path, chownat(to.dir, to.name, uid, gid, itself));
        }
        let _ = utimensat(to.dir, to.name, &times_of(at), itself); // as above
    }

    /// Did it get its owner? If not, no other would either: that is said once.
    fn tell(&mut self, path: &str, given: Result<(), Errno>) -> bool {
        if let Err(e) = given {
            self.owners = false;
            say::err(&format!("cairn: {path}, and what follows: without its owner: {e}"));
        }
        given.is_ok()
    }
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
            if e == Errno::PERM && attributes::is_roots(name) {
                continue; // as cp -a
            }
            say::err(&format!("cairn: {path}: without its {}: {e}", shown(name)));
        }
    }
    Ok(mode)
}
