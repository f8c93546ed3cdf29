//! What an open store knows: where each block lies, what has gathered, what is under way and what
//! is acknowledged. It asks no bucket.

use crate::block_cache::BlockCache;
use crate::notes::Notes;
use crate::object::{Epoch, Head, Kind, Record, Said, Serial, block_sum};
use crate::possible;
use crate::snapshot::sorted;
use crate::stream::{Fetching, Streams};
use crate::volume::Shape;
use env::{Block, DiskError};
use lfs::{Extent, Extents, Owners, Place, Snapshots, Virt};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Counters since the store was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Groups put.
    pub groups: u64,
    /// Objects of the log that were sealed, checkpoints among them.
    pub objects: u64,
    /// Blocks in them.
    pub blocks: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Blocks that cleaning wrote again.
    pub moved: u64,
    /// Requests: PUT, GET, LIST, DELETE.
    pub requests: [u64; 4],
    /// Bytes sent and received.
    pub bytes: [u64; 2],
    /// Ranges of objects that a cache had, so that the bucket was not asked.
    pub kept: u64,
    /// Groups that the near log has and the bucket is not known to have.
    pub near_groups: u64,
    /// What a small PUT took lately, in microseconds.
    pub put_micros: u64,
}

/// One object of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Info {
    pub(crate) head_bytes: u32,
    /// Blocks in it.
    pub(crate) blocks: u32,
    /// Those that the table leads to.
    pub(crate) live: u32,
}

/// An object's index has so many bits in a place; the serial is above them.
pub(crate) const INDEX_BITS: u32 = 16;

/// Where the `index`th block of an object lies.
pub(crate) fn place(Serial(serial): Serial, index: u64) -> Place {
    // The highest bit is that of places elsewhere (clone.rs).
    assert!(index < 1 << INDEX_BITS && serial < 1 << (63 - INDEX_BITS), "I1: a place is one block");
    Place(serial << INDEX_BITS | index)
}

/// The object and the index in it.
pub(crate) fn parts(place: Place) -> (Serial, u64) {
    (Serial(place.0 >> INDEX_BITS), place.0 & ((1 << INDEX_BITS) - 1))
}

/// Where each block lies, and the objects of the log.
#[derive(Clone)]
pub(crate) struct Table {
    /// Blocks of the volume.
    pub(crate) blocks: u64,
    pub(crate) owners: Owners,
    pub(crate) extents: Extents,
    pub(crate) objects: BTreeMap<Serial, Info>,
    /// They are never deleted (I7).
    pub(crate) fences: BTreeSet<Serial>,
    pub(crate) snapshots: Snapshots,
    /// A planted bug.
    pub(crate) plant: Option<&'static str>,
}

impl Table {
    /// Of a volume in which nothing was written. `plant`: a planted bug.
    pub(crate) fn new(blocks: u64, plant: Option<&'static str>) -> Table {
        Table {
            blocks,
            owners: Owners::of(blocks),
            extents: Extents::default(),
            objects: BTreeMap::new(),
            fences: BTreeSet::new(),
            snapshots: Snapshots::default(),
            plant,
        }
    }

    /// Where a block lies; None: it is zeros.
    pub(crate) fn place(&self, v: u64) -> Option<Place> {
        self.extents.get(Virt(v)).and_then(|e| e.at(Virt(v)))
    }

    /// The newest object that it knows.
    pub(crate) fn last_serial(&self) -> Serial {
        let newest = [self.objects.keys().next_back(), self.fences.last()];
        newest.into_iter().flatten().max().copied().unwrap_or_default()
    }

    /// The block as an extent of its own.
    pub(crate) fn block(&self, v: u64) -> Extent {
        Extent { v: Virt(v), n: 1, place: self.place(v) }
    }

    /// The ranges that these blocks are freed by, both lists in order. What holds nothing anyhow,
    /// and is not being `written`, may lie in them: a head has no room for each of very many
    /// pieces.
    fn ranges_of(&self, freed: &[u64], written: &[(u64, Block)]) -> Vec<(u64, u64)> {
        let is_nothing = |from: u64, to: u64| {
            let next = written.partition_point(|(v, _)| *v < from);
            from == to
                || written.get(next).is_none_or(|(v, _)| *v >= to)
                    && self.extents.range(from, to).all(|e| e.place.is_none())
        };
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for v in freed {
            match ranges.last_mut().filter(|(first, n)| is_nothing(first + *n, *v)) {
                Some((first, n)) => *n = v + 1 - *first,
                None => ranges.push((*v, 1)),
            }
        }
        ranges
    }

