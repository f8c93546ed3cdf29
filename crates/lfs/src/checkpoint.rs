//! Checkpoints: a moment of the store, whole. A body with the usage table and the list of runs lies
//! in the table's segments; one of two slots, in turn, names it. It does not know how the log is
//! followed from there.
//!
//! ```text
//!  slot  0 "CLCP", or "CLCS" where there are snapshots | 4 sum of the rest | 8 generation
//!        16 bytes of body | 20 the body's sum
//!        24 chunks: how many (4), then place (8) and blocks (4) of each; then the serial of the
//!        last partial that it covers (8), if it fits; 0: not said, as by older programs
//!  body  generation | serial | epoch | stamp (8 each) | last sum (4)
//!        heads (4): segment, offset, next (4 each)
//!        segments (4): live blocks (4; bit 31: free, bit 30: the table's), youngest stamp (8)
//!        runs (4): extents (8), pages (4), index sum (4), chunks of the index
//!        ranges (4): virtual block (8), then as in a summary
//!        totals (4): numbers (8 each); older programs end before
//!        snapshots, if there ever was one: the last number (4), how many (4), each: number (4),
//!        1 if it has ended (4), seconds since 1970 (8), bytes of its name (4), the name
//! ```

use crate::codec::{Reader, Writer};
use crate::extents::{Extent, Extents};
use crate::geometry::{BLOCK, BLOCK_BYTES, Place, SLOTS, SegNo, Virt};
use crate::merge::Merge;
use crate::patches::Range;
use crate::possible::are_chunks;
use crate::run::{Chunk, PAGE_EXTENTS, Run, decode_chunks, encode_chunks, encode_page};
use crate::snapshot::Snapshots;
use crate::state::State;
use crate::store::Inner;
use crate::summary::{Epoch, Serial};
use crate::table::{Page, damaged};
use crate::totals::Totals;
use crate::usage::Use;
use env::{Block, DiskError, Durability};
use std::collections::BTreeSet;
use std::rc::Rc;

const MAGIC: [u8; 4] = *b"CLCP";
const MAGIC_SNAPSHOTS: [u8; 4] = *b"CLCS";
const IS_FREE: u32 = 1 << 31;
const IS_TABLE: u32 = 1 << 30;

/// Chunks that a slot has room for.
pub(crate) const CHUNKS_MAX: usize = (BLOCK_BYTES - 28) / 12;

/// What a slot says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Slot {
    pub(crate) generation: u64,
    pub(crate) bytes: u32,
    pub(crate) sum: u32,
    pub(crate) chunks: Vec<Chunk>,
    /// The last partial that the checkpoint covers, known without its body; 0: of a program that
    /// did not say it.
    pub(crate) serial: Serial,
    /// Programs that know no snapshots keep off.
    pub(crate) snapshots: bool,
}

impl Slot {
    pub(crate) fn encode(&self, seed: u32) -> Vec<u8> {
        let mut w = Writer::default();
        let magic = if self.snapshots { MAGIC_SNAPSHOTS } else { MAGIC };
        w.bytes(&magic).u32(0).u64(self.generation).u32(self.bytes).u32(self.sum);
        encode_chunks(&mut w, &self.chunks);
        if w.0.len() + 8 <= BLOCK_BYTES {
            w.u64(self.serial.0);
        }
        assert!(w.0.len() <= BLOCK_BYTES, "I7: a slot is one block");
        w.0.resize(BLOCK_BYTES, 0);
        let sum = crc32c::crc32c_append(seed, &w.0[8..]);
        w.0[4..8].copy_from_slice(&sum.to_le_bytes());
        // The last number may have had no room.
        let same = |s: &Slot| *s == Slot { serial: s.serial, ..self.clone() };
        let again = Slot::decode(seed, &w.0);
        assert!(again.as_ref().is_some_and(same), "I17: {self:?} is read as {again:?}");
        w.0
    }
    pub(crate) fn decode(seed: u32, raw: &[u8]) -> Option<Slot> {
        let mut r = Reader(raw.get(..BLOCK_BYTES)?);
        let magic = r.bytes(4)?;
        let snapshots = magic == MAGIC_SNAPSHOTS;
        let known = snapshots || magic == MAGIC;
        if !known || r.u32()? != crc32c::crc32c_append(seed, r.0) {
            return None;
        }
        let (generation, bytes, sum) = (r.u64()?, r.u32()?, r.u32()?);
        let (chunks, serial) = (decode_chunks(&mut r)?, Serial(r.u64().unwrap_or(0)));
        Some(Slot { generation, bytes, sum, chunks, serial, snapshots })
    }
}

