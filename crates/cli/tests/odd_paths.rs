//! Names and files that commands meet seldom: names that are no text, attributes that only root
//! gives, what is no file, a target that is no directory, devices that cannot be written, and
//! images that are named from where one stands.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod served;

use rustix::fs::{XattrFlags, lgetxattr, setxattr};
use served::{CAIRN, Folder, MountPoint, cairn, is_root, ok, s};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

fn refused(args: &[&str], why: &str) {
    let (code, out, err) = cairn(args);
    assert!(code == 1 && err.contains(why), "{args:?}: {code} {out}{err}");
}

#[test]
fn names_are_bytes() {
    let folder = Folder::new();
    let image = folder.volume("v", "16M");
    let name = OsStr::from_bytes(b"x\xff\x80y");
    let run = |words: &[&OsStr]| {
        let out = Command::new(CAIRN).args(words).output().unwrap();
        assert!(out.status.success(), "{words:?}: {}", String::from_utf8_lossy(&out.stderr));
        out.stdout
    };
    let word = OsStr::new;
    let local = folder.0.join(name);
    fs::write(&local, "of a name that is no text").unwrap();
    let image = image.as_os_str();
    run(&[word("put"), image, local.as_os_str(), word("/")]);
    let inside: OsString = [word("/"), name].into_iter().collect();
    assert_eq!(run(&[word("cat"), image, &inside]), b"of a name that is no text");
    let listed = run(&[word("ls"), image, &inside]);
    assert!(String::from_utf8_lossy(&listed).contains("/x\\xff\\x80y"), "{listed:?}");
    run(&[word("stat"), image, &inside]);
    let back = folder.0.join("back");
    fs::create_dir(&back).unwrap();
    run(&[word("get"), image, &inside, back.as_os_str()]);
    assert_eq!(fs::read(back.join(name)).unwrap(), b"of a name that is no text");
    run(&[word("rm"), image, &inside]);
    run(&[word("mkdir"), image, &inside]);
    let below: OsString = [&inside, word("/b//")].into_iter().collect();
    run(&[word("mkdir"), image, &below]);
    run(&[word("rm"), word("-r"), image, &inside]);
    assert_eq!(run(&[word("ls"), image]).split(|b| *b == b'\n').count(), 2); // lost+found
}

/// A link that leads nowhere is somebody's, and so is what has the name of a file to be made.
#[test]
fn what_cannot_be_made_takes_nothing_with_it() {
    let folder = Folder::new();
    let link = folder.0.join("link.img");
    let leads = || fs::read_link(&link).is_ok_and(|to| to == Path::new("not-there/x.img"));
    std::os::unix::fs::symlink("not-there/x.img", &link).unwrap();
    refused(&["mkfs", s(&link), "--size", "16M"], "File exists");
    assert!(leads(), "mkfs");
    refused(&["log", "format", s(&link)], "File exists");
    assert!(leads(), "a log");
    let store = folder.0.join("store.img");
    ok(&["mkfs", s(&store), "--profile", "lfs", "--size", "64M"]);
    refused(&["lfs", "export", s(&store), s(&link)], "File exists");
    assert!(leads(), "an export");
    let nothing = folder.0.join("nothing.img");
    refused(&["lfs", "export", s(&nothing), s(&link)], "No such file");
    assert!(leads(), "an export of nothing");
    let long = folder.0.join("long.img");
    let (code, _, err) = cairn(&["mkfs", s(&long), "--size", "8388607T"]);
    assert!(code == 1 && !long.exists(), "{err}");
}

#[test]
fn what_only_root_gives_is_carried_over_as_by_cp() {
    let folder = Folder::new();
    let image = folder.volume("v", "16M");
    let (from, back) = (folder.0.join("from"), folder.0.join("back"));
    fs::write(&from, "a program").unwrap();
    // cap_net_raw, permitted and effective.
    let capability = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let given: [(&str, &[u8]); 2] =
        [("security.capability", &capability), ("trusted.mark", b"kept")];
    if !is_root() || setxattr(&from, given[1].0, given[1].1, XattrFlags::empty()).is_err() {
        println!("skipped: these attributes cannot be given here");
        return;
    }
    std::os::unix::fs::chown(&from, Some(1234), Some(1234)).unwrap();
    setxattr(&from, given[0].0, given[0].1, XattrFlags::empty()).unwrap();
    ok(&["put", s(&image), s(&from), "/"]);
    let (code, _, err) = cairn(&["get", s(&image), "/from", s(&back)]);
    assert!(code == 0 && err.is_empty(), "{err}");
    for (name, value) in given {
        let mut kept = [0; 64];
        let len = lgetxattr(&back, name, &mut kept[..]).unwrap();
        assert_eq!(&kept[..len], value, "{name}");
    }
}

