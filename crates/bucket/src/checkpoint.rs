//! Checkpoints: the whole table in one object of the log, sent when all before it is acknowledged
//! (I6). What it does not need any more is deleted when it is acknowledged itself (I7).
//!
//! ```text
//!  body  objects (4): serial (8), bytes of the head (4), blocks (4) | fences (4): serial (8)
//!        extents (8): first block (8), how many (4), place (8), or 0 for a snapshot's hole
//!        if there were ever snapshots: the last number (4), how many (4), each
//! ```

use crate::clone::{can_be, inherited};
use crate::object::{HEAD_BYTES_MAX, Kind, Said, Serial, name};
use crate::possible::BLOCKS_END;
use crate::snapshot::BITS;
use crate::state::{Info, State, Table, parts};
use crate::store::Inner;
use crate::volume::Shape;
use env::DiskError;
use lfs::codec::{Reader, Writer};
use lfs::{Extent, Extents, Place, Snapshots, Virt};
use std::rc::Rc;

/// Bytes of objects from which on the next checkpoint is due. It goes alone (I6), so that a line of
/// 100 MB/s is idle for some 60 ms; what is dead by then stays in the bucket until it comes.
const BYTES: u64 = 512 << 20;

/// So many objects are deleted by one request.
pub(crate) const DELETED_AT_ONCE: usize = 256;

impl Table {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u32(self.objects.len() as u32);
        for (serial, info) in &self.objects {
            w.u64(serial.0).u32(info.head_bytes).u32(info.blocks);
        }
        w.u32(self.fences.len() as u32);
        for serial in &self.fences {
            w.u64(serial.0);
        }
        w.u64(self.told().count() as u64);
        for e in self.told() {
            w.u64(e.v.0).u32(e.n).u64(e.place.map_or(0, |p| p.0));
        }
        self.snapshots.encode(&mut w);
        w.0
    }

    /// The extents that a checkpoint has: what is free need not be said, but for holes.
    fn told(&self) -> impl Iterator<Item = Extent> {
        self.extents.iter().filter(|e| e.place.is_some() || self.is_hole(e))
    }

    /// The reverse, of a table of nothing, from the checkpoint of this serial. Errors: what of it
    /// cannot be.
    pub(crate) fn decode(
        mut table: Table,
        (serial, raw): (Serial, &[u8]),
    ) -> Result<Table, &'static str> {
        let r = &mut Reader(raw);
        table.decode_objects(r, serial).ok_or("an object in its table")?;
        let may_be = |fence: &Serial| (Serial(1)..serial).contains(fence);
        let next = |r: &mut Reader<'_>| r.u64().map(Serial).filter(may_be);
        let short = "a fence in its table";
        for _ in 0..r.u32().ok_or(short)? {
            // A fence holds no blocks, so it is none of the objects.
            let can_be =
                |f: &Serial| table.fences.last() < Some(f) && !table.objects.contains_key(f);
            let fence = next(r).filter(can_be).ok_or(short)?;
            table.fences.insert(fence);
        }
        table.decode_extents(r).ok_or("an extent in its table")?;
        table.snapshots = Snapshots::decode(r).ok_or("the snapshots in its table")?;
        let ended = table.snapshots.all.iter().any(|s| s.ended);
        if ended || table.snapshots.last > table.owners.snapshots_max(BITS) {
            return Err("the snapshots in its table");
        }
        let owned = table.extents.iter().all(|e| table.is_owned(&e));
        if owned { Ok(table) } else { Err("the owner of an extent in its table") }
    }

    /// The objects, in their order, all before the checkpoint.
    fn decode_objects(&mut self, r: &mut Reader<'_>, before: Serial) -> Option<()> {
        let mut last = Serial::NONE;
        for _ in 0..r.u32()? {
            let (serial, head_bytes, blocks) = (Serial(r.u64()?), r.u32()?, r.u32()?);
            let can_be = last < serial
                && serial < before
                && head_bytes as usize <= HEAD_BYTES_MAX
                && u64::from(blocks) < BLOCKS_END;
            can_be.then(|| self.objects.insert(serial, Info { head_bytes, blocks, live: 0 }))?;
            last = serial;
        }
        Some(())
    }

    /// The extents, in their order, none over another one, each in an object that there is.
    fn decode_extents(&mut self, r: &mut Reader<'_>) -> Option<()> {
        let mut before = 0;
        for _ in 0..r.u64()? {
            let (v, n, place) = (Virt(r.u64()?), r.u32()?, Place(r.u64()?));
            let end = v.0.checked_add(u64::from(n))?;
            (n > 0 && v.0 >= before && end <= 1 << BITS).then_some(())?;
            before = end;
            let hole = Extent { v, n, place: None };
            if place.0 == 0 && self.is_hole(&hole) {
                self.extents.set(hole);
                continue;
            }
            let place_of_first = inherited(place);
            if place_of_first.is_none() {
                let (serial, index) = parts(place);
                let info = self.objects.get_mut(&serial)?;
                (index + u64::from(n) <= u64::from(info.blocks)).then_some(())?;
                info.live += n;
                (info.live <= info.blocks).then_some(())?;
            }
            place_of_first.is_none_or(|first| can_be(first, n)).then_some(())?;
            self.extents.set(Extent { v, n, place: Some(place) });
        }
        Some(())
    }
}

