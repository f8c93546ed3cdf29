//! The duplicate-request cache: a request that comes again (the client saw no reply) is answered
//! with the reply that was given, and one that is under way is not begun again but waited for.
//! Keyed by address without port, XID, procedure, who asks, and a checksum of the body, so that
//! nobody is given a reply to what another was allowed; bounded. The last seconds of it go from one
//! server to the next, see [`crate::kept`].

use crate::kept::Kept;
use crate::nfs3;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

/// Replies kept for one client: more than it can have under way (connections have limits), so that
/// whatever it asks again after a lost connection is there, however busy others are meanwhile.
const KEPT_OF_ONE: usize = 2048;
/// Replies kept for all, a few MiB of memory.
const KEPT: usize = 16_384;
/// A longer reply is not kept; replies to modifications are all shorter.
pub(crate) const REPLY_BYTES_MAX: usize = 1024;
/// Connections that may wait for one reply; from more, the request has to come again.
const WAITERS_MAX: usize = 4;

/// What tells a request from all others.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Key {
    pub(crate) client: IpAddr,
    pub(crate) xid: u32,
    pub(crate) procedure: u32,
    /// As whom it is done: user, group and further groups, after squashing.
    pub(crate) who: Arc<[u32]>,
    /// A checksum of all that follows the XID.
    pub(crate) body: u64,
}

/// What is known of a request.
pub(crate) enum Known {
    /// New: it is now under way.
    New,
    /// Under way: its reply will come to this connection, too.
    UnderWay,
    /// Answered with this.
    Answered(Arc<[u8]>),
}

enum Entry<C> {
    /// Connections that get the reply: the first asked, the others asked again.
    UnderWay(Vec<Weak<C>>),
    Answered {
        reply: Arc<[u8]>,
        volume: usize,
        at: Instant,
    },
}

struct State<C> {
    /// Requests under way, which connections bound, and replies that are kept.
    requests: HashMap<Key, Entry<C>>,
    clients: HashMap<IpAddr, Answered>,
    /// Whose reply was kept, in the order in which they were.
    order: VecDeque<IpAddr>,
    kept: usize,
}

/// A client's requests that are answered and kept.
#[derive(Default)]
struct Answered {
    /// The oldest first.
    keys: VecDeque<Key>,
    /// So many are still in `State::order` and were forgotten before their turn.
    forgotten: usize,
}

impl<C> State<C> {
    fn keep(&mut self, key: Key, reply: &[u8], volume: usize, at: Instant) {
        let client = key.client;
        let entry = Entry::Answered { reply: reply.into(), volume, at };
        let old = self.requests.insert(key.clone(), entry);
        assert!(old.is_none(), "request {:#x} of {client} is answered twice", key.xid);
        self.kept += 1;
        self.order.push_back(client);
        let mine = self.clients.entry(client).or_default();
        mine.keys.push_back(key);
        if mine.keys.len() > KEPT_OF_ONE {
            mine.forgotten += 1;
            self.forget(client);
        }
        while self.kept > KEPT {
            let whose = self.order.pop_front().expect("each that is kept has a place in it");
            if !self.passed_over(whose) {
                self.forget(whose);
            }
        }
        assert!(self.kept <= self.requests.len(), "{} replies are said to be kept", self.kept);
        if self.order.len() > 2 * KEPT {
            let mut order = std::mem::take(&mut self.order);
            order.retain(|whose| !self.passed_over(*whose));
            self.order = order;
        }
    }

    /// Forgets a client's oldest reply.
    fn forget(&mut self, whose: IpAddr) {
        let Some(client) = self.clients.get_mut(&whose) else { return };
        if let Some(old) = client.keys.pop_front() {
            let known = self.requests.remove(&old).is_some();
            assert!(known && self.kept > 0, "a reply is forgotten that was not kept");
            self.kept -= 1;
        }
        if client.keys.is_empty() && client.forgotten == 0 {
            self.clients.remove(&whose);
        }
    }

