//! What an image can make a check keep in memory: no more than bitmaps and lists of what the volume
//! has once, whatever files and directories share.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::asked::{OPTIONS, asked, edited};
use crate::common::{Scratch, e2fsck, made, tool};
use check::check;
use std::process::Command;

const M: u64 = 1 << 20;

/// The most memory that this process has taken while `f` ran, beyond what it had, in bytes.
fn taken<T>(f: impl FnOnce() -> T) -> (T, u64) {
    let of = |what: &str| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|l| l.starts_with(what)).unwrap().to_owned();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    };
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = of("VmRSS");
    let out = f();
    (out, of("VmHWM").saturating_sub(before))
}

/// Runs this test in a process that runs no other one, whose memory would count with its own.
/// `name`: how the test is called, with its module.
fn alone(name: &str, f: impl FnOnce()) {
    const ALONE: &str = "CAIRN_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return f();
    }
    let program = std::env::current_exe().unwrap();
    let out = Command::new(program).args([name, "--exact"]).env(ALONE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{said}{}", String::from_utf8_lossy(&out.stderr));
    assert!(said.contains("1 passed"), "no test has the name {name}:\n{said}");
}

/// An image with a file `/big` of so many bytes.
fn with_big(s: &Scratch, bytes: u64) -> Vec<u8> {
    let options = ["-t", "ext4", "-O", "^metadata_csum,^has_journal", "-N", "4096"];
    let (img, big) = (s.path("img"), s.path("big"));
    std::fs::write(&img, made(&options, 4096, 160 * M)).unwrap();
    let text: Vec<u8> = (0..bytes).map(|n| (n / 4096 + n) as u8 | 1).collect();
    std::fs::write(&big, text).unwrap();
    let write = format!("write {} big", big.display());
    assert!(tool("debugfs").args(["-w", "-R", &write]).arg(&img).status().unwrap().success());
    std::fs::read(&img).unwrap()
}

#[test]
fn what_is_shared_takes_no_memory() {
    alone("memory::what_is_shared_takes_no_memory", what_is_shared);
}

fn what_is_shared() {
    let s = Scratch::new("memory");
    let image = with_big(&s, 48 * M);
    let tree = asked(&s, &image, "ex /big");
    let first: Vec<&str> = tree.lines().nth(1).unwrap().split_whitespace().collect();
    let start = first.iter().skip_while(|w| **w != "-").nth(2).unwrap();

    // A file that has the blocks of another one: all are copied.
    let big = asked(&s, &image, "cat /big");
    let mut broken = edited(&s, &image, "copy_inode /big /dir0/file1\n");
    let (report, memory) = taken(|| check(&broken, &OPTIONS, &mut ()).unwrap());
    assert!(report.left.is_empty(), "{:#?}", report.left);
    assert!(report.plan.blocks() as u64 > 48 * M / 4096, "all are copied");
    assert!(memory < 24 * M, "{memory} bytes for copies");
    report.plan.apply(&mut broken, &mut ()).unwrap();
    assert_eq!(e2fsck(&s, &broken).0, 0);
    for path in ["/big", "/dir0/file1"] {
        assert!(asked(&s, &broken, &format!("cat {path}")) == big, "{path}");
    }

    // Directories that have the blocks of one file: 8000 each, none of them once more.
    let mut requests = String::new();
    for n in 0..1000 {
        requests += &format!(
            "mkdir d{n}\nsif d{n} block[0] 0x2f30a\nsif d{n} block[6] 1\nsif d{n} block[7] 8000\n\
             sif d{n} block[8] {start}\n"
        );
    }
    let broken = edited(&s, &image, &requests);
    let quick = check::Options { verify: false, ..OPTIONS };
    let (report, memory) = taken(|| check(&broken, &quick, &mut ()).unwrap());
    assert!(!report.is_sound());
    assert!(memory < 32 * M, "{memory} bytes for directories");
}
