//! NFSv3 and MOUNT v3 (RFC 1813), and NLM's refusal of locks, over one TCP connection each: bytes
//! in, calls to volumes out; answers in, bytes out. It knows no sockets (whoever has them feeds a
//! [`Connection`]) and no blocks.
//!
//! A record is decoded, checked against the exports, turned into one `vfs::Call`, and answered when
//! the volume has: in the order in which they end. Every modifying call but an UNSTABLE write asks
//! for durability (`Call::durable`), so that a reply is never better than the disk.

mod again;
mod answers;
mod args;
mod calls;
mod connection;
mod drc;
mod exports;
mod handle;
mod intake;
mod kept;
mod metrics;
mod mountd;
mod nfs3;
mod nlm;
mod quota;
mod replies;
mod rpc;
mod seldom;
mod server;
mod state;
mod xdr;

pub use connection::{Connection, Sender, Unfinished};
pub use exports::{Export, check_clients, doubt, parse_export};
pub use server::{Served, Server, Traffic};