/// One segment, as a body has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SavedSegment {
    pub(crate) live: u32,
    pub(crate) youngest: u64,
    /// Both checkpoints say so.
    pub(crate) free: bool,
    pub(crate) table: bool,
}

/// A moment of the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Body {
    pub(crate) generation: u64,
    pub(crate) serial: Serial,
    pub(crate) epoch: Epoch,
    pub(crate) stamp: u64,
    pub(crate) last_sum: u32,
    /// Segment, offset, next.
    pub(crate) heads: Vec<(SegNo, u32, SegNo)>,
    pub(crate) segments: Vec<SavedSegment>,
    /// Each run without its index, and how many pages that has.
    pub(crate) runs: Vec<(Run, usize)>,
    /// Bytes of blocks that have not been written as a whole since.
    pub(crate) ranges: Vec<(Virt, Range)>,
    /// What was written until then.
    pub(crate) totals: Totals,
    pub(crate) snapshots: Snapshots,
}

impl Body {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u64(self.generation).u64(self.serial.0).u64(self.epoch.0);
        w.u64(self.stamp).u32(self.last_sum);
        w.u32(self.heads.len() as u32);
        for (segment, offset, next) in &self.heads {
            w.u32(segment.0).u32(*offset).u32(next.0);
        }
        w.u32(self.segments.len() as u32);
        for s in &self.segments {
            let flags = (u32::from(s.free) * IS_FREE) | (u32::from(s.table) * IS_TABLE);
            w.u32(s.live | flags).u64(s.youngest);
        }
        w.u32(self.runs.len() as u32);
        self.runs.iter().for_each(|(r, _)| r.encode_reference(&mut w));
        w.u32(self.ranges.len() as u32);
        self.ranges.iter().for_each(|(v, r)| r.encode(w.u64(v.0)));
        self.totals.encode(&mut w);
        self.snapshots.encode(&mut w);
        w.0
    }
    pub(crate) fn decode(raw: &[u8]) -> Option<Body> {
        let mut r = Reader(raw);
        let (generation, serial, epoch) = (r.u64()?, Serial(r.u64()?), Epoch(r.u64()?));
        let (stamp, last_sum, heads) = (r.u64()?, r.u32()?, r.u32()?);
        let heads = (0..heads).map(|_| Some((SegNo(r.u32()?), r.u32()?, SegNo(r.u32()?))));
        let heads = heads.collect::<Option<_>>()?;
        let segments = r.u32()?;
        let segment = |r: &mut Reader<'_>| {
            let (word, youngest) = (r.u32()?, r.u64()?);
            let (free, table) = (word & IS_FREE != 0, word & IS_TABLE != 0);
            Some(SavedSegment { live: word & (IS_TABLE - 1), youngest, free, table })
        };
        let segments = (0..segments).map(|_| segment(&mut r)).collect::<Option<_>>()?;
        let runs = r.u32()?;
        let runs = (0..runs).map(|_| Run::decode_reference(&mut r)).collect::<Option<_>>()?;
        let count = r.u32()?;
        let range = |r: &mut Reader<'_>| Some((Virt(r.u64()?), Range::decode(r)?));
        let ranges = (0..count).map(|_| range(&mut r)).collect::<Option<_>>()?;
        let totals = Totals::decode(&mut r)?;
        let snapshots = Snapshots::decode(&mut r)?;
        Some(Body {
            generation,
            serial,
            epoch,
            stamp,
            last_sum,
            heads,
            segments,
            runs,
            ranges,
            totals,
            snapshots,
        })
    }

    fn of(s: &State) -> Body {
        let saved = |(_, g): (SegNo, crate::usage::Segment)| SavedSegment {
            live: g.live,
            youngest: g.youngest,
            free: g.used == Use::Free,
            table: g.used == Use::Table,
        };
        Body {
            generation: s.usage.begun,
            serial: s.serial,
            epoch: s.epoch,
            stamp: s.stamp,
            last_sum: s.last_sum,
            heads: s.heads.iter().map(|h| (h.segment, h.offset, h.next)).collect(),
            segments: s.usage.all().map(saved).collect(),
            runs: Vec::new(),
            ranges: if s.planted("ranges-not-checkpointed") {
                Vec::new()
            } else {
                s.patches.saved()
            },
            totals: s.totals(),
            snapshots: s.snapshots.clone(),
        }
    }

    fn range_bytes(&self) -> usize {
        self.ranges.iter().map(|(_, r)| r.len()).sum()
    }
}

