//! A network in virtual time: an NFS client of another make and our server, each a task of one
//! engine, with two pipes of bytes between them. Nothing in it takes time but the disk.

use env::{Env, Piece};
use nfs::{Connection, Sender, Server};
use nfs3_client::io::{AsyncRead, AsyncWrite};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use vfs::{Call, Request, Stability, Volume, Work};

#[derive(Default)]
struct Inner {
    bytes: VecDeque<u8>,
    reader: Option<Waker>,
}

/// One direction.
#[derive(Clone, Default)]
pub(crate) struct Pipe(Arc<Mutex<Inner>>);

impl Pipe {
    fn put(&self, bytes: &[u8]) {
        let mut p = self.0.lock().unwrap();
        p.bytes.extend(bytes);
        if let Some(w) = p.reader.take() {
            w.wake();
        }
    }
    fn poll(&self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<usize> {
        let mut p = self.0.lock().unwrap();
        if p.bytes.is_empty() {
            p.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let n = into.len().min(p.bytes.len());
        into[..n].iter_mut().for_each(|b| *b = p.bytes.pop_front().expect("n of them are there"));
        Poll::Ready(n)
    }
}

impl Sender for Pipe {
    fn send(&self, pieces: Vec<Piece>) {
        pieces.iter().flat_map(Piece::parts).for_each(|part| self.put(part));
    }
}

/// The client's end of a connection.
#[derive(Clone, Default)]
pub(crate) struct Wire {
    to: Pipe,
    from: Pipe,
}

impl AsyncRead for Wire {
    async fn async_read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        Ok(poll_fn(|cx| self.from.poll(cx, buf)).await)
    }
}
impl AsyncWrite for Wire {
    async fn async_write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.to.put(buf);
        Ok(buf.len())
    }
}

/// Connects to the server, which asks the volume. With `hasty`, a planted bug, it asks for no
/// durability, and so answers too early.
pub(crate) fn connect(
    env: &Env,
    volume: &Rc<dyn Volume>,
    server: &Arc<Server>,
    hasty: bool,
) -> Wire {
    let wire = Wire::default();
    let peer = "127.0.0.1:700".parse().unwrap();
    let connection = Connection::new(server.clone(), peer, Box::new(wire.from.clone()));
    let (inbox, env, volume) = (wire.to.clone(), env.clone(), volume.clone());
    env.clone().spawn("server", async move {
        let mut room = vec![0; 4096];
        loop {
            let n = poll_fn(|cx| inbox.poll(cx, &mut room)).await;
            for (_, work) in connection.received(&room[..n]).expect("the client makes sense") {
                let Work::Call(ticket, call) = work else { continue };
                let call = if hasty { made_hasty(call) } else { call };
                let volume = volume.clone();
                env.spawn("call", async move {
                    let answer = volume.call(call).await;
                    ticket.front.reply(ticket.id, answer);
                });
            }
            connection.uncork();
        }
    });
    wire
}

fn made_hasty(call: Call) -> Call {
    let request = match call.request {
        Request::Write { ino, offset, data, append, kill_suid, .. } => {
            let stability = Stability::Unstable;
            Request::Write {
                ino,
                offset,
                data,
                stability,
                append,
                kill_suid,
                upto: vfs::WriteUpTo::OneOperation,
            }
        }
        Request::Fsync { ino, .. } => Request::GetAttr { ino },
        other => other,
    };
    Call { durable: false, request, ..call }
}
