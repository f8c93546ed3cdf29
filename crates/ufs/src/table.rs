//! The inodes in memory, and who holds them. Bounded: an inode that nobody uses is dropped when
//! there are many; holds (a kernel's references) are counted apart, in a few bytes each.

use crate::inode::Inode;
use crate::names::NewNames;
use env::IdMap;
use env::sync::Notify;
use format::Ino;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// Inodes kept in memory before unused ones are dropped.
const KEEP: usize = 8192;
/// Names that all directory indexes together may hold before the least used are dropped.
const NAMES_MAX: usize = 2_000_000;
/// So often they are counted while so many come.
const LOOKS: usize = 8;
/// What a directory costs beside its names, as so many of them: its inode here, and the block with
/// that in the cache, which has to stay as long.
const DIR_NAMES: usize = 128;

/// The names that a directory has in memory, with what it costs beside them.
fn names_of(dir: &Inode) -> usize {
    dir.dir.borrow().as_ref().map_or(0, |d| d.len() + DIR_NAMES)
}

#[derive(Default)]
pub(crate) struct Table {
    inodes: RefCell<IdMap<u32, Rc<Inode>>>,
    sweep_at: Cell<usize>,
    /// Names of the indexes that were built since all were counted.
    built: Cell<usize>,
    holds: RefCell<IdMap<u32, u64>>,
    /// The inodes without names that somebody still holds, or whose freeing is under way.
    unlinked_open: RefCell<IdMap<u32, Rc<Inode>>>,
    /// Those of them that are to be freed one after the other, and whether that is under way.
    pub(crate) behind: RefCell<VecDeque<Rc<Inode>>>,
    pub(crate) is_freeing: Cell<bool>,
    /// An inode without names was freed, or has got a name.
    pub(crate) let_go: Notify,
    pub(crate) names: NewNames,
}

impl Table {
    pub(crate) fn get(&self, ino: Ino) -> Option<Rc<Inode>> {
        self.inodes.borrow().get(&ino.0).cloned()
    }

    /// Is it the inode that has this number now?
    pub(crate) fn is_current(&self, inode: &Rc<Inode>) -> bool {
        self.inodes.borrow().get(&inode.ino().0).is_some_and(|i| Rc::ptr_eq(i, inode))
    }

    /// Adds an inode, unless another task was faster: then that one's.
    pub(crate) fn add(&self, inode: Rc<Inode>) -> Rc<Inode> {
        self.sweep();
        let kept = self.inodes.borrow_mut().entry(inode.ino().0).or_insert(inode).clone();
        let nameless = || self.unlinked_open.borrow().get(&kept.ino().0).cloned();
        // A look more for each inode that comes.
        debug_assert!(
            nameless().is_none_or(|i| Rc::ptr_eq(&i, &kept)),
            "U3: inode {} comes, and is in memory without a name",
            kept.ino()
        );
        kept
    }

    pub(crate) fn remove(&self, ino: Ino) {
        self.inodes.borrow_mut().remove(&ino.0);
        if self.unlinked_open.borrow_mut().remove(&ino.0).is_some() {
            self.let_go.wake_all();
        }
        self.names.forget(ino);
    }

    /// The directory's index has been built: if all of them together have too many names, those of
    /// others go that nobody is changing.
    pub(crate) fn bound_names(&self, built: &Inode) {
        // Not each time: it looks at all inodes.
        self.built.set(self.built.get() + names_of(built));
        if self.built.get() < NAMES_MAX / LOOKS {
            return;
        }
        self.built.set(0);
        let inodes = self.inodes.borrow();
        let mut total: usize = inodes.values().map(|i| names_of(i)).sum();
        if total <= NAMES_MAX {
            return;
        }
        for i in inodes.values().filter(|i| i.ino() != built.ino() && !i.lock.is_busy()) {
            total -= names_of(i);
            *i.dir.borrow_mut() = None;
            if total <= NAMES_MAX / 2 {
                break;
            }
        }
    }

