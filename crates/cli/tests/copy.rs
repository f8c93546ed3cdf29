//! `cairn copy`: in every mode a volume is copied while clients change it, and the copy is the
//! volume of one moment: what was acknowledged before it began, in the order in which it was done,
//! and nothing beyond a gap. e2fsck finds nothing wrong.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod served;

use nfs3_client::nfs3_types::nfs3::stable_how;
use served::{ANY, Client, Folder, Server, cairn, ok, s};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const BLOCK: usize = 4096;
/// Blocks of the file that is written round and round.
const RING: u64 = 600;
/// A file is made after so many of its blocks.
const EACH: u64 = 8;

/// e2fsck finds nothing.
fn assert_sound(image: &Path) {
    let done = Command::new("e2fsck").args(["-fn", s(image)]).output().unwrap();
    assert_eq!(done.status.code(), Some(0), "{}", String::from_utf8_lossy(&done.stdout));
}

/// Block `n` of the ring, as step `n` writes it.
fn block(n: u64) -> Vec<u8> {
    n.to_le_bytes().repeat(BLOCK / 8)
}

/// Steps of one client, each after the last one's answer: a block of the ring, which nobody waits
/// for, or a file that is durable when it is answered, in one directory and then in the other.
fn work(client: &mut Client, acknowledged: &AtomicU64, stop: &AtomicBool) {
    let root = client.root.clone();
    let dirs = ["left", "right"].map(|n| client.mkdir(&root, n).unwrap());
    let ring = client.create_new(&root, "ring").unwrap();
    for n in 0.. {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let at = n % RING * BLOCK as u64;
        client.write(&ring, at, &block(n), stable_how::UNSTABLE).unwrap();
        if n % EACH == 0 {
            let dir = &dirs[(n / EACH % 2) as usize];
            let file = client.create_new(dir, &format!("f{n}")).unwrap();
            client.write(&file, 0, &block(n), stable_how::FILE_SYNC).unwrap();
            if n % (EACH * 5) == 0 {
                client.remove(dir, &format!("f{n}")).unwrap();
            }
        }
        acknowledged.store(n + 1, Ordering::SeqCst);
    }
}

/// Something else that keeps the disk busy: what it does is looked at by e2fsck alone.
fn noise(client: &mut Client, stop: &AtomicBool) {
    let root = client.root.clone();
    let dir = client.mkdir(&root, "noise").unwrap();
    for n in 0u64.. {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let file = client.create_new(&dir, &format!("n{n}")).unwrap();
        for part in 0..n % 40 {
            let bytes = vec![n as u8; 60_000];
            client.write(&file, part * 60_000, &bytes, stable_how::UNSTABLE).unwrap();
        }
        if n >= 10 {
            client.remove(&dir, &format!("n{}", n - 10)).unwrap();
        }
    }
}

/// What a copy holds is what was there after some step, at least `least` and at most `most` steps.
fn assert_prefix(copy: &Path, (least, most): (u64, u64), what: &str) {
    let to = copy.with_extension("out");
    std::fs::create_dir(&to).unwrap();
    ok(&["get", s(copy), "/", s(&to)]);
    let ring = std::fs::read(to.join("ring")).unwrap();
    let number = |at: usize| u64::from_le_bytes(ring[at * BLOCK..][..8].try_into().unwrap());
    let blocks = ring.len() / BLOCK;
    let newest = (0..blocks).map(number).max().unwrap();
    assert!(newest + 1 >= least, "{what}: step {newest} is the last, of {least} acknowledged");
    assert!(newest <= most, "{what}: step {newest} of the future, there were {most}");
    for at in 0..blocks {
        let n = number(at);
        let want = newest - (newest + RING - at as u64) % RING;
        assert_eq!(n, want, "{what}: block {at} is not of the moment of step {newest}");
        assert!(ring[at * BLOCK..][..BLOCK] == block(n), "{what}: block {at} is torn");
    }
    for n in (0..newest + EACH).step_by(EACH as usize) {
        let dir = ["left", "right"][(n / EACH % 2) as usize];
        let found = std::fs::read(to.join(dir).join(format!("f{n}")));
        match found {
            // The last step may be half done, and what was removed is gone.
            _ if n == newest || n % (EACH * 5) == 0 && n < newest => {
                assert!(n == newest || found.is_err(), "{what}: f{n} was removed");
            }
            Ok(bytes) => {
                assert!(n < newest, "{what}: f{n} came after {newest}");
                assert!(bytes == block(n), "{what}: f{n}");
            }
            Err(_) => assert!(n > newest, "{what}: f{n} came before {newest}"),
        }
    }
    std::fs::remove_dir_all(&to).unwrap();
}

