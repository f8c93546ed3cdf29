//! What is picked for a user who names no mode has to work on his volume, whatever made it, and
//! where nothing can, the refusal names what does: a line that is pasted and then works.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod served;

use served::{ANY, Folder, Server, cairn, ok, s};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A volume of each kind that `mkfs` makes, with its log if that lies outside.
fn volumes(folder: &Folder) -> Vec<(PathBuf, Option<PathBuf>)> {
    let mut all = Vec::new();
    for (profile, outside) in [
        ("ext2", false),
        ("ext3", false),
        ("ext3", true),
        ("ext4", false),
        ("ext4", true),
        ("lfs", false),
    ] {
        let image = folder.0.join(format!("{profile}-{outside}.img"));
        let log = outside.then(|| folder.0.join(format!("{profile}.log")));
        let mut args = vec!["mkfs", s(&image), "--size", "32M", "--profile", profile];
        args.extend(log.iter().flat_map(|l| ["--log", s(l)]));
        let said = ok(&args);
        if let Some(log) = &log {
            let line = format!("cairn serve {} --log {}", image.display(), log.display());
            assert!(said.contains(&line), "{said}");
        }
        all.push((image, log));
    }
    all
}

#[test]
fn the_default_mode_works_on_every_volume_that_mkfs_makes() {
    let folder = Folder::new();
    let file = folder.0.join("f");
    std::fs::write(&file, "some text").unwrap();
    for (image, log) in volumes(&folder) {
        let log: Vec<&str> = log.iter().flat_map(|l| ["--log", s(l)]).collect();
        let run = |args: &[&str]| ok(&[args, &log].concat());
        for round in 0..2 {
            run(&["put", s(&image), s(&file), "/"]);
            assert_eq!(run(&["cat", s(&image), "/f"]), "some text");
            run(&["rm", s(&image), "/f"]);
            run(&["recover", s(&image)]);
            run(&["info", s(&image)]);
            let server = Server::trusting(&[&image], ANY, &log);
            let mut on = server.client("/");
            let root = on.root.clone();
            on.mkdir(&root, &format!("d{round}")).unwrap();
            match round {
                0 => server.kill(),
                _ => server.stop(),
            }
            assert!(run(&["ls", s(&image), "/"]).contains(" d0"));
        }
        let (code, out, _) = cairn(&["fsck", s(&image)]);
        assert!(code == 0 && out.contains("sound"), "{}: {out}", image.display());
    }
}

#[test]
fn who_names_no_log_hears_which_option_names_it() {
    let folder = Folder::new();
    let (image, log) = (folder.0.join("v.img"), folder.0.join("log"));
    ok(&["mkfs", s(&image), "--size", "32M", "--log", s(&log)]);
    for args in [&["mkdir", s(&image), "/d"][..], &["serve", s(&image), "--nfs", ANY]] {
        let (code, out, err) = cairn(args);
        assert!(code == 1 && err.contains("--log PATH") && out.is_empty(), "{args:?}: {out}{err}");
    }
    ok(&["mkdir", s(&image), "/d", "--log", s(&log)]);
    assert!(ok(&["ls", s(&image), "/"]).contains(" d"), "closed, it is read without its log");
    // The modes with a log of their own say what goes there.
    let (_, _, err) = cairn(&["serve", s(&image), "--mode", "unified", "--nfs", ANY]);
    assert!(err.contains("--mode ordered"), "{err}");
}

#[test]
fn without_a_journal_the_refusal_is_a_line_to_paste() {
    let folder = Folder::new();
    let image = folder.0.join("v.img");
    let made = Command::new("mke2fs")
        .args(["-q", "-t", "ext4", "-O", "^has_journal", s(&image), "32M"])
        .status();
    if !made.is_ok_and(|s| s.success()) {
        println!("skipped: there is no mke2fs");
        return;
    }
    let refused = |args: &[&str]| {
        let (code, out, err) = cairn(args);
        assert!(code == 1 && out.is_empty(), "{args:?}: {out}{err}");
        err
    };
    let serve = ["serve", s(&image), "--nfs", ANY];
    for args in [&["mkdir", s(&image), "/d"][..], &serve] {
        let err = refused(args);
        assert!(err.contains("--mode async") && err.contains("--unsafe-async"), "{err}");
        assert!(err.contains(&format!("`tune2fs -j {}`", image.display())), "{err}");
    }
    let server = Server::start(&[&image], ANY, &["--mode", "async", "--unsafe-async"]);
    server.stop();
    paste(&refused(&[&serve[..], &["--mode", "redo"]].concat()));
    ok(&["mkdir", s(&image), "/d"]);
    let server = Server::start(&[&image], ANY, &[]);
    assert!(mode_of(&image).contains("unified"));
    server.stop();
}

