//! The census: what has been seen in one pass, kept in step with what operations change. It
//! decides what is a leak, what is a count too high, and what should not be there at all; it
//! changes nothing.

use super::partial::Presumed;
use super::sets::{BitSet, Counts};
use format::{BlockNo, Extent, Ino, ROOT_INO};
use std::collections::{BTreeMap, BTreeSet};

/// What a directory was found to hold.
#[derive(Default, Debug)]
pub struct Names {
    /// Whom ".." names.
    pub parent: Option<Ino>,
    /// The inodes named, and whether each is a directory.
    pub children: Vec<(Ino, bool)>,
}

/// What one pass knows.
#[derive(Debug)]
pub struct Census {
    plant: Option<&'static str>,
    /// Blocks that something points at, or that are the volume's own.
    pub(super) seen: BitSet,
    pub(super) fresh: BitSet,
    fresh_inodes: BTreeSet<Ino>,
    /// Inodes in use that were read.
    used: BTreeSet<Ino>,
    /// Directories there are.
    pub(super) dirs: BTreeSet<Ino>,
    /// Directories that have no links any more, and are not freed yet.
    unlinked_dirs: BTreeSet<Ino>,
    /// Of these, those whose names are counted.
    counted: BTreeSet<Ino>,
    pub(super) names: Counts,
    /// The directories in which a directory has its names.
    parents: BTreeMap<Ino, Vec<Ino>>,
    /// Directories that a directory names.
    pub(super) subdirs: BTreeMap<Ino, u32>,
    dotdots: BTreeMap<Ino, Ino>,
    /// Users of attribute blocks.
    pub(super) users: BTreeMap<BlockNo, u32>,
    /// Of a pass that looks at candidates only: what it presumes of the rest.
    pub(super) presumed: Option<Presumed>,
}

/// How a directory's names and its parent are to be mended.
#[derive(Default, Debug)]
pub struct Mend {
    /// Directories that nothing reachable names: their names go.
    pub lost: Vec<Ino>,
    /// Names too many: the directory that has one, and the directory named.
    pub extra: Vec<(Ino, Ino)>,
    /// Directories whose ".." leads elsewhere, and where it should lead.
    pub strayed: Vec<(Ino, Ino)>,
}

impl Census {
    pub(super) fn new(blocks: u64, plant: Option<&'static str>) -> Census {
        Census {
            plant,
            seen: BitSet::below(blocks),
            fresh: BitSet::below(blocks),
            fresh_inodes: BTreeSet::new(),
            used: BTreeSet::new(),
            dirs: BTreeSet::new(),
            unlinked_dirs: BTreeSet::new(),
            counted: BTreeSet::new(),
            names: Counts::default(),
            parents: BTreeMap::new(),
            subdirs: BTreeMap::new(),
            dotdots: BTreeMap::new(),
            users: BTreeMap::new(),
            presumed: None,
        }
    }

    fn follows(&self, dir: Ino) -> bool {
        self.counted.contains(&dir) && self.plant != Some("checker-trusts-stale-pass")
    }

    /// Blocks were taken, or freed (L1).
    pub fn blocks_changed(&mut self, e: Extent) {
        if self.plant != Some("checker-judges-new-blocks") {
            self.fresh.add_all(e);
        }
    }

    /// An inode was taken; as a directory, it has no names yet (L1, L2).
    pub fn inode_taken(&mut self, ino: Ino, is_dir: bool) {
        self.fresh_inodes.insert(ino);
        if is_dir {
            self.dirs.insert(ino);
            self.counted.insert(ino);
        }
    }

    /// An inode was freed.
    pub fn inode_freed(&mut self, ino: Ino) {
        self.fresh_inodes.insert(ino);
        self.dirs.remove(&ino);
        self.unlinked_dirs.remove(&ino);
        self.counted.remove(&ino);
    }

