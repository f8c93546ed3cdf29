//! Allocating and freeing inodes: the bitmaps' edits, the slots' and the counts. A file's inode is
//! taken in its directory's group, a directory's where the policy says, else in the next group that
//! has one.

use super::blocks::ATTEMPTS;
use crate::Ext;
use crate::descs::Desc;
use cache::BufKind;
use format::ext::bitmap;
use format::ext::geometry::{BLOCK_UNINIT, INODE_UNINIT};
use format::intent::Intent;
use format::ufs::inode::{FLAG_EXTENTS, FREED, InodeMut, InodeRef, free, in_use};
use format::{BlockNo, FormatError, GroupNo, Ino};
use integrity::{Change, Freed, Pressure, Txn};
use ufs::InodeHandle;
use vfs::{FsError, Kind};

/// After so many inodes a group's search begins at its first free one again.
const REWIND: u32 = 256;

impl Ext {
    pub(crate) async fn new_inode(
        &self,
        txn: &mut Txn,
        parent: &InodeHandle,
        kind: Kind,
    ) -> Result<InodeHandle, FsError> {
        let goal_group = self.geo.group_of_ino(parent.ino);
        let first =
            if kind == Kind::Dir { self.group_for_dir(parent.ino, goal_group) } else { goal_group };
        for attempt in 1..=ATTEMPTS {
            for i in 0..self.geo.groups {
                let g = GroupNo((first.0 + i) % self.geo.groups);
                if self.groups.borrow().of(g).free_inodes == 0 {
                    continue;
                }
                if let Some(ino) = self.take_inode(txn, g, kind).await? {
                    return self.clear_slot(txn, ino, kind).await;
                }
            }
            if attempt < ATTEMPTS && self.free_inodes.get() > 0 {
                // Those that are free are held back until the operation that freed them is durable.
                let pressed = self.mechanism.press(Pressure::NoSpace).await;
                pressed.map_err(|e| self.failed(&e))?;
            }
        }
        Err(FsError::NoSpace)
    }

    async fn take_inode(
        &self,
        txn: &mut Txn,
        g: GroupNo,
        kind: Kind,
    ) -> Result<Option<Ino>, FsError> {
        let lazy = self.geo.sums.lazy();
        let blocks = if lazy { Some(self.block_map(g).await?) } else { None };
        let map = self.inode_map(g).await?;
        // Nobody else is let in between finding a bit and setting it.
        let Some(bit) = self.find_inode(g, &map.bytes()) else { return Ok(None) };
        let ino = Ino(g.0 * self.geo.inodes_per_group + bit as u32 + 1);
        assert!(ino.0 >= self.geo.first_ino, "A1: inode {ino} is one of the volume's own");
        let is_first = lazy && map.desc.get().has(INODE_UNINIT);
        self.make_map(txn, &map, INODE_UNINIT);
        if let Some(blocks) = blocks {
            self.make_map(txn, &blocks, BLOCK_UNINIT);
            self.reach_slot(txn, &map.desc, (bit as u32, is_first));
        }
        txn.edit(&map, bit / 8..bit / 8 + 1, Change::AllocInode(ino), |m| {
            assert!(!bitmap::is_set(m, bit % 8), "A1: an inode is allocated twice");
            bitmap::set(m, bit % 8);
        });
        let own = (self.geo.group_of_ino(ino), self.geo.bit_of_ino(ino));
        assert_eq!(own, (g, bit), "A1: inode {ino} is taken, and another's bit is set");
        self.watch.tell(|c| c.inode_taken(ino, kind == Kind::Dir));
        self.count(txn, (g, &map.desc), 0, -1, i64::from(kind == Kind::Dir));
        Ok(Some(ino))
    }

    /// The first free inode of the group that may be used. While some are held the search goes on
    /// from where it ended, so that they are not asked about each time.
    fn find_inode(&self, g: GroupNo, map: &[u8]) -> Option<usize> {
        let end = self.geo.inodes_per_group as usize;
        let groups = &mut *self.groups.borrow_mut();
        let group = groups.learn(g, self.geo.group_blocks(g));
        group.taken_ino += 1;
        if group.taken_ino.is_multiple_of(REWIND) {
            group.cursor_ino = 0;
        }
        let start = bitmap::next_zero(map, group.first_free_ino, end)?;
        group.first_free_ino = start;
        let usable = |from: usize, to: usize| {
            let mut at = from;
            while let Some(bit) = bitmap::next_zero(map, at, to) {
                let ino = Ino(g.0 * self.geo.inodes_per_group + bit as u32 + 1);
                if self.mechanism.may_reuse(Freed::Inode(ino)) {
                    return Some(bit);
                }
                at = bit + 1;
            }
            None
        };
        let from = group.cursor_ino.max(start);
        let bit = usable(from, end).or_else(|| usable(start, from))?;
        if bit != start {
            group.cursor_ino = bit + 1;
        }
        Some(bit)
    }

