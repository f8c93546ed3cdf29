//! The log: what is put into the open partial segments, how they are closed, written and
//! acknowledged. It does not know what the blocks mean, nor who asks.

use crate::extents::Extent;
use crate::geometry::{BLOCK_BYTES, Place, Virt};
use crate::heads::{Open, USERS};
use crate::memory::Put;
use crate::patches::Range;
use crate::state::State;
use crate::store::Inner;
use crate::summary::{ENTRIES_BYTES_MAX, Entry, Serial, Summary};
use crate::table::{Base, damaged};
use crate::usage::Use;
use env::{Block, DiskError, Durability};
use std::rc::Rc;

/// A closed partial segment on its way to the disk.
pub(crate) struct Ready {
    serial: Serial,
    place: Place,
    blocks: Vec<Block>,
}

/// A partial segment that is not known to be durable.
#[derive(Default)]
pub(crate) struct Flight {
    /// Callers' groups up to this one are durable with it; 0: it says nothing of them.
    puts: u64,
    ended: bool,
    fua: bool,
    /// Somebody waits for it.
    wanted: bool,
}

impl State {
    /// Everything put until [`State::end_group`] survives a crash together or not at all (I5).
    pub(crate) fn begin_group(&mut self) {
        assert!(!self.in_group, "I5: groups do not nest");
        assert!(!self.torn || self.is_user_open(), "I5: a part of the group before is nowhere");
        self.in_group = true;
    }
    pub(crate) fn end_group(&mut self) {
        assert!(self.in_group, "I5: a group ends that was not begun");
        self.in_group = false;
        assert!(!self.torn || self.is_user_open(), "I5: the rest of a group is to be closed");
    }

    /// A block's new contents. `base`: where it lies now.
    pub(crate) fn write_block(&mut self, v: Virt, block: Block, base: &Base) {
        let len = block.len();
        assert_eq!(len, BLOCK_BYTES, "I11: the whole of block {} is {len} bytes", v.0);
        self.stamp += 1;
        let stamp = self.stamp;
        self.stats.written += 1;
        // A range that was put later than the old contents must not be found behind the new ones.
        let has_ranges = self.patches.get(v).is_some();
        self.patches.remove(v);
        let old = self.table.place(v, base);
        if let Some(old) = old.filter(|_| !has_ranges && !self.is_needed(v, base))
            && let Some((open, i)) = self.open_with(old)
        {
            // Not on its way yet: the newer contents take its place.
            open.blocks[i] = block.clone();
            let before = self.pending.insert(old.0, block);
            assert!(before.is_some(), "I1: {old:?} is in an open partial, and counts as written");
            return;
        }
        let head = self.head_of_write(old);
        let place = self.put(head, Entry::Written { v, stamp }, Some(block));
        self.give_up(Extent { v, n: 1, place: old }, base);
        self.map(v, place, stamp);
    }

    /// The users' open partial with the block that lies there, and which of its blocks it is.
    fn open_with(&mut self, place: Place) -> Option<(&mut Open, usize)> {
        let users = self.geometry.user_heads();
        let mut open = self.heads[..users].iter_mut().filter_map(|h| h.open.as_mut());
        open.find_map(|o| o.index_of(place).map(|i| (o, i)))
    }

    /// A block is copied from `from`, where it still lies (I4), to a segment that `head` fills.
    pub(crate) fn move_block(
        &mut self,
        (v, base): (Virt, &Base),
        (from, stamp): (Place, u64),
        (head, block): (usize, Block),
    ) {
        let users = self.geometry.user_heads();
        assert!(head >= users, "I5: block {} is moved to head {head} of the users'", v.0);
        self.check_move((v, base), (from, stamp));
        let ranges = self.patches.get(v).map(|p| p.id);
        self.stats.moved += 1;
        let place = self.put(head, Entry::Moved { v, stamp, from }, Some(block));
        self.remap(v, place, stamp, Some(from));
        let kept = self.patches.get(v).map(|p| p.id) == ranges;
        assert!(kept, "I11: a move of block {} changes the ranges over it", v.0);
    }

