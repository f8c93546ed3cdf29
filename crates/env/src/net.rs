//! Byte streams between machines: what a server may ask of a network. `host` gives sockets, `sim` gives pipes
//! in virtual time, so that client and server also run in one virtual run.

use crate::Local;
use std::fmt;

/// A stream failed or ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NetError(pub String);

impl fmt::Display for NetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::error::Error for NetError {}

/// One connection.
pub trait Stream {
    /// Some bytes, at most `max`; empty at the end of the stream.
    fn recv(&self, max: usize) -> Local<'_, Result<Vec<u8>, NetError>>;
    /// Sends all of it.
    fn send(&self, bytes: Vec<u8>) -> Local<'_, Result<(), NetError>>;
    /// The other side's address and port, as text.
    fn peer(&self) -> String;
}

/// Where connections arrive.
pub trait Listener {
    /// The next connection.
    fn accept(&self) -> Local<'_, Result<Box<dyn Stream>, NetError>>;
}
