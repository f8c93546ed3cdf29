//! Atomic groups of changes as callers put them: contents of whole blocks, ranges of bytes, and
//! what is freed. Room for a group is asked for before it is made, so that putting it never
//! waits for any. It does not know what a group means.
//!
//! A group is put in three steps, the middle one in one go: the table is asked where the blocks lie
//! now; the entries go into the open partial segment; that is sent when it is full, or when
//! somebody waits for it to be durable.

use crate::geometry::{BLOCK_BYTES, Virt};
use crate::pace::Purpose;
use crate::patches::ranges_of;
use crate::state::State;
use crate::store::{Inner, Store};
use crate::table::Base;
use env::{Block, DiskError, DiskErrorKind};
use std::rc::Rc;

/// A change within a group.
#[derive(Clone, Debug)]
pub enum Change {
    /// The block's contents.
    Whole(Virt, Block),
    /// Bytes of the block.
    Bytes {
        /// Which block.
        v: Virt,
        /// Each with its offset.
        ranges: Vec<(usize, Vec<u8>)>,
        /// All of the block with them, if that is known.
        image: Option<Block>,
    },
    /// So many blocks from this one on hold nothing any more.
    Free(Virt, u64),
    /// A word to whoever opens the store next. On a disk nobody keeps it.
    Note(u128),
}

/// Changes that survive a crash together or not at all, in their order.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// The changes.
    pub changes: Vec<Change>,
}

impl Change {
    fn blocks(&self) -> (Virt, u64) {
        match *self {
            Change::Whole(v, _) | Change::Bytes { v, .. } => (v, 1),
            Change::Free(v, n) => (v, n),
            Change::Note(_) => (Virt(0), 0),
        }
    }
}

impl Store {
    /// Waits until there is room for a group of so many blocks, and keeps that. Returns what was
    /// kept, for [`Store::put`] or [`Store::release`]. Errors: there will be no room until
    /// something is freed; or the store has failed.
    pub async fn reserve(&self, blocks: u64) -> Result<u64, DiskError> {
        self.inner.admit(blocks, Purpose::More).await
    }

    /// The same for a group after which no more blocks hold something than before: of a thin volume
    /// that is full too.
    pub async fn reserve_to_free(&self, blocks: u64) -> Result<u64, DiskError> {
        self.inner.admit(blocks, Purpose::NoMore).await
    }

    /// Would [`Store::reserve_to_free`] return at once?
    pub fn has_room_now(&self, blocks: u64) -> bool {
        self.inner.admits_now(blocks)
    }

    /// Gives back what was kept.
    pub fn release(&self, kept: u64) {
        self.inner.release(kept);
    }

    /// Puts a group behind all that were put before; the caller puts one at a time. `kept`: the
    /// room it has. Returns its number. It is not durable yet. Errors: the store has failed.
    pub async fn put(&self, group: &Group, kept: u64) -> Result<u64, DiskError> {
        let inner = &self.inner;
        let of_blocks = |c: &&Change| !matches!(c, Change::Note(_));
        let changes: Vec<&Change> = group.changes.iter().filter(of_blocks).collect();
        loop {
            inner.check_failed()?;
            let mut bases = Vec::with_capacity(changes.len());
            for c in &changes {
                let (v, n) = c.blocks();
                bases.push(inner.base_to_change(v, n).await?);
            }
            let number = {
                let s = &mut *inner.state.borrow_mut();
                if !bases.iter().all(|b| s.table.is_current(b)) {
                    continue;
                }
                let before = s.holding();
                s.begin_group();
                for (c, base) in changes.iter().zip(&bases) {
                    s.change(c, base);
                }
                s.end_group();
                // In debug builds only: who says too little loses no data by it.
                let more = s.holding().saturating_sub(before);
                let fits = more <= kept || s.room().is_none();
                debug_assert!(fits, "I15: {more} blocks more, and room was for {kept}");
                s.stats.groups += 1;
                s.put += 1;
                s.put
            };
            self.release(kept);
            inner.issue(false);
            inner.fold_if_much();
            inner.ask_for_room(0);
            return Ok(number);
        }
    }

    /// Is this group durable?
    pub fn is_durable(&self, number: u64) -> bool {
        self.inner.state.borrow().put_durable >= number
    }

