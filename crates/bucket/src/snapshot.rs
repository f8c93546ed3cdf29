//! Snapshots of a store in a bucket: the store as it was at moments of its log, which stay readable
//! while it goes on. The rules are those of a store on a disk (`lfs`); here the whole table is in
//! memory, so that an end needs no work in the background. What a snapshot's blocks mean, and who
//! reads them, it does not know.
//!
//! Rule        A block belongs to one virtual block at a time. What a snapshot still needs when the
//!             volume writes or frees a block goes to the snapshot instead of dying: its place
//!             becomes that of the snapshot's *own* virtual block of the same number.
//! Terms       as in `lfs`: *own block*: what a snapshot has of block v that no later one, nor the
//!             volume, has. *Hole*: an own block that lies nowhere: block v was zeros. *Keeper*:
//!             who takes what the volume gives up, the newest snapshot. *Moved*: written again by
//!             the cleaner, as it was.
//!
//! ```text
//!  snapshot s sees v:   own block of s, else that of the next newer one, ..., else the volume's
//!  the volume gives up place P of v:   has the keeper an own block v?  yes: P dies
//!                                      no: P is the keeper's own block v; v was zeros: a hole
//!  s ends:              each of its own blocks v goes to the next older one, unless that has one;
//!                       the others die
//! ```
//!
//! Invariants  S1 a snapshot sees the same bytes until it ends, whatever is written, freed or
//!             moved, whoever takes the volume over.
//!             S2 a place has one owner, the volume or one snapshot; so an object lives as long as
//!             anybody needs a block of it, and I7 says when it is deleted.
//!             S3 making and ending are records in the heads of objects; a record comes behind all
//!             that its object writes and frees.
//!             S4 a block that has moved is no new contents: the place that it leaves dies.
//!             S5 whoever follows the log comes to the same owners by the same rule.
//!             S6 a hole is never dropped from the table while its snapshot has not ended.
//!
//! States      made (acknowledged with its object) -> ended (the same) -the next checkpoint is
//!             acknowledged-> what only it needed is deleted
//! On disk     object.rs, behind the head's lists; behind a checkpoint's extents the snapshots.
//!             Such objects have a kind that programs without snapshots take for damage.
//! Recovery    none of its own: the log is followed.
//! Cost        making one: a PUT, whatever the size of the volume; ending one: a PUT, and a look at
//!             each extent that only it has. Each first write of a block behind one: an extent
//!             more in the table.

use crate::object::Record;
use crate::state::{Gathered, Table, parts};
use crate::store::{Inner, Store};
use env::DiskError;
use lfs::{Extent, Snapshot, Virt, check_name};
use std::rc::Rc;

/// Bits of a virtual block's number in the log and in the table.
pub(crate) const BITS: u32 = 63;

impl Table {
    /// Where a block lies that the volume, or a snapshot (`view`), sees under the number `v`: the
    /// number of the owner's virtual block.
    pub(crate) fn shown(&self, view: Option<u32>, v: u64) -> u64 {
        let Some(id) = view else { return v };
        let newer = self.snapshots.all.iter().skip_while(|s| s.id != id);
        let mut own = newer.map(|s| self.owners.own_block(s.id, Virt(v)));
        own.find(|own| self.extents.get(*own).is_some()).map_or(v, |own| own.0)
    }

    /// All virtual blocks that `v` may be: the volume's, and each snapshot's own.
    pub(crate) fn namesakes(&self, v: u64) -> impl Iterator<Item = u64> {
        let (_, v) = self.owners.owner(Virt(v));
        let own = self.snapshots.all.iter().map(move |s| self.owners.own_block(s.id, v).0);
        std::iter::once(v.0).chain(own)
    }

    /// These blocks, which lie in one object, have no owner any more.
    pub(crate) fn died(&mut self, e: &Extent) {
        if let Some(old) = e.place
            && let Some(info) = self.objects.get_mut(&parts(old).0)
        {
            let live = info.live;
            assert!(live >= e.n, "I7: {} blocks die in an object where {live} live", e.n);
            info.live -= e.n;
        }
    }

    /// The volume gives up what it has of these blocks: to the keeper, or nobody needs it (S2).
    pub(crate) fn give_up(&mut self, e: &Extent) {
        let keeper = self.snapshots.all.last().map(|s| s.id);
        let keeper = keeper.filter(|_| self.plant != Some("snapshot-not-respected"));
        self.hand_over(keeper, e);
    }

    /// Each of these blocks becomes the snapshot's own of its number, if that has none yet; the
    /// others die, and all do if there is no snapshot.
    fn hand_over(&mut self, to: Option<u32>, e: &Extent) {
        let Some(id) = to else { return self.died(e) };
        let (_, v) = self.owners.owner(e.v);
        let own = self.owners.own_block(id, v).0;
        let has: Vec<Extent> = self.extents.range(own, own + u64::from(e.n)).collect();
        // In the numbers of what is handed over.
        let ends = |h: &Extent| (e.v.0 + (h.v.0 - own), e.v.0 + (h.end() - own));
        let (mut at, mut done) = (e.v.0, 0);
        for (from, to) in has.iter().map(ends).chain([(e.end(), e.end())]) {
            if at < from {
                let new = e.cut(at, from);
                done += new.n;
                self.extents.set(Extent { v: Virt(own + (at - e.v.0)), ..new });
            }
            if from < to {
                let old = e.cut(from, to);
                done += old.n;
                self.died(&old);
            }
            at = to;
        }
        assert_eq!(done, e.n, "S2: of {e:?} so many blocks have another owner, or none");
    }

