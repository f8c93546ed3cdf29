//! What the server offers over real sockets: each of NFSv3's 22 procedures and MOUNT's six, the
//! metrics and the health of several volumes, and rpcbind told of them. What a crash leaves of it
//! is asked elsewhere.

mod served;

use nfs3_client::MountClient;
use nfs3_client::nfs3_types::mount::dirpath;
use nfs3_client::nfs3_types::nfs3::*;
use nfs3_client::nfs3_types::rpc::opaque_auth;
use nfs3_client::nfs3_types::xdr_codec::Opaque;
use rustix::process::Signal;
use served::{ANY, Folder, Server, Wire, done, me, name, plain};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;

fn fh(of: post_op_fh3) -> nfs_fh3 {
    match of {
        Nfs3Option::Some(fh) => fh,
        Nfs3Option::None => panic!("a reply without a handle"),
    }
}

fn known(of: &post_op_attr) -> &fattr3 {
    match of {
        Nfs3Option::Some(a) => a,
        Nfs3Option::None => panic!("a reply without attributes"),
    }
}

/// The attributes before and after a change, both given.
fn around(wcc: &wcc_data) -> (u64, &fattr3) {
    match &wcc.before {
        Nfs3Option::Some(before) => (before.size, known(&wcc.after)),
        Nfs3Option::None => panic!("a change without the attributes before it"),
    }
}

#[test]
fn every_procedure_that_makes_or_finds_something() {
    let folder = Folder::new();
    let image = folder.volume("v", "16M");
    let server = Server::trusting(&[&image], ANY, &[]);
    let mut c = server.client("/v");
    let root = c.root.clone();
    done(c.rpc.null()).unwrap();
    let dir = c.mkdir(&root, "dir").unwrap();
    let file = c.create_new(&dir, "file").unwrap();
    // WRITE and SETATTR tell of before and after; READ of the end.
    let data = Opaque::borrowed(b"twelve bytes");
    let stable = stable_how::DATA_SYNC;
    let args = WRITE3args { file: file.clone(), offset: 0, count: 12, stable, data };
    let wrote = plain(done(c.rpc.write(&args))).unwrap();
    let (before, after) = around(&wrote.file_wcc);
    assert_eq!((before, after.size, wrote.count), (0, 12, 12));
    assert!(wrote.committed as u32 >= stable as u32);
    let size = Nfs3Option::Some(6);
    let new_attributes = sattr3 { size, ..sattr3::default() };
    let guard = sattrguard3::None;
    let args = SETATTR3args { object: file.clone(), new_attributes, guard };
    let set = plain(done(c.rpc.setattr(&args))).unwrap();
    let (before, after) = around(&set.obj_wcc);
    assert_eq!((before, after.size), (12, 6));
    let args = READ3args { file: file.clone(), offset: 2, count: 100 };
    let read = plain(done(c.rpc.read(&args))).unwrap();
    assert!(read.eof && read.count == 4 && read.data.as_ref() == b"elve");
    assert_eq!(known(&read.file_attributes).size, 6);
    let args = COMMIT3args { file: file.clone(), offset: 0, count: 0 };
    let committed = plain(done(c.rpc.commit(&args))).unwrap();
    assert_eq!(committed.verf.0, wrote.verf.0);
    assert_eq!(known(&committed.file_wcc.after).size, 6);
    // LINK, SYMLINK, READLINK, MKNOD, LOOKUP, GETATTR.
    let args = LINK3args { file: file.clone(), link: name(&root, "second") };
    let linked = plain(done(c.rpc.link(&args))).unwrap();
    assert_eq!(known(&linked.file_attributes).nlink, 2);
    assert_eq!(c.lookup(&root, "second").unwrap(), file);
    let symlink_data = nfspath3(Opaque::borrowed(b"dir/file"));
    let symlink = symlinkdata3 { symlink_attributes: sattr3::default(), symlink_data };
    let args = SYMLINK3args { where_: name(&root, "sym"), symlink };
    let sym = fh(plain(done(c.rpc.symlink(&args))).unwrap().obj);
    let text = plain(done(c.rpc.readlink(&READLINK3args { symlink: sym }))).unwrap();
    assert_eq!(text.data.0.as_ref(), b"dir/file");
    let what = mknoddata3::NF3FIFO(sattr3::default());
    let args = MKNOD3args { where_: name(&root, "fifo"), what };
    let made = plain(done(c.rpc.mknod(&args))).unwrap();
    assert_eq!(known(&made.obj_attributes).type_, ftype3::NF3FIFO);
    assert_eq!(c.attr(&fh(made.obj)).unwrap().nlink, 1);
    // RENAME over something, REMOVE, RMDIR.
    c.rename(name(&root, "second"), name(&root, "fifo")).unwrap();
    assert_eq!(c.lookup(&root, "fifo").unwrap(), file);
    c.remove(&root, "fifo").unwrap();
    assert_eq!(c.attr(&file).unwrap().nlink, 1);
    let full = plain(done(c.rpc.rmdir(&RMDIR3args { object: name(&root, "dir") })));
    assert_eq!(full.err(), Some(Some(nfsstat3::NFS3ERR_NOTEMPTY)));
    c.remove(&dir, "file").unwrap();
    plain(done(c.rpc.rmdir(&RMDIR3args { object: name(&root, "dir") }))).unwrap();
    assert_eq!(c.attr(&file).err(), Some(Some(nfsstat3::NFS3ERR_STALE)));
    assert_eq!(c.attr(&dir).err(), Some(Some(nfsstat3::NFS3ERR_STALE)));
    server.stop();
}

