//! The store: what the operations need of a layout, and nothing more. `ext` updates in place; a
//! log-structured layout writes elsewhere; both have one format of inodes and directory blocks, so
//! the operations are the same. (4.4BSD's split of UFS from FFS and LFS.)
//!
//! Every edit of an inode or a directory block goes through the transaction. The store decides
//! block numbers, bitmaps, maps and counts; the operations decide names, links, sizes, times and
//! owners. Nothing here locks: the operations hold the inode's lock, exclusively for whatever
//! edits.
//!
//! Errors are what the user may be told; the store logs what happened and where, and turns itself
//! read-only after `Corrupt` metadata or a failed write ([`Store::writable`] then says `ReadOnly`).

use cache::Buf;
use check::live::{Candidates, Watch};
use env::Env;
use format::ext::dirhash::IndexRules;
use format::ext::inode::{InodeRef, SIZE_AT};
use format::ext::xattr::Elsewhere;
use format::{BlockNo, Extent, FileBlock, FormatError, Ino};
use integrity::{Change, Credits, Ended, Guarantees, Txn};
use std::ops::Range;
use std::rc::Rc;
use vfs::{FsError, Kind, StatFs};

/// The layout's numbers, which do not change while the volume is open.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes in a block.
    pub block_bytes: usize,
    /// Bytes in an inode's slot.
    pub inode_bytes: usize,
    /// The lowest inode number that is not the volume's own (the root directory's aside).
    pub first_ino: u32,
    /// The largest file, in bytes.
    pub file_bytes_max: u64,
    /// The most links to one inode.
    pub links_max: u32,
    /// May a directory have more subdirectories than that? Then it says that it has one link.
    pub uncounted_dirs: bool,
    /// Bytes at the end of each of a directory's blocks that hold no entries.
    pub dir_tail: usize,
    /// How directories are indexed by hash, where their indexes are kept: where operations are
    /// atomic, or nothing changes. None: names are found by an index in memory.
    pub index_rules: Option<IndexRules>,
    /// Do directory entries hold the kind of file?
    pub entry_kinds: bool,
    /// May contents lie in inodes?
    pub inline_data: bool,
    /// May values of attributes be other inodes' contents?
    pub value_inodes: bool,
}

/// A part of a hole that one transaction punches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PunchStep {
    /// Where it ends.
    pub to: FileBlock,
    /// What the transaction may need.
    pub need: Credits,
}

/// An inode's slot in memory: the raw bytes live in a buffer, which this keeps in memory. Cheap to
/// clone.
#[derive(Clone, Debug)]
pub struct InodeHandle {
    /// Its number.
    pub ino: Ino,
    /// The block of the inode table with its slot.
    pub buf: Buf,
    /// Where the slot begins in the block.
    pub offset: usize,
    /// The slot's length.
    pub len: usize,
}

impl InodeHandle {
    /// Looks at the raw inode.
    pub fn with<T>(&self, f: impl FnOnce(&[u8]) -> T) -> T {
        f(&self.buf.bytes()[self.offset..self.offset + self.len])
    }

    /// Changes the raw inode; only the words that differ are announced, as `change`.
    pub fn edit<T>(&self, txn: &mut Txn, change: Change, f: impl FnOnce(&mut [u8]) -> T) -> T {
        txn.edit_words(&self.buf, self.offset..self.offset + self.len, change, f)
    }

    /// Changes these bytes of the slot with `f`. All of them are announced, as
    /// [`InodeHandle::edit`] does not: a word that stays the same may have been delayed until now.
    pub fn edit_all<T>(
        &self,
        txn: &mut Txn,
        range: Range<usize>,
        change: Change,
        f: impl FnOnce(&mut [u8]) -> T,
    ) -> T {
        let range = self.offset + range.start..self.offset + range.end;
        txn.edit(&self.buf, range, change, f)
    }

    /// Sets a regular file's length; all of it is announced.
    pub fn edit_size(&self, txn: &mut Txn, change: Change, size: u64) {
        for (at, half) in SIZE_AT.into_iter().zip([size as u32, (size >> 32) as u32]) {
            self.edit_all(txn, at..at + 4, change, |b| b.copy_from_slice(&half.to_le_bytes()));
        }
    }
}

