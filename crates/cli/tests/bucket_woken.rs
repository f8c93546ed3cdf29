//! A server of a volume in a bucket that was stopped, taken over and woken up answers nothing from
//! what it knew: it looks into the bucket first. One that was only stopped goes on.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod served;

use nfs3_client::nfs3_types::nfs3::nfsstat3;
use rustix::process::Signal;
use served::{ANY, CAIRN, Folder, Server, TRUSTING, ok};
use std::process::Command;
use std::time::Duration;

fn serve(folder: &Folder, url: &str, how: &[&str]) -> Server {
    let mut command = Command::new(CAIRN);
    command.arg("serve").args(how).args([url, "--nfs", ANY, "--takeover-after", "1"]);
    for who in TRUSTING {
        command.args(["--export", who]);
    }
    Server::launch(command, &folder.0.join("log"))
}

#[test]
fn who_was_stopped_looks_before_it_answers() {
    let folder = Folder::new();
    let url = format!("file://{}/bucket", folder.0.display());
    ok(&["mkfs", &url, "--size", "64M"]);
    for is_taken_over in [false, true] {
        let server = serve(&folder, &url, &["--standby"]);
        let mut client = server.client("/");
        let root = client.root.clone();
        let _ = client.create_new(&root, "here").unwrap();
        server.halt();
        let other = is_taken_over.then(|| serve(&folder, &url, &["--standby"]));
        if let Some(other) = &other {
            other.client("/").remove(&root, "here").unwrap();
        } else {
            std::thread::sleep(Duration::from_millis(1500));
        }
        // The request is there when it wakes up.
        let asks = std::thread::spawn(move || {
            let answer = client.lookup(&root, "here");
            (answer, client, root)
        });
        std::thread::sleep(Duration::from_millis(200));
        server.signal(Signal::CONT);
        let (answer, mut client, root) = asks.join().unwrap();
        if is_taken_over {
            assert!(matches!(answer, Err(None | Some(nfsstat3::NFS3ERR_IO))), "{answer:?}");
        } else {
            assert!(answer.is_ok(), "{answer:?}");
            client.remove(&root, "here").unwrap();
            server.stop();
        }
    }
}
