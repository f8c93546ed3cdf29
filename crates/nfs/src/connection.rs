//! One connection: bytes to records, records to calls, and the replies gathered for one write. It
//! is fed by whoever reads the socket, and answered by whichever thread leaves the volume.

use crate::answers::finish;
use crate::calls::{self, Begun, Pending, modifies};
use crate::drc::{Key, Known, checksum};
use crate::metrics::{self, Meter};
use crate::mountd;
use crate::rpc::{self, BadHead};
use crate::server::{Server, User};
use crate::xdr::Reader;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};
use vfs::{Answer, Front, Request, Ticket, Work};

/// The longest record: a write of the largest size and its head.
const RECORD_BYTES_MAX: usize = vfs::TRANSFER_BYTES_MAX + 4096;
/// Requests of one connection that may be under way.
const UNDER_WAY_MAX: usize = 256;
/// Bytes that these may need: what they write, and the most that their replies hold. The last one
/// taken may go beyond it.
const BYTES_UNDER_WAY_MAX: usize = 8 << 20;
/// Bytes of replies that a client may leave unread before its next request is looked at.
const UNSENT_BYTES_MAX: usize = 4 << 20;
/// Calls are taken into memory in a buffer that is given back when it has grown beyond this.
const INPUT_KEPT: usize = 64 << 10;

/// A request that takes longer is logged.
const SLOW: Duration = Duration::from_millis(500);

/// Sends bytes to the client; called when replies are ready, by any thread.
pub trait Sender: Send + Sync {
    /// All of these, in one write if possible; without waiting for the client.
    fn send(&self, bytes: Vec<u8>);
    /// Waits until less than this is unsent, or nothing ever will be.
    fn wait_below(&self, _bytes: usize) {}
}

/// A call that the volume has not answered yet.
struct Asked {
    pending: Pending,
    /// Where its reply is to be kept, if it may come again.
    key: Option<Key>,
    arrived: Instant,
    /// What of [`BYTES_UNDER_WAY_MAX`] it takes.
    cost: usize,
}

struct State {
    /// Bytes that are not a whole record yet, and the fragments of one that is not.
    input: Vec<u8>,
    record: Vec<u8>,
    out: Vec<u8>,
    asked: Vec<Option<Asked>>,
    under_way: usize,
    bytes_under_way: usize,
    meter: Meter,
    /// So many gather replies (the reader, and threads that have several): all are sent in one
    /// write when the last of them is done.
    gathering: u32,
}

/// A connection.
pub struct Connection {
    me: Weak<Connection>,
    server: Arc<Server>,
    peer: SocketAddr,
    sender: Box<dyn Sender>,
    state: Mutex<State>,
    /// Fewer requests are under way than before.
    fewer: Condvar,
}