/// Runs what stands between the first backticks.
fn paste(said: &str) {
    let line = said.split('`').nth(1).unwrap();
    let done = Command::new("sh").args(["-c", line]).output().unwrap();
    assert!(done.status.success(), "{line}: {done:?}");
}

fn mode_of(image: &Path) -> String {
    let said = ok(&["info", s(image)]);
    said.lines().find(|l| l.starts_with("mode")).unwrap().to_owned()
}

#[test]
fn a_log_that_has_no_meaning_is_refused_with_what_gives_it_one() {
    let folder = Folder::new();
    let (image, log) = (folder.0.join("v.img"), folder.0.join("log"));
    ok(&["mkfs", s(&image), "--size", "32M", "--profile", "ext2"]);
    let with_log = ["mkdir", s(&image), "/d", "--log", s(&log)];
    let (code, _, err) = cairn(&with_log);
    assert!(code == 2 && err.contains("no journal") && !log.exists(), "{err}");
    if Command::new("tune2fs").arg("-V").output().is_ok() {
        paste(&err);
        ok(&with_log);
        assert!(log.exists() && mode_of(&image).contains("unified"));
    }
    let image = folder.0.join("store.img");
    ok(&["mkfs", s(&image), "--size", "32M", "--profile", "lfs"]);
    let (code, _, err) = cairn(&["serve", s(&image), "--nfs", ANY, "--log", s(&log)]);
    assert!(code == 2 && err.contains("log-structured store"), "{err}");
}

#[test]
fn the_mode_last_used_is_given_up_where_it_works_no_more() {
    let folder = Folder::new();
    let image = folder.volume("v.img", "32M");
    let server = Server::start(&[&image], ANY, &["--mode", "unified"]);
    server.stop();
    if Command::new("tune2fs").args(["-O", "^has_journal", s(&image)]).output().is_err() {
        println!("skipped: there is no tune2fs");
        return;
    }
    let (_, _, err) = cairn(&["mkdir", s(&image), "/d"]);
    assert!(err.contains("tune2fs -j"), "{err}");
    paste(&err);
    ok(&["mkdir", s(&image), "/d"]);
    let plain = folder.plain_volume("plain.img", "32M");
    ok(&["mkdir", s(&plain), "/d"]);
    Command::new("tune2fs").args(["-O", "^has_journal", s(&plain)]).output().unwrap();
    ok(&["mkdir", s(&plain), "/e"]);
    assert!(mode_of(&plain).contains("sync"));
}

#[test]
fn a_log_that_was_made_in_vain_does_not_stay() {
    let folder = Folder::new();
    let (image, log) = (folder.plain_volume("v.img", "32M"), folder.0.join("log"));
    let busy = std::net::TcpListener::bind(ANY).unwrap();
    let busy = busy.local_addr().unwrap().to_string();
    let other = folder.0.join("other.img");
    std::fs::copy(&image, &other).unwrap();
    for args in [
        // The port is another one's; the volumes have one UUID; the volume is in use.
        &["serve", s(&image), "--nfs", &busy, "--log", s(&log)][..],
        &["serve", s(&image), s(&other), "--nfs", ANY, "--log", s(&log)],
    ] {
        let (code, _, err) = cairn(args);
        assert!(code == 1 && !log.exists(), "{args:?}: {code} {err}");
    }
    // It was nobody's, and so nobody misses it.
    let server = Server::start(&[&image], ANY, &["--log", s(&log)]);
    server.stop();
    assert!(log.exists(), "what was used stays");
    let (code, _, _) = cairn(&["serve", s(&image), "--nfs", &busy, "--log", s(&log)]);
    assert!(code == 1 && log.exists(), "and what was there before");
}
