//! Snapshots: the store as it was at moments of its log, which stay readable while it goes on. What
//! a snapshot's blocks mean, and who reads them, it does not know.
//!
//! Rule        A block belongs to one virtual block at a time. What a snapshot still needs when the
//!             volume writes or frees a block goes to the snapshot instead of dying: its place
//!             becomes that of the snapshot's *own* virtual block of the same number.
//! Terms       *id*: a snapshot's number, never used again. *Own block*: virtual block
//!             id · 2^b + v, where b is as many bits as the numbers of the volume's blocks need; it
//!             is what the snapshot has of block v that no later one, nor the volume, has. *Hole*:
//!             an own block that lies nowhere: block v was zeros. *Ended*: the snapshot has no
//!             name any more, and what only it needs is being freed. *Keeper*: who takes what the
//!             volume gives up, the newest snapshot that has not ended.
//!
//! ```text
//!  snapshot s sees v:   own block of s, else that of the next newer one, ..., else the volume's
//!  the volume gives up place P of v:   does the keeper, or an ended one newer than it, have an own
//!                       block v?  yes: P dies, it is younger than all of them.  no: P is the
//!                       keeper's own block v; where v was zeros, that is a hole
//! ```
//!
//! Invariants  S1 a snapshot sees the same bytes until it ends, whatever is written, freed, moved
//!             or plugged, and however often the power fails.
//!             S2 a place has one owner, the volume or one snapshot; so the usage table counts it
//!             once, and the cleaner moves it like any other.
//!             S3 a snapshot is a record in the log, in the users' head: what was put before it is
//!             in it, what is put behind it is not.
//!             S4 at that record no ranges are pending; later ones are the volume's alone.
//!             S5 freeing what an ended one has can be cut off anywhere and done again: a block
//!             that an older one still sees is handed to that one, in a record of the log.
//!             S6 a hole of a snapshot that has not ended is never dropped from the table.
//!
//! States      made (a record; durable with a flush) -> ended (a record) -Inner::reclaim-> gone (a
//!             record, behind those that free or hand over all its own blocks)
//! On disk     records 6, 7 and 8 of summary.rs; behind the totals in a checkpoint's body the
//!             snapshots that there are; own blocks are extents of the table. Slots of such
//!             checkpoints begin with "CLCS", so that programs that know no snapshots, and would
//!             let their blocks die, find no checkpoint.
//! Recovery    the log is followed with the same rules: a write that gives a place up hands it to
//!             the keeper of that moment. Ended ones are reclaimed further when the store is
//!             opened for writing.
//! Cost        making one: the blocks with pending ranges, a partial segment and a flush, whatever
//!             the size of the volume; the first also two checkpoints. Each first write of a block
//!             afterwards: one more extent in the table, and a look at the table for it. What
//!             snapshots hold counts against the disk: writing may find the store full, and then
//!             ends with an error until something is deleted.

use crate::codec::{Reader, Writer};
use crate::extents::Extent;
use crate::geometry::{BLOCK_BYTES, Virt};
use crate::heads::USERS;
use crate::merge::Merge;
use crate::pace::Purpose;
use crate::state::State;
use crate::store::{Inner, Store};
use crate::summary::Entry;
use crate::table::Base;
use crate::usage::pause_after;
use env::{Block, DiskError, unless};
use std::rc::Rc;

/// Bytes of a name at most.
pub const NAME_BYTES_MAX: usize = 64;
/// New ranges came so often while those before were written that it is given up.
const TRIES: usize = 1000;
/// Blocks of an ended snapshot that are freed or handed over as one group.
const AT_ONCE: u32 = 256;
/// Extents looked at at once.
const LOOKED_AT: usize = 64;

/// A snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// Its number.
    pub id: u32,
    /// When it was made, in seconds since 1970.
    pub made: u64,
    /// Its name.
    pub name: String,
    /// It has ended: its blocks are being freed.
    pub ended: bool,
}

