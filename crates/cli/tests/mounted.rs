//! What a mount promises, alone and with NFS beside it: contents that somebody else changed are
//! seen soon, what returned is durable where the mode says so, and fsync does what is left to do.
//! Needs FUSE; without it, each test is skipped with a line.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod served;

use nfs3_client::nfs3_types::nfs3::*;
use rustix::process::Signal;
use served::{ANY, Dice, Folder, MountPoint, Server, cairn, s};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Longer than the kernel believes what it was told while NFS clients change the volume too.
const SOON: Duration = Duration::from_secs(30);

fn beside_nfs(image: &Path, at: &MountPoint, more: &[&str]) -> Server {
    Server::trusting(&[image], ANY, &[&["--mount", served::s(&at.0)], more].concat())
}

/// Waits until it is so.
fn soon(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < SOON, "{what}: not in {SOON:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_killed_servers_mount_is_not_in_the_way_of_the_next() {
    let folder = Folder::new();
    let Some(at) = MountPoint::new(&folder) else { return };
    let image = folder.volume("v", "16M");
    Server::mounted(&image, &at, &[]).kill();
    assert!(std::fs::metadata(&at.0).is_err(), "nobody answers there");
    let server = Server::mounted(&image, &at, &[]);
    std::fs::write(at.file("f"), b"it is served").unwrap();
    server.stop();
    assert!(at.0.is_dir() && !at.file("f").exists());
}

#[test]
fn what_is_served_is_read_through_its_mount() {
    let folder = Folder::new();
    let Some(at) = MountPoint::new(&folder) else { return };
    let image = folder.volume("v", "16M");
    let server = Server::mounted(&image, &at, &[]);
    std::fs::write(at.file("f"), b"it is served").unwrap();
    let (code, out, err) = cairn(&["check", "--read", s(&image)]);
    assert!(code == 0 && out.contains(" of 1 files read, 0 unreadable"), "{out}{err}");
    server.stop();
}

#[test]
fn what_nfs_clients_change_is_seen_through_the_mount() {
    let folder = Folder::new();
    let Some(at) = MountPoint::new(&folder) else { return };
    let image = folder.volume("v", "32M");
    let server = beside_nfs(&image, &at, &[]);
    let mut nfs = server.client("/v");
    let root = nfs.root.clone();
    let path = at.file("f");
    std::fs::write(&path, vec![b'a'; 20_000]).unwrap();
    // Its pages are in the kernel, and stay there as long as somebody has it open.
    let open = File::open(&path).unwrap();
    let seen = |want: &[u8]| {
        let mut bytes = vec![0; 100_000];
        let n = open.read_at(&mut bytes, 0).unwrap();
        bytes[..n] == *want && std::fs::read(&path).unwrap() == want
    };
    assert!(seen(&[b'a'; 20_000]));
    let file = nfs.lookup(&root, "f").unwrap();
    // Of the same length; in one page only; longer; and shorter.
    let mut want = vec![b'b'; 20_000];
    nfs.write(&file, 0, &want, stable_how::FILE_SYNC).unwrap();
    soon("other contents", || seen(&want));
    want[10_000] = b'c';
    nfs.write(&file, 10_000, b"c", stable_how::UNSTABLE).unwrap();
    soon("one other byte", || seen(&want));
    want.extend([b'd'; 5_000]);
    nfs.write(&file, 20_000, &want[20_000..], stable_how::FILE_SYNC).unwrap();
    soon("a longer file", || seen(&want));
    want.truncate(4_097);
    nfs.set(&file, sattr3 { size: Nfs3Option::Some(4_097), ..sattr3::default() }).unwrap();
    soon("a shorter file", || seen(&want));
    // Names, too: one that was not there, and one that is there no more.
    assert!(!at.file("g").exists());
    nfs.create_new(&root, "g").unwrap();
    soon("a new name", || at.file("g").exists());
    nfs.remove(&root, "g").unwrap();
    soon("a removed name", || !at.file("g").exists());
    // And the other way round at once.
    std::fs::write(&path, b"through the mount").unwrap();
    assert_eq!(nfs.read(&file, 0, 100).unwrap(), b"through the mount");
    drop(open);
    server.stop();
}

