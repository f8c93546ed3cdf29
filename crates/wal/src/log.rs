//! Making, opening and looking at a log. Opening for writing finds the tail and raises the epoch;
//! opening for reading changes nothing.

use crate::area::LogArea;
use crate::client::Client;
use crate::error::LogError;
use crate::layout::{
    CLIENTS_MAX, ClientId, ClientSlot, DATA_AT, Epoch, IDLE, Lsn, SLOT_BYTES, Superblock,
};
use crate::scan::Scan;
use crate::slots::read_superblock;
use crate::state::{ClientState, Inner, State};
use crate::stats::LogStats;
use crate::walk::find_tail;
use crate::window::Window;
use env::sync::{Lock, Notify};
use env::{Block, Durability, Env};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// Bugs that can be planted, each of which the crash tests must find.
pub const PLANTS: &[&str] = &[
    "ack-out-of-order",
    "ack-before-write",
    "log-not-fua",
    "overwrite-live",
    "reuse-before-superblock",
    "one-slot",
    "epoch-not-raised",
    "epoch-ignored",
    "torn-tail-accepted",
    "gap-skipped",
    "tail-from-last-segment",
    "trim-beyond-tail",
];

/// How a log is made.
#[derive(Clone, Debug, Default)]
pub struct FormatOptions {
    /// Names it; chosen by the caller, never the same twice.
    pub uuid: [u8; 16],
    /// Bytes in a segment; None: a 512th of the log, but 64 KiB to 1 MiB.
    pub segment_bytes: Option<u32>,
    /// The unit of writes, 512 or the device's sector; None: 512.
    pub unit: Option<u32>,
}

/// How a log is opened.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Log writes in flight; None: found by measuring.
    pub window: Option<usize>,
    /// A planted bug, one of [`PLANTS`].
    pub plant: Option<&'static str>,
    /// Each entry is written alone, one at a time: what batching is compared with.
    pub alone: bool,
}

/// What there is to know of an open log.
#[derive(Clone, Debug)]
pub struct LogInfo {
    /// Its name.
    pub uuid: [u8; 16],
    /// The last opening for writing.
    pub epoch: Epoch,
    /// Bytes of entries and headers it can hold.
    pub capacity: u64,
    /// Bytes in a segment.
    pub segment_bytes: u32,
    /// The unit of writes in bytes.
    pub unit: u32,
    /// Nobody needs anything below this.
    pub head: Lsn,
    /// Everything below this is durable.
    pub durable: Lsn,
    /// The reads that the search for the tail needed at opening.
    pub tail_probes: u64,
    /// The clients: id, label, and from where on they need the log (None: nothing).
    pub clients: Vec<([u8; 16], String, Option<Lsn>)>,
}

/// An open log. Cheap to clone.
#[derive(Clone)]
pub struct Log {
    pub(crate) inner: Rc<Inner>,
    probes: u64,
}

/// The smallest segment that is chosen for a log.
const SEGMENT_BYTES_MIN: u64 = 64 << 10;

fn new_superblock(area: &LogArea, o: &FormatOptions) -> Result<Superblock, LogError> {
    let room = area.len_bytes().saturating_sub(DATA_AT);
    let wanted = (room / 512).clamp(SEGMENT_BYTES_MIN, 1 << 20).next_power_of_two();
    let segment_bytes = o.segment_bytes.unwrap_or(wanted as u32);
    let segments = (room / u64::from(segment_bytes.max(1))).min(1 << 20) as u32;
    let start = Lsn(u64::from(segment_bytes) * u64::from(segments)); // LSN 0 is never used
    let sb = Superblock {
        uuid: o.uuid,
        generation: 1,
        epoch: Epoch(1),
        epoch_start: start,
        head: start,
        end: start,
        segment_bytes,
        segments,
        unit: o.unit.unwrap_or(512),
        clients: Vec::new(),
    };
    if !sb.makes_sense() {
        let least = (DATA_AT + 4 * u64::from(segment_bytes)).div_ceil(1024);
        let why = format!("too short: a log has at least {least} KiB");
        return Err(LogError::NotALog { why });
    }
    Ok(sb)
}

impl Log {
    /// Makes an empty log; whatever was there is gone.
    pub async fn format(area: &LogArea, options: &FormatOptions) -> Result<(), LogError> {
        let sb = new_superblock(area, options)?;
        area.write(0, Block::zeroed(SLOT_BYTES), Durability::Fua).await?;
        let at = sb.generation % 2 * SLOT_BYTES as u64;
        area.write(at, Block::copy_of(&sb.encode()), Durability::Fua).await?;
        Ok(())
    }

