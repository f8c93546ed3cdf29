//! What an open log holds in memory: the superblock, the group that is being filled, those on their
//! way, and who waits. The functions that change it are in the files named after what they do.

use crate::area::LogArea;
use crate::error::LogError;
use crate::layout::{ENTRY_HEADER, EntryHeader, GROUP_HEADER, IDLE, Lsn, Superblock};
use crate::stats::LogStats;
use crate::window::Window;
use env::sync::{Lock, Notify};
use env::{Env, Nanos};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::task::Waker;

/// A group that is being filled, or is closed and not written yet.
pub(crate) struct Group {
    pub(crate) start: Lsn,
    /// The end of the group before it.
    pub(crate) prev: Lsn,
    /// Room for the header, then the entries.
    pub(crate) bytes: Vec<u8>,
    pub(crate) entries: u32,
}

impl Group {
    /// Is it room for a header and then just as many parts as are counted?
    pub(crate) fn is_whole(&self) -> bool {
        let mut at = GROUP_HEADER;
        let mut parts = 0;
        while let Some(h) = self.bytes.get(at..).and_then(EntryHeader::peek) {
            at += ENTRY_HEADER + h.len as usize;
            parts += 1;
        }
        at == self.bytes.len() && parts == self.entries
    }

    pub(crate) fn end(&self) -> Lsn {
        self.start.plus(self.bytes.len() as u64)
    }
}

/// A group on its way to the disk.
pub(crate) struct Flight {
    pub(crate) start: Lsn,
    pub(crate) end: Lsn,
    pub(crate) entries: u32,
    pub(crate) issued: Nanos,
    /// How many were in flight with it, itself included.
    pub(crate) crowd: usize,
    pub(crate) done: bool,
}

/// What is known of a client in this opening.
#[derive(Clone)]
pub(crate) struct ClientState {
    /// Where its last entry ends.
    pub(crate) end: Lsn,
    /// Has somebody opened it?
    pub(crate) here: bool,
    /// Why it will trim nothing any more, if that is so.
    pub(crate) failed: Option<LogError>,
}

impl ClientState {
    pub(crate) fn new(end: Lsn, here: bool) -> ClientState {
        ClientState { end, here, failed: None }
    }
}

pub(crate) struct State {
    /// As it will be written next; its head is that of the last durable one.
    pub(crate) sb: Superblock,
    pub(crate) clients: Vec<ClientState>,
    /// How often a client became active, and how many of these the durable superblock says.
    pub(crate) activations: u64,
    pub(crate) activations_durable: u64,
    /// Where the next group begins if it begins in the same segment: the padded end of the last
    /// closed one.
    pub(crate) tail: Lsn,
    pub(crate) open: Option<Group>,
    pub(crate) closed: VecDeque<Group>,
    pub(crate) in_flight: VecDeque<Flight>,
    /// Every group below this is durable.
    pub(crate) durable: Lsn,
    /// Somebody waits for what was appended below this.
    pub(crate) wanted: Lsn,
    /// Room promised and not used yet.
    pub(crate) reserved: u64,
    /// To how many.
    pub(crate) promises: u64,
    /// So many bytes may be on their way to the disk before who asks waits: what the most generous
    /// of those who ask lets be, or the others would wait for what it has appended.
    pub(crate) ahead_max: u64,
    /// Entries of several parts that are not durable yet: first part's LSN, end of the last.
    pub(crate) parted: BTreeMap<Lsn, Lsn>,
    /// By the position that the durable prefix must reach, and a number of each one's own.
    pub(crate) waiters: BTreeMap<(Lsn, u64), Waker>,
    pub(crate) next_ticket: u64,
    /// The task that issues is scheduled or running.
    pub(crate) issuing: bool,
    /// A task waits for callers who are on their way.
    pub(crate) delaying: bool,
    /// A task that makes trims durable is running.
    pub(crate) trimming: bool,
    pub(crate) window: Window,
    /// No two entries share a group, nor a write.
    pub(crate) alone: bool,
    pub(crate) failed: Option<LogError>,
    pub(crate) stats: LogStats,
}