    /// An object of the log says so.
    pub(crate) fn apply(&mut self, head: &Head, head_bytes: usize) {
        let serial = head.serial;
        let last = self.last_serial();
        assert!(last < serial, "I1: object {serial} comes behind {last} in the table");
        if head.kind == Kind::Fence {
            self.fences.insert(serial);
            return;
        }
        let blocks = head.written.len() as u32;
        let info = Info { head_bytes: head_bytes as u32, blocks, live: blocks };
        self.objects.insert(serial, info);
        let moved = head.said.as_ref().map_or(0, |s| s.moved);
        for (index, v) in (0..).zip(&head.written) {
            match index < u64::from(blocks - moved) {
                true => self.give_up(&self.block(*v)),
                false => self.died(&self.block(*v)),
            }
            let place = Some(place(head.serial, index));
            self.extents.set(Extent { v: Virt(*v), n: 1, place });
        }
        for (v, n) in &head.freed {
            // What lies nowhere is not given up: it may be most of a large volume.
            let lie = self.extents.range(*v, v + n).filter(|e| e.place.is_some());
            for e in lie.collect::<Vec<_>>() {
                self.give_up(&e);
            }
            let most = u64::from(u32::MAX);
            for first in (*v..v + n).step_by(most as usize) {
                let n = (v + n - first).min(most) as u32;
                self.extents.set(Extent { v: Virt(first), n, place: None });
            }
        }
        head.said.iter().flat_map(|s| &s.records).for_each(|r| self.record(r));
    }
}

/// What has gathered of a block.
#[derive(Clone, Debug)]
pub(crate) enum Gathered {
    /// New contents.
    Written(Block),
    /// It is written again as it was, so that its object can go.
    Moved(Block),
    /// It has none any more.
    Freed,
}

impl Gathered {
    fn contents(&self) -> Option<Block> {
        match self {
            Gathered::Written(block) | Gathered::Moved(block) => Some(block.clone()),
            Gathered::Freed => None,
        }
    }
}

/// A sealed object that is not acknowledged.
pub(crate) struct Flight {
    pub(crate) kind: Kind,
    pub(crate) bytes: Arc<[u8]>,
    /// Of them, the head.
    pub(crate) head_bytes: usize,
    /// The head's sum.
    pub(crate) sum: u32,
    pub(crate) blocks: Vec<Block>,
    /// Groups up to this one are durable with it.
    pub(crate) put: u64,
    /// It is in the bucket.
    pub(crate) ended: bool,
}

/// All of it.
pub(crate) struct State {
    pub(crate) table: Table,
    pub(crate) epoch: Epoch,
    /// The serial of the next object.
    pub(crate) next: Serial,
    /// The last one sealed, and its sum.
    pub(crate) last: (Serial, u32),
    /// The newest acknowledged checkpoint; 0: none.
    pub(crate) checkpoint: Serial,
    /// What has gathered.
    pub(crate) open: BTreeMap<u64, Gathered>,
    pub(crate) notes: Notes,
    /// The last group, the last one sealed, the last one that is durable.
    pub(crate) put: u64,
    pub(crate) sealed_put: u64,
    /// The last one that somebody waits for.
    pub(crate) wanted_put: u64,
    pub(crate) durable_put: u64,
    pub(crate) flights: BTreeMap<Serial, Flight>,
    /// Sealed, and not sent.
    pub(crate) ready: VecDeque<Serial>,
    /// Everything up to this serial is there, or void.
    pub(crate) acknowledged: Serial,
    pub(crate) under_way: usize,
    /// Somebody waits for the moment to seal.
    pub(crate) sealing: bool,
    /// Nanoseconds a PUT took lately.
    pub(crate) put_nanos: u64,
    /// Objects and bytes since the last checkpoint was sealed.
    pub(crate) since: (u64, u64),
    pub(crate) checkpoint_wanted: bool,
    pub(crate) cleaning: bool,
    /// Nothing new is begun.
    pub(crate) closing: bool,
    /// Everything is there, and the last heartbeat says so or is about to.
    pub(crate) closed: bool,
    pub(crate) cache: BlockCache,
    pub(crate) streams: Streams,
    /// What is being read.
    pub(crate) fetching: Fetching,
    pub(crate) failed: Option<DiskError>,
    pub(crate) stats: Stats,
}

impl State {
    /// Blocks that have gathered.
    pub(crate) fn gathered(&self) -> usize {
        self.open.len()
    }

    /// A block's new contents.
    pub(crate) fn write(&mut self, v: u64, block: Block) {
        self.open.insert(v, Gathered::Written(block));
    }

