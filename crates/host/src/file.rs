//! A disk that is a file or a block device. FLUSH is fdatasync, FUA is RWF_DSYNC. Requests go
//! through the host's page cache or past it: `way` chooses.
//!
//! Invariants:
//! * D1. Nothing is read or written beside the disk: in the file another one may lie behind it.

use crate::bucket::{HostBucket, Url};
use crate::changes::{Changes, Writing};
use crate::claim::{Claim, in_use, open_claimed, opened_again};
use crate::lock;
use crate::own_links::past_own_links;
use crate::way::{ALIGN_BYTES, open_direct};
use env::{
    Block, DiskError, DiskErrorKind, Durability, IoDone, IoOp, IoRequest, ReadNow, SECTOR_BYTES,
};
use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// An opened image or device.
#[derive(Debug)]
pub struct HostFile {
    pub(crate) file: File,
    path: PathBuf,
    /// Where the disk begins in the file: not at 0 if it is a partition.
    pub(crate) begins: u64,
    size_bytes: u64,
    read_only: bool,
    /// Of a file system in memory, where no read waits for a device.
    pub(crate) in_memory: bool,
    /// The same once more, opened with O_DIRECT; None where that cannot be done with whole pages
    /// in memory aligned as blocks are.
    pub(crate) direct: Option<File>,
    /// Writes with FUA go past the page cache.
    pub(crate) fua_past_cache: OnceLock<()>,
    /// All writes and long reads go past the page cache.
    pub(crate) all_past_cache: OnceLock<()>,
    /// The host has refused to be told of zeros.
    pub(crate) refuses_zeros: AtomicBool,
    /// Of a device, not of a file.
    pub(crate) is_device: bool,
    /// Who writes, and whoever wants to know where.
    pub(crate) writing: Writing,
    /// It is a bucket, and the file is nothing.
    pub(crate) bucket: Option<Arc<HostBucket>>,
    /// The snapshot that is meant, of the volume on it.
    pub(crate) snapshot: Option<String>,
    /// Who has the device's claim.
    pub(crate) claim: Mutex<Claim>,
    /// It was said that this process will soon let go of it.
    pub(crate) may_issue: AtomicBool,
}

/// The largest read that is tried at once: beyond it the copying itself is worth another thread.
const AT_ONCE_BYTES: usize = 64 << 10;

impl HostFile {
    /// Opens an image or device and makes sure that nobody else uses it. Errors are for the user.
    pub fn open(path: &Path, read_only: bool) -> Result<HostFile, String> {
        if let Some(url) = Url::of(path)? {
            return Self::of_bucket(HostBucket::open(&url)?, path, read_only);
        }
        let shown = path.display();
        let is_device = lock::is_device(path)?;
        let mut options = OpenOptions::new();
        options.read(true).write(!read_only);
        let open = |flags| options.clone().custom_flags(flags).open(path);
        let why_not = |e: std::io::Error| match e.raw_os_error() {
            Some(libc::EBUSY) => in_use(path),
            Some(libc::ENOENT) => {
                format!("{shown}: No such file or directory: check the path")
            }
            Some(libc::EACCES | libc::EPERM) if read_only => {
                format!("{shown}: you may not read it: {e}")
            }
            Some(libc::EACCES | libc::EPERM) => {
                format!("{shown}: you may not write it (mounts and servers: --read-only): {e}")
            }
            Some(libc::EROFS) => format!(
                "{shown}: it lies on a read-only file system, and would be written (mounts and \
                 servers: --read-only)"
            ),
            _ => format!("{shown}: {e}"),
        };
        let claims = is_device && !read_only;
        let (file, claim) = match open(if claims { libc::O_EXCL } else { 0 }) {
            Ok(file) => {
                lock::take_unused(&file, path, !read_only)?;
                (file, if claims { Claim::File } else { Claim::Nobody })
            }
            Err(e) if claims && e.raw_os_error() == Some(libc::EBUSY) => open_claimed(path, open)?,
            Err(e) => return Err(why_not(e)),
        };
        let opened = Self::with(file, path, read_only)?;
        Ok(HostFile { claim: claim.into(), ..opened })
    }

