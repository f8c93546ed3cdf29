//! Does a scenario's acts through a mount, with as many callers at a time as it wants, and marks
//! in the recorder's trace when each began and when it was answered. It judges nothing but this: on
//! a sound disk some errors are never an answer.

use crate::recorder::Recorder;
use lab::Act;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, RenameFlags, XattrFlags, fallocate, linkat, removexattr,
    renameat_with, setxattr,
};
use std::fs::{File, FileTimes, OpenOptions, Permissions};
use std::io::Result;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, UNIX_EPOCH};

/// The longest pause that is waited for: in the real world a scenario's pauses take real time.
const LONGEST_PAUSE: Duration = Duration::from_millis(300);

/// Does the acts below `root`. Which of them were refused, in their order. Errors: what failed as
/// nothing does on a sound disk with a server behind the mount; whoever took that for a refusal
/// would find nothing missing afterwards.
pub(crate) fn all(
    root: &Path,
    acts: &[Act],
    callers: usize,
    recorder: &Recorder,
) -> std::result::Result<Vec<bool>, String> {
    let results: Mutex<Vec<Option<Result<()>>>> = Mutex::new(acts.iter().map(|_| None).collect());
    std::thread::scope(|scope| {
        for caller in 0..callers {
            let results = &results;
            scope.spawn(move || {
                for n in (caller..acts.len()).step_by(callers) {
                    recorder.mark(2 * n as u64);
                    let result = act(root, &acts[n]);
                    recorder.mark(2 * n as u64 + 1);
                    results.lock().unwrap_or_else(|broken| broken.into_inner())[n] = Some(result);
                }
            });
        }
    });
    let results = results.into_inner().unwrap_or_else(|broken| broken.into_inner());
    let answers = acts.iter().zip(results).map(|(act, result)| match result {
        None => Err(format!("{act:?} was never done")),
        Some(Err(e)) if is_failure(&e) => Err(format!("{act:?} on a sound disk: {e}")),
        Some(result) => Ok(result.is_err()),
    });
    answers.collect()
}

/// Is it the volume or its server that has failed, and not the request that was refused?
fn is_failure(e: &std::io::Error) -> bool {
    let failures =
        [libc::EIO, libc::EROFS, libc::EUCLEAN, libc::ENOTCONN, libc::ECONNABORTED, libc::ENODEV];
    e.raw_os_error().is_some_and(|n| failures.contains(&n))
}

/// What can be asked through a mount. sync(1) never reaches a FUSE server: its place is taken by an
/// fsync of the root. A write that begins inside a page comes as two requests, which are two
/// changes: it ends with that page.
pub(crate) fn through_a_mount(acts: &[Act]) -> Vec<Act> {
    let other = |act: &Act| match act {
        Act::Sync => Act::Fsync("/".into()),
        Act::Still(seconds) => Act::Pause(*seconds),
        Act::Write(p, at, len, value) => Act::Write(p.clone(), *at, one_request(*at, *len), *value),
        Act::WriteSync(p, at, len, value) => {
            Act::WriteSync(p.clone(), *at, one_request(*at, *len), *value)
        }
        act => act.clone(),
    };
    acts.iter().map(other).collect()
}

/// How many of the bytes at an offset the kernel sends together.
fn one_request(at: u64, len: usize) -> usize {
    const PAGE_BYTES: u64 = 4096;
    match at % PAGE_BYTES {
        0 => len,
        inside => len.min((PAGE_BYTES - inside) as usize),
    }
}

/// A file without a name gets these contents, and then this name.
fn emerge(path: &Path, contents: &[u8]) -> Result<()> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    let file = OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).open(dir)?;
    file.write_all_at(contents, 0)?;
    let unnamed = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(linkat(CWD, unnamed, CWD, path, AtFlags::SYMLINK_FOLLOW)?)
}

fn space(path: &Path, how: FallocateFlags, offset: u64, len: u64) -> Result<()> {
    Ok(fallocate(OpenOptions::new().write(true).open(path)?, how, offset, len)?)
}

fn keeping(size: bool) -> FallocateFlags {
    if size { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() }
}

/// Both times that can be set, in nanoseconds since 1970.
fn date(path: &Path, nanos: u64) -> Result<()> {
    let then = UNIX_EPOCH + Duration::from_nanos(nanos);
    let times = FileTimes::new().set_modified(then).set_accessed(then);
    File::open(path)?.set_times(times)
}

