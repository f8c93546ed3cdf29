//! Who has a device, as the kernel counts it. It can be claimed by one at a time: an open file
//! (O_EXCL), or a mount. Whoever else honours claims (fsck, mkfs, LVM, another mount) is kept off
//! by either. Where a mount of ours is to have the claim, the open file hands it over, and takes it
//! back when the mount is gone. Other processes of ours are kept off by the lock all the time.
//!
//! Invariants:
//! * H1. Only the open file's claim is handed over, and a mount's is taken back by that file.

use crate::HostFile;
use crate::dead;
use crate::lock;
use crate::way::{expect_no_order, page_bytes};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// So long the kernel may take to end a claim that nobody has any more.
const PATIENCE: Duration = Duration::from_millis(500);

/// Who has the claim of a disk that this process uses.
#[derive(Debug)]
pub(crate) enum Claim {
    /// Nobody: it is a file, or is only read.
    Nobody,
    /// The open file.
    File,
    /// Our mount.
    Mount,
    /// A dead mount that somebody sits in: it is kept while this is open.
    Dead(#[expect(dead_code, reason = "it is held, not used")] OwnedFd),
}

/// Opens a device for writing that is claimed already: by a dead mount of ours, then; whoever else
/// it is, he is told of. `open` has flags of open(2).
pub(crate) fn open_claimed(
    path: &Path,
    open: impl Fn(libc::c_int) -> Result<File, io::Error>,
) -> Result<(File, Claim), String> {
    let fail = |e: io::Error| format!("{}: {e}", path.display());
    let locked = || -> Result<(File, u64), String> {
        let file = open(0).map_err(fail)?;
        let device = file.metadata().map_err(fail)?.rdev();
        lock::take_unused(&file, path, true)?;
        Ok((file, device))
    };
    let (file, device) = locked()?;
    dead::take_away(device);
    drop(file);
    let begun = Instant::now();
    loop {
        match open(libc::O_EXCL) {
            Ok(file) => {
                lock::take_unused(&file, path, true)?;
                return Ok((file, Claim::File));
            }
            Err(e) if e.raw_os_error() != Some(libc::EBUSY) => return Err(fail(e)),
            Err(_) if begun.elapsed() > PATIENCE => break,
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
    let (file, device) = locked()?;
    match dead::seat(device) {
        Some(seat) => Ok((file, Claim::Dead(seat))),
        None => Err(in_use(path)),
    }
}

/// Somebody has it of whom nothing is known.
pub(crate) fn in_use(path: &Path) -> String {
    format!("{}: in use (mounted, or opened by another program)", path.display())
}

/// An open file once more, with a file of its own in the kernel.
pub(crate) fn opened_again(file: &File, options: &mut OpenOptions) -> io::Result<File> {
    options.open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

impl HostFile {
    /// From now on the kernel's cache of the device has blocks of the size that a mount of a volume
    /// with these blocks would give it. If that is another size than before, the kernel writes and
    /// drops what it has: that is to happen while nothing is under way, not at the mount. What
    /// fails is seen by `hand_over`.
    pub fn prepare_mount(&self, volume_block_bytes: usize) {
        const BLKBSZSET: libc::Ioctl = write_ioctl(0x12, 113);
        let Some(bytes) = self.mount_block_bytes(volume_block_bytes) else { return };
        if self.block_bytes() == Some(bytes) || !self.is_claimed() {
            return;
        }
        let Ok(bytes) = libc::c_int::try_from(bytes) else { return };
        // SAFETY: the call reads one number, which lives through it.
        #[expect(unsafe_code, reason = "std has no ioctl")]
        unsafe {
            libc::ioctl(self.file.as_raw_fd(), BLKBSZSET, &raw const bytes);
        }
    }

    /// Which size of blocks a FUSE mount has: in Linux 6.18 always a page, whatever it is told.
    /// What is no whole block at the device's end cannot be had through the kernel's cache then.
    /// None: the volume has blocks there, perhaps.
    fn mount_block_bytes(&self, of_volume: usize) -> Option<usize> {
        let page = page_bytes();
        let whole = of_volume as u64 == page || self.size_bytes().is_multiple_of(page);
        usize::try_from(page).ok().filter(|_| whole)
    }

    /// The size of the blocks in the kernel's cache of the device.
    fn block_bytes(&self) -> Option<usize> {
        const BLKBSZGET: libc::Ioctl = read_ioctl(0x12, 112);
        let mut bytes: [libc::c_int; 2] = [0; 2]; // it writes one, whatever its number says
        // SAFETY: the call writes one number, for which there is room.
        #[expect(unsafe_code, reason = "std has no ioctl")]
        let rc = unsafe { libc::ioctl(self.file.as_raw_fd(), BLKBSZGET, bytes.as_mut_ptr()) };
        usize::try_from(bytes[0]).ok().filter(|_| rc == 0)
    }

    /// Does the open file have the claim?
    fn is_claimed(&self) -> bool {
        matches!(*self.claim.lock().expect("nobody panics while holding it"), Claim::File)
    }

    /// Lets go of the claim, for a mount of all of the device that follows at once, with blocks of
    /// the size that is returned. None: it is not to be mounted, and everything is as before.
    pub fn hand_over(&self, volume_block_bytes: usize) -> Option<usize> {
        let whole = self.begins == 0 && self.snapshot.is_none();
        let bytes = self.mount_block_bytes(volume_block_bytes)?;
        if !whole || !self.is_claimed() || self.block_bytes() != Some(bytes) {
            return None;
        }
        // Half of the lock stays where it is meanwhile.
        let halved = self.direct.is_some();
        let done = halved && self.open_again(0).inspect_err(not_moved).is_ok();
        if done {
            let mut claim = self.claim.lock().expect("nobody panics while holding it");
            let before = std::mem::replace(&mut *claim, Claim::Mount);
            assert!(matches!(before, Claim::File), "H1: the claim of {before:?} is handed over");
        }
        done.then_some(bytes)
    }

    /// Takes the claim back from a mount that is gone. Errors: somebody has it.
    pub fn take_back(&self) -> io::Result<()> {
        let mut claim = self.claim.lock().expect("nobody panics while holding it");
        if matches!(*claim, Claim::Mount) {
            self.open_again(libc::O_EXCL)?;
            *claim = Claim::File;
        }
        Ok(())
    }

    /// As `take_back`, where the kernel may need a moment to let go.
    pub fn take_back_soon(&self) -> io::Result<()> {
        let begun = Instant::now();
        loop {
            match self.take_back() {
                Err(e) if e.raw_os_error() == Some(libc::EBUSY) && begun.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                done => return done,
            }
        }
    }

    /// Puts another open file of the device, opened with `flags`, under the descriptor's number.
    /// Requests that are under way keep the old one until they end.
    fn open_again(&self, flags: libc::c_int) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(flags);
        let again = opened_again(&self.file, &mut options)?;
        expect_no_order(&again)?;
        lock::pass_on(&self.file, &again)?;
        if self.may_issue.load(Ordering::Relaxed) {
            lock::let_go_soon(&again);
        }
        // SAFETY: takes numbers only. The number stays this file's own, and is never closed
        // between.
        #[expect(unsafe_code, reason = "std cannot replace what a descriptor stands for")]
        let rc = unsafe { libc::dup3(again.as_raw_fd(), self.file.as_raw_fd(), libc::O_CLOEXEC) };
        if rc >= 0 {
            return Ok(());
        }
        let why = io::Error::last_os_error();
        lock::pass_on(&again, &self.file)?;
        Err(why)
    }
}

fn not_moved(why: &io::Error) {
    tracing::info!("the claim on a device stays with the open file: {why}");
}

/// The number of an ioctl that reads or writes a `size_t`, as most machines make it.
const fn read_ioctl(kind: u32, number: u32) -> libc::Ioctl {
    (2 << 30 | (size_of::<usize>() as u32) << 16 | kind << 8 | number) as libc::Ioctl
}
const fn write_ioctl(kind: u32, number: u32) -> libc::Ioctl {
    (1 << 30 | (size_of::<usize>() as u32) << 16 | kind << 8 | number) as libc::Ioctl
}