    /// Drops inodes that nobody uses, if there are many; directory indexes last.
    fn sweep(&self) {
        let mut inodes = self.inodes.borrow_mut();
        let limit = self.sweep_at.get().max(KEEP);
        if inodes.len() < limit {
            return;
        }
        let total: usize = inodes.values().map(|i| names_of(i)).sum();
        inodes.retain(|_, i| {
            let busy = Rc::strong_count(i) > 1 || i.unlinked_open.get() || i.lock.is_busy();
            busy || (total <= NAMES_MAX && i.dir.borrow().is_some())
        });
        let kept = self.unlinked_open.borrow().keys().all(|i| inodes.contains_key(i));
        assert!(kept, "U3: a file that somebody holds has left memory");
        // If most are in use, look again only when there are half as many more.
        self.sweep_at.set(inodes.len() + inodes.len() / 2);
    }

    pub(crate) fn hold(&self, ino: Ino, n: u64) {
        *self.holds.borrow_mut().entry(ino.0).or_default() += n;
    }
    /// Gives back `n` holds; true if none is left.
    pub(crate) fn release(&self, ino: Ino, n: u64) -> bool {
        let mut holds = self.holds.borrow_mut();
        let Some(count) = holds.get_mut(&ino.0) else { return true };
        assert!(*count > 0, "U3: inode {ino} is held by nobody, and counts as held");
        *count = count.saturating_sub(n);
        let none = *count == 0;
        if none {
            holds.remove(&ino.0);
        }
        none
    }
    pub(crate) fn is_held(&self, ino: Ino) -> bool {
        self.holds.borrow().contains_key(&ino.0)
    }

    /// The inode's last name is gone.
    pub(crate) fn mark_unlinked_open(&self, inode: &Rc<Inode>) {
        let ino = inode.ino();
        assert!(self.is_current(inode), "U3: inode {ino} loses its last name, and is another's");
        let alone = inode.lock.is_busy() || inode.unnamed.get();
        assert!(alone, "U1: inode {ino} loses its last name, and is not locked");
        inode.unlinked_open.set(true);
        self.unlinked_open.borrow_mut().insert(inode.ino().0, inode.clone());
    }
    /// It has got a name after all.
    pub(crate) fn spare(&self, inode: &Rc<Inode>) {
        inode.unlinked_open.set(false);
        let was = self.unlinked_open.borrow_mut().remove(&inode.ino().0);
        assert!(was.is_some(), "U6: inode {} gets a name, and had one", inode.ino());
        self.let_go.wake_all();
    }
    /// The unlinked-open inodes, in order.
    pub(crate) fn unlinked_open(&self) -> Vec<Rc<Inode>> {
        let mut all: Vec<_> = self.unlinked_open.borrow().values().cloned().collect();
        all.sort_by_key(|i| i.ino());
        all
    }
    /// How many there are.
    pub(crate) fn unlinked_open_count(&self) -> usize {
        self.unlinked_open.borrow().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::InodeHandle;
    use crate::dir::DirIndex;
    use crate::testing::with_a_block;

    #[test]
    fn indexes_of_few_directories_are_bounded_too() {
        with_a_block(|buf| {
            let table = Table::default();
            let hasher = siphasher::sip::SipHasher13::new();
            for n in 0..30 {
                let h = InodeHandle { ino: Ino(n), buf: buf.clone(), offset: 0, len: 128 };
                let dir = table.add(Inode::new(h));
                let mut index = DirIndex::new(1024, hasher);
                (0..100_000u32).for_each(|i| index.add(&i.to_le_bytes(), u64::from(i)));
                *dir.dir.borrow_mut() = Some(Box::new(index));
                table.bound_names(&dir);
                assert!(dir.dir.borrow().is_some(), "the newest stays");
                let all: usize = table.inodes.borrow().values().map(|i| names_of(i)).sum();
                assert!(all <= NAMES_MAX + NAMES_MAX / LOOKS, "{all} names in {n} directories");
            }
        });
    }

    #[test]
    fn empty_directories_do_not_stay_for_ever() {
        with_a_block(|buf| {
            let table = Table::default();
            let mut most = 0;
            for n in 0..200_000 {
                let h = InodeHandle { ino: Ino(n), buf: buf.clone(), offset: 0, len: 128 };
                let dir = table.add(Inode::new(h));
                let hasher = siphasher::sip::SipHasher13::new();
                *dir.dir.borrow_mut() = Some(Box::new(DirIndex::new(1024, hasher)));
                most = most.max(table.inodes.borrow().len());
            }
            assert!(most < 3 * KEEP, "{most} directories without a name are kept");
        });
    }
}
