//! What lives in a victim, and its bytes: second of the cleaner's verbs. A segment is read as a
//! whole, and its summaries say what was put where; or, if that is known, only what lives there and
//! is not in memory, in runs, whichever is quicker. Where so little lives that reading it and the
//! summaries takes less than reading all, the summaries are read first. It moves nothing.

use crate::geometry::{BLOCK_BYTES, Place, SegNo, Virt};
use crate::policy::Costs;
use crate::store::Inner;
use crate::summary::{Entry, Summary};
use env::{Block, DiskError, IdMap, IdSet};

/// A live block of a victim.
pub(crate) struct Survivor {
    pub(crate) v: Virt,
    pub(crate) stamp: u64,
    pub(crate) from: Place,
    /// The head that wrote it there.
    pub(crate) head: u8,
    pub(crate) block: Block,
}

/// One whose bytes are not at hand, or are in memory.
struct Named {
    v: Virt,
    stamp: u64,
    from: Place,
    /// The head that wrote it there.
    head: u8,
    block: Option<Block>,
}

impl Inner {
    /// Second verb: the blocks of a segment that still lie where they were put.
    pub(crate) async fn survivors_of(
        &self,
        segment: SegNo,
        out: &mut Vec<Survivor>,
    ) -> Result<(), DiskError> {
        let named = match self.named_of(segment).await? {
            Some(named) => Some(named),
            None => self.summarised(segment).await?,
        };
        let before = out.len();
        match named {
            Some(named) => self.complete(segment, named, out).await?,
            None => self.read_survivors(segment, out).await?,
        }
        let newest = self.state.borrow().stamp;
        for Survivor { v, stamp, from, block, .. } in &out[before..] {
            let there = self.geometry.segment_of(*from);
            assert_eq!(there, Some(segment), "I13: block {} is taken from elsewhere", v.0);
            assert!(*stamp <= newest, "I8: block {} has stamp {stamp}, at {newest}", v.0);
            let len = block.len();
            assert_eq!(len, BLOCK_BYTES, "I16: {len} bytes are moved of block {}", v.0);
        }
        Ok(())
    }

    /// The same of one that is to be emptied by itself. What the disk cannot read is left alone:
    /// whoever asks for it hears of it, and all else goes on. Errors: the store has failed.
    pub(crate) async fn survivors_if_readable(
        &self,
        segment: SegNo,
        out: &mut Vec<Survivor>,
    ) -> Result<(), DiskError> {
        let before = out.len();
        if let Err(e) = self.survivors_of(segment, out).await {
            out.truncate(before);
            self.leave_alone(segment, &e)?;
        }
        Ok(())
    }

    /// This segment is neither emptied nor plugged for a while. Errors: the store has failed.
    pub(crate) fn leave_alone(&self, segment: SegNo, e: &DiskError) -> Result<(), DiskError> {
        self.check_failed()?;
        tracing::warn!("segment {} cannot be read, and is left as it is: {e}", segment.0);
        self.state.borrow_mut().usage.is_unreadable(segment, self.env.now());
        Ok(())
    }

    /// What lives in a segment of which it is known what was put there, with what memory has of it.
    async fn named_of(&self, segment: SegNo) -> Result<Option<Vec<Named>>, DiskError> {
        let puts = {
            let s = self.state.borrow();
            let Some(puts) = s.residents.contents_of(segment) else { return Ok(None) };
            puts.to_vec()
        };
        let head = self.state.borrow().usage.filler(segment);
        let head = head.unwrap_or(self.geometry.heads - 1);
        let start = self.geometry.start(segment);
        let put = puts.iter().map(|p| (p.v, p.stamp, start.plus(u64::from(p.slot)), head));
        self.living(segment, put.collect()).await
    }

