//! What the checker beside service needs of the layout: which blocks an inode holds, what the
//! bitmaps say against the census, and giving back. Everything that is changed is an ordinary
//! transaction; nothing is ever marked as used here.

use crate::Ext;
use crate::alloc::Runs;
use crate::map::Below;
use check::live::{Candidates, Tally, Watch};
use format::ext::bitmap;
use format::ext::extents::{self, BLOCKS_MAX};
use format::ext::features::compat;
use format::ext::geometry::{BLOCK_UNINIT, INODE_UNINIT};
use format::ufs::inode::{BLOCK_AT, InodeRef};
use format::ufs::map::{self, POINTERS, first_of};
use format::ufs::xattr;
use format::{BlockNo, Extent, FormatError, GroupNo, Ino, ROOT_INO};
use integrity::{Change, Credits};
use std::collections::BTreeSet;
use std::ops::Range;
use ufs::InodeHandle;
use ufs::store::{Holding, Scrubbed, Transactions};
use vfs::FsError;

/// Runs given back in one transaction.
const RUNS_AT_ONCE: usize = 64;
/// The inode of bad blocks, and the one of the blocks kept for descriptors: they hold blocks of the
/// volume's own.
const OWN_INODES: [Ino; 2] = [Ino(1), Ino(7)];

impl Scrubbed for Ext {
    fn group_count(&self) -> u32 {
        self.geo.groups
    }

    async fn scrub_begins(&self) {
        self.surveyed().await;
        let watch = &self.watch;
        watch.start(u64::from(self.geo.first_data_block) + self.geo.blocks).await;
        watch.tell(|c| self.survey.own().iter().for_each(|e| c.set_aside(*e)));
    }

    async fn scrub_begins_with(&self, candidates: Candidates) {
        self.surveyed().await;
        let blocks = u64::from(self.geo.first_data_block) + self.geo.blocks;
        self.watch.start_partial(blocks, candidates).await;
    }

    fn group_of_block(&self, b: BlockNo) -> Option<u32> {
        let inside = u64::from(self.geo.first_data_block)
            ..u64::from(self.geo.first_data_block) + self.geo.blocks;
        inside.contains(&b.0).then(|| self.geo.group_of(b).0)
    }

    async fn inodes_in_use(&self, g: u32) -> Result<Vec<Ino>, FsError> {
        let (lazy, desc) = (self.geo.sums.lazy(), self.desc(GroupNo(g)).await?.get());
        if lazy && desc.has(INODE_UNINIT) {
            return Ok(Vec::new());
        }
        let map = self.inode_map(GroupNo(g)).await?;
        let (bytes, end) = (map.bytes(), self.geo.inodes_per_group as usize);
        let first = g * self.geo.inodes_per_group + 1;
        let set = (0..end).filter(|bit| bitmap::is_set(&bytes, *bit));
        Ok(set.map(|bit| Ino(first + bit as u32)).collect())
    }

    async fn is_in_use(&self, ino: Ino) -> Result<bool, FsError> {
        let map = self.inode_map(self.geo.group_of_ino(ino)).await?;
        let is_set = bitmap::is_set(&map.bytes(), self.geo.bit_of_ino(ino));
        Ok(is_set)
    }

    async fn raw_inode(&self, ino: Ino) -> Result<InodeHandle, FsError> {
        self.slot(ino).await
    }

    fn is_own(&self, ino: Ino) -> bool {
        let sb = self.sb.borrow();
        let is_orphan_file = sb.has_compat(compat::ORPHAN_FILE)
            && sb.orphan_file() == ino.0
            && ino.0 >= self.geo.first_ino;
        is_orphan_file || ino != ROOT_INO && ino.0 < self.geo.first_ino
    }

    async fn holding(&self, h: &InodeHandle) -> Result<Holding, FsError> {
        let (mapped, xattr, sectors) = h.with(|raw| {
            let i = InodeRef(raw);
            let slow_link = i.is_symlink() && !i.is_fast_symlink();
            let mapped = !i.is_inline() && (i.is_file() || i.is_dir() || slow_link);
            (
                mapped || self.is_own(h.ino),
                self.xattr_block_of(i),
                i.sectors_wide(self.block_bytes()),
            )
        });
        let mut holding = Holding::default();
        if mapped && self.has_extents(h) {
            self.extents_of(h, &mut holding).await?;
        } else if mapped {
            self.pointers_of(h, &mut holding).await?;
        }
        holding.attributes = Some(xattr).filter(|b| b.0 != 0);
        let held = holding.runs.iter().map(|e| e.len).sum::<u64>();
        let held = held + u64::from(holding.attributes.is_some()) + self.value_blocks(h).await?;
        let counted = sectors / u64::from(self.sectors_per_block());
        holding.uncounted = if mapped { held as i64 - counted as i64 } else { 0 };
        Ok(holding)
    }

