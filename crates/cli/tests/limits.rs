//! A server among clients that mean no good: strangers, requests without an end, slow readers of
//! the status page, no more descriptors. Those who mean well are served meanwhile.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod served;

use nfs3_client::nfs3_types::nfs3::stable_how;
use served::{ANY, CAIRN, Folder, Server, took};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A port that was free a moment ago.
fn free_address() -> String {
    std::net::TcpListener::bind(ANY).unwrap().local_addr().unwrap().to_string()
}

/// A connection that is not waited for without an end.
fn bounded(at: &str) -> TcpStream {
    let s = TcpStream::connect(at).unwrap();
    s.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    s.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
    s
}

fn get(at: &str, path: &str) -> String {
    let mut s = bounded(at);
    s.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).unwrap();
    let mut all = String::new();
    s.read_to_string(&mut all).unwrap();
    all
}

/// A call of NFS's NULL, or its beginning.
fn null() -> Vec<u8> {
    let words = [40 | 0x8000_0000, 9, 0, 2, 100_003, 3, 0, 0, 0, 0, 0u32];
    words.iter().flat_map(|w| w.to_be_bytes()).collect()
}

fn is_answered(s: &mut TcpStream) -> bool {
    s.write_all(&null()).is_ok() && s.read_exact(&mut [0; 28]).is_ok()
}

fn ends(s: &mut TcpStream) -> bool {
    let timeout = |e: &std::io::Error| e.kind() == std::io::ErrorKind::WouldBlock;
    match s.read(&mut [0; 1]) {
        Ok(n) => n == 0,
        Err(e) => !timeout(&e),
    }
}

#[test]
fn strangers_get_no_line_each() {
    let folder = Folder::new();
    let image = folder.volume("v", "16M");
    let server = Server::start(&[&image], ANY, &["--export", "/v=10.0.0.0/8"]);
    let files = server.open_files();
    let mut all: Vec<TcpStream> = (0..300).map(|_| server.socket()).collect();
    all.iter_mut().for_each(|s| assert!(!is_answered(s)));
    assert!(server.open_files() <= files + 1);
    let log = server.errors();
    let lines = log.lines().filter(|l| l.contains("no --export covers it")).count();
    assert!((1..20).contains(&lines), "{log}");
    server.stop();
}

#[test]
fn requests_without_an_end_take_bounded_memory() {
    const CLIENTS: usize = 100;
    let folder = Folder::new();
    let image = folder.volume("v", "16M");
    let server = Server::trusting(&[&image], ANY, &["--cache", "4M"]);
    let mut client = server.client("/v");
    let root = client.root.clone();
    let file = client.create_new(&root, "f").unwrap();
    let before = server.memory_kib("VmRSS");
    let mut lazy: Vec<TcpStream> = (0..CLIENTS).map(|_| server.socket()).collect();
    let record = [&(0x8000_0000 | 1u32 << 20).to_be_bytes()[..], &vec![0; (1 << 20) - 1]].concat();
    for s in &mut lazy {
        s.set_write_timeout(Some(Duration::from_millis(5))).unwrap();
        let _ = s.write_all(&record); // it is no longer read when there is no memory
    }
    // Small requests need none of it, and so wait for none of those in the way to go.
    let begun = Instant::now();
    let mut one = || assert!(client.attr(&root).is_ok());
    let slowest = (0..100).map(|_| took(&mut one)).max().unwrap();
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    let more = server.memory_kib("VmRSS").saturating_sub(before);
    // What crates/nfs/src/intake.rs allows, a buffer each for what is read at once, and threads.
    let bound = (64 << 10) + 64 * 256 + CLIENTS as u64 * 200;
    assert!(more < bound, "{more} KiB for {CLIENTS} unfinished requests, not {bound}");
    // Whoever is in the way goes, and a large request is served.
    let wrote = client.write(&file, 0, &[7; 100_000], stable_how::FILE_SYNC);
    assert!(wrote.is_ok(), "{wrote:?} after {:?}: {}", begun.elapsed(), server.errors());
    assert!(begun.elapsed() < Duration::from_secs(50), "{:?}", begun.elapsed());
    server.stop();
}

