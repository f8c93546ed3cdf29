//! The duplicate-request cache: a request that comes again (the client saw no reply) is answered
//! with the reply that was given, and one that is under way is not begun again but waited for.
//! Keyed by address without port, XID, procedure, who asks, and a checksum of the body, so that
//! nobody is given a reply to what another was allowed; bounded. The last seconds of it go from one
//! server to the next, see [`crate::kept`].
//!
//! Two programs of one machine, or behind one address, may count their XIDs alike, and one that was
//! started again counts as before. Who is told of their requests that they were done, though they
//! were not, has lost them. So a reply is believed for seconds only; not for a connection that was
//! there before the request first came, because nobody who asks again for want of a reply had made
//! that one already; and of WRITE, which may be done twice, only on the same connection.
//!
//! Invariants:
//! * D1. Each reply that is kept is among the requests as answered, and once among its client's.
//! * D2. A client has as many places in the order as replies that are kept, and such as were
//!   forgotten before their turn; of one without any nothing is known.
//! * D3. So many replies are kept of one client, so many of all, and places are twice as many.
//! * D4. A request is under way from when it is new until it is answered, once; somebody has asked.
//! * D5. A reply that is kept is the whole reply, of a procedure that changes something.

use crate::kept::{self, Kept};
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
/// A reply is believed for so long.
const BELIEVED: Duration = Duration::from_secs(kept::SECS);
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

/// A connection that a request came over, and since when it is there.
pub(crate) struct Source<'a, C> {
    pub(crate) connection: &'a Weak<C>,
    pub(crate) since: Instant,
}

/// What is known of a request.
pub(crate) enum Known {
    /// New: it is now under way.
    New,
    /// It looks like another's that is known, and is none of those who ask again: new as well, and
    /// its reply is not kept.
    Apart,
    /// Under way: its reply will come to this connection, too.
    UnderWay,
    /// Answered with this.
    Answered(Arc<[u8]>),
}

enum Entry<C> {
    /// Connections that get the reply: the first asked, at that time; the others asked again.
    UnderWay(Vec<Weak<C>>, Instant),
    Answered(Reply<C>),
}

struct Reply<C> {
    bytes: Arc<[u8]>,
    volume: usize,
    asked: Instant,
    at: Instant,
    /// The connection that asked first.
    by: Weak<C>,
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
    fn keep(&mut self, key: Key, reply: Reply<C>) {
        let client = key.client;
        let len = reply.bytes.len();
        assert!(len <= REPLY_BYTES_MAX, "D3: a reply of {len} bytes is kept");
        let old = self.requests.insert(key.clone(), Entry::Answered(reply));
        assert!(old.is_none(), "D4: request {:#x} of {client} is answered twice", key.xid);
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
        let (kept, places) = (self.kept, self.order.len());
        assert!(kept <= self.requests.len(), "D1: {kept} replies are said to be kept");
        assert!(kept <= places, "D2: {kept} replies are kept in {places} places");
        if places > 2 * KEPT {
            let mut order = std::mem::take(&mut self.order);
            order.retain(|whose| !self.passed_over(*whose));
            self.order = order;
            let left = self.order.len();
            assert_eq!(left, kept, "D2: places that stand for no reply are left");
            // All of it is gone through, which takes milliseconds.
            debug_assert!(self.is_whole(), "D1: what is kept and its lists differ");
        }
    }

    /// Do the requests, the clients' lists and the order tell the same (D1, D2, D3)?
    fn is_whole(&self) -> bool {
        let mut places: HashMap<IpAddr, usize> = HashMap::new();
        self.order.iter().for_each(|whose| *places.entry(*whose).or_default() += 1);
        let is_kept = |key: &Key| matches!(self.requests.get(key), Some(Entry::Answered(_)));
        let mut of_clients = 0;
        let each = self.clients.iter().all(|(whose, c)| {
            of_clients += c.keys.len();
            let has = places.remove(whose).unwrap_or(0);
            has > 0
                && has == c.keys.len() + c.forgotten
                && c.keys.len() <= KEPT_OF_ONE
                && c.keys.iter().all(|key| key.client == *whose && is_kept(key))
        });
        let answered = self.requests.values().filter(|e| matches!(e, Entry::Answered(_))).count();
        each && places.is_empty() && (of_clients, answered) == (self.kept, self.kept)
    }

