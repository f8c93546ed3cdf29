//! The store: what the operations need of a layout, and nothing more. `ext` updates in place; a
//! log-structured layout writes elsewhere; both have one format of inodes and directory blocks, so
//! the operations are the same. (4.4BSD's split of UFS from FFS and LFS.)
//!
//! It is asked about eight subjects, a trait and a file each:
//!
//! ```text
//!   StoreInfo      what the volume is: limits, guarantees, may it be written?   (here)
//!   Transactions   begin, renew, end                                            transactions.rs
//!   Syncs          what is durable, and making it so                            syncs.rs
//!   Inodes         slots: found, allocated, freed, remembered as orphans        inodes.rs
//!   Contents       file blocks: where they lie, reading, allocating, freeing    contents.rs
//!   Directories    directory blocks                                             directories.rs
//!   Attributes     the attribute block, values elsewhere                        attributes.rs
//!   Space          free space, trim, the label                                  space.rs
//! ```
//!
//! Every edit of an inode or a directory block goes through the transaction, whose type is the
//! store's ([`Transactions::Txn`]); what the operations ask of it is a [`Transaction`]. The store
//! decides block numbers, bitmaps, maps and counts; the operations decide names, links, sizes,
//! times and owners. Nothing here locks: the operations hold the inode's lock, exclusively for
//! whatever edits.
//!
//! What the layout can hold ([`Limits`]) is apart from what the mode in force promises
//! ([`Guarantees`]): either may change without the other.
//!
//! Errors are what the user may be told; the store logs what happened and where, and turns itself
//! read-only after `Corrupt` metadata or a failed write ([`StoreInfo::writable`] then says
//! `ReadOnly`).

mod attributes;
mod contents;
mod directories;
mod inodes;
mod scrubbed;
mod space;
mod syncs;
mod transactions;

pub use attributes::Attributes;
pub use contents::{Contents, Fill, PunchStep, Run};
pub use directories::Directories;
pub use inodes::{InodeHandle, Inodes};
pub use scrubbed::{Holding, Scrubbed};
pub use space::Space;
pub use syncs::Syncs;
pub use transactions::{Transaction, Transactions};

use check::live::Watch;
use env::Env;
use format::FormatError;
use format::ufs::dirhash::IndexRules;
use integrity::Guarantees;
use vfs::FsError;

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

/// What the volume is, and whether it may be changed.
pub trait StoreInfo: 'static {
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
}

/// A layout: all of it. Whoever has written the parts has it.
pub trait Store: Syncs + Inodes + Contents + Directories + Attributes + Space {}

impl<S> Store for S where S: Syncs + Inodes + Contents + Directories + Attributes + Space {}
