//! What commands say to people: their first lines, their last ones, their helps, and the errors
//! that name what is at fault. Each is taken from the output of the command itself. Errors that
//! change what a volume is, or how it recovers, are in errors.rs.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod served;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use served::{ANY, CAIRN, Folder, MountPoint, Server, cairn, ok, s};
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

/// It ends with this code and one line, which has all of the texts.
fn fails(args: &[&str], want: i32, with: &[&str]) {
    let (code, out, err) = cairn(args);
    assert!(code == want && with.iter().all(|w| err.contains(w)), "{args:?}: {code} {out}{err}");
    assert!(err.starts_with("cairn: ") && err.lines().count() == 1, "{args:?}: {err}");
}

#[test]
fn sizes_are_as_people_write_them() {
    let folder = Folder::new();
    for (n, (text, bytes)) in [
        ("0.0625GiB", 64 << 20),
        ("0.0625G", 64 << 20),
        ("65536k", 64 << 20),
        ("67108864", 64 << 20),
        ("40.96MB", 40_960_000),
    ]
    .into_iter()
    .enumerate()
    {
        let image = folder.0.join(format!("{n}.img"));
        ok(&["mkfs", s(&image), "--size", text]);
        let info: serde_json::Value =
            serde_json::from_str(&ok(&["info", "--json", s(&image)])).unwrap();
        assert_eq!(info["size_bytes"], bytes, "{text}");
    }
}

/// What a server says until it is ready, and its warnings.
fn start(image: &Path, more: &[&str]) -> (String, String) {
    let mut child = Command::new(CAIRN)
        .arg("serve")
        .arg(image)
        .args(more)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = Vec::new();
    let mut out = child.stdout.take().unwrap();
    while !String::from_utf8_lossy(&said).contains("ready\n") {
        let mut some = [0; 256];
        let n = out.read(&mut some).unwrap();
        assert!(n > 0, "it ended: {}", String::from_utf8_lossy(&said));
        said.extend_from_slice(&some[..n]);
    }
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    child.wait().unwrap();
    (String::from_utf8(said).unwrap(), err)
}

#[test]
fn a_server_starts_with_short_lines_and_warns_of_doubtful_exports() {
    let folder = Folder::new();
    let image = folder.volume("v.img", "16M");
    let (out, err) = start(&image, &["--nfs", ANY]);
    let lines: Vec<&str> = out.lines().collect();
    let first = lines[0].strip_prefix(s(&image)).unwrap();
    assert!(first.contains(": mode unified: ") && first.len() < 90, "{first}");
    assert!(lines[1].starts_with("mount -t nfs -o ") && lines[1].ends_with(" 127.0.0.1:/v DIR"));
    assert!(lines[2] == "ready" && lines.len() == 3 && err.is_empty(), "{out}{err}");
    let all = "0.0.0.0:0";
    for (nfs, export, with) in [
        (all, "v=0.0.0.0/0", "is open to whoever reaches 0.0.0.0:"),
        (all, "v=127.0.0.0/8", "only this machine is let in"),
        (ANY, "v=10.0.0.0/8", "covers nobody who reaches 127.0.0.1:"),
    ] {
        let (out, err) = start(&image, &["--nfs", nfs, "--export", export]);
        let is_one = err.lines().filter(|l| l.starts_with("warning: /v")).count() == 1;
        assert!(is_one && err.contains(with), "{nfs} {export}: {err}");
        // The line works from elsewhere: it has an address of this machine, not "all".
        let mount = out.lines().find(|l| l.starts_with("mount -t nfs")).unwrap();
        assert!(!mount.contains("0.0.0.0"), "{mount}");
        assert!(nfs == ANY || !mount.contains("127.0.0.1:/"), "{mount}");
    }
    let (_, err) = start(&image, &["--nfs", all, "--export", "v=10.0.0.0/8"]);
    assert!(err.is_empty(), "{err}");
}

#[test]
fn helps_have_groups_examples_and_defaults_and_offer_nothing_that_is_not_there() {
    let all = ok(&["--help"]);
    assert!(all.contains("Examples:"), "{all}");
    let commands = all.split("Commands:").nth(1).unwrap().split("\n\n").next().unwrap();
    for line in commands.lines().filter(|l| l.starts_with("  ") && !l.starts_with("   ")) {
        let name = line.split_whitespace().next().unwrap();
        let help = if name == "help" { all.clone() } else { ok(&[name, "--help"]) };
        assert!(!help.contains("not in this version"), "{name}: {help}");
    }
    let help = ok(&["serve", "--help"]);
    for part in ["How changes are made safe:", "Mounted here:", "[default:", "Examples:"] {
        assert!(help.contains(part), "{part}: {help}");
    }
    // What is of every command stands behind what is of this one.
    for command in ["mkfs", "fsck", "check", "info", "copy", "mount"] {
        let help = ok(&[command, "--help"]);
        let own = help.split("Options:").nth(1).unwrap().split("\n\n").next().unwrap();
        assert!(!own.contains("--endpoint") && !own.contains("--log-format"), "{command}: {own}");
        assert!(help.contains("Volumes in buckets:"), "{command}: {help}");
    }
    let help = ok(&["fsck", "--help"]);
    for part in ["cairn fsck  0 sound", "fsck.cairn  for fsck(8)", "16 a wrong call"] {
        assert!(help.contains(part), "{part}: {help}");
    }
}

