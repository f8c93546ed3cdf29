//! One process at a time has a volume: a lock on the image that ends with the process, and a look
//! at whether the kernel uses the image already, as a mount or behind a loop device.
//!
//! The lock belongs to the open file (an OFD lock), not to the process: one of the process goes as
//! soon as *any* of its descriptors of the image is closed, and lets the process lock twice. An
//! image that is open twice, through the page cache and past it, has half of the lock with each:
//! a killed process's writes keep the open file that they go through, and with it the lock.
//!
//! Who is about to let go says so: the first byte of his lock is one for reading from then on, and
//! whoever wants the image waits for him (`umount` returns before a mount's volume is closed).

use crate::{backing, dead};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long the writes of a killed process may take to end (until then the kernel has its files,
/// and the lock, though the process is gone), and how long one that lets go, or only reads.
const PATIENCE: Duration = Duration::from_secs(5);
/// So long the kernel takes at most to end the mount of a killed server.
const ENDING: Duration = Duration::from_millis(500);
/// How long a process that has lost its mount may take to say that it lets go.
const GRACE: Duration = Duration::from_millis(800);

/// Is a block device there? Said before it is opened, as opening a fifo waits until somebody
/// writes into it, for ever perhaps. What is not there, or may not be seen, opening tells.
pub(crate) fn is_device(path: &Path) -> Result<bool, String> {
    let Ok(kind) = std::fs::metadata(path).map(|m| m.file_type()) else { return Ok(false) };
    if kind.is_fifo() || kind.is_socket() || kind.is_char_device() {
        return Err(format!("{}: neither a file nor a block device", path.display()));
    }
    Ok(kind.is_block_device())
}

/// Takes the lock of what neither another process nor the kernel uses, or says who does. A mount is
/// named rather than its server: it is what can be ended from outside.
pub(crate) fn take_unused(file: &File, path: &Path, exclusive: bool) -> Result<(), String> {
    if let Err(why) = take(file, path, exclusive) {
        let device = file.metadata().ok().filter(|m| m.file_type().is_block_device());
        let mount = device.and_then(|m| dead::mounts_of(m.rdev()).into_iter().next());
        return Err(mount.map_or(why, |m| mounted_at(path, &m)));
    }
    check_unused(file, path, exclusive)
}

/// Takes the lock, or says who has the volume. The lock of a process that is gone is waited for: so
/// nothing is read before its last writes have come to their end.
pub(crate) fn take(file: &File, path: &Path, exclusive: bool) -> Result<(), String> {
    let shown = path.display();
    let start = Instant::now();
    while let Err(why) = try_take(file, exclusive) {
        if !matches!(why.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) {
            return Err(format!("{shown}: cannot be locked against other processes: {why}"));
        }
        let waited = start.elapsed();
        if waited > PATIENCE || waited > GRACE && !may_issue(file) {
            match holder(file) {
                Some(pid) => return Err(in_use(&shown.to_string(), pid)),
                None if waited > PATIENCE => {
                    return Err(format!("{shown}: in use by another process: end it first"));
                }
                None => (),
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Who has it, by number and name.
fn in_use(shown: &str, pid: u32) -> String {
    if pid == std::process::id() {
        return format!("{shown}: named twice: one file cannot be two of what was asked for");
    }
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    match name.trim_end() {
        "" => format!("{shown}: in use by process {pid}: end it first"),
        name => format!("{shown}: in use by process {pid} ({name}): end it first"),
    }
}

/// From now on whoever wants the image waits for this process to let go. It is a courtesy: where
/// it fails, he is refused as before.
pub(crate) fn let_go_soon(file: &File) {
    let _ = lock_bytes(file, libc::F_RDLCK, (0, 1));
}

/// Will whoever has the lock soon let go?
fn may_issue(file: &File) -> bool {
    let mut wanted = record(libc::F_WRLCK, (0, 1));
    // SAFETY: the structure lives through the call.
    #[expect(unsafe_code, reason = "std has no record locks")]
    let rc = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut wanted) };
    rc == 0 && wanted.l_type != libc::F_WRLCK as i16
}

/// Has somebody the lock, or a part of it?
pub(crate) fn is_taken(file: &File) -> bool {
    let mut wanted = record(libc::F_WRLCK, (0, 0));
    // SAFETY: the structure lives through the call.
    #[expect(unsafe_code, reason = "std has no record locks")]
    let rc = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut wanted) };
    rc == 0 && wanted.l_type != libc::F_UNLCK as i16
}

fn try_take(file: &File, exclusive: bool) -> std::io::Result<()> {
    lock(file, if exclusive { libc::F_WRLCK } else { libc::F_RDLCK }, 0)
}

/// Where the second half of a lock begins.
const HALF: i64 = 1 << 62;

/// Moves half of an exclusive lock to the same file, opened once more. Meanwhile nobody can take
/// it: he would need both halves.
pub(crate) fn share(file: &File, again: &File) -> std::io::Result<()> {
    lock(file, libc::F_UNLCK, HALF)?;
    lock(again, libc::F_WRLCK, HALF)
}

/// Moves the first half of a lock that was shared to the same file, opened once more.
pub(crate) fn pass_on(file: &File, again: &File) -> std::io::Result<()> {
    lock_bytes(file, libc::F_UNLCK, (0, HALF))?;
    let passed = lock_bytes(again, libc::F_WRLCK, (0, HALF));
    if passed.is_err() {
        lock_bytes(file, libc::F_WRLCK, (0, HALF))?;
    }
    passed
}

/// Sets the lock of the bytes from `start` on.
fn lock(file: &File, kind: libc::c_int, start: i64) -> std::io::Result<()> {
    lock_bytes(file, kind, (start, 0))
}

/// Sets the lock of some bytes: the first, and how many, 0 for all behind it.
fn lock_bytes(file: &File, kind: libc::c_int, bytes: (i64, i64)) -> std::io::Result<()> {
    let mut lock = record(kind, bytes);
    // SAFETY: the structure lives through the call.
    #[expect(unsafe_code, reason = "std has no record locks")]
    let rc = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw mut lock) };
    if rc == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

