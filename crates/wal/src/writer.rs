//! Filling groups and writing them: appends go to the open group at once, in order; a task issues
//! groups when somebody waits for them and the window has room; ends are acknowledged in order
//! (I1). It knows no client's meaning and no recovery.

use crate::error::LogError;
use crate::layout::{
    ClientId, DATA_AT, ENTRY_HEADER, EntryHeader, FIRST, GROUP_HEADER, GroupHeader, IDLE, LAST, Lsn,
};
use crate::state::{Flight, Group, Inner, State};
use crate::window::Ended;
use env::{Block, Durability};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// A group is closed when it has this many bytes, so that one write does not keep all others
/// waiting.
const GROUP_FULL: usize = 256 << 10;
/// Groups that lie one behind the other are one write up to so many bytes.
const WRITE_BYTES_MAX: u64 = 1 << 20;
/// An entry is cut rather than moved to the next segment only if at least this much of it fits.
const PART_MIN: usize = 2048;

impl State {
    fn segment_end(&self, lsn: Lsn) -> Lsn {
        self.sb.next_segment(lsn)
    }

    /// Where the next byte would go if nothing more joined the open group.
    pub(crate) fn position(&self) -> Lsn {
        self.open.as_ref().map_or(self.tail, |g| self.sb.padded(g.end()))
    }

    /// Everything that was appended lies below this.
    pub(crate) fn end(&self) -> Lsn {
        self.open.as_ref().map_or(self.tail, Group::end)
    }

    pub(crate) fn close_group(&mut self) {
        if let Some(g) = self.open.take() {
            assert_eq!(g.prev, self.tail, "I6: a group names the end of the one before it");
            assert!(g.start >= self.tail && g.entries > 0, "I6: {} follows {}", g.start, g.prev);
            let tail = self.sb.padded(g.end());
            assert!(self.tail < tail, "I6: the log ends at {}, and then at {tail}", self.tail);
            self.tail = tail;
            self.closed.push_back(g);
        }
    }

    /// The open group, with room for at least `room` bytes of entry; a new one if need be.
    fn group_with(&mut self, room: usize) -> &mut Group {
        if let Some(g) = &self.open
            && g.end().plus(room as u64) > self.segment_end(g.start)
        {
            self.close_group();
        }
        if self.open.is_none() {
            let mut start = self.tail;
            let need = (GROUP_HEADER + room) as u64;
            if !self.sb.begins_segment(start) && start.plus(need) > self.segment_end(start) {
                start = self.segment_end(start);
            }
            assert!(start.plus(need) <= self.segment_end(start), "a part fits in a segment");
            let bytes = vec![0; GROUP_HEADER];
            self.open = Some(Group { start, prev: self.tail, bytes, entries: 0 });
        }
        let end = self.open.as_ref().map_or(Lsn(0), |g| self.segment_end(g.start));
        let group = self.open.as_mut().expect("it was opened above");
        let fits = group.end().plus(room as u64) <= end;
        assert!(fits, "{room} bytes for the group at {} cross its segment's end", group.start);
        group
    }

    /// How much of an entry with `left` bytes to go is put down next.
    fn part_len(&self, left: usize) -> usize {
        let segment = self.sb.segment_bytes as usize;
        let most = segment - GROUP_HEADER - ENTRY_HEADER;
        if left <= most / 2 {
            return left; // moved to the next segment as a whole if it does not fit
        }
        let (at, used) = match &self.open {
            Some(g) => (g.start, g.bytes.len()),
            None => (self.tail, GROUP_HEADER),
        };
        let room = self.segment_end(at).since(at) as usize;
        match room.saturating_sub(used + ENTRY_HEADER) {
            n if n >= left.min(PART_MIN) => n.min(left),
            _ => most.min(left),
        }
    }

