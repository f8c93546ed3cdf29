//! The calls that a local file system knows beside the everyday ones, each through a mount: files
//! opened by handle, access lists and set-group-id, direct writes beside buffered reads,
//! whiteouts, files without names, holes, the time of creation. Needs FUSE, and root for some;
//! without, each test is skipped with a line.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod served;

use served::{Folder, MountPoint, Server, is_root};
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

fn c(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

/// What a system call returned: a number that is not negative, or why not.
fn checked(rc: impl Into<i64>) -> io::Result<i64> {
    let rc = rc.into();
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(rc) }
}

/// A file's handle as the kernel gives it out: the length, the type, then FUSE's node number (its
/// high half first) and the generation.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Handle {
    bytes: u32,
    kind: i32,
    words: [u32; 32],
}

fn handle_of(path: &Path) -> Handle {
    let mut handle = Handle { bytes: 128, ..Handle::default() };
    let (path, mut mount) = (c(path), 0i32);
    // SAFETY: a string and two structures that live through the call, of the length told.
    let rc = unsafe {
        let to = &raw mut handle;
        let call = libc::SYS_name_to_handle_at;
        libc::syscall(call, libc::AT_FDCWD, path.as_ptr(), to, &raw mut mount, 0)
    };
    checked(rc).unwrap();
    handle
}

fn open_handle(mount: &Path, mut handle: Handle) -> io::Result<File> {
    let mount = File::open(mount).unwrap();
    // SAFETY: a structure that lives through the call; the descriptor that comes is nobody else's.
    unsafe {
        let call = libc::SYS_open_by_handle_at;
        let fd = libc::syscall(call, mount.as_raw_fd(), &raw mut handle, libc::O_RDONLY);
        Ok(File::from_raw_fd(checked(fd)? as i32))
    }
}

#[test]
fn a_file_is_opened_by_its_handle_when_the_kernel_has_forgotten_it() {
    let folder = Folder::new();
    let Some(at) = MountPoint::new(&folder).filter(|_| is_root()) else { return };
    let image = folder.volume("v", "32M");
    let server = Server::mounted(&image, &at, &[]);
    std::fs::create_dir(at.file("d")).unwrap();
    std::fs::write(at.file("d/f"), b"by its handle").unwrap();
    std::fs::write(at.file("gone"), b"").unwrap();
    let (file, dir, gone) =
        (handle_of(&at.file("d/f")), handle_of(&at.file("d")), handle_of(&at.file("gone")));
    std::fs::remove_file(at.file("gone")).unwrap();
    server.stop();
    // A new mount's kernel knows nothing.
    let server = Server::mounted(&image, &at, &[]);
    let found = open_handle(&at.0, file).unwrap();
    let mut bytes = [0; 13];
    found.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"by its handle");
    assert!(open_handle(&at.0, dir).unwrap().metadata().unwrap().is_dir());
    let stale = |h: Handle| open_handle(&at.0, h).unwrap_err().raw_os_error();
    assert_eq!(stale(gone), Some(libc::ESTALE));
    // The generation tells a file from an older one with its number.
    let mut older = file;
    older.words[2] ^= 1;
    assert_eq!(stale(older), Some(libc::ESTALE));
    // Nobody has a handle of what is the volume's own: its journal is inode 8.
    for ino in [0, 2, 7, 8, 100_000] {
        let mut own = file;
        (own.words[1], own.words[2]) = (ino, 0);
        assert_eq!(stale(own), Some(libc::ESTALE), "inode {ino}");
    }
    drop(found);
    server.stop();
    served::ok(&["fsck", served::s(&image)]);
}

/// Does it in a thread that belongs to somebody else.
fn as_user<T: Send>(id: u32, act: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|s| {
        let thread = s.spawn(|| {
            // SAFETY: numbers; the calls themselves, unlike libc's functions, change one thread.
            unsafe {
                checked(libc::syscall(libc::SYS_setgroups, 0, 0)).unwrap();
                checked(libc::syscall(libc::SYS_setresgid, id, id, id)).unwrap();
                checked(libc::syscall(libc::SYS_setresuid, id, id, id)).unwrap();
            }
            act()
        });
        thread.join().unwrap()
    })
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().mode() & 0o7777
}

