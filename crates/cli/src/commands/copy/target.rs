//! Where a copy goes: a file, kept sparse, or a device. Until the copy is whole its beginning says
//! that it is not, and the volume's own first bytes are written last. What is there already and is
//! the same is not written again.
//!
//! Invariants:
//! * T1. The mark stays where it is until everything else is written and durable.
//! * T2. A copy that is finished was given every byte of what is copied.
//! * T3. Nothing is written behind the copy's end: on a device that is somebody else's.

use crate::Failure;
use format::foreign::UNFINISHED;
use host::HostFile;
use std::path::Path;

/// The bytes that are written last: the boot area and the superblock are among them.
pub const HEAD_BYTES: usize = 4096;

/// A copy that is being made.
pub struct Target {
    file: HostFile,
    shown: String,
    /// A new file: what is not written is zero.
    fresh: bool,
    head: Vec<u8>,
    /// Bytes that were written.
    written: u64,
    /// How many the copy has, and how many of them, from the first on, were given.
    bytes: u64,
    given: u64,
}

/// What may be written over.
pub struct Earlier<'a> {
    /// A copy of the volume with this UUID.
    pub uuid: [u8; 16],
    /// Of so many bytes.
    pub bytes: u64,
    /// Whatever it is.
    pub force: bool,
    /// What is copied.
    pub source: &'a Path,
}

impl Target {
    /// Opens it, or makes it, and marks it as unfinished. Errors: it is something else, too small,
    /// or in use.
    pub fn open(path: &Path, of: &Earlier<'_>) -> Result<Target, Failure> {
        let shown = path.display().to_string();
        let fail = |why: String| Failure::Failed(format!("{shown}: {why}"));
        let fresh = !crate::disk::exists(path);
        let file = if fresh {
            crate::disk::create(path, of.bytes)?
        } else {
            if is_same(path, of.source) {
                return Err(Failure::Usage(format!("{shown}: a volume is not its own copy")));
            }
            let file = crate::disk::open(path, false)?;
            check_earlier(&file, of).map_err(fail)?;
            file
        };
        let file = match file.size_bytes() {
            n if n < of.bytes && !file.is_device() => {
                file.grow(of.bytes).map_err(|e| fail(e.to_string()))?;
                file.grown(of.bytes)
            }
            n if n < of.bytes => {
                return Err(fail(format!("it has {n} bytes, and the volume {}", of.bytes)));
            }
            _ => file,
        };
        let (head, bytes) = (vec![0; HEAD_BYTES], of.bytes);
        let target = Target { file, shown, fresh, head, written: 0, bytes, given: 0 };
        let mut mark = vec![0; HEAD_BYTES];
        mark[..UNFINISHED.len()].copy_from_slice(UNFINISHED);
        target.file.write_at(0, &mark).map_err(|e| target.failed(&e))?;
        target.flush()?;
        Ok(target)
    }

    fn failed(&self, e: &std::io::Error) -> Failure {
        Failure::Failed(format!("{}: {e}; the copy is not finished", self.shown))
    }

    /// The copy is given a part: the whole of it in order at first, and then what has changed.
    fn is_given(&mut self, at: u64, len: u64) {
        let end = at + len;
        assert!(end <= self.bytes, "T3: byte {end} of a copy of {}", self.bytes);
        assert!(at <= self.given, "T2: byte {at} is given, and those from {} on not", self.given);
        self.given = self.given.max(end);
    }

    /// The copy has these bytes from byte `at` on.
    pub fn put(&mut self, at: u64, bytes: &[u8]) -> Result<(), Failure> {
        self.is_given(at, bytes.len() as u64);
        let skip = (HEAD_BYTES as u64).saturating_sub(at).min(bytes.len() as u64) as usize;
        self.head[at.min(HEAD_BYTES as u64) as usize..][..skip].copy_from_slice(&bytes[..skip]);
        for (n, piece) in bytes[skip..].chunks(HEAD_BYTES).enumerate() {
            self.put_piece(at + (skip + n * HEAD_BYTES) as u64, piece)?;
        }
        Ok(())
    }