    /// Makes this group durable, and all before it. Who asks at the same time shares a partial
    /// segment and a flush.
    pub async fn flush_to(&self, number: u64) -> Result<(), DiskError> {
        let _asking = self.inner.asked();
        let put = self.inner.state.borrow().put;
        assert!(number <= put, "I1: group {number} is asked for, and {put} were put");
        if self.is_durable(number) {
            return self.inner.check_failed();
        }
        self.inner.sync().await?;
        let durable = self.inner.state.borrow().put_durable;
        assert!(durable >= number, "I1: group {number} is promised, {durable} is durable");
        // I9: nothing is promised any more, this neither, where something later has failed since.
        self.inner.check_failed()
    }

    /// Blocks that a group may have at most, so that there is room for it in a full store too.
    pub fn group_blocks_max(&self) -> u64 {
        u64::from(self.inner.geometry.group_max())
    }
}

/// Does a block hold what these ranges say, each from its first byte on?
fn are_bytes_of(image: &Block, ranges: &[(usize, Vec<u8>)]) -> bool {
    let same = |(at, bytes): &(usize, Vec<u8>)| image.bytes()[*at..].starts_with(bytes);
    ranges.iter().all(same)
}

impl State {
    /// Too much is pending: blocks go out whole.
    fn is_patched_enough(&self) -> bool {
        let g = &self.geometry;
        self.patches.bytes() as u64 >= g.ranges_bytes_max()
            || self.patches.len() as u64 >= 2 * g.patched_max()
    }

    fn change(&mut self, change: &Change, base: &Base) {
        match change {
            Change::Whole(v, block) => {
                self.stats.user_bytes += BLOCK_BYTES as u64;
                self.write_block(*v, block.clone(), base);
            }
            Change::Bytes { v, ranges, image } => {
                debug_assert!(
                    image.as_ref().is_none_or(|image| are_bytes_of(image, ranges)),
                    "I11: the ranges of block {} say something else than all of it does",
                    v.0
                );
                let len: usize = ranges.iter().map(|r| r.1.len()).sum();
                self.stats.user_bytes += len as u64;
                match image {
                    Some(image) if len > BLOCK_BYTES / 2 || self.is_patched_enough() => {
                        self.write_block(*v, image.clone(), base);
                    }
                    _ => ranges.iter().for_each(|(at, bytes)| {
                        for r in ranges_of(*at, bytes) {
                            self.write_range(*v, r, image.as_ref());
                        }
                    }),
                }
            }
            Change::Free(v, n) => {
                let (mut at, end) = (*v, v.0 + n);
                while at.0 < end {
                    let e = self.table.extent(at, end, base);
                    let patched = self.patches.within(at, u64::from(e.n)).next().is_some();
                    if e.place.is_some() || patched {
                        self.free_blocks(e, base);
                    }
                    at = Virt(e.end());
                }
            }
            Change::Note(_) => (),
        }
    }
}

impl Inner {
    /// Asks for room for so many blocks, and waits until something has changed.
    pub(crate) async fn make_room(self: &Rc<Self>, blocks: u64, purpose: Purpose) {
        self.fold_if_much();
        // What is kept for others comes back by itself; no cleaning makes that quicker.
        let (patched, last) = {
            let s = self.state.borrow();
            (s.patches.len() as u64, s.last_reserve(purpose))
        };
        self.ask_for_room(last + self.geometry.segments_for(blocks + patched));
        self.changed.wait().await;
    }

    /// Starts to write blocks as a whole of which much is pending.
    pub(crate) fn fold_if_much(self: &Rc<Self>) {
        let blocks = {
            let mut s = self.state.borrow_mut();
            let g = &self.geometry;
            let much = s.patches.len() as u64 > g.patched_max()
                || s.patches.bytes() as u64 > g.ranges_bytes_max() / 2;
            if !much || s.folding || s.failed.is_some() {
                return;
            }
            s.folding = true;
            s.patches.oldest(s.patches.len().div_ceil(2))
        };
        let store = self.clone();
        self.env.spawn("blocks with ranges", async move {
            for v in blocks {
                if let Err(e) = store.fold(v).await {
                    // What the disk cannot read keeps its ranges; all else goes on.
                    tracing::warn!("block {}: {e}", v.0);
                    if store.check_failed().is_err() || e.kind == DiskErrorKind::NoSpace {
                        break;
                    }
                }
            }
            let was = std::mem::replace(&mut store.state.borrow_mut().folding, false);
            assert!(was, "I11: blocks with ranges are written by two at a time");
            store.changed.wake_all();
        });
    }

