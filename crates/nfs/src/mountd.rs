//! The MOUNT protocol, version 3: a path becomes the handle of a volume's root. Who has mounted
//! what is not remembered; DUMP says so with an empty list.

use crate::rpc::{self, Head};
use crate::server::Server;
use crate::xdr::Reader;
use std::net::SocketAddr;

/// Answers a call.
pub(crate) fn answer(
    server: &Server,
    head: &Head,
    r: &mut Reader<'_>,
    peer: SocketAddr,
) -> Vec<u8> {
    if head.version != 3 && !(head.procedure == 0 && head.version <= 3) {
        return rpc::refuse(head.xid, 2, Some((3, 3)));
    }
    let mut w = rpc::success(head.xid);
    match head.procedure {
        0 | 4 => (),
        1 => {
            let Ok(path) = r.opaque(1024) else { return rpc::refuse(head.xid, 4, None) };
            match server.root_handle(&String::from_utf8_lossy(path), peer) {
                Ok(handle) => {
                    w.u32(0);
                    w.opaque(&handle);
                    w.words(&[2, 1, 0]); // two flavours: AUTH_SYS, AUTH_NONE
                }
                Err(status) => w.u32(status),
            }
        }
        2 => w.bool(false),
        3 => {
            if r.opaque(1024).is_err() {
                return rpc::refuse(head.xid, 4, None);
            }
        }
        5 => {
            for name in server.names() {
                w.bool(true);
                w.opaque(format!("/{name}").as_bytes());
                w.bool(false);
            }
            w.bool(false);
        }
        _ => return rpc::refuse(head.xid, 3, None),
    }
    w.0
}