    /// A record says so (S3, S5).
    pub(crate) fn record(&mut self, record: &Record) {
        match record {
            Record::Made(snapshot) => {
                let (id, last) = (snapshot.id, self.snapshots.last);
                assert!(last < id, "S5: snapshot {id} is made behind snapshot {last}");
                self.snapshots.last = id;
                self.snapshots.all.push(snapshot.clone());
            }
            Record::Ended(id) => self.end(*id),
        }
    }

    /// What the snapshot has goes to the next older one, or dies.
    fn end(&mut self, id: u32) {
        let older = self.snapshots.all.iter().rev().find(|s| s.id < id).map(|s| s.id);
        let older = older.filter(|_| self.plant != Some("handed-over-to-nobody"));
        self.snapshots.all.retain(|s| s.id != id);
        let (from, to) = (self.owners.own_block(id, Virt(0)).0, self.owners.own_end(id));
        let own: Vec<Extent> = self.extents.range(from, to).collect();
        self.extents.forget(from, to);
        assert!(!self.snapshots.knows(id), "S2: what nobody has any more belongs to others now");
        own.iter().for_each(|e| self.hand_over(older, e));
        let left = self.extents.range(from, to).next();
        assert!(left.is_none(), "S2: {left:?} belongs to snapshot {id}, which has ended");
    }

    /// Is this an own block of a snapshot that there is, or a block of the volume?
    pub(crate) fn is_owned(&self, e: &Extent) -> bool {
        let ((owner, first), (last_owner, _)) =
            (self.owners.owner(e.v), self.owners.owner(Virt(e.end() - 1)));
        let known = owner == 0 || self.snapshots.knows(owner);
        known && owner == last_owner && first.0 + u64::from(e.n) <= self.blocks
    }

    /// A hole of a snapshot, which is not to be forgotten (S6).
    pub(crate) fn is_hole(&self, e: &Extent) -> bool {
        let dropped = self.plant == Some("holes-dropped");
        e.place.is_none() && self.owners.owner(e.v).0 > 0 && !dropped
    }
}

impl Store {
    /// The snapshots that there are, from the oldest to the newest.
    pub fn snapshots(&self) -> Vec<Snapshot> {
        self.inner.state.borrow().table.snapshots.all.clone()
    }

    /// Blocks that only snapshots have.
    pub fn snapshot_blocks(&self) -> u64 {
        let s = self.inner.state.borrow();
        let own = s.table.extents.range(s.table.owners.own_end(0), u64::MAX);
        own.filter(|e| e.place.is_some()).map(|e| u64::from(e.n)).sum()
    }

    /// Makes a snapshot of all that was put; it is durable when this returns. `made`: seconds since
    /// 1970. Errors: the name is none, or there is one of that name; the store has failed.
    pub async fn snapshot(&self, name: &str, made: u64) -> Result<(), String> {
        check_name(name)?;
        let record = {
            let s = self.inner.state.borrow();
            let all = &s.table.snapshots;
            if all.named(name).is_some() {
                return Err(format!("there is a snapshot of the name {name} already"));
            }
            if all.last >= s.table.owners.snapshots_max(BITS) {
                return Err("there were too many snapshots of this volume".into());
            }
            let (id, name) = (all.last + 1, name.to_owned());
            Record::Made(Snapshot { id, made, name, ended: false })
        };
        self.inner.put_record(record).await
    }

    /// Ends a snapshot: it has no name any more when this returns, durably; what only it needs is
    /// deleted behind the next checkpoint. Errors: there is none of that name; a clone needs it;
    /// the store failed.
    pub async fn delete_snapshot(&self, name: &str) -> Result<(), String> {
        let found = self.inner.state.borrow().table.snapshots.named(name).map(|s| s.id);
        let id = found.ok_or_else(|| format!("there is no snapshot of the name {name}"))?;
        self.inner.let_go_of_clones(id).await?;
        // Another may have deleted it meanwhile. A record of what is not there would be damage to
        // whoever follows the log; from here to the record nobody else is let in.
        if !self.inner.state.borrow().table.snapshots.knows(id) {
            return Err(format!("there is no snapshot of the name {name} any more"));
        }
        self.inner.put_record(Record::Ended(id)).await
    }
}

impl Inner {
    /// Seals what has gathered, with this record behind it (S3), and waits until it is durable.
    async fn put_record(self: &Rc<Self>, record: Record) -> Result<(), String> {
        let text = |e: DiskError| e.to_string();
        if self.options.read_only {
            return Err("it is open for reading only".into());
        }
        self.check_failed().map_err(text)?;
        let put = {
            let mut s = self.state.borrow_mut();
            s.put += 1;
            s.seal_with(&self.shape, self.env.random(), vec![record]);
            assert!(s.open.is_empty(), "S3: a record comes behind all that has gathered");
            s.put
        };
        self.send_ready();
        self.upload_to(put).await.map_err(text)
    }
}

/// Splits what has gathered: new contents, then what has only moved (S4), and what is freed.
pub(crate) type Sorted = (Vec<(u64, env::Block)>, Vec<(u64, env::Block)>, Vec<u64>);

/// The same.
pub(crate) fn sorted(open: impl IntoIterator<Item = (u64, Gathered)>) -> Sorted {
    let mut all = Sorted::default();
    for (v, what) in open {
        match what {
            Gathered::Written(block) => all.0.push((v, block)),
            Gathered::Moved(block) => all.1.push((v, block)),
            Gathered::Freed => all.2.push(v),
        }
    }
    all
}