impl State {
    /// The table as it is becomes the next object. Returns its serial, and the objects that nobody
    /// needs once it is acknowledged.
    fn seal_checkpoint(&mut self, shape: &Shape, nonce: u64) -> (Serial, Vec<Serial>) {
        let is_dead = |(serial, info): (&Serial, &Info)| (info.live == 0).then_some(*serial);
        let dead: Vec<Serial> = self.table.objects.iter().filter_map(is_dead).collect();
        for serial in &dead {
            self.table.objects.remove(serial);
        }
        let body = self.table.encode();
        let mut head = self.head(Kind::Checkpoint, nonce);
        let needed = |s: &&Serial| **s >= head.serial || self.table.fences.contains(s);
        let needed = dead.iter().find(needed);
        assert!(needed.is_none(), "I7: {needed:?} is to go with checkpoint {}", head.serial);
        assert!(self.open.is_empty(), "I6: a checkpoint is sealed, and not what came before it");
        head.body_sum = crc32c::crc32c(&body);
        head.said = (!self.table.snapshots.is_unused()).then(Said::default);
        if self.table.plant != Some("notes-forgotten") {
            head.notes = self.notes.lately();
        }
        let (mut bytes, sum) = head.encode(&shape.uuid);
        let head_bytes = bytes.len();
        bytes.extend_from_slice(&body);
        debug_assert!(self.reads_again((head.serial, &body)), "I6: the table is not what it was");
        self.table.apply(&head, head_bytes);
        self.check_head(&head, shape);
        self.launch(&head, (bytes, head_bytes, sum), Vec::new());
        self.stats.checkpoints += 1;
        (self.since, self.checkpoint_wanted) = ((0, 0), false);
        (head.serial, dead)
    }
}

impl State {
    /// Is the table in a checkpoint's body the one that there is?
    fn reads_again(&self, body: (Serial, &[u8])) -> bool {
        let nothing = Table::new(self.table.blocks, self.table.plant);
        let planted = self.table.plant.is_some();
        planted
            || Table::decode(nothing, body).is_ok_and(|t| {
                // What lies side by side may have come as two.
                let mut told = Extents::default();
                self.table.told().for_each(|e| told.set(e));
                t.objects == self.table.objects
                    && t.fences == self.table.fences
                    && t.snapshots == self.table.snapshots
                    && t.extents.iter().eq(told.iter())
            })
    }
}

impl Inner {
    /// Writes a checkpoint if one is due.
    pub(crate) fn checkpoint_if_due(self: &Rc<Self>) {
        {
            let mut s = self.state.borrow_mut();
            let due = s.since.0 >= self.options.pace.checkpoint_objects || s.since.1 >= BYTES;
            if !due || s.checkpoint_wanted || s.failed.is_some() {
                return;
            }
            s.checkpoint_wanted = true;
        }
        let store = self.clone();
        self.env.spawn("checkpoint", async move {
            let _ = store.checkpoint().await; // a failure is sticky
        });
    }

    /// Writes a checkpoint: everything put before the call is acknowledged with it, and what it
    /// makes dead is deleted.
    pub(crate) async fn checkpoint(self: &Rc<Self>) -> Result<(), DiskError> {
        let _alone = self.checkpointing.lock().await;
        self.check_failed()?;
        let (put, (serial, dead)) = {
            let mut s = self.state.borrow_mut();
            s.seal(&self.shape, self.env.random());
            (s.put, s.seal_checkpoint(&self.shape, self.env.random()))
        };
        if self.plant == Some("delete-before-checkpoint") {
            self.delete(&dead).await;
        }
        self.send_ready();
        while self.state.borrow().acknowledged < serial {
            self.check_failed()?;
            self.changed.wait().await;
        }
        let durable = self.state.borrow().durable_put;
        assert!(put <= durable, "I12: checkpoint {serial} is there, and group {put} is not");
        self.delete_later(dead).await;
        if self.plant == Some("fence-deleted") {
            let fences: Vec<Serial> = self.state.borrow().table.fences.iter().copied().collect();
            self.delete(&fences).await;
        }
        self.clean_if_due();
        Ok(())
    }

