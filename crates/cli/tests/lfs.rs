//! A volume in a log-structured store, from the command line: made, filled, overwritten, cleaned,
//! checked and exported; the export is a plain volume with the same contents.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod served;

use served::{ANY, Folder, Server};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

fn cairn(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cairn")).args(args).output().unwrap()
}

fn done(args: &[&str]) -> String {
    let out = cairn(args);
    let err = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "cairn {args:?}: {err}");
    String::from_utf8(out.stdout).unwrap()
}

fn folder() -> PathBuf {
    let dir = std::env::temp_dir().join(format!("cairn-lfs-cli-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A part of an image would look like one.
#[test]
fn an_export_that_is_stopped_leaves_nothing() {
    let folder = Folder::new();
    let image = folder.0.join("store.img");
    let filler = folder.0.join("filler");
    std::fs::write(&filler, vec![7; 96 << 20]).unwrap();
    done(&["mkfs", text(&image), "--profile", "lfs", "--size", "256M"]);
    done(&["put", text(&image), text(&filler), "/"]);
    let out = folder.0.join("plain.img");
    let mut export = Command::new(env!("CARGO_BIN_EXE_cairn"));
    let mut export = export.args(["lfs", "export"]).args([&image, &out]).spawn().unwrap();
    while !out.exists() && export.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&export),
        rustix::process::Signal::INT,
    )
    .unwrap();
    let ended = export.wait().unwrap();
    match ended.success() {
        true => println!("skipped: it was done before it was stopped"),
        false => assert!(!out.exists(), "{ended}"),
    }
}

#[test]
fn made_filled_cleaned_checked_and_exported() {
    let dir = folder();
    let (image, out) = (dir.join("v.img"), dir.join("out.img"));
    let (v, o) = (text(&image), text(&out));
    let said = done(&["mkfs", v, "--size", "64M", "--profile", "lfs"]);
    assert!(said.contains("log-structured"), "{said}");
    assert!(said.contains("for an access") && said.contains("segments of 256.0 KiB"), "{said}");
    let small = dir.join("small.img");
    let said =
        done(&["mkfs", text(&small), "--size", "64M", "--profile", "lfs", "--segment-size", "64K"]);
    assert!(said.contains("segments of 64.0 KiB"), "{said}");
    let again = cairn(&["mkfs", v, "--profile", "lfs"]);
    assert!(!again.status.success(), "never over a store without --force");
    let bytes: Vec<u8> = (0..6_000_000_u32).map(|i| (i ^ i >> 9) as u8).collect();
    let local = dir.join("data");
    for round in 0..8_u8 {
        let mut part = bytes.clone();
        part[0] = round;
        std::fs::write(&local, &part).unwrap();
        if round > 0 {
            done(&["rm", v, "/data"]);
        }
        done(&["put", v, text(&local), "/"]);
        done(&["mkdir", v, &format!("/d{round}")]);
    }
    let stat: serde_json::Value =
        serde_json::from_str(&done(&["lfs", "stat", v, "--json"])).unwrap();
    assert_eq!(stat["wrong"].as_array().unwrap().len(), 0, "{stat}");
    assert_eq!(stat["rolled_forward"], 0, "a clean end leaves no log to follow");
    done(&["fsck", v]);
    done(&["info", v]);
    assert!(stat["totals"]["user_bytes"].as_u64().unwrap() > 8 * 6_000_000, "{stat}");
    assert!(stat["totals"]["write_amplification"].as_f64().unwrap() > 1.0, "{stat}");
    done(&["lfs", "clean", v]);
    let info: serde_json::Value = serde_json::from_str(&done(&["info", v, "--json"])).unwrap();
    let segments = &info["segments"];
    assert!(segments["cleaned_segments"].as_u64() >= stat["totals"]["cleaned_segments"].as_u64());
    assert_eq!(segments["by_tenths_full"].as_array().unwrap().len(), 10, "{info}");
    for checkpoint in ["older", "newer"] {
        let at = dir.join(checkpoint);
        done(&["lfs", "export", v, text(&at), "--checkpoint", checkpoint]);
        done(&["fsck", text(&at)]);
    }
    let none = cairn(&["lfs", "export", v, text(&dir.join("none")), "--checkpoint", "1"]);
    assert!(String::from_utf8_lossy(&none.stderr).contains("there is no such checkpoint"));
    done(&["lfs", "export", v, o]);
    for from in [v, o] {
        let back = dir.join("back");
        done(&["get", from, "/data", text(&back)]);
        assert_eq!(std::fs::read(&back).unwrap()[1..], bytes[1..], "{from}");
        assert_eq!(std::fs::read(&back).unwrap()[0], 7, "{from}");
        let _ = std::fs::remove_file(&back);
    }
    match Command::new("e2fsck").args(["-fn", o]).output() {
        Ok(e) => assert!(e.status.success(), "{}", String::from_utf8_lossy(&e.stdout)),
        Err(_) => println!("skipped: no e2fsck"),
    }
    let _ = std::fs::remove_dir_all(&dir);
}

#[test]
fn a_served_one_tells_its_policy_and_what_writing_has_cost() {
    let folder = Folder::new();
    let image = folder.0.join("v.img");
    done(&["mkfs", text(&image), "--size", "64M", "--profile", "lfs"]);
    let server = Server::trusting(
        &[&image],
        ANY,
        &["--mode", "lfs", "--cleaner", "cost-benefit", "--reorganise", "on"],
    );
    let info: serde_json::Value =
        serde_json::from_str(&done(&["info", text(&image), "--json"])).unwrap();
    let segments = &info["segments"];
    assert_eq!(segments["policy"], "cost-benefit", "{info}");
    assert!(segments["write_amplification"].as_f64().unwrap() > 1.0, "mkfs has written: {info}");
    let stats = done(&["stats", text(&image)]);
    assert_eq!(segments["cleaning"], "idle", "{info}");
    assert_eq!(segments["reorganised_blocks"], 0, "{info}");
    assert!(stats.contains("laid as they are read"), "{stats}");
    assert!(
        stats.contains("write amplification") && stats.contains("(cost-benefit, idle)"),
        "{stats}"
    );
    server.stop();
}

/// What is free is reckoned anew when such a volume is opened: that its superblock does not know it
/// after a kill is nothing to be repaired, and `info` tells what opening reckons.
#[test]
fn one_whose_server_was_killed_is_sound() {
    let folder = Folder::new();
    let image = folder.0.join("v.img");
    let url = PathBuf::from(format!("file://{}/bucket", folder.0.display()));
    done(&["mkfs", text(&image), "--size", "64M", "--profile", "lfs"]);
    done(&["mkfs", text(&url), "--size", "64M"]);
    for (n, volume) in [&image, &url].into_iter().enumerate() {
        let serve = || {
            let mut command = Command::new(served::CAIRN);
            command.arg("serve").arg(volume).args(["--nfs", ANY, "--takeover-after", "1"]);
            for who in served::TRUSTING {
                command.args(["--export", who]);
            }
            Server::launch(command, &folder.0.join(format!("log-{n}")))
        };
        let server = serve();
        let mut c = server.client("/");
        let root = c.root.clone();
        (0..20).for_each(|n| drop(c.create_new(&root, &format!("f{n}")).unwrap()));
        server.kill();
        for how in [&["fsck"][..], &["check", "--read"]] {
            let said = done(&[how, &[text(volume)]].concat());
            assert!(said.contains(": sound; 31 inodes") && said.contains(" 0 findings"), "{said}");
        }
        let free = || {
            let said = done(&["info", text(volume)]);
            said.lines().filter(|l| l.starts_with("free ")).collect::<Vec<_>>().join("; ")
        };
        let reckoned = free();
        serve().stop();
        assert_eq!(reckoned, free(), "as it was closed");
    }
}