    /// Opens a log for writing: finds its tail and raises the epoch.
    pub async fn open(env: &Env, area: LogArea, options: OpenOptions) -> Result<Log, LogError> {
        area.flush().await?; // what a reader before us saw may be in the device's cache only
        let mut sb = read_superblock(&area).await?;
        let tail = find_tail(&area, &sb, options.plant).await?;
        let (epoch, start) = (sb.epoch, sb.epoch_start);
        assert!(tail.at >= start, "I4: the tail {} lies before epoch {epoch}", tail.at);
        let whole = sb.begins_unit(tail.at);
        assert!(whole, "I6: the tail {} lies in the middle of a unit", tail.at);
        if tail.at > sb.limit() {
            let what = "more was written than this superblock allows".to_owned();
            return Err(LogError::Damaged { what, at: tail.at });
        }
        sb.generation += 1;
        sb.epoch_start = tail.at;
        sb.end = tail.at;
        if options.plant != Some("trim-beyond-tail") {
            sb.forget_beyond(tail.at);
        }
        if options.plant != Some("epoch-not-raised") {
            sb.epoch = sb.epoch.next();
        }
        invariant!(options.plant, sb.epoch > epoch, "I5: epoch {epoch} is written in twice");
        let needed = sb.clients.iter().filter(|c| c.trim != IDLE).map(|c| c.trim).max();
        let behind = needed.is_some_and(|n| n > tail.at);
        invariant!(options.plant, !behind, "I3: {needed:?} is needed, the tail is {}", tail.at);
        let head = sb.head;
        invariant!(options.plant, head <= tail.at, "I3: {head} is the head, {} the tail", tail.at);
        let slot = if options.plant == Some("one-slot") { 0 } else { sb.generation % 2 };
        let bytes = Block::copy_of(&sb.encode());
        area.write(slot * SLOT_BYTES as u64, bytes, Durability::Fua).await?;
        let log = Log::with(env, area, sb, tail.at, tail.probes, &options);
        log.inner.check();
        Ok(log)
    }

    /// Opens a log for reading only: nothing is written.
    pub async fn open_read_only(env: &Env, area: LogArea) -> Result<Log, LogError> {
        let sb = read_superblock(&area).await?;
        let tail = find_tail(&area, &sb, None).await?;
        let log = Log::with(env, area, sb, tail.at, tail.probes, &OpenOptions::default());
        log.inner.state.borrow_mut().failed = Some(LogError::ReadOnly);
        Ok(log)
    }

    fn with(
        env: &Env,
        area: LogArea,
        sb: Superblock,
        tail: Lsn,
        probes: u64,
        options: &OpenOptions,
    ) -> Log {
        let state = State {
            clients: sb.clients.iter().map(|_| ClientState::new(tail, false)).collect(),
            activations: 0,
            activations_durable: 0,
            tail,
            open: None,
            closed: VecDeque::new(),
            in_flight: VecDeque::new(),
            durable: tail,
            wanted: Lsn(0),
            reserved: 0,
            promises: 0,
            ahead_max: 0,
            parted: BTreeMap::new(),
            waiters: BTreeMap::new(),
            next_ticket: 0,
            issuing: false,
            delaying: false,
            trimming: false,
            window: Window::new(if options.alone { Some(1) } else { options.window }),
            alone: options.alone,
            failed: None,
            stats: LogStats::default(),
            sb,
        };
        let seed = state.sb.seed();
        let inner = Inner {
            env: env.clone(),
            area,
            seed,
            plant: options.plant,
            state: RefCell::new(state),
            turn: Lock::new(),
            sb_lock: Lock::new(),
            room: Notify::new(),
            lost: Notify::new(),
            pressure: Notify::new(),
            starving: Cell::new(0),
        };
        Log { inner: Rc::new(inner), probes }
    }

    /// The client of this id, registered if it is new. The label is for people, up to 16 bytes of
    /// it are kept.
    pub fn client(&self, id: [u8; 16], label: &str) -> Result<Client, LogError> {
        assert!(id != [0; 16], "a client has an id");
        let mut s = self.inner.state.borrow_mut();
        let end = s.end();
        let known = s.sb.clients.iter().position(|c| c.id == id);
        let free = || s.sb.clients.iter().position(|c| c.id == [0; 16]);
        let place = match known.or_else(free) {
            Some(p) => p,
            None if s.sb.clients.len() == CLIENTS_MAX => return Err(LogError::TooManyClients),
            None => {
                s.sb.clients.push(ClientSlot { id: [0; 16], label: [0; 16], trim: IDLE });
                s.clients.push(ClientState::new(end, true));
                s.sb.clients.len() - 1
            }
        };
        assert_eq!(s.sb.clients.len(), s.clients.len(), "each client has its state");
        let free = known.is_some() || s.sb.clients[place].trim == IDLE;
        assert!(free, "I3: a new client takes the place of one that has entries");
        s.clients[place].here = true;
        let slot = &mut s.sb.clients[place];
        if known.is_none() {
            slot.id = id;
            let n = label.len().min(16);
            slot.label[..n].copy_from_slice(&label.as_bytes()[..n]);
        }
        Ok(Client::new(self.clone(), ClientId(place as u16)))
    }

