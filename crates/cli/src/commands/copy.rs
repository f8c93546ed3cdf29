//! `cairn get` and `cairn put`: trees out of a volume and into it, without mounting.

use super::files::make;
use crate::args::PathsArgs;
use crate::image::Image;
use crate::{Failure, Outcome, say};
use env::Rope;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use vfs::{Attr, Kind, MakeKind, Reply, Request, SetAttr, SetTime, Stability, Time};

fn local(path: &Path, e: &std::io::Error) -> Failure {
    Failure::Failed(format!("{}: {e}", path.display()))
}

/// `cairn get IMAGE PATH… [TARGET]`.
pub fn get(a: &PathsArgs) -> Result<Outcome, Failure> {
    let image = Image::open(&a.image, true, a.log.as_deref())?;
    let (paths, target) = match a.paths.split_last() {
        Some((last, rest)) if !rest.is_empty() => (rest, PathBuf::from(last)),
        _ => (&a.paths[..], PathBuf::from(".")),
    };
    for path in paths {
        let at = image.walk(path)?;
        let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or("");
        let to =
            if target.is_dir() && !name.is_empty() { target.join(name) } else { target.clone() };
        out(&image, path, &at, &to)?;
    }
    image.close()?;
    Ok(Outcome::Done)
}

fn out(image: &Image, path: &str, at: &Attr, to: &Path) -> Result<(), Failure> {
    let fail = |e: std::io::Error| local(to, &e);
    match at.kind() {
        Kind::Dir => {
            if !to.is_dir() {
                fs::create_dir(to).map_err(fail)?;
            }
            for e in image.list(path, at.ino)? {
                let child = e.attr.map_or_else(|| image.attr(e.ino), Ok)?;
                let name = std::ffi::OsStr::from_bytes(&e.name);
                out(image, &format!("{path}/{}", name.to_string_lossy()), &child, &to.join(name))?;
            }
        }
        Kind::File => {
            let mut file = fs::File::create(to).map_err(fail)?;
            image.read(path, at.ino, |part| file.write_all(part))?;
            file.set_permissions(fs::Permissions::from_mode(at.mode & 0o777)).map_err(fail)?;
        }
        Kind::Symlink => {
            let Reply::Bytes(text) = image.ask(path, Request::ReadLink { ino: at.ino })? else {
                return Err(image.failure(path, vfs::FsError::Io));
            };
            std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(&text), to).map_err(fail)?;
        }
        _ => say::err(&format!("cairn: {path}: a device, fifo or socket is left out")),
    }
    Ok(())
}

/// `cairn put IMAGE LOCAL… DIR`.
pub fn put(a: &PathsArgs) -> Result<Outcome, Failure> {
    let Some((dir, sources)) = a.paths.split_last().filter(|(_, s)| !s.is_empty()) else {
        return Err(Failure::Usage("put needs what to copy, and a directory in the volume".into()));
    };
    let image = Image::open(&a.image, false, a.log.as_deref())?;
    let mut result = Ok(Outcome::Done);
    for s in sources {
        let source = Path::new(s);
        let done = image.walk(dir).and_then(|at| {
            let name = source.file_name().unwrap_or_default().as_bytes().to_vec();
            into(&image, source, at.ino, name)
        });
        if let Err(e) = done {
            result = Err(e);
            break;
        }
    }
    image.close()?;
    result
}

fn into(image: &Image, from: &Path, dir: u32, name: Vec<u8>) -> Result<(), Failure> {
    let fail = |e: std::io::Error| local(from, &e);
    let shown = from.display().to_string();
    let meta = fs::symlink_metadata(from).map_err(fail)?;
    let kind = meta.file_type();
    let mode = meta.mode() & 0o7777;
    let ino = if kind.is_dir() {
        let made = make(image, &shown, (dir, name), MakeKind::Dir, mode)?.ino;
        let mut names: Vec<_> = fs::read_dir(from).map_err(fail)?.flatten().collect();
        names.sort_by_key(fs::DirEntry::file_name);
        for e in names {
            into(image, &e.path(), made, e.file_name().as_bytes().to_vec())?;
        }
        made
    } else if kind.is_symlink() {
        let text = fs::read_link(from).map_err(fail)?.as_os_str().as_bytes().to_vec();
        make(image, &shown, (dir, name), MakeKind::Symlink(text), 0o777)?.ino
    } else if kind.is_file() {
        let file = MakeKind::File { exclusive: None };
        let ino = make(image, &shown, (dir, name), file, mode)?.ino;
        copy_in(image, from, ino)?;
        ino
    } else {
        say::err(&format!("cairn: {shown}: a device, fifo or socket is left out"));
        return Ok(());
    };
    let mtime = Time { sec: meta.mtime(), nsec: meta.mtime_nsec() as u32 };
    let set = SetAttr {
        mtime: Some(SetTime::To(mtime)),
        uid: Some(meta.uid()),
        gid: Some(meta.gid()),
        ..SetAttr::default()
    };
    image.ask(&shown, Request::SetAttr { ino, set }).map(|_| ())
}

fn copy_in(image: &Image, from: &Path, ino: u32) -> Result<(), Failure> {
    let mut file = fs::File::open(from).map_err(|e| local(from, &e))?;
    let mut buffer = vec![0; 1 << 20];
    let mut offset = 0;
    loop {
        let n = file.read(&mut buffer).map_err(|e| local(from, &e))?;
        if n == 0 {
            return Ok(());
        }
        // A volume may take less than it was given: a journal takes what fits one transaction.
        let mut rest = &buffer[..n];
        while !rest.is_empty() {
            let data = Rope::cut(rest, (offset % 4096) as usize, 4096);
            let stability = Stability::Unstable;
            let (append, kill_suid) = (false, false);
            let request = Request::Write { ino, offset, data, stability, append, kill_suid };
            let shown = from.display().to_string();
            let taken = match image.ask(&shown, request)? {
                Reply::Written { len: 0, .. } => {
                    return Err(image.failure(&shown, vfs::FsError::NoSpace));
                }
                Reply::Written { len, .. } => (len as usize).min(rest.len()),
                _ => return Err(image.failure(&shown, vfs::FsError::Io)),
            };
            rest = &rest[taken..];
            offset += taken as u64;
        }
    }
}