/// The kind of volume that is copied in this mode.
fn profile(mode: &str) -> &'static str {
    match mode {
        "lfs" => "lfs",
        "sync" | "async" | "soft-updates" => "ext2",
        "ordered" | "unified" => "ext4",
        _ => "ext3",
    }
}

fn volume(folder: &Folder, mode: &str) -> PathBuf {
    let profile = profile(mode);
    let image = folder.0.join(mode);
    ok(&["mkfs", s(&image), "--size", "192M", "--profile", profile]);
    image
}

/// Copies beside which something must have happened, and how many may be made for that.
const LIVELY: u32 = 3;
const ROUNDS_MAX: u32 = 20;

/// Three copies while clients work: a new one, and the same place again.
fn copied_in_use(mode: &str, more: &[&str]) {
    let folder = Folder::new();
    let image = volume(&folder, mode);
    let args = [&["--mode", mode], more].concat();
    let server = Server::trusting(&[&image], ANY, &args);
    let acknowledged = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let export = format!("/{mode}");
    let clients: Vec<_> = (0..2)
        .map(|which| {
            let mut client = server.client(&export);
            let (acknowledged, stop) = (acknowledged.clone(), stop.clone());
            std::thread::spawn(move || match which {
                0 => work(&mut client, &acknowledged, &stop),
                _ => noise(&mut client, &stop),
            })
        })
        .collect();
    let copy = folder.0.join("copy");
    // On a busy machine a copy may be made while no client has its turn: that one shows little.
    let mut lively = 0;
    for round in 0..ROUNDS_MAX {
        std::thread::sleep(Duration::from_millis(300));
        let least = acknowledged.load(Ordering::SeqCst);
        let told = ok(&["copy", s(&image), s(&copy)]);
        let most = acknowledged.load(Ordering::SeqCst);
        let what = format!("mode {mode} {more:?}, copy {round}");
        assert!(told.contains("a clean copy"), "{what}: {told}");
        if profile(mode) != "lfs" {
            assert_sound(&copy);
        }
        assert!(ok(&["info", s(&copy), "--json"]).contains("\"clean\":true"), "{what}");
        if profile(mode) != "ext4" {
            let (code, out, err) = cairn(&["fsck", s(&copy)]);
            assert_eq!(code, 0, "{what}: {out}{err}");
        }
        assert_prefix(&copy, (least, most), &what);
        lively += u32::from(most > least);
        if lively == LIVELY {
            break;
        }
    }
    assert_eq!(lively, LIVELY, "mode {mode}: nothing happened beside most of {ROUNDS_MAX} copies");
    stop.store(true, Ordering::SeqCst);
    clients.into_iter().for_each(|c| c.join().unwrap());
    server.stop();
    if profile(mode) != "lfs" {
        assert_sound(&image);
    }
}

macro_rules! modes {
    ($($name:ident: $mode:expr $(, $more:expr)*;)*) => {
        $(#[test]
        fn $name() {
            copied_in_use($mode, &[$($more),*]);
        })*
    };
}