    /// Puts an entry into groups. The caller has made sure that there is room.
    pub(crate) fn put(&mut self, seed: u32, client: ClientId, bytes: &[u8]) -> Lsn {
        let (before, head) = (self.end(), self.sb.head);
        let mut done = 0;
        let mut lsn = None;
        loop {
            let n = self.part_len(bytes.len() - done);
            let last = done + n == bytes.len();
            let flags = if done == 0 { FIRST } else { 0 } | if last { LAST } else { 0 };
            let header = EntryHeader {
                len: n as u32,
                offset: done as u32,
                epoch: self.sb.epoch.low(),
                client: client.0,
                flags,
            };
            let group = self.group_with(ENTRY_HEADER + n);
            let at = group.end();
            header.append(seed, at, &bytes[done..done + n], &mut group.bytes);
            group.entries += 1;
            let (end, full) = (group.end(), group.bytes.len() >= GROUP_FULL);
            let first = *lsn.get_or_insert(at);
            if full || !last || self.alone {
                self.close_group();
            }
            done += n;
            assert!(n > 0 || last, "a part of no bytes, {done} are put down");
            if last {
                assert!(first >= before, "I1: an entry at {first}, and {before} is taken");
                assert!(first >= head, "I3: an entry at {first} lies below the head {head}");
                if first != at {
                    let old = self.parted.insert(first, end);
                    assert_eq!(old, None, "I1: two entries of several parts begin at {first}");
                }
                assert_eq!(done, bytes.len(), "I1: an entry of {} bytes has another length", done);
                let was = std::mem::replace(&mut self.clients[usize::from(client.0)].end, end);
                assert!(was < end, "I1: a client's entry ends at {end}, the one before at {was}");
                let slot = &mut self.sb.clients[usize::from(client.0)];
                if slot.trim == IDLE {
                    slot.trim = first;
                    self.activations += 1;
                }
                self.stats.entries += 1;
                self.stats.entry_bytes += bytes.len() as u64;
                return first;
            }
        }
    }

    /// Must a superblock be durable before the next group is written (I5)?
    fn sb_needed(&self) -> bool {
        self.activations > self.activations_durable
    }

    /// Where the durable prefix must reach for the entry at `lsn` to be durable.
    fn target(&self, lsn: Lsn) -> Lsn {
        self.parted.get(&lsn).copied().unwrap_or(lsn.plus(1))
    }

    /// How many entries have not been sent to the disk.
    fn waiting(&self) -> u64 {
        let all = self.closed.iter().chain(&self.open);
        all.map(|g| u64::from(g.entries)).sum()
    }

    /// The next groups to write, as far as they lie one behind the other: those that are closed,
    /// and the open one if somebody waits for what is in it. In one go, because a disk that gets
    /// the second when the first has ended waits for a turn.
    fn take_groups(&mut self) -> Vec<Group> {
        if self.open.as_ref().is_some_and(|g| self.wanted > g.start) {
            self.close_group();
        }
        let mut all: Vec<Group> = Vec::new();
        while let Some(next) = self.closed.front() {
            if let Some((first, last)) = all.first().zip(all.last()) {
                let (end, bytes) = (self.sb.padded(last.end()), next.end().since(first.start));
                let follows =
                    end == next.start && self.sb.place(next.start) > self.sb.place(first.start);
                if self.alone || !follows || bytes > WRITE_BYTES_MAX {
                    break;
                }
            }
            all.extend(self.closed.pop_front());
        }
        all
    }

    /// Moves the durable prefix over the writes that have ended; takes the wakers of those it
    /// passed.
    fn advance(&mut self) -> Vec<Waker> {
        while self.in_flight.front().is_some_and(|f| f.done) {
            let f = self.in_flight.pop_front().expect("there is a first");
            let follows = f.start >= self.durable && f.end > f.start;
            assert!(follows, "I1: {} is durable, and then from {} on", self.durable, f.start);
            assert!(self.failed.is_none(), "I7: a log that has failed acknowledges nothing");
            self.durable = f.end;
        }
        while self.parted.first_key_value().is_some_and(|(_, end)| *end <= self.durable) {
            self.parted.pop_first();
        }
        let (durable, end) = (self.durable, self.end());
        assert!(durable <= end, "I1: {durable} is durable, and only {end} was appended");
        let later = self.waiters.split_off(&(self.durable.plus(1), 0));
        std::mem::replace(&mut self.waiters, later).into_values().collect()
    }
}

impl Inner {
    /// Waits until the entry at `lsn` and all before it are durable (I1).
    pub(crate) async fn flush(self: &Rc<Self>, lsn: Lsn) -> Result<(), LogError> {
        let target = {
            let mut s = self.state.borrow_mut();
            let target = s.target(lsn);
            if target > s.durable && target > s.position() {
                return Err(LogError::NoEntry(lsn)); // it would be waited for in vain
            }
            s.wanted = s.wanted.max(target);
            target
        };
        self.kick();
        self.wait_durable(target).await?;
        let s = self.state.borrow();
        let upto = s.durable;
        let safe = target <= upto;
        invariant!(self.plant, safe, "I1: the entry at {lsn} ends at {target}, durable is {upto}");
        Ok(())
    }

