//! Directories. Every change of a name is made here, in one 512-byte sector of one block, so that a
//! torn write cannot break it; also in blocks of the kernel's making, whose entries cross sectors.
//! Taking a name away needs no space.
//!
//! A directory either is a list, with an index in memory; then no entry ever moves, so a listing
//! can go on while the directory changes. Or it has an index by hash on disk (Linux's dir_index),
//! on volumes that say so and where operations are atomic: then leaves are split, and a listing
//! goes by hashes.

mod again;
mod change;
mod index;
mod known;
mod linear;
mod listing;
mod memo;
mod scan;
mod split;
mod tree;
mod vacated;

/// Where a directory is too long for what 32 bits with a sign can say.
const DIR_BYTES_MAX: u64 = 1 << 31;

pub(crate) use index::DirIndex;
pub(crate) use known::Known;
pub(crate) use listing::hash_of;
pub(crate) use memo::Memo;

use format::Ino;

/// A name that was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    /// Byte of the entry, from the directory's start.
    pub(crate) at: u64,
    pub(crate) ino: Ino,
}
