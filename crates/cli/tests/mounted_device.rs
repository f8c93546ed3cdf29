//! A device, not an image, through a mount: the kernel knows it as mounted, so that other programs
//! keep off, FIBMAP and syncfs arrive, and `umount` returns when the volume is closed. Needs FUSE,
//! root and loop devices; without, each test is skipped with a line.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod served;

use served::{CAIRN, Folder, MountPoint, Server, cairn, is_root, ok, s};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A loop device on a file of a folder.
struct Device(PathBuf);

impl Device {
    /// With a new volume. None, with a line that says so, where there is no loop device to be had.
    fn new(folder: &Folder, name: &str) -> Option<Device> {
        let image = folder.volume(name, "64M");
        let made = Command::new("losetup").args(["--find", "--show"]).arg(image).output();
        match made {
            Ok(made) if made.status.success() => {
                Some(Device(String::from_utf8(made.stdout).unwrap().trim().into()))
            }
            _ => {
                println!("skipped: there is no loop device to be had");
                None
            }
        }
    }
    fn path(&self) -> &str {
        s(&self.0)
    }
    /// Opens it as programs do that want it alone.
    fn claimed(&self) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).custom_flags(libc::O_EXCL).open(&self.0)
    }
    /// What e2fsck says of it, which has to be nothing bad.
    fn judge(&self) {
        let out = Command::new("e2fsck").arg("-fn").arg(&self.0).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
    }
    /// What debugfs says.
    fn told(&self, request: &str) -> String {
        let out = Command::new("debugfs").args(["-R", request]).arg(&self.0).output().unwrap();
        String::from_utf8_lossy(&out.stdout).into_owned()
    }
}
impl Drop for Device {
    fn drop(&mut self) {
        // The kernel may let go of it a moment after the last process that had it.
        let end = Instant::now() + Duration::from_secs(5);
        let gone = || Command::new("losetup").arg("-d").arg(&self.0).stderr(Stdio::null()).status();
        while gone().is_ok_and(|s| !s.success()) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Everything that is needed; in this order it goes.
struct Place {
    at: MountPoint,
    device: Device,
    folder: Folder,
}

impl Place {
    fn new() -> Option<Place> {
        let folder = Folder::new();
        let at = MountPoint::new(&folder).filter(|_| is_root())?;
        let device = Device::new(&folder, "v")?;
        Some(Place { at, device, folder })
    }
    fn serve(&self, more: &[&str]) -> Server {
        let mut command = Command::new(CAIRN);
        command.args(["serve", self.device.path(), "--no-nfs", "--mount"]).arg(&self.at.0);
        command.args(more);
        Server::launch(command, &self.log())
    }
    fn log(&self) -> PathBuf {
        self.folder.0.join("log")
    }
    fn umount(&self) {
        umount(&self.at.0, &[]);
    }
    /// The kernel's name for the kind of the uppermost mount there.
    fn kind(&self) -> String {
        let all = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let at = format!(" {} ", s(&self.at.0));
        let line = all.lines().rfind(|l| l.contains(&at)).unwrap_or_default();
        line.split(" - ").nth(1).unwrap_or("none").split(' ').next().unwrap().to_owned()
    }
}

fn umount(dir: &Path, more: &[&str]) {
    let out = Command::new("umount").args(more).arg(dir).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

/// The blocks of a file as FIBMAP tells them, 0 for none.
fn blocks(path: &Path) -> Vec<i32> {
    const FIBMAP: libc::Ioctl = 1;
    let file = File::open(path).unwrap();
    let count = i32::try_from(file.metadata().unwrap().size().div_ceil(4096)).unwrap();
    let one = |n: i32| {
        let mut block = n;
        // SAFETY: the call reads and writes one number, which lives through it.
        let rc = unsafe { libc::ioctl(file.as_raw_fd(), FIBMAP, &raw mut block) };
        assert_eq!(rc, 0, "{}", io::Error::last_os_error());
        block
    };
    (0..count).map(one).collect()
}

/// Has the kernel passed syncfs on since this version?
fn passes_syncfs_on() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map_while(|n| n.trim().parse::<u32>().ok());
    let new = (numbers.next(), numbers.next()) >= (Some(6), Some(18));
    if !new {
        println!("skipped: Linux passes syncfs on since 6.18");
    }
    new
}

#[test]
fn fibmap_tells_the_blocks_that_debugfs_tells() {
    let Some(p) = Place::new() else { return };
    let server = p.serve(&[]);
    assert_eq!(p.kind(), "fuseblk.cairn");
    std::fs::write(p.at.file("whole"), vec![7; 1 << 20]).unwrap();
    let gaps = File::create(p.at.file("gaps")).unwrap();
    for n in [0, 1, 9, 40] {
        gaps.write_all_at(&[1; 4096], n * 4096).unwrap();
    }
    drop(gaps);
    let (whole, gaps) = (blocks(&p.at.file("whole")), blocks(&p.at.file("gaps")));
    assert_eq!((whole.len(), gaps.len()), (256, 41));
    let holes: Vec<usize> = (0..41).filter(|n| gaps[*n] == 0).collect();
    assert_eq!(holes.len(), 37);
    assert!([0, 1, 9, 40].iter().all(|n| gaps[*n] != 0));
    p.umount();
    server.ended();
    for (name, mine) in [("whole", whole), ("gaps", gaps)] {
        let told = p.device.told(&format!("blocks /{name}"));
        let told: Vec<i32> = told.split_whitespace().map(|n| n.parse().unwrap()).collect();
        let mine: Vec<i32> = mine.into_iter().filter(|b| *b != 0).collect();
        assert_eq!(mine, told, "{name}");
    }
}

#[test]
fn what_syncfs_has_returned_of_is_durable() {
    if !passes_syncfs_on() {
        return;
    }
    for mode in ["ordered", "unified", "async"] {
        let Some(p) = Place::new() else { return };
        let server = p.serve(&["--mode", mode, "--commit-interval", "3600"]);
        std::fs::write(p.at.file("kept"), "kept").unwrap();
        let synced = Command::new("sync").arg("-f").arg(&p.at.0).status().unwrap();
        assert!(synced.success(), "{mode}");
        std::fs::write(p.at.file("lost"), "lost").unwrap();
        server.kill();
        let _ = cairn(&["fsck", "--repair", p.device.path()]);
        let root = p.device.told("ls -p /");
        assert!(root.contains("/kept/"), "{mode}: {root}");
        assert!(!root.contains("/lost/"), "{mode}: without it nothing would have been durable");
        assert_eq!(p.device.told("cat /kept"), "kept", "{mode}");
    }
}

/// What is written last takes a while to get to its place.
#[test]
fn umount_returns_when_the_volume_is_closed() {
    for mode in ["unified", "ordered"] {
        let Some(p) = Place::new() else { return };
        let server = p.serve(&["--mode", mode, "--commit-interval", "3600"]);
        std::fs::write(p.at.file("much"), vec![3; 24 << 20]).unwrap();
        for n in 0..500 {
            std::fs::write(p.at.file(&format!("small-{n}")), "x").unwrap();
        }
        p.umount();
        p.device.claimed().unwrap();
        p.device.judge();
        assert!(ok(&["fsck", p.device.path()]).contains("closed cleanly"), "{mode}");
        server.ended();
    }
}

#[test]
fn nobody_else_may_have_a_mounted_device() {
    let Some(p) = Place::new() else { return };
    let server = p.serve(&[]);
    let busy = |r: io::Result<File>| r.is_err_and(|e| e.raw_os_error() == Some(libc::EBUSY));
    assert!(busy(p.device.claimed()));
    let wanted = format!("in use, mounted at {}: unmount it first", s(&p.at.0));
    let other = p.folder.0.join("other");
    std::fs::create_dir(&other).unwrap();
    let (code, _, said) = cairn(&["serve", p.device.path(), "--no-nfs", "--mount", s(&other)]);
    assert!(code == 1 && said.contains(&wanted), "{said}");
    let (code, _, said) = cairn(&["fsck", "--repair", p.device.path()]);
    assert!(code != 0 && said.contains(&wanted), "{said}");
    let out = Command::new("e2fsck").arg("-p").arg(&p.device.0).output().unwrap();
    assert_eq!(out.status.code(), Some(8), "{}", String::from_utf8_lossy(&out.stdout));
    // A server that unmounts by itself has the device alone until it has ended.
    server.stop();
    assert_eq!(p.kind(), "none");
    p.device.claimed().unwrap();
    p.device.judge();
}

/// A killed server's mount stays, and with it the kernel's claim, until somebody asks for the
/// device again.
#[test]
fn after_a_kill_everything_goes_on() {
    let Some(p) = Place::new() else { return };
    let server = p.serve(&[]);
    std::fs::write(p.at.file("a"), "a").unwrap();
    File::open(p.at.file("a")).unwrap().sync_all().unwrap();
    server.kill();
    assert_eq!(p.kind(), "fuseblk.cairn");
    assert!(p.device.claimed().is_err());
    ok(&["recover", p.device.path()]);
    assert_eq!(p.kind(), "none");
    let server = p.serve(&[]);
    assert_eq!(p.kind(), "fuseblk.cairn");
    assert_eq!(std::fs::read(p.at.file("a")).unwrap(), b"a");
    // Somebody sits in it: the dead mount stays for him, and keeps others off.
    let mut sits = Command::new("sleep").arg("600").current_dir(&p.at.0).spawn().unwrap();
    server.kill();
    ok(&["fsck", "--repair", p.device.path()]);
    let server = p.serve(&[]);
    assert_eq!(p.kind(), "fuse.cairn");
    assert!(p.device.claimed().is_err());
    assert_eq!(std::fs::read(p.at.file("a")).unwrap(), b"a");
    p.umount();
    server.ended();
    sits.kill().unwrap();
    sits.wait().unwrap();
    let server = p.serve(&[]);
    assert_eq!(p.kind(), "fuseblk.cairn");
    server.stop();
    p.device.judge();
}

/// Whoever unmounts is not let wait for ever, whatever becomes of the server.
#[test]
fn umount_ends_with_a_server_that_is_killed() {
    let Some(p) = Place::new() else { return };
    let server = p.serve(&[]);
    std::fs::write(p.at.file("a"), "a").unwrap();
    server.halt();
    let mut waits = Command::new("umount").arg(&p.at.0).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    assert!(waits.try_wait().unwrap().is_none(), "the server cannot have answered");
    server.kill();
    assert!(waits.wait().unwrap().success());
    ok(&["recover", p.device.path()]);
    p.device.judge();
}

/// A lazy unmount: the server ends when the last user goes, and what he wrote is there.
#[test]
fn a_lazy_unmount_ends_with_the_last_user() {
    let Some(p) = Place::new() else { return };
    let server = p.serve(&[]);
    let file = File::create(p.at.file("a")).unwrap();
    umount(&p.at.0, &["-l"]);
    assert!(p.device.claimed().is_err());
    file.write_all_at(b"late", 0).unwrap();
    drop(file);
    server.ended();
    p.device.judge();
    assert_eq!(p.device.told("cat /a"), "late");
}

/// Of two mounts of one server the first to go does not wait for the server, which goes on, and has
/// that device to itself again.
#[test]
fn a_server_with_two_mounts_ends_with_the_second() {
    let Some(p) = Place::new() else { return };
    let Some(second) = Device::new(&p.folder, "w") else { return };
    let (dir, config) = (p.folder.0.join("second"), p.folder.0.join("c.toml"));
    std::fs::create_dir(&dir).unwrap();
    let volume = |name: &str, device: &Device, dir: &Path| {
        format!("[volume.{name}]\nimage = \"{}\"\nmount = \"{}\"\n", device.path(), dir.display())
    };
    let text = volume("v", &p.device, &p.at.0) + &volume("w", &second, &dir);
    std::fs::write(&config, format!("no-nfs = true\n{text}")).unwrap();
    let mut command = Command::new(CAIRN);
    command.args(["serve", "--config"]).arg(&config);
    let server = Server::launch(command, &p.log());
    std::fs::write(dir.join("a"), "a").unwrap();
    p.umount();
    // It takes the claim back a moment after the kernel has let go of it.
    let begun = Instant::now();
    while p.device.claimed().is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(30), "its volume is still open");
        std::thread::sleep(Duration::from_millis(200));
    }
    std::fs::write(dir.join("b"), "b").unwrap();
    umount(&dir, &[]);
    p.device.claimed().unwrap();
    p.device.judge();
    second.judge();
    server.ended();
}