modes! {
    a_copy_in_mode_sync_is_of_one_moment: "sync";
    a_copy_in_mode_async_is_of_one_moment: "async", "--unsafe-async";
    a_copy_in_mode_soft_updates_is_of_one_moment: "soft-updates";
    a_copy_in_mode_ordered_is_of_one_moment: "ordered";
    a_copy_in_mode_writeback_is_of_one_moment: "writeback";
    a_copy_in_mode_data_is_of_one_moment: "data";
    a_copy_in_mode_wasteless_is_of_one_moment: "wasteless";
    a_copy_in_mode_selective_is_of_one_moment: "selective";
    a_copy_in_mode_redo_is_of_one_moment: "redo";
    a_copy_in_mode_unified_is_of_one_moment: "unified";
    a_copy_in_mode_lfs_is_of_one_moment: "lfs";
}

/// The copy does without the log, which its volume goes on to use.
#[test]
fn a_copy_of_a_volume_with_its_log_elsewhere_needs_no_log() {
    let folder = Folder::new();
    let log = folder.0.join("log");
    for mode in ["redo", "unified"] {
        copied_in_use(mode, &["--log", s(&log)]);
        std::fs::remove_file(&log).unwrap();
    }
}

#[test]
fn a_volume_at_rest_is_copied_sparsely_and_again_only_where_it_differs() {
    let folder = Folder::new();
    let image = folder.volume("rest", "256M");
    let file = folder.0.join("file");
    std::fs::write(&file, vec![7; 3 << 20]).unwrap();
    ok(&["put", s(&image), s(&file), "/"]);
    let copy = folder.0.join("copy");
    let told = ok(&["copy", s(&image), s(&copy)]);
    assert!(told.contains("a clean copy"), "{told}");
    assert_sound(&copy);
    let (a, b) = (std::fs::read(&image).unwrap(), std::fs::read(&copy).unwrap());
    assert!(a == b, "a volume that was closed is copied as it is");
    let blocks = |p: &Path| std::fs::metadata(p).unwrap().blocks();
    assert!(blocks(&copy) <= blocks(&image) + 64, "{} of {}", blocks(&copy), blocks(&image));
    let told = ok(&["copy", s(&image), s(&copy)]);
    assert!(told.contains("4.0 KiB written"), "nothing differs but the mark: {told}");
    ok(&["rm", s(&image), "/file"]);
    ok(&["copy", s(&image), s(&copy)]);
    assert_sound(&copy);
    assert_eq!(ok(&["ls", s(&copy), "/"]), ok(&["ls", s(&image), "/"]));
    // What was left unclean is finished in the copy alone.
    let server = Server::trusting(&[&image], ANY, &["--mode", "redo"]);
    let mut client = server.client("/rest");
    let root = client.root.clone();
    client.mkdir(&root, "kept").unwrap();
    server.kill();
    ok(&["copy", s(&image), s(&copy)]);
    assert_sound(&copy);
    assert!(ok(&["ls", s(&copy), "/"]).contains("kept"));
    assert!(ok(&["info", s(&image), "--json"]).contains("\"clean\":false"));
}

#[test]
fn a_copy_that_was_cut_off_is_no_volume_and_is_finished_by_the_next() {
    let folder = Folder::new();
    for profile in ["ext3", "lfs"] {
        let image = folder.0.join(profile);
        ok(&["mkfs", s(&image), "--size", "64M", "--profile", profile]);
        let copy = folder.0.join(format!("{profile}-copy"));
        ok(&["copy", s(&image), s(&copy)]);
        // As it is until the end: the mark, and all of the rest.
        let mut bytes = std::fs::read(&copy).unwrap();
        bytes[..24].copy_from_slice(b"cairn: unfinished copy \n");
        bytes[24..4096].fill(0);
        std::fs::write(&copy, bytes).unwrap();
        for args in [
            &["info", s(&copy)] as &[&str],
            &["ls", s(&copy), "/"],
            &["recover", s(&copy)],
            &["fsck", "--repair", s(&copy)],
            &["copy", s(&copy), s(&folder.0.join("another"))],
        ] {
            let (code, _, err) = cairn(args);
            assert!(code == 1 && err.contains("unfinished copy"), "{args:?}: {code} {err}");
        }
        ok(&["copy", s(&image), s(&copy)]);
        assert_eq!(cairn(&["fsck", s(&copy)]).0, 0);
    }
}

