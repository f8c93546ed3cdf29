//! Whole trees out of a volume and away, where the volume means harm: what is got stays in its
//! target, what is removed is only what was named, and names are shown, not obeyed.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test may")]

mod served;

use served::{Folder, cairn, ok, s};
use std::os::unix::fs::symlink;
use std::path::Path;

/// An entry of the image with this name: where its inode's number stands. All are directories.
fn entries(bytes: &[u8], name: &[u8]) -> Vec<usize> {
    let head = [&[name.len() as u8, 2], name].concat();
    let found = bytes.windows(head.len()).enumerate().filter(|(_, w)| *w == head);
    found.map(|(at, _)| at - 6).filter(|at| at % 4 == 0).collect()
}

/// Changes the volume behind its back.
fn edit(image: &Path, name: &str, change: impl Fn(&mut [u8])) {
    let mut bytes = std::fs::read(image).unwrap();
    let all = entries(&bytes, name.as_bytes());
    assert!(!all.is_empty(), "{name}");
    all.iter().for_each(|at| change(&mut bytes[*at..]));
    std::fs::write(image, &bytes).unwrap();
}

fn ino_of(image: &Path, path: &str) -> u32 {
    let told: serde_json::Value =
        serde_json::from_str(&ok(&["stat", "--json", s(image), path])).unwrap();
    told["ino"].as_u64().unwrap() as u32
}

/// Makes the entry `name` name what `path` is.
fn redirect(image: &Path, name: &str, path: &str) {
    let ino = ino_of(image, path);
    edit(image, name, |entry| entry[..4].copy_from_slice(&ino.to_le_bytes()));
}

/// Fails with one line that has `with`, and soon.
fn refused(args: &[&str], with: &str) {
    let (code, out, err) = cairn(args);
    assert!(code == 1 && err.contains(with) && err.lines().count() == 1, "{args:?}: {out}{err}");
}

#[test]
fn a_link_and_a_directory_of_one_name_do_not_lead_out() {
    let folder = Folder::new();
    let (image, outside) = (folder.plain_volume("v.img", "16M"), folder.0.join("outside"));
    let source = folder.0.join("top");
    std::fs::create_dir_all(source.join("swap-dir")).unwrap();
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(source.join("swap-dir/planted"), "bad").unwrap();
    symlink(&outside, source.join("swap-aaa")).unwrap();
    ok(&["put", s(&image), s(&source), "/"]);
    edit(&image, "swap-dir", |entry| entry[8..16].copy_from_slice(b"swap-aaa"));
    let target = folder.0.join("target");
    std::fs::create_dir(&target).unwrap();
    refused(&["get", s(&image), "/top", s(&target)], "symbolic link");
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
}

#[test]
fn links_that_lie_in_the_target_are_not_followed() {
    let folder = Folder::new();
    let (image, target) = (folder.volume("v.img", "16M"), folder.0.join("target"));
    let (source, outside) = (folder.0.join("top"), folder.0.join("outside"));
    std::fs::create_dir_all(source.join("d")).unwrap();
    std::fs::write(source.join("d/f"), "new").unwrap();
    std::fs::write(source.join("g"), "new").unwrap();
    ok(&["put", s(&image), s(&source), "/"]);
    std::fs::create_dir_all(outside.join("d")).unwrap();
    std::fs::write(outside.join("g"), "old").unwrap();
    for name in ["d", "g"] {
        let _ = std::fs::remove_dir_all(&target);
        std::fs::create_dir_all(target.join("top")).unwrap();
        symlink(outside.join(name), target.join("top").join(name)).unwrap();
        refused(&["get", s(&image), "/top", s(&target)], "symbolic link");
        assert_eq!(std::fs::read(outside.join("g")).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(outside.join("d")).unwrap().count(), 0);
    }
    // What is named on the command line may be a link; and a second time overwrites the first.
    let link = folder.0.join("link");
    symlink(&target, &link).unwrap();
    std::fs::remove_dir_all(&target).unwrap();
    std::fs::create_dir(&target).unwrap();
    for _ in 0..2 {
        ok(&["get", s(&image), "/top", s(&link)]);
        ok(&["get", s(&image), "/top/g", s(&folder.0.join("g2"))]);
    }
    assert_eq!(std::fs::read(target.join("top/d/f")).unwrap(), b"new");
    assert_eq!(std::fs::read(folder.0.join("g2")).unwrap(), b"new");
}