impl Snapshot {
    /// id (4), 1 if it has ended (4), made (8), bytes of the name (4), the name
    pub fn encode(&self, w: &mut Writer) {
        w.u32(self.id).u32(u32::from(self.ended)).u64(self.made);
        w.u32(self.name.len() as u32).bytes(self.name.as_bytes());
    }
    /// The reverse; None: it is damaged.
    pub fn decode(r: &mut Reader<'_>) -> Option<Snapshot> {
        let (id, ended, made, len) = (r.u32()?, r.u32()? != 0, r.u64()?, r.u32()?);
        let len = Some(len).filter(|n| *n as usize <= NAME_BYTES_MAX)?;
        let name = String::from_utf8(r.bytes(len as usize)?.to_vec()).ok()?;
        Some(Snapshot { id, made, name, ended })
    }
}

/// Those that there are, from the oldest to the newest.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Snapshots {
    /// All of them.
    pub all: Vec<Snapshot>,
    /// The highest number that was ever used.
    pub last: u32,
}

impl Snapshots {
    /// Was there never any?
    pub fn is_unused(&self) -> bool {
        self.last == 0
    }
    /// the last number (4), how many (4), each
    pub fn encode(&self, w: &mut Writer) {
        if !self.is_unused() {
            w.u32(self.last).u32(self.all.len() as u32);
            self.all.iter().for_each(|s| s.encode(w));
        }
    }
    /// The reverse; a body that ends before has none.
    pub fn decode(r: &mut Reader<'_>) -> Option<Snapshots> {
        if r.0.is_empty() {
            return Some(Snapshots::default());
        }
        let (last, count) = (r.u32()?, r.u32()?);
        let all = (0..count).map(|_| Snapshot::decode(r)).collect::<Option<Vec<_>>>()?;
        let rises = all.windows(2).all(|w| w[0].id < w[1].id);
        let known = all.last().is_none_or(|s| s.id <= last);
        (rises && known && last > 0).then_some(Snapshots { all, last })
    }

    /// The newest one below `id` that has not ended, and the ended ones between the two: from the
    /// newest to the oldest. None: all below it have ended.
    fn chain_below(&self, id: u32) -> Option<Vec<u32>> {
        let below = self.all.iter().rev().filter(|s| s.id < id);
        let mut chain = Vec::new();
        for s in below {
            chain.push(s.id);
            if !s.ended {
                return Some(chain);
            }
        }
        None
    }
    /// Whose own blocks say whether the volume's block is needed, the keeper last. None: nobody
    /// needs it.
    pub(crate) fn keepers(&self) -> Option<Vec<u32>> {
        self.chain_below(u32::MAX)
    }
    /// The one of this name that has not ended.
    pub fn named(&self, name: &str) -> Option<&Snapshot> {
        self.all.iter().find(|s| s.name == name && !s.ended)
    }
    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut Snapshot> {
        self.all.iter_mut().find(|s| s.id == id)
    }
    /// Is there one of this number?
    pub fn knows(&self, id: u32) -> bool {
        self.all.iter().any(|s| s.id == id)
    }
    pub(crate) fn is_reclaiming(&self) -> bool {
        self.all.iter().any(|s| s.ended)
    }
}

/// Is this a name that a snapshot can have? Errors: what is wrong with it.
pub fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-+:".contains(c);
    let digits = name.strip_prefix('p').is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()));
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(is_plain) {
        return Err(format!(
            "{name:?}: a snapshot's name is 1 to {NAME_BYTES_MAX} letters, digits or . _ - + :"
        ));
    }
    if digits {
        return Err(format!("{name:?} is what partitions are called"));
    }
    Ok(())
}

