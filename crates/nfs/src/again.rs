//! Requests that the server before this one has done, and that come again because the client saw no
//! reply: that server died, and this one has the volume now. A store that can keeps a note of each
//! request with its change, so that both are found or neither; what was noted is not done again,
//! but answered with how things are now. See `drc` for requests that this server has answered
//! itself.
//!
//! Invariants:
//! * G1. What was done is only looked at, and nothing is noted or made durable for it once more.

use crate::drc::Key;
use crate::nfs3;
use siphasher::sip128::SipHasher24;
use std::collections::HashSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};
use vfs::{Call, Request, VolumeInfo};

/// Notes are believed for so long: a client that sees no reply asks again sooner, also if it has to
/// find the new server first.
const BELIEVED: Duration = Duration::from_secs(300);

/// What was done on one volume.
pub(crate) struct Again {
    /// None: the volume keeps no notes.
    done: Option<HashSet<u128>>,
    until: Instant,
    key: [u8; 16],
}

impl Again {
    pub(crate) fn of(info: &VolumeInfo) -> Again {
        let done = info.done.as_ref().map(|all| all.iter().copied().collect());
        Again { done, until: Instant::now() + BELIEVED, key: info.handle_key }
    }

    /// What the request is noted as. None: there are no notes, or it may be done twice.
    pub(crate) fn note(&self, key: &Key) -> Option<u128> {
        if self.done.is_none() || key.procedure == nfs3::WRITE {
            return None;
        }
        let mut bytes = match key.client {
            IpAddr::V4(a) => a.octets().to_vec(),
            IpAddr::V6(a) => a.octets().to_vec(),
        };
        for word in [key.xid, key.procedure].iter().chain(key.who.iter()) {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(key.body.to_le_bytes());
        Some(SipHasher24::new_with_key(&self.key).hash(&bytes).as_u128())
    }

    pub(crate) fn is_done(&self, note: Option<u128>) -> bool {
        let known = |note| self.done.as_ref().is_some_and(|all| all.contains(&note));
        note.is_some_and(known) && Instant::now() < self.until
    }
}

/// What is asked instead, so that the answer is one to the call that was done.
pub(crate) fn instead(call: Call) -> Call {
    let Call { mut expect, request, .. } = call;
    let request = match request {
        Request::Make { dir, name, .. } => Request::Lookup { dir, name },
        Request::Link { dir, name, .. } => {
            expect.swap(0, 1); // as their attributes are told
            Request::Lookup { dir, name }
        }
        Request::Unlink { dir, .. } | Request::Rmdir { dir, .. } | Request::Rename { dir, .. } => {
            Request::GetAttr { ino: dir }
        }
        Request::SetAttr { ino, .. } => Request::GetAttr { ino },
        other => other,
    };
    let looks = matches!(request, Request::Lookup { .. } | Request::GetAttr { .. });
    assert!(looks, "G1: {request:?} was done, and would be done again");
    Call { durable: false, note: None, expect, request, ..call }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfs::RenameMode;

    fn key(xid: u32, procedure: u32) -> Key {
        let client = IpAddr::from([10, 0, 0, 1]);
        Key { client, xid, procedure, who: [0, 0].into(), body: 7 }
    }

    fn again(done: &[u128]) -> Again {
        let done = Some(done.iter().copied().collect());
        Again { done, until: Instant::now() + BELIEVED, key: [3; 16] }
    }

    #[test]
    fn what_was_noted_is_known_and_nothing_else() {
        let note = again(&[]).note(&key(1, nfs3::CREATE));
        let known = again(&note.into_iter().collect::<Vec<_>>());
        assert!(known.is_done(known.note(&key(1, nfs3::CREATE))));
        let others = [
            key(2, nfs3::CREATE),
            key(1, nfs3::MKDIR),
            Key { body: 8, ..key(1, nfs3::CREATE) },
            Key { who: [1, 0].into(), ..key(1, nfs3::CREATE) },
            Key { who: [0, 0, 0].into(), ..key(1, nfs3::CREATE) },
            Key { client: IpAddr::from([10, 0, 0, 2]), ..key(1, nfs3::CREATE) },
        ];
        assert!(others.iter().all(|k| !known.is_done(known.note(k))));
        assert_eq!(known.note(&key(1, nfs3::WRITE)), None, "it may be done twice");
        let old = Again { until: Instant::now(), ..known };
        assert!(!old.is_done(note));
        let none = Again { done: None, until: Instant::now() + BELIEVED, key: [3; 16] };
        assert_eq!(none.note(&key(1, nfs3::CREATE)), None, "the volume keeps none");
    }

    #[test]
    fn what_was_done_is_looked_at() {
        let call = |request| Call { durable: true, note: Some(1), ..Call::local(request) };
        let name = || b"a".to_vec();
        let expect = [Some((7, 1)), Some((8, 2))];
        let link = Call { expect, ..call(Request::Link { ino: 7, dir: 8, name: name() }) };
        let link = instead(link);
        assert!(matches!(&link.request, Request::Lookup { dir: 8, name } if name == b"a"));
        assert_eq!(link.expect, [expect[1], expect[0]]);
        let mode = RenameMode::Replace;
        let (dir, to_dir, to_name) = (7, 8, name());
        let rename = Request::Rename { dir, name: name(), to_dir, to_name, mode };
        for request in [Request::Unlink { dir, name: name() }, rename] {
            let done = instead(call(request));
            assert!(matches!(done.request, Request::GetAttr { ino: 7 }));
            assert!(!done.durable && done.note.is_none());
        }
    }
}
