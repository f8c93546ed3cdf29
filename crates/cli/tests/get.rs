//! What `put` and `get` carry besides contents: names of one file stay names of one file, and
//! modes, owners and times are what they were. And what `get` leaves alone: what the caller has
//! there already, and devices that he names to write to.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod served;

use served::{Folder, cairn, is_root, ok, s};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn age(path: &Path) {
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    File::open(path).unwrap().set_modified(then).unwrap();
}

/// A tree with all that is carried over, in a folder that has a volume too.
fn tree(folder: &Folder) -> PathBuf {
    let from = folder.0.join("t");
    fs::create_dir_all(from.join("d/e")).unwrap();
    for name in ["a", "d/b", "d/e/c"] {
        fs::write(from.join(name), name).unwrap();
    }
    symlink("a", from.join("l")).unwrap();
    fs::hard_link(from.join("a"), from.join("d/a2")).unwrap();
    fs::hard_link(from.join("a"), from.join("d/e/a3")).unwrap();
    fs::hard_link(from.join("l"), from.join("d/l2")).unwrap();
    if served::me().uid == 0 {
        chown(from.join("d/b"), Some(1234), Some(2345)).unwrap();
        chown(from.join("d/e"), Some(1234), Some(2345)).unwrap();
        lchown(from.join("l"), Some(1234), Some(2345)).unwrap();
    }
    mode(&from.join("d/b"), 0o4751);
    mode(&from.join("d/e"), 0o1777);
    for dir in ["d/b", "d/e", "d", "."] {
        age(&from.join(dir));
    }
    mode(&from.join("d"), 0o555);
    from
}

/// What of each file is to be as it was.
fn listed(top: &Path) -> Vec<String> {
    let mut all = Vec::new();
    let mut dirs = vec![top.to_owned()];
    while let Some(dir) = dirs.pop() {
        for e in fs::read_dir(dir).unwrap() {
            let path = e.unwrap().path();
            let m = fs::symlink_metadata(&path).unwrap();
            let name = path.strip_prefix(top).unwrap().display().to_string();
            let links = if m.is_dir() { 0 } else { m.nlink() };
            let time = (m.mtime(), m.mtime_nsec());
            all.push(format!("{name} {:o} {} {} {links} {time:?}", m.mode(), m.uid(), m.gid()));
            if m.is_dir() {
                dirs.push(path);
            }
        }
    }
    all.sort();
    all
}

#[test]
fn a_tree_comes_back_as_it_was() {
    if !is_root() {
        return;
    }
    let folder = Folder::new();
    let (image, from) = (folder.volume("v.img", "32M"), tree(&folder));
    ok(&["put", s(&image), s(&from), "/"]);
    assert!(ok(&["fsck", s(&image)]).contains("sound"));
    let new = folder.0.join("new");
    ok(&["get", s(&image), "/t", s(&new)]);
    assert_eq!(listed(&new), listed(&from));
    let into = folder.0.join("into");
    fs::create_dir(&into).unwrap();
    ok(&["get", s(&image), "/t", s(&into)]);
    let out = into.join("t");
    assert_eq!(listed(&out), listed(&from));
    let of = |path: &Path| fs::metadata(path).unwrap();
    assert_eq!(of(&out).mtime(), 1_000_000_000, "the top has its time too");
    assert_eq!(of(&out.join("a")).ino(), of(&out.join("d/e/a3")).ino());
    // Once more, over what is there: the same.
    ok(&["get", s(&image), "/t", s(&into)]);
    assert_eq!(listed(&out), listed(&from));
    // Several paths of one command are one copy, too.
    let apart = folder.0.join("apart");
    fs::create_dir(&apart).unwrap();
    ok(&["get", s(&image), "/t/a", "/t/d", s(&apart)]);
    assert_eq!(of(&apart.join("a")).ino(), of(&apart.join("d/a2")).ino());
    assert_eq!(fs::read_to_string(apart.join("d/e/a3")).unwrap(), "a");
}