fn record(kind: libc::c_int, (start, len): (i64, i64)) -> libc::flock {
    libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: start,
        l_len: len,
        l_pid: 0,
    }
}

/// The process that has the lock, as far as this one may know: /proc tells of each descriptor the
/// locks that were taken through it.
pub(crate) fn holder(file: &File) -> Option<u32> {
    let wanted = file.metadata().ok()?;
    let number = |e: std::fs::DirEntry| e.file_name().to_str()?.parse::<u32>().ok();
    for pid in std::fs::read_dir("/proc").ok()?.flatten().filter_map(number) {
        let Ok(descriptors) = std::fs::read_dir(format!("/proc/{pid}/fdinfo")) else { continue };
        for fd in descriptors.flatten().filter_map(number) {
            let info = std::fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}"));
            let locks = info.is_ok_and(|i| i.lines().any(|l| l.starts_with("lock:")));
            let same = || std::fs::metadata(format!("/proc/{pid}/fd/{fd}"));
            let same = || same().is_ok_and(|m| (m.dev(), m.ino()) == (wanted.dev(), wanted.ino()));
            if locks && same() {
                return Some(pid);
            }
        }
    }
    None
}

fn mounted_at(path: &Path, mount: &dead::Mount) -> String {
    let (shown, at) = (path.display(), mount.dir.display());
    format!("{shown}: in use, mounted at {at}: unmount it first")
}

/// A mount of the device that is not dead. A server that was killed has let its lock go some
/// milliseconds before the kernel ends its mount: that is waited for.
fn alive_on(device: u64) -> Option<dead::Mount> {
    let start = Instant::now();
    loop {
        let alive = dead::mounts_of(device).into_iter().find(|m| !m.is_dead(device))?;
        if !alive.is_ours || start.elapsed() > ENDING {
            return Some(alive);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Refuses an image that the kernel has mounted or made a loop device of. A mount of ours without a
/// server is none: whoever asks has the lock, so no server is there.
fn check_unused(file: &File, path: &Path, exclusive: bool) -> Result<(), String> {
    let shown = path.display();
    let meta = file.metadata().map_err(|e| format!("{shown}: {e}"))?;
    if meta.file_type().is_block_device() {
        let device = meta.rdev();
        alive_on(device).map_or(Ok(()), |m| Err(mounted_at(path, &m)))?;
        return backing::check_unused(device, path, exclusive);
    }
    for dev in std::fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let backing = dev.path().join("loop/backing_file");
        let Ok(text) = std::fs::read_to_string(&backing) else { continue };
        let same = std::fs::metadata(text.trim_end())
            .is_ok_and(|m| m.dev() == meta.dev() && m.ino() == meta.ino());
        if same {
            let name = dev.file_name();
            let name = name.to_string_lossy();
            return Err(format!(
                "{shown}: in use by /dev/{name}: unmount it and losetup -d it first"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Duration, GRACE};
    use crate::HostFile;
    use crate::file::beside_the_build;

    /// What a killed process leaves behind: no descriptor, but a write past the page cache.
    #[test]
    fn a_write_past_the_page_cache_keeps_the_lock() {
        let path = beside_the_build("lock");
        let mut f = HostFile::create(&path, 1 << 20).expect("the build's folder may be written");
        let in_flight = f.direct.take();
        drop(f);
        if in_flight.is_some() {
            let why = HostFile::open(&path, false).expect_err("a write is in flight");
            assert!(why.contains("named twice"), "by this process itself: {why}");
        }
        drop(in_flight);
        HostFile::open(&path, false).expect("nobody has it any more");
        std::fs::remove_file(&path).expect("it was made");
    }

    /// What `umount` leaves: a process that still writes, and says that it lets go.
    #[test]
    fn who_lets_go_is_waited_for() {
        let path = beside_the_build("lock-let-go");
        let f = HostFile::create(&path, 1 << 20).expect("the build's folder may be written");
        f.let_go_soon();
        let later = std::thread::spawn(move || {
            std::thread::sleep(GRACE + Duration::from_millis(300));
            drop(f);
        });
        HostFile::open(&path, false).expect("it is waited for");
        later.join().expect("it only sleeps");
        std::fs::remove_file(&path).expect("it was made");
    }
}
