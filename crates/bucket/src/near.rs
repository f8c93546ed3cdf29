//! The near log: a log on a disk of this machine, in which each group is durable before the bucket
//! has it. Who waits is told when it is there; objects follow within a bound. It is the stand-alone
//! log (`wal`), with one client, the volume.
//!
//! Rule        A group is in the near log until an object with it is acknowledged. Each object that
//!             this machine puts into the chain is announced there before: so whoever has the near
//!             log and sees the chain knows which of its groups the bucket has.
//! Terms       *Mark*: the announcement of an object: its serial, its sum, and the last group that
//!             is in it or before it. *Confirmed*: a request showed that this machine is still the
//!             writer; the moment is when that request began. *Bound*: `within`.
//!
//! Invariants  N1 a group is durable in the near log when it is told to be durable, or the bucket
//!             has it.
//!             N2 an object's mark, a fence's too, is durable before the object is sent.
//!             N3 the near log is trimmed below what an acknowledged object has, and never beyond
//!             that object's mark.
//!             N4 nothing is told to be durable while a group has waited for the bucket for longer
//!             than the bound, or the writer was confirmed longer ago.
//!             N5 the groups behind a mark are written into the chain again only if the chain ends
//!             with that mark's object: nobody else has written since (near_open.rs).
//!             N6 a near log with groups that the chain has left out is kept, and the volume is not
//!             opened with it: they are lost to the volume, and said to be (near_open.rs).
//!             N7 an entry is no longer than the room that was waited for, and groups lie in the
//!             log in the order of their numbers.
//!
//! On disk     near_record.rs, in the entries of the client whose id is the volume's name.
//! States      group: put -append-> in the near log -flush-> durable here -an object with it is
//!             acknowledged-> durable there -trim-> forgotten
//! Recovery    near_open.rs: the groups behind the last mark that the chain has are put again, in
//!             a new epoch, and are in the bucket before the volume opens.
//! Cost        each group's bytes once more, on the local disk, one write for all who wait; a mark
//!             for each object; in memory some 60 bytes for each group that the bucket has not.

use crate::at_rest::{AtRest, Sealer};
use crate::near_record::{Record, room_of};
use crate::object::{Head, Serial};
use crate::store::Inner;
use env::{Disk, DiskError, DiskErrorKind, Env, Nanos};
use lfs::Group;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use wal::{Client, Epoch, LogError, Lsn, Reservation};

/// Bugs that can be planted where there is a near log.
pub const NEAR_PLANTS: &[&str] = &[
    "near-told-before-flush",
    "near-trimmed-before-acknowledged",
    "near-mark-after-object",
    "near-put-onto-anything",
    "near-not-put-again",
    "near-bound-ignored",
    "near-woken-writer-tells",
];

/// A near log to be used.
#[derive(Clone)]
pub struct NearOptions {
    /// The disk it is, all of it.
    pub disk: Rc<dyn Disk>,
    /// What a person calls it.
    pub name: String,
    /// The bucket has a group after so long, or nothing more is told to be durable.
    pub within: Nanos,
}

impl fmt::Debug for NearOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} ns)", self.name, self.within.0)
    }
}

/// What is in it, as far as it matters.
#[derive(Default)]
pub(crate) struct Book {
    /// Groups that the bucket is not known to have: where they are, and since when.
    pub(crate) groups: BTreeMap<u64, (Lsn, Nanos)>,
    /// Marks by serial and sum: where they are, and the last group.
    pub(crate) marks: BTreeMap<(Serial, u32), (Lsn, u64)>,
    /// The highest number of a group.
    pub(crate) last: u64,
    confirmed: Nanos,
}

impl Book {
    pub(crate) fn confirmed_at(&mut self, began: Nanos) {
        self.confirmed = self.confirmed.max(began);
    }
}

/// An open one.
pub(crate) struct Near {
    pub(crate) env: Env,
    pub(crate) client: Client,
    /// Of an encrypted volume, what seals groups.
    pub(crate) sealer: Option<Sealer>,
    pub(crate) name: String,
    pub(crate) within: Nanos,
    /// The log's epoch, and its bytes.
    pub(crate) epoch: Epoch,
    pub(crate) capacity: u64,
    pub(crate) book: RefCell<Book>,
    pub(crate) plant: Option<&'static str>,
}

/// A log's failure as that of a disk.
pub(crate) fn failed(name: &str, e: &LogError) -> DiskError {
    let (kind, during) = (DiskErrorKind::Io, "near log");
    DiskError { kind, during, at: 0, detail: format!("{name}: {e}") }
}

impl Near {
    pub(crate) fn sealer_of(how: &AtRest) -> Option<Sealer> {
        let key = how.key.clone()?;
        Some(Sealer::new(&AtRest { compressed: false, key: Some(key) }))
    }

    /// Of the log's bytes, a quarter is left to marks, which need no waiting for anybody.
    fn has_room(&self, len: u64) -> bool {
        self.client.live_bytes() + len <= self.capacity / 4 * 3
    }

