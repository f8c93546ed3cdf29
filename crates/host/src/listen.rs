//! Sockets for servers: a thread accepts, and a thread each reads a connection, enters volumes with
//! what came, and sends what was answered. Many requests read at once are run in one entry and
//! answered in one write.
//!
//! What strangers can make it spend is bounded: who may not connect is refused before anything is
//! kept of him; places are counted ([`crate::Limits`]); a request has to come to its end in time,
//! and is read no faster than its protocol has memory for it.
//!
//! Invariants:
//! * L1. A connection's requests have rising numbers: each has its own time.
//! * L2. A protocol brings work for volumes that there are.

use crate::listening::Listening;
use crate::open_files::{open_files, raise_open_files};
use crate::outlet::STALLED;
use crate::seats::{Limits, Seat, Seats};
use crate::{Outlet, Pool};
use std::fs::File;
use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::linux::net::TcpStreamExt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vfs::Work;

/// What is served to connections.
pub trait Service: Send + Sync {
    /// May this peer connect at all? If not, nothing is spent on him.
    fn admits(&self, peer: SocketAddr) -> bool;
    /// A peer who may connect was turned away, and why.
    fn turned_away(&self, peer: SocketAddr, why: &str);
    /// Makes the protocol for a connection.
    fn accept(&self, peer: SocketAddr, outlet: Outlet) -> Arc<dyn Protocol>;
}

/// One connection's protocol: bytes to work.
pub trait Protocol: Send + Sync {
    /// The work in these bytes; Err: close the connection, and why.
    fn received(&self, bytes: &[u8]) -> Result<Vec<(usize, Work)>, String>;
    /// The work was entered: send what was answered meanwhile.
    fn uncork(&self);
    /// Waits until more may be taken. Is there something left to be taken of what was received
    /// before (then `received` is called with nothing new)?
    fn wait_for_quota(&self) -> bool;
    /// Is there something that was asked and not answered yet?
    fn is_waiting(&self) -> bool;
    /// The request of which a part has come, and not its end.
    fn unfinished(&self) -> Option<Unfinished>;
}

/// A request of which a part has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unfinished {
    /// How many requests came before it.
    pub number: u64,
    /// How much of it is missing, as far as is known.
    pub missing_bytes: usize,
    /// Does somebody wait for the memory that it takes?
    pub in_the_way: bool,
}

/// What is read at once: little, and more of a request that is longer.
const READ_BYTES: usize = 16 << 10;
const READ_BYTES_MAX: usize = 256 << 10;
/// A request has a second more for each of these that it has brought; the second where others wait
/// for its memory.
const BYTES_PER_SECOND: u64 = 16 << 10;
const BYTES_PER_SECOND_IN_THE_WAY: u64 = 512 << 10;
/// Files that are opened for other things than connections.
const OTHER_FILES: u64 = 160;
/// With fewer connections than this nothing is served.
const CONNECTIONS_MIN: u64 = 16;

/// Listens at `address` and serves each connection by `service`, until that is stopped.
pub fn listen(
    pool: &Arc<Pool>,
    address: &str,
    service: Arc<dyn Service>,
    limits: Limits,
) -> Result<Listening, String> {
    let fail = |e: std::io::Error| format!("cannot listen on {address}: {e}");
    let listener = TcpListener::bind(address).map_err(fail)?;
    let at = listener.local_addr().map_err(fail)?;
    let seats = Seats::new(Limits { connections: possible(limits.connections)?, ..limits });
    let listening = Listening { at, seats: seats.clone() };
    let pool = pool.clone();
    let thread = std::thread::Builder::new().name("listen".into());
    let run = move || {
        let mut spare = spare();
        loop {
            let (stream, peer) = match accept(&listener, &mut spare) {
                Ok(Some(both)) => both,
                Ok(None) => continue,
                Err(e) => {
                    tracing::debug!("accept: {e}");
                    std::thread::sleep(Duration::from_millis(50));
                    continue;
                }
            };
            if seats.is_stopping() {
                return; // and nobody listens any more
            }
            // IPv4 over a socket of IPv6 is IPv4: the exports' rules say so.
            let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
            if !service.admits(peer) {
                continue;
            }
            let stream = Arc::new(stream);
            let seat = match seats.take(peer, &stream) {
                Ok(seat) => seat,
                Err(why) => {
                    service.turned_away(peer, &why);
                    continue;
                }
            };
            let (pool, for_it) = (pool.clone(), service.clone());
            let thread = std::thread::Builder::new().name("connection".into());
            let started = thread.spawn(move || serve(&pool, stream, &*for_it, &seat));
            if let Err(e) = started {
                service.turned_away(peer, &format!("no thread: {e}"));
            }
        }
    };
    thread.spawn(run).map_err(fail)?;
    Ok(listening)
}