/// Asks the server by its control socket; the answer's first line and its end.
fn ask(server: &Server, path: &str) -> String {
    let socket = format!("{}.sock", server.id());
    let mut dirs = vec![PathBuf::from("/run/cairn")];
    if let Some(dir) = std::env::var_os("XDG_RUNTIME_DIR").filter(|_| !served::is_root()) {
        dirs = vec![PathBuf::from(dir).join("cairn")];
    }
    dirs.push(std::env::temp_dir().join(format!("cairn-{}", served::me().uid)));
    let at = dirs.into_iter().map(|d| d.join(&socket)).find(|p| p.exists()).unwrap();
    let mut stream = UnixStream::connect(at).unwrap();
    write!(stream, "POST {path} HTTP/1.1\r\nhost: cairn\r\nconnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    format!("{} {body}", head.lines().next().unwrap())
}

/// Begins a copy of a volume; its number.
fn begun(server: &Server, volume: usize) -> u64 {
    let answer = ask(server, &format!("/copy/begin/{volume}"));
    let body = answer.find('{').filter(|_| answer.contains("200"));
    let body = &answer[body.unwrap_or_else(|| panic!("{answer}"))..];
    serde_json::from_str::<serde_json::Value>(body).unwrap()["copy"].as_u64().unwrap()
}

#[test]
fn who_takes_a_copy_and_vanishes_holds_nobody_up() {
    let folder = Folder::new();
    let image = folder.volume("held", "32M");
    let server = Server::trusting(&[&image], ANY, &[]);
    let mut client = server.client("/held");
    let root = client.root.clone();
    assert!(ask(&server, "/copy/changed/0/1").contains("409"), "none was begun");
    assert!(ask(&server, "/copy/begin/1").contains("409"), "there is no such volume");
    let number = begun(&server, 0);
    let step = |step: &str| ask(&server, &format!("/copy/{step}/0/{number}"));
    let again = ask(&server, "/copy/begin/0");
    assert!(again.contains("409") && again.contains("a copy of it is being taken"), "{again}");
    client.mkdir(&root, "before").unwrap();
    let changed = step("changed");
    assert!(changed.contains("200") && changed.contains("ranges\":[["), "{changed}");
    assert!(step("freeze/5000").contains("200"));
    let twice = step("freeze/5000");
    assert!(twice.contains("409") && twice.contains("come to rest"), "{twice}");
    let begun = Instant::now();
    assert!(client.lookup(&root, "before").is_ok(), "reads go on");
    let read = begun.elapsed();
    client.mkdir(&root, "after").unwrap();
    let waited = begun.elapsed();
    // Had the read waited too, both would have gone on at the same time.
    assert!(
        waited > read + Duration::from_millis(500),
        "a change is held back: {read:?} {waited:?}"
    );
    assert!(waited < Duration::from_secs(60), "{waited:?}");
    let late = step("thaw");
    assert!(late.contains("409") && late.contains("too long"), "{late}");
    assert!(step("freeze/60000").contains("200"));
    assert!(step("thaw").contains("200"));
    let begun = Instant::now();
    client.mkdir(&root, "at once").unwrap();
    assert!(step("freeze/60000").contains("200"));
    server.stop();
    assert!(begun.elapsed() < Duration::from_secs(20), "who holds it does not keep it open");
    assert_sound(&image);
}

#[test]
fn what_is_no_earlier_copy_is_not_written_over() {
    let folder = Folder::new();
    let (image, other) = (folder.volume("one", "32M"), folder.volume("other", "32M"));
    let text = folder.0.join("text");
    std::fs::write(&text, "a text").unwrap();
    let refused = |to: &Path, why: &str| {
        let before = std::fs::read(to).unwrap();
        let (code, _, err) = cairn(&["copy", s(&image), s(to)]);
        assert!(code != 0 && err.contains(why), "{err}");
        assert!(before == std::fs::read(to).unwrap(), "and nothing was changed");
    };
    refused(&other, "another volume");
    refused(&text, "something else");
    refused(&image, "its own copy");
    ok(&["copy", s(&image), s(&text), "--force"]);
    assert_sound(&text);
    let (code, _, err) = cairn(&["copy", s(&folder.0.join("none")), s(&text)]);
    assert!(code == 1 && err.contains("No such file"), "{err}");
    let (code, _, err) = cairn(&["copy", s(&image), s(&folder.0.join("no/where"))]);
    assert!(code == 1 && err.contains("no/where"), "{err}");
    let (code, _, err) = cairn(&["copy", s(&image), s(&text), "--hold", "0"]);
    assert!(code == 2 && err.contains("--hold"), "{err}");
    let server = Server::trusting(&[&other], ANY, &[]);
    let (code, _, err) = cairn(&["copy", s(&image), s(&other), "--force"]);
    assert!(code == 1 && err.contains("in use by process"), "{err}");
    server.stop();
}

#[test]
fn a_copy_that_is_refused_leaves_the_one_that_is_taken_alone() {
    let folder = Folder::new();
    let image = folder.volume("taken", "32M");
    let server = Server::trusting(&[&image], ANY, &[]);
    let number = begun(&server, 0);
    let (code, _, err) = cairn(&["copy", s(&image), s(&folder.0.join("second"))]);
    assert!(code == 1 && err.contains("a copy of it is being taken"), "{code} {err}");
    let changed = ask(&server, &format!("/copy/changed/0/{number}"));
    assert!(changed.contains("200"), "{changed}");
    let other = ask(&server, &format!("/copy/changed/0/{}", number + 1));
    assert!(other.contains("409") && other.contains("another has begun"), "{other}");
    ask(&server, &format!("/copy/end/0/{}", number + 1));
    assert!(ask(&server, &format!("/copy/alive/0/{number}")).contains("200"));
    ask(&server, &format!("/copy/end/0/{number}"));
    ok(&["copy", s(&image), s(&folder.0.join("second"))]);
    server.stop();
}

/// As whoever has cut it out of something else may have it: nobody needs what is behind the volume.
#[test]
fn an_image_that_ends_in_the_middle_of_a_sector_is_copied() {
    let folder = Folder::new();
    let (image, copy) = (folder.volume("odd", "32M"), folder.0.join("copy"));
    let mut bytes = std::fs::read(&image).unwrap();
    bytes.extend([b'x'; 700]);
    std::fs::write(&image, &bytes).unwrap();
    for in_use in [false, true] {
        let server = in_use.then(|| Server::trusting(&[&image], ANY, &[]));
        ok(&["copy", s(&image), s(&copy)]);
        let copied = std::fs::read(&copy).unwrap();
        assert!(copied.len() == bytes.len() && copied.ends_with(&[b'x'; 700]), "{in_use}");
        assert_sound(&copy);
        server.into_iter().for_each(Server::stop);
    }
}

/// What was made in the place of an image in use is not what its server serves.
#[test]
fn a_file_in_the_place_of_the_one_in_use_is_not_copied_for_it() {
    let folder = Folder::new();
    let image = folder.volume("served", "32M");
    let server = Server::trusting(&[&image], ANY, &[]);
    std::fs::remove_file(&image).unwrap();
    assert_eq!(folder.volume("served", "32M"), image);
    let (code, _, err) = cairn(&["copy", s(&image), s(&folder.0.join("copy"))]);
    assert!(code == 1 && err.contains("not the one that is in use"), "{code} {err}");
    server.stop();
}
