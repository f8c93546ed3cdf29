//! What a connection remembers between calls: bytes that are no whole record yet, the calls that
//! its volumes have not answered, and the replies that wait for one write. Behind the connection's
//! lock; it knows no protocol but the record's mark.
//!
//! Invariants:
//! * R1. Calls under way are as many as the quota counts, and each has a number of its own.
//! * R2. Replies that wait are in the quota, as long as they are at least; when they are sent,
//!   nothing of them is left in it.
//! * R3. Nothing is read of a record before there is memory for all of it.

use crate::answers::Message;
use crate::calls::Pending;
use crate::drc::Key;
use crate::intake::{FREE_BYTES, Share};
use crate::metrics::Meter;
use crate::quota::{CALL_BYTES, Quota};
use env::{Piece, Rope};
use std::time::Instant;

/// The longest record: a write of the largest size and its head.
pub(crate) const RECORD_BYTES_MAX: usize = vfs::TRANSFER_BYTES_MAX + 4096;
/// Calls are taken into memory in a buffer that is given back when it has grown beyond this.
const INPUT_KEPT: usize = FREE_BYTES;
/// Replies are copied together up to this size.
const PIECE_BYTES: usize = 32 << 10;

/// A call that the volume has not answered yet.
pub(crate) struct Asked {
    pub(crate) pending: Pending,
    /// Where its reply is to be kept, if it may come again.
    pub(crate) key: Option<Key>,
    pub(crate) arrived: Instant,
    /// What of its connection's quota it takes.
    pub(crate) cost: usize,
}

/// Replies that wait to be sent, and the quota that they take until then.
#[derive(Default)]
pub(crate) struct Outbox {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) cost: usize,
}

pub(crate) struct State {
    /// Bytes that are not a whole record yet, and the fragments of one that is not.
    pub(crate) input: Vec<u8>,
    pub(crate) record: Vec<u8>,
    /// The memory that these two may take.
    pub(crate) share: Share,
    /// Records that have come.
    pub(crate) records: u64,
    /// There is no memory for the record that has begun: the connection is over.
    pub(crate) is_starved: bool,
    pub(crate) out: Outbox,
    asked: Vec<Option<Asked>>,
    pub(crate) quota: Quota,
    pub(crate) meter: Meter,
    /// So many gather replies (the reader, and threads that have several): all are sent in one
    /// write when the last of them is done.
    pub(crate) corks: u32,
    /// Does the reader wait for quota?
    pub(crate) waits: bool,
}

impl State {
    pub(crate) fn new(quota: Quota, share: Share, meter: Meter) -> State {
        State {
            input: Vec::new(),
            record: Vec::new(),
            share,
            records: 0,
            is_starved: false,
            out: Outbox::default(),
            asked: Vec::new(),
            quota,
            meter,
            corks: 0,
            waits: false,
        }
    }

    /// Keeps what is left of the input.
    pub(crate) fn keep(&mut self, mut input: Vec<u8>, used: usize) {
        input.drain(..used);
        if input.capacity() > INPUT_KEPT && input.len() <= INPUT_KEPT {
            input.shrink_to(INPUT_KEPT);
        }
        self.input = input;
        self.share.shrink(self.needed());
    }

    /// The memory that the record that has begun may need. Of one in fragments nobody knows how
    /// long it gets: whoever waited for the rest while he holds the beginning could wait for others
    /// that do the same.
    pub(crate) fn needed(&self) -> usize {
        let mark = mark(&self.input);
        if !self.record.is_empty() || mark.is_some_and(|(_, last)| !last) {
            return RECORD_BYTES_MAX + FREE_BYTES;
        }
        mark.map_or(0, |(len, _)| 4 + len).max(self.input.len())
    }

    /// So much was taken for the record that has begun.
    pub(crate) fn make_room(&mut self, taken: usize) {
        self.share.add(taken);
        let missing = self.share.missing(self.needed());
        assert_eq!(missing, 0, "R3: {missing} bytes are missing after {taken} were taken");
        let missing = self.missing_bytes();
        self.input.reserve_exact(missing);
    }

