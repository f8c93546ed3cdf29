//! What `cairn serve` promises to NFS clients, asked of a real server over real sockets: exports,
//! who may use them, handles and verifiers across restarts, listings of folders that change,
//! clients that do not read, and repeated requests.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod served;

use nfs3_client::nfs3_types::nfs3::*;
use nfs3_client::nfs3_types::rpc::auth_unix;
use served::{ANY, Client, Folder, Result3, Server, me, name, took};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::time::Duration;

fn user(uid: u32, gids: &[u32]) -> auth_unix {
    auth_unix { uid, gid: uid, gids: gids.to_vec(), ..auth_unix::default() }
}

fn with_mode(mode: u32) -> sattr3 {
    sattr3 { mode: Nfs3Option::Some(mode), ..sattr3::default() }
}

#[test]
fn several_volumes_are_exports_of_their_own() {
    let folder = Folder::new();
    let (a, b) = (folder.volume("a.img", "16M"), folder.volume("b.img", "16M"));
    let server = Server::trusting(&[&a, &b], ANY, &[]);
    let (mut on_a, mut on_b) = (server.client("/a"), server.client("/b"));
    let (ra, rb) = (on_a.root.clone(), on_b.root.clone());
    let file = on_a.create_new(&ra, "x").unwrap();
    on_a.write(&file, 0, b"of a", stable_how::FILE_SYNC).unwrap();
    assert_eq!(on_b.lookup(&rb, "x"), Err(Some(nfsstat3::NFS3ERR_NOENT)));
    // One connection reaches both, by handle, and moves nothing from one to the other.
    assert_eq!(on_b.read(&file, 0, 100).unwrap(), b"of a");
    assert_eq!(on_a.rename(name(&ra, "x"), name(&rb, "x")), Err(Some(nfsstat3::NFS3ERR_XDEV)));
    // With several, "/" is nobody's name.
    assert!(Client::mount(server.at, "/", me()).is_err());
    // Folders can be mounted; files and what is not there cannot.
    let sub = on_a.mkdir(&ra, "sub").unwrap();
    let deep = on_a.mkdir(&sub, "deep").unwrap();
    assert_eq!(server.client("/a/sub/deep/").root.data, deep.data);
    for (path, why) in [("/a/x", "NOTDIR"), ("/a/nix/da", "NOENT"), ("/a/sub/../../x", "NOTDIR")] {
        let said = Client::mount(server.at, path, me()).err().unwrap();
        assert!(said.contains(why), "{path}: {said}");
    }
    server.stop();
}

#[test]
fn copies_of_one_volume_are_refused() {
    let folder = Folder::new();
    let a = folder.volume("a.img", "16M");
    let b = folder.0.join("b.img");
    std::fs::copy(&a, &b).unwrap();
    let out = std::process::Command::new(served::CAIRN)
        .arg("serve")
        .args([&a, &b])
        .args(["--nfs", ANY])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.code() == Some(1) && said.contains("copies of one volume"), "{said}");
}

