//! Directories: linear on disk, with an index in memory. Every change of a directory's block is
//! made here, in one 512-byte line; blocks of the kernel's making are swapped for confined ones
//! before they change.

mod change;
mod index;
mod scan;

pub(crate) use index::DirIndex;

use format::Ino;

/// A name that was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    /// Byte of the entry, from the directory's start.
    pub(crate) at: u64,
    pub(crate) ino: Ino,
}
