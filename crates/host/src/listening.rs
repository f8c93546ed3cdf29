//! The connections that are open, and the end of serving them: nothing more is taken in, what was
//! taken in is answered, and then the sockets close. A client that is in the middle of something
//! finds its connection gone, and asks the next server again; it is never told of the end.

use crate::outlet::{Outlet, Socket};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

const CONNECTIONS_MAX: usize = 1024;
/// Of these, one client (an address, or a /64 network of IPv6) may have so many.
const CONNECTIONS_OF_ONE_MAX: usize = 256;

/// What all connections share.
#[derive(Default)]
pub(crate) struct Open {
    seats: Mutex<Seats>,
    /// A seat has become free.
    left: Condvar,
    stopping: AtomicBool,
    pub(crate) unsent: Arc<AtomicUsize>,
}

#[derive(Default)]
struct Seats {
    by_client: BTreeMap<IpAddr, usize>,
    /// The sockets of connections that are read, by their seats' numbers.
    sockets: BTreeMap<u64, Socket>,
    next: u64,
}

impl Open {
    fn seats(&self) -> MutexGuard<'_, Seats> {
        self.seats.lock().expect("nobody panics while holding it")
    }
    /// Is nothing more to be taken in?
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }
}

/// A connection's place among those that may be open.
pub(crate) struct Seat {
    pub(crate) open: Arc<Open>,
    pub(crate) peer: SocketAddr,
    client: IpAddr,
    number: u64,
}

impl Seat {
    pub(crate) fn of(open: &Arc<Open>, peer: SocketAddr) -> Result<Seat, String> {
        // IPv4 over a socket of IPv6 is IPv4: the exports' rules say so.
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        let client = match peer.ip() {
            IpAddr::V6(a) => IpAddr::V6((a.to_bits() >> 64 << 64).into()),
            v4 => v4,
        };
        let mut all = open.seats();
        if all.by_client.values().sum::<usize>() >= CONNECTIONS_MAX {
            return Err(format!("{CONNECTIONS_MAX} are open"));
        }
        let mine = all.by_client.entry(client).or_default();
        if *mine >= CONNECTIONS_OF_ONE_MAX {
            return Err(format!("{client} has {CONNECTIONS_OF_ONE_MAX} open"));
        }
        *mine += 1;
        all.next += 1;
        Ok(Seat { open: open.clone(), peer, client, number: all.next })
    }

    /// The seat's connection is about to be read. Whoever stops asks for it from now on.
    pub(crate) fn take(&self, outlet: &Outlet) {
        self.open.seats().sockets.insert(self.number, outlet.socket());
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut all = self.open.seats();
        all.sockets.remove(&self.number);
        if let Some(n) = all.by_client.get_mut(&self.client) {
            *n -= 1;
            if *n == 0 {
                all.by_client.remove(&self.client);
            }
        }
        self.open.left.notify_all();
    }
}

/// A listener and its connections, until they are stopped.
pub struct Listening {
    /// Where it listens.
    pub at: SocketAddr,
    pub(crate) open: Arc<Open>,
}

impl Listening {
    /// Takes nothing more in: no connection, and no request of those that are open. On return no
    /// further request enters a volume; those that have will be answered. A connection whose client
    /// takes no replies, so that its reader waits, is cut off after `patience`.
    pub fn stop(&self, patience: Duration) {
        let until = Instant::now() + patience;
        self.open.stopping.store(true, Ordering::SeqCst);
        self.open.seats().sockets.values().for_each(Socket::end_input);
        if !self.wait_for_readers(until) {
            tracing::info!("connections are cut off whose clients take no replies");
            self.open.seats().sockets.values().for_each(Socket::cut);
            self.wait_for_readers(Instant::now() + patience);
        }
    }

    fn wait_for_readers(&self, until: Instant) -> bool {
        let left = until.saturating_duration_since(Instant::now());
        let open = |s: &mut Seats| !s.by_client.is_empty();
        let waited = self.open.left.wait_timeout_while(self.open.seats(), left, open);
        !waited.expect("nobody panics while holding it").1.timed_out()
    }

    /// Waits until all replies are with the kernel, for at most `patience`: those whose clients
    /// take nothing go with the process.
    pub fn flush(&self, patience: Duration) {
        let until = Instant::now() + patience;
        while self.open.unsent.load(Ordering::Acquire) > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