#[test]
fn exports_say_who_and_how() {
    let folder = Folder::new();
    let images = ["open", "ro", "away", "squash", "port"].map(|n| folder.volume(n, "16M"));
    let images: Vec<&std::path::Path> = images.iter().map(|i| i.as_path()).collect();
    let away = {
        // While everybody may, somebody gets a handle.
        let server = Server::trusting(&images, ANY, &[]);
        let mut root = server.client("/open");
        for n in ["/squash", "/port"] {
            let at = server.client(n).root;
            root.set(&at, with_mode(0o777)).unwrap();
        }
        let away = server.client("/away").root;
        server.stop();
        away
    };
    let rules =
        ["/open=127.0.0.1,insecure,no_root_squash", "/ro=127.0.0.0/8,ro", "/away=10.0.0.0/8"];
    let more = ["/squash=127.0.0.1,root_squash,insecure", "/port=127.0.0.1,no_root_squash"];
    let all: Vec<&str> = rules.iter().chain(&more).flat_map(|r| ["--export", r]).collect();
    let server = Server::start(&images, ANY, &all);
    let mut client = server.client("/open");
    client.create_new(&client.root.clone(), "x").unwrap();
    // Read-only.
    let mut ro = server.client("/ro");
    let root = ro.root.clone();
    assert_eq!(ro.create_new(&root, "x").err(), Some(Some(nfsstat3::NFS3ERR_ROFS)));
    assert!(ro.names(&root).is_ok());
    // Refused: the mount, and a handle from before; both are told in the log.
    let said = Client::mount(server.at, "/away", me()).err().unwrap();
    assert!(said.contains("ACCES"), "{said}");
    assert_eq!(client.attr(&away).err(), Some(Some(nfsstat3::NFS3ERR_ACCES)));
    assert!(server.errors().matches("was refused /away").count() >= 2, "{}", server.errors());
    // Root is nobody where he is squashed, and from ports that anybody may use.
    for n in ["/squash", "/port"] {
        let mut c = Client::mount(server.at, n, user(0, &[])).unwrap();
        let file = c.create_new(&c.root.clone(), "mine").unwrap();
        assert_eq!(c.attr(&file).unwrap().uid, 65_534, "{n}");
        let mut c = Client::mount(server.at, n, user(1234, &[])).unwrap();
        let file = c.create_new(&c.root.clone(), "his").unwrap();
        assert_eq!(c.attr(&file).unwrap().uid, 1234, "{n}");
    }
    server.stop();
}

#[test]
fn permissions_are_those_of_the_caller_and_all_his_groups() {
    let folder = Folder::new();
    let image = folder.volume("v", "16M");
    let server = Server::trusting(&[&image], ANY, &[]);
    let mut owner = server.client("/v");
    let root = owner.root.clone();
    owner.set(&root, with_mode(0o755)).unwrap();
    let file = owner.create_new(&root, "f").unwrap();
    let gid = Nfs3Option::Some(77);
    if me().uid != 0 {
        return; // only root gives files to groups he is not in
    }
    owner.set(&file, sattr3 { gid, ..with_mode(0o640) }).unwrap();
    owner.write(&file, 0, b"secret", stable_how::FILE_SYNC).unwrap();
    let mut stranger = Client::mount(server.at, "/v", user(1000, &[1, 2, 3])).unwrap();
    let mut member = Client::mount(server.at, "/v", user(1000, &[1, 2, 77])).unwrap();
    assert_eq!(stranger.read(&file, 0, 10).err(), Some(Some(nfsstat3::NFS3ERR_ACCES)));
    assert_eq!(member.read(&file, 0, 10).unwrap(), b"secret");
    let denied = member.write(&file, 0, b"x", stable_how::UNSTABLE);
    assert_eq!(denied.err(), Some(Some(nfsstat3::NFS3ERR_ACCES)));
    let denied = member.create_new(&root, "g");
    assert_eq!(denied.err(), Some(Some(nfsstat3::NFS3ERR_ACCES)));
    assert_eq!(member.set(&file, with_mode(0o666)).err(), Some(Some(nfsstat3::NFS3ERR_PERM)));
    // A folder that nobody else may search is not mounted for him, either.
    let closed = owner.mkdir(&root, "closed").unwrap();
    owner.mkdir(&closed, "inner").unwrap();
    owner.set(&closed, with_mode(0o700)).unwrap();
    let said = Client::mount(server.at, "/v/closed/inner", user(1000, &[])).err().unwrap();
    assert!(said.contains("ACCES"), "{said}");
    server.stop();
}

