//! The MOUNT protocol, version 3: a path becomes the handle of a volume's root, or of a folder in
//! it. Who has mounted what is not remembered; DUMP says so with an empty list.

use crate::calls::{Begun, MNT, Pending};
use crate::rpc::{self, Head, Refusal};
use crate::server::{Mounting, Server, User};
use crate::xdr::{Reader, Writer};
use vfs::{Call, Request};

/// The longest path (RFC 1813, MNTPATHLEN).
const PATH_BYTES_MAX: usize = 1024;

/// Its procedures (RFC 1813, 5.2).
mod procedure {
    pub(super) const NULL: u32 = 0;
    pub(super) const MNT: u32 = 1;
    pub(super) const DUMP: u32 = 2;
    pub(super) const UMNT: u32 = 3;
    pub(super) const UMNTALL: u32 = 4;
    pub(super) const EXPORT: u32 = 5;
}

/// Begins a call.
pub(crate) fn begin(server: &Server, head: &Head, r: &mut Reader<'_>, user: &User) -> Begun {
    if head.version == 3 && head.procedure == procedure::MNT {
        return match r.opaque(PATH_BYTES_MAX) {
            Ok(path) => mount(server, head.xid, path, user),
            Err(_) => Begun::Now(rpc::refuse(head.xid, Refusal::GarbageArguments)),
        };
    }
    Begun::Now(answer(server, head, r))
}

fn mount(server: &Server, xid: u32, path: &[u8], user: &User) -> Begun {
    let mut w = rpc::success(xid);
    match server.mounting(path, user) {
        Err(status) => w.u32(status),
        Ok(Mounting::Root(handle)) => {
            w.u32(0);
            mounted(&mut w, &handle);
        }
        Ok(Mounting::Below { volume, root, path, cred }) => {
            let expect = [Some(root), None];
            let request = Request::Walk { dir: root.0, path };
            let call = Call { cred, expect, ..Call::local(request) };
            return Begun::Ask(Box::new((Pending::new(xid, MNT, volume), call)));
        }
    }
    Begun::Now(w.0)
}

/// What follows the status: the handle, and two flavours, AUTH_SYS and AUTH_NONE.
pub(crate) fn mounted(w: &mut Writer, handle: &[u8]) {
    w.opaque(handle);
    w.words(&[2, 1, 0]);
}

fn answer(server: &Server, head: &Head, r: &mut Reader<'_>) -> Vec<u8> {
    if head.version != 3 && !(head.procedure == procedure::NULL && head.version <= 3) {
        return rpc::refuse(head.xid, Refusal::VersionMismatch(3, 3));
    }
    let mut w = rpc::success(head.xid);
    match head.procedure {
        procedure::NULL | procedure::UMNTALL => (),
        procedure::DUMP => w.bool(false),
        procedure::UMNT => {
            if r.opaque(PATH_BYTES_MAX).is_err() {
                return rpc::refuse(head.xid, Refusal::GarbageArguments);
            }
        }
        procedure::EXPORT => {
            for name in server.names() {
                w.bool(true);
                w.opaque(format!("/{name}").as_bytes());
                w.bool(false);
            }
            w.bool(false);
        }
        _ => return rpc::refuse(head.xid, Refusal::ProcedureUnavailable),
    }
    w.0
}