/// What a file block maps to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// The first disk block; None: a hole.
    pub start: Option<BlockNo>,
    /// How many file blocks from the asked one on are contiguous on disk, or a hole; at least 1.
    pub len: u64,
}

/// What a block for writing must hold already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fill {
    /// Its present contents (zeros for a hole): a part of it is overwritten.
    Keep,
    /// Whatever: all of it is overwritten.
    Whole,
}

/// A layout.
#[expect(async_fn_in_trait, reason = "a volume is one thread's; its futures need not be Send")]
pub trait Store: 'static {
    /// Time and chance.
    fn env(&self) -> &Env;
    /// Where changes are told to the checker beside service, if there is one for this layout.
    fn watch(&self) -> Option<&Watch> {
        None
    }
    /// The layout's numbers.
    fn limits(&self) -> Limits;
    /// What the mode in force guarantees.
    fn guarantees(&self) -> Guarantees;
    /// Err(ReadOnly) if nothing may be changed (opened so, or after damage or a failed write).
    fn writable(&self) -> Result<(), FsError>;
    /// Reports damage found by the operations (a directory that does not parse): logs it with its
    /// place, turns the volume read-only, and returns what to tell the user.
    fn corrupt(&self, e: &FormatError) -> FsError;

    /// Waits while too much is dirty, then begins an operation.
    async fn begin(&self, need: Credits) -> Result<Txn, FsError>;
    /// Ends `txn` and begins another in its place: for an operation larger than one transaction,
    /// which the mechanism may then find half done after a crash. After an error there is nothing
    /// left to end, and [`Store::end`] says so by an error of its own.
    async fn renew(&self, txn: &mut Txn, need: Credits) -> Result<(), FsError>;
    /// Ends it; then its locks may be released.
    async fn end(&self, txn: Txn) -> Result<Ended, FsError>;
    /// Waits for what the mode promises of a returned call; with `durable`, until it is durable in
    /// any mode.
    async fn returned(&self, ended: Ended, durable: bool) -> Result<(), FsError>;
    /// Makes inodes durable: contents, sizes, maps, attributes. The first is the file, the others
    /// are the directories that make it reachable.
    async fn sync_inodes(&self, inodes: &[InodeHandle], data_only: bool) -> Result<(), FsError>;
    /// Is something free that may not be used again until more is durable?
    fn has_busy_extents(&self) -> bool;
    /// Has the disk not seen yet that this inode was made?
    fn is_unseen(&self, ino: Ino) -> bool;
    /// Makes everything durable.
    async fn sync_all(&self) -> Result<(), FsError>;

    /// Tells the disk of free blocks among these, in runs of at least `least`; returns how many.
    /// Between two runs it ends if `stop` says so. Errors: `NotSupported` where the layout or the
    /// disk cannot.
    async fn trim(
        &self,
        among: Range<u64>,
        least: u64,
        stop: &dyn Fn() -> bool,
    ) -> Result<u64, FsError> {
        let _ = (among, least, stop);
        Err(FsError::NotSupported)
    }
    /// The same where something was freed and not trimmed since, as far as it may be used again.
    async fn trim_freed(&self, least: u64, stop: &dyn Fn() -> bool) -> Result<u64, FsError> {
        self.trim(0..0, least, stop).await
    }
    /// After [`Store::sync_all`]: writes what is durable in a log or journal back, so that nothing
    /// is written later without a further change.
    async fn quiesce(&self) -> Result<(), FsError>;

    /// The inode's slot. `Stale` for a number out of range or a free inode (links 0, no mode).
    async fn inode(&self, ino: Ino) -> Result<InodeHandle, FsError>;
    /// The slot if it is in memory: for answers that must not wait.
    fn inode_cached(&self, ino: Ino) -> Option<InodeHandle>;
    /// Allocates an inode near `parent` (directories are spread over groups). Its slot is zeroed
    /// but for a new generation; the caller fills it with `Change::InitInode`.
    async fn alloc_inode(
        &self,
        txn: &mut Txn,
        parent: &InodeHandle,
        kind: Kind,
    ) -> Result<InodeHandle, FsError>;
    /// Frees an inode whose blocks are gone ([`Store::truncate`] to 0) and whose attribute block
    /// too: edits the slot (`Change::FreeInode`: deletion time, mode kept) and clears its bit.
    async fn free_inode(&self, txn: &mut Txn, inode: &InodeHandle) -> Result<(), FsError>;
    /// In atomic modes: remembers, durably with `txn`, that the inode must be reclaimed (links 0)
    /// or truncated to its size after a crash. Elsewhere nothing.
    async fn orphan_add(&self, txn: &mut Txn, inode: &InodeHandle) -> Result<(), FsError>;
    /// Takes that back.
    async fn orphan_remove(&self, txn: &mut Txn, inode: &InodeHandle) -> Result<(), FsError>;

    /// The inodes that a crash has left so remembered; called once, before any operation.
    async fn orphans(&self) -> Result<Vec<InodeHandle>, FsError>;

    /// Where the file's block `at` lies, and how far that goes on, at most `max` blocks.
    async fn map(&self, inode: &InodeHandle, at: FileBlock, max: u64) -> Result<Run, FsError>;
    /// The blocks of a file from `at` on, read if need be; None is a hole. Contents (`Data`) of
    /// files, text of slow symlinks; for directories use [`Store::dir_block`].
    async fn read_blocks(
        &self,
        inode: &InodeHandle,
        at: FileBlock,
        count: u64,
    ) -> Result<Vec<Option<Buf>>, FsError>;
    /// As `read_blocks` if nothing has to be waited for.
    fn read_blocks_cached(
        &self,
        inode: &InodeHandle,
        at: FileBlock,
        count: u64,
    ) -> Option<Vec<Option<Buf>>>;
    /// Reads blocks in the background.
    async fn read_ahead(&self, inode: &InodeHandle, at: FileBlock, count: u64);
    /// A sequential reader or writer has passed these blocks: they are the first to leave memory.
    fn pass(&self, bufs: &[Option<Buf>]);
    /// A sequential writer has left these blocks behind: they are written back by and by, as far as
    /// the mechanism lets them.
    fn write_behind(&self, inode: &InodeHandle, at: FileBlock, count: u64);
    /// Blocks for writing contents, allocated where there is a hole; `fill` says what the first and
    /// the last must hold (those between are overwritten whole). May return fewer than `count`, at
    /// least one, if the transaction or the free space allows no more; `NoSpace` if none. Freshly
    /// allocated ones are zeroed.
    /// The caller changes the bytes (`Buf::replace`, `Buf::modify`) and announces them with
    /// `Txn::data`.
    async fn write_blocks(
        &self,
        txn: &mut Txn,
        inode: &InodeHandle,
        at: FileBlock,
        count: u64,
        fill: (Fill, Fill),
    ) -> Result<Vec<Buf>, FsError>;
    /// Can the file have blocks that are allocated and read as zeros although they were never
    /// written?
    fn has_unwritten(&self, inode: &InodeHandle) -> bool;
    /// Allocates such blocks where there is a hole at `at`, at most `count`; returns how many
    /// blocks from there on are allocated then, at least one. Size and times are the caller's.
    async fn preallocate(
        &self,
        txn: &mut Txn,
        inode: &InodeHandle,
        at: FileBlock,
        count: u64,
    ) -> Result<u64, FsError>;
    /// Before an operation begins that may make a file `size` bytes long: a layout that must say
    /// that it holds so large a file says so now, durably.
    async fn allow_size(&self, size: u64) -> Result<(), FsError>;
    /// Frees all blocks from file block `from` on. It may end `txn` and begin another in its place
    /// when there is more to free than one transaction holds (in atomic modes the caller has called
    /// `orphan_add`).
    /// Size and times are the caller's.
    async fn truncate(
        &self,
        txn: &mut Txn,
        inode: &InodeHandle,
        from: FileBlock,
    ) -> Result<(), FsError>;
    /// Into which steps the freeing of the blocks `from..to` falls, one after the other, and what a
    /// transaction needs for each, beside `beside`: as few as fit, so that it is one wherever it
    /// can be. The caller has the inode's lock, and has not begun.
    async fn punch_steps(
        &self,
        inode: &InodeHandle,
        range: Range<FileBlock>,
        beside: Credits,
    ) -> Result<Vec<PunchStep>, FsError>;
    /// Frees the blocks `from..to`, a step; they become holes. Times are the caller's.
    async fn punch(
        &self,
        txn: &mut Txn,
        inode: &InodeHandle,
        from: FileBlock,
        to: FileBlock,
    ) -> Result<(), FsError>;

    /// Moves contents that lie in the inode into a block, as one change with what comes after it in
    /// the transaction; `NoSpace` before anything has changed. Nothing where they lie elsewhere.
    async fn move_out(&self, txn: &mut Txn, inode: &InodeHandle) -> Result<(), FsError> {
        assert!(!inode.with(|raw| InodeRef(raw).is_inline()), "a layout without such contents");
        let _ = txn;
        Ok(())
    }

    /// A directory's block; a hole in a directory is `Corrupt`.
    async fn dir_block(&self, inode: &InodeHandle, at: FileBlock) -> Result<Buf, FsError>;
    /// The same for a block that the directory can do without, as a node of its index is: what is
    /// wrong with its checksum comes beside it, and stops nothing.
    async fn dir_block_judged(
        &self,
        inode: &InodeHandle,
        at: FileBlock,
    ) -> Result<(Buf, Option<FormatError>), FsError>;
    /// A new block at the directory's end (`at` = size in blocks), with `contents`:
    /// `Change::InitBlock`, then the pointer. The size is the caller's (`Change::GrowDir`).
    async fn dir_grow(
        &self,
        txn: &mut Txn,
        inode: &InodeHandle,
        at: FileBlock,
        contents: &[u8],
    ) -> Result<Buf, FsError>;
    /// Between two halves of a change that is one transaction; a planted bug makes it two.
    async fn amid_split(&self, txn: &mut Txn) -> Result<(), FsError>;
    /// Puts a new block with `contents` in the place of the directory's block `at`, whose old block
    /// is freed. `NoSpace` before anything has changed.
    async fn dir_swap(
        &self,
        txn: &mut Txn,
        inode: &InodeHandle,
        at: FileBlock,
        contents: &[u8],
    ) -> Result<Buf, FsError>;

    /// An attribute's value that is another inode's contents. `Corrupt` if that is none for it.
    async fn value_elsewhere(
        &self,
        inode: &InodeHandle,
        at: Elsewhere,
    ) -> Result<Vec<u8>, FsError> {
        let what = format!("a value is said to be inode {}'s contents", at.ino);
        Err(self.corrupt(&FormatError::corrupt(what, format!("inode {}", inode.ino))))
    }
    /// Makes an inode whose contents are the value of an attribute of `inode` by this name, with
    /// one user. `NoSpace` before anything has changed.
    async fn make_value(
        &self,
        txn: &mut Txn,
        inode: &InodeHandle,
        (name, value): (&[u8], &[u8]),
    ) -> Result<Elsewhere, FsError> {
        let _ = (txn, inode, name, value);
        Err(FsError::NoSpace)
    }
    /// One attribute more, or one fewer, has such a value; with the last one the value goes.
    async fn use_value(
        &self,
        txn: &mut Txn,
        inode: &InodeHandle,
        at: Elsewhere,
        more: bool,
    ) -> Result<(), FsError> {
        let _ = (txn, more);
        self.value_elsewhere(inode, at).await.map(drop)
    }
    /// Frees values that were just made, and that nothing names.
    async fn unmake_values(
        &self,
        txn: &mut Txn,
        inode: &InodeHandle,
        made: &[Elsewhere],
    ) -> Result<(), FsError> {
        let _ = (txn, inode);
        assert!(made.is_empty(), "values are made by who can free them");
        Ok(())
    }
    /// The values of an inode's attributes take so many blocks more, which it counts as its own.
    fn count_values(&self, txn: &mut Txn, inode: &InodeHandle, blocks: i64) {
        let _ = (txn, inode, blocks);
    }
    /// The attribute block, if the inode has one.
    async fn xattr_block(&self, inode: &InodeHandle) -> Result<Option<Buf>, FsError>;
    /// Gives the inode an attribute block with `contents` (None: none at all). An old one of its
    /// own is changed where operations are atomic, else freed; one that others (made by the kernel)
    /// share loses a user, and keeps its entries: false.
    async fn set_xattr_block(
        &self,
        txn: &mut Txn,
        inode: &InodeHandle,
        contents: Option<&[u8]>,
    ) -> Result<bool, FsError>;
    /// Leaves the attribute block to the others who have it; false: nobody else has.
    async fn leave_xattr_block(&self, txn: &mut Txn, inode: &InodeHandle) -> Result<bool, FsError>;

    /// The volume's label.
    fn label(&self) -> String {
        String::new()
    }
    /// Changes it, durably. `Invalid` where it is too long.
    async fn set_label(&self, label: &str) -> Result<(), FsError> {
        let _ = label;
        Err(FsError::NotSupported)
    }

    /// Free space.
    fn statfs(&self) -> StatFs;
    /// Counters for metrics.
    fn counters(&self) -> Vec<(&'static str, u64)>;
}

