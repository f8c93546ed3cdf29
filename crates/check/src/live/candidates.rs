//! What a crash may have left half done, and nothing else: from the intents that were written down
//! before it. They tell what was there when the oldest of them was written; what is there now, the
//! pass reads. Both together give the census of everything they name, without a look at the rest.
//!
//! Rule        Whatever is not named is as it should be.
//!             An inode that was free is no directory that its group counts, whatever its bytes
//!             say: they may be an older directory's, and where the new one is a directory, the
//!             intents have its group's directories counted anew.
//! Invariants  L4 an inode's links are the names that no intent mentions and those mentioned that
//!             exist now: its links before, less the mentioned names that existed then, plus the
//!             mentioned names that exist now.

use format::intent::{Intent, NameIntent};
use format::{BlockNo, Extent, Ino};
use std::collections::{BTreeMap, BTreeSet};

/// What an inode was when the oldest intent was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Was {
    /// Its links; 0: it was free, or had no name.
    pub links: u32,
    /// Was it a directory?
    pub is_dir: bool,
    /// Was it free? Then its bytes may be those of an older file, whatever kind of file that was.
    pub was_free: bool,
}

/// Names of a directory; and whom each named before, if it was there, and whether a directory.
pub type Named = BTreeMap<Vec<u8>, Option<(Ino, bool)>>;

/// What is to be looked at.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Candidates {
    /// Inodes, with what they were if their links changed.
    pub inodes: BTreeMap<Ino, Option<Was>>,
    /// Blocks that were taken or freed.
    pub blocks: Vec<Extent>,
    /// Names that came or went, and whom each named before, if it was there.
    pub names: BTreeMap<Ino, Named>,
    /// Users of attribute blocks before.
    pub users: BTreeMap<BlockNo, u32>,
    /// Those of them that left.
    pub left: BTreeSet<(Ino, BlockNo)>,
    /// Block groups whose counts changed; true: that of directories too.
    pub groups: BTreeMap<u32, bool>,
}

impl Candidates {
    /// Of these intents, the oldest first.
    pub fn of(intents: impl IntoIterator<Item = Intent>) -> Candidates {
        let mut all = Candidates::default();
        intents.into_iter().for_each(|i| all.add(i));
        all
    }

    fn add(&mut self, intent: Intent) {
        let nameless = Was { links: 0, is_dir: false, was_free: false };
        match intent {
            Intent::Inode(ino) | Intent::Spared(ino) => {
                self.inodes.entry(ino).or_default();
            }
            Intent::Taken(ino) => {
                let free = Was { was_free: true, ..nameless };
                self.inodes.entry(ino).or_default().get_or_insert(free);
            }
            Intent::UnlinkedOpen(ino) => {
                self.inodes.entry(ino).or_default().get_or_insert(nameless);
            }
            Intent::Links { ino, before, is_dir } => {
                let was = Was { links: u32::from(before), is_dir, was_free: false };
                self.inodes.entry(ino).or_default().get_or_insert(was);
            }
            Intent::Blocks(e) => self.blocks.push(e),
            Intent::Named(NameIntent { dir, ino, name, .. }) => {
                self.inodes.entry(dir).or_default();
                self.inodes.entry(ino).or_default();
                self.names.entry(dir).or_default().entry(name).or_insert(None);
            }
            Intent::Unnamed(NameIntent { dir, ino, is_dir, name }) => {
                self.inodes.entry(dir).or_default();
                self.inodes.entry(ino).or_default();
                self.names.entry(dir).or_default().entry(name).or_insert(Some((ino, is_dir)));
            }
            // Operations that share one may end in any order.
            Intent::Shared { block, users } => {
                let known = self.users.entry(block).or_default();
                *known = users.max(*known);
            }
            Intent::Left { ino, block } => {
                self.inodes.entry(ino).or_default();
                self.left.insert((ino, block));
            }
            Intent::Group { group, dirs } => *self.groups.entry(group).or_default() |= dirs,
        }
    }

    /// How many inodes and runs of blocks there are.
    pub fn len(&self) -> usize {
        self.inodes.len() + self.blocks.len()
    }

    /// Is there nothing to look at?
    pub fn is_empty(&self) -> bool {
        self.len() == 0 && self.groups.is_empty()
    }

    /// How many of the names that intents name were the inode's; and how many of those in the
    /// directory were directories'.
    pub(super) fn named_before(&self) -> (BTreeMap<Ino, u32>, BTreeMap<Ino, u32>) {
        let (mut names, mut subdirs) = (BTreeMap::new(), BTreeMap::new());
        for (dir, all) in &self.names {
            for (ino, is_dir) in all.values().flatten() {
                *names.entry(*ino).or_default() += 1;
                *subdirs.entry(*dir).or_default() += u32::from(*is_dir);
            }
        }
        (names, subdirs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(dir: u32, ino: u32, is_dir: bool, name: &str) -> NameIntent {
        NameIntent { dir: Ino(dir), ino: Ino(ino), is_dir, name: name.into() }
    }

    #[test]
    fn the_oldest_intent_says_what_was_there() {
        let c = Candidates::of([
            Intent::Links { ino: Ino(20), before: 2, is_dir: false },
            Intent::Unnamed(name(2, 20, false, "a")),
            Intent::Named(name(2, 21, true, "a")),
            Intent::Taken(Ino(21)),
            Intent::Links { ino: Ino(21), before: 2, is_dir: true },
            Intent::Unnamed(name(2, 21, true, "a")),
            Intent::Unnamed(name(2, 22, true, "b")),
            Intent::Shared { block: BlockNo(9), users: 3 },
            Intent::Shared { block: BlockNo(9), users: 4 },
            Intent::Group { group: 1, dirs: true },
            Intent::Group { group: 1, dirs: false },
        ]);
        assert_eq!(c.inodes[&Ino(20)], Some(Was { links: 2, ..Was::default() }));
        let free = Was { was_free: true, ..Was::default() };
        assert_eq!(c.inodes[&Ino(21)], Some(free));
        assert_eq!(c.inodes[&Ino(22)], None);
        let names = &c.names[&Ino(2)];
        assert_eq!(names[&b"a"[..]], Some((Ino(20), false)), "L4: what came later was not there");
        assert_eq!((c.users[&BlockNo(9)], c.groups[&1]), (4, true));
        let (before, subdirs) = c.named_before();
        assert_eq!((before.get(&Ino(20)), before.get(&Ino(21))), (Some(&1), None));
        assert_eq!(subdirs[&Ino(2)], 1);
    }
}