/// Blocks on their way into the table's segments.
#[derive(Default)]
struct Output {
    waiting: Vec<Block>,
    start: Option<Place>,
    /// Pages of the table among them, which are asked for next.
    pages: Vec<Page>,
}

/// Runs of the table at most.
pub(crate) const RUNS_MAX: usize = 5;
/// Blocks written together.
const TOGETHER: usize = 64;

impl Inner {
    /// Writes a checkpoint: everything put before the call is durable afterwards, found without
    /// following the log. What is put meanwhile goes on.
    pub(crate) async fn checkpoint(self: &Rc<Self>) -> Result<(), DiskError> {
        let _alone = self.checkpointing.lock().await;
        self.check_failed()?;
        let result = self.write_checkpoint().await;
        if let Err(e) = &result {
            self.fail(e.clone());
        }
        self.changed.wake_all();
        result
    }

    async fn write_checkpoint(self: &Rc<Self>) -> Result<(), DiskError> {
        let (mut body, frozen, old, tables) = {
            let mut s = self.state.borrow_mut();
            (0..s.heads.len()).for_each(|h| s.close(h));
            s.check_at_checkpoint();
            s.usage.begun += 1;
            let (begun, durable) = (s.usage.begun, s.usage.durable);
            assert_eq!(begun, durable + 1, "I7: checkpoint {begun} goes over the newest that is");
            assert!(s.table.frozen.is_none(), "I7: checkpoint {begun} begins while another does");
            (s.since_checkpoint, s.checkpoint_wanted) = (0, false);
            let frozen = Rc::new(std::mem::take(&mut s.table.active));
            s.table.frozen = Some(frozen.clone());
            let body = Body::of(&s);
            let (said, all) = (body.range_bytes(), s.patches.bytes());
            let has_all = said == all || s.planted("ranges-not-checkpointed");
            assert!(has_all, "I11: a checkpoint has {said} of {all} bytes of ranges");
            (body, frozen, s.table.runs.clone(), s.stats.table_blocks)
        };
        self.issue(false);
        let early = self.plant == Some("checkpoint-before-segments");
        let snapshots = !body.snapshots.all.is_empty();
        let (chunks, serial) = (Vec::new(), body.serial);
        let mut slot = Slot { generation: 0, bytes: 0, sum: 0, chunks, serial, snapshots };
        let mut out = Output::default();
        let runs = self.next_runs((&frozen, &old), &body.snapshots, &mut out).await?;
        body.runs = runs.iter().map(|r| ((**r).clone(), r.pages.len())).collect();
        // Its own blocks count too: those of the runs, the body and the slot.
        let written = self.state.borrow().stats.table_blocks - tables;
        let own = body.encode().len().div_ceil(BLOCK_BYTES) as u64 + 1;
        body.totals.add_tables(written + own);
        // What could not be read again is not written over what can.
        let place = SLOTS[(body.generation % 2) as usize];
        let wrong = |what| damaged(place, &format!("{what} of a checkpoint to be written"));
        body.check(&self.geometry).map_err(wrong)?;
        let raw = body.encode();
        slot.generation = body.generation;
        (slot.bytes, slot.sum) = (raw.len() as u32, crc32c::crc32c_append(self.seed, &raw));
        slot.chunks = self.table_bytes(&raw, &mut out).await?;
        // Of a store that was not made here.
        let fits = slot.chunks.len() <= CHUNKS_MAX;
        fits.then_some(()).ok_or_else(|| wrong("the number of parts"))?;
        self.write_waiting(&mut out).await?;
        if !early {
            self.wait_completed(body.serial).await?;
            self.disk.flush().await?;
        }
        self.check_slot(&slot, &out, early);
        let n = if self.plant == Some("one-slot") { 0 } else { body.generation % 2 };
        let block = vec![Block::copy_of(&slot.encode(self.seed))];
        self.disk.write(SLOTS[n as usize].byte(), block, Durability::Fua).await?;
        let freed = self.adopt(&body, (runs, out.pages), &slot, early);
        self.give_back(freed).await
    }