/// An open log.
pub(crate) struct Inner {
    pub(crate) env: Env,
    pub(crate) area: LogArea,
    pub(crate) seed: u32,
    pub(crate) plant: Option<&'static str>,
    pub(crate) state: RefCell<State>,
    /// Who waits for room, first come first served.
    pub(crate) turn: Lock,
    /// Superblocks are written one after the other.
    pub(crate) sb_lock: Lock,
    /// Room was made, or the log has failed.
    pub(crate) room: Notify,
    /// A client has failed.
    pub(crate) lost: Notify,
    /// Somebody waits for room that only a trim can make: a signal, and how many.
    pub(crate) pressure: Notify,
    pub(crate) starving: Cell<u32>,
}

impl State {
    /// The positions in their order, each of which only moves forward, and what lies between two
    /// of them: looked at whenever a write or a superblock has ended.
    pub(crate) fn check(&self) {
        let (head, durable, tail, end) = (self.sb.head, self.durable, self.tail, self.end());
        let position = self.position();
        assert!(head <= position, "I3: the head {head} passes the end {position}");
        assert!(durable <= tail, "I1: {durable} is durable of groups that end at {tail}");
        let limit = self.sb.limit();
        let kept = self.reserved;
        assert!(position.plus(kept) <= limit, "I2: {kept} are kept behind {position} of {limit}");
        let mut at = durable;
        for f in &self.in_flight {
            assert!(at <= f.start && f.start < f.end, "I1: {} is written behind {at}", f.start);
            at = f.end;
        }
        for g in self.closed.iter().chain(&self.open) {
            let pad = self.sb.padded(g.end());
            assert_eq!(g.prev, at, "I6: the group at {} follows another one", g.start);
            assert!(at <= g.start && pad <= self.sb.next_segment(g.start), "I2: {pad} is beyond");
            at = pad;
        }
        let needed = self.sb.clients.iter().map(|c| c.trim).min().unwrap_or(IDLE);
        assert!(needed >= head, "I3: a client needs {needed}, and the head is {head}");
        let first = self.waiters.first_key_value().map(|(key, _)| key.0);
        assert!(first.is_none_or(|f| f > durable), "I1: {first:?} waits, {durable} is durable");
        let parted = self.parted.first_key_value().map(|(_, end)| *end);
        assert!(parted.is_none_or(|p| p > durable), "I1: {parted:?} is parted, and durable");
        let active = self.activations_durable <= self.activations;
        assert!(active, "I5: more clients became active durably than did");
        let wanted = self.wanted;
        assert!(wanted <= position, "I1: {wanted} is waited for in a log that ends at {position}");
        let whole = self.sb.begins_unit(durable) && self.sb.begins_unit(tail);
        assert!(whole, "I6: {durable} or {tail} lies in the middle of a unit");
        let nobody = self.promises == 0 && kept > 0;
        assert!(!nobody, "I2: {kept} bytes are kept for nobody");
        let held = self.clients.iter().map(|c| c.end).max().unwrap_or_default();
        assert!(held <= end, "I1: an entry ends at {held} of a log that ends at {end}");
    }
}

impl Inner {
    /// The state as it should be between any two steps; while a bug is planted it need not.
    pub(crate) fn check(&self) {
        if self.plant.is_none() {
            self.state.borrow().check();
        }
    }

    pub(crate) fn planted(&self, name: &str) -> bool {
        self.plant == Some(name)
    }

    /// Remembers the first failure, and wakes all who wait (I7).
    pub(crate) fn fail(&self, e: &LogError) {
        let waiters = {
            let mut s = self.state.borrow_mut();
            if s.failed.is_none() {
                tracing::error!("the log takes nothing more: {e}");
                s.failed = Some(e.clone());
            }
            std::mem::take(&mut s.waiters)
        };
        waiters.into_values().for_each(Waker::wake);
        self.room.wake_all();
        self.pressure.wake_all();
    }

    pub(crate) fn failure(&self) -> Option<LogError> {
        self.state.borrow().failed.clone()
    }
}
