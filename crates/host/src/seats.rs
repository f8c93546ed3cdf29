//! Who may have a connection: so many in all, so many of one client. Where there are no more, one
//! that has been idle for long makes way: its client connects again when it wants something. Also
//! what all connections share.
//!
//! Invariants:
//! * S1. A seat has one holder, who gives it back once.
//! * S2. There are never more holders than there may be, those who make way not counted.

use std::collections::BTreeMap;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How many connections there may be, and how long each may keep its place.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Open connections.
    pub connections: usize,
    /// Of these, one client (an address, or a /64 network of IPv6) may have so many.
    pub of_one: usize,
    /// A connection that says nothing for so long is closed.
    pub idle: Duration,
    /// The same before its first request.
    pub first: Duration,
    /// After so long an idle connection may be closed for another's sake.
    pub makes_way: Duration,
    /// A request has to come to its end within so long, of the time in which we wait for it, and a
    /// second for each 16 KiB that have come.
    pub request: Duration,
    /// The same where others wait for the memory that it takes, with a second for 512 KiB.
    pub in_the_way: Duration,
    /// Who says nothing more has so long to take the answers that he is owed.
    pub gone: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 1024,
            of_one: 256,
            idle: Duration::from_secs(3600),
            first: Duration::from_secs(30),
            makes_way: Duration::from_secs(60),
            request: Duration::from_secs(30),
            in_the_way: Duration::from_secs(2),
            gone: Duration::from_secs(30),
        }
    }
}

/// All places.
pub(crate) struct Seats {
    limits: Limits,
    begun: Instant,
    holders: Mutex<BTreeMap<u64, Holder>>,
    /// A seat has become free.
    left: Condvar,
    next: AtomicU64,
    stopping: AtomicBool,
    /// Bytes that clients have not taken.
    pub(crate) unsent: Arc<AtomicUsize>,
}

struct Holder {
    client: IpAddr,
    /// None: it is closed, and what was asked on it is not all answered.
    stream: Option<Arc<TcpStream>>,
    /// It makes way, and its reader is about to find that out.
    is_going: bool,
    /// Milliseconds since the seats' beginning, or [`BUSY`].
    idle_since: Arc<AtomicU64>,
}

const BUSY: u64 = u64::MAX;

/// A connection's place.
pub(crate) struct Seat {
    seats: Arc<Seats>,
    number: u64,
    pub(crate) peer: SocketAddr,
    idle_since: Arc<AtomicU64>,
}

impl Seats {
    pub(crate) fn new(limits: Limits) -> Arc<Seats> {
        let begun = Instant::now();
        Arc::new(Seats {
            limits,
            begun,
            holders: Mutex::default(),
            left: Condvar::new(),
            next: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            unsent: Arc::default(),
        })
    }

