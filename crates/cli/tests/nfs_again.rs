//! A request whose reply was lost with the server that gave it is asked again of the next one, and
//! is answered as it was, after a clean end. What carries that over, a small file beside the image,
//! is believed only as it was written, by whoever runs the server, for the volume as it is.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod served;

use nfs3_client::nfs3_types::nfs3::nfs_fh3;
use served::{ANY, Folder, Server, ok, s};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

const NOENT: u32 = 2;

fn opaque(bytes: &[u8]) -> Vec<u8> {
    let mut all = (bytes.len() as u32).to_be_bytes().to_vec();
    all.extend(bytes);
    all.resize(all.len().next_multiple_of(4), 0);
    all
}

/// Asks to REMOVE a name, by this number and as this user, and what is answered.
fn remove(socket: &mut TcpStream, (xid, uid): (u32, u32), dir: &nfs_fh3, name: &str) -> Vec<u8> {
    let head = [xid, 0, 2, 100_003, 3, 12, 1, 20, 0, 0, uid, 0, 0, 0, 0];
    let mut body: Vec<u8> = head.iter().flat_map(|w: &u32| w.to_be_bytes()).collect();
    body.extend([opaque(dir.data.as_ref()), opaque(name.as_bytes())].concat());
    let mark = (body.len() as u32 | 0x8000_0000).to_be_bytes();
    socket.write_all(&[&mark[..], &body].concat()).unwrap();
    let mut mark = [0; 4];
    socket.read_exact(&mut mark).unwrap();
    let mut all = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
    socket.read_exact(&mut all).unwrap();
    all
}

fn status(reply: &[u8]) -> u32 {
    u32::from_be_bytes(reply[24..28].try_into().unwrap())
}

/// A server has removed a name and ended; what it left.
fn removed(image: &Path, xid: u32) -> (nfs_fh3, Vec<u8>, PathBuf) {
    let server = Server::trusting(&[image], ANY, &[]);
    let mut client = server.client("/v");
    let root = client.root.clone();
    client.create_new(&root, "x").unwrap();
    let told = remove(&mut server.socket(), (xid, 0), &root, "x");
    assert_eq!(status(&told), 0);
    server.stop();
    let left = image.with_file_name(".v.replies");
    assert_eq!(fs::metadata(&left).unwrap().permissions().mode() & 0o777, 0o600);
    (root, told, left)
}

/// What the next server says when it is asked again.
fn asked_again(image: &Path, (xid, uid): (u32, u32), root: &nfs_fh3) -> Vec<u8> {
    let server = Server::trusting(&[image], ANY, &[]);
    let told = remove(&mut server.socket(), (xid, uid), root, "x");
    server.stop();
    told
}

#[test]
fn a_request_that_comes_again_after_a_clean_end_is_answered_as_it_was() {
    let folder = Folder::new();
    let image = folder.volume("v", "16M");
    let (root, told, left) = removed(&image, 7);
    let server = Server::trusting(&[&image], ANY, &[]);
    assert!(!left.exists(), "it is true once");
    let mut socket = server.socket();
    assert_eq!(remove(&mut socket, (7, 0), &root, "x"), told);
    assert_eq!(remove(&mut socket, (7, 0), &root, "x"), told);
    assert_eq!(status(&remove(&mut socket, (8, 0), &root, "x")), NOENT, "another request");
    server.stop();
    // Somebody else is not told what root did, but what is true for him.
    let server = Server::trusting(&[&image], ANY, &[]);
    assert_ne!(remove(&mut server.socket(), (7, 1000), &root, "x"), told);
    assert_eq!(remove(&mut server.socket(), (7, 0), &root, "x"), told, "within seconds, still");
    // After a kill nothing is left, and what was left before is not of this volume any more.
    server.kill();
    assert_eq!(status(&asked_again(&image, (7, 0), &root)), NOENT);
}

/// What happens to the file between two servers.
type Harm<'a> = (&'a str, &'a dyn Fn(&Path));

#[test]
fn what_was_left_is_believed_only_as_it_was_written() {
    let folder = Folder::new();
    let (image, other) = (folder.volume("v", "16M"), folder.volume("w", "16M"));
    let aside = folder.0.join("aside");
    let nothing = |_: &Path| ();
    let flip = |left: &Path| {
        let mut bytes = fs::read(left).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(left, bytes).unwrap();
    };
    let cut = |left: &Path| {
        let bytes = fs::read(left).unwrap();
        fs::write(left, &bytes[..bytes.len() - 9]).unwrap();
    };
    let grow = |left: &Path| {
        let file = fs::OpenOptions::new().write(true).open(left).unwrap();
        file.set_len(1 << 40).unwrap();
    };
    let share = |left: &Path| fs::set_permissions(left, PermissionsExt::from_mode(0o644)).unwrap();
    let link = |left: &Path| {
        fs::rename(left, &aside).unwrap();
        symlink(&aside, left).unwrap();
    };
    let pipe = |left: &Path| {
        fs::remove_file(left).unwrap();
        assert!(Command::new("mkfifo").arg(left).status().unwrap().success());
    };
    let changed = |_: &Path| drop(ok(&["mkdir", s(&image), "/meanwhile"]));
    let anothers = |left: &Path| {
        let server = Server::trusting(&[&other], ANY, &[]);
        let mut client = server.client("/w");
        client.create_new(&client.root.clone(), "x").unwrap();
        server.stop();
        fs::rename(other.with_file_name(".w.replies"), left).unwrap();
    };
    let harms: [Harm<'_>; 9] = [
        ("nothing", &nothing),
        ("a bit", &flip),
        ("its end", &cut),
        ("its size", &grow),
        ("its mode", &share),
        ("a link", &link),
        ("a pipe", &pipe),
        ("the volume", &changed),
        ("another volume's", &anothers),
    ];
    for (n, (what, harm)) in harms.iter().enumerate() {
        let xid = 100 + n as u32;
        let (root, _, left) = removed(&image, xid);
        harm(&left);
        let want = if n == 0 { 0 } else { NOENT };
        assert_eq!(status(&asked_again(&image, (xid, 0), &root)), want, "{what}");
    }
    assert!(aside.exists(), "what the link led to is nobody's business");
}
