//! Servers whose media are full: what they say of it, and how they end. Needs root, for small file
//! systems of the host; without, the tests are skipped with a line.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod served;

use nfs3_client::nfs3_types::nfs3::stable_how;
use rustix::process::Signal;
use served::{ANY, CAIRN, Folder, Server, TRUSTING, cairn, is_root, ok, s};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A file system of the host for one image, which goes with the test.
struct Small(PathBuf);

impl Small {
    fn new(folder: &Folder, name: &str) -> Small {
        let at = folder.0.join(name);
        std::fs::create_dir(&at).unwrap();
        let how = ["-t", "tmpfs", "-o", "size=24m", "tmpfs"];
        assert!(Command::new("mount").args(how).arg(&at).status().unwrap().success());
        Small(at)
    }
    fn image(&self) -> PathBuf {
        let image = self.0.join("v.img");
        ok(&["mkfs", s(&image), "--size", "64M"]);
        image
    }
    fn ballast(&self) -> PathBuf {
        self.0.join("ballast")
    }
    /// Leaves no room.
    fn fill(&self) {
        let mut file = std::fs::File::create(self.ballast()).unwrap();
        while file.write_all(&[1; 4096]).is_ok() {}
    }
}
impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// A client that writes to this export until it is told of an error.
fn write_on(server: &Server, export: &str) {
    let mut client = server.client(export);
    std::thread::spawn(move || {
        let root = client.root.clone();
        let name = format!("{:?}", std::thread::current().id()); // a new one
        let Ok(file) = client.create_new(&root, &name) else { return };
        (0..200)
            .all(|n| client.write(&file, n << 18, &[7; 1 << 18], stable_how::FILE_SYNC).is_ok());
    });
}