    /// Is nothing more to be taken in?
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Nothing more is taken in: whoever waits to read finds the end of what his client sends.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.shut_all(Shutdown::Read);
    }

    /// Ends all connections, or what comes on them.
    pub(crate) fn shut_all(&self, how: Shutdown) {
        for stream in self.holders().values().filter_map(|h| h.stream.as_ref()) {
            let _ = stream.shutdown(how); // it may be gone already
        }
    }

    /// Waits until all seats are free, at most until then.
    pub(crate) fn wait_for_readers(&self, until: Instant) -> bool {
        let left = until.saturating_duration_since(Instant::now());
        let open = |all: &mut BTreeMap<u64, Holder>| !all.is_empty();
        let waited = self.left.wait_timeout_while(self.holders(), left, open);
        !waited.expect("nobody panics while holding it").1.timed_out()
    }

    fn holders(&self) -> MutexGuard<'_, BTreeMap<u64, Holder>> {
        self.holders.lock().expect("nobody panics while holding it")
    }

    fn now(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    /// A place for the connection, or why there is none.
    pub(crate) fn take(
        self: &Arc<Seats>,
        peer: SocketAddr,
        stream: &Arc<TcpStream>,
    ) -> Result<Seat, String> {
        let client = match peer.ip() {
            IpAddr::V6(a) => IpAddr::V6((a.to_bits() >> 64 << 64).into()),
            v4 => v4,
        };
        let mut all = self.holders();
        let count = |all: &BTreeMap<u64, Holder>, of: &dyn Fn(&Holder) -> bool| {
            all.values().filter(|h| !h.is_going && of(h)).count()
        };
        let mine = count(&all, &|h| h.client == client);
        if mine >= self.limits.of_one && !self.make_way(&mut all, |h| h.client == client) {
            return Err(format!("{client} has {mine} open"));
        }
        let open = count(&all, &|_| true);
        if open >= self.limits.connections && !self.make_way(&mut all, |_| true) {
            return Err(format!("{open} are open"));
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let idle_since = Arc::new(AtomicU64::new(BUSY));
        let (stream, since) = (Some(stream.clone()), idle_since.clone());
        let holder = Holder { client, stream, is_going: false, idle_since: since };
        let other = all.insert(number, holder);
        assert!(other.is_none(), "S1: two connections have seat {number}");
        let (open, mine) = (count(&all, &|_| true), count(&all, &|h| h.client == client));
        let (most, of_one) = (self.limits.connections, self.limits.of_one);
        assert!(open <= most && mine <= of_one, "S2: {open} are open, {mine} of them {client}'s");
        Ok(Seat { seats: self.clone(), number, peer, idle_since })
    }

    /// Closes the one of these that has been idle for longest, if it has been for long.
    fn make_way(&self, all: &mut BTreeMap<u64, Holder>, of: impl Fn(&Holder) -> bool) -> bool {
        let since = |h: &Holder| h.idle_since.load(Ordering::Relaxed);
        let idle = all.values_mut().filter(|h| of(h) && !h.is_going && since(h) != BUSY);
        let Some(first) = idle.min_by_key(|h| since(h)) else { return false };
        let idle = self.now().saturating_sub(since(first));
        if u128::from(idle) < self.limits.makes_way.as_millis() {
            return false;
        }
        first.is_going = true;
        // Its reader ends it.
        first.stream.iter().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
        true
    }
}

impl Seat {
    pub(crate) fn limits(&self) -> &Limits {
        &self.seats.limits
    }
    pub(crate) fn seats(&self) -> &Seats {
        &self.seats
    }
    /// From now on nothing is under way on the connection.
    pub(crate) fn is_idle(&self) {
        // If it is already, it stays so since then.
        let now = self.seats.now();
        let _ = self.idle_since.compare_exchange(BUSY, now, Ordering::Relaxed, Ordering::Relaxed);
    }
    /// It holds the socket no more, only the place.
    pub(crate) fn let_go(&self) {
        let socket = self.seats.holders().get_mut(&self.number).and_then(|h| h.stream.take());
        drop(socket); // not under the lock
    }
    /// Something has come.
    pub(crate) fn is_busy(&self) {
        self.idle_since.store(BUSY, Ordering::Relaxed);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let was = self.seats.holders().remove(&self.number);
        assert!(was.is_some(), "S1: seat {} is given back twice", self.number);
        self.seats.left.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;

    /// A client's end, and ours.
    fn connection(listener: &TcpListener) -> (TcpStream, Arc<TcpStream>) {
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        (client, Arc::new(listener.accept().unwrap().0))
    }

    #[test]
    fn the_one_that_is_idle_for_longest_makes_way_and_nobody_who_is_busy() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let limits = Limits { connections: 3, of_one: 3, ..Limits::default() };
        let makes_way = limits.makes_way.as_millis() as u64;
        // It has been there for twice as long as anybody has to be idle.
        let begun = Instant::now().checked_sub(2 * limits.makes_way);
        let mut seats = Arc::into_inner(Seats::new(limits)).unwrap();
        let Some(begun) = begun else { return };
        seats.begun = begun;
        let seats = Arc::new(seats);
        let peer = listener.local_addr().unwrap();
        let (mut clients, mut held) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            let (client, ours) = connection(&listener);
            clients.push(client);
            held.push(seats.take(peer, &ours).unwrap());
        }
        let (_other, ours) = connection(&listener);
        assert!(seats.take(peer, &ours).is_err(), "all are busy");
        let idle = |n: usize, since| held[n].idle_since.store(since, Ordering::Relaxed);
        held[0].is_idle();
        assert!(seats.take(peer, &ours).is_err(), "it is idle since just now");
        idle(1, makes_way - 1);
        idle(2, makes_way / 2);
        held[2].is_idle();
        let fourth = seats.take(peer, &ours).unwrap();
        assert!(matches!(clients[2].read(&mut [0; 1]), Ok(0)), "it is idle for longest");
        let (_another, ours) = connection(&listener);
        let fifth = seats.take(peer, &ours).unwrap();
        assert!(matches!(clients[1].read(&mut [0; 1]), Ok(0)), "it is the next");
        held[1].is_busy();
        assert!(seats.take(peer, &ours).is_err(), "S2: three have not been told to go");
        drop((fourth, fifth, held));
        assert!(seats.holders().is_empty(), "S1");
    }
}
