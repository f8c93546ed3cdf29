//! A server and a volume in virtual time for clients that mean no good: bytes go in, and every
//! reply is held against the calls that are owed one. What is right, whoever uses it says.

#![allow(dead_code, reason = "no test needs all of it")]

use env::Piece;
use integrity::Plant;
use lab::{Setting, Subject, fresh};
use nfs::{Connection, Export, Sender, Served, Server};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use vfs::{Reply, Request, Work};
use volume::Mode;

pub(crate) const NFS: u32 = 100_003;
pub(crate) const MOUNT: u32 = 100_005;

#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);
impl Sender for Sink {
    fn send(&self, pieces: Vec<Piece>) {
        let mut all = self.0.lock().unwrap();
        pieces.iter().flat_map(Piece::parts).for_each(|part| all.extend(part));
    }
}

/// The server, its volume, and one connection at a time.
pub(crate) struct Bench {
    peer: SocketAddr,
    subject: Subject,
    server: Arc<Server>,
    connection: Arc<Connection>,
    sink: Sink,
    calls: u64,
}

fn connect(server: &Arc<Server>, peer: SocketAddr, sink: &Sink) -> Arc<Connection> {
    Connection::new(server.clone(), peer, Box::new(sink.clone()))
}

/// A word of a reply; none beyond its end.
pub(crate) fn word(reply: &[u8], nth: usize) -> Option<u32> {
    Some(u32::from_be_bytes(reply.get(4 * nth..4 * nth + 4)?.try_into().unwrap()))
}

/// A byte string as XDR has it.
pub(crate) fn opaque(bytes: &[u8]) -> Vec<u8> {
    let mut all = (bytes.len() as u32).to_be_bytes().to_vec();
    all.extend(bytes);
    all.resize(all.len().next_multiple_of(4), 0);
    all
}

pub(crate) fn words(all: &[u32]) -> Vec<u8> {
    all.iter().flat_map(|w| w.to_be_bytes()).collect()
}

/// A record of one fragment.
pub(crate) fn record(body: &[u8]) -> Vec<u8> {
    let mut all = (body.len() as u32 | 0x8000_0000).to_be_bytes().to_vec();
    all.extend(body);
    all
}

/// A call by root, with AUTH_SYS.
pub(crate) fn call(xid: u32, procedure: (u32, u32, u32), args: &[u8]) -> Vec<u8> {
    call_as((0, 0, &[]), xid, procedure, args)
}

/// A call by a user, his group and his further groups.
pub(crate) fn call_as(
    (uid, gid, groups): (u32, u32, &[u32]),
    xid: u32,
    (program, version, procedure): (u32, u32, u32),
    args: &[u8],
) -> Vec<u8> {
    let n = groups.len() as u32;
    let mut body = words(&[xid, 0, 2, program, version, procedure]);
    body.extend(words(&[1, 20 + 4 * n, 0, 0, uid, gid, n]));
    body.extend(words(groups));
    body.extend(words(&[0, 0]));
    body.extend(args);
    record(&body)
}

impl Bench {
    pub(crate) fn new() -> Bench {
        Bench::serving(Export::loopback(), "127.0.0.1:700")
    }

    /// Serves by these rules a client at this address.
    pub(crate) fn serving(exports: Vec<Export>, peer: &str) -> Bench {
        let setting = Setting::plain(Mode::by_name("sync").unwrap());
        let mut subject =
            Subject::open(vec![fresh(2 << 20, false)], setting, false, (Plant::NONE, 0)).unwrap();
        let info = match subject.ask(0, Request::Info) {
            Ok(Reply::Info(info)) => *info,
            other => panic!("{other:?}"),
        };
        let served = vec![Served { name: "v".into(), info }];
        let server = Arc::new(Server::new(served, exports, Arc::default()));
        let sink = Sink::default();
        let peer = peer.parse().unwrap();
        let connection = connect(&server, peer, &sink);
        Bench { peer, subject, server, connection, sink, calls: 1 }
    }

    /// Another connection in the place of this one.
    pub(crate) fn reconnect(&mut self) {
        self.connection = connect(&self.server, self.peer, &self.sink);
    }

    /// The same client from this address, over a new connection.
    pub(crate) fn reconnect_from(&mut self, peer: &str) {
        self.peer = peer.parse().unwrap();
        self.reconnect();
    }

    /// Feeds bytes, runs what they ask for, and gives the replies back. Err: the server wants no
    /// more of this connection, which is replaced.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        let mut next = bytes;
        loop {
            let work = match self.connection.received(next) {
                Ok(work) => work,
                Err(why) => {
                    self.reconnect();
                    self.sink.0.lock().unwrap().clear();
                    return Err(why);
                }
            };
            next = &[];
            for (volume, w) in work {
                assert_eq!(volume, 0);
                let Work::Call(ticket, call) = w else { panic!("only calls come from clients") };
                self.calls += 1;
                let answer = self.subject.call(self.calls, call);
                ticket.front.reply(ticket.id, answer);
            }
            self.connection.uncork();
            if !self.connection.wait_for_quota() {
                return Ok(self.replies());
            }
        }
    }

    /// A number that no call has had.
    pub(crate) fn next_xid(&mut self) -> u32 {
        self.calls += 1;
        1000 + self.calls as u32
    }

    /// Asks the volume itself.
    pub(crate) fn ask(&mut self, request: Request) -> Result<Reply, vfs::FsError> {
        self.calls += 1;
        self.subject.ask(self.calls, request)
    }

    fn replies(&self) -> Vec<Vec<u8>> {
        let all = std::mem::take(&mut *self.sink.0.lock().unwrap());
        let mut rest = &all[..];
        let mut replies = Vec::new();
        while let Some((mark, after)) = rest.split_first_chunk() {
            let len = (u32::from_be_bytes(*mark) & 0x7fff_ffff) as usize;
            assert!(len.is_multiple_of(4), "a reply of {len} bytes");
            assert!(mark[0] & 0x80 != 0 && len >= 20, "replies are one fragment, and whole");
            let (reply, more) = after.split_at(len);
            assert_eq!(word(reply, 1), Some(1), "a reply says that it is one");
            replies.push(reply.to_vec());
            rest = more;
        }
        assert!(rest.is_empty(), "bytes that are no record");
        replies
    }

    /// The one reply to one record.
    pub(crate) fn one(&mut self, record: &[u8]) -> Vec<u8> {
        let mut all = self.feed(record).unwrap();
        assert_eq!(all.len(), 1, "one call, one reply");
        all.pop().unwrap()
    }

    /// The root's handle, by MOUNT.
    pub(crate) fn root(&mut self) -> Vec<u8> {
        let reply = self.one(&call(1, (MOUNT, 3, 1), &opaque(b"/v")));
        assert_eq!(word(&reply, 6), Some(0));
        let len = word(&reply, 7).unwrap() as usize;
        reply[32..32 + len].to_vec()
    }
}