    /// Forgets those of a client's replies that are too old to be believed.
    fn expire(&mut self, client: IpAddr) {
        let is_old = |s: &Self| {
            let oldest = s.clients.get(&client).and_then(|c| c.keys.front());
            let entry = oldest.and_then(|key| s.requests.get(key));
            matches!(entry, Some(Entry::Answered(r)) if r.at.elapsed() > BELIEVED)
        };
        while is_old(self) {
            if let Some(c) = self.clients.get_mut(&client) {
                c.forgotten += 1;
            }
            self.forget(client);
        }
    }

    /// Forgets a client's oldest reply.
    fn forget(&mut self, whose: IpAddr) {
        let Some(client) = self.clients.get_mut(&whose) else { return };
        if let Some(old) = client.keys.pop_front() {
            let known = self.requests.remove(&old).is_some();
            assert!(known && self.kept > 0, "D1: a reply is forgotten that was not kept");
            self.kept -= 1;
        }
        self.drop_unknown(whose);
    }

    /// A client of whom nothing is kept and that has no place in the order is not known any more.
    fn drop_unknown(&mut self, whose: IpAddr) {
        let is_left = |c: &Answered| !c.keys.is_empty() || c.forgotten > 0;
        if self.clients.get(&whose).is_some_and(|c| !is_left(c)) {
            self.clients.remove(&whose);
        }
    }

