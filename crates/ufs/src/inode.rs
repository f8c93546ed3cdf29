//! An inode in memory: its slot, its lock, and what is known about it that is not on disk.

use crate::InodeHandle;
use crate::dir::{DirIndex, Known, Memo};
use cache::{ReadAhead, WriteBehind};
use env::sync::Lock;
use format::Ino;
use format::ufs::inode::InodeRef;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

pub(crate) struct Inode {
    pub(crate) h: InodeHandle,
    /// Shared for reading contents, exclusive for every change; taken in the order of inode
    /// numbers.
    pub(crate) lock: Lock,
    /// A directory's names by hash, once built; most inodes have none, and it is large.
    pub(crate) dir: RefCell<Option<Box<DirIndex>>>,
    pub(crate) index_lock: Lock,
    /// Counts how often names have moved from one of a directory's blocks to another.
    pub(crate) shape: Cell<u64>,
    /// Counts changes of a directory's names and their places.
    pub(crate) changes: Cell<u64>,
    /// The last name that was looked for by the index on disk.
    pub(crate) memo: RefCell<Option<Box<Memo>>>,
    /// Where its index by hash leads.
    pub(crate) known: RefCell<Option<Box<Known>>>,
    /// Its index by hash was found to be damaged, and is not asked any more.
    pub(crate) index_broken: Cell<bool>,
    pub(crate) ahead: RefCell<ReadAhead>,
    /// Watches its writes.
    pub(crate) behind: RefCell<WriteBehind>,
    /// Its last name is gone; it lives as long as somebody holds it.
    pub(crate) unlinked_open: Cell<bool>,
    /// It was made without a name, and may yet be given one.
    pub(crate) unnamed: Cell<bool>,
}

impl Inode {
    pub(crate) fn new(h: InodeHandle) -> Rc<Inode> {
        Rc::new(Inode {
            h,
            lock: Lock::new(),
            dir: RefCell::default(),
            index_lock: Lock::new(),
            shape: Cell::new(0),
            changes: Cell::new(0),
            memo: RefCell::default(),
            known: RefCell::default(),
            index_broken: Cell::new(false),
            ahead: RefCell::default(),
            behind: RefCell::default(),
            unlinked_open: Cell::new(false),
            unnamed: Cell::new(false),
        })
    }
    pub(crate) fn ino(&self) -> Ino {
        self.h.ino
    }
    pub(crate) fn with<T>(&self, f: impl FnOnce(InodeRef<'_>) -> T) -> T {
        self.h.with(|raw| f(InodeRef(raw)))
    }
    pub(crate) fn is_dir(&self) -> bool {
        self.with(|i| i.is_dir())
    }
    pub(crate) fn size(&self) -> u64 {
        self.with(|i| i.size())
    }
    /// Where a directory's blocks end. One that lies in the inode counts as a block.
    pub(crate) fn dir_end(&self, block_bytes: u64) -> u64 {
        self.size().next_multiple_of(block_bytes)
    }
    pub(crate) fn links(&self) -> u32 {
        self.with(|i| u32::from(i.links()))
    }
}