    /// Does this place in the order, the client's first, stand for a reply that was forgotten
    /// before its turn? The place is gone then.
    fn passed_over(&mut self, whose: IpAddr) -> bool {
        let client = self.clients.get_mut(&whose).filter(|c| c.forgotten > 0);
        client.map(|c| c.forgotten -= 1).is_some()
    }
}

/// The cache, for connections of type `C`.
pub(crate) struct Drc<C>(Mutex<State<C>>);

impl<C> Default for Drc<C> {
    fn default() -> Drc<C> {
        Drc(Mutex::new(State {
            requests: HashMap::new(),
            clients: HashMap::new(),
            order: VecDeque::new(),
            kept: 0,
        }))
    }
}

impl<C> Drc<C> {
    fn state(&self) -> std::sync::MutexGuard<'_, State<C>> {
        self.0.lock().expect("nobody panics while holding it")
    }

    /// Looks for a request that came over this connection.
    pub(crate) fn look(&self, key: &Key, from: &Weak<C>) -> Known {
        let mut s = self.state();
        match s.requests.get_mut(key) {
            Some(Entry::Answered { reply, .. }) => return Known::Answered(reply.clone()),
            Some(Entry::UnderWay(who)) => {
                if who.len() < WAITERS_MAX && !who.iter().any(|w| w.ptr_eq(from)) {
                    who.push(from.clone());
                }
                return Known::UnderWay;
            }
            None => (),
        }
        s.requests.insert(key.clone(), Entry::UnderWay(vec![from.clone()]));
        Known::New
    }

    /// Keeps the reply, and tells who waits for it besides the connection that asked first.
    pub(crate) fn answered(&self, key: Key, volume: usize, reply: &[u8]) -> Vec<Weak<C>> {
        let mut s = self.state();
        let Some(Entry::UnderWay(mut who)) = s.requests.remove(&key) else { return Vec::new() };
        if reply.len() <= REPLY_BYTES_MAX {
            s.keep(key, reply, volume, Instant::now());
        }
        assert!(!who.is_empty(), "a request is under way that nobody has asked");
        who.split_off(1)
    }

    /// The replies of a volume that were given within this time, the oldest first. Not those to
    /// WRITE, which may be done twice.
    pub(crate) fn last_of(&self, volume: usize, within: Duration) -> Vec<Kept> {
        let s = self.state();
        let mut all: Vec<_> = s
            .requests
            .iter()
            .filter_map(|(key, entry)| match entry {
                Entry::Answered { reply, volume: v, at }
                    if *v == volume && key.procedure != nfs3::WRITE =>
                {
                    (at.elapsed() <= within).then(|| (*at, key.clone(), reply.to_vec()))
                }
                _ => None,
            })
            .collect();
        all.sort_by_key(|(at, key, _)| (*at, key.xid));
        all.into_iter().map(|(_, key, reply)| (key, reply)).collect()
    }

    /// Takes over what another server has answered.
    pub(crate) fn take_over(&self, volume: usize, all: Vec<Kept>) {
        let mut s = self.state();
        for (key, reply) in all {
            if !s.requests.contains_key(&key) {
                s.keep(key, &reply, volume, Instant::now());
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn of(client: IpAddr, xid: u32) -> Key {
        Key { client, xid, procedure: 12, who: [0, 0].into(), body: 7 }
    }
    fn key(xid: u32) -> Key {
        of("10.0.0.1".parse().unwrap(), xid)
    }

    #[test]
    fn another_caller_is_given_nobodys_reply() {
        let drc: Drc<u8> = Drc::default();
        let me = Weak::new();
        assert!(matches!(drc.look(&key(1), &me), Known::New));
        drc.answered(key(1), 0, b"done");
        assert!(matches!(drc.look(&key(1), &me), Known::Answered(_)));
        let others = [
            Key { who: [1000, 0].into(), ..key(1) },
            Key { who: [0, 0, 0].into(), ..key(1) },
            Key { procedure: 13, ..key(1) },
            Key { body: 8, ..key(1) },
            Key { xid: 2, ..key(1) },
            Key { client: "10.0.0.2".parse().unwrap(), ..key(1) },
        ];
        for other in others {
            assert!(matches!(drc.look(&other, &me), Known::New), "{other:?}");
        }
    }

    #[test]
    fn the_last_replies_of_a_volume_are_taken_over() {
        let (old, new): (Drc<u8>, Drc<u8>) = Default::default();
        let me = Weak::new();
        for (xid, volume) in [(1, 0), (2, 1), (3, 0)] {
            assert!(matches!(old.look(&key(xid), &me), Known::New));
            old.answered(key(xid), volume, &[xid as u8]);
        }
        assert!(matches!(old.look(&key(4), &me), Known::New), "it is under way");
        let all = old.last_of(0, Duration::from_secs(60));
        assert_eq!(all, [(key(1), vec![1]), (key(3), vec![3])]);
        assert_eq!(old.last_of(0, Duration::ZERO), []);
        new.take_over(0, all);
        assert!(matches!(new.look(&key(1), &me), Known::Answered(r) if *r == [1]));
        assert!(matches!(new.look(&key(2), &me), Known::New));
    }

    #[test]
    fn a_repetition_waits_and_is_answered() {
        let drc = Drc::default();
        let (a, b) = (Arc::new(1), Arc::new(2));
        let (first, second) = (Arc::downgrade(&a), Arc::downgrade(&b));
        assert!(matches!(drc.look(&key(1), &first), Known::New));
        assert!(matches!(drc.look(&key(1), &first), Known::UnderWay));
        assert!(matches!(drc.look(&key(1), &second), Known::UnderWay));
        assert!(matches!(drc.look(&key(1), &second), Known::UnderWay));
        let waiting = drc.answered(key(1), 0, b"done");
        assert!(waiting.len() == 1 && waiting[0].ptr_eq(&second));
        assert!(matches!(drc.look(&key(1), &second), Known::Answered(r) if *r == *b"done"));
        assert!(matches!(drc.look(&key(2), &first), Known::New));
    }

    #[test]
    fn memory_is_bounded_and_what_is_under_way_stays() {
        let drc: Drc<u8> = Drc::default();
        let me = Weak::new();
        assert!(matches!(drc.look(&key(0), &me), Known::New));
        for xid in 1..=2 * KEPT as u32 {
            assert!(matches!(drc.look(&key(xid), &me), Known::New));
            drc.answered(key(xid), 0, &[0; 100]);
        }
        let s = drc.state();
        assert!(s.requests.len() == KEPT_OF_ONE + 1 && s.order.len() <= 2 * KEPT);
        drop(s);
        assert!(matches!(drc.look(&key(0), &me), Known::UnderWay));
        for back in 0..KEPT_OF_ONE as u32 {
            let known = drc.look(&key(2 * KEPT as u32 - back), &me);
            assert!(matches!(known, Known::Answered(_)), "{back}");
        }
    }

    #[test]
    fn many_clients_share_it_and_a_busy_one_forgets_only_its_own() {
        let drc: Drc<u8> = Drc::default();
        let me = Weak::new();
        let answer = |client: u32, xid| {
            let key = of(IpAddr::from(client.to_be_bytes()), xid);
            assert!(matches!(drc.look(&key, &me), Known::New));
            drc.answered(key, 0, &[0; 100]);
        };
        answer(1, 1);
        (0..5 * KEPT as u32).for_each(|xid| answer(2, xid));
        let quiet = of(IpAddr::from(1u32.to_be_bytes()), 1);
        assert!(matches!(drc.look(&quiet, &me), Known::Answered(_)));
        assert_eq!(drc.state().requests.len(), KEPT_OF_ONE + 1);
        // As many clients as there are replies: the oldest go, and nothing is left of them.
        (0..2 * KEPT as u32).for_each(|client| answer(1000 + client, 1));
        let s = drc.state();
        assert!(s.requests.len() == KEPT && s.order.len() == KEPT && s.clients.len() == KEPT);
    }
}