    async fn count_held(&self, h: &InodeHandle, blocks: i64) -> Result<(), FsError> {
        let mut txn = self.begin(Credits::to_free(4)).await?;
        self.count_sectors(&mut txn, h, blocks);
        self.end(txn).await.map(drop)
    }

    async fn mend_users(&self, b: BlockNo) -> Result<bool, FsError> {
        if self.watch.census().is_none_or(|c| c.users_of(b).is_none()) {
            return Ok(false);
        }
        let read = self.cache.get(b, cache::BufKind::Meta).await;
        let buf = read.map_err(|e| self.unreadable(&e))?;
        let mut txn = self.begin(Credits::to_free(4)).await?;
        // From here to the edit nobody else is let in.
        let users = self.watch.census().and_then(|c| c.users_of(b));
        let counted = xattr::refcount(&buf.bytes());
        let users = users.unwrap_or(counted);
        if counted > users {
            let ino = Some(buf.owner()).filter(|i| i.0 != 0).unwrap_or(ROOT_INO);
            txn.edit(&buf, 4..8, Change::ShareDown(ino), |r| {
                r.copy_from_slice(&users.to_le_bytes());
            });
        }
        self.end(txn).await?;
        if counted < users {
            let what = format!("attributes of {users} inodes count {counted} users");
            return Err(self.damage(&FormatError::corrupt(what, format!("block {b}"))));
        }
        Ok(counted > users)
    }

    async fn give_back(&self, g: u32) -> Result<u64, FsError> {
        let (lazy, desc) = (self.geo.sums.lazy(), self.desc(GroupNo(g)).await?.get());
        let mut given = 0;
        if !(lazy && desc.has(BLOCK_UNINIT)) {
            let leaked = self.leaked(GroupNo(g)).await?;
            for some in leaked.chunks(RUNS_AT_ONCE) {
                let frees = some.iter().map(|e| e.len).sum();
                let need = Credits { frees, runs: some.len() as u64, ..Credits::to_free(8) };
                let mut runs = Runs::default();
                some.iter().for_each(|e| (0..e.len).for_each(|i| runs.push(e.start.plus(i))));
                let mut txn = self.begin(need).await?;
                let freed = self.free_blocks(&mut txn, runs).await;
                self.end(txn).await?;
                freed?;
                given += frees;
            }
        }
        self.mend_counts(GroupNo(g)).await?;
        Ok(given)
    }
}

impl Ext {
    /// What operations tell of their changes, while a pass is under way.
    pub fn watch(&self) -> &Watch {
        &self.watch
    }

    /// The runs that the bitmap calls used and nothing points at. Errors: something points at what
    /// it calls free.
    async fn leaked(&self, g: GroupNo) -> Result<Vec<Extent>, FsError> {
        let map = self.block_map(g).await?;
        let start = self.geo.group_start(g);
        let mut runs: Vec<Extent> = Vec::new();
        let mut free = None;
        {
            let (bytes, Some(census)) = (map.bytes(), self.watch.census()) else {
                return Ok(runs);
            };
            for bit in 0..self.geo.group_blocks(g) as usize {
                let b = start.plus(bit as u64);
                let (used, claimed) = (bitmap::is_set(&bytes, bit), census.is_claimed(b));
                if used == claimed || census.is_fresh_block(b) {
                    continue;
                }
                match runs.last_mut() {
                    _ if claimed => drop(free.get_or_insert(b)),
                    Some(r) if r.start.plus(r.len) == b => r.len += 1,
                    _ => runs.push(Extent { start: b, len: 1 }),
                }
            }
        }
        let Some(b) = free else { return Ok(runs) };
        let what = format!("block {b} is in use, and the bitmap calls it free");
        Err(self.damage(&FormatError::corrupt(what, format!("group {}'s block bitmap", g.0))))
    }