#[test]
fn errors_name_the_path_at_fault() {
    let folder = Folder::new();
    let image = folder.volume("v.img", "16M");
    let (i, nowhere) = (s(&image), folder.0.join("nowhere"));
    fails(&["cat", i, "/none"], 1, &[i, "/none: no such file"]);
    fails(&["stat", i, "/x/y"], 1, &["/x/y: no such file"]);
    fails(&["mkdir", i, "/a/b"], 1, &["/a: no such file"]);
    fails(&["get", i, "/none", s(&folder.0)], 1, &["/none: no such file"]);
    fails(&["get", i, "/", s(&nowhere.join("deep"))], 1, &[s(&nowhere)]);
    fails(&["put", i, s(&nowhere), "/"], 1, &[s(&nowhere)]);
    fails(&["copy", s(&nowhere), s(&folder.0.join("copy"))], 1, &[s(&nowhere)]);
    fails(&["mount", i, s(&nowhere)], 1, &[s(&nowhere)]);
    fails(&["serve", "--config", s(&nowhere)], 1, &[s(&nowhere)]);
}

#[test]
fn wrong_values_are_told_with_what_would_be_right() {
    let folder = Folder::new();
    let image = folder.volume("v.img", "16M");
    let (i, new, dir) = (s(&image), folder.0.join("new.img"), s(&folder.0));
    let n = s(&new);
    let made = |more: &[&str], code, with: &str| {
        fails(&[&["mkfs", n], more].concat(), code, &[with]);
    };
    made(&["--size", "10Q"], 2, "`10Q` is no size: write 512M");
    made(&["--size", "100K"], 1, "a volume has at least 64 blocks, 256 KiB");
    made(&["--size", "1M"], 1, "choose --size 8M or more, or --profile ext2");
    made(&["--size", "32M", "--journal-size", "1K"], 1, "at least 4096 KiB, and at most 16384 KiB");
    made(&["--size", "1M", "--journal-size", "512K"], 1, "choose --size 8M or more");
    made(&["--size", "32M", "--log", n], 1, "named twice");
    made(&["--szie", "32M"], 2, "a similar argument exists: '--size'");
    std::fs::write(&new, b"").unwrap();
    made(&[], 2, "it is empty: --size is needed");
    let deep = folder.0.join("no").join("new.img");
    fails(&["mkfs", s(&deep), "--size", "16M"], 1, &["there is no directory", "/no"]);
    for (option, value) in [("--hold", "soon"), ("--hold", "inf")] {
        fails(&["copy", i, n, option, value], 2, &["is no number: write 5, 0.5"]);
    }
    // An option that begins with a dash is no value, and nobody is told to make one of it.
    let (_, _, err) = cairn(&["info", i, "--jsno"]);
    assert!(err.contains("--json") && !err.contains("to pass"), "{err}");
    fails(&["mount", i, dir, "--cache", "1"], 2, &["--cache 1: 1.0 MiB at least"]);
    fails(&["mount", i, dir, "--standby"], 2, &["--standby: only a volume in a bucket"]);
    fails(&["mount", i, dir, "--log", i], 1, &["named twice"]);
    fails(&["serve", i, i, "--nfs", ANY], 2, &["two volumes would be exported as /v", "--config"]);
    fails(&["mkdir", i, "/"], 1, &["/: the name exists already"]);
    fails(&["snapshot", "list", i], 1, &["in no log-structured store"]);
}

#[test]
fn what_would_be_mounted_nowhere_is_not_opened() {
    let folder = Folder::new();
    let image = folder.volume("v.img", "16M");
    let nowhere = folder.0.join("nowhere");
    for args in [
        &["mount", s(&image), s(&nowhere)][..],
        &["serve", s(&image), "--no-nfs", "--mount", s(&nowhere)],
    ] {
        let (code, out, err) = cairn(args);
        assert!(code == 1 && out.is_empty() && err.contains("mkdir"), "{code} {out}{err}");
    }
}