    /// A group is in it, not durably yet. Errors: the log's.
    fn append(&self, number: u64, group: &Group, kept: Reservation) -> Result<(), DiskError> {
        let bytes = Record::group(number, group).encode(self.epoch, self.sealer.as_ref());
        let (len, room) = (bytes.len() as u64, room_of(group));
        assert!(
            len <= room,
            "N7: group {number} is {len} bytes, and there was to be room for {room}"
        );
        let lsn = self.client.append_reserved(kept, &bytes).map_err(|e| failed(&self.name, &e))?;
        let mut book = self.book.borrow_mut();
        assert!(number > book.last, "N1: groups are in it in their order, and {number} is not");
        book.last = number;
        let before = book.groups.values().next_back().map(|g| g.0);
        assert!(
            before < Some(lsn),
            "N7: group {number} lies at {lsn}, and one before it at {before:?}"
        );
        book.groups.insert(number, (lsn, self.env.now()));
        Ok(())
    }

    async fn put(&self, bytes: &[u8]) -> Result<Lsn, DiskError> {
        let put = async {
            let room = self.client.reserve(bytes.len() as u64).await?;
            self.client.append_reserved(room, bytes)
        };
        put.await.map_err(|e| failed(&self.name, &e))
    }

    /// Announces an object, durably (N2). Errors: the log's.
    pub(crate) async fn mark(&self, object: (Serial, u32), upto: u64) -> Result<(), DiskError> {
        let (serial, sum) = object;
        let lsn = self.put(&Record::Mark { serial, sum, upto }.encode(self.epoch, None)).await?;
        self.book.borrow_mut().marks.insert(object, (lsn, upto));
        if self.plant == Some("near-mark-after-object") {
            return Ok(());
        }
        self.client.flush(lsn).await.map_err(|e| failed(&self.name, &e))
    }

    /// Announces a fence, behind all that the chain has of it.
    pub(crate) async fn mark_fence(&self, head: &Head, sum: u32, upto: u64) -> Result<(), String> {
        self.mark((head.serial, sum), upto).await.map_err(|e| e.to_string())
    }

    /// Waits until this group, and all before it, are durable here. Errors: the log's.
    async fn flush(&self, number: u64) -> Result<(), DiskError> {
        let lsn = self.book.borrow().groups.range(..=number).next_back().map(|(_, at)| at.0);
        let Some(lsn) = lsn.filter(|_| self.plant != Some("near-told-before-flush")) else {
            return Ok(()); // the bucket has it
        };
        self.client.flush(lsn).await.map_err(|e| failed(&self.name, &e))
    }

    /// The bucket has all groups up to `put`, and all objects up to `serial` (N3).
    fn uploaded(&self, put: u64, serial: Serial) {
        let mut book = self.book.borrow_mut();
        book.groups = book.groups.split_off(&(put + 1));
        let Some((newest, _)) = book.marks.range(..=(serial, u32::MAX)).next_back() else {
            return;
        };
        let newest = *newest;
        book.marks = book.marks.split_off(&newest);
        assert!(book.marks.contains_key(&newest), "N3: the mark of the last object stays");
        // Objects are announced side by side: the mark of a later one may lie before.
        let marks = book.marks.values().map(|m| m.0);
        let first = book.groups.values().next().map(|g| g.0);
        marks.chain(first).min().into_iter().for_each(|below| self.client.trim(below));
    }

    /// A request that began then has shown that this machine is still the writer.
    pub(crate) fn confirm(&self, began: Nanos) {
        self.book.borrow_mut().confirmed_at(began);
    }

    /// The number of the next group that is put, or put again.
    pub(crate) fn first_number(&self) -> u64 {
        let book = self.book.borrow();
        book.groups.keys().next().copied().unwrap_or(book.last + 1)
    }

    /// Groups that the bucket is not known to have.
    pub(crate) fn waiting(&self) -> usize {
        self.book.borrow().groups.len()
    }

    /// Is there a group in it behind this one?
    pub(crate) fn has_behind(&self, upto: u64) -> bool {
        self.book.borrow().groups.range(upto.saturating_add(1)..).next().is_some()
    }

    fn oldest(&self) -> Option<Nanos> {
        self.book.borrow().groups.values().next().map(|g| g.1)
    }

    /// May nothing be told now? (N4)
    fn is_overdue(&self) -> bool {
        let now = self.env.now();
        let late = |since: Nanos| now.since(since) > self.within;
        let waits = self.oldest().is_some_and(late) && self.plant != Some("near-bound-ignored");
        let unsure = late(self.book.borrow().confirmed);
        waits || unsure && self.plant != Some("near-woken-writer-tells")
    }
}

impl Inner {
    /// Waits until the near log has room for a group; whatever has gathered goes out for it.
    pub(crate) async fn wait_for_near_room(
        self: &Rc<Self>,
        group: &Group,
    ) -> Result<(), DiskError> {
        let Some(near) = &self.near else { return Ok(()) };
        let len = room_of(group);
        while !near.has_room(len) {
            self.check_failed()?;
            if near.waiting() == 0 && self.state.borrow().flights.is_empty() {
                let detail = format!("{}: a group of {len} bytes does not fit", near.name);
                let (kind, during) = (DiskErrorKind::NoSpace, "near log");
                return Err(DiskError { kind, during, at: 0, detail });
            }
            self.seal_near();
            self.changed.wait().await;
        }
        Ok(())
    }

