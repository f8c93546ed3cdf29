//! The lock manager's protocol (NLM versions 1, 3 and 4, X/Open's "Protocols for Interworking:
//! XNFS"), of which only the refusal is served: a client that asks for a lock is told at once that
//! there are none here, where silence would keep it waiting for ever. Nothing is remembered.

use crate::rpc::{self, Head};
use crate::xdr::Reader;

/// The longest cookie, in bytes.
const COOKIE_BYTES_MAX: usize = 1024;
/// `nlm4_stats`: granted, denied, and denied because the server has no locks to give.
const GRANTED: u32 = 0;
const DENIED: u32 = 1;
const DENIED_NOLOCKS: u32 = 2;

/// Answers a call.
pub(crate) fn answer(head: &Head, r: &mut Reader<'_>) -> Vec<u8> {
    if !matches!(head.version, 1 | 3 | 4) {
        return rpc::refuse(head.xid, 2, Some((1, 4)));
    }
    let tells: &[u32] = match head.procedure {
        // TEST, LOCK, NM_LOCK.
        1 | 2 | 22 => &[DENIED_NOLOCKS],
        // CANCEL, UNLOCK: what was never given is free. A client goes on asking otherwise.
        3 | 4 => &[GRANTED],
        // GRANTED: we wait for no lock.
        5 => &[DENIED],
        // SHARE and UNSHARE, with a sequence number.
        20 => &[DENIED_NOLOCKS, 0],
        21 => &[GRANTED, 0],
        // NULL, FREE_ALL, and messages, whose answers would be calls of ours.
        0 | 6..=15 | 23 => return rpc::success(head.xid).0,
        _ => return rpc::refuse(head.xid, 3, None),
    };
    if head.version == 1 && head.procedure > 15 {
        return rpc::refuse(head.xid, 3, None);
    }
    let Ok(cookie) = r.opaque(COOKIE_BYTES_MAX) else { return rpc::refuse(head.xid, 4, None) };
    let mut w = rpc::success(head.xid);
    w.opaque(cookie);
    w.words(tells);
    w.0
}
