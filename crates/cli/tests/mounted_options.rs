//! The options of a mount, as mount(8) has them: what each does, that `remount` changes them, when
//! a read sets the time of access, and that nothing is written after `remount,ro`. Needs FUSE, and
//! root for some; without, each test is skipped with a line.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod served;

use served::{Folder, MountPoint, Server, is_root, s};
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

/// `cairn mount` with these arguments.
fn mounted(image: &Path, at: &MountPoint, more: &[&str]) -> Server {
    let mut command = Command::new(served::CAIRN);
    command.arg("mount").arg(image).arg(&at.0).args(more);
    Server::launch(command, &image.with_extension("log"))
}

fn remount(image: &Path, at: &MountPoint, options: &str) {
    served::ok(&["mount", s(image), s(&at.0), "-o", &format!("remount,{options}")]);
}

/// The options that the kernel has for the mount.
fn in_force(at: &MountPoint) -> Vec<String> {
    let all = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = all.lines().rfind(|l| l.contains(&format!(" {} ", s(&at.0)))).unwrap();
    let fields: Vec<&str> = line.split(' ').collect();
    let super_options = line.rsplit(' ').next().unwrap();
    format!("{},{super_options}", fields[5]).split(',').map(str::to_owned).collect()
}

/// Does running the program fail for want of permission?
fn is_refused(program: &Path) -> bool {
    match Command::new(program).stdout(Stdio::null()).status() {
        Ok(status) => !status.success(),
        Err(e) => e.kind() == ErrorKind::PermissionDenied,
    }
}

/// As whom the set-user-id copy of `id` runs.
fn runs_as(program: &Path) -> String {
    let out = Command::new(program).arg("-u").output().unwrap();
    String::from_utf8(out.stdout).unwrap().trim().to_owned()
}

fn make_device(path: &Path, major: u32, minor: u32) {
    let name = CString::new(path.as_os_str().as_bytes()).unwrap();
    let device = libc::makedev(major, minor);
    // SAFETY: a string that lives through the call.
    let rc = unsafe { libc::mknod(name.as_ptr(), libc::S_IFCHR | 0o666, device) };
    assert_eq!(rc, 0, "{}", io::Error::last_os_error());
}

#[test]
fn suid_dev_and_noexec_are_what_they_say_and_remount_changes_them() {
    let folder = Folder::new();
    let Some(at) = MountPoint::new(&folder).filter(|_| is_root()) else { return };
    let image = folder.volume("v", "32M");
    let (id, null) = (at.file("id"), at.file("null"));
    let opens = || OpenOptions::new().write(true).open(&null).is_ok();
    let server = mounted(&image, &at, &[]);
    std::fs::copy("/usr/bin/id", &id).unwrap();
    std::os::unix::fs::chown(&id, Some(4321), None).unwrap();
    std::fs::set_permissions(&id, PermissionsExt::from_mode(0o4755)).unwrap();
    make_device(&null, 1, 3);
    assert_eq!((runs_as(&id).as_str(), opens()), ("0", false), "nosuid,nodev is the default");
    remount(&image, &at, "suid");
    assert_eq!((runs_as(&id).as_str(), opens()), ("4321", false));
    remount(&image, &at, "noexec,dev");
    assert!(is_refused(&id) && opens());
    remount(&image, &at, "exec,nosuid");
    assert_eq!((runs_as(&id).as_str(), opens()), ("0", true));
    server.stop();
    let server = mounted(&image, &at, &["-o", "suid", "-o", "dev,noatime,nodiratime"]);
    assert_eq!((runs_as(&id).as_str(), opens()), ("4321", true));
    assert!(["noatime", "nodiratime"].iter().all(|o| in_force(&at).iter().any(|i| i == o)));
    server.stop();
    // What mount(8)'s users expect of `defaults`, and of `serve`.
    let server = Server::mounted(&image, &at, &["-o", "defaults,noexec,sync"]);
    assert!(is_refused(&id) && opens());
    assert!(in_force(&at).iter().any(|o| o == "sync"));
    server.stop();
}