    /// Writes a block with its ranges as a whole. Its room has been kept since it has any, but what
    /// there is may have become less: the table has grown, or the power was cut when segments were
    /// emptied of which no checkpoint says so yet. The last ones are left (I10).
    async fn fold(self: &Rc<Self>, v: Virt) -> Result<(), DiskError> {
        loop {
            self.check_failed()?;
            if self.is_short() {
                return Err(self.state.borrow().no_room());
            }
            let base = self.base_to_change(v, 1).await?;
            let (id, place) = {
                let s = self.state.borrow();
                if !s.table.is_current(&base) {
                    continue;
                }
                let Some(p) = s.patches.get(v) else { return Ok(()) };
                (p.whole().is_none().then_some(p.id), s.table.place(v, &base))
            };
            if let Some(id) = id {
                // A move on the way changes where it lies, and not what it is.
                let below = match place {
                    Some(place) => self.read_places(place, 1).await?.remove(0),
                    None => Block::zeroed(BLOCK_BYTES),
                };
                self.state.borrow_mut().patches.fill(v, id, below);
                continue;
            }
            {
                let mut s = self.state.borrow_mut();
                let whole = s.patches.get(v).and_then(|p| p.whole());
                let Some(whole) = whole else { continue };
                s.begin_group();
                s.write_block(v, whole, &base);
                s.end_group();
                s.stats.folded += 1;
            }
            self.issue(false);
            return Ok(());
        }
    }

    /// Segments that so many blocks may need, beside those for which room is kept already.
    pub(crate) fn segments_needed(&self, blocks: u64) -> u32 {
        let s = self.state.borrow();
        self.geometry.segments_for(blocks + s.reserved + s.patches.len() as u64)
    }

    /// Has any of these blocks contents? If that is not known any more, it may have.
    fn is_any_there(&self, from: u64, to: u64, base: &Base) -> bool {
        let s = self.state.borrow();
        if !s.table.is_current(base) {
            return true;
        }
        let patched = s.patches.within(Virt(from), to - from).next().is_some();
        patched || (from..to).any(|v| s.table.place(Virt(v), base).is_some())
    }

    /// Blocks `from..to` hold nothing any more.
    pub(crate) async fn discard_virtual(
        self: &Rc<Self>,
        from: u64,
        to: u64,
    ) -> Result<(), DiskError> {
        let _asking = self.asked();
        let mut at = from;
        while at < to {
            let end = to.min(at + 512);
            let base = self.base_to_change(Virt(at), end - at).await?;
            if !self.is_any_there(at, end, &base) {
                at = end; // so nothing is put, and no room is waited for
                continue;
            }
            if !self.may_put(1, Purpose::NoMore)? {
                self.make_room(1, Purpose::NoMore).await;
                continue;
            }
            {
                let s = &mut *self.state.borrow_mut();
                if !s.table.is_current(&base) {
                    continue;
                }
                s.begin_group();
                s.change(&Change::Free(Virt(at), end - at), &base);
                s.end_group();
                at = end;
            }
            self.issue(false);
            self.watch_for_idle_time();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::{FormatOptions, OpenOptions};
    use env::Nanos;

    /// Blocks with ranges are written as a whole only while there are segments beside the table's,
    /// and when there are some again (I10).
    #[test]
    fn folding_leaves_the_last_segments() {
        let mut world = sim::World::new(sim::Image::new(8 << 20));
        sim::block_on(&mut world, |env, disk| async move {
            let segment_bytes = Some(32 << 10);
            let options = FormatOptions { segment_bytes, ..FormatOptions::default() };
            crate::format(&disk, &options).await.unwrap();
            let store = Store::open(env.clone(), disk, OpenOptions::default()).await.unwrap();
            let patch = |v| Change::Bytes { v: Virt(v), ranges: vec![(9, vec![7])], image: None };
            let put = async |from: u64| {
                let changes = (from..from + 50).map(patch).collect();
                store.put(&Group { changes }, 0).await.unwrap();
                env.sleep(Nanos::from_secs(5)).await;
            };
            // Others have taken them, as a table that has grown, or a cut in the middle.
            let mut taken = Vec::new();
            {
                let s = &mut *store.inner.state.borrow_mut();
                while s.spare() > s.table_reserve() + 1 {
                    let next = s
                        .usage
                        .all()
                        .find(|(n, g)| g.used == crate::usage::Use::Free && !taken.contains(n));
                    taken.push(next.unwrap().0);
                    s.usage.withhold(next.unwrap().0);
                }
            }
            put(0).await;
            let (folded, spare, least) = {
                let s = store.inner.state.borrow();
                (s.stats.folded, s.spare(), s.table_reserve())
            };
            assert!(folded == 0 && spare >= least, "I10: {folded}; {spare} of {least} are left");
            taken.iter().for_each(|n| store.inner.state.borrow_mut().usage.give(*n));
            put(50).await;
            assert!(store.stats().folded > 0);
        });
    }
}
