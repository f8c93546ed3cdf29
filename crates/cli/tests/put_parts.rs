//! What `put` leaves when it cannot do all of it: files that are whole, and no parts of others,
//! which would be taken for them. And what new users write: `.`, and `ls` without a path.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod served;

use served::{ANY, Folder, Server, cairn, ok, s};
use std::fs;
use std::path::Path;
use std::process::Command;

fn fails(args: &[&str], with: &str) -> String {
    let (code, out, err) = cairn(args);
    assert!(code == 1 && err.contains(with), "{args:?}: {code} {out}{err}");
    out
}

fn names(image: &Path, dir: &str) -> Vec<String> {
    let told: serde_json::Value =
        serde_json::from_str(&ok(&["ls", "--json", s(image), dir])).unwrap();
    let all = told.as_array().unwrap().iter().map(|e| e["name"].as_str().unwrap().to_owned());
    all.filter(|n| n != "lost+found").collect()
}

#[test]
fn a_part_of_a_file_does_not_stay() {
    let folder = Folder::new();
    let (image, from) = (folder.volume("v.img", "32M"), folder.0.join("from"));
    fs::create_dir(&from).unwrap();
    fs::write(from.join("0small"), "text").unwrap();
    fs::write(from.join("big"), vec![7; 40 << 20]).unwrap();
    fails(&["put", s(&image), s(&from), "/"], "no space left");
    assert!(ok(&["fsck", s(&image)]).contains("sound"));
    assert!(!names(&image, "/from").contains(&"big".into()), "a part of it is there");
    for name in names(&image, "/from") {
        assert_eq!(ok(&["cat", s(&image), &format!("/from/{name}")]), "text");
    }
    // Nothing is in the way of another attempt, with less.
    fs::write(from.join("big"), vec![7; 1 << 20]).unwrap();
    ok(&["put", s(&image), s(&from.join("big")), "/from"]);
}

#[test]
fn names_that_are_there_leave_no_empty_files_beside_them() {
    let folder = Folder::new();
    let (image, from) = (folder.volume("v.img", "32M"), folder.0.join("from"));
    fs::create_dir(&from).unwrap();
    for name in ["a", "b", "c"] {
        fs::write(from.join(name), name).unwrap();
    }
    ok(&["put", s(&image), s(&from.join("b")), "/"]);
    // As `cp -a .` does it: what is in the directory.
    let put = |at: &Path| {
        Command::new(served::CAIRN).args(["put", s(&image), ".", "/"]).current_dir(at).output()
    };
    let done = put(&from).unwrap();
    let err = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.code() == Some(1) && err.contains("b: the name exists"), "{err}");
    assert_eq!(names(&image, "/"), ["a", "b", "c"]);
    for name in ["a", "b", "c"] {
        assert_eq!(ok(&["cat", s(&image), name]), name);
    }
    assert_eq!(ok(&["ls", s(&image)]), ok(&["ls", s(&image), "/"]), "the root is listed");
}

#[test]
fn advice_names_the_file_and_nothing_is_promised_in_vain() {
    let folder = Folder::new();
    let (image, log) = (folder.0.join("v.img"), folder.0.join("log"));
    let packed = folder.0.join("v.gz");
    fs::write(&packed, [&[0x1f, 0x8b, 8][..], &[0; 8192]].concat()).unwrap();
    for args in [&["info", s(&packed)][..], &["ls", s(&packed)], &["recover", s(&packed)]] {
        fails(args, &format!("`gzip -dc {} >RAW`", s(&packed)));
    }
    ok(&["mkfs", s(&image), "--size", "32M", "--log", s(&log)]);
    let server = Server::start(&[&image], ANY, &["--log", s(&log)]);
    server.kill();
    let out = fails(&["serve", s(&image), "--nfs", ANY], "--log PATH");
    assert_eq!(out, "", "it is promised what cannot be");
    for args in [&["fsck", s(&image)][..], &["label", s(&image), "new"], &["resize", s(&image)]] {
        fails(args, &format!("`cairn recover {} --log PATH`", s(&image)));
    }
    ok(&["recover", s(&image), "--log", s(&log)]);
    ok(&["fsck", s(&image)]);
}

#[test]
fn a_listing_shows_where_links_lead_and_who_becomes_whom() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    let (image, from) = (folder.volume("v.img", "16M"), folder.0.join("t"));
    fs::create_dir(&from).unwrap();
    let modes = [("su", 0o4755), ("sg", 0o2644), ("plain", 0o751)];
    for (name, mode) in modes {
        fs::write(from.join(name), "").unwrap();
        fs::set_permissions(from.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::set_permissions(&from, fs::Permissions::from_mode(0o1777)).unwrap();
    std::os::unix::fs::symlink("su", from.join("l")).unwrap();
    ok(&["put", s(&image), s(&from), "/"]);
    let listed = ok(&["ls", s(&image), "/t"]) + &ok(&["ls", s(&image)]);
    for (begin, end) in [
        ("-rwsr-xr-x ", " su"),
        ("-rw-r-Sr-- ", " sg"),
        ("-rwxr-x--x ", " plain"),
        ("lrwxrwxrwx ", " l -> su"),
        ("drwxrwxrwt ", " t"),
    ] {
        let there = |l: &str| l.starts_with(begin) && l.ends_with(end);
        assert!(listed.lines().any(there), "{begin} {end}: {listed}");
    }
    assert!(ok(&["stat", s(&image), "/t/l"]).contains(" /t/l -> su  inode "));
}