    /// A block is about to be taken from `from`: what lies there must be this block's, and of
    /// times gone by.
    fn check_move(&self, (v, base): (Virt, &Base), (from, stamp): (Place, u64)) {
        let now = self.table.place(v, base);
        assert_eq!(now, Some(from), "I4: block {} is moved, and has been written elsewhere", v.0);
        let newest = self.stamp;
        assert!(stamp <= newest, "I8: block {} is moved, of stamp {stamp}, at {newest}", v.0);
    }

    /// A block was copied from `from`, where it still lies, into a hole (I12).
    pub(crate) fn plug_block(
        &mut self,
        (v, base): (Virt, &Base),
        (from, stamp): (Place, u64),
        to: Place,
    ) {
        self.check_move((v, base), (from, stamp));
        let (here, there) = (self.geometry.segment_of(from), self.geometry.segment_of(to));
        assert_ne!(here, there, "I12: block {} is plugged into the segment that it left", v.0);
        let held = there.is_some_and(|seg| self.usage.get(seg).reads > 0);
        assert!(held, "I12: block {} is plugged into {to:?}, which nobody holds", v.0);
        let waits = self.pending.contains_key(&to.0);
        assert!(!waits, "I12: block {} is plugged into {to:?}, which is not written yet", v.0);
        let head = self.heads.len() - 1;
        (self.stats.moved, self.stats.plugged) = (self.stats.moved + 1, self.stats.plugged + 1);
        self.put(head, Entry::Plugged { v, stamp, from, to }, None);
        self.plugged(v, (from, stamp), to);
    }

    /// A block lies in a hole now.
    pub(crate) fn plugged(&mut self, v: Virt, (from, stamp): (Place, u64), to: Place) {
        self.died(from, 1);
        let seg = self.geometry.segment_of(to).expect("I8: a place is in a segment");
        self.usage.plugged(seg, stamp);
        self.residents.lies(v, Some(seg));
        self.table.active.set(Extent { v, n: 1, place: Some(to) });
    }

    /// What a segment holds by plugging; it goes where the cleaner writes, before the records.
    pub(crate) fn amend(&mut self, v: Virt, block: Block, old: Option<Place>) {
        let (head, stamp) = (self.heads.len() - 1, self.stamp);
        self.stats.amended += 1;
        let place = self.put(head, Entry::Written { v, stamp }, Some(block));
        self.remap(v, place, stamp, old);
    }

    /// What amended a segment is not needed any more.
    pub(crate) fn free_amended(&mut self, e: Extent) {
        self.put(self.heads.len() - 1, Entry::Free { v: e.v, n: u64::from(e.n) }, None);
        self.unmap(e);
    }

    /// Bytes of a block, and the block with them if that is known.
    pub(crate) fn write_range(&mut self, v: Virt, range: Range, image: Option<&Block>) {
        self.stats.range_bytes += range.bytes.len() as u64;
        self.patches.add(v, &range, image);
        if !self.planted("memory-mixes-dirty") {
            self.residents.lies(v, None);
        }
        self.put(USERS, Entry::Range { v, range }, None);
    }

    /// These blocks lie nowhere any more.
    pub(crate) fn free_blocks(&mut self, e: Extent, base: &Base) {
        self.stats.freed += u64::from(e.n);
        self.patches.remove_within(e.v, u64::from(e.n));
        if !self.planted("free-record-lost") {
            self.put(USERS, Entry::Free { v: e.v, n: u64::from(e.n) }, None);
        }
        self.forget(e, base);
    }

    /// What the volume has there holds nothing any more.
    pub(crate) fn forget(&mut self, e: Extent, base: &Base) {
        if e.place.is_some() {
            self.give_up(e, base);
            self.residents.all_lie(e.v, u64::from(e.n), None);
            self.table.active.set(Extent { place: None, ..e });
        }
    }