    /// A slot is about to be written: all that it names has been (I7).
    fn check_slot(&self, slot: &Slot, out: &Output, early: bool) {
        let (begun, completed) = {
            let s = self.state.borrow();
            (s.usage.begun, s.completed)
        };
        let number = slot.generation;
        assert_eq!(number, begun, "I7: the slot of another checkpoint is written");
        let left = out.waiting.len();
        assert_eq!(left, 0, "I7: {left} blocks of checkpoint {number} are not written yet");
        let serial = slot.serial;
        let ended = early || completed >= serial;
        assert!(ended, "I7: checkpoint {number} covers {serial:?}, and {completed:?} has ended");
        let lie = are_chunks(&slot.chunks, u64::from(slot.bytes), &self.geometry);
        assert!(lie, "I7: {} bytes of checkpoint {number} in {:?}", slot.bytes, slot.chunks);
    }

    /// The checkpoint is durable: its table is the table, and what it no longer names is free.
    fn adopt(
        &self,
        body: &Body,
        (runs, pages): (Vec<Rc<Run>>, Vec<Page>),
        slot: &Slot,
        early: bool,
    ) -> Vec<SegNo> {
        let mut s = self.state.borrow_mut();
        let s = &mut *s;
        if !early {
            assert!(s.completed >= body.serial, "I7: what it covers was written before it");
            s.durable = s.durable.max(body.serial);
            s.forget_flights();
        }
        let (number, begun) = (body.generation, s.usage.begun);
        assert_eq!(number, begun, "I7: another checkpoint than the last that was begun is adopted");
        let (epoch, before) = (body.epoch, s.epoch_durable);
        assert!(before <= epoch, "I6: epoch {epoch} is durable, and {before} was");
        s.epoch_durable = body.epoch;
        s.table.adopt(runs, pages, self.pages_half());
        s.usage.durable = body.generation;
        s.deaths.forget(body.generation);
        s.stats.checkpoints += 1;
        let named = self.segments_named(&s.table.runs, &slot.chunks);
        let before = std::mem::replace(&mut s.named[1], named);
        let gone = std::mem::replace(&mut s.named[0], before);
        let open = s.table_at.map(|t| t.0);
        let mut freed = Vec::new();
        for seg in gone {
            let kept = s.named.iter().any(|n| n.contains(&seg)) || open == Some(seg);
            if !kept && s.usage.get(seg).used == Use::Table {
                s.usage.free_table(seg);
                freed.push(seg);
            } else if open == Some(seg) {
                s.named[0].insert(seg); // looked at again at the next checkpoint
            }
        }
        let other = s.named.iter().flatten().find(|n| s.usage.get(**n).used != Use::Table);
        let own = other.is_none() || s.plant.is_some();
        assert!(own, "I2: a checkpoint names {other:?}, which is not the table's");
        let after = if s.planted("reuse-after-one-checkpoint") { 1 } else { 2 };
        freed.extend(s.usage.release(after));
        freed.iter().for_each(|seg| s.residents.forget(*seg));
        freed
    }