#[test]
fn directories_that_lead_in_a_circle_or_out_are_refused() {
    let folder = Folder::new();
    let made = |name: &str| {
        let image = folder.plain_volume(name, "16M");
        let (i, f) = (s(&image), folder.0.join("kept"));
        std::fs::write(&f, "kept").unwrap();
        ok(&["mkdir", i, "/top", "/top/below", "/top/below/deep-er", "/other"]);
        ok(&["put", i, s(&f), "/other"]);
        ok(&["put", i, s(&f), "/top"]);
        image
    };
    for (name, to) in
        [("up.img", "/top"), ("self.img", "/top/below"), ("root.img", "/"), ("out.img", "/other")]
    {
        let image = made(name);
        redirect(&image, "deep-er", to);
        refused(&["rm", "-r", s(&image), "/top"], "fsck --repair");
        refused(&["get", s(&image), "/top", s(&folder.0.join(name).with_extension("d"))], "fsck");
        // Nothing is gone.
        for path in ["/top/kept", "/other/kept"] {
            assert_eq!(ok(&["cat", s(&image), path]), "kept", "{name}: {path}");
        }
    }
    // The directory that is named is one of another.
    let image = made("named.img");
    redirect(&image, "deep-er", "/other");
    refused(&["rm", "-r", s(&image), "/top/below/deep-er"], "fsck --repair");
    assert_eq!(ok(&["cat", s(&image), "/other/kept"]), "kept");
    // By its dots, a sound volume leads out as well.
    let image = made("dots.img");
    for path in ["/top/..", "/top/.", "/top/below/../../other/.."] {
        refused(&["rm", "-r", s(&image), path], ". and ..");
    }
    for path in ["/top/kept", "/other/kept"] {
        assert_eq!(ok(&["cat", s(&image), path]), "kept");
    }
    ok(&["rm", "-r", s(&image), "/top/below/../../top"]);
    assert_eq!(cairn(&["cat", s(&image), "/top/kept"]).0, 1);
    assert!(ok(&["fsck", s(&image)]).contains("sound"));
}

#[test]
fn a_deep_tree_is_removed_and_got() {
    let folder = Folder::new();
    let image = folder.volume("v.img", "64M");
    let mut path = String::new();
    let mut args = vec!["mkdir".to_owned(), s(&image).to_owned()];
    for _ in 0..300 {
        path.push_str("/d");
        args.push(path.clone());
    }
    ok(&args.iter().map(String::as_str).collect::<Vec<_>>());
    let out = folder.0.join("out");
    ok(&["get", s(&image), "/d", s(&out)]);
    assert!(out.join(path.trim_start_matches("/d/")).is_dir());
    ok(&["rm", "-r", s(&image), "/d"]);
    assert!(ok(&["fsck", s(&image)]).contains(": sound"));
}

#[test]
fn names_are_shown_and_not_obeyed() {
    let folder = Folder::new();
    let image = folder.plain_volume("v.img", "16M");
    ok(&["mkdir", s(&image), "/\x1b]0;owned\x07", "/two\nlines", "/plain", "/bad-utf8"]);
    edit(&image, "bad-utf8", |entry| entry[8] = 0xff);
    let listed = ok(&["ls", s(&image), "/"]);
    assert_eq!(listed.lines().count(), 5, "{listed}");
    for name in [r"\u{1b}]0;owned\u{7}", r"two\nlines", "plain", r"\xffad-utf8"] {
        assert!(listed.lines().any(|l| l.ends_with(&format!(" {name}"))), "{name}: {listed}");
    }
    assert!(!ok(&["stat", s(&image), "/\x1b]0;owned\x07"]).contains('\x1b'));
    // What a checker says of an entry has its name.
    edit(&image, "\x1b]0;owned\x07", |entry| entry[..4].copy_from_slice(&1u32.to_le_bytes()));
    let (code, out, _) = cairn(&["fsck", s(&image)]);
    assert!(code == 3 && out.contains(r"\u{1b}]0;owned") && !out.contains('\x1b'), "{out}");
    let (_, _, err) = cairn(&["ls", s(&image), "/no\x1bwhere"]);
    assert!(err.contains(r"no\u{1b}where"), "{err:?}");
}
