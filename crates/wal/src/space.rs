//! Space in the log: what an entry may take at worst, promises of room, and making trims durable
//! when room is short (I2). A full log makes callers wait; it never gives up what is needed.

use crate::error::LogError;
use crate::layout::{ClientId, ClientSlot, ENTRY_HEADER, GROUP_HEADER, Lsn};
use crate::state::{ClientState, Inner, State};
use env::sync::LockGuard;
use env::unless;
use std::rc::Rc;

impl State {
    /// What an entry of `len` bytes may take at worst: its group's padding, and what is left over
    /// in the segment when it moves to the next.
    pub(crate) fn cost(&self, len: u64) -> u64 {
        let segment = u64::from(self.sb.segment_bytes);
        let parts = len / (segment / 2) + 1;
        let headers = (GROUP_HEADER + ENTRY_HEADER) as u64 * (parts + 1);
        2 * self.sb.pad(len + headers) + 2 * u64::from(self.sb.unit)
    }

    /// The longest entry.
    pub(crate) fn len_max(&self) -> u64 {
        self.sb.capacity() / 8
    }

    /// The end of what may be written, as the durable superblock stands.
    pub(crate) fn limit(&self) -> Lsn {
        self.sb.limit()
    }

    pub(crate) fn has_room(&self, cost: u64) -> bool {
        self.position().plus(self.reserved + cost) <= self.limit()
    }

    /// Would making the trims durable free a segment?
    pub(crate) fn trim_would_help(&self) -> bool {
        self.sb.floor(self.trimmed().max(self.sb.head)) > self.sb.floor(self.sb.head)
    }

    /// Who holds the head, if that is somebody who is not here to trim?
    fn held_by(&self) -> Option<String> {
        let oldest = self.trimmed();
        let slots = self.sb.clients.iter().zip(&self.clients);
        let gone = |c: &ClientState| !c.here || c.failed.is_some();
        let held = |(slot, c): &(&ClientSlot, &ClientState)| slot.trim == oldest && gone(c);
        slots.into_iter().find(held).map(|(slot, _)| slot.shown())
    }

    /// Is more than half of the log in use?
    pub(crate) fn half_full(&self) -> bool {
        let used = self.position().plus(self.reserved);
        self.limit().saturating_since(used) < self.sb.capacity() / 2
    }
}

/// Counts one who waits for room, until dropped.
struct Starving<'a>(&'a Inner);
impl<'a> Starving<'a> {
    fn new(log: &'a Inner) -> Starving<'a> {
        log.starving.set(log.starving.get() + 1);
        Starving(log)
    }
}
impl Drop for Starving<'_> {
    fn drop(&mut self) {
        assert!(self.0.starving.get() > 0, "who waits for room no more has waited");
        self.0.starving.set(self.0.starving.get() - 1);
    }
}

impl Inner {
    /// Is there room for an entry of this length, without waiting?
    pub(crate) fn check_room(&self, len: u64) -> Result<(), LogError> {
        let s = self.state.borrow();
        if let Some(e) = &s.failed {
            return Err(e.clone());
        }
        if len > s.len_max() {
            return Err(LogError::TooLarge { len, max: s.len_max() });
        }
        if !s.has_room(s.cost(len)) && !self.planted("overwrite-live") {
            return Err(LogError::Full);
        }
        Ok(())
    }

    /// The same, and nobody who came before waits for it.
    pub(crate) fn has_room_now(&self, len: u64) -> bool {
        !self.turn.is_busy() && self.check_room(len).is_ok()
    }

    fn check_client(&self, client: ClientId) -> Result<(), LogError> {
        let s = self.state.borrow();
        s.clients[usize::from(client.0)].failed.clone().map_or(Ok(()), Err)
    }

    /// Waits until those who came before have room. It is given up when the client fails: they may
    /// wait for another one's trims.
    async fn turn_of(&self, client: ClientId) -> Result<LockGuard, LogError> {
        loop {
            self.check_client(client)?;
            if let Some(turn) = unless(self.turn.lock(), self.lost.wait()).await {
                return Ok(turn);
            }
        }
    }

    /// Waits until there is room for an entry of `len` bytes, and keeps it. Returns what it keeps.
    pub(crate) async fn reserve(
        self: &Rc<Self>,
        client: ClientId,
        len: u64,
    ) -> Result<u64, LogError> {
        let _turn = self.turn_of(client).await?;
        let mut waited = false;
        loop {
            self.check_client(client)?;
            match self.check_room(len) {
                Ok(()) => break,
                Err(LogError::Full) => (),
                Err(e) => return Err(e),
            }
            if !std::mem::replace(&mut waited, true) {
                self.state.borrow_mut().stats.waits_for_space += 1;
            }
            if self.state.borrow().trim_would_help() {
                self.write_superblock().await?;
            } else if let Some(by) = self.state.borrow().held_by() {
                return Err(LogError::Held { by });
            } else {
                let _starving = Starving::new(self);
                self.pressure.wake_all();
                self.room.wait().await;
            }
        }
        Ok(self.keep(len))
    }

    /// Keeps room that there is. Returns what it keeps.
    pub(crate) fn keep(&self, len: u64) -> u64 {
        let mut s = self.state.borrow_mut();
        let cost = s.cost(len);
        invariant!(self.plant, s.has_room(cost), "I2: {cost} are promised beyond {}", s.limit());
        assert!(s.failed.is_none(), "I7: a log that has failed promises nothing");
        s.reserved += cost;
        s.promises += 1;
        cost
    }

    /// The client at this place is not here any more: who waits for what it holds is told.
    pub(crate) fn leave(&self, at: usize) {
        let was = std::mem::replace(&mut self.state.borrow_mut().clients[at].here, false);
        if was {
            self.room.wake_all();
        }
    }

    /// Gives room back that was kept and not used; `all`: nothing of that promise is left.
    pub(crate) fn unreserve(&self, cost: u64, all: bool) {
        let mut s = self.state.borrow_mut();
        assert!(s.reserved >= cost, "I2: {cost} bytes are given back, {} are kept", s.reserved);
        s.reserved -= cost;
        assert!(s.promises > 0, "I2: {cost} bytes are given back that nobody was promised");
        s.promises -= u64::from(all);
        let kept = s.reserved;
        assert!(s.promises > 0 || kept == 0, "I2: {kept} bytes are kept for nobody");
        drop(s);
        if cost > 0 {
            self.room.wake_all();
        }
    }

    /// After a trim: makes it durable in the background if the log is more than half full.
    pub(crate) fn trim_in_background(self: &Rc<Self>) {
        let go = {
            let s = self.state.borrow();
            s.half_full() && s.trim_would_help() && !s.trimming && s.failed.is_none()
        };
        if go {
            self.state.borrow_mut().trimming = true;
            let log = self.clone();
            self.env.spawn("log trim", async move {
                // A failure is remembered in the log itself.
                let _ = log.write_superblock().await;
                let was = std::mem::replace(&mut log.state.borrow_mut().trimming, false);
                assert!(was, "two tasks make trims durable in the background");
            });
        } else {
            self.room.wake_all();
        }
    }
}