    /// Segments that the runs and the body of a checkpoint lie in: all of them, as a chunk may go
    /// on from one to the next. One left out could be taken after the next opening, and the newest
    /// checkpoint be written over.
    pub(crate) fn segments_named(&self, runs: &[Rc<Run>], body: &[Chunk]) -> BTreeSet<SegNo> {
        let places = runs.iter().flat_map(|r| r.places()).chain(body.iter().copied());
        let segment = |p: Place| self.geometry.segment_of(p);
        let ends = places.filter_map(|(p, n)| {
            assert!(n > 0, "I7: a checkpoint has a chunk of no blocks at {p:?}");
            Some((segment(p)?, segment(p.plus(u64::from(n) - 1))?))
        });
        ends.flat_map(|(first, last)| (first.0..=last.0).map(SegNo)).collect()
    }

    /// The runs with what is new: a run of its own, merged with those that are not much larger, so
    /// that each mapping is written again only a logarithmic number of times.
    async fn next_runs(
        &self,
        (new, old): (&Rc<Extents>, &[Rc<Run>]),
        known: &Snapshots,
        out: &mut Output,
    ) -> Result<Vec<Rc<Run>>, DiskError> {
        if new.is_empty() {
            return Ok(old.to_vec());
        }
        let (mut size, mut merged) = (new.len() as u64, 0);
        while merged < old.len() && size * 2 >= old[merged].extents {
            size += old[merged].extents;
            merged += 1;
        }
        if old.len() - merged >= RUNS_MAX {
            merged = old.len();
        }
        let whole = merged == old.len();
        let sources = old[..merged].iter().cloned();
        let merge = Merge::new(std::iter::once(&**new), sources);
        let run = self.write_run(merge, (whole, known), out).await?;
        let kept = old[merged..].iter().cloned();
        let runs: Vec<Rc<Run>> = run.map(Rc::new).into_iter().chain(kept).collect();
        let n = runs.len();
        assert!(n <= RUNS_MAX, "I10: {n} runs, and room is kept for the pages of {RUNS_MAX}");
        Ok(runs)
    }

    /// `whole`: nothing older lies behind, so what is free needs no record, unless it is a hole of
    /// a snapshot that the checkpoint knows (S6): what has ended since it was begun is gone only by
    /// records behind it, which may be lost.
    async fn write_run(
        &self,
        mut merge: Merge,
        (whole, known): (bool, &Snapshots),
        out: &mut Output,
    ) -> Result<Option<Run>, DiskError> {
        let mut run = Run::default();
        let mut page: Vec<Extent> = Vec::new();
        while let Some(e) = merge.next(self).await? {
            if whole && e.place.is_none() && !self.is_hole(e, known) {
                continue;
            }
            if let Some(last) = page.last_mut().filter(|last| last.joins(&e)) {
                last.n += e.n;
                continue;
            }
            if page.len() == PAGE_EXTENTS {
                self.write_page(&mut run, &mut page, out).await?;
            }
            page.push(e);
        }
        if !page.is_empty() {
            self.write_page(&mut run, &mut page, out).await?;
        }
        if run.pages.is_empty() {
            return Ok(None);
        }
        let index = run.encode_index();
        run.index_sum = crc32c::crc32c_append(self.seed, &index);
        run.index = self.table_bytes(&index, out).await?;
        let possible = run.is_possible(run.pages.len(), &self.geometry);
        assert!(possible, "I8: a run of {} pages is not in order", run.pages.len());
        Ok(Some(run))
    }

    /// Is what is free a hole of one of these?
    fn is_hole(&self, free: Extent, of: &Snapshots) -> bool {
        let (snapshot, _) = self.geometry.owner(free.v);
        of.knows(snapshot) && self.plant != Some("holes-dropped")
    }

