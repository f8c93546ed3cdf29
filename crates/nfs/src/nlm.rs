//! The lock manager's protocol (NLM versions 1, 3 and 4, X/Open's "Protocols for Interworking:
//! XNFS"), of which only the refusal is served: a client that asks for a lock is told at once that
//! there are none here, where silence would keep it waiting for ever. Nothing is remembered.

use crate::rpc::{self, Head, Refusal};
use crate::xdr::Reader;

/// The longest cookie, in bytes.
const COOKIE_BYTES_MAX: usize = 1024;
/// `nlm4_stats`: granted, denied, and denied because the server has no locks to give.
const GRANTED: u32 = 0;
const DENIED: u32 = 1;
const DENIED_NOLOCKS: u32 = 2;

/// Its procedures. The messages, from `TEST_MSG` on, are answered by calls back, if at all.
mod procedure {
    pub(super) const NULL: u32 = 0;
    pub(super) const TEST: u32 = 1;
    pub(super) const LOCK: u32 = 2;
    pub(super) const CANCEL: u32 = 3;
    pub(super) const UNLOCK: u32 = 4;
    pub(super) const GRANTED: u32 = 5;
    pub(super) const TEST_MSG: u32 = 6;
    pub(super) const GRANTED_RES: u32 = 15;
    pub(super) const SHARE: u32 = 20;
    pub(super) const UNSHARE: u32 = 21;
    pub(super) const NM_LOCK: u32 = 22;
    pub(super) const FREE_ALL: u32 = 23;
}

/// Answers a call.
pub(crate) fn answer(head: &Head, r: &mut Reader<'_>) -> Vec<u8> {
    if !matches!(head.version, 1 | 3 | 4) {
        return rpc::refuse(head.xid, Refusal::VersionMismatch(1, 4));
    }
    let tells: &[u32] = match head.procedure {
        procedure::TEST | procedure::LOCK | procedure::NM_LOCK => &[DENIED_NOLOCKS],
        // What was never given is free. A client goes on asking otherwise.
        procedure::CANCEL | procedure::UNLOCK => &[GRANTED],
        // We wait for no lock.
        procedure::GRANTED => &[DENIED],
        // With a sequence number.
        procedure::SHARE => &[DENIED_NOLOCKS, 0],
        procedure::UNSHARE => &[GRANTED, 0],
        // And messages, whose answers would be calls of ours.
        procedure::NULL | procedure::FREE_ALL | procedure::TEST_MSG..=procedure::GRANTED_RES => {
            return rpc::success(head.xid).0;
        }
        _ => return rpc::refuse(head.xid, Refusal::ProcedureUnavailable),
    };
    if head.version == 1 && head.procedure > procedure::GRANTED_RES {
        return rpc::refuse(head.xid, Refusal::ProcedureUnavailable);
    }
    let Ok(cookie) = r.opaque(COOKIE_BYTES_MAX) else {
        return rpc::refuse(head.xid, Refusal::GarbageArguments);
    };
    let mut w = rpc::success(head.xid);
    w.opaque(cookie);
    w.words(tells);
    w.0
}
