//! A volume in a bucket that is a folder, from the command line: made, filled, overwritten,
//! cleaned, checked and exported; never made over another, and what an interrupted attempt left is
//! gone.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn cairn(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cairn")).args(args).output().unwrap()
}

fn done(args: &[&str]) -> String {
    let out = cairn(args);
    let err = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "cairn {args:?}: {err}");
    String::from_utf8(out.stdout).unwrap()
}

fn refused(args: &[&str], words: &str) {
    let out = cairn(args);
    let err = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success() && err.contains(words), "cairn {args:?}: {err}");
}

fn folder(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("cairn-bucket-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

fn objects(dir: &Path) -> usize {
    std::fs::read_dir(dir.join("v/log")).unwrap().count()
}

/// A folder's requests run on threads of their own. Where there are none, that is an error, and no
/// end of the process.
#[test]
fn without_threads_a_bucket_is_refused() {
    use std::os::unix::process::CommandExt;
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: not root");
    }
    let dir = folder("threads");
    let url = format!("file://{}/v", dir.display());
    done(&["mkfs", &url, "--size", "64M"]);
    let ls = |threads: u32, user: u32| {
        let mut ls = Command::new("prlimit");
        ls.arg(format!("--nproc={threads}")).arg(env!("CARGO_BIN_EXE_cairn"));
        ls.args(["ls", &url, "/"]).uid(user).gid(user).output()
    };
    let mut went_well = false;
    for threads in 1..8 {
        // A user of whom there is nothing else.
        let user = 61_000 + std::process::id() % 3000;
        let Ok(out) = ls(threads, user) else { return println!("skipped: no prlimit") };
        let err = String::from_utf8_lossy(&out.stderr);
        if err.contains("failed to execute") || err.contains("Permission denied") {
            return println!("skipped: others may not come here");
        }
        assert!(out.status.code().is_some(), "{threads} threads: {} {err}", out.status);
        assert!(!err.contains("panicked"), "{threads} threads: {err}");
        went_well |= out.status.success();
    }
    assert!(went_well, "with a few threads it works");
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn made_filled_cleaned_checked_and_exported() {
    let dir = folder("whole");
    let url = format!("file://{}/v", dir.display());
    let v = url.as_str();
    refused(&["info", v], "cairn");
    // What an interrupted mkfs has left.
    std::fs::create_dir_all(dir.join("v/log")).unwrap();
    std::fs::write(dir.join("v/log/0000000000000001"), b"half of something").unwrap();
    refused(&["ls", v, "/"], "there is no volume here");
    let said = done(&["mkfs", v, "--size", "1G"]);
    assert!(said.contains("in a bucket"), "{said}");
    refused(&["mkfs", v, "--size", "1G"], "--force");
    let bytes: Vec<u8> = (0..6_000_000_u32).map(|i| (i ^ i >> 9) as u8).collect();
    let local = dir.join("data");
    for round in 0..4_u8 {
        let mut part = bytes.clone();
        part[0] = round;
        std::fs::write(&local, &part).unwrap();
        if round > 0 {
            done(&["rm", v, "/data"]);
        }
        done(&["put", v, local.to_str().unwrap(), "/"]);
        done(&["mkdir", v, &format!("/d{round}")]);
    }
    let stat = |v| -> serde_json::Value {
        serde_json::from_str(&done(&["lfs", "stat", v, "--json"])).unwrap()
    };
    assert_eq!(stat(v)["wrong"].as_array().unwrap().len(), 0);
    assert_eq!(stat(v)["rolled_forward"], 0, "a clean end leaves no log to follow");
    done(&["lfs", "clean", v]);
    assert_eq!(stat(v)["wrong"].as_array().unwrap().len(), 0);
    let most = 2 * stat(v)["objects"].as_u64().unwrap() as usize + 40;
    assert!(objects(&dir) < most, "dead objects are deleted, fences aside: {}", objects(&dir));
    done(&["fsck", v]);
    assert!(done(&["info", v]).contains("cost a month stored"));
    // 4 KiB blocks at 1,000 a GB and month.
    let dear = done(&["lfs", "stat", v, "--json", "--prices", "free,STORED=1000"]);
    let dear: serde_json::Value = serde_json::from_str(&dear).unwrap();
    let month: f64 = dear["cost_a_month_stored"].as_str().unwrap().parse().unwrap();
    let stored = dear["blocks"].as_f64().unwrap() * 4096.0 / 1e6;
    assert!((month - stored).abs() < 0.001, "{month} for {stored} MB");
    refused(&["lfs", "stat", v, "--prices", "BEG=1"], "prices are PUT, GET");
    let plain = dir.join("plain.img");
    let o = plain.to_str().unwrap();
    done(&["lfs", "export", v, o]);
    for from in [v, o] {
        let back = dir.join("back");
        done(&["get", from, "/data", back.to_str().unwrap()]);
        assert_eq!(std::fs::read(&back).unwrap()[1..], bytes[1..], "{from}");
        assert_eq!(std::fs::read(&back).unwrap()[0], 3, "{from}");
        let _ = std::fs::remove_file(&back);
    }
    match Command::new("e2fsck").args(["-fn", o]).output() {
        Ok(e) => assert!(e.status.success(), "{}", String::from_utf8_lossy(&e.stdout)),
        Err(_) => println!("skipped: no e2fsck"),
    }
    let _ = std::fs::remove_dir_all(&dir);
}

/// A damaged object is named; what lies in others stays readable.
#[test]
fn a_damaged_object_is_named() {
    let dir = folder("damaged");
    let url = format!("file://{}/v", dir.display());
    let v = url.as_str();
    done(&["mkfs", v, "--size", "256M"]);
    let local = dir.join("data");
    std::fs::write(&local, vec![7; 3_000_000]).unwrap();
    done(&["put", v, local.to_str().unwrap(), "/"]);
    done(&["put", v, concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"), "/"]);
    let size = |p: &PathBuf| std::fs::metadata(p).unwrap().len();
    let all = std::fs::read_dir(dir.join("v/log")).unwrap().map(|f| f.unwrap().path());
    let largest = all.max_by_key(size).unwrap();
    let mut raw = std::fs::read(&largest).unwrap();
    let middle = raw.len() / 2;
    raw[middle] ^= 1;
    std::fs::write(&largest, raw).unwrap();
    let back = dir.join("back");
    let name = largest.file_name().unwrap().to_str().unwrap();
    let told = cairn(&["-v", "get", v, "/data", back.to_str().unwrap()]);
    assert!(!told.status.success());
    let err = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(err.contains(name), "{name}: {err}");
    assert!(done(&["ls", v, "/"]).contains("data"));
    for missing in [false, true] {
        if missing {
            std::fs::remove_file(&largest).unwrap();
        }
        let told = cairn(&["check", "--read", v]);
        let all = [told.stdout, told.stderr].concat();
        let all = String::from_utf8_lossy(&all).into_owned();
        let line = all.lines().find(|l| l.contains("/data: ")).unwrap_or_else(|| panic!("{all}"));
        assert!(!told.status.success() && line.contains(name), "{name}: {line}");
        assert!(!all.contains("/Cargo.toml: "), "{all}");
        assert!(done(&["cat", v, "/Cargo.toml"]).contains("[package]"));
    }
    let _ = std::fs::remove_dir_all(&dir);
}

#[test]
fn urls_that_are_none_are_told() {
    refused(&["info", "gopher://somewhere/v"], "s3://BUCKET/PREFIX");
    refused(&["info", "file://relative/v"], "file:///DIR");
    refused(&["mkfs", "s3://bucket", "--size", "1G"], "s3://BUCKET/PREFIX");
    refused(&["mkfs", "file:///proc/no/such", "--size", "1G"], "/proc/no/such");
}