impl State {
    /// `e` is what the volume had, and gives up: what a snapshot needs of it goes to that one, the
    /// rest dies (S1, S2). `base` knows the keepers' blocks too.
    pub(crate) fn give_up(&mut self, e: Extent, base: &Base) {
        let users = e.v.0 < self.geometry.virtual_blocks;
        let keepers = self.snapshots.keepers().filter(|_| users);
        let keepers = keepers.filter(|_| !self.planted("snapshot-not-respected"));
        for v in (e.v.0..e.end()).map(Virt) {
            match keepers.as_deref().and_then(|k| self.taker(v, k, base)) {
                Some(own) => self.table.active.set(Extent { v: own, n: 1, place: e.at(v) }),
                None => e.at(v).into_iter().for_each(|p| self.died(p, 1)),
            }
        }
    }

    /// The own block that takes what block `v` is given up of; None: one of the chain has one.
    fn taker(&self, v: Virt, chain: &[u32], base: &Base) -> Option<Virt> {
        let own = |id: &u32| self.geometry.own_block(*id, v);
        let last = chain.last()?;
        let known = chain.iter().any(|id| self.table.entry(own(id), base).is_some());
        (!known).then(|| own(last))
    }

    /// Does a snapshot need what the volume has of this block?
    pub(crate) fn is_needed(&self, v: Virt, base: &Base) -> bool {
        self.snapshots.keepers().is_some_and(|k| self.taker(v, &k, base).is_some())
    }

    /// A record says that there is a snapshot from here on (S3).
    pub(crate) fn snapshot_made(&mut self, s: Snapshot) {
        let (id, last) = (s.id, self.snapshots.last);
        let may = id > last && id <= self.geometry.snapshots_max();
        assert!(may, "S3: snapshot {id} is made behind {last}");
        self.snapshots.last = self.snapshots.last.max(s.id);
        self.snapshots.all.push(s);
        self.table.version += 1; // who has asked where blocks lie asks for its blocks too
    }

    /// A record says that a snapshot has ended, or that nothing of it is left.
    pub(crate) fn snapshot_ended(&mut self, id: u32, gone: bool) {
        if gone {
            self.snapshots.all.retain(|s| s.id != id);
        } else if let Some(s) = self.snapshots.get_mut(id) {
            s.ended = true;
        }
        self.table.version += 1;
    }

    /// The own blocks in `e` become those of the same numbers of snapshot `to` (S5).
    pub(crate) fn hand_over(&mut self, e: Extent, to: u32) {
        let (owner, v) = self.geometry.owner(e.v);
        assert!(to > 0 && to < owner, "S5: snapshot {to} gets what the older {owner} has");
        self.table.active.set(Extent { v: self.geometry.own_block(to, v), ..e });
        self.table.active.set(Extent { place: None, ..e });
    }

    /// Frees or hands over own blocks of an ended snapshot, as one group.
    fn release_own(&mut self, e: Extent, chain: Option<&[u32]>, base: &Base) {
        let of = self.geometry.owner(e.v).0;
        let ended = self.snapshots.all.iter().any(|s| s.id == of && s.ended);
        assert!(ended, "S6: {e:?} of snapshot {of} is freed, which has not ended");
        let last = self.geometry.owner(Virt(e.end() - 1)).0;
        assert_eq!(last, of, "S2: what is freed of snapshot {of} is another's too");
        let mut at = e.v;
        while at.0 < e.end() {
            let mut piece = self.table.extent(at, e.end(), base);
            let to = |s: &State, own: Virt| {
                let (_, v) = s.geometry.owner(own);
                chain.and_then(|c| s.taker(v, c, base)).map(|own| s.geometry.owner(own).0)
            };
            let first = to(self, at);
            let same = (1..piece.n).find(|i| to(self, Virt(at.0 + u64::from(*i))) != first);
            piece.n = same.unwrap_or(piece.n);
            match first {
                Some(to) if !self.planted("handed-over-to-nobody") => {
                    self.put_record(Entry::Handed { v: piece.v, n: u64::from(piece.n), to });
                    self.hand_over(piece, to);
                }
                _ if piece.place.is_some() => {
                    self.put_record(Entry::Free { v: piece.v, n: u64::from(piece.n) });
                    self.stats.reclaimed += u64::from(piece.n);
                    self.unmap(piece);
                }
                _ => (),
            }
            at = Virt(piece.end());
        }
    }