    /// A directory has got a name for an inode (L2).
    pub fn named(&mut self, dir: Ino, child: Ino, is_dir: bool) {
        if self.follows(dir) {
            self.count_name(dir, child, is_dir);
        }
    }

    /// A directory has lost a name for an inode (L2).
    pub fn unnamed(&mut self, dir: Ino, child: Ino) {
        if !self.follows(dir) {
            return;
        }
        let counted = self.names.get(child.0) > 0 || self.presumed.is_some();
        assert!(counted, "L2: directory {dir} loses a name of inode {child} that was not counted");
        self.names.change(child.0, -1);
        let Some(all) = self.parents.get_mut(&child) else { return };
        let Some(at) = all.iter().position(|p| *p == dir) else { return };
        all.remove(at);
        let n = self.subdirs.entry(dir).or_default();
        let counted = *n > 0 || self.presumed.is_some();
        assert!(counted, "L2: directory {dir} loses {child}, and has no directories in it");
        *n = n.saturating_sub(1);
    }

    /// A directory's ".." names another parent.
    pub fn moved(&mut self, dir: Ino, parent: Ino) {
        self.dotdots.insert(dir, parent);
    }

    fn count_name(&mut self, dir: Ino, child: Ino, is_dir: bool) {
        self.names.change(child.0, 1);
        if is_dir {
            self.parents.entry(child).or_default().push(dir);
            *self.subdirs.entry(dir).or_default() += 1;
        }
    }

    /// A directory was read, under its lock.
    pub fn read_dir(&mut self, dir: Ino, names: Names) {
        if !self.counted.insert(dir) {
            return;
        }
        self.dotdots.extend(names.parent.map(|p| (dir, p)));
        for (child, is_dir) in names.children {
            self.count_name(dir, child, is_dir);
        }
    }

    /// An inode in use was read.
    pub fn read_inode(&mut self, ino: Ino, is_dir: bool) {
        self.used.insert(ino);
        if is_dir {
            self.dirs.insert(ino);
        }
    }

    /// A directory without links was read: somebody holds it still, or it waits to be freed. Its
    /// group counts it until then (L5).
    pub fn read_unlinked_dir(&mut self, ino: Ino) {
        self.unlinked_dirs.insert(ino);
    }

    /// Something points at these blocks. Returns the first that has another owner already.
    pub fn claim(&mut self, e: Extent) -> Option<BlockNo> {
        let all = (0..e.len).map(|i| e.start.plus(i));
        let twice: Vec<BlockNo> = all.filter(|b| !self.seen.add(b.0)).collect();
        twice.into_iter().find(|b| !self.fresh.has(b.0) && self.is_judged(*b))
    }

    /// The same for what may have several owners by its nature, or is the volume's own.
    pub fn set_aside(&mut self, e: Extent) {
        self.seen.add_all(e);
    }

    /// Nothing points at these blocks any more.
    pub fn disown(&mut self, e: Extent) {
        (e.start.0..e.start.0 + e.len).for_each(|b| self.seen.remove(b));
        self.judge(e);
    }

    /// An inode's attributes are in this block. True: it has another owner already.
    pub fn claim_attributes(&mut self, b: BlockNo) -> bool {
        if self.plant == Some("checker-forgets-attributes") {
            return false;
        }
        let users = self.users.entry(b).or_default();
        *users += 1;
        *users == 1 && !self.seen.add(b.0) && !self.fresh.has(b.0) && self.is_judged(b)
    }

    /// An inode's attributes are no longer in this block, which others share.
    pub fn attributes_dropped(&mut self, ino: Ino, b: BlockNo) {
        if self.used.contains(&ino)
            && let Some(users) = self.users.get_mut(&b)
        {
            *users = users.saturating_sub(1);
        }
    }

