//! Allocating inodes, by FFS's policy: a file's near its directory; a directory in the root spread to an
//! emptier group, deeper ones near their parent while there is room.

use crate::Ext;
use format::ext::bitmap;
use format::ext::inode::{InodeMut, InodeRef, free};
use format::{FormatError, GroupNo, Ino, ROOT_INO};
use integrity::{Change, Freed, Pressure, Txn};
use ufs::InodeHandle;
use vfs::{FsError, Kind};

impl Ext {
    pub(crate) async fn new_inode(
        &self,
        txn: &mut Txn,
        parent: &InodeHandle,
        kind: Kind,
    ) -> Result<InodeHandle, FsError> {
        let home = self.geo.group_of_ino(parent.ino);
        let first = if kind == Kind::Dir { self.group_for_dir(parent.ino, home) } else { home };
        for attempt in 0..2 {
            for i in 0..self.geo.groups {
                let g = GroupNo((first.0 + i) % self.geo.groups);
                if self.groups.borrow()[g.0 as usize].desc.free_inodes == 0 {
                    continue;
                }
                if let Some(ino) = self.take_inode(txn, g, kind).await? {
                    return self.clear_slot(txn, ino).await;
                }
            }
            if attempt == 0 && self.free_inodes.get() > 0 {
                let pressed = self.mechanism.press(Pressure::NoSpace).await;
                pressed.map_err(|e| self.failed(&e))?;
            }
        }
        Err(FsError::NoSpace)
    }

    /// The group for a new directory.
    fn group_for_dir(&self, parent: Ino, home: GroupNo) -> GroupNo {
        let groups = self.groups.borrow();
        let n = u64::from(self.geo.groups);
        let avg_inodes = self.free_inodes.get() / n;
        let avg_blocks = self.free_blocks.get() / n;
        let roomy = |g: GroupNo, share: u64| {
            let d = &groups[g.0 as usize].desc;
            u64::from(d.free_inodes) * share >= avg_inodes
                && u64::from(d.free_blocks) * share >= avg_blocks
        };
        if parent != ROOT_INO && roomy(home, 4) {
            return home;
        }
        // Among the groups with at least average room, the one with the fewest directories; the search
        // begins at a random one so that equals are spread.
        let start = (self.env.random() % n) as u32;
        let all = (0..self.geo.groups).map(|i| GroupNo((start + i) % self.geo.groups));
        let best = all.filter(|g| roomy(*g, 1)).min_by_key(|g| groups[g.0 as usize].desc.used_dirs);
        best.unwrap_or(home)
    }

    async fn take_inode(
        &self,
        txn: &mut Txn,
        g: GroupNo,
        kind: Kind,
    ) -> Result<Option<Ino>, FsError> {
        let map = self.inode_map(g).await?;
        let end = self.geo.inodes_per_group as usize;
        let mut from = self.groups.borrow()[g.0 as usize].first_free_ino;
        let hint = from;
        loop {
            let found = bitmap::next_zero(&map.bytes(), from, end);
            let Some(bit) = found else { return Ok(None) };
            let ino = Ino(g.0 * self.geo.inodes_per_group + bit as u32 + 1);
            if !self.mechanism.may_reuse(Freed::Inode(ino)) {
                from = bit + 1;
                continue;
            }
            txn.edit(&map, bit / 8..bit / 8 + 1, Change::AllocInode(ino), |m| {
                bitmap::set(m, bit % 8);
            });
            if from == hint {
                self.groups.borrow_mut()[g.0 as usize].first_free_ino = bit + 1;
            }
            self.count(txn, g, 0, -1, i64::from(kind == Kind::Dir));
            return Ok(Some(ino));
        }
    }

    /// The slot of an inode just allocated: zeros, and a new generation.
    async fn clear_slot(&self, txn: &mut Txn, ino: Ino) -> Result<InodeHandle, FsError> {
        let h = self.slot(ino).await?;
        if h.with(format::ext::inode::in_use) {
            let what = format!("inode {ino} is in use, and the bitmap calls it free");
            return Err(self.damage(&FormatError::corrupt(what, format!("inode {ino}"))));
        }
        let old = h.with(|raw| InodeRef(raw).generation());
        let mut generation = self.env.random() as u32;
        if generation == old {
            generation = generation.wrapping_add(1);
        }
        h.edit(txn, Change::InitInode(ino), |raw| {
            raw.fill(0);
            let mut i = InodeMut(raw);
            i.set_generation(generation);
            i.set_extra_isize();
        });
        Ok(h)
    }

    pub(crate) async fn release_inode(
        &self,
        txn: &mut Txn,
        h: &InodeHandle,
    ) -> Result<(), FsError> {
        let ino = h.ino;
        let g = self.geo.group_of_ino(ino);
        let map = self.inode_map(g).await?;
        let bit = self.geo.bit_of_ino(ino);
        if !bitmap::is_set(&map.bytes(), bit) {
            let what = format!("inode {ino} is freed, and the bitmap calls it free already");
            return Err(self.damage(&FormatError::corrupt(what, format!("group {g}"))));
        }
        let was_dir = h.with(|raw| InodeRef(raw).is_dir());
        let now = self.env.wall().secs() as u32;
        h.edit(txn, Change::FreeInode(ino), |raw| free(raw, now));
        txn.edit(&map, bit / 8..bit / 8 + 1, Change::FreeInodeBit(ino), |m| {
            bitmap::clear(m, bit % 8);
        });
        let mut groups = self.groups.borrow_mut();
        let hint = &mut groups[g.0 as usize].first_free_ino;
        *hint = (*hint).min(bit);
        drop(groups);
        self.count(txn, g, 0, 1, -i64::from(was_dir));
        Ok(())
    }
}
