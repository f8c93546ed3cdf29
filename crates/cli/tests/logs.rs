//! Logs outside of the volume, and the stand-alone log, as the command line has them: one log for
//! several volumes, a volume whose log is not empty, one whose log is gone, and `cairn log`.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod served;

use nfs3_client::nfs3_types::nfs3::*;
use served::{ANY, CAIRN, Folder, Server, cairn, ok, s};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

fn fails(args: &[&str], with: &str) {
    let (code, out, err) = cairn(args);
    assert!(code == 1 && err.contains(with), "{args:?}: {code} {out}{err}");
    assert!(err.lines().last().unwrap().starts_with("cairn: "), "{err}");
}

fn info(args: &[&str]) -> serde_json::Value {
    serde_json::from_str(&ok(&[&["info", "--json"], args].concat())).unwrap()
}

/// Two volumes on one log, with something of each, killed.
fn two_killed(folder: &Folder, mode: &str) -> [std::path::PathBuf; 3] {
    let (a, b) = (folder.volume("a.img", "32M"), folder.volume("b.img", "32M"));
    let log = folder.0.join("log");
    let server = Server::trusting(&[&a, &b], ANY, &["--mode", mode, "--log", s(&log)]);
    for path in ["/a", "/b"] {
        let mut on = server.client(path);
        let root = on.root.clone();
        for n in 0..40 {
            let file = on.create_new(&root, &format!("f{n}")).unwrap();
            let text = format!("{path} {n}");
            on.write(&file, 0, text.as_bytes(), stable_how::FILE_SYNC).unwrap();
        }
    }
    server.kill();
    [a, b, log]
}

#[test]
fn one_log_serves_two_volumes_and_neither_loses_anything() {
    for mode in ["redo", "unified"] {
        let folder = Folder::new();
        let [a, b, log] = two_killed(&folder, mode);
        // Who only reads sees through the log, and changes nothing.
        let before = std::fs::read(&log).unwrap();
        for (image, name) in [(&a, "/a"), (&b, "/b")] {
            assert_eq!(ok(&["cat", s(image), "f7", "--log", s(&log)]), format!("{name} 7"));
            let listed = ok(&["ls", s(image), "/", "--log", s(&log)]);
            assert_eq!(listed.lines().filter(|l| l.contains(" f")).count(), 40);
            fails(&["cat", s(image), "f7"], "--log PATH names it");
            let state = info(&[s(image), "--log", s(&log)]);
            assert_eq!(state["log"], "on another device");
            assert!(state["log_entries"].as_u64().unwrap() >= 80, "{state}");
            let away = info(&[s(image)]);
            assert_eq!((&away["log_uuid"], &away["clean"]), (&state["log_uuid"], &false.into()));
        }
        assert_eq!(before, std::fs::read(&log).unwrap());
        // One of them alone leaves the other's entries where they are.
        let server = Server::trusting(&[&a], ANY, &["--mode", mode, "--log", s(&log)]);
        let mut on = server.client("/a");
        let root = on.root.clone();
        for n in 0..40 {
            on.remove(&root, &format!("f{n}")).unwrap();
        }
        server.stop();
        assert_eq!(ok(&["ls", s(&a), "/"]).lines().filter(|l| l.contains(" f")).count(), 0);
        let clients = ok(&["log", "info", s(&log)]);
        assert_eq!(clients.lines().filter(|l| l.starts_with("client")).count(), 2, "{clients}");
        let said = ok(&["recover", "--json", s(&b), "--log", s(&log)]);
        let said: serde_json::Value = serde_json::from_str(&said).unwrap();
        assert!(said["transactions"].as_u64().unwrap() >= 80, "{said}");
        assert!(said["blocks_written"].as_u64().unwrap() >= 40, "{said}");
        assert_eq!(ok(&["cat", s(&b), "f39"]), "/b 39");
        ok(&["fsck", s(&a)]);
        ok(&["fsck", s(&b)]);
        assert_eq!(ok(&["log", "info", s(&log)]).matches(": nothing").count(), 2);
    }
}

#[test]
fn a_volume_whose_log_is_gone_is_not_opened() {
    let folder = Folder::new();
    let [a, b, log] = two_killed(&folder, "redo");
    let (moved, other) = (folder.0.join("moved"), folder.0.join("other"));
    std::fs::rename(&log, &moved).unwrap();
    let serve = |image: &Path, log: &Path, why: &str| {
        fails(&["serve", s(image), "--mode", "redo", "--nfs", ANY, "--log", s(log)], why);
    };
    serve(&a, &log, "there is none at");
    assert!(!log.exists(), "nothing is made in its place");
    ok(&["log", "format", s(&other), "--size", "1M"]);
    serve(&a, &other, "not the log");
    fails(&["serve", s(&a), "--mode", "redo", "--nfs", ANY], "--log PATH names it");
    // Both of a pair, of which one cannot be opened: the other one is closed again, cleanly.
    let c = folder.volume("c.img", "16M");
    let both = ["serve", s(&c), s(&a), "--mode", "redo", "--nfs", ANY, "--log", s(&other)];
    fails(&both, "not the log");
    assert_eq!(info(&[s(&c)])["clean"], true);
    for image in [&a, &b] {
        ok(&["recover", s(image), "--log", s(&moved)]);
        ok(&["fsck", s(image)]);
    }
}