    /// As `open`, for reading, beside whoever has it and may write: without a lock. What is read
    /// with [`HostFile::read_past_cache`] does him no harm.
    pub fn open_beside(path: &Path) -> Result<HostFile, String> {
        lock::is_device(path)?;
        let file = File::open(path).map_err(|e| format!("{}: {e}", path.display()))?;
        Self::with(file, path, true)
    }

    /// As `open`, for what is named beside an image, as its log: a symbolic link at the path's end
    /// is followed only if it is this user's own or root's. Whoever may write in a folder with a
    /// log could else say what file is written.
    pub fn open_log(path: &Path, read_only: bool) -> Result<HostFile, String> {
        HostFile::open(&past_own_links(path)?, read_only)
    }

    /// A bucket in a disk's place: it has no bytes of its own, only objects.
    fn of_bucket(bucket: HostBucket, path: &Path, read_only: bool) -> Result<HostFile, String> {
        let nothing = File::open("/dev/null").map_err(|e| format!("/dev/null: {e}"))?;
        Ok(HostFile {
            file: nothing,
            path: path.to_owned(),
            begins: 0,
            size_bytes: env::BUCKET_BYTES,
            read_only,
            in_memory: false,
            direct: None,
            fua_past_cache: OnceLock::new(),
            all_past_cache: OnceLock::new(),
            refuses_zeros: AtomicBool::new(false),
            is_device: false,
            writing: Writing::default(),
            bucket: Some(Arc::new(bucket)),
            snapshot: None,
            claim: Mutex::new(Claim::Nobody),
            may_issue: AtomicBool::new(false),
        })
    }

    /// A snapshot of the volume on it is meant, called `path`.
    pub fn at_snapshot(self, snapshot: &str, path: &Path) -> HostFile {
        HostFile { snapshot: Some(snapshot.to_owned()), path: path.to_owned(), ..self }
    }

    /// The snapshot that is meant; None: the volume as it is.
    pub fn snapshot(&self) -> Option<String> {
        self.snapshot.clone()
    }

    /// Is it a bucket?
    pub fn is_bucket(&self) -> bool {
        self.bucket.is_some()
    }

    /// Makes a new, sparse image. It fails if there is one.
    pub fn create(path: &Path, size_bytes: u64) -> Result<HostFile, String> {
        let shown = path.display();
        let new = OpenOptions::new().read(true).write(true).create_new(true).open(path);
        let file = new.map_err(|e| match (e.raw_os_error(), path.parent()) {
            (Some(libc::ENOENT), Some(dir)) => {
                format!("{shown}: there is no directory {}", dir.display())
            }
            _ => format!("{shown}: {e}"),
        })?;
        // One that comes to nothing does not stay.
        Self::filled(file, path, size_bytes).inspect_err(|_| drop(std::fs::remove_file(path)))
    }

    /// A file that was just made, of this length from now on.
    fn filled(file: File, path: &Path, size_bytes: u64) -> Result<HostFile, String> {
        let shown = path.display();
        lock::take(&file, path, true)?;
        file.set_len(size_bytes).map_err(|e| match e.raw_os_error() {
            Some(libc::EFBIG | libc::EINVAL) => {
                let gib = size_bytes >> 30;
                format!("{shown}: the file system that it lies on has no files of {gib} GiB")
            }
            _ => format!("{shown}: {e}"),
        })?;
        let made = Self::with(file, path, false)?;
        if made.size_bytes() != size_bytes {
            return Err(format!("{shown}: another program has changed its length meanwhile"));
        }
        Ok(made)
    }

    /// Only a part of it, as a partition is: a disk of `bytes` bytes that begins at byte `begins`,
    /// called `name`. It stays locked as a whole.
    pub fn part(self, begins: u64, bytes: u64, name: &Path) -> Result<HostFile, String> {
        assert_eq!(self.begins, 0, "D1: a part of {}, which is a part", self.path.display());
        let end = begins.checked_add(bytes).filter(|end| *end <= self.size_bytes);
        if end.is_none() || bytes == 0 || !begins.is_multiple_of(SECTOR_BYTES as u64) {
            let (shown, whole) = (name.display(), self.size_bytes);
            return Err(format!(
                "{shown}: it is said to have {bytes} bytes from byte {begins} on, of {whole}: the \
                 image is cut short, or its partition table damaged"
            ));
        }
        // Past the page cache blocks must lie in the file as in the disk.
        let direct = self.direct.filter(|_| begins.is_multiple_of(ALIGN_BYTES as u64));
        Ok(HostFile { begins, size_bytes: bytes, path: name.to_owned(), direct, ..self })
    }