#[test]
fn what_mount_does_not_know_is_refused_before_anything_is_opened() {
    let folder = Folder::new();
    let Some(at) = MountPoint::new(&folder) else { return };
    let image = folder.volume("v", "32M");
    for (args, code, said) in [
        (["mount", s(&image), s(&at.0), "-o", "ro,nosense"], 2, "\"nosense\""),
        (["mount", s(&image), s(&at.0), "-o", "remount,ro"], 1, "no volume is mounted there"),
    ] {
        let (found, out, err) = served::cairn(&args);
        assert_eq!(found, code, "{args:?}: {out}{err}");
        assert!(err.contains(said) && err.lines().count() == 1, "{err}");
    }
}

/// Makes the file's last read a moment long ago.
fn long_ago(file: &File) -> SystemTime {
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    file.set_times(std::fs::FileTimes::new().set_accessed(then)).unwrap();
    then
}

/// The kernel's pages of the file are dropped, so that the server hears of the read.
fn read_anew(file: &File) {
    use std::os::fd::AsRawFd;
    // SAFETY: numbers only.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    file.read_at(&mut [0; 10], 0).unwrap();
}

/// When it was last read, asked of the server and not of what the kernel remembers.
fn last_read(path: &Path) -> SystemTime {
    let at = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: a string and a structure of numbers that live through the call.
    let t = unsafe {
        let mut found: libc::statx = std::mem::zeroed();
        let (flags, mask) = (libc::AT_STATX_FORCE_SYNC, libc::STATX_ATIME);
        let rc = libc::statx(libc::AT_FDCWD, at.as_ptr(), flags, mask, &raw mut found);
        assert_eq!(rc, 0, "{}", io::Error::last_os_error());
        found.stx_atime
    };
    SystemTime::UNIX_EPOCH + Duration::new(t.tv_sec as u64, t.tv_nsec)
}