    /// Nothing lives any more in `n` places from `place` on.
    pub(crate) fn died(&mut self, place: Place, n: u64) {
        self.deaths.note(place, n, self.usage.begun);
        for i in 0..n {
            let seg = self.geometry.segment_of(place.plus(i));
            let seg = seg.expect("I8: a place is in a segment");
            self.usage.died(seg, 1);
            self.note_lifespan(seg);
        }
    }

    fn remap(&mut self, v: Virt, new: Option<Place>, stamp: u64, old: Option<Place>) {
        if let Some(old) = old {
            self.died(old, 1);
        }
        self.map(v, new, stamp);
    }

    fn map(&mut self, v: Virt, new: Option<Place>, stamp: u64) {
        let new = new.expect("a block was put");
        let seg = self.geometry.segment_of(new).expect("I8: a place is in a segment");
        let newest = self.stamp;
        assert!(stamp <= newest, "I8: block {} has stamp {stamp}, and it is {newest}", v.0);
        self.usage.born(seg, stamp);
        let has_ranges = self.patches.get(v).is_some();
        self.residents.lies(v, Some(seg).filter(|_| !has_ranges));
        self.table.active.set(Extent { v, n: 1, place: Some(new) });
    }

    /// The table forgets `e`, which lies where it says and is no snapshot's.
    pub(crate) fn unmap(&mut self, e: Extent) {
        let Some(place) = e.place else { return };
        self.died(place, u64::from(e.n));
        self.residents.all_lie(e.v, u64::from(e.n), None);
        self.table.active.set(Extent { place: None, ..e });
    }

    /// Appends to a head's open partial, opening one if need be. Returns where the block will lie.
    pub(crate) fn put(&mut self, h: usize, entry: Entry, block: Option<Block>) -> Option<Place> {
        let is_group = self.in_group || h >= self.geometry.user_heads();
        assert!(is_group, "I5: {:?} of users' are put, and no group is begun", entry.blocks());
        let same = entry.has_payload() == block.is_some();
        assert!(same, "I3: {:?} are put with a block that no entry has", entry.blocks());
        self.put_in_order(h, &entry);
        self.make_room(h, &entry);
        let users = self.geometry.user_heads();
        let named = match &entry {
            Entry::Written { v, stamp } | Entry::Moved { v, stamp, .. } => Some((*v, *stamp)),
            _ => None,
        };
        let open = self.heads[h].open.as_mut().expect("there is one with room");
        open.entry_bytes += entry.bytes();
        let bytes = open.entry_bytes;
        assert!(bytes <= ENTRIES_BYTES_MAX, "I3: {bytes} bytes of entries in a summary");
        open.entries.push(entry);
        self.note_order(h);
        let block = block?;
        self.pace.used += u64::from(h < users);
        let head = &mut self.heads[h];
        let (seg, offset) = (head.segment, head.offset);
        let open = head.open.as_mut().expect("there is one with room");
        open.blocks.push(block.clone());
        let place = open.start.plus(open.blocks.len() as u64);
        let there = self.geometry.segment_of(place);
        assert_eq!(there, Some(seg), "I3: head {h} puts a block at {place:?}");
        if let Some((v, stamp)) = named {
            let slot = offset + open.blocks.len() as u32;
            self.residents.put(seg, Put { v, stamp, slot });
        }
        let before = self.pending.insert(place.0, block);
        let is_free = before.is_none() || self.plant.is_some();
        assert!(is_free, "I2: {place:?} is put again, and was not written yet");
        Some(place)
    }