    /// Before an inode is used that never was: the table's blocks up to its own may hold anything,
    /// and are zeroed. The group's descriptor says up to where the table is valid; of a group
    /// without a bitmap none of it is, whatever that says.
    fn reach_slot(&self, txn: &mut Txn, desc: &Desc, (bit, is_first): (u32, bool)) {
        let mut d = desc.get();
        let unused = if is_first { u32::MAX } else { d.unused_inodes };
        let used = self.geo.inodes_per_group - unused.min(self.geo.inodes_per_group);
        if bit < used {
            return;
        }
        d.unused_inodes = self.geo.inodes_per_group - bit - 1;
        desc.put(txn, &d);
        let per_block = (self.block_bytes() / self.geo.inode_bytes) as u32;
        for n in used.div_ceil(per_block)..bit / per_block + 1 {
            let buf =
                self.cache.get_new(BlockNo(d.inode_table + u64::from(n)), BufKind::Meta, Ino(0));
            txn.edit(&buf, 0..self.block_bytes(), Change::Counts, |b| b.fill(0));
        }
    }

    /// The slot of an inode just allocated: zeros, a new generation, and an empty map.
    async fn clear_slot(
        &self,
        txn: &mut Txn,
        ino: Ino,
        kind: Kind,
    ) -> Result<InodeHandle, FsError> {
        let h = self.slot(ino).await?;
        // A file that was removed while open has no links, and its time of deletion holds the next
        // inode of the list of orphans.
        let links = |raw: &[u8]| InodeRef(raw).dtime() <= self.geo.inodes();
        let is_held = h.with(|raw| InodeRef(raw).mode() != 0 && links(raw)) && self.is_orphan(ino);
        if h.with(in_use) || is_held {
            let what = format!("inode {ino} is in use, and the bitmap calls it free");
            return Err(self.damage(&FormatError::corrupt(what, format!("inode {ino}"))));
        }
        let old = h.with(|raw| InodeRef(raw).generation());
        let mut generation = self.env.random() as u32;
        if generation == old {
            generation = generation.wrapping_add(1);
        }
        let tree = self.geo.extents && matches!(kind, Kind::File | Kind::Dir);
        h.edit(txn, Change::InitInode(ino), |raw| {
            raw.fill(0);
            let mut i = InodeMut(raw);
            i.set_generation(generation);
            i.set_extra_isize();
            if tree {
                i.set_flags(FLAG_EXTENTS);
                i.set_empty_tree();
            }
        });
        Ok(h)
    }

    pub(crate) async fn release_inode(
        &self,
        txn: &mut Txn,
        h: &InodeHandle,
    ) -> Result<(), FsError> {
        let ino = h.ino;
        if ino.0 < self.geo.first_ino {
            let what = format!("inode {ino}, one of the volume's own, is freed");
            return Err(self.damage(&FormatError::corrupt(what, format!("inode {ino}"))));
        }
        // Not in release: the list may be thousands long.
        debug_assert!(!self.is_orphan(ino), "L2: inode {ino} is freed, and is on the list");
        let g = self.geo.group_of_ino(ino);
        let map = self.inode_map(g).await?;
        let bit = self.geo.bit_of_ino(ino);
        if !bitmap::is_set(&map.bytes(), bit) {
            let what = format!("inode {ino} is freed, and the bitmap calls it free already");
            return Err(self.damage(&FormatError::corrupt(what, format!("group {g}"))));
        }
        let remnant = self.watch.census().is_some_and(|c| c.was_free(ino));
        let was_dir = h.with(|raw| InodeRef(raw).is_dir()) && !remnant;
        let now = self.env.wall().secs() as u32;
        let before = h.with(|raw| InodeRef(raw).links());
        txn.intend(|| Intent::Links { ino, before, is_dir: was_dir });
        let has_map = h.with(|raw| InodeRef(raw).is_file() || InodeRef(raw).is_dir());
        let is_bare = !has_map || self.maps_nothing(h);
        assert!(is_bare, "A4: inode {ino} is freed, and its map leads somewhere");
        // Its count may have gone to zero before: in the operation that took its last name.
        h.edit_all(txn, FREED, Change::FreeInode(ino), |fields| free(fields, now));
        txn.edit(&map, bit / 8..bit / 8 + 1, Change::FreeInodeBit(ino), |m| {
            bitmap::clear(m, bit % 8);
        });
        assert!(!h.with(in_use), "A4: inode {ino} is free, and its slot says that it is used");
        self.learn(g, |group| group.first_free_ino = group.first_free_ino.min(bit));
        self.watch.tell(|c| c.inode_freed(ino));
        self.count(txn, (g, &map.desc), 0, 1, -i64::from(was_dir));
        Ok(())
    }
}
