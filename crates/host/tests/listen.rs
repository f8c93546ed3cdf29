//! What strangers, and clients that mean no good, can make a listener spend: places, descriptors,
//! time. The protocol is one of the test's own: a request is a byte that says how many follow, and
//! is answered with that byte; one of [`LATE`] later, by another thread, one of [`NEVER`] not at
//! all, and one of [`NONSENSE`] ends the connection.

#![allow(clippy::unwrap_used, reason = "a test may")]

use host::{Limits, Outlet, Pool, Protocol, Service, Unfinished, listen};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use vfs::Work;

const PATIENCE: Duration = Duration::from_secs(20);

/// What is answered late, and how late.
const LATE: u8 = 3;
const LATER: Duration = Duration::from_millis(100);

const NEVER: u8 = 4;
const NONSENSE: u8 = 0;

struct Toy {
    outlet: Outlet,
    got: Mutex<(Vec<u8>, u64)>,
    owed: Arc<AtomicUsize>,
}

impl Toy {
    fn answer_late(&self) {
        let (outlet, owed) = (self.outlet.clone(), self.owed.clone());
        owed.fetch_add(1, Ordering::SeqCst);
        std::thread::spawn(move || {
            std::thread::sleep(LATER);
            outlet.send(vec![env::Piece::Own(vec![LATE])]);
            owed.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

impl Protocol for Toy {
    fn received(&self, bytes: &[u8]) -> Result<Vec<(usize, Work)>, String> {
        let (input, number) = &mut *self.got.lock().unwrap();
        input.extend(bytes);
        while input.first().is_some_and(|n| input.len() > usize::from(*n)) {
            let request: Vec<u8> = input.drain(..=usize::from(input[0])).collect();
            *number += 1;
            match request[0] {
                LATE => {
                    self.answer_late();
                    continue;
                }
                NEVER => {
                    // Whoever is to answer it holds on to the connection.
                    std::mem::forget(self.outlet.clone());
                    self.owed.fetch_add(1, Ordering::SeqCst);
                    continue;
                }
                NONSENSE => return Err("nonsense".into()),
                _ => (),
            }
            self.outlet.send(vec![env::Piece::Own(vec![request[0]])]);
        }
        Ok(Vec::new())
    }
    fn uncork(&self) {}
    fn wait_for_quota(&self) -> bool {
        false
    }
    fn is_waiting(&self) -> bool {
        self.owed.load(Ordering::SeqCst) > 0
    }
    fn unfinished(&self) -> Option<Unfinished> {
        let (input, number) = &*self.got.lock().unwrap();
        let missing_bytes = 1 + usize::from(*input.first()?) - input.len();
        Some(Unfinished { number: *number, missing_bytes, in_the_way: false })
    }
}

/// Admits only IPv4, and counts.
#[derive(Default)]
struct Counted {
    accepted: AtomicUsize,
    turned_away: AtomicUsize,
}

impl Service for Counted {
    fn admits(&self, peer: SocketAddr) -> bool {
        peer.is_ipv4()
    }
    fn turned_away(&self, _: SocketAddr, _: &str) {
        self.turned_away.fetch_add(1, Ordering::Relaxed);
    }
    fn accept(&self, _: SocketAddr, outlet: Outlet) -> Arc<dyn Protocol> {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        Arc::new(Toy { outlet, got: Mutex::default(), owed: Arc::default() })
    }
}

fn served(address: &str, limits: Limits) -> (SocketAddr, Arc<Counted>) {
    let service = Arc::new(Counted::default());
    let pool = Pool::start(Vec::new()).unwrap();
    (listen(&pool, address, service.clone(), limits).unwrap().at, service)
}

fn client(at: SocketAddr) -> TcpStream {
    let s = TcpStream::connect(at).unwrap();
    s.set_read_timeout(Some(PATIENCE)).unwrap();
    s
}

/// Asks something small, which is answered.
fn asks(s: &mut TcpStream) -> bool {
    s.write_all(&[2, 7, 7]).is_ok() && matches!(s.read(&mut [0; 1]), Ok(1))
}

/// Is it closed from the other side, soon?
fn ends(s: &mut TcpStream) -> bool {
    let timeout = |e: &std::io::Error| e.kind() == std::io::ErrorKind::WouldBlock;
    match s.read(&mut [0; 1]) {
        Ok(n) => n == 0,
        Err(e) => !timeout(&e),
    }
}

#[test]
fn strangers_are_refused_before_anything_is_kept_of_them() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        println!("skipped: there is no IPv6");
        return;
    }
    let (at, service) = served("[::]:0", Limits { connections: 8, ..Limits::default() });
    let from = |ip: &str| client(SocketAddr::new(ip.parse().unwrap(), at.port()));
    let mut strangers: Vec<TcpStream> = (0..100).map(|_| from("::1")).collect();
    assert!(strangers.iter_mut().all(ends));
    assert!(asks(&mut from("127.0.0.1")));
    assert_eq!(service.accepted.load(Ordering::Relaxed), 1);
    assert_eq!(service.turned_away.load(Ordering::Relaxed), 0);
}

#[test]
fn a_request_comes_to_its_end_in_time() {
    let limits = Limits {
        request: Duration::from_secs(1),
        in_the_way: Duration::from_millis(50),
        ..Limits::default()
    };
    let (at, _) = served("127.0.0.1:0", limits);
    let mut slow = client(at);
    assert!(asks(&mut slow));
    slow.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    // A byte now and then does not help.
    let begun = Instant::now();
    slow.write_all(&[200]).unwrap();
    while !ends(&mut slow) {
        assert!(begun.elapsed() < PATIENCE);
        let _ = slow.write_all(&[0]);
    }
    assert!(begun.elapsed() >= Duration::from_secs(1));
    // Whoever is idle between requests has all the time, and each request its own: all together
    // take longer than one may. (One that this machine has kept from its end is no witness.)
    let mut idle = client(at);
    for _ in 0..12 {
        let begun = Instant::now();
        idle.write_all(&[1]).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        let came = idle.write_all(&[7]).is_ok() && matches!(idle.read(&mut [0; 1]), Ok(1));
        assert!(came || begun.elapsed() > Duration::from_secs(1));
        if !came {
            break;
        }
    }
}

#[test]
fn who_asks_nothing_keeps_no_place() {
    let limits = Limits { first: Duration::from_secs(1), ..Limits::default() };
    let (at, _) = served("127.0.0.1:0", limits);
    let mut silent = client(at);
    // Who comes too late with its request, because the machine is busy, tries again.
    let begun = Instant::now();
    let mut known = loop {
        let mut known = client(at);
        if asks(&mut known) {
            break known;
        }
        assert!(begun.elapsed() < PATIENCE);
    };
    assert!(ends(&mut silent));
    assert!(asks(&mut known), "whoever has asked may be silent for longer");
}

/// The others in a full house, until one of them has made way for a new one, which is returned.
/// `first` is not idle meanwhile.
fn makes_way(at: SocketAddr, mut first: Option<&mut TcpStream>) -> TcpStream {
    let begun = Instant::now();
    loop {
        assert!(first.as_mut().is_none_or(|f| asks(f)), "it is not the one that is idle");
        let mut new = client(at);
        if asks(&mut new) {
            return new;
        }
        assert!(begun.elapsed() < PATIENCE, "nobody makes way");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Which of them that is, a test of the seats says.
#[test]
fn one_that_is_idle_makes_way() {
    let makes_way_after = Duration::from_millis(500);
    let limits =
        Limits { connections: 6, of_one: 4, makes_way: makes_way_after, ..Limits::default() };
    let (at, service) = served("127.0.0.1:0", limits);
    let begun = Instant::now();
    let mut all: Vec<TcpStream> = (0..4).map(|_| client(at)).collect();
    assert!(all.iter_mut().all(asks));
    let refused = !asks(&mut client(at));
    if begun.elapsed() < makes_way_after {
        assert!(refused);
        assert_eq!(service.turned_away.load(Ordering::Relaxed), 1);
    }
    let (first, others) = all.split_first_mut().unwrap();
    let _new = makes_way(at, Some(first));
    let gone = others.iter_mut().filter_map(|s| (!asks(s)).then_some(())).count();
    assert_eq!(gone, 1);
    assert!(asks(first));
}

/// No request of its own tells that it is idle: the answer to its last one has come late.
#[test]
fn one_whose_last_answer_was_late_makes_way() {
    let makes_way_after = Duration::from_millis(500);
    let limits =
        Limits { connections: 6, of_one: 1, makes_way: makes_way_after, ..Limits::default() };
    let (at, _) = served("127.0.0.1:0", limits);
    let mut only = client(at);
    only.write_all(&[LATE, 7, 7, 7]).unwrap();
    assert!(matches!(only.read(&mut [0; 1]), Ok(1)));
    let _new = makes_way(at, None);
    assert!(ends(&mut only));
}

#[test]
fn a_connection_that_is_closed_ends_though_something_is_under_way() {
    let (at, _) = served("127.0.0.1:0", Limits::default());
    let mut s = client(at);
    s.write_all(&[NEVER, 7, 7, 7, 7]).unwrap();
    assert!(asks(&mut s));
    s.write_all(&[NONSENSE]).unwrap();
    assert!(ends(&mut s));
}

/// The listener's socket for this client, by its number.
fn socket_of(s: &TcpStream) -> String {
    let port = |at: std::io::Result<SocketAddr>| format!(":{:04X}", at.unwrap().port());
    let (ours, theirs) = (port(s.peer_addr()), port(s.local_addr()));
    let all = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let mut rows = all.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let row = rows.find(|row| row[1].ends_with(&ours) && row[2].ends_with(&theirs)).unwrap();
    format!("socket:[{}]", row[9])
}

/// Does no descriptor of this process lead to it any more, soon?
fn is_closed(socket: &str) -> bool {
    let leads_to_it = || {
        let all = std::fs::read_dir("/proc/self/fd").unwrap();
        let mut links = all.filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok());
        links.any(|link| link.as_os_str() == socket)
    };
    let begun = Instant::now();
    while leads_to_it() {
        if begun.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

#[test]
fn one_that_is_closed_for_an_error_holds_no_descriptor() {
    let (at, _) = served("127.0.0.1:0", Limits::default());
    let mut s = client(at);
    s.write_all(&[NEVER, 7, 7, 7, 7]).unwrap();
    assert!(asks(&mut s));
    let socket = socket_of(&s);
    s.write_all(&[NONSENSE]).unwrap();
    assert!(ends(&mut s));
    assert!(is_closed(&socket), "who is to answer its call holds it open");
}

/// However many come, ask for what takes long, and are gone again: there are no more of them at a
/// time than there may be, and after a while they hold no descriptors.
#[test]
fn who_asks_and_goes_keeps_its_place_until_it_is_answered() {
    let gone = Duration::from_secs(2);
    let (at, service) = served("127.0.0.1:0", Limits { connections: 4, gone, ..Limits::default() });
    let mut sockets = Vec::new();
    for _ in 0..4 {
        let mut s = client(at);
        s.write_all(&[NEVER, 7, 7, 7, 7]).unwrap();
        assert!(asks(&mut s));
        sockets.push(socket_of(&s));
    }
    for _ in 0..8 {
        assert!(!asks(&mut client(at)), "those who are gone have places of their own");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(service.accepted.load(Ordering::Relaxed), 4);
    assert!(sockets.iter().all(|socket| is_closed(socket)));
}

/// Who has ended only its own side takes the answers that are still to come.
#[test]
fn who_asks_nothing_more_is_answered() {
    let limits = Limits { connections: 1, ..Limits::default() };
    let (at, _) = served("127.0.0.1:0", limits);
    let mut half = client(at);
    half.write_all(&[LATE, 7, 7, 7]).unwrap();
    half.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(matches!(half.read(&mut [0; 1]), Ok(1)));
    assert!(ends(&mut half));
    let begun = Instant::now();
    while !asks(&mut client(at)) {
        assert!(begun.elapsed() < PATIENCE, "it keeps its place");
        std::thread::sleep(Duration::from_millis(20));
    }
}
