//! A block in memory and its state. Whoever holds a [`Buf`] keeps the block in memory; nobody holds
//! a borrow of its bytes across an await.

use crate::writeback::Tick;
use env::Block;
use env::sync::Notify;
use format::{BlockNo, Ino};
use std::cell::{Cell, Ref, RefCell};
use std::rc::Rc;

/// What a block holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BufKind {
    /// Metadata: what the layout reads as structure.
    Meta,
    /// A file's contents.
    Data,
}

/// What a block of metadata is to its layout, as far as its checksum goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Role {
    /// Nothing in it carries a checksum of its own.
    #[default]
    Plain,
    /// The block with the primary superblock.
    Superblock,
    /// Group descriptors, from this group's on.
    Descriptors(u32),
    /// The bitmap of this group's blocks.
    BlockMap(u32),
    /// The bitmap of this group's inodes.
    InodeMap(u32),
    /// Slots of inodes, from this one's on.
    Inodes(u32),
    /// A directory's block, entries or index, of an owner of this generation.
    Dir(u32),
    /// A node of an extent tree, of an owner of this generation.
    Extents(u32),
    /// Extended attributes.
    Attributes,
}

pub(crate) struct Inner {
    pub(crate) block: BlockNo,
    pub(crate) role: Cell<Role>,
    pub(crate) kind: Cell<BufKind>,
    pub(crate) owner: Cell<Ino>,
    /// Its bytes; empty until it is valid.
    pub(crate) data: RefCell<Block>,
    /// Holds the disk's contents, or newer ones.
    pub(crate) valid: Cell<bool>,
    pub(crate) loading: Cell<bool>,
    pub(crate) dirty: Cell<bool>,
    /// The last tick of the write-back by time before it became dirty.
    pub(crate) since: Cell<Tick>,
    pub(crate) writing: Cell<bool>,
    /// What is in memory is what the disk below would give: it was read, or what was changed is
    /// kept elsewhere, and nothing has touched it since.
    pub(crate) settled: Cell<bool>,
    /// Counts modifications, so that the end of a write knows whether the block changed meanwhile.
    pub(crate) version: Cell<u64>,
    /// Which parts of what was read have been checked.
    pub(crate) checked: Cell<u64>,
    /// Used since the clock's hand last passed.
    pub(crate) touched: Cell<bool>,
    pub(crate) changed: Notify,
    pub(crate) dirty_list: Rc<RefCell<crate::writeback::DirtyList>>,
}

/// The number of a block that never reaches the disk.
pub(crate) const NOWHERE: BlockNo = BlockNo(u64::MAX);

/// A cached block. Cheap to clone.
#[derive(Clone)]
pub struct Buf(pub(crate) Rc<Inner>);

