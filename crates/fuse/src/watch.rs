//! A mount's options while it is there. The kernel tells a FUSE server neither with which options
//! it was mounted nor that they were changed (`mount -o remount,…`), and leaves the times of access
//! to it: so they are read from /proc/self/mountinfo, which can be waited on.
//!
//! After `remount,ro` nothing is written: reads leave the times of access alone, and what was still
//! to be written later is written now.

use crate::mountinfo::Entry;
use crate::options::Options;
use crate::shared::Shared;
use host::Pool;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::{Call, Request, Work};

/// Has the volume follow the options of the mount at `dir`, which is there, from now on.
pub(crate) fn follow(
    pool: &Arc<Pool>,
    volume: usize,
    dir: &Path,
    shared: &Arc<Shared>,
) -> io::Result<()> {
    let file = File::open(crate::mountinfo::PATH)?;
    let Some(ours) = Entry::at(dir)? else {
        return Err(io::Error::other("the new mount is not in /proc/self/mountinfo"));
    };
    apply(pool, volume, shared, ours.options());
    let (pool, shared) = (pool.clone(), shared.clone());
    let thread = std::thread::Builder::new().name("mount options".into());
    thread.spawn(move || {
        while wait_for_change(&file) && !shared.ended.load(Ordering::SeqCst) {
            match Entry::numbered(ours.id) {
                Ok(Some(now)) => apply(&pool, volume, &shared, now.options()),
                Ok(None) => return, // unmounted
                Err(e) => tracing::warn!("/proc/self/mountinfo: {e}"),
            }
        }
    })?;
    Ok(())
}

/// Waits until some mount is another; false: it cannot be waited.
fn wait_for_change(file: &File) -> bool {
    let mut poll = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLPRI, revents: 0 };
    loop {
        // SAFETY: one structure that lives through the call.
        #[expect(unsafe_code, reason = "std has no poll")]
        let n = unsafe { libc::poll(&raw mut poll, 1, -1) };
        if n > 0 {
            return true;
        }
        let e = io::Error::last_os_error();
        if n < 0 && e.kind() != io::ErrorKind::Interrupted {
            tracing::warn!("changed options of the mount are not noticed: {e}");
            return false;
        }
    }
}

fn apply(pool: &Pool, volume: usize, shared: &Shared, now: Options) {
    let before = shared.set_options(now);
    if before == now {
        return;
    }
    let mut work = vec![Work::Silent(Call::local(Request::AccessTimes(now.access_times())))];
    if now.is_read_only() {
        work.push(Work::Silent(Call::local(Request::Quiesce)));
    }
    pool.enter(volume, &mut work);
}
