//! Unmounting. Of a mount of a device the kernel tells its server (DESTROY), and waits for the
//! answer: no signal ends that, only the answer or the end of the server.

use crate::mountinfo::Entry;
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread::JoinHandle;

/// Unmounts; if it is busy, lazily: new users are kept off, and present ones end first. True if it
/// was busy.
pub(crate) fn unmount(dir: &Path) -> io::Result<bool> {
    if !crate::mount::is_root() {
        if fusermount("-u", dir)?.status.success() {
            return Ok(false);
        }
        fusermount("-uz", dir)?;
        return Ok(true);
    }
    ended(start(dir)?)
}

/// Takes away the mount of a volume that another process serves; `lazy`: its name only, if somebody
/// uses it. Returns what is mounted there. Errors are for the user.
pub fn unmount_volume(dir: &Path, lazy: bool) -> Result<PathBuf, String> {
    let shown = dir.display();
    let ours = Entry::at(dir).map_err(|e| format!("{shown}: {e}"))?.filter(Entry::is_ours);
    let Some(ours) = ours else { return Err(format!("{shown}: no volume is mounted there")) };
    let done = if crate::mount::is_root() {
        CString::new(dir.as_os_str().as_bytes())
            .map_err(io::Error::from)
            .and_then(|at| umount2(&at, if lazy { libc::MNT_DETACH } else { 0 }))
    } else {
        by_fusermount(dir, if lazy { "-uz" } else { "-u" })
    };
    done.map(|()| ours.source).map_err(|e| match e.raw_os_error() {
        Some(libc::EBUSY) => format!("{shown}: somebody uses it (fuser -m {shown} says who)"),
        _ => format!("cannot unmount {shown}: {e}"),
    })
}

fn by_fusermount(dir: &Path, how: &str) -> io::Result<()> {
    let run = fusermount(how, dir)?;
    let why = || String::from_utf8_lossy(&run.stderr).trim().to_owned();
    if run.status.success() { Ok(()) } else { Err(io::Error::other(why())) }
}

fn fusermount(how: &str, dir: &Path) -> io::Result<Output> {
    Command::new("fusermount3").arg(how).arg("--").arg(dir).output()
}

/// The same where nobody is there to answer: it has happened when this process has ended.
pub(crate) fn unmount_at_the_end(dir: &Path) {
    if !crate::mount::is_root() {
        let _ = unmount(dir);
    } else if let Err(e) = start(dir) {
        tracing::warn!("{}: it stays mounted: {e}", dir.display());
    }
}

/// Begins to unmount.
fn start(dir: &Path) -> io::Result<JoinHandle<io::Result<bool>>> {
    let target = CString::new(dir.as_os_str().as_bytes())?;
    without_descriptors("unmounting", move || match umount2(&target, 0) {
        Ok(()) => Ok(false),
        Err(e) if e.raw_os_error() == Some(libc::EBUSY) => {
            umount2(&target, libc::MNT_DETACH).map(|()| true)
        }
        Err(e) => Err(e),
    })
}

/// What the server asks of its own mount.
pub(crate) fn ask_own_mount<T: Send + 'static>(
    calls: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    ended(without_descriptors("own mount", calls)?)
}

/// Calls that our own mount may have to answer, in a thread without our descriptors. If we were
/// killed while it waits for our own answer, a thread that has them would keep /dev/fuse open, and
/// so wait for ever.
fn without_descriptors<T: Send + 'static>(
    name: &str,
    calls: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<JoinHandle<io::Result<T>>> {
    std::thread::Builder::new().name(name.into()).spawn(|| {
        leave_descriptors();
        calls()
    })
}

fn ended<T>(thread: JoinHandle<io::Result<T>>) -> io::Result<T> {
    thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread of the mount has panicked")))
}

/// From now on this thread has descriptors of its own, which are none but the first three. Before
/// Linux 5.9 it keeps those of all.
fn leave_descriptors() {
    const UNSHARE: libc::c_uint = 2; // CLOSE_RANGE_UNSHARE
    // SAFETY: takes numbers only. The others of the process keep theirs, and this thread owns none
    // of them and uses none from here on.
    #[expect(unsafe_code, reason = "std cannot do that")]
    unsafe {
        libc::syscall(libc::SYS_close_range, 3 as libc::c_uint, libc::c_uint::MAX, UNSHARE);
    }
}

fn umount2(target: &CString, flags: libc::c_int) -> io::Result<()> {
    // SAFETY: a string that lives through the call.
    #[expect(unsafe_code, reason = "std cannot unmount")]
    let rc = unsafe { libc::umount2(target.as_ptr(), flags) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