impl Connection {
    /// A connection of `peer`, whose replies go to `sender`.
    pub fn new(server: Arc<Server>, peer: SocketAddr, sender: Box<dyn Sender>) -> Arc<Connection> {
        let state = State {
            input: Vec::new(),
            record: Vec::new(),
            out: Vec::new(),
            asked: Vec::new(),
            under_way: 0,
            bytes_under_way: 0,
            meter: Meter::new(&server.metrics, peer.ip()),
            gathering: 0,
        };
        server.metrics.connections.inc();
        let state = Mutex::new(state);
        Arc::new_cyclic(|me| Connection {
            me: me.clone(),
            server,
            peer,
            sender,
            state,
            fewer: Condvar::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics while holding it")
    }

    /// Takes in what was read: the calls it makes, by volume, as many as may be under way; the rest
    /// is kept, see [`Connection::wait_for_room`]. Err: nothing sensible can follow, close it.
    /// After the calls were entered, [`Connection::gathered`] sends what was answered meanwhile.
    pub fn received(&self, bytes: &[u8]) -> Result<Vec<(usize, Work)>, String> {
        let arrived = Instant::now();
        let mut s = self.state();
        s.gathering += 1;
        s.meter.received.inc_by(bytes.len() as u64);
        // Taken out, so that a record of one fragment is read where it lies.
        let mut input = std::mem::take(&mut s.input);
        input.extend_from_slice(bytes);
        let mut work = Vec::new();
        let mut at = 0;
        while !s.is_full() {
            let Some((len, last)) = mark(&input[at..]) else { break };
            if s.record.len() + len > RECORD_BYTES_MAX {
                if !work.is_empty() {
                    break; // what came before is answered; the next look ends the connection
                }
                return Err(format!("a record of more than {RECORD_BYTES_MAX} bytes"));
            }
            let Some(fragment) = input.get(at + 4..at + 4 + len) else { break };
            at += 4 + len;
            if !last {
                s.record.extend_from_slice(fragment);
            } else if s.record.is_empty() {
                self.one(&mut s, fragment, arrived, &mut work);
            } else {
                let mut record = std::mem::take(&mut s.record);
                record.extend_from_slice(fragment);
                self.one(&mut s, &record, arrived, &mut work);
            }
        }
        input.drain(..at);
        if input.capacity() > INPUT_KEPT && input.len() <= INPUT_KEPT {
            input.shrink_to(INPUT_KEPT);
        }
        s.input = input;
        Ok(work)
    }

    /// Waits until the limits let the connection go on, and tells whether a whole request is left
    /// of what was received before: then `received` is to be called with nothing new.
    pub fn wait_for_room(&self) -> bool {
        self.sender.wait_below(UNSENT_BYTES_MAX);
        let s = self.state();
        let s = self.fewer.wait_while(s, |s| s.is_full());
        let s = s.expect("nobody panics while holding it");
        mark(&s.input).is_some_and(|(len, _)| {
            s.input.len() >= 4 + len || s.record.len() + len > RECORD_BYTES_MAX
        })
    }

    /// Is there a call that has not been answered?
    pub fn is_waiting(&self) -> bool {
        self.state().under_way > 0
    }

    /// The calls of the last `received` were entered: sends what has been answered.
    pub fn gathered(&self) {
        let out = {
            let mut s = self.state();
            s.gathering -= 1;
            if s.gathering > 0 {
                return; // somebody else is about to send it
            }
            std::mem::take(&mut s.out)
        };
        if !out.is_empty() {
            self.sender.send(out);
        }
    }

    fn one(&self, s: &mut State, record: &[u8], arrived: Instant, work: &mut Vec<(usize, Work)>) {
        let mut r = Reader(record);
        let head = match rpc::head(&mut r) {
            Ok(h) => h,
            Err(BadHead::NoCall) => return,
            Err(BadHead::Refuse(reply)) => return s.put(&reply),
        };
        let user = User { auth: head.auth.clone(), peer: self.peer };
        let begun = match head.program {
            rpc::MOUNT => mountd::begin(&self.server, &head, &mut r, &user),
            rpc::NFS => calls::begin(&self.server, &head, &mut r, &user),
            _ => return s.put(&rpc::refuse(head.xid, 1, None)),
        };
        let (pending, call) = match begun {
            Begun::Ask(both) => *both,
            Begun::Now(reply) => {
                if head.program == rpc::NFS {
                    self.count_error(head.procedure, "", &reply);
                }
                return s.put(&reply);
            }
        };
        let mut key = None;
        if modifies(pending.procedure) {
            let k = (self.peer.ip(), head.xid, checksum(&record[4..]));
            match self.server.drc.look(k, &self.me) {
                Known::New => key = Some(k),
                Known::UnderWay => {
                    self.server.metrics.duplicates.inc();
                    return;
                }
                Known::Answered(reply) => {
                    self.server.metrics.duplicates.inc();
                    return s.put(&reply);
                }
            }
        }
        let cost = cost(&call.request);
        let id = s.remember(Asked { pending, key, arrived, cost });
        self.server.metrics.in_flight.inc();
        let front = self.me.upgrade().expect("whoever feeds it holds it");
        work.push((pending.volume, Work::Call(Ticket { front, id }, call)));
    }

    /// Sends a reply, now or with the others that are being gathered.
    fn deliver(&self, mut s: MutexGuard<'_, State>, reply: &[u8]) {
        s.put(reply);
        if s.gathering > 0 {
            return;
        }
        let out = std::mem::take(&mut s.out);
        drop(s);
        self.sender.send(out);
    }

    /// Counts a reply whose nfsstat3, the first word after the head, is an error.
    fn count_error(&self, procedure: u32, export: &str, reply: &[u8]) {
        if let Some(&[a, b, c, d]) = reply.get(24..28)
            && reply[20..24] == [0; 4]
            && procedure != 0
        {
            let status = u32::from_be_bytes([a, b, c, d]);
            if status != 0 {
                self.server.metrics.error(procedure, export, status);
            }
        }
    }

    /// Counts a reply of a volume, and logs one that took long.
    fn count(&self, s: &mut State, asked: &Asked, reply: &[u8]) {
        let metrics = &self.server.metrics;
        metrics.in_flight.dec();
        let Pending { volume, procedure, durable, .. } = asked.pending;
        let export = (volume, self.server.volumes[volume].name.as_str());
        let took = asked.arrived.elapsed();
        s.meter.answered(metrics, export, procedure, took);
        if durable {
            s.meter.waited(metrics, export);
        }
        self.count_error(procedure, export.1, reply);
        if took >= SLOW {
            let (what, name) = (metrics::procedure(procedure), export.1);
            tracing::info!("slow: {what} of {} on /{name} took {} ms", self.peer, took.as_millis());
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.server.metrics.connections.dec();
    }
}

/// The length of the first fragment, and whether it is its record's last.
fn mark(input: &[u8]) -> Option<(usize, bool)> {
    let mark = u32::from_be_bytes(*input.first_chunk()?);
    Some(((mark & 0x7fff_ffff) as usize, mark & 0x8000_0000 != 0))
}

/// Bytes that a request may need until it is answered.
fn cost(request: &Request) -> usize {
    const LEAST: usize = 512;
    LEAST
        + match request {
            Request::Write { data, .. } => data.len(),
            Request::Read { len, .. } => (*len as usize).min(vfs::TRANSFER_BYTES_MAX),
            // An entry in memory takes more than its part of the reply.
            Request::ReadDir { max_bytes, .. } => 2 * max_bytes,
            _ => 0,
        }
}

impl State {
    fn is_full(&self) -> bool {
        self.under_way >= UNDER_WAY_MAX || self.bytes_under_way >= BYTES_UNDER_WAY_MAX
    }

    fn remember(&mut self, what: Asked) -> u64 {
        self.under_way += 1;
        self.bytes_under_way += what.cost;
        let at = self.asked.iter().position(Option::is_none).unwrap_or_else(|| {
            self.asked.push(None);
            self.asked.len() - 1
        });
        self.asked[at] = Some(what);
        at as u64
    }

    /// Appends a record to what is to be sent.
    fn put(&mut self, reply: &[u8]) {
        self.meter.sent.inc_by(reply.len() as u64 + 4);
        self.out.extend_from_slice(&(reply.len() as u32 | 0x8000_0000).to_be_bytes());
        self.out.extend_from_slice(reply);
    }
}

impl Front for Connection {
    fn gather(&self) {
        self.state().gathering += 1;
    }
    fn gathered(&self) {
        Connection::gathered(self);
    }
    fn reply(&self, id: u64, answer: Answer) {
        let asked = {
            let mut s = self.state();
            let known = s.asked[id as usize].take();
            let asked = known.expect("a call is answered once");
            let was_full = s.is_full();
            s.under_way -= 1;
            s.bytes_under_way -= asked.cost;
            if was_full {
                self.fewer.notify_all();
            }
            asked
        };
        let reply = finish(&self.server, asked.pending, answer);
        let waiting = asked.key.map_or_else(Vec::new, |k| self.server.drc.answered(k, &reply));
        let mut s = self.state();
        self.count(&mut s, &asked, &reply);
        self.deliver(s, &reply);
        for other in waiting.iter().filter_map(Weak::upgrade) {
            other.deliver(other.state(), &reply);
        }
    }
}