/// A store as the operations hold it.
pub type Shared<S> = Rc<S>;

/// What an inode holds on the disk.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Holding {
    /// Blocks of its map: contents and the map's own.
    pub runs: Vec<Extent>,
    /// Its attribute block.
    pub attributes: Option<BlockNo>,
    /// How many blocks more it holds than it counts.
    pub uncounted: i64,
    /// One more than the last block of the file that is mapped.
    pub end: u64,
}

impl Holding {
    /// Adds blocks.
    pub fn add(&mut self, start: BlockNo, len: u64) {
        match self.runs.last_mut() {
            Some(r) if r.start.plus(r.len) == start => r.len += len,
            _ => self.runs.push(Extent { start, len }),
        }
    }
}

/// A layout that can be checked while it is in use.
#[expect(async_fn_in_trait, reason = "a volume is one thread's; its futures need not be Send")]
pub trait Scrubbed: Store {
    /// Block groups.
    fn group_count(&self) -> u32;
    /// Begins a pass of its watch, with the volume's own blocks set aside.
    async fn scrub_begins(&self);
    /// The same of a pass that looks at these only.
    async fn scrub_begins_with(&self, candidates: Candidates);
    /// The group that a block is in; None: it is outside the volume.
    fn group_of_block(&self, b: BlockNo) -> Option<u32>;
    /// The inodes of a group that are marked as used.
    async fn inodes_in_use(&self, group: u32) -> Result<Vec<Ino>, FsError>;
    /// Is the inode marked as used?
    async fn is_in_use(&self, ino: Ino) -> Result<bool, FsError>;
    /// The slot of an inode, whatever is in it.
    async fn raw_inode(&self, ino: Ino) -> Result<InodeHandle, FsError>;
    /// Is it one of the volume's own inodes, which have no names?
    fn is_own(&self, ino: Ino) -> bool;
    /// What the inode holds; its lock is held.
    async fn holding(&self, inode: &InodeHandle) -> Result<Holding, FsError>;
    /// The inode counts so many blocks more (or less); its lock is held exclusively.
    async fn count_held(&self, inode: &InodeHandle, blocks: i64) -> Result<(), FsError>;
    /// An attribute block that counts more users than the census has counts as many from now on.
    /// True: it did. Errors: it counted fewer.
    async fn mend_users(&self, block: BlockNo) -> Result<bool, FsError>;
    /// Frees the blocks of a group that nothing points at, and sets its counts right; returns how
    /// many. Errors: something points at a free one.
    async fn give_back(&self, group: u32) -> Result<u64, FsError>;
}
