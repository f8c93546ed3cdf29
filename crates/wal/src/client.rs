//! A client of a log: its appends, its own position, and the room it has been promised. It sees its
//! own entries only; the log's order is common to all.

use crate::error::LogError;
use crate::layout::{ClientId, ENTRY_HEADER, EntryHeader, FIRST, IDLE, LAST, Lsn};
use crate::log::Log;
use crate::scan::{Entry, Scan};
use crate::state::Inner;
use std::rc::Rc;

/// One of the log's clients. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    log: Log,
    id: ClientId,
}

/// Room for one entry, given back when dropped.
pub struct Reservation {
    log: Rc<Inner>,
    cost: u64,
    len: u64,
}

impl Reservation {
    /// The longest entry it is enough for.
    pub fn len_bytes(&self) -> u64 {
        self.len
    }

    /// Gives back what an entry of `len` bytes does not need.
    pub fn shrink(&mut self, len: u64) {
        if len >= self.len {
            return;
        }
        let cost = self.log.state.borrow().cost(len).min(self.cost);
        let spare = self.cost - cost;
        (self.len, self.cost) = (len, cost);
        self.check();
        if spare > 0 {
            self.log.unreserve(spare, false);
        }
    }

    /// Makes one of two: room for an entry that is as long as both.
    pub fn join(&mut self, mut other: Reservation) {
        assert!(Rc::ptr_eq(&self.log, &other.log), "room in two logs is joined");
        self.cost += std::mem::take(&mut other.cost);
        self.len += other.len;
        self.check();
    }

    /// Is what it keeps enough for an entry of its length, wherever that comes to lie?
    fn check(&self) {
        let s = self.log.state.borrow();
        let (cost, need) = (self.cost, s.cost(self.len));
        assert!(cost >= need, "I2: {cost} bytes are kept for an entry that may take {need}");
        assert!(s.reserved >= cost, "I2: a client has {cost} of {} bytes kept", s.reserved);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.log.unreserve(self.cost, true);
    }
}

impl Client {
    pub(crate) fn new(log: Log, id: ClientId) -> Client {
        Client { log, id }
    }

    fn inner(&self) -> &Rc<Inner> {
        &self.log.inner
    }

    /// The log it belongs to.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Its number in entries.
    pub fn id(&self) -> ClientId {
        self.id
    }

    /// Appends an entry and returns its LSN; it is durable after [`Client::flush`]. `Full` if there
    /// is no room now; see [`Client::reserve`] for waiting.
    pub fn append(&self, bytes: &[u8]) -> Result<Lsn, LogError> {
        self.inner().check_room(bytes.len() as u64)?;
        Ok(self.put(bytes))
    }

    /// What it needs the log for has failed: it will trim nothing more. Whoever waits for room in
    /// its name gets this error, and others learn that its entries are in the way.
    pub fn fail(&self, e: LogError) {
        let log = self.inner();
        log.state.borrow_mut().clients[usize::from(self.id.0)].failed.get_or_insert(e);
        log.lost.wake_all();
        log.room.wake_all();
    }

    /// It will trim nothing more, until it is opened again.
    pub fn leave(&self) {
        self.inner().leave(usize::from(self.id.0));
    }

    /// Waits for room for an entry of up to `len` bytes, first come first served. Errors: `Held` if
    /// a client that is not here, or has failed, needs what is in the way.
    pub async fn reserve(&self, len: u64) -> Result<Reservation, LogError> {
        let cost = self.inner().reserve(self.id, len).await?;
        Ok(Reservation { log: self.inner().clone(), cost, len })
    }

    /// Waits until no more than `most` bytes of the log, whoever appended them, are still on their
    /// way to the disk: a disk that is slower than who appends would else have all that the log can
    /// hold in memory. Of several clients the most generous one's number counts.
    pub async fn catch_up(&self, most: u64) -> Result<(), LogError> {
        self.inner().catch_up(most).await
    }

    /// Would [`Client::catch_up`] and [`Client::reserve`] return at once, and not with an error?
    pub fn is_ready(&self, most: u64, len: u64) -> bool {
        self.inner().is_caught_up(most) && self.inner().has_room_now(len)
    }

    /// As [`Client::reserve`] without waiting: `Full` if there is no room now.
    pub fn try_reserve(&self, len: u64) -> Result<Reservation, LogError> {
        let log = self.inner();
        log.check_room(len)?;
        let cost = log.keep(len);
        Ok(Reservation { log: log.clone(), cost, len })
    }

    /// Appends into reserved room, which is used up. The entry must not be longer than was
    /// reserved.
    pub fn append_reserved(&self, room: Reservation, bytes: &[u8]) -> Result<Lsn, LogError> {
        assert!(bytes.len() as u64 <= room.len, "an entry outgrows its reservation");
        assert!(Rc::ptr_eq(&room.log, self.inner()), "an entry in another log's room");
        room.check();
        if let Some(e) = self.inner().failure() {
            return Err(e);
        }
        drop(room); // nobody comes in between: there is no await before `put`
        Ok(self.put(bytes))
    }

    fn put(&self, bytes: &[u8]) -> Lsn {
        let log = self.inner();
        let lsn = {
            let mut s = log.state.borrow_mut();
            let before = s.position().plus(s.reserved);
            let lsn = s.put(log.seed, self.id, bytes);
            let (end, limit) = (s.position().plus(s.reserved), s.limit());
            invariant!(log.plant, end <= limit, "I2: what is appended and kept ends at {end}");
            let (took, most) = (end.since(before), s.cost(bytes.len() as u64));
            assert!(took <= most, "I2: an entry takes {took} bytes, for which {most} are kept");
            let needed = s.sb.clients[usize::from(self.id.0)].trim;
            invariant!(log.plant, needed <= lsn, "I3: of {lsn} the log is kept from {needed} on");
            lsn
        };
        log.kick();
        lsn
    }