#[test]
fn ipv6_is_served() {
    if TcpListener::bind("[::1]:0").is_err() {
        eprintln!("skipped: this machine has no IPv6");
        return;
    }
    let folder = Folder::new();
    let image = folder.volume("v", "16M");
    let server = Server::trusting(&[&image], "[::1]:0", &[]);
    let mut client = server.client("/v");
    client.create_new(&client.root.clone(), "x").unwrap();
    server.stop();
    // Every address of IPv6, and IPv4's callers by their own.
    let server = Server::trusting(&[&image], "[::]:0", &[]);
    let v4 = SocketAddr::new("127.0.0.1".parse().unwrap(), server.at.port());
    let mut client = Client::mount(v4, "/v", me()).unwrap();
    assert_eq!(client.names(&client.root.clone()).unwrap().len(), 2);
    server.stop();
}

#[test]
fn handles_verifiers_and_exclusive_creates_survive_restarts() {
    let folder = Folder::new();
    let image = folder.volume("v", "16M");
    let server = Server::trusting(&[&image], ANY, &[]);
    let at = server.at.to_string();
    let mut client = server.client("/v");
    let root = client.root.clone();
    let how = |v: u8| createhow3::EXCLUSIVE(createverf3([v; 8]));
    let file = client.create(&root, "x", how(1)).unwrap();
    assert_eq!(client.create(&root, "x", how(2)).err(), Some(Some(nfsstat3::NFS3ERR_EXIST)));
    let gone = client.create_new(&root, "gone").unwrap();
    client.remove(&root, "gone").unwrap();
    // (Into another file: a write changes the times, which hold the verifier.)
    let other = client.create_new(&root, "other").unwrap();
    let before = client.write(&other, 0, b"lost?", stable_how::UNSTABLE).unwrap();
    server.kill();

    let server = Server::trusting(&[&image], &at, &[]);
    let mut client = server.client("/v");
    assert_eq!(client.root.data, root.data);
    // The client saw no reply, perhaps, and asks again: it is his file. Somebody else's it is not.
    assert_eq!(client.create(&root, "x", how(1)).unwrap().data, file.data);
    assert_eq!(client.create(&root, "x", how(2)).err(), Some(Some(nfsstat3::NFS3ERR_EXIST)));
    let after = client.commit(&other).unwrap();
    assert_ne!(before, after, "unstable data may have been lost");
    // What was removed stays so, whoever has its inode now.
    (0..20).for_each(|i| drop(client.create_new(&root, &format!("new{i}")).unwrap()));
    assert_eq!(client.attr(&gone).err(), Some(Some(nfsstat3::NFS3ERR_STALE)));
    assert_eq!(client.read(&gone, 0, 1).err(), Some(Some(nfsstat3::NFS3ERR_STALE)));
    client.write(&file, 0, b"kept", stable_how::UNSTABLE).unwrap();
    server.stop();

    let server = Server::trusting(&[&image], &at, &[]);
    let mut client = server.client("/v");
    assert_eq!(client.read(&file, 0, 4).unwrap(), b"kept");
    assert_eq!(client.commit(&file).unwrap(), after, "a clean close loses nothing");
    server.stop();
}

#[test]
fn cookies_hold_while_the_directory_changes() {
    let folder = Folder::new();
    // A cookie beyond all is none of ours; in an indexed directory it is a hash behind the last.
    let bad = Err(Some(nfsstat3::NFS3ERR_BAD_COOKIE));
    cookies_hold(&folder.plain_volume("plain", "32M"), bad);
    cookies_hold(&folder.volume("indexed", "32M"), Ok((Vec::new(), true)));
}