    fn make_room(&mut self, h: usize, entry: &Entry) {
        let segment_blocks = self.geometry.segment_blocks;
        if let Some(open) = &self.heads[h].open {
            let end = self.heads[h].offset + open.blocks.len() as u32 + 2;
            if end <= segment_blocks && open.entry_bytes + entry.bytes() <= ENTRIES_BYTES_MAX {
                return;
            }
            self.close(h);
        }
        if self.heads[h].offset + 2 > segment_blocks {
            self.enter_next(h);
        }
        let head = &mut self.heads[h];
        let at = head.offset;
        assert!(at + 2 <= segment_blocks, "I3: a partial begins at {at}, with no room for a block");
        let start = self.geometry.start(head.segment).plus(u64::from(at));
        let is_free = !self.pending.contains_key(&start.0) || self.plant.is_some();
        assert!(is_free, "I3: a partial begins at {start:?}, over a block that is on its way");
        head.open = Some(Open::at(start));
    }

    /// The head goes on in the segment that was announced, and chooses the one after it.
    fn enter_next(&mut self, h: usize) {
        if self.planted("victim-freed-before-checkpoint") {
            self.usage.release_at_once();
        }
        let (of, used) = (&self.heads[h], self.usage.get(self.heads[h].next).used);
        assert!(of.open.is_none(), "I3: head {h} leaves a segment with a partial open");
        let kept = used == Use::Open || self.planted("roll-forward-allocates-visited");
        assert!(kept, "I3: head {h} goes on in segment {}, which is {used:?}", of.next.0);
        let next = self.usage.take(Use::Open);
        let next = next.expect("I10: whoever writes was admitted with segments in reserve");
        let head = &mut self.heads[h];
        let full = std::mem::replace(&mut head.segment, head.next);
        (head.offset, head.next) = (0, next);
        self.usage.fill(head.segment, h as u8, self.stamp);
        self.residents.begins(head.segment);
        self.usage.close(full);
        self.note_lifespan(full);
    }

    /// Gives the open partial of a head its serial and its sum, and makes it ready to be written.
    pub(crate) fn close(&mut self, h: usize) {
        let Some(open) = self.heads[h].open.take() else { return };
        self.check_partial(h, &open);
        let is_user = h < self.geometry.user_heads();
        if is_user {
            let others = self.is_user_open() && !self.planted("one-head-ends-group");
            self.torn = self.in_group || others;
        }
        let group_end = !self.in_group && !self.torn;
        let (epoch, said) = (self.epoch, self.epoch_durable);
        let begun = epoch == said || self.planted("stale-tail-joined");
        assert!(begun, "I6: a partial of epoch {epoch}, and the checkpoint says {said}");
        self.serial = self.serial.next();
        let summary = Summary {
            serial: self.serial,
            epoch: self.epoch,
            stamp: self.stamp,
            place: open.start,
            previous_sum: self.last_sum,
            payload: open.blocks.len() as u32,
            next: self.heads[h].next,
            head: h as u8,
            group_end,
            durable: self.durable,
            entries: open.entries,
        };
        let (raw, sum) = if self.planted("sum-of-first-words") {
            summary.encode(self.seed, open.blocks.iter().map(|b| &b.bytes()[..4]))
        } else {
            summary.encode(self.seed, open.blocks.iter().map(Block::bytes))
        };
        self.last_sum = sum;
        let head = &mut self.heads[h];
        head.offset += 1 + open.blocks.len() as u32;
        assert!(head.offset <= self.geometry.segment_blocks, "I3: a partial ends in its segment");
        let blocks: Vec<Block> = std::iter::once(Block::copy_of(&raw)).chain(open.blocks).collect();
        self.stats.partials += 1;
        self.pace.used += u64::from(is_user);
        self.stats.log_blocks += blocks.len() as u64;
        self.since_checkpoint += blocks.len() as u64;
        // What the users' heads have not closed is not in it, nor what the next partial ends.
        let seals = is_user && group_end;
        self.sealed += u64::from(seals);
        let puts = if seals { self.put } else { 0 };
        let before = self.flights.insert(self.serial, Flight { puts, ..Flight::default() });
        assert!(before.is_none(), "I1: two partials are {:?}", self.serial);
        self.ready.push_back(Ready { serial: self.serial, place: open.start, blocks });
    }

