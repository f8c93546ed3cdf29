//! Mounts of a device whose server was killed. The kernel counts the device as in use as long as
//! one is there, or somebody sits in it (a working directory, an open file), though nobody answers
//! any more. This says which mounts are dead, and takes them away. It knows no volume.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// What the kernel calls our mounts of devices.
pub(crate) const KIND: &str = "fuseblk.cairn";

/// A mount of a device.
#[derive(Debug)]
pub(crate) struct Mount {
    pub(crate) dir: PathBuf,
    /// A server of ours has made it.
    pub(crate) is_ours: bool,
}

/// The mounts of this device that this process can see, the uppermost first.
pub(crate) fn mounts_of(device: u64) -> Vec<Mount> {
    listed_in(Path::new("/proc/self/mountinfo"), device)
}

fn listed_in(list: &Path, device: u64) -> Vec<Mount> {
    let all = std::fs::read(list).unwrap_or_default();
    let all = String::from_utf8_lossy(&all);
    all.lines().rev().filter_map(|line| of_device(line, device)).collect()
}

fn of_device(line: &str, device: u64) -> Option<Mount> {
    let name = format!("{}:{}", libc::major(device), libc::minor(device));
    let (place, what) = line.split_once(" - ")?;
    let place: Vec<&str> = place.split(' ').collect();
    let dir = unescaped(place.get(4)?);
    (place.get(2) == Some(&name.as_str()))
        .then(|| Mount { dir, is_ours: what.split(' ').next() == Some(KIND) })
}

/// A path as mountinfo writes it: spaces and their like are a backslash and three octal digits.
pub fn unescaped(field: &str) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = field.as_bytes();
    while let Some((&first, more)) = rest.split_first() {
        let code = more.get(..3).and_then(|d| std::str::from_utf8(d).ok());
        let code = code.and_then(|d| u8::from_str_radix(d, 8).ok());
        match (first, code) {
            (b'\\', Some(c)) => {
                bytes.push(c);
                rest = &more[3..];
            }
            _ => {
                bytes.push(first);
                rest = more;
            }
        }
    }
    std::ffi::OsString::from_vec(bytes).into()
}

impl Mount {
    /// Is it one of ours whose server has ended? Not to be asked while a server may be there: it
    /// would be waited for.
    pub(crate) fn is_dead(&self, device: u64) -> bool {
        self.is_ours && dead_at(&self.dir, device).is_some()
    }

    /// Takes it away; if somebody sits in it, only its name goes.
    fn take_away(&self) {
        let Ok(dir) = CString::new(self.dir.as_os_str().as_bytes()) else { return };
        // SAFETY: a string that lives through the calls.
        #[expect(unsafe_code, reason = "std cannot unmount")]
        let gone = |flags| unsafe { libc::umount2(dir.as_ptr(), flags) } == 0;
        if gone(libc::UMOUNT_NOFOLLOW) || gone(libc::UMOUNT_NOFOLLOW | libc::MNT_DETACH) {
            let shown = self.dir.display();
            tracing::info!("{shown}: the mount of a server that was killed was taken away");
        }
    }
}

/// Takes away the dead mounts of a device that nobody of ours serves.
pub(crate) fn take_away(device: u64) {
    for mount in mounts_of(device).iter().filter(|m| m.is_dead(device)) {
        mount.take_away();
    }
}

/// Something that lies in a dead mount of the device. While it is open, the kernel keeps the mount,
/// and with it the claim on the device, which nobody else can have then.
pub(crate) fn seat(device: u64) -> Option<OwnedFd> {
    let mounts = mounts_of(device);
    let mut mounts = mounts.iter().filter(|m| m.is_ours);
    mounts.find_map(|m| dead_at(&m.dir, device)).or_else(|| of_processes(device))
}

/// The same, with whoever sits in a mount that has no name any more, or has one of his own (in
/// another mount namespace).
fn of_processes(device: u64) -> Option<OwnedFd> {
    let numbered = |e: &std::fs::DirEntry| e.file_name().as_bytes().iter().all(u8::is_ascii_digit);
    for process in std::fs::read_dir("/proc").ok()?.flatten().filter(numbered) {
        let open = std::fs::read_dir(process.path().join("fd"));
        let open = open.into_iter().flatten().flatten().map(|e| e.path());
        let fixed = ["cwd", "root"].map(|name| process.path().join(name));
        let named = listed_in(&process.path().join("mountinfo"), device);
        let below = |m: &Mount| Some(fixed[1].join(m.dir.strip_prefix("/").ok()?));
        let named: Vec<PathBuf> = named.iter().filter(|m| m.is_ours).filter_map(below).collect();
        let mut all = fixed.into_iter().chain(named).chain(open);
        if let Some(found) = all.find_map(|p| dead_at(&p, device)) {
            return Some(found);
        }
    }
    None
}

/// What is there, if it lies on a mount of the device by a FUSE server that has ended. Attributes
/// the kernel may still have; how much room there is it asks each time.
fn dead_at(path: &Path, device: u64) -> Option<OwnedFd> {
    let there = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path).ok()?;
    if lies_on(&there)? != device {
        return None;
    }
    let mut room = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: a descriptor and a structure of plain numbers that live through the call.
    #[expect(unsafe_code, reason = "std has no fstatfs")]
    let told = unsafe { libc::fstatfs(there.as_raw_fd(), room.as_mut_ptr()) };
    let why = std::io::Error::last_os_error().raw_os_error();
    let dead = told != 0 && matches!(why, Some(libc::ENOTCONN | libc::ECONNABORTED));
    dead.then(|| there.into())
}

/// The number of the device that something lies on, without asking a server.
fn lies_on(there: &File) -> Option<u64> {
    let mut about = MaybeUninit::<libc::statx>::zeroed();
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    // SAFETY: an empty string, and a structure of plain numbers that the call fills in.
    #[expect(unsafe_code, reason = "std has no statx that asks nobody")]
    let about = unsafe {
        let told = libc::statx(there.as_raw_fd(), c"".as_ptr(), flags, 0, about.as_mut_ptr());
        (told == 0).then(|| about.assume_init())?
    };
    Some(libc::makedev(about.stx_dev_major, about.stx_dev_minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_a_device_are_found_in_the_kernels_list() {
        let loop0 = libc::makedev(7, 0);
        let line = r"46 27 7:0 / /a\040dir rw,relatime shared:3 - fuseblk.cairn /dev/loop0 rw";
        let found = of_device(line, loop0).expect("a mount of this device");
        assert_eq!((found.dir.to_str(), found.is_ours), (Some("/a dir"), true));
        assert!(of_device(line, libc::makedev(7, 1)).is_none());
        let line = "47 27 7:0 / /m rw - ext4 /dev/loop0 rw";
        assert!(of_device(line, loop0).is_some_and(|m| !m.is_ours));
        assert!(of_device("nonsense", loop0).is_none() && of_device("1 2 - x", loop0).is_none());
    }

    #[test]
    fn what_answers_is_not_dead() {
        let here = std::env::current_exe().expect("the test is a program");
        let device = lies_on(&File::open(&here).expect("it can be read"));
        let device = device.expect("it lies on something");
        assert!(dead_at(&here, device).is_none() && dead_at(Path::new("/proc"), device).is_none());
    }
}