    /// The same of one of which that is not known, by its summaries alone; None: to read all is
    /// quicker.
    async fn summarised(&self, segment: SegNo) -> Result<Option<Vec<Named>>, DiskError> {
        let (start, of) = (self.geometry.start(segment), u64::from(self.geometry.segment_blocks));
        let mut left = {
            let s = self.state.borrow();
            let (costs, live) = (s.planner.costs(), s.usage.get(segment).live);
            // Each live block may be a run of its own. Half of what that would save is risked for
            // the summaries, of which there may be many.
            (costs.segment / costs.block - f64::from(live)) / 2.0
        };
        let (mut put, mut serial, mut at) = (Vec::new(), None, 0);
        while at < of {
            left -= 1.0;
            if left < 0.0 {
                return Ok(None);
            }
            let place = start.plus(at);
            let raw = self.read_places(place, 1).await?;
            self.note_read(1);
            let Some((s, _)) = Summary::decode(raw[0].bytes(), place) else { break };
            at += u64::from(s.payload) + 1;
            if serial.is_some_and(|last| last >= s.serial) || at > of {
                break;
            }
            serial = Some(s.serial);
            put.extend(put_by(&s));
        }
        self.living(segment, put).await
    }

    /// Of what was put there and what amends it, each live block once, with what memory has of it;
    /// None: more is said to live there than is found.
    async fn living(
        &self,
        segment: SegNo,
        put: Vec<(Virt, u64, Place, u8)>,
    ) -> Result<Option<Vec<Named>>, DiskError> {
        let (start, last) = (self.geometry.start(segment), self.geometry.heads - 1);
        let plugged = self.amended(segment).await?;
        let plugs = plugged.iter().map(|a| (a.v, a.stamp, start.plus(u64::from(a.slot)), last));
        let (mut named, mut seen) = (Vec::new(), IdSet::default());
        // A block that was plugged into a slot that it once had is in both, and is one.
        let newest = self.state.borrow().stamp;
        for (put, stamp, from, head) in plugs.chain(put) {
            let stamp = stamp.min(newest);
            if let Some(v) = self.whose(put, from).await?
                && seen.insert(from.0)
            {
                let block = self.remembered(v, segment);
                named.push(Named { v, stamp, from, head, block });
            }
        }
        let live = self.state.borrow().usage.get(segment).live;
        if named.len() < live as usize {
            tracing::warn!("segment {}: {} of {live} blocks are known", segment.0, named.len());
            return Ok(None);
        }
        Ok(Some(named))
    }

    /// So many blocks were read, in one request.
    fn note_read(&self, blocks: u64) {
        let stats = &mut self.state.borrow_mut().stats;
        stats.read_to_clean += blocks;
        stats.clean_reads += 1;
    }

    /// A block that lies in this segment now, if memory has what lies there (I16).
    fn remembered(&self, v: Virt, segment: SegNo) -> Option<Block> {
        let memory = {
            let s = self.state.borrow();
            let is_there = s.residents.lies_in(v) == Some(segment);
            let mixed = s.patches.get(v).is_some() && !s.planted("memory-mixes-dirty");
            s.residents.memory().filter(|_| is_there && !mixed)?
        };
        memory.contents(v)
    }

    /// Reads what memory does not have.
    async fn complete(
        &self,
        segment: SegNo,
        named: Vec<Named>,
        out: &mut Vec<Survivor>,
    ) -> Result<(), DiskError> {
        let (start, of) = (self.geometry.start(segment), self.geometry.segment_blocks);
        let costs = self.state.borrow().planner.costs();
        let mut missing: Vec<u64> =
            named.iter().filter(|n| n.block.is_none()).map(|n| n.from.0 - start.0).collect();
        missing.sort_unstable();
        let mut read: IdMap<u64, Block> = IdMap::default();
        for (first, n) in runs_of(&missing, of, &costs) {
            let inside = first + n <= u64::from(of);
            assert!(inside, "I13: blocks {first} and {n} more are read of a segment of {of}");
            let blocks = self.read_places(start.plus(first), n).await?;
            read.extend((start.0 + first..).zip(blocks));
            self.note_read(n);
        }
        for Named { v, stamp, from, head, block } in named {
            self.state.borrow_mut().stats.remembered += u64::from(block.is_some());
            let block = block.or_else(|| read.remove(&from.0));
            let block = block.expect("what memory does not have is in one of the runs");
            out.push(Survivor { v, stamp, from, head, block });
        }
        Ok(())
    }

