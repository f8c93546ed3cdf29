//! The trait that every mechanism implements, and its obligations.
//! It says what a mechanism owes, and not how it pays.

use crate::{Change, Edit, IntegrityError, Txn};
use cache::{Begun, Buf, WriteGate};
use env::Local;
use format::{BlockNo, Extent, Ino};
use std::fmt;
use std::ops::Range;
use std::rc::Rc;

/// What an operation may need at worst, reserved before it begins, because an operation that waits
/// for log space in its middle would wait for itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Credits {
    /// Metadata blocks it may edit.
    pub blocks: u64,
    /// Blocks it may free (each may need a revoke).
    pub frees: u64,
    /// Runs of neighbours in which it frees them.
    pub runs: u64,
    /// Bytes of file contents it writes.
    pub data_bytes: u64,
    /// These are to be durable before the operation's caller hears of it.
    pub stable: bool,
    /// No more blocks hold something afterwards than before: it is not refused on a full volume.
    pub makes_room: bool,
}

impl Credits {
    /// For an operation that edits up to `blocks` metadata blocks.
    pub const fn blocks(blocks: u64) -> Credits {
        Credits { blocks, frees: 0, runs: 0, data_bytes: 0, stable: false, makes_room: false }
    }

    /// The same for an operation that takes away or changes what is there, and adds nothing.
    pub const fn to_free(blocks: u64) -> Credits {
        Credits { makes_room: true, ..Credits::blocks(blocks) }
    }
}

/// Names a transaction among its mechanism's. They are given out in order, from 1 on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct TxnId(pub u64);

impl TxnId {
    /// Before all of them.
    pub const NONE: TxnId = TxnId(0);

    /// That of the next to begin.
    pub fn next(self) -> TxnId {
        TxnId(self.0 + 1)
    }
}

impl fmt::Display for TxnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<u64> for TxnId {
    fn from(number: u64) -> TxnId {
        TxnId(number)
    }
}

impl From<TxnId> for u64 {
    fn from(id: TxnId) -> u64 {
        id.0
    }
}

impl From<TxnId> for Begun {
    fn from(id: TxnId) -> Begun {
        Begun(id.0)
    }
}

impl From<Begun> for TxnId {
    fn from(begun: Begun) -> TxnId {
        TxnId(begun.0)
    }
}

/// A transaction that has ended: its place among the others. What a returned call means is waited
/// for with [`Integrity::durable`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Ended(pub u64);

/// For mechanisms that give no other numbers to those that have ended.
impl From<TxnId> for Ended {
    fn from(id: TxnId) -> Ended {
        Ended(id.0)
    }
}

/// The same, back.
impl From<Ended> for TxnId {
    fn from(ended: Ended) -> TxnId {
        TxnId(ended.0)
    }
}

/// An inode whose changes are to be durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileScope {
    /// The inode. Dirty blocks with this owner are its contents and maps.
    pub ino: Ino,
    /// The block of the inode table that holds it.
    pub inode_block: BlockNo,
}

/// What is to be made durable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Scope {
    /// Everything that has ended.
    All,
    /// These inodes, the first being what is synced and the others what makes it reachable (the
    /// directories that name it). `data_only`: times may be left behind, never sizes or pointers.
    Files {
        /// The inodes.
        files: Vec<FileScope>,
        /// fdatasync?
        data_only: bool,
    },
    /// This transaction and what it needs.
    Txn(Ended),
}

/// Something freed, for [`Integrity::may_reuse`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Freed {
    /// Blocks.
    Blocks(Extent),
    /// An inode.
    Inode(Ino),
}

impl Freed {
    /// One block.
    pub fn block(b: BlockNo) -> Freed {
        Freed::Blocks(Extent { start: b, len: 1 })
    }
}

/// Why pending work must be forced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pressure {
    /// The allocator found nothing that may be reused.
    NoSpace,
    /// The cache is full of blocks that must not be written yet.
    CacheFull,
}

/// What the mode in force guarantees; numbers and answers that do not change while the volume is
/// open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Guarantees {
    /// Is each transaction all or nothing after a crash?
    pub atomic: bool,
    /// Is a name durable when the operation that made it returns?
    pub names_durable: bool,
    /// Is a new block of metadata durable before what points at it?
    pub new_blocks_first: bool,
    /// May space be allocated ahead of its contents?
    pub allocates_ahead: bool,
    /// Are removed files given back by operations of their own, for which nobody waits?
    pub releases_behind: bool,
    /// The most bytes that one operation writes; a longer write is cut short.
    pub write_bytes_max: u64,
    /// Are contents durable, in their place or in a log, before what points at them is?
    pub contents_first: bool,
}

/// When may a change reach the disk?
///
/// * O1 Every metadata edit is announced, before `end`, in the order of the edits.
/// * O2 An image that is written back never holds a byte edited by a transaction whose `end` has
///   not been called; the mechanism may render around such bytes ([`cache::Image::Instead`]).
///   `async` alone is free of this.
/// * O3 After `sync(scope)` returns Ok, everything in scope that ended before the call survives any
///   crash.
/// * O4 After any crash, recovery and the repair that the mode is granted yield a state that
///   `check` accepts.
/// * O5 A freed block or inode is not reused before `may_reuse` says so; whoever runs dry calls
///   `press` first.
/// * O6 `before_write` never waits and never calls back into the layout.
/// * O7 After the first failed write or flush the mechanism accepts no more work.
/// * O8 Time and chance come from `env` only.
pub trait Integrity: WriteGate {
    /// Is one transaction all or nothing after a crash? (The layout keeps an orphan list only
    /// then.)
    fn atomic(&self) -> bool;