    /// What the group's descriptor counts is what its bitmaps and inodes show.
    async fn mend_counts(&self, g: GroupNo) -> Result<(), FsError> {
        let lazy = self.geo.sums.lazy();
        if !lazy {
            self.block_map(g).await?;
            self.inode_map(g).await?;
        }
        let mut txn = self.begin(Credits::to_free(4)).await?;
        let desc = match self.desc(g).await {
            Ok(desc) => desc,
            Err(e) => return self.end(txn).await.and(Err(e)),
        };
        let first = g.0 * self.geo.inodes_per_group + 1;
        let numbers: Range<u32> = first..first + self.geo.inodes_per_group;
        let dirs = self.watch.census().and_then(|c| c.dirs_in(g.0, numbers));
        let counted = self.groups.borrow().of(g).used_dirs;
        let wrong = dirs.map_or(0, |d| i64::from(d) - i64::from(counted));
        if wrong != 0 {
            Tally::add(&self.watch.tally.mended, 1);
        }
        self.count(&mut txn, (g, &desc), 0, 0, wrong);
        self.end(txn).await.map(drop)
    }

    /// The blocks of a map of pointers, with its indirect blocks.
    async fn pointers_of(&self, h: &InodeHandle, into: &mut Holding) -> Result<(), FsError> {
        let own = OWN_INODES.contains(&h.ino);
        let per_block = self.per_block();
        // Each with the levels below it, and the first block of the file that hangs there.
        let mut todo: Vec<(BlockNo, u32, u64)> = h.with(|raw| {
            let pointer = |i: usize| map::pointer(&raw[BLOCK_AT..], i);
            let at = |i: usize| (pointer(i), i.saturating_sub(11) as u32, first_of(i, per_block).0);
            (0..POINTERS).rev().map(at).collect()
        });
        let mut indirect: BTreeSet<BlockNo> = BTreeSet::new();
        while let Some((b, level, first)) = todo.pop() {
            if b.0 == 0 || own && self.meets_system(b, 1) {
                continue;
            }
            self.check_pointer(h.ino, b, "a block")?;
            into.add(b, 1);
            if level == 0 {
                into.end = into.end.max(first + 1);
                continue;
            }
            if !indirect.insert(b) {
                // One that leads to itself would lead there without end.
                let what = format!("block {b} is an indirect block in more than one place");
                return Err(self.damage(&FormatError::corrupt(what, format!("inode {}", h.ino))));
            }
            let span = per_block.pow(level - 1);
            let buf = self.indirect(h.ino, b).await?;
            let bytes = buf.bytes();
            for i in (0..per_block as usize).rev() {
                let below = map::pointer(&bytes, i);
                if below.0 != 0 {
                    todo.push((below, level - 1, first + i as u64 * span));
                }
            }
        }
        Ok(())
    }

    /// The blocks of an extent tree, with its nodes.
    async fn extents_of(&self, h: &InodeHandle, into: &mut Holding) -> Result<(), FsError> {
        let root = h.with(|raw| InodeRef(raw).map_bytes());
        let mut todo = Vec::new();
        self.node_of(h.ino, &root, BLOCKS_MAX, (&mut todo, into))?;
        while let Some(below) = todo.pop() {
            let node = self.extent_node(h, &below).await?;
            into.add(below.block, 1);
            self.node_of(h.ino, &node.bytes(), below.range.end, (&mut todo, into))?;
        }
        Ok(())
    }

    fn node_of(
        &self,
        ino: Ino,
        node: &[u8],
        end: u64,
        (todo, into): (&mut Vec<Below>, &mut Holding),
    ) -> Result<(), FsError> {
        let bad = |what: String| self.damage(&FormatError::corrupt(what, format!("inode {ino}")));
        let head = extents::head(node, None).map_err(bad)?;
        for i in 0..head.entries {
            if head.depth > 0 {
                let first = |i| u64::from(extents::first_of(node, i));
                let range = first(i)..if i + 1 < head.entries { first(i + 1) } else { end };
                let (block, depth) = (extents::child(node, i), head.depth - 1);
                todo.push(Below { block, depth, range });
                continue;
            }
            let m = extents::mapped(node, i);
            if self.may_not_have(ino, m.start, u64::from(m.len)) {
                self.check_pointer(ino, m.start, "an extent")?;
                return Err(bad(format!("an extent of {} blocks at {}", m.len, m.start)));
            }
            into.add(m.start, u64::from(m.len));
            if !m.unwritten {
                into.end = into.end.max(m.end());
            }
        }
        Ok(())
    }
}
