//! Sockets for servers: a thread accepts, and a thread each reads a connection, enters volumes with
//! what came, and sends what was answered. Many requests read at once are run in one entry and
//! answered in one write.

use crate::listening::{Listening, Open, Seat};
use crate::outlet::STALLED;
use crate::{Outlet, Pool};
use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::linux::net::TcpStreamExt;
use std::sync::Arc;
use std::time::Duration;
use vfs::Work;

/// One connection's protocol: bytes to work.
pub trait Protocol: Send + Sync {
    /// The work in these bytes; Err: close the connection, and why.
    fn received(&self, bytes: &[u8]) -> Result<Vec<(usize, Work)>, String>;
    /// The work was entered: send what was answered meanwhile.
    fn gathered(&self);
    /// Waits until more may be taken. Is there something left to be taken of what was received
    /// before (then `received` is called with nothing new)?
    fn wait_for_room(&self) -> bool;
    /// Is there something that was asked and not answered yet?
    fn is_waiting(&self) -> bool;
    /// Has a part of a request come, and not its end?
    fn is_inside_request(&self) -> bool;
}

/// Makes a protocol for a connection.
pub type Accept = dyn Fn(SocketAddr, Outlet) -> Arc<dyn Protocol> + Send + Sync;

/// A connection that says nothing for so long is closed.
const IDLE: Duration = Duration::from_secs(3600);
/// What is read at once: little at first, more on a connection that has more to say.
const READ_BYTES: usize = 16 << 10;
const READ_BYTES_MAX: usize = 256 << 10;

/// Listens at `address` and serves each connection by `accept`, until that is stopped.
pub fn listen(pool: &Arc<Pool>, address: &str, accept: Arc<Accept>) -> Result<Listening, String> {
    let fail = |e: std::io::Error| format!("cannot listen on {address}: {e}");
    let listener = TcpListener::bind(address).map_err(fail)?;
    let at = listener.local_addr().map_err(fail)?;
    let pool = pool.clone();
    let thread = std::thread::Builder::new().name("listen".into());
    let open = Arc::new(Open::default());
    let listening = Listening { at, open: open.clone() };
    let run = move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                std::thread::sleep(Duration::from_millis(50)); // out of descriptors: wait for some
                continue;
            };
            if open.is_stopping() {
                return; // and nobody listens any more
            }
            let seat = match stream.peer_addr().map(|a| Seat::of(&open, a)) {
                Ok(Ok(seat)) => seat,
                Ok(Err(why)) => {
                    tracing::warn!("a connection is refused: {why}");
                    continue;
                }
                Err(_) => continue, // it is gone already
            };
            let (pool, accept) = (pool.clone(), accept.clone());
            let thread = std::thread::Builder::new().name("connection".into());
            let started = thread.spawn(move || {
                if let Err(why) = serve(&pool, stream, &*accept, &seat) {
                    tracing::info!("connection closed: {why}");
                }
            });
            if let Err(e) = started {
                tracing::warn!("no thread for a connection: {e}");
            }
        }
    };
    thread.spawn(run).map_err(fail)?;
    Ok(listening)
}

fn serve(pool: &Pool, mut stream: TcpStream, accept: &Accept, seat: &Seat) -> Result<(), String> {
    let io = |e: std::io::Error| e.to_string();
    let peer = seat.peer;
    stream.set_nodelay(true).map_err(io)?;
    stream.set_write_timeout(Some(STALLED)).map_err(io)?;
    let outlet = Outlet::new(stream.try_clone().map_err(io)?, seat.open.unsent.clone());
    seat.take(&outlet);
    let protocol = accept(peer, outlet);
    let mut patience = Duration::ZERO;
    let mut room = vec![0; READ_BYTES];
    while !seat.open.is_stopping() {
        let mut n = 0;
        // While there is no room nothing is read, and the client's window fills.
        if !protocol.wait_for_room() {
            // Whoever has begun to ask holds memory, and so has to go on.
            let needed = if protocol.is_inside_request() { STALLED } else { IDLE };
            if needed != patience {
                patience = needed;
                stream.set_read_timeout(Some(patience)).map_err(io)?;
            }
            n = match stream.read(&mut room) {
                // A process that was stopped and goes on: with a timeout the kernel says so.
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                other => other.map_err(|e| format!("{peer}: {e}"))?,
            };
            if n == 0 {
                return Ok(());
            }
        }
        if seat.open.is_stopping() {
            break; // what came meanwhile is asked of the next server
        }
        let work = protocol.received(&room[..n]).map_err(|e| format!("{peer}: {e}"))?;
        let mut by_volume: Vec<Vec<Work>> = Vec::new();
        for (v, w) in work {
            by_volume.resize_with(by_volume.len().max(v + 1), Vec::new);
            by_volume[v].push(w);
        }
        for (v, mut work) in by_volume.into_iter().enumerate().filter(|(_, w)| !w.is_empty()) {
            pool.enter(v, &mut work);
        }
        protocol.gathered();
        if n == room.len() && n < READ_BYTES_MAX {
            room = vec![0; 4 * n];
        }
        if protocol.is_waiting() {
            // No answer goes out now that would carry the acknowledgement, and a client with
            // Nagle's algorithm keeps its further requests back until that comes.
            let _ = stream.set_quickack(true);
        }
    }
    Ok(())
}
