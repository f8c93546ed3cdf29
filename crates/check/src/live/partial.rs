//! The census of a pass that looks at candidates only: it begins with what is presumed of the rest,
//! and what the pass reads is added as in a whole one.

use super::candidates::{Candidates, Was};
use super::census::Census;
use super::sets::BitSet;
use format::{BlockNo, Ino};
use std::collections::{BTreeMap, BTreeSet};

/// What is presumed.
#[derive(Debug)]
pub(super) struct Presumed {
    candidates: Candidates,
    /// Blocks that were taken or freed: only these are judged.
    judged: BitSet,
    /// Names that were the inode's before, and that intents name.
    named: BTreeMap<Ino, u32>,
    /// The same of directories in a directory.
    subdirs: BTreeMap<Ino, u32>,
    /// Directories with a name that no intent names.
    pub(super) anchored: BTreeSet<Ino>,
    /// Directories, beside the candidates, of groups whose directories are counted anew.
    pub(super) other_dirs: BTreeSet<Ino>,
}

impl Census {
    pub(super) fn partial(
        blocks: u64,
        plant: Option<&'static str>,
        candidates: Candidates,
    ) -> Census {
        let mut c = Census::new(blocks, plant);
        let mut judged = BitSet::below(blocks);
        let inside = |b: &u64| *b < blocks;
        for e in &candidates.blocks {
            (e.start.0..e.start.0.saturating_add(e.len)).take_while(inside).for_each(|b| {
                judged.add(b);
            });
        }
        c.seen.fill();
        c.seen.take_out(&judged);
        let (named, subdirs) = candidates.named_before();
        for (block, users) in &candidates.users {
            let left = candidates.left.iter().filter(|(_, b)| b == block).count() as u32;
            if *users > left {
                c.users.insert(*block, users - left);
                c.seen.add(block.0);
            }
        }
        let (anchored, other_dirs) = (BTreeSet::new(), BTreeSet::new());
        c.presumed = Some(Presumed { candidates, judged, named, subdirs, anchored, other_dirs });
        c
    }

    /// Is it a pass over candidates, and which are they?
    pub fn candidates(&self) -> Option<&Candidates> {
        self.presumed.as_ref().map(|p| &p.candidates)
    }

    pub(super) fn judge(&mut self, e: format::Extent) {
        if let Some(p) = &mut self.presumed {
            p.judged.add_all(e);
        }
    }

    pub(super) fn is_judged(&self, b: BlockNo) -> bool {
        self.presumed.as_ref().is_none_or(|p| p.judged.has(b.0))
    }

    /// A candidate was read: it is in use, and counts so many links. The names that no intent names
    /// are added (L4).
    pub fn read_candidate(&mut self, ino: Ino, is_dir: bool, links: u32) {
        let Some(p) = &mut self.presumed else { return };
        let was = p.candidates.inodes.get(&ino).copied().flatten();
        let was = was.unwrap_or(Was { links, is_dir, was_free: false });
        let all = match (was.links, was.is_dir) {
            (0, _) => 0,
            (_, true) => 1,
            (n, false) => n,
        };
        let names = all.saturating_sub(p.named.get(&ino).copied().unwrap_or(0));
        if is_dir {
            let before = if was.is_dir { was.links.saturating_sub(2) } else { 0 };
            let gone = p.subdirs.get(&ino).copied().unwrap_or(0);
            self.subdirs.insert(ino, before.saturating_sub(gone));
            if names > 0 {
                p.anchored.insert(ino);
            }
        }
        self.names.change(ino.0, names as i32);
        self.read_inode(ino, is_dir);
    }

    /// Was the inode free when the oldest intent was written? Then no group counts it as a
    /// directory, but one whose directories are counted anew.
    pub fn was_free(&self, ino: Ino) -> bool {
        let was = self.candidates().and_then(|c| c.inodes.get(&ino).copied().flatten());
        was.is_some_and(|w| w.was_free)
    }

    /// Is nothing to be counted of the attribute block of an inode that is there? Its users are
    /// counted only if one has left, and then those that were not named are counted already.
    pub fn is_presumed_user(&self, ino: Ino, b: BlockNo) -> bool {
        let Some(p) = &self.presumed else { return false };
        !p.candidates.users.contains_key(&b) || !p.candidates.left.contains(&(ino, b))
    }

