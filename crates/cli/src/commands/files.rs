//! Looking into a volume without mounting it, and making directories.
//! Each opens the image for itself and closes it; none stays.

use crate::args::{ListedArgs, PathsArgs, ShownArgs};
use crate::image::{Image, kind_letter};
use crate::{Failure, Outcome};
use format::shown;
use host::now;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use vfs::{Attr, Kind, MakeKind, Reply, Request, SetAttr};

/// A line as ls(1) has it; `to`: what it names, if it is a symbolic link.
fn line(name: &[u8], a: &Attr, to: Option<&[u8]>) -> String {
    let (kind, perm, name) = (kind_letter(a.kind()), permissions(a.mode), shown(name));
    let to = to.map_or(String::new(), |to| format!(" -> {}", shown(to)));
    let time = shown_time(a.mtime.sec);
    format!(
        "{kind}{perm} {:>4} {:>6} {:>6} {:>12} {time} {name}{to}",
        a.nlink, a.uid, a.gid, a.size
    )
}

/// Who may do what, and in whose name, in the letters of ls(1).
fn permissions(mode: u32) -> String {
    let of = |shift: u32, (special, with, without): (u32, char, char)| {
        let bits = mode >> shift & 7;
        let [read, write] = [(4, 'r'), (2, 'w')].map(|(b, c)| if bits & b != 0 { c } else { '-' });
        let run = match (mode & special != 0, bits & 1 != 0) {
            (true, true) => with,
            (true, false) => without,
            (false, true) => 'x',
            (false, false) => '-',
        };
        [read, write, run]
    };
    let all = [of(6, (0o4000, 's', 'S')), of(3, (0o2000, 's', 'S')), of(0, (0o1000, 't', 'T'))];
    all.concat().iter().collect()
}

/// What a symbolic link names; None: it is none, or cannot be read.
fn link_text(image: &Image, at: &Attr) -> Option<Vec<u8>> {
    if at.kind() != Kind::Symlink {
        return None;
    }
    match image.ask("", Request::ReadLink { ino: at.ino }) {
        Ok(Reply::Bytes(text)) => Some(text),
        _ => None,
    }
}

/// A time as ls(1) shows it: without the year if it is of the last half year.
fn shown_time(sec: i64) -> String {
    const HALF_YEAR_SECS: i64 = 365 * 86400 / 2;
    let now = now().wall.secs() as i64;
    let Ok(time) = jiff::Timestamp::from_second(sec) else { return sec.to_string() };
    let time = time.to_zoned(jiff::tz::TimeZone::system());
    let recent = (now - HALF_YEAR_SECS..=now).contains(&sec);
    time.strftime(if recent { "%b %e %H:%M" } else { "%b %e  %Y" }).to_string()
}

fn json_of(name: &[u8], a: &Attr) -> serde_json::Value {
    let name = String::from_utf8_lossy(name);
    serde_json::json!({
        "name": name, "ino": a.ino, "generation": a.generation, "mode": format!("{:o}", a.mode),
        "nlink": a.nlink, "uid": a.uid, "gid": a.gid, "size": a.size, "blocks": a.blocks,
        "atime": a.atime.sec, "mtime": a.mtime.sec, "ctime": a.ctime.sec,
    })
}

/// `cairn ls`.
pub fn ls(a: &ListedArgs) -> Result<Outcome, Failure> {
    let image = Image::open(&a.image, true, a.log.as_deref())?;
    let mut all = Vec::new();
    let mut bad = None;
    for path in &a.paths {
        let at = image.walk(path)?;
        let told = shown(path.as_bytes());
        let mut found: Vec<(Vec<u8>, Attr)> = Vec::new();
        if at.kind() == Kind::Dir {
            for e in image.list(&told, at.ino)? {
                let name = shown(&e.name).to_string();
                match e.attr.map_or_else(|| image.attr_of(&name, e.ino), Ok) {
                    Ok(attr) => found.push((e.name, attr)),
                    // The others are there all the same.
                    Err(why) => bad = Some(why),
                }
            }
            found.sort_by(|x, y| x.0.cmp(&y.0));
        } else {
            found.push((path.as_bytes().to_vec(), at));
        }
        for (name, attr) in found {
            if a.json {
                all.push(json_of(&name, &attr));
            } else {
                tell!("{}", line(&name, &attr, link_text(&image, &attr).as_deref()));
            }
        }
    }
    if a.json {
        tell!("{}", serde_json::Value::Array(all));
    }
    image.close()?;
    bad.map_or(Ok(Outcome::Done), Err)
}

/// `cairn stat`.
pub fn stat(a: &ShownArgs) -> Result<Outcome, Failure> {
    let image = Image::open(&a.of.image, true, a.of.log.as_deref())?;
    for path in &a.of.paths {
        let at = image.walk(path)?;
        if a.json {
            tell!("{}", json_of(path.as_bytes(), &at));
        } else {
            let to = link_text(&image, &at);
            let line = line(path.as_bytes(), &at, to.as_deref());
            tell!("{line}  inode {} generation {}", at.ino, at.generation);
        }
    }
    image.close()?;
    Ok(Outcome::Done)
}

/// `cairn cat`.
pub fn cat(a: &PathsArgs) -> Result<Outcome, Failure> {
    let image = Image::open(&a.image, true, a.log.as_deref())?;
    let mut out = std::io::stdout().lock();
    let failed = |e: std::io::Error| Failure::Failed(format!("standard output: {e}"));
    for path in &a.paths {
        let at = image.follow(path)?;
        image.read(&shown(path.as_bytes()), at.ino, |part| out.write_all(part).map_err(failed))?;
    }
    out.flush().map_err(failed)?;
    image.close()?;
    Ok(Outcome::Done)
}

/// `cairn mkdir`.
pub fn mkdir(a: &PathsArgs) -> Result<Outcome, Failure> {
    let image = Image::open(&a.image, false, a.log.as_deref())?;
    let mut result = Ok(Outcome::Done);
    for path in &a.paths {
        let made = image.parent(path).and_then(|(dir, name)| {
            make(&image, &shown(path.as_bytes()), (dir.ino, name), MakeKind::Dir, 0o755).map(|_| ())
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
    if name.is_empty() {
        return Err(image.failure(path, vfs::FsError::Exists)); // the root directory
    }
    let request = Request::Make { dir, name, kind, attr, umask: 0, fail_if_exists: true };
    match image.ask(path, request)? {
        Reply::Entry { attr, .. } => Ok(attr),
        _ => Err(image.failure(path, vfs::FsError::Io)),
    }
}

/// How an image's files lie, up to 50,000 of them, and free space.
pub fn layout(path: &Path) -> Result<volume::Layout, Failure> {
    let device = crate::device::FileDevice(std::sync::Arc::new(crate::disk::open(path, true)?));
    Ok(volume::layout(&device, 50_000).map_err(|e| e.to_string())?)
}
