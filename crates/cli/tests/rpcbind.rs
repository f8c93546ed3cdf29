//! `cairn serve --rpcbind` against the real rpcbind, in a network of its own, where nothing of the
//! machine's is registered. Skipped with a line where there is no rpcbind, or no such network can
//! be had, which only root can (rpcbind goes on as somebody else).

#![allow(clippy::unwrap_used, reason = "a test may")]

mod served;

use served::{ANY, Folder, Server, cairn, ok, s};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const RPCBIND: &str = "/usr/sbin/rpcbind";
const SOCKET: &str = "/run/rpcbind.sock";
/// Set where the test runs in a network of its own.
const APART: &str = "CAIRN_TEST_APART";

/// The way into a network of its own, with mounts of its own.
fn apart() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount"]);
    command
}

fn works(command: &mut Command) -> bool {
    let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|s| s.success())
}

/// Runs this test again in a network of its own; false: this is it.
fn goes_elsewhere(test: &str) -> bool {
    if std::env::var_os(APART).is_some() {
        return false;
    }
    let there = [RPCBIND, "/usr/sbin/rpcinfo"].iter().all(|p| Path::new(p).exists());
    if !there || !works(apart().args(["mount", "-t", "tmpfs", "none", "/run"])) {
        println!("skipped: there is no rpcbind, or no network of its own for it");
        return true;
    }
    let mut again = apart();
    again.arg(std::env::current_exe().unwrap()).args(["--exact", test, "--nocapture"]);
    let out = again.env(APART, "1").output().unwrap();
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    assert!(out.status.success(), "{}{}", text(&out.stdout), text(&out.stderr));
    assert!(text(&out.stdout).contains("1 passed"), "{}", text(&out.stdout));
    true
}

/// A running rpcbind.
struct Rpcbind(Child);

impl Rpcbind {
    fn start() -> Rpcbind {
        let child = Command::new(RPCBIND).arg("-f").spawn().unwrap();
        let begun = Instant::now();
        while UnixStream::connect(SOCKET).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(20), "rpcbind does not come");
            std::thread::sleep(Duration::from_millis(20));
        }
        Rpcbind(child)
    }
}
impl Drop for Rpcbind {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What is registered but rpcbind itself: program, version, transport and address, in order.
fn registered() -> Vec<String> {
    let out = Command::new("/usr/sbin/rpcinfo").output().unwrap();
    assert!(out.status.success(), "{out:?}");
    let text = String::from_utf8(out.stdout).unwrap();
    let rows = text.lines().skip(1).map(|l| l.split_whitespace().take(4).collect::<Vec<_>>());
    let mut rows: Vec<String> =
        rows.filter(|row| row[0] != "100000").map(|row| row.join(" ")).collect();
    rows.sort();
    rows
}

/// NFS and MOUNT, at these transports' addresses.
fn both(port: u16, at: &[(&str, &str)]) -> Vec<String> {
    let (high, low) = (port >> 8, port & 0xff);
    let row =
        |program: u32, (netid, ip): &(&str, &str)| format!("{program} 3 {netid} {ip}.{high}.{low}");
    let mut rows: Vec<String> =
        [100_003, 100_005].iter().flat_map(|p| at.iter().map(|a| row(*p, a))).collect();
    rows.sort();
    rows
}

#[test]
fn nfs_and_mount_are_registered_as_long_as_they_are_served() {
    if goes_elsewhere("nfs_and_mount_are_registered_as_long_as_they_are_served") {
        return;
    }
    assert!(works(Command::new("mount").args(["-t", "tmpfs", "none", "/run"])));
    assert!(works(Command::new("ip").args(["link", "set", "lo", "up"])));
    let folder = Folder::new();
    let image = folder.volume("v", "16M");
    // Nobody to register with: it says so, and leaves the volume closed.
    let (code, _, err) = cairn(&["serve", s(&image), "--nfs", ANY, "--rpcbind"]);
    assert!(code == 1 && err.starts_with("cairn: --rpcbind: the local rpcbind: "), "{code} {err}");
    assert_eq!(err.lines().count(), 1, "nothing was registered, so nothing stays behind: {err}");
    let info: serde_json::Value =
        serde_json::from_str(&ok(&["info", "--json", s(&image)])).unwrap();
    assert_eq!(info["clean"], true, "{info}");

    let _rpcbind = Rpcbind::start();
    let nothing: [&str; 0] = [];
    assert_eq!(registered(), nothing);
    let server = Server::trusting(&[&image], ANY, &[]);
    assert_eq!(registered(), nothing, "nobody asked for it");
    server.stop();
    let v4 = [("tcp", "127.0.0.1")];
    let server = Server::trusting(&[&image], ANY, &["--rpcbind"]);
    assert_eq!(registered(), both(server.at.port(), &v4));
    server.stop();
    assert_eq!(registered(), nothing);
    // Every address, of both kinds.
    let server = Server::trusting(&[&image], "[::]:0", &["--rpcbind"]);
    assert_eq!(registered(), both(server.at.port(), &[("tcp", "0.0.0.0"), ("tcp6", "::")]));
    server.stop();
    assert_eq!(registered(), nothing);
    // A server that is registered and answers keeps its place.
    let first = Server::trusting(&[&image], ANY, &["--rpcbind"]);
    let place = registered();
    let other = folder.volume("w", "16M");
    let (code, _, err) = cairn(&["serve", s(&other), "--nfs", ANY, "--rpcbind"]);
    assert!(code == 1 && err.contains("is registered and answers at"), "{code} {err}");
    assert_eq!(registered(), place);
    first.stop();
    assert_eq!(registered(), nothing);
    // What a killed server left is its successor's.
    let server = Server::trusting(&[&image], ANY, &["--rpcbind"]);
    let (old, left) = (server.at.port(), registered());
    server.kill();
    assert_eq!(registered(), left);
    let server = Server::trusting(&[&image], ANY, &["--rpcbind"]);
    assert_ne!(server.at.port(), old, "another port, so that the next line says something");
    assert_eq!(registered(), both(server.at.port(), &v4));
    server.stop();
    assert_eq!(registered(), nothing);
}