#[test]
fn every_procedure_that_tells_something() {
    let folder = Folder::new();
    let image = folder.volume("v", "16M");
    let server = Server::trusting(&[&image], ANY, &[]);
    let mut c = server.client("/v");
    let root = c.root.clone();
    (0..20).for_each(|i| drop(c.create_new(&root, &format!("f{i}")).unwrap()));
    // ACCESS: as owner everything that a directory has, and never to execute it.
    let args = ACCESS3args { object: root.clone(), access: 0x3f };
    let may = plain(done(c.rpc.access(&args))).unwrap().access;
    assert_eq!(may & (ACCESS3_READ | ACCESS3_LOOKUP | ACCESS3_MODIFY), 7, "{may:#x}");
    // READDIR and READDIRPLUS name the same, and the latter's handles are LOOKUP's.
    let cookieverf = cookieverf3([0; 8]);
    let (dircount, maxcount) = (4096, 32 << 10);
    let args = READDIRPLUS3args { dir: root.clone(), cookie: 0, cookieverf, dircount, maxcount };
    let list = plain(done(c.rpc.readdirplus(&args))).unwrap().reply;
    assert!(list.eof);
    let mut plus = Vec::new();
    for e in list.entries.into_inner() {
        let n = String::from_utf8(e.name.0.as_ref().to_vec()).unwrap();
        assert_eq!(known(&e.name_attributes).fileid, e.fileid, "{n}");
        if n != "." && n != ".." {
            assert_eq!(c.lookup(&root, &n).unwrap(), fh(e.name_handle));
            plus.push(n);
        }
    }
    assert_eq!(plus, c.names(&root).unwrap());
    // FSSTAT before and after some data; FSINFO; PATHCONF.
    let mut room = || plain(done(c.rpc.fsstat(&FSSTAT3args { fsroot: root.clone() }))).unwrap();
    let before = room();
    assert!(before.tbytes > 12 << 20 && before.tbytes <= 16 << 20);
    assert!(before.abytes <= before.fbytes && before.ffiles < before.tfiles);
    let file = c.create_new(&root, "data").unwrap();
    c.write(&file, 0, &vec![1; 1 << 20], stable_how::FILE_SYNC).unwrap();
    let after = plain(done(c.rpc.fsstat(&FSSTAT3args { fsroot: root.clone() }))).unwrap();
    assert!(after.fbytes <= before.fbytes - (1 << 20) && after.ffiles == before.ffiles - 1);
    let info = plain(done(c.rpc.fsinfo(&FSINFO3args { fsroot: root.clone() }))).unwrap();
    assert_eq!((info.rtmax, info.wtmax), (1 << 20, 1 << 20));
    assert!(info.maxfilesize > 1 << 32);
    let can = FSF3_LINK | FSF3_SYMLINK | FSF3_HOMOGENEOUS | FSF3_CANSETTIME;
    assert_eq!(info.properties & can, can);
    let conf = plain(done(c.rpc.pathconf(&PATHCONF3args { object: root.clone() }))).unwrap();
    assert!(conf.name_max == 255 && conf.linkmax >= 32_000 && conf.no_trunc);
    assert!(conf.case_preserving && !conf.case_insensitive && conf.chown_restricted);
    // A name of 255 bytes is taken, and one of 256 is not.
    c.create_new(&root, &"n".repeat(255)).unwrap();
    let long = c.create_new(&root, &"n".repeat(256)).err();
    assert_eq!(long, Some(Some(nfsstat3::NFS3ERR_NAMETOOLONG)));
    server.stop();
}

