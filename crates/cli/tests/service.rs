//! A service: several volumes by one configuration, what whoever watches over it is told, exports
//! that are read again, and the helpers of mount(8) and fsck(8). What needs FUSE is skipped with a
//! line where there is none.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod served;

use rustix::process::Signal;
use served::{ANY, CAIRN, Folder, MountPoint, Server, cairn, ok, s};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// What a service says to whoever watches over it.
struct Watcher(UnixDatagram, PathBuf);

impl Watcher {
    fn new(folder: &Folder) -> Watcher {
        let at = folder.0.join("notify");
        let socket = UnixDatagram::bind(&at).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Watcher(socket, at)
    }
    /// Reads until this is said.
    fn hears(&self, what: &str) {
        let begun = Instant::now();
        let mut heard = Vec::new();
        while begun.elapsed() < Duration::from_secs(60) {
            let mut buffer = [0; 4096];
            let n = self.0.recv(&mut buffer).unwrap_or_else(|e| panic!("{what}: {e}; {heard:?}"));
            let text = String::from_utf8_lossy(&buffer[..n]).into_owned();
            if text.contains(what) {
                return;
            }
            heard.push(text);
        }
        panic!("{what} is not among {heard:?}");
    }
}

fn write_config(folder: &Folder, clients: &str) -> PathBuf {
    let path = folder.0.join("cairn.toml");
    let volume = |name: &str| {
        let image = folder.0.join(format!("{name}.img"));
        format!(
            "[volume.{name}-served]\nimage = {:?}\nexport = [\"{clients}\"]\n",
            image.display().to_string()
        )
    };
    let text = format!("cache = \"8M\"\n{}{}mode = \"sync\"\n", volume("a"), volume("b"));
    std::fs::write(&path, text).unwrap();
    path
}

const ALL: &str = "127.0.0.0/8,no_root_squash,insecure";

#[test]
fn a_configuration_serves_its_volumes_and_its_exports_are_read_again() {
    let folder = Folder::new();
    folder.volume("a.img", "16M");
    folder.plain_volume("b.img", "16M");
    let config = write_config(&folder, ALL);
    let watcher = Watcher::new(&folder);
    let mut command = Command::new(CAIRN);
    command.args(["serve", "--nfs", ANY, "--config"]).arg(&config);
    command.env("NOTIFY_SOCKET", &watcher.1).env("WATCHDOG_USEC", "400000");
    let server = Server::launch(command, &folder.0.join("log"));
    watcher.hears("STATUS=serving /a-served, /b-served");
    watcher.hears("WATCHDOG=1");
    let mut client = server.client("/b-served");
    let root = client.root.clone();
    client.mkdir(&root, "made").unwrap();

    // Others may use it from now on; a client that is there keeps its connection.
    write_config(&folder, "10.9.9.0/24,rw");
    server.signal(Signal::HUP);
    watcher.hears("RELOADING=1");
    watcher.hears("READY=1");
    assert!(client.mkdir(&root, "refused").is_err());
    assert!(server.errors().contains("its exports hold from now on"), "{}", server.errors());
    // What is wrong changes nothing.
    std::fs::write(&config, "nonsense = 1\n").unwrap();
    server.signal(Signal::HUP);
    watcher.hears("READY=1");
    assert!(server.errors().contains("cairn.toml:1:1: unknown key \"nonsense\""));
    write_config(&folder, ALL);
    server.signal(Signal::HUP);
    watcher.hears("READY=1");
    client.mkdir(&root, "again").unwrap();
    server.stop();
    watcher.hears("STOPPING=1");
    let made = ok(&["ls", s(&folder.0.join("b.img")), "/"]);
    assert!(made.contains("made") && made.contains("again") && !made.contains("refused"), "{made}");
}

#[test]
fn a_configuration_is_looked_at_and_shown() {
    let folder = Folder::new();
    folder.volume("a.img", "16M");
    let config = write_config(&folder, ALL);
    let (code, out, err) = cairn(&["config", "check", s(&config)]);
    assert_eq!((code, out.contains("right, 2 volumes")), (0, true), "{out}{err}");
    assert!(err.contains("there is no") && err.contains("b.img"), "{err}");
    let shown = ok(&["config", "show", "--json", s(&config)]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["volume"]["b-served"]["mode"], "sync", "{shown}");
    assert_eq!(shown["volume"]["a-served"]["cache"], 8 << 20, "{shown}");
    assert_eq!(shown["volume"]["b-served"]["export"], serde_json::json!([ALL]), "{shown}");
    // Every option of a volume is, and the server's, whether something was said of it or not.
    let of_a = &shown["volume"]["a-served"];
    for (name, value) in [("use-boot-area", "false"), ("fuse-uring", "\"auto\"")] {
        assert_eq!(of_a[name].to_string(), value, "{name}: {shown}");
    }
    assert_eq!(of_a["writeback-cache"], "auto", "{shown}");
    assert_eq!((&of_a["commit-interval"], &shown["unsafe-async"]), (&5.0.into(), &false.into()));
    // What is shown is a configuration again.
    let again = folder.0.join("again.toml");
    std::fs::write(&again, ok(&["config", "show", s(&config)])).unwrap();
    ok(&["config", "check", s(&again)]);
    assert_eq!(ok(&["config", "show", s(&again)]), ok(&["config", "show", s(&config)]));
    std::fs::write(&config, "[volume.a]\nimage = \"x\"\nmode = \"best\"\n").unwrap();
    let (code, _, err) = cairn(&["config", "check", s(&config)]);
    assert!(code == 2 && err.contains("cairn.toml:3:8: mode best"), "{err}");
}