fn act(root: &Path, act: &Act) -> Result<()> {
    let at = |path: &str| -> PathBuf { root.join(path.trim_start_matches('/')) };
    let write = || OpenOptions::new().write(true).clone();
    match act {
        Act::Create(p) => write().create_new(true).mode(0o755).open(at(p)).map(drop),
        Act::Mkdir(p) => std::fs::DirBuilder::new().mode(0o755).create(at(p)),
        Act::Symlink(p, text) => std::os::unix::fs::symlink(text, at(p)),
        Act::Link(a, b) => std::fs::hard_link(at(a), at(b)),
        Act::Unlink(p) => std::fs::remove_file(at(p)),
        Act::Vanish(p, size) => {
            let file = write().open(at(p))?;
            std::fs::remove_file(at(p))?;
            file.set_len(*size)
        }
        Act::Linger(p, len, value) => {
            let file = write().open(at(p))?;
            std::fs::remove_file(at(p))?;
            file.write_all_at(&lab::payload(*value, 9000, *len), 9000)?;
            file.sync_all()
        }
        Act::Rmdir(p) => std::fs::remove_dir(at(p)),
        Act::Rename(a, b) => std::fs::rename(at(a), at(b)),
        Act::Whiteout(a, b) => Ok(renameat_with(CWD, at(a), CWD, at(b), RenameFlags::WHITEOUT)?),
        Act::Exchange(a, b) => Ok(renameat_with(CWD, at(a), CWD, at(b), RenameFlags::EXCHANGE)?),
        Act::Emerge(p, len, value) => emerge(&at(p), &lab::payload(*value, 0, *len)),
        Act::Truncate(p, size) => write().open(at(p))?.set_len(*size),
        Act::Write(p, offset, len, value) => {
            write().open(at(p))?.write_all_at(&lab::payload(*value, *offset, *len), *offset)
        }
        Act::WriteSync(p, offset, len, value) => {
            let file = write().custom_flags(libc::O_DSYNC).open(at(p))?;
            file.write_all_at(&lab::payload(*value, *offset, *len), *offset)
        }
        Act::Punch(p, offset, len) => {
            space(&at(p), FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, *offset, *len)
        }
        Act::Allocate(p, offset, len, keep_size) => {
            space(&at(p), keeping(*keep_size), *offset, *len)
        }
        Act::Zero(p, offset, len, keep_size) => {
            space(&at(p), FallocateFlags::ZERO_RANGE | keeping(*keep_size), *offset, *len)
        }
        // A kernel refuses both over FUSE.
        Act::Collapse(p, offset, len) => {
            space(&at(p), FallocateFlags::COLLAPSE_RANGE, *offset, *len)
        }
        Act::Insert(p, offset, len) => space(&at(p), FallocateFlags::INSERT_RANGE, *offset, *len),
        Act::Attribute(p, len, value) => {
            let value = vec![*value; *len];
            Ok(setxattr(at(p), "user.attribute", &value, XattrFlags::empty())?)
        }
        // No program of ours sets one; the kernel's caches are none of these acts' business.
        Act::Grant(..) => Ok(()),
        Act::Strip(p) => Ok(removexattr(at(p), "user.attribute")?),
        Act::Own(p, n) => {
            let n = u32::from(*n);
            std::os::unix::fs::chown(at(p), Some(1000 + n), Some(2000 + n))?;
            std::fs::set_permissions(at(p), Permissions::from_mode(0o700 | n & 0o77))
        }
        Act::Date(p, n) => date(&at(p), lab::date_of(*n)),
        Act::Fsync(p) => File::open(at(p))?.sync_all(),
        Act::Fdatasync(p) => File::open(at(p))?.sync_data(),
        Act::Sync => Ok(()),
        // Refused where the recorder's disk cannot discard: then this is an act without effect.
        Act::Trim => std::process::Command::new("fstrim").arg(root).output().map(drop),
        Act::Read(p) => std::fs::read(at(p)).map(drop),
        Act::Pause(seconds) | Act::Still(seconds) => {
            std::thread::sleep(Duration::from_secs(*seconds).min(LONGEST_PAUSE));
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_failure;
    use std::io::Error;

    #[test]
    fn a_server_that_is_gone_has_not_refused_anything() {
        let failed = |n| is_failure(&Error::from_raw_os_error(n));
        assert!([libc::ENOTCONN, libc::EIO, libc::EROFS].into_iter().all(failed));
        assert!(![libc::ENOSPC, libc::EEXIST, libc::EOPNOTSUPP].into_iter().any(failed));
    }
}