    /// Room for a group in the near log. A failure is the store's: whatever it is told to keep
    /// from now on, the near log would not have.
    pub(crate) async fn near_room(&self, group: &Group) -> Result<Option<Reservation>, DiskError> {
        let Some(near) = &self.near else { return Ok(None) };
        let kept = near.client.reserve(room_of(group)).await;
        let kept = kept.map_err(|e| failed(&near.name, &e)).inspect_err(|e| self.fail(e.clone()));
        kept.map(Some)
    }

    /// A group that was put is in the near log. A failure is the store's: it has the group.
    pub(crate) fn note_near(
        &self,
        number: u64,
        group: &Group,
        kept: Option<Reservation>,
    ) -> Result<(), DiskError> {
        let Some((near, kept)) = self.near.as_ref().zip(kept) else { return Ok(()) };
        near.append(number, group, kept).inspect_err(|e| self.fail(e.clone()))
    }

    /// Returns when groups up to this one are durable in the near log, and may be told to be (N1,
    /// N4).
    pub(crate) async fn flush_near(
        self: &Rc<Self>,
        near: &Near,
        put: u64,
    ) -> Result<(), DiskError> {
        near.flush(put).await.inspect_err(|e| self.fail(e.clone()))?;
        loop {
            self.check_failed()?;
            if self.state.borrow().durable_put >= put || !near.is_overdue() {
                return Ok(());
            }
            self.changed.wait().await;
        }
    }

    /// What has gathered is sealed, unless much is under way already.
    fn seal_near(self: &Rc<Self>) {
        {
            let mut s = self.state.borrow_mut();
            if !s.ready.is_empty() || s.under_way >= crate::writer::PUTS_MAX {
                return;
            }
            s.seal(&self.shape, self.env.random());
        }
        self.send_ready();
        self.trim_near();
    }

    /// What the bucket has by now, the near log need not have.
    pub(crate) fn trim_near(&self) {
        let Some(near) = &self.near else { return };
        let s = self.state.borrow();
        let early = near.plant == Some("near-trimmed-before-acknowledged");
        match (early, s.durable_put, s.sealed_put) {
            (true, _, sealed) => near.uploaded(sealed, s.last.0),
            (false, durable, _) => near.uploaded(durable, s.acknowledged),
        }
    }

    /// Sends what has gathered in time, and looks whether this is still the writer where nothing
    /// is sent.
    pub(crate) fn start_uploading(self: &Rc<Self>) {
        let Some(within) = self.near.as_ref().map(|n| n.within) else { return };
        let (store, env) = (Rc::downgrade(self), self.env.clone());
        self.env.spawn("near log", async move {
            loop {
                env.sleep(Nanos((within.0 / 16).max(1))).await;
                let Some(store) = store.upgrade() else { return };
                let stop = {
                    let s = store.state.borrow();
                    s.closing || s.failed.is_some()
                };
                if stop {
                    return;
                }
                store.upload_in_time().await;
                store.changed.wake_all(); // who waits looks at the time
            }
        });
    }

    async fn upload_in_time(self: &Rc<Self>) {
        let Some(near) = &self.near else { return };
        let now = self.env.now();
        if near.oldest().is_some_and(|since| now.since(since).0 > near.within.0 / 4) {
            self.seal_near();
        }
        let confirmed = near.book.borrow().confirmed;
        if now.since(confirmed).0 > near.within.0 / 4 {
            self.look_for_a_fence().await;
        }
    }

    /// What a failure leaves in the near log alone, for a person; nothing if there is none.
    pub(crate) fn left_near(&self) -> String {
        let Some(near) = self.near.as_ref().filter(|n| n.waiting() > 0) else {
            return String::new();
        };
        let (n, name) = (near.waiting(), &near.name);
        format!(
            "; up to {n} groups of changes that were told to be durable are lost to the volume: \
             they are in the near log {name} alone, which is kept"
        )
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::near_open::NEAR_BYTES_MIN;
    use crate::volume::Shape;

    /// N3: an object that is under way may be the last that the bucket is seen to have.
    #[test]
    fn the_mark_of_an_object_under_way_stays_wherever_it_lies() {
        let mut world = sim::World::new(sim::Image::new(NEAR_BYTES_MIN));
        sim::block_on(&mut world, |env, disk| async move {
            let (uuid, blocks) = ([7; 16], 64);
            let shape =
                Shape { uuid, blocks, window: 32, compressed: false, clone: false, check: None };
            let options = NearOptions { disk, name: "near".into(), within: Nanos::from_secs(1) };
            let near = Near::open((&env, &shape), &AtRest::default(), &options, None).await;
            let near = near.unwrap();
            for serial in [5, 4] {
                near.mark((Serial(serial), 1), 0).await.unwrap();
            }
            let later = near.book.borrow().marks[&(Serial(5), 1)].0;
            near.uploaded(0, Serial(4));
            assert!(near.client.needs().unwrap() <= later, "it is trimmed");
        });
    }
}