/// An access list of an owner, one more user, the group, the mask and others, as the kernel has it.
fn access_list() -> Vec<u8> {
    let mut list = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in
        [(1u16, 7u16, !0), (2, 4, 4321), (4, 5, !0), (0x10, 5, !0), (0x20, 4, !0)]
    {
        list.extend([tag.to_le_bytes(), perm.to_le_bytes()].concat());
        list.extend(u32::to_le_bytes(id));
    }
    list
}

fn set_access_list(path: &Path) -> io::Result<i64> {
    let (path, list) = (c(path), access_list());
    let name = c"system.posix_acl_access";
    // SAFETY: two strings and memory of the length told, which live through the call.
    let rc = unsafe {
        libc::setxattr(path.as_ptr(), name.as_ptr(), list.as_ptr().cast(), list.len(), 0)
    };
    checked(rc)
}

#[test]
fn an_access_list_by_a_stranger_to_the_group_takes_set_group_id_away() {
    const OWNER: u32 = 4_000;
    const GROUP: u32 = 4_001;
    let folder = Folder::new();
    let Some(at) = MountPoint::new(&folder).filter(|_| is_root()) else { return };
    let image = folder.volume("v", "32M");
    let server = Server::mounted(&image, &at, &[]);
    for (name, group, left) in [("theirs", GROUP, 0o754), ("own", OWNER, 0o2754)] {
        let path = at.file(name);
        std::fs::write(&path, b"").unwrap();
        std::os::unix::fs::chown(&path, Some(OWNER), Some(group)).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o2755)).unwrap();
        as_user(OWNER, || set_access_list(&path)).unwrap();
        assert_eq!(mode(&path), left, "{name}");
    }
    // Root has the right to keep it.
    let path = at.file("theirs");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o2755)).unwrap();
    set_access_list(&path).unwrap();
    assert_eq!(mode(&path), 0o2754);
    server.stop();
}

/// Asynchronous direct writes, one at a time.
struct Aio(u64);

