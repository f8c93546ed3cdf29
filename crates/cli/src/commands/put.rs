//! `cairn put`: trees into a volume, without mounting. Names, contents and attributes go in
//! batches, so the mode's promise is waited for once for many files, and not for each.
//!
//! Invariants:
//! * B1. A batch is bounded: in names, and in bytes of small files.
//! * B2. A further name of a file is given when that file is there, with all it holds.
//! * B3. Files that are said to be there have all their contents, or a part of none stays.
//! * B4. What has ended well has left nothing to be done.

use crate::args::PathsArgs;
use crate::attributes;
use crate::image::Image;
use crate::progress::Counter;
use crate::{Failure, Outcome, say};
use format::shown;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::{self, File, FileType};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use vfs::{FsError, Kind, MakeKind, Reply, Request, SetAttr, SetTime, Stability, Time, XattrMode};

/// Names that are made at once.
const BATCH: usize = 256;
/// A file below this size is written together with others, up to so many bytes in all.
const SMALL_BYTES: usize = 64 << 10;
const BATCH_BYTES: usize = 512 << 10;
/// What is read of a larger one at once.
const PIECE_BYTES: usize = 1 << 20;

fn local(path: &Path, e: &std::io::Error) -> Failure {
    Failure::Failed(format!("{}: {e}", told(path)))
}

fn told(path: &Path) -> String {
    shown(path.as_os_str().as_bytes())
}

/// `cairn put IMAGE LOCAL… DIR`.
pub fn run(a: &PathsArgs) -> Result<Outcome, Failure> {
    let Some((dir, sources)) = a.paths.split_last().filter(|(_, s)| !s.is_empty()) else {
        return Err(Failure::Usage("put needs what to copy, and a directory in the volume".into()));
    };
    let image = Image::open(&a.image, false, a.log.as_deref())?;
    let mut put = Put::new(&image);
    let done = sources.iter().try_for_each(|s| {
        let into = image.walk(dir)?;
        if into.kind() != Kind::Dir {
            return Err(image.failure(&shown(dir.as_bytes()), FsError::NotDir));
        }
        let source = Path::new(s);
        match source.file_name() {
            Some(_) => {
                let why = || format!("{}: a device, fifo or socket is not copied", told(source));
                put.found.push(Found::look(source, into.ino)?.ok_or_else(why)?);
            }
            // `.` has no name of its own: what is in it is meant.
            None => put.dirs.push_back((source.to_owned(), into.ino)),
        }
        put.all()
    });
    // What is there is as it is to be, even if the rest is not.
    let done = done.and(put.finish());
    drop(put);
    let closed = image.close();
    done.and(closed).map(|()| Outcome::Done)
}

/// Something that is to be copied.
struct Found {
    from: PathBuf,
    /// The directory that it is to be in.
    dir: u32,
    kind: FileType,
    mode: u32,
    /// What is set when its contents are there.
    set: SetAttr,
    /// What it is known by, if it has other names.
    id: Option<Id>,
}

/// What tells files of the host apart.
type Id = (u64, u64);

impl Found {
    /// None for what is not copied.
    fn look(from: &Path, dir: u32) -> Result<Option<Found>, Failure> {
        let meta = fs::symlink_metadata(from).map_err(|e| local(from, &e))?;
        let kind = meta.file_type();
        if !(kind.is_dir() || kind.is_file() || kind.is_symlink()) {
            return Ok(None);
        }
        let mtime = Time { sec: meta.mtime(), nsec: meta.mtime_nsec() as u32 };
        let set = SetAttr {
            mtime: Some(SetTime::To(mtime)),
            uid: Some(meta.uid()),
            gid: Some(meta.gid()),
            ..SetAttr::default()
        };
        let id = (!kind.is_dir() && meta.nlink() > 1).then_some((meta.dev(), meta.ino()));
        let (from, mode) = (from.to_owned(), meta.mode() & 0o7777);
        Ok(Some(Found { from, dir, kind, mode, set, id }))
    }

    fn name(&self) -> Vec<u8> {
        self.from.file_name().unwrap_or_default().as_bytes().to_vec()
    }

    /// The request that makes it.
    fn make(&self) -> Result<Request, Failure> {
        let (kind, mode) = if self.kind.is_dir() {
            (MakeKind::Dir, self.mode)
        } else if self.kind.is_symlink() {
            let text = fs::read_link(&self.from).map_err(|e| local(&self.from, &e))?;
            (MakeKind::Symlink(text.as_os_str().as_bytes().to_vec()), 0o777)
        } else {
            (MakeKind::File { exclusive: None }, self.mode)
        };
        let name = self.name();
        let attr = SetAttr { mode: Some(mode), ..SetAttr::default() };
        Ok(Request::Make { dir: self.dir, name, kind, attr, umask: 0, fail_if_exists: true })
    }
}