    /// Says that this process will soon let go of it: who wants it waits, and is not refused.
    pub fn let_go_soon(&self) {
        if self.bucket.is_none() {
            self.may_issue.store(true, Ordering::Relaxed);
            lock::let_go_soon(&self.file);
        }
    }

    fn with(file: File, path: &Path, read_only: bool) -> Result<HostFile, String> {
        let shown = path.display();
        let kind = file.metadata().map_err(|e| format!("{shown}: {e}"))?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(format!("{shown}: neither a file nor a block device"));
        }
        use std::io::{Seek, SeekFrom};
        let size = (&file).seek(SeekFrom::End(0)).map_err(|e| format!("{shown}: {e}"))?;
        let path = path.to_owned();
        let in_memory = kind.is_file() && file_system(&file) == Some(libc::TMPFS_MAGIC);
        let direct = if in_memory { None } else { open_direct(&file, read_only) };
        if let (Some(direct), false) = (&direct, read_only) {
            lock::share(&file, direct).map_err(|e| format!("{shown}: cannot be locked: {e}"))?;
        }
        let is_device = kind.is_block_device();
        Ok(HostFile {
            file,
            path,
            begins: 0,
            size_bytes: size,
            read_only,
            in_memory,
            direct,
            fua_past_cache: OnceLock::new(),
            all_past_cache: OnceLock::new(),
            refuses_zeros: AtomicBool::new(false),
            is_device,
            writing: Writing::default(),
            bucket: None,
            snapshot: None,
            claim: Mutex::new(Claim::Nobody),
            may_issue: AtomicBool::new(false),
        })
    }

    /// Its size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }
    /// Is it a device, and no file?
    pub fn is_device(&self) -> bool {
        self.is_device
    }
    /// Makes a file so long, where it is shorter: see [`HostFile::grown`].
    pub fn grow(&self, bytes: u64) -> std::io::Result<()> {
        self.file.set_len(self.begins + self.size_bytes.max(bytes))
    }
    /// The same file, after it was made at least so long.
    pub fn grown(self, bytes: u64) -> HostFile {
        HostFile { size_bytes: self.size_bytes.max(bytes), ..self }
    }
    /// Cuts a file to so many bytes, where it is longer.
    pub fn cut(&self, bytes: u64) -> std::io::Result<()> {
        if self.is_device || self.size_bytes <= bytes { Ok(()) } else { self.file.set_len(bytes) }
    }
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
    /// Was it opened for reading only?
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }
    /// Carries out a small read if the kernel has the bytes in memory; else nothing has happened
    /// that counts, and a ring must carry it out.
    pub(crate) fn read_at_once(&self, request: &mut IoRequest) -> bool {
        let small = request.blocks.iter().map(Block::len).sum::<usize>() <= AT_ONCE_BYTES;
        if request.op != IoOp::Read || !small {
            return false;
        }
        let at = self.begins + request.at;
        let vecs = iovecs(&IoOp::Read, &mut request.blocks);
        let (fd, flags) =
            (self.file.as_raw_fd(), if self.in_memory { 0 } else { libc::RWF_NOWAIT });
        // SAFETY: the vectors point into the request's blocks, which nobody else holds and which
        // live through the call.
        #[expect(unsafe_code, reason = "std has no preadv2")]
        let n = unsafe { libc::preadv2(fd, vecs.as_ptr(), vecs.len() as i32, at as i64, flags) };
        usize::try_from(n).is_ok_and(|n| n == vecs.iter().map(|v| v.iov_len).sum::<usize>())
    }
    /// What the host knows it by, under whatever path: its device and its number there, or a
    /// device's own number.
    pub fn number(&self) -> std::io::Result<(u64, u64)> {
        let meta = self.file.metadata()?;
        Ok(if self.is_device { (meta.rdev(), 0) } else { (meta.dev(), meta.ino()) })
    }
    /// Its descriptor, for the rings.
    pub(crate) fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
    /// A volume's request lies within the disk: whoever asks for more is told so above.
    pub(crate) fn check_inside(&self, op: &IoOp, at: u64, len: u64) {
        let (inside, size) = (self.has(at, len), self.size_bytes);
        assert!(inside, "D1: {op:?} of {len} bytes at {at} of a disk of {size}");
    }

    /// Has it these bytes?
    fn has(&self, at: u64, len: u64) -> bool {
        at.checked_add(len).is_some_and(|end| end <= self.size_bytes)
    }

    /// Where they lie in the file. Errors: the disk has not all of them.
    fn inside(&self, at: u64, len: usize) -> std::io::Result<u64> {
        match self.has(at, len as u64) {
            true => Ok(self.begins + at),
            false => {
                let size = self.size_bytes;
                let why = format!("{len} bytes at {at} of a disk of {size}");
                Err(std::io::Error::new(std::io::ErrorKind::UnexpectedEof, why))
            }
        }
    }

    /// Reads all of `into` from byte `at` on.
    pub fn read_at(&self, at: u64, into: &mut [u8]) -> std::io::Result<()> {
        self.file.read_exact_at(into, self.inside(at, into.len())?)
    }
    /// The same past the page cache, where that can be done, and then leaving nothing there: pages
    /// that are read beside a process that writes past them would make its writes fail (W3).
    pub fn read_past_cache(&self, at: u64, into: &mut Block) -> std::io::Result<()> {
        let whole = into.len().is_multiple_of(SECTOR_BYTES);
        let from = self.inside(at, into.len())?;
        match self.direct.as_ref().filter(|_| whole) {
            Some(direct) => match direct.read_exact_at(into.bytes_mut(), from) {
                Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                    self.read_at(at, into.bytes_mut())
                }
                done => done,
            },
            None => self.read_at(at, into.bytes_mut()),
        }
    }
    /// From now on notes where it is written, as long as what is returned lives; one at a time.
    pub fn watch(&self) -> Arc<Changes> {
        self.writing.watch(self.size_bytes)
    }
    /// How many writes are under way.
    pub fn writes_under_way(&self) -> u64 {
        self.writing.under_way()
    }
    /// Frees a range, which is all zeros then. Errors: it cannot be done here.
    pub fn punch(&self, at: u64, len: u64) -> std::io::Result<()> {
        self.discard(at, len)
    }
    /// Writes all of `bytes` from byte `at` on.
    pub fn write_at(&self, at: u64, bytes: &[u8]) -> std::io::Result<()> {
        self.file.write_all_at(bytes, self.inside(at, bytes.len())?)
    }
    /// Makes what was written durable.
    pub fn flush(&self) -> std::io::Result<()> {
        self.file.sync_data()
    }
    /// Is the range a hole of a sparse file?
    pub fn is_hole(&self, at: u64, len: u64) -> bool {
        is_hole(&self.file, self.begins + at, len)
    }

    /// Carries a request out, waiting for it.
    pub fn carry_out(&self, request: IoRequest) -> IoDone {
        if let Some(bucket) = &self.bucket {
            return bucket.carry_out(request);
        }
        let _writing = self.writing.at(&request);
        let IoRequest { id, op, at, mut blocks, .. } = request;
        self.check_inside(&op, at, len_of(&op, &blocks));
        let result = match op {
            IoOp::Read => self.read_blocks(at, &mut blocks),
            IoOp::ReadFresh => self.read_blocks_fresh(at, &mut blocks),
            IoOp::Write(how) => self.write_blocks(at, &blocks, how),
            IoOp::Flush => self.flush(),
            IoOp::Discard { len } => self.discard(at, len),
            IoOp::Lend | IoOp::Object => Ok(()),
        };
        let result = result.map_err(|e| disk_error(&op, at, &e));
        let lent = (op == IoOp::Lend).then(|| self.lent()).transpose();
        match lent {
            Ok(lent) => {
                let lent =
                    lent.map(|file| Arc::new(LentFile(file, self.begins)) as Arc<dyn ReadNow>);
                IoDone { lent, ..IoDone::of_disk(id, blocks, result) }
            }
            Err(e) => IoDone::of_disk(id, blocks, Err(disk_error(&op, at, &e))),
        }
    }

    /// For who reads without waiting. A device's claim is not to be his too: he may keep it when it
    /// is handed over.
    fn lent(&self) -> std::io::Result<File> {
        match self.is_device {
            true => opened_again(&self.file, OpenOptions::new().read(true))
                .or_else(|_| self.file.try_clone()),
            false => self.file.try_clone(),
        }
    }

    fn read_blocks(&self, at: u64, blocks: &mut [Block]) -> std::io::Result<()> {
        let mut at = at;
        for b in blocks {
            self.read_at(at, b.bytes_mut())?;
            at += b.len() as u64;
        }
        Ok(())
    }

    fn read_blocks_fresh(&self, at: u64, blocks: &mut [Block]) -> std::io::Result<()> {
        let mut at = at;
        for b in blocks {
            self.read_past_cache(at, b)?;
            at += b.len() as u64;
        }
        Ok(())
    }

    fn write_blocks(&self, at: u64, blocks: &[Block], how: Durability) -> std::io::Result<()> {
        let len = blocks.iter().map(Block::len).sum();
        let past = self.past_cache(&IoOp::Write(how), at, len);
        match write_vectored(past.unwrap_or(&self.file), self.begins + at, blocks) {
            Ok(n) if n == len => (),
            Err(e) if e.raw_os_error() != Some(libc::EINVAL) => return Err(e),
            // Cut short, or not to be had past the page cache.
            _ => {
                self.write_each(at, blocks)?;
                if past.is_some() {
                    self.flush()?; // what others do past the page cache must find nothing there
                }
            }
        }
        if how == Durability::Fua { self.flush() } else { Ok(()) }
    }

    fn write_each(&self, at: u64, blocks: &[Block]) -> std::io::Result<()> {
        let mut at = at;
        for b in blocks {
            self.write_at(at, b.bytes())?;
            at += b.len() as u64;
        }
        Ok(())
    }

    fn discard(&self, at: u64, len: u64) -> std::io::Result<()> {
        let at = self.begins + at;
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: fallocate takes numbers only; the descriptor is ours.
        #[expect(unsafe_code, reason = "std has no fallocate")]
        let free =
            || unsafe { libc::fallocate(self.file.as_raw_fd(), mode, at as i64, len as i64) };
        uninterrupted(|| match free() {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        })
    }
}