/// What `serve` would refuse before it opens anything is no right configuration.
#[test]
fn what_could_not_be_served_is_told_when_it_is_looked_at() {
    let folder = Folder::new();
    let config = folder.0.join("c.toml");
    for (head, volumes, with) in [
        ("nfs = \"x\"", "[volume.a]\nimage = \"/x\"", ":1:7: --nfs x"),
        ("http = \"127.0.0.1:99999\"", "[volume.a]\nimage = \"/x\"", "--http 127.0.0.1:99999"),
        ("mode = \"async\"", "[volume.a]\nimage = \"/x\"", "--unsafe-async"),
        ("", "[volume.a]\nimage = \"/x\"\nmount = \"/m\"\noptions = \"bogus\"", "bogus"),
        ("", "[volume.a]\nimage = \"/x\"\n[volume.b]\nimage = \"/x\"", ":4:9: volume \"b\""),
        ("", "[volume.\"\"]\nimage = \"/x\"", ":2:9: \"\" is no name"),
        ("", "[volume.\"a/b\"]\nimage = \"/x\"", "\"a/b\" is no name"),
        ("", "[volume.\"..\"]\nimage = \"/x\"", "\"..\" is no name"),
    ] {
        std::fs::write(&config, format!("{head}\n{volumes}\n")).unwrap();
        for command in [&["config", "check"][..], &["serve", "--config"]] {
            let (code, out, err) = cairn(&[command, &[s(&config)]].concat());
            let told = err.lines().next_back().unwrap_or_default();
            assert!(code == 2 && told.contains(with), "{head} {volumes}: {code} {out}{err}");
        }
    }
}

/// `cairn` under a helper's name.
fn helper(folder: &Folder, name: &str) -> PathBuf {
    let at = folder.0.join(name);
    if !at.exists() {
        std::os::unix::fs::symlink(CAIRN, &at).unwrap();
    }
    at
}

#[test]
fn mounted_by_the_helper_and_closed_when_the_next_one_looks() {
    let folder = Folder::new();
    let Some(at) = MountPoint::new(&folder) else { return };
    if !served::is_root() {
        return; // only root's umount(8) knows the mount
    }
    let image = folder.volume("v.img", "32M");
    let mount = |options: &str| {
        let mut command = Command::new(helper(&folder, "mount.cairn"));
        let out = command.arg(&image).arg(&at.0).args(["-n", "-o", options]).output().unwrap();
        (out.status.code().unwrap(), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    for round in 0..5 {
        let done = mount("rw,mode=ordered,noatime,cache=8M");
        assert_eq!(done.0, 0, "round {round}: {}", done.1);
        std::fs::write(at.file(&format!("f{round}")), b"kept").unwrap();
        assert!(Command::new("umount").arg(&at.0).status().unwrap().success());
        ok(&["info", s(&image)]);
    }
    assert_eq!(mount("ro").0, 0);
    assert!(std::fs::write(at.file("x"), b"").is_err());
    assert_eq!(std::fs::read(at.file("f4")).unwrap(), b"kept");
    assert!(Command::new("umount").arg(&at.0).status().unwrap().success());
    let (code, why) = mount("mode=best");
    assert!(code == 1 && why.contains("mode best"), "{code}: {why}");
    let (code, why) = mount("nosense");
    assert!(code == 1 && why.contains("nosense"), "{code}: {why}");
}

#[test]
fn fsck_has_the_exit_codes_of_its_caller() {
    let folder = Folder::new();
    let image = folder.plain_volume("v.img", "16M");
    let fsck = |args: &[&str]| {
        let out = Command::new(helper(&folder, "fsck.cairn")).args(args).output().unwrap();
        out.status.code().unwrap()
    };
    assert_eq!(fsck(&["-a", s(&image)]), 0);
    assert_eq!(fsck(&["-a", "-f", s(&image)]), 0);
    // A free count that is not true, in the superblock.
    damage(&image, 1024 + 12);
    assert_eq!(fsck(&["-a", s(&image)]), 0, "closed cleanly, so it is not looked at");
    assert_eq!(fsck(&["-n", "-f", s(&image)]), 4);
    assert_eq!(fsck(&["-a", "-f", s(&image)]), 1);
    assert_eq!(fsck(&["-n", s(&image)]), 0);
    assert_eq!(fsck(&[s(&folder.0.join("none.img"))]), 8);
    assert_eq!(fsck(&["-Q", s(&image)]), 16);
}

/// Changes a byte of an image.
fn damage(image: &Path, at: usize) {
    let mut bytes = std::fs::read(image).unwrap();
    bytes[at] ^= 1;
    std::fs::write(image, bytes).unwrap();
}

#[test]
fn what_a_package_holds_is_made_from_the_command_line() {
    let folder = Folder::new();
    let (man, completions) = (folder.0.join("man"), folder.0.join("completions"));
    ok(&["generate", "man", s(&man)]);
    ok(&["generate", "completions", s(&completions)]);
    for page in ["cairn.1", "cairn-serve.1", "cairn-config-check.1", "mount.cairn.8"] {
        let text = std::fs::read_to_string(man.join(page)).unwrap();
        assert!(text.contains(".SH") && text.lines().count() > 10, "{page}");
    }
    let bash = std::fs::read_to_string(completions.join("cairn.bash")).unwrap();
    assert!(bash.contains("--commit-interval"));
    assert!(completions.join("_cairn").exists() && completions.join("cairn.fish").exists());
}