    /// A partial segment is about to get its serial: it lies where its head stands, and is what its
    /// summary is to say.
    fn check_partial(&self, h: usize, open: &Open) {
        let head = &self.heads[h];
        let stands = self.geometry.start(head.segment).plus(u64::from(head.offset));
        assert_eq!(open.start, stands, "I3: a partial begins where head {h} does not stand");
        assert!(!open.entries.is_empty(), "I1: a partial of head {h} says nothing");
        let named = open.entries.iter().filter(|e| e.has_payload()).count();
        assert_eq!(named, open.blocks.len(), "I3: a summary names blocks that are not behind it");
        let (seg, next) = (head.segment.0, head.next.0);
        let used = (self.usage.get(head.segment).used, self.usage.get(head.next).used);
        let own = seg != next && used == (Use::Open, Use::Open);
        let own = own || self.planted("roll-forward-allocates-visited");
        assert!(own, "I3: head {h} writes {seg} and announces {next}, which are {used:?}");
        let last = self.ready.back().map_or(self.serial, |r| r.serial);
        assert_eq!(last, self.serial, "I1: another partial is the last to be sent");
    }

    /// A partial segment is on the disk.
    fn ended(&mut self, serial: Serial, (place, blocks): (Place, u64)) {
        for i in 1..blocks {
            let place = place.plus(i);
            let waited = self.pending.remove(&place.0).is_some() || self.plant.is_some();
            assert!(waited, "I1: {place:?} of {serial:?} is written, and counted as written");
        }
        let flight = self.flights.get_mut(&serial).expect("I1: it was in flight");
        assert!(!flight.ended, "I1: {serial:?} ends twice");
        flight.ended = true;
        while self.flights.get(&self.completed.next()).is_some_and(|f| f.ended) {
            self.completed = self.completed.next();
        }
        while self.durable < self.completed
            && self.flights.get(&self.durable.next()).is_some_and(|f| f.fua)
        {
            self.durable = self.durable.next();
        }
        self.forget_flights();
    }

    pub(crate) fn forget_flights(&mut self) {
        let (durable, completed) = (self.durable, self.completed);
        assert!(durable <= completed, "I1: what is durable has ended");
        let closed = self.serial;
        assert!(completed <= closed, "I1: {completed:?} has ended, {closed:?} was the last closed");
        let puts = self.flights.range(..=durable).map(|(_, f)| f.puts).max();
        self.put_durable = self.put_durable.max(puts.unwrap_or(0));
        let (promised, put) = (self.put_durable, self.put);
        assert!(promised <= put, "I1: group {promised} is durable, and {put} were put");
        self.flights.retain(|serial, _| *serial > durable);
        let (left, all) = (self.flights.len() as u64, self.serial.0 - durable.0);
        assert_eq!(
            left, all,
            "I1: behind {durable:?} partials are missing up to {:?}",
            self.serial
        );
    }
}

impl Inner {
    /// Sends what is ready to the disk. `wanted`: somebody waits for it to be durable.
    pub(crate) fn issue(self: &Rc<Self>, wanted: bool) {
        loop {
            let mut s = self.state.borrow_mut();
            let Some(ready) = s.ready.pop_front() else { return };
            // FUA saves the flush if all before it need none either.
            let mut before = s.flights.range(..ready.serial);
            let fua = wanted && s.ready.is_empty() && before.all(|(_, f)| f.fua);
            let flight = s.flights.get_mut(&ready.serial).expect("I1: it has its serial");
            assert!(!flight.ended, "I1: {:?} is sent, and has ended", ready.serial);
            (flight.fua, flight.wanted) = (fua, wanted);
            drop(s);
            let store = self.clone();
            self.env.spawn("partial segment", async move { store.write_out(ready, fua).await });
        }
    }

