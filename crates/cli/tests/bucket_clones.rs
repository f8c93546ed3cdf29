//! Clones of volumes in a bucket that is a folder, from the command line: each goes its own way,
//! and what they share stays as long as one of them needs it.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod served;

use served::{Folder, cairn, ok, s};

fn refused(args: &[&str], words: &str) {
    let (code, out, err) = cairn(args);
    assert!(code != 0 && err.contains(words), "{args:?}: {code} {out}{err}");
}

fn made(folder: &Folder, more: &[&str]) -> (String, String, String) {
    let [origin, clone, second] =
        ["origin", "clone", "second"].map(|n| format!("file://{}/{n}", folder.0.display()));
    ok(&[&["mkfs", &origin, "--size", "256M"], more].concat());
    (origin, clone, second)
}

fn goes_its_own_way(how: &[&str], key: &[&str]) {
    let folder = Folder::new();
    let (origin, clone, second) = made(&folder, &[how, key].concat());
    let run = |args: &[&str]| ok(&[args, key].concat());
    let local = folder.0.join("data");
    let put = |to: &str, round: u8| {
        std::fs::write(&local, vec![round; 2_000_000]).unwrap();
        let _ = cairn(&[&["rm", to, "/data"], key].concat());
        run(&["put", to, s(&local), "/"]);
    };
    let back = folder.0.join("back");
    let holds = |from: &str, round: u8, when: &str| {
        let _ = std::fs::remove_file(&back);
        run(&["get", from, "/data", s(&back)]);
        assert_eq!(std::fs::read(&back).unwrap(), vec![round; 2_000_000], "{from}: {when}");
    };
    put(&origin, 1);
    let snapshot = format!("{origin}@s");
    run(&["snapshot", "create", &snapshot]);
    put(&origin, 2);
    run(&["snapshot", "clone", &snapshot, &clone]);
    holds(&clone, 1, "at once");
    let stored: serde_json::Value =
        serde_json::from_str(&run(&["lfs", "stat", &clone, "--json"])).unwrap();
    assert_eq!(stored["blocks"], 0, "it has nothing of its own: {stored}");
    // The origin is written and cleaned, and keeps what the clone needs.
    for round in 3..7 {
        put(&origin, round);
    }
    run(&["lfs", "clean", &origin]);
    refused(&[&["snapshot", "delete", &snapshot], key].concat(), "needs it");
    holds(&clone, 1, "when its origin was cleaned");
    run(&["fsck", &clone]);
    // A clone of the clone, which is written then.
    run(&["snapshot", "create", &format!("{clone}@t")]);
    run(&["snapshot", "clone", &format!("{clone}@t"), &second]);
    put(&clone, 9);
    holds(&second, 1, "a clone of a clone");
    holds(&clone, 9, "when it was written");
    holds(&format!("{clone}@t"), 1, "its snapshot");
    holds(&origin, 6, "its origin");
    for v in [&origin, &clone, &second] {
        run(&["fsck", v]);
    }
    refused(&[&["snapshot", "clone", &snapshot, &clone], key].concat(), "a volume already");
    // A clone that is not there needs nothing.
    std::fs::remove_dir_all(folder.0.join("second")).unwrap();
    run(&["snapshot", "delete", &format!("{clone}@t")]);
    std::fs::remove_dir_all(folder.0.join("clone")).unwrap();
    run(&["snapshot", "delete", &snapshot]);
    run(&["fsck", &origin]);
}

#[test]
fn a_clone_goes_its_own_way() {
    goes_its_own_way(&[], &[]);
}

#[test]
fn a_clone_of_an_encrypted_volume_has_its_key() {
    let folder = Folder::new();
    let key = folder.0.join("key");
    std::fs::write(&key, [7; 32]).unwrap();
    goes_its_own_way(&["--compress"], &["--key-file", s(&key)]);
}

#[test]
fn what_cannot_be_cloned_is_told() {
    let folder = Folder::new();
    let (origin, clone, _) = made(&folder, &[]);
    refused(&["snapshot", "clone", &origin, &clone], "URL@NAME is wanted");
    refused(&["snapshot", "clone", &format!("{origin}@none"), &clone], "no snapshot none");
    ok(&["snapshot", "create", &format!("{origin}@s")]);
    let image = folder.volume("v.img", "16M");
    refused(&["snapshot", "clone", &format!("{origin}@s"), s(&image)], "two URLs");
    refused(&["snapshot", "clone", &format!("{origin}@s"), "s3://bucket/v"], "has to lie in");
    // The origin is not the volume any more that it was.
    ok(&["snapshot", "clone", &format!("{origin}@s"), &clone]);
    ok(&["mkfs", &origin, "--size", "256M", "--force"]);
    refused(&["ls", &clone, "/"], "another volume now");
}