#[test]
fn mount_has_its_six_procedures() {
    let folder = Folder::new();
    let (a, b) = (folder.volume("a", "16M"), folder.volume("b", "16M"));
    let server = Server::trusting(&[&a, &b], ANY, &[]);
    let (auth, none) = (opaque_auth::auth_unix(&me()), opaque_auth::default());
    let mut mount = MountClient::new_with_auth(Wire::to(server.at).unwrap(), auth, none);
    let path = || dirpath(Opaque::borrowed(b"/a"));
    done(mount.null()).unwrap();
    done(mount.mnt(path())).unwrap();
    done(mount.dump()).unwrap();
    let exports = done(mount.export()).unwrap().into_inner();
    let names: Vec<_> = exports.iter().map(|e| e.ex_dir.0.as_ref().to_vec()).collect();
    assert_eq!(names, [b"/a".to_vec(), b"/b".to_vec()]);
    done(mount.umnt(path())).unwrap();
    done(mount.umntall()).unwrap();
    server.stop();
}

/// Asks by HTTP: the status, and the text.
fn get(at: &str, path: &str) -> (u32, String) {
    let mut s = TcpStream::connect(at).unwrap();
    s.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).unwrap();
    let mut all = String::new();
    s.read_to_string(&mut all).unwrap();
    let status = all.split(' ').nth(1).unwrap().parse().unwrap();
    let text = all.split_once("\r\n\r\n").map_or("", |(_, text)| text);
    (status, text.to_owned())
}

/// A port that was free a moment ago.
fn free_address() -> String {
    std::net::TcpListener::bind(ANY).unwrap().local_addr().unwrap().to_string()
}

#[test]
fn metrics_count_what_was_done_and_health_says_so() {
    let folder = Folder::new();
    let (a, b) = (folder.volume("a", "16M"), folder.volume("b", "16M"));
    let http = free_address();
    let server = Server::trusting(&[&a, &b], ANY, &["--http", &http]);
    let mut c = server.client("/a");
    let root = c.root.clone();
    let file = c.create_new(&root, "f").unwrap();
    for i in 0..10 {
        c.write(&file, i * 1000, &[3; 1000], stable_how::FILE_SYNC).unwrap();
    }
    c.read(&file, 0, 10_000).unwrap();
    assert!(c.create_new(&root, "f").is_err());
    assert_eq!(get(&http, "/health"), (200, "/a: ok\n/b: ok\n".to_owned()));
    let (status, text) = get(&http, "/metrics");
    assert_eq!(status, 200);
    assert!(text.ends_with("# EOF\n"), "{text}");
    let values: BTreeMap<&str, f64> = text
        .lines()
        .filter(|l| !l.starts_with('#'))
        .map(|l| l.rsplit_once(' ').unwrap())
        .map(|(series, value)| (series, value.parse().unwrap()))
        .collect();
    let of = |series: &str| *values.get(series).unwrap_or_else(|| panic!("{series}: {text}"));
    let labels = |p: &str| format!("{{procedure=\"{p}\",client=\"127.0.0.1\",export=\"a\"}}");
    let count = |p: &str| of(&format!("cairn_nfs_request_duration_seconds_count{}", labels(p)));
    assert_eq!((count("write"), count("read"), count("create")), (10.0, 1.0, 2.0));
    let seconds = of(&format!("cairn_nfs_request_duration_seconds_sum{}", labels("write")));
    assert!(seconds > 0.0 && seconds < 60.0);
    assert!(text.contains("cairn_nfs_request_duration_seconds_bucket{le=\""));
    let exists = "{procedure=\"create\",export=\"a\",status=\"17\"}";
    assert_eq!(of(&format!("cairn_nfs_errors_total{exists}")), 1.0);
    let client = "{client=\"127.0.0.1\"}";
    assert!(of(&format!("cairn_nfs_received_bytes_total{client}")) > 10_000.0);
    assert!(of(&format!("cairn_nfs_sent_bytes_total{client}")) > 10_000.0);
    // Eleven requests waited for durability, and the volume's commits are counted, too.
    assert!(of("cairn_nfs_durable_requests_total{export=\"a\"}") >= 1.0);
    for gauge in ["cairn_dirty_bytes", "cairn_cache_blocks", "cairn_free_inodes"] {
        assert!(
            values.contains_key(format!("{gauge}{{export=\"b\"}}").as_str()),
            "{gauge}: {text}"
        );
    }
    for counter in ["cairn_cache_hits_total", "cairn_cache_misses_total"] {
        assert!(of(&format!("{counter}{{export=\"a\"}}")) >= 0.0);
    }
    assert_eq!(get(&http, "/nothing").0, 404);
    server.stop();
}

