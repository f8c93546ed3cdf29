//! A line to a far-away server: every byte from the client comes later by a fixed time, and both
//! directions together get no more than a fixed rate. One request waits for its answer on a
//! connection, so each is later by that time.
//!
//!     rustc -O proxy.rs && ./proxy LISTEN_PORT SERVER_PORT DELAY_MS MB_PER_S

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

/// Bytes read at once.
const CHUNK: usize = 64 << 10;
/// Chunks on their way in one direction of a connection: more than the rate lets through in the
/// delay.
const ON_THE_WAY: usize = 256;

/// When the line is free again, for all connections.
struct Line {
    free_at: Mutex<Instant>,
    bytes_per_s: f64,
}

impl Line {
    /// Returns when these bytes have gone through.
    fn pass(&self, bytes: usize) {
        let until = {
            let mut free_at = self.free_at.lock().expect("no thread panics with it");
            *free_at = (*free_at).max(Instant::now())
                + Duration::from_secs_f64(bytes as f64 / self.bytes_per_s);
            *free_at
        };
        sleep(until.saturating_duration_since(Instant::now()));
    }
}

/// Carries what comes from one end to the other, each chunk `delay` after it came, until an end is
/// closed.
fn carry(mut from: TcpStream, mut to: TcpStream, line: Arc<Line>, delay: Duration) {
    let (send, receive) = sync_channel::<(Instant, Vec<u8>)>(ON_THE_WAY);
    spawn(move || {
        for (came, bytes) in receive {
            sleep((came + delay).saturating_duration_since(Instant::now()));
            line.pass(bytes.len());
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    });
    spawn(move || {
        let mut bytes = vec![0; CHUNK];
        while let Ok(n @ 1..) = from.read(&mut bytes) {
            if send.send((Instant::now(), bytes[..n].to_vec())).is_err() {
                break;
            }
        }
    });
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<u64> = std::env::args().skip(1).map(|a| a.parse()).collect::<Result<_, _>>()?;
    let [listen, server, delay_ms, mb_per_s] = args[..] else {
        return Err("usage: proxy LISTEN_PORT SERVER_PORT DELAY_MS MB_PER_S".into());
    };
    let line =
        Arc::new(Line { free_at: Mutex::new(Instant::now()), bytes_per_s: mb_per_s as f64 * 1e6 });
    for client in TcpListener::bind(("127.0.0.1", listen as u16))?.incoming() {
        let client = client?;
        let server = TcpStream::connect(("127.0.0.1", server as u16))?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        carry(
            client.try_clone()?,
            server.try_clone()?,
            line.clone(),
            Duration::from_millis(delay_ms),
        );
        carry(server, client, line.clone(), Duration::ZERO);
    }
    Ok(())
}