/// As many connections as are wanted, or as there can be.
fn possible(wanted: usize) -> Result<usize, String> {
    let limit = raise_open_files();
    let left = limit.saturating_sub(open_files() + OTHER_FILES);
    if left < CONNECTIONS_MIN {
        let needed = limit - left + wanted as u64;
        return Err(format!(
            "only {limit} files may be open, which leaves too few connections: allow {needed} \
             (ulimit -n)"
        ));
    }
    if left < wanted as u64 {
        tracing::warn!("only {limit} files may be open (ulimit -n): there are {left} connections");
    }
    Ok(wanted.min(left as usize))
}

/// A file that is open only so that it can be closed when one more is needed.
fn spare() -> Option<File> {
    File::open("/dev/null").ok()
}

/// Accepts a connection. Where no more files may be open it is accepted in the spare one's place,
/// and closed: left in the queue, it and all behind it would wait for nothing. None: nobody is to
/// be served now.
fn accept(
    listener: &TcpListener,
    spare_file: &mut Option<File>,
) -> std::io::Result<Option<(TcpStream, SocketAddr)>> {
    match listener.accept() {
        Err(e) if matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
            if spare_file.take().is_none() {
                *spare_file = spare();
                return Err(e);
            }
            let accepted = listener.accept();
            *spare_file = spare();
            if spare_file.is_some() {
                return accepted.map(Some); // there is room again
            }
            drop(accepted);
            *spare_file = spare();
            Ok(None)
        }
        Err(e) if e.raw_os_error() == Some(libc::ECONNABORTED) => Ok(None),
        other => other.map(Some),
    }
}

/// Serves a connection to its end, in its thread.
fn serve(pool: &Pool, stream: Arc<TcpStream>, service: &dyn Service, seat: &Seat) {
    let outlet = Outlet::new(stream.clone(), seat.seats().unsent.clone());
    let protocol = service.accept(seat.peer, outlet.clone());
    if let Err(why) = take_in(pool, &stream, &*protocol, seat) {
        tracing::info!("connection closed: {}: {why}", seat.peer);
        outlet.end();
    }
    see_out(stream, &*protocol, &outlet, seat);
}

/// Nothing more comes. The socket stays open for the answers to what has come, for as long as
/// somebody may be there to take them. The place is kept until all is answered: else who asks and
/// goes, again and again, would have as much under way as he likes.
fn see_out(stream: Arc<TcpStream>, protocol: &dyn Protocol, outlet: &Outlet, seat: &Seat) {
    let ended = Instant::now();
    let mut socket = Some(stream);
    while !seat.seats().is_stopping() && (protocol.is_waiting() || outlet.unsent() > 0) {
        let is_dead = |s: &mut Arc<TcpStream>| !matches!(s.take_error(), Ok(None));
        let over = outlet.is_over() || ended.elapsed() > seat.limits().gone;
        if let Some(stream) = socket.take_if(|s| over || is_dead(s)) {
            outlet.end();
            seat.let_go();
            drop(stream);
        }
        std::thread::sleep(LOOK_AFTER);
    }
}

/// Reads what comes, and enters the volumes with it, until nothing more does.
fn take_in(
    pool: &Pool,
    stream: &Arc<TcpStream>,
    protocol: &dyn Protocol,
    seat: &Seat,
) -> Result<(), String> {
    let io = |e: std::io::Error| e.to_string();
    let peer = seat.peer;
    stream.set_nodelay(true).map_err(io)?;
    stream.set_write_timeout(Some(STALLED)).map_err(io)?;
    let mut reader = Reader::new(stream, seat);
    while !seat.seats().is_stopping() {
        let mut n = 0;
        // While there is no room nothing is read, and the client's window fills.
        if !protocol.wait_for_quota() {
            n = reader.read(protocol)?;
            if n == 0 {
                return Ok(());
            }
        }
        if seat.seats().is_stopping() {
            break; // what came meanwhile is asked of the next server
        }
        let work = protocol.received(&reader.room[..n])?;
        let mut by_volume: Vec<Vec<Work>> = Vec::new();
        for (v, w) in work {
            let all = pool.volumes().len();
            assert!(v < all, "L2: {peer} asks something of volume {v} of {all}");
            by_volume.resize_with(by_volume.len().max(v + 1), Vec::new);
            by_volume[v].push(w);
        }
        for (v, mut work) in by_volume.into_iter().enumerate().filter(|(_, w)| !w.is_empty()) {
            pool.enter(v, &mut work);
        }
        protocol.uncork();
        if protocol.is_waiting() {
            // No answer goes out now that would carry the acknowledgement, and a client with
            // Nagle's algorithm keeps its further requests back until that comes.
            let _ = stream.set_quickack(true);
        }
    }
    Ok(())
}