    async fn write_page(
        &self,
        run: &mut Run,
        page: &mut Vec<Extent>,
        out: &mut Output,
    ) -> Result<(), DiskError> {
        let sorted = page.windows(2).all(|w| w[0].end() <= w[1].v.0);
        assert!(sorted, "I8: a page from {:?} on is not in order", page.first());
        let raw = encode_page(self.seed, page);
        let place = self.table_block(Block::copy_of(&raw), out).await?;
        run.pages.push((page[0].v, place));
        run.extents += page.len() as u64;
        let page = std::mem::take(page);
        if out.pages.len() < self.pages_half() / 2 {
            out.pages.push((place, Rc::new(page)));
        }
        Ok(())
    }

    /// Bytes as whole blocks of the table's segments.
    async fn table_bytes(&self, raw: &[u8], out: &mut Output) -> Result<Vec<Chunk>, DiskError> {
        let mut chunks: Vec<Chunk> = Vec::new();
        for part in raw.chunks(BLOCK_BYTES) {
            let mut block = Block::zeroed(BLOCK_BYTES);
            block.bytes_mut()[..part.len()].copy_from_slice(part);
            let place = self.table_block(block, out).await?;
            match chunks.last_mut() {
                Some((first, n)) if first.plus(u64::from(*n)) == place => *n += 1,
                _ => chunks.push((place, 1)),
            }
        }
        Ok(chunks)
    }

    async fn table_block(&self, block: Block, out: &mut Output) -> Result<Place, DiskError> {
        let place = {
            let mut s = self.state.borrow_mut();
            let full = |at: (SegNo, u32)| at.1 == s.geometry.segment_blocks;
            let (seg, offset) = match s.table_at.filter(|at| !full(*at)) {
                Some(at) => at,
                None => (s.usage.take(Use::Table).ok_or_else(|| s.no_room())?, 0),
            };
            let used = s.usage.get(seg).used;
            assert_eq!(used, Use::Table, "I2: the table goes into segment {}", seg.0);
            s.table_at = Some((seg, offset + 1));
            s.stats.table_blocks += 1;
            s.geometry.start(seg).plus(u64::from(offset))
        };
        let end = out.start.map(|p| p.plus(out.waiting.len() as u64));
        if end != Some(place) || out.waiting.len() == TOGETHER {
            self.write_waiting(out).await?;
            out.start = Some(place);
        }
        out.waiting.push(block);
        Ok(place)
    }

    async fn write_waiting(&self, out: &mut Output) -> Result<(), DiskError> {
        let Some(start) = out.start.take() else { return Ok(()) };
        let blocks = std::mem::take(&mut out.waiting);
        let n = blocks.len();
        let lie = (1..=TOGETHER).contains(&n) && self.geometry.are_segments(start, n as u64);
        assert!(lie, "I2: {n} blocks of the table at {start:?}");
        self.disk.write(start.byte(), blocks, Durability::Cached).await
    }

    /// Free segments are given back to whatever lies below; nobody takes one meanwhile.
    async fn give_back(&self, freed: Vec<SegNo>) -> Result<(), DiskError> {
        if !self.options.discard {
            return Ok(());
        }
        freed.iter().for_each(|seg| self.state.borrow_mut().usage.withhold(*seg));
        let bytes = u64::from(self.geometry.segment_blocks) * BLOCK;
        // A disk that does not know how is none the worse.
        let discard = |seg| self.disk.discard(self.geometry.start(seg).byte(), bytes);
        if self.plant == Some("thin-given-back-early") {
            let early = self.state.borrow().usage.empty_in_one();
            for seg in early {
                let _ = discard(seg).await;
            }
        }
        for seg in freed {
            let s = self.state.borrow().usage.get(seg);
            let free = s.used == Use::Free && s.live == 0;
            assert!(free, "I2: segment {} is given back, and is {s:?}", seg.0);
            let _ = discard(seg).await;
            self.state.borrow_mut().usage.give(seg);
        }
        Ok(())
    }