fn with_attribute(ino: u32, (name, value): (Vec<u8>, Vec<u8>)) -> Request {
    Request::SetXattr { ino, name, value, mode: XattrMode::Either, kill_sgid: false }
}

/// The copying.
struct Put<'a> {
    image: &'a Image,
    /// What is to be made next.
    found: Vec<Found>,
    /// Directories that were made, and are still empty.
    dirs: VecDeque<(PathBuf, u32)>,
    /// What is set last: directories change while they are filled.
    last: Vec<(PathBuf, Request)>,
    /// Files that have other names on the host, and are there.
    linked: HashMap<Id, u32>,
    counter: Counter,
}

impl Put<'_> {
    fn new(image: &Image) -> Put<'_> {
        let counter = Counter::new("files copied");
        let (found, last, linked) = (Vec::new(), Vec::new(), HashMap::new());
        Put { image, found, dirs: VecDeque::new(), last, linked, counter }
    }

    /// Copies what was found, and all that is below it.
    fn all(&mut self) -> Result<(), Failure> {
        loop {
            match self.dirs.pop_front() {
                Some((from, ino)) => self.list(&from, ino)?,
                None if self.found.is_empty() => {
                    self.finish()?;
                    assert!(self.is_done(), "B4: a tree is copied, and not all of it");
                    return Ok(());
                }
                None => self.make()?,
            }
        }
    }

    fn is_done(&self) -> bool {
        self.found.is_empty() && self.dirs.is_empty() && self.last.is_empty()
    }

    fn list(&mut self, from: &Path, ino: u32) -> Result<(), Failure> {
        let each = fs::read_dir(from).and_then(|all| all.map(|e| Ok(e?.path())).collect());
        let mut names: Vec<PathBuf> = each.map_err(|e| local(from, &e))?;
        names.sort();
        for path in names {
            match Found::look(&path, ino)? {
                Some(found) => self.found.push(found),
                None => {
                    let path = told(&path);
                    say::err(&format!("cairn: {path}: a device, fifo or socket is left out"));
                }
            }
            if self.found.len() >= BATCH {
                self.make()?;
            }
        }
        Ok(())
    }

    /// Makes what was found, fills it, and sets its attributes.
    fn make(&mut self) -> Result<(), Failure> {
        assert!(self.found.len() <= BATCH, "B1: {} names are made at once", self.found.len());
        let (found, links) = self.other_names();
        let requests = found.iter().map(Found::make).collect::<Result<Vec<_>, _>>()?;
        let mut made = Vec::with_capacity(found.len());
        let mut done = Ok(());
        for (f, reply) in found.into_iter().zip(self.image.ask_each(requests)) {
            match reply {
                Ok(Reply::Entry { attr, .. }) => made.push((f, attr.ino)),
                Ok(_) => done = done.and(Err(self.image.failure(&told(&f.from), FsError::Io))),
                Err(e) => done = done.and(Err(self.image.failure(&told(&f.from), e))),
            }
        }
        let mut whole = HashSet::new();
        let filled = self.fill(&made, &mut whole);
        if filled.is_err() {
            made = self.without_parts(made, &whole);
        }
        self.linked.extend(made.iter().filter_map(|(f, ino)| Some((f.id?, *ino))));
        done = done.and(filled).and_then(|()| self.link(&links));
        self.counter.add(made.len() as u64);
        // Owners first: a new one takes capabilities away.
        let (mut owners, mut rest) = (Vec::new(), Vec::new());
        for (f, ino) in made {
            let owner = (f.from.clone(), Request::SetAttr { ino, set: f.set });
            let attributes = attributes::of(&f.from).into_iter();
            let all = attributes.map(|a| (f.from.clone(), with_attribute(ino, a)));
            if f.kind.is_dir() {
                self.dirs.push_back((f.from.clone(), ino));
                // Nothing in it inherits its access list.
                self.last.extend(all);
                self.last.push(owner);
            } else {
                rest.extend(all);
                owners.push(owner);
            }
        }
        let set = self.set(owners).and_then(|()| self.set(rest));
        done.and(set)
    }

    /// Removes files that have a part of their contents: a part of a file is none, and would be
    /// taken for the file, and be in the way of the next attempt.
    fn without_parts(&self, made: Vec<(Found, u32)>, whole: &HashSet<u32>) -> Vec<(Found, u32)> {
        let known = whole.iter().all(|ino| made.iter().any(|m| m.1 == *ino));
        assert!(known, "B3: contents of files that were not made");
        let is_whole = |(f, ino): &(Found, u32)| !f.kind.is_file() || whole.contains(ino);
        let (made, parts): (Vec<_>, Vec<_>) = made.into_iter().partition(is_whole);
        let remove = |(f, _): &(Found, u32)| Request::Unlink { dir: f.dir, name: f.name() };
        // What went wrong first is what is told at the end. A volume whose medium failed, or is
        // full, takes nothing more.
        let removed = self.image.ask_each(parts.iter().map(remove).collect());
        for ((f, _), _) in parts.iter().zip(removed).filter(|(_, r)| r.is_err()) {
            let from = told(&f.from);
            say::err(&format!("cairn: {from}: a part of it may stay under its name: remove it"));
        }
        made
    }

    /// The files found, and apart from them the hard links: further names of one of these, or of a
    /// file that was copied before.
    fn other_names(&mut self) -> (Vec<Found>, Vec<Found>) {
        let mut seen = HashSet::new();
        let is_new =
            |f: &Found| f.id.is_none_or(|id| !self.linked.contains_key(&id) && seen.insert(id));
        std::mem::take(&mut self.found).into_iter().partition(is_new)
    }

    /// Gives what is there these names too.
    fn link(&mut self, names: &[Found]) -> Result<(), Failure> {
        let with = |f: &Found| {
            let ino = *self.linked.get(&f.id?)?;
            Some(Request::Link { ino, dir: f.dir, name: f.name() })
        };
        let requests: Vec<Request> = names.iter().filter_map(with).collect();
        let (first, all) = (requests.len(), names.len());
        assert_eq!(first, all, "B2: names whose file is there, of those that are given");
        self.image.ask_all(requests, |n| told(&names[n].from))?;
        self.counter.add(names.len() as u64);
        Ok(())
    }

    fn set(&self, what: Vec<(PathBuf, Request)>) -> Result<(), Failure> {
        let (paths, requests): (Vec<_>, Vec<_>) = what.into_iter().unzip();
        self.image.ask_all(requests, |n| told(&paths[n])).map(drop)
    }

    /// Sets what is set last.
    fn finish(&mut self) -> Result<(), Failure> {
        while !self.last.is_empty() {
            let rest = self.last.split_off(self.last.len().min(BATCH));
            let now = std::mem::replace(&mut self.last, rest);
            self.set(now)?;
        }
        Ok(())
    }

    /// Contents: small files together, large ones each for itself. `whole`: those that have them.
    fn fill(&self, made: &[(Found, u32)], whole: &mut HashSet<u32>) -> Result<(), Failure> {
        let mut small: Vec<Piece<'_>> = Vec::new();
        let mut bytes = 0;
        for (f, ino) in made.iter().filter(|(f, _)| f.kind.is_file()) {
            let fail = |e: std::io::Error| local(&f.from, &e);
            let file = File::open(&f.from).map_err(fail)?;
            let read = |bytes: usize| {
                let mut data = Vec::new();
                (&file).take(bytes as u64).read_to_end(&mut data).map_err(fail).map(|_| data)
            };
            let piece = |offset, data| Piece { from: &f.from, ino: *ino, offset, data };
            let mut data = read(SMALL_BYTES)?;
            if data.len() < SMALL_BYTES {
                bytes += data.len();
                small.push(piece(0, data));
                if bytes >= BATCH_BYTES {
                    self.write_small(std::mem::take(&mut small), whole)?;
                    bytes = 0;
                }
                continue;
            }
            let mut offset = 0;
            while !data.is_empty() {
                let len = data.len() as u64;
                self.write(vec![piece(offset, data)])?;
                offset += len;
                // Holes stay holes. What does not know of them has none.
                match rustix::fs::seek(&file, SeekFrom::Data(offset)) {
                    Ok(next) => offset = next,
                    Err(Errno::NXIO) => break,
                    Err(_) => (),
                }
                data = read(PIECE_BYTES)?;
            }
            self.lengthen(f, *ino, offset)?;
            whole.insert(*ino);
        }
        self.write_small(small, whole)?;
        let files = made.iter().filter(|(f, _)| f.kind.is_file()).count();
        assert_eq!(whole.len(), files, "B3: files with contents, of those that were made");
        Ok(())
    }

    /// Writes files that are a piece each.
    fn write_small(&self, all: Vec<Piece<'_>>, whole: &mut HashSet<u32>) -> Result<(), Failure> {
        let bytes: usize = all.iter().map(|p| p.data.len()).sum();
        assert!(bytes < BATCH_BYTES + SMALL_BYTES, "B1: {bytes} bytes are written at once");
        let inos: Vec<u32> = all.iter().map(|p| p.ino).collect();
        self.write(all)?;
        whole.extend(inos);
        Ok(())
    }

    /// A file that ends with a hole is as long as the one that it was read from, which is written
    /// up to `end`.
    fn lengthen(&self, f: &Found, ino: u32, end: u64) -> Result<(), Failure> {
        let size = fs::metadata(&f.from).map_err(|e| local(&f.from, &e))?.len();
        if size <= end {
            return Ok(());
        }
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        self.image.ask(&told(&f.from), Request::SetAttr { ino, set }).map(drop)
    }

    /// Writes all of it. A volume may take less than it was given: a journal takes what fits one
    /// transaction.
    fn write(&self, mut pieces: Vec<Piece<'_>>) -> Result<(), Failure> {
        loop {
            pieces.retain(|p| !p.data.is_empty());
            if pieces.is_empty() {
                return Ok(());
            }
            let requests = pieces.iter().map(|p| p.request(self.image)).collect();
            let replies = self.image.ask_all(requests, |n| told(pieces[n].from))?;
            for (p, reply) in pieces.iter_mut().zip(replies) {
                let fail = |e| self.image.failure(&told(p.from), e);
                match reply {
                    Reply::Written { len: 0, .. } => return Err(fail(FsError::NoSpace)),
                    Reply::Written { len, .. } => {
                        let (taken, had) = (len as usize, p.data.len());
                        assert!(taken <= had, "B3: {taken} bytes are written, of {had}");
                        p.data.drain(..taken);
                        p.offset += taken as u64;
                    }
                    _ => return Err(fail(FsError::Io)),
                }
            }
        }
    }
}