fn is_hole(file: &File, at: u64, len: u64) -> bool {
    // SAFETY: lseek takes numbers only; the descriptor is ours.
    #[expect(unsafe_code, reason = "std has no SEEK_DATA")]
    let data = unsafe { libc::lseek(file.as_raw_fd(), at as i64, libc::SEEK_DATA) };
    match data {
        -1 => std::io::Error::last_os_error().raw_os_error() == Some(libc::ENXIO),
        d => d as u64 >= at + len,
    }
}

/// The file once more, and where the disk begins in it, for who reads it without waiting.
#[derive(Debug)]
struct LentFile(File, u64);

impl ReadNow for LentFile {
    fn read_now(&self, at: u64, into: &mut [u8]) -> Result<(), DiskError> {
        self.0.read_exact_at(into, self.1 + at).map_err(|e| disk_error(&IoOp::Read, at, &e))
    }
    fn known_zero(&self, at: u64, len: u64) -> bool {
        is_hole(&self.0, self.1 + at, len)
    }
}

fn write_vectored(to: &File, at: u64, blocks: &[Block]) -> std::io::Result<usize> {
    let vecs: Vec<_> = blocks.iter().map(|b| iovec_of(b.bytes())).collect();
    let n = vecs.len().min(libc::UIO_MAXIOV as usize) as i32;
    // SAFETY: the vectors point into the blocks, which live through the call.
    #[expect(unsafe_code, reason = "std has no pwritev")]
    let write = || unsafe { libc::pwritev(to.as_raw_fd(), vecs.as_ptr(), n, at as i64) };
    uninterrupted(|| usize::try_from(write()).map_err(|_| std::io::Error::last_os_error()))
}

