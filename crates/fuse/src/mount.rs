//! Mounting: as root by mount(2), else with the help of fusermount3, which hands the descriptor
//! over a socket.

use crate::mountinfo::Entry;
use crate::options::Options;
use crate::umount::{ask_own_mount, unmount};
use host::HostFile;
use std::ffi::{CStr, CString};
use std::fs::OpenOptions;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// So long requests that are under way may keep a device's claim.
const CLAIM_MAX: Duration = Duration::from_secs(1);

/// How to mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// What `mount` and `df` show as the source.
    pub source: String,
    /// mount(8)'s.
    pub options: Options,
    /// The device that the volume is, if it is all of one.
    pub device: Option<Arc<HostFile>>,
}

pub(crate) fn is_root() -> bool {
    // SAFETY: geteuid takes nothing and cannot fail.
    #[expect(unsafe_code, reason = "std does not tell the user id")]
    let uid = unsafe { libc::geteuid() };
    uid == 0
}

/// Mounts at `dir` a volume with blocks of this size; the descriptor is the connection to the
/// kernel. Errors are for the user.
pub(crate) fn mount(
    dir: &Path,
    options: &MountOptions,
    block_bytes: usize,
) -> Result<OwnedFd, String> {
    let shown = dir.display();
    make_free(dir)?;
    if !is_root() && options.options.needs_root() {
        return Err(format!("cannot mount on {shown}: options suid and dev are root's to give"));
    }
    let result = match is_root() {
        true => as_root(dir, options, block_bytes),
        false => by_fusermount(dir, options),
    };
    result.map_err(|e| format!("cannot mount on {shown}: {e}"))
}

/// What is at a place where something is to be mounted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// A directory.
    Free,
    /// A mount whose server has ended.
    Dead,
}

/// Looks at a place where something is to be mounted; changes nothing. Errors: it is none.
pub fn check_place(dir: &Path) -> Result<Place, String> {
    let shown = dir.display();
    match std::fs::metadata(dir) {
        Ok(found) if found.is_dir() => Ok(Place::Free),
        Ok(_) => Err(format!("{shown}: not a directory to mount on")),
        Err(e) => match e.raw_os_error() {
            Some(libc::ENOTCONN | libc::ECONNABORTED) => Ok(Place::Dead),
            Some(libc::ENOENT) => {
                Err(format!("{shown}: there is no such directory to mount on: mkdir {shown}"))
            }
            _ => Err(format!("{shown}: {e}")),
        },
    }
}

/// Sees to it that there is a directory. A mount that a killed server of ours has left there, which
/// serves nobody any more, is taken away; one of another kind is its owner's to take away.
fn make_free(dir: &Path) -> Result<(), String> {
    let shown = dir.display();
    if check_place(dir)? == Place::Free {
        return Ok(());
    }
    let ours = Entry::at(dir).is_ok_and(|e| e.is_some_and(|e| e.is_ours()));
    if ours && unmount(dir).is_ok() && dir.is_dir() {
        tracing::info!("{shown}: the mount of a server that was killed was taken away");
        return Ok(());
    }
    Err(format!(
        "{shown}: a mount whose server has ended is still there: umount {shown} (who is not root: \
         fusermount3 -u {shown})"
    ))
}

fn as_root(dir: &Path, o: &MountOptions, block_bytes: usize) -> io::Result<OwnedFd> {
    if let Some(dev) = of_device(dir, o, block_bytes) {
        return Ok(dev);
    }
    mounted(dir, (c"fuse.cairn", &o.source), o.options, "")
}

/// Mounts the device as such, so that the kernel knows it as mounted, and passes on more. None:
/// that cannot be done, and everything is as before.
fn of_device(dir: &Path, o: &MountOptions, block_bytes: usize) -> Option<OwnedFd> {
    let device = o.device.as_ref()?;
    let source = device.path().canonicalize().ok()?;
    let same = source.metadata().is_ok_and(|m| device.number().is_ok_and(|n| n.0 == m.rdev()));
    if !same {
        return None;
    }
    let how = format!(",blksize={}", device.hand_over(block_bytes)?);
    let source = source.display().to_string();
    let begun = Instant::now();
    loop {
        match mounted(dir, (c"fuseblk.cairn", &source), o.options, &how) {
            // Requests that are under way have the claim until they end.
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) && begun.elapsed() < CLAIM_MAX => {
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(e) => {
                tracing::info!("{source}: mounted as a file is, not as a device: {e}");
                if let Err(e) = device.take_back_soon() {
                    tracing::warn!("{source}: another program has it by now: {e}");
                }
                return None;
            }
            Ok(dev) => return Some(dev),
        }
    }
}

fn mounted(
    dir: &Path,
    (kind, source): (&CStr, &str),
    options: Options,
    more: &str,
) -> io::Result<OwnedFd> {
    let dev = OpenOptions::new().read(true).write(true).open("/dev/fuse").map_err(|e| {
        io::Error::new(e.kind(), format!("/dev/fuse: {e} (is the fuse module there?)"))
    })?;
    let data = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions{more}",
        dev.as_raw_fd()
    );
    let c = |s: &[u8]| CString::new(s).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
    let (source, target) = (c(source.as_bytes())?, c(dir.as_os_str().as_bytes())?);
    let data = c(data.as_bytes())?;
    let flags = options.0;
    // SAFETY: four strings that live through the call.
    #[expect(unsafe_code, reason = "std cannot mount")]
    let rc = unsafe {
        libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, data.as_ptr().cast())
    };
    if rc == 0 { Ok(dev.into()) } else { Err(io::Error::last_os_error()) }
}