/// Who meets what a killed server has left is told how to take it away, and who mounts there again
/// need not.
#[test]
fn a_mount_whose_server_was_killed_is_told_and_taken_away() {
    let folder = Folder::new();
    let Some(at) = MountPoint::new(&folder) else { return };
    let (image, other) = (folder.volume("v.img", "16M"), folder.volume("w.img", "16M"));
    let server = Server::mounted(&image, &at, &[]);
    std::fs::create_dir(at.file("d")).unwrap();
    let synced = std::fs::File::open(&at.0).and_then(|top| top.sync_all());
    synced.unwrap();
    server.kill();
    for args in [
        &["info", s(&at.0)][..],
        &["ls", s(&at.0), "/"],
        &["fsck", s(&at.0)],
        &["put", s(&other), s(&at.file("d")), "/"],
    ] {
        fails(args, 1, &[s(&at.0), "the server of this mount has ended: fusermount3 -u"]);
    }
    let server = Server::mounted(&image, &at, &[]);
    assert!(at.file("d").is_dir(), "{}", server.errors());
    server.stop();
}

#[test]
fn a_log_is_made_where_nothing_is_destroyed_by_it() {
    let folder = Folder::new();
    let log = folder.0.join("l.log");
    let l = s(&log);
    fails(&["log", "format", l, "--size", "1K"], 1, &["too short: a log has at least 264 KiB"]);
    assert!(!log.exists(), "what failed leaves nothing behind");
    ok(&["log", "format", l, "--size", "1M"]);
    fails(&["log", "format", l], 1, &["which --force would destroy"]);
    // A file system that begins deep in the disk is something, too.
    let other = folder.0.join("other");
    let mut bytes = vec![0; 1 << 20];
    bytes[0x1_0040..][..8].copy_from_slice(b"_BHRfS_M");
    std::fs::write(&other, &bytes).unwrap();
    fails(&["log", "format", s(&other)], 1, &["a Btrfs file system"]);
    assert_eq!(std::fs::read(&other).unwrap(), bytes);
}

#[test]
fn a_file_that_cannot_be_copied_out_is_named_and_no_part_of_it_stays() {
    let folder = Folder::new();
    let image = folder.volume("v.img", "16M");
    let (big, target) = (folder.0.join("big"), folder.0.join("target"));
    std::fs::write(&big, vec![7; 1 << 20]).unwrap();
    ok(&["put", s(&image), s(&big), "/"]);
    // As on a full disk: no file of this process may be longer.
    let script = format!("ulimit -f 64; {CAIRN} get {} /big {}", s(&image), s(&target));
    let out = Command::new("sh").args(["-c", &format!("trap '' XFSZ; {script}")]).output().unwrap();
    let err = String::from_utf8(out.stderr).unwrap();
    assert!(out.status.code() == Some(1) && err.contains(s(&target)), "{err}");
    assert!(!err.contains("os error") && !target.exists(), "{err}");
}

#[test]
fn what_a_volume_is_stands_in_the_order_in_which_it_is_asked() {
    let folder = Folder::new();
    let image = folder.volume("v.img", "16M");
    ok(&["label", s(&image), "home"]);
    let told = ok(&["info", s(&image)]);
    let lines: Vec<&str> = told.lines().collect();
    let uuid = ok(&["uuid", s(&image)]);
    assert!(lines[0].starts_with("image ") && lines[1].ends_with(" home"), "{told}");
    assert!(lines[2].ends_with(&format!(" {}", uuid.trim())), "{told}");
    assert!(lines[3].starts_with("size ") && lines[3].ends_with(" 16.0 MiB"), "{told}");
}

/// Where a bit of the bitmaps stands for a cluster of blocks.
#[test]
fn a_volume_with_clusters_is_told_of() {
    let folder = Folder::new();
    let image = folder.0.join("v.img");
    let kind = ["-q", "-F", "-t", "ext4", "-O", "bigalloc", s(&image), "32M"];
    if !Command::new("mke2fs").args(kind).status().is_ok_and(|made| made.success()) {
        println!("skipped: no mke2fs");
        return;
    }
    assert!(ok(&["info", s(&image)]).contains("this version does not write bigalloc"));
    let told: Value = serde_json::from_str(&ok(&["info", "--json", s(&image)])).unwrap();
    let number = |name: &str| told[name].as_u64().unwrap();
    let free = number("free_fragments") * number("free_fragment_bytes");
    assert!((24 << 20..32 << 20).contains(&free), "{told}");
    assert!((24 << 20..32 << 20).contains(&number("free_bytes")), "{told}");
}

