//! A check of a large image, for its time and memory: run it by hand with LARGE_IMAGE set, in
//! release.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use check::{IoError, Options, ReadBlocks, check};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;

struct Image(File);

impl ReadBlocks for Image {
    fn size_bytes(&self) -> u64 {
        self.0.metadata().unwrap().len()
    }
    fn read_at(&self, at: u64, into: &mut [u8]) -> Result<(), IoError> {
        self.0.read_exact_at(into, at).map_err(|e| IoError { what: e.to_string(), at })
    }
}

#[test]
fn a_large_image() {
    let Ok(path) = std::env::var("LARGE_IMAGE") else { return };
    let image = Image(File::open(path).unwrap());
    let options = Options { now_secs: 2_000_000_000, verify: false, mark_clean: false };
    let report = check(&image, &options, &mut ()).unwrap();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find(|l| l.starts_with("VmHWM")).unwrap().to_owned();
    let text = format!(
        "{} inodes, {} blocks, {} findings; {peak}",
        report.inodes_used,
        report.blocks_used,
        report.counts.values().sum::<u64>()
    );
    std::io::stderr().write_all(format!("{text}\n").as_bytes()).unwrap();
}
