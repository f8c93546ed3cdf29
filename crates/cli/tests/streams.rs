//! What commands are given and give as streams: a standard output that takes nothing more or that
//! nobody reads, something in an image's place that is no file, and files with holes.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod served;

use served::{CAIRN, Folder, cairn, ok, s};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Runs it with this as standard output: exit code, and standard error.
fn into(args: &[&str], out: Stdio) -> (Option<i32>, String) {
    let done = Command::new(CAIRN).args(args).stdout(out).output().unwrap();
    (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
}

/// A volume with a file in it.
fn with_a_text(folder: &Folder) -> std::path::PathBuf {
    let (image, text) = (folder.volume("v.img", "16M"), folder.0.join("text"));
    std::fs::write(&text, "a text without an end of line").unwrap();
    ok(&["put", s(&image), s(&text), "/"]);
    image
}

#[test]
fn an_answer_that_cannot_be_written_is_an_error_and_no_panic() {
    let folder = Folder::new();
    let image = with_a_text(&folder);
    let (i, new) = (s(&image), folder.0.join("new.img"));
    let (config, copy) = (folder.0.join("config.toml"), folder.0.join("copy.img"));
    std::fs::write(&config, format!("[volume.a]\nimage = \"{i}\"\n")).unwrap();
    for args in [
        &["info", i][..],
        &["info", "--json", i],
        &["ls", i, "/"],
        &["stat", i, "/text"],
        &["cat", i, "/text"],
        &["fsck", i],
        &["fsck", "--repair", i],
        &["check", "--read", i],
        &["recover", i],
        &["label", i],
        &["uuid", i, "random"],
        &["mkfs", s(&new), "--size", "16M"],
        &["crash", "--list"],
        &["config", "show", s(&config)],
        &["config", "check", s(&config)],
        &["copy", i, s(&copy)],
    ] {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let (code, err) = into(args, full.into());
        assert!(code == Some(1) && err.lines().count() == 1, "{args:?}: {code:?} {err}");
        assert!(err.contains("No space left"), "{args:?}: {err}");
    }
    ok(&["fsck", s(&new)]);
}

#[test]
fn a_command_that_changes_something_does_so_though_nobody_reads_its_answer() {
    let folder = Folder::new();
    let image = with_a_text(&folder);
    let (i, new) = (s(&image), folder.0.join("new.img"));
    for args in [
        &["fsck", "--repair", i][..],
        &["label", i, "name"],
        &["uuid", i, "random"],
        &["resize", i, "32M"],
        &["recover", i],
        &["mkfs", s(&new), "--size", "16M"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let (code, err) = into(args, writer.into());
        assert!(code == Some(0) && err.is_empty(), "{args:?}: {code:?} {err}");
    }
    assert_eq!(ok(&["label", i]).trim(), "name");
    ok(&["fsck", s(&new)]);
}

#[test]
fn a_fifo_in_an_images_place_is_refused_and_not_waited_for() {
    let folder = Folder::new();
    let image = folder.volume("v.img", "16M");
    let (i, fifo) = (s(&image), folder.0.join("fifo"));
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let (f, other) = (s(&fifo), folder.0.join("other"));
    for args in [
        &["info", f][..],
        &["fsck", f],
        &["check", f],
        &["ls", f, "/"],
        &["label", f],
        &["resize", f, "32M"],
        &["copy", f, s(&other)],
        &["copy", i, f],
        &["mkfs", f, "--size", "16M"],
        &["lfs", "stat", f],
        &["log", "info", f],
    ] {
        let mut child = Command::new(CAIRN).args(args).stderr(Stdio::piped()).spawn().unwrap();
        let start = Instant::now();
        let ended = loop {
            match child.try_wait().unwrap() {
                Some(status) => break status.code(),
                None if start.elapsed() > Duration::from_secs(30) => break None,
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        if ended.is_none() {
            child.kill().unwrap();
        }
        let err = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
        assert!(
            ended == Some(1) && err.contains("neither a file nor"),
            "{args:?}: {ended:?} {err}"
        );
    }
    assert!(!other.exists());
}

#[test]
fn holes_stay_holes_on_the_way_in_and_out() {
    const SIZE: u64 = 100 << 30;
    let folder = Folder::new();
    for profile in ["ext3", "ext4", "lfs"] {
        let image = folder.0.join(format!("{profile}.img"));
        let i = s(&image);
        ok(&["mkfs", i, "--size", "24M", "--profile", profile]);
        let (from, to) = (folder.0.join("sparse"), folder.0.join("back"));
        let file = File::create(&from).unwrap();
        // In front, in the middle, and at no block's end; then a hole up to the end.
        let places = [0, 5_000_000, (20 << 30) + 777, 90 << 30];
        for at in places {
            file.write_all_at(format!("at {at}").as_bytes(), at).unwrap();
        }
        file.set_len(SIZE).unwrap();
        ok(&["put", i, s(&from), "/"]);
        ok(&["get", i, "/sparse", s(&to)]);
        let back = File::open(&to).unwrap();
        let about = back.metadata().unwrap();
        assert!(about.len() == SIZE && about.blocks() < 8192, "{profile}: {}", about.blocks());
        for at in places {
            let mut text = vec![0; 20];
            back.read_exact_at(&mut text, at).unwrap();
            assert!(text.starts_with(format!("at {at}\0").as_bytes()), "{profile}: {at}");
        }
        std::fs::remove_file(&to).unwrap();
        // Something that is no file has all of it.
        let small = folder.0.join("small");
        File::create(&small).unwrap().set_len(100_000).unwrap();
        ok(&["put", i, s(&small), "/"]);
        assert_eq!(ok(&["cat", i, "/small"]).len(), 100_000);
        let (code, out, err) = cairn(&["get", i, "/small", "/dev/stdout"]);
        assert!(code == 0 && out.len() == 100_000, "{profile}: {} {err}", out.len());
    }
}