    /// The blocks of a segment that still lie where its summaries say: all of it is read.
    async fn read_survivors(
        &self,
        segment: SegNo,
        out: &mut Vec<Survivor>,
    ) -> Result<(), DiskError> {
        let (start, blocks) = (self.geometry.start(segment), self.geometry.segment_blocks);
        // What is on its way to the disk the disk may read as it was.
        let read = self.read_places(start, u64::from(blocks)).await?;
        self.note_read(u64::from(blocks));
        let raw: Vec<u8> = read.iter().flat_map(|b| b.bytes()).copied().collect();
        let amended = self.amended(segment).await?;
        let last = self.geometry.heads - 1;
        let plugged = amended.iter().map(|a| (a.v, a.stamp, start.plus(u64::from(a.slot)), last));
        let mut named: Vec<(Virt, u64, Place, u8)> = plugged.collect();
        summaries(&raw, start).iter().for_each(|s| named.extend(put_by(s)));
        let (mut seen, newest) = (IdSet::default(), self.state.borrow().stamp);
        for (v, stamp, from, head) in named {
            // Nothing has summed up what summaries say here: no block is of days to come.
            let stamp = stamp.min(newest);
            if let Some(v) = self.whose(v, from).await?
                && seen.insert(from.0)
            {
                let block = read[(from.0 - start.0) as usize].clone();
                out.push(Survivor { v, stamp, from, head, block });
            }
        }
        Ok(())
    }

    /// The block that lies there: the one that was put there, or a snapshot's of the same number to
    /// which it was given since; None: it is dead. All of them are looked at at one moment, since
    /// it may be handed from one to the other at any.
    pub(crate) async fn whose(&self, put: Virt, at: Place) -> Result<Option<Virt>, DiskError> {
        let (_, v) = self.geometry.owner(put);
        if v.0 >= self.geometry.known_blocks() {
            return Ok(None);
        }
        loop {
            let mut all = vec![v];
            if v.0 < self.geometry.virtual_blocks {
                let s = self.state.borrow();
                all.extend(s.snapshots.all.iter().map(|s| self.geometry.own_block(s.id, v)));
            }
            let base = self.base_of(all.clone(), 1).await?;
            let s = self.state.borrow();
            if s.table.is_current(&base) {
                return Ok(all.into_iter().find(|v| s.table.place(*v, &base) == Some(at)));
            }
        }
    }

    pub(crate) async fn where_now(&self, v: Virt) -> Result<Option<Place>, DiskError> {
        loop {
            let base = self.base(v, 1).await?;
            let s = self.state.borrow();
            if s.table.is_current(&base) {
                return Ok(s.table.place(v, &base));
            }
        }
    }
}

/// Slots of a segment of so many blocks, in order, as runs to be read: first, and how many. Runs
/// between which less lies than an access takes are one: so it is never quicker to read all.
fn runs_of(slots: &[u64], of: u32, costs: &Costs) -> Vec<(u64, u64)> {
    let each = costs.transfer(of);
    let access = costs.block - each;
    let sorted = slots.windows(2).all(|w| w[0] < w[1]);
    debug_assert!(sorted, "I13: slots are in order, each once: {slots:?}");
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for &slot in slots {
        match runs.last_mut() {
            Some((first, n)) if (slot - *first - *n) as f64 * each < access => {
                *n = slot - *first + 1;
            }
            _ => runs.push((slot, 1)),
        }
    }
    runs
}

/// The blocks that a partial segment has put: each with its stamp, where, and by which head.
fn put_by(summary: &Summary) -> impl Iterator<Item = (Virt, u64, Place, u8)> + '_ {
    summary.blocks().filter_map(|(entry, place)| match entry {
        Entry::Written { v, stamp } | Entry::Moved { v, stamp, .. } => {
            Some((v, stamp, place, summary.head))
        }
        _ => None,
    })
}