#[test]
fn one_log_takes_no_copies_and_no_journals() {
    let folder = Folder::new();
    let (a, copy) = (folder.volume("a.img", "16M"), folder.0.join("copy.img"));
    std::fs::copy(&a, &copy).unwrap();
    let log = folder.0.join("log");
    let both = |mode| ["serve", s(&a), s(&copy), "--mode", mode, "--nfs", ANY, "--log", s(&log)];
    fails(&both("redo"), "same UUID");
    let (code, _, err) = cairn(&both("ordered"));
    assert!(code == 2 && err.contains("one volume"), "{code} {err}");
}

#[test]
fn the_stand_alone_log_from_the_command_line() {
    let folder = Folder::new();
    let log = folder.0.join("log");
    let l = s(&log);
    fails(&["log", "info", l], "No such file");
    ok(&["log", "format", l, "--size", "1M"]);
    fails(&["log", "format", l], "--force");
    let mut lsns: Vec<String> =
        ok(&["log", "append", l, "one", "two"]).lines().map(String::from).collect();
    let mut child = Command::new(CAIRN)
        .args(["log", "append", l, "--client", "other"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let bytes: Vec<u8> = (0..100_000u32).map(|n| (n % 251) as u8).collect();
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success());
    lsns.push(String::from_utf8(out.stdout).unwrap().trim().to_owned());
    assert_eq!(ok(&["log", "read", l, &lsns[1]]), "two");
    let read = Command::new(CAIRN).args(["log", "read", l, &lsns[2]]).output().unwrap();
    assert!(read.stdout == bytes);
    fails(&["log", "read", l, "12345"], "no entry");
    let list: serde_json::Value = serde_json::from_str(&ok(&["log", "scan", l, "--json"])).unwrap();
    let list = list.as_array().unwrap();
    let shown: Vec<_> = list.iter().map(|e| (e["client"].as_str().unwrap(), &e["bytes"])).collect();
    let want = [("cairn-log", 3), ("cairn-log", 3), ("other", 100_000)].map(|(c, n)| (c, n.into()));
    assert_eq!(shown, want.iter().map(|(c, n)| (*c, n)).collect::<Vec<_>>());
    ok(&["log", "trim", l, &lsns[1]]);
    fails(&["log", "read", l, &lsns[0]], "no entry");
    assert_eq!(ok(&["log", "scan", l, "--from", &lsns[1]]).lines().count(), 2);
    // A log that is full says so, and takes entries again after a trim.
    let half = "x".repeat(60_000);
    let many: Vec<&str> = std::iter::repeat_n(half.as_str(), 2).collect();
    let mut full = String::new();
    for _ in 0..20 {
        let (code, _, err) = cairn(&[&["log", "append", l], &many[..]].concat());
        if code != 0 {
            full = err;
            break;
        }
    }
    assert!(full.contains("full"), "{full}");
    ok(&["log", "trim", l, "99999999"]);
    ok(&["log", "trim", l, "99999999", "--client", "other"]);
    ok(&["log", "append", l, &half]);
    std::fs::write(&log, vec![7; 1 << 20]).unwrap();
    fails(&["log", "scan", l], "not a log");
}

/// A configuration of two volumes with one log; `of_a`: more of the first.
fn sharing(folder: &Folder, of_a: &str) -> std::path::PathBuf {
    let path = folder.0.join("cairn.toml");
    let (log, text) = (folder.0.join("log"), |name: &str| {
        let image = folder.0.join(format!("{name}.img"));
        format!("[volume.{name}]\nimage = {image:?}\nexport = [\"{CLIENTS}\"]\n")
    });
    let head = format!("mode = \"redo\"\nlog = {log:?}\n");
    std::fs::write(&path, [&head, &text("a"), of_a, &text("b")].concat()).unwrap();
    path
}

const CLIENTS: &str = "127.0.0.0/8,no_root_squash,insecure";

#[test]
fn a_volume_that_is_only_read_does_not_keep_others_from_their_log() {
    let folder = Folder::new();
    two_killed(&folder, "redo");
    let config = sharing(&folder, "read-only = true\n");
    let mut command = Command::new(CAIRN);
    command.args(["serve", "--nfs", ANY, "--config"]).arg(&config);
    let server = Server::launch(command, &folder.0.join("said"));
    let (mut a, mut b) = (server.client("/a"), server.client("/b"));
    let (of_a, of_b) = (a.root.clone(), b.root.clone());
    a.lookup(&of_a, "f7").unwrap();
    assert!(a.mkdir(&of_a, "made").is_err(), "it is only read");
    b.mkdir(&of_b, "made").unwrap();
    server.stop();
}

#[test]
fn what_is_asked_of_a_volume_with_a_shared_log_is_done_or_refused() {
    let folder = Folder::new();
    let _volumes = ["a.img", "b.img"].map(|name| folder.volume(name, "16M"));
    let config = sharing(&folder, "writeback-cache = \"on\"\n");
    // It would serve until it is stopped.
    let line = ["30", CAIRN, "serve", "--nfs", ANY, "--config", s(&config)];
    let served = Command::new("timeout").args(line).output().unwrap();
    let err = String::from_utf8_lossy(&served.stderr).into_owned();
    assert!(served.status.code() == Some(2) && err.contains("--writeback-cache on"), "{err}");
}
