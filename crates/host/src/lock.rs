//! One process at a time has a volume: a lock on the image that ends with the process, and a look
//! at whether the kernel uses the image already, as a mount or behind a loop device.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// Takes the lock, or says who has the volume.
pub(crate) fn take(file: &File, path: &Path, exclusive: bool) -> Result<(), String> {
    let shown = path.display();
    let mut lock = whole_file(if exclusive { libc::F_WRLCK } else { libc::F_RDLCK });
    // SAFETY: the structure lives through the call.
    #[expect(unsafe_code, reason = "std has no record locks")]
    let rc = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw mut lock) };
    if rc == 0 {
        return Ok(());
    }
    let mut who = whole_file(libc::F_WRLCK);
    // SAFETY: as above; the call fills in who holds the lock.
    #[expect(unsafe_code, reason = "std has no record locks")]
    let rc = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &raw mut who) };
    let by = if rc == 0 && who.l_type != libc::F_UNLCK as i16 {
        format!("process {}", who.l_pid)
    } else {
        "another process".to_owned()
    };
    Err(format!("{shown}: in use by {by}"))
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