/// The summaries of a segment's present use, front to back: their serials rise. What an earlier use
/// left behind them does no harm: whether a block lives is for the table to say.
pub(crate) fn summaries(segment: &[u8], start: Place) -> Vec<Summary> {
    let (mut all, mut at): (Vec<Summary>, usize) = (Vec::new(), 0);
    while let Some(raw) = segment.get(at..at + BLOCK_BYTES) {
        let Some((s, _)) = Summary::decode(raw, start.plus((at / BLOCK_BYTES) as u64)) else {
            break;
        };
        if all.last().is_some_and(|last| last.serial >= s.serial) {
            break;
        }
        at += (s.payload as usize + 1) * BLOCK_BYTES;
        if at > segment.len() {
            break;
        }
        all.push(s);
    }
    all
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::memory::Memory;
    use crate::policy::{Candidate, Policy};
    use crate::{Change, FormatOptions, Group, OpenOptions, Store};
    use env::Disk;
    use std::collections::BTreeSet;
    use std::rc::Rc;

    /// Memory that has lost all that came.
    struct Nothing;
    impl Memory for Nothing {
        fn contents(&self, _: Virt) -> Option<Block> {
            None
        }
    }

    async fn put(store: &Store, blocks: std::ops::Range<u64>, byte: u8) {
        let block = Block::copy_of(&[byte; BLOCK_BYTES]);
        let changes: Vec<Change> = blocks.map(|v| Change::Whole(Virt(v), block.clone())).collect();
        let kept = store.reserve(changes.len() as u64).await.unwrap();
        store.put(&Group { changes }, kept).await.unwrap();
        store.flush().await.unwrap();
    }

    /// A block that was written elsewhere since is plugged into the slot that it had at first: the
    /// summaries know it there, and so does what amends them. It is one block all the same.
    #[test]
    fn a_block_that_came_back_to_its_slot_is_one() {
        let mut world = sim::World::new(sim::Image::new(8 << 20));
        sim::block_on(&mut world, |env, disk| async move {
            let options = FormatOptions {
                uuid: [7; 16],
                segment_bytes: Some(32 << 10),
                virtual_bytes: None,
                heads: None,
                disk: None,
            };
            crate::format(&disk, &options).await.unwrap();
            let options = OpenOptions { policy: Policy::Plug, ..OpenOptions::default() };
            let store = Store::open(env, disk, options).await.unwrap();
            let inner = store.inner.clone();
            store.set_memory(Rc::new(Nothing));
            store.came(Virt(1));
            for blocks in [20..27, 0..7, 40..47, 0..1, 60..66] {
                put(&store, blocks, 1).await;
            }
            let segment_of = |p| inner.geometry.segment_of(p).unwrap();
            let before = segment_of(inner.where_now(Virt(1)).await.unwrap().unwrap());
            let now = segment_of(inner.where_now(Virt(0)).await.unwrap().unwrap());
            assert_ne!(before, now);
            for _ in 0..3 {
                store.checkpoint().await.unwrap();
            }
            let mut moved = Vec::new();
            inner.survivors_of(now, &mut moved).await.unwrap();
            moved.retain(|b| b.v == Virt(0));
            let segment = before;
            let to = Candidate { segment, live: 6, blocks: 7, cached: 0, holes: 1, age: 0 };
            inner.plug(&[to], moved).await.unwrap();
            let came_back = inner.where_now(Virt(0)).await.unwrap().unwrap();
            assert_eq!(segment_of(came_back), before, "there is one hole");
            for known in [true, false] {
                if !known {
                    inner.state.borrow_mut().residents.forget(before);
                }
                let mut all = Vec::new();
                inner.survivors_of(before, &mut all).await.unwrap();
                let places: BTreeSet<u64> = all.iter().map(|b| b.from.0).collect();
                assert_eq!((all.len(), places.len()), (7, 7), "known: {known}");
            }
            store.close().await.unwrap();
        });
    }

    /// Of a segment of which hardly anything lives, and of which nobody remembers what was put
    /// there, the summaries and what lives are read, where that is quicker than all.
    #[test]
    fn an_emptied_segment_is_read_by_its_summaries() {
        let mut world = sim::World::new(sim::Image::new(16 << 20));
        sim::block_on(&mut world, |env, disk| async move {
            let segment_bytes = Some(256 << 10);
            let options = FormatOptions { segment_bytes, ..FormatOptions::default() };
            crate::format(&disk, &options).await.unwrap();
            let mut read = Vec::new();
            // An access takes as long as 2 blocks do, then as long as 2,000.
            for access in [20_000, 20_000_000] {
                let speed = crate::Speed { access, bandwidth: 400_000_000 };
                let options = OpenOptions { disk: Some(speed), ..OpenOptions::default() };
                let store = Store::open(env.clone(), disk.clone(), options).await.unwrap();
                put(&store, 0..40, 7).await;
                put(&store, 40..60, 8).await;
                put(&store, 0..30, 9).await;
                put(&store, 31..58, 9).await;
                let inner = store.inner.clone();
                let place = inner.where_now(Virt(30)).await.unwrap().unwrap();
                let segment = inner.geometry.segment_of(place).unwrap();
                let before = store.stats().read_to_clean;
                let mut all = Vec::new();
                inner.survivors_of(segment, &mut all).await.unwrap();
                let mut found: Vec<_> = all.iter().map(|s| (s.v.0, s.block.bytes()[0])).collect();
                found.sort_unstable();
                assert!(found.ends_with(&[(30, 7), (58, 8), (59, 8)]), "{found:?}");
                read.push(store.stats().read_to_clean - before);
                store.close().await.unwrap();
            }
            assert!(read[0] < 16, "{read:?}");
            assert_eq!(read[1], 64, "all of it");
        });
    }

    /// A block is handed from a snapshot to an older one while it is asked whose it is: it is
    /// somebody's at every moment, and so no hole that may be plugged (I12, S1).
    #[test]
    fn a_block_that_is_handed_over_meanwhile_is_somebodys() {
        let (ms, v) = (env::Nanos::from_millis(1), Virt(200));
        let options = || OpenOptions { table_pages: 0, ..OpenOptions::default() };
        let mut world = sim::World::new(sim::Image::new(16 << 20));
        sim::block_on(&mut world, |env, disk| async move {
            crate::format(&disk, &FormatOptions::default()).await.unwrap();
            let store = Store::open(env, disk, options()).await.unwrap();
            for name in ["older", "newer", "last"] {
                // Extents that lie apart: what each has is in other pages of the table.
                for v in (0..400).step_by(2) {
                    put(&store, v..v + 1, 7).await;
                }
                store.snapshot(name, 1).await.unwrap();
            }
            store.close().await.unwrap();
        });
        for wait in 0..16 {
            let mut world = sim::World::new(world.disk.clone());
            let timing = sim::timing::Constant::of(ms, ms, ms, 400_000_000);
            world.set_timings(vec![Box::new(timing)]);
            sim::block_on(&mut world, |env, disk| async move {
                let store = Store::open(env.clone(), disk, options()).await.unwrap();
                let inner = &store.inner;
                let own = |id| inner.geometry.own_block(id, v);
                let at = inner.where_now(own(2)).await.unwrap().unwrap();
                let later = async {
                    env.sleep(env::Nanos::from_micros(wait * 500 + 250)).await;
                    let e = crate::Extent { v: own(2), n: 1, place: Some(at) };
                    inner.state.borrow_mut().hand_over(e, 1);
                };
                let (whose, ()) = env::both(inner.whose(v, at), later).await;
                assert!(whose.unwrap().is_some(), "handed over after {wait} of 0.5 ms");
            });
        }
    }

    #[test]
    fn what_is_missing_is_read_in_runs() {
        // A block takes 0.04 ms beside an access of 1 ms: a gap of 25 blocks.
        let costs = Costs::new(1e6, 1e8, 256 << 12, 1 << 12);
        assert_eq!(runs_of(&[], 256, &costs), []);
        assert_eq!(runs_of(&[3, 4, 20, 200], 256, &costs), [(3, 18), (200, 1)]);
        let near: Vec<u64> = (0..256).step_by(5).collect();
        assert_eq!(runs_of(&near, 256, &costs), [(0, 256)], "so many accesses take longer");
    }
}