/// What fusermount3 is told. It takes a comma for the end of a name, unless it is told otherwise.
fn for_fusermount(o: &MountOptions) -> String {
    let names = o.options.names();
    let again = Options::of(&names);
    assert_eq!(again, Ok(o.options.but_remount()), "not all options have names: {names}");
    let source = o.source.replace('\\', r"\\").replace(',', r"\,");
    format!("{names},default_permissions,fsname={source},subtype=cairn")
}

fn by_fusermount(dir: &Path, o: &MountOptions) -> io::Result<OwnedFd> {
    let (ours, theirs) = UnixStream::pair()?;
    let fd = theirs.into_raw_fd();
    // SAFETY: clears a flag of a descriptor of ours, so that the child keeps it.
    #[expect(unsafe_code, reason = "std cannot keep a descriptor open for a child")]
    unsafe {
        libc::fcntl(fd, libc::F_SETFD, 0);
    }
    let mut options = for_fusermount(o);
    if std::fs::read_to_string("/etc/fuse.conf")
        .is_ok_and(|c| c.lines().any(|l| l.trim() == "user_allow_other"))
    {
        options.push_str(",allow_other");
    }
    let run = Command::new("fusermount3")
        .args(["-o", &options, "--"])
        .arg(dir)
        .env("_FUSE_COMMFD", fd.to_string())
        .output();
    // SAFETY: the descriptor is ours and is not used after this.
    #[expect(unsafe_code, reason = "made from a raw descriptor above")]
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
    let run = run.map_err(|e| {
        io::Error::new(e.kind(), format!("fusermount3: {e} (Debian's package fuse3 has it)"))
    })?;
    if !run.status.success() {
        let text = String::from_utf8_lossy(&run.stderr).trim().to_owned();
        return Err(io::Error::other(text));
    }
    receive_fd(&ours)
}

/// Changes the options of the volume `image` that is mounted at `dir`, as far as `list` speaks of
/// them. Its server notices by itself. Errors are for the user.
pub fn remount(image: &Path, dir: &Path, list: &str) -> Result<(), String> {
    let shown = dir.display();
    let fail = |e: io::Error| format!("cannot remount {shown}: {e}");
    let ours = Entry::at(dir).map_err(fail)?.filter(Entry::is_ours);
    let Some(ours) = ours else { return Err(format!("{shown}: no volume is mounted there")) };
    let same = |p: &Path| p.canonicalize().ok();
    if ours.source != image && same(&ours.source) != same(image) {
        return Err(format!("{shown}: it is {} that is mounted there", ours.source.display()));
    }
    let options = ours.options().with(list)?;
    let target = CString::new(dir.as_os_str().as_bytes()).map_err(|e| fail(e.into()))?;
    let (none, flags) = (std::ptr::null(), options.0 | libc::MS_REMOUNT);
    // SAFETY: a string that lives through the call; the others are not looked at.
    #[expect(unsafe_code, reason = "std cannot mount")]
    let rc = unsafe { libc::mount(none, target.as_ptr(), none, flags, none.cast()) };
    if rc == 0 { Ok(()) } else { Err(fail(io::Error::last_os_error())) }
}

/// Takes a descriptor that comes over the socket.
fn receive_fd(socket: &UnixStream) -> io::Result<OwnedFd> {
    let mut byte = [0u8; 1];
    let mut control = [0u64; 8];
    let mut iov = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    // SAFETY: all memory that the message points to lives through the call; the control buffer is
    // aligned and its length is given; the descriptor that comes is nobody else's.
    #[expect(unsafe_code, reason = "std cannot receive descriptors")]
    unsafe {
        let mut msg: libc::msghdr = MaybeUninit::zeroed().assume_init();
        msg.msg_iov = &raw mut iov;
        msg.msg_iovlen = 1;
        msg.msg_control = control.as_mut_ptr().cast();
        msg.msg_controllen = size_of_val(&control) as _; // an unsigned int in musl's library
        if libc::recvmsg(socket.as_raw_fd(), &raw mut msg, libc::MSG_CMSG_CLOEXEC) < 0 {
            return Err(io::Error::last_os_error());
        }
        let head = libc::CMSG_FIRSTHDR(&raw const msg);
        if head.is_null() || (*head).cmsg_type != libc::SCM_RIGHTS {
            return Err(io::Error::other("fusermount3 sent no descriptor"));
        }
        let fd: RawFd = libc::CMSG_DATA(head).cast::<RawFd>().read_unaligned();
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Has the mount's kernel send what it holds back. Its server has to be there.
pub(crate) fn write_held_back(dir: &Path) -> io::Result<()> {
    let dir = dir.to_owned();
    ask_own_mount(move || {
        let root = std::fs::File::open(dir)?;
        // SAFETY: a descriptor that lives through the call.
        #[expect(unsafe_code, reason = "std has no syncfs")]
        let rc = unsafe { libc::syncfs(root.as_raw_fd()) };
        if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fusermount_is_told_of_any_path() {
        let of = |source: &str| {
            let (source, options) = (source.to_owned(), Options::default());
            for_fusermount(&MountOptions { source, options, device: None })
        };
        assert!(of("/a.img").ends_with(",fsname=/a.img,subtype=cairn"));
        assert!(of(r"/a,b\c.img").ends_with(r",fsname=/a\,b\\c.img,subtype=cairn"));
    }
}