    /// Does this place in the order, the client's first, stand for a reply that was forgotten
    /// before its turn? The place is gone then.
    fn passed_over(&mut self, whose: IpAddr) -> bool {
        let client = self.clients.get_mut(&whose);
        assert!(client.is_some(), "D2: {whose} has a place in the order, and is not known");
        let passed = client.filter(|c| c.forgotten > 0).map(|c| c.forgotten -= 1).is_some();
        self.drop_unknown(whose);
        passed
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
    pub(crate) fn look(&self, key: &Key, from: &Source<'_, C>) -> Known {
        let mut s = self.state();
        s.expire(key.client);
        let may_ask_again = |first: Option<&Weak<C>>, asked: Instant| {
            first.is_some_and(|f| f.ptr_eq(from.connection)) || from.since >= asked
        };
        match s.requests.get_mut(key) {
            Some(Entry::Answered(r)) => {
                let same = r.by.ptr_eq(from.connection);
                let may = may_ask_again(Some(&r.by), r.asked);
                let believed = may && (same || key.procedure != nfs3::WRITE);
                return if believed { Known::Answered(r.bytes.clone()) } else { Known::Apart };
            }
            Some(Entry::UnderWay(who, asked)) => {
                if !may_ask_again(who.first(), *asked) {
                    return Known::Apart;
                }
                if who.len() < WAITERS_MAX && !who.iter().any(|w| w.ptr_eq(from.connection)) {
                    who.push(from.connection.clone());
                }
                return Known::UnderWay;
            }
            None => (),
        }
        let new = Entry::UnderWay(vec![from.connection.clone()], Instant::now());
        s.requests.insert(key.clone(), new);
        Known::New
    }

    /// Keeps the reply, and tells who waits for it besides the connection that asked first.
    pub(crate) fn answered(&self, key: Key, volume: usize, reply: &[u8]) -> Vec<Weak<C>> {
        let mut s = self.state();
        let Some(Entry::UnderWay(mut who, asked)) = s.requests.remove(&key) else {
            unreachable!("D4: request {:#x} is answered, and was not under way", key.xid);
        };
        assert!(!who.is_empty(), "D4: a request is under way that nobody has asked");
        assert!(nfs3::modifies(key.procedure), "D5: procedure {} is kept", key.procedure);
        let others = who.split_off(1);
        assert!(others.len() < WAITERS_MAX, "D3: {} connections wait for a reply", others.len());
        if let Some(by) = who.pop().filter(|_| reply.len() <= REPLY_BYTES_MAX) {
            let at = Instant::now();
            s.keep(key, Reply { bytes: reply.into(), volume, asked, at, by });
        }
        others
    }

    /// The replies of a volume that were given within this time, the oldest first. Not those to
    /// WRITE, which may be done twice.
    pub(crate) fn last_of(&self, volume: usize, within: Duration) -> Vec<Kept> {
        let s = self.state();
        let mut all: Vec<_> = s
            .requests
            .iter()
            .filter_map(|(key, entry)| match entry {
                Entry::Answered(r) if r.volume == volume && key.procedure != nfs3::WRITE => {
                    (r.at.elapsed() <= within).then(|| (r.at, key.clone(), r.bytes.to_vec()))
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
                let now = Instant::now();
                let (bytes, by) = (reply.into(), Weak::new());
                s.keep(key, Reply { bytes, volume, asked: now, at: now, by });
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

    /// A request over a connection that was made just now.
    fn look<C>(drc: &Drc<C>, key: &Key, connection: &Weak<C>) -> Known {
        drc.look(key, &Source { connection, since: Instant::now() })
    }

    #[test]
    fn another_caller_is_given_nobodys_reply() {
        let drc: Drc<u8> = Drc::default();
        let me = Weak::new();
        assert!(matches!(look(&drc, &key(1), &me), Known::New));
        drc.answered(key(1), 0, b"done");
        assert!(matches!(look(&drc, &key(1), &me), Known::Answered(_)));
        let others = [
            Key { who: [1000, 0].into(), ..key(1) },
            Key { who: [0, 0, 0].into(), ..key(1) },
            Key { procedure: 13, ..key(1) },
            Key { body: 8, ..key(1) },
            Key { xid: 2, ..key(1) },
            Key { client: "10.0.0.2".parse().unwrap(), ..key(1) },
        ];
        for other in others {
            assert!(matches!(look(&drc, &other, &me), Known::New), "{other:?}");
        }
    }

    #[test]
    fn the_last_replies_of_a_volume_are_taken_over() {
        let (old, new): (Drc<u8>, Drc<u8>) = Default::default();
        let me = Weak::new();
        for (xid, volume) in [(1, 0), (2, 1), (3, 0)] {
            assert!(matches!(look(&old, &key(xid), &me), Known::New));
            old.answered(key(xid), volume, &[xid as u8]);
        }
        assert!(matches!(look(&old, &key(4), &me), Known::New), "it is under way");
        let all = old.last_of(0, Duration::from_secs(60));
        assert_eq!(all, [(key(1), vec![1]), (key(3), vec![3])]);
        assert_eq!(old.last_of(0, Duration::ZERO), []);
        new.take_over(0, all);
        assert!(matches!(look(&new, &key(1), &me), Known::Answered(r) if *r == [1]));
        assert!(matches!(look(&new, &key(2), &me), Known::New));
    }

    #[test]
    fn a_repetition_waits_and_is_answered() {
        let drc = Drc::default();
        let (a, b) = (Arc::new(1), Arc::new(2));
        let (first, second) = (Arc::downgrade(&a), Arc::downgrade(&b));
        assert!(matches!(look(&drc, &key(1), &first), Known::New));
        assert!(matches!(look(&drc, &key(1), &first), Known::UnderWay));
        assert!(matches!(look(&drc, &key(1), &second), Known::UnderWay));
        assert!(matches!(look(&drc, &key(1), &second), Known::UnderWay));
        let waiting = drc.answered(key(1), 0, b"done");
        assert!(waiting.len() == 1 && waiting[0].ptr_eq(&second));
        assert!(matches!(look(&drc, &key(1), &second), Known::Answered(r) if *r == *b"done"));
        assert!(matches!(look(&drc, &key(2), &first), Known::New));
    }

    #[test]
    fn who_counts_like_another_is_not_given_his_reply() {
        let drc = Drc::default();
        let (a, b) = (Arc::new(1), Arc::new(2));
        let (a, b) = (Arc::downgrade(&a), Arc::downgrade(&b));
        let before = Instant::now();
        let of_b = Source { connection: &b, since: before };
        let of_a = Source { connection: &a, since: before };
        assert!(matches!(drc.look(&key(1), &of_a), Known::New));
        assert!(matches!(drc.look(&key(1), &of_b), Known::Apart), "both were there");
        assert!(matches!(drc.look(&key(1), &of_a), Known::UnderWay));
        assert!(drc.answered(key(1), 0, b"done").is_empty());
        assert!(matches!(drc.look(&key(1), &of_b), Known::Apart), "it is there since before");
        assert!(matches!(drc.look(&key(1), &of_a), Known::Answered(_)));
        assert!(matches!(look(&drc, &key(1), &b), Known::Answered(_)), "it was made since");
        // What was written may have been written over meanwhile.
        let write = Key { procedure: nfs3::WRITE, ..key(2) };
        assert!(matches!(look(&drc, &write, &a), Known::New));
        assert!(matches!(look(&drc, &write, &b), Known::UnderWay));
        drc.answered(write.clone(), 0, b"done");
        assert!(matches!(look(&drc, &write, &a), Known::Answered(_)));
        assert!(matches!(look(&drc, &write, &b), Known::Apart));
    }

    #[test]
    fn an_old_reply_is_not_believed() {
        let drc: Drc<u8> = Drc::default();
        let me = Weak::new();
        for xid in [1, 2] {
            assert!(matches!(look(&drc, &key(xid), &me), Known::New));
            drc.answered(key(xid), 0, b"done");
        }
        if let Some(Entry::Answered(r)) = drc.state().requests.get_mut(&key(1)) {
            let Some(past) = r.at.checked_sub(BELIEVED + Duration::from_secs(1)) else { return };
            r.at = past;
        }
        assert!(matches!(look(&drc, &key(2), &me), Known::Answered(_)));
        assert!(matches!(look(&drc, &key(1), &me), Known::New));
        drc.answered(key(1), 0, b"anew");
        assert!(matches!(look(&drc, &key(1), &me), Known::Answered(r) if *r == *b"anew"));
        let s = drc.state();
        assert_eq!((s.kept, s.requests.len(), s.order.len()), (2, 2, 3));
        assert!(s.is_whole());
    }

    /// D2: whoever has asked once, long ago, and is never heard of again.
    #[test]
    fn of_a_client_whose_replies_are_old_nothing_is_left() {
        let drc: Drc<u8> = Drc::default();
        let me = Weak::new();
        let other = |xid| of("10.0.0.2".parse().unwrap(), xid);
        assert!(matches!(look(&drc, &other(1), &me), Known::New));
        drc.answered(other(1), 0, b"done");
        if let Some(Entry::Answered(r)) = drc.state().requests.get_mut(&other(1)) {
            let Some(past) = r.at.checked_sub(BELIEVED + Duration::from_secs(1)) else { return };
            r.at = past;
        }
        // A call that is not kept has it look.
        assert!(matches!(look(&drc, &other(2), &me), Known::New));
        for xid in 0..2 * KEPT as u32 {
            assert!(matches!(look(&drc, &key(xid), &me), Known::New));
            drc.answered(key(xid), 0, b"done");
        }
        let s = drc.state();
        assert!(s.is_whole());
        assert_eq!(s.clients.len(), 1, "one has replies that are kept");
    }

    #[test]
    fn memory_is_bounded_and_what_is_under_way_stays() {
        let drc: Drc<u8> = Drc::default();
        let me = Weak::new();
        assert!(matches!(look(&drc, &key(0), &me), Known::New));
        for xid in 1..=2 * KEPT as u32 {
            assert!(matches!(look(&drc, &key(xid), &me), Known::New));
            drc.answered(key(xid), 0, &[0; 100]);
        }
        let s = drc.state();
        assert!(s.requests.len() == KEPT_OF_ONE + 1 && s.order.len() <= 2 * KEPT);
        assert!(s.is_whole());
        drop(s);
        assert!(matches!(look(&drc, &key(0), &me), Known::UnderWay));
        for back in 0..KEPT_OF_ONE as u32 {
            let known = look(&drc, &key(2 * KEPT as u32 - back), &me);
            assert!(matches!(known, Known::Answered(_)), "{back}");
        }
    }

    #[test]
    fn many_clients_share_it_and_a_busy_one_forgets_only_its_own() {
        let drc: Drc<u8> = Drc::default();
        let me = Weak::new();
        let answer = |client: u32, xid| {
            let key = of(IpAddr::from(client.to_be_bytes()), xid);
            assert!(matches!(look(&drc, &key, &me), Known::New));
            drc.answered(key, 0, &[0; 100]);
        };
        answer(1, 1);
        (0..5 * KEPT as u32).for_each(|xid| answer(2, xid));
        let quiet = of(IpAddr::from(1u32.to_be_bytes()), 1);
        assert!(matches!(look(&drc, &quiet, &me), Known::Answered(_)));
        assert_eq!(drc.state().requests.len(), KEPT_OF_ONE + 1);
        // As many clients as there are replies: the oldest go, and nothing is left of them.
        (0..2 * KEPT as u32).for_each(|client| answer(1000 + client, 1));
        let s = drc.state();
        assert!(s.requests.len() == KEPT && s.order.len() == KEPT && s.clients.len() == KEPT);
    }
}