    /// Waits until the entry and all before it are durable.
    pub async fn flush(&self, lsn: Lsn) -> Result<(), LogError> {
        self.inner().flush(lsn).await
    }

    /// Everything below is durable.
    pub fn durable(&self) -> Lsn {
        self.inner().state.borrow().durable
    }

    /// Is the entry at `lsn` durable, all of it?
    pub fn is_durable(&self, lsn: Lsn) -> bool {
        let s = self.inner().state.borrow();
        lsn < s.durable && !s.parted.contains_key(&lsn)
    }

    /// Reads the entry that begins at `lsn`, waiting until it is durable.
    pub async fn read(&self, lsn: Lsn) -> Result<Vec<u8>, LogError> {
        let read_only = self.inner().failure() == Some(LogError::ReadOnly);
        let (place, len, head) = {
            let s = self.inner().state.borrow();
            let place = s.sb.place(lsn);
            let base = place / 512 * 512;
            (place, (s.sb.next_segment(lsn).since(lsn) + (place - base)) as usize, s.sb.head)
        };
        if lsn < head {
            return Err(LogError::NoEntry(lsn));
        }
        if !read_only {
            self.flush(lsn).await?;
        } else if lsn >= self.durable() {
            return Err(LogError::NoEntry(lsn));
        }
        let base = place / 512 * 512;
        let skip = (place - base) as usize;
        // Most entries are short: look at a little first, then at what the header says.
        let mut bytes = self.inner().area.read(base, len.min(4096)).await?;
        let Some(h) = bytes.get(skip..).and_then(EntryHeader::peek) else {
            return Err(LogError::NoEntry(lsn));
        };
        let need = skip + ENTRY_HEADER + h.len as usize;
        if need > bytes.len() && need <= len {
            bytes = self.inner().area.read(base, need.next_multiple_of(512).min(len)).await?;
        }
        match EntryHeader::decode(self.inner().seed, lsn, &bytes[skip..], true) {
            Some((h, part)) if h.flags == FIRST | LAST => Ok(part.to_vec()),
            Some((h, _)) if h.flags & FIRST != 0 => {
                let mut scan = self.log.scan(lsn);
                let entry = scan.next().await?.filter(|e| e.lsn == lsn);
                entry.map(|e| e.bytes).ok_or(LogError::NoEntry(lsn))
            }
            _ => Err(LogError::NoEntry(lsn)),
        }
    }

    /// Its own entries from `from` on, or from its trim if that is later.
    pub fn scan(&self, from: Lsn) -> Scan {
        let trim = self.needs().unwrap_or(IDLE);
        Scan::new(self.inner(), from.max(trim), Some(self.id))
    }

    /// From where on it needs the log; None: it holds nothing.
    pub fn needs(&self) -> Option<Lsn> {
        let trim = self.inner().state.borrow().sb.clients[usize::from(self.id.0)].trim;
        (trim != IDLE).then_some(trim)
    }

    /// Bytes from there to the end of the log: what a recovery would read.
    pub fn live_bytes(&self) -> u64 {
        let s = self.inner().state.borrow();
        s.position().saturating_since(s.sb.clients[usize::from(self.id.0)].trim)
    }

    /// Where its last entry ends, as far as this opening knows.
    pub fn end(&self) -> Lsn {
        self.inner().state.borrow().clients[usize::from(self.id.0)].end
    }

    /// It needs nothing below `below` any more. What is not durable yet stays. The space is free
    /// once a superblock with this is durable: [`Log::persist`], or by itself when room is short.
    pub fn trim(&self, below: Lsn) {
        {
            let mut s = self.inner().state.borrow_mut();
            let below = below.min(s.durable);
            let end = s.clients[usize::from(self.id.0)].end;
            let slot = &mut s.sb.clients[usize::from(self.id.0)];
            let was = slot.trim;
            if slot.trim != IDLE && below >= end {
                // Even if it moves nothing: of a client whose first entry a crash has cut off,
                // nothing lies behind its trim, and it must not keep the head for ever.
                slot.trim = IDLE;
            } else if slot.trim != IDLE && below > slot.trim {
                slot.trim = below;
            }
            let (trim, head, last) = (slot.trim, s.sb.head, s.end());
            assert!(trim >= was, "I3: a client needed the log from {was}, and now from {trim} on");
            let holds = end > s.durable && was != IDLE;
            assert!(
                trim != IDLE || !holds,
                "I3: an entry up to {end} is not durable, and given up"
            );
            assert!(trim >= head, "I3: the head is {head}, and a client needs {trim}");
            let inside = trim == IDLE || trim <= last;
            let plant = self.inner().plant;
            invariant!(plant, inside, "I3: a client needs {trim} of a log that ends at {last}");
        }
        self.inner().trim_in_background();
    }

    /// Reads everything of its own into memory: for small logs and for tests.
    pub async fn read_all(&self) -> Result<Vec<Entry>, LogError> {
        let mut scan = self.scan(Lsn(0));
        let mut all = Vec::new();
        while let Some(e) = scan.next().await? {
            all.push(e);
        }
        Ok(all)
    }
}
