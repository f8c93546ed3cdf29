//! Allocating and freeing blocks: the bitmaps' edits and the counts. A run is taken where the
//! policy wants it, else near there, else where it is long, else where there is anything. What was
//! freed and may not be reused yet is passed over, and forced out only when nothing else is left.

use super::search::{Ask, search};
use super::{Goal, Runs};
use crate::Ext;
use crate::group::Map;
use format::ext::bitmap;
use format::ext::geometry::BLOCK_UNINIT;
use format::{Extent, FormatError, GroupNo};
use integrity::{Change, Freed, Pressure, Txn};
use vfs::FsError;

/// A shorter run is left for last, when more is wanted.
const GOOD: usize = 64;
/// Runs that may not be reused yet, passed over behind a file's last block before the search goes
/// on where its group's cursor stands.
const PATIENCE: usize = 16;
/// Groups after the goal's that are searched for a good run before any run will do.
const NEAR: u32 = 16;
/// After so many runs a group's search begins at its first free block again.
const REWIND: u32 = 1024;
/// What is held back is forced out and looked for again so often: others may take what comes free.
pub(super) const ATTEMPTS: u32 = 4;
/// Of so many blocks of the volume one is kept for the nodes of extent trees, …
const KEPT_PART: u64 = 50;
/// … and no more than so many.
const KEPT_MAX: u64 = 4096;
/// Blocks freed before others are let in.
const FREES_AT_ONCE: u64 = 8192;

/// One search over the groups.
struct Hunt {
    goal: Goal,
    want: usize,
    /// Only the first so many groups have what will do.
    groups: u32,
    /// Was something seen that may only be reused later?
    held: bool,
}

impl Ext {
    /// Allocates up to `want` contiguous blocks.
    pub(crate) async fn alloc_blocks(
        &self,
        txn: &mut Txn,
        goal: Goal,
        want: u64,
    ) -> Result<Extent, FsError> {
        let want = want.min(self.available(txn.reserve));
        self.alloc_in(txn, goal, want, self.geo.groups).await
    }

    /// A block for a node of an extent tree, of those that are kept for that and for root, too.
    pub(crate) async fn alloc_for_node(
        &self,
        txn: &mut Txn,
        goal: Goal,
    ) -> Result<Extent, FsError> {
        let may_have = self.free_blocks.get();
        let e = self.alloc_in(txn, goal, may_have.min(1), self.geo.groups).await?;
        assert_eq!(e.len, 1, "A2: a node of a tree is one block");
        Ok(e)
    }

    /// So many free blocks there are for what is no node: with root's, or without.
    pub(crate) fn available(&self, with_roots: bool) -> u64 {
        let for_root = if with_roots { 0 } else { self.reserved.get() };
        self.free_blocks.get().saturating_sub(for_root.max(self.kept_for_nodes()))
    }

    /// Free blocks that are kept for the nodes of extent trees: what was allocated ahead is written
    /// in pieces, which may need one, and that there is room for it was promised. Linux keeps as
    /// many.
    fn kept_for_nodes(&self) -> u64 {
        if self.geo.extents { (self.geo.blocks / KEPT_PART).min(KEPT_MAX) } else { 0 }
    }

    /// The same, for a pointer of 32 bits.
    pub(crate) async fn alloc_for_pointers(
        &self,
        txn: &mut Txn,
        goal: Goal,
        want: u64,
    ) -> Result<Extent, FsError> {
        let want = want.min(self.available(txn.reserve));
        let e = self.alloc_in(txn, goal, want, self.geo.groups_of_pointers()).await?;
        assert!(e.start.0 + e.len <= 1 << 32, "A2: {e:?} are more than pointers can name");
        Ok(e)
    }