#[test]
fn a_server_that_was_stopped_for_a_while_goes_on() {
    let folder = Folder::new();
    let image = folder.volume("v", "16M");
    let server = Server::trusting(&[&image], ANY, &[]);
    let mut clients: Vec<_> = (0..4).map(|_| server.client("/v")).collect();
    for signal in [Signal::STOP, Signal::CONT, Signal::STOP, Signal::CONT] {
        server.signal(signal);
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    for c in &mut clients {
        let root = c.root.clone();
        assert!(c.attr(&root).is_ok(), "the connection is there: {}", server.errors());
    }
    server.stop();
}

/// Keeps a client at work, and the server stopped in the middle of it, until `seen` is so.
fn stopped_at_work(server: &Server, mut seen: impl FnMut(&str) -> bool) -> bool {
    let mut client = server.client("/v");
    let root = client.root.clone();
    let file = client.create_new(&root, &format!("f{}", server.at.port())).unwrap();
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                client.write(&file, 0, &[7; 200_000], stable_how::FILE_SYNC).unwrap();
            }
        });
        let found = (0..20).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(30));
            server.signal(Signal::STOP);
            std::thread::sleep(std::time::Duration::from_millis(700));
            server.signal(Signal::CONT);
            std::thread::sleep(std::time::Duration::from_millis(100));
            seen(&server.errors())
        });
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        found
    })
}

#[test]
fn slow_requests_are_logged_where_that_was_asked_for() {
    let folder = Folder::new();
    let image = folder.volume("v", "16M");
    let server = Server::trusting(&[&image], ANY, &["-v"]);
    let mut c = server.client("/v");
    let root = c.root.clone();
    for _ in 0..100 {
        c.attr(&root).unwrap();
    }
    // One line for each, with what it was, whose, where, and how long it took.
    let is_told = |line: &str| {
        let Some((_, told)) = line.split_once("slow: ") else { return false };
        let (what, took) = told.split_once(" on /v took ").unwrap();
        let took: u32 = took.strip_suffix(" ms").unwrap().parse().unwrap();
        assert!(took >= 500, "{line}");
        what.starts_with("write of 127.0.0.1:")
    };
    assert!(stopped_at_work(&server, |log| log.lines().any(is_told)), "{}", server.errors());
    server.stop();
    // Who did not ask for it is told nothing.
    std::fs::remove_file(image.with_extension("log")).unwrap();
    let server = Server::trusting(&[&image], ANY, &[]);
    let mut rounds = 0;
    let told = stopped_at_work(&server, |log| {
        rounds += 1;
        log.contains("slow: ") || rounds == 5
    });
    assert!(told && rounds == 5, "{}", server.errors());
    server.stop();
}
