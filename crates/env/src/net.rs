//! Connections: what a server of a byte protocol may ask of a network, and what a world asks of it.
//! A world (`host` with sockets, `sim` with pipes in virtual time) brings bytes and takes bytes
//! away; the server decodes and encodes. Neither waits for the other, and this file does not know
//! what the work is.
//!
//! How one round goes. A thread of the world finds that bytes have come for some of its
//! connections. It hands each [`Conn`] its bytes ([`Conn::received`]), which pushes work for
//! volumes, any number of requests from one piece of bytes. Then the thread enters each volume once
//! with all of it. The answers come out on whatever thread leaves the volume with them, in the
//! order of their completion; the server encodes each and gives it to the connection's [`Line`].
//! When the thread has handed out all answers of that entry, the world sends what has gathered on
//! each line, in one write.
//!
//! In `host` the work `W` is `(usize, vfs::Work)`, the number of the volume and the call, whose
//! ticket names a `vfs::Front` of the server's: usually one for each connection, which holds the
//! `Arc<dyn Line>`.
//!
//! Back-pressure. A world reads from a connection only while [`Conn::wants_more`] says so and while
//! less than its own limit of bytes waits unsent on the line. It asks again after every
//! `Line::send`, so a server that counts requests in flight counts down before it sends the answer.
//! Connections on which nothing has come for the world's idle time and that are owed nothing are
//! closed.

use crate::{Now, Rope};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// Why a connection has to end: a sentence for the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NetError(pub String);

impl fmt::Display for NetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::error::Error for NetError {}

/// The way out of one connection. It may be used from any thread, also after the connection has
/// ended: then what is sent goes nowhere.
pub trait Line: Send + Sync {
    /// Sends `head` and, after it, `body`, as one message: no other message comes between. It never
    /// waits. The head is copied; the body is kept as it is until it is sent.
    fn send(&self, head: &[u8], body: Rope);
    /// Ends the connection once all that was sent has gone.
    fn close(&self);
}

/// The server's half of one connection. One thread at a time has it.
pub trait Conn<W>: Send {
    /// Bytes as they came: in order, cut anywhere, at least one. All are consumed; what is not a
    /// whole request yet, the connection keeps. Err ends the connection, with a line in the log.
    fn received(&mut self, bytes: &[u8], now: Now, work: &mut Vec<W>) -> Result<(), NetError>;
    /// May more bytes be read? Work that is pushed already is done all the same.
    fn wants_more(&self) -> bool {
        true
    }
    /// Is an answer still to come? An idle connection without one is closed.
    fn is_busy(&self) -> bool {
        false
    }
    /// The connection has ended, whoever ended it. Work in flight goes on.
    fn closed(&mut self) {}
}

/// What listens at an address.
pub trait Service<W>: Send + Sync {
    /// Somebody has connected. None refuses.
    fn accept(&self, peer: SocketAddr, line: Arc<dyn Line>) -> Option<Box<dyn Conn<W>>>;
}