fn wait_for(server: &Server, what: &str) {
    let begun = Instant::now();
    while !server.errors().contains(what) {
        assert!(begun.elapsed() < Duration::from_secs(30), "no {what}: {}", server.errors());
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn get(at: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(at).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// What is durable is there, and nothing is damaged.
fn sound_after(host: &Small, image: &Path) {
    std::fs::remove_file(host.ballast()).unwrap();
    ok(&["recover", s(image)]);
    ok(&["fsck", s(image)]);
}

#[test]
fn who_waits_for_space_is_not_well_and_ends_soon_when_stopped() {
    if !is_root() {
        return;
    }
    let folder = Folder::new();
    let host = Small::new(&folder, "host");
    let image = host.image();
    let http = std::net::TcpListener::bind(ANY).unwrap().local_addr().unwrap().to_string();
    let mut command = Command::new(CAIRN);
    command.arg("serve").arg(&image).args(["--nfs", ANY, "--http", &http, "--export", TRUSTING[0]]);
    let mut server = Server::launch(command, &folder.0.join("log"));
    assert!(get(&http, "/health").starts_with("HTTP/1.1 200"));
    assert!(get(&http, "/metrics").contains("cairn_space_wait_seconds{export=\"v\"} 0"));
    host.fill();
    write_on(&server, "/v");
    wait_for(&server, "no space left on the medium");
    std::thread::sleep(Duration::from_millis(1100));
    let health = get(&http, "/health");
    assert!(health.starts_with("HTTP/1.1 503"), "{health}");
    assert!(health.contains("/v: waiting for space since "), "{health}");
    let status = get(&http, "/status.json");
    assert!(status.contains("waiting for space since"), "{status}");
    let metrics = get(&http, "/metrics");
    assert!(!metrics.contains("cairn_space_wait_seconds{export=\"v\"} 0"), "{metrics}");
    let begun = Instant::now();
    server.signal(Signal::TERM);
    let status = server.wait();
    // Sooner than the minute that a write waits for otherwise.
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
    let told = server.errors();
    assert_eq!(status.code(), Some(1), "{told}");
    let why = format!("closing {}: no space left on the medium", s(&image));
    assert!(told.contains(&why), "{told}");
    sound_after(&host, &image);
}

#[test]
fn who_is_stopped_twice_ends_at_once() {
    if !is_root() {
        return;
    }
    let folder = Folder::new();
    let host = Small::new(&folder, "host");
    let image = host.image();
    let mut command = Command::new(CAIRN);
    command.arg("serve").arg(&image).args(["--nfs", ANY, "--export", TRUSTING[0]]);
    let mut server = Server::launch(command, &folder.0.join("log"));
    host.fill();
    write_on(&server, "/v");
    wait_for(&server, "no space left on the medium");
    server.signal(Signal::TERM);
    // The same once more, as timeout(1) sends it to the group.
    server.signal(Signal::TERM);
    std::thread::sleep(Duration::from_millis(1500));
    server.signal(Signal::INT);
    let status = server.wait();
    // That it did not wait any more is what it says.
    let told = server.errors();
    assert_eq!(status.code(), Some(1), "{told}");
    assert!(told.contains(&format!("stopped twice: {} is not closed", s(&image))), "{told}");
    sound_after(&host, &image);
}

#[test]
fn each_volume_that_waits_is_told_by_its_name() {
    if !is_root() {
        return;
    }
    let folder = Folder::new();
    let hosts = [Small::new(&folder, "one"), Small::new(&folder, "two")];
    let images = hosts.each_ref().map(Small::image);
    let config = folder.0.join("cairn.toml");
    let text = format!(
        "nfs = \"{ANY}\"\nexport = [\"{}\"]\n[volume.docs]\nimage = \"{}\"\n[volume.mail]\nimage \
         = \"{}\"\n",
        TRUSTING[0],
        s(&images[0]),
        s(&images[1])
    );
    std::fs::write(&config, text).unwrap();
    let mut command = Command::new(CAIRN);
    command.args(["serve", "--config"]).arg(&config);
    let server = Server::launch(command, &folder.0.join("log"));
    hosts.iter().for_each(Small::fill);
    for (export, image) in [("/docs", &images[0]), ("/mail", &images[1])] {
        write_on(&server, export);
        wait_for(&server, &format!("{}: no space left on the medium", s(image)));
    }
    server.kill();
    assert_eq!(cairn(&["info", s(&images[1])]).0, 0);
}

#[test]
fn who_cannot_be_recovered_on_a_full_medium_is_told_what_to_do() {
    if !is_root() {
        return;
    }
    let folder = Folder::new();
    let host = Small::new(&folder, "host");
    let image = host.image();
    let server = Server::trusting(&[&image], ANY, &[]);
    let mut client = server.client("/v");
    let root = client.root.clone();
    for n in 0..50 {
        client.mkdir(&root, &format!("d{n}")).unwrap();
    }
    server.kill();
    host.fill();
    for how in [&["recover", s(&image)][..], &["rm", s(&image), "/d1"]] {
        let (code, _, err) = cairn(how);
        assert_eq!(code, 1, "{err}");
        let parts = ["no space left on the medium", "Nothing is lost: make room", "--read-only"];
        assert!(parts.iter().all(|part| err.contains(part)), "{err}");
    }
    // Who reads needs no room.
    assert_eq!(ok(&["ls", s(&image), "/"]).lines().count(), 51);
    sound_after(&host, &image);
    assert_eq!(ok(&["ls", s(&image), "/"]).lines().count(), 51);
}

#[test]
fn of_two_volumes_the_log_says_whose_line_it_is() {
    if !is_root() {
        return;
    }
    let folder = Folder::new();
    let host = Small::new(&folder, "host");
    let images = [folder.volume("docs", "16M"), host.image()];
    for format in ["text", "json"] {
        let log = folder.0.join(format);
        let mut command = Command::new(CAIRN);
        command.args(["--log-format", format, "serve", "--nfs", ANY, "--export", TRUSTING[0]]);
        command.args(&images);
        let mut server = Server::launch(command, &log);
        host.fill();
        write_on(&server, "/v");
        wait_for(&server, "no space left on the medium");
        server.signal(Signal::TERM);
        assert_eq!(server.wait().code(), Some(1));
        let told = server.errors();
        let whose = match format {
            "text" => "/v: the volume turns read-only",
            _ => "\"volume\":\"/v\"",
        };
        assert!(told.contains(whose), "{told}");
        std::fs::remove_file(host.ballast()).unwrap();
    }
}