    /// Up to `want` blocks, which there may be; none: that is too many.
    async fn alloc_in(
        &self,
        txn: &mut Txn,
        goal: Goal,
        want: u64,
        groups: u32,
    ) -> Result<Extent, FsError> {
        if want == 0 {
            return Err(FsError::NoSpace);
        }
        let is_place = match goal {
            Goal::At(b) => self.geo.has_block(b),
            Goal::In(g) => g.0 < self.geo.groups,
        };
        assert!(is_place, "A5: blocks are wanted at {goal:?}, where there are none");
        assert!(groups <= self.geo.groups, "A5: {groups} groups are to be searched");
        let want = want as usize;
        let mut hunt = Hunt { goal, want, groups, held: false };
        let mut pause = None;
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                // What is free is held back until the operation that freed it is durable.
                drop(pause.take());
                let pressed = self.mechanism.press(Pressure::NoSpace).await;
                pressed.map_err(|e| self.failed(&e))?;
                pause = Some(self.trimming.pause().await);
                self.rewind();
            }
            if let Some(e) = self.hunt(txn, &mut hunt).await? {
                let fits = (1..=want as u64).contains(&e.len);
                assert!(fits, "A2: {} blocks are given, {want} were wanted", e.len);
                let last = e.start.plus(e.len - 1);
                let together = self.geo.group_of(e.start) == self.geo.group_of(last);
                assert!(together, "A2: {e:?} reaches from one group into the next");
                assert!(!self.trimming.meets(e), "T2: {e:?} is given away while it is discarded");
                return Ok(e);
            }
            if !hunt.held {
                break;
            }
        }
        drop(pause);
        Err(FsError::NoSpace)
    }

    async fn hunt(&self, txn: &mut Txn, hunt: &mut Hunt) -> Result<Option<Extent>, FsError> {
        let n = hunt.groups;
        let (goal_group, from) = match hunt.goal {
            Goal::At(b) => (self.geo.group_of(b), Some(self.geo.bit_of(b))),
            Goal::In(g) => (g, None),
        };
        let from = from.filter(|_| goal_group.0 < n);
        let good = hunt.want.min(GOOD);
        // At the goal or behind it; then a good run nearby; then anything anywhere.
        let near = (0..n.min(NEAR)).map(|i| (i, None, good));
        let any = (0..n).map(|i| (i, Some(0), 1));
        let places = from.map(|f| (0, Some(f), good)).into_iter().chain(near).chain(any);
        for (i, from, least) in places {
            let g = GroupNo((goal_group.0 + i) % n);
            if let Some(e) = self.try_group(txn, hunt, g, from, least).await? {
                return Ok(Some(e));
            }
        }
        Ok(None)
    }

    /// A run of at least `least` blocks in the group, from bit `from` on, or where its cursor
    /// stands.
    async fn try_group(
        &self,
        txn: &mut Txn,
        hunt: &mut Hunt,
        g: GroupNo,
        from: Option<usize>,
        least: usize,
    ) -> Result<Option<Extent>, FsError> {
        {
            let groups = self.groups.borrow();
            let free = groups.of(g).free_blocks as usize;
            if free < least || groups.known(g).is_some_and(|k| k.longest < least) {
                return Ok(None);
            }
        }
        let map = self.block_map(g).await?;
        let end = self.geo.group_blocks(g) as usize;
        let start = self.geo.group_start(g);
        let (first, cursor) = self.learn(g, |k| (k.first_free, k.cursor));
        let near = from.is_some_and(|f| f > 0);
        let from = from.unwrap_or(cursor).max(first);
        let exact = matches!(hunt.goal, Goal::At(b) if b == start.plus(from as u64));
        let patience = if near { PATIENCE } else { usize::MAX };
        let ask = Ask { from, exact, want: hunt.want, least, patience };
        let seen = search(&map.bytes(), end, ask, |bit, len| {
            let e = Extent { start: start.plus(bit as u64), len: len as u64 };
            !self.trimming.meets(e) && self.mechanism.may_reuse(Freed::Blocks(e))
        });
        hunt.held |= seen.held;
        if seen.longest > self.learn(g, |k| k.longest) {
            // It has gone from memory, and has come back with bits that nobody has cleared.
            let what = format!("group {g}'s block bitmap has lost blocks that were in use");
            return Err(self.damage(&FormatError::corrupt(what, format!("block {}", map.block()))));
        }
        self.learn(g, |k| k.learn(ask, seen));
        let Some((bit, len)) = seen.run else { return Ok(None) };
        let is_long = exact && bit == from || len >= least;
        assert!(is_long, "A2: {len} blocks were found, and {least} are the least");
        let inside = from <= bit && bit + len <= end && (1..=hunt.want).contains(&len);
        assert!(inside, "A2: bits {bit} and {len} more were found in {from} to {end}");
        let extent = Extent { start: start.plus(bit as u64), len: len as u64 };
        self.take(txn, &map, g, extent);
        Ok(Some(extent))
    }

    /// Searches begin at the first free blocks again: what was held there may be reused now.
    fn rewind(&self) {
        self.groups.borrow_mut().rewind();
    }

    fn take(&self, txn: &mut Txn, map: &Map, g: GroupNo, e: Extent) {
        self.make_map(txn, map, BLOCK_UNINIT);
        let (bit, len) = (self.geo.bit_of(e.start), e.len as usize);
        let bytes = bit / 8..(bit + len).div_ceil(8);
        let base = bytes.start * 8;
        txn.edit(map, bytes, Change::AllocBlocks(e), |m| {
            for b in bit - base..bit - base + len {
                assert!(!bitmap::is_set(m, b), "A1: a block is allocated twice");
                bitmap::set(m, b);
            }
        });
        assert!(!self.meets_system(e.start, e.len), "A1: {e:?} are the volume's own blocks");
        assert!(!self.trimming.meets(e), "T2: {e:?} is given away while it is discarded");
        self.watch.tell(|c| c.blocks_changed(e));
        self.learn(g, |group| {
            group.takes(bit, len);
            group.taken += 1;
            if group.taken.is_multiple_of(REWIND) {
                group.cursor = 0;
            }
        });
        self.count(txn, (g, &map.desc), -(e.len as i64), 0, 0);
    }

    /// Frees blocks, whose pointers the caller has cleared in the same transaction.
    pub(crate) async fn free_blocks(&self, txn: &mut Txn, blocks: Runs) -> Result<(), FsError> {
        let (mut since, given_up, mut given_back) = (0, blocks.blocks(), 0);
        for mut e in blocks.sorted() {
            while e.len > 0 {
                let g = self.geo.group_of(e.start);
                let room = u64::from(self.geo.group_blocks(g)) - self.geo.bit_of(e.start) as u64;
                let len = e.len.min(room);
                self.free_run(txn, g, Extent { start: e.start, len }).await?;
                e = Extent { start: e.start.plus(len), len: e.len - len };
                (since, given_back) = (since + len, given_back + len);
                if since >= FREES_AT_ONCE {
                    since = 0;
                    self.env.yield_now().await;
                }
            }
        }
        assert_eq!(given_back, given_up, "A3: blocks given back, of those that were given up");
        Ok(())
    }

    /// Planted bug: is one of these a node whose freeing is to be hidden?
    fn is_untold(&self, e: Extent) -> bool {
        let mut untold = self.untold.borrow_mut();
        let before = untold.len();
        untold.retain(|b| !(e.start.0..e.start.0 + e.len).contains(&b.0));
        untold.len() < before
    }

    /// Can these be given back? For who changes something before he frees them.
    pub(crate) async fn check_freeable(&self, e: Extent) -> Result<(), FsError> {
        self.map_to_free(self.geo.group_of(e.start), e).await.map(drop)
    }

    /// The bitmap in which the blocks, of one group, are marked as in use.
    async fn map_to_free(&self, g: GroupNo, e: Extent) -> Result<Map, FsError> {
        let map = self.block_map(g).await?;
        if self.meets_system(e.start, e.len) {
            let what = format!("{} blocks that no file can have are freed", e.len);
            return Err(self.damage(&FormatError::corrupt(what, format!("block {}", e.start))));
        }
        let (bit, len) = (self.geo.bit_of(e.start), e.len as usize);
        if bitmap::next_zero(&map.bytes(), bit, bit + len).is_some() {
            let what = format!("blocks {} to {} are freed twice", e.start, e.start.0 + e.len - 1);
            let at = format!("group {g}'s block bitmap");
            return Err(self.damage(&FormatError::corrupt(what, at)));
        }
        Ok(map)
    }

    async fn free_run(&self, txn: &mut Txn, g: GroupNo, e: Extent) -> Result<(), FsError> {
        let map = self.map_to_free(g, e).await?;
        let (bit, len) = (self.geo.bit_of(e.start), e.len as usize);
        let inside =
            self.geo.group_of(e.start) == g && bit + len <= self.geo.group_blocks(g) as usize;
        assert!(inside, "A3: {e:?} are given back to group {g}, where they do not lie");
        assert!(!self.trimming.meets(e), "T2: {e:?} are freed, and are discarded as free");
        let bytes = bit / 8..(bit + len).div_ceil(8);
        let base = bytes.start * 8;
        let change = if self.is_untold(e) { Change::Counts } else { Change::FreeBlocks(e) };
        txn.edit(&map, bytes, change, |m| {
            (bit - base..bit - base + len).for_each(|b| bitmap::clear(m, b));
        });
        self.watch.tell(|c| c.blocks_changed(e));
        for i in 0..e.len {
            self.cache.forget(e.start.plus(i));
        }
        self.learn(g, |group| group.gets(bit, self.geo.group_blocks(g) as usize));
        self.count(txn, (g, &map.desc), e.len as i64, 0, 0);
        Ok(())
    }
}