    /// A body that a slot names. Errors: it is damaged, or the disk's.
    pub(crate) async fn read_body(&self, slot: &Slot) -> Result<Body, DiskError> {
        let place = slot.chunks.first().map_or(Place(0), |c| c.0);
        let wrong = |what: &str| damaged(place, &format!("{what} of a checkpoint's body"));
        if !are_chunks(&slot.chunks, u64::from(slot.bytes), &self.geometry) {
            return Err(wrong("the place"));
        }
        let raw = self.read_chunks(&slot.chunks).await?;
        let raw = raw.get(..slot.bytes as usize).unwrap_or(&[]);
        if crc32c::crc32c_append(self.seed, raw) != slot.sum {
            return Err(wrong("the checksum"));
        }
        let body = Body::decode(raw).ok_or_else(|| wrong("the form"))?;
        if body.generation != slot.generation {
            return Err(wrong("the number"));
        }
        body.check(&self.geometry).map_err(wrong)?;
        Ok(body)
    }

    /// The runs of a body, with their indices.
    pub(crate) async fn read_runs(&self, body: &Body) -> Result<Vec<Rc<Run>>, DiskError> {
        let mut runs = Vec::new();
        for (run, pages) in &body.runs {
            let mut run = run.clone();
            let place = run.index.first().map_or(Place(0), |c| c.0);
            let wrong = || damaged(place, "the index of a run of the table");
            let bytes = *pages as u64 * 16;
            if !are_chunks(&run.index, bytes, &self.geometry) {
                return Err(wrong());
            }
            let raw = self.read_chunks(&run.index).await?;
            let raw = raw.get(..bytes as usize).unwrap_or(&[]);
            if !run.load_index(self.seed, raw) || !run.is_possible(*pages, &self.geometry) {
                return Err(wrong());
            }
            runs.push(Rc::new(run));
        }
        Ok(runs)
    }

    async fn read_chunks(&self, chunks: &[Chunk]) -> Result<Vec<u8>, DiskError> {
        let mut raw = Vec::new();
        for (place, n) in chunks {
            raw.extend_from_slice(self.read_blocks(*place, u64::from(*n)).await?.bytes());
        }
        Ok(raw)
    }
}

/// There is no segment left. `held`: snapshots have some.
pub(crate) fn no_room(held: bool) -> DiskError {
    let detail = match held {
        true => "snapshots hold the space of the store: cairn snapshot delete frees it",
        false => "the store has no free segment left: delete files, or enlarge the disk",
    };
    let (kind, detail) = (env::DiskErrorKind::NoSpace, detail.to_owned());
    DiskError { kind, during: "write", at: 0, detail }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Snapshot;

    #[test]
    fn a_checkpoint_comes_back() {
        let chunks = vec![(Place(3), 2)];
        let serial = Serial(8);
        let slot = Slot { generation: 7, bytes: 99, sum: 5, chunks, serial, snapshots: true };
        let raw = slot.encode(1);
        assert_eq!(Slot::decode(1, &raw), Some(slot));
        assert_eq!(Slot::decode(2, &raw), None, "of another store");
        let segment = SavedSegment { live: 4, youngest: 8, free: false, table: true };
        let run = Run { extents: 3, index: vec![(Place(9), 1)], ..Run::default() };
        let body = Body {
            generation: 7,
            serial: Serial(2),
            epoch: Epoch(1),
            stamp: 5,
            last_sum: 6,
            heads: vec![(SegNo(1), 2, SegNo(3))],
            segments: vec![segment; 3],
            runs: vec![(run, 0)],
            ranges: vec![(Virt(6), Range { at: 4, bytes: vec![1; 9], zeros: 2 })],
            totals: Totals { user_bytes: 4096, written: 3, ..Totals::default() },
            snapshots: Snapshots {
                all: vec![Snapshot { id: 2, made: 5, name: "daily".into(), ended: true }],
                last: 4,
            },
        };
        assert_eq!(Body::decode(&body.encode()), Some(body));
    }
}