fn cookies_hold(image: &Path, beyond: Result3<(Vec<(String, u64)>, bool)>) {
    let server = Server::trusting(&[image], ANY, &["--mode", "redo"]);
    let mut client = server.client("/");
    let dir = client.mkdir(&client.root.clone(), "d").unwrap();
    let named = |i: u32| format!("file-{i:04}-{}", "x".repeat((i % 40) as usize));
    (0..600).for_each(|i| drop(client.create_new(&dir, &named(i)).unwrap()));
    let (mut seen, mut cookie, mut pages) = (Vec::new(), 0, 0);
    loop {
        let (page, last) = client.page(&dir, cookie, 1024).unwrap();
        cookie = page.last().map_or(cookie, |e| e.1);
        seen.extend(page.into_iter().map(|e| e.0));
        if last {
            break;
        }
        // Of every third file: one that was listed, perhaps the last one, or one that was not.
        for i in (pages * 30..(pages + 1) * 30).filter(|i| i % 3 == 0 && *i < 600) {
            client.remove(&dir, &named(i)).unwrap();
        }
        client.create_new(&dir, &format!("new-{pages}")).unwrap();
        pages += 1;
    }
    assert!(pages > 20, "{pages}");
    let once: BTreeSet<&String> = seen.iter().collect();
    assert_eq!(once.len(), seen.len(), "a name came twice");
    for i in (0..600).filter(|i| i % 3 != 0) {
        assert!(once.contains(&named(i)), "{} was there all the time", named(i));
    }
    // A page that holds no entry is too small.
    assert_eq!(client.page(&dir, 0, 128).err(), Some(Some(nfsstat3::NFS3ERR_TOOSMALL)));
    assert_eq!(client.page(&dir, i64::MAX as u64, 4096), beyond);
    server.stop();
}

/// A call of NFS, as it goes over the wire.
fn call(xid: u32, procedure: u32, arguments: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    let who = me();
    // A call of RPC 2; then AUTH_SYS with an empty name and no further groups, and no verifier.
    let head = [xid, 0, 2, 100_003, 3, procedure, 1, 20, 0, 0, who.uid, who.gid, 0, 0, 0];
    head.iter().for_each(|w| body.extend(w.to_be_bytes()));
    body.extend(arguments);
    let mut record = (body.len() as u32 | 0x8000_0000).to_be_bytes().to_vec();
    record.extend(body);
    record
}

fn opaque(bytes: &[u8]) -> Vec<u8> {
    let mut all = (bytes.len() as u32).to_be_bytes().to_vec();
    all.extend(bytes);
    all.resize(all.len().next_multiple_of(4), 0);
    all
}

fn reply(s: &mut impl Read) -> Vec<u8> {
    let mut mark = [0; 4];
    s.read_exact(&mut mark).unwrap();
    let mut all = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
    s.read_exact(&mut all).unwrap();
    all
}

/// A megabyte of a file that is read.
fn read_megabyte(xid: u32, file: &nfs_fh3) -> Vec<u8> {
    let mut args = opaque(file.data.as_ref());
    args.extend((u64::from(xid) << 20).to_be_bytes());
    args.extend((1u32 << 20).to_be_bytes());
    call(xid, 6, &args)
}