    /// Forgets a client whose entries nobody will ask for any more, though it may hold some.
    pub async fn forget(&self, id: [u8; 16]) -> Result<bool, LogError> {
        let known = {
            let mut s = self.inner.state.borrow_mut();
            let slot = s.sb.clients.iter_mut().find(|c| c.id == id);
            slot.map(|c| *c = ClientSlot { id: [0; 16], label: [0; 16], trim: IDLE }).is_some()
        };
        if known {
            self.inner.write_superblock().await?;
        }
        Ok(known)
    }

    /// Entries of all clients from `from` on (or from the head, if that is later) to the durable
    /// prefix of now.
    pub fn scan(&self, from: Lsn) -> Scan {
        Scan::new(&self.inner, from, None)
    }

    /// The labels of clients that hold entries and that nobody has opened here: their entries stay.
    pub fn absent(&self) -> Vec<String> {
        let s = self.inner.state.borrow();
        let all = s.sb.clients.iter().zip(&s.clients);
        let absent = all.filter(|(slot, c)| slot.trim != IDLE && !c.here);
        absent.map(|(slot, _)| slot.shown()).collect()
    }

    /// Makes what has been trimmed durable, so that its space can be used again.
    pub async fn persist(&self) -> Result<(), LogError> {
        self.inner.write_superblock().await
    }

    /// The same for who leaves the log to somebody else: no write of a task of its own follows.
    pub async fn persist_last(&self) -> Result<(), LogError> {
        loop {
            self.persist().await?;
            if !self.inner.state.borrow().trimming {
                return Ok(());
            }
        }
    }

    /// Who is known by this id will trim nothing, because it is not opened, or only to be read.
    /// Whoever waits for room that it holds learns of that.
    pub fn leave(&self, id: [u8; 16]) {
        assert!(id != [0; 16], "a place that is free in the log is nobody's to leave");
        let is_one = |c: &ClientSlot| c.id == id;
        let at = self.inner.state.borrow().sb.clients.iter().position(is_one);
        at.into_iter().for_each(|at| self.inner.leave(at));
    }

    /// The longest entry it takes, in bytes.
    pub fn entry_bytes_max(&self) -> u64 {
        self.inner.state.borrow().len_max()
    }

    /// Nobody needs anything below this, and the superblock that says so is durable.
    pub fn head(&self) -> Lsn {
        self.inner.state.borrow().sb.head
    }

    /// Is more than half of it in use or promised?
    pub fn is_half_full(&self) -> bool {
        self.inner.state.borrow().half_full()
    }

    /// Wakes those who wait in [`Log::pressed`], so that they can see that they are to stop.
    pub fn nudge(&self) {
        self.inner.pressure.wake_all();
    }

    /// Returns when somebody waits for room that only a trim can make, or the log has failed.
    pub async fn pressed(&self) {
        if self.inner.starving.get() == 0 || self.inner.failure().is_some() {
            self.inner.pressure.wait().await;
        }
    }

    /// What it has counted.
    pub fn stats(&self) -> LogStats {
        let s = self.inner.state.borrow();
        let used_bytes = s.position().saturating_since(s.sb.floor(s.sb.head));
        let (window, capacity_bytes) = (s.window.width() as u64, s.sb.capacity());
        LogStats { window, used_bytes, capacity_bytes, ..s.stats }
    }

    /// What there is to know of it.
    pub fn info(&self) -> LogInfo {
        let s = self.inner.state.borrow();
        let named = s.sb.clients.iter().filter(|c| c.id != [0; 16]);
        let client = |c: &ClientSlot| (c.id, c.label(), (c.trim != IDLE).then_some(c.trim));
        LogInfo {
            uuid: s.sb.uuid,
            epoch: s.sb.epoch,
            capacity: s.sb.capacity(),
            segment_bytes: s.sb.segment_bytes,
            unit: s.sb.unit,
            head: s.sb.head,
            durable: s.durable,
            tail_probes: self.probes,
            clients: named.map(client).collect(),
        }
    }
}

/// Is there a log in this area, and which? Reads the superblocks alone.
pub async fn inspect(area: &LogArea) -> Result<[u8; 16], LogError> {
    Ok(read_superblock(area).await?.uuid)
}