    /// The attribute blocks that have owners.
    pub fn attribute_blocks(&self) -> Vec<BlockNo> {
        self.users.keys().copied().collect()
    }
    /// Attribute blocks that their last user has left while they counted more: nobody frees them.
    pub fn left_attributes(&self) -> Vec<BlockNo> {
        let left = self.users.iter().filter(|(b, users)| **users == 0 && !self.fresh.has(b.0));
        left.map(|(b, _)| *b).collect()
    }
    /// How many inodes an attribute block has; None: it was taken or freed since the pass began.
    pub fn users_of(&self, b: BlockNo) -> Option<u32> {
        self.users.get(&b).copied().filter(|_| !self.fresh.has(b.0))
    }

    /// Was the inode taken or freed since the pass began?
    pub fn is_fresh(&self, ino: Ino) -> bool {
        self.fresh_inodes.contains(&ino)
    }
    /// Was the block, or is it no candidate where only these are judged?
    pub fn is_fresh_block(&self, b: BlockNo) -> bool {
        self.fresh.has(b.0) || !self.is_judged(b)
    }
    /// Does anything point at the block?
    pub fn is_claimed(&self, b: BlockNo) -> bool {
        self.seen.has(b.0)
    }
    /// Names of the inode.
    pub fn names_of(&self, ino: Ino) -> u32 {
        self.names.get(ino.0)
    }
    /// Does this directory name that one?
    pub fn is_child(&self, dir: Ino, parent: Ino) -> bool {
        self.parents.get(&dir).is_some_and(|all| all.contains(&parent))
    }
    /// The links that the inode should count.
    pub fn links_of(&self, ino: Ino) -> u32 {
        match self.dirs.contains(&ino) {
            true => 2 + self.subdirs.get(&ino).copied().unwrap_or(0),
            false => self.names.get(ino.0),
        }
    }
    /// Directories of a group, which has inodes of these numbers; None: as many as it counts.
    pub fn dirs_in(&self, group: u32, numbers: std::ops::Range<u32>) -> Option<u32> {
        if self.candidates().is_some_and(|c| c.groups.get(&group) != Some(&true)) {
            return None;
        }
        let inside = Ino(numbers.start)..Ino(numbers.end);
        let others = self.presumed.as_ref().map(|p| p.other_dirs.range(inside.clone()).count());
        let unlinked = self.unlinked_dirs.range(inside.clone()).count();
        Some((self.dirs.range(inside).count() + unlinked + others.unwrap_or(0)) as u32)
    }
    /// Inodes read in this pass that may be judged.
    pub fn judged(&self) -> Vec<Ino> {
        self.used.iter().copied().filter(|i| !self.is_fresh(*i)).collect()
    }
    /// These, and those that were taken since: their names have been followed from the first.
    pub fn known(&self) -> BTreeSet<Ino> {
        self.used.union(&self.fresh_inodes).copied().collect()
    }
    /// The first name of an inode that is free.
    pub fn name_of_free(&self) -> Option<Ino> {
        let known = |ino: Ino| self.used.contains(&ino) || self.is_fresh(ino);
        self.names.all().map(|(n, _)| Ino(n)).find(|ino| !known(*ino))
    }

    /// How directories are to be mended.
    pub fn mend(&self) -> Mend {
        let reached = self.reached();
        let mut all = Mend::default();
        for dir in self.dirs.iter().filter(|d| **d != ROOT_INO && !self.is_fresh(**d)) {
            if !reached.contains(dir) {
                all.lost.push(*dir);
                continue;
            }
            let names = self.parents.get(dir).map(Vec::as_slice).unwrap_or_default();
            let good = |p: &&Ino| reached.contains(*p);
            let above = self.dotdots.get(dir);
            let by_dotdot = names.iter().filter(good).find(|p| Some(*p) == above);
            let Some(keep) = by_dotdot.or_else(|| names.iter().find(good)) else { continue };
            let mut others = names.to_vec();
            others.remove(names.iter().position(|p| p == keep).unwrap_or(0));
            all.extra.extend(others.into_iter().filter(|p| good(&p)).map(|p| (p, *dir)));
            if above.is_some_and(|a| a != keep) {
                all.strayed.push((*dir, *keep));
            }
        }
        all
    }