/// Makes a call again that a signal interrupted before it did anything, as std does: a write that
/// fails is taken for a broken disk.
fn uninterrupted<T>(mut call: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    loop {
        match call() {
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => (),
            done => return done,
        }
    }
}

/// The kind of file system that the file lies in, by its number.
pub(crate) fn file_system(file: &File) -> Option<i64> {
    // SAFETY: the buffer is plain memory, filled by the call.
    #[expect(unsafe_code, reason = "std has no fstatfs")]
    unsafe {
        let mut about: libc::statfs = std::mem::zeroed();
        // The number has another sign in musl's library.
        (libc::fstatfs(file.as_raw_fd(), &raw mut about) == 0).then_some(about.f_type as _)
    }
}

/// A failed request, as the core has it.
pub(crate) fn disk_error(op: &IoOp, at: u64, e: &std::io::Error) -> DiskError {
    let kind = match e.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => DiskErrorKind::NoSpace,
        Some(libc::EROFS | libc::EBADF) => DiskErrorKind::ReadOnly,
        Some(libc::EOPNOTSUPP | libc::ENOSYS) => DiskErrorKind::Unsupported,
        _ => DiskErrorKind::Io,
    };
    let during = match op {
        IoOp::Read | IoOp::ReadFresh => "read",
        IoOp::Write(_) => "write",
        IoOp::Flush => "flush",
        IoOp::Discard { .. } => "discard",
        IoOp::Lend => "lend",
        IoOp::Object => "ask",
    };
    DiskError { kind, during, at, detail: e.to_string() }
}

