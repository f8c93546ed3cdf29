//! A near log, from the command line: what was fsynced is there after a kill although the bucket
//! did not have it; whoever takes the volume over is told what he cannot see, and the near log of
//! which something was left out is kept.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod served;

use served::{Folder, MountPoint, Server, cairn, ok, s};
use std::path::PathBuf;
use std::process::Command;

/// A volume, its near log and a place to mount it.
struct Machine {
    url: String,
    near: PathBuf,
    mnt: MountPoint,
    folder: Folder,
}

impl Machine {
    fn new() -> Option<Machine> {
        let folder = Folder::new();
        let mnt = MountPoint::new(&folder)?;
        let (url, near) = (format!("file://{}/bucket", folder.0.display()), folder.0.join("near"));
        // No smaller one is taken, and a new one of the usual size is slow here.
        let file = std::fs::File::create(&near).unwrap();
        file.set_len(bucket::NEAR_BYTES_MIN).unwrap();
        ok(&["mkfs", &url, "--size", "256M"]);
        Some(Machine { url, near, mnt, folder })
    }

    fn with_near(&self) -> [&str; 4] {
        ["--near-log", s(&self.near), "--upload-within", "100"]
    }

    fn serve(&self, log: &str) -> Server {
        let mut command = Command::new(served::CAIRN);
        command.args(["serve", &self.url, "--no-nfs", "--takeover-after", "1"]);
        command.args(self.with_near()).arg("--mount").arg(&self.mnt.0);
        Server::launch(command, &self.folder.0.join(log))
    }

    /// Writes a file, durably, and is killed: the bucket has nothing of it.
    fn write_and_be_killed(&self, name: &str) {
        let server = self.serve(name);
        std::fs::write(self.mnt.file(name), [1; 100_000]).unwrap();
        std::fs::File::open(self.mnt.file(name)).unwrap().sync_all().unwrap();
        drop(server); // killed
        self.mnt.free();
        assert!(!ok(&["ls", &self.url, "/"]).contains(name), "it would have been uploaded");
    }

    fn refused(&self, args: &[&str], words: &[&str]) {
        let (code, out, err) = cairn(args);
        let told = words.iter().all(|w| err.contains(w));
        assert!(code != 0 && told, "{args:?}: {out}{err}");
    }
}

#[test]
fn a_start_on_the_same_machine_uploads_the_rest() {
    let Some(m) = Machine::new() else { return };
    let local = m.folder.0.join("local");
    std::fs::write(&local, "local").unwrap();
    m.write_and_be_killed("one");
    // Nobody else goes on without having been told.
    m.refused(&["put", &m.url, s(&local), "/"], &[s(&m.near), "--take-over"]);
    let back = m.folder.0.join("back");
    let put = ["put", &m.url, s(&local), "/"];
    ok(&[&put[..], &m.with_near()].concat());
    ok(&["get", &m.url, "/one", s(&back)]);
    assert_eq!(std::fs::read(&back).unwrap(), [1; 100_000]);
    assert!(ok(&["fsck", &m.url]).contains(": sound;"), "the volume is sound");
    // All is in the bucket: it is not needed any more, and another volume may have it.
    let other = format!("{}2", m.url);
    ok(&["mkfs", &other, "--size", "256M"]);
    ok(&[&["put", &other, s(&local), "/"][..], &m.with_near()].concat());
    ok(&["mkdir", &m.url, "/more"]);
}

