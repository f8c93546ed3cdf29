//! What a mounted volume takes of a machine: little memory as long as nobody asks for anything, and
//! in mode `async`, where files come and go as at a mail server, no more time for an operation than
//! at the beginning, since what was freed is given back. Needs FUSE; without it, it is skipped.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod served;

use served::{CAIRN, Folder};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A mounted volume.
struct Mount(Child);

impl Mount {
    fn new(image: &Path, dir: &Path) -> Mount {
        let mut command = Command::new(CAIRN);
        command.arg("mount").arg(image).arg(dir).args(["--mode", "async", "--cache", "32M"]);
        let mut child = Mount(command.stdout(Stdio::piped()).spawn().unwrap());
        let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
        assert!(lines.any(|l| l.unwrap() == "ready"));
        child
    }
    /// The processor's time that it has used, in ticks of 10 ms.
    fn ticks(&self) -> u64 {
        let all = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap();
        let rest = all.rsplit(')').next().unwrap();
        rest.split_whitespace().skip(11).take(2).map(|n| n.parse::<u64>().unwrap()).sum()
    }
    fn memory_kib(&self) -> u64 {
        let all = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = all.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }
    fn stop(mut self) {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        assert!(self.0.wait().unwrap().success());
    }
}
impl Drop for Mount {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_mount_takes_no_more_than_it_uses() {
    if !Path::new("/dev/fuse").exists() {
        println!("skipped: there is no /dev/fuse");
        return;
    }
    let folder = Folder::new();
    // 8,192 inodes in a group: the later rounds find the first groups all held, if nothing is
    // given back, and take twenty times as long.
    let (image, dir) = (folder.volume("v.img", "1G"), folder.0.join("mnt"));
    std::fs::create_dir(&dir).unwrap();
    let mount = Mount::new(&image, &dir);
    // Nobody has asked for anything: the buffers of FUSE over io_uring are room, not memory.
    let idle = mount.memory_kib();
    assert!(idle < 64 << 10, "{idle} KiB");
    let used: Vec<u64> = (0..5)
        .map(|_| {
            let before = mount.ticks();
            for n in 0..4_000 {
                let file = dir.join(format!("f{}", n % 7));
                std::fs::File::create_new(&file).unwrap();
                std::fs::remove_file(&file).unwrap();
            }
            mount.ticks() - before
        })
        .collect();
    assert!(used[4] < 5 * used[0].max(5), "4,000 files took {used:?} times 10 ms");
    mount.stop();
}
