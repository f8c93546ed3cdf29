//! What an object of the log can say: whoever can write to the bucket can put there an object with
//! right sums and absurd contents. What later arithmetic relies on is looked at here, before any of
//! it is believed, and after it was made, before it is put. It reads no bucket.

use crate::object::{Head, Kind, Record, Serial};
use crate::snapshot::BITS;
use crate::state::{INDEX_BITS, Table};
use crate::volume::Shape;

/// Serials end here. A place would have room for twice as many, so that none that a writer goes on
/// with is too large.
pub(crate) const SERIALS_END: Serial = Serial(1 << 46);
/// Who becomes the writer has as many before him as there are behind him, so that none that he
/// makes is too large (I4).
pub(crate) const SERIALS_TO_OPEN: Serial = Serial(1 << 45);
/// An object has fewer blocks, so that the places of two are never neighbours.
pub(crate) const BLOCKS_END: u64 = (1 << INDEX_BITS) - 1;

/// Errors: the field that cannot be.
pub(crate) type Possible = Result<(), &'static str>;

fn require(is_so: bool, field: &'static str) -> Possible {
    if is_so { Ok(()) } else { Err(field) }
}

/// May an object of this volume have this head?
pub(crate) fn head(head: &Head, shape: &Shape) -> Possible {
    let serial = head.serial;
    require((Serial(1)..SERIALS_END).contains(&serial), "its serial")?;
    let epoch = match head.kind {
        Kind::Fence => head.epoch.0 == serial,
        _ => head.epoch.0 < serial,
    };
    require(epoch, "its epoch")?;
    require(head.previous.0 < serial, "the object before it")?;
    require(head.checkpoint < serial, "the newest checkpoint")?;
    let is_empty = head.written.is_empty() && head.freed.is_empty();
    let lists = match head.kind {
        Kind::Changes => (head.written.len() as u64) < BLOCKS_END,
        Kind::Checkpoint | Kind::Fence => is_empty,
    };
    require(lists, "how many blocks it holds")?;
    // A block may be a snapshot's own: then its number is that of an owner, too.
    require(head.written.iter().all(|v| *v < 1 << BITS), "a block that it holds")?;
    let is_range =
        |(v, n): &(u64, u64)| *n > 0 && v.checked_add(*n).is_some_and(|end| end <= shape.blocks);
    require(head.freed.iter().all(is_range), "a range that it frees")?;
    let has_records = head.said.as_ref().is_some_and(|s| !s.records.is_empty());
    require(head.kind == Kind::Changes || !has_records, "a record of a snapshot")
}

impl Table {
    /// May the log go on with this object, whose head can be?
    pub(crate) fn goes_on(&self, head: &Head) -> Possible {
        let moved = head.said.as_ref().map_or(0, |s| s.moved) as usize;
        let (new, moved) =
            head.written.split_at(head.written.len() - moved.min(head.written.len()));
        require(new.iter().all(|v| *v < self.blocks), "a block that it holds")?;
        let is_known = |v: &u64| {
            let (owner, v) = self.owners.owner(lfs::Virt(*v));
            v.0 < self.blocks && (owner == 0 || self.snapshots.knows(owner))
        };
        require(moved.iter().all(is_known), "a block that it has moved")?;
        let (most, mut last) = (self.owners.snapshots_max(BITS), self.snapshots.last);
        let mut all: Vec<u32> = self.snapshots.all.iter().map(|s| s.id).collect();
        for record in head.said.iter().flat_map(|s| &s.records) {
            let can_be = match record {
                Record::Made(s) => s.id > last && s.id <= most && !s.ended,
                Record::Ended(id) => all.contains(id),
            };
            require(can_be, "a record of a snapshot")?;
            match record {
                Record::Made(s) => {
                    last = s.id;
                    all.push(s.id);
                }
                Record::Ended(id) => all.retain(|known| known != id),
            }
        }
        Ok(())
    }
}
