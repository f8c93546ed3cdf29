//! A server of a user who may have few threads: it serves, or says that it cannot, and its volume
//! is closed in either case. Where the kernel's own threads for a ring are too many, too.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod served;

use rustix::process::{Pid, Signal, kill_process};
use served::{CAIRN, Folder, is_root, ok, s};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Threads with which everything is to be had.
const MANY: u32 = 24;

#[test]
fn with_few_threads_a_volume_is_closed_all_the_same() {
    if !is_root() {
        return;
    }
    let user = 53_000 + std::process::id() % 3000; // of whom there is nothing else
    let (mut served, mut refused) = (0, 0);
    for threads in (1..9).chain([MANY]) {
        let folder = Folder::new();
        let image = folder.volume("v", "16M");
        chown(&image, Some(user), Some(user)).unwrap();
        let mut serve = Command::new("prlimit");
        serve.arg(format!("--nproc={threads}")).args([CAIRN, "serve", s(&image), "--nfs"]);
        serve.arg(served::ANY).uid(user).gid(user);
        let begun = serve.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let Ok(mut server) = begun else { return println!("skipped: no prlimit") };
        let lines = BufReader::new(server.stdout.take().unwrap()).lines();
        let ready = lines.map_while(Result::ok).any(|line| line == "ready");
        if ready {
            kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
        }
        let ended = server.wait().unwrap();
        let mut why = String::new();
        server.stderr.take().unwrap().read_to_string(&mut why).unwrap();
        if why.contains("failed to execute") || why.contains("Permission denied") {
            return println!("skipped: others may not come here");
        }
        assert_eq!(ended.success(), ready, "{threads} threads: {ended} {why}");
        let info = ok(&["info", "--json", s(&image)]);
        let info: serde_json::Value = serde_json::from_str(&info).unwrap();
        assert_eq!(info["clean"], true, "{threads} threads, {ready}: {why}");
        (served, refused) = (served + u32::from(ready), refused + u32::from(!ready));
    }
    // Where its control sockets were.
    let _ = std::fs::remove_dir_all(std::env::temp_dir().join(format!("cairn-{user}")));
    assert!(served > 0 && refused > 0, "{served} served, {refused} refused");
}
