//! A pool in a folder: real servers divide its volumes among them, one that is killed is replaced
//! by the others, one that comes gets its share, and an NFS client goes on with the handle it has.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod served;

use nfs3_client::nfs3_types::nfs3::{nfs_fh3, stable_how};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;
use served::{CAIRN, Client, Folder, TRUSTING, cairn, me, ok};
use std::collections::BTreeMap;
use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Whatever is waited for comes within this, on a machine that has much to do.
const PATIENCE: Duration = Duration::from_secs(120);

/// One server of the pool, with the processes of its volumes: a machine.
struct Machine {
    process: Child,
    log: std::path::PathBuf,
}

impl Machine {
    fn start(folder: &Folder, url: &str, name: &str) -> Machine {
        let log = folder.0.join(name);
        let file = File::create(&log).unwrap();
        let mut command = Command::new(CAIRN);
        command.args(["-v", "serve", url, "--nfs", "127.0.0.1:0", "--takeover-after", "2"]);
        command.args(["--cache", "16M"]);
        for export in TRUSTING {
            command.args(["--export", export]);
        }
        let process = command
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .stdin(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        Machine { process, log }
    }
    fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }
    /// As the servers call it.
    fn name(&self) -> String {
        format!("process {} on", self.process.id())
    }
    /// The power goes, for all of it at once.
    fn dies(&mut self) {
        kill_process_group(Pid::from_child(&self.process), Signal::KILL).unwrap();
        self.process.wait().unwrap();
    }
    fn stops(&mut self) {
        kill_process(Pid::from_child(&self.process), Signal::TERM).unwrap();
        let status = self.process.wait().unwrap();
        assert!(status.success(), "{status}: {}", self.said());
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.process), Signal::KILL);
        let _ = self.process.wait();
    }
}

fn status(url: &str) -> Value {
    serde_json::from_str(&ok(&["pool", "status", url, "--json"])).unwrap()
}

/// How many volumes each of these machines serves, and none is on its way.
fn spread(status: &Value, machines: &[&Machine]) -> Vec<usize> {
    let volumes = status["volumes"].as_array().unwrap();
    let serves = |m: &&Machine| {
        let is = |v: &&Value| {
            let server = v["server"].as_str().unwrap_or_default();
            v["state"] == "serving" && server.starts_with(&m.name())
        };
        volumes.iter().filter(is).count()
    };
    machines.iter().map(serves).collect()
}

/// Waits until so many volumes are with each of the machines.
fn until(url: &str, machines: &[&Machine], wanted: &[usize]) -> Value {
    let begun = Instant::now();
    loop {
        let status = status(url);
        let mut found = spread(&status, machines);
        found.sort_unstable();
        if found == wanted {
            return status;
        }
        let said: Vec<String> = machines.iter().map(|m| m.said()).collect();
        assert!(begun.elapsed() < PATIENCE, "{status}: {}", said.join("\n--\n"));
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Where each volume listens now, as autofs is told.
fn map(url: &str) -> BTreeMap<String, SocketAddr> {
    let entry = |line: &str| {
        let (name, rest) = line.split_once(' ').unwrap();
        assert!(rest.starts_with("-fstype=nfs,vers=3,tcp,nolock,port="), "{line}");
        assert!(rest.ends_with(&format!(" 127.0.0.1:/{name}")), "{line}");
        let port = rest.split("port=").nth(1).unwrap().split(',').next().unwrap();
        (name.to_owned(), format!("127.0.0.1:{port}").parse().unwrap())
    };
    ok(&["pool", "autofs", url]).lines().map(entry).collect()
}

fn client(at: SocketAddr, volume: &str, root: Option<&nfs_fh3>) -> Client {
    let mut client = Client::mount(at, &format!("/{volume}"), me()).unwrap();
    if let Some(root) = root {
        assert_eq!(client.root.data.as_ref(), root.data.as_ref(), "the handle it had holds");
        client.root = root.clone();
    }
    client
}

/// A machine's volume.
fn one_of(status: &Value, machine: &Machine) -> String {
    let volumes = status["volumes"].as_array().unwrap();
    let is = |v: &&Value| v["server"].as_str().unwrap_or("").starts_with(&machine.name());
    volumes.iter().find(is).unwrap()["name"].as_str().unwrap().to_owned()
}

#[test]
fn volumes_are_divided_and_taken_over() {
    let folder = Folder::new();
    let url = format!("file://{}/homes/", folder.0.display());
    for n in 0..5 {
        ok(&["mkfs", &format!("{url}v{n}"), "--size", "64M"]);
    }
    std::fs::create_dir(folder.0.join("homes/nothing")).unwrap();
    let a = Machine::start(&folder, &url, "a");
    let b = Machine::start(&folder, &url, "b");
    let there = until(&url, &[&a, &b], &[2, 3]);
    // A client writes, and keeps its handles.
    let name = one_of(&there, &a);
    let mut before = client(map(&url)[&name], &name, None);
    let root = before.root.clone();
    let file = before.create_new(&root, "kept").unwrap();
    before.write(&file, 0, b"what was acknowledged", stable_how::FILE_SYNC).unwrap();
    // One that comes gets its share.
    let c = Machine::start(&folder, &url, "c");
    let there = until(&url, &[&a, &b, &c], &[1, 2, 2]);
    // The machine that has the client's volume now loses its power.
    let server = there["volumes"].as_array().unwrap().iter().find(|v| v["name"] == *name).unwrap();
    let server = server["server"].as_str().unwrap().to_owned();
    let mut all = vec![a, b, c];
    let dead = all.iter().position(|m| server.starts_with(&m.name())).unwrap();
    let mut dead = all.remove(dead);
    dead.dies();
    until(&url, &[&all[0], &all[1]], &[2, 3]);
    let mut after = client(map(&url)[&name], &name, Some(&root));
    assert_eq!(after.read(&file, 0, 100).unwrap(), b"what was acknowledged");
    after.write(&file, 0, b"WHAT", stable_how::FILE_SYNC).unwrap();
    assert_eq!(after.read(&file, 0, 100).unwrap(), b"WHAT was acknowledged");
    let entry = ok(&["pool", "autofs", &url, &name]);
    assert!(entry.starts_with("-fstype=nfs,") && entry.lines().count() == 1, "{entry}");
    assert_ne!(cairn(&["pool", "autofs", &url, "nothing"]).0, 0);
    let told = ok(&["pool", "status", &url]);
    assert!(told.contains("not heard of") && !told.contains("nothing"), "{told}");
    // One that ends lets go of everything, at once.
    all[0].stops();
    until(&url, &[&all[1]], &[5]);
    all[1].stops();
    ok(&["fsck", &format!("{url}{name}")]);
    let left = ok(&["pool", "status", &url, "--json"]);
    assert!(!left.contains("serving"), "{left}");
}

#[test]
fn what_is_no_pool_is_refused() {
    let folder = Folder::new();
    let url = format!("file://{}/v", folder.0.display());
    ok(&["mkfs", &url, "--size", "64M"]);
    let refused = |args: &[&str], words: &str| {
        let (code, out, err) = cairn(args);
        assert!(code != 0 && err.contains(words), "{args:?}: {code} {out}{err}");
    };
    refused(&["serve", &format!("{url}/")], "leave the last / out");
    let pool = format!("file://{}/", folder.0.display());
    refused(&["serve", &pool, "--http", "127.0.0.1:0"], "--http: not with a pool");
    refused(&["serve", &pool, &url], "it is served alone");
    refused(&["pool", "status", "v.img"], "s3://BUCKET/PREFIX/");
}