#[test]
fn many_names_of_one_file_need_its_space_once() {
    let folder = Folder::new();
    let (image, from) = (folder.volume("v.img", "16M"), folder.0.join("many"));
    fs::create_dir(&from).unwrap();
    fs::write(from.join("0"), vec![7; 1 << 20]).unwrap();
    for n in 1..600 {
        fs::hard_link(from.join("0"), from.join(n.to_string())).unwrap();
    }
    ok(&["put", s(&image), s(&from), "/"]);
    let said = ok(&["stat", "--json", s(&image), "/many/0", "/many/599"]);
    let told: Vec<serde_json::Value> =
        said.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!((&told[0]["nlink"], &told[0]["ino"]), (&600.into(), &told[1]["ino"]));
    assert!(ok(&["fsck", s(&image)]).contains("sound"));
}

#[test]
fn what_is_there_keeps_its_other_names_and_its_mode() {
    let folder = Folder::new();
    let (image, out) = (folder.volume("v.img", "32M"), folder.0.join("out"));
    let from = folder.0.join("t");
    fs::create_dir(&from).unwrap();
    for name in ["a", "b"] {
        fs::write(from.join(name), name).unwrap();
    }
    ok(&["put", s(&image), s(&from), "/"]);
    // Two names of one file here are two files there.
    fs::create_dir(&out).unwrap();
    mode(&out, 0o711);
    fs::write(out.join("a"), "of the caller").unwrap();
    fs::hard_link(out.join("a"), out.join("b")).unwrap();
    fs::hard_link(out.join("a"), folder.0.join("mine")).unwrap();
    ok(&["get", s(&image), "/t/a", "/t/b", s(&out)]);
    let read = |name: &str| fs::read_to_string(out.join(name)).unwrap();
    assert_eq!(
        (read("a"), read("b"), read("../mine")),
        ("a".into(), "b".into(), "of the caller".into())
    );
    // A directory that he has named is his.
    ok(&["get", s(&image), "/", s(&out)]);
    assert_eq!(fs::metadata(&out).unwrap().mode() & 0o777, 0o711);
}

#[test]
fn a_device_that_is_written_to_stays_as_it_is() {
    if !is_root() {
        return;
    }
    let folder = Folder::new();
    let (image, null) = (folder.volume("v.img", "32M"), folder.0.join("null"));
    fs::write(folder.0.join("f"), "text").unwrap();
    ok(&["put", s(&image), s(&folder.0.join("f")), "/"]);
    let made = Command::new("mknod").args(["-m", "666", s(&null), "c", "1", "3"]).status();
    if !made.is_ok_and(|s| s.success()) {
        println!("skipped: no device can be made");
        return;
    }
    let (code, _, err) = cairn(&["get", s(&image), "/f", s(&null)]);
    assert_eq!((code, fs::metadata(&null).unwrap().mode() & 0o777), (0, 0o666), "{err}");
}

#[test]
fn cat_follows_links_within_the_volume() {
    let folder = Folder::new();
    let (image, from) = (folder.volume("v.img", "32M"), folder.0.join("t"));
    fs::create_dir_all(from.join("d")).unwrap();
    fs::write(from.join("f"), "text").unwrap();
    for (name, to) in [
        ("whole", "/t/f"),
        ("d/up", "../f"),
        ("dir", "d"),
        ("out", "/../../t/./f"),
        ("lost", "/etc/passwd"),
        ("circle", "circle"),
    ] {
        symlink(to, from.join(name)).unwrap();
    }
    ok(&["put", s(&image), s(&from), "/"]);
    for path in ["/t/whole", "/t/d/up", "/t/dir/up", "/t/out", "/t/dir/../f"] {
        assert_eq!(ok(&["cat", s(&image), path]), "text", "{path}");
    }
    for (path, why) in
        [("/t/lost", "no such file"), ("/t/circle", "circle"), ("/t/dir", "director")]
    {
        let (code, _, err) = cairn(&["cat", s(&image), path]);
        assert!(code == 1 && err.contains(why), "{path}: {err}");
    }
}

#[test]
fn each_path_has_an_object_in_a_line_of_its_own() {
    let folder = Folder::new();
    let image = folder.volume("v.img", "16M");
    ok(&["mkdir", s(&image), "/a", "/b"]);
    let said = ok(&["stat", "--json", s(&image), "/a", "/b"]);
    let names = said.lines().map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap());
    let names: Vec<String> = names.map(|v| v["name"].as_str().unwrap().to_owned()).collect();
    assert_eq!(names, ["/a", "/b"]);
}
