//! One connection: bytes to records, records to calls, and the replies gathered for one write. It
//! is fed by whoever reads the socket, and answered by whichever thread leaves the volume.

use crate::drc::{Key, Known, checksum};
use crate::mountd;
use crate::procedures::{Begun, Pending, begin, finish, modifies};
use crate::rpc::{self, BadHead};
use crate::server::{Server, User};
use crate::xdr::Reader;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Weak};
use vfs::{Answer, Front, Ticket, Work};

/// The longest record: a write of the largest size and its head.
const RECORD_BYTES_MAX: usize = vfs::TRANSFER_BYTES_MAX + 4096;
/// Requests of one connection that may be under way.
const UNDER_WAY_MAX: usize = 256;

/// Sends bytes to the client; called when replies are ready, by any thread.
pub trait Sender: Send + Sync {
    /// All of these, in one write if possible.
    fn send(&self, bytes: Vec<u8>);
}

#[derive(Default)]
struct State {
    /// Bytes that are not a whole record yet, and the fragments of one that is not.
    input: Vec<u8>,
    record: Vec<u8>,
    out: Vec<u8>,
    pending: Vec<Option<(Pending, Option<Key>)>>,
    under_way: usize,
    /// While the reader gathers, replies wait for its one write.
    gathering: bool,
}

/// A connection.
pub struct Connection {
    me: Weak<Connection>,
    server: Arc<Server>,
    peer: SocketAddr,
    sender: Box<dyn Sender>,
    state: Mutex<State>,
}

impl Connection {
    /// A connection of `peer`, whose replies go to `sender`.
    pub fn new(server: Arc<Server>, peer: SocketAddr, sender: Box<dyn Sender>) -> Arc<Connection> {
        Arc::new_cyclic(|me| Connection {
            me: me.clone(),
            server,
            peer,
            sender,
            state: Mutex::default(),
        })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics while holding it")
    }

    /// Takes in what was read: the calls it makes, by volume. Err: nothing sensible can follow,
    /// close it.
    /// After the calls were entered, [`Connection::gathered`] sends what was answered meanwhile.
    pub fn received(&self, bytes: &[u8]) -> Result<Vec<(usize, Work)>, String> {
        let mut s = self.state();
        s.gathering = true;
        s.input.extend_from_slice(bytes);
        let mut work = Vec::new();
        let mut at = 0;
        while let Some(head) = s.input.get(at..at + 4) {
            let mark = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
            let len = (mark & 0x7fff_ffff) as usize;
            if s.record.len() + len > RECORD_BYTES_MAX {
                return Err(format!("a record of more than {RECORD_BYTES_MAX} bytes"));
            }
            let Some(fragment) = s.input.get(at + 4..at + 4 + len) else { break };
            let fragment = fragment.to_vec();
            s.record.extend_from_slice(&fragment);
            at += 4 + len;
            if mark & 0x8000_0000 != 0 {
                let record = std::mem::take(&mut s.record);
                self.one(&mut s, &record, &mut work);
            }
        }
        s.input.drain(..at);
        Ok(work)
    }

    /// Are so many requests under way that no more should be read?
    pub fn is_full(&self) -> bool {
        self.state().under_way >= UNDER_WAY_MAX
    }

    /// The calls of the last `received` were entered: sends what has been answered.
    pub fn gathered(&self) {
        let out = {
            let mut s = self.state();
            s.gathering = false;
            std::mem::take(&mut s.out)
        };
        if !out.is_empty() {
            self.sender.send(out);
        }
    }

    fn one(&self, s: &mut State, record: &[u8], work: &mut Vec<(usize, Work)>) {
        let mut r = Reader(record);
        let head = match rpc::head(&mut r) {
            Ok(h) => h,
            Err(BadHead::NoCall) => return,
            Err(BadHead::Refuse(reply)) => return put(&mut s.out, &reply),
        };
        match head.program {
            rpc::MOUNT => {
                let reply = mountd::answer(&self.server, &head, &mut r, self.peer);
                put(&mut s.out, &reply);
            }
            rpc::NFS => {
                let mut key = None;
                if modifies(head.procedure) && head.version == 3 {
                    let k = (self.peer.ip(), head.xid, checksum(&record[4..]));
                    match self.server.drc.look(k) {
                        Known::New => key = Some(k),
                        Known::UnderWay => return,
                        Known::Answered(reply) => return put(&mut s.out, &reply),
                    }
                }
                let user = User { auth: head.auth.clone(), peer: self.peer };
                match begin(&self.server, &head, &mut r, &user) {
                    Begun::Now(reply) => {
                        if let Some(k) = key {
                            self.server.drc.answered(k, &reply);
                        }
                        put(&mut s.out, &reply);
                    }
                    Begun::Ask(both) => {
                        let (pending, call) = *both;
                        let id = remember(s, (pending, key));
                        let front = self.me.upgrade().expect("whoever feeds it holds it");
                        work.push((pending.volume, Work::Call(Ticket { front, id }, call)));
                    }
                }
            }
            _ => put(&mut s.out, &rpc::refuse(head.xid, 1, None)),
        }
    }
}

fn remember(s: &mut State, what: (Pending, Option<Key>)) -> u64 {
    s.under_way += 1;
    let at = s.pending.iter().position(Option::is_none).unwrap_or_else(|| {
        s.pending.push(None);
        s.pending.len() - 1
    });
    s.pending[at] = Some(what);
    at as u64
}

/// Appends a record.
fn put(out: &mut Vec<u8>, reply: &[u8]) {
    out.extend_from_slice(&(reply.len() as u32 | 0x8000_0000).to_be_bytes());
    out.extend_from_slice(reply);
}

impl Front for Connection {
    fn reply(&self, id: u64, answer: Answer) {
        let known = {
            let mut s = self.state();
            s.under_way -= 1;
            s.pending[id as usize].take()
        };
        let (pending, key) = known.expect("a call is answered once");
        let reply = finish(&self.server, pending, answer);
        if let Some(k) = key {
            self.server.drc.answered(k, &reply);
        }
        let mut s = self.state();
        put(&mut s.out, &reply);
        if s.gathering {
            return;
        }
        let out = std::mem::take(&mut s.out);
        drop(s);
        self.sender.send(out);
    }
}