    fn put_record(&mut self, entry: Entry) {
        self.put(USERS, entry, None);
    }
}

impl Inner {
    /// Everything pending is whole and where it lies is known: the blocks, with that. None: it is
    /// to be looked at again.
    async fn pending_whole(&self) -> Result<Option<Vec<(Virt, Base)>>, DiskError> {
        let pending: Vec<(Virt, Option<u64>)> = {
            let s = self.state.borrow();
            s.patches.all().map(|(v, p)| (v, p.whole().is_none().then_some(p.id))).collect()
        };
        let mut all = Vec::new();
        for (v, id) in pending {
            let base = self.base_to_change(v, 1).await?;
            if let Some(id) = id {
                let place = {
                    let s = self.state.borrow();
                    if !s.table.is_current(&base) {
                        return Ok(None);
                    }
                    s.table.place(v, &base)
                };
                let below = match place {
                    Some(place) => self.read_places(place, 1).await?.remove(0),
                    None => Block::zeroed(BLOCK_BYTES),
                };
                self.state.borrow_mut().patches.fill(v, id, below);
            }
            all.push((v, base));
        }
        Ok(Some(all))
    }

    /// Puts the record of a snapshot behind all that was put, which has no ranges pending then
    /// (S3, S4).
    async fn put_snapshot(self: &Rc<Self>, name: &str, made: u64) -> Result<(), DiskError> {
        for _ in 0..TRIES {
            if !self.may_put(1, Purpose::NoMore)? {
                self.make_room(1, Purpose::NoMore).await;
                continue;
            }
            let Some(pending) = self.pending_whole().await? else { continue };
            let s = &mut *self.state.borrow_mut();
            let skip = s.planted("snapshot-with-ranges");
            let is_ready = |(v, base): &(Virt, Base)| {
                let whole = s.patches.get(*v).is_none_or(|p| p.whole().is_some());
                whole && s.table.is_current(base)
            };
            let is_known = |v: Virt| pending.binary_search_by_key(&v, |p| p.0).is_ok();
            let known = s.patches.all().all(|(v, _)| is_known(v));
            if !(known && pending.iter().all(is_ready)) {
                continue;
            }
            s.begin_group();
            for (v, base) in pending.iter().filter(|_| !skip) {
                if let Some(whole) = s.patches.get(*v).and_then(|p| p.whole()) {
                    s.write_block(*v, whole, base);
                }
            }
            assert!(skip || s.patches.len() == 0, "S4: no ranges are pending at a snapshot");
            let id = s.snapshots.last + 1;
            let of = Snapshot { id, made, name: name.into(), ended: false };
            s.put(USERS, Entry::Snapshot(of.clone()), None);
            s.snapshot_made(of);
            s.end_group();
            return Ok(());
        }
        Err(refused("the store is too busy: try again"))
    }

    /// The next extents of own blocks of `id` from block `from` on.
    async fn own_blocks(&self, id: u32, from: u64) -> Result<Vec<Extent>, DiskError> {
        let (first, end) = (self.geometry.own_block(id, Virt(from)), self.geometry.own_end(id));
        loop {
            let (mut merge, version) = {
                let s = self.state.borrow();
                let new = s.table.frozen.as_deref();
                let new = std::iter::once(&s.table.active).chain(new);
                (Merge::from(first, new, s.table.runs.iter().cloned()), s.table.version)
            };
            let mut found = Vec::new();
            let failed = loop {
                match merge.next(self).await {
                    Ok(Some(e)) if e.v.0 < end && found.len() < LOOKED_AT => found.push(e),
                    Ok(_) => break None,
                    Err(e) => break Some(e),
                }
            };
            if self.state.borrow().table.version == version {
                return failed.map_or(Ok(found), Err);
            }
        }
    }

