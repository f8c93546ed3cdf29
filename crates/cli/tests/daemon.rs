//! `cairn mount --daemon`: what started it goes on, and the server stays whole when it has
//! something to say afterwards and nobody is there to hear it. Needs FUSE; without it, it is
//! skipped with a line.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod served;

use served::{CAIRN, Folder};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The server of an image, as a second opener is told.
fn server_of(image: &Path) -> String {
    let out = Command::new(CAIRN).arg("ls").arg(image).arg("/").output().unwrap();
    let told = String::from_utf8(out.stderr).unwrap();
    let pid = told.split("process ").nth(1).unwrap_or_else(|| panic!("{told}"));
    pid.split(|c: char| !c.is_ascii_digit()).next().unwrap().to_owned()
}

fn ends(pid: &str) -> bool {
    let start = Instant::now();
    let alive = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        !status.is_empty() && !status.contains("State:\tZ")
    };
    while alive() {
        if start.elapsed() > Duration::from_secs(30) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    true
}

#[test]
fn ended_while_busy_it_closes_the_volume() {
    if !Path::new("/dev/fuse").exists() {
        println!("skipped: there is no /dev/fuse");
        return;
    }
    let folder = Folder::new();
    let image = folder.volume("v.img", "32M");
    let dir = folder.0.join("mnt");
    std::fs::create_dir(&dir).unwrap();
    // Its output is read to the end: the daemon must not keep it open.
    let mount = || {
        let mut command = Command::new(CAIRN);
        command.arg("mount").arg(&image).arg(&dir).args(["--daemon", "--fuse-uring", "off"]);
        command.output().unwrap()
    };
    let out = mount();
    assert!(out.status.success(), "{out:?}");
    assert!(String::from_utf8(out.stdout).unwrap().ends_with("ready\n"));
    let pid = server_of(&image);
    let mut open = std::fs::File::create(dir.join("f")).unwrap();
    open.write_all(b"some text").unwrap();
    // A second one fails as if it had not gone to the background.
    let second = mount();
    assert_eq!(second.status.code(), Some(1), "{second:?}");
    let told = String::from_utf8(second.stderr).unwrap();
    assert!(told.contains(&format!("in use by process {pid}")), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");

    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(ends(&pid), "it goes on");
    drop(open);
    let out = Command::new(CAIRN).args(["info", "--json"]).arg(&image).output().unwrap();
    let info: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(info["clean"], true, "{info}");
    let out = Command::new(CAIRN).arg("cat").arg(&image).arg("/f").output().unwrap();
    assert_eq!(out.stdout, b"some text");
}