#[test]
fn what_failed_leaves_nothing_behind() {
    let folder = Folder::new();
    let image = folder.volume("v.img", "16M");
    let (new, log) = (folder.0.join("new.img"), folder.0.join("none").join("log"));
    let there = || {
        let names = std::fs::read_dir(&folder.0).unwrap();
        let mut names: Vec<_> = names.map(|e| e.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = there();
    let made = |more: &[&str], code| {
        let mut args = vec!["mkfs", s(&new)];
        args.extend(more);
        fails(&args, code, &[]);
    };
    made(&["--size", "1K"], 1);
    made(&["--size", "9999999T"], 2);
    made(&["--size", "16M", "--journal-size", "900M"], 1);
    made(&["--size", "16M", "--profile", "ext2", "--journal-size", "4M"], 2);
    made(&["--size", "16M", "--log", s(&log)], 1);
    made(&["--size", "1M", "--profile", "lfs"], 1);
    fails(&["get", s(&image), "/none", s(&new)], 1, &[]);
    fails(&["copy", s(&folder.0.join("none")), s(&new)], 1, &[]);
    fails(&["lfs", "export", s(&image), s(&new)], 1, &[]);
    fails(&["snapshot", "create", &format!("{}@x", s(&image))], 1, &[]);
    fails(&["mount", s(&image), s(&folder.0.join("no-directory"))], 1, &[]);
    assert_eq!(there(), before);
}

#[test]
fn a_reader_that_went_away_is_no_error() {
    let folder = Folder::new();
    let image = folder.volume("v.img", "16M");
    for args in
        [&["ls", s(&image), "/"][..], &["info", s(&image)], &["--help"], &["crash", "--list"]]
    {
        let mut command = Command::new(CAIRN);
        let mut child =
            command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let out = child.wait_with_output().unwrap();
        assert!(out.stderr.is_empty(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    }
}

#[test]
fn what_the_explorer_and_the_lab_found_is_said_in_a_last_line() {
    let last = |args: &[&str]| {
        let (code, out, _) = cairn(args);
        (code, out.lines().last().unwrap().to_owned())
    };
    let (code, line) = last(&["crash", "--mode", "unified", "--states", "100"]);
    assert!(code == 0 && line.starts_with("no promise is broken in any of "), "{code} {line}");
    let planted = ["--states", "2000", "--plant", "ack-before-log"];
    let (code, line) = last(&[&["crash", "--mode", "unified"], &planted[..]].concat());
    assert!(code == 1 && line.starts_with("the planted bug is found"), "{code} {line}");
    for there in [&["--mode", "sync"][..], &["--in-bucket"]] {
        let (code, _, err) = cairn(&[&["crash", "--scenario", "nope"], there].concat());
        assert!(code == 2 && err.contains("no scenario nope"), "{code} {err}");
    }
    let (code, line) = last(&["lab", "run", "streams", "--small"]);
    assert!(line.contains(" claims of the papers: ") && line.contains("docs/lab.md"), "{line}");
    assert!(code == 0 && line.ends_with("each as docs/lab.md states it"), "{code} {line}");
    let folder = Folder::new();
    let page = folder.0.join("report.html");
    let (code, line) = last(&["lab", "report", "streams", "--small", "--out", s(&page)]);
    let page = std::fs::read_to_string(&page).unwrap();
    assert!(code == 0 && line.ends_with("each as docs/lab.md states it"), "{code} {line}");
    assert!(page.contains("<h2>streams</h2>") && page.contains("<td>") && !page.contains("://"));
}

/// How much faster it is said to be is what docs/figures.md has measured.
#[test]
fn the_hint_about_io_uring_promises_what_was_measured() {
    let (source, figures) =
        (include_str!("../../fuse/src/session.rs"), include_str!("../../../docs/figures.md"));
    let told = source.split("over io_uring it is ").nth(1).unwrap();
    let told: f64 = told.split(" times as fast").next().unwrap().parse().unwrap();
    let ratios: Vec<f64> = figures.lines().filter_map(both_ways).collect();
    assert!(ratios.len() >= 3, "{ratios:?}");
    let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
    assert!((mean - told).abs() < 0.1, "{told} is told, {ratios:?} were measured");
}

/// Of a row "…, io_uring and /dev/fuse | A and B | …": A by B.
fn both_ways(row: &str) -> Option<f64> {
    let figures = row.split("io_uring and /dev/fuse |").nth(1)?.split('|').next()?;
    let number = |text: &str| {
        let digits: String = text.chars().filter(|c| c.is_ascii_digit() || *c == '.').collect();
        digits.parse::<f64>().ok()
    };
    let (a, b) = figures.split_once(" and ")?;
    Some(number(a)? / number(b)?)
}
