//! Where to look first, by FFS's policies: a file's blocks behind one another and near its inode, a
//! large file in another group every so often, files near their directory, directories spread while
//! the ones deep down stay near their parents. It reads counts and changes nothing.

use crate::Ext;
use crate::map::{Leaf, Walk};
use format::ufs::map;
use format::{BlockNo, FileBlock, GroupNo, Ino, ROOT_INO};
use ufs::InodeHandle;

/// Where blocks would be best.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Goal {
    /// Just there: behind what comes before them in the file.
    At(BlockNo),
    /// Anywhere in the group.
    In(GroupNo),
}

/// The share of a group's blocks that one file fills before it moves on: one in this many.
const SHARE: u64 = 4;

impl Ext {
    /// Blocks of a file that go into one group before the next: all of them where groups are no
    /// places.
    fn share(&self) -> u64 {
        let share = if self.mechanism.places_are_fixed() { SHARE } else { 1 };
        (u64::from(self.geo.blocks_per_group) / share).max(1)
    }

    /// How many of `want` blocks from `at` on belong into one group.
    pub(crate) fn want_here(&self, at: FileBlock, want: u64) -> u64 {
        want.min(self.share() - at.0 % self.share())
    }

    /// Where the block of the leaf's own pointer would be best, file block `at`.
    pub(crate) fn goal(&self, h: &InodeHandle, leaf: &Leaf, at: FileBlock) -> Goal {
        let before =
            leaf.index.checked_sub(1).map(|i| map::pointer(&leaf.buf.bytes()[leaf.base..], i));
        match before {
            Some(b) if b.0 != 0 => self.goal_after(b, at),
            // The first pointer of an indirect block: behind that block.
            _ if leaf.base == 0 => self.at(leaf.buf.block().plus(1)),
            _ => Goal::In(self.geo.group_of_ino(h.ino)),
        }
    }

    /// Where a new indirect block would be best: among the file's blocks, before the one it is made
    /// for, `at`. `parent` is where its pointer goes.
    pub(crate) fn goal_of_indirect(&self, h: &InodeHandle, parent: &Leaf, at: FileBlock) -> Goal {
        let before = at.0.checked_sub(1).and_then(|b| self.walk_cached(h, FileBlock(b)));
        match before {
            Some(Walk::Leaf(leaf)) if leaf.pointer(0).0 != 0 => {
                self.goal_after(leaf.pointer(0), at)
            }
            _ => self.goal(h, parent, at),
        }
    }

    /// Behind block `b`, unless the file has had its share of that group.
    pub(crate) fn goal_after(&self, b: BlockNo, at: FileBlock) -> Goal {
        if !self.geo.has_block(b) {
            return Goal::In(GroupNo(0)); // damage, and for who follows the pointer to report
        }
        if at.0.is_multiple_of(self.share()) {
            return Goal::In(self.next_roomy_group(self.geo.group_of(b)));
        }
        self.at(b.plus(1))
    }

    fn at(&self, b: BlockNo) -> Goal {
        if self.geo.has_block(b) { Goal::At(b) } else { Goal::In(GroupNo(0)) }
    }

    /// The next group with at least average room.
    fn next_roomy_group(&self, here: GroupNo) -> GroupNo {
        let n = self.geo.groups;
        let average = self.free_blocks.get() / u64::from(n);
        let groups = self.groups.borrow();
        let mut next = (1..=n).map(|i| GroupNo((here.0 + i) % n));
        let roomy = |g: &GroupNo| u64::from(groups.of(*g).free_blocks) >= average;
        next.find(roomy).unwrap_or(here)
    }

    /// The group for a new directory.
    pub(super) fn group_for_dir(&self, parent: Ino, goal_group: GroupNo) -> GroupNo {
        let groups = self.groups.borrow();
        let n = u64::from(self.geo.groups);
        let avg_inodes = self.free_inodes.get() / n;
        let avg_blocks = self.free_blocks.get() / n;
        let roomy = |g: GroupNo, share: u64| {
            let d = groups.of(g);
            d.free_inodes > 0
                && u64::from(d.free_inodes) * share >= avg_inodes
                && u64::from(d.free_blocks) * share >= avg_blocks
        };
        if parent != ROOT_INO && roomy(goal_group, 4) {
            return goal_group;
        }
        // Among the groups with at least average room, the one with the fewest directories; the
        // search begins at a random one so that equals are spread.
        let start = (self.env.random() % n) as u32;
        let all = (0..self.geo.groups).map(|i| GroupNo((start + i) % self.geo.groups));
        let mut best: Option<(u32, GroupNo)> = None;
        for g in all.filter(|g| roomy(*g, 1)) {
            let dirs = groups.of(g).used_dirs;
            if best.is_none_or(|(least, _)| dirs < least) {
                best = Some((dirs, g));
            }
            if dirs == 0 {
                break; // none has fewer
            }
        }
        best.map_or(goal_group, |(_, g)| g)
    }
}
