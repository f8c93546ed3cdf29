//! Sending on a socket from any thread without ever waiting: what the socket does not take at once
//! is queued, and a thread of its own sends it as fast as the client takes it. So a slow client
//! costs a thread and its queue, and never the time of whoever answers it. How much may be queued
//! is for the protocol to say.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Vec<u8>>,
    /// Bytes in `waiting`, and those that the thread is sending.
    bytes: usize,
    /// Is there a thread that sends?
    sending: bool,
    /// The connection is over: nothing more is taken.
    broken: bool,
}

struct Inner {
    stream: TcpStream,
    queue: Mutex<Queue>,
    less: Condvar,
}

/// Sends on a socket, whole replies at a time, from any thread.
#[derive(Clone)]
pub struct Outlet(Arc<Inner>);

impl Outlet {
    /// For this socket, whose timeout for writing says how long a client may take nothing at all.
    pub fn new(stream: TcpStream) -> Outlet {
        Outlet(Arc::new(Inner { stream, queue: Mutex::default(), less: Condvar::new() }))
    }

    fn queue(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.0.queue.lock().expect("nobody panics while holding it")
    }

    /// Sends all of it, now or later, after what was sent before. Never waits for the client.
    pub fn send(&self, mut bytes: Vec<u8>) {
        let mut q = self.queue();
        if q.broken {
            return;
        }
        if !q.sending {
            match send_now(&self.0.stream, &bytes) {
                Ok(n) if n == bytes.len() => return,
                Ok(n) => drop(bytes.drain(..n)),
                Err(_) => return self.give_up(&mut q),
            }
        }
        q.bytes += bytes.len();
        q.waiting.push_back(bytes);
        if !std::mem::replace(&mut q.sending, true) {
            let me = self.clone();
            let thread = std::thread::Builder::new().name("sender".into());
            if let Err(e) = thread.spawn(move || me.send_queued()) {
                tracing::warn!("no thread for a slow client, which is cut off: {e}");
                self.give_up(&mut q);
            }
        }
    }

    /// Bytes that the client has not taken.
    pub fn unsent(&self) -> usize {
        self.queue().bytes
    }

    /// Waits until less than this is unsent, or nothing ever will be.
    pub fn wait_below(&self, bytes: usize) {
        let q = self.queue();
        let _q = self.0.less.wait_while(q, |q| q.bytes >= bytes && !q.broken);
    }

    fn send_queued(&self) {
        loop {
            let next = {
                let mut q = self.queue();
                let next = q.waiting.pop_front().filter(|_| !q.broken);
                q.sending = next.is_some();
                next
            };
            let Some(bytes) = next else { return };
            let result = (&self.0.stream).write_all(&bytes);
            let mut q = self.queue();
            q.bytes = q.bytes.saturating_sub(bytes.len());
            if result.is_err() {
                self.give_up(&mut q);
            }
            self.0.less.notify_all();
        }
    }

    fn give_up(&self, q: &mut Queue) {
        q.broken = true;
        q.waiting.clear();
        q.bytes = 0;
        // The connection's reader notices and ends it.
        let _ = self.0.stream.shutdown(Shutdown::Both);
        self.0.less.notify_all();
    }
}

/// The longest time that a client may take nothing of what is sent to it.
pub(crate) const STALLED: Duration = Duration::from_secs(30);

/// As much as the socket takes without waiting.
fn send_now(stream: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the pointer and the length are those of a slice that lives through the call.
    #[expect(unsafe_code, reason = "std cannot send without waiting on a socket that may wait")]
    let n = unsafe { libc::send(stream.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) };
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
    use std::io::Read;
    use std::net::TcpListener;
    use std::time::Instant;

    #[test]
    fn a_client_that_does_not_read_keeps_nobody() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let outlet = Outlet::new(listener.accept().unwrap().0);
        let begun = Instant::now();
        let piece: Vec<u8> = (0..1 << 20).map(|i| i as u8).collect();
        (0..32).for_each(|_| outlet.send(piece.clone()));
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        assert!(outlet.unsent() > 8 << 20, "{}", outlet.unsent());
        // When it reads at last, everything comes, in order.
        let mut got = vec![0; 32 << 20];
        client.read_exact(&mut got).unwrap();
        assert!(got.chunks(1 << 20).all(|c| c == piece));
        outlet.wait_below(1);
        assert_eq!(outlet.unsent(), 0);
        // And when it goes away, nothing more is queued.
        drop(client);
        (0..64).for_each(|_| outlet.send(piece.clone()));
        outlet.wait_below(1);
    }
}