#[test]
fn the_status_page_is_there_while_others_are_slow() {
    let folder = Folder::new();
    let image = folder.volume("v", "16M");
    let http = free_address();
    let server = Server::trusting(&[&image], ANY, &["--http", &http]);
    let mut slow: Vec<TcpStream> = (0..200)
        .map(|_| {
            let mut s = bounded(&http);
            s.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\nX-Slow: ").unwrap();
            s
        })
        .collect();
    let mut said = String::new();
    let waited = took(|| said = get(&http, "/health"));
    assert!(said.starts_with("HTTP/1.0 200") && said.ends_with("/v: ok\n"), "{said}");
    // Those that came last have five seconds: it has not waited for them.
    assert!(waited < Duration::from_secs(4), "{waited:?}");
    // Those in the way were closed at once, the others when their time was over.
    assert!(ends(&mut slow[0]) && ends(slow.last_mut().unwrap()));
    // No head is longer than it may be, and a body is not read.
    let mut long = bounded(&http);
    let head = format!("GET / HTTP/1.1\r\nHost: x\r\nX-Long: {}", "x".repeat(4 << 20));
    let _ = long.write_all(head.as_bytes());
    let mut told = Vec::new();
    let _ = long.read_to_end(&mut told);
    assert!(told.is_empty() || told.starts_with(b"HTTP/1.1 4"), "{}", told.len());
    let mut body = bounded(&http);
    let head = "POST /health HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000000\r\n\r\n";
    body.write_all(head.as_bytes()).unwrap();
    let mut told = Vec::new();
    let _ = body.read_to_end(&mut told);
    assert!(told.starts_with(b"HTTP/1.1 405"));
    server.stop();
}

#[test]
fn no_more_descriptors_end_nothing() {
    let folder = Folder::new();
    let image = folder.volume("v", "16M");
    let http = free_address();
    let server = Server::trusting(&[&image], ANY, &["--http", &http]);
    let mut client = server.client("/v");
    let root = client.root.clone();
    let normal = server.limit_files(server.open_files() + 4);
    let sockets =
        |at: &str| -> Vec<TcpStream> { (0..40).map(|_| TcpStream::connect(at).unwrap()).collect() };
    let all = [sockets(&server.at.to_string()), sockets(&http)];
    std::thread::sleep(Duration::from_millis(300));
    client.create_new(&root, "f").unwrap();
    drop(all);
    server.limit_files(normal);
    let begun = Instant::now();
    while !is_answered(&mut server.socket()) {
        assert!(begun.elapsed() < Duration::from_secs(20), "{}", server.errors());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(get(&http, "/health").starts_with("HTTP/1.0 200"));
    server.stop();
}

#[test]
fn with_few_descriptors_it_says_how_many_it_needs() {
    let folder = Folder::new();
    let image = folder.volume("v", "16M");
    let with = |files: u32| {
        let mut command = Command::new("sh");
        let script = format!("ulimit -n {files} && exec \"$0\" \"$@\"");
        command.args(["-c", &script, CAIRN, "serve"]).arg(&image).args(["--nfs", ANY]);
        command
    };
    let out = with(100).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.code() == Some(1) && said.contains("ulimit -n"), "{said}");
    // With enough for some there are fewer connections.
    let mut server = Server::launch(with(260), &image.with_extension("log"));
    server.at.set_ip([127, 0, 0, 1].into());
    assert!(server.errors().contains("ulimit -n"), "{}", server.errors());
    let mut all: Vec<TcpStream> = (0..120).map(|_| server.socket()).collect();
    let answered = all.iter_mut().filter_map(|s| is_answered(s).then_some(())).count();
    assert!((16..110).contains(&answered), "{answered}");
    server.stop();
}