    /// These hold nothing any more. It costs what lies there, and not what could: all of a large
    /// volume may be given back at once (fstrim, a near log that somebody else has made).
    pub(crate) fn free(&mut self, v: u64, n: u64) {
        let end = v + n;
        let gathered: Vec<u64> = self.open.range(v..end).map(|(v, _)| *v).collect();
        gathered.iter().for_each(|v| drop(self.open.remove(v)));
        for e in self.table.extents.range(v, end).filter(|e| e.place.is_some()) {
            self.open.extend((e.v.0..e.end()).map(|v| (v, Gathered::Freed)));
        }
    }

    /// A block of the volume or of a snapshot (`view`) as it is in memory; None: it has to be
    /// looked for in the bucket. `Some(None)`: it is zeros.
    pub(crate) fn in_memory(&mut self, view: Option<u32>, v: u64) -> Option<Option<Block>> {
        // What has gathered comes behind every snapshot (S3).
        if let Some(open) = self.open.get(&v).filter(|_| view.is_none()) {
            return Some(open.contents());
        }
        let v = self.table.shown(view, v);
        let Some(place) = self.table.place(v) else { return Some(None) };
        let (serial, index) = parts(place);
        if let Some(flight) = self.flights.get(&serial) {
            return Some(Some(flight.blocks[index as usize].clone()));
        }
        self.cache.get(place).map(Some)
    }

    /// What has gathered becomes the next object. False: nothing has.
    pub(crate) fn seal(&mut self, shape: &Shape, nonce: u64) -> bool {
        self.seal_with(shape, nonce, Vec::new())
    }

    /// The same, with these records behind it.
    pub(crate) fn seal_with(&mut self, shape: &Shape, nonce: u64, records: Vec<Record>) -> bool {
        let (put, sealed) = (self.put, self.sealed_put);
        assert!(sealed <= put, "I12: group {put} is sealed behind group {sealed}");
        self.sealed_put = put;
        if self.open.is_empty() && records.is_empty() {
            match self.flights.last_entry() {
                Some(mut last) => last.get_mut().put = put,
                None => self.durable_put = put,
            }
            return false;
        }
        let mut head = self.head(Kind::Changes, nonce);
        head.notes = self.notes.seal();
        let all = self.open.len();
        let (written, moved, freed) = sorted(std::mem::take(&mut self.open));
        let sealed = written.len() + moved.len() + freed.len();
        assert_eq!(sealed, all, "I12: of {all} blocks that have gathered some go with no object");
        let said = Said { moved: moved.len() as u32, records };
        // Where there are no snapshots, nothing is said of them.
        let is_said = !self.table.snapshots.is_unused() || !said.records.is_empty();
        head.said = is_said.then_some(said).filter(|s| *s != Said::default());
        let lies = |(v, _): &(u64, Block)| self.table.place(*v).is_some();
        assert!(moved.iter().all(lies), "S4: what has moved lay somewhere, and its place dies");
        head.freed = self.table.ranges_of(&freed, &written);
        let is_freed =
            |v: &u64| head.freed.iter().any(|(first, n)| (*first..first + n).contains(v));
        let both = written.iter().map(|w| w.0).find(is_freed);
        debug_assert!(both.is_none(), "S5: block {both:?} is written, and freed behind that");
        let blocks: Vec<Block>;
        (head.written, blocks) = written.into_iter().chain(moved).unzip();
        self.stats.blocks += blocks.len() as u64;
        let (mut bytes, sum) = head.encode(&shape.uuid);
        let head_bytes = bytes.len();
        for (index, block) in (0..).zip(&blocks) {
            let sum = block_sum(&shape.uuid, (head.serial, index), block.bytes());
            bytes.extend_from_slice(&sum.to_le_bytes());
            bytes.extend_from_slice(block.bytes());
        }
        let goes_on = self.table.goes_on(&head);
        assert_eq!(goes_on, Ok(()), "I4: what is put would be damage to who follows the log");
        self.table.apply(&head, head_bytes);
        self.check_head(&head, shape);
        self.launch(&head, (bytes, head_bytes, sum), blocks);
        true
    }

    /// What is put can be read by who follows the log: it is looked at as that does.
    pub(crate) fn check_head(&self, head: &Head, shape: &Shape) {
        let can_be = possible::head(head, shape);
        assert_eq!(can_be, Ok(()), "I4: object {} would be taken for damaged", head.serial);
        let (serial, epoch) = (head.serial, self.epoch);
        let own = epoch == Epoch::FIRST || serial >= epoch.0.plus(shape.window);
        assert!(own, "I5: serial {serial} is void in epoch {epoch}");
    }

    /// The head of the next object (I4).
    pub(crate) fn head(&self, kind: Kind, nonce: u64) -> Head {
        Head {
            kind,
            serial: self.next,
            epoch: self.epoch,
            previous: self.last,
            checkpoint: self.checkpoint,
            nonce,
            written: Vec::new(),
            freed: Vec::new(),
            writer: String::new(),
            body_sum: 0,
            said: None,
            notes: Vec::new(),
        }
    }