#[test]
fn clients_that_do_not_read_stall_nobody_and_take_bounded_memory() {
    // What the limits of crates/nfs/src/quota.rs come to, for replies of a megabyte:
    const ALL_MIB: u64 = 64; // then memory is scarce, and
    const SCARCE_KIB: u64 = 128; // replies are of 64 KiB, one beyond the limit of as much.
    // And what a connection takes by itself: its buffer for what it reads, requests, a thread.
    const OWN_KIB: u64 = 256 + 128 + 256;
    const CLIENTS: u64 = 60;
    let folder = Folder::new();
    let image = folder.volume("v", "512M");
    let server = Server::trusting(&[&image], ANY, &["--cache", "4M"]);
    let mut client = server.client("/v");
    let file = client.create_new(&client.root.clone(), "big").unwrap();
    let block = vec![7; 1 << 20];
    for i in 0..300 {
        client.write(&file, i << 20, &block, stable_how::UNSTABLE).unwrap();
    }
    client.commit(&file).unwrap();
    let before = server.memory_kib("VmRSS");
    // Each asks for a whole file of 300 MiB, no two at the same place, and reads none of it.
    let mut lazy: Vec<_> = (0..CLIENTS).map(|_| server.socket()).collect();
    for (i, s) in lazy.iter_mut().enumerate() {
        s.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        for n in 0..300u32 {
            if s.write_all(&read_megabyte((n + 5 * i as u32) % 300, &file)).is_err() {
                break; // its window is full: the server has stopped reading, as it should
            }
        }
    }
    std::thread::sleep(Duration::from_millis(500));
    // Others are served meanwhile as if nothing were.
    let mut one = || assert!(client.attr(&file).is_ok());
    let slowest = (0..200).map(|_| took(&mut one)).max().unwrap();
    // Whoever waited for a client that does not read would wait for half a minute.
    assert!(slowest < Duration::from_secs(10), "{slowest:?}");
    let more = server.memory_kib("VmRSS").saturating_sub(before);
    let bound = (ALL_MIB << 10) + CLIENTS * (SCARCE_KIB + OWN_KIB);
    // Half as much again for what the allocator loses between pieces of different ages.
    assert!(more < bound * 3 / 2, "{more} KiB, and the limits are {bound}");
    // With the limit of each alone, 8 MiB, it would be very much more.
    assert!(bound * 3 / 2 < CLIENTS * (4 << 10), "{bound}");
    // Whoever reads at last gets everything he asked for, or its beginning.
    let last = lazy.last_mut().unwrap();
    for _ in 0..20 {
        let r = reply(last);
        assert_eq!(r[20..28], [0; 8], "success, and NFS3_OK");
        assert!(r.len() > 64 << 10 && r[r.len() - 1] == 7);
    }
    drop(lazy);
    server.stop();
}

#[test]
fn one_client_has_no_more_connections_than_it_may() {
    let folder = Folder::new();
    let image = folder.volume("v", "16M");
    let server = Server::trusting(&[&image], ANY, &[]);
    let mut all: Vec<_> = (0..256).map(|_| server.socket()).collect();
    all.iter_mut().for_each(|s| s.write_all(&call(1, 0, &[])).unwrap());
    all.iter_mut().for_each(|s| assert_eq!(reply(s).len(), 24));
    // The next is closed without an answer, and when another has ended there is room again.
    let mut one_more = server.socket();
    assert!(matches!(one_more.read(&mut [0; 4]), Ok(0) | Err(_)));
    drop(all.pop());
    let answered = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        let mut s = server.socket();
        let _ = s.write_all(&call(1, 0, &[]));
        matches!(s.read(&mut [0; 4]), Ok(4))
    });
    assert!(answered, "{}", server.errors());
    server.stop();
}

#[test]
fn a_repeated_request_is_answered_and_not_done_again() {
    let folder = Folder::new();
    let image = folder.volume("v", "16M");
    let server = Server::trusting(&[&image], ANY, &[]);
    let mut client = server.client("/v");
    let root = client.root.clone();
    client.create_new(&root, "x").unwrap();
    let args = [opaque(root.data.as_ref()), opaque(b"x")].concat();
    let status = |r: &[u8]| u32::from_be_bytes(r[24..28].try_into().unwrap());
    // REMOVE twice on one connection without waiting, and again on another.
    let (mut first, mut second) = (server.socket(), server.socket());
    first.write_all(&call(7, 12, &args)).unwrap();
    second.write_all(&call(7, 12, &args)).unwrap();
    let (a, b) = (reply(&mut first), reply(&mut second));
    assert!(status(&a) == 0 && a == b, "{a:?} {b:?}");
    second.write_all(&call(7, 12, &args)).unwrap();
    assert_eq!(reply(&mut second), a);
    // With another number it is another request.
    second.write_all(&call(8, 12, &args)).unwrap();
    assert_eq!(status(&reply(&mut second)), 2, "NFS3ERR_NOENT");
    server.stop();
}