/// Bytes that are to be written.
struct Piece<'a> {
    from: &'a Path,
    ino: u32,
    offset: u64,
    data: Vec<u8>,
}

impl Piece<'_> {
    fn request(&self, image: &Image) -> Request {
        let data = image.cut(&self.data, self.offset);
        let (ino, offset, stability) = (self.ino, self.offset, Stability::Unstable);
        Request::write(ino, offset, data, stability)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{MkfsArgs, Profile};

    /// How often the image's disk was waited for since it was opened.
    fn waits(image: &Image) -> u64 {
        let Ok(Reply::Info(info)) = image.ask("", Request::Info) else { panic!("no info") };
        let counts = |name: &str| matches!(name, "cairn_flushes_total" | "cairn_log_writes_total");
        info.counters.iter().filter(|(name, _)| counts(name)).map(|c| c.1).sum()
    }

    #[test]
    fn many_files_are_waited_for_together() {
        const FILES: u64 = 600;
        let folder = std::env::temp_dir().join(format!("cairn-batch-{}", std::process::id()));
        let source = folder.join("from");
        for n in 0..FILES {
            let dir = source.join(format!("d{}", n % 7));
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join(format!("f{n}")), vec![b'x'; n as usize]).unwrap();
        }
        // Of a volume without a journal, in mode sync, each name is ordered by itself.
        for (profile, most) in [(Profile::Ext2, 2 * FILES), (Profile::Ext3, FILES / 8)] {
            let path = folder.join(format!("{profile:?}.img"));
            let args = MkfsArgs::plain(path.clone(), 32 << 20, profile);
            assert!(crate::commands::mkfs::make(&args).is_ok());
            let image = Image::open(&path, false, None).ok().unwrap();
            let mut put = Put::new(&image);
            put.found.extend(Found::look(&source, 2).ok().unwrap());
            assert!(put.all().is_ok());
            drop(put);
            let waited = waits(&image);
            assert!(waited < most, "{profile:?}: put waited {waited} times");
            let top = image.walk("/from/d3").ok().unwrap();
            assert_eq!(image.list("/from/d3", top.ino).ok().unwrap().len(), 86);
            assert!(image.close().is_ok());
            let image = Image::open(&path, false, None).ok().unwrap();
            assert!(crate::commands::remove::remove(&image, "/from".as_ref(), true).is_ok());
            let waited = waits(&image);
            assert!(waited < most, "{profile:?}: rm waited {waited} times");
            assert!(image.walk("/from").is_err());
            assert!(image.close().is_ok());
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