    /// Would [`Inner::catch_up`] not wait?
    pub(crate) fn is_caught_up(&self, most: u64) -> bool {
        let s = self.state.borrow();
        let (durable, tail) = (s.durable, s.tail);
        assert!(durable <= tail, "I1: {durable} is durable of a log that ends at {tail}");
        tail.0.saturating_sub(s.ahead_max.max(most)) <= durable.0
    }

    /// Waits until no more than `most` bytes of closed groups are on their way: they are in memory
    /// until they are durable, and go out by themselves, whether somebody waits or not.
    pub(crate) async fn catch_up(&self, most: u64) -> Result<(), LogError> {
        let target = {
            let mut s = self.state.borrow_mut();
            s.ahead_max = s.ahead_max.max(most);
            Lsn(s.tail.0.saturating_sub(s.ahead_max))
        };
        self.wait_durable(target).await?;
        let upto = self.state.borrow().durable;
        invariant!(self.plant, target <= upto, "I1: {target} is waited for, {upto} is durable");
        Ok(())
    }

    async fn wait_durable(&self, target: Lsn) -> Result<(), LogError> {
        let mut key = None;
        poll_fn(|cx| {
            let mut s = self.state.borrow_mut();
            if s.durable >= target || self.acked_early(&s, target) {
                return Poll::Ready(Ok(()));
            }
            if let Some(e) = &s.failed {
                return Poll::Ready(Err(e.clone()));
            }
            let key = *key.get_or_insert_with(|| {
                s.next_ticket += 1;
                (target, s.next_ticket)
            });
            s.waiters.insert(key, cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Planted bugs: an entry counts as durable when its own write has ended, or has begun.
    fn acked_early(&self, s: &State, target: Lsn) -> bool {
        let own = |f: &Flight| f.start < target && target <= f.end;
        (self.planted("ack-out-of-order") && s.in_flight.iter().any(|f| own(f) && f.done))
            || (self.planted("ack-before-write") && s.in_flight.iter().any(own))
    }

    /// Starts the task that issues writes, behind every task that is ready now: what they append in
    /// this turn goes into the same write, and nobody has waited for it.
    pub(crate) fn kick(self: &Rc<Self>) {
        let work = {
            let s = self.state.borrow();
            let open = s.open.as_ref().is_some_and(|g| s.wanted > g.start);
            !s.issuing && s.failed.is_none() && (open || !s.closed.is_empty())
        };
        if work {
            self.state.borrow_mut().issuing = true;
            let log = self.clone();
            self.env.spawn("log issue", async move { log.issue().await });
        }
    }

    async fn issue(self: Rc<Self>) {
        loop {
            let sb_needed = self.state.borrow().sb_needed();
            if sb_needed && self.write_superblock().await.is_err() {
                break;
            }
            let groups = {
                let mut s = self.state.borrow_mut();
                if self.delay(&mut s) {
                    break;
                }
                let entries = s.in_flight.iter().map(|f| u64::from(f.entries));
                let room = s.window.may_issue(entries, s.waiting());
                let go = room && s.failed.is_none() && !s.sb_needed();
                if go { s.take_groups() } else { Vec::new() }
            };
            if !groups.is_empty() {
                self.send(groups);
            } else if !self.state.borrow().sb_needed() || self.failure().is_some() {
                break;
            }
        }
        let mut s = self.state.borrow_mut();
        let was = std::mem::replace(&mut s.issuing, false);
        assert!(was, "two tasks issue the log's writes");
        // Whichever ends last calls `kick` again: a write, a delay, or the next append.
        let comes = s.failed.is_some() || s.delaying || !s.in_flight.is_empty();
        let wanted = s.open.as_ref().is_some_and(|g| s.wanted > g.start);
        let stays = wanted || !s.closed.is_empty();
        assert!(comes || !stays, "I1: {} is wanted, and nobody writes it any more", s.wanted);
    }

    /// Is the group held back for callers who are on their way? Then a task of its own calls `kick`
    /// when that time is over.
    fn delay(self: &Rc<Self>, s: &mut State) -> bool {
        let (now, here) = (self.env.now(), s.waiters.len() as u64);
        let idle = s.in_flight.is_empty() && s.closed.is_empty() && s.failed.is_none();
        let Some(until) = s.window.delays_until(now, here).filter(|_| idle) else { return false };
        if !std::mem::replace(&mut s.delaying, true) {
            let log = self.clone();
            self.env.spawn("log commit delay", async move {
                log.env.sleep(until.since(now)).await;
                let was = std::mem::replace(&mut log.state.borrow_mut().delaying, false);
                assert!(was, "two tasks wait for callers on their way");
                log.kick();
            });
        }
        true
    }

    /// Starts the write of these groups, which lie one behind the other.
    fn send(self: &Rc<Self>, groups: Vec<Group>) {
        let mut s = self.state.borrow_mut();
        let (start, mut before) =
            (groups[0].start, s.in_flight.back().map_or(s.durable, |f| f.end));
        let (mut bytes, mut entries) = (Vec::new(), 0);
        for mut g in groups {
            self.seal(&s, &mut g, before);
            before = g.end();
            entries += g.entries;
            if bytes.is_empty() { bytes = g.bytes } else { bytes.extend_from_slice(&g.bytes) }
        }
        let (end, crowd, issued) = (before, s.in_flight.len() + 1, self.env.now());
        let len = bytes.len() as u64;
        assert_eq!(start.plus(len), end, "I6: a write of {len} bytes at {start} ends at {end}");
        let flight = Flight { start, end, entries, issued, crowd, done: false };
        s.in_flight.push_back(flight);
        s.stats.writes += 1;
        s.stats.write_bytes += bytes.len() as u64;
        s.stats.in_flight_sum += crowd as u64;
        let (place, area_end) = (s.sb.place(start), DATA_AT + s.sb.capacity());
        assert!(place + len <= area_end, "I2: a write of {len} bytes at {place} leaves the log");
        drop(s);
        let log = self.clone();
        let cached = self.planted("log-not-fua");
        self.env.spawn("log write", async move {
            let how = if cached { Durability::Cached } else { Durability::Fua };
            let result = log.area.write(place, Block::copy_of(&bytes), how).await;
            match result {
                Ok(()) => log.sent(start),
                Err(e) => log.fail(&e.into()),
            }
        });
    }

    /// A group is about to be written behind what ends at `before`: its header, and bytes up to the
    /// unit.
    fn seal(&self, s: &State, g: &mut Group, before: Lsn) {
        // As many steps as the group has entries, each over its bytes.
        debug_assert!(
            g.is_whole(),
            "I6: the group at {} is not its {} entries",
            g.start,
            g.entries
        );
        let header = GroupHeader {
            lsn: g.start,
            epoch: s.sb.epoch,
            prev: g.prev,
            durable: s.durable,
            bytes: g.bytes.len() as u32,
            entries: g.entries,
        };
        let padded = s.sb.pad(g.bytes.len() as u64);
        let end = g.start.plus(padded);
        let fits = end <= s.sb.limit();
        let head = s.sb.head;
        invariant!(self.plant, fits, "I2: a group up to {end} overwrites {head}");
        let crosses = end > s.sb.next_segment(g.start);
        assert!(!crosses, "I2: a group from {} to {end} crosses into the next segment", g.start);
        assert!(s.failed.is_none(), "I7: a log that has failed writes nothing");
        assert!(s.sb.epoch_start <= g.start, "I4: a group at {} is of an older epoch", g.start);
        assert!(!s.sb_needed(), "I5: a group goes before the superblock that announces it");
        assert_eq!(g.prev, before, "I6: a group names the end of the one before it");
        header.encode(self.seed, &mut g.bytes);
        g.bytes.resize(padded as usize, 0);
    }

    /// A write has ended.
    fn sent(self: &Rc<Self>, start: Lsn) {
        let now = self.env.now();
        let woken = {
            let mut s = self.state.borrow_mut();
            if s.failed.is_some() {
                return; // nothing is acknowledged after a failure (I7)
            }
            let f = s.in_flight.iter_mut().find(|f| f.start == start);
            let f = f.expect("a write that ends was in flight");
            assert!(!f.done, "I1: the write at {start} ends twice");
            f.done = true;
            let (crowd, issued) = (f.crowd, f.issued);
            let in_flight: u64 = s.in_flight.iter().map(|f| u64::from(f.entries)).sum();
            let (entries, callers) = (in_flight + s.waiting(), s.waiters.len() as u64);
            s.stats.write_nanos += now.since(issued).0;
            let (before, mine) = (s.durable, s.in_flight.front().is_some_and(|f| f.start == start));
            let mut woken = s.advance();
            assert_eq!(mine, s.durable > before, "I1: the write at {start} moves {before} on");
            let ended = Ended { issued, now, crowd, entries, callers, woken: woken.len() as u64 };
            s.window.note(ended);
            if self.planted("ack-out-of-order") {
                woken.extend(std::mem::take(&mut s.waiters).into_values());
            }
            woken
        };
        self.check();
        woken.into_iter().for_each(Waker::wake);
        self.kick();
    }
}
