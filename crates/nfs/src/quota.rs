//! How much one connection, and all of them together, may hold in memory: requests that are under
//! way and replies that the client has not taken. It counts and says no; who waits, and for what,
//! is the connection's business.
//!
//! A connection may hold 8 MiB, and the one request that took it beyond. When all together hold
//! 64 MiB, each may go on with little (64 KiB, or one larger write), and what is read is cut to as
//! much (RFC 1813 lets a server give less than was asked for): so clients that ask for much and
//! take nothing cannot use up the memory, and everybody else is served meanwhile.
//!
//! Invariants:
//! * Q1. A request begins only where there is room for one more.
//! * Q2. What all hold is the sum of what each holds, and nobody gives back what he has not.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use vfs::Request;

/// Requests of one connection that may be under way.
const CALLS_MAX: usize = 256;
/// Bytes that a connection may hold.
const BYTES_MAX: usize = 8 << 20;
/// Bytes that all connections may hold before memory is scarce.
const ALL_BYTES_MAX: usize = 64 << 20;
/// What a connection may hold, and a reply, when memory is scarce.
const SCARCE_BYTES_MAX: usize = 64 << 10;
/// The least that a request is counted as: what is remembered of it, and a short reply.
pub(crate) const CALL_BYTES: usize = 512;

/// What a connection holds that has not gone to its sender.
pub(crate) struct Quota {
    calls: usize,
    bytes: usize,
    /// What the rooms of all connections hold.
    all: Arc<AtomicUsize>,
}

impl Quota {
    pub(crate) fn new(all: &Arc<AtomicUsize>) -> Quota {
        Quota { calls: 0, bytes: 0, all: all.clone() }
    }

    /// Requests under way.
    pub(crate) fn calls(&self) -> usize {
        self.calls
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }
    /// Bytes that are held.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// A request is under way.
    pub(crate) fn begin(&mut self, bytes: usize) {
        assert!(self.calls < CALLS_MAX, "Q1: a request begins beside {} others", self.calls);
        self.calls += 1;
        self.hold(bytes);
    }
    /// A request is answered; what it was counted as is held until its reply is with the sender.
    pub(crate) fn answered(&mut self) {
        assert!(self.calls > 0, "Q1: a call is answered, and none is under way");
        self.calls -= 1;
    }
    /// Holds so much more.
    pub(crate) fn hold(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.all.fetch_add(bytes, Ordering::Relaxed);
    }
    /// So much has gone to the sender, who counts it himself.
    pub(crate) fn release(&mut self, bytes: usize) {
        let held = self.bytes;
        assert!(bytes <= held, "Q2: {bytes} bytes are given back, of {held} that were held");
        self.bytes -= bytes;
        let all = self.all.fetch_sub(bytes, Ordering::Release);
        assert!(held <= all, "Q2: {held} bytes are held here, and by all of us {all}");
    }

    /// No more requests may be taken, where the sender has so much unsent, here and everywhere.
    pub(crate) fn is_full(&self, here: usize, everywhere: impl FnOnce() -> usize) -> bool {
        let may = if self.is_scarce(everywhere) { SCARCE_BYTES_MAX } else { BYTES_MAX };
        self.calls >= CALLS_MAX || self.bytes + here >= may
    }
    /// Do all connections hold so much that each has to be modest?
    pub(crate) fn is_scarce(&self, everywhere: impl FnOnce() -> usize) -> bool {
        // In this order: what goes to a sender is counted there first, and here no more after that.
        let held = self.all.load(Ordering::Acquire);
        held + everywhere() >= ALL_BYTES_MAX
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Bytes that a request may need until its reply is sent.
pub(crate) fn cost(request: &Request) -> usize {
    CALL_BYTES
        + match request {
            Request::Write { data, .. } => data.len(),
            Request::Read { len, .. } => (*len as usize).min(vfs::TRANSFER_BYTES_MAX),
            Request::ReadLink { .. } => 4096,
            // An entry in memory takes more than its part of the reply.
            Request::ReadDir { max_bytes, .. } => 2 * max_bytes,
            _ => 0,
        }
}

/// Asks for no more than there is memory for when it is scarce.
pub(crate) fn be_modest(request: &mut Request) {
    match request {
        Request::Read { len, .. } => *len = (*len).min(SCARCE_BYTES_MAX as u32),
        Request::ReadDir { max_bytes, .. } => *max_bytes = (*max_bytes).min(SCARCE_BYTES_MAX / 2),
        _ => (),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intake::Share;
    use crate::metrics::Meter;
    use crate::server::Server;
    use crate::state::State;
    use env::Rope;

    #[test]
    fn a_connection_holds_its_limit_and_one_request_more() {
        let all = Arc::default();
        let mut quota = Quota::new(&all);
        let mut most = 0;
        let megabyte = CALL_BYTES + (1 << 20);
        while !quota.is_full(0, || 0) {
            quota.begin(megabyte);
            most += megabyte;
        }
        assert!((BYTES_MAX..BYTES_MAX + megabyte).contains(&most), "{most}");
        // Answered is not sent: only then may the next come.
        quota.answered();
        assert!(quota.is_full(0, || 0));
        quota.release(megabyte);
        assert!(quota.is_full(megabyte, || megabyte));
        assert!(!quota.is_full(0, || 0));
        drop(quota);
        assert_eq!(all.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn when_memory_is_scarce_everybody_goes_on_with_little() {
        let all = Arc::default();
        let mut greedy = Quota::new(&all);
        greedy.hold(ALL_BYTES_MAX);
        let mut other = Quota::new(&all);
        assert!(other.is_scarce(|| 0) && !other.is_full(0, || 0));
        let mut read = Request::Read { ino: 2, offset: 0, len: 1 << 20 };
        be_modest(&mut read);
        other.begin(cost(&read));
        assert!(other.is_full(0, || 0), "{}", cost(&read));
        greedy.release(ALL_BYTES_MAX);
        assert!(!other.is_full(0, || 0));
        // What is unsent counts as well.
        assert!(other.is_full(SCARCE_BYTES_MAX, || ALL_BYTES_MAX));
    }

    /// As a link's text may be, on a volume whose blocks are large.
    #[test]
    fn a_reply_that_is_longer_than_was_thought_is_counted_as_it_is() {
        let (server, all) = (Server::new(Vec::new(), Vec::new(), Arc::default()), Arc::default());
        let meter = Meter::new(&server.metrics, [127, 0, 0, 1].into());
        let mut s = State::new(Quota::new(&all), Share::new(&server.intake), meter);
        s.quota.begin(CALL_BYTES);
        s.quota.answered();
        s.put((vec![0; 64 << 10], Rope::new()), CALL_BYTES);
        s.put_new(&[0; 4096]);
        let out = s.take_out();
        assert_eq!((out.cost, s.quota.bytes()), (68 << 10, 68 << 10), "R2");
        s.quota.release(out.cost);
        assert!(s.quota.is_empty() && all.load(Ordering::Relaxed) == 0);
    }

    #[test]
    fn many_small_requests_have_a_limit_of_their_own() {
        let mut quota = Quota::new(&Arc::default());
        (0..CALLS_MAX).for_each(|_| quota.begin(CALL_BYTES));
        assert!(quota.is_full(0, || 0));
        quota.answered();
        assert!(!quota.is_full(0, || 0));
    }
}
