//! New names, as long as they are not known to be durable. Who makes a file durable wants the names
//! by which it was made to be there after a crash too; which those are is remembered here. A name
//! that was made again while somebody made the old one durable stays: each carries a stamp.

use env::IdMap;
use format::Ino;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

/// When a name was noted: later ones are greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Stamp(u64);

/// More than this many are made durable by whoever comes next, so that their memory is bounded.
const MANY: usize = 100_000;

#[derive(Default)]
pub(crate) struct NewNames {
    /// For an inode the directories that name it, and since when.
    dirs: RefCell<IdMap<u32, Vec<(u32, Stamp)>>>,
    /// Directories that were moved, among those.
    moved: RefCell<BTreeSet<u32>>,
    last: Cell<Stamp>,
}

impl NewNames {
    /// `dir` has a new name for the inode.
    pub(crate) fn note(&self, ino: Ino, dir: Ino) {
        let stamp = Stamp(self.last.get().0 + 1);
        self.last.set(stamp);
        let mut all = self.dirs.borrow_mut();
        let dirs = all.entry(ino.0).or_default();
        dirs.retain(|d| d.0 != dir.0);
        let newest = dirs.iter().all(|d| d.1 < stamp);
        assert!(newest, "U11: a name of {ino} is noted before one that was noted");
        dirs.push((dir.0, stamp));
    }

    /// The directory was moved: until its new name is durable, a crash finds what is in it under
    /// the old one.
    pub(crate) fn note_moved(&self, ino: Ino) {
        self.moved.borrow_mut().insert(ino.0);
    }

    /// The directories that were moved, as long as their new names are not known to be durable.
    pub(crate) fn moved(&self) -> Vec<Ino> {
        let all = self.dirs.borrow();
        let mut moved = self.moved.borrow_mut();
        moved.retain(|i| all.contains_key(i));
        moved.iter().map(|i| Ino(*i)).collect()
    }

    /// The inode is gone, and so are its names.
    pub(crate) fn forget(&self, ino: Ino) {
        self.dirs.borrow_mut().remove(&ino.0);
    }

    /// The directories that have new names for it.
    pub(crate) fn dirs_of(&self, ino: Ino) -> Vec<Ino> {
        let all = self.dirs.borrow();
        all.get(&ino.0).map(|d| d.iter().map(|d| Ino(d.0)).collect()).unwrap_or_default()
    }

    /// The inodes newly named in `dir`, in order.
    pub(crate) fn inodes_in(&self, dir: Ino) -> Vec<Ino> {
        let all = self.dirs.borrow();
        let named = all.iter().filter(|(_, dirs)| dirs.iter().any(|d| d.0 == dir.0));
        let mut inodes: Vec<Ino> = named.map(|(i, _)| Ino(*i)).collect();
        inodes.sort_unstable();
        inodes
    }

    /// What has been noted up to now carries this stamp or a lower one.
    pub(crate) fn now(&self) -> Stamp {
        self.last.get()
    }

    /// The name of the inode in `dir` is durable, if it was noted by then.
    pub(crate) fn durable(&self, ino: Ino, dir: Ino, then: Stamp) {
        assert!(then <= self.last.get(), "U11: a name of {ino} is durable before it is noted");
        let mut all = self.dirs.borrow_mut();
        if let Some(dirs) = all.get_mut(&ino.0) {
            dirs.retain(|d| d.0 != dir.0 || d.1 > then);
            if dirs.is_empty() {
                all.remove(&ino.0);
            }
        }
    }

    /// All names are durable that were noted by then.
    pub(crate) fn all_durable(&self, then: Stamp) {
        assert!(then <= self.last.get(), "U11: names are durable before they are noted");
        self.dirs.borrow_mut().retain(|_, dirs| {
            dirs.retain(|d| d.1 > then);
            !dirs.is_empty()
        });
    }

    /// Are there so many that they had better be made durable?
    pub(crate) fn are_many(&self) -> bool {
        self.dirs.borrow().len() >= MANY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_noted_meanwhile_is_not_taken_for_durable() {
        let names = NewNames::default();
        names.note(Ino(11), Ino(2));
        names.note(Ino(12), Ino(2));
        let then = names.now();
        names.note(Ino(13), Ino(2));
        names.note(Ino(12), Ino(2)); // removed and made again
        names.all_durable(then);
        assert_eq!(names.inodes_in(Ino(2)), [Ino(12), Ino(13)]);
        names.durable(Ino(12), Ino(2), then);
        assert_eq!(names.dirs_of(Ino(12)), [Ino(2)]);
        names.durable(Ino(12), Ino(2), names.now());
        names.forget(Ino(13));
        assert!(names.dirs.borrow().is_empty());
    }

    #[test]
    fn an_inode_with_many_names_is_counted_once() {
        let names = NewNames::default();
        (0..MANY as u32).for_each(|dir| names.note(Ino(11), Ino(dir)));
        assert!(!names.are_many());
        (0..MANY as u32).for_each(|n| names.note(Ino(n), Ino(2)));
        assert!(names.are_many());
    }
}
