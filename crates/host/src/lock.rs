//! One process at a time has a volume: a lock on the image that ends with the process, and a look
//! at whether the kernel uses the image already, as a mount or behind a loop device.
//!
//! The lock belongs to the open file (an OFD lock), not to the process: one of the process goes as
//! soon as *any* of its descriptors of the image is closed, and lets the process lock twice.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long the writes of a killed process may take to end: until then the kernel has its files,
/// and the lock, though the process is gone.
const PATIENCE: Duration = Duration::from_secs(5);

/// Takes the lock, or says who has the volume. The lock of a process that is gone is waited for: so
/// nothing is read before its last writes have come to their end.
pub(crate) fn take(file: &File, path: &Path, exclusive: bool) -> Result<(), String> {
    let shown = path.display();
    let start = Instant::now();
    while let Err(why) = try_take(file, exclusive) {
        if !matches!(why.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) {
            return Err(format!("{shown}: cannot be locked against other processes: {why}"));
        }
        if let Some(pid) = holder(file) {
            return Err(format!("{shown}: in use by process {pid}: end it first"));
        }
        if start.elapsed() > PATIENCE {
            return Err(format!("{shown}: in use by another process: end it first"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn try_take(file: &File, exclusive: bool) -> std::io::Result<()> {
    let mut lock = whole_file(if exclusive { libc::F_WRLCK } else { libc::F_RDLCK });
    // SAFETY: the structure lives through the call.
    #[expect(unsafe_code, reason = "std has no record locks")]
    let rc = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw mut lock) };
    if rc == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// The process that has the lock, as far as this one may know: /proc tells of each descriptor the
/// locks that were taken through it.
fn holder(file: &File) -> Option<u32> {
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

fn whole_file(kind: libc::c_int) -> libc::flock {
    libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

/// Refuses an image that the kernel has mounted or made a loop device of.
pub(crate) fn check_unused(file: &File, path: &Path) -> Result<(), String> {
    let shown = path.display();
    let meta = file.metadata().map_err(|e| format!("{shown}: {e}"))?;
    if meta.file_type().is_block_device() {
        let device = meta.rdev();
        let name = format!("{}:{}", libc::major(device), libc::minor(device));
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        if let Some(line) = mounts.lines().find(|l| l.split(' ').nth(2) == Some(&name)) {
            let at = line.split(' ').nth(4).unwrap_or("?");
            return Err(format!("{shown}: in use, mounted at {at}: unmount it first"));
        }
        return Ok(());
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
