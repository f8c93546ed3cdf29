//! Sending on a socket from any thread without ever waiting: what the socket does not take at once
//! is queued, and a thread of its own sends it as fast as the client takes it. So a slow client
//! costs a thread and its queue, and never the time of whoever answers it. How much may be queued
//! is for the protocol to say.
//!
//! Invariants:
//! * O1. What waits has a thread that sends it, and while there is one nobody else sends.
//! * O2. The bytes that are counted are those that wait and those that the thread is sending; of
//!   a connection that is over, none.

use env::Piece;
use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Piece>,
    /// Of the first one, so many bytes are sent.
    sent: usize,
    /// Bytes in `waiting`, and those that the thread is sending: until a piece is sent to its end,
    /// all of it is held.
    bytes: usize,
    /// Is there a thread that sends?
    sending: bool,
    /// None: the connection is over, and nothing more is taken. Whoever is still to answer
    /// something holds the outlet, and not the socket.
    stream: Option<Arc<TcpStream>>,
}

struct Inner {
    queue: Mutex<Queue>,
    less: Condvar,
    /// What all outlets hold that count together.
    all: Arc<AtomicUsize>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        let bytes = self.queue.get_mut().map_or(0, |q| q.bytes);
        self.all.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Sends on a socket, whole replies at a time, from any thread.
#[derive(Clone)]
pub struct Outlet(Arc<Inner>);

impl Outlet {
    /// For this socket, whose timeout for writing says how long a client may take nothing at all.
    /// What is queued is counted in `all` as well.
    pub fn new(stream: impl Into<Arc<TcpStream>>, all: Arc<AtomicUsize>) -> Outlet {
        let queue = Mutex::new(Queue { stream: Some(stream.into()), ..Queue::default() });
        Outlet(Arc::new(Inner { queue, less: Condvar::new(), all }))
    }

    fn queue(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.0.queue.lock().expect("nobody panics while holding it")
    }

    /// Sends all of it, now or later, after what was sent before. Never waits for the client.
    pub fn send(&self, pieces: Vec<Piece>) {
        let mut q = self.queue();
        let Some(stream) = &q.stream else { return };
        let mut sent = 0;
        if !q.sending {
            let n = q.waiting.len();
            assert!(n == 0 && q.bytes == 0, "O1: {n} pieces wait, and nobody sends them");
            match send_now(stream, &pieces) {
                Ok(n) => sent = n,
                Err(_) => return self.give_up(&mut q),
            }
        }
        for piece in pieces {
            if sent >= piece.len() {
                sent -= piece.len();
                continue;
            }
            q.bytes += piece.len();
            self.0.all.fetch_add(piece.len(), Ordering::Release);
            if sent > 0 {
                let first = q.waiting.is_empty() && q.sent == 0;
                assert!(first, "O1: {sent} bytes went past {} pieces that wait", q.waiting.len());
                q.sent = std::mem::take(&mut sent);
                let (sent, len) = (q.sent, piece.len());
                assert!(sent < len, "O1: {sent} bytes of a piece of {len} are sent, and it waits");
            }
            q.waiting.push_back(piece);
        }
        assert_eq!(sent, 0, "O2: more was sent than there was to send");
        if !q.waiting.is_empty() && !std::mem::replace(&mut q.sending, true) {
            let me = self.clone();
            let thread = std::thread::Builder::new().name("sender".into());
            if let Err(e) = thread.spawn(move || me.send_queued()) {
                tracing::warn!("no thread for a slow client, which is cut off: {e}");
                self.give_up(&mut q);
            }
        }
    }

    /// Bytes held that the client has not taken.
    pub fn unsent(&self) -> usize {
        self.queue().bytes
    }

    /// The same of all outlets that count together.
    pub fn unsent_by_all(&self) -> usize {
        self.0.all.load(Ordering::Acquire)
    }

    /// Waits until less than this is unsent, or nothing ever will be.
    pub fn wait_below(&self, bytes: usize) {
        let q = self.queue();
        let _q = self.0.less.wait_while(q, |q| q.bytes >= bytes && q.stream.is_some());
    }

    /// Is the connection over, so that nothing is sent any more?
    pub(crate) fn is_over(&self) -> bool {
        self.queue().stream.is_none()
    }

    /// Ends the connection, whatever waits, and lets the socket go: who answers later answers
    /// nobody.
    pub fn end(&self) {
        self.give_up(&mut self.queue());
    }