    /// Is it so still that nothing reachable names the directory, whose lock is held?
    pub fn is_lost(&self, dir: Ino) -> bool {
        self.dirs.contains(&dir) && !self.is_fresh(dir) && !self.is_reached(dir)
    }

    /// Is it so still that `child` has a name too many in `dir`, whose lock is held? A directory on
    /// its way from one to the other has two names for a moment, and afterwards one.
    pub fn is_extra(&self, dir: Ino, child: Ino) -> bool {
        let names = self.parents.get(&child).map(Vec::as_slice).unwrap_or_default();
        let Some(at) = names.iter().position(|p| *p == dir) else { return false };
        let mut others = names.iter().enumerate().filter(|(i, _)| *i != at);
        others.any(|(_, p)| self.is_reached(*p))
    }

    /// Does the root, or what is new, lead to it?
    fn is_reached(&self, dir: Ino) -> bool {
        let anchored = |d: Ino| self.presumed.as_ref().is_some_and(|p| p.anchored.contains(&d));
        let (mut seen, mut todo) = (BTreeSet::new(), vec![dir]);
        while let Some(d) = todo.pop() {
            if d == ROOT_INO || self.is_fresh(d) || anchored(d) {
                return true;
            }
            if seen.insert(d) {
                todo.extend(self.parents.get(&d).into_iter().flatten());
            }
        }
        false
    }