/// How much of the disk a request is about.
pub(crate) fn len_of(op: &IoOp, blocks: &[Block]) -> u64 {
    match op {
        IoOp::Discard { len } => *len,
        _ => blocks.iter().map(|b| b.len() as u64).sum(),
    }
}

/// The memory of a request as the kernel wants it.
pub(crate) fn iovecs(op: &IoOp, blocks: &mut [Block]) -> Vec<libc::iovec> {
    match op {
        // Memory to read into is the request's own: it is asked for as such, once.
        IoOp::Read | IoOp::ReadFresh => {
            blocks.iter_mut().map(|b| iovec_of(b.bytes_mut())).collect()
        }
        _ => blocks.iter().map(|b| iovec_of(b.bytes())).collect(),
    }
}

pub(crate) fn iovec_of(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

/// For tests: a path on the disk where the build is, which is no file system in memory as the
/// folder for temporary files may be.
#[cfg(test)]
pub(crate) fn beside_the_build(name: &str) -> PathBuf {
    let me = std::env::current_exe().expect("the test is a program");
    me.with_file_name(format!("{name}-{}", std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_ends_where_it_ends() {
        let path = beside_the_build("part");
        let whole = HostFile::create(&path, 1 << 20).expect("the build's folder may be written");
        std::fs::remove_file(&path).expect("it was made");
        let part = whole.part(4096, 8192, Path::new("p")).expect("it has these bytes");
        part.write_at(0, &[7; 8192]).expect("all of it");
        for (at, len) in [(8192, 1), (4096, 4097), (u64::MAX, 2), (u64::MAX - 4096, 512)] {
            let kind = std::io::ErrorKind::UnexpectedEof;
            let mut bytes = vec![0; len];
            let write = part.write_at(at, &bytes).map_err(|e| e.kind());
            let read = part.read_at(at, &mut bytes).map_err(|e| e.kind());
            assert_eq!((write, read), (Err(kind), Err(kind)), "D1: {len} bytes at {at}");
        }
    }

    #[test]
    fn what_a_signal_interrupts_is_done_again() {
        let mut results = [libc::EINTR, libc::EINTR, 0, libc::EIO].into_iter();
        let mut call = || match results.next() {
            Some(0) => Ok(7),
            errno => Err(std::io::Error::from_raw_os_error(errno.unwrap_or(libc::EBADF))),
        };
        assert_eq!(uninterrupted(&mut call).ok(), Some(7));
        let failed = uninterrupted(&mut call).map_err(|e| e.raw_os_error());
        assert_eq!(failed, Err(Some(libc::EIO)), "what else fails has failed");
    }
}