/// A configuration names a near log for each of its volumes; after a kill each is uploaded by
/// itself.
#[test]
fn each_volume_of_a_configuration_has_its_own() {
    let folder = Folder::new();
    let url = |name: &str| format!("file://{}/bucket-{name}", folder.0.display());
    let near = |name: &str| folder.0.join(format!("{name}.near"));
    let names = ["one", "two"];
    let mut config = String::from("upload-within = 100\ntakeover-after = 1\n");
    for name in names {
        ok(&["mkfs", &url(name), "--size", "256M"]);
        std::fs::File::create(near(name)).unwrap().set_len(bucket::NEAR_BYTES_MIN).unwrap();
        let lines = [("image", url(name)), ("near-log", near(name).display().to_string())];
        config += &format!("[volume.{name}]\n");
        lines.iter().for_each(|(key, value)| config += &format!("{key} = {value:?}\n"));
        config += "export = [\"127.0.0.0/8,no_root_squash,insecure\"]\n";
    }
    let file = folder.0.join("cairn.toml");
    std::fs::write(&file, &config).unwrap();
    assert!(ok(&["config", "show", s(&file)]).contains("one.near"), "{config}");
    let mut command = Command::new(served::CAIRN);
    command.args(["serve", "--nfs", served::ANY, "--config", s(&file)]);
    let server = Server::launch(command, &folder.0.join("log"));
    for name in names {
        let mut client = server.client(&format!("/{name}"));
        let root = client.root.clone();
        client.create_new(&root, &format!("in-{name}")).unwrap();
    }
    server.kill();
    for name in names {
        let file = format!("in-{name}");
        assert!(!ok(&["ls", &url(name), "/"]).contains(&file), "it would have been uploaded");
        ok(&["recover", &url(name), "--near-log", s(&near(name))]);
        assert!(ok(&["ls", &url(name), "/"]).contains(&file), "{name}");
        ok(&["put", &url(name), s(&folder.0.join("cairn.toml")), "/"]);
    }
    // One near log is not two volumes'.
    let shared = config.replace("two.near", "one.near");
    std::fs::write(folder.0.join("shared.toml"), shared).unwrap();
    let (code, _, err) = cairn(&["serve", "--config", s(&folder.0.join("shared.toml"))]);
    assert!(code != 0 && err.contains("not two's"), "{err}");
}

#[test]
fn what_a_taker_cannot_see_is_told_and_kept() {
    let Some(m) = Machine::new() else { return };
    m.write_and_be_killed("one");
    let other = MountPoint(m.folder.0.join("other"));
    std::fs::create_dir(&other.0).unwrap();
    let mut command = Command::new(served::CAIRN);
    command.args(["serve", &m.url, "--no-nfs", "--take-over", "--mount"]).arg(&other.0);
    let server = Server::launch(command, &m.folder.0.join("taker"));
    let told = std::fs::read_to_string(&server.log).unwrap();
    assert!(told.contains("cannot be seen from here") && told.contains(s(&m.near)), "{told}");
    std::fs::write(other.file("two"), [2; 1000]).unwrap();
    server.stop();
    let put = [&["put", &m.url, s(&m.near), "/"][..], &m.with_near()].concat();
    m.refused(&put, &["are lost to the volume", "kept", "mv "]);
    let kept = m.near.with_extension("kept");
    std::fs::rename(&m.near, &kept).unwrap();
    ok(&["put", &m.url, s(&kept), "/"]);
    assert!(ok(&["log", "info", s(&kept)]).contains("near log"), "what it has can be looked at");
}

#[test]
fn one_that_is_damaged_or_anothers_is_refused_and_named() {
    let Some(m) = Machine::new() else { return };
    m.write_and_be_killed("one");
    let put = |url: &str| [&["put", url, s(&m.near), "/"][..], &m.with_near()].concat().join(" ");
    let refused = |url: &str, words: &[&str]| {
        m.refused(&put(url).split(' ').collect::<Vec<_>>(), words);
    };
    let other = format!("{}2", m.url);
    ok(&["mkfs", &other, "--size", "256M"]);
    refused(&other, &["another volume's", "mv "]);
    let whole = std::fs::read(&m.near).unwrap();
    let mut damaged = whole.clone();
    damaged[..8192].iter_mut().for_each(|b| *b ^= 0x55);
    std::fs::write(&m.near, &damaged).unwrap();
    refused(&m.url, &["cannot be used", "mv "]);
    std::fs::write(&m.near, &whole[..1 << 20]).unwrap();
    refused(&m.url, &["it needs"]);
    std::fs::write(&m.near, &whole).unwrap();
    let image = m.folder.volume("image", "64M");
    refused(s(&image), &["is not in a bucket"]);
}
