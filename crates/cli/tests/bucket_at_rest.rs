//! Volumes in a bucket whose objects are compressed and encrypted, from the command line: used with
//! their key, refused without, damage told with the object's name, nothing readable in the bucket.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod served;

use served::{Folder, MountPoint, Server, cairn, ok, s};
use std::path::{Path, PathBuf};
use std::process::Command;

fn refused(args: &[&str], words: &str) {
    let (code, out, err) = cairn(args);
    assert!(code != 0 && err.contains(words), "{args:?}: {out}{err}");
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => all.extend(files_below(&path)),
            false => all.push(path),
        }
    }
    all
}

#[test]
fn a_volume_is_used_with_its_key_and_not_without() {
    let folder = Folder::new();
    let (right, wrong) = (folder.0.join("key"), folder.0.join("wrong"));
    std::fs::write(&right, [7; 32]).unwrap();
    std::fs::write(&wrong, format!("{}\n", "0b".repeat(32))).unwrap();
    let url = format!("file://{}/bucket", folder.0.display());
    let (v, key) = (url.as_str(), s(&right));
    ok(&["mkfs", v, "--size", "256M", "--compress", "--key-file", key]);
    let local = folder.0.join("data");
    let line = |i: u64| format!("what nobody else may read {}\n", i * 2_654_435_761 % 999_983);
    let text: String = (0..100_000).map(line).collect();
    std::fs::write(&local, &text).unwrap();
    ok(&["put", v, s(&local), "/", "--key-file", key]);
    ok(&["snapshot", "create", &format!("{v}@a"), "--key-file", key]);
    let back = folder.0.join("back");
    let command = format!("cat {key}");
    ok(&["get", v, "/data", s(&back), "--key-command", &command]);
    assert_eq!(std::fs::read_to_string(&back).unwrap(), text);
    for args in [&["ls", v, "/"][..], &["fsck", v], &["info", v], &["lfs", "stat", v]] {
        ok(&[args, &["--key-file", key]].concat());
        refused(args, "--key-file");
        refused(&[args, &["--key-file", s(&wrong)]].concat(), "not made with this key");
    }
    refused(&["ls", v, "/", "--key-file", s(&local)], "a key is 32 random bytes");
    refused(&["ls", v, "/", "--key-command", "exit 3"], "it has failed");
    let (mut bytes, objects) = (0, files_below(&folder.0.join("bucket")));
    for object in &objects {
        let raw = std::fs::read(object).unwrap();
        assert!(!raw.windows(8).any(|w| w == b"nobody e"), "{}", object.display());
        bytes += raw.len();
    }
    assert!(bytes < text.len(), "compressed: {bytes}");
    // An object in another one's place, and one with a bit that is wrong.
    let size = |p: &&PathBuf| std::fs::metadata(p).unwrap().len();
    let log = || objects.iter().filter(|o| o.parent().is_some_and(|p| p.ends_with("log")));
    let (largest, smallest) = (log().max_by_key(size).unwrap(), log().min_by_key(size).unwrap());
    let name = format!("log/{}", largest.file_name().unwrap().to_string_lossy());
    let whole = std::fs::read(largest).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    for bytes in [flipped, std::fs::read(smallest).unwrap()] {
        std::fs::write(largest, bytes).unwrap();
        let (code, out, err) = cairn(&["-v", "get", v, "/data", s(&back), "--key-file", key]);
        assert!(code != 0 && err.contains(&name) && err.contains("damaged"), "{name}: {out}{err}");
    }
    std::fs::write(largest, whole).unwrap();
    ok(&["fsck", v, "--key-file", key]);
}

#[test]
fn a_key_where_none_belongs_is_refused() {
    let folder = Folder::new();
    let key = folder.0.join("key");
    std::fs::write(&key, [7; 32]).unwrap();
    let url = format!("file://{}/bucket", folder.0.display());
    ok(&["mkfs", &url, "--size", "256M", "--compress"]);
    ok(&["fsck", &url]);
    refused(&["ls", &url, "/", "--key-file", s(&key)], "not encrypted");
    let image = folder.0.join("v.img");
    refused(&["mkfs", s(&image), "--size", "16M", "--key-file", s(&key)], "in a bucket");
    refused(&["mkfs", s(&image), "--size", "16M", "--compress"], "in a bucket");
}

/// A mount of an encrypted volume is taken over by another, which has the key too.
#[test]
fn mounted_and_taken_over() {
    let folder = Folder::new();
    let Some(mnt) = MountPoint::new(&folder) else { return };
    let key = folder.0.join("key");
    std::fs::write(&key, [9; 32]).unwrap();
    let url = format!("file://{}/bucket", folder.0.display());
    ok(&["mkfs", &url, "--size", "256M", "--key-file", s(&key)]);
    let launch = |at: &Path, log: &str| {
        let mut command = Command::new(served::CAIRN);
        command.args(["serve", "--standby", &url, "--no-nfs", "--takeover-after", "1"]);
        command.args(["--key-file", s(&key), "--mount"]).arg(at);
        Server::launch(command, &folder.0.join(log))
    };
    let server = launch(&mnt.0, "first");
    std::fs::write(mnt.file("one"), [1; 100_000]).unwrap();
    std::fs::File::open(mnt.file("one")).unwrap().sync_all().unwrap();
    drop(server); // killed
    mnt.free();
    let other = MountPoint(folder.0.join("other"));
    std::fs::create_dir(&other.0).unwrap();
    let server = launch(&other.0, "second");
    assert_eq!(std::fs::read(other.file("one")).unwrap(), [1; 100_000]);
    let open_to_signals: Vec<String> = std::fs::read_dir(format!("/proc/{}/task", server.id()))
        .unwrap()
        .filter_map(|t| std::fs::read_to_string(t.unwrap().path().join("status")).ok())
        .filter(|status| !blocks_term(status))
        .filter_map(|status| status.lines().next().map(str::to_owned))
        .collect();
    // But for the one that waits for them, and the kernel's own.
    let others = open_to_signals.iter().filter(|n| !n.contains("cairn") && !n.contains("iou-"));
    assert_eq!(
        others.collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "SIGTERM would end these at once"
    );
    server.stop();
}