/// Fsyncs of this file, asked for by a thread of their own; what each returned.
fn fsyncs(file: File) -> (mpsc::Sender<()>, mpsc::Receiver<io::Result<()>>) {
    let (ask, asked) = mpsc::channel();
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || while asked.recv().is_ok() && tell.send(file.sync_all()).is_ok() {});
    (ask, told)
}

/// Does an fsync wait for a server that has been stopped? It returns success, now or when the
/// server goes on.
fn fsync_asks_the_server(server: &Server, path: &Path) -> bool {
    let (ask, told) = fsyncs(File::create(path).unwrap());
    ask.send(()).unwrap();
    told.recv_timeout(SOON).unwrap().unwrap();
    server.halt();
    ask.send(()).unwrap();
    let early = told.recv_timeout(Duration::from_secs(2));
    server.signal(Signal::CONT);
    match early {
        Ok(done) => {
            done.unwrap();
            false
        }
        Err(RecvTimeoutError::Timeout) => {
            told.recv_timeout(SOON).unwrap().unwrap();
            true
        }
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn fsync_asks_the_server_where_it_has_something_to_do() {
    let folder = Folder::new();
    let Some(at) = MountPoint::new(&folder) else { return };
    let image = folder.volume("v", "32M");
    let path = at.file("f");
    for (more, asks) in [
        (&["--mode", "unified", "--commit", "sync"][..], false),
        (&["--mode", "unified", "--commit", "sync", "--fuse-uring", "off"], false),
        (&["--mode", "unified", "--commit", "async"], true),
        (&["--mode", "unified"], true),
        (&["--mode", "ordered"], true),
    ] {
        let server = Server::mounted(&image, &at, more);
        assert_eq!(fsync_asks_the_server(&server, &path), asks, "{more:?}");
        server.stop();
    }
    let server = beside_nfs(&image, &at, &["--mode", "unified", "--commit", "sync"]);
    assert!(fsync_asks_the_server(&server, &path), "beside NFS");
    server.stop();
}

#[test]
fn fsync_beside_nfs_keeps_what_an_nfs_client_has_not_committed() {
    let folder = Folder::new();
    let Some(at) = MountPoint::new(&folder) else { return };
    let image = folder.volume("v", "32M");
    for (round, mode) in ["unified", "redo", "ordered", "data"].into_iter().enumerate() {
        let server = beside_nfs(&image, &at, &["--mode", mode]);
        let mut nfs = server.client("/v");
        let root = nfs.root.clone();
        let file = nfs.create_new(&root, mode).unwrap();
        let bytes = vec![b'0' + round as u8; 50_000];
        nfs.write(&file, 0, &bytes, stable_how::UNSTABLE).unwrap();
        let open = OpenOptions::new().write(true).open(at.file(mode)).unwrap();
        open.sync_all().unwrap();
        server.kill();
        drop(open);
        at.free();
        let server = beside_nfs(&image, &at, &["--mode", mode]);
        assert!(std::fs::read(at.file(mode)).unwrap() == bytes, "mode {mode}");
        server.stop();
    }
}

/// A file in memory. It has to stay there: the kernel writes what was changed when it goes.
struct Mapped {
    pages: *mut libc::c_void,
    len: usize,
}

impl Mapped {
    fn new(file: &File, len: usize) -> Mapped {
        let (access, at) = (libc::PROT_READ | libc::PROT_WRITE, std::ptr::null_mut());
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let pages = unsafe { libc::mmap(at, len, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        assert_ne!(pages, libc::MAP_FAILED, "{}", io::Error::last_os_error());
        Mapped { pages, len }
    }
    /// Changes a byte of each page.
    fn change(&mut self, to: u8) {
        for n in (0..self.len).step_by(4096) {
            // SAFETY: within the mapping, which nobody else knows.
            unsafe { self.pages.cast::<u8>().add(n).write_volatile(to) };
        }
    }
}
impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: what `new` mapped, and nobody touches it from now on.
        unsafe { libc::munmap(self.pages, self.len) };
    }
}

/// How much of the pages that it sends was written, the kernel does not look at.
#[test]
fn mapped_pages_are_written_as_a_whole_or_fsync_fails() {
    let folder = Folder::new();
    let Some(at) = MountPoint::new(&folder) else { return };
    const LEN: usize = 1 << 20;
    let open = |name: &str| {
        let mut how = OpenOptions::new();
        let file = how.read(true).write(true).create_new(true).open(at.file(name)).unwrap();
        file.set_len(LEN as u64).unwrap();
        file
    };
    // More than one transaction holds.
    let image = folder.plain_volume("v", "8M");
    for mode in ["data", "wasteless", "selective"] {
        let server = Server::mounted(&image, &at, &["--mode", mode]);
        let file = open(mode);
        let mut mapped = Mapped::new(&file, LEN);
        mapped.change(7);
        file.sync_all().unwrap();
        drop((mapped, file));
        server.stop();
        let server = Server::mounted(&image, &at, &[]);
        let bytes = std::fs::read(at.file(mode)).unwrap();
        let lost = (0..LEN).step_by(4096).filter(|n| bytes[*n] != 7).count();
        assert_eq!(lost, 0, "pages in mode {mode}");
        server.stop();
    }
    // More than there is room for.
    for mode in ["unified", "sync"] {
        let image = folder.plain_volume(mode, "8M");
        let server = Server::mounted(&image, &at, &["--mode", mode]);
        let mut ballast = File::create(at.file("ballast")).unwrap();
        while ballast.write_all(&[1; 4096]).is_ok() {}
        let full = ballast.metadata().unwrap().len();
        ballast.set_len(full - LEN as u64 / 2).unwrap();
        let file = open("f");
        let mut mapped = Mapped::new(&file, LEN);
        mapped.change(7);
        assert!(file.sync_all().is_err(), "{mode}: pages are lost, and nobody hears of it");
        drop((mapped, file));
        server.stop();
    }
}

#[test]
fn fsync_keeps_what_was_written_to_mapped_pages() {
    let folder = Folder::new();
    let Some(at) = MountPoint::new(&folder) else { return };
    let image = folder.volume("v", "32M");
    const LEN: usize = 300_000;
    for (round, alone) in [true, false, true].into_iter().enumerate() {
        let start = || match alone {
            true => Server::mounted(&image, &at, &["--mode", "unified"]),
            false => beside_nfs(&image, &at, &["--mode", "unified"]),
        };
        let server = start();
        let path = at.file(&format!("f{round}"));
        std::fs::write(&path, vec![b'a'; LEN]).unwrap();
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        // The first one is when the kernel is told that there is nothing to do.
        let mut mapped = Mapped::new(&file, LEN);
        for to in [b'b', b'c'] {
            mapped.change(to);
            file.sync_data().unwrap();
        }
        server.kill();
        drop((mapped, file));
        at.free();
        let server = start();
        let found = std::fs::read(&path).unwrap();
        assert_eq!(found.len(), LEN);
        assert!(found.iter().step_by(4096).all(|b| *b == b'c'), "alone: {alone}");
        server.stop();
    }
}

/// What a writer knows when the mount breaks: the bytes of its files, and what the call under way
/// writes, which may be there as a whole, in part, or not at all.
#[derive(Default)]
struct Memory {
    files: BTreeMap<String, Vec<u8>>,
    doubt: Option<(String, usize, Vec<u8>)>,
    returned: u64,
}

const WRITERS: u64 = 3;
/// Calls that a writer is not expected to reach before the kill.
const CALLS: u64 = 1 << 20;

/// Makes files, and writes into them at random places, until the server is gone.
fn write(dir: &Path, m: &mut Memory, dice: &mut Dice) -> io::Result<()> {
    for n in 0..CALLS {
        let names: Vec<String> = m.files.keys().cloned().collect();
        if names.is_empty() || dice.below(4) == 0 {
            let name = format!("f{}", m.returned);
            File::create(dir.join(&name))?;
            m.files.insert(name, Vec::new());
            m.returned += 1;
            continue;
        }
        let name = names[dice.below(names.len() as u64) as usize].clone();
        let known = m.files.get_mut(&name).unwrap();
        let to = dice.below(known.len() as u64 + 1) as usize;
        let most = if dice.below(8) == 0 { 300_000 } else { 9_000 };
        let bytes = vec![b'a' + (n % 26) as u8; 1 + dice.below(most) as usize];
        m.doubt = Some((name.clone(), to, bytes.clone()));
        let file = OpenOptions::new().write(true).open(dir.join(&name))?;
        file.write_all_at(&bytes, to as u64)?;
        known.resize(known.len().max(to + bytes.len()), 0);
        known[to..to + bytes.len()].copy_from_slice(&bytes);
        m.doubt = None;
        m.returned += 1;
        if dice.below(16) == 0 {
            file.sync_all()?;
        }
    }
    Ok(())
}

/// Looks for all of it, and takes what is there for what is known.
fn look(dir: &Path, m: &mut Memory) {
    let doubt = m.doubt.take();
    for (name, known) in &mut m.files {
        let found = std::fs::read(dir.join(name)).unwrap();
        let unsure = doubt.as_ref().filter(|d| d.0 == *name);
        let (from, to) = unsure.map_or((0, 0), |(_, at, bytes)| (*at, at + bytes.len()));
        let end = known.len().max(to);
        assert!(found.len() >= known.len() && found.len() <= end, "{name}: {}", found.len());
        for (at, byte) in found.iter().enumerate() {
            let written =
                unsure.is_some_and(|d| (from..to).contains(&at) && d.2[at - from] == *byte);
            assert!(written || known.get(at) == Some(byte), "{name}: byte {at} is lost");
        }
        *known = found;
    }
}

#[test]
fn what_returned_in_mode_unified_survives_a_kill_without_fsync() {
    let rounds: u64 = std::env::var("MOUNT_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(5);
    let folder = Folder::new();
    let Some(at) = MountPoint::new(&folder) else { return };
    let image = folder.volume("v", "512M");
    let more = ["--mode", "unified", "--commit", "sync", "--cache", "16M"];
    let mut all: Vec<Memory> = (0..WRITERS).map(|_| Memory::default()).collect();
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let mut server = Server::mounted(&image, &at, &more);
    for round in 0..rounds {
        let wait = Duration::from_millis(50 + dice.below(700));
        std::thread::scope(|s| {
            let threads: Vec<_> = all
                .iter_mut()
                .enumerate()
                .map(|(w, m)| {
                    let dir = at.file(&format!("w{w}"));
                    std::fs::create_dir_all(&dir).unwrap();
                    let mut dice = Dice(1 + round * WRITERS + w as u64);
                    s.spawn(move || {
                        let end = write(&dir, m, &mut dice).expect_err("it was killed");
                        let code = end.raw_os_error();
                        // The kernel's own: the connection was aborted, or is gone, or its ring is.
                        assert!(matches!(code, Some(103 | 107 | 125)), "round {round}: {end}");
                    })
                })
                .collect();
            std::thread::sleep(wait);
            server.kill();
            threads.into_iter().for_each(|t| t.join().unwrap());
        });
        at.free();
        server = Server::mounted(&image, &at, &more);
        for (w, m) in all.iter_mut().enumerate() {
            look(&at.file(&format!("w{w}")), m);
        }
    }
    server.stop();
    let n: u64 = all.iter().map(|m| m.returned).sum();
    assert!(n > rounds * WRITERS, "only {n} calls returned");
    println!("{rounds} kills, {n} calls that returned, nothing missing");
    served::ok(&["fsck", served::s(&image)]);
}