impl Aio {
    fn new() -> Aio {
        let mut context = 0u64;
        // SAFETY: the call fills in one number.
        let rc = unsafe { libc::syscall(libc::SYS_io_setup, 8, &raw mut context) };
        checked(rc).unwrap();
        Aio(context)
    }
    /// Writes a page at the file's start and waits for its end.
    fn write(&self, file: &File, page: &Page) {
        let mut control = [0u64; 8];
        control[2] = 1 | (file.as_raw_fd() as u64) << 32; // IOCB_CMD_PWRITE
        control[3] = page.0.as_ptr() as u64;
        control[4] = page.0.len() as u64;
        let list = [control.as_ptr()];
        let mut event = [0u64; 4];
        // SAFETY: the control block, the list of one and the event live until the second call has
        // returned, by when the write has ended.
        unsafe {
            let context = self.0;
            assert_eq!(libc::syscall(libc::SYS_io_submit, context, 1, list.as_ptr()), 1);
            let limit = libc::timespec { tv_sec: 30, tv_nsec: 0 };
            let (to, limit) = (&raw mut event, &raw const limit);
            assert_eq!(libc::syscall(libc::SYS_io_getevents, context, 1, 1, to, limit), 1);
        }
        assert_eq!(event[2], page.0.len() as u64, "{event:?}");
    }
}
impl Drop for Aio {
    fn drop(&mut self) {
        // SAFETY: a number that io_setup gave.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}

#[repr(align(4096))]
struct Page([u8; 4096]);

#[test]
fn a_direct_write_that_has_ended_is_what_a_buffered_read_finds() {
    let folder = Folder::new();
    let Some(at) = MountPoint::new(&folder) else { return };
    let image = folder.volume("v", "32M");
    let server = Server::mounted(&image, &at, &[]);
    let path = at.file("f");
    std::fs::write(&path, [0; 4096]).unwrap();
    let direct = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(&path).unwrap();
    let buffered = File::open(&path).unwrap();
    let ended = std::sync::atomic::AtomicBool::new(false);
    let aio = Aio::new();
    std::thread::scope(|s| {
        // Others bring the page back into memory while the write is under way.
        for _ in 0..2 {
            s.spawn(|| {
                let mut bytes = [0; 64];
                while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                    buffered.read_exact_at(&mut bytes, 0).unwrap();
                }
            });
        }
        let begun = Instant::now();
        let stale = (1..=2_000u64).filter(|_| begun.elapsed() < Duration::from_secs(2)).find(|n| {
            let byte = 1 + (n % 250) as u8;
            aio.write(&direct, &Page([byte; 4096]));
            let mut bytes = [0; 1];
            buffered.read_exact_at(&mut bytes, 0).unwrap();
            bytes[0] != byte
        });
        ended.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(stale, None, "after so many writes an old page was read");
    });
    drop((direct, buffered));
    server.stop();
}

fn rename(from: &Path, to: &Path, flags: u32) -> io::Result<i64> {
    let (from, to, here) = (c(from), c(to), libc::AT_FDCWD);
    // SAFETY: two strings that live through the call.
    let rc = unsafe { libc::renameat2(here, from.as_ptr(), here, to.as_ptr(), flags) };
    checked(rc)
}

fn is_whiteout(path: &Path) -> bool {
    let found = std::fs::symlink_metadata(path).unwrap();
    found.mode() & libc::S_IFMT == libc::S_IFCHR && found.rdev() == 0
}

#[test]
fn a_rename_leaves_a_whiteout_if_asked() {
    let folder = Folder::new();
    let Some(at) = MountPoint::new(&folder).filter(|_| is_root()) else { return };
    let image = folder.volume("v", "32M");
    for more in ["unified", "ordered"] {
        let server = Server::mounted(&image, &at, &["--mode", more]);
        let (d, e) = (at.file(&format!("d-{more}")), at.file(&format!("e-{more}")));
        [&d, &e].iter().for_each(|p| std::fs::create_dir(p).unwrap());
        std::fs::write(d.join("f"), b"f").unwrap();
        std::fs::write(e.join("over"), b"over").unwrap();
        std::fs::create_dir(d.join("sub")).unwrap();
        rename(&d.join("f"), &e.join("over"), libc::RENAME_WHITEOUT).unwrap();
        rename(&d.join("sub"), &e.join("sub"), libc::RENAME_WHITEOUT).unwrap();
        rename(&e.join("over"), &e.join("f"), libc::RENAME_WHITEOUT).unwrap();
        assert!(is_whiteout(&d.join("f")) && is_whiteout(&d.join("sub")));
        assert!(is_whiteout(&e.join("over")));
        assert_eq!(std::fs::read(e.join("f")).unwrap(), b"f");
        assert!(e.join("sub").is_dir());
        assert_eq!(std::fs::metadata(&d).unwrap().nlink(), 2);
        assert_eq!(std::fs::metadata(&e).unwrap().nlink(), 3);
        // A whiteout of what is there no more, or is to stay, makes no sense.
        let flags = libc::RENAME_WHITEOUT;
        let no = rename(&d.join("none"), &e.join("x"), flags).unwrap_err();
        assert_eq!(no.raw_os_error(), Some(libc::ENOENT));
        let no = rename(&e.join("f"), &e.join("sub"), flags | libc::RENAME_NOREPLACE).unwrap_err();
        assert_eq!(no.raw_os_error(), Some(libc::EEXIST));
        server.stop();
        served::ok(&["fsck", served::s(&image)]);
    }
}

#[test]
fn a_mode_without_atomic_operations_leaves_no_whiteouts() {
    let folder = Folder::new();
    let Some(at) = MountPoint::new(&folder) else { return };
    let image = folder.plain_volume("v", "32M");
    for mode in ["sync", "async"] {
        let server = Server::mounted(&image, &at, &["--mode", mode]);
        let (from, to) = (at.file("from"), at.file("to"));
        std::fs::write(&from, b"").unwrap();
        let no = rename(&from, &to, libc::RENAME_WHITEOUT).unwrap_err();
        assert_eq!(no.raw_os_error(), Some(libc::EINVAL), "{mode}");
        assert!(from.exists() && !to.exists());
        server.stop();
    }
}

/// An overlay, taken away at the end.
struct Overlay(PathBuf);

impl Drop for Overlay {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn an_overlay_takes_a_volume_as_its_upper_layer() {
    let folder = Folder::new();
    let Some(at) = MountPoint::new(&folder).filter(|_| is_root()) else { return };
    let known = std::fs::read_to_string("/proc/filesystems").unwrap();
    if !known.contains("\toverlay\n") {
        println!("skipped: this kernel has no overlayfs");
        return;
    }
    let image = folder.volume("v", "32M");
    let server = Server::mounted(&image, &at, &[]);
    let (lower, merged) = (folder.0.join("lower"), folder.0.join("merged"));
    let (upper, work) = (at.file("upper"), at.file("work"));
    [&lower, &merged, &upper, &work].iter().for_each(|p| std::fs::create_dir(p).unwrap());
    ["kept", "changed", "moved", "removed"]
        .iter()
        .for_each(|n| std::fs::write(lower.join(n), n).unwrap());
    let p = served::s;
    let options = format!("lowerdir={},upperdir={},workdir={}", p(&lower), p(&upper), p(&work));
    let mount = ["-t", "overlay", "overlay", "-o", &options, p(&merged)];
    let overlay = Overlay(merged.clone());
    assert!(Command::new("mount").args(mount).status().unwrap().success());
    let mut changed = OpenOptions::new().append(true).open(merged.join("changed")).unwrap();
    changed.write_all(b" here").unwrap();
    std::fs::rename(merged.join("moved"), merged.join("there")).unwrap();
    std::fs::remove_file(merged.join("removed")).unwrap();
    std::fs::write(merged.join("new"), b"new").unwrap();
    let read = |n: &str| std::fs::read(merged.join(n)).ok();
    assert_eq!(read("changed").unwrap(), b"changed here");
    assert_eq!(read("there").unwrap(), b"moved");
    assert_eq!((read("moved"), read("removed")), (None, None));
    assert_eq!((read("kept").unwrap(), read("new").unwrap()), (b"kept".to_vec(), b"new".to_vec()));
    assert!(is_whiteout(&upper.join("moved")) && is_whiteout(&upper.join("removed")));
    drop((changed, overlay));
    server.stop();
    served::ok(&["fsck", served::s(&image)]);
}

fn unnamed(dir: &Path, flags: i32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o640).custom_flags(libc::O_TMPFILE | flags).open(dir)
}

fn give_name(file: &File, path: &Path) -> io::Result<i64> {
    let (from, to) = (format!("/proc/self/fd/{}", file.as_raw_fd()), c(path));
    let (from, here) = (CString::new(from).unwrap(), libc::AT_FDCWD);
    // SAFETY: two strings that live through the call.
    let rc =
        unsafe { libc::linkat(here, from.as_ptr(), here, to.as_ptr(), libc::AT_SYMLINK_FOLLOW) };
    checked(rc)
}

/// Free blocks of the mounted volume.
fn free(at: &Path) -> u64 {
    // SAFETY: a string and a structure of numbers that live through the call.
    unsafe {
        let mut all: libc::statvfs = std::mem::zeroed();
        checked(libc::statvfs(c(at).as_ptr(), &raw mut all)).unwrap();
        all.f_bfree
    }
}

/// Waits until it is so; the kernel lets go of a file a moment after its last close.
fn soon(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_file_without_a_name_gets_one_or_is_gone() {
    let folder = Folder::new();
    let Some(at) = MountPoint::new(&folder) else { return };
    let image = folder.volume("v", "32M");
    let server = Server::mounted(&image, &at, &[]);
    let dir = at.file("d");
    std::fs::create_dir(&dir).unwrap();
    let before = free(&at.0);
    let file = unnamed(&dir, 0).unwrap();
    file.write_all_at(&[7; 300_000], 0).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
    give_name(&file, &dir.join("f")).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 1);
    assert_eq!(mode(&dir.join("f")), 0o640);
    assert_eq!(std::fs::read(dir.join("f")).unwrap(), [7; 300_000]);
    // It has one now, and takes another like any file.
    give_name(&file, &dir.join("g")).unwrap();
    let taken = give_name(&file, &dir.join("g")).unwrap_err();
    assert_eq!(taken.raw_os_error(), Some(libc::EEXIST));
    drop(file);
    ["f", "g"].iter().for_each(|n| std::fs::remove_file(dir.join(n)).unwrap());
    soon("a removed file's blocks are free", || free(&at.0) == before);
    // One that may get no name, and one that gets none.
    let hidden = unnamed(&dir, libc::O_EXCL).unwrap();
    let no = give_name(&hidden, &dir.join("h")).unwrap_err();
    assert_eq!(no.raw_os_error(), Some(libc::ENOENT));
    hidden.write_all_at(&[8; 100_000], 0).unwrap();
    drop(hidden);
    soon("what got no name is gone", || free(&at.0) == before);
    server.stop();
    served::ok(&["fsck", served::s(&image)]);
}

#[test]
fn a_crash_leaves_a_file_that_got_a_name_and_nothing_of_one_that_got_none() {
    let folder = Folder::new();
    let Some(at) = MountPoint::new(&folder) else { return };
    let image = folder.plain_volume("v", "32M");
    for mode in ["unified", "ordered", "sync"] {
        let server = Server::mounted(&image, &at, &["--mode", mode]);
        let before = free(&at.0);
        let (named, not) = (unnamed(&at.0, 0).unwrap(), unnamed(&at.0, 0).unwrap());
        for file in [&named, &not] {
            file.write_all_at(&[9; 100_000], 0).unwrap();
            file.sync_all().unwrap();
        }
        give_name(&named, &at.file(mode)).unwrap();
        File::open(&at.0).unwrap().sync_all().unwrap();
        server.kill();
        drop((named, not));
        at.free();
        let server = Server::mounted(&image, &at, &["--mode", mode]);
        assert_eq!(std::fs::read(at.file(mode)).unwrap(), [9; 100_000], "{mode}");
        std::fs::remove_file(at.file(mode)).unwrap();
        soon("all blocks are free again", || free(&at.0) == before);
        server.stop();
        served::ok(&["fsck", served::s(&image)]);
    }
}

fn seek(file: &File, to: i64, whence: i32) -> io::Result<i64> {
    // SAFETY: numbers only.
    checked(unsafe { libc::lseek(file.as_raw_fd(), to, whence) })
}

#[test]
fn lseek_finds_data_and_holes() {
    let folder = Folder::new();
    let Some(at) = MountPoint::new(&folder) else { return };
    let image = folder.volume("v", "32M");
    for mode in ["unified", "ordered", "async"] {
        let server = Server::mounted(&image, &at, &["--mode", mode]);
        let file =
            OpenOptions::new().read(true).write(true).create_new(true).open(at.file(mode)).unwrap();
        file.write_all_at(&[1; 5_000], 0).unwrap();
        file.write_all_at(&[1; 4_096], 1 << 20).unwrap();
        file.set_len(3 << 20).unwrap();
        let data = |from| seek(&file, from, libc::SEEK_DATA).map_err(|e| e.raw_os_error());
        let hole = |from| seek(&file, from, libc::SEEK_HOLE).map_err(|e| e.raw_os_error());
        let none = Err(Some(libc::ENXIO));
        assert_eq!((data(0), data(4_999), data(8_192)), (Ok(0), Ok(4_999), Ok(1 << 20)));
        assert_eq!(
            (hole(0), hole(9_000), hole(1 << 20)),
            (Ok(8_192), Ok(9_000), Ok((1 << 20) + 4_096))
        );
        assert_eq!((hole(2 << 20), data(2 << 20)), (Ok(2 << 20), none));
        assert_eq!((hole(3 << 20), data(3 << 20)), (none, none));
        assert_eq!(seek(&file, 0, libc::SEEK_END).unwrap(), 3 << 20);
        drop(file);
        server.stop();
    }
}

/// The time of creation, if there is one.
fn created(path: &Path) -> Option<SystemTime> {
    let path = c(path);
    // SAFETY: a string and a structure of numbers that live through the call.
    let found = unsafe {
        let mut found: libc::statx = std::mem::zeroed();
        let (mask, to) = (libc::STATX_ALL, &raw mut found);
        let rc = libc::statx(libc::AT_FDCWD, path.as_ptr(), libc::AT_SYMLINK_NOFOLLOW, mask, to);
        checked(rc).unwrap();
        found
    };
    let t = found.stx_btime;
    let since = Duration::new(t.tv_sec as u64, t.tv_nsec);
    (found.stx_mask & libc::STATX_BTIME != 0).then(|| SystemTime::UNIX_EPOCH + since)
}

#[test]
fn statx_tells_the_time_of_creation_where_the_volume_has_it() {
    let folder = Folder::new();
    let Some(at) = MountPoint::new(&folder) else { return };
    let image = folder.volume("v", "32M");
    let old = folder.0.join("old");
    served::ok(&["mkfs", served::s(&old), "--size", "32M", "--inode-size", "128"]);
    for (image, has) in [(&image, true), (&old, false)] {
        let server = Server::mounted(image, &at, &[]);
        let before = SystemTime::now() - Duration::from_secs(1);
        let path = at.file("f");
        std::fs::write(&path, b"").unwrap();
        let first = created(&path);
        assert_eq!(first.is_some(), has);
        assert!(first.is_none_or(|t| t >= before && t <= SystemTime::now()));
        // It stays, whatever is done to the file.
        std::fs::write(&path, b"more").unwrap();
        std::fs::rename(&path, at.file("g")).unwrap();
        assert_eq!(created(&at.file("g")), first);
        let all = std::fs::metadata(at.file("g")).unwrap();
        assert_eq!((all.len(), all.nlink(), all.created().ok()), (4, 1, first));
        server.stop();
    }
}

/// FS_IOC_GETFSLABEL, or FS_IOC_SETFSLABEL with a text.
fn label(at: &MountPoint, text: Option<&str>) -> io::Result<String> {
    let request: libc::Ioctl = if text.is_some() { 0x4100_9432u32 } else { 0x8100_9431 } as _;
    let (dir, mut room) = (File::open(at.file("")).unwrap(), [0u8; 256]);
    let text = text.unwrap_or_default().as_bytes();
    room[..text.len()].copy_from_slice(text);
    // SAFETY: of the size that the request's number says, and it lives through the call.
    checked(unsafe { libc::ioctl(dir.as_raw_fd(), request, room.as_mut_ptr()) })?;
    Ok(room.split(|b| *b == 0).next().map(String::from_utf8_lossy).unwrap().into_owned())
}

#[test]
fn the_label_is_changed_while_the_volume_is_mounted() {
    let folder = Folder::new();
    let Some(at) = MountPoint::new(&folder).filter(|_| is_root()) else { return };
    for (n, (profile, mode)) in
        [("ext4", "unified"), ("ext4", "data"), ("ext3", "ordered"), ("ext2", "sync")]
            .into_iter()
            .enumerate()
    {
        let image = folder.0.join(format!("v{n}"));
        let of = ["--profile", profile, "--size", "64M", "--label", "before"];
        served::ok(&[&["mkfs", served::s(&image)], &of[..]].concat());
        let server = Server::mounted(&image, &at, &["--mode", mode]);
        assert_eq!(label(&at, None).unwrap(), "before");
        label(&at, Some("sixteen letters.")).unwrap();
        let long = label(&at, Some("seventeen letters"));
        assert_eq!(long.unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert_eq!(label(&at, None).unwrap(), "sixteen letters.");
        // It was durable when the call had returned.
        server.kill();
        at.free();
        served::ok(&["recover", served::s(&image)]);
        assert_eq!(served::ok(&["label", served::s(&image)]), "sixteen letters.\n", "{mode}");
        let out = Command::new("/usr/sbin/e2fsck").arg("-fn").arg(&image).output().unwrap();
        assert!(out.status.success(), "{mode}: {}", String::from_utf8_lossy(&out.stdout));
    }
}