    /// A sealed object is to be sent, under the next serial (I1).
    pub(crate) fn launch(
        &mut self,
        head: &Head,
        (bytes, head_bytes, sum): (Vec<u8>, usize, u32),
        blocks: Vec<Block>,
    ) {
        assert_eq!(head.serial, self.next, "I1: each serial once");
        assert_eq!(head.previous, self.last, "I4: it names the one before it");
        self.stats.objects += 1;
        self.since = (self.since.0 + 1, self.since.1 + bytes.len() as u64);
        (self.last, self.next) = ((head.serial, sum), self.next.next());
        let (kind, put) = (head.kind, self.sealed_put);
        let bytes = bytes.into();
        let before = self.flights.last_key_value().map_or(self.durable_put, |(_, f)| f.put);
        assert!(before <= put, "I12: group {put} would be durable behind group {before}");
        let flight = Flight { kind, bytes, head_bytes, sum, blocks, put, ended: false };
        self.flights.insert(head.serial, flight);
        self.ready.push_back(head.serial);
    }

    /// An object is in the bucket: what is there without a gap is acknowledged (I2).
    pub(crate) fn ended(&mut self, serial: Serial, gap: bool) {
        if self.failed.is_some() {
            return;
        }
        if let Some(flight) = self.flights.get_mut(&serial) {
            let alone = flight.kind != Kind::Checkpoint || serial == self.acknowledged.next();
            assert!(alone, "I6: a checkpoint is there, and something before it is not");
            assert!(!flight.ended, "I9: object {serial} has been put twice");
            flight.ended = true;
        }
        while let Some(first) = self.flights.first_entry() {
            let due = first.get().ended && *first.key() == self.acknowledged.next();
            if !due {
                break;
            }
            let (serial, flight) = first.remove_entry();
            self.acknowledge(serial, flight.put, flight.kind);
            for (index, block) in (0..).zip(flight.blocks) {
                self.cache.put(place(serial, index), block);
            }
        }
        if gap && let Some(put) = self.flights.get(&serial).map(|f| f.put) {
            self.durable_put = self.durable_put.max(put); // a planted bug
        }
    }

    /// A PUT has ended, whatever came of it.
    pub(crate) fn put_ended(&mut self) {
        assert!(self.under_way > 0, "I12: a PUT has ended that was not under way");
        self.under_way -= 1;
        if self.failed.is_none() {
            let there = self.flights.values().filter(|f| f.ended).count();
            let (all, ready, sent) = (self.flights.len(), self.ready.len(), self.under_way);
            assert_eq!(
                all,
                ready + sent + there,
                "I12: of so many objects {ready} are to be sent, {sent} are under way, and \
                 {there} are there"
            );
        }
    }

    fn acknowledge(&mut self, serial: Serial, put: u64, kind: Kind) {
        assert_eq!(serial, self.acknowledged.next(), "I2: no gap is acknowledged");
        assert!(self.failed.is_none(), "I10: nothing is acknowledged after a failure");
        self.acknowledged = serial;
        self.durable_put = self.durable_put.max(put);
        let (durable, sealed) = (self.durable_put, self.sealed_put);
        assert!(durable <= sealed, "I2: group {durable} is durable, and sealed are up to {sealed}");
        if kind == Kind::Checkpoint {
            let before = self.checkpoint;
            assert!(before < serial, "I6: checkpoint {serial} comes behind checkpoint {before}");
            self.checkpoint = serial;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(serial: u64, written: &[u64], freed: &[(u64, u64)]) -> Head {
        Head {
            kind: Kind::Changes,
            serial: Serial(serial),
            epoch: Epoch::FIRST,
            previous: (Serial(serial).before(), 0),
            checkpoint: Serial::NONE,
            nonce: 0,
            written: written.to_vec(),
            freed: freed.to_vec(),
            writer: String::new(),
            body_sum: 0,
            said: None,
            notes: Vec::new(),
        }
    }

    #[test]
    fn newer_objects_take_blocks_from_older_ones() {
        let mut t = Table::new(100, None);
        t.apply(&head(1, &[5, 6, 7], &[]), 128);
        t.apply(&head(2, &[6], &[(7, 2)]), 128);
        assert_eq!(t.place(5).map(parts), Some((Serial(1), 0)));
        assert_eq!(t.place(6).map(parts), Some((Serial(2), 0)));
        assert_eq!(t.place(7), None);
        assert_eq!((t.objects[&Serial(1)].live, t.objects[&Serial(2)].live), (1, 1));
    }
}