    /// Frees what only this ended snapshot needs, and hands over what an older one sees too (S5).
    /// A store that is being closed leaves the rest to the next opening.
    async fn reclaim_one(self: &Rc<Self>, id: u32) -> Result<(), DiskError> {
        let mut from = 0;
        loop {
            let found = self.own_blocks(id, from).await?;
            let Some(last) = found.last() else { break };
            let next = self.geometry.owner(Virt(last.end() - 1)).1.0 + 1;
            for e in found {
                for at in (e.v.0..e.end()).step_by(AT_ONCE as usize) {
                    if !self.may_reclaim().await {
                        return Ok(());
                    }
                    self.release_part(e.cut(at, e.end().min(at + u64::from(AT_ONCE))), id).await?;
                }
            }
            from = next;
        }
        let s = &mut *self.state.borrow_mut();
        let ended = s.snapshots.all.iter().any(|s| s.id == id && s.ended);
        assert!(ended, "S6: nothing is left of snapshot {id}, which has not ended");
        s.begin_group();
        s.put_record(Entry::Ended { id, gone: true });
        s.snapshot_ended(id, true);
        s.end_group();
        Ok(())
    }

    /// Waits while somebody else reads the disk. False: the store is being closed.
    async fn may_reclaim(&self) -> bool {
        loop {
            let (closing, still) = {
                let s = self.state.borrow();
                (s.idle.closing, s.idle.still)
            };
            if closing || self.env.now() >= still {
                return !closing;
            }
            unless(self.changed.wait(), self.env.sleep_until(still)).await;
        }
    }

    async fn release_part(self: &Rc<Self>, e: Extent, id: u32) -> Result<(), DiskError> {
        loop {
            self.check_failed()?;
            self.keep_room().await?;
            let chain = self.state.borrow().snapshots.chain_below(id);
            let (_, v) = self.geometry.owner(e.v);
            let ids = std::iter::once(&id).chain(chain.iter().flatten());
            let firsts = ids.map(|id| self.geometry.own_block(*id, v)).collect();
            let base = self.base_of(firsts, u64::from(e.n)).await?;
            {
                let s = &mut *self.state.borrow_mut();
                if !s.table.is_current(&base) || s.snapshots.chain_below(id) != chain {
                    continue;
                }
                s.begin_group();
                s.release_own(e, chain.as_deref(), &base);
                s.end_group();
            }
            self.issue(false);
            return Ok(());
        }
    }

    /// Is hardly more left than the table's segments (I10)?
    pub(crate) fn is_short(&self) -> bool {
        let s = self.state.borrow();
        s.spare() < s.table_reserve() + 2
    }

    /// Freeing writes a little too, in a store that may be full: what has died gives its room.
    async fn keep_room(self: &Rc<Self>) -> Result<(), DiskError> {
        if self.is_short() {
            self.checkpoint().await?;
            self.checkpoint().await?;
        }
        if self.is_short() { Err(self.state.borrow().no_room()) } else { Ok(()) }
    }

    /// The task: reclaims all that have ended, the oldest first.
    pub(crate) async fn reclaim(self: Rc<Self>) {
        let mut failed = false;
        loop {
            let next = {
                let mut s = self.state.borrow_mut();
                let next = s.snapshots.all.iter().find(|s| s.ended).map(|s| s.id);
                if next.is_none() || s.failed.is_some() || s.idle.closing {
                    s.reclaiming = false;
                }
                next.filter(|_| s.reclaiming)
            };
            let Some(id) = next else { break };
            if let Err(e) = self.reclaim_one(id).await {
                tracing::warn!("what a deleted snapshot has held is not free yet: {e}");
                self.state.borrow_mut().reclaiming = false;
                failed = self.check_failed().is_ok();
                break;
            }
            self.state.borrow_mut().reclaim_failures = 0;
            self.issue(false);
        }
        self.ask_for_room(0);
        self.changed.wake_all();
        if failed {
            self.reclaim_later().await;
        }
    }