    /// Is a new block of metadata durable before what points at it? If not, a directory's block is
    /// not swapped for a copy: names in it could be lost that were durable.
    fn new_blocks_first(&self) -> bool {
        true
    }

    /// Is a name durable when the operation that made it returns? (fsync need not look after it
    /// then.)
    fn names_durable(&self) -> bool {
        false
    }

    /// Are new blocks of zeros cheap? If not, space cannot be allocated ahead of its contents: each
    /// block would be written twice.
    fn zeros_are_cheap(&self) -> bool {
        true
    }

    /// Does a block lie where its number says? In a log it does not: numbers apart keep nothing
    /// apart there, and a reader who goes on from one to the other only begins anew.
    fn places_are_fixed(&self) -> bool {
        true
    }

    /// Is what a removed file had given back by operations of its own, for which nobody waits? A
    /// crash between them leaves space to be found, which such a mode may.
    fn releases_behind(&self) -> bool {
        false
    }

    /// The most bytes of file contents that one operation may write: longer writes are cut.
    fn write_bytes_max(&self) -> u64 {
        u64::MAX
    }

    /// Are contents durable, in their place or in a log, before what points at them is?
    fn contents_first(&self) -> bool {
        false
    }

    /// Blocks for which there is room below, where the volume has more; None: for all of them.
    fn space_left(&self) -> Option<u64> {
        None
    }

    /// May one operation need so much? Who needs more than that goes in steps.
    fn fits(&self, _: &Credits) -> bool {
        true
    }

    /// All of these at once, for who must not know the mechanism.
    fn guarantees(&self) -> Guarantees {
        Guarantees {
            atomic: self.atomic(),
            names_durable: self.names_durable(),
            new_blocks_first: self.new_blocks_first(),
            allocates_ahead: self.zeros_are_cheap(),
            releases_behind: self.releases_behind(),
            write_bytes_max: self.write_bytes_max(),
            contents_first: self.contents_first(),
        }
    }

    /// Does this mechanism need the bytes from before this edit?
    fn wants_before(&self, change: &Change) -> bool;

    /// Is one edit from the first word that a change has changed to the last as good to it as one
    /// for each run of such words? Only where it looks for itself which of them differ.
    fn joins_words(&self, _: &Change) -> bool {
        false
    }

    /// Does it write down what each operation may leave half done (see [`Txn::intend`])?
    fn wants_intents(&self) -> bool {
        false
    }

    /// What it had written down of that before a crash was looked at. `whole`: all that was to be
    /// mended is, durably.
    fn looked_at(&self, _whole: bool) -> Local<'_, Result<(), IntegrityError>> {
        Box::pin(async { Ok(()) })
    }

    /// Would an operation that needs so much begin now, without waiting for anything? For what is
    /// left out where it would not.
    fn begins_at_once(&self, _: &Credits) -> bool {
        true
    }

    /// Begins an operation; may wait for log space. Call it without holding a buffer's borrow.
    fn begin(&self, need: Credits) -> Local<'_, Result<Txn, IntegrityError>>;

    /// An edit was made. Called by [`Txn::edit`] only.
    fn change(&self, txn: &mut Txn, edit: Edit);

    /// File contents were written into `range` of `buf`. Called by [`Txn::data`] only.
    fn data(&self, txn: &mut Txn, ino: Ino, buf: &Buf, range: Range<usize>);

    /// Ends the operation. When it returns, the operation's locks may be released: later operations
    /// see its changes and are ordered after it. It waits only in mechanisms that order by waiting.
    fn end(&self, txn: Txn) -> Local<'_, Result<Ended, IntegrityError>>;

    /// Waits until what this mode promises of a *returned* call holds for the operation.
    fn durable(&self, ended: Ended) -> Local<'_, Result<(), IntegrityError>>;

    /// Makes `scope` durable.
    fn sync(&self, scope: Scope) -> Local<'_, Result<(), IntegrityError>>;

    /// May this freed thing be used again?
    fn may_reuse(&self, what: Freed) -> bool;

    /// Is something free that may not be used again yet?
    fn has_busy_extents(&self) -> bool;

    /// Is the making of this inode known not to be durable yet, so that its going may cost nothing?
    fn is_unseen(&self, _: Ino) -> bool {
        false
    }

    /// Does a name that the operation took away go on the disk only much later, after many others
    /// that wait one for another? What is written over it waits with it.
    fn keeps_old_name(&self, _: TxnId) -> bool {
        false
    }

    /// Forces pending work, so that more may be reused or written.
    fn press(&self, why: Pressure) -> Local<'_, Result<(), IntegrityError>>;

    /// Everything written back and durable, the log empty: the last call before the volume is
    /// marked clean.
    fn close(&self) -> Local<'_, Result<(), IntegrityError>>;

    /// Counters for metrics, by Prometheus name.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// A mechanism as the layout holds it.
pub type Mechanism = Rc<dyn Integrity>;