/// Waits until it is so: the server hears of changed options a moment after they hold.
fn soon(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_read_sets_the_time_of_access_as_the_options_say() {
    let folder = Folder::new();
    let Some(at) = MountPoint::new(&folder) else { return };
    let image = folder.volume("v", "32M");
    let path = at.file("f");
    let make = || {
        std::fs::write(&path, b"read me").unwrap();
        OpenOptions::new().read(true).write(true).open(&path).unwrap()
    };
    for (options, first, second) in
        [("relatime", true, false), ("noatime", false, false), ("strictatime", true, true)]
    {
        let server = mounted(&image, &at, &["-o", options]);
        let file = make();
        let then = long_ago(&file);
        read_anew(&file);
        let after_first = last_read(&path);
        assert_eq!(after_first != then, first, "{options}");
        std::thread::sleep(Duration::from_millis(5));
        read_anew(&file);
        assert_eq!(last_read(&path) != after_first, second, "{options}");
        drop(file);
        server.stop();
    }
    if !is_root() {
        return;
    }
    let server = mounted(&image, &at, &["-o", "noatime"]);
    let file = make();
    let then = long_ago(&file);
    remount(&image, &at, "strictatime");
    soon("a changed option is noticed", || {
        read_anew(&file);
        last_read(&path) != then
    });
    drop(file);
    server.stop();
}

/// What the README says of times of access: those that reads set are durable after
/// `--commit-interval`, those that somebody sets as other attributes are.
#[test]
fn times_of_access_survive_a_kill() {
    let folder = Folder::new();
    let Some(at) = MountPoint::new(&folder) else { return };
    let image = folder.volume("v", "32M");
    let more = |mode| ["--mode", mode, "--commit-interval", "0.2"];
    for mode in ["unified", "redo", "ordered", "data"] {
        let server = Server::mounted(&image, &at, &more(mode));
        let (read, set) = (at.file("read"), at.file("set"));
        [&read, &set].iter().for_each(|p| std::fs::write(p, b"a").unwrap());
        let (file, other) = (File::open(&read).unwrap(), File::open(&set).unwrap());
        long_ago(&file);
        read_anew(&file);
        let (then, long) = (last_read(&read), long_ago(&other));
        other.sync_all().unwrap();
        // Much longer than the interval: a machine that has other things to do writes late.
        std::thread::sleep(Duration::from_millis(2000));
        server.kill();
        drop((file, other));
        at.free();
        let server = Server::mounted(&image, &at, &more(mode));
        assert_eq!(last_read(&read), then, "{mode}");
        assert_eq!(last_read(&set), long, "{mode}");
        server.stop();
    }
}

/// The image's bytes, as far as a few numbers tell them.
fn digest(image: &Path) -> u64 {
    let bytes = std::fs::read(image).unwrap();
    bytes.chunks_exact(8).fold(7, |sum, w| {
        let word = u64::from_le_bytes(w.try_into().unwrap());
        (sum ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(17)
    })
}

#[test]
fn nothing_is_written_after_remount_ro() {
    let folder = Folder::new();
    let Some(at) = MountPoint::new(&folder).filter(|_| is_root()) else { return };
    let image = folder.plain_volume("v", "8M");
    for mode in ["unified", "ordered", "sync"] {
        let more = ["--mode", mode, "--commit-interval", "0.2", "-o", "strictatime"];
        let server = mounted(&image, &at, &more);
        let path = at.file(mode);
        std::fs::write(&path, vec![5; 100_000]).unwrap();
        let file = File::open(&path).unwrap();
        long_ago(&file);
        remount(&image, &at, "ro");
        assert_eq!(
            std::fs::write(at.file("x"), b"").unwrap_err().kind(),
            ErrorKind::ReadOnlyFilesystem
        );
        // What had been written lies in its place soon, whatever the log still says of it.
        let quiet = || {
            let before = digest(&image);
            std::thread::sleep(Duration::from_millis(500));
            before == digest(&image)
        };
        soon("what was written is written back", quiet);
        let (before, last) = (digest(&image), last_read(&path));
        for _ in 0..5 {
            read_anew(&file);
            std::fs::read_dir(&at.0).unwrap().for_each(drop);
            std::thread::sleep(Duration::from_millis(100));
        }
        assert_eq!(last_read(&path), last, "{mode}");
        assert!(digest(&image) == before, "{mode}: something was written");
        // And back again.
        remount(&image, &at, "rw");
        std::fs::write(at.file("x"), b"").unwrap();
        soon("times of access are kept again", || {
            read_anew(&file);
            last_read(&path) != last
        });
        drop(file);
        server.stop();
        served::ok(&["fsck", s(&image)]);
    }
}

#[test]
fn ro_leaves_the_volume_as_it_is() {
    let folder = Folder::new();
    let Some(at) = MountPoint::new(&folder) else { return };
    let image = folder.volume("v", "8M");
    let server = mounted(&image, &at, &[]);
    std::fs::write(at.file("f"), b"read me").unwrap();
    server.stop();
    let before = digest(&image);
    let server = mounted(&image, &at, &["-o", "ro,strictatime"]);
    assert_eq!(std::fs::read(at.file("f")).unwrap(), b"read me");
    let no = std::fs::write(at.file("f"), b"").unwrap_err();
    assert_eq!(no.kind(), ErrorKind::ReadOnlyFilesystem);
    server.stop();
    assert!(digest(&image) == before);
}

/// `sync` and `dirsync`: what has returned survives a kill in a mode that promises less.
#[test]
fn sync_and_dirsync_make_returned_calls_durable() {
    let folder = Folder::new();
    let Some(at) = MountPoint::new(&folder) else { return };
    let image = folder.volume("v", "32M");
    for options in ["sync", "dirsync"] {
        let more = ["--mode", "ordered", "--commit-interval", "60", "-o", options];
        let server = mounted(&image, &at, &more);
        let dir = at.file(options);
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("f"), b"contents").unwrap();
        std::fs::rename(dir.join("f"), dir.join("g")).unwrap();
        server.kill();
        at.free();
        let server = mounted(&image, &at, &more);
        let found = std::fs::metadata(dir.join("g")).unwrap();
        if options == "sync" {
            assert_eq!(std::fs::read(dir.join("g")).unwrap(), b"contents");
        }
        assert_eq!(found.nlink(), 1);
        server.stop();
    }
}