/// Does a thread, by its /proc/PID/task/TID/status, leave SIGTERM to others?
fn blocks_term(status: &str) -> bool {
    let blocked = status.lines().find_map(|l| l.strip_prefix("SigBlk:")).expect("it has a mask");
    let mask = u64::from_str_radix(blocked.trim(), 16).expect("a mask is hexadecimal");
    mask & 1 << (15 - 1) != 0
}

/// What was read once is read from the cache after a restart, and from the bucket where the cache
/// is damaged.
#[test]
fn a_cache_on_a_disk_survives_and_is_never_believed_when_it_is_wrong() {
    for key in [None, Some([5; 32])] {
        let folder = Folder::new();
        let file = folder.0.join("key");
        key.iter().for_each(|key| std::fs::write(&file, key).unwrap());
        let key = if key.is_some() { vec!["--key-file", s(&file)] } else { Vec::new() };
        let url = format!("file://{}/bucket", folder.0.display());
        let run = |args: &[&str]| ok(&[args, &key].concat());
        run(&["mkfs", &url, "--size", "256M"]);
        let local = folder.0.join("data");
        // Contents that do not get shorter.
        let noise = |i: u32| (i.wrapping_mul(2_654_435_761) ^ i.wrapping_mul(i) >> 7) >> 13;
        let bytes: Vec<u8> = (0..4_000_000).map(|i| noise(i) as u8).collect();
        std::fs::write(&local, &bytes).unwrap();
        run(&["put", &url, s(&local), "/"]);
        let (path, back) = (folder.0.join("cache"), folder.0.join("back"));
        let cache = format!("{},32M", path.display());
        let get = || {
            let _ = std::fs::remove_file(&back);
            run(&["get", &url, "/data", s(&back), "--cache-disk", &cache]);
            assert!(std::fs::read(&back).unwrap() == bytes, "{key:?}");
        };
        get();
        let filled = std::fs::read(&path).unwrap();
        assert!(filled.iter().filter(|b| **b != 0).count() > 3_000_000, "it is used");
        get();
        let again = std::fs::read(&path).unwrap();
        let changed = again.iter().zip(&filled).filter(|(a, b)| a != b).count();
        assert!(changed < 1_000_000, "most had not to be read again: {changed}");
        let mut damaged = filled;
        damaged.iter_mut().skip(100_000).step_by(50_000).for_each(|b| *b ^= 1);
        std::fs::write(&path, damaged).unwrap();
        get();
        refused(&["ls", &url, "/", "--cache-disk", "nowhere"], "PATH,SIZE");
        refused(
            &["ls", &url, "/", "--cache-disk", &format!("{},32M", local.display())],
            "no cache",
        );
        // The volume is made anew: nothing of the old one is shown.
        run(&["mkfs", &url, "--size", "256M", "--force"]);
        std::fs::write(&local, vec![3; 3_000_000]).unwrap();
        run(&["put", &url, s(&local), "/", "--cache-disk", &cache]);
        run(&["get", &url, "/data", s(&back.with_extension("2")), "--cache-disk", &cache]);
        assert!(std::fs::read(back.with_extension("2")).unwrap() == vec![3; 3_000_000]);
    }
}

/// The process in the background has the key and the cache, and not the one that starts it.
#[test]
fn mounted_in_the_background_with_key_and_cache() {
    let folder = Folder::new();
    let Some(mnt) = MountPoint::new(&folder) else { return };
    let key = folder.0.join("key");
    std::fs::write(&key, [9; 32]).unwrap();
    let url = format!("file://{}/bucket", folder.0.display());
    ok(&["mkfs", &url, "--size", "256M", "--key-file", s(&key)]);
    let (asked, path) = (folder.0.join("asked"), folder.0.join("cache"));
    let command = format!("echo >> {}; cat {}", asked.display(), key.display());
    let cache = format!("{},32M", path.display());
    let options = ["--daemon", "--key-command", &command, "--cache-disk", &cache];
    ok(&[&["mount", &url, s(&mnt.0)], &options[..]].concat());
    std::fs::write(mnt.file("one"), [1; 100_000]).unwrap();
    assert_eq!(std::fs::read(mnt.file("one")).unwrap(), [1; 100_000]);
    assert_eq!(std::fs::read(&asked).unwrap(), b"\n", "the command is asked once");
    mnt.free();
}
