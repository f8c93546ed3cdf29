//! The end of serving connections: nothing more is taken in, what was taken in is answered, and
//! then the sockets close. A client that is in the middle of something finds its connection gone,
//! and asks the next server again; it is never told of the end.

use crate::seats::Seats;
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A listener and its connections, until they are stopped.
pub struct Listening {
    /// Where it listens.
    pub at: SocketAddr,
    pub(crate) seats: Arc<Seats>,
}

impl Listening {
    /// Takes nothing more in: no connection, and no request of those that are open. On return no
    /// further request enters a volume; those that have will be answered. A connection whose client
    /// takes no replies, so that its reader waits, is cut off after `patience`.
    pub fn stop(&self, patience: Duration) {
        let until = Instant::now() + patience;
        self.seats.stop();
        if !self.seats.wait_for_readers(until) {
            tracing::info!("connections are cut off whose clients take no replies");
            self.seats.shut_all(Shutdown::Both);
            self.seats.wait_for_readers(Instant::now() + patience);
        }
    }

    /// Waits until all replies are with the kernel, for at most `patience`: those whose clients
    /// take nothing go with the process.
    pub fn flush(&self, patience: Duration) {
        let until = Instant::now() + patience;
        while self.seats.unsent.load(Ordering::Acquire) > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