#[test]
fn what_is_no_file_is_not_passed_over_in_silence() {
    let folder = Folder::new();
    let image = folder.volume("v", "16M");
    let (fifo, file) = (folder.0.join("fifo"), folder.0.join("file"));
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    fs::write(&file, "x").unwrap();
    refused(&["put", s(&image), s(&fifo), "/"], "a device, fifo or socket is not copied");
    ok(&["put", s(&image), s(&file), "/"]);
    let (_, _, err) = cairn(&["put", s(&image), s(&file), "/file"]);
    assert!(err.contains(&format!("{}: /file: not a directory", s(&image))), "{err}");
    // In a tree it is left out, with a word.
    let tree = folder.0.join("tree");
    fs::create_dir(&tree).unwrap();
    fs::rename(&fifo, tree.join("fifo")).unwrap();
    let (code, _, err) = cairn(&["put", s(&image), s(&tree), "/"]);
    assert!(code == 0 && err.contains("is left out"), "{err}");
}

#[test]
fn a_read_only_device_is_called_so() {
    let folder = Folder::new();
    if !is_root() {
        return;
    }
    let image = folder.volume("v", "16M");
    let out = Command::new("losetup").args(["-r", "-f", "--show"]).arg(&image).output().unwrap();
    if !out.status.success() {
        println!("skipped: there is no loop device");
        return;
    }
    let device = String::from_utf8(out.stdout).unwrap().trim().to_owned();
    let (code, _, err) = cairn(&["mkdir", &device, "/d"]);
    let read = cairn(&["ls", &device]).0;
    assert!(Command::new("losetup").args(["-d", &device]).status().unwrap().success());
    assert!(code == 1 && err.contains("the device is read-only"), "{err}");
    assert_eq!(read, 0);
}

#[test]
fn at_boot_a_sound_store_is_no_failure() {
    let folder = Folder::new();
    let image = folder.0.join("v");
    ok(&["mkfs", s(&image), "--profile", "lfs", "--size", "64M"]);
    let out = ok(&["fsck", "--repair", "--unless-clean", s(&image)]);
    assert!(out.contains("closed cleanly, not looked at"), "{out}");
    // One that was not closed is looked at, and recovers by itself.
    let server = served::Server::trusting(&[&image], served::ANY, &[]);
    let mut client = server.client("/v");
    client.mkdir(&client.root.clone(), "d").unwrap();
    server.kill();
    let out = ok(&["fsck", "--repair", "--unless-clean", s(&image)]);
    assert!(out.contains("sound"), "{out}");
    refused(&["fsck", "--repair", s(&image)], "not in this version");
    let helper = folder.0.join("fsck.cairn");
    std::os::unix::fs::symlink(CAIRN, &helper).unwrap();
    assert!(Command::new(&helper).arg("-a").arg(&image).status().unwrap().success());
}

/// As mount.fuse3(8) runs `cairn#IMAGE`.
#[test]
fn an_image_beside_us_is_mounted_by_its_bare_name() {
    let folder = Folder::new();
    let Some(at) = MountPoint::new(&folder) else { return };
    folder.volume("v.img", "16M");
    let mount = |image: &str| {
        Command::new(CAIRN)
            .args([image, "mnt", "-o", "ro"])
            .current_dir(&folder.0)
            .output()
            .unwrap()
    };
    let out = mount("v.img");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(at.file("lost+found").is_dir());
    at.free();
    wait_until_free(&folder.0.join("v.img"));
}

fn wait_until_free(image: &Path) {
    let image: PathBuf = image.to_owned();
    let begun = Instant::now();
    while cairn(&["mkdir", s(&image), "/d"]).0 != 0 {
        assert!(begun.elapsed() < Duration::from_secs(20), "its server does not end");
        std::thread::sleep(Duration::from_millis(50));
    }
}
