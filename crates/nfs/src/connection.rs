//! One connection: bytes to records, records to calls, and the replies gathered for one write. It
//! is fed by whoever reads the socket, and answered by whichever thread leaves the volume.

use crate::again;
use crate::answers::finish;
use crate::calls::{self, Begun, Pending};
use crate::drc::{Key, Known, Source, checksum};
use crate::intake::Share;
use crate::metrics::{self, Meter};
use crate::mountd;
use crate::nfs3;
use crate::nlm;
use crate::quota::{self, Quota};
use crate::rpc::{self, BadHead, Head, Refusal};
use crate::server::{Server, User};
use crate::state::{Asked, RECORD_BYTES_MAX, State, mark};
use crate::xdr::Reader;
use env::Piece;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};
use vfs::{Answer, Cred, Front, Ticket, Work};

/// A request that takes longer is logged.
const SLOW: Duration = Duration::from_millis(500);

/// Sends bytes to the client; called when replies are ready, by any thread.
pub trait Sender: Send + Sync {
    /// All of these, in one write if possible; without waiting for the client.
    fn send(&self, pieces: Vec<Piece>);
    /// Bytes that this client has not taken.
    fn unsent(&self) -> usize {
        0
    }
    /// The same of all clients.
    fn unsent_everywhere(&self) -> usize {
        0
    }
    /// Waits until less than this is unsent here, or nothing ever will be.
    fn wait_below(&self, _bytes: usize) {}
}

/// A record of which a part has come, and not its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unfinished {
    /// How many records came before it.
    pub number: u64,
    /// How much of it is missing, as far as is known.
    pub missing_bytes: usize,
    /// Does another connection wait for the memory that it takes?
    pub in_the_way: bool,
}

/// A connection.
pub struct Connection {
    me: Weak<Connection>,
    server: Arc<Server>,
    peer: SocketAddr,
    since: Instant,
    sender: Box<dyn Sender>,
    state: Mutex<State>,
    /// The connection holds less than before.
    quota_freed: Condvar,
}