    async fn write_out(self: Rc<Self>, ready: Ready, fua: bool) {
        let n = ready.blocks.len() as u64;
        let inside = self.geometry.is_inside(ready.place, n);
        assert!(inside, "I3: {n} blocks at {:?} cross the end of a segment", ready.place);
        assert!(!self.options.read_only, "I9: a store that is only read writes {:?}", ready.place);
        let how = if fua { Durability::Fua } else { Durability::Cached };
        match self.disk.write(ready.place.byte(), ready.blocks, how).await {
            Ok(()) => self.state.borrow_mut().ended(ready.serial, (ready.place, n)),
            Err(e) => self.fail(e),
        }
        self.changed.wake_all();
    }

    /// Nothing is acknowledged from now on (I9).
    pub(crate) fn fail(&self, e: DiskError) {
        tracing::error!("the store stops: {e}");
        self.state.borrow_mut().failed.get_or_insert(e);
        self.changed.wake_all();
    }

    pub(crate) fn check_failed(&self) -> Result<(), DiskError> {
        let s = self.state.borrow();
        if let Some(lied) = s.usage.lied() {
            let start = self.geometry.start(lied);
            return Err(damaged(start, "the count of what lives in a segment"));
        }
        s.failed.clone().map_or(Ok(()), Err)
    }

    /// Makes everything that was put before the call durable. All who ask at the same time share
    /// the partial segment and the flush.
    pub(crate) async fn sync(self: &Rc<Self>) -> Result<(), DiskError> {
        let mine = self.unsent();
        // Two in flight keep the disk busy; what arrives meanwhile shares the next, whoever sends
        // it: who waits here may find that another has.
        while mine.is_some() && self.unsent() == mine && self.awaited() >= 2 {
            self.check_failed()?;
            self.changed.wait().await;
        }
        let is_unsent = mine.is_some() && self.unsent() == mine;
        let target = {
            let mut s = self.state.borrow_mut();
            if is_unsent {
                s.close_users();
            }
            s.serial
        };
        self.issue(true);
        self.wait_durable(target).await
    }

    /// Stands for what users have put and no closed partial ends yet; None: there is nothing.
    fn unsent(&self) -> Option<u64> {
        let s = self.state.borrow();
        s.is_user_open().then_some(s.sealed)
    }

    /// Partials on their way to the disk that somebody waits for.
    fn awaited(&self) -> usize {
        self.state.borrow().flights.values().filter(|f| f.wanted && !f.ended).count()
    }

    /// Waits until all partials up to this serial have ended.
    pub(crate) async fn wait_completed(&self, serial: Serial) -> Result<(), DiskError> {
        while self.state.borrow().completed < serial {
            self.check_failed()?;
            self.changed.wait().await;
        }
        self.check_failed()
    }

    /// Waits until all partials up to this serial are durable: by their own FUA, or by a flush that
    /// was issued after their ends (I1).
    pub(crate) async fn wait_durable(&self, serial: Serial) -> Result<(), DiskError> {
        loop {
            self.check_failed()?;
            let covered = {
                let mut s = self.state.borrow_mut();
                if s.durable >= serial {
                    return Ok(());
                }
                let flush = s.completed >= serial && !s.flushing;
                s.flushing |= flush;
                flush.then_some(s.completed)
            };
            let Some(covered) = covered else {
                self.changed.wait().await;
                continue;
            };
            let result = self.disk.flush().await;
            {
                let mut s = self.state.borrow_mut();
                let one = std::mem::replace(&mut s.flushing, false);
                assert!(one, "I1: a flush ends, and none was on its way");
                if result.is_ok() {
                    s.durable = s.durable.max(covered);
                    s.forget_flights();
                }
            }
            match result {
                Ok(()) => self.changed.wake_all(),
                Err(e) => self.fail(e),
            }
        }
    }
}