impl Buf {
    /// Where it lies.
    pub fn block(&self) -> BlockNo {
        self.0.block
    }
    /// What it holds.
    pub fn kind(&self) -> BufKind {
        self.0.kind.get()
    }
    /// The inode whose contents or map it is part of; `Ino(0)` if it belongs to no single one.
    pub fn owner(&self) -> Ino {
        self.0.owner.get()
    }
    /// Says whose it is, so that `fsync` of that inode finds it.
    pub fn set_owner(&self, ino: Ino) {
        if self.0.owner.get() != ino {
            let mut list = self.0.dirty_list.borrow_mut();
            let listed = self.0.dirty.get() || self.0.writing.get();
            if listed {
                list.remove(self);
            }
            self.0.owner.set(ino);
            if listed {
                list.add(self);
            }
        }
    }
    /// What it is to its layout.
    pub fn role(&self) -> Role {
        self.0.role.get()
    }
    /// Says what it is to its layout.
    pub fn set_role(&self, role: Role) {
        self.0.role.set(role);
    }
    /// Puts contents into a new block that come of elsewhere on the disk, so that they need not be
    /// written: when they are wanted again, they are computed again.
    pub fn derive(&self, f: impl FnOnce(&mut [u8])) {
        assert!(self.0.valid.get() && !self.0.dirty.get(), "a new block");
        self.0.settled.set(false);
        f(self.0.data.borrow_mut().bytes_mut());
    }
    /// Its bytes. Do not hold the borrow across an await.
    pub fn bytes(&self) -> Ref<'_, [u8]> {
        Ref::map(self.0.data.borrow(), Block::bytes)
    }
    /// Its bytes as they are now, shared; later edits do not change them.
    pub fn image(&self) -> Block {
        self.0.data.borrow().clone()
    }
    /// Has part `n` (0 to 63; which parts a block has is the layout's business) been checked since
    /// it was read? What was made in memory needs no check.
    pub fn is_checked(&self, n: usize) -> bool {
        assert!(n < 64, "part {n} of {self:?}, of which 64 are counted");
        self.0.checked.get() >> n & 1 == 1
    }
    /// It is taken as contents, which may become anything: whoever takes it for more than that has
    /// to check it (again). On a sound disk nobody does.
    pub fn set_unchecked(&self) {
        self.0.checked.set(0);
    }
    /// Part `n` has been checked.
    pub fn set_checked(&self, n: usize) {
        assert!(n < 64, "part {n} of {self:?}, of which 64 are counted");
        assert!(self.0.valid.get(), "part {n} of {self:?} is checked before it is read");
        self.0.checked.set(self.0.checked.get() | 1 << n);
    }
    /// Must it be written back?
    pub fn is_dirty(&self) -> bool {
        self.0.dirty.get()
    }
    /// Is a write of it in flight?
    pub fn is_writing(&self) -> bool {
        self.0.writing.get()
    }
    /// Counts its modifications.
    pub fn version(&self) -> u64 {
        self.0.version.get()
    }

    /// Changes its bytes and makes it dirty. Metadata is changed through `integrity::Txn::edit`,
    /// which calls this; file contents are changed here and announced with `Txn::data`.
    pub fn modify<T>(&self, f: impl FnOnce(&mut [u8]) -> T) -> T {
        assert!(self.0.valid.get(), "block {} is changed before it is read", self.0.block);
        let result = f(self.0.data.borrow_mut().bytes_mut());
        self.mark_dirty();
        result
    }

    /// Replaces all its bytes without copying them, and makes it dirty.
    pub fn replace(&self, bytes: Block) {
        let len = self.0.data.borrow().len();
        assert_eq!(bytes.len(), len, "C4: {self:?} is replaced by bytes of another length");
        *self.0.data.borrow_mut() = bytes;
        self.0.valid.set(true);
        self.mark_dirty();
    }

    /// Takes over what the disk holds by now, as somebody has written it past the cache: it stays
    /// clean.
    pub fn refresh(&self, bytes: Block) {
        let (len, idle) =
            (self.0.data.borrow().len(), !self.0.dirty.get() && !self.0.writing.get());
        assert_eq!(bytes.len(), len, "C4: {self:?} is refreshed by bytes of another length");
        assert!(idle, "C2: {self:?} is to be written, and what the disk holds goes over it");
        *self.0.data.borrow_mut() = bytes;
        self.0.valid.set(true);
        self.0.version.set(self.0.version.get() + 1);
    }

    /// Makes it dirty: the gate has released something in it that an earlier write left out.
    pub fn mark_dirty(&self) {
        assert!(self.0.valid.get(), "C2: {self:?} holds nothing that could be written");
        assert!(self.0.block != NOWHERE, "C2: a block that lies nowhere is changed");
        self.0.version.set(self.0.version.get() + 1);
        self.0.settled.set(false);
        if !self.0.dirty.replace(true) {
            let mut list = self.0.dirty_list.borrow_mut();
            self.0.since.set(list.tick);
            list.add(self);
        }
        // A look-up for every edit.
        debug_assert!(self.is_listed(), "C2: {self:?} is dirty, and nobody would write it");
    }

    fn is_listed(&self) -> bool {
        self.0.dirty_list.borrow().has(self)
    }

    /// It need not be written. A write in flight keeps it in the list until it has ended.
    pub(crate) fn mark_clean(&self) {
        if self.0.dirty.replace(false) && !self.0.writing.get() {
            self.0.dirty_list.borrow_mut().remove(self);
        }
        let waits = self.0.writing.get();
        debug_assert_eq!(self.is_listed(), waits, "C2: {self:?} is clean; is a write on its way?");
    }

    /// Held by somebody, dirty, or with a request in flight: it cannot go. The map's own share does
    /// not count.
    pub(crate) fn must_stay(&self) -> bool {
        let used = Rc::strong_count(&self.0) > 1 || self.0.loading.get();
        used || self.0.writing.get() || self.0.dirty.get()
    }

    /// Its write has ended.
    pub(crate) fn end_write(&self) {
        let was = self.0.writing.replace(false);
        assert!(was, "C1: a write of {self:?} ends that never began");
        if !self.0.dirty.get() {
            self.0.dirty_list.borrow_mut().remove(self);
        }
        let (listed, dirty) = (self.is_listed(), self.0.dirty.get());
        assert_eq!(listed, dirty, "C2: {self:?} has been written, and is in the list: {listed}");
        assert!(!self.0.loading.get(), "C1: {self:?} was read while it was written");
    }

    /// Is it the same block in memory?
    pub fn same(&self, other: &Buf) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

impl std::fmt::Debug for Buf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buf({}, {:?})", self.0.block, self.0.kind.get())
    }
}
