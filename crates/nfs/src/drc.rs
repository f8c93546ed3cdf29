//! The duplicate-request cache: a request that comes again (the client saw no reply) is answered
//! with the reply that was given, and one that is under way is not begun again. Keyed by address
//! without port, XID and a checksum of the body; bounded.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Mutex;

/// Replies kept.
const KEPT: usize = 2048;
/// A longer reply is not kept; replies to modifications are all shorter.
const REPLY_BYTES_MAX: usize = 1024;

pub(crate) type Key = (IpAddr, u32, u64);

/// What is known of a request.
pub(crate) enum Known {
    /// New: it is now under way.
    New,
    /// Under way: its reply will come.
    UnderWay,
    /// Answered with this.
    Answered(Vec<u8>),
}

#[derive(Default)]
struct State {
    replies: HashMap<Key, Option<Vec<u8>>>,
    order: VecDeque<Key>,
}

#[derive(Default)]
pub(crate) struct Drc(Mutex<State>);

impl Drc {
    pub(crate) fn look(&self, key: Key) -> Known {
        let mut s = self.0.lock().expect("nobody panics while holding it");
        match s.replies.get(&key) {
            Some(Some(reply)) => return Known::Answered(reply.clone()),
            Some(None) => return Known::UnderWay,
            None => (),
        }
        s.replies.insert(key, None);
        s.order.push_back(key);
        if s.order.len() > KEPT
            && let Some(old) = s.order.pop_front()
        {
            s.replies.remove(&old);
        }
        Known::New
    }

    pub(crate) fn answered(&self, key: Key, reply: &[u8]) {
        let mut s = self.0.lock().expect("nobody panics while holding it");
        if reply.len() > REPLY_BYTES_MAX {
            s.replies.remove(&key);
        } else if let Some(slot) = s.replies.get_mut(&key) {
            *slot = Some(reply.to_vec());
        }
    }
}

/// A checksum of a request's body (FNV-1a over words).
pub(crate) fn checksum(body: &[u8]) -> u64 {
    body.chunks(8).fold(0xcbf2_9ce4_8422_2325, |h, c| {
        let mut w = [0; 8];
        w[..c.len()].copy_from_slice(c);
        (h ^ u64::from_le_bytes(w)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23)
    })
}