    /// Deletes objects that an acknowledged checkpoint does not need, when nobody who follows the
    /// log within the usual bound needs them any more.
    async fn delete_later(self: &Rc<Self>, serials: Vec<Serial>) {
        self.check_dead(&serials);
        let keep = self.options.pace.keep;
        if keep.0 == 0 {
            return self.delete(&serials).await;
        }
        let due = self.env.now().plus(keep);
        self.overdue.borrow_mut().push_back((due, serials));
        let store = self.clone();
        self.env.spawn("deletions", async move {
            store.env.sleep(keep).await;
            store.delete_overdue(false).await;
        });
    }

    /// These are to be deleted: nobody needs one of them, and a checkpoint lies behind them (I7).
    pub(crate) fn check_dead(&self, serials: &[Serial]) {
        let s = self.state.borrow();
        let needed = |n: &&Serial| {
            **n >= s.checkpoint || s.table.objects.contains_key(n) || s.table.fences.contains(n)
        };
        let needed = serials.iter().find(needed);
        assert!(needed.is_none(), "I7: object {needed:?} is needed, and is to be deleted");
    }

    /// Deletes what is due, or `all` that is to be deleted.
    pub(crate) async fn delete_overdue(&self, all: bool) {
        loop {
            let now = self.env.now();
            let first = {
                let mut overdue = self.overdue.borrow_mut();
                let is_due = overdue.front().is_some_and(|(due, _)| all || *due <= now);
                if is_due { overdue.pop_front() } else { None }
            };
            let Some((_, serials)) = first else { return };
            self.check_dead(&serials);
            self.delete(&serials).await;
        }
    }

    /// Deletes objects that an acknowledged checkpoint does not need. What cannot be deleted stays
    /// as garbage, which the next writer finds.
    ///
    /// One request at a time, and not all of the time: a store has a user's requests to answer, and
    /// what a killed writer has left may be many thousands.
    pub(crate) async fn delete(&self, serials: &[Serial]) {
        let batches = serials.len().div_ceil(DELETED_AT_ONCE);
        for (some, n) in serials.chunks(DELETED_AT_ONCE).zip(1..) {
            let began = self.env.now();
            if let Err(e) = self.bucket.delete_all(some.iter().map(|s| name(*s)).collect()).await {
                tracing::warn!("up to {} objects stay as garbage for now: {e}", some.len());
            }
            if n < batches {
                self.env.sleep(self.env.now().since(began)).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_decoded_as_it_was() {
        let mut t = Table::new(100, None);
        t.objects.insert(Serial(3), Info { head_bytes: 200, blocks: 9, live: 5 });
        t.fences.insert(Serial(2));
        let place = crate::state::place(Serial(3), 2);
        t.extents.set(Extent { v: Virt(70), n: 5, place: Some(place) });
        t.extents.set(Extent { v: Virt(90), n: 5, place: None });
        let raw = t.encode();
        let decode = |raw: &[u8]| Table::decode(Table::new(100, None), (Serial(9), raw));
        let back = decode(&raw).unwrap();
        assert_eq!((&back.objects, &back.fences), (&t.objects, &t.fences));
        assert_eq!((back.place(72), back.place(90)), (Some(Place(place.0 + 2)), None));
        assert!((0..raw.len()).all(|n| decode(&raw[..n]).is_err()), "cut short");
        let mut with = t.clone();
        for (id, name) in [(1, "a"), (2, "b")] {
            let s = lfs::Snapshot { id, made: 7, name: name.into(), ended: false };
            with.record(&crate::object::Record::Made(s));
            [72, 91, 5].into_iter().for_each(|v| with.give_up(&with.block(v)));
            with.extents.set(Extent { v: Virt(72), n: 1, place: None });
        }
        let raw = with.encode();
        let back = decode(&raw).unwrap();
        assert_eq!(back.snapshots, with.snapshots);
        for (view, v) in [1, 2].into_iter().flat_map(|s| (0..100).map(move |v| (Some(s), v))) {
            assert_eq!(back.shown(view, v), with.shown(view, v), "S6: holes are kept");
        }
        let whole = decode(&with.encode()[..raw.len() - 1]);
        assert!(whole.is_err(), "cut short");
    }
}