    fn put_piece(&mut self, at: u64, piece: &[u8]) -> Result<(), Failure> {
        assert!(at >= HEAD_BYTES as u64, "T1: byte {at} is written before the copy is whole");
        let zero = piece.iter().all(|b| *b == 0);
        if zero && self.file.is_hole(at, piece.len() as u64) {
            return Ok(());
        }
        if !self.fresh || zero {
            let mut there = vec![0; piece.len()];
            self.file.read_at(at, &mut there).map_err(|e| self.failed(&e))?;
            if there == piece {
                return Ok(());
            }
        }
        self.written += piece.len() as u64;
        self.file.write_at(at, piece).map_err(|e| self.failed(&e))
    }

    /// The copy has zeros there.
    pub fn put_zeros(&mut self, at: u64, len: u64) -> Result<(), Failure> {
        self.is_given(at, len);
        let skip = (HEAD_BYTES as u64).saturating_sub(at).min(len);
        self.head[at.min(HEAD_BYTES as u64) as usize..][..skip as usize].fill(0);
        let (at, len) = (at + skip, len - skip);
        if len == 0 || self.file.is_hole(at, len) {
            return Ok(());
        }
        assert!(at >= HEAD_BYTES as u64, "T1: byte {at} is freed before the copy is whole");
        if !self.file.is_device() && self.file.punch(at, len).is_ok() {
            return Ok(());
        }
        let zeros = vec![0; HEAD_BYTES];
        (at..at + len).step_by(HEAD_BYTES).try_for_each(|from| {
            let piece = HEAD_BYTES.min((at + len - from) as usize);
            self.put_piece(from, &zeros[..piece])
        })
    }

    fn flush(&self) -> Result<(), Failure> {
        self.file.flush().map_err(|e| self.failed(&e))
    }

    /// All of it is there: it becomes a volume. Returns how much was written.
    pub fn finish(self, path: &Path) -> Result<u64, Failure> {
        let (given, bytes) = (self.given, self.bytes);
        assert_eq!(given, bytes, "T2: bytes that were given, of those that the copy has");
        self.flush()?;
        self.file.write_at(0, &self.head).map_err(|e| self.failed(&e))?;
        self.flush()?;
        if self.fresh {
            // The name too.
            let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
            let dir = std::fs::File::open(parent.unwrap_or(Path::new(".")));
            dir.and_then(|d| d.sync_all()).map_err(|e| self.failed(&e))?;
        }
        Ok(self.written + HEAD_BYTES as u64)
    }
}

#[cfg(test)]
#[test]
fn a_store_knows_the_mark_of_an_unfinished_copy() {
    assert_eq!(lfs::UNFINISHED, UNFINISHED);
}

/// Do both names lead to one file?
fn is_same(a: &Path, b: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let at = |p: &Path| std::fs::metadata(p).ok().map(|m| (m.dev(), m.ino()));
    at(a).is_some() && at(a) == at(b)
}

/// May it be written over?
fn check_earlier(file: &HostFile, of: &Earlier<'_>) -> Result<(), String> {
    if of.force {
        return Ok(());
    }
    let mut head = vec![0; (64 << 10).min(file.size_bytes()) as usize];
    file.read_at(0, &mut head).map_err(|e| e.to_string())?;
    let blank = head.iter().all(|b| *b == 0);
    if head.starts_with(UNFINISHED) || file.size_bytes() == 0 || blank && file.is_device() {
        return Ok(());
    }
    match super::identity(file) {
        Some((uuid, _)) if uuid == of.uuid => Ok(()),
        Some(_) => {
            Err("this is another volume, and no earlier copy; --force writes over it".into())
        }
        None => Err("there is something else; --force writes over it".into()),
    }
}