    fn send_queued(&self) {
        loop {
            let (next, sent) = {
                let mut q = self.queue();
                let next = q.waiting.pop_front().zip(q.stream.clone());
                q.sending = next.is_some();
                let (bytes, over) = (q.bytes, q.sending || q.bytes == 0);
                assert!(over, "O2: nothing waits, and {bytes} bytes are counted");
                (next, std::mem::take(&mut q.sent))
            };
            let Some((piece, stream)) = next else { return };
            let len = piece.len();
            assert!(sent < len, "O1: {sent} bytes are sent of a piece of {len}");
            let result = send_all(&stream, &piece, sent);
            drop((piece, stream));
            let mut q = self.queue();
            let (gone, counted) = (if q.stream.is_none() { 0 } else { len }, q.bytes);
            assert!(gone <= counted, "O2: {gone} bytes are sent, of {counted} that are counted");
            q.bytes -= gone;
            self.0.all.fetch_sub(gone, Ordering::Relaxed);
            if result.is_err() {
                self.give_up(&mut q);
            }
            self.0.less.notify_all();
        }
    }

    fn give_up(&self, q: &mut Queue) {
        let Some(stream) = q.stream.take() else { return };
        q.waiting.clear();
        let bytes = std::mem::take(&mut q.bytes);
        let all = self.0.all.fetch_sub(bytes, Ordering::Relaxed);
        assert!(bytes <= all, "O2: {bytes} bytes are counted here, and of all {all}");
        // The connection's reader notices and ends it.
        let _ = stream.shutdown(Shutdown::Both);
        self.0.less.notify_all();
    }
}

/// The longest time that a client may take nothing of what is sent to it.
pub(crate) const STALLED: Duration = Duration::from_secs(30);

/// The most parts that the kernel takes in one call.
const PARTS_MAX: usize = 1024;

/// What one call is given: the parts of these pieces but for the first `skip` bytes.
fn parts<'a>(pieces: impl Iterator<Item = &'a Piece>, mut skip: usize) -> Vec<IoSlice<'a>> {
    let mut all = Vec::new();
    for part in pieces.flat_map(Piece::parts) {
        let skipped = skip.min(part.len());
        skip -= skipped;
        if skipped < part.len() {
            all.push(IoSlice::new(&part[skipped..]));
        }
        if all.len() == PARTS_MAX {
            break;
        }
    }
    all
}

/// The rest of a piece, as fast as the client takes it.
fn send_all(mut stream: &TcpStream, piece: &Piece, mut sent: usize) -> io::Result<()> {
    while sent < piece.len() {
        match stream.write_vectored(&parts(std::iter::once(piece), sent)) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => sent += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => (),
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// As much as the socket takes without waiting.
fn send_now(stream: &TcpStream, pieces: &[Piece]) -> io::Result<usize> {
    let mut sent = 0;
    loop {
        let all = parts(pieces.iter(), sent);
        let asked: usize = all.iter().map(|p| p.len()).sum();
        let n = send_some(stream, &all)?;
        sent += n;
        if n < asked || all.len() < PARTS_MAX {
            return Ok(sent);
        }
    }
}

fn send_some(stream: &TcpStream, all: &[IoSlice<'_>]) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: all zeros is a message without an address and control data; its parts live through
    // the call, and std gives IoSlice the layout of iovec.
    #[expect(unsafe_code, reason = "std cannot send without waiting on a socket that may wait")]
    let n = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = all.as_ptr().cast_mut().cast();
        message.msg_iovlen = all.len() as _; // an int in musl's library
        libc::sendmsg(stream.as_raw_fd(), &message, flags)
    };
    match usize::try_from(n) {
        Ok(n) => Ok(n),
        Err(_) => match io::Error::last_os_error() {
            e if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Ok(0)
            }
            e => Err(e),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::Rope;
    use std::io::Read;
    use std::net::TcpListener;

    #[test]
    fn a_client_that_does_not_read_keeps_nobody() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let all = Arc::new(AtomicUsize::new(0));
        let outlet = Outlet::new(listener.accept().unwrap().0, all.clone());
        let piece: Vec<u8> = (0..1 << 20).map(|i| i as u8).collect();
        // If it were waited for the client, that would be for ever.
        for i in 0..32 {
            outlet.send(match i % 3 {
                0 => vec![Piece::Own(piece.clone())],
                1 => piece.chunks(100 << 10).map(|p| Piece::Own(p.to_vec())).collect(),
                _ => vec![Piece::Shared(Rope::cut(&piece, 0, 512))],
            });
        }
        assert!(outlet.unsent() > 8 << 20, "{}", outlet.unsent());
        assert_eq!(outlet.unsent(), outlet.unsent_by_all());
        // When it reads at last, everything comes, in order.
        let mut got = vec![0; 32 << 20];
        client.read_exact(&mut got).unwrap();
        assert!(got.chunks(1 << 20).all(|c| c == piece));
        outlet.wait_below(1);
        assert_eq!(outlet.unsent(), 0);
        // And when it goes away, nothing more is queued.
        drop(client);
        (0..64).for_each(|_| outlet.send(vec![Piece::Own(piece.clone())]));
        outlet.wait_below(1);
        assert_eq!(outlet.unsent_by_all(), 0);
    }
}