impl Connection {
    /// A connection of `peer`, whose replies go to `sender`.
    pub fn new(server: Arc<Server>, peer: SocketAddr, sender: Box<dyn Sender>) -> Arc<Connection> {
        let meter = Meter::new(&server.metrics, peer.ip());
        let share = Share::new(&server.intake);
        let state = State::new(Quota::new(&server.held), share, meter);
        server.metrics.connections.inc();
        let state = Mutex::new(state);
        Arc::new_cyclic(|me| Connection {
            me: me.clone(),
            server,
            peer,
            since: Instant::now(),
            sender,
            state,
            quota_freed: Condvar::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics while holding it")
    }

    /// Takes in what was read: the calls it makes, by volume, as many as may be under way; the rest
    /// is kept, see [`Connection::wait_for_quota`]. Err: nothing sensible can follow, close it.
    /// After the calls were entered, [`Connection::uncork`] sends what was answered meanwhile.
    pub fn received(&self, bytes: &[u8]) -> Result<Vec<(usize, Work)>, String> {
        let arrived = Instant::now();
        let mut s = self.state();
        if s.is_starved {
            return Err("there was no memory for a request in time".into());
        }
        s.corks += 1;
        s.meter.received.inc_by(bytes.len() as u64);
        // Taken out, so that a record of one fragment is read where it lies.
        let mut input = std::mem::take(&mut s.input);
        input.extend_from_slice(bytes);
        let mut work = Vec::new();
        let mut at = 0;
        let unsent = self.sender.unsent();
        while !s.quota.is_full(unsent, || self.sender.unsent_everywhere()) {
            let Some((len, last)) = mark(&input[at..]) else { break };
            if s.record.len() + len > RECORD_BYTES_MAX {
                if !work.is_empty() {
                    break; // what came before is answered; the next look ends the connection
                }
                return Err(format!("a record of more than {RECORD_BYTES_MAX} bytes"));
            }
            let Some(fragment) = input.get(at + 4..at + 4 + len) else { break };
            at += 4 + len;
            s.records += u64::from(last);
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
        s.keep(input, at);
        Ok(work)
    }

    /// Waits until the limits let the connection go on, and tells whether a whole request is left
    /// of what was received before: then `received` is to be called with nothing new.
    pub fn wait_for_quota(&self) -> bool {
        loop {
            let mut s = self.state();
            // Under the lock of the state, so that no bytes pass from quota to sender meanwhile.
            let unsent = self.sender.unsent();
            if !s.quota.is_full(unsent, || self.sender.unsent_everywhere()) {
                return s.has_more() || !self.has_memory(s);
            }
            if s.quota.is_empty() {
                drop(s);
                self.sender.wait_below(unsent);
                continue;
            }
            s.waits = true;
            let s = self.quota_freed.wait_while(s, |s| s.waits);
            drop(s.expect("nobody panics while holding it"));
        }
    }

    /// Takes the memory for the record that has begun, waiting for it. Only whoever reads the
    /// socket comes here, so the record is the same afterwards.
    fn has_memory(&self, s: MutexGuard<'_, State>) -> bool {
        let missing = s.share.missing(s.needed());
        if missing == 0 {
            return true;
        }
        drop(s);
        let has = self.server.intake.take(missing);
        let mut s = self.state();
        match has {
            true => s.make_room(missing),
            false => s.is_starved = true,
        }
        has
    }

    /// The record of which a part has come, and not its end.
    pub fn unfinished(&self) -> Option<Unfinished> {
        let s = self.state();
        (!s.input.is_empty() || !s.record.is_empty()).then(|| Unfinished {
            number: s.records,
            missing_bytes: s.missing_bytes(),
            in_the_way: s.share.is_in_the_way(),
        })
    }

    /// Is there a call that has not been answered?
    pub fn is_waiting(&self) -> bool {
        self.state().quota.calls() > 0
    }

    /// The calls of the last `received` were entered: sends what has been answered.
    pub fn uncork(&self) {
        let mut s = self.state();
        assert!(s.corks > 0, "replies are uncorked that were not corked");
        s.corks -= 1;
        if s.corks == 0 {
            self.send(s); // else whoever uncorks last does
        }
    }

    /// Sends all replies that wait.
    fn send(&self, mut s: MutexGuard<'_, State>) {
        let out = s.take_out();
        if out.pieces.is_empty() {
            return;
        }
        drop(s);
        self.sender.send(out.pieces);
        let mut s = self.state();
        s.quota.release(out.cost);
        if std::mem::take(&mut s.waits) {
            self.quota_freed.notify_all();
        }
    }

    fn one(&self, s: &mut State, record: &[u8], arrived: Instant, work: &mut Vec<(usize, Work)>) {
        let mut r = Reader(record);
        let head = match rpc::head(&mut r) {
            Ok(h) => h,
            Err(BadHead::NoCall) => return,
            Err(BadHead::Refuse(reply)) => return s.put_new(&reply),
        };
        let user = User { auth: head.auth.clone(), peer: self.peer };
        let begun = match head.program {
            rpc::MOUNT => mountd::begin(&self.server, &head, &mut r, &user),
            rpc::NFS => calls::begin(&self.server, &head, &mut r, &user),
            rpc::NLM => Begun::Now(nlm::answer(&head, &mut r)),
            _ => return s.put_new(&rpc::refuse(head.xid, Refusal::ProgramUnavailable)),
        };
        let (pending, mut call) = match begun {
            Begun::Ask(both) => *both,
            Begun::Now(reply) => {
                if head.program == rpc::NFS {
                    self.count_error(head.procedure, "", &reply);
                }
                return s.put_new(&reply);
            }
        };
        let mut key = None;
        if nfs3::modifies(pending.procedure) && pending.refused.is_none() {
            let k = self.key(&head, &call.cred, record);
            let from = Source { connection: &self.me, since: self.since };
            match self.server.drc.look(&k, &from) {
                Known::New => {
                    let again = &self.server.again[pending.volume];
                    call.note = again.note(&k);
                    if again.is_done(call.note) {
                        self.server.metrics.duplicates.inc();
                        call = again::instead(call);
                    }
                    key = Some(k);
                }
                Known::Apart => (),
                Known::UnderWay => {
                    self.server.metrics.duplicates.inc();
                    return;
                }
                Known::Answered(reply) => {
                    self.server.metrics.duplicates.inc();
                    return s.put_new(&reply);
                }
            }
        }
        if s.quota.is_scarce(|| self.sender.unsent_everywhere()) {
            quota::be_modest(&mut call.request);
        }
        let cost = quota::cost(&call.request);
        let id = s.remember(Asked { pending, key, arrived, cost });
        self.server.metrics.in_flight.inc();
        let front = self.me.upgrade().expect("whoever feeds it holds it");
        work.push((pending.volume, Work::Call(Ticket { front, id }, call)));
    }

    /// What the request is known by if it comes again.
    fn key(&self, head: &Head, cred: &Cred, record: &[u8]) -> Key {
        let who = [cred.uid, cred.gid].into_iter().chain(cred.groups.iter().copied());
        Key {
            client: self.peer.ip(),
            xid: head.xid,
            procedure: head.procedure,
            who: who.collect(),
            body: checksum(&record[4..]),
        }
    }

    /// Sends what waits, unless more is being gathered.
    fn deliver(&self, s: MutexGuard<'_, State>) {
        if s.corks == 0 {
            self.send(s);
        }
    }

    /// Counts a reply whose nfsstat3, the first word after the head, is an error, and tells
    /// whether it is.
    fn count_error(&self, procedure: u32, export: &str, reply: &[u8]) -> bool {
        if let Some(&[a, b, c, d]) = reply.get(24..28)
            && reply[20..24] == [0; 4]
            && procedure != nfs3::NULL
        {
            let status = u32::from_be_bytes([a, b, c, d]);
            if status != 0 {
                self.server.metrics.error(procedure, export, status);
            }
            return status != 0;
        }
        false
    }

    /// Counts a reply of a volume, and logs one that took long.
    fn count(&self, s: &mut State, asked: &Asked, reply: &[u8]) {
        let metrics = &self.server.metrics;
        let in_flight = metrics.in_flight.dec();
        assert!(in_flight > 0, "N2: a request is answered, and {in_flight} were in flight");
        let Pending { volume, procedure, durable, .. } = asked.pending;
        let export = (volume, self.server.volumes[volume].name.as_str());
        let failed = self.count_error(procedure, export.1, reply);
        let took = s.meter.answered(metrics, export, procedure, (asked.arrived, failed));
        if durable {
            s.meter.waited(metrics, export);
        }
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

impl Front for Connection {
    fn cork(&self) {
        self.state().corks += 1;
    }
    fn uncork(&self) {
        Connection::uncork(self);
    }
    fn reply(&self, id: u64, answer: Answer) {
        let mut asked = self.state().answered(id);
        let reply = finish(&self.server, asked.pending, answer);
        let volume = asked.pending.volume;
        let keep = |k| {
            let behind = reply.1.len();
            assert_eq!(behind, 0, "D5: {behind} bytes of a reply would not be kept");
            self.server.drc.answered(k, volume, &reply.0)
        };
        let waiting = asked.key.take().map_or_else(Vec::new, keep);
        for other in waiting.iter().filter_map(Weak::upgrade) {
            let mut s = other.state();
            s.put_new(&reply.0);
            other.deliver(s);
        }
        let mut s = self.state();
        self.count(&mut s, &asked, &reply.0);
        s.put(reply, asked.cost);
        self.deliver(s);
    }
}