    /// What the root leads to, and what has changed since the pass began.
    fn reached(&self) -> BTreeSet<Ino> {
        let mut below: BTreeMap<Ino, Vec<Ino>> = BTreeMap::new();
        for (child, parents) in &self.parents {
            parents.iter().for_each(|p| below.entry(*p).or_default().push(*child));
        }
        let mut reached = BTreeSet::new();
        let mut todo: Vec<Ino> = self.fresh_inodes.iter().copied().chain([ROOT_INO]).collect();
        todo.extend(self.presumed.iter().flat_map(|p| p.anchored.iter().copied()));
        while let Some(dir) = todo.pop() {
            if reached.insert(dir) {
                todo.extend(below.get(&dir).into_iter().flatten());
            }
        }
        reached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(parent: u32, children: &[(u32, bool)]) -> Names {
        let children = children.iter().map(|(i, d)| (Ino(*i), *d)).collect();
        Names { parent: Some(Ino(parent)), children }
    }

    fn census() -> Census {
        let mut c = Census::new(100, None);
        for (ino, is_dir) in [(2, true), (12, true), (13, true), (14, false), (15, false)] {
            c.read_inode(Ino(ino), is_dir);
        }
        c
    }

    #[test]
    fn names_follow_what_is_changed_after_a_directory_was_read() {
        let mut c = census();
        c.read_dir(Ino(2), names(2, &[(12, true), (14, false)]));
        // From the root, which was read, to 12, which was not: read later, it shows the name.
        c.unnamed(Ino(2), Ino(14));
        c.named(Ino(12), Ino(14), false);
        c.read_dir(Ino(12), names(2, &[(14, false), (13, true)]));
        assert_eq!((c.names_of(Ino(14)), c.links_of(Ino(12)), c.links_of(Ino(2))), (1, 3, 3));
        // A directory moves, both having been read.
        c.named(Ino(2), Ino(13), true);
        c.moved(Ino(13), Ino(2));
        c.unnamed(Ino(12), Ino(13));
        let now = (c.links_of(Ino(12)), c.links_of(Ino(2)), c.names_of(Ino(13)));
        assert_eq!(now, (2, 4, 1), "L2: names of directories that were read are followed");
        assert!(c.name_of_free().is_none());
        c.named(Ino(2), Ino(20), false);
        assert_eq!(c.name_of_free(), Some(Ino(20)));
        c.inode_taken(Ino(20), false);
        assert!(c.name_of_free().is_none());
    }

    #[test]
    fn what_changed_meanwhile_is_not_judged() {
        let mut c = census();
        assert_eq!(c.claim(Extent { start: BlockNo(5), len: 3 }), None);
        assert_eq!(c.claim(Extent { start: BlockNo(7), len: 1 }), Some(BlockNo(7)));
        c.blocks_changed(Extent { start: BlockNo(7), len: 1 });
        assert_eq!(c.claim(Extent { start: BlockNo(7), len: 1 }), None);
        c.inode_freed(Ino(15));
        assert_eq!(c.judged(), [2, 12, 13, 14].map(Ino), "L1: what has changed is not judged");
    }

    #[test]
    fn attributes_that_their_last_user_has_left_are_leaked() {
        let mut c = census();
        assert!(!c.claim_attributes(BlockNo(50)) && !c.claim_attributes(BlockNo(50)));
        assert!(!c.claim_attributes(BlockNo(51)));
        c.attributes_dropped(Ino(14), BlockNo(50));
        assert_eq!(c.left_attributes(), []);
        c.attributes_dropped(Ino(15), BlockNo(50));
        c.attributes_dropped(Ino(15), BlockNo(51));
        // Its count was right: whoever left it last has freed it.
        c.blocks_changed(Extent { start: BlockNo(51), len: 1 });
        assert_eq!(c.left_attributes(), [BlockNo(50)]);
        c.disown(Extent { start: BlockNo(50), len: 1 });
        assert!(!c.is_claimed(BlockNo(50)));
    }

    #[test]
    fn what_is_under_way_is_judged_again() {
        let mut c = census();
        c.read_dir(Ino(2), names(2, &[(12, true), (13, true)]));
        // 13 moves from 2 to 12: for a moment it has two names.
        c.named(Ino(12), Ino(13), true);
        assert_eq!(c.mend().extra, [], "12 was not read");
        c.read_dir(Ino(12), names(2, &[(13, true)]));
        c.read_dir(Ino(13), names(2, &[]));
        assert_eq!(c.mend().extra, [(Ino(12), Ino(13))]);
        assert!(c.is_extra(Ino(12), Ino(13)));
        c.unnamed(Ino(2), Ino(13));
        assert!(!c.is_extra(Ino(12), Ino(13)), "L5: that was its only name");
        // It is removed, and somebody holds it.
        c.unnamed(Ino(12), Ino(13));
        assert_eq!(c.mend().lost, [Ino(13)]);
        assert!(c.is_lost(Ino(13)) && !c.is_lost(Ino(12)) && !c.is_lost(Ino(2)));
        c.named(Ino(12), Ino(13), true);
        assert!(!c.is_lost(Ino(13)), "L5: it has a name again");
    }

    #[test]
    fn a_directory_without_a_name_is_counted_until_it_is_freed() {
        let mut c = census();
        c.read_inode(Ino(16), false);
        c.read_unlinked_dir(Ino(16));
        assert_eq!((c.dirs_in(0, 1..17), c.dirs_in(1, 17..33)), (Some(4), Some(0)));
        c.inode_freed(Ino(16));
        assert_eq!(c.dirs_in(0, 1..17), Some(3));
    }

    #[test]
    fn directories_are_mended() {
        let mut c = census();
        // 13 is named twice, and its ".." says which; nothing names 12.
        c.read_dir(Ino(2), names(2, &[(13, true), (13, true)]));
        c.read_dir(Ino(12), names(2, &[(13, true)]));
        c.read_dir(Ino(13), names(12, &[]));
        let s = c.mend();
        assert_eq!(s.lost, [Ino(12)]);
        assert_eq!(s.extra, [(Ino(2), Ino(13))]);
        assert_eq!(s.strayed, [(Ino(13), Ino(2))]);
    }
}
