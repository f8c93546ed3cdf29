//! Looking into a volume without mounting it, and making and removing names.
//! Each opens the image for itself and closes it; none stays.

use crate::args::{PathsArgs, RmArgs, ShownArgs};
use crate::image::{Image, kind_letter};
use crate::{Failure, Outcome};
use std::io::Write;
use std::path::Path;
use vfs::{Attr, Kind, MakeKind, Reply, Request, SetAttr};

fn line(name: &str, a: &Attr) -> String {
    let bits = |shift: u32| {
        let b = a.mode >> shift & 7;
        [(4, 'r'), (2, 'w'), (1, 'x')].map(|(bit, c)| if b & bit != 0 { c } else { '-' })
    };
    let perm: String = [bits(6), bits(3), bits(0)].concat().iter().collect();
    let kind = kind_letter(a.kind());
    format!("{kind}{perm} {:>4} {:>6} {:>6} {:>12} {name}", a.nlink, a.uid, a.gid, a.size)
}

fn json_of(name: &str, a: &Attr) -> serde_json::Value {
    serde_json::json!({
        "name": name, "ino": a.ino, "generation": a.generation, "mode": format!("{:o}", a.mode),
        "nlink": a.nlink, "uid": a.uid, "gid": a.gid, "size": a.size, "blocks": a.blocks,
        "atime": a.atime.sec, "mtime": a.mtime.sec, "ctime": a.ctime.sec,
    })
}

/// `cairn ls`.
pub fn ls(a: &ShownArgs) -> Result<Outcome, Failure> {
    let image = Image::open(&a.of.image, true, a.of.log.as_deref())?;
    let mut all = Vec::new();
    for path in &a.of.paths {
        let at = image.walk(path)?;
        let mut found: Vec<(String, Attr)> = Vec::new();
        if at.kind() == Kind::Dir {
            for e in image.list(path, at.ino)? {
                let name = String::from_utf8_lossy(&e.name).into_owned();
                found.push((name, e.attr.map_or_else(|| image.attr(e.ino), Ok)?));
            }
            found.sort_by(|x, y| x.0.cmp(&y.0));
        } else {
            found.push((path.clone(), at));
        }
        for (name, attr) in found {
            if a.json {
                all.push(json_of(&name, &attr));
            } else {
                println!("{}", line(&name, &attr));
            }
        }
    }
    if a.json {
        println!("{}", serde_json::Value::Array(all));
    }
    image.close()?;
    Ok(Outcome::Done)
}

/// `cairn stat`.
pub fn stat(a: &ShownArgs) -> Result<Outcome, Failure> {
    let image = Image::open(&a.of.image, true, a.of.log.as_deref())?;
    for path in &a.of.paths {
        let at = image.walk(path)?;
        if a.json {
            println!("{}", json_of(path, &at));
        } else {
            println!("{}  inode {} generation {}", line(path, &at), at.ino, at.generation);
        }
    }
    image.close()?;
    Ok(Outcome::Done)
}

/// `cairn cat`.
pub fn cat(a: &PathsArgs) -> Result<Outcome, Failure> {
    let image = Image::open(&a.image, true, a.log.as_deref())?;
    let mut out = std::io::stdout().lock();
    for path in &a.paths {
        let at = image.walk(path)?;
        image.read(path, at.ino, |part| out.write_all(part))?;
    }
    image.close()?;
    Ok(Outcome::Done)
}

/// `cairn mkdir`.
pub fn mkdir(a: &PathsArgs) -> Result<Outcome, Failure> {
    let image = Image::open(&a.image, false, a.log.as_deref())?;
    let mut result = Ok(Outcome::Done);
    for path in &a.paths {
        let made = image.parent(path).and_then(|(dir, name)| {
            make(&image, path, (dir.ino, name), MakeKind::Dir, 0o755).map(|_| ())
        });
        if let Err(e) = made {
            result = Err(e);
            break;
        }
    }
    image.close()?;
    result
}

/// Makes something; its attributes.
pub fn make(
    image: &Image,
    path: &str,
    (dir, name): (u32, Vec<u8>),
    kind: MakeKind,
    mode: u32,
) -> Result<Attr, Failure> {
    let attr = SetAttr { mode: Some(mode), ..SetAttr::default() };
    let request = Request::Make { dir, name, kind, attr, umask: 0, fail_if_exists: true };
    match image.ask(path, request)? {
        Reply::Entry { attr, .. } => Ok(attr),
        _ => Err(image.failure(path, vfs::FsError::Io)),
    }
}

/// `cairn rm`.
pub fn rm(a: &RmArgs) -> Result<Outcome, Failure> {
    let image = Image::open(&a.image, false, a.log.as_deref())?;
    let mut result = Ok(Outcome::Done);
    for path in &a.paths {
        let removed = image.parent(path).and_then(|(dir, name)| {
            let at = image.walk(path)?;
            if name.is_empty() {
                return Err(Failure::Failed(format!("{path}: the root directory stays")));
            }
            if at.kind() == Kind::Dir && !a.recursive {
                return Err(Failure::Failed(format!("{path}: is a directory: -r removes those")));
            }
            remove(&image, path, (dir.ino, name), &at)
        });
        if let Err(e) = removed {
            result = Err(e);
            break;
        }
    }
    image.close()?;
    result
}

fn remove(
    image: &Image,
    path: &str,
    (dir, name): (u32, Vec<u8>),
    at: &Attr,
) -> Result<(), Failure> {
    if at.kind() != Kind::Dir {
        return image.ask(path, Request::Unlink { dir, name }).map(|_| ());
    }
    for e in image.list(path, at.ino)? {
        let child = e.attr.map_or_else(|| image.attr(e.ino), Ok)?;
        remove(image, path, (at.ino, e.name), &child)?;
    }
    image.ask(path, Request::Rmdir { dir, name }).map(|_| ())
}

/// The layout score of an image's files, over up to 50,000 of them.
pub fn layout_score(path: &Path) -> Result<Option<f64>, Failure> {
    let device = crate::device::FileDevice(std::sync::Arc::new(host::HostFile::open(path, true)?));
    Ok(volume::layout_score(&device, 50_000).map_err(|e| e.to_string())?)
}