    /// Takes out what waits to be sent.
    pub(crate) fn take_out(&mut self) -> Outbox {
        let out = std::mem::take(&mut self.out);
        let (none, cost) = (out.pieces.is_empty(), out.cost);
        assert_eq!(none, cost == 0, "R2: {} pieces wait at a cost of {cost}", out.pieces.len());
        out
    }

    /// What is to come of the fragment that has begun.
    pub(crate) fn missing_bytes(&self) -> usize {
        mark(&self.input).map_or(0, |(len, _)| (4 + len).saturating_sub(self.input.len()))
    }

    /// Is there a whole request among what was received, or one that is longer than any may be?
    pub(crate) fn has_more(&self) -> bool {
        mark(&self.input).is_some_and(|(len, _)| {
            self.input.len() >= 4 + len || self.record.len() + len > RECORD_BYTES_MAX
        })
    }

    pub(crate) fn remember(&mut self, what: Asked) -> u64 {
        self.quota.begin(what.cost);
        let at = self.asked.iter().position(Option::is_none).unwrap_or_else(|| {
            self.asked.push(None);
            self.asked.len() - 1
        });
        let before = self.asked[at].replace(what);
        assert!(before.is_none(), "R1: call {at} takes the number of one that is under way");
        self.check_calls();
        at as u64
    }

    /// The call of this number was answered.
    pub(crate) fn answered(&mut self, id: u64) -> Asked {
        self.quota.answered();
        let asked = self.asked.get_mut(id as usize).and_then(Option::take);
        self.check_calls();
        asked.expect("R1: a call is answered once")
    }

    fn check_calls(&self) {
        let calls = self.quota.calls();
        assert!(calls <= self.asked.len(), "R1: {calls} calls in {} places", self.asked.len());
        // As many as a connection may have under way are counted, for each call.
        let counted = || self.asked.iter().flatten().count();
        debug_assert_eq!(counted(), calls, "R1: calls that are known, and those of the quota");
    }

    /// A reply that was never in the quota is to be sent.
    pub(crate) fn put_new(&mut self, reply: &[u8]) {
        self.quota.hold(CALL_BYTES);
        self.put((reply.to_vec(), Rope::new()), CALL_BYTES);
    }

    /// Appends a record to what is to be sent. Its call was counted as so much of the quota; a
    /// reply that has become longer (a link's text, where blocks are large) is counted as it is.
    pub(crate) fn put(&mut self, (head, data): Message, cost: usize) {
        let pad = data.len().next_multiple_of(4) - data.len();
        let len = head.len() + data.len() + pad;
        assert!(len < 1 << 31 && len.is_multiple_of(4), "{len} bytes are no record of RPC");
        self.meter.sent.inc_by(len as u64 + 4);
        let more = len.saturating_sub(cost);
        self.quota.hold(more);
        self.out.cost += cost + more;
        let (held, out) = (self.quota.bytes(), self.out.cost);
        assert!(out <= held, "R2: replies of {out} bytes wait, and the quota has {held}");
        self.out.append(&(len as u32 | 0x8000_0000).to_be_bytes());
        self.out.append(&head);
        if !data.is_empty() {
            self.out.pieces.push(Piece::Shared(data));
            self.out.append(&[0; 3][..pad]);
        }
    }
}

impl Outbox {
    fn append(&mut self, bytes: &[u8]) {
        match self.pieces.last_mut() {
            Some(Piece::Own(last)) if last.len() + bytes.len() <= PIECE_BYTES => {
                last.extend_from_slice(bytes);
            }
            _ if bytes.is_empty() => (),
            _ => self.pieces.push(Piece::Own(bytes.to_vec())),
        }
    }
}

/// The length of the first fragment, and whether it is its record's last.
pub(crate) fn mark(input: &[u8]) -> Option<(usize, bool)> {
    let mark = u32::from_be_bytes(*input.first_chunk()?);
    Some(((mark & 0x7fff_ffff) as usize, mark & 0x8000_0000 != 0))
}