    /// A disk that could not be read may be read again, and a full store may have room.
    async fn reclaim_later(self: &Rc<Self>) {
        let pause = {
            let s = &mut *self.state.borrow_mut();
            s.reclaim_failures += 1;
            pause_after(s.reclaim_failures)
        };
        let until = self.env.now().plus(pause);
        while self.env.now() < until && !self.state.borrow().idle.closing {
            unless(self.changed.wait(), self.env.sleep_until(until)).await;
        }
        self.start_reclaiming();
    }

    /// Starts the task if there is anything for it.
    pub(crate) fn start_reclaiming(self: &Rc<Self>) {
        {
            let mut s = self.state.borrow_mut();
            let none = !s.snapshots.is_reclaiming();
            if s.reclaiming || s.idle.closing || s.failed.is_some() || none {
                return;
            }
            s.reclaiming = true;
        }
        let store = self.clone();
        self.env.spawn("deleted snapshots", async move { store.reclaim().await });
    }
}

/// What cannot be done, as an error of the disk.
pub(crate) fn refused(why: &str) -> DiskError {
    let (kind, during) = (env::DiskErrorKind::Io, "snapshot");
    DiskError { kind, during, at: 0, detail: why.into() }
}

impl Store {
    /// Those that there are, from the oldest to the newest.
    pub fn snapshots(&self) -> Vec<Snapshot> {
        let s = self.inner.state.borrow();
        s.snapshots.all.iter().filter(|s| !s.ended).cloned().collect()
    }

    /// Makes a snapshot of all that was put; it is durable when this returns. `made`: seconds since
    /// 1970. Errors: the name is none, or there is one of that name; the store is full or failed.
    pub async fn snapshot(&self, name: &str, made: u64) -> Result<(), String> {
        let text = |e: DiskError| e.to_string();
        check_name(name)?;
        let inner = &self.inner;
        if inner.options.read_only {
            return Err("it is open for reading only".into());
        }
        let _alone = inner.snapshotting.lock().await;
        let first = {
            let s = inner.state.borrow();
            if s.snapshots.named(name).is_some() {
                return Err(format!("there is a snapshot of the name {name} already"));
            }
            if s.snapshots.last >= inner.geometry.snapshots_max() {
                return Err("there were too many snapshots of this volume".into());
            }
            s.snapshots.all.is_empty()
        };
        inner.put_snapshot(name, made).await.map_err(text)?;
        inner.sync().await.map_err(text)?;
        if first {
            // Both slots say it, so that a program that knows none keeps off.
            inner.checkpoint().await.map_err(text)?;
            inner.checkpoint().await.map_err(text)?;
        }
        Ok(())
    }

    /// Ends a snapshot: it has no name any more when this returns, durably; what only it needs is
    /// freed in the background. Errors: there is none of that name; the store failed.
    pub async fn delete_snapshot(&self, name: &str) -> Result<(), String> {
        let inner = &self.inner;
        if inner.options.read_only {
            return Err("it is open for reading only".into());
        }
        let _alone = inner.snapshotting.lock().await;
        inner.check_failed().map_err(|e| e.to_string())?;
        {
            let s = &mut *inner.state.borrow_mut();
            let found = s.snapshots.named(name).map(|s| s.id);
            let id = found.ok_or_else(|| format!("there is no snapshot of the name {name}"))?;
            s.begin_group();
            s.put_record(Entry::Ended { id, gone: false });
            s.snapshot_ended(id, false);
            s.end_group();
        }
        inner.sync().await.map_err(|e| e.to_string())?;
        inner.start_reclaiming();
        Ok(())
    }

    /// Waits until nothing of ended snapshots is left, or freeing it has failed.
    pub async fn reclaimed(&self) {
        while self.inner.state.borrow().reclaiming {
            self.inner.changed.wait().await;
        }
    }
}
