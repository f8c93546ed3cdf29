//! Blocks and inodes for the repair itself: lost+found's, copies of doubly claimed blocks. It takes
//! what no file claims, whatever the bitmaps on disk say; these are written anew at the end.

use crate::finding::{Kind, Place};
use crate::run::Check;
use format::{BlockNo, Ino};
use std::ops::Range;

impl Check<'_> {
    /// Does nobody have it, and is it not to be copied before it may be written?
    fn is_free(&self, b: BlockNo) -> bool {
        let geo = self.geo();
        let taken = self.claims.is_claimed(&geo, b) || self.copied.is_claimed(&geo, b);
        !taken && !self.frame.is_meta(b)
    }

    /// Claims a free block of these; None: there is none.
    pub(crate) fn alloc_in(&mut self, mut range: Range<u64>) -> Option<BlockNo> {
        let geo = self.geo();
        range.start = range.start.max(u64::from(geo.first_data_block) + 1);
        let (old, b) = (&self.old_nodes, BlockNo);
        let is_free = |n: &u64| self.is_free(b(*n));
        let found = range.find(|n| is_free(n) && !old.contains(n)).map(BlockNo)?;
        let before = self.claims.claim(&geo, found);
        assert!(!before && range.start <= geo.blocks, "K3: block {found} is given out twice");
        Some(found)
    }

    /// Claims a free block; None, and a finding, if there is none. All inodes have been seen
    /// before, so that what is unclaimed is free.
    pub(crate) fn alloc_block(&mut self) -> Option<BlockNo> {
        let geo = self.geo();
        if let Some(b) = self.alloc_in(self.alloc_next..geo.blocks) {
            self.alloc_next = b.0 + 1;
            return Some(b);
        }
        let free = |b: &BlockNo| self.is_free(*b);
        // Without room elsewhere it is better to go over them than to repair nothing.
        if let Some(b) = self.old_nodes.iter().map(|b| BlockNo(*b)).find(free) {
            self.claims.claim(&geo, b);
            return Some(b);
        }
        self.found(Kind::NoRoom, Place::Volume, "the repair needs a free block, and there is none");
        None
    }

    /// The same for a pointer of 32 bits.
    pub(crate) fn alloc_for_pointer(&mut self) -> Option<BlockNo> {
        let b = self.alloc_block()?;
        if b.0 >> 32 == 0 {
            return Some(b);
        }
        self.claims.release(&self.geo(), b);
        let text = "the repair needs a free block before the 2^32nd, and there is none";
        self.found(Kind::NoRoom, Place::Volume, text);
        None
    }

    /// A free inode; None, and a finding, if there is none. It is taken once its `Info` says so.
    pub(crate) fn find_free_inode(&mut self) -> Option<Ino> {
        let geo = self.geo();
        // The first slot that was never used may be taken, too, but none behind it: what lies
        // between need not be zero.
        let may =
            |i: &Ino| geo.bit_of_ino(*i) as u32 <= self.frame.used_slots(geo.group_of_ino(*i));
        let is_free = |i: &Ino| self.infos.get(*i).kind == 0 && may(i) && !self.is_reserved(*i);
        let free = (geo.first_ino..=geo.inodes()).map(Ino).find(is_free);
        if free.is_none() {
            let text = "the repair needs a free inode, and there is none";
            self.found(Kind::NoRoom, Place::Volume, text);
        }
        free
    }
}