/// What reads a connection, and how long it has waited.
struct Reader<'a> {
    stream: &'a TcpStream,
    seat: &'a Seat,
    room: Vec<u8>,
    timeout: Duration,
    /// The request that is unfinished, how long it was waited for, and what came of it.
    request: Option<u64>,
    waited: Duration,
    came_bytes: u64,
    /// Has anything come, and has it ever asked for anything?
    is_heard: bool,
    has_asked: bool,
}

/// How often it is looked whether a request takes too long.
const LOOK: Duration = Duration::from_millis(500);
/// How often, behind the end of a connection, whether all is answered.
const LOOK_AFTER: Duration = Duration::from_millis(50);

impl<'a> Reader<'a> {
    fn new(stream: &'a TcpStream, seat: &'a Seat) -> Reader<'a> {
        Reader {
            stream,
            seat,
            room: vec![0; READ_BYTES],
            timeout: Duration::ZERO,
            request: None,
            waited: Duration::ZERO,
            came_bytes: 0,
            is_heard: false,
            has_asked: false,
        }
    }

    /// Reads what there is, waiting for it; 0: the end. Err: it took too long, or failed.
    fn read(&mut self, protocol: &dyn Protocol) -> Result<usize, String> {
        let mut unfinished = protocol.unfinished();
        let number = unfinished.map(|u| u.number);
        let falls = number.is_some_and(|n| self.request.is_some_and(|before| n < before));
        assert!(!falls, "L1: request {number:?} begins after {:?}", self.request);
        self.has_asked |= self.is_heard && number != Some(0);
        if number != self.request || number.is_none() {
            (self.request, self.waited, self.came_bytes) = (number, Duration::ZERO, 0);
        }
        let missing = unfinished.map_or(0, |u| u.missing_bytes);
        self.room.resize(missing.clamp(READ_BYTES, READ_BYTES_MAX), 0);
        if missing <= READ_BYTES {
            self.room.shrink_to_fit();
        }
        let limits = self.seat.limits();
        let silence = if self.has_asked { limits.idle } else { limits.first };
        loop {
            // That the last answer has gone nobody tells: it is looked for.
            let is_owed = unfinished.is_none() && protocol.is_waiting();
            if unfinished.is_none() && !is_owed {
                self.seat.is_idle();
            }
            self.wait_at_most(self.patience(unfinished.is_some() || is_owed, silence))?;
            let begun = Instant::now();
            let read = self.stream.read(&mut self.room);
            // Not the time in which this process was stopped.
            self.waited += begun.elapsed().min(self.timeout);
            match read {
                Ok(n) => {
                    self.seat.is_busy();
                    self.is_heard = true;
                    self.came_bytes += n as u64;
                    return Ok(n);
                }
                // A process that was stopped and goes on: with a timeout the kernel says so.
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(e) if e.kind() != std::io::ErrorKind::WouldBlock => return Err(e.to_string()),
                Err(_) => (),
            }
            let Some(u) = &unfinished else {
                if self.waited < silence {
                    continue;
                }
                return Err(format!("nothing came for {} s", silence.as_secs()));
            };
            let (may, per_second) = match u.in_the_way {
                true => (limits.in_the_way, BYTES_PER_SECOND_IN_THE_WAY),
                false => (limits.request, BYTES_PER_SECOND),
            };
            if self.waited > may + Duration::from_secs(self.came_bytes / per_second) {
                let waited = self.waited.as_secs_f64();
                return Err(format!("the end of a request did not come for {waited:.1} s"));
            }
            unfinished = protocol.unfinished();
        }
    }

    /// How long to read before something is looked at. A short time stays while requests come one
    /// behind the other: another one costs a call each time.
    fn patience(&self, looks: bool, silence: Duration) -> Duration {
        let short = LOOK.min(self.seat.limits().in_the_way);
        let stays = self.timeout == short && self.waited.is_zero();
        if looks || stays { short.min(silence) } else { silence }
    }

    fn wait_at_most(&mut self, timeout: Duration) -> Result<(), String> {
        if timeout != self.timeout {
            self.stream.set_read_timeout(Some(timeout)).map_err(|e| e.to_string())?;
            self.timeout = timeout;
        }
        Ok(())
    }
}