    /// A directory that is no candidate is in a group whose directories are counted anew.
    pub fn other_dir(&mut self, ino: Ino) {
        if let Some(p) = self.presumed.as_mut().filter(|_| !self.dirs.contains(&ino)) {
            p.other_dirs.insert(ino);
        }
    }

    /// The name of a directory that was moved, in the one that had it before: where both are there,
    /// the move had come so far that its new name may be relied on.
    pub fn old_name(&self, dir: Ino, child: Ino) -> Option<Vec<u8>> {
        let all = self.presumed.as_ref()?.candidates.names.get(&dir)?;
        let old = all.iter().find(|(_, was)| was.is_some_and(|(ino, _)| ino == child));
        old.map(|(name, _)| name.clone())
    }

    /// The names of a directory that intents name; None: it has none of these.
    pub fn names_wanted(&self, dir: Ino) -> Option<BTreeSet<Vec<u8>>> {
        let p = self.presumed.as_ref()?;
        p.candidates.names.get(&dir).map(|all| all.keys().cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::Names;
    use format::Extent;
    use format::intent::{Intent, NameIntent};

    fn name(dir: u32, ino: u32, is_dir: bool, name: &str) -> NameIntent {
        NameIntent { dir: Ino(dir), ino: Ino(ino), is_dir, name: name.into() }
    }

    #[test]
    fn an_inode_that_was_free_may_look_like_an_older_directory() {
        let candidates = Candidates::of([
            Intent::Taken(Ino(16)),
            Intent::Links { ino: Ino(17), before: 2, is_dir: true },
            Intent::UnlinkedOpen(Ino(17)),
            Intent::UnlinkedOpen(Ino(18)),
            Intent::Taken(Ino(18)),
        ]);
        let c = Census::partial(100, None, candidates);
        assert_eq!([16, 17, 18].map(|i| c.was_free(Ino(i))), [true, false, false]);
        assert!(!Census::new(100, None).was_free(Ino(16)), "a whole pass counts all of them");
    }

    #[test]
    fn what_is_not_named_is_as_it_was() {
        let run = Extent { start: BlockNo(40), len: 2 };
        let candidates = Candidates::of([
            Intent::Blocks(run),
            // 20 had three names, and one of them goes; 30 moves from 2 to 12.
            Intent::Links { ino: Ino(20), before: 3, is_dir: false },
            Intent::Unnamed(name(2, 20, false, "a")),
            Intent::Links { ino: Ino(12), before: 2, is_dir: true },
            Intent::Named(name(12, 30, true, "d")),
            Intent::Unnamed(name(2, 30, true, "d")),
            Intent::Links { ino: Ino(2), before: 9, is_dir: true },
        ]);
        let mut c = Census::partial(100, None, candidates);
        for (ino, is_dir, links) in [(2, true, 9), (12, true, 3), (20, false, 3), (30, true, 2)] {
            c.read_candidate(Ino(ino), is_dir, links);
        }
        // Both names of 30 are there, and the one of 20 is gone.
        let both = |dir: u32| Names { parent: Some(Ino(2)), children: vec![(Ino(30), dir > 0)] };
        c.read_dir(Ino(2), both(2));
        c.read_dir(Ino(12), both(12));
        let names = [20, 30, 12].map(|i| c.names_of(Ino(i)));
        assert_eq!(names, [2, 2, 1], "L4: names that no intent names are there");
        assert_eq!((c.links_of(Ino(2)), c.links_of(Ino(12))), (9, 3));
        assert_eq!(c.old_name(Ino(2), Ino(30)), Some(b"d".to_vec()));
        assert_eq!(c.old_name(Ino(12), Ino(30)), None, "it is the new one");
        let mend = c.mend();
        assert_eq!((mend.lost, mend.extra.len()), (vec![], 1));
        assert!(c.is_claimed(BlockNo(39)) && !c.is_claimed(BlockNo(40)));
        assert_eq!(c.claim(Extent { start: BlockNo(38), len: 3 }), None, "39 is not judged");
        assert_eq!(c.claim(Extent { start: BlockNo(40), len: 1 }), Some(BlockNo(40)));
    }
}
